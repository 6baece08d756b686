"""Queues: where runs wait for an agent, and what holds for all that wait there.

    state: open                     or paused: nothing starts; or draining: nothing new is taken
    priority_offset: 2              -9 to 9, added to the priority of its runs when queues are compared
    labels: [gpu]                   an agent must have all of them to take from it
    kinds: [python]                 of work that it takes; every kind, unless said
    concurrency: 5                  runs of it that may run at once
    rate: 100/min                   starts, with a burst of some at once
    burst: 10
    weights: {ann: 2}               of shares; one that is not named has 1
    most_waiting: 1000              runs of one owner that may wait
    org: 7                          the organisation that it belongs to; none: the installation, it is for all of them

What must stay true: equal queues have equal text, and what has its default is left out of it; what is read here is what
is shown, so that what was read can be sent back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from horae.core.fields import Fields, encode, open_document, read_labels, shown, type_words
from horae.core.model import DEFAULT_QUEUE_NAME, LARGEST_ORG, OWNER_SHARE, Json, Moment, Policy
from horae.core.spelling import suggest
from horae.errors import Invalid

DEFAULT_QUEUE = 0  # the id of the queue of jobs that name none
DEFAULT_NAME = DEFAULT_QUEUE_NAME
MAX_QUEUES = 1000
FARTHEST = 9  # of a priority offset, either way
HEAVIEST = 1000  # weight of a share
MAX_WEIGHTS = 1000  # shares that a queue weighs
MAX_SHARE = 200  # characters of the key of a share
MOST = 1_000_000_000  # of anything that is counted
FASTEST = 1_000_000  # starts in one unit of time
NAME_PATTERN = r"[A-Za-z0-9_.-]{1,63}"
RATE_PATTERN = r"[1-9][0-9]{0,6}/(?:s|min|h|day)"


class QueueState(StrEnum):
    OPEN = "open"
    PAUSED = "paused"  # nothing starts; what comes waits
    DRAINING = "draining"  # nothing new is taken; what waits is started


@dataclass(frozen=True, slots=True)
class Queue:
    id: int
    name: str
    state: QueueState = QueueState.OPEN
    priority_offset: int = 0  # added to the priority of its runs when queues are compared
    labels: tuple[str, ...] = ()  # an agent must have all of them to take from it
    kinds: tuple[str, ...] = ()  # of work that it takes; empty: every kind
    concurrency: int | None = None  # runs of it that may run at once
    rate: str | None = None  # starts, such as 100/min (core.policy.limits)
    burst: int = 1  # starts at once, under a rate
    weights: Mapping[str, int] = field(default_factory=dict)  # of shares; one that is not named has 1
    most_waiting: int | None = None  # runs of one owner that may wait
    org: int | None = None  # to which it belongs; None: to the installation, it is for all
    version: int = 1
    created_at: Moment = 0
    updated_at: Moment = 0

    def weight_of(self, share: str) -> int:
        return self.weights.get(share, 1)

    def is_for(self, org: int | None) -> bool:
        """Return whether it is there for an organisation; None is whoever runs the server."""
        return org is None or self.org in (None, org)

    def takes(self, kind: str) -> bool:
        return not self.kinds or kind in self.kinds


class Figures(NamedTuple):
    """How a queue stands. What is cut is at least so much: more was not counted."""

    waiting: int = 0
    blocked: Mapping[str, int] = {}  # reason → runs
    running: int = 0
    oldest_at: Moment | None = None  # the due moment of whatever waits longest for an agent
    came: int = 0  # runs in the last minute
    went: int = 0
    is_cut: bool = False  # of what waits
    blocked_is_cut: bool = False


# ------------------------------------------------------------------------------------ reading

_DEFAULT = Queue(DEFAULT_QUEUE, DEFAULT_NAME)
_SET_BY_HORAE = frozenset({"id", "version", "created_at", "updated_at", "figures"})  # ignored when they are sent back
_FIELDS = _SET_BY_HORAE | {
    "name", "state", "priority_offset", "labels", "kinds", "concurrency", "rate", "burst", "weights", "most_waiting",
    "org",
}  # fmt: skip
_NAME = re.compile(NAME_PATTERN)
_RATE = re.compile(RATE_PATTERN)


def check_name(name: str) -> str:
    """Return the name of a queue, if it can be one."""
    if not _NAME.fullmatch(name):
        message = f"the name of a queue has 1 to 63 letters, digits or any of _.-, got {shown(name)}"
        raise Invalid(message, code="E_PATTERN", path="name")
    return name


def parse_queue(
    document: Any, name: str, kinds: Collection[str], state: QueueState = QueueState.OPEN, org: int | None = None
) -> Queue:
    """Return the queue that a document describes. `kinds` are those of work that there are; `state` and `org` hold
    where the document says nothing of them."""
    expected = "a queue must be a mapping such as {concurrency: 5}"
    fields = open_document(document, expected, _FIELDS, is_null_unset=True)
    found = _read(fields, check_name(name), kinds, state, org)
    fields.problems.raise_any()
    return found


def _read(fields: Fields, name: str, kinds: Collection[str], state: QueueState, org: int | None) -> Queue:
    if fields.values.get("name", name) != name:
        fields.fault("name", "E_FIELD_CONFLICT", f"the queue is {shown(name)}", "a queue keeps its name: make another")
    burst = fields.number("burst", _DEFAULT.burst, 1, FASTEST, whole=True)
    if burst > 1 and "rate" not in fields.values:
        fields.fault("burst", "E_FIELD_CONFLICT", "a burst means nothing without a rate", "write rate: 100/min")
    return Queue(
        id=DEFAULT_QUEUE,
        name=name,
        state=QueueState(fields.word("state", tuple(map(str, QueueState)), str(state)) or state),
        priority_offset=fields.number("priority_offset", 0, -FARTHEST, FARTHEST, whole=True),
        labels=read_labels(fields),
        kinds=_read_kinds(fields, kinds),
        concurrency=fields.number("concurrency", None, 1, MOST, whole=True),
        rate=_read_rate(fields),
        burst=burst,
        weights=_read_weights(fields),
        most_waiting=fields.number("most_waiting", None, 1, MOST, whole=True),
        org=fields.number("org", org, 1, LARGEST_ORG, whole=True),
    )


def _read_kinds(fields: Fields, known: Collection[str]) -> tuple[str, ...]:
    found: set[str] = set()
    for index, kind in enumerate(fields.items("kinds", len(known), "kinds")):
        path = f"{fields.at('kinds')}[{index}]"
        if type(kind) is not str:
            fields.problems.add(path, "E_TYPE", *type_words("must be text", kind))
        elif kind not in known:
            message = f"must be one of {', '.join(known)}, got {shown(kind)}"
            fields.problems.add(path, "E_ENUM", message, suggest(kind, known, repr))
        else:
            found.add(kind)
    return tuple(sorted(found))


def _read_rate(fields: Fields) -> str | None:
    rate = fields.text("rate")
    if rate is not None and not _RATE.fullmatch(rate):
        message = f"a number of starts and a unit (s, min, h, day) expected, got {shown(rate)}"
        fields.fault("rate", "E_PATTERN", message, "write rate: 100/min")
    return rate


def _read_weights(fields: Fields) -> dict[str, int]:
    value = fields.values.get("weights", {})
    if not isinstance(value, dict):
        fields.wrong_type("weights", "must be a mapping such as {ann: 2}")
        return {}
    if len(value) > MAX_WEIGHTS:
        fields.fault("weights", "E_LIMIT", f"at most {MAX_WEIGHTS} shares, got {len(value)}")
        return {}
    inner = Fields(value, fields.at("weights"), fields.problems)
    found: dict[str, int] = {}
    for share in value:
        if type(share) is not str:
            fields.problems.add(inner.path, "E_TYPE", *type_words("the key of a share must be text", share))
        elif share != share_key(share):
            message = f"the key of a share has 1 to {MAX_SHARE} visible characters"
            inner.fault(share, "E_PATTERN", message)
        else:
            found[share] = inner.number(share, 1, 1, HEAVIEST, whole=True)
    return {share: weight for share, weight in sorted(found.items()) if weight != 1}


# -------------------------------------------------------------------------- showing and storing


def render_queue(queue: Queue) -> Json:
    """Everything that a document may say of it."""
    return {
        "name": queue.name,
        "state": queue.state.value,
        "priority_offset": queue.priority_offset,
        "labels": list(queue.labels),
        "kinds": list(queue.kinds),
        "concurrency": queue.concurrency,
        "rate": queue.rate,
        "burst": queue.burst,
        "weights": dict(queue.weights),
        "most_waiting": queue.most_waiting,
        "org": queue.org,
    }


_COLUMNS = frozenset({"name", "state", "priority_offset", "labels"})  # which whoever claims must see


def queue_text(queue: Queue) -> str:
    """Return the text to store, beside the columns: canonical JSON without what has its default."""
    defaults = render_queue(_DEFAULT)
    kept = {k: v for k, v in render_queue(queue).items() if k not in _COLUMNS and v != defaults[k]}
    return encode(kept)


def fields_from_text(text: str) -> Json:
    """Read what queue_text wrote. What a newer version wrote and this one does not know is left out."""
    values = {name: value for name, value in json.loads(text).items() if name in Queue.__slots__}
    if "kinds" in values:
        values["kinds"] = tuple(values["kinds"])
    return values


# -------------------------------------------------------------------------- where a run waits


class Place(NamedTuple):
    queue: int  # its id
    share: str  # the key
    weight: int  # of that share


_USERS = {"rpc": "user_id", "cluster": "userId"}  # where contracts keep for whom a job was made
_IN_DATA = "data."
_NOTHING: Json = {}


def place(
    policy: Policy, owner: str, data: str | Json | None, queue: Queue, annotations: Mapping[str, Any] = _NOTHING
) -> Place:
    """Return where a run waits, and with whom it shares. `queue` is that of its policy, `data` what it is given."""
    share = user_of(owner, annotations)
    if policy.share != OWNER_SHARE:
        share = _share_in(data, policy.share.removeprefix(_IN_DATA)) or share
    return Place(queue.id, share, queue.weight_of(share))


def user_of(owner: str, annotations: Mapping[str, Any]) -> str:
    """Return with whom the runs of a job share: the user whom a contract names, else its owner."""
    return next((user for facade in _USERS if (user := _user_in(annotations, facade))), share_key(owner))


def made_for(owner: str, annotations: Mapping[str, Any]) -> str:
    """Return to whom what waits is counted, as the stores find it: the user of the RPC contract, else the owner."""
    return _user_in(annotations, "rpc") or owner


def _user_in(annotations: Mapping[str, Any], facade: str) -> str:
    ours = annotations.get(facade)
    user = ours.get(_USERS[facade]) if isinstance(ours, dict) else None
    return "" if user is None else share_key(user if isinstance(user, str) else encode(user))


def _share_in(data: str | Json | None, path: str) -> str:
    """Return the key at a path of the data; empty where there is none."""
    found: Any = json.loads(data) if isinstance(data, str) else data
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return "" if found is None else share_key(found if isinstance(found, str) else encode(found))


def share_key(text: str) -> str:
    """Return a text as the key of a share: of limited length, and such as every store can hold."""
    text = text[:MAX_SHARE]
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
