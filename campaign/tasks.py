"""The judge of workflows, of jobs that come after others, of orders and of signals.

What became of each task of a run, in which order, and what the run made of it; whether each follower did what the run
before it came to; whether orders of one kind became one run; and whether who was told went on.

What should have been is found from the plan and the recorded ends alone, without any code of Horae: whoever needs what
ended, ran; whoever needs what cannot come true any more was skipped; and the run ends by what its tasks came to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from campaign.case import Case, Violation, Work, of_run
from campaign.history import CANCEL, INFO, OK, ORDER, SECOND, SIGNAL, Operation, Plan, Run, TaskPlan

SUCCEEDED, SKIPPED = "succeeded", "skipped"
UNSUCCESSFUL = ("failed", "timed_out", "cancelled")
BY_TASKS = "children"  # why a workflow failed: one of its tasks did
CANCELLED_BEFORE = 15 * SECOND  # a task that was claimed just before its run was cancelled may still start so late
STILL = 30 * SECOND  # a run that was told what it waits for may take so long to go on, once everything is healed


@dataclass(slots=True)
class Flow:
    """A run of a workflow, with what is recorded of its tasks."""

    run: Run
    plan: Plan
    made: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))  # by task, as it is called there
    kept: dict[str, Run] = field(default_factory=dict)  # taken over from an earlier run

    @property
    def is_judged(self) -> bool:
        """Of one that somebody ended nobody knows how far it came."""
        return self.run.state == SUCCEEDED or (self.run.state, self.run.reason) == ("failed", BY_TASKS)

    def found(self, task: TaskPlan) -> dict[str, Run]:
        """Return what became of a task, its items each; empty: it was never decided."""
        labels = [task.name] if task.items is None else [task.name, *labels_of(task)]
        both = {label: self.kept.get(label) or next(iter(self.made.get(label, ())), None) for label in labels}
        return {label: run for label, run in both.items() if run is not None}

    def outcome(self, task: TaskPlan) -> str | None:
        """Return how a task ended; None: it did not, not all of it."""
        found = self.found(task)
        if task.items is None or task.name in found:
            return found[task.name].state if task.name in found else None
        states = [run.state for run in found.values()]
        if len(states) < task.items:
            return None
        return "failed" if any(state in UNSUCCESSFUL for state in states) else _alike(states)


def _alike(states: Sequence[str]) -> str:
    return SUCCEEDED if all(state == SUCCEEDED for state in states) else SKIPPED


def labels_of(task: TaskPlan) -> list[str]:
    return [task.name] if task.items is None else [f"{task.name}[{number}]" for number in range(task.items)]


def flows_of(case: Case) -> list[Flow]:
    """In the order in which they were made: whoever resumes another comes behind it."""
    flows: dict[int, Flow] = {}
    for run in sorted(case.runs.values(), key=lambda one: one.id):
        work = case.work_of(run)
        if work is not None and work.plan.tasks and run.parent_id is None:
            flows[run.id] = Flow(run, work.plan)
        if run.parent_id in flows:
            flows[run.parent_id].made[run.task or ""].append(run)
    for flow in flows.values():
        if flow.run.resumes in flows:
            flow.kept = dict(_kept(flows[flow.run.resumes]))
    return list(flows.values())


def _kept(earlier: Flow) -> Iterator[tuple[str, Run]]:
    """What succeeded, and so did all that it needs: that need not be done again."""
    is_kept: dict[str, bool] = {}
    for task in earlier.plan.tasks:
        found = earlier.found(task)
        is_kept[task.name] = all(is_kept[need] for need, _ in task.needs)
        if is_kept[task.name]:
            yield from ((label, run) for label, run in found.items() if run.state == SUCCEEDED)
            is_kept[task.name] = all(run.state in (SUCCEEDED, SKIPPED) for run in found.values())


# ── the properties ─────────────────────────────────────────────────────────────────────────────────


def once_each(case: Case) -> Iterator[Violation]:
    """A task of a run has one record, and none if an earlier run has done it; and there are no others."""
    flows = flows_of(case)
    for flow in flows:
        known = {label for task in flow.plan.tasks for label in (task.name, *labels_of(task))}
        for label, runs in flow.made.items():
            if label not in known:
                yield _of(case, flow, "phantom", f"there is no task {label}")
            if len(runs) > 1:
                yield _of(case, flow, "twice", f"task {label} has {len(runs)} records: {_ids(runs)}")
            if label in flow.kept:
                what = f"task {label} succeeded before, as run {flow.kept[label].id}, and was done again: {_ids(runs)}"
                yield _of(case, flow, "twice", what)
    parents = {flow.run.id for flow in flows}
    for run in case.runs.values():
        if run.parent_id is not None and run.parent_id not in parents and run.parent_id not in case.runs:
            yield of_run(case, "phantom", run, f"a task of run {run.parent_id}, which there is not")


def in_order(case: Case) -> Iterator[Violation]:
    """No task before all that it needs has ended, and none that needs what did not come true."""
    for flow in flows_of(case):
        plans = {task.name: task for task in flow.plan.tasks}
        for task in flow.plan.tasks:
            made = [run for label in {task.name, *labels_of(task)} for run in flow.made.get(label, ())]
            for need, on in task.needs if made else ():
                yield from _out_of_order(case, flow, made, plans[need], on)


def _out_of_order(case: Case, flow: Flow, made: Sequence[Run], need: TaskPlan, on: str) -> Iterator[Violation]:
    outcome = flow.outcome(need)
    complain = partial(_of, case, flow, "order")
    ended = max((_ended_at(case, run) for run in flow.found(need).values()), default=0)
    for run in made:
        if outcome is None:
            yield complain(f"task {run.task} was decided, and {need.name}, which it needs, was not")
        elif _began_at(case, run) < ended:
            early = (ended - _began_at(case, run)) / SECOND
            yield complain(f"task {run.task} began {early:.3f} s before the end of {need.name}, which it needs")
        elif run.state != SKIPPED and not is_met(outcome, on, need):
            yield complain(
                f"task {run.task} needs the {on} of {need.name}, which was {outcome}, and it was {run.state}"
            )


def is_met(outcome: str, on: str, need: TaskPlan) -> bool:
    if on == "end":
        return True
    if on == "failure":
        return outcome in UNSUCCESSFUL
    return outcome == SUCCEEDED or (outcome in UNSUCCESSFUL and need.may_fail)


def _began_at(case: Case, run: Run) -> int:
    """Return when it was made; where clocks may differ, when it first ran."""
    if case.history.holds:
        return run.created_at
    return min((one.started_at for one in case.witnesses.get(run.id, ())), default=2**62)


def _ended_at(case: Case, run: Run) -> int:
    if case.history.holds:
        return run.finished_at or 2**62
    return max((one.last_at for one in case.witnesses.get(run.id, ())), default=0)


def all_of_them(case: Case) -> Iterator[Violation]:
    """Of a run that came to its end by itself, every task was decided: run if what it needs came true, else skipped."""
    for flow in flows_of(case):
        plans = {task.name: task for task in flow.plan.tasks}
        for task in flow.plan.tasks if flow.is_judged else ():
            outcome = flow.outcome(task)
            needed = {need: flow.outcome(plans[need]) for need, _ in task.needs}
            is_due = all(is_met(needed[need] or "", on, plans[need]) for need, on in task.needs)
            if outcome is None:
                yield _of(case, flow, "lost", f"it is {flow.run.state}, and its task {task.name} has no end")
            elif not is_due and outcome != SKIPPED:
                yield _of(case, flow, "order", f"task {task.name} should have been skipped: {needed}")
            elif is_due and outcome == SKIPPED:
                yield _of(
                    case, flow, "lost", f"task {task.name} was skipped, and all that it needs came true: {needed}"
                )


def agreed(case: Case) -> Iterator[Violation]:
    """A run of a workflow ends by what its tasks came to, after the last of them, and returns what they returned."""
    for flow in flows_of(case):
        last = max((_ended_at(case, run) for runs in flow.made.values() for run in runs), default=0)
        if flow.run.finished_at is not None and case.history.holds and last > flow.run.finished_at:
            yield _of(case, flow, "parent", f"it ended {(last - flow.run.finished_at) / SECOND:.3f} s before its tasks")
        outcomes = {task.name: flow.outcome(task) for task in flow.plan.tasks}
        bad = [task.name for task in flow.plan.tasks if outcomes[task.name] in UNSUCCESSFUL and not task.may_fail]
        if flow.is_judged and (flow.run.state == SUCCEEDED) == bool(bad):
            yield _of(case, flow, "parent", f"it is {flow.run.state}, and its tasks were {outcomes}")
        if flow.run.state == SUCCEEDED and (said := _misreturned(flow)):
            yield _of(case, flow, "parent", said)


def _misreturned(flow: Flow) -> str:
    """Every item returns its data: its number, and what the list has there."""
    for task in flow.plan.tasks:
        if task.lists and flow.outcome(task) == SUCCEEDED:
            expected = [{"item": number, "number": number} for number in range(task.items or 0)]
            return "" if flow.run.result == expected else f"it returned {flow.run.result}, its tasks {expected}"
    return ""


def wanted(case: Case) -> Iterator[Violation]:
    """No task is cancelled, unless its run is."""
    for flow in flows_of(case):
        for run in (run for runs in flow.made.values() for run in runs if run.state == "cancelled"):
            if flow.run.state not in ("cancelled", "timed_out"):
                yield of_run(case, "justified", run, f"task {run.task} of run {flow.run.id} was cancelled by nobody")


def called_off(case: Case) -> Iterator[Violation]:
    """Nothing of a run of a workflow starts when it is long cancelled."""
    cancelled = {
        one.run_id: one.answered_at for one in case.history.operations if one.kind == CANCEL and one.outcome == OK
    }
    for run in case.runs.values():
        since = cancelled.get(run.id, cancelled.get(run.parent_id, 2**62))
        for witness in case.witnesses.get(run.id, ()):
            if witness.started_at > since + CANCELLED_BEFORE:
                late = (witness.started_at - since) / SECOND
                yield of_run(case, "obeyed", run, f"started {late:.1f} s after it was cancelled")


def woken(case: Case) -> Iterator[Violation]:
    """A run that was told what it waits for, and whoever told it was answered so, goes on."""
    for one in case.history.operations:
        run = case.runs.get(one.run_id or 0)
        if one.kind != SIGNAL or one.outcome != OK or run is None:
            continue
        waited = case.history.read_at - max(one.answered_at, case.history.healed_at or 0)
        if (run.state, run.reason) == ("blocked", "signal") and waited > STILL:
            yield of_run(case, "signal", run, f"it was told, and still waits after {waited / SECOND:.0f} s")


def followed(case: Case) -> Iterator[Violation]:
    """A job that comes after another has one record for each moment of that, and it ran if what it waits for came true,
    else it was skipped."""
    by_key = {work.plan.key: work for work in case.works.values() if work.plan.key}
    for work in case.works.values():
        if before := by_key.get(work.plan.after):
            if not work.plan.has_moments:
                yield from _one_each(work, before)
            yield from _misjudged(case, work, before)


def _one_each(work: Work, before: Work) -> Iterator[Violation]:
    """Of a job that has no moments of its own. What was made before it was there, or ended when its job was deleted,
    may have none."""
    found = Counter(run.due_at for run in work.runs)
    for run in before.runs:
        number = found.pop(run.due_at, 0)
        is_unsure = run.created_at < work.known_at or before.deleted is not None or run.state == "coalesced"
        if number > 1 or (not number and not is_unsure):
            what = f"run {run.id} of {before.plan.name} was {run.state}, and was followed by {number} runs"
            yield Violation("followed", what, work.plan.name, at=run.due_at)
    for due_at in found:
        yield Violation("phantom", f"it follows no run of {before.plan.name}", work.plan.name, at=due_at)


def _misjudged(case: Case, work: Work, before: Work) -> Iterator[Violation]:
    theirs = {run.due_at: run for run in before.runs}
    for run in work.runs:
        other = theirs.get(run.due_at)
        while other is not None and other.state == "coalesced":
            other = case.runs.get(other.into_run_id or 0)
        outcome = other.state if other is not None else "not there"
        is_due = other is not None and is_met(outcome, work.plan.on, TaskPlan(before.plan.name))
        did_run = run.state in (SUCCEEDED, "failed", "timed_out")
        if (did_run and not is_due) or ((run.state, run.reason) == (SKIPPED, "dependency") and is_due):
            what = f"it is {run.state}, and comes after the {work.plan.on} of {before.plan.name}, which was {outcome}"
            yield of_run(case, "followed", run, what)
        first = min((one.started_at for one in case.witnesses.get(run.id, ())), default=2**62)
        if did_run and other is not None and first < _ended_at(case, other):
            yield of_run(case, "followed", run, f"it began before the end of run {other.id} of {before.plan.name}")


def debounced(case: Case) -> Iterator[Violation]:
    """Orders that come while one like them waits are one run with it; and it has the data of the last of them."""
    for work in case.works.values():
        runs = sorted((run for run in work.runs if run.by_hand), key=lambda one: one.created_at)
        for one, other in pairwise(runs if work.plan.debounce is not None else ()):
            apart = (other.created_at - one.created_at) / SECOND
            if apart < (work.plan.debounce or 0.0) and one.state != "cancelled":
                yield of_run(case, "debounce", other, f"made {apart:.3f} s after run {one.id}, which waited for it")
    tries: dict[str, list[Operation]] = defaultdict(list)
    for operation in case.history.operations:
        if operation.kind == ORDER:
            tries[operation.key].append(operation)
    for key, each in tries.items():
        yield from _forgotten(case, key, each, tries)


def _forgotten(
    case: Case, key: str, each: Sequence[Operation], tries: Mapping[str, Sequence[Operation]]
) -> Iterator[Violation]:
    for answer in (one for one in each if one.outcome == OK):
        run = case.runs.get(answer.run_id or 0)
        if run is None:
            yield Violation("debounce", f"{key} was answered with run {answer.run_id}, which there is not")
            continue
        others = tries.get(run.key or "", ())
        last = max((2**62 if one.outcome == INFO else one.answered_at for one in others), default=0)
        if last < each[0].invoked_at:
            yield of_run(case, "debounce", run, f"{key} was answered with it, and it has the data of {run.key} before")


def _of(case: Case, flow: Flow, rule: str, what: str) -> Violation:
    return of_run(case, rule, flow.run, what)


def _ids(runs: Sequence[Run]) -> str:
    return ", ".join(f"run {run.id} {run.state}" for run in runs)


# ── documents ──────────────────────────────────────────────────────────────────────────────────────


def document_of(task: TaskPlan, work: Mapping[str, object]) -> dict[str, object]:
    """Return a task as the document of its workflow has it; `work` is what it does, unless it waits."""
    document: dict[str, object] = {"needs": [{"task": need, "on": on} for need, on in task.needs]} if task.needs else {}
    if task.items is not None:
        document["for_each"] = f"${{{task.lists}.result}}" if task.lists else list(range(task.items))
        document["data"] = {"item": "${item}", "number": "${index}"}
    if task.at_once is not None:
        document["at_once"] = task.at_once
    if task.may_fail:
        document["may_fail"] = True
    return {**document, **({"wait": {"signal": "go"}} if task.waits else work)}
