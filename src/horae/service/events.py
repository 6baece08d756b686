"""What happened, for others: CloudEvents, published after the commit that made them true.

**Ends of runs** are published at least once, whatever dies when: the transaction that ends a run notes it as untold,
and the leader publishes what is noted and strikes it out when the broker has it (Ended). Two leaders at once publish
twice.

**Everything else** is published from memory by the server that did it, however long the broker is away; a server that
dies between its commit and the broker's answer leaves its last ones out.

The id of an event is the same however often it is published. Who must miss nothing reads the API, where the truth is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from horae.core.model import Job, Moment, Run
from horae.core.runs import traces
from horae.core.runs.orders import Assignment, Result
from horae.core.time import moments
from horae.errors import Unavailable
from horae.ports.clock import Clock
from horae.ports.store.history import EndedRuns
from horae.ports.transport import Event, EventKind, EventPublisher

log = structlog.get_logger()

MOST_TOGETHER = 500  # events published in one go
MOST_KEPT = 100_000  # events kept while the broker is away; then the oldest go
FAREWELL_SECONDS = 2.0  # seconds for the last ones when the process stops
BATCH_GAP = 0.02  # seconds between two batches: publishing must not hold up what it is about
LOOK_GAP = 0.25  # seconds between two looks for runs that have ended
LONGEST_MESSAGE = 10_000  # characters: an event that the broker refuses would hold up all others


class Events:
    def __init__(self, publisher: EventPublisher, clock: Clock, *, source: str, installation: str = "") -> None:
        """`source` is the node that publishes, `installation` its part of trace ids."""
        self._installation = installation
        self._publisher = publisher
        self._clock = clock
        self._source = source
        self._waiting: deque[Event] = deque(maxlen=MOST_KEPT)
        self._stir = asyncio.Event()
        self._is_full = False

    # ── what happens ──
    def job_submitted(self, job: Job) -> None:
        self._job("job.submitted", job.id, f"{job.id}-{job.version}", {"name": job.name, "kind": job.kind})

    def job_deleted(self, job_id: int) -> None:
        self._job("job.deleted", job_id, str(job_id), {})

    def job_paused(self, job: Job, because: str) -> None:
        """It has paused itself."""
        self._job("job.paused", job.id, f"{job.id}-{job.version}", {"name": job.name, "because": because})

    def run_queued(self, run: Run) -> None:
        self._run("run.queued", run.id, run.job_id, run.fence, {"state": run.state.word, "kind": run.kind})

    def runs_started(self, node: str, claimed: Sequence[Assignment]) -> None:
        for a in claimed:
            more = {"attempt": a.attempt, "kind": a.kind, "name": a.name, "node": node}
            self._run("run.started", a.run_id, a.job_id, a.fence, more)

    def run_goes_on(self, result: Result, job_id: int) -> None:
        """The attempt has ended, the run will be tried again."""
        self._run("run.retrying", result.run_id, job_id, result.fence, _outcome(result))

    def _job(self, kind: EventKind, job_id: int, name: str, data: dict[str, Any]) -> None:
        about = {"job": job_id, **data}
        self._add(_event(kind, f"job-{name}-{_last(kind)}", f"jobs/{job_id}", about, self._source, self._now()))

    def _run(self, kind: EventKind, run_id: int, job_id: int, fence: int, data: dict[str, Any]) -> None:
        about = {"trace_id": traces.trace_id(run_id, self._installation), **data}
        self._add(_run_event(kind, run_id, job_id, fence, about, self._source, self._now()))

    def _now(self) -> Moment:
        return self._clock.now()

    def _add(self, event: Event) -> None:
        if len(self._waiting) == MOST_KEPT and not self._is_full:
            log.error("events.dropped", why=f"the broker was away for more than {MOST_KEPT} events")
        self._is_full = len(self._waiting) == MOST_KEPT
        self._waiting.append(event)
        self._stir.set()

    # ── publishing ──
    async def step(self) -> None:
        """Wait for events and publish them."""
        while not self._waiting:
            self._stir.clear()
            await self._stir.wait()
        await self._publish()
        await self._clock.sleep(BATCH_GAP)

    async def _publish(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(MOST_TOGETHER, len(self._waiting)))]
        try:
            await self._publisher.publish_events(batch)
        except BaseException:
            self._waiting.extendleft(reversed(batch[: MOST_KEPT - len(self._waiting)]))
            raise

    async def drain(self) -> None:
        """Publish what is left, if the broker takes it soon."""
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                while self._waiting:
                    await self._publish()
        except (Unavailable, TimeoutError):
            log.warning("events.left_out", count=len(self._waiting))


class Ended:
    """Publishes the end of every run, however it came."""

    def __init__(
        self, store: EndedRuns, publisher: EventPublisher, clock: Clock, *, source: str, is_leader: Callable[[], bool],
        installation: str = "",
    ) -> None:  # fmt: skip
        self._installation = installation
        self._store = store
        self._publisher = publisher
        self._clock = clock
        self._source = source
        self._is_leader = is_leader

    async def step(self) -> None:
        """Publish a batch; pause longer when there are no more."""
        count = await self._publish()
        await self._clock.sleep(BATCH_GAP if count == MOST_TOGETHER else LOOK_GAP)

    async def _publish(self) -> int:
        runs = await self._store.load_untold(MOST_TOGETHER) if self._is_leader() else []
        if runs:
            await self._publisher.publish_events([self._event(run) for run in runs])
            await self._store.forget_untold([run.id for run in runs])
        return len(runs)

    def _event(self, run: Run) -> Event:
        assert run.finished_at is not None
        data = {"trace_id": traces.trace_id(run.id, self._installation), **_outcome(run)}
        return _run_event("run.finished", run.id, run.job_id, run.fence, data, self._source, run.finished_at)

    async def drain(self) -> None:
        """Publish what is left, if the broker takes it soon; else whoever leads next does."""
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                while await self._publish() == MOST_TOGETHER:
                    pass
        except (Unavailable, TimeoutError):
            log.info("events.later", why="the broker did not take the ends of the last runs")


def _run_event(
    kind: EventKind, run_id: int, job_id: int, fence: int, data: dict[str, Any], source: str, at: Moment
) -> Event:
    about = {"run": run_id, "job": job_id, "fence": fence, **data}
    return _event(kind, f"run-{run_id}-{fence}-{_last(kind)}", f"runs/{run_id}", about, source, at)


def _event(kind: EventKind, name: str, subject: str, data: dict[str, Any], source: str, at: Moment) -> Event:
    document = {
        "specversion": "1.0", "id": name, "source": f"horae/{source}", "type": f"horae.{kind}", "subject": subject,
        "time": moments.format_moment(at), "datacontenttype": "application/json", "data": data,
    }  # fmt: skip
    return Event(kind, name, document)


def _last(kind: EventKind) -> str:
    """Return what happened, without to what."""
    return kind.rpartition(".")[2]


def _outcome(of: Result | Run) -> dict[str, Any]:
    return {
        "state": of.state.word, "reason": str(of.reason), "exit_code": of.exit_code,
        "message": of.message[:LONGEST_MESSAGE],
    }  # fmt: skip
