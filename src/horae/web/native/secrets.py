"""Secrets under /v1: they are set and used, and no address gives one back."""

from __future__ import annotations

from horae import schemas
from horae.core.roles import Permission
from horae.service import Services
from horae.web import http, render
from horae.web.native.bodies import read_fields


class Secrets:
    """The endpoints of secrets."""

    def __init__(self, services: Services) -> None:
        self._secrets = services.secrets
        self._rotation = services.rotation

    def operations(self) -> list[http.Operation]:
        op, secrets, one = http.Operation, "/v1/secrets", "/v1/secrets/{name}"
        return [
            op("GET", secrets, self.list_secrets, "secrets", "List secrets, without their values", "SecretPage",
               needs=Permission.SECRETS),
            op("PUT", one, self.set_secret, "secrets", "Set a secret", status=204,
               body=http.Body("SecretRequest", {"value": "correct horse"}), errors=(409,), also={201: ""},
               needs=Permission.SECRETS),
            op("DELETE", one, self.delete_secret, "secrets", "Delete a secret", status=204, needs=Permission.SECRETS),
            op("POST", f"{secrets}/rotate", self.rotate_key, "secrets", "Seal everything with a new key", "KeyRotation",
               errors=(409,), needs=Permission.CLUSTER, is_dangerous=True),
        ]  # fmt: skip

    async def list_secrets(self, request: http.Request) -> http.Answer:
        found = await self._secrets.list(http.principal(request).org)
        return http.reply(200, schemas.SecretPage([render.secret(it) for it in found]))

    async def set_secret(self, request: http.Request) -> http.Answer:
        """201 when it is new. Attempts that start from now on use this value; no address gives it back."""
        fields = read_fields(await request.document(), "value")
        if "value" not in fields.values:
            fields.fault("value", "E_REQUIRED", "a secret needs a value")
        fields.problems.raise_any()
        name = request.scope["path_params"]["name"]
        is_new = await self._secrets.set(http.principal(request).org, name, fields.values["value"])
        return http.Reply(201 if is_new else 204)

    async def delete_secret(self, request: http.Request) -> http.Answer:
        """Attempts that need it and start from now on fail."""
        await self._secrets.delete(http.principal(request).org, request.scope["path_params"]["name"])
        return http.Reply(204)

    async def rotate_key(self, request: http.Request) -> http.Answer:
        """Answers when it is done. A repeat goes on with what was broken off; else it makes yet another key."""
        return http.reply(200, schemas.KeyRotation(*await self._rotation.rotate()))
