"""The judge of workflows and signals: a sound history has no violations, each broken promise has its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from campaign.case import Case, arrange
from campaign.checker import justified
from campaign.history import (
    CANCEL,
    FAIL,
    INFO,
    OK,
    ORDER,
    RUN,
    SECOND,
    SIGNAL,
    SUBMIT,
    Final,
    History,
    Hold,
    Operation,
    Plan,
    Run,
    TaskPlan,
    Witness,
    resumed_by,
)
from campaign.tasks import agreed, all_of_them, called_off, debounced, followed, in_order, once_each, wanted, woken

BEGAN = 1_800_000_000 * SECOND
PLAN = Plan(
    "flow",
    at=0,
    tasks=(
        TaskPlan("list"),
        TaskPlan("convert", (("list", "success"),), items=2, lists="list"),
        TaskPlan("check", (("convert", "success"),)),
        TaskPlan("clean", (("convert", "failure"),)),
    ),
)
ITEMS = [{"item": 0, "number": 0}, {"item": 1, "number": 1}]


def at(seconds: float) -> int:
    return BEGAN + round(seconds * SECOND)


def run_of(number: int, since: float, until: float, **fields: Any) -> Run:
    given = Run(
        id=number, job_id=2, by_hand=False, due_at=at(since), state="succeeded", reason="", attempt=1, fence=1, lost=0,
        created_at=at(since), finished_at=at(until), exit_code=0, into_run_id=None, key=None, parent_id=1,
    )  # fmt: skip
    return replace(given, **fields)


def sound() -> dict[str, Run]:
    """A run of the workflow that succeeded, with its tasks."""
    return {
        "flow": run_of(1, 0, 10, job_id=1, parent_id=None, result=ITEMS),
        "list": run_of(2, 0, 2, task="list"),
        "convert[0]": run_of(3, 2, 4, task="convert[0]"),
        "convert[1]": run_of(4, 2, 5, task="convert[1]"),
        "check": run_of(5, 5, 10, task="check"),
        "clean": run_of(6, 5, 5, task="clean", state="skipped", reason="dependency"),
    }


def case_of(*runs: Run, plan: Plan = PLAN) -> Case:
    submit = Operation(SUBMIT, plan.name, OK, BEGAN, BEGAN, job_id=1, created_at=BEGAN, plan=plan)
    holds = [Hold(0, 0)]  # the store has told when everything happened
    return arrange(History([submit], [], Final(runs, ()), [], holds=holds, read_at=at(100)))


def found(case: Case) -> list[str]:
    return [one.rule for rule in (once_each, in_order, all_of_them, agreed, wanted) for one in rule(case)]


def changed(task: str, **fields: Any) -> Case:
    runs = sound()
    runs[task] = replace(runs[task], **fields)
    return case_of(*runs.values())


def test_a_run_of_which_every_task_was_decided_once_is_sound():
    assert found(case_of(*sound().values())) == []


def test_a_task_with_two_records_is_found():
    assert found(case_of(*sound().values(), run_of(7, 5, 6, task="check"))) == ["twice"]


def test_a_task_that_the_plan_does_not_have_is_found():
    assert found(case_of(*sound().values(), run_of(7, 5, 6, task="convert[2]"))) == ["phantom"]


def test_a_task_of_a_run_that_there_is_not_is_found():
    assert found(case_of(*sound().values(), run_of(7, 5, 6, task="check", parent_id=99))) == ["phantom"]


def test_a_task_before_the_last_item_that_it_needs_is_found():
    assert found(changed("check", created_at=at(4.5))) == ["order"]


@pytest.mark.parametrize("task", ["list", "convert[1]", "check", "clean"])
def test_a_task_that_was_lost_is_found(task: str):
    runs = sound()
    del runs[task]
    assert "lost" in found(case_of(*runs.values()))


def test_a_task_that_was_skipped_although_all_that_it_needs_came_true_is_found():
    assert found(changed("check", state="skipped")) == ["lost"]


def test_a_branch_that_ran_although_it_should_have_been_skipped_is_found():
    assert "order" in found(changed("clean", state="succeeded"))


def test_a_run_that_succeeded_with_a_task_that_failed_is_found():
    assert found(changed("check", state="failed", reason="exit")) == ["parent"]


def test_a_run_that_failed_without_a_task_that_did_is_found():
    assert found(changed("flow", state="failed", reason="children")) == ["parent"]


def test_a_run_that_ended_before_its_last_task_is_found():
    assert found(changed("flow", finished_at=at(9))) == ["parent"]


def test_a_run_that_returned_something_else_than_its_tasks_is_found():
    assert found(changed("flow", result=ITEMS[:1])) == ["parent"]


def test_of_a_run_that_was_cancelled_nobody_asks_how_far_it_came():
    runs = sound()
    cancelled = replace(runs["flow"], state="cancelled", reason="requested")
    assert found(case_of(cancelled, runs["list"], replace(runs["convert[0]"], state="cancelled"))) == []


def test_a_task_that_nobody_cancelled_is_found():
    assert "justified" in found(changed("convert[0]", state="cancelled"))


@pytest.mark.parametrize(
    ("outcomes", "rules"), [([OK], []), ([INFO], []), ([FAIL, INFO], []), ([FAIL], ["justified"]), ([], ["justified"])]
)
def test_a_run_that_was_cancelled_was_wanted_so_by_somebody(outcomes: list[str], rules: list[str]):
    case = case_of(run_of(1, 0, 3, job_id=1, parent_id=None, state="cancelled", reason="requested"))
    case.history.operations += [Operation(CANCEL, "cancel-1", one, at(1), at(2), run_id=1) for one in outcomes]
    assert [one.rule for one in justified(case)] == rules


@pytest.mark.parametrize(("run_id", "started", "rules"), [(1, 10, []), (1, 30, ["obeyed"]), (2, 30, []), (9, 30, [])])
def test_a_task_that_starts_long_after_its_run_was_cancelled_is_found(run_id: int, started: float, rules: list[str]):
    runs = sound()
    case = case_of(*runs.values())
    case.history.operations.append(Operation(CANCEL, "cancel", OK, at(1), at(2), run_id=run_id))
    case.witnesses[3] = [Witness(3, 1, 1, 2, at(2), 99, started, at(started), started + 1, at(started + 1), 0)]
    assert [one.rule for one in called_off(case)] == rules


def test_a_run_that_goes_on_from_another_is_known_by_the_key_of_its_request():
    operations = [
        Operation(RUN, "retry-4", INFO, at(0), at(1)),
        Operation(RUN, "retry-4", OK, at(1), at(2), run_id=9),
        Operation(RUN, "flow-5", OK, at(1), at(2), run_id=10),
    ]
    assert resumed_by(operations) == {9: 4}


def retried(*more: Run) -> Case:
    """A run that failed at its second item, and one that goes on from there."""
    first = sound()
    first["flow"] = replace(first["flow"], state="failed", reason="children", result=None)
    first["convert[1]"] = replace(first["convert[1]"], state="failed", reason="exit")
    first["check"] = replace(first["check"], state="skipped", finished_at=at(5))
    first["clean"] = replace(first["clean"], state="succeeded", finished_at=at(7))
    again = [replace(run, id=run.id + 10, parent_id=11) for name, run in sound().items() if name != "flow"]
    flow = replace(sound()["flow"], id=11, resumes=1)
    return case_of(*first.values(), flow, *(run for run in again if run.id > 13), *more)


def test_a_retry_that_does_again_what_failed_and_what_follows_is_sound():
    assert found(retried()) == []


def test_a_retry_that_does_again_what_succeeded_is_found():
    assert found(retried(run_of(13, 4, 5, task="convert[0]", parent_id=11))) == ["twice"]


BEFORE = Plan("before", every=10 * SECOND, key="before")
BEHIND = Plan("behind", after="before")


def following(*runs: Run) -> list[str]:
    """What is found where `behind`, job 2, comes after `before`, job 1."""
    operations = [
        Operation(SUBMIT, plan.name, OK, BEGAN, BEGAN, job_id=number, created_at=BEGAN, plan=plan)
        for number, plan in enumerate((BEFORE, BEHIND), 1)
    ]
    past = History(operations, [], Final(runs, ()), [], holds=[Hold(0, 0)])
    return [one.rule for one in followed(arrange(past))]


def before(**fields: Any) -> Run:
    return run_of(1, 10, 12, job_id=1, parent_id=None, **fields)


def behind(number: int = 2, **fields: Any) -> Run:
    return replace(run_of(number, 12, 14, parent_id=None, **fields), due_at=at(10))


def test_one_run_that_follows_what_succeeded_is_sound():
    assert following(before(), behind()) == []
    assert following(before(state="failed"), behind(state="skipped", reason="dependency")) == []


def test_a_run_that_nobody_or_two_follow_is_found():
    assert following(before()) == ["followed"]
    assert following(before(), behind(), behind(3)) == ["followed"]


def test_a_run_that_follows_nobody_is_found():
    assert "phantom" in following(behind())


def test_a_run_that_follows_what_did_not_come_true_is_found():
    assert following(before(state="failed"), behind()) == ["followed"]


def test_a_run_that_was_skipped_although_what_it_follows_came_true_is_found():
    assert following(before(), behind(state="skipped", reason="dependency")) == ["followed"]


def test_the_run_that_stands_for_a_coalesced_one_counts():
    stands = run_of(3, 20, 22, job_id=1, parent_id=None)
    coalesced = before(state="coalesced", into_run_id=3)
    assert following(coalesced, stands, behind(), replace(behind(4), due_at=at(20))) == []


def ordered(*runs: tuple[float, str], orders: dict[str, int]) -> list[str]:
    """What is found where runs of a job that waits 3 s for the next order were made then, with the data of this order;
    orders came one a second, and were answered with a run each."""
    made = [
        run_of(number, since, since + 9, job_id=1, parent_id=None, by_hand=True, key=key)
        for number, (since, key) in enumerate(runs, 1)
    ]
    case = case_of(*made, plan=Plan("calm", at=0, debounce=3.0, debounce_most=9.0))
    case.history.operations += [
        Operation(ORDER, key, OK, at(number), at(number + 0.5), run_id=run_id)
        for number, (key, run_id) in enumerate(orders.items())
    ]
    return [one.rule for one in debounced(case)]


def test_orders_that_became_one_run_with_the_data_of_the_last_are_sound():
    assert ordered((0, "b"), orders={"a": 1, "b": 1}) == []
    assert ordered((0, "a"), (5, "b"), orders={"a": 1, "b": 2}) == []


def test_two_runs_of_orders_that_came_together_are_found():
    assert ordered((0, "a"), (1, "b"), orders={"a": 1, "b": 2}) == ["debounce"]


def test_an_order_that_was_answered_and_forgotten_is_found():
    assert ordered((0, "a"), orders={"a": 1, "b": 1}) == ["debounce"]
    assert ordered((0, "a"), orders={"a": 1, "b": 2}) == ["debounce"]


def test_a_run_that_was_told_and_still_waits_is_found():
    case = case_of(run_of(1, 0, 0, job_id=1, parent_id=None, state="blocked", reason="signal", finished_at=None))
    assert list(woken(case)) == []
    case.history.operations.append(Operation(SIGNAL, "signal-1", OK, at(1), at(2), run_id=1))
    assert [one.rule for one in woken(case)] == ["signal"]
