"""Watching jobs that others run: pings to the address of a job of kind `watched`, and the runs that wait for them.

    ping ─► token ─► job ─► the run that waits ─► its output is kept ─► it is told (watch:start, watch:end)
                              none: one is made, as by hand

What must stay true:
- A wrong token, a job that is none of these and one that is not there are refused in the same words.
- Whatever dies between two lines, the same ping again goes on where the first ended: a run that was made is found by
  the key of the ping, output that is written twice is harmless, and what a run was told first stands.
- A ping that comes a little early counts for its moment: it makes a run of its own, which that of the moment looks for
  when it begins, and again before it is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from horae.core import watched
from horae.core.definitions import Idempotency
from horae.core.model import Job, Json, Moment, Reason, Run, RunFilter, State
from horae.core.runs.orders import Assignment, Result
from horae.core.runs.waits import read_answers
from horae.core.waits import WATCH_END, Ended
from horae.core.watched import Ping
from horae.errors import Conflict, NotFound
from horae.ports.outputs import OutputWriter
from horae.ports.store.moments import StoreClock
from horae.ports.store.runs import Runs
from horae.ports.store.signals import Signals
from horae.service.jobs import Jobs
from horae.service.jobs.callbacks import nothing_there
from horae.service.jobs.orders import RunRequest

BY = "ping"  # who has said it
MOST_LIVE = 200  # runs of a job that are looked through
LIVE = (State.QUEUED, State.RUNNING, State.BLOCKED)


class Watching:
    def __init__(self, jobs: Jobs, store: Signals, files: OutputWriter, *, place: str) -> None:
        """`place` is the node whose directory holds the output, empty where all nodes share one."""
        self._jobs = jobs
        self._store = store
        self._files = files
        self._place = place

    async def make_token(self, job_id: int) -> str:
        """Return the secret part of the address of a job: the same until it is made anew."""
        await self._check(job_id)
        return await self._token(job_id, await self._store.load_edition(job_id))

    async def rotate(self, job_id: int) -> str:
        """Make the address of a job anew. The one of before is nothing from now on."""
        await self._check(job_id)
        return await self._token(job_id, await self._store.next_edition(job_id))

    async def _token(self, job_id: int, edition: int) -> str:
        return await self._jobs.callbacks.make_token(-job_id, watched.address_name(edition))

    async def _check(self, job_id: int) -> None:
        job = await self._jobs.get(job_id)
        if job.kind != watched.WATCHED:
            raise Conflict(
                f"job {job_id} is of kind {job.kind}: Horae runs it itself, and nobody has to tell of it",
                code="E_NOT_WATCHED", hint="a job with `watched: {grace: 30m}` has a ping address",
            )  # fmt: skip

    async def admit(self, job_id: int | None, token: str) -> Job:
        """Return the job to which an address belongs. NotFound where it is none."""
        name = watched.address_name(0 if job_id is None else await self._store.load_edition(job_id))
        number = await self._jobs.callbacks.admit(None if job_id is None else -job_id, name, token)
        try:
            job = await self._jobs.get(-number)
        except NotFound:
            raise nothing_there() from None
        if job.kind != watched.WATCHED or job.deleted_at is not None:
            raise nothing_there()
        return job

    async def hear(self, job: Job, ping: Ping, said: bytes, key: str | None = None) -> Run:
        """Return the run that a ping is about, told of it. `said` is the end of its output; `key` tells a repeat."""
        now = await self._jobs.now()
        at = now if ping.at is None else min(ping.at, now)
        run = await self._find(job, ping, at) or await self._make(job, ping, key)
        output = await self._keep(run, said)
        await self._tell(job, run, ping, output)
        return await self._jobs.get_run(run.id)

    async def _find(self, job: Job, ping: Ping, at: Moment) -> Run | None:
        if ping.run_id is None:
            return watched.choose(await self._live(job), at)
        with suppress(NotFound):
            run = await self._jobs.get_run(ping.run_id)
            if run.job_id == job.id:
                return None if run.state.is_terminal else run
        raise Conflict(f"run {ping.run_id} is none of this job", code="E_NOT_WATCHED", hint="leave out ?run=")

    async def _live(self, job: Job) -> Sequence[Run]:
        page = await self._jobs.list_runs(RunFilter(job_id=job.id, states=LIVE), None, MOST_LIVE)
        return page.items

    async def _make(self, job: Job, ping: Ping, key: str | None) -> Run:
        """A ping out of schedule is a run by hand."""
        if ping.state == "log":
            raise Conflict("no run of this job waits to be told anything", code="E_TERMINAL", hint="send start first")
        once = None if key is None else Idempotency(f"ping {job.id}", key, "")
        return await self._jobs.orders.place(RunRequest(job.id, idempotency=once, is_alone=True))

    async def _keep(self, run: Run, said: bytes) -> str | None:
        """Keep the end of what was said as output of the run; return where."""
        if not said:
            return None
        ref = self._files.ref(run.id, *watched.OUTPUT)
        sizes = await self._files.stored_sizes(ref)
        if sum(sizes) < watched.MOST_KEPT:
            await self._files.store_chunk(ref, len(sizes), said[-watched.KEPT :])
        return f"{self._place}:{ref}" if self._place else ref

    async def _tell(self, job: Job, run: Run, ping: Ping, output: str | None) -> None:
        if output is not None:
            await self._send(run, watched.LOG, {"output": output})
        if ping.state == "start":
            await self._send(run, watched.START, {"started": True})
        if ping.state not in ("success", "fail"):
            return
        told = {"state": ping.state, "exit_code": ping.exit_code, "seconds": ping.seconds, "output": output}
        await self._send(run, WATCH_END, told)
        due = None if run.trigger_id is not None else watched.moment_of(run, await self._live(job))
        if due is not None:  # it began early, and its moment has come since
            await self._send(due, WATCH_END, told)

    async def _send(self, run: Run, name: str, value: Json) -> None:
        """What a run was told first stands; one that has ended meanwhile is told nothing more."""
        with suppress(Conflict):
            await self._jobs.signals.send(run.id, name, msgspec.json.encode(value).decode(), BY)


class WatchStore(Runs, StoreClock, Protocol):
    """Runs, and the clock."""


class Watches:
    """Does runs of kind `watched`, as a server does: lets them wait, and ends them by what they were told."""

    def __init__(self, store: WatchStore) -> None:
        self._store = store

    async def begin(self, claimed: Sequence[Assignment]) -> list[Result]:
        """Return what becomes of runs that were claimed: most wait."""
        now = await self._store.now()
        return [await self._outcome(a, now) for a in claimed]

    async def _outcome(self, a: Assignment, now: Moment) -> Result:
        spec, answers = msgspec.json.decode(a.spec), read_answers(a.answers)
        ended = watched.end(spec, answers)
        if ended is None or ended.reason == Reason.MISSED:
            ended = await self._told_early(a) or ended
        if ended is None:
            wait = watched.begin(spec)
            return Result(a.run_id, a.fence, State.BLOCKED, wait.reason, now, now, wait=wait)
        result = None if ended.result is None else msgspec.json.encode(ended.result).decode()
        return Result(
            a.run_id, a.fence, ended.state, ended.reason, watched.began_at(ended, now), now, ended.exit_code,
            ended.message, result, watched.output_of(answers), final=True,
        )  # fmt: skip

    async def _told_early(self, a: Assignment) -> Ended | None:
        """Of a moment for which a ping came shortly before."""
        if a.trigger_id is None:
            return None
        where = RunFilter(job_id=a.job_id, due_from=a.due_at - watched.EARLY, due_until=a.due_at)
        page = await self._store.list_runs(where, None, MOST_LIVE)
        return watched.adopt(page.items, a.due_at)
