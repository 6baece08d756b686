"""Horae as a CI server (source document 1): a YAML file makes jobs, each with its history and its last log.

Two things are added to the document: the log of every execution at the address that its history names, and the
deletion of a job, which the text speaks of without a route.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from urllib.parse import parse_qsl

from horae.core import moments
from horae.core.model import Job, Json, Run, RunFilter
from horae.errors import Invalid, Malformed, NotFound, Unauthenticated
from horae.service import Services
from horae.service.access import SESSION, SESSION_SECONDS, is_ours
from horae.web import documents, http
from horae.web.facades.ci import reading, rendering, reports

COOKIE = "session"
PIECE = 1024 * 1024  # bytes of a log read at once; a longer one is sent in pieces
REPORT_BYTES = 4 * 1024 * 1024  # of a log that a report looks through; the rest is left out, and said so
LEFT_OUT = "\n(the rest of the log is left out of this report: ask for format=text)\n"
HISTORY = 1000  # executions in one answer
_FORM = "application/x-www-form-urlencoded"


def _token(request: http.Request) -> str | None:
    sent = http.bearer(request)
    return sent if sent is not None else http.cookie(request, COOKIE)


def _nothing(_: http.Request) -> str | None:
    """Who logs in proves it with the body: what else came along may be what is to be replaced."""
    return None


def _format(text: str) -> str:
    if text not in reading.FORMATS:
        message = f"one of {', '.join(reading.FORMATS)} expected, got {moments.quoted(text)}"
        raise Invalid(message, code="E_ENUM")
    return text


_LOG = (
    http.Param("format", "That of the job if not given.", {"enum": list(reading.FORMATS)}, _format),
    http.boolean("follow", "Send the log as text while it grows, until the execution has ended."),
)
_HISTORY = (http.number("limit", "How many executions at most.", 1, HISTORY, HISTORY), http.CURSOR)


class Ci:
    def __init__(self, services: Services, streams: http.Streams) -> None:
        self._services = services
        self._streams = streams

    def operations(self) -> list[http.Operation]:
        op = partial(http.Operation, tag="ci", shape=rendering.SHAPE, is_lenient=True, credential=_token, scope=SESSION)
        api, json, text = "/api/v1/", "application/json", "text/plain"
        log = partial(op, gives=(text, json, "application/xml"), params=_LOG, errors=(429,))
        return [
            op("POST", api + "login", self.login, summary="Log in with a token", gives=json, is_open=True,
               credential=_nothing, headers={"Set-Cookie": "The session."}),
            op("POST", api + "submit_job", self.submit, summary="Make the jobs of a YAML file", gives=json, status=201,
               params=(http.IDEMPOTENCY,), errors=(403, 409, 413)),
            op("GET", api + "retrieve_history_execution/{job_id}", self.history, gives=json, params=_HISTORY,
               summary="List the executions of a job, newest first", headers={"Link": "Where older ones are."}),
            log("GET", api + "last_execution_logs/{job_id}", self.last_log, summary="Read a job's last log"),
            log("GET", api + "execution_logs/{execution_id}", self.log, summary="Read the log of an execution"),
            op("GET", api + "job_status/{job_id}", self.status, summary="Tell how a job stands", gives=json),
            op("DELETE", api + "job/{job_id}", self.delete, summary="Delete a job", gives=json),
        ]  # fmt: skip

    # ── login ──

    async def login(self, request: http.Request) -> http.Answer:
        """Takes a user token, as `{"token": "…"}` or as a form, and opens a session, which the cookie `session` names.
        Who needs no token needs none here."""
        token = _read_login(await request.read(), request.header(b"content-type") or "")
        if request.who is not None and (token is None or not is_ours(token)):
            return http.reply(200, {"user": request.who.owner})
        client = request.scope.get("client")
        known = await self._services.access.check(token, "user", client[0] if client else "")
        secure = "; Secure" if request.scope.get("scheme") == "https" else ""
        session = await self._services.access.open_session(known)
        cookie = f"{COOKIE}={session}; Max-Age={SESSION_SECONDS:.0f}; HttpOnly; SameSite=Strict; Path=/{secure}"
        return http.reply(200, {"user": known.owner}, [(b"set-cookie", cookie.encode())])

    # ── jobs ──

    async def submit(self, request: http.Request) -> http.Answer:
        """Takes a YAML file with one or more jobs under `jobs`: all of them are made, or none. The answer says for
        each how its schedule was read, and when it runs next."""
        body = await request.read()
        wanted = reading.read_jobs(body)
        who = http.principal(request)
        done = await self._services.jobs.submit(
            [one.draft for one in wanted], owner=who.owner, org=who.org, idempotency=request.idempotency(body)
        )
        jobs = [_submitted(job, one) for job, one in zip(done.jobs, wanted, strict=True)]
        ids = [job.id for job in done.jobs]
        return http.reply(201, {"job_id": ids[0], "job_ids": ids, "jobs": jobs})

    async def status(self, request: http.Request) -> http.Answer:
        job = await self._job(request)
        standing = (await self._services.jobs.standing([job.id]))[job.id]
        return http.reply(200, rendering.status(job, standing))

    async def delete(self, request: http.Request) -> http.Answer:
        """It runs no more and what runs of it is cancelled; its history stays readable."""
        job = await self._job(request)
        await self._services.jobs.delete(job.id)
        return http.reply(200, {"job_id": job.id, "status": rendering.DELETED})

    async def _job(self, request: http.Request) -> Job:
        return await self._services.jobs.get(request.path_id("job_id"), org=http.principal(request).org)

    # ── executions ──

    async def history(self, request: http.Request) -> http.Answer:
        """Every moment that came has a row, also those that were skipped or merged into a later one."""
        job = await self._job(request)
        limit = request.args["limit"]
        page = await self._services.jobs.list_runs(RunFilter(job_id=job.id), request.args["cursor"], limit)
        older = f'<{request.scope["path"]}?limit={limit}&cursor={page.cursor}>; rel="next"' if page.cursor else ""
        rows = [rendering.execution(run) for run in page.items]
        return http.reply(200, rows, [(b"link", older.encode())] if older else ())

    async def last_log(self, request: http.Request) -> http.Answer:
        """In the form that the job asked for: text, JSON, or JUnit XML. Of an execution that has not begun there is
        nothing to read yet: then it is the one before, unless it is to be followed."""
        job = await self._job(request)
        standing = (await self._services.jobs.standing([job.id]))[job.id]
        run, ended = standing.latest, standing.ended
        if run is None:
            raise NotFound(f"job {job.id} has not run yet")
        waits = run.fence == 0 and not request.args["follow"]
        return await self._log(request, job, ended if waits and ended is not None else run)

    async def log(self, request: http.Request) -> http.Answer:
        run = await self._services.jobs.get_run(request.path_id("execution_id"))
        job = await self._services.jobs.get(run.job_id, org=http.principal(request).org)
        return await self._log(request, job, run)

    async def _log(self, request: http.Request, job: Job, run: Run) -> http.Answer:
        if request.args["follow"]:
            self._streams.take()
            return http.TextStream(self._follow(run), self._streams)
        form = request.args["format"] or reading.format_of(job)
        if form == "text":
            return await self._text(run)
        text = await self._whole(run)
        if form == "json":
            return http.reply(200, reports.as_json(job, run, text))
        return http.Reply(200, reports.as_junit(job, run, text).encode(), b"application/xml; charset=utf-8")

    async def _text(self, run: Run) -> http.Answer:
        first = await self._read(run, 0)
        if len(first) < PIECE:
            return http.Reply(200, first, http.TextStream.media)
        self._streams.take()
        return http.TextStream(self._rest(run, first), self._streams)

    async def _read(self, run: Run, offset: int) -> bytes:
        piece = await self._services.insight.read_log(run.id, attempt=None, offset=offset, limit=PIECE)
        return piece.data

    async def _rest(self, run: Run, piece: bytes) -> AsyncGenerator[bytes, None]:
        offset = 0
        while piece:
            yield piece
            offset += len(piece)
            piece = await self._read(run, offset)

    async def _follow(self, run: Run) -> AsyncGenerator[bytes, None]:
        async for piece in self._services.insight.follow(run.id, attempt=None, offset=0):
            if piece.data:
                yield piece.data

    async def _whole(self, run: Run) -> str:
        """The log, as far as a report goes."""
        data = bytearray()
        while piece := await self._read(run, len(data)):
            data += piece
            if len(data) > REPORT_BYTES:
                return data[:REPORT_BYTES].decode(errors="replace") + LEFT_OUT
        return data.decode(errors="replace")


def _submitted(job: Job, wanted: reading.Wanted) -> Json:
    return {
        "job_id": job.id,
        "name": job.name,
        "schedule": wanted.schedule,
        "reading": wanted.reading,
        "next_execution_time": rendering.when(rendering.next_moment(job)),
    }


def _read_login(body: bytes, content_type: str) -> str | None:
    """The token of a login; None when there is none. What it is not, nobody is told."""
    if not body.strip():
        return None
    if content_type.partition(";")[0].strip().lower() == _FORM:
        try:
            return dict(parse_qsl(body.decode("latin-1"), max_num_fields=http.QUERY_LIMIT)).get("token")
        except ValueError:
            raise Malformed("a form with the field token expected") from None
    sent = documents.read_json(body)
    token = sent.get("token") if isinstance(sent, dict) else None
    if token is not None and not isinstance(token, str):
        raise Unauthenticated
    return token
