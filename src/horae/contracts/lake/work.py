"""The worker's side, alike for lake and sync: pull a run, report on it; and for people: run now, kill.

A pulled run is on loan (service/external/loans.py). Each report prolongs the loan; the id that a worker is given names
the attempt, so that one whose run was given to another is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from horae.contracts.lake import reading, rendering, schedules, vocabulary
from horae.contracts.lake.api import LakeApi
from horae.core import model
from horae.core.definitions import Idempotency
from horae.core.fields import Fields, encoded
from horae.core.model import Job, Json, Loan, Moment, Phase, RunFilter, Standing, State
from horae.core.runs.tries import last_attempt
from horae.core.time import moments
from horae.core.work.specs import parse_trigger
from horae.core.work.syncs import made_cursor
from horae.errors import Conflict, Invalid, NotFound
from horae.service import Services
from horae.web import http

LONGEST_MESSAGE = 4096  # characters
MOST_PROGRESS = 64 * 1024  # bytes of JSON
MOST_QUEUED = MOST_RUNNING = 1000  # runs shown
MODES = ("Continuous", "Once", "OnceTime")  # read, and without a meaning


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker says of the attempt it works at."""

    run_id: int
    attempt: int
    job_id: int
    means: Phase | State | None
    message: str
    progress: Json


class Work:
    def __init__(self, services: Services, api: LakeApi) -> None:
        self._jobs = services.jobs
        self._lending = services.lending
        self._lends, self._lease = services.lends_lake_work, services.lake_lease
        self._api = api
        self._id = "run_id" if api.side == "lake" else "sync_id"
        self._kinds = vocabulary.LAKE_KINDS if api.side == "lake" else (vocabulary.SYNC,)

    # ── for workers ──
    async def next(self, request: http.Request) -> http.Answer:
        """Take the next run that waits, if any: it is on loan from now on, and must be reported on. Where Horae's own
        agents do this work there is none."""
        _refuse_lookers(request)
        if not self._lends:
            return http.reply(200, {"has_job": False})
        worker, org = worker_name(request), http.principal(request).bound_to
        lent = await self._lending.lend(self._kinds, worker=worker, seconds=self._lease, org=org)
        if lent is None:
            return http.reply(200, {"has_job": False})
        shown = (await self._api.show([lent.job], lent=lent.run))[0]
        wire = vocabulary.wire_id(lent.run.id, lent.run.attempt)
        return http.reply(200, {"has_job": True, "data": {self._id: wire, **shown}})

    async def report(self, request: http.Request) -> http.Answer:
        """`success` is false for an attempt that has ended or was given to another worker; `cancel` asks to stop."""
        _, fields = await reading.body_of(request)
        report = self._read_report(fields)
        run = await self._jobs.get_run(report.run_id)
        is_seen = await self._is_visible(run.job_id, request)
        if report.job_id not in (0, run.job_id) or run.kind not in self._kinds or not is_seen:
            raise NotFound(f"job {report.job_id} has no run {fields.values[self._id]}")
        try:
            return http.reply(200, await self._note(report, worker_name(request)))
        except Conflict:
            return http.reply(200, {"success": False})

    async def _is_visible(self, job_id: int, request: http.Request) -> bool:
        org = http.principal(request).bound_to
        return org is None or (await self._jobs.get(job_id)).org == org

    async def _note(self, report: Report, worker: str) -> Json:
        if isinstance(report.means, State):
            await self._lending.finish(
                report.run_id, report.attempt, report.means, message=report.message, result=report.progress,
                cursor=made_cursor(report.progress) if self._api.side == "sync" else None,
            )  # fmt: skip
            return {"success": True}
        shall_stop = await self._lending.report(
            report.run_id, report.attempt, worker=worker, seconds=self._lease, phase=report.means,
            progress=report.progress,
        )  # fmt: skip
        return {"success": True, "cancel": True} if shall_stop else {"success": True}

    def _read_report(self, fields: Fields) -> Report:
        name = fields.values.get("class_name")
        if not isinstance(name, str) or not (name.endswith("_progress") or name == "job_progress_impl"):
            fields.fault(
                "class_name", "E_DISCRIMINATOR", "the class of a progress, such as java_job_progress, expected"
            )
        for needed in (self._id, "job_status"):
            if needed not in fields.values:
                fields.fault(needed, "E_REQUIRED", "a report needs it")
        wire = fields.number(self._id, 0, 1, model.LARGEST_ID, whole=True)
        job_id = fields.number("job_id", 0, 0, model.LARGEST_ID, whole=True)
        status = reading.word(fields, "job_status", vocabulary.REPORTS, "Unknown")
        message = fields.values.get("message", "")
        if not isinstance(message, str):
            fields.wrong_type("message", "must be text")
        if len(encoded(fields.values) or "") > MOST_PROGRESS:
            fields.fault("message", "E_LEN", f"a report has at most {MOST_PROGRESS // 1024} KiB")
        fields.problems.raise_any()
        means = vocabulary.REPORTS[status]
        return Report(*vocabulary.split_wire_id(wire), job_id, means, message[:LONGEST_MESSAGE], fields.values)

    async def progress(self, request: http.Request) -> http.Answer:
        """Return how far the runs are, by job: what workers said last, and what our own agents tell."""
        loans, runs = await self._lending.loans(), await self._api.running(request, self._kinds, MOST_RUNNING)
        ids = {loan.job_id for loan in loans} | {run.job_id for run in runs}
        jobs = {job.id: job for job in await self._jobs.get_many(sorted(ids))}
        now, lent = await self._jobs.now(), {loan.run_id for loan in loans}
        told = {
            str(run.job_id): rendering.progress(run, jobs[run.job_id], self._api.side, now)
            for run in runs
            if run.id not in lent and run.job_id in jobs
        }
        ours = [loan for loan in loans if self._is_ours(jobs.get(loan.job_id), request)]
        return http.reply(200, {**told, **{str(loan.job_id): self._said(loan, jobs[loan.job_id]) for loan in ours}})

    def _is_ours(self, job: Job | None, request: http.Request) -> bool:
        return job is not None and job.kind in self._kinds and job.org == http.principal(request).org

    def _said(self, loan: Loan, job: Job) -> Json:
        """Return the last report, or, before the first, as much of one as is known."""
        known = {"org_id": job.org, self._id: vocabulary.wire_id(loan.run_id, loan.attempt), "job_id": job.id}
        return loan.progress or {**known, "job_status": "Queued"}

    async def queued(self, request: http.Request) -> http.Answer:
        """Runs that wait for a worker."""
        runs = await self._api.waiting(request, self._kinds, MOST_QUEUED)
        jobs = await self._jobs.get_many(sorted({run.job_id for run in runs}))
        shown = {job.id: row for job, row in zip(jobs, await self._api.show(jobs), strict=True)}
        rows = [(run, shown[run.job_id]) for run in runs if run.job_id in shown]
        return http.reply(
            200, [{self._id: vocabulary.wire_id(run.id, last_attempt(run, ())), **row} for run, row in rows]
        )

    # ── for people ──
    async def now(self, request: http.Request) -> http.Answer:
        """Run now, or, with at_time in the future, then instead of at its next moment."""
        body, fields = await reading.body_of(request)
        at = _read_at(fields)
        job = await self._api.find(request)
        await self._force(job, at, request.idempotency(body))
        return http.reply(200, {"success": True})

    async def now_many(self, request: http.Request) -> http.Answer:
        """As now, of several: which of them will run."""
        _, fields = await reading.body_of(request)
        at, done = _read_at(fields), {}
        for job_id in reading.ids(fields):
            try:
                await self._force(await self._api.find(request, job_id), at, None)
                done[str(job_id)] = True
            except (Conflict, NotFound, Invalid):
                done[str(job_id)] = False
        return http.reply(200, done)

    async def _force(self, job: Job, at: Moment | None, idempotency: Idempotency | None) -> None:
        standing = (await self._jobs.standing([job.id]))[job.id]
        self._refuse_live(standing)
        if at is None or at <= await self._jobs.now():
            run = await self._jobs.run_now(job.id, idempotency=idempotency)
            if run.state is State.SKIPPED:  # another was faster
                raise Conflict("job is already queued")
            return
        enabled = [t for t in job.triggers if t.enabled]
        if enabled:
            soonest = min(enabled, key=lambda t: (t.next_at is None, t.next_at or 0))
            await self._jobs.triggers.patch(soonest.id, next_at=at)
        else:
            await self._jobs.triggers.add(job.id, parse_trigger({"at": moments.format_moment(at)}))

    def _refuse_live(self, standing: Standing) -> None:
        if standing.latest is not None and not standing.latest.state.is_terminal:
            is_queued = vocabulary.status(standing.latest, self._api.side) == "Queued"
            raise Conflict("job is already queued" if is_queued else "job is already running")

    async def kill(self, request: http.Request) -> http.Answer:
        """Cancel what is live of a job; false when nothing is."""
        await request.read()
        job = await self._api.find(request)
        live = await self._jobs.list_runs(RunFilter(job_id=job.id, states=vocabulary.LIVE))
        done = [await self._api.cancel(run.id) for run in live.items]
        return http.reply(200, {"success": any(done)})


def _refuse_lookers(request: http.Request) -> None:
    """To pull is a GET that changes something. HEAD could not tell what it took; and a browser asks on behalf of
    whatever page it shows, without an Origin, but not without saying so."""
    if request.is_head:
        raise http.BadMethod("HEAD", ["GET"])
    if request.header(b"sec-fetch-site") not in (None, "same-origin", "none"):
        raise http.BadOrigin("the request comes from a page of another site", hint="pull from a worker")


def worker_name(request: http.Request) -> str:
    """Return what a puller is called: its address and its token are all that is known of it."""
    client: Any = request.scope.get("client")
    who = http.principal(request)
    token = "" if who.is_local else f" with {who.via}"
    return f"lake worker {client[0] if client else ''}".rstrip() + token


def _read_at(fields: Fields) -> Moment | None:
    name = "at_time" if "at_time" in fields.values else "start_time"
    at = fields.number(name, None, 0, schedules.LATEST, whole=True)
    reading.word(fields, "mode", MODES, MODES[0])
    fields.problems.raise_any()
    return None if at is None else at * moments.MILLISECOND
