"""Dependencies: a job that comes after others, and when its runs may go.

    after: [extract, {job: load, on: end, moment: latest}]

With triggers of its own, a run is born blocked(dependency) and waits for the runs that its predecessors have for the
same due moment; without, the end of a predecessor's run makes one, for the moment of that run. Who asks for a run by
hand, or by an event, has no moment that others share: it takes the latest run of each.

    predecessor's run     on: success     on: failure     on: end
    is live, or comes     waits           waits           waits
    succeeded             goes            skipped         goes
    failed, timed out,    skipped         goes            goes
    cancelled
    skipped               skipped         skipped         goes
    coalesced             the run that stands for it counts
    none, and none comes  skipped         skipped         skipped

The latest run is the one that was there when the follower's was made, be it over or not; if there was none, the first
that comes. One that was skipped or coalesced is none of these.

What must stay true: a verdict other than `wait` never changes, whatever comes later; it is the same whoever judges,
and however often.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from horae.core.fields import Fields, encoded, fields_of, kind_of
from horae.core.jobdata import MAX_DATA
from horae.core.model import LARGEST_ID, After, Job, Json, Moment, State, Trigger
from horae.core.time.document import KINDS
from horae.core.time.moments import format_moment
from horae.core.time.schedule import compile_schedule
from horae.errors import Invalid

SUCCESS, FAILURE, END = "success", "failure", "end"
ENDINGS = (SUCCESS, FAILURE, END)
SAME, LATEST = "same", "latest"
MOMENTS = (SAME, LATEST)
MAX_AFTER = 50  # predecessors of one job
DATA = "after"  # where the data of a run has what its predecessors said
_FAILURES = frozenset({State.FAILED, State.TIMED_OUT, State.CANCELLED})
_FIELDS = frozenset({"job", "on", "moment", "id"})
_EXAMPLE = "{job: extract, on: success}"


# ── reading ────────────────────────────────────────────────────────────────────────────────────────


def read_after(fields: Fields) -> tuple[After, ...]:
    """Return the predecessors that a document names. Which jobs they are is found when it is submitted."""
    found: dict[int | str, After] = {}
    for index, value in enumerate(fields.items("after", MAX_AFTER, "predecessors") if "after" in fields.values else ()):
        where = f"{fields.at('after')}[{index}]"
        one = _read_one(value if isinstance(value, dict) else {"job": value}, where, fields)
        if one is not None and one.job in found:
            fields.problems.add(where, "E_FIELD_CONFLICT", f"{one.job} is there twice", "keep one of them")
        if one is not None:
            found[one.job] = one
    return tuple(found.values())


def _read_one(value: Json, where: str, fields: Fields) -> After | None:
    inner = fields_of(value, where, fields.problems, f"must be the key or id of a job, or such as {_EXAMPLE}")
    if inner is None:
        return None
    inner.refuse_others(_FIELDS)
    inner.require("job", f"is missing; write for example {_EXAMPLE}")
    job = read_job_name(inner, "job")
    on = inner.word("on", ENDINGS, SUCCESS)
    moment = inner.word("moment", MOMENTS, SAME)
    return None if job is None else After(job, on or SUCCESS, moment or SAME)


def read_job_name(fields: Fields, name: str) -> int | str | None:
    """Return the id or the key of a job."""
    value = fields.values.get(name)
    if type(value) is int:
        if 0 < value <= LARGEST_ID:
            return value
        fields.fault(name, "E_RANGE", "the id of a job is a positive whole number")
    elif isinstance(value, str):
        return fields.handle(name)
    elif name in fields.values:
        fields.fault(name, "E_TYPE", f"the key of a job, or its id, expected, got {kind_of(value)}")
    return None


def cycle_of(after: Mapping[int, Collection[int]]) -> list[int]:
    """Return jobs that come after each other in a circle, as a path that ends where it began; empty if none do."""
    before = {job: [each for each in ids if each in after] for job, ids in after.items()}
    while done := {job for job, ids in before.items() if not ids}:  # nothing of a circle is among these
        before = {job: [i for i in ids if i not in done] for job, ids in before.items() if job not in done}
    if not before:
        return []
    path = [min(before)]
    while (following := before[path[-1]][0]) not in path:  # whatever is left comes after something that is left
        path.append(following)
    return [*path[path.index(following) :], following]


def refuse_cycle(after: Mapping[int, Collection[int]], names: Mapping[int, str], new: Iterable[int] = ()) -> None:
    """`new` are those that are being written: the path begins with one of them."""
    path = cycle_of(after)
    if not path:
        return
    first = next((path.index(job) for job in new if job in path), 0)
    shown = [names.get(job) or str(job) for job in [*path[first:-1], *path[:first], path[first]]]
    raise Invalid(
        f"jobs would wait for each other in a circle: {' after '.join(shown)}",
        code="E_CYCLE",
        path="after",
        hint="take one of them out of `after`, or out of a trigger `on`",
    )


# ── judging ────────────────────────────────────────────────────────────────────────────────────────


class Seen(NamedTuple):
    """The run of a predecessor that counts; of a coalesced one, the run that stands for it."""

    run_id: int
    state: State
    result: Any = None


class Predecessor(NamedTuple):
    """What is known of one of `after`."""

    after: After
    seen: Seen | None
    missing: str = ""  # why there is no run, and none will come; empty: one may


class Verb(StrEnum):
    GO = "go"
    WAIT = "wait"
    NEVER = "never"


class Verdict(NamedTuple):
    verb: Verb
    sentence: str = ""


def judge(known: Sequence[Predecessor], due_at: Moment | None) -> Verdict:
    """Return what becomes of a run; `due_at` is the moment that it shares with its predecessors, None for one that has
    none."""
    verdicts = [_judge_one(one, due_at) for one in known]
    if never := [verdict for verdict in verdicts if verdict.verb is Verb.NEVER]:
        return never[0]
    waits = [verdict.sentence for verdict in verdicts if verdict.verb is Verb.WAIT]
    return Verdict(Verb.WAIT, "waits for " + "; and for ".join(waits)) if waits else Verdict(Verb.GO)


def _judge_one(one: Predecessor, due_at: Moment | None) -> Verdict:
    is_shared = one.after.moment == SAME and due_at is not None
    which = (
        f"{one.after.job}, due {format_moment(due_at or 0)}," if is_shared else f"the latest run of {one.after.job},"
    )
    if one.seen is None:
        if one.missing:
            return Verdict(Verb.NEVER, f"comes after {one.after.job}, {one.missing}")
        return Verdict(Verb.WAIT, f"{which} which is still to come")
    run_id, state, _ = one.seen
    if not state.is_terminal:
        return Verdict(Verb.WAIT, f"{which} which is {state.word}: run {run_id}")
    if _is_met(one.after.on, state):
        return Verdict(Verb.GO)
    return Verdict(Verb.NEVER, f"comes after the {one.after.on} of {which} which {_past(state)}: run {run_id}")


def _is_met(on: str, state: State) -> bool:
    if on == END:
        return True
    return state in _FAILURES if on == FAILURE else state is State.SUCCEEDED


def _past(state: State) -> str:
    return (
        state.word
        if state in (State.SUCCEEDED, State.FAILED)
        else f"was {state.word}".replace("was timed_out", "timed out")
    )


# ── can a run of that moment still come? ───────────────────────────────────────────────────────────


def is_coming(job: Job, due_at: Moment) -> bool:
    """Return whether a trigger of the job has this moment still before it."""
    return not job.paused and job.deleted_at is None and any(_has(trigger, due_at) for trigger in job.triggers)


def has_moments(schedule: Json) -> bool:
    return any(kind in schedule for kind in KINDS)


def _has(trigger: Trigger, due_at: Moment) -> bool:
    if not trigger.enabled or trigger.next_at is None or trigger.next_at > due_at:
        return False
    if trigger.next_at == due_at:
        return True
    try:
        schedule = compile_schedule(trigger.schedule, seed=trigger.id, created_at=trigger.created_at)
    except Invalid:  # a newer node may know
        return True
    return schedule.delay is None and schedule.next_after(due_at - 1) == due_at


def shares_moment(job: Job, trigger_id: int | None) -> bool:
    """Return whether a run that this trigger made has a moment that others may have, too: not one by hand, nor one of a
    trigger that waits for an event."""
    trigger = next((trigger for trigger in job.triggers if trigger.id == trigger_id), None)
    return trigger_id is not None and (trigger is None or has_moments(trigger.schedule))


def makers(job: Job) -> tuple[After, ...]:
    """Return the predecessors whose ends make runs of this job: none, if it has triggers of its own."""
    if job.triggers or job.paused or job.deleted_at is not None:
        return ()
    return tuple(one for one in job.policy.after if one.moment == SAME) or job.policy.after


def why_missing(job: Job | None, due_at: Moment | None) -> str:
    """Return why a predecessor has no run for a moment, and gets none."""
    if job is None or job.deleted_at is not None:
        return "which was deleted"
    if due_at is None:
        return ""
    if job.paused:
        return f"which is paused and has no run for {format_moment(due_at)}"
    return f"which has no run for {format_moment(due_at)}; with `moment: latest` its latest run would count"


# ── what the run is given ──────────────────────────────────────────────────────────────────────────


def merged(data: Json, known: Iterable[Predecessor], most: int = MAX_DATA) -> Json:
    """Return the data of a run that goes, with what its predecessors said. Results that are too much for it are left
    out, the largest first, and it says so."""
    told = {str(one.after.job): _told(one) for one in known}
    sizes = {name: len(encoded({"": entry["result"]}) or "") for name, entry in told.items()}
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if sum(sizes.values()) <= most:
            break
        told[name] |= {"result": None, "left_out": f"its result of {sizes[name]:,} bytes is too large to hand on"}
        sizes[name] = 0
    return {**data, DATA: told}


def _told(one: Predecessor) -> Json:
    if one.seen is None:
        return {"run": None, "state": None, "result": None}
    return {"run": one.seen.run_id, "state": one.seen.state.word, "result": one.seen.result}
