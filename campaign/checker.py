"""The judge: from what was asked, what the jobs wrote down, what the ledger says and what was broken, to a verdict.

Pure functions. Each property is one function from the case to its violations; the verdict is RED when there is
any, UNKNOWN when so little happened that green would mean nothing, else green.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from campaign import oracle
from campaign.case import FOR_EVER, Case, Violation, Work, arrange, name_of, of_run
from campaign.history import (
    CANCEL,
    CLOCKS,
    CRASH,
    FAIL,
    FULL,
    INFO,
    KILLS,
    OK,
    ORDER,
    PAUSES,
    RUN,
    SECOND,
    SUBMIT,
    History,
    Operation,
    Run,
    Witness,
    shown,
)
from campaign.sharing import let_go, shared_fairly, within_limits, within_rates
from campaign.tasks import agreed, all_of_them, called_off, debounced, followed, in_order, once_each, wanted, woken
from campaign.witness import failure_code, line_of

GREEN, RED, UNKNOWN = "green", "RED", "UNKNOWN"

EXECUTED = ("succeeded", "failed", "timed_out", "cancelled")
ENDED_WAITING = ("cancelled", "skipped")  # what may become of a run between two attempts
TERMINAL = (*EXECUTED, "skipped", "coalesced")
LOST_LIMIT = 5  # losses after which the next one fails a run
MISFIRE_GRACE = 60 * SECOND  # under `skip`, a moment so late is missed
MEASURED = SECOND // 2  # by which a scheduler's measure of the database's clock may be wrong
MARKS = ("[output truncated: the last ", " bytes lost: the output store was too slow]")  # in a log that is cut
STORING = 60 * SECOND  # how long after its end the log of an attempt may still be on its way
UNREPORTED = 60 * SECOND  # a run may have ended so long before the store heard of it: outages last half a minute
NEVER_BEGUN = 3  # attempts of a run that may be lost between claim and start, each to a fault of its own
WEATHER = "bad weather"  # in which the answer to any statement may be lost, that to a claim again and again
ASKED_EARLIER = SECOND // 2  # a run by hand waits from the request on, which is a little before its due moment
ENDING = 2 * SECOND  # between the last line of a witness and its end, in which a timeout may still hit it
WRITTEN_LATE = SECOND // 4  # between the last line of a witness and the report of its end, their clocks may differ
TOGETHER = 5 * SECOND  # two that are made at once are written in any order, and may wait for each other
DELETED_BEFORE = 15 * SECOND  # a run that was claimed just before its job was deleted may still start so late
BY_A_WRONG_CLOCK = 60 * SECOND  # an attempt that was timed by one is placed between its claim and its report


@dataclass(frozen=True, slots=True)
class Verdict:
    color: str
    violations: list[Violation]
    reasons: list[str]  # why it is unknown
    counts: dict[str, int]  # what was really seen


Rule = Callable[[Case], Iterator[Violation]]


def judge(history: History) -> Verdict:
    case = arrange(history)
    violations = [violation for rule in RULES for violation in rule(case)]
    counts = count(history)
    reasons = [
        f"{demand}: {counts.get(demand, 0)} seen, {least} demanded"
        for demand, least in history.demands.items()
        if counts.get(demand, 0) < least
    ]
    if history.final.incomplete:
        reasons.append(f"the final read is incomplete: {history.final.incomplete}")
        return Verdict(UNKNOWN, [], reasons, counts)
    return Verdict(RED if violations else UNKNOWN if reasons else GREEN, violations, reasons, counts)


def count(history: History) -> dict[str, int]:
    faults = Counter(fault.kind for fault in history.faults if fault.happened)
    unseen = Counter(f"unseen: {fault.kind}" for fault in history.faults if not fault.happened)
    states = Counter(run.state for run in history.final.runs)
    return {
        **dict(sorted(faults.items())),
        **dict(sorted(unseen.items())),
        "kills": sum(faults[kind] for kind in KILLS),
        **history.counts,
        "operations": len(history.operations),
        **{f"{kind}s answered": number for kind, number in sorted(_answered(history.operations).items())},
        "runs": len(history.final.runs),
        "latest record, s": max((run.created_at - run.due_at for run in history.final.runs), default=0) // SECOND,
        "witnesses": len(history.witnesses),
        "logs that say they are cut": sum(any(mark in (run.log or "") for mark in MARKS) for run in history.final.runs),
        "logs that the object store acknowledged and lost": len(history.unkept),
        **{f"runs {state}": number for state, number in sorted(states.items())},
    }


def _answered(operations: Sequence[Operation]) -> Counter[str]:
    return Counter(one.kind for one in operations if one.outcome == OK)


# ── the properties ─────────────────────────────────────────────────────────────────────────────────


def accounted(case: Case) -> Iterator[Violation]:
    """Every due moment has exactly one record, and no record is of a moment that was not due."""
    for work in case.works.values():
        if not work.plan.has_moments:
            continue
        may, must = _due(work)
        if work.next_at is not None:
            first = oracle.moments(work.plan, work.created_at, work.next_at)[:1]
            if first != [work.next_at]:
                said = f"the API said that it is first due {shown(work.next_at)}, it is {[shown(at) for at in first]}"
                yield Violation("accounted", said, work.plan.name)
        found = Counter(run.due_at for run in work.runs if not run.by_hand)
        for at in sorted(must):
            if not found[at]:
                yield Violation("accounted", "this due moment has no record", work.plan.name, at=at)
        for at, number in found.items():
            if number > 1:
                yield Violation("accounted", f"this due moment has {number} records", work.plan.name, at=at)
        for at in sorted(set(found) - may):
            if not _is_in_doubt(work, at):
                yield Violation("phantom", "a record of a moment that was not due", work.plan.name, at=at)


def _due(work: Work) -> tuple[set[int], set[int]]:
    """Return the moments of a job that may have a record, and those that must."""
    both = [span.moments() for span in work.spans]
    must = {at for _, musts in both for at in musts if not _is_in_doubt(work, at)}
    return {at for mays, _ in both for at in mays}, must


def _is_in_doubt(work: Work, at: int) -> bool:
    return any(begin <= at <= end for begin, end in work.doubts)


def in_time(case: Case) -> Iterator[Violation]:
    """No record is made before its moment, by the clock of the database, nor much later than any fault explains."""
    for run in case.runs.values():
        late = (run.created_at - run.due_at) / SECOND
        work = case.work_of(run)
        if late < 0 and (work is None or work.plan.debounce is None):
            yield of_run(case, "early", run, f"its record was made {-late:.3f} s before it was due")
        elif case.history.late_after is not None and not run.by_hand and late > case.history.late_after:
            yield of_run(case, "late", run, f"its record was made {late:.1f} s after it was due")


def obeyed(case: Case) -> Iterator[Violation]:
    """Nothing of a job starts when it is long deleted."""
    for work in case.works.values():
        for witness in work.witnesses:
            if work.deleted and witness.started_at > work.deleted[1] + DELETED_BEFORE:
                late = (witness.started_at - work.deleted[1]) / SECOND
                what = f"started {late:.1f} s after its job was deleted"
                yield Violation("obeyed", what, work.plan.name, witness.run, witness.due_at)


def ended(case: Case) -> Iterator[Violation]:
    """Every record has come to its end."""
    for run in case.runs.values():
        if run.state not in TERMINAL:
            yield of_run(case, "ended", run, f"still {run.state}")


def known(case: Case) -> Iterator[Violation]:
    """Nothing ran that has no record, and no record is of a job that nobody submitted."""
    for witnesses in case.witnesses.values():
        for witness in witnesses:
            run = case.runs.get(witness.run)
            if run is None or run.job_id != witness.job or run.due_at != witness.due_at:
                what = "a process ran for a run that the ledger does not have"
                yield Violation("phantom", what, f"job {witness.job}", witness.run, witness.due_at)
    strangers = [run for run in case.runs.values() if run.job_id not in case.works and run.parent_id is None]
    if len({run.job_id for run in strangers}) > _unanswered(case.history.operations):
        for run in strangers:
            yield Violation("phantom", "a run of a job that nobody submitted", f"job {run.job_id}", run.id, run.due_at)


def _unanswered(operations: Sequence[Operation]) -> int:
    """Return how many submits may have made a job whose id nobody was told: the last ones, when the time was up."""
    submits = [operation for operation in operations if operation.kind == SUBMIT]
    unsure = {operation.key for operation in submits if operation.outcome == INFO}
    return len(unsure - {operation.key for operation in submits if operation.outcome == OK})


def fences(case: Case) -> Iterator[Violation]:
    """Fences only grow along the attempts of a run; none is used twice; the accepted result has the highest."""
    for run in case.runs.values():
        line = [(one.attempt, one.fence) for one in run.earlier]
        if not line or line[-1] != (run.attempt, run.fence) or run.state not in ENDED_WAITING:
            line.append((run.attempt, run.fence))  # else it ended while it waited for its next attempt
        if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(line)):
            yield of_run(case, "fences", run, f"attempts and fences do not grow: {line}")
        started = [one.fence for one in case.witnesses.get(run.id, [])]
        if len(set(started)) < len(started):
            yield of_run(case, "fences", run, f"a fence was used twice: {started}")
        elif started != sorted(started):
            yield of_run(case, "fences", run, f"fences went back: {started}")
        if started and max(started) > run.fence:
            yield of_run(case, "fences", run, f"fence {max(started)} ran, but the record is of fence {run.fence}")


def results(case: Case) -> Iterator[Violation]:
    """What is recorded is what the attempt with the recorded fence did."""
    for run in case.runs.values():
        ran = case.witnesses.get(run.id, [])
        wrote = next((one for one in ran if one.fence == run.fence), None)
        if _is_without_process(case, run):
            continue
        if (complaint := _mismatch(run, ran, wrote)) and not _is_excused(case, run, wrote):
            yield of_run(case, "result", run, f"{run.state} with fence {run.fence}: {complaint}")
        codes = {one.fence: one.code for one in ran}
        for one in run.earlier:
            if one.reason == "exit" and not codes.get(one.fence) == one.exit_code == failure_code(one.fence):
                what = (
                    f"attempt {one.attempt} failed with {one.exit_code}; its process ended with {codes.get(one.fence)}"
                )
                yield of_run(case, "result", run, what)


def _is_without_process(case: Case, run: Run) -> bool:
    """Return whether it is done by servers: a workflow, or a task that only waits."""
    work, parent = case.work_of(run), case.runs.get(run.parent_id or 0)
    above = case.work_of(parent) if parent is not None else None
    waits = {task.name for task in above.plan.tasks if task.waits} if above is not None else set()
    return bool(work is not None and work.plan.tasks) or run.task in waits


def _is_excused(case: Case, run: Run, wrote: Witness | None) -> bool:
    """Return an agent that stands still while a work of it ends hears of that end and of the passed timeout
    together."""
    if run.state != "timed_out" or wrote is None or run.finished_at is None:
        return False
    pauses = (fault for fault in case.history.faults if fault.kind in PAUSES and fault.target == run.node)
    return any(
        pause.at <= run.finished_at and wrote.last_at <= pause.at + round(pause.seconds * SECOND) for pause in pauses
    )


def _mismatch(run: Run, ran: Sequence[Witness], wrote: Witness | None) -> str:
    """Return how a record and its witness differ; empty when they do not."""
    code = None if wrote is None else wrote.code
    match run.state, run.reason:
        case "skipped" | "coalesced", _:
            return f"but it ran, with fence {ran[0].fence}" if ran else ""
        case "succeeded", _:
            return "" if code == 0 else _deed(wrote)
        case "failed", "exit":
            is_same = code == run.exit_code == failure_code(run.fence)
            return "" if is_same else f"exit code {run.exit_code} is recorded; {_deed(wrote)}"
        case "timed_out", _ if wrote and code is not None and run.finished_at:
            return "" if wrote.last_at + ENDING >= run.finished_at else f"{_deed(wrote)} long before"
    return ""


def _deed(wrote: Witness | None) -> str:
    if wrote is None:
        return "no attempt with this fence ever started"
    return "that attempt never came to its end" if wrote.code is None else f"that attempt ended with {wrote.code}"


def logs(case: Case) -> Iterator[Violation]:
    """The stored log is that of the accepted attempt, in order, and nothing else: all of it if that attempt came to
    its end and its agent lived to tell, else a beginning. So is one that says that it was cut, when a disk was full;
    and nothing is asked of one that the object store acknowledged and lost."""
    for run in case.runs.values():
        wrote = next((one for one in case.witnesses.get(run.id, []) if one.fence == run.fence), None)
        if run.log is None or wrote is None or wrote.code is None:
            continue
        said = [line for line in run.log.splitlines() if line.startswith("witness ")]
        expected = [line_of(run.id, run.fence, number) for number in range(wrote.lines)]
        if (run.id, run.fence) in case.history.unkept:
            continue
        is_told = (run.state == "succeeded" or run.reason == "exit") and not _is_cut(case, run)
        if said != (expected if is_told else expected[: len(said)]):
            sample = next((line for line in run.log.splitlines() if line not in expected), "empty")
            yield of_run(case, "log", run, f"{len(said)} lines, {len(expected)} were written; it has: {sample[:200]}")


def _is_cut(case: Case, run: Run) -> bool:
    """Return whether its log says that something is missing, and there was a reason."""
    has_mark = any(mark in (run.log or "") for mark in MARKS)
    return has_mark and any(
        fault.at <= (run.finished_at or 0) + STORING and run.created_at <= fault.at + round(fault.seconds * SECOND)
        for fault in case.history.faults
        if fault.kind in FULL
    )


def never_together(case: Case) -> Iterator[Violation]:
    """No two attempts of a run at the same time; nor two runs of a job, unless it allows that."""
    for run_id, witnesses in case.witnesses.items():
        yield from _overlaps(case, witnesses, f"two attempts of run {run_id}")
    for work in case.works.values():
        if work.plan.overlap != "allow":
            yield from _overlaps(case, work.witnesses, f"two runs of a job with overlap {work.plan.overlap}")


def _overlaps(case: Case, witnesses: Sequence[Witness], who: str) -> Iterator[Violation]:
    longest: Witness | None = None
    for witness in witnesses:
        if longest is not None and witness.started < longest.last:
            early, other = longest.last - witness.started, f"run {longest.run} fence {longest.fence}"
            what = f"{who} at once: fence {witness.fence} started {early:.3f} s before the last sign of {other}"
            yield Violation("overlap", what, name_of(case, witness.job), witness.run, witness.due_at)
        if longest is None or witness.last > longest.last:
            longest = witness


def never_early(case: Case) -> Iterator[Violation]:
    for witnesses in case.witnesses.values():
        for witness in witnesses:
            if witness.started_at < witness.due_at:
                early = (witness.due_at - witness.started_at) / SECOND
                yield Violation("early", f"started {early:.3f} s before it was due", name_of(case, witness.job),
                                witness.run, witness.due_at)  # fmt: skip


def killed_means_dead(case: Case) -> Iterator[Violation]:
    """Nothing is written by a run after its end was reported, and nothing is left over."""
    for run in case.runs.values():
        last = max((one.last_at for one in case.witnesses.get(run.id, [])), default=0)
        grace = BY_A_WRONG_CLOCK if _is_by_a_wrong_clock(case, run) else WRITTEN_LATE
        if run.finished_at is not None and last > run.finished_at + grace:
            late = (last - run.finished_at) / SECOND
            yield of_run(case, "dead", run, f"a process of it was alive {late:.3f} s after it was reported {run.state}")
    for pid in case.history.final.alive:
        yield Violation("dead", f"process {pid} of a witness is still alive")


def _is_by_a_wrong_clock(case: Case, run: Run) -> bool:
    """Return whether the clock of its node jumped while it was live."""
    jumps = (fault for fault in case.history.faults if fault.kind in CLOCKS and fault.target == run.node)
    return any(
        jump.at <= (run.finished_at or 0) + BY_A_WRONG_CLOCK
        and run.created_at <= jump.at + round(jump.seconds * SECOND)
        for jump in jumps
    )


def keyed(case: Case) -> Iterator[Violation]:
    """What was answered with success happened once; what was refused did not happen; the rest at most once."""
    made = Counter(run.key for run in case.runs.values() if run.by_hand)
    jobs = Counter(case.history.final.jobs)
    for operations in _by_key(case.history.operations):
        first = operations[0]
        number = made[first.key] if first.kind == RUN else jobs[first.plan.name] if first.plan else 0
        outcomes = {one.outcome for one in operations}
        at = first.invoked_at
        gone = next((one.deleted for one in map(case.works.get, _ids(operations)) if one), None)
        if first.kind == SUBMIT and gone is not None:
            if number > (gone[1] == FOR_EVER):
                yield Violation("keyed", f"{first.key} was deleted, and is still listed", at=at)
        elif OK in outcomes and number != 1:
            yield Violation("keyed", f"{first.key} was answered with success and happened {number} times", at=at)
        elif outcomes == {FAIL} and number:
            yield Violation("keyed", f"{first.key} was refused, and happened", at=at)
        elif number > 1:
            yield Violation("keyed", f"{first.key} happened {number} times", at=at)
        answers = {one.run_id if first.kind == RUN else one.job_id for one in operations if one.outcome == OK}
        if len(answers) > 1:
            yield Violation("keyed", f"{first.key} was answered with different ids: {sorted(map(str, answers))}", at=at)
    asked = {one.key for one in case.history.operations if one.kind in (RUN, ORDER)}
    for run in case.runs.values():
        if run.by_hand and run.key not in asked:
            yield of_run(case, "phantom", run, "a run by hand that nobody asked for")


def _ids(operations: Iterable[Operation]) -> Iterator[int]:
    return (one.job_id for one in operations if one.job_id is not None)


def _by_key(operations: Iterable[Operation]) -> Iterable[list[Operation]]:
    found: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        if operation.kind in (RUN, SUBMIT):
            found[operation.key].append(operation)
    return found.values()


def justified(case: Case) -> Iterator[Violation]:
    """Whatever did not run, or ended by no doing of its own, has a reason that the facts bear out."""
    for run in case.runs.values():
        work = case.work_of(run)
        if work is not None and (complaint := _complaint(case, work, run)):
            yield of_run(case, "justified", run, f"{run.state}({run.reason}): {complaint}")


def _complaint(facts: Case, work: Work, run: Run) -> str:
    """Return what is wrong with the reason of a run; empty when nothing is."""
    plan = work.plan
    match run.state, run.reason:
        case "coalesced", _:
            into = facts.runs.get(run.into_run_id or 0)
            is_sound = into is not None and into.job_id == run.job_id and into.state != "coalesced"
            return "" if is_sound and into and into.due_at > run.due_at else f"into {run.into_run_id}, which cannot be"
        case "skipped", "overlap":
            return "" if any(_was_live(other, run) for other in work.runs) else "no other run of the job was live"
        case "skipped", "misfire":
            is_late = plan.misfire == "skip" and run.created_at - run.due_at > MISFIRE_GRACE - MEASURED
            return "" if is_late else f"misfire is {plan.misfire}, and it was made in time"
        case "skipped", "start_deadline":
            waited = ((run.finished_at or 0) - run.due_at + ASKED_EARLIER) / SECOND
            is_over = plan.start_deadline is not None and waited >= plan.start_deadline
            return "" if is_over else f"the start deadline is {plan.start_deadline}"
        case "cancelled", "deleted":
            return "" if work.deleted else "nobody deleted the job"
        case "cancelled", "replaced" | "requested":
            is_replaced = plan.overlap == "replace" and any(_can_replace(other, run) for other in work.runs)
            is_deleted = run.reason == "requested" and work.deleted is not None
            return "" if is_replaced or is_deleted or _is_unwanted(facts, run) else "by nobody"
        case "failed", "lost":
            return "" if run.lost >= LOST_LIMIT else f"lost {run.lost} times only"
        case "skipped", "dependency":
            return "" if plan.after else "it comes after nobody"
        case "failed", "children":
            return "" if plan.tasks else "it has no tasks"
        case "timed_out", _:
            return "" if plan.timeout is not None else "there is no timeout"
        case (("skipped" | "cancelled" | "failed"), reason):
            return "" if reason == "exit" else "nothing gives this reason"
    return ""


def _is_unwanted(case: Case, run: Run) -> bool:
    """Return whether somebody asked for its end, and was not refused each time."""
    asked = (one for one in case.history.operations if one.kind == CANCEL and one.run_id == run.id)
    return run.reason == "requested" and any(one.outcome != FAIL for one in asked)


def _was_live(other: Run, run: Run) -> bool:
    """Return whether another run can have been live when this one was made."""
    has_lived = other.state in EXECUTED or other.reason == "start_deadline"
    if other.id == run.id or not has_lived or other.finished_at is None:
        return False
    return other.created_at <= run.created_at <= other.finished_at + UNREPORTED


def _can_replace(other: Run, run: Run) -> bool:
    """Return whether another run was made while this one was live, or had ended unreported; of two that were made
    together, either may be the newer."""
    is_newer = other.id != run.id and other.created_at >= run.created_at - TOGETHER
    return is_newer and run.finished_at is not None and other.created_at <= run.finished_at + UNREPORTED


def retried(case: Case) -> Iterator[Violation]:
    """No more attempts than allowed, where a lost one does not count."""
    for run in case.runs.values():
        work = case.work_of(run)
        if work is not None and run.attempt - run.lost > work.plan.attempts:
            yield of_run(case, "retried", run, f"{run.attempt} attempts, {run.lost} lost, {work.plan.attempts} allowed")


def losses(case: Case) -> Iterator[Violation]:
    """An attempt may die with its agent; but an agent that claims only to lose it is broken."""
    most = LOST_LIMIT if any(fault.kind == WEATHER for fault in case.history.faults) else NEVER_BEGUN
    for run in case.runs.values():
        lost = [one.fence for one in run.earlier if one.reason == "lost"] + [run.fence] * (run.reason == "lost")
        began = {one.fence for one in case.witnesses.get(run.id, [])}
        if _is_without_process(case, run):
            continue
        if sum(fence not in began for fence in lost) > most:
            yield of_run(
                case, "losses", run, f"lost {len(lost)} times, and with fences {sorted(began)} only did it begin"
            )


def unbroken(case: Case) -> Iterator[Violation]:
    """No process ended by itself: a fault of the database or of a peer is no reason to die."""
    for fault in case.history.faults:
        if fault.kind == CRASH:
            yield Violation("unbroken", f"{fault.target} ended although nobody had touched it", at=fault.at)


RULES: tuple[Rule, ...] = (
    accounted, in_time, ended, known, fences, results, logs, never_together, never_early, killed_means_dead, obeyed,
    keyed, justified, retried, losses, unbroken, within_limits, within_rates, shared_fairly, let_go,
    once_each, in_order, all_of_them, agreed, wanted, called_off, woken, followed, debounced,
)  # fmt: skip
