"""The job store (port 8081 of the contract): jobs, their due moments, their executions."""

from __future__ import annotations

from collections.abc import AsyncIterator

from horae.core.model import Job as CoreJob
from horae.core.model import JobFilter, Json, Run, RunFilter, Standing, State
from horae.errors import Invalid
from horae.ports import Sort
from horae.service import Services
from horae.service.outside import node_name
from horae.web import http
from horae.web.facades.cluster.envelope import JOB, Envelope, Rows
from horae.web.facades.cluster.moves import ENDS, Moves
from horae.web.facades.cluster.reading import Sent, path_id, query, read_json, read_segments
from horae.web.facades.cluster.submitting import read_draft
from horae.web.facades.cluster.words import STATUSES, job_word, sent_with, show_due, show_execution, show_job

PAGE = 500  # jobs looked at together
LISTED = 10_000  # jobs in one answer: the contract has no pages
DUE = 1000  # due moments in one answer: the next scan gets the rest
CHECKPOINT = 64 * 1024  # bytes of what a worker says about how far it is
EXECUTIONS = 1000  # runs looked at for one answer
EXECUTED = tuple(state for state in State if state not in (State.QUEUED, State.SKIPPED, State.COALESCED))

_STATUS = query("status", f"One of {', '.join(STATUSES)}.")


class JobStore:
    def __init__(self, services: Services, envelope: Envelope, moves: Moves) -> None:
        self._services = services
        self._envelope = envelope
        self._moves = moves

    def operations(self, rows: Rows) -> list[http.Operation]:
        row, job = rows.row, "/api/jobs/{job_id}"
        segments = query("segments", "Segments with commas, or repeated.", many=True)
        user = query("userId", "Only jobs of this user.")
        return [
            row("POST", "/api/jobs", self.submit, "Submit a job", missing=JOB),
            row("GET", "/api/jobs", self.list_jobs, "List jobs of a status", _STATUS, user, missing=JOB),
            row("GET", job, self.get_job, "Read a job", missing=JOB),
            row("DELETE", job, self.delete_job, "Cancel a job", missing=JOB),
            row("PUT", f"{job}/status", self.set_status, "Change the status of a job", _STATUS, missing=JOB),
            row("GET", "/api/job-schedules/due", self.due, "List jobs that are due", query("asOf", "The moment."),
                segments, missing=JOB),
            row("GET", "/api/executions", self.executions, "List executions", query("jobId", "Of this job."),
                query("workerId", "By this worker."), missing=JOB),
            row("POST", "/api/job-store/executions", self.record, "Report on an execution", missing=JOB),
        ]  # fmt: skip

    # ── jobs ──

    async def submit(self, request: http.Request) -> http.Answer:
        """A job that is due is offered to the worker that registered for its segment; without one, or if it does not
        take it within a scan interval, Horae runs it itself."""
        body = await request.read()
        draft = read_draft(await read_json(request, body))
        who = http.principal(request)
        key = request.idempotency(body)
        done = await self._services.jobs.submit([draft], owner=who.owner, org=who.org, idempotency=key)
        return await self._shown(done.jobs[0])

    async def get_job(self, request: http.Request) -> http.Answer:
        return await self._shown(await self._job(request))

    async def list_jobs(self, request: http.Request) -> http.Answer:
        sent = Sent(request.args)
        word = sent.word("status", STATUSES, needed="status is required")
        user = sent.whole("userId", low=-(2**63), high=2**63 - 1)
        found: list[Json] = []
        async for job, standing in self._every(http.principal(request).org, word or ""):
            if job_word(job, standing) == word and user in (None, sent_with(job).get("userId")):
                found.append(show_job(job, standing))
            if len(found) == LISTED:
                break
        return self._envelope.give(found)

    async def delete_job(self, request: http.Request) -> http.Answer:
        """It fires no more, and what runs of it is stopped. One that does not exist counts as cancelled."""
        found = await self._services.jobs.get_many([path_id(request)])
        for job in found:
            if job.org == http.principal(request).org:
                await self._moves.cancel(job)
        return self._envelope.give("Job cancelled successfully")

    async def set_status(self, request: http.Request) -> http.Answer:
        """`SCHEDULED` fires a due job, once: who comes second gets 409. `RUNNING`, `COMPLETED` and `FAILED` report on
        a run that was fired so; `PENDING` gives it back; `CANCELLED` cancels the job."""
        word = Sent(request.args).word("status", STATUSES, needed="status is required") or ""
        await self._moves.to(word, await self._job(request))
        return self._envelope.give("Job status updated")

    async def _job(self, request: http.Request) -> CoreJob:
        return await self._services.jobs.get(path_id(request), org=http.principal(request).org)

    async def _shown(self, job: CoreJob) -> http.Answer:
        return self._envelope.give(show_job(job, await self._moves.standing(job)))

    async def _every(self, org: int, word: str) -> AsyncIterator[tuple[CoreJob, Standing]]:
        """Jobs that may have this status, newest first; the cancelled ones are those that were deleted, then others."""
        wanted = [JobFilter(org=org, deleted=True)] if word == "CANCELLED" else []
        for where in (*wanted, JobFilter(org=org)):
            cursor = None
            while True:
                page = await self._services.jobs.list(where, cursor, PAGE)
                standings = await self._services.jobs.standing([job.id for job in page.items])
                for job in page.items:
                    yield job, standings[job.id]
                if (cursor := page.cursor) is None:
                    break

    # ── what is due ──

    async def due(self, request: http.Request) -> http.Answer:
        """Jobs of this contract that are PENDING with a moment up to `asOf`, soonest first."""
        sent = Sent(request.args)
        as_of = sent.instant("asOf", needed="asOf is required") or 0
        segments = read_segments(sent.text("segments", needed="segments is required", longest=1000))
        found = await self._services.jobs.due_between(0, as_of + 1, segments, DUE)
        org = http.principal(request).org
        offered = [each for each in found if each.job.policy.offered and each.job.org == org]
        standings = await self._services.jobs.standing([each.job.id for each in offered])
        return self._envelope.give(
            [
                show_due(each.job, each.trigger_id, each.at)
                for each in offered
                if job_word(each.job, standings[each.job.id]) == "PENDING"
            ]
        )

    # ── executions ──

    async def executions(self, request: http.Request) -> http.Answer:
        sent = Sent(request.args)
        job_id = sent.whole("jobId", low=1, high=http.LARGEST_ID)
        worker = sent.text("workerId")
        if job_id is None and worker is None:
            raise Invalid("jobId or workerId is required", code="E_REQUIRED", path="jobId")
        runs = await self._runs(http.principal(request).org, job_id, worker)
        return self._envelope.give(await self._executions(runs))

    async def _runs(self, org: int, job_id: int | None, worker: str | None) -> list[Run]:
        if job_id is not None:
            await self._services.jobs.get(job_id, org=org)
        nodes = () if worker is None else (worker, node_name("agent", worker), node_name("scheduler", worker))
        where = RunFilter(job_id=job_id, states=EXECUTED, org=org, nodes=nodes)
        found = await self._services.jobs.search_runs(where, [Sort("id", descending=True)], 0, EXECUTIONS)
        return [run for run, _ in found.items]

    async def _executions(self, runs: list[Run]) -> list[Json]:
        live = [run.id for run in runs if run.state is State.RUNNING]
        loans = {loan.run_id: loan for loan in await self._services.lending.loans(live)} if live else {}
        return [show_execution(run, loans.get(run.id)) for run in runs]

    async def record(self, request: http.Request) -> http.Answer:
        """A worker says that it runs a job, how far it is (`checkpointData`), or how it ended."""
        sent = await read_json(request)
        job_id = sent.whole("jobId", low=1, high=http.LARGEST_ID, needed="jobId is required") or 0
        worker = node_name("agent", sent.worker("workerId"))
        word = sent.word("status", ("RUNNING", *ENDS), needed="status is required") or ""
        sent.instant("startTime")
        job = await self._services.jobs.get(job_id, org=http.principal(request).org)
        if word == "RUNNING":
            run = await self._moves.begin(job, worker, sent.json("checkpointData", CHECKPOINT))
        else:
            run = await self._moves.end(job, word, worker, sent.text("errorMessage", longest=1000) or "")
        return self._envelope.give((await self._executions([run]))[0])
