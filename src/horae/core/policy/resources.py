"""What runs ask of one agent, and what agents offer: slots, cpus, memory, and whatever else can be counted.

    resources: {slots: 2, cpus: 1.5, memory: 512MiB, gpu: 1}

Amounts are whole numbers, so that sums are exact: cpus in thousandths, memory in bytes, all else in pieces. `cpus` and
`memory` are those of the machine; slots are those of the run's kind of work, of which every run takes one at least.

What must stay true: an agent never has runs that ask for more than it offers, and what is free is derived from what
runs, never counted beside it.

Large runs are not starved by small ones (`reserve`): one that has waited for long, and whose turn it is, has an agent
kept for it, which gives nobody else what the run needs until it fits. Who is kept for whom is a pure function of rows
that exist: every process decides alike, and with the run its reservation is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import NamedTuple

from horae.core.fields import Fields, fields_of
from horae.core.model import SECOND, Json, Moment, Node
from horae.core.sizes import MOST_CPUS, MOST_MEMORY, read_memory, show_size

SLOTS, CPUS, MEMORY = "slots", "cpus", "memory"
OF_MACHINE = (CPUS, MEMORY)  # what an agent finds out by itself
MILLI = 1000  # of a cpu
LEAST_CPUS = 0.01
MOST_SLOTS = 100_000
MOST_PIECES = 1_000_000  # of a counted resource
MAX_RESOURCES = 16
MAX_OFFERED = MAX_RESOURCES + 2  # those that were named, and what the machine has
NAME = r"[a-z][a-z0-9_-]{0,40}"
RESERVE_AFTER = 30 * SECOND  # of waiting
_NAME = re.compile(NAME)
_NO_NAME = (
    "E_PATTERN",
    "the name of a resource expected, such as gpu or license-x",
    "1 to 41 small letters, digits, _ or -, beginning with a letter",
)

Asks = tuple[tuple[str, int], ...]  # name → amount, sorted by name


# ── the document ──
def read_resources(fields: Fields) -> Asks:
    """Return what stands there of resources, canonical."""
    if "resources" not in fields.values:
        return ()
    what = "must be a mapping such as {slots: 2, cpus: 1.5, memory: 512MiB, gpu: 1}"
    inner = fields_of(fields.values["resources"], fields.at("resources"), fields.problems, what)
    if inner is None:
        return ()
    if len(inner.values) > MAX_RESOURCES:
        fields.fault("resources", "E_RANGE", f"at most {MAX_RESOURCES} resources, got {len(inner.values)}")
        return ()
    known = frozenset(name for name in inner.values if isinstance(name, str) and _NAME.fullmatch(name))
    inner.refuse_others(known, dict.fromkeys(inner.values, _NO_NAME))
    found = {name: read_amount(inner, name) for name in known}
    return tuple(sorted((name, amount) for name, amount in found.items() if amount is not None))


def read_amount(fields: Fields, name: str) -> int | None:
    """Return one amount in its smallest unit; None when it cannot be read, which is noted."""
    if name == CPUS:
        cpus = fields.number(CPUS, None, LEAST_CPUS, MOST_CPUS)
        return None if cpus is None else round(cpus * MILLI)
    if name == MEMORY:
        return read_memory(fields)
    amount: int | None = fields.number(name, None, 1, MOST_SLOTS if name == SLOTS else MOST_PIECES, whole=True)
    return amount


def amounts_of(words: Iterable[str]) -> Json:
    """Return words such as gpu=1 and memory=8GiB as a document has them; nothing is checked."""
    pairs = (word.partition("=") for word in words)
    return {name.strip(): _number_of(amount.strip()) for name, _, amount in pairs}


def _number_of(text: str) -> object:
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    return float(text) if re.fullmatch(r"[0-9]{1,9}\.[0-9]{1,6}", text) else text


def words_of(asks: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """As they are written one by one: gpu=1, memory=8GiB."""
    return tuple(f"{name}={show_amount(name, amount)}" for name, amount in asks)


def render_resources(resources: Iterable[tuple[str, int]]) -> Json:
    """As documents and the store have them; what is rendered can be read again."""
    return {name: amount / MILLI if name == CPUS else amount for name, amount in resources}


def resources_from(rendered: Mapping[str, float]) -> Asks:
    """Take back what was rendered."""
    found = {name: round(amount * MILLI) if name == CPUS else int(amount) for name, amount in rendered.items()}
    return tuple(sorted(found.items()))


def show(asks: Iterable[tuple[str, int]]) -> str:
    """In words: cpus: 1.5, memory: 512MiB."""
    return ", ".join(f"{name}: {show_amount(name, amount)}" for name, amount in asks)


def show_amount(name: str, amount: int) -> str:
    if name == CPUS:
        return f"{amount / MILLI:g}"
    return show_size(amount) if name == MEMORY else str(amount)


def is_offer(offers: Mapping[str, int]) -> bool:
    """Return whether an agent may say that it has these; slots it says otherwise."""
    return len(offers) <= MAX_OFFERED and all(
        _NAME.fullmatch(name) and name != SLOTS and 0 <= amount <= _most(name) for name, amount in offers.items()
    )


def _most(name: str) -> int:
    return {CPUS: MOST_CPUS * MILLI, MEMORY: MOST_MEMORY}.get(name, MOST_PIECES)


# ── what is asked, and what is free ──
def asks_of(resources: Asks) -> Asks:
    """Return what a run must have beyond the one slot that every run takes."""
    return tuple(one for one in resources if one != (SLOTS, 1))


def slots_of(asks: Asks) -> int:
    return next((amount for name, amount in asks if name == SLOTS), 1)


def beyond_slots(asks: Asks) -> Asks:
    return tuple(one for one in asks if one[0] != SLOTS)


def of_kind(slots: int, others: Mapping[str, int]) -> dict[str, int]:
    """Return what there is for a run of a kind of which there are so many slots."""
    return {**others, SLOTS: slots}


def offers_of(node: Node, kind: str) -> dict[str, int]:
    """Return all that an agent has for a run of a kind that it does."""
    return of_kind(node.capacity.get(kind, node.slots), node.resources)


def fits(asks: Asks, free: Mapping[str, int]) -> bool:
    """`free` is for a run of its kind (`of_kind`)."""
    return free.get(SLOTS, 0) >= 1 and all(free.get(name, 0) >= amount for name, amount in asks)


def take(free: MutableMapping[str, int], asks: Asks) -> None:
    for name, amount in asks:
        free[name] = free.get(name, 0) - amount


def give_back(free: MutableMapping[str, int], asks: Asks) -> None:
    for name, amount in asks:
        free[name] = free.get(name, 0) + amount


# ── what can never be ──
def could_ever(asks: Asks, offers: Iterable[Mapping[str, int]]) -> bool:
    """Return whether an agent that did nothing else could run it. `offers` are whole, each for a run of its kind."""
    return any(fits(asks, offer) for offer in offers)


def lack(asks: Asks, offers: Sequence[Mapping[str, int]]) -> str:
    """Return what no agent offers enough of, in words; empty when one could run it."""
    if could_ever(asks, offers):
        return ""
    for name, amount in asks:
        most = max((offer.get(name, 0) for offer in offers), default=0)
        if most < amount:
            more = f"more than {show_amount(name, most)}" if most > 0 else "any"
            return f"asks for {show([(name, amount)])}; no live agent offers {more}"
    return f"asks for {show(asks)}; no live agent offers all of it together"


# ── reservations ──
class Head(NamedTuple):
    """The first of those that wait for the same. Only an agent is missing: one that a limit holds is none."""

    run_id: int
    kind: str
    asks: Asks
    labels: tuple[str, ...]
    pin: str | None  # the only node that may
    since_at: Moment  # it waits
    order: tuple[int, ...]  # its place among all that wait; the smaller goes first


class Supply(NamedTuple):
    """A live agent: all that it offers, and what of it is free."""

    node: str
    labels: frozenset[str]
    slots: Mapping[str, int]  # by kind
    offers: Mapping[str, int]
    free_slots: Mapping[str, int]
    free: Mapping[str, int]


def has_turn(head: Head, fronts: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether it comes before all ordinary runs of its kind that wait; `fronts` has the place of the first of
    each kind. Then it is started before them, and else from what they leave: so neither starves the other."""
    front = fronts.get(head.kind)
    return front is None or head.order < front


def reserve(
    heads: Iterable[Head], agents: Sequence[Supply], now: Moment, fronts: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """Return which node is kept for which run.

    Only a run whose turn it is has a reservation, and those that wait longest are served first. At most half of the
    agents are kept, but always one.

    Of the agents that could ever run it, the one is kept that misses least. While it is kept it misses less and less;
    so, should another take its place, that one misses less still, and the wait has an end.
    """
    kept: dict[str, int] = {}
    most = max(1, len(agents) // 2)
    for head in sorted(heads, key=lambda one: (one.since_at, one.run_id)):
        if len(kept) >= most:
            break
        if now - head.since_at < RESERVE_AFTER or not has_turn(head, fronts):
            continue
        suitable = [agent for agent in agents if agent.node not in kept and _suits(head, agent)]
        if suitable:
            kept[min(suitable, key=lambda agent: (_missing(head, agent), agent.node)).node] = head.run_id
    return kept


def room_beside(head: Head, room: Mapping[str, int]) -> dict[str, int]:
    """Return how many ordinary runs an agent that is kept for a run may still take, of those for which it has `room`:
    they take slots alone, and those that the run needs are left free."""
    return {kind: max(0, free - slots_of(head.asks)) if kind == head.kind else free for kind, free in room.items()}


def _suits(head: Head, agent: Supply) -> bool:
    whole = of_kind(agent.slots.get(head.kind, 0), agent.offers)
    return head.pin in (None, agent.node) and agent.labels.issuperset(head.labels) and fits(head.asks, whole)


def _missing(head: Head, agent: Supply) -> float:
    """From 0, it fits, to 1: none of what it asks for most is free."""
    free = of_kind(agent.free_slots.get(head.kind, 0), agent.free)
    asks = head.asks if any(name == SLOTS for name, _ in head.asks) else ((SLOTS, 1), *head.asks)
    return max(max(0, amount - free.get(name, 0)) / amount for name, amount in asks)
