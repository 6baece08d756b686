"""Jobs under /v1: submit, read, replace, delete, pause, resume, run now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import unquote

from horae import schemas
from horae.core import model
from horae.core.fields import encode
from horae.core.roles import Permission
from horae.core.work import commands, isolation, specs, syncs
from horae.errors import Invalid
from horae.ports import deeds
from horae.service import Services
from horae.service.jobs.submitting import Outcome, Planned
from horae.web import http, params, render
from horae.web.native.bodies import read_plain_run, read_run
from horae.web.native.many import SLICE, Arriving, Coming, Intake, Many, Pieces, cut, in_pieces, is_list
from horae.web.openapi import LINES

JOB_EXAMPLE = {
    "name": "nightly report",
    "schedule": "30 2 * * MON-FRI",
    "timezone": "Europe/Berlin",
    "steps": [{"run": "echo hello"}],
    "timeout": "10m",
}

_JOBS = (
    params.text(
        "q", "Words, all of which the name holds, or the key, whatever their case. All jobs are looked at.", 128
    ),
    params.text("name", "Part of the name. A page looks at 2,000 jobs, and may be short: its cursor goes on.", 128),
    params.text("named", "The name, exactly.", 128),
    params.text("key", "The key, exactly.", 128),
    params.text("kind", "The kind of work, such as shell or python.", 64),
    params.text("owner", "The owner, exactly.", 128),
    params.text("tag", "One of the tags of the job, exactly.", 63),
    params.text("queue", "The queue in which its runs wait. As `name`, it may make a page short.", 128),
    params.boolean("paused", "Only paused jobs, or only those that are not."),
    params.CURSOR,
    params.LIMIT,
)
_DAYS = params.number("days", "How many, today included.", 1, 400, 371)
JSON = b"application/json"
_DRY_RUN = params.boolean("dry_run", "Only say what would be created or changed (200); everything is checked.")
_ETAG = {"ETag": "The version of the job, for If-Match."}
PREVIEWED_JOBS = 10  # of a plan, whose next moments are shown, and as many triggers of each
PREVIEWED_MOMENTS = 5
WHOLE = 64 * 1024  # bytes of a document that is read in one go
DIRECTORY = b"horae-directory"  # header: where a job file lies on this machine, percent-encoded


class Jobs:
    """The endpoints of jobs."""

    def __init__(self, services: Services, intake: Intake) -> None:
        self._jobs = services.jobs
        self._insight = services.insight
        self._intake = intake
        self._runs_in_place = services.runs_in_place

    def operations(self) -> list[http.Operation]:
        op, jobs, job = http.Operation, "/v1/jobs", "/v1/jobs/{job_id}"
        document = http.Body("JobDocument", JOB_EXAMPLE)
        return [
            op("POST", jobs, self.submit, "jobs", "Submit one job or several", ("Submitted", LINES[0]), 201,
               params=(_DRY_RUN, params.IDEMPOTENCY), body=http.Body("JobsDocument", JOB_EXAMPLE, lines=True),
               errors=(403, 409, 429), also={200: "SubmitPlan"}, needs=Permission.WRITE),
            op("GET", jobs, self.list_jobs, "jobs", "List jobs, newest first", "JobPage", params=_JOBS,
               needs=Permission.READ),
            op("GET", job, self.get_job, "jobs", "Read a job", "Job", headers=_ETAG, needs=Permission.READ),
            op("GET", f"{job}/days", self.list_days, "jobs", "How the last days of a job went", "DayPage",
               params=(_DAYS,), needs=Permission.READ),
            op("GET", f"{job}/data-schema", self.get_data_schema, "jobs", "What data a job takes and returns",
               "DataSchema", needs=Permission.READ),
            op("PUT", job, self.replace_job, "jobs", "Replace a job", "Job", params=(params.IF_MATCH,), body=document,
               errors=(403, 409, 412), headers=_ETAG, needs=Permission.WRITE),
            op("POST", f"{job}/plan", self.plan_replacing, "jobs", "Say what replacing a job would do", "SubmitPlan",
               body=document, errors=(403,), needs=Permission.WRITE),
            op("DELETE", job, self.delete_job, "jobs", "Delete a job", status=204, needs=Permission.WRITE),
            op("DELETE", f"{job}/cursor", self.reset_cursor, "jobs", "Let a sync begin anew", status=204,
               errors=(409,), needs=Permission.WRITE),
            op("POST", f"{job}/pause", self.pause, "jobs", "Pause a job: its triggers do not fire", "Job",
               needs=Permission.PAUSE),
            op("POST", f"{job}/resume", self.resume, "jobs", "Let a paused job go on", "Job", needs=Permission.PAUSE),
            op("POST", f"{job}/run", self.run_now, "jobs", "Run a job now", "Run", 201, params=(params.IDEMPOTENCY,),
               body=http.Body("RunRequest", {"data": {"full": True}}, required=False), errors=(409,),
               needs=Permission.RUN),
        ]  # fmt: skip

    async def submit(self, request: http.Request) -> http.Answer:
        """One job document, or up to 10,000 as `{"jobs": […]}`, as a JSON array, or as NDJSON, in at most 32 MiB. They
        are read while they arrive, and none is made before all are: what is wrong with any of them refuses all. Up to
        1,000 are made together or not at all; more are made a thousand at a time: should that break off, those before
        stay made, and a repeat with the same Idempotency-Key goes on from there. One whose key exists already replaces
        that job; with such a one, each job of its thousand stands for itself. What was read from here is taken as it
        is: what Horae made (ids, versions, moments) is ignored where it is as Horae made it, and refused where it was
        changed."""
        with self._intake.arriving(request) as arriving:
            many = _listed(request, arriving, await arriving.first())
            read = await _read_drafts(many) if many else specs.parse_jobs(request.parse(arriving.whole or b""))
            drafts = self._put_in_place(read, request.header(DIRECTORY))
            who = http.principal(request)
            idempotency = arriving.idempotency()
            if request.args["dry_run"]:
                return http.reply(200, self._render_plan(await self._jobs.plan(drafts, owner=who.name, org=who.org)))
            done = await self._jobs.submit(drafts, owner=who.name, org=who.org, idempotency=idempotency)
            warnings = await self._jobs.offers.warn(done.jobs)
            if len(done.jobs) <= SLICE and not (many and many.is_lines):
                shown = [render.job(job) for job in done.jobs]
                return http.reply(201, schemas.Submitted(shown, done.replayed, warnings))
            end = f',"replayed":{"true" if done.replayed else "false"},"warnings":{encode(warnings)}'
            is_lines = bool(many and many.is_lines)
            return Pieces(
                201, in_pieces(done.jobs, render.job, is_lines=is_lines), name="jobs", is_lines=is_lines, end=end
            )

    def _render_plan(self, them: Sequence[Planned]) -> schemas.SubmitPlan:
        """Of the first jobs, the next moments of each trigger too."""
        return schemas.SubmitPlan(
            [
                render.planned(it, self._moments(it.draft) if number < PREVIEWED_JOBS else [])
                for number, it in enumerate(them)
            ]
        )

    def _moments(self, draft: specs.Draft) -> list[schemas.Preview]:
        ask = self._insight.preview
        return [
            render.preview(one.schedule, ask(one.schedule, start=None, count=PREVIEWED_MOMENTS))
            for one in draft.triggers[:PREVIEWED_JOBS]
        ]

    def _put_in_place(self, drafts: Sequence[specs.Draft], directory: str | None) -> Sequence[specs.Draft]:
        """Where one's own steps run as one's self, they run where they were submitted from."""
        if not self._runs_in_place or directory is None:
            return drafts
        directory = unquote(directory)
        if not directory.startswith("/") or len(directory) > commands.MAX_PATH or not directory.isprintable():
            raise Invalid(
                f"an absolute path expected, got {directory[:100]!r}", code="E_PATTERN", path="Horae-Directory"
            )
        return [replace(draft, spec=isolation.put_in_place(draft.spec, directory)) for draft in drafts]

    async def list_jobs(self, request: http.Request) -> http.Answer:
        args = request.args
        cursor, limit, words = args.pop("cursor"), args.pop("limit"), args.pop("q")
        page = await self._jobs.list(
            model.JobFilter(org=http.principal(request).bound_to, words=words, **args), cursor, limit
        )
        return http.reply(200, schemas.JobPage([render.job(job) for job in page.items], page.cursor))

    async def get_job(self, request: http.Request) -> http.Answer:
        job = await self._jobs.get(request.path_id("job_id"))
        reply = render.job(job)
        if followers := await self._jobs.following.followers_of(job):
            reply.followers = [schemas.Follower(each.id, each.name, each.key) for each in followers]
        if job.kind == syncs.SYNC:
            reply.cursor = render.cursor(await self._jobs.cursors.get(job.id))
        return http.reply(200, reply, [_etag(job)])

    async def list_days(self, request: http.Request) -> http.Answer:
        """Days of UTC, oldest first. A run belongs to the day on which it was made, and counts once it has ended."""
        job = await self._jobs.get(request.path_id("job_id"))
        found = await self._jobs.glances.days(job.id, request.args["days"])
        return http.reply(200, schemas.DayPage([render.day(it) for it in found]))

    async def get_data_schema(self, request: http.Request) -> http.Answer:
        """Taken from the parameters of its Python handler and from what it says that it returns, as far as that can be
        seen here; data that does not fit is refused with E_DATA, a result with E_RESULT."""
        job = await self._jobs.get(request.path_id("job_id"))
        schema, result = await self._jobs.data.schema_of(job), await self._jobs.data.result_of(job)
        return http.reply(200, schemas.DataSchema(schema, render.job(job).spec.get("data", {}), result))

    async def replace_job(self, request: http.Request) -> http.Answer:
        """Takes a whole job document, also one as GET returns it: what Horae made is ignored where it is as Horae made
        it, and refused where it was changed; a document of an earlier `version` is refused (412). What changes nothing
        makes no new version. Triggers that are given with their `id` keep their past."""
        job_id = request.path_id("job_id")
        draft = specs.parse_job(await request.document())
        return _job_reply(await self._jobs.replace(job_id, draft, expected_version=request.expected_version()))

    async def plan_replacing(self, request: http.Request) -> http.Answer:
        """Takes what PUT takes, and changes nothing: tells what is wrong with it, or the moments that come of it."""
        deeds.note(is_void=True)
        job = await self._jobs.get(request.path_id("job_id"))
        deeds.note(is_void=True)
        draft = specs.parse_job(await request.document())
        return http.reply(200, self._render_plan([Planned(draft, Outcome.CHANGED, job.id)]))

    async def delete_job(self, request: http.Request) -> http.Answer:
        """It fires no more, its live runs are cancelled, and its history stays readable by id."""
        await self._jobs.delete(request.path_id("job_id"))
        return http.Reply(204)

    async def reset_cursor(self, request: http.Request) -> http.Answer:
        """Its next run reads everything, as the first one did. A run that is under way does not change that."""
        await self._jobs.cursors.set(request.path_id("job_id"), None)
        return http.Reply(204)

    async def pause(self, request: http.Request) -> http.Answer:
        return _job_reply(await self._jobs.set_paused(request.path_id("job_id"), True, http.principal(request).name))

    async def resume(self, request: http.Request) -> http.Answer:
        return _job_reply(await self._jobs.set_paused(request.path_id("job_id"), False))

    async def run_now(self, request: http.Request) -> http.Answer:
        """The job's overlap policy holds: the run may be born `skipped` with the reason `overlap`. With a `run_at` that
        is still to come, it waits until then, `blocked` with the reason `later`, and the policy is applied then."""
        job_id = request.path_id("job_id")
        body = await request.read()
        once = request.idempotency(body)
        wanted = read_plain_run(body, job_id, once) if request.by_name.get(b"content-type") == JSON else None
        if wanted is None:
            wanted = read_run(request.parse(body) if body else {}, job_id, once)
        return http.reply(201, render.run(await self._jobs.orders.place(wanted)))


def _job_reply(job: model.Job) -> http.Reply:
    return http.reply(200, render.job(job), [_etag(job)])


def _etag(job: model.Job) -> tuple[bytes, bytes]:
    return b"etag", b'"%d"' % job.version


def _listed(request: http.Request, arriving: Arriving, first: bytes) -> Many | Coming | None:
    """Return the jobs of a list; None where the body is a document that is read in one go."""
    if arriving.whole is None:
        return arriving.items(first, "jobs")
    return cut(request, first, "jobs") if len(first) > WHOLE or is_list(request, first) else None


async def _read_drafts(many: Many | Coming) -> list[specs.Draft]:
    reader = specs.JobReader()
    async for path, item in many.read():
        reader.read(item, path)
    return reader.drafts()
