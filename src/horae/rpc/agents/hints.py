"""Which agents are told of runs that wait: as many as there are runs for, and only those that could take one.

An agent whose claim brought less than it had room for is idle: it will not ask again until it is told. One look at the
database for all idle agents of this server, when runs are announced and now and then, says how many of them there is
work for. What the last look did not find is not asked for again before the next one, or the next announcement.

What must stay true: no run waits while an agent that could take it is idle, for longer than it takes to look. So a
claim that was under way while runs were announced does not make idle; and whoever is told and does not claim (it is
cordoned, or its line is about to break) is passed over at the next look, which then comes soon.

Runs that demand more than a slot count only when runs were announced: whether they may start, a claim finds out, and
who holds what they wait for announces its end (service.policy.starting).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from horae.core.model import Node
from horae.core.runs.orders import Backlog
from horae.errors import Unavailable
from horae.ports.clock import Clock
from horae.ports.transport import Queue

log = structlog.get_logger()

POLL_SECONDS = 5.0  # between looks that nobody asked for
REPEAT_SECONDS = 0.25  # after which those who were told have claimed, or will not
LOOK_GAP = 0.02  # seconds between two looks, at least
FEW_COUNTED = 20  # runs with one demand: what is limited starts a few at a time
MOST_COUNTED = 1000  # runs of a kind: from there on, there is work for everybody


@dataclass(slots=True)
class _Idle:
    node: Node
    kinds: set[str]  # of which it has free slots
    send_hint: Callable[[], None]
    is_told: bool = False

    def may_take(self, waiting: Backlog) -> bool:
        is_mine = waiting.kind in self.kinds and waiting.pin in (None, self.node.name)
        return is_mine and set(waiting.needs).issubset(self.node.labels)


class HintStore(Protocol):
    """What waits for agents."""

    async def load_backlog(self, kinds: Sequence[str], limit: int) -> list[Backlog]: ...
    async def load_demanding(self, limit: int) -> list[Backlog]: ...


class WorkHints:
    """For the agents of one server; each is known by its session."""

    def __init__(self, store: HintStore, queue: Queue, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._announced = queue.watch("runs")
        self._idle: dict[object, _Idle] = {}  # whoever was told last is last
        self._empty: set[str] = set()  # kinds of which the last look found none,
        self._looked_at = float("-inf")  # when it was begun
        self._has_demanding = False  # there may be some that wait for more than a slot
        self._demanding_at = float("-inf")  # when to look for them at the earliest, by the watch of the loop
        self.announcements = 0

    def none_wait(self, kinds: Collection[str]) -> bool:
        """Return whether a claim would most likely find nothing; who believes it is told otherwise, should it be
        wrong."""
        is_fresh = self._clock.elapsed() - self._looked_at < 2 * POLL_SECONDS and not self._announced.is_due
        return is_fresh and self._empty.issuperset(kinds)

    def note_claim(
        self, session: object, node: Node, missing: Mapping[str, int], announcements: int, send_hint: Callable[[], None]
    ) -> None:
        """A claim that was begun when there had been so many announcements left so much room."""
        kinds = {kind for kind, count in missing.items() if count > 0}
        if session in self._idle:  # what it did not ask for this time, it still has room for, or it does not matter
            kinds |= self._idle.pop(session).kinds - missing.keys()
        if kinds:
            self._idle[session] = _Idle(node, kinds, send_hint)
        if kinds and announcements != self.announcements:
            self._hint(session)

    def forget(self, session: object) -> None:
        self._idle.pop(session, None)

    async def run(self) -> None:
        """Look when there is a reason to, for ever."""
        pause = POLL_SECONDS
        while True:
            is_announced = await self._announced.wait(pause)
            if is_announced:
                self.announcements += 1
                self._empty.clear()
                self._has_demanding = True
            elif pause == POLL_SECONDS:
                for one in self._idle.values():
                    one.is_told = False
            try:
                pause = REPEAT_SECONDS if await self._look() else POLL_SECONDS
            except Unavailable as error:
                log.warning("store.unavailable", role="hints", error=error.message, retry_seconds=REPEAT_SECONDS)
                pause = REPEAT_SECONDS
            await asyncio.sleep(LOOK_GAP)

    async def _look(self) -> bool:
        """Tell those that there is work for; whether there was any, or may be some."""
        kinds = {kind for one in self._idle.values() if not one.is_told for kind in one.kinds}
        if not kinds:
            return False
        began, now = self._clock.elapsed(), asyncio.get_running_loop().time()
        demanding: list[Backlog] = []
        if self._has_demanding and now >= self._demanding_at:
            self._has_demanding, self._demanding_at = False, now + REPEAT_SECONDS
            demanding = await self._store.load_demanding(FEW_COUNTED)
        backlog = await self._store.load_backlog(sorted(kinds), MOST_COUNTED) + demanding
        self._looked_at = began
        self._empty = (self._empty | kinds) - {waiting.kind for waiting in backlog}
        chosen = self._choose(backlog)
        for session in chosen:
            self._hint(session)
        return bool(chosen) or self._has_demanding

    def _choose(self, backlog: Iterable[Backlog]) -> list[object]:
        chosen: dict[object, None] = {}
        for waiting in backlog:
            fit = [session for session, one in self._idle.items() if not one.is_told and one.may_take(waiting)]
            chosen |= dict.fromkeys(fit if waiting.runs >= MOST_COUNTED else fit[: waiting.runs])
        return list(chosen)

    def _hint(self, session: object) -> None:
        one = self._idle.pop(session)
        one.is_told = True
        self._idle[session] = one
        one.send_hint()
