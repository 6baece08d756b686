"""Settings in force, secrets by name, tokens: each for whoever may see it."""

from __future__ import annotations

from horae.core.roles import PERMISSIONS, Permission
from horae.service import Services
from horae.web import http, render
from horae.web.pages.shell import HTML, Shell


class SettingsPage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._services = services
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [http.Operation("GET", "/settings", self.show, "pages", "The page of settings", HTML)]

    async def show(self, request: http.Request) -> http.Answer:
        who, services = http.principal(request), self._services
        rights = PERMISSIONS[who.role]
        secrets = await services.secrets.list(who.org) if Permission.SECRETS in rights else None
        tokens = await services.access.list(who) if Permission.TOKENS in rights else None
        return self._shell.page(
            request, "settings.html", settings=services.settings if Permission.CLUSTER in rights else None,
            secrets=secrets and [render.secret(it) for it in secrets], has_secrets=secrets is not None,
            tokens=None if tokens is None else [render.token(it, services.access.state_of(it)) for it in tokens],
        )  # fmt: skip
