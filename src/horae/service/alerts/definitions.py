"""Rules and channels: made, changed, tried and deleted; what is open, and who knows of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from horae.core.alerts.channels import COMMAND, MAX_CHANNELS, Channel, parse_channel, render_channel
from horae.core.alerts.messages import compose_test
from horae.core.alerts.rules import MAX_RULES, Rule, parse_rule, render_rule
from horae.core.alerts.states import Alert
from horae.core.model import DEFAULT_ORG
from horae.core.secrets.references import missing_words
from horae.core.spelling import suggest
from horae.errors import Conflict, Invalid, NotFound, Stale
from horae.ports import deeds
from horae.ports.alerts import Teller, Undelivered
from horae.ports.clock import Clock
from horae.ports.store.alerts import AlertMessages, AlertRules, Alerts, Delivery
from horae.ports.store.moments import StoreClock
from horae.ports.transport import Queue
from horae.service.secrets.named import Secrets


class DefinitionStore(AlertRules, Alerts, AlertMessages, StoreClock, Protocol):
    """Rules, channels, and what came of them."""


class Tried(NamedTuple):
    """What came of a test."""

    is_sent: bool
    detail: str
    seconds: float


class AlertDefinitions:
    def __init__(
        self, store: DefinitionStore, queue: Queue, clock: Clock, secrets: Secrets, teller: Teller, installation: str
    ) -> None:
        self._store = store
        self._queue = queue
        self._clock = clock
        self._secrets = secrets
        self._teller = teller
        self._installation = installation or "horae"

    # ── rules ──
    async def rules(self, org: int) -> list[Rule]:
        return await self._store.list_alert_rules(org)

    async def rule(self, org: int, name: str) -> Rule:
        found: Rule = _named(await self.rules(org), name, "alert rule", "horae alerts rules")
        return found

    async def put_rule(self, org: int, name: str, document: Any, expected: int | None = None) -> tuple[Rule, bool]:
        """Make a rule, or replace it; returns it, and whether it is new. With `expected`, only if it has that
        version."""
        wanted = replace(parse_rule(document, name), org=org)
        await self._check_channels(wanted)
        known = {rule.name: rule for rule in await self.rules(org)}
        before = known.get(name)
        if before is None and len(known) >= MAX_RULES:
            raise Conflict(f"there are {MAX_RULES} alert rules, and that is the limit", code="E_LIMIT")
        begins_anew = before is not None and before.watches != wanted.watches
        deeds.note_change(None if before is None else render_rule(before), render_rule(wanted))
        saved = await self._store.save_alert_rule(wanted, expected, begins_anew=begins_anew)
        if saved is None:
            raise _stale("alert rule", name, before)
        self._queue.announce("alerts")
        return saved, before is None

    async def _check_channels(self, rule: Rule) -> None:
        known = {channel.name for channel in await self.channels(rule.org)}
        for index, name in enumerate(rule.channels):
            if name not in known:
                hint = suggest(name, known, repr) or f"make it first: PUT /v1/alerts/channels/{name}"
                raise Invalid(
                    f"channels[{index}]: there is no channel '{name}'", code="E_CHANNEL_UNKNOWN", hint=hint,
                    path=f"channels[{index}]",
                )  # fmt: skip

    async def delete_rule(self, org: int, name: str) -> None:
        deeds.note_change(render_rule(await self.rule(org, name)), None)
        await self._store.delete_alert_rule(org, name)
        self._queue.announce("alerts")

    # ── channels ──
    async def channels(self, org: int) -> list[Channel]:
        """Return those of an organisation, and the commands of the settings, which are of whoever runs the server."""
        ours = await self._store.list_alert_channels(org)
        if org != DEFAULT_ORG:
            return ours
        taken = {channel.name for channel in ours}
        commands = [Channel(name, COMMAND, org=org) for name in self._teller.commands if name not in taken]
        return sorted(ours + commands, key=lambda channel: channel.name)

    async def channel(self, org: int, name: str) -> Channel:
        found: Channel = _named(await self.channels(org), name, "channel", "horae alerts channels")
        return found

    async def put_channel(
        self, org: int, name: str, document: Any, expected: int | None = None
    ) -> tuple[Channel, bool]:
        """As put_rule."""
        wanted = replace(parse_channel(document, name), org=org)
        known = {channel.name: channel for channel in await self.channels(org)}
        before = known.get(name)
        if before is not None and before.kind == COMMAND:
            message = f"the channel '{name}' is a command of the settings, and is changed there"
            raise Conflict(message, hint="choose another name")
        if before is None and len(known) >= MAX_CHANNELS:
            raise Conflict(f"there are {MAX_CHANNELS} channels, and that is the limit", code="E_LIMIT")
        deeds.note_change(None if before is None else render_channel(before), render_channel(wanted))
        saved = await self._store.save_alert_channel(wanted, expected)
        if saved is None:
            raise _stale("channel", name, before)
        return saved, before is None

    async def delete_channel(self, org: int, name: str) -> None:
        if users := [rule.name for rule in await self.rules(org) if name in rule.channels]:
            message = f"the channel '{name}' is needed by the alert rule {users[0]}"
            raise Conflict(message, code="E_CHANNEL_IN_USE", hint="let the rule name another channel, or delete it")
        found = await self.channel(org, name)
        if found.kind == COMMAND:
            raise Conflict(f"the channel '{name}' is a {found.kind} of the settings", hint="remove it there")
        deeds.note_change(render_channel(found), None)
        await self._store.delete_alert_channel(org, name)

    async def try_channel(self, org: int, name: str) -> Tried:
        """Send one message, now and from here; return what came of it."""
        channel, began = await self.channel(org, name), self._clock.elapsed()
        now = await self._store.now()
        try:
            key = f"{self._installation}.test.{now}"
            await send(self._teller, self._secrets, channel, compose_test(name, now), key)
        except Undelivered as error:
            return Tried(False, error.message, self._clock.elapsed() - began)
        return Tried(True, "it was taken", self._clock.elapsed() - began)

    # ── what is going on ──
    async def open_alerts(self, org: int | None, after: int, limit: int) -> list[Alert]:
        return await self._store.list_alerts(org, after, limit)

    async def acknowledge(self, org: int | None, alert_id: int, by: str) -> Alert:
        found = await self._store.acknowledge(org, alert_id, by, await self._store.now())
        if found is None:
            raise NotFound(f"no alert {alert_id} is open", hint="`horae alerts` lists those that are")
        return found

    async def deliveries(self, org: int, limit: int) -> list[Delivery]:
        return await self._store.list_deliveries(org, limit)


async def send(teller: Teller, secrets: Secrets, channel: Channel, message: Any, key: str) -> None:
    """Send a message with the secrets that its channel names. Undelivered where one is not there."""
    names = channel.secrets
    values = await secrets.resolve(channel.org, names, f"channel {channel.name}") if names else {}
    for name in names:
        if values.get(name) is None:
            raise Undelivered(missing_words(name, values))
    await teller.send(channel, {name: value for name, value in values.items() if value is not None}, message, key)


def _named(items: Iterable[Any], name: str, what: str, command: str) -> Any:
    found = {item.name: item for item in items}
    if name not in found:
        hint = suggest(name, found, repr) or f"`{command}` lists them"
        raise NotFound(f"there is no {what} '{name[:64]}'", hint=hint)
    return found[name]


def _stale(what: str, name: str, before: Rule | Channel | None) -> Stale:
    there = "is not there" if before is None else f"is at version {before.version}"
    return Stale(f"the {what} '{name}' {there}: read it again, then repeat the change")
