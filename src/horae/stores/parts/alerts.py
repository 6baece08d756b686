"""Alerts: rules, channels, what is going on, and what is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import structlog

from horae.core.alerts.channels import Channel, channel_from, channel_text
from horae.core.alerts.messages import Group, Spoken
from horae.core.alerts.rules import Rule, rule_from, rule_text
from horae.core.alerts.signs import Disk, JobFacts, Late
from horae.core.alerts.states import Alert, AlertState, Key, key_of
from horae.core.events import Cursor
from horae.core.insight.baselines import TOLD
from horae.core.model import SECOND, Json, Moment
from horae.core.work.policies import policy_from_text
from horae.errors import Error
from horae.ports.store.alerts import READER, Delivery
from horae.stores.database import Database, Steps
from horae.stores.events import EventPart
from horae.stores.rows import Row, decode, encode

T = TypeVar("T")
log = structlog.get_logger()

_SAVED = tuple(name for name in Alert.__slots__ if name != "id")  # as save_alerts takes them


class AlertPart(EventPart, Database):
    """Of what somebody is told."""

    # ── rules and channels ──
    async def list_alert_rules(self, org: int | None = None) -> list[Rule]:
        rows = await self._get("list_alert_rules", org)
        return [rule for row in rows if (rule := _readable(_rule_of, row)) is not None]

    async def load_spoken(self) -> dict[tuple[int, str], Spoken]:
        return {(row[0], row[1]): Spoken(row[2], row[3]) for row in await self._get("load_spoken")}

    async def save_alert_rule(self, rule: Rule, expected: int | None, *, begins_anew: bool) -> Rule | None:
        now, place = await self.now(), str(await self.last_event())

        def steps() -> Steps[Rule | None]:
            rows = yield "save_alert_rule", rule.org, rule.name, rule_text(rule), now, expected
            if not rows:
                return None
            if begins_anew:
                yield "drop_alerts_of", rule.org, rule.name
            yield "begin_reader", READER, place
            return _rule_of(rows[0])

        return await self._transact(steps)

    async def delete_alert_rule(self, org: int, name: str) -> bool:
        def steps() -> Steps[bool]:
            gone = yield "delete_alert_rule", org, name
            if gone:
                yield "drop_alerts_of", org, name
                yield "drop_deliveries_of", org, name
                yield "end_reader", READER
            return bool(gone)

        return await self._transact(steps)

    async def list_alert_channels(self, org: int) -> list[Channel]:
        rows = await self._get("list_alert_channels", org)
        return [channel for row in rows if (channel := _readable(_channel_of, row)) is not None]

    async def save_alert_channel(self, channel: Channel, expected: int | None) -> Channel | None:
        values = (channel.org, channel.name, channel_text(channel), await self.now(), expected)
        rows = await self._put("save_alert_channel", *values)
        return _channel_of(rows[0]) if rows else None

    async def delete_alert_channel(self, org: int, name: str) -> bool:
        return bool(await self._put("delete_alert_channel", org, name))

    # ── what is going on ──
    async def load_job_facts(self, job_ids: Sequence[int]) -> dict[int, JobFacts]:
        rows = await self._get("load_job_facts", self._list(job_ids))
        return {
            job_id: JobFacts(job_id, org, owner, name, key, policy_from_text(policy).queue, part_of is not None)
            for job_id, org, owner, name, key, policy, part_of in rows
        }

    async def find_tasks(self, run_ids: Sequence[int]) -> set[int]:
        return {row[0] for row in await self._get("find_tasks", self._list(run_ids))}

    async def load_alerts(self, subjects: Sequence[str]) -> dict[Key, Alert]:
        return _by_key(await self._get("load_alerts", self._list(subjects)))

    async def load_alerts_of(self, rules: Sequence[str]) -> dict[Key, Alert]:
        return _by_key(await self._get("load_alerts_of", self._list(rules)))

    async def save_alerts(
        self, changed: Mapping[Key, Alert | None], moved: tuple[Cursor, Cursor] | None = None
    ) -> bool:
        kept = [{name: getattr(it, name) for name in _SAVED} for it in changed.values() if it is not None]
        gone = [key for key, it in changed.items() if it is None]

        def steps() -> Steps[bool]:
            if moved is not None and not (yield "move_reader", READER, *map(str, moved)):
                return False
            if kept:
                yield "save_alerts", encode(kept)
            if gone:
                rows = yield "load_alerts", self._list(sorted({key[2] for key in gone}))
                yield "drop_alerts", self._list([it.id for key, it in _by_key(rows).items() if key in set(gone)])
            return True

        return await self._transact(steps)

    async def remind(self, now: Moment) -> int:
        return len(await self._put("remind", now))

    async def list_alerts(self, org: int | None, after: int, limit: int) -> list[Alert]:
        return [_alert_of(row) for row in await self._get("list_alerts", org, after, limit)]

    async def acknowledge(self, org: int | None, alert_id: int, by: str, now: Moment) -> Alert | None:
        rows = await self._put("acknowledge", org, alert_id, now, by)
        return _alert_of(rows[0]) if rows else None

    async def list_late(self, before: Moment, limit: int) -> list[Late]:
        return [Late(*row) for row in await self._get("list_late", before, limit)]

    async def list_unusual(self, limit: int) -> list[int]:
        return [row[0] for row in await self._get("list_unusual", TOLD, limit)]

    async def save_disk(self, node: str, used: float, at: Moment) -> None:
        await self._put("save_disk", node, used, at)

    async def load_disks(self, since: Moment) -> list[Disk]:
        return [Disk(*row) for row in await self._get("load_disks", since)]

    # ── what is told ──
    async def load_groups(self) -> list[Group]:
        return [Group(*row[:2], *(int(each) for each in row[2:])) for row in await self._get("load_groups")]

    async def load_pending(self, org: int, rule: str, limit: int) -> list[Alert]:
        return [_alert_of(row) for row in await self._get("load_pending", org, rule, limit)]

    async def tell(self, group: Group, rule: Rule, spoken: Spoken, message: Json, now: Moment) -> bool:
        org, name = group.org, group.rule

        def steps() -> Steps[bool]:
            rows = yield "count_message", org, name, spoken.messages, now
            if not rows:
                return False
            yield "told_open", org, name, now, now + round(rule.repeat * SECOND)
            yield "told_again", org, name, now
            yield "told_closed", org, name, now
            yield "add_deliveries", org, name, rows[0][0], self._list(rule.channels), encode(message), now
            return True

        return await self._transact(steps)

    async def take_deliveries(self, now: Moment, until: Moment, limit: int) -> list[Delivery]:
        return [_delivery_of(row) for row in await self._put("take_deliveries", now, until, limit)]

    async def settle_delivery(self, settled: Delivery) -> None:
        it = settled
        await self._put("settle_delivery", it.id, it.tries, it.state, it.next_at, it.sent_at, it.error)

    async def next_delivery(self) -> Moment | None:
        found: Moment | None = (await self._get("next_delivery"))[0][0]
        return found

    async def list_deliveries(self, org: int, limit: int) -> list[Delivery]:
        return [_delivery_of(row) for row in await self._get("list_deliveries", org, limit)]

    async def drop_deliveries(self, before: Moment) -> None:
        await self._put("drop_deliveries", before)


def _readable(read: Callable[[Row], T], row: Row) -> T | None:
    """Return what a row holds; None where a newer version wrote it, or one that knows more time zones: nobody is to go
    without all others for its sake."""
    try:
        return read(row)
    except Error as error:
        log.error("alerts.unreadable", org=row[0], name=row[1], why=error.message)
        return None


def _rule_of(row: Row) -> Rule:
    org, name, document, version, created_at, updated_at = row
    return rule_from(document, name, org=org, version=version, created_at=created_at, updated_at=updated_at)


def _channel_of(row: Row) -> Channel:
    org, name, document, version, created_at, updated_at = row
    return channel_from(document, name, org=org, version=version, created_at=created_at, updated_at=updated_at)


def _by_key(rows: Sequence[Row]) -> dict[Key, Alert]:
    return {key_of(alert): alert for alert in map(_alert_of, rows)}


def _alert_of(row: Row) -> Alert:
    values = dict(zip(Alert.__slots__, row, strict=True))
    return Alert(**{**values, "state": AlertState(values["state"]), "stands": bool(values["stands"])})


def _delivery_of(row: Row) -> Delivery:
    return Delivery._make((*row[:5], decode(row[5]), *row[6:]))
