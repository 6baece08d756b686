"""The judge of campaigns: a sound history is green, every planted bug is RED for the right reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from campaign import history as past
from campaign import oracle, witness
from campaign.checker import GREEN, RED, UNKNOWN, judge
from campaign.history import (
    CRASH,
    DELETE,
    FAIL,
    INFO,
    OK,
    PAUSE,
    RESUME,
    RUN,
    SECOND,
    SUBMIT,
    UPDATE,
    Attempt,
    Fault,
    Final,
    History,
    Operation,
    Plan,
    Run,
    Witness,
)
from campaign.witness import failure_code, line_of

BEGAN = 1_800_000_000 * SECOND
ENDED = BEGAN + 10 * SECOND
TICKER, ONCE = 1, 2  # job ids


def run_of(number: int, due_at: int, **fields: object) -> Run:
    given = Run(
        id=number, job_id=TICKER, by_hand=False, due_at=due_at, state="succeeded", reason="", attempt=1, fence=1,
        lost=0, created_at=due_at, finished_at=due_at + SECOND, exit_code=0, into_run_id=None, key=None,
    )  # fmt: skip
    return replace(given, **fields)  # type: ignore[arg-type]


def witness_of(run: Run, fence: int | None = None, after: float = 0.1, code: int | None = 0) -> Witness:
    fence = run.fence if fence is None else fence
    started_at = run.due_at + round(after * SECOND)
    return Witness(
        run=run.id, attempt=fence, fence=fence, job=run.job_id, due_at=run.due_at, pid=100 + run.id,
        started=started_at / SECOND, started_at=started_at, last=started_at / SECOND + 0.5,
        last_at=started_at + SECOND // 2, code=code, lines=0,
    )  # fmt: skip


def submit(name: str, job_id: int, plan: Plan, next_at: int) -> Operation:
    return Operation(
        SUBMIT, f"submit-{name}", OK, BEGAN - 1, BEGAN + 1, job_id, created_at=BEGAN, next_at=next_at, plan=plan
    )  # fmt: skip


def pause(job_id: int) -> Operation:
    return Operation(PAUSE, f"job {job_id}", OK, ENDED - SECOND // 2, ENDED - SECOND // 2 + 10, job_id)


def asked(kind: str, job_id: int, at: int, outcome: str = OK, **fields: object) -> Operation:
    """Return a request to change a job, answered 10 µs later."""
    given = Operation(kind, f"{kind} at {at}", outcome, at, at + 10, job_id)
    return replace(given, **fields)  # type: ignore[arg-type]


@pytest.fixture
def sound() -> History:
    """A job each two seconds and one that runs once. Run 2 lost its first attempt, run 3 failed and was tried again,
    run 4 was asked for by hand."""
    ticker = Plan("ticker", every=2 * SECOND, attempts=2, talks=True)
    moments = [BEGAN + second * SECOND for second in (2, 4, 6, 8)]
    runs = [
        run_of(1, moments[0], log="── step 1/1 ──\n" + line_of(1, 1, 0) + "\n"),
        run_of(
            2, moments[1], attempt=2, fence=2, lost=1, finished_at=moments[1] + 3 * SECOND // 2,
            earlier=(Attempt(1, 1, "failed", "lost"),),
        ),
        run_of(
            3, moments[2], attempt=2, fence=2, state="failed", reason="exit", exit_code=failure_code(2),
            finished_at=moments[2] + 3 * SECOND // 2, earlier=(Attempt(1, 1, "failed", "exit", failure_code(1)),),
        ),
        run_of(4, BEGAN + 7_900_000, by_hand=True, key="run-1", job_id=ONCE),
        run_of(5, moments[3]),
        run_of(6, BEGAN, job_id=ONCE),
    ]  # fmt: skip
    witnesses = [
        replace(witness_of(runs[0]), lines=1),
        witness_of(runs[1], fence=1, code=None), witness_of(runs[1], after=0.7),
        witness_of(runs[2], fence=1, code=failure_code(1)), witness_of(runs[2], after=0.9, code=failure_code(2)),
        witness_of(runs[3]), witness_of(runs[4]), witness_of(runs[5]),
    ]  # fmt: skip
    operations = [
        submit("ticker", TICKER, ticker, moments[0]),
        submit("once", ONCE, Plan("once", at=0), BEGAN),
        Operation(RUN, "run-1", INFO, BEGAN + 7_000_000, BEGAN + 7_500_000, ONCE),
        Operation(RUN, "run-1", OK, BEGAN + 7_800_000, BEGAN + 8_000_000, ONCE, run_id=4),
        pause(TICKER),
        pause(ONCE),
    ]
    faults = [Fault("kill node", "node-1", BEGAN + 4 * SECOND)]
    return History(
        operations, witnesses, Final(tuple(runs), ("ticker", "once")), faults, {"elections": 1}, {"kills": 1}
    )


def change(history: History, number: int, **fields: object) -> None:
    """Plant another value in the record of a run."""
    runs = [replace(run, **fields) if run.id == number else run for run in history.final.runs]  # type: ignore[arg-type]
    history.final = replace(history.final, runs=tuple(runs))


def get(history: History, number: int) -> Run:
    return next(run for run in history.final.runs if run.id == number)


def add(history: History, run: Run) -> None:
    history.final = replace(history.final, runs=(*history.final.runs, run))


def witness_for(history: History, number: int, fence: int) -> Witness:
    return next(one for one in history.witnesses if (one.run, one.fence) == (number, fence))


# ── planted bugs ──


def drop_a_run(history: History) -> None:
    history.final = replace(history.final, runs=tuple(run for run in history.final.runs if run.id != 2))
    history.witnesses = [one for one in history.witnesses if one.run != 2]


def record_a_run_twice(history: History) -> None:
    add(history, replace(get(history, 1), id=90))
    history.witnesses.append(replace(witness_for(history, 1, 1), run=90, started=1e12, last=1e12))


def record_a_moment_that_is_not_due(history: History) -> None:
    add(history, run_of(91, BEGAN + 5 * SECOND, state="skipped", reason="overlap", attempt=0, fence=0))


def fire_after_the_pause(history: History) -> None:
    add(history, run_of(92, ENDED, state="skipped", reason="overlap", attempt=0, fence=0))


def accept_a_stale_result(history: History) -> None:
    """The lost first attempt of run 2 came back late, and its result was taken."""
    change(history, 2, fence=1, attempt=1, earlier=())
    witness_for(history, 2, 1).code = 0


def accept_a_result_of_nobody(history: History) -> None:
    witness_for(history, 1, 1).code = None


def accept_the_exit_code_of_another_attempt(history: History) -> None:
    change(history, 3, exit_code=failure_code(1))


def accept_the_log_of_another_attempt(history: History) -> None:
    change(history, 1, log=line_of(1, 7, 0))


def lose_a_line_of_a_log(history: History) -> None:
    change(history, 1, log="")


def overlap_two_attempts(history: History) -> None:
    witness_for(history, 2, 1).last = witness_for(history, 2, 2).started + 0.05


def overlap_two_runs(history: History) -> None:
    witness_for(history, 1, 1).last = witness_for(history, 2, 1).started + 0.05


def overlap_behind_a_short_one(history: History) -> None:
    """The first goes on beyond the second, which is over when the third begins."""
    witness_for(history, 1, 1).last = witness_for(history, 2, 2).started + 0.05
    witness_for(history, 2, 1).last = witness_for(history, 2, 1).started


def reuse_a_fence(history: History) -> None:
    late = witness_for(history, 2, 2)
    history.witnesses.append(replace(late, started=late.last + 0.1, last=late.last + 0.2, pid=999))


def let_fences_fall(history: History) -> None:
    change(history, 2, earlier=(Attempt(1, 2, "failed", "lost"),))


def start_early(history: History) -> None:
    one = witness_for(history, 3, 1)
    one.started_at = one.due_at - SECOND


def never_end_a_run(history: History) -> None:
    change(history, 3, state="running", finished_at=None)


def run_a_phantom(history: History) -> None:
    history.witnesses.append(replace(witness_for(history, 6, 1), run=93, started=1e12, last=1e12))


def run_what_was_skipped(history: History) -> None:
    change(history, 5, state="skipped", reason="overlap")


def skip_without_reason(history: History) -> None:
    change(history, 1, state="skipped", reason="overlap", attempt=0, fence=0)
    history.witnesses = [one for one in history.witnesses if one.run != 1]


def coalesce_into_nothing(history: History) -> None:
    change(history, 1, state="coalesced", reason="misfire", attempt=0, fence=0, into_run_id=77)
    history.witnesses = [one for one in history.witnesses if one.run != 1]


def cancel_for_nobody(history: History) -> None:
    change(history, 1, state="cancelled", reason="requested")


def forget_an_answered_request(history: History) -> None:
    change(history, 4, key="run-2")


def act_twice_for_one_key(history: History) -> None:
    add(history, run_of(94, BEGAN + 9 * SECOND, by_hand=True, key="run-1", job_id=ONCE))
    history.witnesses.append(witness_of(get(history, 94)))


def act_on_a_refused_request(history: History) -> None:
    history.operations = [replace(one, outcome=FAIL) if one.kind == RUN else one for one in history.operations]


def make_a_job_twice(history: History) -> None:
    history.final = replace(history.final, jobs=("ticker", "once", "once"))


def try_too_often(history: History) -> None:
    change(history, 2, lost=0, attempt=3, earlier=(Attempt(1, 1, "failed", "exit"),))


def lose_it_again_and_again_unbegun(history: History) -> None:
    earlier = tuple(Attempt(number, number, "failed", "lost") for number in range(1, 6))
    change(history, 2, state="failed", reason="lost", attempt=6, fence=6, lost=5, earlier=earlier)
    history.witnesses = [one for one in history.witnesses if one.run != 2]


def write_after_the_end(history: History) -> None:
    one = witness_for(history, 6, 1)
    one.last_at += 5 * SECOND


def leave_a_process_behind(history: History) -> None:
    history.final = replace(history.final, alive=(4711,))


def record_a_run_before_its_moment(history: History) -> None:
    change(history, 5, created_at=get(history, 5).due_at - 1)


def record_a_run_much_too_late(history: History) -> None:
    history.late_after = 60.0
    change(
        history, 5, created_at=get(history, 5).due_at + 61 * SECOND, finished_at=get(history, 5).due_at + 62 * SECOND
    )


def record_an_earlier_exit_that_was_another(history: History) -> None:
    change(history, 3, earlier=(Attempt(1, 1, "failed", "exit", failure_code(7)),))


def record_an_earlier_exit_of_nobody(history: History) -> None:
    history.witnesses = [one for one in history.witnesses if (one.run, one.fence) != (3, 1)]


def replace_by_one_that_is_older(history: History) -> None:
    """The last run is cancelled in favour of another, and all others were made long before it."""
    plan = replace(history.operations[0].plan, overlap="replace")  # type: ignore[type-var]
    history.operations[0] = replace(history.operations[0], plan=plan)
    late = get(history, 5).due_at + 4 * SECOND
    change(history, 5, state="cancelled", reason="replaced", created_at=late, finished_at=late + SECOND)


def cancel_as_deleted_what_nobody_deleted(history: History) -> None:
    change(history, 1, state="cancelled", reason="deleted", log=None)


def list_a_deleted_job(history: History) -> None:
    history.operations[-1:] = [asked(DELETE, ONCE, ENDED)]


def start_what_was_deleted(history: History) -> None:
    """Of a job that was deleted long before, a run by hand starts."""
    list_a_deleted_job(history)
    history.final = replace(history.final, jobs=("ticker",))
    late = run_of(96, BEGAN + 7 * SECOND, by_hand=True, key="run-1", job_id=ONCE, finished_at=ENDED + 20 * SECOND)
    history.final = replace(history.final, runs=(*(run for run in history.final.runs if run.id != 4), late))
    history.witnesses = [one for one in history.witnesses if one.run != 4]
    history.witnesses.append(witness_of(late, after=18.5))


def crash(history: History) -> None:
    history.faults.append(Fault(CRASH, "node-2", BEGAN))


PLANTS: list[tuple[Callable[[History], None], str]] = [
    (drop_a_run, "accounted"),
    (record_a_run_twice, "accounted"),
    (record_a_moment_that_is_not_due, "phantom"),
    (fire_after_the_pause, "phantom"),
    (accept_a_stale_result, "fences"),
    (accept_a_result_of_nobody, "result"),
    (accept_the_exit_code_of_another_attempt, "result"),
    (accept_the_log_of_another_attempt, "log"),
    (lose_a_line_of_a_log, "log"),
    (overlap_two_attempts, "overlap"),
    (overlap_two_runs, "overlap"),
    (overlap_behind_a_short_one, "overlap"),
    (reuse_a_fence, "fences"),
    (let_fences_fall, "fences"),
    (start_early, "early"),
    (never_end_a_run, "ended"),
    (run_a_phantom, "phantom"),
    (run_what_was_skipped, "result"),
    (skip_without_reason, "justified"),
    (coalesce_into_nothing, "justified"),
    (cancel_for_nobody, "justified"),
    (forget_an_answered_request, "keyed"),
    (act_twice_for_one_key, "keyed"),
    (act_on_a_refused_request, "keyed"),
    (make_a_job_twice, "keyed"),
    (try_too_often, "retried"),
    (lose_it_again_and_again_unbegun, "losses"),
    (write_after_the_end, "dead"),
    (leave_a_process_behind, "dead"),
    (record_a_run_before_its_moment, "early"),
    (record_a_run_much_too_late, "late"),
    (record_an_earlier_exit_that_was_another, "result"),
    (record_an_earlier_exit_of_nobody, "result"),
    (replace_by_one_that_is_older, "justified"),
    (cancel_as_deleted_what_nobody_deleted, "justified"),
    (list_a_deleted_job, "keyed"),
    (start_what_was_deleted, "obeyed"),
    (crash, "unbroken"),
]


def test_a_sound_history_is_green(sound: History):
    verdict = judge(sound)

    assert [violation.text() for violation in verdict.violations] == []
    assert verdict.color == GREEN


@pytest.mark.parametrize(("plant", "rule"), PLANTS, ids=[plant.__name__ for plant, _ in PLANTS])
def test_a_planted_bug_is_red_for_the_right_reason(plant: Callable[[History], None], rule: str, sound: History):
    plant(sound)

    verdict = judge(sound)

    assert verdict.color == RED
    assert rule in {violation.rule for violation in verdict.violations}


def test_a_violation_tells_job_run_and_moment(sound: History):
    never_end_a_run(sound)

    (violation,) = judge(sound).violations

    assert violation.text() == "ended: ticker, run 3, due 08:00:06.000: still running"


# ── unknown ──


def test_too_few_faults_are_unknown_and_not_green(sound: History):
    sound.demands = {"kills": 2, "elections": 1}

    verdict = judge(sound)

    assert verdict.color == UNKNOWN
    assert verdict.reasons == ["kills: 1 seen, 2 demanded"]


def test_a_chosen_fault_that_did_not_really_happen_is_unknown_and_not_green(sound: History):
    sound.demands = {"clock back": 1}
    sound.faults.append(Fault("clock back", "node-1", BEGAN, 5.0, "told 0 times", happened=False))

    verdict = judge(sound)

    assert verdict.color == UNKNOWN
    assert verdict.reasons == ["clock back: 0 seen, 1 demanded"]
    assert verdict.counts["unseen: clock back"] == 1

    sound.faults.append(Fault("clock back", "node-1", BEGAN, 5.0, "told 7 times"))
    assert judge(sound).color == GREEN


def test_a_violation_is_red_however_few_faults_there_were(sound: History):
    sound.demands = {"kills": 2}
    drop_a_run(sound)

    assert judge(sound).color == RED


def test_a_final_read_that_broke_off_is_unknown(sound: History):
    sound.final = Final((), (), incomplete="it broke off")

    assert judge(sound).color == UNKNOWN


def test_a_moment_while_the_pause_was_asked_for_may_have_a_record_or_not(sound: History):
    at = BEGAN + 10 * SECOND
    asked = replace(pause(TICKER), invoked_at=at - 10, answered_at=at + 10)
    sound.operations = [asked if one == pause(TICKER) else one for one in sound.operations]
    assert judge(sound).color == GREEN

    add(sound, run_of(95, at))
    sound.witnesses.append(witness_of(get(sound, 95)))
    assert judge(sound).color == GREEN


def test_a_submit_that_was_cut_off_may_have_made_one_job_and_no_more(sound: History):
    plan = next(one.plan for one in sound.operations if one.plan is not None)
    cut_off = Operation(SUBMIT, "submit-late", INFO, BEGAN, BEGAN + SECOND, plan=replace(plan, name="late"))
    add(sound, run_of(901, BEGAN + SECOND, job_id=91))
    add(sound, run_of(902, BEGAN + 2 * SECOND, job_id=91))
    sound.operations.append(cut_off)

    assert "phantom" not in {violation.rule for violation in judge(sound).violations}

    add(sound, run_of(903, BEGAN + SECOND, job_id=92))
    assert "phantom" in {violation.rule for violation in judge(sound).violations}


def test_a_submit_that_was_answered_in_the_end_excuses_no_stranger(sound: History):
    answered = next(one for one in sound.operations if one.kind == SUBMIT and one.outcome == OK)
    sound.operations.insert(0, replace(answered, outcome=INFO, job_id=None))
    add(sound, run_of(901, BEGAN + SECOND, job_id=91))

    assert "phantom" in {violation.rule for violation in judge(sound).violations}


def test_a_run_cancelled_between_two_attempts_keeps_the_fence_of_the_last(sound: History):
    sound.operations[0] = replace(sound.operations[0], plan=replace(sound.operations[0].plan, overlap="replace"))  # type: ignore[type-var]
    earlier = (*get(sound, 3).earlier, Attempt(2, 2, "failed", "exit", failure_code(2)))
    next_one = get(sound, 5).created_at
    change(sound, 3, state="cancelled", reason="replaced", exit_code=None, earlier=earlier, finished_at=next_one)

    assert judge(sound).color == GREEN


def test_the_log_of_an_attempt_that_died_with_its_agent_may_break_off_but_not_be_another(sound: History):
    sound.operations[0] = replace(sound.operations[0], plan=replace(sound.operations[0].plan, overlap="replace"))  # type: ignore[type-var]
    change(sound, 1, state="cancelled", reason="replaced", log="", finished_at=get(sound, 2).created_at)
    assert judge(sound).color == GREEN

    change(sound, 1, log=line_of(1, 2, 0))
    assert {violation.rule for violation in judge(sound).violations} == {"log"}


def test_a_log_may_say_that_it_is_cut_where_a_disk_was_full(sound: History):
    change(sound, 1, log="\n[output truncated: the last 24 bytes could not be stored]\n")
    assert {violation.rule for violation in judge(sound).violations} == {"log"}

    sound.faults.append(Fault("full disk of a node", "node-1", get(sound, 1).created_at, 5.0))
    verdict = judge(sound)
    assert (verdict.color, verdict.counts["logs that say they are cut"]) == (GREEN, 1)

    change(sound, 1, log="")
    assert {violation.rule for violation in judge(sound).violations} == {"log"}


def test_a_log_that_the_object_store_acknowledged_and_lost_is_not_asked_for(sound: History, tmp_path: Path):
    change(sound, 1, log="")
    said = (
        "W1116 putToFiler: create entry for /buckets/outputs/campaign/runs/0/{}/00000000 failed but the entry exists, "
    )
    (tmp_path / "s3.log").write_text(said.format("1/1-1") + "treating the write as successful\n")
    sound.unkept = past.read_unkept(tmp_path / "s3.log")
    assert judge(sound).color == GREEN

    (tmp_path / "s3.log").write_text(said.format("1/1-2") + "treating the write as successful\n")
    sound.unkept = past.read_unkept(tmp_path / "s3.log")
    assert {violation.rule for violation in judge(sound).violations} == {"log"}


# ── jobs that are changed ──


@pytest.fixture
def changed() -> History:
    """A job each two seconds: paused after 5 s, resumed after 9, each three seconds from the 13th on, deleted in the
    20th. Its moments: 2, 4; 10, 12; 16, 19."""
    plan = Plan("changed", every=2 * SECOND)
    at = [BEGAN + second * SECOND for second in (2, 4, 10, 12, 16, 19)]
    runs = tuple(run_of(number, due) for number, due in enumerate(at, 1))
    operations = [
        submit("changed", TICKER, plan, at[0]),
        asked(PAUSE, TICKER, BEGAN + 5 * SECOND),
        asked(RESUME, TICKER, BEGAN + 9 * SECOND),
        asked(UPDATE, TICKER, BEGAN + 13 * SECOND - 5, plan=replace(plan, every=3 * SECOND),
              created_at=BEGAN + 13 * SECOND),
        asked(DELETE, TICKER, BEGAN + 20 * SECOND),
    ]  # fmt: skip
    return History(operations, [witness_of(run) for run in runs], Final(runs, ()), [])


def test_a_job_that_was_paused_resumed_updated_and_deleted_is_judged_by_each_schedule_in_its_time(changed: History):
    assert [violation.text() for violation in judge(changed).violations] == []


def test_an_update_to_the_schedule_that_a_job_has_asks_for_nothing_anew():
    """Its trigger goes on, and says when it was made: what a pause before took away stays taken."""
    plan = Plan("changed", every=2 * SECOND)
    at = [BEGAN + second * SECOND for second in (2, 4, 10, 12, 14, 16)]
    runs = tuple(run_of(number, due) for number, due in enumerate(at, 1))
    operations = [
        submit("changed", TICKER, plan, at[0]),
        asked(PAUSE, TICKER, BEGAN + 5 * SECOND),
        asked(RESUME, TICKER, BEGAN + 9 * SECOND),
        asked(UPDATE, TICKER, BEGAN + 13 * SECOND - 5, plan=plan, created_at=BEGAN),
        asked(DELETE, TICKER, BEGAN + 17 * SECOND),
    ]
    history = History(operations, [witness_of(run) for run in runs], Final(runs, ()), [])
    assert [violation.text() for violation in judge(history).violations] == []
    history.final = replace(history.final, runs=runs[:-2])
    history.witnesses = [one for one in history.witnesses if one.run < runs[-2].id]
    assert {violation.rule for violation in judge(history).violations} == {"accounted"}


@pytest.mark.parametrize("number", range(1, 7))
def test_each_moment_of_a_changed_job_is_missed(changed: History, number: int):
    changed.final = replace(changed.final, runs=tuple(run for run in changed.final.runs if run.id != number))
    changed.witnesses = [one for one in changed.witnesses if one.run != number]

    assert {violation.rule for violation in judge(changed).violations} == {"accounted"}


@pytest.mark.parametrize("second", [6, 8, 14, 18, 22], ids=["paused", "still paused", "old", "old again", "deleted"])
def test_a_moment_that_a_change_took_away_is_a_phantom(changed: History, second: int):
    add(changed, run_of(99, BEGAN + second * SECOND, state="coalesced", into_run_id=6, attempt=0, fence=0))

    assert "phantom" in {violation.rule for violation in judge(changed).violations}


def test_a_moment_while_a_change_was_asked_for_may_have_a_record_or_not(changed: History):
    """The pause was asked for before the moment and granted after it."""
    changed.operations[1] = replace(changed.operations[1], invoked_at=BEGAN + 3 * SECOND)
    assert judge(changed).violations == []

    changed.final = replace(changed.final, runs=tuple(run for run in changed.final.runs if run.id != 2))
    changed.witnesses = [one for one in changed.witnesses if one.run != 2]
    assert judge(changed).violations == []


def test_a_resume_that_nobody_answered_demands_nothing_and_allows_both(changed: History):
    changed.operations[2] = replace(changed.operations[2], outcome=INFO)
    assert judge(changed).violations == []

    changed.final = replace(changed.final, runs=tuple(run for run in changed.final.runs if run.id not in (3, 4)))
    changed.witnesses = [one for one in changed.witnesses if one.run not in (3, 4)]
    assert judge(changed).violations == []


def test_a_change_that_was_refused_changed_nothing(changed: History):
    changed.operations[1] = replace(changed.operations[1], outcome=FAIL)

    (missed, also) = [violation for violation in judge(changed).violations if violation.rule == "accounted"]
    assert [missed.at, also.at] == [BEGAN + 6 * SECOND, BEGAN + 8 * SECOND]


def test_a_try_that_was_given_up_may_come_later_until_a_later_change_is_answered(changed: History):
    """The pause of the 5th second was tried before, and that try has its effect after the resume."""
    stray = replace(
        changed.operations[1], outcome=INFO, invoked_at=BEGAN + 4 * SECOND + 1, answered_at=BEGAN + 5 * SECOND - 1
    )
    changed.operations.insert(1, stray)
    changed.stray = 150.0
    changed.final = replace(changed.final, runs=tuple(run for run in changed.final.runs if run.id != 4))
    changed.witnesses = [one for one in changed.witnesses if one.run != 4]
    assert judge(changed).violations == []

    missed_before = tuple(run for run in changed.final.runs if run.id != 1)
    changed.final = replace(changed.final, runs=missed_before)
    changed.witnesses = [one for one in changed.witnesses if one.run != 1]
    assert {violation.rule for violation in judge(changed).violations} == {"accounted"}


def test_a_stray_try_is_over_with_a_change_that_was_asked_for_long_after_it(changed: History):
    long_ago = replace(changed.operations[1], outcome=INFO, invoked_at=BEGAN - 200 * SECOND, answered_at=BEGAN)
    changed.operations.insert(1, long_ago)
    changed.stray = 150.0
    changed.final = replace(changed.final, runs=tuple(run for run in changed.final.runs if run.id != 4))
    changed.witnesses = [one for one in changed.witnesses if one.run != 4]

    assert {violation.rule for violation in judge(changed).violations} == {"accounted"}


def test_the_end_of_an_attempt_by_a_wrong_clock_is_not_held_against_its_last_line(sound: History):
    change(sound, 6, node="node-1", finished_at=BEGAN + SECOND // 10)
    assert {violation.rule for violation in judge(sound).violations} == {"dead"}

    sound.faults.append(Fault("clock back", "node-1", BEGAN - SECOND, 2.0, "-3600 s, told 7 times"))
    assert judge(sound).violations == []


def test_after_an_update_that_nobody_answered_no_moment_is_judged(changed: History):
    changed.operations[3] = replace(changed.operations[3], outcome=INFO)

    assert judge(changed).violations == []


# ── the oracle ──


def test_the_oracle_counts_intervals_from_creation():
    assert oracle.moments(Plan("x", every=3 * SECOND), BEGAN + 5, BEGAN + 7 * SECOND) == [
        BEGAN + 5 + 3 * SECOND,
        BEGAN + 5 + 6 * SECOND,
    ]


def test_the_oracle_reads_the_clock_of_the_zone():
    """In Kathmandu, 5:45 ahead of UTC, the minutes are odd where they are even here."""
    created_at = BEGAN  # 08:00:00 UTC
    found = oracle.moments(
        Plan("x", seconds=30, minutes=2, timezone="Asia/Kathmandu"), created_at, BEGAN + 240 * SECOND
    )
    assert [(at - BEGAN) // SECOND for at in found] == [60, 90, 180, 210]


# ── witness and directory ──


def test_a_witness_writes_down_its_life(tmp_path: Path):
    told = {
        "HORAE_RUN_ID": "5", "HORAE_FENCE": "2", "HORAE_ATTEMPT": "2", "HORAE_JOB_ID": "3",
        "HORAE_SCHEDULED_FOR": "2027-01-15T08:00:00Z",
    }  # fmt: skip
    argv = [sys.executable, "-I", "-S", witness.__file__, str(tmp_path), "0.2", "0.2", "100", "talks"]
    done = subprocess.run(argv, env={**os.environ, **told}, capture_output=True, text=True, timeout=60)

    (path,) = tmp_path.iterdir()
    wrote = past.read_witness(path)
    assert wrote is not None
    assert (wrote.run, wrote.fence, wrote.attempt, wrote.job, wrote.due_at) == (5, 2, 2, 3, BEGAN)
    assert done.returncode == wrote.code == failure_code(2)
    assert done.stdout.splitlines() == [line_of(5, 2, number) for number in range(wrote.lines)]
    assert wrote.last - wrote.started >= 0.2


def test_a_directory_can_be_judged_again(sound: History, tmp_path: Path):
    (tmp_path / "witness").mkdir()
    for number, one in enumerate(sound.witnesses):
        start = {
            "event": "start", "run": one.run, "attempt": one.attempt, "fence": one.fence, "job": one.job,
            "pid": one.pid, "boot": one.started, "wall": one.started_at / SECOND,
            "scheduled_for": f"2027-01-15T08:00:{(one.due_at - BEGAN) / SECOND:09.6f}Z",
        }  # fmt: skip
        end = {"event": "end" if one.code is not None else "tick", "boot": one.last, "wall": one.last_at / SECOND}
        if one.code is not None:
            end |= {"code": one.code, "lines": one.lines}
        (tmp_path / "witness" / f"{number}.jsonl").write_text(json.dumps(start) + "\n" + json.dumps(end) + "\n")
    for name, values in (("ops.jsonl", sound.operations), ("faults.jsonl", sound.faults)):
        journal = past.Journal(tmp_path / name)
        for value in values:
            journal.add(value)
        journal.close()
    past.save(tmp_path / "final.json", asdict(sound.final))
    past.save(tmp_path / "meta.json", {"counts": sound.counts, "demands": sound.demands})

    assert judge(past.load(tmp_path)).color == GREEN
