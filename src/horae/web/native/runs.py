"""Runs under /v1, with their logs and artifacts.

A log is read in pieces by offset, or followed as events whose ids say where to go on.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from horae import schemas
from horae.core import model
from horae.core.definitions import Idempotency
from horae.core.roles import Permission
from horae.errors import Error, Invalid
from horae.service import Services
from horae.service.batching import read_ahead
from horae.service.insight.views import LogSlice
from horae.service.jobs.orders import BATCH, AlikeBatch, Answers, Asker, OrderBatch, RunRequest, RunsAlike
from horae.web import http, params, render
from horae.web.artifacts import send_artifact
from horae.web.native.bodies import OrdersAlike, read_alike, read_orders
from horae.web.native.many import Intake, Many, Pieces, between, cut, in_pieces
from horae.web.openapi import LINES
from horae.web.streams import EventStream, Streams, event

LOG_BYTES = 1024 * 1024  # of a log in one answer, unless asked otherwise
MAX_LOG_BYTES = 8 * 1024 * 1024
MAX_TAIL = 1_000_000  # lines
LONGEST_RANGE = 100 * 365 * 86400 * model.SECOND  # between due_from and due_until

ORDERS_EXAMPLE = {"runs": [{"job": "nightly-report", "data": {"full": True}, "priority": 9}, {"job": 7}]}

_RUNS = (
    params.identity("job_id", "Runs of one job."),
    params.identity("trigger_id", "Runs of one trigger."),
    params.words("state", "One or more states, with commas.", {each.word: each for each in model.State}),
    params.moment("due_from", "Due at or after this moment."),
    params.moment("due_until", "Due before this moment."),
    params.text("node", "Runs that this node runs or ran last.", 200),
    params.text(
        "attempted_by",
        "Runs of which any attempt was ever given to this node, also those that ended elsewhere; tasks too.",
        200,
    ),
    params.identity("parent", "Tasks of one run of a workflow."),
    params.text("task", "With parent: the task of this name, with all items of a fan-out.", 200),
    params.boolean("tasks", "Tasks of workflows too."),
    params.text("owner", "Runs of jobs of this owner.", 200),
    params.text("name", "Runs of jobs whose name holds this text.", 200),
    params.text("queue", "Runs that wait or run in this queue; those that have ended are in none.", 200),
    params.CURSOR,
    params.LIMIT,
)
_ATTEMPT = params.number("attempt", "Which attempt; the latest if not given.", 1, 2**31 - 1)
_TAIL = params.number("tail", "Only so many lines at the end, instead of an offset.", 0, MAX_TAIL)
_LOG = (
    _ATTEMPT,
    _TAIL,
    params.text(
        "grep",
        "Only lines that hold this text. They are looked for in a part of the log: go on from Horae-Log-Offset until "
        "it stays the same. `limit` ends with a whole line.",
        1000,
    ),
    params.number("offset", "The first byte.", 0, model.LARGEST_ID, 0),
    params.number("limit", "How many bytes at most.", 1, MAX_LOG_BYTES, LOG_BYTES),
    params.Param(
        "Range",
        "One byte range, instead of offset and limit.",
        {"type": "string", "examples": ["bytes=0-1023"]},
        place="header",
    ),
)
_EVENT_ID = re.compile(r"(?:([0-9]{1,9}):)?([0-9]{1,18})", re.ASCII)
_FOLLOW = (
    replace(_ATTEMPT, description="Which attempt to begin with; the latest if not given."),
    replace(_TAIL, description="Begin with so many lines at the end of what is there."),
    params.Param(
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


async def _batches(many: Many, scope: str, key: str | None) -> AsyncGenerator[OrderBatch | AlikeBatch, None]:
    """Yield what the orders mean, as many at a time as go to the store together. Where none has a key of its own
    choice, one for all of them is enough."""
    slices: list[list[bytes]] = []
    alike: list[OrdersAlike] | None = []
    start, count, digest = 0, 0, hashlib.sha256()
    async for texts in many.slices():
        slices.append(texts)
        count += len(texts)
        digest.update(b"\n".join(texts))
        if alike is not None:
            one = read_alike(texts, is_lines=many.is_lines)
            alike = None if one is None or (alike and alike[0].request != one.request) else [*alike, one]
        if count >= BATCH or start + count == len(many.items):
            promise = None if key is None else Idempotency(scope, f"{key}#{start}+", digest.hexdigest())
            read = partial(_read_batch, slices, scope, key, start, promise)
            if alike is None:
                yield read()
            else:
                yield AlikeBatch(alike[0].request, [data for one in alike for data in one.data], promise, read)
            start, count, digest = start + count, 0, hashlib.sha256()
            slices, alike = [], []


def _read_batch(
    slices: Sequence[list[bytes]], scope: str, key: str | None, start: int, promise: Idempotency | None
) -> OrderBatch:
    """Return what orders mean, each for itself."""
    orders: list[RunRequest | Error] = []
    is_shared = promise is not None
    for texts in slices:
        first = start + len(orders)
        keys = [key and f"{key}#{number}" for number in range(first, first + len(texts))]
        read = read_orders(texts, scope, keys)
        is_shared = is_shared and all(map(_has_key, read, keys))
        orders += read
    return OrderBatch(orders, promise if is_shared else None)


def _has_key(order: RunRequest | Error, key: str | None) -> bool:
    return isinstance(order, Error) or (order.idempotency is not None and order.idempotency.key == key)


def _answer(request_id: str, answer: model.Run | Error) -> Any:
    return http.problem_of(answer, request_id) if isinstance(answer, Error) else render.run(answer)


class Runs:
    """The endpoints of runs."""

    def __init__(self, services: Services, streams: Streams, intake: Intake) -> None:
        self._jobs = services.jobs
        self._intake = intake
        self._insight = services.insight
        self._streams = streams

    def operations(self) -> list[http.Operation]:
        op, run = http.Operation, "/v1/runs/{run_id}"
        return [
            op("GET", "/v1/runs", self.list_runs, "runs", "List runs, newest first", "RunPage", params=_RUNS,
               needs=Permission.READ),
            op("POST", "/v1/runs", self.run_many, "runs", "Run many jobs", ("RunAnswers", LINES[0]),
               params=(params.IDEMPOTENCY,), body=http.Body("OrdersDocument", ORDERS_EXAMPLE, lines=True),
               errors=(409, 429), needs=Permission.RUN),
            op("GET", run, self.get_run, "runs", "Read a run with its attempts", "RunDetail", needs=Permission.READ),
            op("POST", f"{run}/cancel", self.cancel, "runs", "Cancel a run", "Run", 202, errors=(409,),
               needs=Permission.CANCEL),
            op("POST", f"{run}/retry", self.retry, "runs", "Go on with a workflow from where it failed", "Run", 201,
               params=(params.IDEMPOTENCY,), errors=(409, 429), needs=Permission.RUN),
            op("GET", f"{run}/log", self.read_log, "runs", "Read the log of a run", "text/plain", params=_LOG,
               errors=(416,), also={206: "text/plain"}, headers=_LOG_HEADERS, needs=Permission.LOGS),
            op("GET", f"{run}/log/follow", self.follow_log, "runs", "Follow the log of a run", "text/event-stream",
               params=_FOLLOW, errors=(429,), needs=Permission.LOGS),
            op("GET", f"{run}/artifacts", self.list_artifacts, "runs", "List the artifacts of a run", "ArtifactPage",
               needs=Permission.LOGS),
            op("GET", f"{run}/artifacts/{{path}}", self.read_artifact, "runs", "Download an artifact",
               "application/octet-stream", errors=(429,), headers=_FILE_HEADERS, needs=Permission.LOGS),
        ]  # fmt: skip

    async def list_runs(self, request: http.Request) -> http.Answer:
        args = request.args
        due_from, due_until = args["due_from"], args["due_until"]
        if due_from is not None and due_until is not None and not 0 <= due_until - due_from < LONGEST_RANGE:
            message = "due_until must lie after due_from, by less than 100 years"
            raise Invalid(message, code="E_RANGE", path="due_until")
        org = http.principal(request).bound_to
        nodes = (args["node"],) if args["node"] else ()
        queue_id = (await self._jobs.queues.get(args["queue"], org)).id if args["queue"] else None
        where = model.RunFilter(
            args["job_id"], args["trigger_id"], args["state"], due_from, due_until, org, nodes=nodes,
            attempted_by=args["attempted_by"] or None, parent_id=args["parent"], task=args["task"],
            tasks=bool(args["tasks"] or args["attempted_by"]), owner=args["owner"], name=args["name"],
            queue_id=queue_id,
        )  # fmt: skip
        page = await self._jobs.list_runs(where, args["cursor"], args["limit"])
        names = await self._insight.job_names(run.job_id for run in page.items)
        return http.reply(
            200, schemas.RunPage([render.run(run, names.get(run.job_id)) for run in page.items], page.cursor)
        )

    async def run_many(self, request: http.Request) -> http.Answer:
        """Up to 10,000 orders, as `{"runs": […]}`, as a JSON array, or as NDJSON, in at most 32 MiB; one has at most
        260 KiB. There is one answer for each, in their order: the run, or the problem that it alone would have had. An
        Idempotency-Key holds for all orders without a key of their own, a thousand at a time. NDJSON is answered so."""
        async with self._intake.body(request) as body:
            many = cut(request, body, "runs")
            if many is None:
                request.parse(body)  # what cannot be read says so
                raise Invalid('a list of orders expected: a JSON array, or {"runs": […]}', code="E_TYPE", path="runs")
            return Pieces(200, await self._place(request, many), name="runs", is_lines=many.is_lines)

    async def _place(self, request: http.Request, many: Many) -> list[bytes]:
        """Return the answers as they are to be sent: made of one batch while the store is busy with the next."""
        who, key = http.principal(request), request.idempotency_key()
        asker, orders = Asker(who.name, who.org, is_bound=not who.is_local), self._jobs.orders
        batches = _batches(many, f"{who.scope} POST /v1/runs", key)
        if len(many.items) <= BATCH:  # there is no next
            [batch] = [each async for each in batches]
            return [piece async for piece in self._shown(request, many, await orders.place_batch(batch, asker))]
        pieces: list[bytes] = []
        async with aclosing(read_ahead(orders.place_batches(batches, asker))) as answered:
            async for answers in answered:
                await asyncio.sleep(0)  # the next batch is on its way to the store
                pieces += [piece async for piece in self._shown(request, many, answers)]
        return pieces

    async def _shown(self, request: http.Request, many: Many, answers: Answers) -> AsyncGenerator[bytes, None]:
        """Yield the answers as they are to be sent; others have a turn in between."""
        if isinstance(answers, RunsAlike):
            shown = render.runs_alike(answers.made.run, answers.made.ids, answers.data)
            yield between(is_lines=many.is_lines).join(shown)
            return
        for number, piece in enumerate(in_pieces(answers, partial(_answer, request.id), is_lines=many.is_lines)):
            if number:
                await asyncio.sleep(0)
            yield piece

    async def get_run(self, request: http.Request) -> http.Answer:
        """Of one that is blocked by limits, `message` says what it waits for, and `eligible_at` when a rate lets it
        start, as of now."""
        run_id = request.path_id("run_id")
        run = await self._jobs.limits.explain(await self._jobs.offers.explain(await self._jobs.get_run(run_id)))
        attempts, tasks = await self._jobs.list_attempts(run_id), await self._jobs.tasks.of_run(run)
        return http.reply(200, render.run_detail(run, attempts, await self._name_of(run), tasks))

    async def _name_of(self, run: model.Run) -> str | None:
        return (await self._insight.job_names([run.job_id])).get(run.job_id)

    async def cancel(self, request: http.Request) -> http.Answer:
        """A waiting run is cancelled at once; a running one as soon as its process tree is gone."""
        run = await self._jobs.cancel(request.path_id("run_id"), http.principal(request).name)
        return http.reply(202, render.run(run, await self._name_of(run)))

    async def retry(self, request: http.Request) -> http.Answer:
        """A new run with the same graph and data: what succeeded in this one is taken over, the rest is done again."""
        who, key, run_id = http.principal(request), request.idempotency_key(), request.path_id("run_id")
        asker = Asker(who.name, who.org, is_bound=not who.is_local)
        once = Idempotency(f"{who.scope} POST /v1/runs/{run_id}/retry", key, "") if key is not None else None
        run = await self._jobs.workflows.retry(run_id, asker, once)
        return http.reply(201, render.run(run, await self._name_of(run)))

    async def read_log(self, request: http.Request) -> http.Answer:
        """Empty while the run has not started; `Horae-Run-State` tells."""
        run_id = request.path_id("run_id")
        asked = request.byte_range()
        if asked and (request.args["offset"], request.args["limit"]) != (0, LOG_BYTES):
            raise Invalid("a Range header stands beside offset or limit", code="E_FIELD_CONFLICT", path="Range")
        args = request.args
        _refuse_two_places(args, asked is not None)
        offset, limit = _window(asked) if asked else (args["offset"], args["limit"])
        which = {"attempt": args["attempt"], "tail": args["tail"], "grep": args["grep"] or ""}
        piece = await self._insight.read_log(run_id, offset=offset, limit=limit, **which)
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
        """Events: `log` {attempt, offset, text}, `state` {run}, and `end` {run} when all is told. With a Last-Event-ID,
        `attempt` and `tail` say nothing more."""
        run_id = request.path_id("run_id")
        run = await self._jobs.get_run(run_id)
        attempt, offset = await self._place_to_follow(request, run)
        self._streams.take()
        return EventStream(self._log_events(run, attempt, offset), self._streams)

    async def _place_to_follow(self, request: http.Request, run: model.Run) -> tuple[int, int]:
        last, args = request.header(b"last-event-id"), request.args
        if last is not None or (args["attempt"] is None and args["tail"] is None):
            return _event_place(last, run)
        attempt, offset = await self._insight.find_tail(run, args["attempt"], args["tail"] or 0)
        return attempt, offset if args["tail"] is not None else 0

    async def _log_events(self, run: model.Run, attempt: int, offset: int) -> AsyncGenerator[bytes, None]:
        name = await self._name_of(run)
        yield event("state", render.run(run, name))
        text = _Text()
        async for piece in self._insight.follow(run.id, attempt=attempt, offset=offset):
            if piece.attempt != attempt:  # tried again: its log begins anew
                for each in text.rest(attempt):
                    yield each
                text, attempt = _Text(), piece.attempt
            for each in text.events(piece):
                yield each
            if _standing(piece.run) != _standing(run):
                yield event("state", render.run(piece.run, name))
            run = piece.run
        for each in text.rest(attempt):
            yield each
        yield event("end", render.run(await self._jobs.get_run(run.id), name))

    async def list_artifacts(self, request: http.Request) -> http.Answer:
        """Return the files that the job's `artifacts` matched, of the last attempt; none while the run goes on."""
        found = await self._insight.list_artifacts(request.path_id("run_id"))
        return http.reply(200, schemas.ArtifactPage([schemas.Artifact(*one) for one in found]))

    async def read_artifact(self, request: http.Request) -> http.Answer:
        """`path` is that of the list; its slashes may stand as they are."""
        path = request.scope["path_params"]["path"]
        return await send_artifact(self._insight, self._streams, request.path_id("run_id"), path)


def _window(asked: tuple[int, int | None]) -> tuple[int, int]:
    """Offset and limit of a byte range; a longer one is answered in part, as the protocol allows."""
    first, last = asked
    return first, LOG_BYTES if last is None else min(last - first + 1, MAX_LOG_BYTES)


def _refuse_two_places(args: dict[str, Any], is_range: bool) -> None:
    """One of offset, tail and a byte range says where to begin; lines are of no byte range."""
    if args["tail"] is not None and (args["offset"] or is_range):
        raise Invalid("tail stands beside offset or a Range header", code="E_FIELD_CONFLICT", path="tail")
    if args["grep"] and is_range:
        raise Invalid("grep stands beside a Range header", code="E_FIELD_CONFLICT", path="grep")


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
            yield event("log", {"attempt": piece.attempt, "offset": start, "text": text}, where)

    def rest(self, attempt: int) -> Iterator[bytes]:
        if text := self._decoder.decode(b"", final=True):
            yield event("log", {"attempt": attempt, "offset": self._end, "text": text})
