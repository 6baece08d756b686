"""Forecasts: what there is to read for one, and at which window it looks. How it is made is in core.insight.forecast.

It is made in a thread: a hundred thousand triggers take the better part of a second, in which others must not wait. One
is made at a time, and a small one beside a large one; of those who wait for their turn and ask for the same, the first
makes it for all. Who only looks does not wait for a large one: they are shown the one before while the next is made,
and that apart, if there is somebody who does so: a thread would hold up every page that is asked for meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import NamedTuple, Protocol

import structlog

from horae.core.insight.arrivals import Window
from horae.core.insight.baselines import Expected
from horae.core.insight.forecast import JOB, OWNER, QUEUE, Forecast, forecast
from horae.core.insight.planned import Follower, Places
from horae.core.model import SECOND, Moment
from horae.errors import Invalid, Unavailable
from horae.ports.store.cluster import Nodes
from horae.ports.store.definitions import Definitions
from horae.ports.store.history import Durations, Plans
from horae.ports.store.moments import StoreClock
from horae.ports.store.queues import Queues

log = structlog.get_logger()
BY = (JOB, QUEUE, OWNER)
LONGEST_HOURS = 744.0  # 31 days
FARTHEST = 366 * 86_400 * SECOND  # ahead of now
MOST_TRIGGERS = 1_000_000
MOST_FOLLOWERS = 10_000
MOST_ITEMS = 1000
SHARE_DIGITS = 4
FEW = 2_000  # triggers: of so many it is made while whoever looks waits
KEPT_SECONDS = 20.0  # for which one serves all who look,
KEPT_TIMES = 20  # or so many times as long as it took: making them takes a twentieth of the time at most
LOOK_BACK = 20  # of the time that it looks ahead, the part after which it is too old to be shown
MOST_KEPT = 32
SWITCH_SECONDS = 0.0005  # after which the thread lets others go on


class ForecastStore(Plans, Durations, Definitions, Nodes, Queues, StoreClock, Protocol):
    """Triggers and durations, names of jobs, the agents there are, and queues."""


class Asked(NamedTuple):
    """What is asked for."""

    hours: float
    start: Moment | None
    by: str
    org: int | None
    limit: int


Maker = Callable[[Asked], Awaitable[Forecast]]


class _Turn:
    """One is made at a time."""

    def __init__(self) -> None:
        self.alone = asyncio.Lock()
        self.askers = 0
        self.last: tuple[Asked, int, Forecast] | None = None  # made after so many had asked


class _Kept(NamedTuple):
    """One that was made, by the clock of the event loop."""

    found: Forecast
    fresh_until: float
    good_until: float

    def is_fresh(self) -> bool:
        return asyncio.get_running_loop().time() < self.fresh_until

    def is_good(self) -> bool:
        return asyncio.get_running_loop().time() < self.good_until


class Forecasting:
    def __init__(self, store: ForecastStore, apart: Maker | None = None) -> None:
        """`apart` makes a forecast elsewhere, from the same store."""
        self._store = store
        self._apart = apart
        self.made = 0  # of those that are kept
        self._kept: dict[Asked, _Kept] = {}
        self._making: dict[Asked, asyncio.Task[Forecast]] = {}
        self._small, self._large = _Turn(), _Turn()  # who asks for a small one does not wait for a large one

    async def make(
        self, *, hours: float, start: Moment | None = None, by: str = JOB, org: int | None = None, limit: int = 20
    ) -> Forecast:
        """Return what the hours from a moment on, or from now on, will see."""
        asked = Asked(hours, start, by, org, limit)
        turn = self._small if await self._are_few(asked) else self._large
        turn.askers += 1
        number = turn.askers
        async with turn.alone:
            if turn.last is not None and turn.last[0] == asked and turn.last[1] >= number:
                return turn.last[2]
            askers, found = turn.askers, await self._make(asked, is_large=turn is self._large)
            turn.last = asked, askers, found
            return found

    async def lately(
        self, *, hours: float, start: Moment | None = None, by: str = JOB, org: int | None = None, limit: int = 20
    ) -> Forecast:
        """As make; but of very many triggers, one that was made lately will do."""
        asked = Asked(hours, start, by, org, limit)
        if await self._are_few(asked):
            return await self.make(**asked._asdict())
        kept = self._kept.get(asked)
        return kept.found if kept is not None and kept.is_fresh() else await asyncio.shield(self._begin(asked))

    async def look(
        self, *, hours: float, start: Moment | None = None, by: str = JOB, org: int | None = None, limit: int = 20
    ) -> Forecast | None:
        """Return one that was made lately, for people who do not wait: of very many triggers they see the one before
        while the next is made, and None until there is a first."""
        asked = Asked(hours, start, by, org, limit)
        kept = self._kept.get(asked)
        if kept is not None and kept.is_fresh():
            return kept.found
        making = self._begin(asked, is_apart=True)
        if await self._are_few(asked):
            return await asyncio.shield(making)
        return kept.found if kept is not None and kept.is_good() else None

    def _begin(self, asked: Asked, *, is_apart: bool = False) -> asyncio.Task[Forecast]:
        """Return what makes it, from now on if nobody has begun. `is_apart`: nobody waits for it, if it is large."""
        if asked not in self._making:
            self._making[asked] = making = asyncio.create_task(self._keep(asked, is_apart=is_apart))
            making.add_done_callback(lambda done: self._forget(asked, done))
        return self._making[asked]

    def _forget(self, asked: Asked, done: asyncio.Task[Forecast]) -> None:
        del self._making[asked]
        if not done.cancelled():
            done.exception()  # whoever waits is told; else the next who looks begins anew

    async def _keep(self, asked: Asked, *, is_apart: bool) -> Forecast:
        loop = asyncio.get_running_loop()
        began = loop.time()
        found = await self._make_apart(asked) if is_apart else None
        found = found or await self.make(**asked._asdict())
        now = loop.time()
        fresh = max(KEPT_SECONDS, (now - began) * KEPT_TIMES)
        self.made += 1
        self._kept.pop(asked, None)
        self._kept[asked] = _Kept(found, now + fresh, now + max(fresh, asked.hours * 3600 / LOOK_BACK))
        if len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return found

    async def _make_apart(self, asked: Asked) -> Forecast | None:
        """Return a large one that was made elsewhere; None: it is to be made here."""
        if self._apart is None or await self._are_few(asked):
            return None
        async with self._large.alone:
            try:
                return await self._apart(asked)
            except (OSError, Unavailable) as error:  # no more processes, or the database is away
                log.warning("forecast.not_apart", why=str(error))
                return None

    async def _are_few(self, asked: Asked) -> bool:
        window = _window(await self._store.now(), asked.start, asked.hours)
        return await self._store.count_planned(window.end, FEW + 1) <= FEW

    async def expected(self, job_id: int) -> Expected | None:
        """Return how long the next run of a job is to take, as it was learned; None: it never succeeded."""
        known = (await self._store.load_baselines([job_id])).get(job_id)
        return None if known is None else known.predict()

    async def _make(self, asked: Asked, is_large: bool) -> Forecast:
        window = _window(await self._store.now(), asked.start, asked.hours)
        async with _beside_others() if is_large else nullcontext():
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
async def _beside_others() -> AsyncIterator[None]:
    """Nothing that is made here is garbage before the end: looking for some meanwhile would take long. And whoever
    answers requests meanwhile must not wait for the thread at every step."""
    was_on, interval = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
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
