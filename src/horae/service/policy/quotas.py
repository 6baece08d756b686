"""How much of one owner, and of one organisation, may wait, and how many jobs an organisation may have.

Whoever asks for a run while that much of theirs is waiting is refused, and told to come again. Moments of triggers are
never refused: they have their records, come what may.

What waits is counted in the store, and the count holds for a second, or for twenty times as long as it took, so that
counting never takes more than a twentieth of anybody's time; runs that were let in meanwhile are added here. Other
nodes do the same, so for that long an owner may get as much more as there are nodes that let them in.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from horae.core.policy.queues import Queue
from horae.errors import Conflict, Limited
from horae.ports.store.queues import PolicyCounts

HOLDS = 1.0  # seconds
RARELY = 20  # times as long as a count took
REMEMBERED = 10_000  # counts
REFRESH = 5.0  # seconds for which the quotas of organisations are known


class Ask(NamedTuple):
    """Runs that somebody wants."""

    org: int
    user: str
    queue: Queue
    runs: int = 1


class Line(NamedTuple):
    """Of whom what is counted, and where."""

    org: int
    user: str | None  # None: of the whole organisation
    queue: int | None  # None: in all of them


@dataclass(slots=True)
class _Count:
    waiting: int
    until: float


class Quotas:
    def __init__(self, store: PolicyCounts, per_owner: int | None = None) -> None:
        """`per_owner`: runs of one owner that may wait in all queues together."""
        self._store = store
        self._per_owner = per_owner
        self._counts: dict[Line, _Count] = {}
        self._by_org: dict[int, tuple[int | None, int | None]] = {}  # runs that may wait, jobs
        self._known_until = -math.inf

    async def refresh(self) -> None:
        """Have the quotas of organisations no older than they may be: one look for whatever is asked meanwhile."""
        now = asyncio.get_running_loop().time()
        if now >= self._known_until:
            self._known_until = now + REFRESH  # who comes meanwhile goes by what was known
            try:
                self._by_org = await self._store.list_quotas()
            except BaseException:
                self._known_until = -math.inf
                raise

    def is_for(self, queue: Queue, org: int) -> bool:
        """Return whether there is a limit to what may wait there."""
        return self._per_owner is not None or queue.most_waiting is not None or self._most_waiting(org) is not None

    def _most_waiting(self, org: int) -> int | None:
        return self._by_org[org][0] if org in self._by_org else None

    def most_jobs(self, org: int) -> int | None:
        return self._by_org[org][1] if org in self._by_org else None

    async def check_jobs(self, org: int, new: int) -> None:
        """Refuse to make that many jobs, where there would be more than may."""
        most = self.most_jobs(org)
        if most is None or not new:
            return
        there = await self._store.count_jobs_in(org, most + 1)
        if there + new > most:
            raise Conflict(
                f"the organisation has {there} jobs of {most}, and this makes {new} more",
                code="E_ORG_JOBS",
                hint="delete some, or ask who runs the installation: `horae orgs limit ORG --most-jobs N`",
            )

    async def take(self, asked: Sequence[Ask]) -> list[Limited | None]:
        """Let runs in, each ask for itself, all of it or nothing; or return why not. Counted before the first is let
        in, for none of them is in the store yet."""
        counts: dict[Line, _Count] = {}
        for line, most in dict(limit for ask in asked for limit in self._limits(ask)).items():
            counts[line] = await self._count(line, most)
        return [self._let_in(ask, counts) for ask in asked]

    def _limits(self, ask: Ask) -> list[tuple[Line, int]]:
        org, user, queue, _ = ask
        limits = (
            (Line(org, user, None), self._per_owner),
            (Line(org, user, queue.id), queue.most_waiting),
            (Line(org, None, None), self._most_waiting(org)),
        )
        return [(line, most) for line, most in limits if most is not None]

    def _let_in(self, ask: Ask, counts: Mapping[Line, _Count]) -> Limited | None:
        limits = self._limits(ask)
        for line, most in limits:
            if counts[line].waiting + ask.runs > most:
                whose, code = (ask.user, "E_TOO_MUCH_WAITING") if line.user else ("this organisation", "E_ORG_WAITING")
                return Limited(
                    f"{counts[line].waiting} runs of {whose} are waiting, and at most {most} may",
                    code=code,
                    hint="try again when some have started",
                )
        for line, _ in limits:
            counts[line].waiting += ask.runs
        return None

    async def _count(self, line: Line, most: int) -> _Count:
        clock = asyncio.get_running_loop().time
        known = self._counts.get(line)
        if known is not None and clock() < known.until:
            return known
        began = clock()
        if line.user is None:
            waiting = await self._store.count_waiting_in(line.org, most + 1)
        else:
            waiting = await self._store.count_waiting(line.org, line.user, line.queue, most + 1)
        ended = clock()
        if len(self._counts) >= REMEMBERED:
            del self._counts[next(iter(self._counts))]
        found = self._counts[line] = _Count(waiting, ended + max(HOLDS, RARELY * (ended - began)))
        return found
