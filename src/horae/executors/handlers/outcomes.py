"""How the call of a handler begins and ends, in a worker and inline alike: what it is given, and what is made of that
which it returns or raises."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import msgspec

from horae.core.model import Json, State
from horae.errors import Invalid
from horae.executors.handlers.messages import End
from horae.handlers import Cancel, Channel, Retry

MAX_RESULT = 1024 * 1024  # bytes of JSON a handler may return
MAX_MESSAGE = 500  # characters of the one line that says how a run ended

_decode_data = msgspec.json.Decoder(dict[str, Any]).decode
_encode_result = msgspec.json.Encoder().encode


def extend_path(places: Sequence[str]) -> None:
    """Last, so that a job's file can never stand in for a module of ours or of Python's."""
    sys.path.extend(place for place in places if place not in sys.path)


def read_data(text: str | None) -> Json:
    return {} if text is None else _decode_data(text)


def read_previous(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def returned(run_id: int, value: object) -> End:
    """Return the end of a handler that returned."""
    if value is None:
        return End(run_id, State.SUCCEEDED)
    try:
        text = _encode_result(value)
    except Exception as error:
        return End(run_id, State.FAILED, one_line(f"the return value is not JSON: {_name(error)}"))
    if len(text) > MAX_RESULT:
        long = f"the return value is {len(text):,} bytes of JSON, more than the {MAX_RESULT:,} that are kept"
        return End(run_id, State.FAILED, f"{long}: write it to the output or to a file")
    return End(run_id, State.SUCCEEDED, "", text.decode())


def raised(run_id: int, error: BaseException, channel: Channel) -> End:
    """Return the end of a handler that raised; the traceback goes to the run's output."""
    if isinstance(error, Retry):
        return End(run_id, State.FAILED, one_line(error.message), None, error.after)
    if isinstance(error, Cancel):
        return End(run_id, State.CANCELLED, one_line(error.reason))
    if isinstance(error, Invalid) and error.code == "E_HANDLER":
        return refused(run_id, error, channel)  # a class handler that cannot be given what it asks for
    if not (isinstance(error, asyncio.CancelledError) and channel.is_stopped()):
        _write_traceback(error, channel)
    return End(run_id, State.FAILED, one_line(_name(error)))


def refused(run_id: int, error: Invalid, channel: Channel) -> End:
    """Return the end of a call whose handler cannot be loaded."""
    if error.__cause__ is not None:
        _write_traceback(error.__cause__, channel)
    hint = f" ({error.hint})" if error.hint else ""
    return End(run_id, State.FAILED, one_line(error.message + hint))


def _write_traceback(error: BaseException, channel: Channel) -> None:
    """From the author's first frame on: what lies above it is this file or the import machinery."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    channel.write("".join(lines).encode("utf-8", "backslashreplace"))


def _is_ours(file: str) -> bool:
    return file.startswith("<frozen importlib") or file.endswith(
        (
            "horae/executors/handlers/worker.py",
            "horae/executors/handlers/python.py",
            "horae/discovery.py",
            "horae/handlers.py",
            "horae/injection.py",
            "importlib/__init__.py",
        )
    )


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
