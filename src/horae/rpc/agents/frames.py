"""The frames of an agent's stream: read from it, and made for it; and how a stream ends when one cannot be taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from horae import wire
from horae.core.runs.holdings import Fenced
from horae.core.runs.orders import Assignment
from horae.errors import Error
from horae.service.execution import ANY_FENCE
from horae.wire.generated import agents_pb2 as pb

MAX_LIST = 100_000  # ids in one request


class Refused(Exception):
    """The stream ends with this status."""

    def __init__(self, status: grpc.StatusCode, message: str, node: str = "") -> None:
        """`node` is who it says to be, where that is known."""
        super().__init__(message)
        self.status, self.message, self.node = status, message, node


class Over(Exception):
    """The agent has closed its side, or shall."""


def invalid(message: str) -> Refused:
    return Refused(grpc.StatusCode.INVALID_ARGUMENT, message)


# ── in ──
async def read_frame(context: Any, seconds: float) -> pb.AgentFrame:
    try:
        async with asyncio.timeout(seconds):
            raw = await context.read()
    except TimeoutError:
        raise Refused(grpc.StatusCode.DEADLINE_EXCEEDED, f"the agent was silent for {seconds:g} s") from None
    if raw is grpc.aio.EOF:
        raise Over
    try:
        return pb.AgentFrame.FromString(raw)
    except DecodeError as error:
        raise invalid("a frame that cannot be read as horae.v1.AgentFrame") from error


def check_ids(ids: Sequence[int]) -> None:
    if len(ids) > MAX_LIST or any(one < 1 for one in ids):
        raise invalid(f"ids are positive, at most {MAX_LIST} at once")


def read_attempts(run_ids: Sequence[int], fences: Sequence[int]) -> list[Fenced]:
    """Return runs with their fences; agents of protocol 1 say none."""
    check_ids(run_ids)
    if not fences:
        return [(run_id, ANY_FENCE) for run_id in run_ids]
    if len(fences) != len(run_ids) or any(fence < 1 for fence in fences):
        raise invalid("every run that is held needs its fence")
    return list(zip(run_ids, fences, strict=True))


# ── out ──
def done() -> pb.ServerFrame:
    return pb.ServerFrame(done=pb.Done())


def failure(error: Error) -> pb.ServerFrame:
    return pb.ServerFrame(failure=pb.Failure(code=error.code, message=error.message, hint=error.hint))


def assignments(claimed: Sequence[Assignment]) -> list[pb.ServerFrame]:
    return [pb.ServerFrame(assignments=pb.Assignments(items=items)) for items in _lists(map(_assignment, claimed))]


def _assignment(it: Assignment) -> pb.Assignment:
    return pb.Assignment(
        run_id=it.run_id, fence=it.fence, attempt=it.attempt, job_id=it.job_id, trigger_id=it.trigger_id,
        due_at=it.due_at, kind=it.kind, name=it.name, spec=it.spec, policy=it.policy, data=it.data,
        secrets=it.secrets, source=it.source, cursor=it.cursor, owner=it.owner,
        answers=it.answers, callbacks=it.callbacks, root=it.root,
    )  # fmt: skip


def _lists(items: Iterable[pb.Assignment]) -> list[list[pb.Assignment]]:
    """Return as few lists as fit into frames; one at least, for nothing is an answer too."""
    lists: list[list[pb.Assignment]] = [[]]
    size = 0
    for item in items:
        if lists[-1] and size + item.ByteSize() > wire.FRAME:
            lists.append([])
            size = 0
        lists[-1].append(item)
        size += item.ByteSize()
    return lists
