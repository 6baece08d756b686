"""Executions of CI jobs: their history, their logs in three forms, the files that they kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import urlencode

from horae.contracts.ci import reading, rendering, reports
from horae.core.model import Attempt, Job, Run, RunFilter
from horae.core.roles import Permission
from horae.core.time import moments
from horae.errors import Invalid, NotFound
from horae.service import Services
from horae.service.access.owners import refuse_strangers
from horae.web import http, params
from horae.web.artifacts import send_artifact
from horae.web.streams import Streams, TextStream

PIECE = 1024 * 1024  # bytes of a log read at once; a longer one is sent in pieces
REPORT_BYTES = 4 * 1024 * 1024  # of a log that a report looks through; the rest is left out, and said so
LEFT_OUT = "\n(the rest of the log is left out of this report: ask for format=text)\n"
HISTORY = 1000  # executions in one answer


def _format(text: str) -> str:
    if text not in reading.FORMATS:
        message = f"one of {', '.join(reading.FORMATS)} expected, got {moments.quoted(text)}"
        raise Invalid(message, code="E_ENUM")
    return text


_LOG = (
    params.Param("format", "That of the job if not given.", {"enum": list(reading.FORMATS)}, _format),
    params.boolean("follow", "Send the log as text while it grows, until the execution has ended."),
    params.number("attempt", "Which attempt; the latest if not given.", 1, 2**31 - 1),
)
_HISTORY = (params.number("limit", "How many executions at most.", 1, HISTORY, HISTORY), params.CURSOR)


class Executions:
    def __init__(self, services: Services, streams: Streams) -> None:
        self._jobs = services.jobs
        self._insight = services.insight
        self._streams = streams

    def operations(self, op: partial[http.Operation]) -> list[http.Operation]:
        api, json, text = "/api/v1/", "application/json", "text/plain"
        log = partial(op, gives=(text, json, "application/xml"), params=_LOG, errors=(403, 429))
        return [
            op("GET", api + "retrieve_history_execution/{job_id}", self.history, gives=json, params=_HISTORY,
               summary="List the executions of a job, newest first", headers={"Link": "Where older ones are."},
               errors=(403,), needs=Permission.READ),
            log("GET", api + "last_execution_logs/{job_id}", self.last_log, summary="Read a job's last log",
                needs=Permission.LOGS),
            log("GET", api + "execution_logs/{execution_id}", self.log, summary="Read the log of an execution",
                needs=Permission.LOGS),
            op("GET", api + "artifacts/{execution_id}/{path}", self.artifact, gives="application/octet-stream",
               summary="Download a file that an execution kept", errors=(403, 429), needs=Permission.LOGS),
        ]  # fmt: skip

    async def job_of(self, request: http.Request, job_id: int) -> Job:
        """Return a job, to its owner; those of other organisations do not exist."""
        who = http.principal(request)
        return refuse_strangers(await self._jobs.get(job_id, org=who.org), who.name)

    async def earlier(self, runs: Sequence[Run]) -> dict[int, list[Attempt]]:
        """Attempts that did not end their run, by run."""
        found: dict[int, list[Attempt]] = {run.id: [] for run in runs}
        for one in await self._jobs.load_attempts([run.id for run in runs if run.fence]):
            found[one.run_id].append(one)
        return found

    async def _asked(self, request: http.Request) -> tuple[Job, Run]:
        """Return the execution of the address, with its job."""
        run = await self._jobs.get_run(request.path_id("execution_id"))
        try:
            return await self.job_of(request, run.job_id), run
        except NotFound:
            raise NotFound(f"there is no run {run.id}") from None

    # ── endpoints ──

    async def history(self, request: http.Request) -> http.Answer:
        """Every moment that came has a row, also those that were skipped or merged into a later one; each with all of
        its attempts."""
        job = await self.job_of(request, request.path_id("job_id"))
        limit = request.args["limit"]
        page = await self._jobs.list_runs(RunFilter(job_id=job.id), request.args["cursor"], limit)
        earlier = await self.earlier(page.items)
        rows = [rendering.execution(run, earlier[run.id]) for run in page.items]
        return http.reply(200, rows, older(request, page.cursor, limit=limit))

    async def last_log(self, request: http.Request) -> http.Answer:
        """In the form that the job asked for: text, JSON, or JUnit XML. Of an execution that has not begun there is
        nothing to read yet: then it is the one before, unless it is to be followed."""
        job = await self.job_of(request, request.path_id("job_id"))
        standing = (await self._jobs.standing([job.id]))[job.id]
        run, ended = standing.latest, standing.ended
        if run is None:
            raise NotFound(f"job {job.id} has not run yet")
        waits = run.fence == 0 and not request.args["follow"]
        return await self._log(request, job, ended if waits and ended is not None else run)

    async def log(self, request: http.Request) -> http.Answer:
        return await self._log(request, *await self._asked(request))

    async def artifact(self, request: http.Request) -> http.Answer:
        """`path` is that of the history; its slashes may stand as they are."""
        _, run = await self._asked(request)
        return await send_artifact(self._insight, self._streams, run.id, request.scope["path_params"]["path"])

    # ── logs ──

    async def _log(self, request: http.Request, job: Job, run: Run) -> http.Answer:
        if request.args["follow"]:
            self._streams.take()
            return TextStream(self._follow(run, request.args["attempt"]), self._streams)
        run = await self._at(run, request.args["attempt"])
        form = request.args["format"] or reading.format_of(job)
        if form == "text":
            return await self._text(run)
        text = await self._whole(run)
        if form == "json":
            return http.reply(200, reports.as_json(job, run, text))
        return http.Reply(200, reports.as_junit(job, run, text).encode(), b"application/xml; charset=utf-8")

    async def _at(self, run: Run, number: int | None) -> Run:
        """Return the run as it stood with this attempt."""
        if number in (None, run.attempt):
            return run
        for one in await self._jobs.list_attempts(run.id):
            if one.attempt == number:
                return replace(
                    run, attempt=number, state=one.state, reason=one.reason, message=one.message, result=None,
                    started_at=one.started_at, finished_at=one.finished_at, output=one.output,
                )  # fmt: skip
        raise NotFound(f"execution {run.id} has no attempt {number}; it is at attempt {run.attempt}")

    async def _text(self, run: Run) -> http.Answer:
        first = await self._read(run, 0)
        if len(first) < PIECE:
            return http.Reply(200, first, TextStream.media)
        self._streams.take()
        return TextStream(self._rest(run, first), self._streams)

    async def _read(self, run: Run, offset: int) -> bytes:
        number = run.attempt if run.fence else None
        piece = await self._insight.read_log(run.id, attempt=number, offset=offset, limit=PIECE)
        return piece.data

    async def _rest(self, run: Run, piece: bytes) -> AsyncGenerator[bytes, None]:
        offset = 0
        while piece:
            yield piece
            offset += len(piece)
            piece = await self._read(run, offset)

    async def _follow(self, run: Run, attempt: int | None) -> AsyncGenerator[bytes, None]:
        async for piece in self._insight.follow(run.id, attempt=attempt, offset=0):
            if piece.data:
                yield piece.data

    async def _whole(self, run: Run) -> str:
        """Return the log, as far as a report goes."""
        data = bytearray()
        while piece := await self._read(run, len(data)):
            data += piece
            if len(data) > REPORT_BYTES:
                return data[:REPORT_BYTES].decode(errors="replace") + LEFT_OUT
        return data.decode(errors="replace")


def older(request: http.Request, cursor: str | None, **asked: object) -> http.RawHeaders:
    """Return where a list goes on, for whoever asked so."""
    if cursor is None:
        return ()
    query = urlencode({**asked, "cursor": cursor})
    return [(b"link", f'<{request.scope["path"]}?{query}>; rel="next"'.encode())]
