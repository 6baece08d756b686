"""The administration contract over gRPC: the same calls as over HTTP, whose dictionaries have the names of the fields.

Messages are read here, not by gRPC, so that bytes nobody can read are the caller's fault (INVALID_ARGUMENT).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import structlog
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from horae.contracts.admin.calls import Calls
from horae.contracts.admin.failures import message_of, statuses_of
from horae.core.audit import Deed
from horae.core.identity import Principal
from horae.core.model import Json
from horae.core.rights import refuse_without
from horae.core.roles import Permission
from horae.errors import CODES, Error, Malformed
from horae.rpc.callers import Callers, promise_of
from horae.service import Services
from horae.web.auditing import UNTOLD
from horae.wire.generated import administration_service_pb2

SERVICE = administration_service_pb2.DESCRIPTOR.services_by_name["TaskSchedulingService"]
Call = Callable[[Principal, Any], Awaitable[Json]]
NEEDED = {  # what each call needs
    "GetJobs": Permission.READ,
    "GetTriggers": Permission.READ,
    "GetJobStatuses": Permission.READ,
    "GetInstanceStatus": Permission.READ,
    "ExecuteJob": Permission.RUN,
    "UpdateScheduler": Permission.RUN,
}

log = structlog.get_logger(__name__)
_STATUSES = {status.value[0]: status for status in grpc.StatusCode}


class Administration:
    descriptor = SERVICE

    def __init__(self, services: Services, callers: Callers) -> None:
        self._callers = callers
        self._audit = services.audit
        self._execute_job = (calls := Calls(services)).execute_job
        self._calls: dict[str, Call] = {
            "GetJobs": calls.get_jobs,
            "GetTriggers": calls.get_triggers,
            "GetJobStatuses": calls.get_job_statuses,
            "GetInstanceStatus": calls.get_instance_status,
            "UpdateScheduler": calls.update_scheduler,
        }

    def handlers(self) -> dict[str, Any]:
        """Every method that the .proto file names, each with what it needs."""
        if undeclared := SERVICE.methods_by_name.keys() - NEEDED.keys():
            raise ValueError(f"{', '.join(sorted(undeclared))}: not declared which permission they need")
        return {name: self._method(name) for name in SERVICE.methods_by_name}

    def _method(self, name: str) -> Any:
        method = SERVICE.methods_by_name[name]
        request, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        serve: Any = partial(self._serve, name, request, answer)
        return grpc.unary_unary_rpc_method_handler(serve)

    async def _serve(self, name: str, asked: type[Message], given: type[Message], raw: bytes, context: Any) -> bytes:
        try:
            who = await self._callers.identify(context)
            needed = NEEDED[name]
            address = self._callers.address_of(context)
            deed = Deed(who.name, who.org, who.via, address, str(needed), f"grpc {name}", kind="job")
            async with self._audit.call(deed, is_told=needed not in UNTOLD):
                refuse_without(who, needed)
                answer = await self._answer(name, who, _read(asked, raw), raw, context)
            return await asyncio.to_thread(_write, given, answer)  # a long list would hold up everything else
        except Error as error:
            failure = error
        except Exception as error:
            log.exception(
                "call failed", service=SERVICE.full_name, message_type=asked.DESCRIPTOR.name, error=str(error)
            )
            failure = Error(CODES["E_INTERNAL"])
        await context.abort(_STATUSES[statuses_of(failure)[1]], message_of(failure))
        raise AssertionError("abort raises")

    async def _answer(self, name: str, who: Principal, request: Json, raw: bytes, context: Any) -> Json:
        """Only a run is made by calls; who promises that it is the same one gets the same answer."""
        if name == "ExecuteJob":
            return await self._execute_job(who, request, promise_of(name, raw, who, context))
        return await self._calls[name](who, request)


def _read(form: type[Message], raw: bytes) -> Json:
    try:
        message = form.FromString(raw)
    except DecodeError as error:
        raise Malformed(f"this is no {form.DESCRIPTOR.name}: {error}") from None
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _write(form: type[Message], answer: Json) -> bytes:
    return bytes(json_format.ParseDict(answer, form()).SerializeToString())
