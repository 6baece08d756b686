"""Alerts: what goes on of which somebody is to know, the rules, and what was told."""

from __future__ import annotations

from horae.core.alerts.channels import KINDS
from horae.core.alerts.rules import CONDITIONS
from horae.core.roles import Permission
from horae.service import Services
from horae.web import http, params
from horae.web.native.alerts import shown_alert, shown_channel, shown_delivery, shown_rule
from horae.web.pages import filters
from horae.web.pages.shell import HTML, Shell

SHOWN = 100
TOLD = 20
_ASKED = (
    filters.optional(params.text("rule", "The rule that is changed.", 63)),
    filters.optional(params.text("channel", "The channel that is changed.", 63)),
    filters.optional(params.words("kind", "Of a channel that is made.", {kind: kind for kind in KINDS})),
)


class AlertsPage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._alerts = services.alerts
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation("GET", "/alerts", self.show, "pages", "The page of alerts", HTML, params=_ASKED,
                           needs=Permission.READ),
        ]  # fmt: skip

    async def show(self, request: http.Request) -> http.Answer:
        args, org = request.args, http.principal(request).org
        found = await self._alerts.open_alerts(http.principal(request).bound_to, 0, SHOWN)
        rules = [shown_rule(it) for it in await self._alerts.rules(org)]
        channels = [shown_channel(it) for it in await self._alerts.channels(org)]
        return self._shell.page(
            request, "alerts.html", alerts=[shown_alert(it) for it in found], rules=rules, channels=channels,
            rule=next((it for it in rules if it.name == args["rule"]), None),
            channel=next((it for it in channels if it.name == args["channel"]), None),
            conditions=CONDITIONS, kinds=KINDS, asked_kind=args["kind"][0] if args["kind"] else KINDS[0],
            told=[shown_delivery(it) for it in await self._alerts.deliveries(org, TOLD)],
        )  # fmt: skip
