"""A history, put in order: each job with the times in which it had one schedule, its runs and their witnesses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from campaign import oracle
from campaign.history import (
    CHANGES,
    DELETE,
    FAIL,
    INFO,
    OK,
    RESUME,
    SECOND,
    SUBMIT,
    UPDATE,
    History,
    Operation,
    Plan,
    Run,
    Witness,
    shown,
)

FOR_EVER = 2**62
UNCLOSED = 3600 * SECOND  # how far moments are looked for where nobody is known to have stopped them


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    what: str
    job: str = ""
    run: int | None = None
    at: int | None = None  # the due moment

    def text(self) -> str:
        place = [self.job, f"run {self.run}" if self.run else "", f"due {shown(self.at)}" if self.at else ""]
        return f"{self.rule}: {', '.join(part for part in place if part)}: {self.what}"


@dataclass(slots=True)
class Span:
    """A time in which a job has one schedule. Its moments within `may` can have a record, those within `must` have.

    Between them lies what nobody can know: a change happens at some time between its request and its answer.
    """

    plan: Plan
    anchor: int  # where its schedule counts from
    may_from: int
    must_from: int
    must_until: int = 0  # before it; 0 until somebody asked for an end
    may_until: int = FOR_EVER

    def moments(self) -> tuple[set[int], set[int]]:
        """Return those that may have a record, and those that must."""
        horizon = min(self.may_until, max(self.must_until, self.anchor) + UNCLOSED)
        found = [at for at in oracle.moments(self.plan, self.anchor, horizon) if self.may_from <= at <= self.may_until]
        return set(found), {at for at in found if self.must_from <= at < self.must_until}


@dataclass(slots=True)
class Work:
    """One job with everything about it."""

    plan: Plan
    id: int
    created_at: int
    next_at: int | None  # as answered when it was made
    known_at: int = 0  # when that was answered
    spans: list[Span] = field(default_factory=list)
    doubts: list[tuple[int, int]] = field(default_factory=list)  # times in which nobody knows what is due
    deleted: tuple[int, int] | None = None  # when that was asked for, and when it was granted
    runs: list[Run] = field(default_factory=list)
    witnesses: list[Witness] = field(default_factory=list)


@dataclass(slots=True)
class Case:
    """A history, put in order."""

    history: History
    works: dict[int, Work]
    runs: dict[int, Run]
    witnesses: dict[int, list[Witness]]  # by run, in the order of their starts

    def work_of(self, run: Run) -> Work | None:
        return self.works.get(run.job_id)


def name_of(case: Case, job_id: int) -> str:
    work = case.works.get(job_id)
    return work.plan.name if work else f"job {job_id}"


def of_run(case: Case, rule: str, run: Run, what: str) -> Violation:
    return Violation(rule, what, name_of(case, run.job_id), run.id, run.due_at)


# ── putting in order ───────────────────────────────────────────────────────────────────────────────


def arrange(history: History) -> Case:
    works = {work.id: work for work in _works(history.operations, history.stray)}
    witnesses: dict[int, list[Witness]] = defaultdict(list)
    for witness in sorted(history.witnesses, key=lambda one: one.started):
        witnesses[witness.run].append(witness)
        if witness.job in works:
            works[witness.job].witnesses.append(witness)
    for run in history.final.runs:
        if run.job_id in works:
            works[run.job_id].runs.append(run)
    return Case(history, works, {run.id: run for run in history.final.runs}, witnesses)


def _works(operations: Sequence[Operation], stray: float) -> Iterator[Work]:
    changes: dict[int, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.kind in CHANGES and operation.job_id is not None:
            changes[operation.job_id].append(operation)
    seen: set[int] = set()
    for operation in operations:
        if operation.kind != SUBMIT or operation.outcome != OK or operation.job_id in seen:
            continue
        assert operation.plan is not None
        assert operation.job_id is not None
        assert operation.created_at is not None
        seen.add(operation.job_id)
        next_at = None if operation.replayed else operation.next_at
        work = Work(operation.plan, operation.job_id, operation.created_at, next_at, operation.answered_at)
        work.spans.append(Span(operation.plan, operation.created_at, 0, 0))
        for tries in _requests(changes[operation.job_id]):
            _apply(work, tries)
        work.doubts = list(_doubts(changes[operation.job_id], stray))
        yield work


def _doubts(operations: Sequence[Operation], stray: float) -> Iterator[tuple[int, int]]:
    """A try that was not answered may have its effect later than the next request: a server that stood still goes on
    with it. It is settled by a change that was asked for when it can no longer come; an update by its own answer, too,
    because nobody else knows the schedule."""
    settled = sorted((one.invoked_at, one.answered_at) for one in operations if one.outcome == OK)
    answered = {one.key for one in operations if one.outcome == OK}
    for one in operations:
        if one.outcome == INFO:
            last = one.invoked_at + round(stray * SECOND)
            is_open = one.kind == UPDATE and one.key not in answered
            after = (at for asked, at in settled if asked >= last and not is_open)
            yield one.invoked_at, next(after, FOR_EVER)


def _requests(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """The tries of one request after the other: whoever changes a job waits for the answer, or gives it up."""
    together: list[Operation] = []
    for operation in sorted(operations, key=lambda one: one.invoked_at):
        if together and (operation.kind, operation.key) != (together[0].kind, together[0].key):
            yield together
            together = []
        together.append(operation)
    if together:
        yield together


def _apply(work: Work, tries: Sequence[Operation]) -> None:
    """What a request to change a job does to its spans."""
    tries = [one for one in tries if one.outcome != FAIL]
    if not tries:
        return
    kind, asked = tries[0].kind, tries[0].invoked_at
    granted = next((one for one in tries if one.outcome == OK), None)
    until = granted.answered_at if granted else FOR_EVER
    current = work.spans[-1]
    if kind == RESUME:
        work.spans.append(Span(current.plan, current.anchor, asked, until + 1))
        return
    for span in work.spans:
        span.must_until = min(span.must_until, asked) if span.must_until else asked
        span.may_until = min(span.may_until, until)
    if kind == DELETE:
        work.deleted = (asked, until)
    if kind == UPDATE and granted and granted.plan and granted.created_at:
        anchor = granted.created_at
        if anchor < asked:  # the schedule is the one it had, so its trigger goes on
            work.spans.append(Span(granted.plan, anchor, asked, until + 1))
        else:
            work.spans.append(Span(granted.plan, anchor, anchor, anchor))
