"""An event loop on a virtual clock: time stands still while anybody has something to do.

Whoever drives it (engine.py) asks to be told when everybody waits, and then moves the clock on. `asyncio.sleep`,
timeouts and `call_later` of handlers all follow that clock. What threads do, and what comes over sockets, is waited for
in real time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

from horae.core.model import SECOND, Moment
from horae.testing.clock import FakeClock

OWN_SOCKETS = 1  # by which threads wake the loop
SILENCE = 0.5  # seconds for which a handler may wait for a socket before time goes on


class VirtualClock(FakeClock):
    """A clock that its loop moves; who sleeps by it sleeps in that loop."""

    def __init__(self, now: Moment) -> None:
        super().__init__(now)
        self._began = now

    def elapsed(self) -> float:
        return (self._now - self._began) / SECOND

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def set(self, moment: Moment) -> None:
        """Move on to a moment; time never goes back."""
        self._now = max(self._now, moment)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._idle: asyncio.Future[None] | None = None
        self._in_threads = 0
        super().__init__(_Selector(self._wait))
        self._clock_resolution = 1 / SECOND

    def time(self) -> float:
        return self._clock.elapsed()

    async def idle(self) -> None:
        """Return when nobody has anything to do at this moment."""
        self._idle = self.create_future()
        await self._idle

    def next_timer(self) -> Moment | None:
        """Return when somebody who sleeps wants to wake."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        soonest = min((timer.when() for timer in timers if not timer.cancelled()), default=None)
        return None if soonest is None else self._clock.now() + round((soonest - self.time()) * SECOND)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._leave_thread)
        return future

    def _leave_thread(self, _: asyncio.Future[Any]) -> None:
        self._in_threads -= 1

    def _wait(self, selector: _Selector) -> list[Any]:
        """Nobody has anything to do: tell whoever drives, or move on to the next who wakes."""
        if self._in_threads:
            return selector.look(None)
        has_sockets = len(selector.get_map()) > OWN_SOCKETS
        if has_sockets and (events := selector.look(SILENCE)):
            return events
        if self._idle is not None:
            if not self._idle.done():
                self._idle.set_result(None)
            self._idle = None
        elif (moment := self.next_timer()) is not None:
            self._clock.set(moment)
        else:
            return selector.look(None)
        return selector.look(0)


class _Selector(selectors.DefaultSelector):
    """Never waits by itself."""

    def __init__(self, wait: Callable[[_Selector], list[Any]]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> list[Any]:
        return self.look(0) if timeout == 0 else self._wait(self)

    def look(self, timeout: float | None) -> list[Any]:
        return super().select(timeout)
