"""The job store (port 8081 of the contract): jobs, their due moments, their executions."""

from __future__ import annotations

from horae.contracts.cluster.envelope import JOB, Envelope, Rows
from horae.contracts.cluster.reading import Sent, path_id, query, read_json, read_segments
from horae.contracts.cluster.submitting import read_draft
from horae.contracts.cluster.vocabulary import (
    ENDS,
    STAGES,
    STATUSES,
    is_execution,
    sent_with,
    show_attempt,
    show_due,
    show_execution,
    show_job,
)
from horae.core import model
from horae.core.definitions import Sort
from horae.core.members import node_name
from horae.core.model import Job as CoreJob
from horae.core.model import Json, Loan, Run, RunFilter, Standing, State
from horae.core.roles import Permission
from horae.core.runs.stages import Stage, job_stage
from horae.errors import Invalid
from horae.service import Services
from horae.service.external.transitions import SEGMENTS_CONTRACT, Transitions
from horae.web import http

LISTED = 10_000  # jobs in one answer: the contract has no pages
DUE = 1000  # due moments in one answer: the next scan gets the rest
CHECKPOINT = 64 * 1024  # bytes of what a worker says about how far it is
EXECUTIONS = 1000  # runs looked at for one answer
EXECUTED = tuple(state for state in State if state not in (State.QUEUED, State.SKIPPED, State.COALESCED))

_STATUS = query("status", f"One of {', '.join(STATUSES)}.")


class JobStore:
    def __init__(self, services: Services, envelope: Envelope, transitions: Transitions) -> None:
        self._services = services
        self._envelope = envelope
        self._transitions = transitions

    def operations(self, rows: Rows) -> list[http.Operation]:
        row, job = rows.row, "/api/jobs/{job_id}"
        segments = query("segments", "Segments with commas, or repeated.", many=True)
        user = query("userId", "Only jobs of this user.")
        return [
            row("POST", "/api/jobs", self.submit, "Submit a job", missing=JOB, needs=Permission.WRITE),
            row("GET", "/api/jobs", self.list_jobs, "List jobs of a status", _STATUS, user, missing=JOB,
                needs=Permission.READ),
            row("GET", job, self.get_job, "Read a job", missing=JOB, needs=Permission.READ),
            row("DELETE", job, self.delete_job, "Cancel a job", missing=JOB, needs=Permission.WRITE),
            row("PUT", f"{job}/status", self.set_status, "Change the status of a job", _STATUS, missing=JOB,
                needs=Permission.PAUSE),
            row("GET", "/api/job-schedules/due", self.due, "List jobs that are due", query("asOf", "The moment."),
                segments, missing=JOB, needs=Permission.READ),
            row("GET", "/api/executions", self.executions, "List executions", query("jobId", "Of this job."),
                query("workerId", "By this worker."), missing=JOB, needs=Permission.READ),
            row("POST", "/api/job-store/executions", self.record, "Report on an execution", missing=JOB,
                needs=Permission.WORK),
        ]  # fmt: skip

    # ── jobs ──

    async def submit(self, request: http.Request) -> http.Answer:
        """A job that is due is offered to the worker that registered for its segment; without one, or if it does not
        take it within a scan interval, Horae runs it itself."""
        body = await request.read()
        draft = read_draft(await read_json(request, body))
        who = http.principal(request)
        key = request.idempotency(body)
        done = await self._services.jobs.submit([draft], owner=who.name, org=who.org, idempotency=key)
        (job,) = done.jobs
        if done.replayed:
            return await self._shown(job)
        return self._envelope.give(show_job(job, Standing()))  # as it was made, though it may run by now

    async def get_job(self, request: http.Request) -> http.Answer:
        return await self._shown(await self._job(request))

    async def list_jobs(self, request: http.Request) -> http.Answer:
        sent = Sent(request.args)
        word = sent.word("status", STATUSES, needed="status is required") or ""
        user = sent.whole("userId", low=-(2**63), high=2**63 - 1)
        found: list[Json] = []
        async for job, standing in self._transitions.jobs_at(STAGES[word], http.principal(request).org):
            if user in (None, sent_with(job).get("userId")):
                found.append(show_job(job, standing))
            if len(found) == LISTED:
                break
        return self._envelope.give(found)

    async def delete_job(self, request: http.Request) -> http.Answer:
        """It fires no more, and what runs of it is stopped. One that does not exist counts as cancelled."""
        found = await self._services.jobs.get_many([path_id(request)])
        for job in found:
            if job.org == http.principal(request).org:
                await self._transitions.cancel(job)
        return self._envelope.give("Job cancelled successfully")

    async def set_status(self, request: http.Request) -> http.Answer:
        """`SCHEDULED` fires a due job, once: who comes second gets 409. `RUNNING`, `COMPLETED` and `FAILED` report on
        a run that was fired so; `PENDING` gives it back; `CANCELLED` cancels the job."""
        word = Sent(request.args).word("status", STATUSES, needed="status is required") or ""
        job = await self._job(request)
        await self._transitions.move(job, STAGES[word])
        if STAGES[word] is Stage.FIRED:
            self._services.local_node.metrics.segment_load[job.segment] += 1
        return self._envelope.give("Job status updated")

    async def _job(self, request: http.Request) -> CoreJob:
        return await self._services.jobs.get(path_id(request), org=http.principal(request).org)

    async def _shown(self, job: CoreJob) -> http.Answer:
        return self._envelope.give(show_job(job, await self._transitions.standing(job)))

    # ── what is due ──

    async def due(self, request: http.Request) -> http.Answer:
        """Jobs of this contract that are PENDING with a moment up to `asOf`, soonest first; before them those that an
        agent of its own failed at, and that another one may try again."""
        sent = Sent(request.args)
        as_of = sent.instant("asOf", needed="asOf is required") or 0
        segments = read_segments(sent.text("segments", needed="segments is required", longest=1000))
        found = await self._services.jobs.due_between(0, as_of + 1, segments, DUE)
        org = http.principal(request).org
        offered = [each for each in found if each.job.policy.offered and each.job.org == org]
        standings = await self._services.jobs.standing([each.job.id for each in offered])
        shown = [
            show_due(each.job, each.trigger_id, each.at)
            for each in offered
            if job_stage(each.job, standings[each.job.id]) is Stage.WAITING
        ]
        kept = await self._services.dispatching.waiting(SEGMENTS_CONTRACT, DUE)
        again = [
            show_due(job, run.trigger_id or 0, run.due_at)
            for job, run in kept
            if job.segment in segments and job.org == org and job.deleted_at is None
        ]
        return self._envelope.give([*again, *shown][:DUE])

    # ── executions ──

    async def executions(self, request: http.Request) -> http.Answer:
        sent = Sent(request.args)
        job_id = sent.whole("jobId", low=1, high=model.LARGEST_ID)
        worker = sent.text("workerId")
        if job_id is None and worker is None:
            raise Invalid("jobId or workerId is required", code="E_REQUIRED", path="jobId")
        runs = await self._runs(http.principal(request).org, job_id, worker)
        loans = await self._loans(runs)
        shown = [each for run in runs for each in await self._attempts(run, loans)]
        return self._envelope.give([each for each in shown if worker in (None, each["workerId"])])

    async def _runs(self, org: int, job_id: int | None, worker: str | None) -> list[Run]:
        if job_id is not None:
            await self._services.jobs.get(job_id, org=org)
        nodes = () if worker is None else (worker, node_name("agent", worker), node_name("scheduler", worker))
        where = RunFilter(job_id=job_id, states=EXECUTED, org=org, nodes=nodes)
        found = await self._services.jobs.search_runs(where, [Sort("id", descending=True)], 0, EXECUTIONS)
        return [run for run, _ in found.items]

    async def _loans(self, runs: list[Run]) -> dict[int, Loan]:
        live = [run.id for run in runs if run.state is State.RUNNING]
        return {loan.run_id: loan for loan in await self._services.lending.loans(live)} if live else {}

    async def _attempts(self, run: Run, loans: dict[int, Loan]) -> list[Json]:
        """Return the executions of a run, newest first: each attempt is one of its own. What a scheduler held and
        nobody began is none."""
        past = await self._services.jobs.list_attempts(run.id) if run.attempt > 1 or not run.state.is_terminal else ()
        ended = sorted((each for each in past if is_execution(each)), key=lambda each: -each.attempt)
        is_under_way = not past or run.attempt > max(each.attempt for each in past)
        now = [show_execution(run, loans.get(run.id))] if is_under_way else []
        return [*now, *(show_attempt(run, each) for each in ended)]

    async def record(self, request: http.Request) -> http.Answer:
        """A worker says that it runs a job, how far it is (`checkpointData`), or how it ended."""
        sent = await read_json(request)
        job_id = sent.whole("jobId", low=1, high=model.LARGEST_ID, needed="jobId is required") or 0
        worker = node_name("agent", sent.worker("workerId"))
        word = sent.word("status", ("RUNNING", *ENDS), needed="status is required") or ""
        sent.instant("startTime")
        attempt = sent.whole("attempt", low=1, high=model.LARGEST_ID)
        job = await self._services.jobs.get(job_id, org=http.principal(request).org)
        if word == "RUNNING":
            run = await self._transitions.begin(job, worker, sent.json("checkpointData", CHECKPOINT), attempt)
        else:
            message = sent.text("errorMessage", longest=1000) or ""
            run = await self._transitions.end(job, STAGES[word], worker, message, attempt)
        return self._envelope.give((await self._attempts(run, await self._loans([run])))[0])
