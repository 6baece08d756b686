"""Alerts under /v1: what is open, rules and channels, what was told."""

from __future__ import annotations

from horae import schemas
from horae.core.alerts.channels import COMMAND, Channel, render_channel
from horae.core.alerts.rules import Rule, render_rule
from horae.core.alerts.states import Alert
from horae.core.roles import Permission
from horae.errors import Invalid
from horae.ports.store.alerts import Delivery
from horae.service import Services
from horae.web import http, params, render

_ETAG = {"ETag": "The version, for If-Match."}
_RULE = {"when": "failure", "count": 2, "channels": ["ops"]}
_CHANNEL = {"kind": "email", "to": ["ops@example.org"]}
_MOST_DIGITS = 18


def _read_cursor(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise Invalid("this is not a cursor of alerts", code="E_PATTERN", hint="give back the `cursor` of a page")
    return int(text)


_OPEN = (
    params.Param(
        "cursor", "Where the last page ended: the `cursor` it gave.",
        {"type": "string", "pattern": f"^[0-9]{{1,{_MOST_DIGITS}}}$"}, _read_cursor,
    ),
    params.LIMIT,
)  # fmt: skip


class Alerts:
    """The endpoints."""

    def __init__(self, services: Services) -> None:
        self._alerts = services.alerts

    def operations(self) -> list[http.Operation]:
        op, root = http.Operation, "/v1/alerts"
        rules, channels = f"{root}/rules", f"{root}/channels"
        rule, channel = f"{rules}/{{name}}", f"{channels}/{{name}}"
        return [
            op("GET", root, self.list_alerts, "alerts", "List what is going on", "AlertPage", params=_OPEN,
               needs=Permission.READ),
            op("POST", f"{root}/{{alert_id}}/ack", self.acknowledge, "alerts", "Acknowledge an alert", "Alert",
               needs=Permission.ACKNOWLEDGE),
            op("GET", f"{root}/deliveries", self.list_deliveries, "alerts", "List what was told, newest first",
               "AlertDeliveryPage", params=(params.LIMIT,), needs=Permission.READ),
            op("GET", rules, self.list_rules, "alerts", "List alert rules by name", "AlertRulePage",
               needs=Permission.READ),
            op("GET", rule, self.get_rule, "alerts", "Read an alert rule", "AlertRule", headers=_ETAG,
               needs=Permission.READ),
            op("PUT", rule, self.put_rule, "alerts", "Make or replace an alert rule", "AlertRule",
               params=(params.IF_MATCH,), body=http.Body("AlertRuleDocument", _RULE), errors=(409, 412), headers=_ETAG,
               also={201: "AlertRule"},
               needs=Permission.ALERTS),
            op("DELETE", rule, self.delete_rule, "alerts", "Delete an alert rule", status=204,
               needs=Permission.ALERTS),
            op("GET", channels, self.list_channels, "alerts", "List channels by name", "AlertChannelPage",
               needs=Permission.READ),
            op("GET", channel, self.get_channel, "alerts", "Read a channel", "AlertChannel", headers=_ETAG,
               needs=Permission.READ),
            op("PUT", channel, self.put_channel, "alerts", "Make or replace a channel", "AlertChannel",
               params=(params.IF_MATCH,), body=http.Body("AlertChannelDocument", _CHANNEL), errors=(409, 412),
               headers=_ETAG, also={201: "AlertChannel"},
               needs=Permission.ALERTS),
            op("DELETE", channel, self.delete_channel, "alerts", "Delete a channel", status=204, errors=(409,),
               needs=Permission.ALERTS),
            op("POST", f"{channel}/test", self.try_channel, "alerts", "Send one message by a channel", "AlertTest",
               needs=Permission.ALERTS),
        ]  # fmt: skip

    # ── what is going on ──
    async def list_alerts(self, request: http.Request) -> http.Answer:
        """Those that are open, oldest first. One that is over is not listed any more: events tell of it."""
        limit = request.args["limit"]
        found = await self._alerts.open_alerts(_org_or_all(request), request.args["cursor"] or 0, limit)
        cursor = str(found[-1].id) if len(found) == limit else None
        return http.reply(200, schemas.AlertPage([shown_alert(it) for it in found], cursor))

    async def acknowledge(self, request: http.Request) -> http.Answer:
        """Say that somebody knows of it: it is told no more, until it is over. A repeat changes nothing."""
        who = http.principal(request).name
        found = await self._alerts.acknowledge(_org_or_all(request), request.path_id("alert_id"), who)
        return http.reply(200, shown_alert(found))

    async def list_deliveries(self, request: http.Request) -> http.Answer:
        """Messages of the last seven days, with what came of each."""
        found = await self._alerts.deliveries(_org(request), request.args["limit"])
        return http.reply(200, schemas.AlertDeliveryPage([shown_delivery(it) for it in found]))

    # ── rules ──
    async def list_rules(self, request: http.Request) -> http.Answer:
        return http.reply(
            200, schemas.AlertRulePage([shown_rule(it) for it in await self._alerts.rules(_org(request))])
        )

    async def get_rule(self, request: http.Request) -> http.Answer:
        found = await self._alerts.rule(_org(request), _name(request))
        return http.reply(200, shown_rule(found), [_etag(found.version)])

    async def put_rule(self, request: http.Request) -> http.Answer:
        """201 when it is new. Takes what reading it gives; what is left out has its default. A rule that looks at
        something else than before begins anew."""
        document, version = await request.document(), request.expected_version()
        found, is_new = await self._alerts.put_rule(_org(request), _name(request), document, version)
        return http.reply(201 if is_new else 200, shown_rule(found), [_etag(found.version)])

    async def delete_rule(self, request: http.Request) -> http.Answer:
        """What is open under it, and what was not told yet, goes with it."""
        await self._alerts.delete_rule(_org(request), _name(request))
        return http.Reply(204)

    # ── channels ──
    async def list_channels(self, request: http.Request) -> http.Answer:
        found = await self._alerts.channels(_org(request))
        return http.reply(200, schemas.AlertChannelPage([shown_channel(it) for it in found]))

    async def get_channel(self, request: http.Request) -> http.Answer:
        found = await self._alerts.channel(_org(request), _name(request))
        return http.reply(200, shown_channel(found), [_etag(found.version)])

    async def put_channel(self, request: http.Request) -> http.Answer:
        """201 when it is new. Secrets are named, never sent: `{secret: NAME}`. A command is a channel of the setting
        `alert_commands` alone."""
        document, version = await request.document(), request.expected_version()
        found, is_new = await self._alerts.put_channel(_org(request), _name(request), document, version)
        return http.reply(201 if is_new else 200, shown_channel(found), [_etag(found.version)])

    async def delete_channel(self, request: http.Request) -> http.Answer:
        await self._alerts.delete_channel(_org(request), _name(request))
        return http.Reply(204)

    async def try_channel(self, request: http.Request) -> http.Answer:
        """It is sent at once, from the server that is asked. The answer says what came of it: 200 too where it was not
        taken, and then `is_sent` is false."""
        name = _name(request)
        tried = await self._alerts.try_channel(_org(request), name)
        return http.reply(200, schemas.AlertTest(name, tried.is_sent, tried.detail, round(tried.seconds, 3)))


def _org(request: http.Request) -> int:
    return http.principal(request).org


def _org_or_all(request: http.Request) -> int | None:
    """Who needs no token is the user who runs the server."""
    return http.principal(request).bound_to


def _name(request: http.Request) -> str:
    return str(request.scope["path_params"]["name"])


def _etag(version: int) -> tuple[bytes, bytes]:
    return b"etag", f'"{version}"'.encode()


def shown_rule(it: Rule) -> schemas.AlertRule:
    return schemas.AlertRule(
        **render_rule(it), version=it.version, created_at=render.stamp(it.created_at),
        updated_at=render.stamp(it.updated_at),
    )  # fmt: skip


def shown_channel(it: Channel) -> schemas.AlertChannel:
    is_command = it.kind == COMMAND
    shown = {"url": None, "secret": None, "to": None, **render_channel(it)}
    return schemas.AlertChannel(
        **shown, version=0 if is_command else it.version, created_at=render.when(it.created_at or None),
        updated_at=render.when(it.updated_at or None),
    )  # fmt: skip


def shown_alert(it: Alert) -> schemas.Alert:
    return schemas.Alert(
        it.id, it.rule, it.subject, it.name, it.count, render.stamp(it.since_at), render.stamp(it.last_at), it.text,
        it.run_id, render.when(it.told_at), render.when(it.acked_at), it.acked_by or None,
    )  # fmt: skip


def shown_delivery(it: Delivery) -> schemas.AlertDelivery:
    return schemas.AlertDelivery(
        it.id, it.rule, it.channel, it.message["title"], it.state, it.tries, render.stamp(it.made_at),
        render.when(it.next_at) if it.state == "waiting" else None, render.when(it.sent_at), it.error,
    )  # fmt: skip
