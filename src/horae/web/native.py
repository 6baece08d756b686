"""The native API under /v1: read the request, call one service, render the answer.

`Native.operations` is the whole table of it. Nothing is decided here that another way in (command line,
facade, gRPC) would have to decide again.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import re
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from horae.core import datawork, isolation, kinds, model, moments, schedule, specs
from horae.core.fields import Fields, Problems, fields_of
from horae.errors import Invalid, NotFound
from horae.service import Services
from horae.service.access import parse_token
from horae.service.insight import LogSlice
from horae.web import http, render

LOG_BYTES = 1024 * 1024  # of a log in one answer, unless asked otherwise
LOG_BYTES_MOST = 8 * 1024 * 1024
LONGEST_RANGE = 100 * 365 * 86400 * model.SECOND  # between due_from and due_until
OVERVIEW_RUNS = 50
OVERVIEW_SECONDS = 1.0  # how long one look serves all who watch

PREVIEW_COUNT = 10

LIVE = tuple(state for state in model.State if not state.is_terminal)

JOB_EXAMPLE = {
    "name": "nightly report",
    "schedule": "30 2 * * MON-FRI",
    "timezone": "Europe/Berlin",
    "steps": [{"run": "echo hello"}],
    "timeout": "10m",
}
TOKEN_EXAMPLE = {"name": "ci", "scope": "user", "owner": "ann", "expires_in": "30d"}
TRIGGER_EXAMPLE = {"cron": "*/15 * * * *", "timezone": "Europe/Berlin", "data": {"full": False}}

_JOBS = (
    http.text("name", "Part of the name. A page looks at 2,000 jobs, and may be short: its cursor goes on.", 128),
    http.text("named", "The name, exactly.", 128),
    http.text("key", "The key, exactly.", 128),
    http.text("kind", "The kind of work, such as shell or python.", 64),
    http.text("owner", "The owner, exactly.", 128),
    http.boolean("paused", "Only paused jobs, or only those that are not."),
    http.CURSOR,
    http.LIMIT,
)
_RUNS = (
    http.identity("job_id", "Runs of one job."),
    http.identity("trigger_id", "Runs of one trigger."),
    http.words("state", "One or more states, with commas.", {each.word: each for each in model.State}),
    http.moment("due_from", "Due at or after this moment."),
    http.moment("due_until", "Due before this moment."),
    http.CURSOR,
    http.LIMIT,
)
_LOG = (
    http.number("attempt", "Which attempt; the latest if not given.", 1, 2**31 - 1),
    http.number("offset", "The first byte.", 0, http.LARGEST_ID, 0),
    http.number("limit", "How many bytes at most.", 1, LOG_BYTES_MOST, LOG_BYTES),
    http.Param(
        "Range",
        "One byte range, instead of offset and limit.",
        {"type": "string", "examples": ["bytes=0-1023"]},
        place="header",
    ),
)
_EVENT_ID = re.compile(r"(?:([0-9]{1,9}):)?([0-9]{1,18})", re.ASCII)
_FOLLOW = (
    http.Param(
        "Last-Event-ID",
        "The id of the last event that was seen: attempt:offset, or a byte offset in the log of the latest attempt.",
        {"type": "string", "pattern": "^([0-9]{1,9}:)?[0-9]{1,18}$"},
        place="header",
    ),
)
_LOG_HEADERS = {
    "Horae-Log-Offset": "The offset of the byte after the last one given.",
    "Horae-Run-State": "The state of the run when the log was read.",
}
_FILE_HEADERS = {"Content-Disposition": "The last part of its path, as the name of the file."}
_ETAG = {"ETag": "The version of the job, for If-Match."}

DIRECTORY = b"horae-directory"  # header: where a job file lies on this machine, percent-encoded


class Native:
    """The endpoints, bound to the services."""

    def __init__(self, services: Services, streams: http.Streams) -> None:
        self._jobs = services.jobs
        self._insight = services.insight
        self._access = services.access
        self._nodes = services.nodes
        self._secrets = services.secrets
        self._rotation = services.rotation
        self._runs_in_place = services.runs_in_place
        self._streams = streams
        self._seen: render.Overview | None = None
        self._seen_until = 0.0
        self._looking = asyncio.Lock()

    def operations(self) -> list[http.Operation]:
        rest = (*self._others(), *self._token_operations(), *self._secret_operations())
        return [*self._job_operations(), *self._trigger_operations(), *self._run_operations(), *rest]

    def _job_operations(self) -> list[http.Operation]:
        op, jobs, job = http.Operation, "/v1/jobs", "/v1/jobs/{job_id}"
        document = http.Body("JobDocument", JOB_EXAMPLE)
        return [
            op("POST", jobs, self.submit, "jobs", "Submit one job or several", "Submitted", 201,
               params=(http.IDEMPOTENCY,), body=http.Body("JobsDocument", JOB_EXAMPLE), errors=(403, 409)),
            op("GET", jobs, self.list_jobs, "jobs", "List jobs, newest first", "JobPage", params=_JOBS),
            op("GET", job, self.get_job, "jobs", "Read a job", "Job", headers=_ETAG),
            op("PUT", job, self.replace_job, "jobs", "Replace a job", "Job", params=(http.IF_MATCH,), body=document,
               errors=(403, 409, 412), headers=_ETAG),
            op("DELETE", job, self.delete_job, "jobs", "Delete a job", status=204),
            op("DELETE", f"{job}/cursor", self.reset_cursor, "jobs", "Let a sync begin anew", status=204,
               errors=(409,)),
            op("POST", f"{job}/pause", self.pause, "jobs", "Pause a job: its triggers do not fire", "Job"),
            op("POST", f"{job}/resume", self.resume, "jobs", "Let a paused job go on", "Job"),
            op("POST", f"{job}/run", self.run_now, "jobs", "Run a job now", "Run", 201, params=(http.IDEMPOTENCY,),
               body=http.Body("RunRequest", {"data": {"full": True}}, required=False), errors=(409,)),
        ]  # fmt: skip

    def _trigger_operations(self) -> list[http.Operation]:
        op, of_job, trigger = http.Operation, "/v1/jobs/{job_id}/triggers", "/v1/triggers/{trigger_id}"
        document = http.Body("TriggerDocument", TRIGGER_EXAMPLE)
        patch = http.Body("TriggerPatch", {"enabled": False})
        of_any = (http.identity("job_id", "Triggers of one job."), http.CURSOR, http.LIMIT)
        preview = http.Body("PreviewRequest", {"schedule": "0 9 * * MON", "count": 3})
        return [
            op("GET", of_job, self.list_job_triggers, "triggers", "List the triggers of a job", "TriggerPage",
               params=of_any[1:]),
            op("POST", of_job, self.add_trigger, "triggers", "Add a trigger to a job", "Trigger", 201, body=document,
               errors=(409,)),
            op("GET", "/v1/triggers", self.list_triggers, "triggers", "List triggers", "TriggerPage", params=of_any),
            op("GET", trigger, self.get_trigger, "triggers", "Read a trigger", "Trigger"),
            op("PUT", trigger, self.replace_trigger, "triggers", "Replace a trigger", "Trigger", body=document,
               errors=(409,)),
            op("PATCH", trigger, self.patch_trigger, "triggers", "Change parts of a trigger", "Trigger", body=patch,
               errors=(409,)),
            op("DELETE", trigger, self.delete_trigger, "triggers", "Delete a trigger", status=204, errors=(409,)),
            op("POST", "/v1/preview", self.preview, "triggers", "Show the next moments of a schedule", "Preview",
               body=preview),
        ]  # fmt: skip

    def _run_operations(self) -> list[http.Operation]:
        op, run = http.Operation, "/v1/runs/{run_id}"
        return [
            op("GET", "/v1/runs", self.list_runs, "runs", "List runs, newest first", "RunPage", params=_RUNS),
            op("GET", run, self.get_run, "runs", "Read a run with its attempts", "RunDetail"),
            op("POST", f"{run}/cancel", self.cancel, "runs", "Cancel a run", "Run", 202, errors=(409,)),
            op("GET", f"{run}/log", self.read_log, "runs", "Read the log of a run", "text/plain", params=_LOG,
               errors=(416,), also={206: "text/plain"}, headers=_LOG_HEADERS),
            op("GET", f"{run}/log/follow", self.follow_log, "runs", "Follow the log of a run", "text/event-stream",
               params=_FOLLOW, errors=(429,)),
            op("GET", f"{run}/artifacts", self.list_artifacts, "runs", "List the artifacts of a run", "ArtifactPage"),
            op("GET", f"{run}/artifacts/{{path}}", self.read_artifact, "runs", "Download an artifact",
               "application/octet-stream", errors=(429,), headers=_FILE_HEADERS),
        ]  # fmt: skip

    def _others(self) -> list[http.Operation]:
        op = http.Operation
        return [
            op("GET", "/v1/nodes", self.list_nodes, "cluster", "List nodes", "NodePage"),
            op("POST", "/v1/nodes/{name}/cordon", self.cordon, "cluster", "Let a node take no new runs", "Node"),
            op("POST", "/v1/nodes/{name}/uncordon", self.uncordon, "cluster", "Let a node take runs again", "Node"),
            op("POST", "/v1/nodes/{name}/drain", self.drain, "cluster", "Empty a node", "Node"),
            op("GET", "/v1/segments", self.list_segments, "cluster", "List who owns which segment", "SegmentPage"),
            op("GET", "/v1/overview", self.overview, "cluster", "Everything at a glance", "Overview"),
        ]  # fmt: skip

    def _token_operations(self) -> list[http.Operation]:
        op, tokens = http.Operation, "/v1/tokens"
        return [
            op("POST", tokens, self.create_token, "tokens", "Make a token", "NewToken", 201,
               body=http.Body("TokenRequest", TOKEN_EXAMPLE)),
            op("GET", tokens, self.list_tokens, "tokens", "List tokens, newest first", "TokenPage"),
            op("DELETE", f"{tokens}/{{token_id}}", self.revoke_token, "tokens", "Revoke a token", status=204),
        ]  # fmt: skip

    def _secret_operations(self) -> list[http.Operation]:
        op, secrets, one = http.Operation, "/v1/secrets", "/v1/secrets/{name}"
        return [
            op("GET", secrets, self.list_secrets, "secrets", "List secrets, without their values", "SecretPage"),
            op("PUT", one, self.set_secret, "secrets", "Set a secret", status=204,
               body=http.Body("SecretRequest", {"value": "correct horse"}), errors=(409,), also={201: ""}),
            op("DELETE", one, self.delete_secret, "secrets", "Delete a secret", status=204),
            op("POST", f"{secrets}/rotate", self.rotate_key, "secrets", "Seal everything with a new key", "KeyRotation",
               errors=(409,)),
        ]  # fmt: skip

    # ── jobs ──

    async def submit(self, request: http.Request) -> http.Answer:
        """One job document, or `{"jobs": […]}` with up to 100: all of them are made, or none. One whose key exists
        already replaces that job; with such a one, each job stands for itself."""
        body = await request.read()
        drafts = self._put_in_place(specs.parse_jobs(request.parse(body)), request.header(DIRECTORY))
        who = http.principal(request)
        done = await self._jobs.submit(drafts, owner=who.owner, org=who.org, idempotency=request.idempotency(body))
        return http.reply(201, render.Submitted([render.job(job) for job in done.jobs], done.replayed))

    def _put_in_place(self, drafts: Sequence[specs.Draft], directory: str | None) -> Sequence[specs.Draft]:
        """Where one's own steps run as one's self, they run where they were submitted from."""
        if not self._runs_in_place or directory is None:
            return drafts
        directory = unquote(directory)
        if not directory.startswith("/") or len(directory) > kinds.MAX_PATH or not directory.isprintable():
            raise Invalid(
                f"an absolute path expected, got {directory[:100]!r}", code="E_PATTERN", path="Horae-Directory"
            )
        return [replace(draft, spec=isolation.put_in_place(draft.spec, directory)) for draft in drafts]

    async def list_jobs(self, request: http.Request) -> http.Answer:
        args = request.args
        cursor, limit = args.pop("cursor"), args.pop("limit")
        page = await self._jobs.list(model.JobFilter(org=http.principal(request).org, **args), cursor, limit)
        return http.reply(200, render.JobPage([render.job(job) for job in page.items], page.cursor))

    async def get_job(self, request: http.Request) -> http.Answer:
        job = await self._jobs.get(request.path_id("job_id"))
        reply = render.job(job)
        if job.kind == datawork.SYNC:
            reply.cursor = render.cursor(await self._jobs.cursor(job.id))
        return http.reply(200, reply, [_etag(job)])

    async def replace_job(self, request: http.Request) -> http.Answer:
        """Takes a whole job document. Triggers that are given with their `id` keep their past."""
        job_id = request.path_id("job_id")
        draft = specs.parse_job(await request.document())
        return _job_reply(await self._jobs.replace(job_id, draft, expected_version=request.expected_version()))

    async def delete_job(self, request: http.Request) -> http.Answer:
        """It fires no more, its live runs are cancelled, and its history stays readable by id."""
        await self._jobs.delete(request.path_id("job_id"))
        return http.Reply(204)

    async def reset_cursor(self, request: http.Request) -> http.Answer:
        """Its next run reads everything, as the first one did. A run that is under way does not change that."""
        await self._jobs.set_cursor(request.path_id("job_id"), None)
        return http.Reply(204)

    async def pause(self, request: http.Request) -> http.Answer:
        return _job_reply(await self._jobs.set_paused(request.path_id("job_id"), True))

    async def resume(self, request: http.Request) -> http.Answer:
        return _job_reply(await self._jobs.set_paused(request.path_id("job_id"), False))

    async def run_now(self, request: http.Request) -> http.Answer:
        """The job's overlap policy holds: the run may be born `skipped` with the reason `overlap`."""
        job_id = request.path_id("job_id")
        body = await request.read()
        data, node = _read_run_request(request.parse(body)) if body else (None, None)
        run = await self._jobs.run_now(job_id, data=data, node=node, idempotency=request.idempotency(body))
        return http.reply(201, render.run(run))

    # ── triggers ──

    async def list_job_triggers(self, request: http.Request) -> http.Answer:
        job = await self._jobs.get(request.path_id("job_id"))
        return await self._trigger_page(job.id, request.args)

    async def list_triggers(self, request: http.Request) -> http.Answer:
        return await self._trigger_page(request.args["job_id"], request.args)

    async def _trigger_page(self, job_id: int | None, args: Mapping[str, Any]) -> http.Answer:
        page = await self._jobs.list_triggers(job_id, args["cursor"], args["limit"])
        return http.reply(200, render.TriggerPage([render.trigger(it) for it in page.items], page.cursor))

    async def get_trigger(self, request: http.Request) -> http.Answer:
        return http.reply(200, render.trigger(await self._jobs.get_trigger(request.path_id("trigger_id"))))

    async def add_trigger(self, request: http.Request) -> http.Answer:
        job_id = request.path_id("job_id")
        draft = specs.parse_trigger(await request.document())
        return http.reply(201, render.trigger(await self._jobs.add_trigger(job_id, draft)))

    async def replace_trigger(self, request: http.Request) -> http.Answer:
        trigger_id = request.path_id("trigger_id")
        draft = specs.parse_trigger(await request.document())
        return http.reply(200, render.trigger(await self._jobs.replace_trigger(trigger_id, draft)))

    async def patch_trigger(self, request: http.Request) -> http.Answer:
        """`next_at` moves the next moment once; the schedule goes on from there."""
        trigger_id = request.path_id("trigger_id")
        changes = _read_patch(await request.document())
        return http.reply(200, render.trigger(await self._jobs.patch_trigger(trigger_id, **changes)))

    async def delete_trigger(self, request: http.Request) -> http.Answer:
        await self._jobs.delete_trigger(request.path_id("trigger_id"))
        return http.Reply(204)

    async def preview(self, request: http.Request) -> http.Answer:
        """Takes a trigger document, or `schedule` as text; shows the first `count` moments from `start_at` on."""
        document, start, count = _read_preview(await request.document())
        draft = specs.parse_trigger(document)
        if "start_at" in draft.schedule:
            start = moments.parse_moment(draft.schedule["start_at"])
        found = self._insight.preview(draft.schedule, start=start, count=count)
        shown = [render.Previewed(moments.format_moment(it.moment), it.local, it.note) for it in found]
        dialect, words = schedule.dialect_of(draft.schedule), schedule.describe(draft.schedule)
        return http.reply(200, render.Preview(dialect, words, shown))

    # ── runs ──

    async def list_runs(self, request: http.Request) -> http.Answer:
        args = request.args
        due_from, due_until = args["due_from"], args["due_until"]
        if due_from is not None and due_until is not None and not 0 <= due_until - due_from < LONGEST_RANGE:
            message = "due_until must lie after due_from, by less than 100 years"
            raise Invalid(message, code="E_RANGE", path="due_until")
        where = model.RunFilter(args["job_id"], args["trigger_id"], args["state"], due_from, due_until)
        page = await self._jobs.list_runs(where, args["cursor"], args["limit"])
        return http.reply(200, render.RunPage([render.run(run) for run in page.items], page.cursor))

    async def get_run(self, request: http.Request) -> http.Answer:
        run_id = request.path_id("run_id")
        run = await self._jobs.get_run(run_id)
        return http.reply(200, render.run_detail(run, await self._jobs.list_attempts(run_id)))

    async def cancel(self, request: http.Request) -> http.Answer:
        """A waiting run is cancelled at once; a running one as soon as its process tree is gone."""
        return http.reply(202, render.run(await self._jobs.cancel(request.path_id("run_id"))))

    async def read_log(self, request: http.Request) -> http.Answer:
        """Empty while the run has not started; `Horae-Run-State` tells."""
        run_id = request.path_id("run_id")
        asked = request.byte_range()
        if asked and (request.args["offset"], request.args["limit"]) != (0, LOG_BYTES):
            raise Invalid("a Range header stands beside offset or limit", code="E_FIELD_CONFLICT", path="Range")
        offset, limit = _window(asked) if asked else (request.args["offset"], request.args["limit"])
        piece = await self._insight.read_log(run_id, attempt=request.args["attempt"], offset=offset, limit=limit)
        headers = [
            (b"horae-log-offset", b"%d" % piece.next_offset),
            (b"horae-run-state", piece.run.state.word.encode()),
            (b"accept-ranges", b"bytes"),
        ]
        if asked and not piece.data:
            raise http.BadRange(f"the log has no byte {offset}", hint="read it without a range to see its end")
        if asked:
            headers.append((b"content-range", b"bytes %d-%d/*" % (offset, offset + len(piece.data) - 1)))
        return http.Reply(206 if asked else 200, piece.data, b"text/plain; charset=utf-8", headers)

    async def follow_log(self, request: http.Request) -> http.Answer:
        """Events: `log` {attempt, offset, text}, `state` {run}, and `end` {run} when all is told."""
        run_id = request.path_id("run_id")
        run = await self._jobs.get_run(run_id)
        attempt, offset = _event_place(request.header(b"last-event-id"), run)
        self._streams.take()
        return http.EventStream(self._log_events(run, attempt, offset), self._streams)

    async def _log_events(self, run: model.Run, attempt: int, offset: int) -> AsyncGenerator[bytes, None]:
        yield http.event("state", render.run(run))
        text = _Text()
        async for piece in self._insight.follow(run.id, attempt=attempt, offset=offset):
            if piece.attempt != attempt:  # tried again: its log begins anew
                for event in text.rest(attempt):
                    yield event
                text, attempt = _Text(), piece.attempt
            for event in text.events(piece):
                yield event
            if _standing(piece.run) != _standing(run):
                yield http.event("state", render.run(piece.run))
            run = piece.run
        for event in text.rest(attempt):
            yield event
        yield http.event("end", render.run(await self._jobs.get_run(run.id)))

    async def list_artifacts(self, request: http.Request) -> http.Answer:
        """The files that the job's `artifacts` matched, of the last attempt; none while the run goes on."""
        found = await self._insight.list_artifacts(request.path_id("run_id"))
        return http.reply(200, render.ArtifactPage([render.Artifact(*one) for one in found]))

    async def read_artifact(self, request: http.Request) -> http.Answer:
        """`path` is that of the list; its slashes may stand as they are."""
        run_id, path = request.path_id("run_id"), request.scope["path_params"]["path"]
        ref, artifact = await self._insight.find_artifact(run_id, path)
        first = await self._insight.read_artifact(ref, 0)
        if not first and artifact.size:
            raise NotFound(f"the artifact {moments.quoted(path)} of run {run_id} is no longer there")
        self._streams.take()
        return http.FileStream(self._pieces(ref, first), self._streams, path, artifact.size)

    async def _pieces(self, ref: str, piece: bytes) -> AsyncGenerator[bytes, None]:
        offset = 0
        while piece:
            yield piece
            offset += len(piece)
            piece = await self._insight.read_artifact(ref, offset)

    # ── the cluster ──

    async def list_nodes(self, request: http.Request) -> http.Answer:
        nodes, segments = await self._insight.nodes(), await self._insight.segments()
        return http.reply(200, render.NodePage(render.nodes(nodes, segments)))

    async def cordon(self, request: http.Request) -> http.Answer:
        """What runs there goes on. This holds, also when the node restarts, until it is uncordoned."""
        return await self._want(request, "cordoned")

    async def uncordon(self, request: http.Request) -> http.Answer:
        return await self._want(request, "live")

    async def drain(self, request: http.Request) -> http.Answer:
        """It takes no new runs and gives its segments away; what runs there goes on to its end. This holds, also
        when the node restarts, until it is uncordoned."""
        return await self._want(request, "drained")

    async def _want(self, request: http.Request, wanted: str) -> http.Answer:
        node = await self._nodes.want(request.scope["path_params"]["name"], wanted)
        (shown,) = render.nodes([node], await self._insight.segments())
        return http.reply(200, shown)

    async def list_segments(self, request: http.Request) -> http.Answer:
        owned = sorted((await self._insight.segments()).items())
        return http.reply(200, render.SegmentPage([render.Segment(n, owner, term) for n, (owner, term) in owned]))

    async def overview(self, request: http.Request) -> http.Answer:
        return http.reply(200, await self.look())

    async def look(self) -> render.Overview:
        """What there is now, or was a second ago: any number of open pages costs one look a second."""
        async with self._looking:
            if self._seen is None or time.monotonic() >= self._seen_until:
                self._seen = await self._look()
                self._seen_until = time.monotonic() + OVERVIEW_SECONDS
            return self._seen

    async def _look(self) -> render.Overview:
        seen = await self._insight.overview()
        live = (await self._jobs.list_runs(model.RunFilter(states=LIVE), None, OVERVIEW_RUNS)).items
        wanted = {run.job_id for run in (*live, *seen.recent)} | {trigger.job_id for trigger in seen.due}
        names: dict[str, str] = {}
        for job_id in wanted:
            with contextlib.suppress(NotFound):
                names[str(job_id)] = (await self._jobs.get(job_id)).name
        return render.Overview(
            at=moments.format_moment(time.time_ns() // 1000),
            node=seen.node,
            census=render.census(seen.census),
            nodes=render.nodes(seen.nodes, seen.segments),
            live=[render.run(run) for run in live],
            recent=[render.run(run) for run in seen.recent if run.state.is_terminal],
            due=[render.trigger(trigger) for trigger in seen.due],
            names=names,
            catch_up=render.CatchUp(*seen.behind),
            unreadable={str(trigger_id): why for trigger_id, why in seen.unreadable.items()},
        )

    # ── tokens ──

    async def create_token(self, request: http.Request) -> http.Answer:
        """`token` in the answer is shown this once: Horae keeps only its hash. What is made with a token has its owner,
        and ends with it."""
        wanted = parse_token(await request.document())
        token, text = await self._access.issue(wanted, request.token)
        return http.reply(201, render.new_token(token, self._access.state_of(token), text))

    async def list_tokens(self, request: http.Request) -> http.Answer:
        """Revoked and expired ones too; never their secrets."""
        items = [render.token(token, self._access.state_of(token)) for token in await self._access.list()]
        return http.reply(200, render.TokenPage(items))

    async def revoke_token(self, request: http.Request) -> http.Answer:
        """This node refuses it at once, every other one within 5 seconds."""
        await self._access.revoke(request.path_id("token_id"))
        return http.Reply(204)

    # ── secrets ──

    async def list_secrets(self, request: http.Request) -> http.Answer:
        found = await self._secrets.list(http.principal(request).org)
        return http.reply(200, render.SecretPage([render.secret(it) for it in found]))

    async def set_secret(self, request: http.Request) -> http.Answer:
        """201 when it is new. Attempts that start from now on use this value; no address gives it back."""
        fields = _fields(await request.document(), "value")
        if "value" not in fields.values:
            fields.fault("value", "E_REQUIRED", "a secret needs a value")
        fields.problems.settle()
        name = request.scope["path_params"]["name"]
        is_new = await self._secrets.set(http.principal(request).org, name, fields.values["value"])
        return http.Reply(201 if is_new else 204)

    async def delete_secret(self, request: http.Request) -> http.Answer:
        """Attempts that need it and start from now on fail."""
        await self._secrets.delete(http.principal(request).org, request.scope["path_params"]["name"])
        return http.Reply(204)

    async def rotate_key(self, request: http.Request) -> http.Answer:
        """Answers when it is done. A repeat goes on with what was broken off; else it makes yet another key."""
        return http.reply(200, render.KeyRotation(*await self._rotation.rotate()))


def _job_reply(job: model.Job) -> http.Reply:
    return http.reply(200, render.job(job), [_etag(job)])


def _etag(job: model.Job) -> tuple[bytes, bytes]:
    return b"etag", b'"%d"' % job.version


def _window(asked: tuple[int, int | None]) -> tuple[int, int]:
    """Offset and limit of a byte range; a longer one is answered in part, as the protocol allows."""
    first, last = asked
    return first, LOG_BYTES if last is None else min(last - first + 1, LOG_BYTES_MOST)


def _standing(run: model.Run) -> tuple[Any, ...]:
    return run.state, run.attempt, run.phase, run.cancel_requested, run.progress


def _event_place(last: str | None, run: model.Run) -> tuple[int, int]:
    """Attempt and offset to go on from: each attempt has a log of its own."""
    found = _EVENT_ID.fullmatch("0" if last is None else last)
    if found is None:
        message = "attempt:offset or a byte offset expected"
        raise Invalid(message, code="E_TYPE", path="Last-Event-ID", hint="start without it")
    attempt = run.attempt if found[1] is None else int(found[1])
    if attempt > run.attempt:
        raise Invalid(f"run {run.id} has no attempt {attempt} yet", code="E_RANGE", path="Last-Event-ID")
    return attempt, int(found[2])


class _Text:
    """The log of one attempt as text: a character cut in two waits for its rest, and so does the event id."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._end = 0

    def events(self, piece: LogSlice) -> Iterator[bytes]:
        start = piece.offset - len(self._decoder.getstate()[0])
        text = self._decoder.decode(piece.data)
        self._end = piece.next_offset - len(self._decoder.getstate()[0])
        if text:
            where = f"{piece.attempt}:{self._end}"
            yield http.event("log", {"attempt": piece.attempt, "offset": start, "text": text}, where)

    def rest(self, attempt: int) -> Iterator[bytes]:
        if text := self._decoder.decode(b"", final=True):
            yield http.event("log", {"attempt": attempt, "offset": self._end, "text": text})


# ── small bodies ───────────────────────────────────────────────────────────────────────────────────


def _fields(document: Any, *known: str) -> Fields:
    problems = Problems()
    fields = fields_of(document, "", problems, "an object expected")
    if fields is None:
        problems.settle()
        raise AssertionError("a problem was noted")
    fields.refuse_others(frozenset(known))
    return fields


def _moment(fields: Fields, name: str) -> model.Moment | None:
    if name not in fields.values:
        return None
    try:
        return moments.parse_moment(fields.values[name])
    except Invalid as error:
        fields.problems.adopt(name, error)
        return None


def _read_run_request(document: Any) -> tuple[model.Json | None, str | None]:
    fields = _fields(document, "data", "node")
    data = fields.json("data", kinds.MAX_DATA) if "data" in fields.values else None
    node = fields.text("node")
    fields.problems.settle()
    return data, node


def _read_patch(document: Any) -> dict[str, Any]:
    fields = _fields(document, "enabled", "next_at", "data")
    data = None if fields.values.get("data") is None else fields.json("data", kinds.MAX_DATA)
    changes = {"enabled": fields.flag("enabled"), "next_at": _moment(fields, "next_at"), "data": data}
    fields.problems.settle()
    if not fields.values:
        raise Invalid("nothing to change", code="E_REQUIRED", hint="give any of enabled, next_at, data")
    return {name: changes[name] for name in fields.values}


def _read_preview(document: Any) -> tuple[Any, model.Moment | None, int]:
    """The trigger document, from when, and how many. Beside a text, `start_at` is only a question."""
    if not isinstance(document, dict):
        return document, None, PREVIEW_COUNT
    fields = Fields(document, "", Problems())
    count = fields.number("count", PREVIEW_COUNT, 1, 1000, whole=True)
    own = ("count", "start_at") if "schedule" in document else ("count",)
    start = _moment(fields, "start_at") if "schedule" in document else None
    fields.problems.settle()
    return {name: value for name, value in document.items() if name not in own}, start, count
