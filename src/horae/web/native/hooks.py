"""Webhooks under /v1: addresses that systems outside call, who have no login here but a token in the address."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from horae import schemas
from horae.core import hooks, model
from horae.core.time.outside import PLAIN
from horae.errors import Malformed, NotFound
from horae.service import Services
from horae.web import documents, http, render

FORM = "application/x-www-form-urlencoded"
MAX_FIELDS = 1000  # of a form
EXAMPLE = {"path": "reports/today.csv"}


def no_credential(_: http.Request) -> str | None:
    """Whatever login a caller sends is for somebody else: the address is what proves him."""
    return None


class Hooks:
    """The endpoints of webhooks."""

    def __init__(self, services: Services) -> None:
        self._hooks = services.hooks
        self._jobs = services.jobs

    def operations(self) -> list[http.Operation]:
        op, body = http.Operation, http.Body("HookCall", EXAMPLE, required=False)
        return [
            op("POST", "/v1/hooks/{trigger_id}/{token}", self.call, "triggers", "Fire a webhook", "HookAnswer", 202,
               body=body, errors=(401, 409, 429), is_open=True, credential=no_credential),
            op("POST", "/v1/triggers/{trigger_id}/hook", self.rotate, "triggers",
               "Give a webhook a new address", "Trigger", errors=(409,)),
        ]  # fmt: skip

    async def call(self, request: http.Request) -> http.Answer:
        """The body is the data of the run, or what GitHub or Gitea tell. The same delivery makes one run."""
        call = hooks.Call(_headers(request), await request.read(hooks.MAX_BODY))
        admitted = await self._hooks.admit(_trigger_id(request), request.scope["path_params"]["token"], call)
        is_plain = admitted.hook["format"] == PLAIN
        answer = await self._hooks.deliver(admitted, _read(call.body, request, is_plain=is_plain))
        if isinstance(answer, hooks.Ignored):
            return http.reply(202, schemas.HookAnswer(None, None, answer.why))
        return http.reply(202, schemas.HookAnswer(answer.id, answer.state.word, answer.message))

    async def rotate(self, request: http.Request) -> http.Answer:
        """The address of before is nothing from now on. The answer has the new one, which is not shown again."""
        return http.reply(200, render.trigger(await self._jobs.triggers.rotate(request.path_id("trigger_id"))))


def _trigger_id(request: http.Request) -> int | None:
    """What is no id is as wrong as a wrong token, and told in the same words."""
    try:
        return request.path_id("trigger_id")
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
