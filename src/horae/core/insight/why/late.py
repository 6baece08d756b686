"""Why a run was late: when it was due, fired, begun and ended, and what kept it in each part of its way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from horae.core.insight.why.facts import NOT_TRIED, Facts, Neighbour, Sentence, counted, listed, span, stamp
from horae.core.model import SECOND, Attempt, Json, Moment, NodeState, Reason, State

NOTICED = SECOND  # late by less is not worth a sentence


def explain_times(facts: Facts) -> list[Sentence]:
    """When it was due, fired, begun and ended; and if it was late, in which part, and by what."""
    run = facts.the_run
    if run.state in (State.SKIPPED, State.COALESCED) and run.started_at is None:
        return []
    fired, began = run.created_at - run.due_at, _first_start(facts)
    waited = None if began is None else began - max(run.created_at, run.due_at)
    sentences = [_times(facts, fired, began)]
    if run.trigger_id is not None and fired >= NOTICED:
        sentences.append(_late_fired(facts, fired))
    if waited is not None and waited >= NOTICED:
        sentences.append(_late_begun(facts, waited))
    return [*sentences, *_late_again(facts)]


def _late_again(facts: Facts) -> list[Sentence]:
    """What lies between its first start and its last one: attempts that failed or were lost, and pauses of its own."""
    spans = _spans(facts)
    tried = [took for attempt, took in spans if attempt.reason not in NOT_TRIED]
    pauses = [(attempt.reason, took) for attempt, took in spans if attempt.reason in NOT_TRIED]
    found, micros = list[Sentence](), sum(tried)
    if micros >= NOTICED:
        text = (
            f"its last attempt was begun {span(micros)} after its first: {counted(len(tried), 'attempt')} came before"
        )
        found.append(Sentence("late.retried", text, {"seconds": micros / SECOND, "attempts": len(tried)}))
    micros = sum(took for _, took in pauses)
    if micros >= NOTICED:
        reasons = Counter(reason for reason, _ in pauses)
        words = [f"{_PAUSES[reason]}{f' {times} times' if times > 1 else ''}" for reason, times in reasons.items()]
        text = f"it began {span(micros)} before it last went on, because it {' and '.join(words)}"
        data: Json = {"seconds": micros / SECOND, "reasons": dict(reasons), "pauses": len(pauses)}
        found.append(Sentence("late.paused", text, data))
    return found


_PAUSES: dict[str, str] = {
    Reason.SIGNAL: "waited to be told something", Reason.SNOOZED: "asked to go on later",
    Reason.CHILDREN: "waited for runs that it called", Reason.LIMIT: "found less free than it asks for",
    Reason.DESTINATION_BUSY: "found another run writing what it would write",
}  # fmt: skip


def _spans(facts: Facts) -> list[tuple[Attempt, int]]:
    """Return each attempt before the last one with the µs from its start to the next."""
    begun = [(one.started_at, one) for one in facts.attempts if one.started_at is not None]
    last = facts.the_run.started_at
    starts = [start for start, _ in begun[1:]] + ([] if last is None else [last])
    return [(one, max(0, later - start)) for (start, one), later in zip(begun, starts, strict=False)]


def _first_start(facts: Facts) -> Moment | None:
    starts = [one.started_at for one in facts.attempts if one.started_at is not None]
    return min([*starts, *([] if facts.the_run.started_at is None else [facts.the_run.started_at])], default=None)


def _times(facts: Facts, fired: int, began: Moment | None) -> Sentence:
    run = facts.the_run
    parts = [f"due {stamp(run.due_at)}", f"{'fired' if run.trigger_id else 'made'} {_later(fired)}"]
    if began is not None:
        parts.append(f"begun {span(began - max(run.created_at, run.due_at))} after that")
    data: Json = {
        "due_at": stamp(run.due_at), "created_at": stamp(run.created_at),
        "started_at": None if began is None else stamp(began),
        "finished_at": None if run.finished_at is None else stamp(run.finished_at),
        "due_to_fired_ms": fired / 1000,
        "fired_to_started_ms": None if began is None else (began - max(run.created_at, run.due_at)) / 1000,
    }  # fmt: skip
    return Sentence("run.times", ", ".join(parts), data)


def _later(micros: int) -> str:
    return f"{span(micros)} later" if micros >= 0 else f"{span(micros)} before"


def _late_fired(facts: Facts, late: int) -> Sentence:
    """Due, and for a while nobody made a run of it."""
    run = facts.the_run
    schedulers = [node for node in facts.nodes if "scheduler" in node.roles and node.state is not NodeState.GONE]
    first = min((node.started_at for node in schedulers), default=None)
    data: Json = {"seconds": late / SECOND, "segment": facts.job.segment}
    how = f"it was fired {span(late)} late"
    if first is not None and first > run.due_at:
        text = f"{how}: none of the schedulers that are there was started before {stamp(first)}"
        return Sentence("late.down", text, {**data, "first_started_at": stamp(first)})
    owner = facts.owner
    if owner is not None and owner.since_at is not None and run.due_at < owner.since_at <= run.created_at + SECOND:
        went = f"its segment {facts.job.segment} went to {owner.node} at {stamp(owner.since_at)}"
        text = f"{how}: {went}, and nobody fired it before"
        return Sentence("late.segment", text, {**data, "owner": owner.node, "since_at": stamp(owner.since_at)})
    quiet = _quiet_before(facts)
    also = "" if not quiet else f"; nothing else was fired between {stamp(quiet[0])} and {stamp(quiet[1])} either"
    return Sentence("late.fired", f"{how}: what its scheduler did meanwhile is not recorded{also}", data)


def _quiet_before(facts: Facts) -> tuple[Moment, Moment] | None:
    """The time around its moment in which no run at all was made, if there is any to speak of."""
    run = facts.the_run
    before = max((one.created_at for one in facts.beside if one.created_at < run.created_at), default=None)
    if before is None or before > run.due_at:
        return None
    return before, run.created_at


def _late_begun(facts: Facts, waited: int) -> Sentence:
    """Made, and for a while nobody began it: what others did meanwhile may show why."""
    run = facts.the_run
    at = max(run.created_at, run.due_at)
    how = f"it was begun {span(waited)} after it was made"
    data: Json = {"seconds": waited / SECOND}
    silent = run.fence - 1 - len(facts.attempts)
    if silent > 0:  # each time that it was begun has its fence; one that paused without output has no other record
        how = f"it last went on {span(waited)} after it was made, and had given way {counted(silent, 'time')} before"
        text = f"{how} to wait for something: when it first began is not recorded"
        return Sentence("late.paused", text, {**data, "reasons": {}, "pauses": silent})
    limit = min((one.limit for one in facts.job.policy.concurrency_limits if one.per == "job"), default=None)
    own = [one.run_id for one in facts.beside if one.job_id == run.job_id and one.was_running(at)]
    if limit is not None and len(own) >= limit:
        text = f"{how}: {limit} of its job may run at once, and {listed(own)} ran when it was made"
        return Sentence(
            "late.limit",
            text,
            {**data, "runs": own, "limit": limit},
            f"concurrency_limits: [{{limit: {limit}}}]",
            "raise the limit",
        )
    slots = _slots_of(facts)
    there = _ran_beside(facts.beside, run.node, run.kind, at)
    if slots and len(there) >= slots:
        text = f"{how}: all {slots} slots of {run.node} were busy when it was made, with runs {listed(there)}"
        return Sentence(
            "late.slots",
            text,
            {**data, "node": run.node, "slots": slots, "runs": there},
            "slots",
            "raise --slots, or start another agent",
        )
    return Sentence("late.waited", f"{how}: for what it waited is not recorded", data)


def _slots_of(facts: Facts) -> int:
    run = facts.the_run
    node = next((node for node in facts.nodes if node.name == run.node), None)
    return 0 if node is None else node.capacity.get(run.kind, node.slots)


def _ran_beside(beside: Sequence[Neighbour], node: str | None, kind: str, at: Moment) -> list[int]:
    return [one.run_id for one in beside if one.node == node and one.kind == kind and one.was_running(at)]
