"""What a run may do next: the table, and the decisions made from it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from horae.core.model import LOST_LIMIT, SECOND, Misfire, Policy, Reason, Retry, State
from horae.core.runs import lifecycle
from horae.core.runs.lifecycle import BIRTHS, MISFIRE_GRACE, TRANSITIONS, after_failure, after_loss, backoff, may_become

NOW = 1_800_000_000 * SECOND

retries = st.builds(
    Retry,
    attempts=st.integers(1, 100),
    backoff_seconds=st.floats(0, 1e6),
    factor=st.floats(1, 100),
    cap_seconds=st.floats(0, 1e7),
    jitter=st.floats(0, 1),
)


# ── the table ──


def test_terminal_states_have_no_way_out():
    for state in State:
        assert bool(TRANSITIONS[state]) != state.is_terminal


def test_every_state_is_born_or_reached():
    reachable = set(BIRTHS)
    for _ in State:
        reachable |= {after for before in reachable for after in TRANSITIONS[before]}

    assert reachable == set(State)


def test_every_live_state_can_still_end_well():
    for state in (State.QUEUED, State.BLOCKED, State.RUNNING):
        reached = {state}
        for _ in State:
            reached |= {after for before in reached for after in TRANSITIONS[before]}
        assert State.SUCCEEDED in reached


def test_only_running_work_succeeds_or_times_out():
    for state in State:
        assert may_become(state, State.SUCCEEDED) == (state is State.RUNNING)
        assert may_become(state, State.TIMED_OUT) == (state is State.RUNNING)


def test_whatever_waits_may_be_ended_by_the_rights_of_its_owner():
    for state in (State.QUEUED, State.BLOCKED):
        assert may_become(state, State.SKIPPED)
        assert may_become(state, State.FAILED)  # a task


class Life(RuleBasedStateMachine):
    """One run, to which anything happens in any order; decisions come from the code under test."""

    @initialize(attempts=st.integers(1, 4), born=st.sampled_from(sorted(BIRTHS)))
    def bear(self, attempts: int, born: State) -> None:
        self.policy = Policy(retry=Retry(attempts=attempts))
        self.state = born
        self.attempt = self.lost = self.failures = 0
        self.cancel_requested = False

    def become(self, after: State) -> None:
        assert may_become(self.state, after), f"{self.state.word} → {after.word}"
        self.state = after

    @precondition(lambda self: self.state is State.QUEUED)
    @rule()
    def claim(self) -> None:
        self.become(State.RUNNING)
        self.attempt += 1

    @precondition(lambda self: self.state is State.RUNNING)
    @rule(
        state=st.sampled_from([State.FAILED, State.TIMED_OUT]),
        final=st.booleans(),
        asked=st.none() | st.floats(0, 100),
    )
    def fail(self, state: State, final: bool, asked: float | None) -> None:
        self.failures += 1
        verdict = after_failure(
            self.policy, state=state, reason=Reason.EXIT, attempt=self.attempt, lost=self.lost, run_id=1,
            final=final or self.cancel_requested, retry_after=asked,
        )  # fmt: skip
        assert verdict.wait_seconds >= 0
        assert verdict.state in (state, State.BLOCKED)
        self.become(verdict.state)

    @precondition(lambda self: self.state is State.RUNNING)
    @rule()
    def lose(self) -> None:
        self.lost += 1
        self.become(after_loss(lost=self.lost, cancel_requested=self.cancel_requested).state)

    @precondition(lambda self: self.state is State.RUNNING)
    @rule(state=st.sampled_from([State.SUCCEEDED, State.CANCELLED]))
    def end(self, state: State) -> None:
        self.become(state)

    @precondition(lambda self: self.state is State.BLOCKED)
    @rule()
    def release(self) -> None:
        self.become(State.QUEUED)

    @precondition(lambda self: self.state in (State.QUEUED, State.BLOCKED))
    @rule(after=st.sampled_from([State.SKIPPED, State.CANCELLED, State.FAILED]))
    def end_unrun(self, after: State) -> None:
        self.become(after)

    @precondition(lambda self: self.state is State.RUNNING)
    @rule()
    def ask_to_cancel(self) -> None:
        self.cancel_requested = True

    @precondition(lambda self: self.state.is_terminal)
    @rule(after=st.sampled_from(State))
    def nothing_more(self, after: State) -> None:
        assert not may_become(self.state, after)

    @invariant()
    def attempts_stay_within_bounds(self) -> None:
        if hasattr(self, "policy"):
            assert self.failures <= self.policy.retry.attempts
            assert self.lost <= LOST_LIMIT + 1
            assert self.attempt <= self.policy.retry.attempts + LOST_LIMIT + 1


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLife = Life.TestCase


# ── after a failure ──


def failed(policy: Policy, **fields: object) -> lifecycle.Verdict:
    given_fields = {"state": State.FAILED, "reason": "exit", "attempt": 1, "lost": 0, "run_id": 7, **fields}
    return after_failure(policy, **given_fields)  # type: ignore[arg-type]


def test_the_default_is_one_attempt():
    assert failed(Policy()) == lifecycle.Verdict(State.FAILED, "exit")


@pytest.mark.parametrize("lost", [0, 1, 5])
def test_lost_attempts_do_not_count_against_the_budget(lost: int):
    policy = Policy(retry=Retry(attempts=3))

    verdicts = [failed(policy, attempt=attempt + lost, lost=lost).state for attempt in (1, 2, 3)]

    assert verdicts == [State.BLOCKED, State.BLOCKED, State.FAILED]


def test_a_retry_waits_as_long_as_the_work_itself_asked():
    verdict = failed(Policy(retry=Retry(attempts=2)), retry_after=77.5)

    assert verdict == lifecycle.Verdict(State.BLOCKED, Reason.RETRY, 77.5)


def test_a_final_failure_is_not_repeated_however_many_attempts_are_left():
    assert failed(Policy(retry=Retry(attempts=9)), final=True).state is State.FAILED


def test_a_timeout_stays_a_timeout_when_the_budget_is_spent():
    assert failed(Policy(), state=State.TIMED_OUT, reason="timeout").state is State.TIMED_OUT


# ── after a loss ──


def test_a_lost_run_goes_back_five_times_and_no_more():
    states = [after_loss(lost=lost, cancel_requested=False).state for lost in range(1, 8)]

    assert states == [State.QUEUED] * 5 + [State.FAILED] * 2
    assert after_loss(lost=6, cancel_requested=False).reason == Reason.LOST


def test_a_lost_run_that_was_to_be_cancelled_is_cancelled():
    assert after_loss(lost=1, cancel_requested=True) == lifecycle.Verdict(State.CANCELLED, Reason.REQUESTED)


# ── backoff ──


@given(retries, st.integers(1, 200), st.integers(1, 2**62))
def test_backoff_stays_within_its_jitter_of_the_capped_wait(retry: Retry, attempt: int, run_id: int):
    wait = backoff(retry, attempt, run_id)
    plain = backoff(replace(retry, jitter=0), attempt, run_id)

    assert 0 <= plain <= retry.cap_seconds
    assert plain * (1 - retry.jitter) - 1e-6 <= wait <= plain * (1 + retry.jitter) + 1e-6


@given(retries, st.integers(1, 120), st.integers(1, 2**62))
def test_backoff_grows_until_the_cap(retry: Retry, attempt: int, run_id: int):
    plain = replace(retry, jitter=0)

    assert backoff(plain, attempt, run_id) <= backoff(plain, attempt + 1, run_id)


def test_backoff_doubles_from_its_first_wait_and_stops_at_the_cap():
    retry = Retry(backoff_seconds=1, factor=2, cap_seconds=10, jitter=0)

    assert [backoff(retry, attempt, 1) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_jitter_is_stable_per_run_and_attempt_and_spreads_a_herd():
    retry = Retry(backoff_seconds=100, jitter=0.5)
    waits = [backoff(retry, 1, run_id) for run_id in range(1000)]

    assert waits == [backoff(retry, 1, run_id) for run_id in range(1000)]
    assert len({round(wait) for wait in waits}) > 80
    assert 97 < sum(waits) / len(waits) < 103
    assert backoff(retry, 1, 7) / 100 != backoff(retry, 2, 7) / 200


# ── missed moments ──

moments = st.lists(st.integers(NOW - 3 * MISFIRE_GRACE, NOW), min_size=1, max_size=60, unique=True).map(sorted)


@given(moments)
def test_run_latest_runs_the_last_and_coalesces_the_rest(pending: list[int]):
    assert lifecycle.missed(Policy(), pending, NOW) == (len(pending) - 1, State.COALESCED)


@given(moments, st.integers(0, 80))
def test_run_all_runs_the_newest_up_to_its_limit(pending: list[int], limit: int):
    count, state = lifecycle.missed(Policy(misfire=Misfire.RUN_ALL, misfire_limit=limit), pending, NOW)

    assert len(pending) - count == min(limit, len(pending))
    assert state is (State.COALESCED if limit else State.SKIPPED)


@given(moments)
def test_skip_runs_exactly_those_that_are_hardly_late(pending: list[int]):
    count, state = lifecycle.missed(Policy(misfire=Misfire.SKIP), pending, NOW)

    assert state is State.SKIPPED
    assert all(NOW - moment > MISFIRE_GRACE for moment in pending[:count])
    assert all(NOW - moment <= MISFIRE_GRACE for moment in pending[count:])


@given(moments, st.sampled_from(Misfire), st.integers(1, 80))
def test_what_is_left_out_is_always_the_oldest_and_a_run_stands_for_what_is_coalesced(
    pending: list[int], misfire: Misfire, limit: int
):
    count, state = lifecycle.missed(Policy(misfire=misfire, misfire_limit=limit), pending, NOW)

    assert 0 <= count <= len(pending)
    assert state is State.SKIPPED or count < len(pending)
