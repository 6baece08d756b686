"""A forecast of a day held against the day itself: a world of jobs, learned first, then foretold, then lived."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest

from horae.app.local_calls import as_datetime
from horae.core.insight.arrivals import Window
from horae.core.insight.forecast import Forecast
from horae.core.model import Json
from horae.service.insight.forecasting import Forecasting
from horae.service.insight.learning import Learning
from horae.testing import world
from horae.testing.adapters import Recorded
from horae.testing.worlds import World

T = TypeVar("T")
BATCHES = 40  # in which jobs are submitted, so that intervals have phases of their own


def schedule_of(dice: random.Random) -> Json:
    """Mostly hourly and daily, as such things are; some crowd at midnight, some keep to the clocks of a city."""
    kind = dice.random()
    if kind < 0.06:
        return {"schedule": "0 0 * * *"}
    if kind < 0.40:
        return {"schedule": f"{dice.randrange(60)} {dice.randrange(24)} * * *", "timezone": "Europe/Berlin"}
    if kind < 0.60:
        return {"schedule": "H * * * *"}
    if kind < 0.75:
        return {"schedule": f"{dice.choice([5, 20, 35])} */2 * * *"}
    if kind < 0.95:
        return {"schedule": dice.choice(["1h", "90m", "6h"])}
    return {"schedule": "*/10 * * * *"}


def job_of(number: int, dice: random.Random) -> tuple[Json, tuple[float, float]]:
    """Return a job, how long it takes, and the spread of that."""
    document = {"name": f"job {number}", "steps": [{"run": "work"}], **schedule_of(dice)}
    return document, (dice.lognormvariate(3.5, 1.0), dice.choice([0.05, 0.2, 0.5]))


class Day:
    """A world of jobs, learned for a day."""

    def __init__(self, horae: World) -> None:
        self.horae = horae
        self.store: Any = horae._engine._store

    def submit(self, documents: list[Json], dice: random.Random) -> None:
        size = -(-len(documents) // BATCHES)
        for start in range(0, len(documents), size):
            self.horae.submit_all({"jobs": documents[start : start + size]})
            self.horae.pass_time(seconds=dice.uniform(1, 60))

    def do(self, work: Awaitable[T]) -> T:
        return self.horae._engine.loop.run_until_complete(work)  # type: ignore[no-any-return, arg-type]

    def learn(self) -> None:
        for _ in range(3):
            self.do(Learning(self.store).learn())
            self.horae.pass_time(minutes=1)

    def lived(self, window: Window) -> tuple[Counter[int], int]:
        """Return moments by job, and the most runs at once."""
        rows = self.do(self.store.read(
            "SELECT job_id, due_at, started_at, finished_at FROM history UNION ALL "
            "SELECT job_id, due_at, started_at, NULL FROM live"
        ))  # fmt: skip
        moments = Counter(job for job, due, _, _ in rows if window.start <= due < window.end)
        changes = sorted(
            change
            for _, _, begun, ended in rows
            if begun is not None and (ended is None or ended > window.start) and begun < window.end
            for change in ((begun, 1), (window.end if ended is None else ended, -1))
        )
        peak = now = 0
        for _, change in changes:
            now += change
            peak = max(peak, now)
        return moments, peak


@pytest.mark.parametrize("jobs", [250, pytest.param(5000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_a_day_comes_as_it_was_foretold(jobs: int, capsys: pytest.CaptureFixture[str]) -> None:
    dice = random.Random(7)
    made = [job_of(number, dice) for number in range(jobs)]
    took = {document["name"]: usual for document, usual in made}

    async def perform(work: Recorded) -> int:
        median, spread = took[work.job]
        await asyncio.sleep(median * dice.lognormvariate(0, spread))
        return 0

    with world(perform=perform) as horae:
        day = Day(horae)
        day.submit([document for document, _ in made], dice)
        horae.pass_time(hours=24)
        day.learn()
        begun = time.process_time()
        found: Forecast = day.do(Forecasting(day.store).make(hours=24, limit=jobs))
        seconds = time.process_time() - begun
        horae.pass_until(as_datetime(found.window.end))
        moments, peak = day.lived(found.window)
    with capsys.disabled():
        print(f"\n{jobs} jobs, {found.moments} moments: {seconds:.2f} s; peak {found.peak:.0f} foretold, {peak} lived")
    assert {int(item.key): item.moments for item in found.items} == moments
    assert found.moments == moments.total()
    assert peak < found.slots, "it is the work that makes the peak, not the slots"
    assert found.peak == pytest.approx(peak, rel=0.2)
