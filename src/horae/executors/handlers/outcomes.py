"""How the call of a handler begins and ends, in a worker and inline alike: what it is given, and what is made of that
which it returns or raises."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any

import msgspec

from horae.context import Context
from horae.context.lines import traceback_text
from horae.context.waiting import Pause
from horae.core.model import Json, State
from horae.core.runs.lifecycle import BY_ITSELF
from horae.core.runs.orders import Result
from horae.core.runs.retrying import Choice, Judgement, judge
from horae.core.shapes import at
from horae.core.work.policies import policy_from_text
from horae.errors import Invalid, Problem
from horae.executors.handlers.messages import End
from horae.handlers import Cancel, Channel, Function, Retry, choice_of, class_name, result_of

MAX_RESULT = 1024 * 1024  # bytes of JSON a handler may return
MAX_MESSAGE = 500  # characters of the one line that says how a run ended

_decode_data = msgspec.json.Decoder(dict[str, Any]).decode
SUCCEEDED = int(State.SUCCEEDED)  # to look a member of an enum up takes longer than to make the whole End of a run
_DEEPEST = 50  # values within values that are looked through for the one that is not JSON


def extend_path(places: Sequence[str]) -> None:
    """Last, so that a job's file can never stand in for a module of ours or of Python's."""
    sys.path.extend(place for place in places if place not in sys.path)


def read_data(text: str | None) -> Json:
    return {} if text is None else _decode_data(text)


def read_previous(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def returned(run_id: int, value: object, context: Context | None = None, function: Function | None = None) -> End:
    """Return the end of a handler that returned. One that was made to wait must not: what it says is not the end."""
    if context is not None and context.swallowed is not None:
        why = "the handler went on after it was made to wait: it must not catch Pause (catch Exception, not everything)"
        return End(run_id, State.FAILED, why, final=True)
    said = result_of(function)
    if value is None and said is None:
        return End(run_id, SUCCEEDED)
    try:
        text = _encode_result(value)
    except Exception as error:
        return End(run_id, State.FAILED, one_line(f"the return value is not JSON: {_misfit(value, error)}"))
    if len(text) > MAX_RESULT:
        long = f"the return value is {len(text):,} bytes of JSON, more than the {MAX_RESULT:,} that are kept"
        return End(run_id, State.FAILED, f"{long}: write it to the output or to a file")
    if said is not None and (problems := said.problems(text)):
        if context is not None:
            context.write(_lines_of(problems))
        return End(run_id, State.FAILED, one_line(f"E_RESULT: {Invalid.of(problems).message}"))
    return End(run_id, SUCCEEDED) if value is None else End(run_id, State.SUCCEEDED, "", text.decode())


def raised(run_id: int, error: BaseException, channel: Channel, function: Function | None = None) -> End:
    """Return the end of a handler that raised; the traceback goes to the run's output."""
    if (pause := _pause_in(error)) is not None:
        return End(run_id, State.BLOCKED, wait=pause.wait)
    if isinstance(error, Retry):
        return End(run_id, State.FAILED, one_line(error.message), None, error.after)
    if isinstance(error, Cancel):
        return End(run_id, State.CANCELLED, one_line(BY_ITSELF + error.reason))
    if isinstance(error, Invalid) and error.code == "E_HANDLER":
        return refused(run_id, error, channel)  # a class handler that cannot be given what it asks for
    if isinstance(error, Invalid) and error.code == "E_DATA":
        return _unfit(run_id, error, channel)
    if not (isinstance(error, asyncio.CancelledError) and channel.is_stopped()):
        _write_traceback(error, channel)
    classes = [class_name(each) for each in type(error).__mro__ if issubclass(each, BaseException)]
    judged = judge(classes, choice_of(function), "retry_on of the handler", "never_retry of the handler")
    return End(run_id, State.FAILED, one_line(_name(error)), None, None, not judged.may_retry, classes, judged.why)


def _pause_in(error: BaseException) -> Pause | None:
    """Return what makes a handler wait: raised as it is, or in a group of tasks of which nothing else failed."""
    if isinstance(error, Pause):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    found = [_pause_in(each) for each in error.exceptions]
    return found[0] if None not in found else None


def refused(run_id: int, error: Invalid, channel: Channel) -> End:
    """Return the end of a call whose handler cannot be loaded."""
    if error.__cause__ is not None:
        _write_traceback(error.__cause__, channel)
    hint = f" ({error.hint})" if error.hint else ""
    return End(run_id, State.FAILED, one_line(error.message + hint))


def _unfit(run_id: int, error: Invalid, channel: Channel) -> End:
    """The data does not fit the handler, and will not the next time; all that is wrong goes to the run's output."""
    channel.write(_lines_of(error.listed()).encode("utf-8", "backslashreplace"))
    return End(run_id, State.FAILED, one_line(f"E_DATA: {error.message}"), final=True)


def _lines_of(problems: Iterable[Problem]) -> str:
    return "".join(f"{each.path}: {each.message}{f' ({each.hint})' if each.hint else ''}\n" for each in problems)


def settle(result: Result, end: End, policy: str) -> None:
    """Decide whether an attempt that failed may be repeated: by what the job says of such an exception, else by what
    its author does; and say why. `policy` is that of the job, as text."""
    retry = policy_from_text(policy).retry
    judged = Judgement(not end.final, end.why)
    if end.classes and (choice := Choice(retry.on, retry.never)):
        judged = judge(end.classes, choice)
    result.final = not judged.may_retry
    if judged.why:
        result.message = f"{end.message} ({'' if judged.may_retry else 'not tried again: '}{judged.why})"


def _write_traceback(error: BaseException, channel: Channel) -> None:
    channel.write(traceback_text(error).encode("utf-8", "backslashreplace"))


# ── what is not JSON ──


def _encode_other(value: Any) -> Any:
    """Return in plain values what msgspec does not know."""
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "model_dump"):  # pydantic
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} has no form in JSON")


_encode_result = msgspec.json.Encoder(enc_hook=_encode_other).encode


def _misfit(value: object, error: Exception, path: str = "result", depth: int = 0) -> str:
    """Return where in a value the one is that is not JSON, and what is wrong with it."""
    for step, inner in _parts(value) if depth < _DEEPEST else ():
        try:
            _encode_result(inner)
        except Exception as found:
            return _misfit(inner, found, at(path, step), depth + 1)
    return f"{path}: {_text(error) or type(error).__name__}"


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from enumerate(value)
    elif is_dataclass(value) or isinstance(value, msgspec.Struct):
        yield from ((name, getattr(value, name, None)) for name in _field_names(value))


def _field_names(value: Any) -> Iterable[str]:
    return value.__struct_fields__ if isinstance(value, msgspec.Struct) else [each.name for each in fields(value)]


def _name(error: BaseException) -> str:
    text = _text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(text: object) -> str:
    """One printable line: what a handler says here is stored and shown."""
    line = " ".join(_text(text).split())
    line = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # an author's __str__ may be broken, and the run must still end
        return "(a message that cannot be printed)"
