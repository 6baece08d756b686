"""Why: what is so, in sentences that each have a code, data, the policy that decided, and what would change it.

Pure: from facts to an explanation. Nothing is guessed: a sentence says what a record says, or what follows from records
by the rules of whoever decides; what is recorded nowhere is said to be so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from horae.core.insight.why.ended import explain_attempts, explain_end
from horae.core.insight.why.facts import Facts, Sentence, stamp
from horae.core.insight.why.late import explain_times
from horae.core.insight.why.schedules import (
    Asked,
    explain_asked,
    explain_clock,
    explain_definition,
    explain_trigger,
    explain_triggers,
)
from horae.core.insight.why.waiting import explain_live
from horae.core.model import Moment, Trigger

__all__ = ["Explanation", "Sentence", "explain_at", "explain_job", "explain_run", "explain_this_trigger"]


@dataclass(frozen=True, slots=True)
class Explanation:
    about: str  # job, trigger or run
    id: int
    job_id: int
    job_name: str
    as_of: Moment
    sentences: Sequence[Sentence]
    run_id: int | None = None  # the run that the first sentences are about
    next_at: Moment | None = None  # when the job, or the trigger, goes next


def explain_run(facts: Facts) -> Explanation:
    run = facts.the_run
    return Explanation("run", run.id, run.job_id, facts.job.name, facts.as_of, of_run(facts), run.id, next_of(facts))


def of_run(facts: Facts) -> list[Sentence]:
    """What is to be said of a run."""
    first = explain_end(facts) if facts.the_run.state.is_terminal else explain_live(facts)
    return [*first, *explain_attempts(facts), *explain_times(facts), *_moved_moment(facts)]


def _moved_moment(facts: Facts) -> list[Sentence]:
    """What daylight saving time did to its moment."""
    trigger = facts.trigger()
    return (
        []
        if trigger is None
        else [one for one in explain_clock(trigger, Asked(facts.the_run.due_at)) if one.code == "moment.moved"]
    )


def explain_job(facts: Facts, runs: Sequence[Facts]) -> Explanation:
    """Why a job does or does not run now. `runs`: what is live of it, and its newest record."""
    sentences = [*explain_definition(facts.job), *explain_triggers(facts, facts.job.triggers), *_of_runs(runs)]
    job = facts.job
    return Explanation("job", job.id, job.id, job.name, facts.as_of, sentences, _first(runs), next_of(facts))


def explain_this_trigger(facts: Facts, trigger: Trigger, runs: Sequence[Facts]) -> Explanation:
    """The same of one trigger; `runs` are those that it made."""
    job = facts.job
    sentences = [*explain_definition(job), *explain_trigger(facts, trigger), *_of_runs(runs)]
    next_at = None if job.paused else trigger.next_at
    return Explanation("trigger", trigger.id, job.id, job.name, facts.as_of, sentences, _first(runs), next_at)


def _first(runs: Sequence[Facts]) -> int | None:
    return runs[0].the_run.id if runs else None


def _of_runs(runs: Sequence[Facts]) -> list[Sentence]:
    if not runs:
        return [Sentence("job.no_run", "it has no run yet")]
    live = [facts for facts in runs if not facts.the_run.state.is_terminal]
    if not live:
        return [*_named(runs[0]), Sentence("job.idle", "nothing of it waits or runs")]
    return [sentence for facts in live for sentence in _named(facts)]


def _named(facts: Facts) -> list[Sentence]:
    """What is to be said of one run among others: each sentence says of which, the first also when it was due."""
    run = facts.the_run
    names = chain([f"run {run.id}, due {stamp(run.due_at)}"], repeat(f"run {run.id}"))
    return [
        replace(one, text=f"{name}: {one.text}", data={**one.data, "run_id": run.id})
        for name, one in zip(names, of_run(facts), strict=False)
    ]


def explain_at(
    facts: Facts, asked: Sequence[tuple[Trigger, Asked]], records: Sequence[Facts], about: str = "job"
) -> Explanation:
    """Why a job did or did not run at a moment: by its record, and else by what its triggers say."""
    job = facts.job
    found = [sentence for record in records for sentence in _named(record)]
    recorded = {record.the_run.trigger_id for record in records}
    for trigger, moment in asked:
        has_record = trigger.id in recorded
        found += explain_clock(trigger, moment) if has_record else explain_asked(facts, trigger, moment)
    if not asked and not records:
        found = [*explain_definition(job), *explain_triggers(facts, ())]
    id_ = asked[0][0].id if about == "trigger" else job.id
    sentences = _once(found)
    return Explanation(about, id_, job.id, job.name, facts.as_of, sentences, _first(records), next_of(facts))


def _once(sentences: Sequence[Sentence]) -> list[Sentence]:
    seen: set[tuple[str, str]] = set()
    return [one for one in sentences if (key := (one.code, one.text)) not in seen and not seen.add(key)]  # type: ignore[func-returns-value]


def next_of(facts: Facts) -> Moment | None:
    job = facts.job
    if job.paused or job.deleted_at is not None:
        return None
    return min((trigger.next_at for trigger in job.triggers if trigger.next_at is not None), default=None)
