"""The policy of a job: from its document, to the text that is stored, and back.

What must stay true: equal policies have equal text, and what has its default is left out of it.
"""

from __future__ import annotations

import json
import re
from enum import IntEnum
from functools import lru_cache
from typing import TypeVar

from horae.core.fields import ABSENT, Fields, encode, kind_of, shown, type_words
from horae.core.model import Json, Misfire, Overlap, Policy, Retry
from horae.core.policy.resources import Asks, read_resources, render_resources, resources_from
from horae.core.spelling import suggest
from horae.errors import Invalid

MAX_LABELS = 32
MAX_WAITING = 1000  # runs of one job that may wait, and missed moments that may be made up for
MAX_CLASSES = 50  # of exceptions
MAX_CLASS = 200  # characters of the name of one
_DEFAULT = Policy()
_POLICY_FIELDS = frozenset(
    {"timeout", "retry", "overlap", "concurrency", "misfire", "start_deadline", "priority", "labels", "resources"}
)
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:=-]{0,62}")
_Choice = TypeVar("_Choice", bound=IntEnum)


def read_policy(fields: Fields, implied: tuple[str, ...] = ()) -> Policy:
    """`implied` are labels that the work itself asks for."""
    if _POLICY_FIELDS.isdisjoint(fields.values) and not implied:
        return _DEFAULT
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
        labels=_read_labels(fields, implied),
        resources=read_resources(fields),
    )


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
    on, never = _read_classes(inner, "on"), _read_classes(inner, "never")
    if both := set(on) & set(never):
        inner.fault("never", "E_FIELD_CONFLICT", f"{min(both)} stands in on too", "keep it in one of them")
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


def _read_priority(fields: Fields) -> int:
    value = fields.values.get("priority", _DEFAULT.priority)
    if type(value) is int and 0 <= value <= 9:
        return value
    fields.fault("priority", "E_ENUM", "must be a whole number, one of 0..9, where 9 goes first")
    return _DEFAULT.priority


def _read_labels(fields: Fields, implied: tuple[str, ...]) -> tuple[str, ...]:
    path = fields.at("labels")
    labels = set(implied)
    for index, label in enumerate(fields.items("labels", MAX_LABELS, "labels")):
        if type(label) is not str:
            fields.problems.add(f"{path}[{index}]", "E_TYPE", *type_words("must be text", label))
        elif not _LABEL.fullmatch(label):
            message = "1 to 63 letters, digits or any of _./:=- expected, beginning with a letter or digit"
            fields.problems.add(f"{path}[{index}]", "E_PATTERN", message)
        else:
            labels.add(label)
    return tuple(sorted(labels))


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
    }


@lru_cache(maxsize=4096)
def policy_text(policy: Policy) -> str:
    """Return the text to store: canonical JSON without what has its default."""
    return encode(_without(render_policy(policy), render_policy(_DEFAULT)))


def _without(values: Json, defaults: Json) -> Json:
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    if "retry" in changed:
        changed["retry"] = _without(values["retry"], defaults["retry"])
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
    for inside, name in ((values, "labels"), (retry, "on"), (retry, "never")):
        if name in inside:
            inside[name] = tuple(inside[name])
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
