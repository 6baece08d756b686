"""Our values as the messages of a remote agent's line, and back."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from horae import wire
from horae.core.model import Node
from horae.core.runs.holdings import Fenced
from horae.core.runs.orders import Assignment, Result
from horae.core.waits import Wait
from horae.errors import ConfigError, Conflict, Denied, Error
from horae.wire.generated import agents_pb2 as pb

REFUSALS: dict[str, type[Error]] = {
    "UNAUTHENTICATED": Denied,
    "PERMISSION_DENIED": Denied,
    "ALREADY_EXISTS": Conflict,
    "FAILED_PRECONDITION": ConfigError,
    "INVALID_ARGUMENT": ConfigError,
    "UNIMPLEMENTED": ConfigError,
}


HINTS = {
    "E_JOIN_TOKEN": "make one with `horae nodes join-token NODE`, and start the agent with --join; if it is good, a "
    "server of before does not know it yet: upgrade servers before agents"
}


def write_hello(node: Node, identity: str, session: str) -> pb.Hello:
    return pb.Hello(
        lowest_protocol=wire.OLDEST_PROTOCOL, highest_protocol=wire.PROTOCOL, node=node.name, identity=identity,
        session=session, kinds=node.kinds, labels=node.labels, slots=node.slots, version=node.version,
        started_at=node.started_at, capacity=node.capacity, resources=node.resources, handlers=True,
    )  # fmt: skip


def held_fields(attempts: Collection[Fenced]) -> dict[str, list[int]]:
    return {"held": [run_id for run_id, _ in attempts], "fences": [fence for _, fence in attempts]}


def refusal(status: str, text: str) -> Error:
    code, found, rest = text.partition(": ")
    if found and code.startswith("E_"):
        return REFUSALS[status](rest, code=code, hint=HINTS.get(code, ""))
    return REFUSALS[status](text)


def read_assignment(it: pb.Assignment) -> Assignment:
    return Assignment(
        run_id=it.run_id, fence=it.fence, attempt=it.attempt, job_id=it.job_id,
        trigger_id=it.trigger_id if it.HasField("trigger_id") else None, due_at=it.due_at, kind=it.kind, name=it.name,
        spec=it.spec, policy=it.policy, data=it.data if it.HasField("data") else None,
        secrets=it.secrets if it.HasField("secrets") else None,
        source=it.source if it.HasField("source") else None, cursor=it.cursor if it.HasField("cursor") else None,
        owner=it.owner, answers=it.answers if it.HasField("answers") else None,
        callbacks=it.callbacks if it.HasField("callbacks") else None,
        root=it.root if it.HasField("root") else None,
    )  # fmt: skip


def _result(it: Result) -> pb.Result:
    return pb.Result(
        run_id=it.run_id, fence=it.fence, state=it.state, reason=it.reason, started_at=it.started_at,
        finished_at=it.finished_at, exit_code=it.exit_code, message=it.message, result=it.result, output=it.output,
        retry_after=it.retry_after, final=it.final, cursor=it.cursor, wait=None if it.wait is None else _wait(it.wait),
    )  # fmt: skip


def _wait(it: Wait) -> pb.Wait:
    calls = [pb.Call(task=call.task, job=call.job, data=call.data) for call in it.calls]
    return pb.Wait(reason=it.reason, awaits=it.awaits, seconds=it.seconds, until=it.until, calls=calls)


def batches(results: Sequence[Result]) -> list[list[pb.Result]]:
    """Return as few lists as fit into frames."""
    lists: list[list[pb.Result]] = []
    size = wire.FRAME
    for result in map(_result, results):
        if size + result.ByteSize() > wire.FRAME:
            lists.append([])
            size = 0
        lists[-1].append(result)
        size += result.ByteSize()
    return lists
