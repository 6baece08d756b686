"""The policy of a job: from its document, to the text that is stored, and back.

What must stay true: equal policies have equal text, and what has its default is left out of it.
"""

from __future__ import annotations

import json
import re
from enum import IntEnum
from functools import lru_cache
from typing import TypeVar

from horae.core.fields import ABSENT, MAX_SECONDS, Fields, encode, fields_of, kind_of, read_labels, shown, type_words
from horae.core.model import (
    EVERY_AGENT,
    After,
    ConcurrencyLimit,
    Debounce,
    Json,
    Misfire,
    Overlap,
    Policy,
    RateLimit,
    Retry,
)
from horae.core.policy import queues
from horae.core.policy.dependencies import read_after
from horae.core.policy.limits import LARGEST_BURST, parse_rate
from horae.core.policy.resources import Asks, read_resources, render_resources, resources_from
from horae.core.spelling import suggest
from horae.core.time.moments import HORIZON
from horae.errors import Invalid

MAX_WAITING = 1000  # runs of one job that may wait, and missed moments that may be made up for
MAX_CLASSES = 50  # of exceptions
MAX_CLASS = 200  # characters of the name of one
MAX_FAILURES = 1000  # in a row, after which a job pauses itself
MAX_LIMITS = 8  # rates of one job, and as many other limits
MOST_AT_ONCE = 1_000_000  # runs
SHARE_PATTERN = r"owner|data(?:\.[^.\s]+)+"
_DEFAULT = Policy()
POLICY_FIELDS = frozenset({
    "policy", "timeout", "retry", "overlap", "concurrency", "misfire", "start_deadline", "priority", "labels", "queue",
    "share", "pause_after_failures", "rate_limits", "concurrency_limits", "resources", "after", "debounce",
    "every", "tags",
})  # fmt: skip
_Choice = TypeVar("_Choice", bound=IntEnum)


def read_policy(fields: Fields, implied: tuple[str, ...] = ()) -> Policy:
    """`implied` are labels that the work itself asks for."""
    if POLICY_FIELDS.isdisjoint(fields.values) and not implied:
        return _DEFAULT
    if "policy" in fields.values:
        return _read_shown(fields, implied)
    if "concurrency" in fields.values and "overlap" in fields.values:
        message = "another name for overlap, which is also there"
        fields.fault("concurrency", "E_FIELD_CONFLICT", message, "keep overlap")
    written = "concurrency" if "concurrency" in fields.values else "overlap"
    overlap = _read_choice(fields, written, Overlap.FORBID, Overlap.QUEUE, 1, _DEFAULT.overlap_limit)
    misfire = _read_choice(fields, "misfire", Misfire.RUN_LATEST, Misfire.RUN_ALL, 0, _DEFAULT.misfire_limit)
    return Policy(
        *overlap,
        *misfire,
        retry=_read_retry(fields),
        timeout_seconds=fields.seconds("timeout", None, 1),
        start_deadline_seconds=fields.seconds("start_deadline", None, 1),
        priority=_read_priority(fields),
        labels=read_labels(fields, implied),
        tags=read_labels(fields, name="tags"),
        queue=_read_queue(fields),
        share=_read_share(fields),
        pause_after_failures=fields.number("pause_after_failures", None, 1, MAX_FAILURES, whole=True),
        rate_limits=_read_rates(fields),
        concurrency_limits=_read_concurrency(fields),
        resources=read_resources(fields),
        after=read_after(fields),
        debounce=_read_debounce(fields),
        every=_read_every(fields),
    )


def _read_shown(fields: Fields, implied: tuple[str, ...]) -> Policy:
    """Return the policy in the form in which the API shows it (render_policy); what is left out has its default."""
    for name in sorted(POLICY_FIELDS & fields.values.keys() - {"policy"}):
        fields.fault(name, "E_FIELD_CONFLICT", "stands beside policy", "write all of it inside policy, or none")
    inner = fields_of(fields.values["policy"], fields.at("policy"), fields.problems, "must be a mapping")
    if inner is None:
        return _DEFAULT
    inner.refuse_others(_SHOWN_FIELDS)
    inner = Fields(
        {name: value for name, value in inner.values.items() if value is not None}, inner.path, inner.problems
    )
    return Policy(
        overlap=_read_word(inner, "overlap", _DEFAULT.overlap),
        overlap_limit=inner.number("overlap_limit", _DEFAULT.overlap_limit, 1, MAX_WAITING, whole=True),
        misfire=_read_word(inner, "misfire", _DEFAULT.misfire),
        misfire_limit=inner.number("misfire_limit", _DEFAULT.misfire_limit, 0, MAX_WAITING, whole=True),
        retry=_read_shown_retry(inner),
        timeout_seconds=inner.number("timeout_seconds", None, 1, MAX_SECONDS),
        start_deadline_seconds=inner.number("start_deadline_seconds", None, 1, MAX_SECONDS),
        priority=_read_priority(inner),
        labels=read_labels(inner, implied),
        tags=read_labels(inner, name="tags"),
        queue=_read_queue(inner),
        share=_read_share(inner),
        pause_after_failures=inner.number("pause_after_failures", None, 1, MAX_FAILURES, whole=True),
        rate_limits=_read_rates(inner),
        concurrency_limits=_read_concurrency(inner),
        resources=read_resources(inner),
        after=read_after(inner),
        debounce=_read_debounce(inner),
        every=_read_every(inner),
        offered=inner.flag("offered") or False,
        synced_at=inner.number("synced_at", None, 0, HORIZON, whole=True),
    )


def _read_shown_retry(fields: Fields) -> Retry:
    if "retry" not in fields.values:
        return _DEFAULT.retry
    inner = fields_of(fields.values["retry"], fields.at("retry"), fields.problems, "must be a mapping")
    if inner is None:
        return _DEFAULT.retry
    inner.refuse_others(_SHOWN_RETRY)
    default = _DEFAULT.retry
    on, never = _read_exceptions(inner)
    return Retry(
        attempts=inner.number("attempts", default.attempts, 1, 100, whole=True),
        backoff_seconds=inner.number("backoff_seconds", default.backoff_seconds, 0, MAX_SECONDS),
        factor=inner.number("factor", default.factor, 1, 100),
        cap_seconds=inner.number("cap_seconds", default.cap_seconds, 0, MAX_SECONDS),
        jitter=inner.number("jitter", default.jitter, 0, 1),
        on=on,
        never=never,
    )


def _read_word(fields: Fields, name: str, default: _Choice) -> _Choice:
    words = tuple(choice.name.lower() for choice in type(default))
    return type(default)[(fields.word(name, words, default.name.lower()) or "").upper()]


def _read_choice(
    fields: Fields, name: str, default: _Choice, limited: _Choice, low: int, limit: int
) -> tuple[_Choice, int]:
    """Return a word, or {policy: word, limit: n} where the word is the one that has a limit."""
    value = fields.values.get(name, ABSENT)
    if value is ABSENT:
        return default, limit
    choices = {choice.name.lower(): choice for choice in type(default)}
    where, word = name, value
    if isinstance(value, dict):
        inner = Fields(value, fields.at(name), fields.problems)
        inner.refuse_others(_CHOICE_FIELDS)
        where, word = f"{name}.policy", value.get("policy")
        limit = inner.number("limit", limit, low, MAX_WAITING, whole=True)
        if "limit" in value and word != limited.name.lower():
            inner.fault("limit", "E_FIELD_CONFLICT", f"only {limited.name.lower()} has a limit")
    if type(word) is str and word in choices:
        return choices[word], limit
    got = shown(word) if isinstance(word, str) else kind_of(word)
    message = f"must be one of {', '.join(choices)}, got {got}"
    fields.problems.add(fields.at(where), "E_ENUM", message, suggest(got, choices, repr))
    return default, limit


_CHOICE_FIELDS = frozenset({"policy", "limit"})
_RETRY_FIELDS = frozenset({"attempts", "backoff", "factor", "cap", "jitter", "on", "never"})
_SHOWN_RETRY = frozenset({"attempts", "backoff_seconds", "factor", "cap_seconds", "jitter", "on", "never"})
_CLASS = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def _read_retry(fields: Fields) -> Retry:
    value = fields.values.get("retry", ABSENT)
    default = _DEFAULT.retry
    if value is ABSENT:
        return default
    if not isinstance(value, dict):
        return Retry(fields.number("retry", 1, 1, 100, whole=True))
    inner = Fields(value, fields.at("retry"), fields.problems)
    inner.refuse_others(_RETRY_FIELDS)
    on, never = _read_exceptions(inner)
    if (on or never) and "attempts" not in value:
        inner.fault("attempts", "E_REQUIRED", "on and never mean nothing for one attempt", "write attempts: 3")
    return Retry(
        attempts=inner.number("attempts", default.attempts, 1, 100, whole=True),
        backoff_seconds=inner.seconds("backoff", default.backoff_seconds, 0),
        factor=float(inner.number("factor", default.factor, 1, 100)),
        cap_seconds=inner.seconds("cap", default.cap_seconds, 0),
        jitter=float(inner.number("jitter", default.jitter, 0, 1)),
        on=on,
        never=never,
    )


def _read_exceptions(fields: Fields) -> tuple[tuple[str, ...], tuple[str, ...]]:
    on, never = _read_classes(fields, "on"), _read_classes(fields, "never")
    if both := set(on) & set(never):
        fields.fault("never", "E_FIELD_CONFLICT", f"{min(both)} stands in on too", "keep it in one of them")
    return on, never


def _read_classes(fields: Fields, name: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for index, word in enumerate(fields.items(name, MAX_CLASSES, "classes of exceptions")):
        if type(word) is not str:
            fields.problems.add(f"{fields.at(name)}[{index}]", "E_TYPE", *type_words("must be text", word))
        elif not _CLASS.fullmatch(word) or len(word) > MAX_CLASS:
            message = f"the name of a class of exceptions, such as TimeoutError, expected, got {shown(word)}"
            fields.problems.add(f"{fields.at(name)}[{index}]", "E_PATTERN", message)
        else:
            found[word] = None
    return tuple(found)


PER_PATTERN = r"job|owner|queue|data(?:\.[A-Za-z0-9_-]{1,64}){1,8}"
_PER = re.compile(PER_PATTERN)
_RATE_FIELDS = frozenset({"rate", "burst", "per"})
_CONCURRENCY_FIELDS = frozenset({"limit", "per"})


def _read_rates(fields: Fields) -> tuple[RateLimit, ...]:
    found: dict[tuple[str, str], RateLimit] = {}
    for inner in _inner_fields(fields, "rate_limits", _RATE_FIELDS, "rate", "{rate: 100/min, burst: 10, per: owner}"):
        text = inner.text("rate")
        if text is None:
            continue
        try:
            rate = parse_rate(text)
        except Invalid as error:
            inner.fault("rate", error.code, error.message)
            continue
        per = _read_per(inner)
        if (rate.unit, per) in found:
            inner.fault("rate", "E_FIELD_CONFLICT", f"two rates per {per} in the same unit", "keep the smaller one")
        burst = inner.number("burst", 1, 1, LARGEST_BURST, whole=True)
        found[rate.unit, per] = RateLimit(str(rate), burst, per)
    return tuple(found.values())


def _read_concurrency(fields: Fields) -> tuple[ConcurrencyLimit, ...]:
    found: dict[str, ConcurrencyLimit] = {}
    example = "{limit: 5, per: data.tenant}"
    for inner in _inner_fields(fields, "concurrency_limits", _CONCURRENCY_FIELDS, "limit", example):
        per = _read_per(inner)
        if per in found:
            inner.fault("per", "E_FIELD_CONFLICT", f"two limits per {per}", "keep the smaller one")
        found[per] = ConcurrencyLimit(inner.number("limit", 1, 1, MOST_AT_ONCE, whole=True), per)
    return tuple(found.values())


def _inner_fields(fields: Fields, name: str, known: frozenset[str], needed: str, example: str) -> list[Fields]:
    """Return the fields of each item of a list of mappings."""
    items = []
    for index, value in enumerate(fields.items(name, MAX_LIMITS, "limits")):
        inner = fields_of(value, f"{fields.at(name)}[{index}]", fields.problems, f"must be a mapping such as {example}")
        if inner is not None:
            inner.refuse_others(known)
            inner.require(needed, f"is missing; write for example {example}")
            items.append(inner)
    return items


def _read_per(fields: Fields) -> str:
    per = fields.text("per") if "per" in fields.values else "job"
    if per is not None and _PER.fullmatch(per):
        return per
    if per is not None:
        message = f"job, owner, queue or a path into the data such as data.tenant expected, got {shown(per)}"
        fields.fault("per", "E_PATTERN", message)
    return "job"


CALM_PATTERN = r"job|data(?:\.[A-Za-z0-9_-]{1,64}){1,8}"
_CALM = re.compile(CALM_PATTERN)
_DEBOUNCE_FIELDS = frozenset({"seconds", "at_most", "per"})
SHORTEST_CALM = 0.1  # seconds


def _read_debounce(fields: Fields) -> Debounce | None:
    if "debounce" not in fields.values:
        return None
    example = "must be a mapping such as {seconds: 10, at_most: 60}"
    inner = fields_of(fields.values["debounce"], fields.at("debounce"), fields.problems, example)
    if inner is None:
        return None
    inner = Fields({name: it for name, it in inner.values.items() if it is not None}, inner.path, inner.problems)
    inner.refuse_others(_DEBOUNCE_FIELDS)
    inner.require("seconds", "is missing: for how long nothing may have come, such as 10 or 10s")
    seconds, at_most = (
        inner.seconds("seconds", SHORTEST_CALM, SHORTEST_CALM),
        inner.seconds("at_most", None, SHORTEST_CALM),
    )
    if at_most is not None and at_most < seconds:
        inner.fault("at_most", "E_RANGE", "must not be shorter than seconds")
    per = inner.text("per") if "per" in inner.values else "job"
    if per is not None and not _CALM.fullmatch(per):
        inner.fault("per", "E_PATTERN", f"job or a path into the data such as data.path expected, got {shown(per)}")
    return Debounce(float(seconds), None if at_most is None else float(at_most), per or "job")


def _read_priority(fields: Fields) -> int:
    value = fields.values.get("priority", _DEFAULT.priority)
    if type(value) is int and 0 <= value <= 9:
        return value
    fields.fault("priority", "E_ENUM", "must be a whole number, one of 0..9, where 9 goes first")
    return _DEFAULT.priority


_QUEUE = re.compile(queues.NAME_PATTERN)
_SHARE = re.compile(SHARE_PATTERN)


def _read_queue(fields: Fields) -> str:
    name = fields.text("queue")
    if name is not None and not _QUEUE.fullmatch(name):
        message = f"the name of a queue has 1 to 63 letters, digits or any of _.-, got {shown(name)}"
        fields.fault("queue", "E_PATTERN", message, "`horae queues` lists them")
    return name or _DEFAULT.queue


def _read_share(fields: Fields) -> str:
    share = fields.text("share", queues.MAX_SHARE)
    if share is not None and not _SHARE.fullmatch(share):
        message = f"owner, or a path into the data of runs such as data.tenant, expected, got {shown(share)}"
        fields.fault("share", "E_PATTERN", message)
    return share or _DEFAULT.share


def _read_every(fields: Fields) -> str | None:
    return fields.word("every", (EVERY_AGENT,)) if "every" in fields.values else None


def render_policy(policy: Policy) -> Json:
    """Every field, as the API shows it."""
    retry = policy.retry
    return {
        "overlap": policy.overlap.name.lower(),
        "overlap_limit": policy.overlap_limit,
        "misfire": policy.misfire.name.lower(),
        "misfire_limit": policy.misfire_limit,
        "retry": {
            "attempts": retry.attempts,
            "backoff_seconds": retry.backoff_seconds,
            "factor": retry.factor,
            "cap_seconds": retry.cap_seconds,
            "jitter": retry.jitter,
            "on": list(retry.on),
            "never": list(retry.never),
        },
        "timeout_seconds": policy.timeout_seconds,
        "start_deadline_seconds": policy.start_deadline_seconds,
        "priority": policy.priority,
        "labels": list(policy.labels),
        "resources": render_resources(policy.resources),
        "offered": policy.offered,
        "synced_at": policy.synced_at,
        "queue": policy.queue,
        "share": policy.share,
        "pause_after_failures": policy.pause_after_failures,
        "rate_limits": [{"rate": one.rate, "burst": one.burst, "per": one.per} for one in policy.rate_limits],
        "concurrency_limits": [{"limit": one.limit, "per": one.per} for one in policy.concurrency_limits],
        "after": [{"job": one.job, "on": one.on, "moment": one.moment, "id": one.id} for one in policy.after],
        "debounce": None
        if (calm := policy.debounce) is None
        else {
            "seconds": calm.seconds,
            "at_most": calm.at_most,
            "per": calm.per,
        },
        "every": policy.every,
        "tags": list(policy.tags),
    }


DEFAULT_SHOWN = render_policy(_DEFAULT)
_SHOWN_FIELDS = frozenset(DEFAULT_SHOWN)


@lru_cache(maxsize=4096)
def policy_text(policy: Policy) -> str:
    """Return the text to store: canonical JSON without what has its default."""
    return encode(changed_only(render_policy(policy), DEFAULT_SHOWN))


def changed_only(values: Json, defaults: Json) -> Json:
    """Return what has not its default, as render_policy names it."""
    changed = {name: value for name, value in values.items() if value != defaults.get(name)}
    if "retry" in changed:
        changed["retry"] = changed_only(values["retry"], defaults["retry"])
    return changed


@lru_cache(maxsize=4096)
def policy_from_text(text: str, *, exact: bool = False) -> Policy:
    """Read what policy_text wrote. What a newer version wrote and this one does not know is left out; with `exact`,
    because more depends on it than what is shown, it is refused."""
    values = json.loads(text)
    strange = _without_strange(values, Policy)
    retry = values.pop("retry", {})
    strange += _without_strange(retry, Retry)
    for name, choices in (("overlap", Overlap), ("misfire", Misfire)):
        word = str(values.pop(name, "")).upper()
        if word in choices.__members__:
            values[name] = choices[word]
        elif word:
            strange.append(f"{name}: {word.lower()}")
    if strange and exact:
        raise Invalid(f"this version of Horae does not know {', '.join(strange)} of a policy", code="E_UNKNOWN_FIELD")
    if "resources" in values:
        values["resources"] = resources_from(values["resources"])
    if values.get("debounce") is not None:
        values["debounce"] = Debounce(**values["debounce"])
    for inside, name in ((values, "labels"), (values, "tags"), (retry, "on"), (retry, "never")):
        if name in inside:
            inside[name] = tuple(inside[name])
    for name, known in (("rate_limits", RateLimit), ("concurrency_limits", ConcurrencyLimit), ("after", After)):
        if name in values:
            values[name] = tuple(known(**one) for one in values[name])
    return Policy(**values, retry=Retry(**retry))


def resources_of(text: str) -> Asks:
    """Return what a stored policy asks of an agent; most ask for nothing, which costs next to nothing."""
    return policy_from_text(text).resources if '"resources"' in text else ()


def _without_strange(values: Json, known: type[Policy] | type[Retry]) -> list[str]:
    """Take out, and return, the names that are no fields."""
    strange = [name for name in values if name not in known.__slots__]
    for name in strange:
        del values[name]
    return strange
