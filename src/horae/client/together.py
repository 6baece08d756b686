"""Orders of one client that wait together go together: what comes while others are on their way is one request.

    run_now ──► nothing is on its way ─► goes at once, by itself
    run_now ──► others are ──► waits ──► when those are answered, or are slow, all who wait go as one: POST /v1/runs

Nobody waits for company: a program that asks for one run after the other sends what it always did. Whoever waited
longest sends for all, and gives each its answer: the run, or the error that it alone would have had.

What must stay true: an order is told of once, by an answer or by an error. Whoever sends for others and is stopped
meanwhile hands over to one of them, who sends the same under the same key. Orders with a key that somebody chose go
alone: they are to be found again by it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from horae.client.making import new_key
from horae.client.steps import BUSY, Call, Hear, Later, Steps, ask, error_of, foreign
from horae.client.wire import Answer, Request
from horae.errors import Error, Limited, Unauthenticated, Unavailable

PATIENCE = 0.05  # seconds after which those who wait do so no longer for a request that is slow
WAYS = 8  # requests that are on their way at once, at most
MOST = 1000  # orders that go together
MOST_BYTES = 1 << 19  # of those
_FOR_ALL = (Unavailable, Limited, Unauthenticated)  # which none of them would be spared


class Slot(Protocol):
    """Where somebody waits to be told: a future of asyncio, or of threads."""

    def cancel(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def done(self) -> bool: ...
    def exception(self) -> Any: ...
    def result(self) -> Any: ...
    def set_exception(self, error: Any, /) -> None: ...
    def set_result(self, told: Any, /) -> None: ...


class _Waiting(NamedTuple):
    call: Call[Any]
    order: bytes  # JSON
    slot: Slot


class _Batch(NamedTuple):
    """Orders that go together. Whoever is told this sends for all of them."""

    members: Sequence[_Waiting]
    key: str


class _Alone(NamedTuple):
    """Whoever is told this sends what is his by himself."""


class Together:
    """The orders of one client."""

    def __init__(self, make_slot: Callable[[], Slot]) -> None:
        self._make_slot = make_slot
        self._lock = threading.Lock()
        self._under_way = 0
        self._waiting: list[_Waiting] = []

    def place(self, call: Call[Any]) -> Steps:
        """As the steps of the call, with others if need be."""
        if (slot := self._enter(call)) is None:
            return (yield from self._on_a_way(call))
        try:
            while (told := (yield Hear(slot, PATIENCE))) is None and (told := self._lose_patience(slot)) is None:
                pass
        except GeneratorExit:
            self._give_up(slot)
            raise
        if isinstance(told, _Alone):
            return (yield from call.steps())
        if not isinstance(told, _Batch):
            return told
        if len(told.members) == 1:
            return (yield from self._on_a_way(call))
        return (yield from self._send(told, call, slot))

    def _enter(self, call: Call[Any]) -> Slot | None:
        """Return where to wait; None: go at once."""
        assert call.order is not None
        with self._lock:
            if not self._under_way:
                self._under_way = 1
                return None
            self._waiting.append(_Waiting(call, call.order, self._make_slot()))
            return self._waiting[-1].slot

    def _on_a_way(self, call: Call[Any]) -> Steps:
        try:
            return (yield from call.steps())
        finally:
            self._leave()

    def _leave(self) -> None:
        """Give one's way to those who wait."""
        with self._lock:
            batch = self._gather()
            if batch is not None:
                batch.members[0].slot.set_result(batch)
            else:
                self._under_way -= 1

    def _gather(self) -> _Batch | None:
        some, self._waiting = _cut([one for one in self._waiting if not one.slot.done()])
        return _Batch(some, new_key()) if some else None

    def _lose_patience(self, slot: Slot) -> _Batch | None:
        """Return what to send, beside what is on its way; None: go on waiting."""
        with self._lock:
            first = next((one.slot for one in self._waiting if not one.slot.done()), None)
            if first is not slot or self._under_way >= WAYS:
                return None
            self._under_way += 1
            return self._gather()

    def _give_up(self, slot: Slot) -> None:
        """Somebody waits no longer: if he was to send for others, one of them does."""
        with self._lock:
            was_waiting = slot.cancel() or slot.cancelled()
        if not was_waiting and slot.exception() is None and isinstance(batch := slot.result(), _Batch):
            self._hand_over(batch)

    def _hand_over(self, batch: _Batch) -> None:
        with self._lock:
            heir = next((one for one in batch.members if not one.slot.done()), None)
            if heir is not None:
                heir.slot.set_result(batch)
        if heir is None:
            self._leave()

    def _send(self, batch: _Batch, call: Call[Any], mine: Slot) -> Steps:
        """Send for all of a batch; returns the answer of whoever sends."""
        try:
            answer = yield from ask(_request_of(batch))
            outcomes = _read(answer, len(batch.members))
        except GeneratorExit:
            mine.cancel()
            self._hand_over(batch)
            raise
        except Error as error:
            outcomes = [_like(error) if isinstance(error, _FOR_ALL) else _Alone() for _ in batch.members]
        own = self._deliver(batch, outcomes, mine)
        yield Later(self._leave)  # whoever was told may have more, which is to go with the next
        if isinstance(own, Error):
            raise own
        return (yield from call.steps()) if isinstance(own, _Alone) else own

    def _deliver(self, batch: _Batch, outcomes: Sequence[Any], mine: Slot) -> Any:
        """Tell each what became of its order; returns what became of one's own."""
        own = None
        with self._lock:
            for one, outcome in zip(batch.members, outcomes, strict=True):
                if one.slot is mine:
                    own = outcome
                elif one.slot.done():  # he did not wait
                    continue
                elif isinstance(outcome, Error):
                    one.slot.set_exception(outcome)
                else:
                    one.slot.set_result(outcome)
        return own


def _cut(waiting: list[_Waiting]) -> tuple[list[_Waiting], list[_Waiting]]:
    """Return those who fit into one request, of whom there is always one, and the others."""
    size = 0
    for number, one in enumerate(waiting):
        size += len(one.order) + 1
        if number and (number == MOST or size > MOST_BYTES):
            return waiting[:number], waiting[number:]
    return waiting, []


def _request_of(batch: _Batch) -> Request:
    body = b"[%b]" % b",".join([one.order for one in batch.members])
    headers = {"Content-Type": "application/json", "Idempotency-Key": batch.key}
    return Request("POST", "/v1/runs", body, headers)


def _read(answer: Answer, count: int) -> list[Any]:
    """Return the answer to each order, as it would have been sent to it alone."""
    import msgspec

    try:
        pieces = msgspec.json.decode(answer.body, type=dict[str, list[msgspec.Raw]])["runs"]
        if len(pieces) == count:
            return [_outcome(bytes(piece)) for piece in pieces]
    except (msgspec.MsgspecError, KeyError):
        pass
    raise foreign(answer.server.url)


def _outcome(piece: bytes) -> bytes | Error | _Alone:
    """Return a run as it was sent, or the error that was sent in its place; what may succeed later was not done."""
    if b'"job_id":' in piece:
        return piece
    problem = json.loads(piece)
    return _Alone() if problem.get("status") in BUSY else error_of(problem)


def _like(error: Error) -> Error:
    """Return an error of one's own: one that several raise would tell of all of them."""
    return type(error)(error.message, code=error.code, hint=error.hint, path=error.path, problems=error.problems)
