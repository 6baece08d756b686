"""The calls of the RPC contract over gRPC: horae.v1.Scheduling. What they do is web/facades/rpc, as for JSON-RPC."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from horae.errors import (
    CODES,
    Conflict,
    Denied,
    Error,
    Invalid,
    Limited,
    Malformed,
    NotFound,
    Stale,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from horae.ports import Idempotency
from horae.web.facades.rpc.calls import Caller, Calls
from horae.web.http import Principal
from horae.wire.generated import scheduling_pb2 as pb

log = structlog.get_logger(__name__)

Identify = Callable[[Any], Awaitable[Principal]]  # who calls, by the context of a call

_STATUSES: tuple[tuple[type[Error], grpc.StatusCode], ...] = (
    (Invalid, grpc.StatusCode.INVALID_ARGUMENT),
    (Malformed, grpc.StatusCode.INVALID_ARGUMENT),
    (TooLarge, grpc.StatusCode.INVALID_ARGUMENT),
    (Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (Denied, grpc.StatusCode.PERMISSION_DENIED),
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (Conflict, grpc.StatusCode.FAILED_PRECONDITION),
    (Stale, grpc.StatusCode.ABORTED),
    (Limited, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
)


def _job(it: dict[str, Any]) -> pb.Job:
    plain = it["schedule"]
    return pb.Job(**{**it, "user_id": str(it["user_id"]), "schedule": None if plain is None else str(plain)})


def _jobs(found: list[dict[str, Any]]) -> pb.Jobs:
    return pb.Jobs(jobs=[_job(it) for it in found])


# Method → the call it is, its request, and how its result is told.
METHODS: dict[str, tuple[str, type[Message], Callable[[Any], Message]]] = {
    "SubmitJob": ("submit_job", pb.SubmitJobRequest, lambda made: pb.SubmitJobReply(job_id=made)),
    "RetrieveAllJobs": ("retrieve_all_jobs", pb.RetrieveAllJobsRequest, _jobs),
    "DeleteJob": ("delete_job", pb.DeleteJobRequest, lambda done: pb.DeleteJobReply(deleted=done)),
    "GetExecHistory": (
        "get_exec_history",
        pb.GetExecHistoryRequest,
        lambda rows: pb.ExecHistory(executions=[pb.Execution(**row) for row in rows]),
    ),
    "GetJobsInNext5Mins": ("get_jobs_in_next_5_mins", pb.GetJobsInNext5MinsRequest, _jobs),
    "Dispatch": ("dispatch", pb.DispatchRequest, lambda made: pb.DispatchReply(execution_id=made)),
    "Heartbeat": ("heartbeat", pb.HeartbeatRequest, lambda said: pb.HeartbeatReply(**said)),
    "StatusUpdate": ("status_update", pb.StatusUpdateRequest, lambda said: pb.StatusUpdateReply(**said)),
    "Cancel": ("cancel", pb.CancelRequest, lambda done: pb.CancelReply(**done)),
}


class Scheduling:
    descriptor = pb.DESCRIPTOR.services_by_name["Scheduling"]

    def __init__(self, calls: Calls, identify: Identify) -> None:
        self._calls = calls
        self._identify = identify

    def handlers(self) -> dict[str, Any]:
        return {name: grpc.unary_unary_rpc_method_handler(self._handler(name)) for name in METHODS}

    def _handler(self, name: str) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def handle(raw: bytes, context: Any) -> bytes:
            try:
                return await self._perform(name, raw, context)
            except Error as error:
                status = next((code for kind, code in _STATUSES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
                hint = f" ({error.hint})" if error.hint else ""
                await context.abort(status, f"{error.code}: {error.message}{hint}")
            except Exception as error:
                log.error("call failed", method=name, exc_info=error)
                await context.abort(grpc.StatusCode.INTERNAL, f"E_INTERNAL: {CODES['E_INTERNAL']}")
            raise AssertionError("the call was aborted")

        return handle

    async def _perform(self, name: str, raw: bytes, context: Any) -> bytes:
        call, kind, tell = METHODS[name]
        who = await self._identify(context)
        try:
            asked = kind.FromString(raw)
        except DecodeError as error:
            raise Malformed(f"this is not a {kind.DESCRIPTOR.name}: {error}") from error
        params = {field.name: value for field, value in asked.ListFields()}
        caller = Caller(who, _promise(name, raw, who, context))
        return tell(await self._calls.call(call, params, caller)).SerializeToString()


def _promise(name: str, raw: bytes, who: Principal, context: Any) -> Idempotency | None:
    """The client's promise that a repeat is the same call, in the metadata."""
    key = dict(context.invocation_metadata() or ()).get("idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= 200:
        raise Invalid(f"an idempotency-key has 1 to 200 characters, got {len(key)}", code="E_LEN")
    digest = hashlib.sha256(name.encode() + b"\n" + raw).hexdigest()
    return Idempotency(f"{who.owner} rpc {name}", str(key), digest)
