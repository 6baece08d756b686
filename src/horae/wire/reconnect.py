"""One connection that comes back: connect, stay until it is lost, wait a little, connect again, for ever.

Pauses double up to a longest one and begin anew after a connection that was good for something. Each is shortened or
lengthened by chance: when a server or a broker goes, everybody loses it at once, and not all shall come back at once.

Who uses it says how it differs:

- agents and the servers that receive them come back in haste while leases of lost lines may still hold: `longest` is
  asked before each pause, and their chance only shortens (SOONER);
- the servers that receive agents try again at once after a connection that was good (`at_once`): agents wait for them;
- an agent with several servers tries all of them before it pauses: its `connect` is one round.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between two tries
AROUND, SOONER = (0.5, 1.5), (0.5, 1.0)  # by which a pause is multiplied: from, to
CANCEL_SECONDS = 1.0  # between two cancels of a task that goes on


class Reconnect:
    def __init__(
        self,
        connect: Callable[[], Awaitable[bool]],
        *,
        spread: tuple[float, float] = AROUND,
        longest: Callable[[], float] = lambda: LONGEST_PAUSE,
        at_once: bool = False,
    ) -> None:
        """`connect` is one connection from its first word to its end; it returns whether it was good for something,
        and raises only what shall end the loop."""
        self._connect = connect
        self._spread, self._longest, self._at_once = spread, longest, at_once
        self.pause = FIRST_PAUSE  # seconds, about, before the next try

    async def run(self) -> None:
        while True:
            was_good = await self._connect()
            _cancel_again()
            if was_good:
                self.pause = FIRST_PAUSE
            if not (was_good and self._at_once):
                await asyncio.sleep(self.pause * random.uniform(*self._spread))  # noqa: S311
                self.pause = min(self.pause * 2, self._longest())


def _cancel_again() -> None:
    """Raise the cancel that was meant for this task and swallowed on its way: the library of NATS does so."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def end_task(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task again and again until it is done: the library of NATS swallows a cancel now and then."""
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_SECONDS)
