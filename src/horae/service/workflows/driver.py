"""What servers do themselves: they claim runs of the kinds that no agent does, and act on the ends of others.

A server claims under its own node, through its link, as an agent would: limits, queues, priorities and fences hold. A
run that was claimed and not begun, because its server died, is taken back like any lost one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from horae.core.runs.holdings import Holding
from horae.core.runs.orders import Assignment, Result
from horae.core.signs import Beat
from horae.errors import Superseded
from horae.ports.transport import Link
from horae.service.workflows.beside import Beside
from horae.service.workflows.outbox import Outbox

ROOM = 200  # runs of a kind that are begun together
NOTHING = Holding(0, 0)  # beside what the link knows of

Begin = Callable[[Sequence[Assignment]], Awaitable[Sequence[Result]]]  # returns the ends of those that cannot be


class Driver:
    def __init__(self, link: Link, outbox: Outbox, begins: Mapping[str, Begin], beside: Beside) -> None:
        """`begins`: kind → what to do with runs of it that were claimed. `beside` is how the link knows of these."""
        self._link = link
        self._beside = beside
        self._outbox = outbox
        self._begins = begins
        self._claimed: list[Assignment] = []  # not begun yet

    async def beat(self) -> Beat | None:
        """Say that a server lives that has no agent; what an agent of its node does for it otherwise. A claim whose
        answer was lost is found by the books, and given back."""
        answer = await self._link.beat(0, NOTHING)
        if answer is not None and answer.in_doubt:
            await self._link.disown(())
        return answer

    async def step(self) -> bool:
        """Begin what waits, and act on what has ended; return whether there may be more."""
        more = await self._claim()
        return await self._outbox.act() or more

    async def _claim(self) -> bool:
        """What could not be begun, because the store was away, is tried again: it is ours until somebody takes it
        back, and then its fence is another one."""
        if not self._claimed:
            try:
                async with self._beside.claiming:
                    self._hold(await self._link.claim(dict.fromkeys(self._begins, ROOM)))
            except Superseded:
                return False  # another process has our name: this one is about to learn it
        kinds = {a.kind for a in self._claimed}
        for kind in sorted(kinds):
            failed = await self._begins[kind]([a for a in self._claimed if a.kind == kind])
            await self._link.finish(failed) if failed else None
        has_more = any(sum(a.kind == kind for a in self._claimed) == ROOM for kind in kinds)
        self._hold([])
        return has_more

    def _hold(self, claimed: list[Assignment]) -> None:
        self._claimed = claimed
        self._beside.attempts = [(a.run_id, a.fence) for a in claimed]
