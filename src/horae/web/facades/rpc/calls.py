"""The calls of the RPC contract, whatever they come over: JSON-RPC and gRPC both end here.

Horae is both sides of that contract. It is the scheduler to clients and to workers of their own, who beat, take runs
and report on them; and it is a worker to a scheduler that dispatches a job to this node.

What must stay true: a run is lent to one worker at a time, and who does not hold it cannot prolong or end it; a
worker's heartbeat prolongs all that it holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from horae.core.fields import Fields, nearest
from horae.core.model import SECOND, SEGMENTS, Job, JobFilter, Loan, Phase, Run, RunFilter, State
from horae.errors import Conflict, Denied, Invalid, Limited, NotFound
from horae.ports import Idempotency
from horae.service import Services
from horae.web.facades.rpc import reading, rendering
from horae.web.http import Principal

LEASE = 30.0  # seconds that a worker keeps a run without a word: three heartbeats
AHEAD = 5 * 60 * SECOND
PAGE = 1000  # rows read at once
MOST = 10_000  # jobs or executions in one answer
LIVE = tuple(state for state in State if not state.is_terminal)
REPORTS = {"completed": State.SUCCEEDED, "failed": State.FAILED, "cancelled": State.CANCELLED}


@dataclass(frozen=True, slots=True)
class Caller:
    who: Principal
    idempotency: Idempotency | None = None


Call = Callable[[Fields, Caller], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Method:
    call: Call
    names: tuple[str, ...]
    required: tuple[str, ...]


class UnknownMethod(NotFound):
    """There is no such method."""


class Calls:
    def __init__(self, services: Services) -> None:
        self._services = services
        self.methods = {
            "submit_job": Method(
                self.submit_job, ("user_id", "schedule", "code_location", "priority", "retry_times"),
                ("user_id", "code_location"),
            ),
            "retrieve_all_jobs": Method(self.retrieve_all_jobs, ("user_id",), ("user_id",)),
            "delete_job": Method(self.delete_job, ("user_id", "job_id"), ("user_id", "job_id")),
            "get_exec_history": Method(self.get_exec_history, ("job_id", "limit"), ("job_id",)),
            "get_jobs_in_next_5_mins": Method(self.get_jobs_in_next_5_mins, (), ()),
            "dispatch": Method(self.dispatch, ("job_id", "execution_id"), ("job_id",)),
            "heartbeat": Method(self.heartbeat, ("worker_id", "load", "capacity"), ()),
            "status_update": Method(
                self.status_update, ("execution_id", "status", "worker_id", "message", "progress"),
                ("execution_id", "status"),
            ),
            "cancel": Method(self.cancel, ("job_id", "execution_id"), ()),
        }  # fmt: skip

    async def call(self, name: str, params: Any, caller: Caller) -> Any:
        """`params` are a list or a mapping; what they are not, the error says."""
        method = self.methods.get(name)
        if method is None:
            raise UnknownMethod("there is no such method", hint=nearest(name, self.methods))
        return await method.call(reading.bind(method.names, method.required, params), caller)

    # ── for clients ──

    async def submit_job(self, fields: Fields, caller: Caller) -> int:
        draft = reading.read_job(fields)
        done = await self._services.jobs.submit(
            [draft], owner=caller.who.owner, org=caller.who.org, idempotency=caller.idempotency
        )
        return done.jobs[0].id

    async def retrieve_all_jobs(self, fields: Fields, caller: Caller) -> list[Any]:
        user = reading.user_id(fields)
        fields.problems.settle()
        found: list[Job] = []
        where = JobFilter(org=caller.who.org, made_for=str(user))
        while items := (await self._services.jobs.search(where, (), len(found), PAGE)).items:
            found += items
            if len(items) < PAGE or len(found) >= MOST:
                break
        return await self._shown(found)

    async def _shown(self, jobs: list[Job]) -> list[Any]:
        standing = await self._services.jobs.standing([job.id for job in jobs])
        return [rendering.job(job, standing[job.id].latest) for job in jobs]

    async def delete_job(self, fields: Fields, caller: Caller) -> bool:
        user, job_id = reading.user_id(fields), reading.identity(fields, "job_id")
        fields.problems.settle()
        job = await self._job(job_id, caller)
        if str(rendering.user_of(job)) != str(user):
            raise Denied(f"job {job.id} is not of this user", hint="only who it was made for can delete it")
        await self._services.jobs.delete(job.id)
        return True

    async def get_exec_history(self, fields: Fields, caller: Caller) -> list[Any]:
        job_id = reading.identity(fields, "job_id")
        limit = fields.number("limit", PAGE, 1, MOST, whole=True)
        fields.problems.settle()
        job = await self._job(job_id, caller)
        rows: list[Run] = []
        cursor: str | None = None
        while len(rows) < limit:
            page = await self._services.jobs.list_runs(RunFilter(job_id=job.id), cursor, min(PAGE, limit - len(rows)))
            rows, cursor = rows + page.items, page.cursor
            if cursor is None:
                break
        return [rendering.execution(run) for run in rows]

    async def get_jobs_in_next_5_mins(self, fields: Fields, caller: Caller) -> list[Any]:
        fields.problems.settle()
        jobs = self._services.jobs
        now = await jobs.now()
        coming = await jobs.due_between(now, now + AHEAD, range(SEGMENTS), MOST)
        soonest = {each.job.id: each for each in reversed(coming) if each.job.org == caller.who.org}
        ordered = sorted(soonest.values(), key=lambda each: each.at)
        standing = await jobs.standing([each.job.id for each in ordered])
        return [rendering.job(each.job, standing[each.job.id].latest, each.at) for each in ordered]

    async def _job(self, job_id: int | None, caller: Caller) -> Job:
        assert job_id is not None, "its absence was noted"
        return await self._services.jobs.get(job_id, org=caller.who.org)

    async def _run(self, execution_id: int | None, caller: Caller) -> Run:
        """An execution, if its job is one that the caller may see."""
        assert execution_id is not None, "its absence was noted"
        run = await self._services.jobs.get_run(execution_id)
        try:
            await self._services.jobs.get(run.job_id, org=caller.who.org)
        except NotFound:
            raise NotFound(f"there is no run {execution_id}") from None
        return run

    # ── for a scheduler to whom we are the worker ──

    async def dispatch(self, fields: Fields, caller: Caller) -> int:
        """Run a job now: the execution that is due or waits, or a new one."""
        job_id, execution_id = reading.identity(fields, "job_id"), reading.identity(fields, "execution_id")
        fields.problems.settle()
        job = await self._job(job_id, caller)
        station = self._services.station
        if station.busy() >= station.slots:
            raise Limited(f"{station.node} has no free slot: {station.busy()} of {station.slots} are taken")
        if execution_id is not None:
            return (await self._waiting(job, execution_id, caller)).id
        latest = (await self._services.jobs.standing([job.id]))[job.id].latest
        if latest is not None and not latest.state.is_terminal:
            return latest.id
        with suppress(Conflict):  # nothing of it is due
            return (await self._services.jobs.fire_due(job.id)).id
        run = await self._services.jobs.run_now(job.id, idempotency=caller.idempotency)
        if run.state is State.SKIPPED:
            raise Conflict(f"job {job.id} was started by somebody else just now")
        return run.id

    async def _waiting(self, job: Job, execution_id: int, caller: Caller) -> Run:
        run = await self._run(execution_id, caller)
        if run.job_id != job.id:
            raise Invalid(f"execution {run.id} is not of job {job.id}", code="E_FIELD_CONFLICT", path="execution_id")
        if run.state.is_terminal:
            raise Conflict(f"execution {run.id} has ended: {rendering.WORDS[run.state]}", code="E_TERMINAL")
        return run

    # ── for workers of their own ──

    async def heartbeat(self, fields: Fields, caller: Caller) -> dict[str, Any]:
        """A worker's sign of life, which prolongs all it holds; without a worker, that of this node."""
        worker = reading.worker_id(fields)
        load = fields.number("load", None, 0, 1_000_000, whole=True)
        capacity = fields.number("capacity", None, 1, 1_000_000, whole=True)
        fields.problems.settle()
        if worker is None:
            station = self._services.station
            return {"status": "ok", "worker_id": station.node, "load": station.busy(), "capacity": station.slots}
        await self._beat(worker, load, capacity)
        stop = [loan.run_id for loan in await self._services.lending.loans() if await self._renewed(loan, worker)]
        return {"status": "ok", "worker_id": worker, "cancel": stop}

    async def _beat(self, worker: str, load: int | None, capacity: int | None) -> None:
        outside = self._services.outside
        try:
            await outside.beat("agent", worker, busy=load, slots=capacity)
        except NotFound:
            await outside.join("agent", worker, slots=capacity or 0)
            await outside.beat("agent", worker, busy=load)

    async def _renewed(self, loan: Loan, worker: str) -> bool:
        """Prolong a loan, if it is this worker's; answers whether it shall stop."""
        if loan.worker != worker:
            return False
        with suppress(Conflict, NotFound):  # it has ended meanwhile
            return await self._services.lending.report(loan.run_id, loan.attempt, worker=worker, seconds=LEASE)
        return False

    async def status_update(self, fields: Fields, caller: Caller) -> dict[str, Any]:
        """`running` takes an execution that waits, or prolongs one that is held; the other words end it."""
        execution_id, worker = reading.identity(fields, "execution_id"), reading.worker_id(fields)
        status, message = (fields.text("status") or "").lower(), fields.text("message", 4096) or ""
        progress = fields.number("progress", None, 0, 100)
        if "status" in fields.values and status not in (rendering.WORDS[State.RUNNING], *REPORTS):
            fields.fault("status", "E_ENUM", f"must be one of running, {', '.join(REPORTS)}")
        fields.problems.settle()
        run = await self._run(execution_id, caller)
        loan = await self._loan(run, worker)
        if status not in REPORTS:
            return {"status": "ok", "cancel": await self._running(run, loan, worker, progress)}
        attempt = loan.attempt if loan is not None else None
        await self._services.lending.finish(run.id, attempt, REPORTS[status], message=message)
        return {"status": "ok", "cancel": False}

    async def _loan(self, run: Run, worker: str | None) -> Loan | None:
        found = await self._services.lending.loans([run.id])
        if found and worker not in (None, found[0].worker):
            raise Conflict(f"execution {run.id} is held by another worker")
        return found[0] if found else None

    async def _running(self, run: Run, loan: Loan | None, worker: str | None, progress: float | None) -> bool:
        lending = self._services.lending
        if loan is None:
            if worker is None:
                raise Invalid("who takes an execution must say who it is", code="E_REQUIRED", path="worker_id")
            run = await lending.lend_run(run.id, worker=worker, seconds=LEASE)
        attempt, holder = (loan.attempt, loan.worker) if loan is not None else (run.attempt, worker or "")
        said = None if progress is None else {"progress": progress}
        return await lending.report(run.id, attempt, worker=holder, seconds=LEASE, phase=Phase.RUNNING, progress=said)

    async def cancel(self, fields: Fields, caller: Caller) -> dict[str, list[int]]:
        """One execution, or all of a job that have not ended."""
        job_id, execution_id = reading.identity(fields, "job_id"), reading.identity(fields, "execution_id")
        if len(fields.values.keys() & {"job_id", "execution_id"}) != 1:
            fields.fault("execution_id", "E_FIELD_CONFLICT", "either job_id or execution_id expected")
        fields.problems.settle()
        if execution_id is not None:
            return {"cancelled": [(await self._services.jobs.cancel((await self._run(execution_id, caller)).id)).id]}
        job = await self._job(job_id, caller)
        page = await self._services.jobs.list_runs(RunFilter(job_id=job.id, states=LIVE), None, PAGE)
        ended = []
        for run in page.items:
            with suppress(Conflict):  # it has ended meanwhile
                ended.append((await self._services.jobs.cancel(run.id)).id)
        return {"cancelled": ended}
