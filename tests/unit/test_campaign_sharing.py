"""The judge of queues and limits: a sound history has no violations, each broken promise has its own."""

from __future__ import annotations

from dataclasses import replace

from campaign.case import Violation, arrange
from campaign.history import OK, SECOND, SUBMIT, Final, History, Hold, Operation, Plan, QueuePlan, Run, Witness
from campaign.sharing import let_go, shared_fairly, within_limits, within_rates

BEGAN = 1_800_000_000 * SECOND
QUEUE = QueuePlan("crowd", {"ann": 1, "bob": 2})


def at(seconds: float) -> int:
    return BEGAN + round(seconds * SECOND)


def submit(job_id: int, plan: Plan) -> Operation:
    return Operation(SUBMIT, plan.name, OK, BEGAN, BEGAN, job_id=job_id, created_at=BEGAN, plan=plan)


def run_of(number: int, job_id: int = 1, **fields: object) -> Run:
    given = Run(
        id=number, job_id=job_id, by_hand=True, due_at=BEGAN, state="succeeded", reason="", attempt=1, fence=1, lost=0,
        created_at=BEGAN, finished_at=at(1000), exit_code=0, into_run_id=None, key=str(number),
    )  # fmt: skip
    return replace(given, **fields)  # type: ignore[arg-type]


def history(plans: list[Plan], runs: list[Run], holds: list[Hold], *queues: QueuePlan) -> History:
    operations = [submit(number, plan) for number, plan in enumerate(plans, 1)]
    return History(operations, [], Final(tuple(runs), ()), [], queues=queues, holds=holds, read_at=at(1000))


def started(*seconds: float, lasting: float = 1.0) -> list[Hold]:
    return [Hold(number, at(when), at(when + lasting)) for number, when in enumerate(seconds, 1)]


def rules(found: object) -> list[str]:
    assert not isinstance(found, Violation)
    return [one.rule for one in found]  # type: ignore[attr-defined]


# ── at once ──


def held(most: int, *seconds: float) -> History:
    runs = [run_of(number) for number in range(1, len(seconds) + 1)]
    return history([Plan("narrow", at_once=most)], runs, started(*seconds))


def test_as_many_at_once_as_a_limit_allows_are_sound():
    assert not list(within_limits(arrange(held(2, 0, 0.5, 1.0, 1.5))))


def test_one_more_at_once_is_found():
    assert rules(within_limits(arrange(held(2, 0, 0.5, 0.9)))) == ["limit"]


def test_jobs_of_one_tenant_count_together():
    plans = [Plan(name, tenant="ann", at_once=1, at_once_per="data.tenant") for name in ("a", "b")]
    runs = [run_of(1), run_of(2, job_id=2)]

    assert rules(within_limits(arrange(history(plans, runs, started(0, 0.5))))) == ["limit"]


def test_a_queue_counts_all_its_jobs():
    plans = [Plan(name, queue="crowd") for name in ("a", "b")]
    narrow = replace(QUEUE, concurrency=1)

    found = within_limits(arrange(history(plans, [run_of(1), run_of(2, job_id=2)], started(0, 0.5), narrow)))

    assert rules(found) == ["limit"]


def test_without_a_word_of_the_store_the_witnesses_tell():
    past = held(1, 0, 0.5)
    past.witnesses = [Witness(one.run, 1, 1, 1, BEGAN, 1, 0.0, one.since, 0.0, one.until or 0, 0) for one in past.holds]
    past.holds = []

    assert rules(within_limits(arrange(past))) == ["limit"]


# ── rates ──


def paced(*seconds: float) -> History:
    runs = [run_of(number) for number in range(1, len(seconds) + 1)]
    return history([Plan("paced", rate=60, burst=3)], runs, started(*seconds))


def test_a_burst_and_one_a_period_are_sound():
    assert not list(within_rates(arrange(paced(0, 0, 0, 1, 2, 3, 10, 10, 10))))


def test_a_start_before_its_time_is_found():
    assert rules(within_rates(arrange(paced(0, 0, 0, 0.9)))) == ["rate"]


def test_starts_that_are_noted_late_are_not_held_against_anybody():
    past = paced(0, 0, 0, 0.9)
    past.noted_late = 0.2

    assert not list(within_rates(arrange(past)))


# ── shares ──


def shared(order: str) -> History:
    """One start a second, in this order, of all that waited from the beginning."""
    plans = [Plan(tenant, queue="crowd", tenant=tenant) for tenant in ("ann", "bob")]
    runs = [run_of(number, job_id=1 if who == "a" else 2) for number, who in enumerate(order, 1)]
    return history(plans, runs, started(*range(1, len(order) + 1)), QUEUE)


def test_starts_by_weight_are_sound():
    assert not list(shared_fairly(arrange(shared("abb" * 20))))


def test_whoever_asked_first_and_goes_first_is_found():
    assert rules(shared_fairly(arrange(shared("a" * 30 + "b" * 30)))) == ["fair"]


def test_equal_shares_in_spite_of_weights_are_found():
    assert rules(shared_fairly(arrange(shared("ab" * 60)))) == ["fair"]


# ── stuck ──


def left_over(last_seen: float) -> History:
    runs = [run_of(1), run_of(2, state="blocked", reason="limit", finished_at=None)]
    past = history([Plan("narrow", at_once=1)], runs, started(last_seen))
    past.healed_at = at(10)
    return past


def test_a_run_that_waits_for_what_nobody_holds_is_found():
    assert rules(let_go(arrange(left_over(20)))) == ["stuck"]


def test_a_run_that_waits_since_a_moment_ago_is_sound():
    assert not list(let_go(arrange(left_over(990))))


def test_a_run_that_waits_for_one_that_runs_is_sound():
    past = left_over(20)
    past.holds[0].until = None

    assert not list(let_go(arrange(past)))
