"""Horae as the administration interface of source document 3: its six calls over HTTP, with its keys and failures.

The calls themselves, which gRPC shares (contracts/admin/grpc.py), are in calls.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from horae.contracts.admin.calls import Calls
from horae.contracts.admin.failures import SHAPE
from horae.core.identity import Principal
from horae.core.model import Json
from horae.core.roles import Permission
from horae.service import Services
from horae.web import documents, http
from horae.web.streams import Streams

TAG = "administration"
Call = Callable[[Principal, Any], Awaitable[Json]]


class Admin:
    def __init__(self, services: Services, streams: Streams) -> None:
        self._calls = Calls(services)

    def operations(self) -> list[http.Operation]:
        calls = self._calls
        return [
            _operation("GET", "/api/v1/jobs", _answering(calls.get_jobs), "All jobs, by name", needs=Permission.READ),
            _operation(
                "GET", "/api/v1/triggers", _answering(calls.get_triggers), "All triggers", needs=Permission.READ
            ),
            _operation(
                "POST",
                "/api/v1/job-statuses",
                self.job_statuses,
                "What has run, newest first, by page",
                needs=Permission.READ,
            ),
            _operation("POST", "/api/v1/job", self.execute_job, "Run a job now, on this node", needs=Permission.RUN),
            _operation(
                "PUT",
                "/api/v1/scheduler",
                _answering(calls.update_scheduler),
                "Read the triggers again",
                needs=Permission.RUN,
            ),
            _operation(
                "GET",
                "/api/v1/instance-status",
                _answering(calls.get_instance_status),
                "Who schedules",
                needs=Permission.READ,
            ),
        ]

    def areas(self) -> list[http.Area]:
        return [http.Area(operation.path, SHAPE, http.basic) for operation in self.operations()]

    async def job_statuses(self, request: http.Request) -> http.Answer:
        """Takes PageSize, Page (from 1 on), and the filters TraceId and ScheduleJobStatusId."""
        return http.reply(200, await self._calls.get_job_statuses(http.principal(request), await request.json()))

    async def execute_job(self, request: http.Request) -> http.Answer:
        """Takes JobId and JobData. A run that finds its job running already ends as FailedBecauseOfLock."""
        body = await request.read()
        document = documents.read_json(body) if body.strip() else None
        promise = request.idempotency(body)
        return http.reply(200, await self._calls.execute_job(http.principal(request), document, promise))


def _answering(call: Call) -> http.Endpoint:
    """Return the endpoint of a call that takes nothing."""

    async def endpoint(request: http.Request) -> http.Answer:
        return http.reply(200, await call(http.principal(request), None))

    return endpoint


def _operation(method: str, path: str, endpoint: http.Endpoint, summary: str, *, needs: Permission) -> http.Operation:
    return http.Operation(
        method, path, endpoint, TAG, summary, gives="application/json", errors=(403, 404, 429, 503), shape=SHAPE,
        credential=http.basic, is_lenient=True, needs=needs,
    )  # fmt: skip
