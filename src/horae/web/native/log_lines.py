"""Logs by line, under /v1: where lines lie, and which hold a text. Each call looks at a part; the answer says where to
go on."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from horae.core import model
from horae.core.roles import Permission
from horae.errors import Invalid, NotFound
from horae.schemas import views
from horae.service import Services
from horae.service.lines import SCANNED, Line
from horae.web import http, params, render
from horae.web.streams import FileStream, Streams

PIECE = 1024 * 1024  # bytes of a download that are read at once
MOST_PIECES = 10_000  # of which one answer tells when they were stored
_FILE_HEADERS = {"Content-Disposition": "The run and the attempt, as the name of the file."}
_PLACE = (
    params.number("attempt", "Which attempt; the latest if not given.", 1, 2**31 - 1),
    params.number("offset", "Where to begin: at the first byte of a line, or the `next_offset` of an answer.", 0,
                  model.LARGEST_ID, 0),
    params.number("line", "The number of that line: the `next_line` of an answer.", 1, model.LARGEST_ID, 1),
)  # fmt: skip
_LOOK = params.number("limit", "How many bytes to look at, about.", 1, SCANNED, SCANNED)
_TIMES = (
    _PLACE[0],
    params.number("offset", "From the piece on that holds this byte.", 0, model.LARGEST_ID, 0),
    params.number("limit", "How many pieces at most.", 1, MOST_PIECES, MOST_PIECES),
)
_MATCHES = (
    params.text("q", "The text, in whatever case.", 1000),
    *_PLACE,
    params.number("limit", "How many lines at most.", 1, 1000, 100),
)


class LogLines:
    """The endpoints."""

    def __init__(self, services: Services, streams: Streams) -> None:
        self._insight = services.insight
        self._streams = streams

    def operations(self) -> list[http.Operation]:
        log = "/v1/runs/{run_id}/log"
        return [
            http.Operation("GET", f"{log}/index", self.index, "runs", "Find the lines of a log", "LogIndex",
                           params=(*_PLACE, _LOOK), needs=Permission.LOGS),
            http.Operation("GET", f"{log}/matches", self.match, "runs", "Find the lines of a log that hold a text",
                           "LogMatches", params=_MATCHES, needs=Permission.LOGS),
            http.Operation("GET", f"{log}/times", self.times, "runs", "Tell when pieces of a log were stored",
                           "LogTimes", params=_TIMES, needs=Permission.LOGS),
            http.Operation("GET", f"{log}/file", self.download, "runs", "Download the log of a run",
                           "application/octet-stream",
                           params=_PLACE[:1], errors=(429,), headers=_FILE_HEADERS, needs=Permission.LOGS),
        ]  # fmt: skip

    async def index(self, request: http.Request) -> http.Answer:
        """Looks at 16 MiB, unless at less: go on until `is_end`. A block begins every 64 KiB or so, at a line."""
        args, run_id = request.args, request.path_id("run_id")
        place = args["attempt"], args["offset"], args["line"], args["limit"]
        run, attempt, found = await self._insight.index_log(run_id, *place)
        shown = views.LogIndex(
            attempt, run.state.word, [views.LogBlock(*block) for block in found.blocks],
            [_line(head) for head in found.heads], found.first_error and _line(found.first_error),
            found.next_offset, found.next_line, found.is_end, found.size,
        )  # fmt: skip
        return http.reply(200, shown)

    async def match(self, request: http.Request) -> http.Answer:
        """Looks at 16 MiB, or until `limit` lines are found: go on until `is_end`. The text is looked for as it stands,
        never as a pattern."""
        args = request.args
        if not args["q"]:
            raise Invalid("which text? give it as q", code="E_REQUIRED", path="q")
        place = {"attempt": args["attempt"], "offset": args["offset"], "line": args["line"]}
        attempt, found = await self._insight.match_log(
            request.path_id("run_id"), args["q"], limit=args["limit"], **place
        )
        lines = [_line(line) for line in found.found]
        return http.reply(200, views.LogMatches(attempt, lines, found.next_offset, found.next_line, found.is_end))

    async def times(self, request: http.Request) -> http.Answer:
        """To go on, ask with the offset of the last one."""
        args = request.args
        attempt, found = await self._insight.log_times(
            request.path_id("run_id"), args["attempt"], args["offset"], args["limit"]
        )
        return http.reply(200, views.LogTimes(attempt, [views.LogTime(it.offset, render.stamp(it.at)) for it in found]))

    async def download(self, request: http.Request) -> http.Answer:
        """All that there is when it is asked for, as a file."""
        run_id = request.path_id("run_id")
        attempt, size = await self._insight.log_size(run_id, request.args["attempt"])
        self._streams.take()
        return FileStream(self._pieces(run_id, attempt, size), self._streams, f"run-{run_id}-{attempt}.log", size)

    async def _pieces(self, run_id: int, attempt: int, size: int) -> AsyncGenerator[bytes, None]:
        offset = 0
        while offset < size:
            limit = min(PIECE, size - offset)
            piece = (await self._insight.read_log(run_id, attempt=attempt, offset=offset, limit=limit)).data
            if not piece:
                raise NotFound(f"the log of run {run_id} is no longer there")
            yield piece
            offset += len(piece)


def _line(it: Line) -> views.LogLine:
    return views.LogLine(it.number, it.offset, it.text)
