"""The calls of the RPC contract over gRPC: horae.v1.Scheduling. What they do is in calls.py, as for JSON-RPC."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from horae.contracts.rpc.caller import Caller
from horae.contracts.rpc.calls import Calls
from horae.core.audit import Deed
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
from horae.rpc.callers import Callers, promise_of
from horae.wire.generated import scheduling_pb2 as pb

log = structlog.get_logger(__name__)

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


def _due(it: dict[str, Any]) -> pb.DueJob:
    return pb.DueJob(**{**it, "user_id": str(it["user_id"])})


def _rows(found: Any, name: str, tell: Callable[[dict[str, Any]], Message]) -> dict[str, Any]:
    """Return a list, or a page of one with its cursor, as the fields of a reply."""
    page = found if isinstance(found, dict) else {name: found, "cursor": None}
    return {name: [tell(it) for it in page[name]], "cursor": page["cursor"]}


def _jobs(found: Any) -> pb.Jobs:
    return pb.Jobs(**_rows(found, "jobs", _job))


def _history(found: Any) -> pb.ExecHistory:
    return pb.ExecHistory(**_rows(found, "executions", lambda row: pb.Execution(**row)))


def _due_jobs(found: Any) -> pb.DueJobs:
    return pb.DueJobs(**_rows(found, "executions", _due))


def _blocked_jobs(found: Any) -> pb.BlockedJobs:
    return pb.BlockedJobs(
        **_rows(found, "executions", lambda row: pb.BlockedJob(**{**row, "user_id": str(row["user_id"])}))
    )


# Method → the call it is, its request, and how its result is told.
METHODS: dict[str, tuple[str, type[Message], Callable[[Any], Message]]] = {
    "SubmitJob": ("submit_job", pb.SubmitJobRequest, lambda made: pb.SubmitJobReply(job_id=made)),
    "RetrieveAllJobs": ("retrieve_all_jobs", pb.RetrieveAllJobsRequest, _jobs),
    "DeleteJob": ("delete_job", pb.DeleteJobRequest, lambda done: pb.DeleteJobReply(deleted=done)),
    "GetExecHistory": ("get_exec_history", pb.GetExecHistoryRequest, _history),
    "GetJobsInNext5Mins": ("get_jobs_in_next_5_mins", pb.GetJobsInNext5MinsRequest, _jobs),
    "GetDueJobs": ("get_due_jobs", pb.GetDueJobsRequest, _due_jobs),
    "GetBlockedJobs": ("get_blocked_jobs", pb.GetBlockedJobsRequest, _blocked_jobs),
    "GetLog": ("get_log", pb.GetLogRequest, lambda piece: pb.LogPiece(**piece)),
    "Dispatch": ("dispatch", pb.DispatchRequest, lambda made: pb.DispatchReply(execution_id=made)),
    "Cancel": ("cancel", pb.CancelRequest, lambda done: pb.CancelReply(**done)),
    "Heartbeat": ("heartbeat", pb.HeartbeatRequest, lambda said: pb.HeartbeatReply(**said)),
    "TakeDueJobs": ("take_due_jobs", pb.TakeDueJobsRequest, _due_jobs),
    "StatusUpdate": ("status_update", pb.StatusUpdateRequest, lambda said: pb.StatusUpdateReply(**said)),
    "WriteLog": ("write_log", pb.WriteLogRequest, lambda said: pb.WriteLogReply(**said)),
}


class Scheduling:
    descriptor = pb.DESCRIPTOR.services_by_name["Scheduling"]

    def __init__(self, calls: Calls, callers: Callers) -> None:
        self._calls = calls
        self._callers = callers

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
        who = await self._callers.identify(context)
        try:
            asked = kind.FromString(raw)
        except DecodeError as error:
            raise Malformed(f"this is not a {kind.DESCRIPTOR.name}: {error}") from error
        params = {field.name: _plain(value) for field, value in asked.ListFields()}
        deed = Deed(who.name, who.org, who.via, self._callers.address_of(context))
        caller = Caller(who, promise_of(name, raw, who, context), deed)
        return tell(await self._calls.call(call, params, caller)).SerializeToString()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):  # name → number; whole ones are whole
        return {name: int(number) if number.is_integer() else number for name, number in value.items()}
    return list(value.ids) if isinstance(value, pb.Executions) else value
