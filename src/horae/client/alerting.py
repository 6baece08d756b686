"""The calls about alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from horae.client.making import get, send
from horae.client.steps import Call
from horae.client.wire import to_address

if TYPE_CHECKING:
    from horae.schemas import (
        Alert,
        AlertChannel,
        AlertChannelPage,
        AlertDeliveryPage,
        AlertPage,
        AlertRule,
        AlertRulePage,
        AlertTest,
    )


def alerts(cursor: str | None = None) -> Call[AlertPage]:
    """What is going on, oldest first."""
    return get(to_address("/v1/alerts", {"cursor": cursor}), has="items")


def acknowledge_alert(alert_id: int) -> Call[Alert]:
    """Say that somebody knows of it: it is told no more, until it is over."""
    return send("POST", f"/v1/alerts/{alert_id}/ack")


def alert_deliveries() -> Call[AlertDeliveryPage]:
    """What was told, newest first."""
    return get("/v1/alerts/deliveries", has="items")


def alert_rules() -> Call[AlertRulePage]:
    """Alert rules by name."""
    return get("/v1/alerts/rules", has="items")


def set_alert_rule(name: str, document: Mapping[str, Any]) -> Call[AlertRule]:
    """Make or replace an alert rule."""
    return send("PUT", f"/v1/alerts/rules/{quote(name, safe='')}", document)


def delete_alert_rule(name: str) -> Call[None]:
    """Delete an alert rule, with all that is open under it."""
    return send("DELETE", f"/v1/alerts/rules/{quote(name, safe='')}")


def alert_channels() -> Call[AlertChannelPage]:
    """Channels by name."""
    return get("/v1/alerts/channels", has="items")


def set_alert_channel(name: str, document: Mapping[str, Any]) -> Call[AlertChannel]:
    """Make or replace a channel."""
    return send("PUT", f"/v1/alerts/channels/{quote(name, safe='')}", document)


def delete_alert_channel(name: str) -> Call[None]:
    """Delete a channel that no rule names."""
    return send("DELETE", f"/v1/alerts/channels/{quote(name, safe='')}")


def try_alert_channel(name: str) -> Call[AlertTest]:
    """Send one message by a channel; the answer says what came of it."""
    return send("POST", f"/v1/alerts/channels/{quote(name, safe='')}/test")
