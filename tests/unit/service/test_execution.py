"""Attempts: given, taken back, decided upon."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from horae.core.model import SECOND, Reason, Retry, Run, RunFilter, State
from horae.core.runs.lifecycle import BIRTHS, TRANSITIONS, backoff
from horae.core.runs.orders import Assignment, Result
from horae.core.signs import Beat, Sign
from horae.errors import Superseded, Unavailable
from horae.service.execution import Execution, LocalLink
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.stores import migrate
from horae.stores.sqlite import SqliteStore
from horae.testing import START, FakeClock

from .parts import BOTH, Probe, Told, draft, ledger, node, submitted

N1 = node("n1")


async def one_run(jobs: Jobs, execution: Execution, **fields: Any) -> tuple[Run, Assignment]:
    job = await submitted(jobs, **fields)
    run = await jobs.run_now(job.id)
    return run, await claim_one(execution)


async def claim_one(execution: Execution) -> Assignment:
    (assignment,) = await execution.claim(N1, {"python": 1})
    return assignment


def ended(assignment: Assignment, state: State = State.SUCCEEDED, **fields: Any) -> Result:
    return Result(assignment.run_id, assignment.fence, state, finished_at=START, **fields)


# ── the ends ──


async def test_a_success_ends_the_run(jobs: Jobs, execution: Execution, metrics: Metrics):
    run, assignment = await one_run(jobs, execution)

    accepted = await execution.finish([ended(assignment, result='{"x":1}', exit_code=0)])

    assert accepted == {run.id}
    found = await jobs.get_run(run.id)
    assert (found.state, found.result, found.exit_code, found.attempt) == (State.SUCCEEDED, {"x": 1}, 0, 1)
    assert metrics.finished == {"succeeded": 1}


async def test_a_failure_without_retries_ends_the_run(jobs: Jobs, execution: Execution):
    run, assignment = await one_run(jobs, execution)

    await execution.finish([ended(assignment, State.FAILED, reason=Reason.EXIT, exit_code=3, message="no")])

    found = await jobs.get_run(run.id)
    assert (found.state, found.reason, found.exit_code, found.message) == (State.FAILED, "exit", 3, "no")


@BOTH
async def test_a_thousand_results_are_one_write(jobs: Jobs, execution: Execution, probe: Probe):
    job = await submitted(jobs, overlap="allow", retry=2)
    for _ in range(10):  # a crowd of a thousand would be refused on a slow machine
        await asyncio.gather(*(jobs.run_now(job.id) for _ in range(100)))
    claimed = await execution.claim(N1, {"python": 1000})
    assert len(claimed) == 1000
    probe.calls.clear()

    states = [State.FAILED if index % 3 == 0 else State.SUCCEEDED for index in range(1000)]
    accepted = await execution.finish([ended(a, s) for a, s in zip(claimed, states, strict=True)])

    assert len(accepted) == 1000
    assert probe.calls["finish"] == probe.calls["load_held"] == 1
    assert (await probe.census()).live == {"blocked": 334}


# ── retries ──


@BOTH
async def test_a_failed_attempt_is_repeated_until_the_budget_is_spent(
    jobs: Jobs, execution: Execution, probe: Probe, clock: FakeClock, queue: Told
):
    retry = {"attempts": 3, "backoff": "10s", "factor": 2, "jitter": 0.5}
    run, assignment = await one_run(jobs, execution, retry=retry)
    policy = Retry(3, 10.0, 2.0, jitter=0.5)
    for attempt in (1, 2):
        queue.take()
        await execution.finish([ended(assignment, State.FAILED, reason=Reason.EXIT)])
        waiting = await jobs.get_run(run.id)
        assert (waiting.state, waiting.reason) == (State.BLOCKED, "retry")
        assert waiting.eligible_at == clock.now() + round(backoff(policy, attempt, run.id) * SECOND)
        assert queue.take() == ["waiting"]
        assert await execution.claim(N1, {"python": 1}) == []
        clock.advance((waiting.eligible_at - clock.now()) / SECOND)
        assert (await probe.sweep()).queued == 1
        assignment = await claim_one(execution)
        assert (assignment.attempt, assignment.fence) == (attempt + 1, attempt + 1)

    await execution.finish([ended(assignment, State.FAILED, reason=Reason.EXIT)])

    found = await jobs.get_run(run.id)
    assert (found.state, found.attempt) == (State.FAILED, 3)
    assert [(a.attempt, a.state) for a in await jobs.list_attempts(run.id)] == [(1, State.FAILED), (2, State.FAILED)]


async def test_a_timeout_is_repeated_like_a_failure(jobs: Jobs, execution: Execution):
    run, assignment = await one_run(jobs, execution, retry=2)

    await execution.finish([ended(assignment, State.TIMED_OUT, reason=Reason.TIMEOUT)])

    assert (await jobs.get_run(run.id)).state is State.BLOCKED


async def test_a_retry_waits_as_long_as_the_work_asked(jobs: Jobs, execution: Execution, clock: FakeClock):
    run, assignment = await one_run(jobs, execution, retry=2)

    await execution.finish([ended(assignment, State.FAILED, retry_after=42.5)])

    assert (await jobs.get_run(run.id)).eligible_at == clock.now() + round(42.5 * SECOND)


async def test_a_final_failure_is_not_repeated(jobs: Jobs, execution: Execution):
    run, assignment = await one_run(jobs, execution, retry=5)

    await execution.finish([ended(assignment, State.FAILED, final=True)])

    assert (await jobs.get_run(run.id)).state is State.FAILED


async def test_what_was_to_be_cancelled_is_not_repeated(jobs: Jobs, execution: Execution):
    run, assignment = await one_run(jobs, execution, retry=5)
    await jobs.cancel(run.id)

    await execution.finish([ended(assignment, State.FAILED)])

    assert (await jobs.get_run(run.id)).state.is_terminal


async def test_a_cancelled_attempt_is_not_repeated(jobs: Jobs, execution: Execution):
    run, assignment = await one_run(jobs, execution, retry=5)

    await execution.finish([ended(assignment, State.CANCELLED, reason=Reason.REQUESTED)])

    assert (await jobs.get_run(run.id)).state is State.CANCELLED


async def test_a_retry_waits_by_the_clock_of_the_store(jobs: Jobs, probe: Probe, queue: Told, metrics: Metrics):
    """Ours may be hours away from it."""
    execution = Execution(probe, queue, FakeClock(START + 3600 * SECOND), metrics)
    run, assignment = await one_run(jobs, execution, retry={"attempts": 2, "backoff": "10s", "jitter": 0})

    await execution.finish([ended(assignment, State.FAILED)])

    assert (await jobs.get_run(run.id)).eligible_at == START + 10 * SECOND


@BOTH
async def test_a_start_deadline_is_met_by_the_first_start(
    jobs: Jobs, execution: Execution, probe: Probe, clock: FakeClock
):
    """A run that was claimed in time and waits for its second attempt was not late to start."""
    retry = {"attempts": 2, "backoff": "1m", "jitter": 0}
    run, assignment = await one_run(jobs, execution, retry=retry, start_deadline="30s")
    await execution.finish([ended(assignment, State.FAILED)])

    clock.advance(61)
    await probe.sweep()
    again = await claim_one(execution)

    assert (again.run_id, again.attempt) == (run.id, 2)


# ── losses ──


@BOTH
async def test_what_a_dead_node_held_is_queued_again_outside_the_budget(
    jobs: Jobs, execution: Execution, probe: Probe, queue: Told, metrics: Metrics
):
    run, _ = await one_run(jobs, execution)
    queue.take()

    assert await execution.reap("n1") == {(run.id, 1)}

    found = await jobs.get_run(run.id)
    assert (found.state, found.reason, found.lost, found.attempt) == (State.QUEUED, "lost", 1, 1)
    assert queue.take() == ["limits", "units", "runs"]  # it may have had more than a slot
    assert (await claim_one(execution)).attempt == 2
    (attempt,) = await jobs.list_attempts(run.id)
    assert (attempt.state, attempt.reason, attempt.node) == (State.FAILED, "lost", "n1")
    assert metrics.lost == 1
    assert metrics.retried == 0


async def test_a_run_lost_more_than_five_times_has_failed(jobs: Jobs, execution: Execution):
    run, assignment = await one_run(jobs, execution)
    for _ in range(5):
        await execution.reap("n1")
        assignment = await claim_one(execution)
    assert assignment.attempt == 6

    await execution.reap("n1")

    found = await jobs.get_run(run.id)
    assert (found.state, found.reason, found.attempt) == (State.FAILED, "lost", 6)
    assert len(await jobs.list_attempts(run.id)) == 5


async def test_lost_attempts_leave_the_retries_alone(jobs: Jobs, execution: Execution, probe: Probe, clock: FakeClock):
    run, _ = await one_run(jobs, execution, retry={"attempts": 2, "backoff": "1s"})
    await execution.reap("n1")
    await execution.finish([ended(await claim_one(execution), State.FAILED)])
    assert (await jobs.get_run(run.id)).state is State.BLOCKED
    clock.advance(5)
    await probe.sweep()

    await execution.finish([ended(await claim_one(execution), State.FAILED)])

    assert (await jobs.get_run(run.id)).state is State.FAILED


async def test_a_lost_run_that_was_to_be_cancelled_is_cancelled(jobs: Jobs, execution: Execution):
    run, _ = await one_run(jobs, execution)
    await jobs.cancel(run.id)

    await execution.reap("n1")

    found = await jobs.get_run(run.id)
    assert (found.state, found.reason) == (State.CANCELLED, "requested")


@pytest.mark.parametrize("fields", [{"state": State.QUEUED}, {"state": State.FAILED, "reason": Reason.LOST}])
async def test_what_an_agent_hands_back_is_a_loss_not_a_failure(
    fields: dict[str, Any], jobs: Jobs, execution: Execution
):
    run, assignment = await one_run(jobs, execution)

    await execution.finish([ended(assignment, **fields)])

    found = await jobs.get_run(run.id)
    assert (found.state, found.lost) == (State.QUEUED, 1)


async def test_what_is_handed_back_after_a_cancel_is_cancelled(jobs: Jobs, execution: Execution):
    run, assignment = await one_run(jobs, execution)
    await jobs.cancel(run.id)

    await execution.finish([ended(assignment, State.QUEUED)])

    assert (await jobs.get_run(run.id)).state is State.CANCELLED


async def test_a_node_that_comes_back_gives_up_what_it_held(
    jobs: Jobs, execution: Execution, probe: Probe, queue: Told
):
    run, _ = await one_run(jobs, execution)

    await LocalLink(execution, probe, queue).hello(N1)

    assert (await jobs.get_run(run.id)).state is State.QUEUED
    assert [n.state for n in await probe.list_nodes()] == ["live"]


async def test_what_a_node_is_known_to_have_is_left_to_it(jobs: Jobs, execution: Execution):
    kept, first = await one_run(jobs, execution)
    lost, _ = await one_run(jobs, execution)

    assert await execution.reap("n1", keep=[(kept.id, 1)]) == {(kept.id, 1), (lost.id, 1)}

    assert (await jobs.get_run(kept.id)).state is State.RUNNING
    assert (await jobs.get_run(lost.id)).state is State.QUEUED
    assert await execution.finish([ended(first)]) == {kept.id}


# ── fences ──


async def test_the_result_of_a_superseded_attempt_is_refused(jobs: Jobs, execution: Execution, metrics: Metrics):
    run, stale = await one_run(jobs, execution)
    await execution.reap("n1")
    current = await claim_one(execution)
    metrics.finished.clear()

    assert await execution.finish([ended(stale, State.SUCCEEDED)]) == set()
    assert (await jobs.get_run(run.id)).state is State.RUNNING
    assert (metrics.fenced, metrics.finished["succeeded"]) == (1, 0)
    assert await execution.finish([ended(stale, State.FAILED)]) == set()
    assert await execution.finish([ended(stale, State.QUEUED)]) == set()
    assert await execution.finish([ended(current)]) == {run.id}
    assert (metrics.fenced, metrics.finished["succeeded"]) == (3, 1)


async def test_a_result_told_twice_counts_once(jobs: Jobs, execution: Execution, metrics: Metrics):
    run, assignment = await one_run(jobs, execution)
    await execution.finish([ended(assignment)])

    assert await execution.finish([ended(assignment, State.FAILED)]) == set()

    assert (await jobs.get_run(run.id)).state is State.SUCCEEDED
    assert metrics.finished == {"succeeded": 1}


async def test_the_end_of_a_run_wakes_agents_for_its_successor(jobs: Jobs, execution: Execution, queue: Told):
    job = await submitted(jobs, overlap="queue")
    await jobs.run_now(job.id)
    second = await jobs.run_now(job.id)
    assignment = await claim_one(execution)
    queue.take()

    await execution.finish([ended(assignment)])

    assert queue.take() == ["runs"]
    assert (await claim_one(execution)).run_id == second.id


async def test_lateness_is_measured_once_per_run(jobs: Jobs, execution: Execution, clock: FakeClock, metrics: Metrics):
    job = await submitted(jobs)
    await jobs.run_now(job.id)
    clock.advance(0.2)
    await claim_one(execution)
    await execution.reap("n1")
    await claim_one(execution)

    text = metrics.text().decode()
    assert 'horae_lateness_seconds_bucket{le="0.25"} 1.0' in text
    assert "horae_lateness_seconds_count 1.0" in text


# ── any life of runs obeys the table ──


class World:
    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.store = SqliteStore(path, clock=self.clock)
        self.jobs = Jobs(self.store, Told())
        self.execution = Execution(self.store, Told(), self.clock, Metrics())

    async def live_through(self, overlap: str, attempts: int, life: list[tuple[str, int]]) -> None:
        retry = {"attempts": attempts, "backoff": "5s", "jitter": 0}
        (job,) = (await self.jobs.submit([draft(overlap=overlap, retry=retry, start_deadline="40s")])).jobs
        claimed: list[Assignment] = []
        before: dict[int, Run] = {}
        for what, number in life:
            await self.step(what, number, job.id, claimed)
            before = await self.check(job.id, overlap, before)
        await self.jobs.delete(job.id)
        await self.execution.reap("n1")
        assert all(run.state.is_terminal for run in (await self.check(job.id, overlap, before)).values())

    async def step(self, what: str, number: int, job_id: int, claimed: list[Assignment]) -> None:
        if what == "run":
            await self.jobs.run_now(job_id)
        elif what == "claim":
            claimed += await self.execution.claim(N1, {"python": 2})
        elif what == "cancel":
            runs = [run for run in await ledger(self.store, job_id) if not run.state.is_terminal]
            if runs:
                await self.jobs.cancel(runs[number % len(runs)].id)
        elif what == "wait":
            self.clock.advance(number)
            await self.store.sweep()
        elif what == "reap":
            await self.execution.reap("n1")
        elif claimed:  # any of them, stale ones too: a result may come late, or twice
            await self.execution.finish([ended(claimed[number % len(claimed)], State[what.upper()])])

    async def check(self, job_id: int, overlap: str, before: dict[int, Run]) -> dict[int, Run]:
        page = await self.store.list_runs(RunFilter(job_id=job_id), None, 1000)
        after = {run.id: run for run in page.items}
        assert set(before) <= set(after)
        for run in after.values():
            old = before.get(run.id)
            if old is None:
                assert run.state in BIRTHS
            elif old.state is not run.state:
                assert run.state in _within_one_step(old.state), f"{old.state.word} → {run.state.word}"
                assert run.fence >= old.fence
            elif old.state.is_terminal:
                assert run == old
        at_once = [run for run in after.values() if run.state is State.RUNNING]
        assert overlap == "allow" or len(at_once) <= 1
        return after


def _within_one_step(state: State) -> set[State]:
    """One step may bring a run two states on: the end of one makes the next ready, and a sweep ends it."""
    near = TRANSITIONS[state]
    return {*near, *(further for step in near for further in TRANSITIONS[step])} if state is State.BLOCKED else {*near}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[asyncio.Runner, World]]:
    with asyncio.Runner() as runner:
        path = tmp_path / "horae.db"
        migrate.migrate_sqlite(path)
        world = World(path)
        runner.run(world.store.open())
        yield runner, world
        runner.run(world.store.close())


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    overlap=st.sampled_from(["forbid", "allow", "queue", "replace"]),
    attempts=st.integers(1, 3),
    life=st.lists(
        st.tuples(
            st.sampled_from(
                ["run", "run", "claim", "claim", "succeeded", "failed", "timed_out", "queued", "cancel", "wait", "reap"]
            ),
            st.integers(0, 45),
        ),
        max_size=25,
    ),
)
def test_no_life_of_a_run_leaves_the_table(
    world: tuple[asyncio.Runner, World], overlap: str, attempts: int, life: list[tuple[str, int]]
):
    runner, parts = world
    runner.run(parts.live_through(overlap, attempts, life))


# ── told ──


async def test_an_attempt_that_failed_or_was_lost_is_logged_under_its_trace(jobs: Jobs, execution: Execution):
    run, assignment = await one_run(jobs, execution, retry=2)
    other, _ = await one_run(jobs, execution, name="other")

    with capture_logs() as lines:
        await execution.finish([ended(assignment, State.FAILED, reason=Reason.ERROR, message="no such codebook")])
        await execution.reap("n1")

    assert [(each["trace_id"], each["state"], each["reason"]) for each in lines] == [
        (f"686f726165000000{run.id:016x}", "failed", "error"),
        (f"686f726165000000{other.id:016x}", "failed", "lost"),
    ]
    assert lines[0]["message"] == "no such codebook"


async def test_a_success_and_a_result_that_comes_too_late_are_not_logged(jobs: Jobs, execution: Execution):
    _, assignment = await one_run(jobs, execution)

    with capture_logs() as lines:
        await execution.finish([ended(assignment)])
        await execution.finish([ended(assignment, State.FAILED)])

    assert lines == []


async def test_claims_of_many_agents_go_together(execution: Execution, probe: Probe):
    """However many ask at once: while one statement is under way, the others gather for the next."""
    nodes = [replace(N1, name=f"n{number}") for number in range(50)]

    await asyncio.gather(*(execution.claim(each, {"python": 2, "shell": 2}) for each in nodes))

    assert probe.calls["claim_beside"] == 1


async def test_one_line_that_was_superseded_takes_no_other_claim_with_it(
    jobs: Jobs, execution: Execution, probe: Probe
):
    job = await submitted(jobs)
    await jobs.run_now(job.id)
    session = await probe.register_node(N1)

    late, taken = await asyncio.gather(
        execution.claim(N1, {"python": 1}, session + 1), execution.claim(N1, {"python": 1}, session),
        return_exceptions=True,
    )  # fmt: skip

    assert isinstance(late, Superseded)
    assert isinstance(taken, list)
    assert len(taken) == 1
    assert probe.calls["claim_beside"] == 1


async def test_beats_of_many_nodes_go_together(execution: Execution, probe: Probe):
    session = await probe.register_node(N1)
    signs = [Sign("n1", 0, session), Sign("n1", 0, session + 1), *(Sign(f"n{number}", 0) for number in range(2, 50))]

    answers = await asyncio.gather(*map(execution.beat, signs), return_exceptions=True)

    assert probe.calls["beat_all"] == 1
    assert answers[0] == Beat([])
    assert isinstance(answers[1], Superseded)
    assert answers[2:] == [None] * 48  # nobody of them is registered


async def test_results_of_many_agents_go_together(jobs: Jobs, execution: Execution, probe: Probe):
    claimed = [(await one_run(jobs, execution))[1] for _ in range(10)]
    good = [[Result(a.run_id, a.fence, State.SUCCEEDED, finished_at=START)] for a in claimed]
    stale = [Result(claimed[0].run_id, claimed[0].fence + 1, State.SUCCEEDED, finished_at=START)]

    answers = await asyncio.gather(*map(execution.finish, [*good, stale]))

    assert answers == [*({a.run_id} for a in claimed), set()]
    assert probe.calls["finish"] == 2, "of one run, one word at a time"


@BOTH
@pytest.mark.parametrize("lost", ["register_node", "load_running"])
async def test_a_node_whose_registration_broke_off_is_told_to_join_and_not_that_it_was_superseded(
    execution: Execution, probe: Probe, queue: Told, lost: str
):
    link = LocalLink(execution, probe, queue)
    await link.hello(N1)
    await probe.retire_node("n1", "gone")
    assert await link.beat(0) is None
    probe.lose_answer(lost)
    with pytest.raises(Unavailable):
        await link.hello(N1)

    assert await link.beat(0) is None

    await link.hello(N1)
    assert await link.beat(0) is not None
