"""Messages: when what is to be told of a rule is told, all of it together, and in which words.

What must stay true: however much happens, a rule makes one message in `every`; the first comes when nothing more has
happened for `wait`, and in any case after LONGEST times that; none in quiet hours, after which all of it is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from horae.core.alerts.rules import Quiet, Rule
from horae.core.alerts.states import Alert, AlertState
from horae.core.model import SECOND, Json, Moment
from horae.core.time import moments

LONGEST = 9  # times `wait`: then it is told, though more happens
SHOWN = 20  # alerts of a message that are named one by one; the rest is counted
FIRST_PAUSE, LONGEST_PAUSE = 10 * SECOND, 3600 * SECOND  # between two tries of a delivery
GIVEN_UP = 24 * 3600 * SECOND  # after which a delivery is tried no more
_MINUTE = 60

_TROUBLE = {
    "failure": "{name} failed{times}", "missed": "{name} missed its moment{times}", "late": "{name} is late{times}",
    "slow": "{name} takes unusually long", "silent": "nothing has succeeded for too long: {name}",
    "node_gone": "{name} is gone", "queue_waiting": "{name} waits for too long", "disk_full": "{name} is short of disk",
}  # fmt: skip
_OVER = {
    "failure": "{name} succeeds again", "missed": "{name} is in time again", "late": "{name} begins in time again",
    "slow": "{name} takes as long as usual again", "silent": "something has succeeded again: {name}",
    "node_gone": "{name} is back", "queue_waiting": "{name} waits no longer", "disk_full": "{name} has room again",
}  # fmt: skip
_MANY = {
    "failure": "{n} jobs failed, {times} in all", "missed": "{n} jobs missed their moment, {times} in all",
    "late": "{n} jobs are late, {times} in all", "slow": "{n} jobs take unusually long",
    "silent": "nothing has succeeded for too long", "node_gone": "{n} nodes are gone",
    "queue_waiting": "{n} queues wait for too long", "disk_full": "{n} nodes are short of disk",
}  # fmt: skip


class Group(NamedTuple):
    """What is to be told of a rule."""

    org: int
    rule: str
    opened: int  # alerts that are open
    closed: int  # and those that are over
    times: int  # bad signs of which nobody was told
    first_at: Moment  # since when there is something to tell
    last_at: Moment  # when the last of it happened


class Spoken(NamedTuple):
    """How often a rule has told something, and when the last time."""

    messages: int = 0
    told_at: Moment | None = None


# ── when ──


def due_at(rule: Rule, group: Group, told_at: Moment | None) -> Moment:
    """Return when a group is told."""
    wait = round(rule.wait * SECOND)
    ready = min(max(group.last_at, group.first_at) + wait, group.first_at + LONGEST * wait)
    if told_at is not None:
        ready = max(ready, told_at + round(rule.every * SECOND))
    return ready if rule.quiet is None else quiet_until(rule.quiet, ready)


def quiet_until(quiet: Quiet, at: Moment) -> Moment:
    """Return the end of the quiet hours in which a moment lies; the moment itself, where it lies in none."""
    where = moments.zone(quiet.zone)
    local = datetime.fromtimestamp(at / SECOND, where)
    minute = local.hour * _MINUTE + local.minute
    is_within = (
        quiet.begin <= minute < quiet.end
        if quiet.begin < quiet.end
        else minute >= quiet.begin or minute < quiet.end
    )  # fmt: skip
    if not is_within:
        return at
    day = local.date() if minute < quiet.end else local.date() + timedelta(days=1)
    end = datetime(day.year, day.month, day.day, quiet.end // _MINUTE, quiet.end % _MINUTE, tzinfo=where)
    return max(at, round(end.timestamp()) * SECOND)


def next_try(tries: int, now: Moment, made_at: Moment) -> Moment | None:
    """Return when a delivery that failed so often is tried again; None: never."""
    at = now + min(LONGEST_PAUSE, FIRST_PAUSE << min(tries - 1, 20))
    return at if at - made_at <= GIVEN_UP else None


# ── in which words ──


def compose(rule: Rule, group: Group, shown: Sequence[Alert], now: Moment) -> Json:
    """Return the message of a group; `shown` are the first of its alerts."""
    title = _title(rule, group, shown)
    lines = [_line(rule, alert) for alert in shown]
    more = group.opened + group.closed - len(shown)
    if more > 0:
        lines.append(f"and {more} more")
    return {
        "rule": rule.name, "when": rule.when, "title": title, "text": "\n".join(lines), "opened": group.opened,
        "closed": group.closed, "count": group.times, "at": moments.format_moment(now),
        "alerts": [_shown(alert) for alert in shown], "more": max(0, more),
    }  # fmt: skip


def compose_test(channel: str, now: Moment) -> Json:
    """Return a message by which somebody tries a channel."""
    return {
        "rule": "test", "when": "test", "title": f"a test of the channel {channel}",
        "text": "Horae can tell you something by this channel.", "opened": 0, "closed": 0, "count": 0,
        "at": moments.format_moment(now), "alerts": [], "more": 0,
    }  # fmt: skip


def _title(rule: Rule, group: Group, shown: Sequence[Alert]) -> str:
    if group.opened + group.closed == 1 and shown:
        return f"{rule.name}: {_words(rule, shown[0])}"
    parts = []
    if group.opened:
        times = "once" if group.times == 1 else f"{group.times} times"
        parts.append(_MANY[rule.when].format(n=group.opened, times=times))
    if group.closed:
        parts.append(f"{group.closed} {'is' if group.closed == 1 else 'are'} well again")
    return f"{rule.name}: {'; '.join(parts)}"


def _words(rule: Rule, alert: Alert) -> str:
    if alert.state is AlertState.CLOSED:
        words = _OVER[rule.when].format(name=alert.name)
        return words if alert.told_at is not None else f"{words}, after trouble ({_times(alert)})"
    again = "still: " if alert.told_at is not None else ""
    count = alert.count - alert.told_count
    return again + _TROUBLE[rule.when].format(name=alert.name, times=f" {count} times" if count > 1 else "")


def _times(alert: Alert) -> str:
    return "once" if alert.count == 1 else f"{alert.count} times"


def _line(rule: Rule, alert: Alert) -> str:
    seen = f": {alert.text}" if alert.text and alert.state is AlertState.OPEN else ""
    run = f" (run {alert.run_id})" if alert.run_id is not None else ""
    return f"{_words(rule, alert)}, since {moments.format_moment(alert.since_at)}{seen}{run}"


def _shown(alert: Alert) -> Json:
    return {
        "id": alert.id, "subject": alert.subject, "name": alert.name, "state": str(alert.state), "count": alert.count,
        "since_at": moments.format_moment(alert.since_at), "last_at": moments.format_moment(alert.last_at),
        "text": alert.text, "run": alert.run_id,
    }  # fmt: skip
