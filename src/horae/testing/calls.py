"""`run_handler`: a handler called as an agent calls it, with a context, and without any server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from horae.core.model import Json, Moment, State
from horae.core.waits import Wait, callback_key
from horae.discovery import resolve
from horae.errors import Error, Invalid
from horae.executors.handlers.outcomes import raised, read_data, returned
from horae.handlers import Context, Pause, handler_of
from horae.testing.clock import START

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ADDRESS = "http://horae.test"  # where nobody answers
CALLBACKS = f"{callback_key(b'test', 1)} {ADDRESS}"  # of the run that a handler is called for


@dataclass(frozen=True, slots=True)
class Handled:
    """How the call of a handler ended, as a run would."""

    state: str  # succeeded, failed or cancelled; blocked, if it waits
    result: Any  # as it is kept: JSON, read again
    log: str
    progress: list[Json]  # each word on how far it is, as the API shows it, in order
    error: BaseException | None  # what it raised: Retry, Cancel or anything else
    message: str  # the one line that says why it did not succeed
    retry_after: float | None  # seconds, if it raised Retry
    wait: Wait | None = None  # of one that is blocked: for what it waits


@dataclass(slots=True)
class _Channel:
    """What a handler says, kept."""

    is_cancelled: Callable[[], bool]
    output: bytearray = field(default_factory=bytearray)
    progress: list[Json] = field(default_factory=list)

    def note_progress(self, progress: Json) -> None:
        self.progress.append(progress)

    def write(self, data: bytes) -> None:
        self.output += data

    def is_stopped(self) -> bool:
        return self.is_cancelled()


async def run_handler_async(
    handler: Any,
    data: Mapping[str, Any] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    attempt: int = 1,
    due_at: datetime | None = None,
    job_name: str = "job",
    previous_result: Any = None,
    cancelled: bool | Callable[[], bool] = False,
    signals: Mapping[str, Any] | None = None,
    calls: Sequence[Any] = (),
) -> Handled:
    """Return how a handler ends when it is called with a context; whatever it raises is told, not raised.

    `handler` is the function or class itself, or its name. `data` and the result pass through JSON, as in a run.
    `cancelled` is what `context.cancelled` says, once and for all or each time it is asked.
    `signals` are what the run was told, by name; `calls` the results of what it called, in order. For what is not
    there, the handler waits: it is blocked."""
    found = resolve(handler) if isinstance(handler, str) else handler_of(handler)
    channel = _Channel(cancelled if callable(cancelled) else lambda: bool(cancelled))
    context = Context(
        channel, 1, attempt, attempt, 1, job_name, START if due_at is None else _moment(due_at), _through_json(data),
        dict(env or {}), previous_result, answers=_answers(signals or {}, calls), callbacks=CALLBACKS,
    )  # fmt: skip
    error: BaseException | None = None
    try:
        value = await found.function(context) if found.is_async else await asyncio.to_thread(found.function, context)
        end = returned(1, value, context, found.function)
    except (Exception, Pause) as caught:
        error, end = caught, raised(1, caught, channel, found.function)
    result = None if end.result is None else msgspec.json.decode(end.result)
    return Handled(
        State(end.state).word, result, channel.output.decode(), channel.progress, error, end.message, end.retry_after,
        end.wait,
    )  # fmt: skip


def run_handler(
    handler: Any,
    data: Mapping[str, Any] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    attempt: int = 1,
    due_at: datetime | None = None,
    job_name: str = "job",
    previous_result: Any = None,
    cancelled: bool | Callable[[], bool] = False,
    signals: Mapping[str, Any] | None = None,
    calls: Sequence[Any] = (),
) -> Handled:
    """As run_handler_async, for plain tests."""
    if asyncio._get_running_loop() is not None:
        raise Error("an event loop runs here: await run_handler_async")
    return asyncio.run(
        run_handler_async(
            handler, data, env=env, attempt=attempt, due_at=due_at, job_name=job_name,
            previous_result=previous_result, cancelled=cancelled, signals=signals, calls=calls,
        )
    )  # fmt: skip


def _answers(signals: Mapping[str, Any], calls: Sequence[Any]) -> str:
    told = {name: {"value": value} for name, value in signals.items()}
    called = {f"call:{n}": {"run": n, "state": "succeeded", "value": value} for n, value in enumerate(calls, 1)}
    return msgspec.json.encode(told | called).decode()


def _moment(when: datetime) -> Moment:
    if when.tzinfo is None:
        raise Invalid(f"a moment needs a time zone; got {when.isoformat()}", hint="datetime(..., tzinfo=UTC)")
    return (when - _EPOCH) // timedelta(microseconds=1)


def _through_json(data: Mapping[str, Any] | None) -> Json:
    try:
        return read_data(None if data is None else msgspec.json.encode(data).decode())
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise Invalid(f"data must be a mapping that JSON can say: {error}", code="E_TYPE", path="data") from None
