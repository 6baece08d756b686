"""Triggers and their moments: when one goes next, and why it has a moment or not.

A moment is asked for as text: RFC 3339 with its offset, or as a clock of the trigger's zone shows it. The latter may
not exist on that day, or exist twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from horae.core.insight.why.facts import SHOWN, Done, Facts, Sentence, counted, listed, span, stamp
from horae.core.model import SECOND, Job, Json, Moment, Trigger
from horae.core.policy.breaker import paused_because, paused_by
from horae.core.time import outside
from horae.core.time.document import Plan
from horae.core.time.moments import DAY, format_local, read_clock
from horae.core.time.schedule import Schedule, compile_schedule, in_words
from horae.core.time.wallclock import Zone, clock_text
from horae.errors import Invalid

LATE = SECOND  # a due moment that nobody has fired for so long is overdue
MOST_TRIGGERS = 10  # of a job that are looked at


class Asked(NamedTuple):
    """A moment that was asked for, as one trigger understands it."""

    at: Moment  # when the clock shows it first; of a time that does not exist, when the gap ends
    is_real: bool = True  # the clock shows it
    again_at: Moment | None = None  # when the clock shows it a second time
    local: str = ""  # as it was written, of one without an offset


# ── the job ──
def explain_definition(job: Job) -> list[Sentence]:
    """What keeps all triggers of a job from firing."""
    if job.deleted_at is not None:
        return [
            Sentence(
                "job.deleted", f"job {job.id} was deleted at {stamp(job.deleted_at)}", {"at": stamp(job.deleted_at)}
            )
        ]
    if job.part_of is not None:
        text = f"job {job.id} is a task of the workflow that is job {job.part_of}"
        return [Sentence("job.task", text, {"workflow": job.part_of}, unblock=f"horae explain job:{job.part_of}")]
    if why := paused_because(job):
        line = f"pause_after_failures: {job.policy.pause_after_failures}"
        return [
            Sentence("job.paused.breaker", f"it paused itself: {why}", {"because": why}, line, f"horae resume {job.id}")
        ]
    if job.paused:
        by, at = paused_by(job)
        who = f"by {by}" if by else "by whom is not recorded"
        when = "" if at is None else f" at {stamp(at)}"
        data = {"by": by or None, "at": None if at is None else stamp(at)}
        return [Sentence("job.paused", f"it is paused, {who}{when}", data, "paused: true", f"horae resume {job.id}")]
    return []


def explain_triggers(facts: Facts, triggers: Sequence[Trigger]) -> list[Sentence]:
    """When each goes next, or why it does not."""
    job = facts.job
    if job.deleted_at is not None or job.part_of is not None:
        return []
    if not triggers:
        return [_without_trigger(job)]
    return [one for trigger in triggers[:MOST_TRIGGERS] for one in explain_trigger(facts, trigger)]


def _without_trigger(job: Job) -> Sentence:
    after = [str(one.job) for one in job.policy.after]
    if after:
        text = f"it has no trigger: its runs are made when {listed(after)} end"
        return Sentence(
            "job.follows", text, {"after": after}, f"after: [{', '.join(after)}]", f"horae explain {after[0]}"
        )
    return Sentence("job.no_trigger", "it has no trigger, and comes after no other job", unblock=f"horae run {job.id}")


def explain_trigger(facts: Facts, trigger: Trigger) -> list[Sentence]:
    words = in_words(trigger.schedule)
    data: Json = {"trigger_id": trigger.id, "schedule": words}
    name = f"trigger {trigger.id} ({words})"
    if not trigger.enabled:
        return [
            Sentence(
                "trigger.disabled", f"{name} is switched off", data, "enabled: false", "enabled: true in the trigger"
            )
        ]
    if outside.is_outside(trigger.schedule):
        return [Sentence("trigger.outside", f"trigger {trigger.id} fires {words}", data)]
    try:
        schedule = _compiled(trigger)
    except Invalid as error:
        return [
            Sentence("trigger.unreadable", f"trigger {trigger.id} cannot be read by this node: {error.message}", data)
        ]
    if facts.job.paused:
        return []
    if trigger.next_at is None:
        last = "" if trigger.last_at is None else f"; its last moment was {stamp(trigger.last_at)}"
        return [Sentence("trigger.over", f"{name} has no further moment{last}", data, _end_line(schedule.plan))]
    if trigger.next_at <= facts.as_of - LATE:
        return _overdue(facts, trigger.next_at, data)
    return [_next(facts, trigger.next_at, schedule, data), *_moved(schedule, trigger.next_at, data)]


def _next(facts: Facts, at: Moment, schedule: Schedule, data: Json) -> Sentence:
    local = format_local(at, schedule.plan.zone.info)
    zone = "" if schedule.plan.zone.name == "UTC" else f" ({local} in {schedule.plan.zone.name})"
    away = span(max(0, at - facts.as_of))
    text = f"trigger {data['trigger_id']} ({data['schedule']}) goes next at {stamp(at)}{zone}, in {away}"
    return Sentence("trigger.next", text, {**data, "next_at": stamp(at), "local": local})


def _overdue(facts: Facts, at: Moment, data: Json) -> list[Sentence]:
    late = facts.as_of - at
    owner = facts.owner
    data = {**data, "due_at": stamp(at), "seconds": late / SECOND, "segment": facts.job.segment}
    text = f"its moment {stamp(at)} came {span(late)} ago, and nobody has fired it"
    if owner is None or not owner.node:
        unowned = Sentence(
            "segment.unowned",
            f"no scheduler owns its segment {facts.job.segment}",
            data,
            unblock="horae up, with the role scheduler",
        )
        return [Sentence("trigger.overdue", text, data), unowned]
    node = next((node for node in facts.nodes if node.name == owner.node), None)
    heard = "is not known any more" if node is None else f"was last heard of at {stamp(node.heartbeat_at)}"
    return [
        Sentence(
            "trigger.overdue",
            f"{text}: its segment {facts.job.segment} belongs to {owner.node}, which {heard}",
            {**data, "owner": owner.node},
        )
    ]


def _moved(schedule: Schedule, at: Moment, data: Json) -> list[Sentence]:
    """What daylight saving time does to a moment of it."""
    note = schedule.note(at)
    if not note:
        return []
    plan = schedule.plan
    text = f"{stamp(at)} is moved by daylight saving time in {plan.zone.name}: {note}"
    return [Sentence("moment.moved", text, {**data, "at": stamp(at), "note": note}, _dst_line(plan))]


def _dst_line(plan: Plan) -> str:
    return f"dst: {{gap: {plan.gap}, fold: {plan.fold}}}"


def _end_line(plan: Plan) -> str:
    return "" if plan.end is None else f"end_at: {stamp(plan.end)}"


def _compiled(trigger: Trigger) -> Schedule:
    return compile_schedule(trigger.schedule, seed=trigger.id, created_at=trigger.created_at)


# ── a moment that was asked for ──
def read_asked(text: str, trigger: Trigger) -> Asked:
    """Return the moment that a text means; without an offset, in the trigger's zone. Raises Invalid."""
    wall, offset = read_clock(text)
    if offset is not None:
        return Asked(wall - offset)
    try:
        zone = _compiled(trigger).plan.zone
    except Invalid:
        return Asked(wall)  # a schedule that cannot be read has no zone that could
    at, is_real = zone.moment_of(wall)
    return Asked(at, is_real, _again(zone, wall, at) if is_real else None, text)


def _again(zone: Zone, wall: int, at: Moment) -> Moment | None:
    """Return when the clocks show a time once more, which they have shown at a moment."""
    piece = zone.piece_at(at)
    later = wall - piece.after
    return later if piece.end <= later < piece.end + DAY and zone.offset_at(later) == piece.after else None


def is_moment(trigger: Trigger, at: Moment) -> bool:
    """Return whether the schedule has this moment."""
    if outside.is_outside(trigger.schedule):
        return False
    try:
        schedule = _compiled(trigger)
    except Invalid:
        return False
    return schedule.delay is None and at >= trigger.created_at and schedule.next_after(at - 1) == at


def explain_asked(facts: Facts, trigger: Trigger, asked: Asked) -> list[Sentence]:
    """Why a trigger has no run for a moment: what the clock did to it, and what the schedule says."""
    if outside.is_outside(trigger.schedule):
        words = in_words(trigger.schedule)
        return [
            Sentence(
                "trigger.outside", f"trigger {trigger.id} has no moments: it fires {words}", {"trigger_id": trigger.id}
            )
        ]
    try:
        schedule = _compiled(trigger)
    except Invalid as error:
        text = f"trigger {trigger.id} cannot be read by this node: {error.message}"
        return [Sentence("trigger.unreadable", text, {"trigger_id": trigger.id})]
    return [*_clock(schedule, trigger, asked), *_absent(facts, schedule, trigger, asked.at)]


def explain_clock(trigger: Trigger, asked: Asked) -> list[Sentence]:
    """What the clock did to a moment of which there is a record."""
    try:
        schedule = _compiled(trigger)
    except Invalid:
        return []
    found = _clock(schedule, trigger, asked)
    return found or _moved(schedule, asked.at, {"trigger_id": trigger.id})


def _clock(schedule: Schedule, trigger: Trigger, asked: Asked) -> list[Sentence]:
    zone, data = schedule.plan.zone, {"trigger_id": trigger.id, "zone": schedule.plan.zone.name}
    if not asked.is_real:
        end = clock_text(asked.at + zone.offset_at(asked.at))
        then = (
            f"what falls into it runs at {end}"
            if schedule.plan.gap == "run_after"
            else "what falls into it is left out"
        )
        text = f"{asked.local} does not exist in {zone.name}: clocks are put forward to {end} then, and {then}"
        return [
            Sentence(
                "moment.gap",
                text,
                {**data, "ends_at": stamp(asked.at)},
                f"dst: {{gap: {schedule.plan.gap}}}",
                "another time of day, or timezone: UTC",
            )
        ]
    if asked.again_at is not None:
        twice = f"at {stamp(asked.at)} and again at {stamp(asked.again_at)}"
        text = f"{asked.local} exists twice in {zone.name}: {twice}; of these, {schedule.plan.fold} counts"
        return [
            Sentence(
                "moment.fold",
                text,
                {**data, "first_at": stamp(asked.at), "second_at": stamp(asked.again_at)},
                f"dst: {{fold: {schedule.plan.fold}}}",
            )
        ]
    return []


def _absent(facts: Facts, schedule: Schedule, trigger: Trigger, at: Moment) -> list[Sentence]:
    """Why there is no record of a moment: it is none, or is still to come, or its record is not here."""
    plan, data = schedule.plan, {"trigger_id": trigger.id, "at": stamp(at)}
    words = in_words(trigger.schedule)
    if plan.end is not None and at > plan.end:
        return [
            Sentence(
                "moment.after_end",
                f"trigger {trigger.id} ended at {stamp(plan.end)}, before {stamp(at)}",
                data,
                _end_line(plan),
                "a later end_at",
            )
        ]
    if plan.start is not None and at < plan.start and plan.start > trigger.created_at:
        text = f"trigger {trigger.id} begins at {stamp(plan.start)}, after {stamp(at)}"
        return [Sentence("moment.before_start", text, data, f"start_at: {stamp(plan.start)}", "an earlier start_at")]
    if at < trigger.created_at:
        text = (
            f"trigger {trigger.id} was made at {stamp(trigger.created_at)}, after {stamp(at)}: nothing lies before that"
        )
        made = {**data, "created_at": stamp(trigger.created_at)}
        found = Sentence("moment.before_creation", text, made, unblock=f"horae run {facts.job.id}")
        # A trigger whose schedule is changed is another one: the job may have had one that had the moment.
        return [found, _changed(facts, at, data)] if facts.job.created_at <= at else [found]
    if schedule.delay is not None:
        text = f"trigger {trigger.id} ({words}) counts from the end of its last run: it has no fixed moments"
        return [Sentence("moment.delay", text, data, "mode: delay")]
    if schedule.next_after(at - 1) != at:
        return [_no_moment(schedule, trigger, at, words, data), *_spread(schedule, trigger)]
    return [_no_record(facts, trigger, at, data), *_moved(schedule, at, data)]


def _no_moment(schedule: Schedule, trigger: Trigger, at: Moment, words: str, data: Json) -> Sentence:
    before, after = nearest(schedule, at)
    near = [
        f"{word} is {stamp(one)}" for word, one in (("the one before", before), ("the next", after)) if one is not None
    ]
    text = f"trigger {trigger.id} ({words}) has no moment {stamp(at)}: {' and '.join(near) or 'it has none around it'}"
    data = {
        **data,
        "before": None if before is None else stamp(before),
        "after": None if after is None else stamp(after),
    }
    return Sentence("moment.none", text, data, f"schedule: {words}", "horae preview shows the moments of a schedule")


def _spread(schedule: Schedule, trigger: Trigger) -> list[Sentence]:
    plan = schedule.plan
    if not plan.jitter and not plan.spread:
        return []
    what = f"jitter of {span(plan.jitter)}" if plan.jitter else "H in its cron expression"
    line = f"jitter: {span(plan.jitter)}" if plan.jitter else f"cron: {plan.expression}"
    return [
        Sentence(
            "moment.spread",
            f"its moments are moved by the {what}, always by the same",
            {"trigger_id": trigger.id},
            line,
        )
    ]


def nearest(schedule: Schedule, at: Moment) -> tuple[Moment | None, Moment | None]:
    """Return the moments before and after one. That before is looked for further and further back."""
    after = schedule.next_after(at)
    back = SECOND
    while back <= FURTHEST:
        start = max(schedule.created_at, at - back)
        if (first := schedule.next_after(start - 1)) is not None and first < at:
            return _last_before(schedule, first, at), after
        if start == schedule.created_at:
            break
        back *= 4
    return None, after


FURTHEST = 40 * 366 * DAY


def _last_before(schedule: Schedule, first: Moment, at: Moment) -> Moment:
    """Return the last moment before one, from the first of a stretch on, by halves."""
    found, end = first, at
    while end - found > 1:
        middle = (found + end) // 2
        following = schedule.next_after(middle)
        if following is not None and following < at:
            found = following
        else:
            end = middle
    return found


def _no_record(facts: Facts, trigger: Trigger, at: Moment, data: Json) -> Sentence:
    """A moment of the schedule without a record."""
    job = facts.job
    if at > facts.as_of:
        return _not_yet(facts, trigger, at, data)
    if trigger.enabled and not job.paused and trigger.next_at is not None and trigger.next_at <= at:
        text = f"{stamp(at)} has passed, and nobody has fired it yet: the trigger is at {stamp(trigger.next_at)}"
        return Sentence("moment.pending", text, {**data, "next_at": stamp(trigger.next_at)}, unblock="horae nodes")
    if job.updated_at > at:
        return _changed(facts, at, data)
    if not trigger.enabled or job.paused:
        why = explain_definition(job) or [
            Sentence("trigger.disabled", f"trigger {trigger.id} is switched off", data, "enabled: false")
        ]
        return why[0]
    text = f"there is no record of {stamp(at)} any more, or it lies further on than was looked"
    return Sentence("moment.unknown", text, data, unblock=f"horae runs --job {job.id} --since {stamp(at)}")


def _changed(facts: Facts, at: Moment, data: Json) -> Sentence:
    """The job was changed since: who did, and what it said before, as far as the audit log has it."""
    job = facts.job
    since = [one for one in reversed(facts.done.get(("job", str(job.id)), ())) if one.at >= at and one.change]
    data |= {"changed_at": stamp(job.updated_at), "changes": [_change(one) for one in since[:SHOWN]]}
    none = f"there is no record of {stamp(at)}"
    if not since:
        text = f"{none}, and the job was changed at {stamp(job.updated_at)}: what it said before is not kept"
        return Sentence("moment.changed", text, data)
    first = since[0]
    before = _before(first)
    was = f"; before, it was {' and '.join(before)}" if before else ""
    more = f", and {counted(len(since) - 1, 'change')} came after that" if len(since) > 1 else ""
    fields = listed(sorted({name.partition(".")[0] for name in first.change}))
    text = f"{none}, and {first.who} changed the job at {stamp(first.at)} ({fields}){was}{more}"
    return Sentence("moment.changed", text, data, unblock=f"horae audit --kind job --id {job.id}")


def _change(done: Done) -> Json:
    return {"at": stamp(done.at), "by": done.who, "fields": sorted(done.change), "before": _before(done)}


def _before(done: Done) -> list[str]:
    """Return the schedules of triggers that a deed took away or changed, in words; and that it was paused."""
    pairs = [pair for name, pair in done.change.items() if name.startswith("triggers.") and isinstance(pair, list)]
    olds = [pair[0].get("schedule") for pair in pairs if pair and isinstance(pair[0], dict)]
    paused = ["paused"] if done.change.get("paused") == [True, False] else []
    return [*paused, *(in_words(old) for old in olds if isinstance(old, dict))]


def _not_yet(facts: Facts, trigger: Trigger, at: Moment, data: Json) -> Sentence:
    job = facts.job
    if (stopped := explain_definition(job)) and stopped[0].code != "job.task":
        return stopped[0]
    if not trigger.enabled:
        return Sentence(
            "trigger.disabled",
            f"trigger {trigger.id} is switched off",
            data,
            "enabled: false",
            "enabled: true in the trigger",
        )
    return Sentence("moment.not_yet", f"{stamp(at)} is still to come, in {span(at - facts.as_of)}", data)
