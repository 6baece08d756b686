"""For our tests and users': a clock that moves when told, and values to build from."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import replace
from itertools import count

from horae.core.model import SECOND, Job, Json, Moment, Policy, Trigger
from horae.core.runs.segments import segment_of

START: Moment = 1_800_000_000 * SECOND  # 2027-01-15T08:00:00Z


class FakeClock:
    """A clock that stands still until `advance` moves it; sleepers wake in order."""

    def __init__(self, now: Moment = START) -> None:
        self._now = now
        self._order = count()
        self._sleepers: list[tuple[Moment, int, asyncio.Future[None]]] = []

    def __call__(self) -> Moment:
        return self._now

    def now(self) -> Moment:
        return self._now

    def elapsed(self) -> float:
        return self._now / SECOND

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + round(seconds * SECOND), next(self._order), future))
        await future

    def advance(self, seconds: float) -> None:
        self._now += round(seconds * SECOND)
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)


def make_job(
    job_id: int = 1,
    *,
    name: str = "job",
    schedule: Json | None = None,
    trigger_id: int | None = None,
    next_at: Moment | None = None,
    policy: Policy | None = None,
    kind: str = "python",
    spec: Json | None = None,
    key: str | None = None,
    segment: int | None = None,
    created_at: Moment = START,
    data: Json | None = None,
) -> Job:
    """Return a job with at most one trigger, ready for Store.submit."""
    triggers: tuple[Trigger, ...] = ()
    if trigger_id is not None:
        triggers = (
            Trigger(
                id=trigger_id, job_id=job_id, schedule=schedule or {"every": "1m"}, data=data, enabled=True, version=1,
                next_at=next_at, last_at=None, created_at=created_at,
            ),
        )  # fmt: skip
    return Job(
        id=job_id, org=1, owner="local", name=name, key=key, kind=kind,
        spec=spec if spec is not None else {"handler": "horae.handlers:noop"}, policy=policy or Policy(),
        segment=segment_of(job_id) if segment is None else segment, paused=False, annotations={}, version=1,
        created_at=created_at, updated_at=created_at, triggers=triggers,
    )  # fmt: skip


def changed(job: Job, **changes: object) -> Job:
    """Return the next version of a job."""
    return replace(job, version=job.version + 1, **changes)  # type: ignore[arg-type]
