"""Rules: of what somebody is to be told.

    when: failure                   or missed, late, slow, silent, node_gone, queue_waiting, disk_full
    job: nightly                    its id or key; or owner: ann; or queue: reports; of all, unless said
    count: 3                        failures in a row, of failure and missed
    after: 10m                      of late, silent and queue_waiting: how long it may last
    above: 90                       of disk_full: percent
    channels: [ops]                 by which it is told
    tell: both                      or trouble alone, or recovery alone
    wait: 10s                       for which nothing more of it happens before it is told
    every: 5m                       between two messages of the rule, at least
    repeat: 4h                      after which what goes on is told again, unless it is acknowledged
    quiet: {from: "22:00", until: "07:00", zone: Europe/Berlin}
    enabled: true

What must stay true: what is shown can be sent back; equal rules have equal text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from horae.core.fields import Fields, encode, fields_of, open_document, shown, type_words
from horae.core.model import LARGEST_ID, Json, Moment
from horae.core.spelling import suggest
from horae.core.time import moments
from horae.errors import Invalid

CONDITIONS = {
    "failure": "a run failed or timed out",
    "missed": "a moment was missed: its run was skipped for want of time, or a watched job was not heard of",
    "late": "a run began, or still waits, longer after its moment than `after`",
    "slow": "runs of a job take unusually long, by what was learned of it",
    "silent": "no run has succeeded for longer than `after`",
    "node_gone": "a node was silent for too long",
    "queue_waiting": "something has waited in a queue for longer than `after`",
    "disk_full": "the disk of a node is fuller than `above` percent, or full",
}
OF_JOBS = frozenset({"failure", "missed", "late", "slow", "silent"})
COUNTED = frozenset({"failure", "missed"})  # of which `count` in a row are told
STANDING = frozenset({"slow", "silent", "node_gone", "queue_waiting", "disk_full"})  # looked for, not told by events
AFTER = {"late": 300.0, "silent": 86_400.0, "queue_waiting": 600.0}  # seconds, unless said
TELL = ("both", "trouble", "recovery")
NAME_PATTERN = r"[A-Za-z0-9_.-]{1,63}"
CLOCK_PATTERN = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
MAX_RULES = 1000  # of an organisation
MAX_CHANNELS = 20  # of a rule
MOST_IN_A_ROW = 1000
ABOVE = 90.0  # percent
WAIT, EVERY, REPEAT = 10.0, 300.0, 14_400.0  # seconds
_NAME = re.compile(NAME_PATTERN)
_CLOCK = re.compile(CLOCK_PATTERN)
_SET_BY_HORAE = frozenset({"version", "created_at", "updated_at"})  # ignored when they are sent back
_FIELDS = _SET_BY_HORAE | {
    "name", "when", "job", "owner", "queue", "count", "after", "above", "channels", "tell", "wait", "every", "repeat",
    "quiet", "enabled",
}  # fmt: skip


class Quiet(NamedTuple):
    """Hours of the day in which nobody is told: minutes after midnight, in a zone."""

    begin: int
    end: int
    zone: str


class About(NamedTuple):
    """What a sign is of, as far as rules ask."""

    org: int | None = None  # None: of nobody in particular
    job_id: int | None = None
    key: str | None = None
    owner: str = ""
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    when: str
    channels: tuple[str, ...]
    job: int | str | None = None
    owner: str | None = None
    queue: str | None = None
    count: int = 1
    after: float | None = None  # seconds
    above: float | None = None  # percent
    tell: str = "both"
    wait: float = WAIT
    every: float = EVERY
    repeat: float = REPEAT
    quiet: Quiet | None = None
    enabled: bool = True
    org: int = 0
    version: int = 1
    created_at: Moment = 0
    updated_at: Moment = 0

    @property
    def watches(self) -> tuple[Any, ...]:
        """Return what it looks at: a rule that looks at something else begins anew."""
        return self.when, self.job, self.owner, self.queue, self.count, self.after, self.above

    @property
    def is_standing(self) -> bool:
        return self.when in STANDING

    def covers(self, about: About) -> bool:
        """Return whether it is for this."""
        if about.org is not None and about.org != self.org:
            return False
        if self.job is not None:
            return self.job == (about.job_id if isinstance(self.job, int) else about.key)
        if self.owner is not None:
            return self.owner == about.owner
        return self.queue is None or self.queue == about.queue

    @property
    def scope(self) -> str:
        """Return of what it is, for people."""
        if self.job is not None:
            return f"job {self.job}"
        if self.owner is not None:
            return f"owner {self.owner}"
        return f"queue {self.queue}" if self.queue is not None else "all"


def check_name(name: str, what: str = "an alert rule") -> str:
    if not _NAME.fullmatch(name):
        message = f"the name of {what} has 1 to 63 letters, digits or any of _.-, got {shown(name)}"
        raise Invalid(message, code="E_PATTERN", path="name")
    return name


def parse_rule(document: Any, name: str) -> Rule:
    """Return the rule that a document describes; raises Invalid with every problem."""
    check_name(name)
    expected = "a rule must be a mapping such as {when: failure, channels: [ops]}"
    fields = open_document(document, expected, _FIELDS, is_null_unset=True)
    found = _read(fields, name)
    fields.problems.raise_any()
    return found


def _read(fields: Fields, name: str) -> Rule:
    if fields.values.get("name", name) != name:
        fields.fault("name", "E_FIELD_CONFLICT", f"the rule is {shown(name)}", "a rule keeps its name: make another")
    fields.require("when", f"what is to be told? one of {', '.join(CONDITIONS)}")
    when = _read_condition(fields)
    _refuse_strangers(fields, when)
    enabled = fields.flag("enabled")
    return Rule(
        name, when, _read_channels(fields), _read_job(fields), fields.text("owner"), fields.text("queue", 63),
        count=fields.number("count", 1, 1, MOST_IN_A_ROW, whole=True),
        after=fields.seconds("after", AFTER.get(when), 1.0),
        above=fields.number("above", ABOVE if when == "disk_full" else None, 1, 99.9),
        tell=fields.word("tell", TELL, "both") or "both",
        wait=fields.seconds("wait", WAIT, 0.0), every=fields.seconds("every", EVERY, 0.0),
        repeat=fields.seconds("repeat", REPEAT, 60.0), quiet=_read_quiet(fields),
        enabled=True if enabled is None else enabled,
    )  # fmt: skip


def _read_condition(fields: Fields) -> str:
    value = fields.values.get("when", "failure")
    if type(value) is str and value in CONDITIONS:
        return value
    if type(value) is not str:
        fields.wrong_type("when", "must be text")
    else:
        fields.fault(
            "when", "E_ENUM", f"one of {', '.join(CONDITIONS)}, got {shown(value)}", suggest(value, CONDITIONS, repr)
        )
    return "failure"


def _refuse_strangers(fields: Fields, when: str) -> None:
    """Note fields that mean nothing for this condition: who wrote them expects something of them."""
    scopes = [name for name in ("job", "owner", "queue") if name in fields.values]
    allowed = {"job", "owner", "queue"} if when in OF_JOBS else {"queue"} if when == "queue_waiting" else set()
    for scope in scopes:
        if scope not in allowed:
            fields.fault(scope, "E_FIELD_CONFLICT", f"a rule on {when} has no {scope}", "leave it out")
    if len(scopes) > 1:
        message = f"a rule is of one of job, owner and queue, or of all; got {' and '.join(scopes)}"
        fields.fault(scopes[1], "E_FIELD_CONFLICT", message, "make a rule of each")
    for name, means in (("count", COUNTED), ("after", AFTER), ("above", ("disk_full",))):
        if name in fields.values and when not in means:
            fields.fault(
                name, "E_FIELD_CONFLICT", f"a rule on {when} has no {name}", f"it is of {', '.join(sorted(means))}"
            )


def _read_job(fields: Fields) -> int | str | None:
    value = fields.values.get("job")
    if type(value) is int:
        found: int | None = fields.number("job", None, 1, LARGEST_ID, whole=True)
        return found
    if value is not None and type(value) is not str:
        fields.wrong_type("job", "must be the id of a job, a whole number, or its key, a text")
        return None
    return fields.text("job")


def _read_channels(fields: Fields) -> tuple[str, ...]:
    fields.require("channels", "by which channels is it told? write channels: [ops]")
    found: dict[str, None] = {}
    for index, value in enumerate(fields.items("channels", MAX_CHANNELS, "channels", least=1)):
        path = f"{fields.at('channels')}[{index}]"
        if type(value) is not str:
            fields.problems.add(path, "E_TYPE", *type_words("must be text", value))
        elif not _NAME.fullmatch(value):
            fields.problems.add(path, "E_PATTERN", "the name of a channel has 1 to 63 letters, digits or any of _.-")
        else:
            found[value] = None
    return tuple(found)


def _read_quiet(fields: Fields) -> Quiet | None:
    if "quiet" not in fields.values:
        return None
    expected = 'must be a mapping such as {from: "22:00", until: "07:00", zone: Europe/Berlin}'
    inner = fields_of(fields.values["quiet"], fields.at("quiet"), fields.problems, expected)
    if inner is None:
        return None
    inner.refuse_others(frozenset({"from", "until", "zone"}))
    zone = inner.values.get("zone", "UTC")
    try:
        moments.zone(zone)
    except Invalid as error:
        inner.problems.adopt(inner.at("zone"), error)
    begin, end = _read_clock(inner, "from"), _read_clock(inner, "until")
    if begin == end and not inner.problems.listed:
        inner.fault("until", "E_FIELD_CONFLICT", "quiet hours begin and end at the same time", "or leave quiet out")
    return Quiet(begin, end, str(zone))


def _read_clock(fields: Fields, name: str) -> int:
    fields.require(name, 'a time of the day expected, such as "22:00"')
    if name not in fields.values:
        return 0
    value = fields.values[name]
    if type(value) is not str or not _CLOCK.fullmatch(value):
        fields.fault(name, "E_PATTERN", 'a time of the day such as "22:00" expected, in quotes')
        return 0
    return int(value[:2]) * 60 + int(value[3:])


# ------------------------------------------------------------------------------- showing and storing


def render_rule(rule: Rule) -> Json:
    """Return everything that a document may say of it."""
    quiet = rule.quiet
    return {
        "name": rule.name, "when": rule.when, "job": rule.job, "owner": rule.owner, "queue": rule.queue,
        "count": rule.count if rule.when in COUNTED else None, "after": rule.after, "above": rule.above,
        "channels": list(rule.channels), "tell": rule.tell, "wait": rule.wait, "every": rule.every,
        "repeat": rule.repeat,
        "quiet": None if quiet is None else {
            "from": _clock(quiet.begin), "until": _clock(quiet.end), "zone": quiet.zone
        },
        "enabled": rule.enabled,
    }  # fmt: skip


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def rule_text(rule: Rule) -> str:
    """Return the text to store."""
    return encode({name: value for name, value in render_rule(rule).items() if name != "name" and value is not None})


def rule_from(text: str, name: str, **stored: Any) -> Rule:
    """Return what rule_text wrote. What a newer version wrote and this one does not know is left out."""
    document = {key: value for key, value in json.loads(text).items() if key in _FIELDS}
    return replace(parse_rule(document, name), **stored)
