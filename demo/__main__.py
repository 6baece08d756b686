"""Fill a directory with jobs and a week of their past: `python -m demo DIR`, then `horae up --data DIR`.

The week is lived through, not invented: the real store, firing and execution are moved on by a clock of ours, and only
the work is a throw of the dice, always the same ones.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from pathlib import Path
from typing import Any

import structlog

from demo.jobs import JOBS, Nature
from horae.core.model import SECOND, Node, State
from horae.core.runs.orders import Assignment, Result
from horae.core.work.specs import parse_job
from horae.queues.local import LocalQueue
from horae.service.execution import Execution
from horae.service.firing import Firing
from horae.service.insight.learning import Learning
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.stores.migrate import migrate_sqlite
from horae.stores.sqlite import SqliteStore
from horae.testing import FakeClock

DAYS = 7
STEP = 300  # seconds from one look to the next
AGENT = "build-1"


class Week:
    """The past, as it is lived through."""

    def __init__(self, store: SqliteStore, clock: FakeClock) -> None:
        self._store, self._clock = store, clock
        queue, metrics = LocalQueue(), Metrics()
        self._jobs = Jobs(store, queue)
        self._execution = Execution(store, queue, clock, metrics)
        self._firing = Firing(store, queue, clock, metrics)
        self._learning = Learning(store)
        self._dice = random.Random(7)  # noqa: S311 - nothing is secret here
        self._natures: dict[int, Nature] = {}

    async def begin(self) -> None:
        for document, nature, owner in JOBS:
            done = await self._jobs.submit([parse_job(document)], owner=owner)
            self._natures[done.jobs[0].id] = nature

    async def step(self) -> None:
        self._firing.own(dict.fromkeys(range(100), 0))
        await self._firing.refill(sweep=True)
        await self._firing.tick()
        while self._firing.is_behind:
            await self._firing.catch_up()
        now = self._clock.now()
        node = Node(AGENT, ("agent",), ("shell",), (), 16, "demo", "", now, now, 0)
        claimed = await self._execution.claim(node, {"shell": 100})
        self._clock.advance(STEP - 1)
        if claimed:
            await self._execution.finish([self._end(one, now) for one in claimed])
        await self._learning.learn()

    def _end(self, one: Assignment, now: int) -> Result:
        nature = self._natures[one.job_id]
        seconds = max(0.2, self._dice.lognormvariate(0, 0.35) * nature.seconds)
        started = now + self._dice.randrange(5_000, 900_000)
        has_failed = self._dice.random() < nature.failing
        state = State.FAILED if has_failed else State.SUCCEEDED
        message = "step 1 ended with exit code 1" if has_failed else ""
        ended = started + round(min(seconds, STEP - 5) * SECOND)
        return Result(one.run_id, one.fence, state, "", started, ended, int(has_failed), message)


async def fill(path: Path) -> int:
    """Return how many runs there are."""
    now = time.time_ns() // 1000
    clock = FakeClock((now - DAYS * 86_400 * SECOND) // (STEP * SECOND) * STEP * SECOND)
    store = SqliteStore(path, clock=clock)
    await store.open()
    try:
        week = Week(store, clock)
        await week.begin()
        while clock.now() < now - STEP * SECOND:
            await week.step()
            clock.advance(1)
        clock.advance((now - clock.now()) / SECOND)
        found: Any = await store.read("SELECT count(*) FROM history")
        return int(found[0][0])
    finally:
        await store.close()


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # runs fail as they should
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(".demo")
    path = directory / "horae.db"
    if path.exists():
        raise SystemExit(f"{path} exists already: name another directory, or remove this one")
    directory.mkdir(parents=True, exist_ok=True)
    migrate_sqlite(path)
    count = asyncio.run(fill(path))
    sys.stdout.write(f"{directory}: {len(JOBS)} jobs and {count} runs of {DAYS} days\n")


if __name__ == "__main__":
    main()
