"""The past of jobs at a glance: how their last runs ended, and how each day went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from horae.core.model import LARGEST_ID, SECOND, Moment, State
from horae.ports.store.glances import Glances as GlanceStore
from horae.ports.store.moments import StoreClock

FATES = 30  # of a job
DAY = 86_400 * SECOND


class GlancesStore(GlanceStore, StoreClock, Protocol):
    """Past runs, and the clock that judges dueness."""


class Day(NamedTuple):
    """A day of UTC."""

    start_at: Moment
    runs: Mapping[State, int]


class Glances:
    def __init__(self, store: GlancesStore) -> None:
        self._store = store
        self._first_ids: dict[Moment, int] = {}  # of days that are over: the first run of each has its number for good

    async def fates(self, job_ids: Sequence[int]) -> dict[int, list[tuple[int, State]]]:
        """Return how the last runs of jobs ended, oldest first, as (run, state)."""
        return await self._store.load_fates(job_ids, FATES)

    async def days(self, job_id: int, count: int) -> list[Day]:
        """Return how the last days of a job went, oldest first, today included; a run belongs to the day on which it
        was made."""
        now = await self._store.now()
        today = now // DAY * DAY
        starts = [today - (count - 1 - number) * DAY for number in range(count)]
        first = await self._first(starts, today)
        counted = await self._store.count_between(job_id, [*first, LARGEST_ID])
        return [Day(start, runs) for start, runs in zip(starts, counted, strict=True)]

    async def _first(self, starts: Sequence[Moment], today: Moment) -> list[int]:
        """Return the first run of each day. Of today it may still come."""
        unknown = [start for start in starts if start not in self._first_ids]
        found = dict(zip(unknown, await self._store.find_made_since(unknown), strict=True)) if unknown else {}
        self._first_ids.update((start, run_id) for start, run_id in found.items() if start < today)
        return [found.get(start) or self._first_ids.get(start, 0) for start in starts]
