"""The agent on a real store, with executors and a keeper that do what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from horae.core.model import Overlap, Phase, Policy, Reason, State
from horae.core.runs.orders import Result
from horae.core.signs import Beat
from horae.core.work import specs
from horae.errors import Error, Unavailable
from horae.files import open_files
from horae.ports.work import Command, Done, Kept, Process, Work
from horae.service.agent import agent as module
from horae.service.agent.agent import Agent
from horae.service.agent.leash import TRUSTED_SHARE
from horae.service.execution import Execution, LocalLink
from horae.service.jobs import Jobs
from horae.testing import START, FakeClock

from ...claiming import claim
from .parts import Probe, Told, draft, node, submitted

LEASE = 30.0


class Hands:
    """An executor whose works end when the test says so."""

    def __init__(self, clock: FakeClock, kind: str = "python", slots: int = 3, *, obeys: bool = True) -> None:
        self.kind = kind
        self.slots = slots
        self.works: dict[int, Work] = {}
        self.batches: list[int] = []
        self.stops: list[tuple[int, str]] = []
        self.stopped = asyncio.Event()
        self.obeys = obeys  # ends what it is told to stop, at once
        self.is_open = False
        self._clock = clock
        self._done: dict[int, Done] = {}

    async def open(self) -> None:
        self.is_open = True

    def start(self, works: Sequence[Work], done: Done) -> None:
        self.batches.append(len(works))
        for work in works:
            self.works[work.assignment.run_id] = work
            self._done[work.assignment.run_id] = done

    def end(self, run_id: int, state: State = State.SUCCEEDED, reason: str = "") -> None:
        work = self.works.pop(run_id)
        result = Result(run_id, work.assignment.fence, state, reason, work.started_at, self._clock.now())
        self._done.pop(run_id)(result)

    def stop(self, run_id: int, reason: str) -> None:
        if run_id not in self.works:
            return
        self.stops.append((run_id, reason))
        self.stopped.set()
        if self.obeys:
            states = {Reason.TIMEOUT: State.TIMED_OUT, Reason.REQUESTED: State.CANCELLED}
            self.end(run_id, states.get(Reason(reason), State.FAILED), reason)

    async def close(self) -> None:
        self.is_open = False
        for run_id in list(self.works):
            self.end(run_id, State.FAILED, Reason.ERROR)


@dataclass
class Leash:
    """A keeper that remembers how it was renewed."""

    is_alive: bool = False
    renewals: list[float] = field(default_factory=list)
    keeps: bool = False
    kept: list[Kept] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    def release(self, name: str) -> None:
        self.released.append(name)

    def note(self, name: str, memo: str) -> None: ...

    async def leave(self) -> None:
        self.is_alive = False

    async def open(self) -> None:
        self.is_alive = True

    def renew(self, seconds: float) -> None:
        self.renewals.append(seconds)

    async def spawn(self, command: Command) -> Process:
        raise NotImplementedError

    async def close(self) -> None:
        self.is_alive = False


@dataclass
class Stage:
    agent: Agent
    hands: Hands
    leash: Leash
    link: Any
    jobs: Jobs

    async def order(self, count: int = 1, timeout_seconds: float | None = None) -> list[int]:
        """Runs that wait."""
        policy = Policy(overlap=Overlap.ALLOW, timeout_seconds=timeout_seconds)
        (job,) = (await self.jobs.submit([replace(draft(), policy=policy)])).jobs
        return [(await self.jobs.run_now(job.id)).id for _ in range(count)]

    async def states(self, runs: Sequence[int]) -> list[State]:
        return [(await self.jobs.get_run(run)).state for run in runs]


@pytest.fixture
async def stage(jobs: Jobs, execution: Execution, probe: Probe, queue: Told, clock: FakeClock, tmp_path: Path) -> Stage:
    hands, leash = Hands(clock), Leash()
    link = Probe(LocalLink(execution, probe, queue))  # type: ignore[arg-type]  # the wire can be cut here too
    agent = Agent(
        node("n1"), link, {"python": hands}, open_files(tmp_path / "output"), leash, clock, lease_seconds=LEASE,
        output_limit=1000,
    )  # fmt: skip
    await agent.join()
    return Stage(agent, hands, leash, link, jobs)


# ── claiming ──


async def test_joining_opens_everything_before_it_registers(stage: Stage, probe: Probe):
    assert stage.hands.is_open
    assert stage.leash.is_alive
    assert [n.state for n in await probe.list_nodes()] == ["live"]
    assert stage.leash.renewals == [pytest.approx(LEASE * TRUSTED_SHARE)]


async def test_no_more_is_claimed_than_there_are_slots(stage: Stage):
    runs = await stage.order(5)

    assert await stage.agent.claim() == 3
    assert await stage.agent.claim() == 0
    assert stage.agent.busy == 3
    assert sorted(await stage.states(runs)) == [State.QUEUED] * 2 + [State.RUNNING] * 3
    stage.hands.end(next(iter(stage.hands.works)))
    assert stage.agent.workload.slot_freed.is_set()
    assert await stage.agent.claim() == 1
    assert stage.hands.batches == [3, 1]


async def test_a_kind_of_which_nothing_waits_is_not_asked_for_until_told(stage: Stage):
    await stage.agent.claim()
    asked = stage.link.calls["claim"]
    assert not stage.agent.is_hungry

    await stage.agent.claim()
    assert stage.link.calls["claim"] == asked
    await stage.order(1)
    stage.agent.workload.wake()

    assert await stage.agent.claim() == 1


async def test_a_work_carries_what_its_run_says(stage: Stage):
    (run,) = await stage.order(1, timeout_seconds=300)

    await stage.agent.claim()

    work = stage.hands.works[run]
    assert (work.assignment.attempt, work.assignment.fence, work.timeout_seconds) == (1, 1, 300.0)
    assert work.spec == {"handler": "horae.handlers:noop"}
    assert work.started_at == START
    stage.hands.end(run)


@pytest.mark.parametrize(
    "fields", [{"spec": "[1]"}, {"spec": "{"}, {"policy": "{"}, {"policy": '{"retry": {"attempts": 1}, "labels": 5}'}]
)
async def test_a_run_that_the_agent_cannot_read_fails_alone(fields: dict[str, str], stage: Stage):
    runs = await stage.order(3)
    claim = stage.link.store.claim

    async def spoiled(*asked: Any) -> Any:
        first, *others = await claim(*asked)
        return [first._replace(**fields), *others]

    stage.link.store.claim = spoiled

    assert await stage.agent.claim() == 2
    for run in runs[1:]:
        stage.hands.end(run)
    while await stage.agent.delivery.report():
        pass

    assert await stage.states(runs) == [State.FAILED, State.SUCCEEDED, State.SUCCEEDED]
    assert "n1 (version 1) cannot read this job" in (await stage.jobs.get_run(runs[0])).message


async def test_the_previous_result_is_given_to_jobs_that_ask_for_it(stage: Stage, probe: Probe):
    job = (await stage.jobs.submit([_curious()])).jobs[0]
    first = await stage.jobs.run_now(job.id)
    await stage.agent.claim()
    stage.hands.works[first.id].previous = None
    (assignment,) = [stage.hands.works[first.id].assignment]
    await probe.finish([Result(first.id, assignment.fence, State.SUCCEEDED, finished_at=START, result='{"n":1}')])
    second = await stage.jobs.run_now(job.id)

    stage.agent.workload.wake()
    await stage.agent.claim()

    assert stage.hands.works[second.id].previous == '{"n":1}'


def _curious() -> Any:
    document = {"name": "curious", "kind": "python", "spec": {"handler": "m:f", "previous_result": True}}
    return specs.parse_job(document)


async def test_runs_that_were_claimed_but_cannot_be_started_are_handed_back(stage: Stage):
    job = (await stage.jobs.submit([_curious()])).jobs[0]
    run = await stage.jobs.run_now(job.id)
    stage.link.lose_call("load_previous")

    with pytest.raises(Unavailable):
        await stage.agent.claim()
    await stage.agent.delivery.report()

    assert (await stage.jobs.get_run(run.id)).state is State.QUEUED
    assert stage.agent.busy == 0


async def test_a_claim_whose_answer_was_lost_is_taken_back(stage: Stage):
    """It happened, nobody knows of it, and the node beats on: without this the run would hang for ever."""
    (kept,) = await stage.order(1)
    await stage.agent.claim()
    (lost,) = await stage.order(1)
    stage.agent.workload.wake()
    stage.link.lose_answer("claim")
    with pytest.raises(Unavailable):
        await stage.agent.claim()
    assert await stage.states([kept, lost]) == [State.RUNNING] * 2

    assert await stage.agent.claim() == 1

    assert set(stage.hands.works) == {kept, lost}
    assert (await stage.jobs.get_run(lost)).attempt == 2
    assert (await stage.jobs.get_run(kept)).attempt == 1


async def test_a_result_on_its_way_is_not_taken_back_with_a_lost_claim(stage: Stage):
    (run,) = await stage.order(1)
    await stage.agent.claim()
    stage.hands.end(run)
    sent, go_on = asyncio.Event(), asyncio.Event()

    async def hold(*_: Any) -> None:
        sent.set()
        await go_on.wait()

    stage.link.before("finish", hold)
    reporting = asyncio.create_task(stage.agent.delivery.report())
    await sent.wait()
    await stage.order(1)
    stage.agent.workload.wake()
    stage.link.lose_answer("claim")
    with pytest.raises(Unavailable):
        await stage.agent.claim()
    await stage.agent.claim()
    go_on.set()
    await reporting

    found = await stage.jobs.get_run(run)
    assert (found.state, found.attempt) == (State.SUCCEEDED, 1)


async def test_nothing_is_claimed_while_results_pile_up(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MOST_UNREPORTED", 1)
    runs = await stage.order(4)
    await stage.agent.claim()
    for run in list(stage.hands.works)[:2]:
        stage.hands.end(run)

    assert await stage.agent.claim() == 0
    await stage.agent.delivery.report()
    assert await stage.agent.claim() == 1
    assert State.QUEUED not in await stage.states(runs)


# ── ending ──


async def test_a_finished_work_frees_its_slot_and_is_reported(stage: Stage):
    runs = await stage.order(2)
    await stage.agent.claim()
    stage.hands.end(runs[0])
    stage.hands.end(runs[1], State.FAILED, Reason.EXIT)
    assert stage.agent.delivery.results_ready.is_set()

    assert await stage.agent.delivery.report() == 2

    assert await stage.states(runs) == [State.SUCCEEDED, State.FAILED]
    assert not stage.agent.delivery.results_ready.is_set()
    assert await stage.agent.delivery.report() == 0


async def test_a_timeout_stops_the_work(stage: Stage):
    (run,) = await stage.order(1, timeout_seconds=0.01)
    await stage.agent.claim()

    async with asyncio.timeout(30):
        await stage.hands.stopped.wait()
    await stage.agent.delivery.report()

    assert stage.hands.stops == [(run, Reason.TIMEOUT)]
    assert await stage.states([run]) == [State.TIMED_OUT]


async def test_the_timer_of_a_finished_work_stops_nobody(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    """The same run may be here again, as another attempt."""
    stops: list[int] = []
    monkeypatch.setattr(stage.hands, "stop", lambda run_id, reason: stops.append(run_id))
    (run,) = await stage.order(1, timeout_seconds=0.05)
    await stage.agent.claim()
    stage.hands.end(run, State.QUEUED)
    await stage.agent.delivery.report()
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(0.06, passed.set)
    await passed.wait()

    assert stops == []
    stage.agent.workload.wake()
    assert await stage.agent.claim() == 1


@pytest.mark.parametrize("loss", ["lose_call", "lose_answer"])
async def test_results_are_kept_and_told_again_when_the_link_breaks(loss: str, stage: Stage):
    runs = await stage.order(2)
    await stage.agent.claim()
    stage.hands.end(runs[0])
    getattr(stage.link, loss)("finish")
    with pytest.raises(Unavailable):
        await stage.agent.delivery.report()
    stage.hands.end(runs[1], State.FAILED)
    assert stage.agent.delivery.results_ready.is_set()

    assert await stage.agent.delivery.report() == 2

    assert await stage.states(runs) == [State.SUCCEEDED, State.FAILED]


async def test_a_thousand_results_are_one_report(stage: Stage, clock: FakeClock):
    stage.hands.slots = 1500
    stage.agent.workload.free["python"] = 1500
    job = await submitted(stage.jobs, overlap="allow")
    runs = []
    for _ in range(12):  # a crowd of all of them would be refused on a slow machine
        runs += await asyncio.gather(*(stage.jobs.run_now(job.id) for _ in range(100)))
    assert await stage.agent.claim() == 1000
    assert await stage.agent.claim() == 200
    for run in runs:
        stage.hands.end(run.id)

    assert [await stage.agent.delivery.report(), await stage.agent.delivery.report()] == [1000, 200]

    assert stage.link.calls["finish"] == 2
    assert stage.hands.batches == [1000, 200]


# ── beating ──


async def test_only_an_answered_beat_renews_the_leash_and_from_when_it_was_sent(stage: Stage, clock: FakeClock):
    stage.leash.renewals.clear()
    stage.link.lose_answer("beat")
    with pytest.raises(Unavailable):
        await stage.agent.leash.beat()
    assert stage.leash.renewals == []

    async def take_long(*_: Any) -> None:
        clock.advance(4)

    stage.link.before("beat", take_long)
    await stage.agent.leash.beat()

    assert stage.leash.renewals == [pytest.approx(LEASE * TRUSTED_SHARE - 4)]


async def test_nothing_is_claimed_under_a_lease_that_is_over(stage: Stage, clock: FakeClock):
    """The keeper would refuse to start it, and a run that is lost so often in a blink fails."""
    runs = await stage.order()
    clock.advance(LEASE * TRUSTED_SHARE)

    assert await stage.agent.claim() == 0
    assert await stage.states(runs) == [State.QUEUED]

    stage.agent.workload.slot_freed.clear()
    await stage.agent.leash.beat()

    assert stage.agent.workload.slot_freed.is_set()
    assert await stage.agent.claim() == 1


@pytest.mark.parametrize(("slow", "attempt"), [("disown", 1), ("claim", 2)])
async def test_what_a_slow_answer_brings_after_the_lease_is_over_is_not_started(
    stage: Stage, clock: FakeClock, slow: str, attempt: int
):
    """The keeper would refuse it: it is not even claimed, or goes back at once."""
    runs = await stage.order()
    stage.agent.leash.in_doubt = True

    async def take_long(*_: Any) -> None:
        clock.advance(LEASE * TRUSTED_SHARE)

    stage.link.before(slow, take_long)
    assert await stage.agent.claim() == 0
    assert stage.hands.works == {}
    await stage.agent.delivery.report()
    assert await stage.states(runs) == [State.QUEUED]

    await stage.agent.leash.beat()
    stage.agent.workload.wake()
    assert await stage.agent.claim() == 1
    assert stage.hands.works[runs[0]].assignment.attempt == attempt


async def test_what_was_claimed_before_a_standstill_is_not_started_after_it(stage: Stage, clock: FakeClock):
    """The service had not given the agent up, and a beat renewed the lease before the answer to the claim was read: who
    cancelled the run meanwhile does not see it begin."""
    runs = await stage.order()

    async def stand_still(*_: Any) -> None:
        clock.advance(LEASE * TRUSTED_SHARE)
        await stage.jobs.cancel(runs[0])
        await stage.agent.leash.beat()

    stage.link.after("claim", stand_still)
    assert await stage.agent.claim() == 0
    assert stage.hands.works == {}
    await stage.agent.delivery.report()
    assert await stage.states(runs) == [State.CANCELLED]


async def test_a_slow_hello_does_not_lengthen_the_leash(stage: Stage, clock: FakeClock):
    async def take_long(*_: Any) -> None:
        clock.advance(10)

    stage.leash.renewals.clear()
    stage.link.before("hello", take_long)
    await stage.agent.join()

    assert stage.leash.renewals == [pytest.approx(LEASE * TRUSTED_SHARE - 10)]


async def test_a_beat_brings_orders_to_cancel(stage: Stage):
    first, second = await stage.order(2)
    await stage.agent.claim()
    await stage.jobs.cancel(first)

    await stage.agent.leash.beat()
    await stage.agent.delivery.report()

    assert stage.hands.stops == [(first, Reason.REQUESTED)]
    assert await stage.states([first, second]) == [State.CANCELLED, State.RUNNING]


async def test_an_order_for_an_older_attempt_stops_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    (run,) = await stage.order(1)
    await stage.agent.claim()

    async def stale(*_: Any) -> Beat:
        return Beat([(run, 99), (4711, 1)])

    monkeypatch.setattr(stage.link.store, "beat", stale)
    await stage.agent.leash.beat()

    assert stage.hands.stops == []


async def test_a_run_that_is_given_again_starts_only_when_our_own_copy_of_it_is_gone(
    stage: Stage, execution: Execution, queue: Told
):
    (run,) = await stage.order(1)
    stage.hands.obeys = False
    await stage.agent.claim()
    await execution.take_back("n1", {run: 1})  # somebody gave us up unjustly, and we have not heard of it
    stage.agent.workload.wake()

    assert await stage.agent.claim() == 1

    assert [work.assignment.fence for work in stage.hands.works.values()] == [1]
    assert stage.hands.stops == [(run, Reason.LOST)]
    assert stage.agent.capacity("python") == 1
    stage.hands.end(run, State.FAILED, Reason.ERROR)
    assert [work.assignment.fence for work in stage.hands.works.values()] == [2]
    assert stage.agent.capacity("python") == 2
    await stage.agent.delivery.report()
    assert await stage.states([run]) == [State.RUNNING]
    stage.hands.end(run)
    await stage.agent.delivery.report()
    assert await stage.states([run]) == [State.SUCCEEDED]
    assert stage.agent.capacity("python") == 3


async def test_a_copy_that_is_stopped_at_once_makes_room_for_the_run_that_is_given_again(
    stage: Stage, execution: Execution
):
    (run,) = await stage.order(1)
    await stage.agent.claim()
    await execution.take_back("n1", {run: 1})
    stage.agent.workload.wake()

    assert await stage.agent.claim() == 1

    assert [work.assignment.fence for work in stage.hands.works.values()] == [2]
    assert stage.agent.capacity("python") == 2


async def test_a_run_that_waits_for_our_own_copy_is_handed_back_when_the_agent_drains(
    stage: Stage, execution: Execution
):
    (run,) = await stage.order(1)
    stage.hands.obeys = False
    await stage.agent.claim()
    await execution.take_back("n1", {run: 1})
    stage.agent.workload.wake()
    await stage.agent.claim()

    await stage.agent.drain(0)

    assert stage.hands.works == {}
    assert await stage.states([run]) == [State.QUEUED]


async def test_a_run_that_waits_for_our_own_copy_is_handed_back_when_the_lease_is_over(
    stage: Stage, execution: Execution, clock: FakeClock
):
    (run,) = await stage.order(1)
    stage.hands.obeys = False
    await stage.agent.claim()
    await execution.take_back("n1", {run: 1})
    stage.agent.workload.wake()
    await stage.agent.claim()

    clock.advance(LEASE * TRUSTED_SHARE)
    stage.hands.end(run, State.FAILED, Reason.LOST)  # the keeper killed it
    await stage.agent.delivery.report()

    assert stage.hands.works == {}
    assert await stage.states([run]) == [State.QUEUED]


async def test_what_is_held_under_an_earlier_fence_is_stopped_when_the_books_are_compared(
    stage: Stage, execution: Execution, probe: Probe
):
    (run,) = await stage.order(1)
    stage.hands.obeys = False
    await stage.agent.claim()
    await execution.take_back("n1", {run: 1})
    await claim(probe, "n1", "python", [], 1)  # under fence 2, and its answer was lost

    for _ in range(2):
        await stage.agent.leash.beat()
    stage.agent.workload.wake()
    await stage.agent.claim()

    assert stage.hands.stops == [(run, Reason.LOST)]
    found = await stage.jobs.get_run(run)
    assert (found.state, found.fence) == (State.RUNNING, 3)  # given back, and claimed again: it waits for the copy
    stage.hands.end(run, State.FAILED, Reason.ERROR)
    assert [work.assignment.fence for work in stage.hands.works.values()] == [3]


async def test_a_cordoned_agent_finishes_what_it_has_and_takes_nothing_new_until_it_is_wanted_again(
    stage: Stage, probe: Probe
):
    await stage.order(2)
    assert await stage.agent.claim() == 2
    await probe.want_node("n1", "cordoned")
    await stage.agent.leash.beat()
    await stage.order(1)
    stage.agent.workload.wake()

    assert await stage.agent.claim() == 0
    assert stage.hands.stops == []

    await probe.want_node("n1", "live")
    await stage.agent.leash.beat()
    assert await stage.agent.claim() == 1


async def test_an_agent_that_was_given_up_kills_everything_before_it_comes_back(stage: Stage, probe: Probe):
    (run,) = await stage.order(1)
    await stage.agent.claim()
    stage.hands.obeys = False
    await probe.retire_node("n1", "gone")
    greeted = stage.link.calls["hello"]

    beating = asyncio.create_task(stage.agent.leash.beat())
    async with asyncio.timeout(30):
        await stage.hands.stopped.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert stage.link.calls["hello"] == greeted  # its work still lives
    stage.agent.workload.wake()
    assert await stage.agent.claim() == 0  # and nothing new begins
    stage.hands.end(run, State.FAILED, Reason.EXIT)
    await beating

    assert stage.hands.stops == [(run, Reason.LOST)]
    assert stage.link.calls["hello"] == greeted + 1
    await stage.agent.delivery.report()
    found = await stage.jobs.get_run(run)
    assert (found.state, found.lost) == (State.QUEUED, 1)  # not its own failure
    assert await stage.agent.claim() == 1
    assert len(stage.leash.renewals) == 2


@pytest.mark.parametrize("lost", ["register_node", "load_running"])
async def test_an_agent_whose_return_broke_off_comes_back_with_its_next_beat(stage: Stage, probe: Probe, lost: str):
    """It does not go on as if it had joined, nor under the session that its own registration has ended."""
    await probe.retire_node("n1", "gone")
    probe.lose_answer(lost)
    with pytest.raises(Unavailable):
        await stage.agent.leash.beat()

    await stage.agent.leash.beat()

    (run,) = await stage.order(1)
    stage.agent.workload.wake()
    assert await stage.agent.claim() == 1
    stage.hands.end(run)


async def test_a_claim_of_an_earlier_life_is_not_started(stage: Stage, probe: Probe):
    """It was answered after the service had taken everything back: somebody else may run it by now."""
    (run,) = await stage.order(1)
    answered, go_on = asyncio.Event(), asyncio.Event()

    async def hold(*_: Any) -> None:
        answered.set()
        await go_on.wait()

    stage.link.after("claim", hold)
    claiming = asyncio.create_task(stage.agent.claim())
    await answered.wait()
    await probe.retire_node("n1", "gone")
    await stage.agent.leash.beat()
    go_on.set()

    assert await claiming == 0
    assert stage.hands.works == {}
    await stage.agent.delivery.report()
    assert (await stage.jobs.get_run(run)).state is State.QUEUED


async def test_without_its_keeper_an_agent_ends(stage: Stage):
    stage.leash.is_alive = False

    with pytest.raises(Error):
        await stage.agent.leash.beat()
    with pytest.raises(Error):
        await stage.agent.delivery.report()


# ── leaving ──


async def test_a_drain_waits_for_what_runs(stage: Stage):
    runs = await stage.order(2)
    await stage.agent.claim()
    draining = asyncio.create_task(stage.agent.drain(60))
    await asyncio.sleep(0)
    for run in runs:
        stage.hands.end(run)
    await draining

    assert stage.hands.stops == []
    assert await stage.states(runs) == [State.SUCCEEDED] * 2
    assert not stage.hands.is_open


async def test_a_drain_that_takes_too_long_hands_back_what_is_left(stage: Stage):
    runs = await stage.order(2)
    await stage.agent.claim()

    await stage.agent.drain(0)

    assert {run for run, _ in stage.hands.stops} == set(runs)
    for run in runs:
        found = await stage.jobs.get_run(run)
        assert (found.state, found.lost) == (State.QUEUED, 1)
    assert await stage.agent.claim() == 0


async def test_what_was_cancelled_or_timed_out_stays_so_in_a_drain(stage: Stage):
    cancelled, late = await stage.order(2)
    await stage.agent.claim()
    stage.hands.obeys = False
    await stage.jobs.cancel(cancelled)
    await stage.agent.leash.beat()

    async def end(*_: Any) -> None:
        stage.hands.end(cancelled, State.CANCELLED, Reason.REQUESTED)
        stage.hands.end(late, State.TIMED_OUT, Reason.TIMEOUT)

    stage.hands.close = end  # type: ignore[method-assign]
    await stage.agent.drain(0)

    assert await stage.states([cancelled, late]) == [State.CANCELLED, State.TIMED_OUT]


async def test_a_claim_that_is_answered_during_a_drain_is_handed_back(stage: Stage):
    (run,) = await stage.order(1)

    async def drain(*_: Any) -> None:
        stage.agent.draining = True

    stage.link.after("claim", drain)
    assert await stage.agent.claim() == 0
    await stage.agent.delivery.report()

    assert stage.hands.works == {}
    assert await stage.states([run]) == [State.QUEUED]


async def test_a_drain_without_a_service_leaves_the_rest_to_the_next_start(stage: Stage):
    (run,) = await stage.order(1)
    await stage.agent.claim()
    stage.link.lose_call("finish")

    await stage.agent.drain(0)

    assert await stage.states([run]) == [State.RUNNING]


async def test_a_drain_without_a_service_does_not_spin(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    first, _ = await stage.order(2)
    await stage.agent.claim()
    stage.hands.end(first)
    calls = 0

    async def away(_: Any) -> None:
        nonlocal calls
        calls += 1
        raise Unavailable("gone")

    monkeypatch.setattr(stage.link.store, "finish", away)
    await stage.agent.drain(0.02)

    assert calls == 1


async def test_leaving_closes_the_keeper_before_it_says_goodbye(stage: Stage, probe: Probe):
    async def look(*_: Any) -> None:
        assert not stage.leash.is_alive

    stage.link.before("goodbye", look)
    await stage.agent.leave()

    assert [n.state for n in await probe.list_nodes()] == ["gone"]


async def test_after_a_failover_an_agent_stops_what_the_books_do_not_give_it(stage: Stage, probe: Probe):
    """One claim was lost, one finish was lost; with no slot free, too."""
    kept, lost, _ = await stage.order(3)
    await stage.agent.claim()
    assert not stage.agent.is_hungry
    await probe.store.write(f"UPDATE live SET state = 0, node = NULL, fence = 0 WHERE id = {lost}")
    finished = (await stage.order(1))[0]
    taken = f"state = 1, node = '{stage.agent.node.name}', fence = 1, started_at = due_at"
    await probe.store.write(f"UPDATE live SET {taken} WHERE id = {finished}")

    async def doubt(answers: list[Beat]) -> None:
        object.__setattr__(answers[0], "in_doubt", True)

    probe.after("beat_all", doubt)
    await stage.agent.leash.beat()
    assert stage.agent.is_hungry
    await stage.agent.claim()

    assert stage.hands.stops == [(lost, Reason.LOST)]
    assert kept in stage.hands.works
    await stage.agent.delivery.report()
    assert (await stage.states([kept, lost, finished]))[0] is State.RUNNING
    assert (await probe.get_run(finished)).lost == 1


# ── phases ──


@pytest.fixture
async def project(stage: Stage, execution: Execution, probe: Probe, queue: Told, clock: FakeClock, tmp_path: Path):
    """A run of a kind that prepares before it runs, claimed by an agent of its own."""
    hands, link = Hands(clock, "git_java"), Probe(LocalLink(execution, probe, queue))  # type: ignore[arg-type]
    agent = Agent(
        node("n2", kinds=("git_java",)), link, {"git_java": hands}, open_files(tmp_path / "o2"), stage.leash, clock,
        lease_seconds=LEASE, output_limit=1000,
    )  # fmt: skip
    await agent.join()
    given = {"kind": "git_java", "source": {"url": "https://git.example/a"}, "build_tool": "maven", "build_cmd": "mvn"}
    (job,) = (await stage.jobs.submit([specs.parse_job({"name": "project", **given})])).jobs
    run = await stage.jobs.run_now(job.id)
    await agent.claim()
    return Stage(agent, hands, stage.leash, link, stage.jobs), run.id


async def test_a_phase_that_changed_is_told_once(project: tuple[Stage, int]):
    stage, run = project
    stage.hands.works[run].note_phase(Phase.RUNNING)

    assert stage.agent.delivery.phases_changed.is_set()
    await stage.agent.delivery.send_phases()
    await stage.agent.delivery.send_phases()

    assert stage.link.calls["note_phases"] == 1
    assert (await stage.jobs.get_run(run)).phase is Phase.RUNNING


async def test_a_phase_that_could_not_be_told_is_told_again(project: tuple[Stage, int]):
    stage, run = project
    stage.hands.works[run].note_phase(Phase.RUNNING)
    stage.link.lose_call("note_phases")

    with pytest.raises(Unavailable):
        await stage.agent.delivery.send_phases()
    assert stage.agent.delivery.phases_changed.is_set()
    await stage.agent.delivery.send_phases()

    assert (await stage.jobs.get_run(run)).phase is Phase.RUNNING


async def test_nothing_is_told_of_a_run_that_has_ended(project: tuple[Stage, int]):
    stage, run = project
    work = stage.hands.works[run]
    work.note_phase(Phase.RUNNING)
    stage.hands.end(run)
    work.note_phase(Phase.RUNNING)

    await stage.agent.delivery.send_phases()

    assert stage.link.calls["note_phases"] == 0


async def test_work_that_prepares_though_its_kind_need_not_says_so_and_when_it_runs(stage: Stage):
    (run,) = await stage.order(1)
    await stage.agent.claim()

    for count, phase in enumerate((Phase.PREPARING, Phase.RUNNING), start=1):
        stage.hands.works[run].note_phase(phase)
        await stage.agent.delivery.send_phases()
        assert stage.link.calls["note_phases"] == count


async def test_work_that_runs_from_the_start_costs_no_word_about_it(stage: Stage):
    (run,) = await stage.order(1)
    await stage.agent.claim()

    stage.hands.works[run].note_phase(Phase.RUNNING)
    await stage.agent.delivery.send_phases()

    assert stage.link.calls["note_phases"] == 0
