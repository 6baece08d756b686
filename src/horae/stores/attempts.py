"""Decisions about attempts that both databases share: who gets what, and when it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from horae.core.model import Moment, Reason, State
from horae.core.policy.demands import Demand, Offer
from horae.core.runs.orders import Assignment, Claimed, Result, Waiting, Want
from horae.core.work.kinds import BY_SERVERS
from horae.stores.rows import Row

# Columns of a run that was found for claims; RANK is its priority and that of its queue, the smallest first.
RANK, PIN, RUN, _, _, _, _, DUE, KIND, _, _, _, _, _, QUEUE, PRIORITY, PASS, ANSWERS, ROOT = range(19)
HEADS = 20  # runs of a demand that are looked at for a kind of work that nobody has,
DEMANDS = 1000  # and demands


def wants_of(offers: Sequence[Offer]) -> list[Want]:
    """Return what ordinary runs may have of nodes."""
    return [Want(o.node, kind, slots, o.session) for o in offers for kind, slots in o.room.items() if slots > 0]


def claimed_by(
    offers: Sequence[Offer], answers: Sequence[list[Assignment] | None], holding: Mapping[int, Demand], is_waiting: bool
) -> Claimed:
    """Return what each offer got, from what its wants did; None when its line is not the one that counts any more."""
    left = iter(answers)
    given: list[list[Assignment] | None] = []
    room: list[dict[str, int]] = []
    for offer in offers:
        got = {kind: next(left) for kind, slots in offer.room.items() if slots > 0}  # each is of the kind it wants
        given.append(None if None in got.values() else [one for each in got.values() for one in each or ()])
        room.append({kind: slots - len(got.get(kind) or ()) for kind, slots in offer.room.items()})
    return Claimed(given, room, is_waiting, holding=holding)


def room_by_kind(wants: Sequence[Want]) -> dict[str, int]:
    """Kind → how many runs of it all of them together want."""
    room: dict[str, int] = {}
    for want in wants:
        room[want.kind] = room.get(want.kind, 0) + want.capacity
    return room


def deal(wants: Sequence[Want], found: Sequence[Row]) -> list[list[Row]]:
    """Return what each want gets of the runs that were found for them: of each kind the best, pinned ones to their
    node, and every node gets one before any gets two."""
    left, rest = room_by_kind(wants), []
    given: list[list[Row]] = [[] for _ in wants]
    mine = {(want.node, want.kind): number for number, want in enumerate(wants)}
    once = {row[RUN]: row for row in found}
    for row in in_order(once.values()):
        pin, kind = row[PIN], row[KIND]
        if left[kind]:
            left[kind] -= 1
            given[mine[pin, kind]].append(row) if pin is not None else rest.append(row)
    slots = {kind: _slots(wants, given, kind) for kind in left}
    for row in rest:
        given[next(slots[row[KIND]])].append(row)
    return given


def in_order(found: Iterable[Row]) -> list[Row]:
    """Return the best first: by rank; of queues with equal rank, that whose head waits longest; by pass."""
    since: dict[tuple[str, int, int], Moment] = {}
    ordered = []
    for row in sorted(found, key=itemgetter(PASS, RUN)):
        line = row[KIND], row[RANK], row[QUEUE]
        since[line] = max(row[DUE], since.get(line, row[DUE]))
        ordered.append((row[RANK], since[line], row[QUEUE], row[PASS], row[RUN], row))
    return [row for *_, row in sorted(ordered, key=itemgetter(0, 1, 2, 3, 4))]


def _slots(wants: Sequence[Want], given: Sequence[Sequence[Row]], kind: str) -> Iterator[int]:
    """The numbers of wants that have room, as often as they have, in turn."""
    taken = {number: len(given[number]) for number, want in enumerate(wants) if want.kind == kind}
    return (  # as far as somebody reads: an agent may have room for thousands, and get one
        number for nth in range(max(wants[number].capacity for number in taken))
        for number in taken if taken[number] <= nth < wants[number].capacity
    )  # fmt: skip


def place_in_time(result: Result, claimed_at: Moment | None, now: Moment) -> tuple[Moment | None, Moment]:
    """When an attempt began and ended. The clock of whoever reports may be wrong, and may have jumped meanwhile: it did
    not begin before it was claimed, nor end later than now; it keeps its length, if that makes sense."""
    finished_at = now if result.finished_at is None else result.finished_at
    ahead = max(0, finished_at - now)
    started_at = None if result.started_at is None else result.started_at - ahead
    finished_at -= ahead
    earliest = finished_at if started_at is None else started_at
    behind = 0 if claimed_at is None else max(0, claimed_at - earliest)
    ended_at = now if finished_at < earliest else min(finished_at + behind, now)
    return None if started_at is None else min(started_at + behind, now), ended_at


def settle(waiting: Sequence[Waiting], unwanted: set[int]) -> tuple[list[Result], list[Waiting]]:
    """A run that somebody wants cancelled gets no other attempt, even if that was asked for a moment ago: a lost
    one is cancelled, a failed one stays what it is."""
    ends = [w for w in waiting if w.result.run_id in unwanted]
    results = [replace(w.result, state=State.CANCELLED) if w.lost or not w.begun else w.result for w in ends]
    return results, [w for w in waiting if w.result.run_id not in unwanted]


def next_standing(waiting: Waiting) -> tuple[State, str]:
    """Return state and reason of a run whose attempt did not end it; it may be told already what it waits for."""
    if waiting.wait is not None:
        return State.BLOCKED, waiting.wait.reason
    if waiting.eligible_at is not None:
        return State.BLOCKED, Reason.RETRY
    return State.QUEUED, Reason.LOST if waiting.lost else Reason.NONE


def count_demanding(rows: Iterable[Row]) -> int:
    """Of runs (id, demand)."""
    return sum(row[1] is not None for row in rows)


def has_some_for_servers(rows: Iterable[Row]) -> bool:
    """Return whether servers do any of these runs (id, demand, kind) themselves: they wait to be told so."""
    return any(row[2] in BY_SERVERS for row in rows)
