"""The calls of the RPC contract, whatever they come over: JSON-RPC and gRPC both end here.

Horae is both sides of that contract. It is the scheduler to clients (here) and to workers of their own (working.py),
and it is a worker to a scheduler that dispatches a job to this node.

What must stay true: a list has everything unless its caller asked for less, and then says where to go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from horae.contracts.rpc import logs, reading, rendering
from horae.contracts.rpc.caller import Caller, Finder
from horae.contracts.rpc.working import WorkerCalls
from horae.core.audit import Deed
from horae.core.fields import Fields
from horae.core.model import SECOND, Job, JobFilter, Json, Moment, Page, Run, RunFilter, State
from horae.core.rights import may
from horae.core.roles import Permission
from horae.core.spelling import suggest
from horae.errors import Conflict, Denied, Invalid, Limited, NotFound
from horae.service import Services
from horae.web.auditing import UNTOLD

AHEAD = 5 * 60 * SECOND
PAGE = 1000  # rows read at once, and of one page unless said
EXPLAINED = 20  # executions of a page that say what limits them: each costs a look
LIVE = tuple(state for state in State if not state.is_terminal)

Call = Callable[[Fields, Caller], Awaitable[Any]]
ReadPage = Callable[[str | None, int], Awaitable[Page]]  # cursor, how many → rows as they are shown


class Method:
    def __init__(
        self, call: Call, required: str = "", optional: str = "", order: str = "", *, needs: Permission
    ) -> None:
        """Names with blanks between them; `order` is that of parameters by position, where it is another."""
        self.call, self.needs = call, needs
        self.required = tuple(required.split())
        self.names = tuple(order.split()) or (*self.required, *optional.split())


class UnknownMethod(NotFound):
    """There is no such method."""


class Calls:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._find = Finder(services.jobs)
        workers = WorkerCalls(services)
        self.methods = {
            "submit_job": Method(
                self.submit_job, "user_id code_location",
                order="user_id schedule code_location priority retry_times resources", needs=Permission.WRITE,
            ),
            "retrieve_all_jobs": Method(self.retrieve_all_jobs, "user_id", "limit cursor", needs=Permission.READ),
            "delete_job": Method(self.delete_job, "user_id job_id", needs=Permission.WRITE),
            "get_exec_history": Method(self.get_exec_history, "job_id", "limit cursor", needs=Permission.READ),
            "get_jobs_in_next_5_mins": Method(self.get_jobs_in_next_5_mins, "", "limit cursor", needs=Permission.READ),
            "get_due_jobs": Method(self.get_due_jobs, "", "limit cursor", needs=Permission.READ),
            "get_blocked_jobs": Method(self.get_blocked_jobs, "", "user_id limit cursor", needs=Permission.READ),
            "get_log": Method(self.get_log, "execution_id", "attempt offset limit", needs=Permission.LOGS),
            "dispatch": Method(self.dispatch, "job_id", "execution_id worker_id", needs=Permission.RUN),
            "cancel": Method(self.cancel, "", "job_id execution_id", needs=Permission.CANCEL),
            "heartbeat": Method(workers.heartbeat, "", "worker_id load capacity address held", needs=Permission.WORK),
            "take_due_jobs": Method(workers.take_due_jobs, "worker_id", "limit", needs=Permission.WORK),
            "status_update": Method(
                workers.status_update, "execution_id status", "worker_id message progress exit_code attempt",
                needs=Permission.WORK,
            ),
            "write_log": Method(
                workers.write_log, "execution_id worker_id", "offset text attempt", needs=Permission.WORK
            ),
        }  # fmt: skip

    async def call(self, name: str, params: Any, caller: Caller) -> Any:
        """`params` are a list or a mapping; what they are not, the error says."""
        method = self.methods.get(name)
        if method is None:
            raise UnknownMethod("there is no such method", hint=suggest(name, self.methods, repr))
        deed = caller.deed or Deed(caller.who.name, caller.who.org, caller.who.via)
        deed.action, deed.operation, deed.kind = str(method.needs), f"rpc {name}", "job"
        async with self._services.audit.call(deed, is_told=method.needs not in UNTOLD):
            if not may(caller.who, method.needs):
                job = await self._named(params, caller)
                await self._services.grants.refuse_ungranted(caller.who, method.needs, job)
            return await method.call(reading.bind(method.names, method.required, params), caller)

    async def _named(self, params: Any, caller: Caller) -> Job | None:
        """Return the job that a call is about, by itself or by an execution."""
        given = params if isinstance(params, dict) else {}
        with suppress(NotFound):
            if type(job_id := given.get("job_id")) is int:
                return await self._find.job(job_id, caller)
            if type(run_id := given.get("execution_id")) is int:
                return await self._services.jobs.get((await self._find.run(run_id, caller)).job_id)
        return None

    # ── jobs ──

    async def submit_job(self, fields: Fields, caller: Caller) -> int:
        draft = reading.read_job(fields)
        done = await self._services.jobs.submit(
            [draft], owner=caller.who.name, org=caller.who.org, idempotency=caller.idempotency
        )
        return done.jobs[0].id

    async def delete_job(self, fields: Fields, caller: Caller) -> bool:
        user, job_id = reading.user_id(fields), reading.identity(fields, "job_id")
        fields.problems.raise_any()
        job = await self._find.job(job_id, caller)
        if str(rendering.user_of(job)) != str(user):
            raise Denied(f"job {job.id} is not of this user", hint="only who it was made for can delete it")
        await self._services.jobs.delete(job.id)
        return True

    # ── lists ──

    async def retrieve_all_jobs(self, fields: Fields, caller: Caller) -> Any:
        user, paging = reading.user_id(fields), reading.paging(fields, PAGE)
        fields.problems.raise_any()
        where = JobFilter(org=caller.who.org, made_for=str(user))

        async def read(cursor: str | None, limit: int) -> Page:
            page = await self._services.jobs.list(where, cursor, limit)
            return Page(await self._shown(page.items), page.cursor)

        return await _listed("jobs", paging, read)

    async def get_jobs_in_next_5_mins(self, fields: Fields, caller: Caller) -> Any:
        paging = reading.paging(fields, PAGE)
        fields.problems.raise_any()
        now = await self._services.jobs.now()

        async def read(cursor: str | None, limit: int) -> Page:
            return await self._coming(now, caller.who.org, cursor, limit)

        return await _listed("jobs", paging, read)

    async def _coming(self, now: Moment, org: int, cursor: str | None, limit: int) -> Page:
        found = []
        async for some in self._services.jobs.walk_due(now, now + AHEAD, reading.read_coming(cursor), limit + 1):
            found += [each for each in some if each.job.org == org]
            if len(found) > limit:
                break
        shown, last = found[:limit], found[min(limit, len(found)) - 1] if found else None
        rows = await self._shown([each.job for each in shown], [each.at for each in shown])
        return Page(rows, f"{last.at}-{last.trigger_id}" if last is not None and len(found) > limit else None)

    async def _shown(self, jobs: list[Job], moments: list[Moment] | None = None) -> list[Json]:
        standing = await self._services.jobs.standing([job.id for job in jobs])
        times: Sequence[Moment | None] = moments or [None] * len(jobs)
        return [rendering.job(job, standing[job.id].latest, at) for job, at in zip(jobs, times, strict=True)]

    async def get_exec_history(self, fields: Fields, caller: Caller) -> Any:
        job_id, paging = reading.identity(fields, "job_id"), reading.paging(fields, PAGE)
        fields.problems.raise_any()
        job = await self._find.job(job_id, caller)

        async def read(cursor: str | None, limit: int) -> Page:
            page = await self._services.jobs.list_runs(RunFilter(job_id=job.id), cursor, limit)
            return Page([rendering.execution(run) for run in page.items], page.cursor)

        return await _listed("executions", paging, read)

    async def get_due_jobs(self, fields: Fields, caller: Caller) -> Any:
        """Return what waits for a worker right now; nothing is taken."""
        paging = reading.paging(fields, PAGE)
        fields.problems.raise_any()

        async def read(cursor: str | None, limit: int) -> Page:
            page = await self._services.jobs.list_runs(RunFilter(states=(State.QUEUED,)), cursor, limit)
            found = await self._services.jobs.get_many(sorted({run.job_id for run in page.items}))
            jobs = {job.id: job for job in found if job.org == caller.who.org}
            return Page(
                [rendering.order(jobs[run.job_id], run) for run in page.items if run.job_id in jobs], page.cursor
            )

        return await _listed("executions", paging, read)

    async def get_blocked_jobs(self, fields: Fields, caller: Caller) -> Any:
        """Return what waits for something else than a worker, newest first: a limit, its next try, its moment."""
        user, paging = reading.user_id(fields) if "user_id" in fields.values else None, reading.paging(fields, PAGE)
        fields.problems.raise_any()

        async def read(cursor: str | None, limit: int) -> Page:
            where = RunFilter(states=(State.BLOCKED,), org=caller.who.org)
            page = await self._services.jobs.list_runs(where, cursor, limit)
            found = await self._services.jobs.get_many(sorted({run.job_id for run in page.items}))
            jobs = {job.id: job for job in found if user is None or str(rendering.user_of(job)) == str(user)}
            runs = await self._explained([run for run in page.items if run.job_id in jobs])
            return Page([rendering.blocked(jobs[run.job_id], run) for run in runs], page.cursor)

        return await _listed("executions", paging, read)

    async def _explained(self, runs: list[Run]) -> list[Run]:
        """Return them with what the first of them wait for."""
        return [await self._services.jobs.limits.explain(run) for run in runs[:EXPLAINED]] + runs[EXPLAINED:]

    async def get_log(self, fields: Fields, caller: Caller) -> Json:
        execution_id, attempt = reading.identity(fields, "execution_id"), reading.attempt(fields)
        offset = fields.number("offset", 0, 0, reading.LARGEST_ID, whole=True)
        limit = fields.number("limit", logs.PIECE, logs.LEAST, logs.LARGEST, whole=True)
        fields.problems.raise_any()
        run = await self._find.run(execution_id, caller)
        piece = await self._services.insight.read_log(run.id, attempt=attempt, offset=offset, limit=limit)
        return logs.show(piece, limit)

    # ── dispatch and cancel ──

    async def dispatch(self, fields: Fields, caller: Caller) -> int:
        """Run a job now, on this node or on a worker that registered its address: the execution that is due or waits,
        or a new one."""
        job_id, execution_id = reading.identity(fields, "job_id"), reading.identity(fields, "execution_id")
        worker = reading.worker_id(fields)
        fields.problems.raise_any()
        job = await self._find.job(job_id, caller)
        if worker is not None:
            run = None if execution_id is None else await self._waiting(job, execution_id, caller)
            return (await self._services.pushing.send_to(job, run, worker, caller.idempotency)).id
        local_node = self._services.local_node
        if local_node.busy() >= local_node.slots:
            raise Limited(f"{local_node.node} has no free slot: {local_node.busy()} of {local_node.slots} are taken")
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
        run = await self._find.run(execution_id, caller)
        if run.job_id != job.id:
            raise Invalid(f"execution {run.id} is not of job {job.id}", code="E_FIELD_CONFLICT", path="execution_id")
        if run.state.is_terminal:
            raise Conflict(f"execution {run.id} has ended: {rendering.WORDS[run.state]}", code="E_TERMINAL")
        return run

    async def cancel(self, fields: Fields, caller: Caller) -> dict[str, list[int]]:
        """One execution, or all of a job that have not ended."""
        job_id, execution_id = reading.identity(fields, "job_id"), reading.identity(fields, "execution_id")
        if len(fields.values.keys() & {"job_id", "execution_id"}) != 1:
            fields.fault("execution_id", "E_FIELD_CONFLICT", "either job_id or execution_id expected")
        fields.problems.raise_any()
        if execution_id is not None:
            run = await self._find.run(execution_id, caller)
            return {"cancelled": [(await self._services.jobs.cancel(run.id)).id]}
        job = await self._find.job(job_id, caller)
        page = await self._services.jobs.list_runs(RunFilter(job_id=job.id, states=LIVE), None, PAGE)
        ended = []
        for run in page.items:
            with suppress(Conflict):  # it has ended meanwhile
                ended.append((await self._services.jobs.cancel(run.id)).id)
        return {"cancelled": ended}


async def _listed(name: str, paging: reading.Paging, read: ReadPage) -> Any:
    """Return all rows, the first of them, or a page with its cursor."""
    rows: list[Json] = []
    cursor = paging.cursor
    while True:
        page = await read(cursor, PAGE if paging.limit is None else min(PAGE, paging.limit - len(rows)))
        rows, cursor = rows + page.items, page.cursor
        if cursor is None or len(rows) == paging.limit:
            return {name: rows, "cursor": cursor} if paging.is_asked else rows
