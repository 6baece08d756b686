"""Webhooks and pings under /v1: addresses for systems outside, who have no login here but a token in the address."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from horae import schemas
from horae.core import hooks, model, watched
from horae.core.roles import Permission
from horae.core.time.outside import PLAIN
from horae.errors import Malformed, NotFound
from horae.service import Services
from horae.web import documents, http, params, render

FORM = "application/x-www-form-urlencoded"
MAX_FIELDS = 1000  # of a form
EXAMPLE = {"path": "reports/today.csv"}
PING = (
    params.text("state", "start, success, fail or log, where the address does not say it.", 20),
    params.number(
        "exit_code", "Of what was run. Another one than 0 is a failure, unless the state is given.", -255, 255
    ),
    params.Param("seconds", "How long it took.", {"type": "number", "minimum": 0}, watched.read_seconds),
    params.identity(
        "run", "The run that it is about, as the first ping was answered. Without: that of the latest moment."
    ),
    params.moment("at", "When it was so, of a ping that comes late."),
    params.IDEMPOTENCY,
)


class Hooks:
    """The endpoints of webhooks."""

    def __init__(self, services: Services) -> None:
        self._hooks = services.hooks
        self._jobs = services.jobs

    def operations(self) -> list[http.Operation]:
        op, body = http.Operation, http.Body("HookCall", EXAMPLE, required=False)
        return [
            op("POST", "/v1/hooks/{trigger_id}/{token}", self.call, "triggers", "Fire a webhook", "HookAnswer", 202,
               body=body, errors=(401, 409, 429), is_open=True, credential=http.no_credential),
            op("POST", "/v1/triggers/{trigger_id}/hook", self.rotate, "triggers",
               "Give a webhook a new address", "Trigger", errors=(409,), needs=Permission.WRITE, is_dangerous=True),
        ]  # fmt: skip

    async def call(self, request: http.Request) -> http.Answer:
        """The body is the data of the run, or what GitHub or Gitea tell. The same delivery makes one run."""
        call = hooks.Call(_headers(request), await request.read(hooks.MAX_BODY))
        admitted = await self._hooks.admit(_id(request, "trigger_id"), request.scope["path_params"]["token"], call)
        is_plain = admitted.hook["format"] == PLAIN
        answer = await self._hooks.deliver(admitted, _read(call.body, request, is_plain=is_plain))
        if isinstance(answer, hooks.Ignored):
            return http.reply(202, schemas.HookAnswer(None, None, answer.why))
        return http.reply(202, schemas.HookAnswer(answer.id, answer.state.word, answer.message))

    async def rotate(self, request: http.Request) -> http.Answer:
        """The address of before is nothing from now on. The answer has the new one, which is not shown again."""
        return http.reply(200, render.trigger(await self._jobs.triggers.rotate(request.path_id("trigger_id"))))


class Pings:
    """The endpoints of jobs that others run."""

    def __init__(self, services: Services) -> None:
        self._watching = services.watching

    def operations(self) -> list[http.Operation]:
        op, address = http.Operation, "/v1/pings/{job_id}/{token}"
        shared: Any = {"params": PING, "errors": (409, 413, 429), "is_open": True, "credential": http.no_credential}
        return [
            op("GET", "/v1/jobs/{job_id}/ping", self.show, "jobs", "The address to tell of a watched job",
               "PingAddress", errors=(409,), needs=Permission.WRITE, shows_secret=True),
            op("POST", "/v1/jobs/{job_id}/ping", self.rotate, "jobs", "Give a watched job a new address",
               "PingAddress", errors=(409,), needs=Permission.WRITE, is_dangerous=True),
            op("POST", address, self.hear, "runs", "Tell of a watched job", "PingAnswer", 202, **shared),
            op("POST", f"{address}/{{state}}", self.hear, "runs", "Tell that a watched job began or ended",
               "PingAnswer", 202, **shared),
        ]  # fmt: skip

    async def show(self, request: http.Request) -> http.Answer:
        """Whoever has it can tell how the job goes, without a login. It stays the same until it is made anew."""
        job_id = request.path_id("job_id")
        return _address(job_id, await self._watching.make_token(job_id))

    async def rotate(self, request: http.Request) -> http.Answer:
        """The address of before is nothing from now on."""
        job_id = request.path_id("job_id")
        return _address(job_id, await self._watching.rotate(job_id))

    async def hear(self, request: http.Request) -> http.Answer:
        """The body is the end of its output, of which the last 100 KiB are kept."""
        given = request.scope["path_params"]
        job = await self._watching.admit(_id(request, "job_id"), given["token"])
        asked = request.args
        state = watched.read_state(given.get("state") or asked["state"], asked["exit_code"])
        ping = watched.Ping(state, asked["exit_code"], asked["seconds"], asked["run"], asked["at"])
        said = await request.read(hooks.MAX_BODY)
        run = await self._watching.hear(job, ping, said, request.idempotency_key())
        return http.reply(202, schemas.PingAnswer(run.id, run.state.word))


def _address(job_id: int, token: str) -> http.Answer:
    return http.reply(200, schemas.PingAddress(job_id, f"/v1/pings/{job_id}/{token}"))


def _id(request: http.Request, name: str) -> int | None:
    """What is no id is as wrong as a wrong token, and told in the same words."""
    try:
        return request.path_id(name)
    except NotFound:
        return None


def _headers(request: http.Request) -> dict[str, str]:
    return {name: value for name in hooks.HEADERS if (value := request.header(name.encode())) is not None}


def _read(body: bytes, request: http.Request, *, is_plain: bool) -> Any:
    """Return what a body says: JSON, whatever its content type says, unless that is of a form. GitHub and Gitea put
    JSON into a field of one."""
    if not body.strip():
        return None
    if (request.header(b"content-type") or "").partition(";")[0].strip().lower() != FORM:
        return documents.read_json(body)
    fields = _read_form(body)
    return fields if is_plain else documents.read_json(str(fields.get("payload") or "").encode())


def _read_form(body: bytes) -> model.Json:
    """Return the fields of a form; one that stands several times is a list."""
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError as error:  # too many of them, or not UTF-8
        raise Malformed(f"the form cannot be read: at most {MAX_FIELDS} fields of UTF-8 expected") from error
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values if values[1:] else values[0] for name, values in found.items()}
