"""What an agent may say: its words become our values here, or are refused with the name of the field."""

from __future__ import annotations

import math
import re

import msgspec

from horae.core import figures
from horae.core.model import Moment, Node, State
from horae.errors import Invalid
from horae.ports import Files, Result
from horae.wire.generated import agents_pb2 as pb

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # as the setting `node`
_WORD = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:=-]{0,62}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,64}")
_OUTPUT = re.compile(r"runs/[0-9]{1,16}/[0-9]{1,19}/([0-9]{1,10})-[0-9]{1,19}")
MAX_SLOTS = 100_000
MAX_MESSAGE = 4096  # characters
MAX_AILMENT = 500  # characters
MAX_CURSOR = 64 * 1024  # characters of JSON
ENDS = (State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.QUEUED)
EXIT_CODES = range(-64, 256)  # negative: the signal that ended it


def read_hello(hello: pb.Hello, *, via: str, now: Moment) -> Node:
    """The node that an agent says to be."""
    _check("node", bool(_NAME.fullmatch(hello.node)), "a name of letters, digits, dots, dashes and underscores")
    _check("identity", bool(_TOKEN.fullmatch(hello.identity)), "16 to 64 letters and digits")
    _check("session", bool(_TOKEN.fullmatch(hello.session)), "16 to 64 letters and digits")
    _check("kinds", 0 < len(hello.kinds) <= 64 and all(map(_WORD.fullmatch, hello.kinds)), "1 to 64 kinds of work")
    _check("labels", len(hello.labels) <= 64 and all(map(_LABEL.fullmatch, hello.labels)), "up to 64 labels")
    _check("slots", 0 < hello.slots <= MAX_SLOTS, f"a number from 1 to {MAX_SLOTS}")
    return Node(
        name=hello.node, roles=("agent",), kinds=tuple(hello.kinds), labels=tuple(hello.labels), slots=hello.slots,
        version=_text(hello.version, 64), address="", started_at=now, heartbeat_at=now, beat=0, via=via,
        identity=hello.identity,
    )  # fmt: skip


def read_result(it: pb.Result, files: Files) -> Result:
    """How an attempt ended. What it says of times is noted, never used to decide."""
    _check("run_id", it.run_id > 0, "a positive number")
    _check("fence", it.fence > 0, "a positive number")
    _check("state", it.state in ENDS, "a state in which an attempt ends")
    _check("reason", not it.reason or bool(_WORD.fullmatch(it.reason)), "a word")
    _check("exit_code", not it.HasField("exit_code") or it.exit_code in EXIT_CODES, "-64 to 255")
    wait = it.retry_after if it.HasField("retry_after") else None
    _check("retry_after", wait is None or (math.isfinite(wait) and wait >= 0), "seconds, 0 or more")
    result = it.result if it.HasField("result") else None
    _check("result", result is None or _is_json(result), "JSON")
    cursor = it.cursor if it.HasField("cursor") else None
    _check("cursor", cursor is None or (len(cursor) <= MAX_CURSOR and _is_json(cursor)), "JSON, at most 64 KiB")
    return Result(
        run_id=it.run_id, fence=it.fence, state=State(it.state), reason=it.reason,
        started_at=it.started_at if it.HasField("started_at") else None,
        finished_at=it.finished_at if it.HasField("finished_at") else None,
        exit_code=it.exit_code if it.HasField("exit_code") else None, message=_text(it.message, MAX_MESSAGE),
        result=result, output=_output(it, files), retry_after=wait, final=it.final, cursor=cursor,
    )  # fmt: skip


def read_progress(it: pb.ProgressOf) -> str:
    """What it says that has the form of progress, as JSON."""
    try:
        said = msgspec.json.decode(it.progress) if len(it.progress) <= figures.MAX_PROGRESS else None
    except msgspec.DecodeError:
        said = None
    return msgspec.json.encode(figures.read_progress(said)).decode()


def read_ailment(it: pb.NoteAilment) -> str:
    """One line of text."""
    return " ".join(_text(it.ailment, MAX_AILMENT).split())


def _output(it: pb.Result, files: Files) -> str | None:
    """The name of its own output, and of nothing else."""
    if not it.HasField("output"):
        return None
    found = _OUTPUT.fullmatch(it.output)
    ours = found is not None and files.ref(it.run_id, int(found[1]), it.fence) == it.output
    _check("output", ours, "the name of the output of this attempt")
    return it.output


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return "\\u0000" not in text


def _text(text: str, limit: int) -> str:
    return text.replace("\0", "")[:limit]


def _check(field: str, good: bool, expected: str) -> None:
    if not good:
        raise Invalid(f"{field} must be {expected}", path=field)
