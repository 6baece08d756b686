"""What an agent may say: its words become our values here.

A hello is refused with the name of the field. A result is never refused, because its agent would send it again for
ever: one that cannot be is a failed attempt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from horae.core.model import Moment, Node, Reason, State
from horae.core.policy.resources import MAX_OFFERED, is_offer
from horae.core.runs.orders import Result
from horae.core.runs.results import clean, is_wait
from horae.core.waits import Call, Wait
from horae.core.work import progress
from horae.errors import Invalid
from horae.ports.outputs import OutputNames
from horae.service.results import make_sound
from horae.wire.generated import agents_pb2 as pb

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # as the setting `node`
_WORD = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:=-]{0,62}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,64}")
_OUTPUT = re.compile(r"runs/[0-9]{1,16}/[0-9]{1,19}/([0-9]{1,10})-[0-9]{1,19}")
MAX_SLOTS = 100_000
MAX_AILMENT = 500  # characters
ENDS = (State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.QUEUED, State.BLOCKED)


def read_hello(hello: pb.Hello, *, via: str, now: Moment) -> Node:
    """Return the node that an agent says to be."""
    _check("node", bool(_NAME.fullmatch(hello.node)), "a name of letters, digits, dots, dashes and underscores")
    _check("identity", bool(_TOKEN.fullmatch(hello.identity)), "16 to 64 letters and digits")
    _check("session", bool(_TOKEN.fullmatch(hello.session)), "16 to 64 letters and digits")
    _check("kinds", 0 < len(hello.kinds) <= 64 and all(map(_WORD.fullmatch, hello.kinds)), "1 to 64 kinds of work")
    _check("labels", len(hello.labels) <= 64 and all(map(_LABEL.fullmatch, hello.labels)), "up to 64 labels")
    _check("slots", 0 < hello.slots <= MAX_SLOTS, f"a number from 1 to {MAX_SLOTS}")
    rooms = hello.capacity.values()
    _check("capacity", len(rooms) <= 64 and all(one <= MAX_SLOTS for one in rooms), f"numbers up to {MAX_SLOTS}")
    _check("resources", is_offer(hello.resources), f"up to {MAX_OFFERED} by name, each with a whole number")
    return Node(
        name=hello.node, roles=("agent",), kinds=tuple(hello.kinds), labels=tuple(hello.labels), slots=hello.slots,
        version=clean(hello.version, 64), address="", started_at=now, heartbeat_at=now, beat=0, via=via,
        identity=hello.identity, holder="a remote agent", resources=dict(hello.resources),
        capacity=dict(hello.capacity),
    )  # fmt: skip


def read_free(said: Mapping[str, int], node: Node) -> dict[str, int]:
    """Return what is free of that which hello offered: never more."""
    return {name: min(said[name], offered) for name, offered in node.resources.items() if name in said}


def read_result(it: pb.Result, files: OutputNames) -> Result | None:
    """Return how an attempt ended; None when it is nobody's. Whatever else is wrong with it, it ends: as a failure that
    names the fault. What it says of times is noted where it may be true."""
    if it.run_id < 1 or it.fence < 1:
        return None
    faults = list(_faults(it, files))
    result = Result(
        run_id=it.run_id, fence=it.fence, state=State(it.state) if it.state in ENDS else State.SUCCEEDED,
        reason=it.reason if _WORD.fullmatch(it.reason) else "",
        started_at=it.started_at if it.HasField("started_at") else None,
        finished_at=it.finished_at if it.HasField("finished_at") else None,
        exit_code=it.exit_code if it.HasField("exit_code") else None, message=it.message,
        result=it.result if it.HasField("result") else None,
        output=it.output if it.HasField("output") and _is_own_output(it, files) else None,
        retry_after=it.retry_after if it.HasField("retry_after") else None, final=it.final,
        cursor=it.cursor if it.HasField("cursor") else None, wait=_read_wait(it.wait) if it.HasField("wait") else None,
    )  # fmt: skip
    make_sound(result, faults)
    if result.state is State.FAILED and not result.reason:
        result.reason = Reason.ERROR
    return result


def _read_wait(it: pb.Wait) -> Wait:
    calls = tuple(Call(call.task, call.job, call.data if call.HasField("data") else None) for call in it.calls)
    return Wait(
        it.reason, it.awaits if it.HasField("awaits") else None, it.seconds if it.HasField("seconds") else None,
        it.until if it.HasField("until") else None, calls,
    )  # fmt: skip


def _faults(it: pb.Result, files: OutputNames) -> Iterator[str]:
    """What no agent of ours says."""
    if it.state not in ENDS:
        yield "its state is none in which an attempt ends"
    if it.reason and not _WORD.fullmatch(it.reason):
        yield "its reason is not a word"
    if it.HasField("retry_after") and not is_wait(it.retry_after):
        yield "its retry_after is no number of seconds"
    if it.HasField("output") and not _is_own_output(it, files):
        yield "its output is not that of this attempt"


def read_progress(it: pb.ProgressOf) -> str:
    """Return what it says that has the form of progress, as JSON."""
    try:
        said = msgspec.json.decode(it.progress) if len(it.progress) <= progress.MAX_PROGRESS else None
    except (msgspec.DecodeError, RecursionError):
        said = None
    return msgspec.json.encode(progress.read_progress(said)).decode()


def read_ailment(it: pb.NoteAilment) -> str:
    """One line of text."""
    return " ".join(clean(it.ailment, MAX_AILMENT).split())


def _is_own_output(it: pb.Result, files: OutputNames) -> bool:
    found = _OUTPUT.fullmatch(it.output)
    return found is not None and files.ref(it.run_id, int(found[1]), it.fence) == it.output


def _check(field: str, good: bool, expected: str) -> None:
    if not good:
        raise Invalid(f"{field} must be {expected}", path=field)
