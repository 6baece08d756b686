"""Forecasts: what there is to read for one, and at which window it looks. How it is made is in core.insight.forecast.

It is made in a thread: a hundred thousand triggers take the better part of a second, in which others must not wait. One
is made at a time; of those who wait for their turn and ask for the same, the first makes it for all.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

from horae.core.insight.arrivals import Window
from horae.core.insight.baselines import Expected
from horae.core.insight.forecast import JOB, OWNER, QUEUE, Forecast, forecast
from horae.core.insight.planned import Follower, Places
from horae.core.model import SECOND, Moment
from horae.errors import Invalid
from horae.ports.store.cluster import Nodes
from horae.ports.store.definitions import Definitions
from horae.ports.store.history import Durations, Plans
from horae.ports.store.moments import StoreClock
from horae.ports.store.queues import Queues

BY = (JOB, QUEUE, OWNER)
LONGEST_HOURS = 744.0  # 31 days
FARTHEST = 366 * 86_400 * SECOND  # ahead of now
MOST_TRIGGERS = 1_000_000
MOST_FOLLOWERS = 10_000
MOST_ITEMS = 1000
SHARE_DIGITS = 4


class ForecastStore(Plans, Durations, Definitions, Nodes, Queues, StoreClock, Protocol):
    """Triggers and durations, names of jobs, the agents there are, and queues."""


class _Asked(NamedTuple):
    """What is asked for."""

    hours: float
    start: Moment | None
    by: str
    org: int | None
    limit: int


class Forecasting:
    def __init__(self, store: ForecastStore) -> None:
        self._store = store
        self._alone = asyncio.Lock()
        self._askers = 0
        self._last: tuple[_Asked, int, Forecast] | None = None  # made after so many had asked

    async def make(
        self, *, hours: float, start: Moment | None = None, by: str = JOB, org: int | None = None, limit: int = 20
    ) -> Forecast:
        """Return what the hours from a moment on, or from now on, will see."""
        asked = _Asked(hours, start, by, org, limit)
        self._askers += 1
        number = self._askers
        async with self._alone:
            if self._last is not None and self._last[0] == asked and self._last[1] >= number:
                return self._last[2]
            askers, found = self._askers, await self._make(asked)
            self._last = asked, askers, found
            return found

    async def expected(self, job_id: int) -> Expected | None:
        """Return how long the next run of a job is to take, as it was learned; None: it never succeeded."""
        known = (await self._store.load_baselines([job_id])).get(job_id)
        return None if known is None else known.predict()

    async def _make(self, asked: _Asked) -> Forecast:
        window = _window(await self._store.now(), asked.start, asked.hours)
        async with _uncollected():
            planned = await self._store.load_planned(window.end, MOST_TRIGGERS)
            followers = await self._store.load_followers(MOST_FOLLOWERS)
            places = Places(
                await self._store.list_nodes(), await self._store.list_queues(), await self._store.count_queued()
            )
            found = await asyncio.to_thread(
                forecast, window, planned, followers, places, await self._shares(followers), by=asked.by, org=asked.org,
                limit=asked.limit,
            )  # fmt: skip
        return found.named(await self._store.load_job_names(sorted(found.jobs())))

    async def _shares(self, followers: Sequence[Follower]) -> dict[int, float]:
        """Return which share of the runs of jobs that others follow succeeds."""
        heard = {job_id for it in followers for job_id, _ in it.heard}
        known = await self._store.load_baselines(sorted(heard)) if heard else {}
        return {job_id: round(one.share, SHARE_DIGITS) for job_id, one in known.items()}


@asynccontextmanager
async def _uncollected() -> AsyncIterator[None]:
    """Nothing that is made here is garbage before the end: looking for some meanwhile would take long."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _window(now: Moment, start: Moment | None, hours: float) -> Window:
    """Whole seconds: the one that has begun is past."""
    begin = -(-now // SECOND) * SECOND if start is None else start // SECOND * SECOND
    if start is not None and start < now - SECOND:
        raise Invalid("a forecast looks ahead: from lies in the past", code="E_RANGE", path="from")
    if begin - now > FARTHEST:
        raise Invalid("a forecast begins within a year from now", code="E_RANGE", path="from")
    return Window(begin, begin + max(1, round(hours * 3600)) * SECOND)
