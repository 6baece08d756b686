"""What happened, told to others: CloudEvents, published after the commit that made them true.

**Ends of runs** are told at least once, whatever dies when: the transaction that ends a run notes it as untold, and the
leader tells what is noted and strikes it out when the broker has it (Ended). Two leaders at once tell twice.

**Everything else** is told from memory by the server that did it, however long the broker is away; a server that dies
between its commit and the broker's answer leaves its last ones out.

The id of an event is the same however often it is told. Who must miss nothing reads the API, where the truth is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog

from horae.core import moments, traces
from horae.core.model import Job, Moment, Run
from horae.errors import Unavailable
from horae.ports import Assignment, Clock, Event, Poster, Result, Store

log = structlog.get_logger()

BATCH = 500  # events in one go
MOST = 100_000  # events kept while the broker is away; then the oldest go
FAREWELL = 2.0  # seconds for the last ones when the process stops
GAP = 0.02  # seconds between two batches: telling must not hold up what is told of
LOOK = 0.25  # seconds between two looks for runs that have ended
LONGEST = 10_000  # characters of a message: an event that the broker refuses would hold up all others


class Events:
    def __init__(self, poster: Poster, clock: Clock, *, source: str) -> None:
        """`source` is the node that tells."""
        self._poster = poster
        self._clock = clock
        self._source = source
        self._waiting: deque[Event] = deque(maxlen=MOST)
        self._stir = asyncio.Event()
        self._is_full = False

    # ── what happens ──
    def job_submitted(self, job: Job) -> None:
        self._job("submitted", job.id, f"{job.id}-{job.version}", {"name": job.name, "kind": job.kind})

    def job_deleted(self, job_id: int) -> None:
        self._job("deleted", job_id, str(job_id), {})

    def run_queued(self, run: Run) -> None:
        self._run("queued", run.id, run.job_id, run.fence, {"state": run.state.word, "kind": run.kind})

    def run_started(self, node: str, claimed: Assignment) -> None:
        more = {"attempt": claimed.attempt, "kind": claimed.kind, "name": claimed.name, "node": node}
        self._run("started", claimed.run_id, claimed.job_id, claimed.fence, more)

    def run_goes_on(self, result: Result, job_id: int) -> None:
        """The attempt has ended, the run will be tried again."""
        self._run("retrying", result.run_id, job_id, result.fence, _outcome(result))

    def _job(self, what: str, job_id: int, name: str, data: dict[str, Any]) -> None:
        about = {"job": job_id, **data}
        self._tell(_event(f"job.{what}", f"job-{name}-{what}", f"jobs/{job_id}", about, self._source, self._now()))

    def _run(self, what: str, run_id: int, job_id: int, fence: int, data: dict[str, Any]) -> None:
        self._tell(_run_event(what, run_id, job_id, fence, data, self._source, self._now()))

    def _now(self) -> Moment:
        return self._clock.now()

    def _tell(self, event: Event) -> None:
        if len(self._waiting) == MOST and not self._is_full:
            log.error("events.dropped", why=f"the broker was away for more than {MOST} events")
        self._is_full = len(self._waiting) == MOST
        self._waiting.append(event)
        self._stir.set()

    # ── telling ──
    async def step(self) -> None:
        """Wait for events and post them."""
        while not self._waiting:
            self._stir.clear()
            await self._stir.wait()
        await self._post()
        await self._clock.sleep(GAP)

    async def _post(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
        try:
            await self._poster.post(batch)
        except BaseException:
            self._waiting.extendleft(reversed(batch[: MOST - len(self._waiting)]))
            raise

    async def drain(self) -> None:
        """Post what is left, if the broker takes it soon."""
        try:
            async with asyncio.timeout(FAREWELL):
                while self._waiting:
                    await self._post()
        except (Unavailable, TimeoutError):
            log.warning("events.left_out", count=len(self._waiting))


class Ended:
    """Tells of every run that has ended, however it did."""

    def __init__(
        self, store: Store, poster: Poster, clock: Clock, *, source: str, is_leader: Callable[[], bool]
    ) -> None:
        self._store = store
        self._poster = poster
        self._clock = clock
        self._source = source
        self._is_leader = is_leader

    async def step(self) -> None:
        """Tell a batch; pause longer when there are no more."""
        count = await self._tell()
        await self._clock.sleep(GAP if count == BATCH else LOOK)

    async def _tell(self) -> int:
        runs = await self._store.load_untold(BATCH) if self._is_leader() else []
        if runs:
            await self._poster.post([self._event(run) for run in runs])
            await self._store.forget_untold([run.id for run in runs])
        return len(runs)

    def _event(self, run: Run) -> Event:
        assert run.finished_at is not None
        return _run_event("finished", run.id, run.job_id, run.fence, _outcome(run), self._source, run.finished_at)

    async def drain(self) -> None:
        """Tell what is left, if the broker takes it soon; else whoever leads next does."""
        try:
            async with asyncio.timeout(FAREWELL):
                while await self._tell() == BATCH:
                    pass
        except (Unavailable, TimeoutError):
            log.info("events.later", why="the broker did not take the ends of the last runs")


def _run_event(what: str, run_id: int, job_id: int, fence: int, data: dict[str, Any], source: str, at: Moment) -> Event:
    about = {"run": run_id, "job": job_id, "fence": fence, "trace_id": traces.trace_id(run_id), **data}
    return _event(f"run.{what}", f"run-{run_id}-{fence}-{what}", f"runs/{run_id}", about, source, at)


def _event(kind: str, name: str, subject: str, data: dict[str, Any], source: str, at: Moment) -> Event:
    document = {
        "specversion": "1.0", "id": name, "source": f"horae/{source}", "type": f"horae.{kind}", "subject": subject,
        "time": moments.format_moment(at), "datacontenttype": "application/json", "data": data,
    }  # fmt: skip
    return Event(kind, name, document)


def _outcome(of: Result | Run) -> dict[str, Any]:
    return {
        "state": of.state.word, "reason": str(of.reason), "exit_code": of.exit_code, "message": of.message[:LONGEST],
    }  # fmt: skip
