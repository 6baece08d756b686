"""What runs are told, under /v1."""

from __future__ import annotations

import msgspec

from horae.core.jobdata import MAX_DATA
from horae.core.runs.results import fault_of
from horae.core.runs.waits import SIGNAL_NAME
from horae.errors import Invalid, TooLarge
from horae.service import Services
from horae.web import http, params, render

SIGNAL_EXAMPLE = {"approved": True, "by": "ann"}


class Signals:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._jobs = services.jobs
        self._insight = services.insight

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation("POST", "/v1/runs/{run_id}/signals/{name}", self.signal, "runs", "Tell a run something",
                           "Run", 202, params=(params.IDEMPOTENCY,), errors=(409,),
                           body=http.Body("SignalValue", SIGNAL_EXAMPLE, required=False)),
        ]  # fmt: skip

    async def signal(self, request: http.Request) -> http.Answer:
        """The body, any JSON up to 256 KiB, is what the run is told under this name; without a body it is null. A run
        that waits for it goes on; for any other it is kept until the run asks. A name is answered once."""
        run_id, name = request.path_id("run_id"), read_signal_name(request.scope["path_params"]["name"])
        body = await request.read(MAX_DATA)
        value = read_value(request, body)
        run = await self._jobs.signals.send(
            run_id, name, value, http.principal(request).owner, request.idempotency(body)
        )
        names = await self._insight.job_names([run.job_id])
        return http.reply(202, render.run(run, names.get(run.job_id)))


def read_signal_name(name: str) -> str:
    if not SIGNAL_NAME.fullmatch(name):
        message = "the name of a signal is up to 128 letters, digits and . _ -"
        raise Invalid(message, code="E_PATTERN", path="name")
    return name


def read_value(request: http.Request, body: bytes) -> str:
    """Return what a signal says, as JSON text that can be kept."""
    text = msgspec.json.encode(request.parse(body) if body.strip() else None).decode()
    if fault := fault_of(text, MAX_DATA):
        raise (TooLarge if len(text.encode()) > MAX_DATA else Invalid)(f"what a run is told {fault}")
    return text
