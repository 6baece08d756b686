"""Callbacks under /v1: addresses at which systems outside tell a run what it waits for, without a login."""

from __future__ import annotations

from horae import schemas
from horae.core.jobdata import MAX_DATA
from horae.core.roles import Permission
from horae.errors import NotFound
from horae.service import Services
from horae.web import documents, http
from horae.web.native.signals import SIGNAL_EXAMPLE, keepable, read_signal_name


class Callbacks:
    """The endpoints of callbacks."""

    def __init__(self, services: Services) -> None:
        self._jobs = services.jobs

    def operations(self) -> list[http.Operation]:
        op, body = http.Operation, http.Body("SignalValue", SIGNAL_EXAMPLE, required=False)
        return [
            op("GET", "/v1/runs/{run_id}/callbacks/{name}", self.show, "runs", "The address to tell a run something",
               "Callback", errors=(409,), needs=Permission.RUN, shows_secret=True),
            op("POST", "/v1/callbacks/{run_id}/{name}/{token}", self.call, "runs",
               "Tell a run something by its address", "CallbackAnswer", 202, body=body, errors=(409,),
               is_open=True, credential=http.no_credential),
        ]  # fmt: skip

    async def show(self, request: http.Request) -> http.Answer:
        """Whoever has it can tell the run something under this name, without a login. It is always the same."""
        run_id, name = request.path_id("run_id"), read_signal_name(request.scope["path_params"]["name"])
        await self._jobs.get_run(run_id)
        path = await self._jobs.callbacks.make_path(run_id, name)
        return http.reply(200, schemas.Callback(run_id, name, path))

    async def call(self, request: http.Request) -> http.Answer:
        """As a signal: the body is any JSON up to 256 KiB. The same body again is the same; another one is refused."""
        given = request.scope["path_params"]
        callbacks, name = self._jobs.callbacks, given["name"]
        run_id = await callbacks.admit(_run_id(request), name, given["token"])
        body = await request.read(MAX_DATA)
        await callbacks.answer(run_id, name, keepable(documents.read_json(body) if body.strip() else None))
        return http.reply(202, schemas.CallbackAnswer(run_id, name))


def _run_id(request: http.Request) -> int | None:
    """What is no id is as wrong as a wrong token, and told in the same words."""
    try:
        return request.path_id("run_id")
    except NotFound:
        return None
