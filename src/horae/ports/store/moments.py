"""Due moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from horae.core.model import Moment
from horae.core.runs.orders import Definition, Due, Fire, Fired, LastRun, Lend


class StoreClock(Protocol):
    """The one clock that all nodes share."""

    async def now(self) -> Moment:
        """Return the clock that judges dueness."""


class Moments(StoreClock, Protocol):
    """Due moments, and the runs that are made of them. Dueness is judged by the clock of the store."""

    async def load_due(
        self, segments: Sequence[int], after: tuple[Moment, int], until: Moment, limit: int
    ) -> list[Due]:
        """Due rows of these segments with (next_at, trigger_id) > after and next_at < until, soonest first."""

    async def load_definitions(self, trigger_ids: Sequence[int]) -> list[Definition]: ...

    async def load_last_runs(self, trigger_ids: Sequence[int]) -> list[LastRun]:
        """Return the newest run of each trigger that was neither skipped nor coalesced."""

    async def fire(
        self, fires: Sequence[Fire], terms: Mapping[int, int] | None = None, lend: Lend | None = None
    ) -> Fired:
        """Advance triggers and make their runs; with `lend`, those that would be queued are lent instead.

        A fire happens only if the due row still says (cur_at, version), every moment that it accounts for has
        come by the store's clock, `next_at` lies after them all, and its segment does not have another term than
        the one in `terms`, under which the caller believes to own it; otherwise it leaves no trace.
        Each job's overlap policy is decided here: with a live run of the job, `forbid` makes the new one history
        as skipped(overlap), `queue` makes it blocked(overlap) up to its limit, `replace` makes it
        blocked(overlap), cancels those that wait and asks the running one to stop.
        Trigger ids are distinct within a call.
        """
