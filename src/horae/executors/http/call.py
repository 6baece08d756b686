"""One attempt: its request, where that leads, its answer in the log, and the result that follows.

Its timeout is counted by the agent, which stops it; what it waited for then stands in the message.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import msgspec

from horae.core.insight.walls import Facts, address_refused, decide
from horae.core.model import SECOND, Json, Reason, State
from horae.core.runs import results
from horae.core.runs.orders import Result
from horae.core.work import requests
from horae.core.work.policies import policy_from_text
from horae.errors import Unavailable, machine_fault
from horae.executors.attempts.output import Log
from horae.executors.handlers.messages import End
from horae.executors.handlers.outcomes import one_line, settle
from horae.executors.http import faults
from horae.executors.http.connections import Connection, Connections, Origin
from horae.executors.http.faults import Fault
from horae.executors.http.outgoing import REDIRECTS, Outgoing, first_request
from horae.ports.clock import Clock
from horae.ports.work import Work
from horae.wire.http import Cut, Garbled, Incoming

T = TypeVar("T")

SILENCE_SECONDS = 300.0
MAX_JSON = 512 * 1024  # bytes of an answer that are kept as JSON in the result
MAX_TEXT = 64 * 1024  # characters that are kept as text
MAX_ASIDE = 64 * 1024  # bytes of an answer that is not the one hoped for
ASKS_TO_WAIT = (429, 503)
OF_INTEREST = (
    "content-type", "content-length", "date", "etag", "last-modified", "location", "retry-after", "x-request-id",
    "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset",
)  # fmt: skip
READABLE = ("text/", "application/json", "application/xml", "application/javascript", "application/x-www-form")


class Call:
    def __init__(self, work: Work, connections: Connections, clock: Clock, silence: float) -> None:
        self.task: asyncio.Task[None] | None = None
        self._work = work
        self._asked: Json = work.spec["http"]
        self._connections = connections
        self._clock = clock
        self._silence = silence if work.timeout_seconds is None else None
        self._log = Log(work.output, lambda: None)  # what comes is bounded already
        self._reason = ""  # why it was stopped
        self._has_begun = self._is_over = False
        self._waits = "getting ready"
        self._begun = clock.elapsed()
        self._facts: Json = {}
        self._bytes = 0
        self._kept = bytearray()

    def stop(self, reason: str) -> None:
        """The first reason stands; what is over has its own end. A task that has not begun could not say how it ended:
        it finds the reason when it begins."""
        if self._reason or self._is_over:
            return
        self._reason = reason
        if self._has_begun and self.task is not None:
            self.task.cancel()

    async def run(self) -> Result:
        """Never raises."""
        result = await self._find_result()
        try:
            await self._work.output.close()
        except Exception as error:
            result.message = f"{result.message}; its output could not be stored: {error}".lstrip("; ")
            result.ailment = result.ailment or machine_fault(error)
        result.output = self._work.output.ref
        return result

    async def _find_result(self) -> Result:
        self._has_begun = True
        if self._reason:
            return self._stopped()
        try:
            await self._follow(first_request(self._work))
            self._is_over = True
            return self._result(State.SUCCEEDED, Reason.NONE)
        except Fault as fault:
            self._is_over = True
            return self._failed(fault)
        except asyncio.CancelledError:
            return self._stopped()
        except Exception as error:
            self._is_over = True
            return self._broken(error)

    # ── requests ──

    async def _follow(self, request: Outgoing) -> None:
        """Make the request, and those that its answers lead to."""
        left = self._redirects
        while (location := await self._ask(request, may_follow=left > 0)) is not None:
            request = request.redirected(int(self._facts["status"]), location)
            self._facts["url"] = request.url
            left -= 1

    @property
    def _redirects(self) -> int:
        return int(self._asked.get("follow_redirects", requests.REDIRECTS))

    async def _ask(self, request: Outgoing, *, may_follow: bool) -> str | None:
        """Return where the answer leads, if it is to be followed; Fault where it is not the one expected."""
        self._log.say(f"{request.method} {request.url}")
        connection, incoming = await self._open(request)
        is_whole = False
        try:
            self._note_head(incoming)
            location = incoming.headers.get("location") if incoming.status in REDIRECTS else None
            expected = self._asked.get("expect") or list(requests.EXPECTED)
            if requests.is_expected(incoming.status, expected):
                is_whole = await self._read_answer(connection, incoming, request)
                return None
            is_whole = await self._read_aside(connection, incoming, request, is_logged=location is None)
        finally:
            self._connections.give_back(connection, may_stay=is_whole and incoming.may_stay)
        if location is None:
            raise faults.status_fault(incoming.status, expected, self._text(), self._retry_after(incoming))
        if not may_follow:
            words = f"the answer is {faults.named_status(incoming.status)}, and leads on to {location}"
            message = one_line(f"{words}: follow_redirects is {self._redirects}")
            raise Fault(message, *_redirect(incoming.status), final=True)
        return location

    async def _open(self, request: Outgoing) -> tuple[Connection, Incoming]:
        """Send the request and return its answer, as far as its head. A server may have closed a connection that was
        kept: what can be sent twice is sent once more, on another."""
        data = request.encode()
        while True:
            connection = await self._connections.take(request.origin, self._enter)
            try:
                incoming = await self._exchange(connection, data)
                if incoming is not None:
                    return connection, incoming
                if not connection.is_kept or not request.is_repeatable:
                    raise faults.broken(request.origin.address, "before any answer came")
            except BaseException:
                self._connections.give_back(connection, may_stay=False)
                raise
            self._connections.give_back(connection, may_stay=False)

    async def _exchange(self, connection: Connection, data: bytes) -> Incoming | None:
        """Return the answer as far as its head; None where not a byte of it came."""
        where = connection.origin.address
        self._enter(f"sending the request to {where}")
        await self._in_time(connection, connection.send(data))
        self._enter(f"waiting for the answer of {where}")
        incoming, is_first = Incoming(), True
        while not incoming.has_head:
            received = await self._receive(connection)
            if is_first and not received:
                return None
            self._feed(incoming, received, connection.origin)
            is_first = False
        self._enter(f"reading the answer of {where}")
        return incoming

    async def _receive(self, connection: Connection) -> bytes:
        return await self._in_time(connection, connection.read())

    async def _in_time(self, connection: Connection, done: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._silence):
                return await done
        except TimeoutError:
            assert self._silence is not None
            raise faults.silent(connection.origin.address, self._waits, self._silence) from None

    def _feed(self, incoming: Incoming, data: bytes, origin: Origin) -> None:
        try:
            incoming.feed(data)
        except Cut:
            raise faults.broken(origin.address, f"in the middle of its answer, after {self._bytes:,} bytes") from None
        except Garbled as error:
            message = f"what {origin.address} answers is not HTTP: {error}"
            raise Fault(one_line(message), "ProtocolError", "ConnectionError") from None

    def _enter(self, waits: str) -> None:
        self._waits = waits

    # ── answers ──

    def _note_head(self, incoming: Incoming) -> None:
        headers = {name: incoming.headers[name] for name in OF_INTEREST if name in incoming.headers}
        self._facts |= {"status": incoming.status, "headers": headers}
        self._bytes = 0
        self._kept.clear()
        self._log.say(f"{faults.named_status(incoming.status)} after {self._clock.elapsed() - self._begun:.2f} s")

    async def _read_answer(self, connection: Connection, incoming: Incoming, request: Outgoing) -> bool:
        """Read the answer that was hoped for; return whether the connection can be used again."""
        most = self._asked.get("max_body", requests.MAX_ANSWER)
        announced = incoming.headers.get("content-length", "")
        has_body = _has_body(request, incoming)
        if has_body and announced.isdecimal() and int(announced) > most:
            raise _too_large(f"is {int(announced):,} bytes", most)
        if has_body and not await self._read(connection, incoming, most, is_logged=True):
            raise _too_large("goes on", most)
        self._facts |= self._content(incoming)
        return request.method != "HEAD"

    async def _read_aside(
        self, connection: Connection, incoming: Incoming, request: Outgoing, *, is_logged: bool
    ) -> bool:
        """Read the beginning of another answer; return whether that was all."""
        if not _has_body(request, incoming):
            return request.method != "HEAD"
        is_whole = await self._read(connection, incoming, MAX_ASIDE, is_logged=is_logged)
        if is_logged:
            self._facts |= self._content(incoming)
        return is_whole

    async def _read(self, connection: Connection, incoming: Incoming, most: int, *, is_logged: bool) -> bool:
        """Return whether no more than so many bytes came."""
        is_readable = _is_readable(incoming)
        while True:
            piece = incoming.take()
            if self._bytes + len(piece) > most:
                return False
            self._bytes += len(piece)
            self._kept += piece[: max(0, MAX_JSON - len(self._kept))]
            if is_logged and is_readable and piece:
                self._log.write(piece)
                await self._log.catch_breath()
            if incoming.is_whole:
                break
            self._feed(incoming, await self._receive(connection), connection.origin)
        if is_logged and not is_readable and self._bytes:
            self._log.say(f"{self._bytes:,} bytes of {incoming.headers.get('content-type', 'something')}")
        return True

    def _content(self, incoming: Incoming) -> Json:
        """Return what the result has of an answer: its JSON, or its text, or the beginning of that."""
        about: Json = {"bytes": self._bytes}
        if not self._bytes or not _is_readable(incoming):
            return about
        if "json" in incoming.headers.get("content-type", "") and self._bytes == len(self._kept):
            found = _json_of(bytes(self._kept))
            if found is not None:
                return {**about, "json": found[0]}
        text = self._text()
        is_cut = self._bytes > len(self._kept) or len(text) > MAX_TEXT
        return {**about, "text": results.clean(text, MAX_TEXT), **({"is_cut": True} if is_cut else {})}

    def _text(self) -> str:
        return self._kept.decode(errors="replace")

    def _retry_after(self, incoming: Incoming) -> float | None:
        """Return the seconds that the server asks for, as far as the job lets one wait between attempts."""
        asked = incoming.headers.get("retry-after", "").strip()
        if incoming.status not in ASKS_TO_WAIT or not asked:
            return None
        cap = policy_from_text(self._work.assignment.policy).retry.cap_seconds
        if asked.isdecimal():
            return min(float(asked[:12]), cap)
        try:
            until = parsedate_to_datetime(asked)
        except ValueError:
            return None
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return min(max(0.0, until.timestamp() - self._clock.now() / SECOND), cap)

    # ── results ──

    def _failed(self, fault: Fault) -> Result:
        self._log.say(fault.message)
        if "AddressError" in fault.classes:
            self._facts["cause"] = address_refused(fault.message).as_json()
        result = self._result(State.FAILED, Reason.ERROR, fault.message)
        result.retry_after = fault.retry_after
        end = End(result.run_id, State.FAILED, result.message, final=fault.final, classes=fault.classes)
        settle(result, end, self._work.assignment.policy)
        return result

    def _stopped(self) -> Result:
        limit = self._work.timeout_seconds
        words: dict[str, tuple[State, str]] = {
            Reason.TIMEOUT: (State.TIMED_OUT, f"stopped after its timeout of {limit} s, {self._waits}"),
            Reason.LOST: (State.FAILED, f"stopped because its agent was closed, {self._waits}"),
        }
        state, message = words.get(self._reason, (State.CANCELLED, f"cancelled, {self._waits}"))
        if cause := decide(Facts(reason=self._reason, timeout_seconds=limit, what="the request")):
            self._facts["cause"] = cause.as_json()
            message = f"{message}; {cause.sentence}"
        self._log.say(message)
        return self._result(state, self._reason, message)

    def _broken(self, error: Exception) -> Result:
        """Return the result of an attempt that we could not make: lost, where the machine is to blame."""
        ailment = machine_fault(error)
        is_lost = bool(ailment) or isinstance(error, Unavailable)
        message = one_line(f"the request could not be made: {ailment or repr(error)}")
        result = self._result(State.FAILED, Reason.LOST if is_lost else Reason.ERROR, message)
        result.ailment = ailment
        return result

    def _result(self, state: State, reason: str, message: str = "") -> Result:
        a = self._work.assignment
        facts = {**self._facts, "seconds": round(self._clock.elapsed() - self._begun, 3)}
        return Result(
            a.run_id, a.fence, state, reason, self._work.started_at, self._clock.now(), message=one_line(message),
            result=json.dumps(facts, ensure_ascii=False),
        )  # fmt: skip


def _redirect(status: int) -> tuple[str, ...]:
    return "RedirectError", f"Status{status}", "Status3xx", "Status"


def _too_large(how: str, most: int) -> Fault:
    words = f"the body of the answer {how}, and max_body is {most:,} bytes"
    return Fault(words, "BodyError", final=True)


def _has_body(request: Outgoing, incoming: Incoming) -> bool:
    return request.method != "HEAD" and incoming.status not in (204, 304)


def _is_readable(incoming: Incoming) -> bool:
    """Return whether people can read it."""
    kind = incoming.headers.get("content-type", "text/plain").lower()
    is_packed = incoming.headers.get("content-encoding", "identity") != "identity"
    return not is_packed and (kind.startswith(READABLE) or kind.partition(";")[0].endswith(("+json", "+xml")))


def _json_of(data: bytes) -> tuple[Any] | None:
    """Return the value, if it is one that can be kept."""
    try:
        value, fault = msgspec.json.decode(data), results.fault_of(data.decode(), results.MAX_RESULT)
    except (ValueError, RecursionError):
        return None
    return None if fault else (value,)
