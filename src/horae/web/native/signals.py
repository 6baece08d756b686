"""What runs are told, under /v1."""

from __future__ import annotations

from typing import Any

import msgspec

from horae import schemas
from horae.core.jobdata import MAX_DATA
from horae.core.roles import Permission
from horae.core.runs.results import fault_of
from horae.core.waits import SIGNAL_NAME
from horae.errors import Invalid, TooLarge
from horae.service import Services
from horae.service.jobs.signals import Decider, approval_of
from horae.web import http, params, render
from horae.web.native.bodies import read_fields

SIGNAL_EXAMPLE = {"paid": True, "amount": 12.5}
DECISION_EXAMPLE = {"comment": "looks good"}
MAX_COMMENT = 1000  # characters


class Signals:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._jobs = services.jobs
        self._insight = services.insight

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation("POST", "/v1/runs/{run_id}/signals/{name}", self.signal, "runs", "Tell a run something",
                           "Run", 202, params=(params.IDEMPOTENCY,), errors=(409,),
                           body=http.Body("SignalValue", SIGNAL_EXAMPLE, required=False), needs=Permission.RUN),
            http.Operation("POST", "/v1/runs/{run_id}/approve", self.approve, "runs", "Approve a run", "Run", 202,
                           params=(params.IDEMPOTENCY,), errors=(403, 409),
                           body=http.Body("Decision", DECISION_EXAMPLE, required=False), needs=Permission.RUN),
            http.Operation("POST", "/v1/runs/{run_id}/reject", self.reject, "runs", "Reject a run", "Run", 202,
                           params=(params.IDEMPOTENCY,), errors=(403, 409),
                           body=http.Body("Decision", DECISION_EXAMPLE, required=False), needs=Permission.RUN),
            http.Operation("GET", "/v1/approvals", self.list_approvals, "runs", "List what waits for your approval",
                           "ApprovalPage", needs=Permission.READ),
        ]  # fmt: skip

    async def signal(self, request: http.Request) -> http.Answer:
        """The body, any JSON up to 256 KiB, is what the run is told under this name; without a body it is null. A run
        that waits for it goes on; for any other it is kept until the run asks. A name is answered once."""
        run_id, name = request.path_id("run_id"), read_signal_name(request.scope["path_params"]["name"])
        body = await request.read(MAX_DATA)
        value = read_value(request, body)
        run = await self._jobs.signals.send(
            run_id, name, value, http.principal(request).name, request.idempotency(body)
        )
        names = await self._insight.job_names([run.job_id])
        return http.reply(202, render.run(run, names.get(run.job_id)))

    async def approve(self, request: http.Request) -> http.Answer:
        """Of a run that waits for an approval, by one of those whom its job names; the run succeeds, and its result
        says who approved it, and when."""
        return await self._decide(request, approved=True)

    async def reject(self, request: http.Request) -> http.Answer:
        """As approve; the run fails as rejected."""
        return await self._decide(request, approved=False)

    async def _decide(self, request: http.Request, *, approved: bool) -> http.Answer:
        run_id, body = request.path_id("run_id"), await request.read()
        fields = read_fields(request.parse(body) if body.strip() else {}, "comment")
        comment = fields.text("comment", MAX_COMMENT) or ""
        fields.problems.raise_any()
        run = await self._jobs.signals.decide(
            run_id, decider(request), approved=approved, comment=comment, idempotency=request.idempotency(body)
        )
        names = await self._insight.job_names([run.job_id])
        return http.reply(202, render.run(run, names.get(run.job_id)))

    async def list_approvals(self, request: http.Request) -> http.Answer:
        """Oldest first, a thousand at most."""
        org = http.principal(request).bound_to
        found = await self._jobs.signals.list_approvals(decider(request), org)
        items = [
            schemas.Approval(
                run.id, job.id, job.name, asked["by"], asked.get("message", ""), render.stamp(run.created_at),
                render.when(run.eligible_at),
            )
            for run, job in found
            if (asked := approval_of(job)) is not None
        ]  # fmt: skip
        return http.reply(200, schemas.ApprovalPage(items))


def decider(request: http.Request) -> Decider:
    who = http.principal(request)
    return Decider(who.name, is_alone=who.is_local)


def read_signal_name(name: str) -> str:
    if not SIGNAL_NAME.fullmatch(name):
        message = "the name of a signal is up to 128 letters, digits and . _ -"
        raise Invalid(message, code="E_PATTERN", path="name")
    return name


def read_value(request: http.Request, body: bytes) -> str:
    """Return what a signal says, as JSON text that can be kept."""
    return keepable(request.parse(body) if body.strip() else None)


def keepable(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    if fault := fault_of(text, MAX_DATA):
        raise (TooLarge if len(text.encode()) > MAX_DATA else Invalid)(f"what a run is told {fault}")
    return text
