"""Alerts: what goes on of which somebody is to know, the rules, and what was told."""

from __future__ import annotations

from horae.core.roles import Permission
from horae.service import Services
from horae.web import http
from horae.web.native.alerts import shown_alert, shown_channel, shown_delivery, shown_rule
from horae.web.pages.shell import HTML, Shell

SHOWN = 100
TOLD = 20


class AlertsPage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._alerts = services.alerts
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [http.Operation("GET", "/alerts", self.show, "pages", "The page of alerts", HTML, needs=Permission.READ)]

    async def show(self, request: http.Request) -> http.Answer:
        org = http.principal(request).org
        found = await self._alerts.open_alerts(http.principal(request).bound_to, 0, SHOWN)
        return self._shell.page(
            request, "alerts.html", alerts=[shown_alert(it) for it in found],
            rules=[shown_rule(it) for it in await self._alerts.rules(org)],
            channels=[shown_channel(it) for it in await self._alerts.channels(org)],
            told=[shown_delivery(it) for it in await self._alerts.deliveries(org, TOLD)],
        )  # fmt: skip
