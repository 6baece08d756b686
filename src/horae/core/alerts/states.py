"""Alerts, and what becomes of one by a sign.

    counting ──► open ──► closed                    closed is told, and then it is gone
       ▲          ▲ ◄───────┘ bad again
       └──── good: gone

What must stay true: signs of one subject are followed in their order; what is told depends on them alone, not on how
they were cut into batches. An alert that was opened is told once, however often the bad sign comes again, until it is
told anew after `repeat`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from horae.core.alerts.rules import About, Rule
from horae.core.model import SECOND, Moment

MAX_TEXT = 500  # characters of what was seen


class AlertState(StrEnum):
    COUNTING = "counting"  # not as often in a row as the rule says
    OPEN = "open"
    CLOSED = "closed"  # it is over, and that is to be told


@dataclass(frozen=True, slots=True)
class Alert:
    """Something of which a rule is."""

    id: int  # 0: it was not kept yet
    org: int
    rule: str
    subject: str  # job:12, node:a, queue:default; empty: all that the rule is of
    name: str  # of the subject, for people
    state: AlertState
    streak: int  # bad signs in a row
    count: int  # bad signs since it opened
    since_at: Moment  # the first of them
    last_at: Moment  # the last
    text: str = ""  # what was seen then
    run_id: int | None = None
    changed_at: Moment | None = None  # since when there is something to tell
    told_count: int = 0  # bad signs when it was last told
    told_at: Moment | None = None
    remind_at: Moment | None = None  # from when on it is told again
    acked_at: Moment | None = None
    acked_by: str = ""
    stands: bool = False  # it goes on while it is open, though no event says so


class Sign(NamedTuple):
    """What was seen of a subject."""

    when: str  # of CONDITIONS
    subject: str
    name: str
    about: About
    is_bad: bool
    at: Moment
    text: str = ""
    run_id: int | None = None
    amount: float | None = None  # seconds or percent, which each rule judges by its own limit


Key = tuple[int, str, str]  # organisation, rule, subject


def key_of(alert: Alert) -> Key:
    return alert.org, alert.rule, alert.subject


def follow_all(
    rules: Iterable[Rule], alerts: Mapping[Key, Alert], signs: Iterable[Sign], now: Moment
) -> dict[Key, Alert | None]:
    """Return what has become of alerts by these signs, of those that they changed: None of one that is no more."""
    by_condition: dict[str, list[Rule]] = {}
    for rule in rules:
        if rule.enabled:
            by_condition.setdefault(rule.when, []).append(rule)
    changed: dict[Key, Alert | None] = {}
    for sign in signs:
        for rule in by_condition.get(sign.when, ()):
            if rule.covers(sign.about) and (sign.at >= rule.created_at or not sign.is_bad):
                key = (rule.org, rule.name, subject_of(rule, sign))
                before = changed[key] if key in changed else alerts.get(key)
                judged = judge(rule, sign)
                after = before if judged is None else follow(rule, before, judged, now)
                if after != before:
                    changed[key] = after
    return changed


def judge(rule: Rule, sign: Sign) -> Sign | None:
    """Return the sign as this rule takes it: what is beyond its limit is bad. None: it says nothing, as of what waits
    and may still be in time."""
    if sign.amount is None:
        return sign
    is_beyond = sign.amount > (rule.after or rule.above or 0.0)
    return sign._replace(is_bad=is_beyond) if is_beyond or not sign.is_bad else None


def follow_look(
    rules: Sequence[Rule], when: str, alerts: Mapping[Key, Alert], signs: Sequence[Sign], now: Moment
) -> dict[Key, Alert | None]:
    """As follow_all, of all that was seen under a condition: what is open and was not seen any more is over."""
    changed = follow_all(rules, alerts, signs, now)
    named = {(rule.org, rule.name): rule for rule in rules if rule.when == when and rule.enabled}
    seen = {sign.subject for sign in signs}
    for key, alert in alerts.items():
        rule = named.get(key[:2])
        if rule is not None and alert.state is AlertState.OPEN and alert.subject not in seen:
            changed[key] = follow(rule, alert, Sign(when, alert.subject, alert.name, About(), False, now), now)
    return changed


def subject_of(rule: Rule, sign: Sign) -> str:
    """Return of what the alert is: silence is that of all that a rule is of."""
    return "" if rule.when == "silent" else sign.subject


def follow(rule: Rule, alert: Alert | None, sign: Sign, now: Moment) -> Alert | None:
    """Return the alert after a sign; None: there is none."""
    if sign.is_bad:
        return _worse(rule, alert, sign, now)
    return _heard(rule, alert, sign, now) if rule.when == "silent" else _better(rule, alert, now)


def _worse(rule: Rule, alert: Alert | None, sign: Sign, now: Moment) -> Alert:
    if alert is None:
        alert = _new(rule, sign, AlertState.COUNTING)
    if rule.is_standing and alert.state is AlertState.OPEN:
        return alert if alert.text == sign.text else replace(alert, last_at=sign.at, text=sign.text[:MAX_TEXT])
    if alert.state is AlertState.OPEN and rule.when == "late" and alert.run_id == sign.run_id:
        return replace(alert, text=sign.text[:MAX_TEXT])  # the same run, seen again
    streak = alert.streak + 1
    alert = replace(
        alert, streak=streak, last_at=sign.at, text=sign.text[:MAX_TEXT], run_id=sign.run_id, name=sign.name
    )
    if alert.state is AlertState.OPEN:
        return replace(alert, count=alert.count + 1)
    return _opened(rule, alert, now) if streak >= rule.count or rule.is_standing else alert


def _new(rule: Rule, sign: Sign, state: AlertState) -> Alert:
    return Alert(
        0, rule.org, rule.name, subject_of(rule, sign), sign.name, state, 0, 0, sign.at, sign.at,
        stands=rule.is_standing,
    )  # fmt: skip


def _opened(rule: Rule, alert: Alert, now: Moment) -> Alert:
    """Open it; one that was closed a moment ago, and not told, goes on."""
    goes_on = alert.state is AlertState.CLOSED
    is_told = rule.tell != "recovery"
    changed_at = (alert.changed_at or now) if is_told else None
    count = alert.count + alert.streak if goes_on else alert.streak
    return replace(
        alert, state=AlertState.OPEN, count=max(1, count), changed_at=changed_at, acked_at=None, acked_by=""
    )  # fmt: skip


def _better(rule: Rule, alert: Alert | None, now: Moment) -> Alert | None:
    if alert is None or alert.state is AlertState.COUNTING:
        return None
    if alert.state is AlertState.CLOSED:
        return replace(alert, streak=0) if alert.streak else alert
    changed_at = alert.changed_at or (now if rule.tell != "trouble" else None)
    if changed_at is None:
        return None
    return replace(alert, state=AlertState.CLOSED, streak=0, changed_at=changed_at)


def _heard(rule: Rule, alert: Alert | None, sign: Sign, now: Moment) -> Alert:
    """Of a rule on silence: something succeeded. Its alert is never gone, for it knows when that was."""
    if alert is None:
        return replace(_new(rule, sign, AlertState.COUNTING), streak=1)
    last_at = max(alert.last_at, sign.at)
    if alert.state is not AlertState.OPEN:
        return replace(alert, last_at=last_at)
    changed_at = alert.changed_at or (now if rule.tell != "trouble" else None)
    state = AlertState.COUNTING if changed_at is None else AlertState.CLOSED
    return replace(alert, state=state, last_at=last_at, streak=1, changed_at=changed_at)


def find_silent(rules: Iterable[Rule], alerts: Mapping[Key, Alert], now: Moment) -> dict[Key, Alert]:
    """Return what has become of the alerts of rules on silence, by the clock alone."""
    changed: dict[Key, Alert] = {}
    for rule in rules:
        if rule.when != "silent" or not rule.enabled or rule.after is None:
            continue
        key = (rule.org, rule.name, "")
        alert = alerts.get(key)
        sign = Sign("silent", "", rule.scope, About(rule.org), False, now)
        if alert is None:
            changed[key] = _heard(rule, None, sign, now)  # from now on
        elif alert.state is not AlertState.OPEN and now - alert.last_at > rule.after * SECOND:
            opened = _opened(rule, replace(alert, text="no run has succeeded"), now)
            changed[key] = replace(opened, count=1, since_at=alert.last_at)
    return changed


def after_telling(alert: Alert, rule: Rule, now: Moment) -> Alert | None:
    """Return an alert of which was told; None: it is over. As the stores write it."""
    if alert.state is AlertState.OPEN:
        return replace(
            alert, changed_at=None, told_at=now, told_count=alert.count, remind_at=now + round(rule.repeat * SECOND)
        )
    if not alert.streak:
        return None
    return replace(
        alert,
        state=AlertState.COUNTING,
        changed_at=None,
        told_at=None,
        told_count=0,
        count=0,
        remind_at=None,
        since_at=alert.last_at,
    )


def is_to_remind(alert: Alert, now: Moment) -> bool:
    """Return whether an alert is to be told again: it goes on, or happened again, and nobody has said that he knows."""
    return (
        alert.state is AlertState.OPEN and alert.acked_at is None and alert.changed_at is None
        and alert.remind_at is not None and alert.remind_at <= now
        and (alert.stands or alert.count > alert.told_count)
    )  # fmt: skip
