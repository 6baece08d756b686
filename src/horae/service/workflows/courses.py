"""A workflow on its way through one step, from what is written of it to what shall be.

Nothing here reads or writes: `flows` gives what was read, and writes what comes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import structlog

from horae.core.model import SECOND, Job, Json, Overlap, Policy, Reason, State
from horae.core.runs.endings import CANCEL, Ending
from horae.core.runs.flows import Begin, Flow, FlowEnd, Move, Task, Unrun
from horae.core.runs.ledger import new_run
from horae.core.runs.orders import NewRun, Order
from horae.core.runs.results import MAX_RESULT, clean, fault_of
from horae.core.work.kinds import WORKFLOW
from horae.core.workflows import every, progress
from horae.core.workflows.progress import End, Make, Step, TaskState
from horae.errors import Error

log = structlog.get_logger(__name__)
EVERY = "every"  # in the place of tasks: the agents
RESUMES = "resumes"  # beside the tasks, of a retry: task → the run of it that did not succeed
_DEFAULT_PRIORITY = Policy().priority
encode = msgspec.json.Encoder(order="deterministic").encode

JobName = tuple[int, str, int | str]  # organisation, owner, id or key of a job
FoundJobs = Mapping[JobName, Job | str]  # or why there is none


@dataclass(slots=True)
class Course:
    run_id: int
    job: Job
    priority: int
    spec: Json
    data: Json | None
    tasks: list[TaskState]
    begin: Begin | None = None
    flow: Flow | None = None
    step: Step = field(default_factory=Step)
    missing: dict[str, str] = field(default_factory=dict)  # task that could not be made → why

    def decide(self) -> None:
        """Whatever is wrong with it ends it, and nobody else."""
        cancelled = self.flow is not None and self.flow.is_cancelled
        try:
            if EVERY in self.spec:
                self.step = every.advance(self.spec[EVERY], self.tasks, cancelled=cancelled)
            else:
                self.step = progress.advance(self.spec, self.data, self.tasks, cancelled=cancelled)
        except Exception as error:
            log.exception("workflow.failed", run_id=self.run_id)
            words = error.message if isinstance(error, Error) else type(error).__name__
            self.step = Step(end=End(State.FAILED, Reason.ERROR, f"it could not be moved on: {words}"))

    def results_wanted(self) -> list[int]:
        """Return the ended tasks to whose results somebody refers now."""
        ended = [task for task in self.tasks if task.state.is_terminal and task.run_id is not None]
        if EVERY not in self.spec:
            names = progress.results_needed(self.spec, self.tasks)
            ended = [task for task in ended if task.name in names]
        return [task.run_id for task in ended if task.run_id is not None]

    def take_results(self, results: Mapping[int, str]) -> None:
        self.tasks = [
            replace(task, result=_value(results[task.run_id]))
            if task.run_id is not None and task.run_id in results
            else task
            for task in self.tasks
        ]

    def name_of(self, task: str) -> JobName:
        """Return the job of a task."""
        name = self.job.id if EVERY in self.spec else self.spec["tasks"][task]["job"]
        return self.job.org, self.job.owner, name

    def note_missing(self, found: FoundJobs) -> bool:
        """Note the tasks that are to be made and have no job as failed; return whether there are any."""
        missing = [(make, why) for make in self.step.make if isinstance(why := found[self.name_of(make.task)], str)]
        for make, why in missing:
            self.missing[progress.label(make.task, make.index)] = why
            self.tasks.append(TaskState(make.task, make.index, None, State.FAILED))
        return bool(missing)

    def move(self, found: FoundJobs) -> Move:
        step = self.step
        orders = [self._order(make, found[self.name_of(make.task)]) for make in step.make]
        unrun = [self._unrun(s.task, State.SKIPPED, Reason.DEPENDENCY, s.message) for s in step.skipped]
        unrun += [
            self._unrun(progress.label(f.task, f.index), State.FAILED, Reason.ERROR, f.message) for f in step.failed
        ]
        unrun += [self._unrun(label, State.FAILED, Reason.ERROR, why) for label, why in self.missing.items()]
        end = None if step.end is None else self._end(step.end)
        version = self.flow.version if self.flow is not None else 0
        return Move(self.run_id, version, self.begin, orders, unrun, end=end)

    def _order(self, make: Make, job: Job | str) -> Order:
        assert isinstance(job, Job), "those without one are noted as missing"
        policy = job.policy
        data = None if make.data is None else encode(make.data).decode()
        pin = self.spec[EVERY][make.index] if EVERY in self.spec else None
        alone = policy if pin is None else replace(policy, every=None)
        run = new_run(job.id, job.kind, alone, 0, data=data, pin=pin, followed=True)
        run.overlap, run.parent_id, run.task = Overlap.ALLOW, self.run_id, progress.label(make.task, make.index)
        run.depends = False  # after what a task comes, its workflow says
        if job.kind == WORKFLOW:
            run.resumes = self.spec.get(RESUMES, {}).get(run.task)
        if policy.priority == _DEFAULT_PRIORITY:
            run.priority = self.priority
        if EVERY in self.spec and data is None and self.data is not None:
            run.data = encode(self.data).decode()
        deadline = policy.start_deadline_seconds
        return Order(run, start_within=None if deadline is None else round(deadline * SECOND))

    def _unrun(self, label: str, state: State, reason: str, message: str) -> Unrun:
        """Of a job of its own that was not found it is a run of the workflow's."""
        task = self.spec["tasks"][progress.split_label(label)[0]]
        job_id = task["job"] if "kind" in task else self.job.id
        run = NewRun(job_id, task.get("kind", self.job.kind), self.priority, Overlap.ALLOW)
        run.parent_id, run.task = self.run_id, label
        return Unrun(run, state, reason, clean(message))

    def _end(self, end: End) -> FlowEnd:
        if self.flow is not None and self.flow.is_cancelled:
            is_late = self.flow.reason == Reason.TIMEOUT
            state, words = (State.TIMED_OUT, "it took longer than its timeout") if is_late else (end.state, end.message)
            return FlowEnd(state, self.flow.reason, words, None)
        text = None if end.result is None else encode(end.result).decode()
        if text is not None and (fault := fault_of(text, MAX_RESULT)):
            return FlowEnd(State.FAILED, Reason.ERROR, f"what it returns {fault}", None)
        return FlowEnd(end.state, end.reason, clean(end.message), text)


def fan_outs_of(flows: Iterable[Flow]) -> set[tuple[int, str]]:
    """Return the fan-outs (run, task) of which all items are made at once."""
    found: set[tuple[int, str]] = set()
    for flow in flows:
        spec = decoded(flow.document) or {}
        found |= {
            (flow.run_id, name)
            for name, task in spec.get("tasks", {}).items()
            if "for_each" in task and "at_once" not in task
        }
        found |= {(flow.run_id, every.TASK)} if EVERY in spec else set()
    return found


def course_of(flow: Flow, job: Job, tasks: Iterable[Task]) -> Course:
    states = states_of(flow, tasks)
    return Course(flow.run_id, job, flow.priority, decoded(flow.document) or {}, decoded(flow.data), states, flow=flow)


def states_of(flow: Flow, tasks: Iterable[Task]) -> list[TaskState]:
    """Return where the tasks of a workflow stand, with those that it took over."""
    adopted: dict[str, int] = decoded(flow.adopted) or {}
    found = [TaskState(*progress.split_label(label), run_id, State.SUCCEEDED) for label, run_id in adopted.items()]
    return found + [TaskState(*progress.split_label(one.task), one.run_id, one.state) for one in tasks]


def resumed(spec: Json, tasks: Iterable[TaskState]) -> dict[str, int]:
    """Return of a graph that is done again, by label, runs of tasks that may be workflows: of a job of its own that is
    known when it is made."""
    found = progress.resumable(spec, tasks)
    kinds = {name: task.get("kind", WORKFLOW) for name, task in spec["tasks"].items()}
    return {name: run_id for name, run_id in found.items() if kinds[progress.split_label(name)[0]] == WORKFLOW}


def acting(move: Move, rows: Sequence[Ending], reason: str) -> Move:
    """Return a move that acts on these rows: one that cancels does so when it is first told."""
    is_told = move.end is None and any(row.kind == CANCEL for row in rows)
    return replace(move, endings=[row.id for row in rows], cancel=reason if is_told else None)


def usable(job: Job | None, org: int, name: int | str) -> Job | str:
    """Return the job of a task, or why it cannot be run."""
    if job is None or job.org != org or job.deleted_at is not None:
        return f"there is no job {name}" if isinstance(name, int) else f"there is no job with the key '{name}'"
    return f"job {name} is paused" if job.paused else job


def decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
