"""Kind `watched`: a job that others run (cron, systemd), of which Horae only hears.

    watched: {grace: 30m}          with a schedule as any job has: when it is expected to run

Each due moment has its run, which waits to be told how it ended: by a ping to the address of the job, or by the end of
the grace, and then it is `failed(missed)`. A ping for which nobody waits makes a run of its own, as one by hand.

    watch:start   {"started"}                             it has begun
    watch:log     {"output"}                              where the first of its output lies
    watch:end     {"state", "exit_code", "seconds", "output"}

What must stay true: the end that is told first stands; how a run ends follows from what it was told and from what an
early run of the same job was told, and from nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from horae.core.fields import Fields, fields_of
from horae.core.model import SECOND, Json, Moment, Reason, Run, State
from horae.core.time.moments import format_moment
from horae.core.waits import WATCH_END, Ended, Wait
from horae.errors import Invalid

WATCHED = "watched"
FIELDS = frozenset({"watched"})
_PING = "watch:ping"  # for which the token of a job's address is made
START, LOG = "watch:start", "watch:log"
STATES = ("start", "success", "fail", "log")
OUTPUT = 1, 0  # attempt and fence under which lies what was told of a run, whoever claimed that
EARLY = 60 * SECOND  # by which a ping may come before the moment for which it counts: clocks differ
KEPT = 100 << 10  # bytes of what one ping says: the last ones
MOST_KEPT = 1 << 20  # bytes of all that pings say of one run
LEAST_GRACE, MOST_GRACE = 1.0, 30 * 86400.0  # seconds
MOST_SECONDS = 1e9  # that something may take


def address_name(edition: int) -> str:
    """Return the name for which the token of a job's address is made, after it was made anew so often."""
    return f"{_PING}:{edition}" if edition else _PING


@dataclass(frozen=True, slots=True)
class Ping:
    """What somebody tells of a job that he runs."""

    state: str = "success"
    exit_code: int | None = None
    seconds: float | None = None  # that it took
    run_id: int | None = None  # as he was told when it began
    at: Moment | None = None  # when it was so, if that is a while ago


def read_watched(fields: Fields) -> Json:
    what = "must say how long after its moment it may end, such as {grace: 30m}"
    inner = fields_of(fields.values.get("watched", {}), fields.at("watched"), fields.problems, what)
    if inner is None:
        return {}
    inner.refuse_others(frozenset({"grace"}))
    inner.require("grace", "how long after its moment may it end? write watched: {grace: 30m}")
    grace = inner.seconds("grace", LEAST_GRACE, LEAST_GRACE)
    if grace is not None and grace > MOST_GRACE:
        inner.fault("grace", "E_RANGE", f"at most {MOST_GRACE / 86400:g} days")
    return {"watched": {"grace": grace}}


def read_state(words: str | None, exit_code: int | None) -> str:
    """Return what a ping says by the words of its address; without any, its exit code tells."""
    state = words or ("fail" if exit_code else "success")
    if state not in STATES:
        hint = "as the last part of the address, or as ?state="
        raise Invalid(f"one of {', '.join(STATES)} expected, got {state[:40]!r}", code="E_ENUM", hint=hint)
    return state


def read_seconds(text: str) -> float:
    """Return how long something took."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST_SECONDS:
        raise Invalid(f"seconds from 0 to {MOST_SECONDS:g} expected, got {text[:40]!r}", code="E_RANGE")
    return seconds


# ── deciding ──


def begin(spec: Json) -> Wait:
    """Return for what a run of this spec waits. The grace begins when the run does: should Horae itself have been away,
    whoever has to tell of it gets his time."""
    return Wait(Reason.SIGNAL, WATCH_END, seconds=spec["watched"]["grace"])


def end(spec: Json, answers: dict[str, Json]) -> Ended | None:
    """Return how it ended, by what the run was told; None: it goes on waiting."""
    said = answers.get(WATCH_END)
    if said is None:
        return None
    if "late" in said:
        return _missed(spec, answers)
    told = said["value"]
    code, seconds = told.get("exit_code"), _seconds(told, answers)
    result = None if seconds is None else {"seconds": seconds}
    if told["state"] == "success":
        return Ended(State.SUCCEEDED, result=result, exit_code=code)
    how = f" with exit code {code}" if code is not None else ""
    return Ended(State.FAILED, Reason.EXIT, f"it failed{how}, as whoever runs it tells", result, code)


def _seconds(told: Json, answers: dict[str, Json]) -> float | None:
    """Return how long it took, as whoever ran it tells, or from the ping of its start to that of its end."""
    seconds: float | None = told.get("seconds")
    if seconds is None and START in answers:
        seconds = max(0.0, (answers[WATCH_END]["at"] - answers[START]["at"]) / SECOND)
    return seconds


def began_at(ended: Ended, at: Moment) -> Moment | None:
    """Return when it began that has ended now; None where nobody knows how long it took."""
    seconds = (ended.result or {}).get("seconds")
    return None if seconds is None else max(0, at - round(seconds * SECOND))


def _missed(spec: Json, answers: dict[str, Json]) -> Ended:
    grace = f"within {spec['watched']['grace']:g} s"
    if START in answers:
        begun = format_moment(answers[START]["at"])
        return Ended(State.FAILED, Reason.MISSED, f"it began at {begun}, and its end was not told {grace}")
    return Ended(State.FAILED, Reason.MISSED, f"nothing was heard of it {grace} of its moment")


def output_of(answers: dict[str, Json]) -> str | None:
    """Return where the output lies of which a run was told."""
    told = [answers[name].get("value") or {} for name in (WATCH_END, LOG) if name in answers]
    return next((one["output"] for one in told if one.get("output")), None)


def choose(runs: Sequence[Run], at: Moment) -> Run | None:
    """Return the run that a ping of a moment is about, of those of its job that live: that of the latest moment by
    then."""
    due = [run for run in runs if run.due_at <= at + EARLY and not run.state.is_terminal]
    return max(due, key=lambda run: (run.due_at, run.id), default=None)


def moment_of(early: Run, runs: Sequence[Run]) -> Run | None:
    """Return the run of the moment for which a run stands that a ping made: the next one, if that came soon."""
    due = [run for run in runs if run.trigger_id is not None and 0 < run.due_at - early.due_at <= EARLY]
    return min(due, key=lambda run: run.due_at, default=None)


def adopt(runs: Sequence[Run], due_at: Moment) -> Ended | None:
    """Return how the run of a moment ends for which another was told early. `runs` are those of the time before, in
    which a ping counts for it; those of other moments have their own pings."""
    since = max((run.due_at for run in runs if run.trigger_id is not None), default=0)
    early = [run for run in runs if run.trigger_id is None and since <= run.due_at < due_at]
    return next((found for run in early if (found := _alike(run, due_at)) is not None), None)


def _alike(early: Run, due_at: Moment) -> Ended | None:
    """None: it has not ended yet, or nobody told of it either."""
    if early.state not in (State.SUCCEEDED, State.FAILED) or early.reason == Reason.MISSED:
        return None
    words = f"told {(due_at - early.due_at) / SECOND:.0f} s before its moment, as run {early.id}"
    message = f"{early.message}; {words}" if early.message else words
    return Ended(early.state, early.reason, message, early.result, early.exit_code)
