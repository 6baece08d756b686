"""Settings in force under /v1, to look at: they are set where a process is started."""

from __future__ import annotations

from horae.core.roles import Permission
from horae.schemas import views
from horae.service import Services
from horae.web import http


class Settings:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation("GET", "/v1/settings", self.list_settings, "cluster", "List the settings in force",
                           "SettingPage", needs=Permission.CLUSTER),
        ]  # fmt: skip

    async def list_settings(self, request: http.Request) -> http.Answer:
        """Of the node that answers; other nodes may have others. Passwords in addresses are masked."""
        items = [views.Setting(*it) for it in self._services.settings]
        return http.reply(200, views.SettingPage(self._services.insight.node, items))
