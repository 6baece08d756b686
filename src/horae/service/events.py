"""What happened, told to others: CloudEvents, published after the commit that made them true.

An event is told at least once by a server that lives, however long the broker is away; its id is the same however
often it is told. One that dies in the moment between its commit and the broker's answer leaves its last events out:
who must miss nothing reads the runs over the API, where the truth is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import structlog

from horae.core import moments, traces
from horae.core.model import Job, Run
from horae.errors import Unavailable
from horae.ports import Assignment, Clock, Event, Poster, Result

log = structlog.get_logger()

BATCH = 500  # events in one go
MOST = 100_000  # events kept while the broker is away; then the oldest go
FAREWELL = 2.0  # seconds for the last ones when the process stops


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

    def run_ended(self, result: Result, job_id: int | None) -> None:
        self._run("finished", result.run_id, job_id, result.fence, _outcome(result))

    def run_goes_on(self, result: Result, job_id: int | None) -> None:
        """The attempt has ended, the run will be tried again."""
        self._run("retrying", result.run_id, job_id, result.fence, _outcome(result))

    def _job(self, what: str, job_id: int, name: str, data: dict[str, Any]) -> None:
        self._tell(f"job.{what}", f"job-{name}-{what}", f"jobs/{job_id}", {"job": job_id, **data})

    def _run(self, what: str, run_id: int, job_id: int | None, fence: int, data: dict[str, Any]) -> None:
        about = {"run": run_id, "job": job_id, "fence": fence, "trace_id": traces.trace_id(run_id), **data}
        self._tell(f"run.{what}", f"run-{run_id}-{fence}-{what}", f"runs/{run_id}", about)

    def _tell(self, kind: str, name: str, subject: str, data: dict[str, Any]) -> None:
        document = {
            "specversion": "1.0", "id": name, "source": f"horae/{self._source}", "type": f"horae.{kind}",
            "subject": subject, "time": moments.format_moment(self._clock.now()), "datacontenttype": "application/json",
            "data": data,
        }  # fmt: skip
        if len(self._waiting) == MOST and not self._is_full:
            log.error("events.dropped", why=f"the broker was away for more than {MOST} events")
        self._is_full = len(self._waiting) == MOST
        self._waiting.append(Event(kind, name, document))
        self._stir.set()

    # ── telling ──
    async def step(self) -> None:
        """Wait for events and post them."""
        while not self._waiting:
            self._stir.clear()
            await self._stir.wait()
        await self._post()

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


def _outcome(result: Result) -> dict[str, Any]:
    return {
        "state": result.state.word, "reason": str(result.reason), "exit_code": result.exit_code,
        "message": result.message,
    }  # fmt: skip
