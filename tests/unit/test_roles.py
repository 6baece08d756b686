"""The loops: when they look, when they sleep, what they survive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from horae.app import roles
from horae.app.pace import Pace
from horae.app.roles import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    AgentRole,
    CoordinatorRole,
    OutsideRole,
    PushRole,
    RetentionRole,
    SchedulerRole,
    persist,
)
from horae.contracts import DIALECTS
from horae.contracts.rpc.workers import RpcDialect
from horae.core.model import SECOND, State
from horae.core.runs.orders import Result
from horae.core.time import moments
from horae.errors import Error, Unavailable
from horae.files import open_files
from horae.links.outside import HttpWorkers
from horae.ports.work import Done, Work
from horae.queues.local import LocalQueue, LocalWatch
from horae.service.agent.agent import Agent
from horae.service.agent.workload import Workload
from horae.service.cluster.coordination import Cluster
from horae.service.execution import Execution, LocalLink
from horae.service.external.dispatching import Dispatching
from horae.service.external.loans import Lending
from horae.service.external.members import ExternalMembers
from horae.service.external.pushing import Pushing
from horae.service.firing import Firing
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.service.policy.barring import Barring
from horae.service.retention import Retention
from horae.stores.sqlite import SqliteStore
from horae.testing import START, FakeClock

from .service.parts import ALL_SEGMENTS, Probe, Told, draft, ledger, node, only, submitted

DEADLINE = 180  # seconds until something that must happen counts as not happening


class Hours(Told):
    """A queue in which waiting passes the time of a clock instead of our own."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.waits: list[tuple[str, float]] = []

    def watch(self, topic: str) -> LocalWatch:
        return TimedWatch(self, topic, super().watch(topic))


class TimedWatch(LocalWatch):
    def __init__(self, hours: Hours, topic: str, real: LocalWatch) -> None:
        super().__init__()
        self._hours, self._topic, self._real = hours, topic, real

    @property
    def is_due(self) -> bool:
        return self._real.is_due

    async def wait(self, seconds: float) -> bool:
        self._hours.waits.append((self._topic, seconds))
        if await self._real.wait(0):
            return True
        self._hours.clock.advance(seconds)
        return False


class NoSleep(FakeClock):
    """Sleeping passes the time at once."""

    def __init__(self) -> None:
        super().__init__()
        self.naps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> NoSleep:
    return NoSleep()


@pytest.fixture
def queue(clock: FakeClock) -> Hours:
    return Hours(clock)


@pytest.fixture
def probe(sqlite_store: SqliteStore) -> Probe:
    return Probe(sqlite_store)


@pytest.fixture
def jobs(probe: Probe, queue: Hours) -> Jobs:
    return Jobs(probe, queue)


@pytest.fixture
def cluster(probe: Probe, queue: Hours, clock: FakeClock) -> Cluster:
    execution = Execution(probe, queue, clock, Metrics())
    return Cluster(probe, queue, clock, execution, node="n1", lease_seconds=15, dead_after=40, is_exclusive=False)


@pytest.fixture
def firing(probe: Probe, queue: Hours, clock: FakeClock) -> Firing:
    return Firing(probe, queue, clock, Metrics())


@pytest.fixture
def role(firing: Firing, cluster: Cluster, queue: Hours, clock: FakeClock) -> SchedulerRole:
    return SchedulerRole(firing, cluster, queue, clock, scan_interval=60)


async def give_segments(cluster: Cluster, probe: Probe) -> None:
    await probe.register_node(node("n1", roles=("scheduler",)))
    assert await cluster.campaign()
    await cluster.lead()


# ── persist ──


async def test_a_step_is_repeated_with_growing_pauses_while_the_store_is_away(clock: NoSleep):
    fate = [*[Unavailable("gone")] * 8, None, Unavailable("gone"), Error("broken")]

    async def step() -> None:
        if (error := fate.pop(0)) is not None:
            raise error

    with pytest.raises(Error, match="broken"):
        await persist("test", step, clock)

    assert clock.naps[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert clock.naps[7] == LONGEST_PAUSE
    assert clock.naps[8] == FIRST_PAUSE  # a step that came through starts anew


# ── the scheduler ──


async def test_a_scheduler_without_segments_sleeps_and_takes_up_what_it_is_given(
    role: SchedulerRole, cluster: Cluster, probe: Probe, jobs: Jobs, queue: Hours
):
    job = await submitted(jobs, schedule="30s")
    for _ in range(3):
        await role.step()
    assert all(seconds > 0 for _, seconds in queue.waits)

    await give_segments(cluster, probe)
    for _ in range(30):
        await role.step()

    assert [run.due_at for run in await ledger(probe, job.id)][:1] == [START + 30 * SECOND]


async def test_a_scheduler_wakes_at_the_exact_moment(role: SchedulerRole, cluster: Cluster, probe: Probe, jobs: Jobs):
    await give_segments(cluster, probe)
    job = await submitted(jobs, schedule="7s", overlap="allow")

    for _ in range(60):
        await role.step()

    runs = await ledger(probe, job.id)
    assert len(runs) > 5
    assert [run.due_at for run in runs] == [START + i * 7 * SECOND for i in range(1, len(runs) + 1)]
    assert all(run.created_at == run.due_at for run in runs)


async def test_punctual_moments_stay_punctual_while_the_past_is_caught_up(
    role: SchedulerRole, cluster: Cluster, probe: Probe, jobs: Jobs, clock: NoSleep, firing: Firing,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    """On a store that writes two thousand records a second."""
    await give_segments(cluster, probe)
    past = [await submitted(jobs, f"past {number}", schedule="1s") for number in range(3)]
    clock.advance(3000)
    punctual = await submitted(jobs, schedule="500ms", overlap="allow")
    began, fire = clock.now(), probe.store.fire

    async def slowly(fires: Any, *rest: Any) -> Any:
        fired = await fire(fires, *rest)
        clock.advance(sum(len(each.passed) + each.born for each in fires) / 2000)
        return fired

    monkeypatch.setattr(probe.store, "fire", slowly)
    await role.step()
    while firing.is_behind:
        await role.step()

    assert clock.now() - began < 8 * SECOND  # 4.5 of them are writing
    runs = await ledger(probe, punctual.id)
    assert len(runs) > 8
    assert [run.due_at - began for run in runs] == [n * SECOND // 2 for n in range(1, len(runs) + 1)]
    assert {run.state for run in runs} == {State.QUEUED}
    assert max(run.created_at - run.due_at for run in runs) < SECOND // 20
    for job in past:
        moments = [run.due_at for run in await ledger(probe, job.id)]
        assert moments == [START + n * SECOND for n in range(1, len(moments) + 1)]


async def test_a_hint_is_heeded_at_once(
    role: SchedulerRole, cluster: Cluster, probe: Probe, jobs: Jobs, clock: NoSleep
):
    await give_segments(cluster, probe)
    await role.step()
    await role.step()
    job = await submitted(jobs, run_once=True)
    now = clock.now()

    await role.step()  # sleeps, is told
    await role.step()

    (run,) = await ledger(probe, job.id)
    assert run.created_at - now < SECOND


async def test_a_scheduler_that_is_always_late_still_hears_hints(
    role: SchedulerRole, cluster: Cluster, probe: Probe, jobs: Jobs, firing: Firing, clock: NoSleep,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    await give_segments(cluster, probe)
    tick = firing.tick

    async def busy() -> int:
        await tick()
        return clock.now() - SECOND

    monkeypatch.setattr(firing, "tick", busy)
    await role.step()
    await role.step()
    job = await submitted(jobs, run_once=True)

    for _ in range(4):
        await role.step()

    assert len(await ledger(probe, job.id)) == 1


async def test_a_hint_survives_a_store_that_is_away(role: SchedulerRole, cluster: Cluster, probe: Probe, jobs: Jobs):
    await give_segments(cluster, probe)
    for _ in range(3):
        await role.step()
    job = await submitted(jobs, run_once=True)
    await role.step()  # hears of it
    probe.lose_call("load_due")
    with pytest.raises(Unavailable):
        await role.step()

    await role.step()

    assert len(await ledger(probe, job.id)) == 1


@pytest.mark.parametrize("busy", [0, 500])
@pytest.mark.parametrize("ahead", [0, 5])
async def test_a_lost_hint_costs_a_few_seconds_at_most(
    role: SchedulerRole, cluster: Cluster, probe: Probe, clock: NoSleep, busy: int, ahead: int
):
    """Whether the look-ahead is empty or full, and the moment now or within what was read already."""
    elsewhere = Jobs(probe.store, Told())  # another process: its announcements are not heard here
    if busy:
        await elsewhere.submit([draft(f"job {i}", schedule="10s") for i in range(busy)])
    await give_segments(cluster, probe)
    while clock.now() < START + 20 * SECOND:
        await role.step()
    due_at = clock.now() + ahead * SECOND
    schedule = {"at": moments.format_moment(due_at)} if ahead else None
    (job,) = (await elsewhere.submit([draft(schedule=schedule) if ahead else draft(run_once=True)])).jobs

    while not (runs := await ledger(probe, job.id)):
        assert clock.now() < due_at + 60 * SECOND
        await role.step()

    assert runs[0].created_at <= due_at + 3 * SECOND


async def test_a_moment_that_was_moved_forward_elsewhere_fires_soon_although_nobody_said_so(
    role: SchedulerRole, cluster: Cluster, probe: Probe, clock: NoSleep
):
    elsewhere = Jobs(probe.store, Told())
    (job,) = (await elsewhere.submit([draft(schedule="1h")])).jobs
    await give_segments(cluster, probe)
    while clock.now() < START + 20 * SECOND:
        await role.step()
    due_at = clock.now() + SECOND
    await elsewhere.triggers.patch(job.triggers[0].id, next_at=due_at)

    while not (runs := await ledger(probe, job.id)):
        assert clock.now() < due_at + 60 * SECOND
        await role.step()

    assert runs[0].due_at == due_at
    assert runs[0].created_at <= due_at + 3 * SECOND


async def test_segments_that_were_given_elsewhere_are_noticed_within_seconds(
    role: SchedulerRole, probe: Probe, jobs: Jobs, clock: NoSleep, queue: Hours
):
    """The leader may live in another process: nobody tells this one."""
    for _ in range(3):
        await role.step()
    job = await submitted(jobs, schedule="20s")
    await role.step()
    await role.step()
    lease = await probe.take_lease("leader", "boss", None)
    await probe.assign_segments(dict.fromkeys(ALL_SEGMENTS, "n1"), lease)

    while clock.now() < START + 28 * SECOND:
        await role.step()

    assert len(await ledger(probe, job.id)) == 1


async def test_a_flood_of_hints_is_slowed_down(role: SchedulerRole, cluster: Cluster, probe: Probe, queue: Hours):
    await give_segments(cluster, probe)
    for _ in range(50):
        queue.announce("due")
        await role.step()

    assert probe.calls["load_due"] <= 60
    assert queue.clock.now() >= START + 49 * 20_000  # twenty milliseconds each, at least


# ── the coordinator ──


async def test_a_leader_renews_at_its_interval_and_sweeps_in_between(
    cluster: Cluster, probe: Probe, queue: Hours, clock: NoSleep
):
    role = CoordinatorRole(cluster, queue, clock, interval=5, look=1)
    for _ in range(4):
        await role.campaign()

    assert clock.naps == [5] * 4
    assert probe.calls["take_lease"] == 1
    assert probe.calls["renew_lease"] == 3
    for _ in range(5):
        await role.step()
    assert probe.calls["sweep"] == 5


async def test_only_a_leader_ends_what_waits_of_owners_that_may_not_run_it(
    cluster: Cluster, probe: Probe, queue: Hours, clock: NoSleep
):
    role = CoordinatorRole(cluster, queue, clock, interval=5, look=1, barring=Barring(probe, queue, clock))
    await role.tidy()
    assert probe.calls["list_short_owners"] == 0
    await role.campaign()
    for _ in range(6):  # a second each
        await role.tidy()
    assert probe.calls["list_short_owners"] == 2


class Still(FakeClock):
    """Time stands: only what may happen at once, however often, does."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


async def stuck_at(probe: Probe, name: str, role: CoordinatorRole, meanwhile: str) -> None:
    """Run a coordinator with one call that does not come back, until it has made ten others."""
    is_stuck = asyncio.Event()

    async def hang(*_: Any) -> None:
        is_stuck.set()
        await asyncio.Event().wait()

    probe.before(name, hang)
    running = asyncio.create_task(role.run())
    async with asyncio.timeout(DEADLINE):
        await is_stuck.wait()
        before = probe.calls[meanwhile]
        while probe.calls[meanwhile] < before + 10:
            assert not running.done()
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("stuck", ["list_nodes", "sweep", "fail_unrunnable", "load_overdue_loans"])
async def test_a_leader_renews_its_lease_whatever_else_takes_long(cluster: Cluster, probe: Probe, stuck: str):
    """Whoever leads and is held up by one slow statement must not lose the lead by it."""
    await probe.register_node(node("n1"))
    await cluster.campaign()

    await stuck_at(probe, stuck, CoordinatorRole(cluster, Told(), Still(), interval=5, look=1), "renew_lease")

    assert cluster.is_leader


@pytest.mark.parametrize("stuck", ["fail_unrunnable", "load_overdue_loans"])
async def test_a_leader_sweeps_while_upkeep_takes_long(cluster: Cluster, probe: Probe, stuck: str):
    await probe.register_node(node("n1"))
    await cluster.campaign()

    await stuck_at(probe, stuck, CoordinatorRole(cluster, Told(), Still(), interval=5, look=0), "sweep")


async def test_a_retry_is_released_at_its_moment(
    cluster: Cluster, probe: Probe, jobs: Jobs, queue: Hours, clock: NoSleep
):
    role = CoordinatorRole(cluster, queue, clock, interval=5, look=1)
    await role.campaign()
    await role.step()
    job = await submitted(jobs, retry={"attempts": 2, "backoff": "300ms", "jitter": 0})
    run = await jobs.run_now(job.id)
    execution = Execution(probe, queue, clock, Metrics())
    (assignment,) = await execution.claim(node("n1"), {"python": 1})
    await execution.finish([Result(run.id, assignment.fence, State.FAILED, finished_at=clock.now())])
    failed_at = clock.now()

    while (await jobs.get_run(run.id)).state is State.BLOCKED:
        assert clock.now() <= failed_at + 300_000
        await role.step()

    assert clock.now() == failed_at + 300_000


async def test_a_coordinator_that_does_not_lead_watches_and_touches_nothing(
    probe: Probe, cluster: Cluster, queue: Hours, clock: NoSleep
):
    await probe.take_lease("leader", "other", None)
    role = CoordinatorRole(cluster, queue, clock, interval=5, look=1)

    for _ in range(6):  # two seconds each
        await role.campaign()
        await role.step()

    assert probe.calls["take_lease"] == 1  # the one above
    assert probe.calls["sweep"] == probe.calls["load_segment_holders"] == 0
    assert probe.calls["list_nodes"] == 6  # it watches, to know who was silent should it lead


async def test_a_leader_looks_at_once_when_it_is_told_that_somebody_came(
    probe: Probe, cluster: Cluster, queue: Hours, clock: NoSleep
):
    role = CoordinatorRole(cluster, queue, clock, interval=60, look=60)
    await role.campaign()
    await role.step()
    await role.step()
    assert probe.calls["list_nodes"] == 1

    queue.announce("nodes")
    await role.step()
    await role.step()
    assert probe.calls["list_nodes"] == 2


# ── workers outside Horae ──


@pytest.fixture
def members(probe: Probe, queue: Hours) -> ExternalMembers:
    return ExternalMembers(probe, queue, node="n1")


@pytest.fixture
def outside(
    probe: Probe, cluster: Cluster, queue: Hours, clock: NoSleep, jobs: Jobs, members: ExternalMembers
) -> tuple[OutsideRole, PushRole]:
    lending = Lending(probe, jobs, Execution(probe, queue, clock, Metrics()))
    dispatching = Dispatching(probe, clock, jobs, lending, members, HttpWorkers(()), DIALECTS, offer_seconds=60)
    pushing = Pushing(probe, clock, jobs, lending, members, dispatching, RpcDialect())
    return OutsideRole(cluster, dispatching, clock, look=1), PushRole(cluster, pushing, queue, clock)


async def test_a_leader_asks_the_store_about_outside_work_only_where_somebody_is_outside(
    probe: Probe, cluster: Cluster, outside: tuple[OutsideRole, PushRole], members: ExternalMembers
):
    async def round_of_all() -> set[str]:
        before = probe.calls.copy()
        keeping, push = outside
        for step in (keeping.step, push.push, push.tell_cancelled):
            await step()
        return set(probe.calls - before)

    await give_segments(cluster, probe)
    assert await round_of_all() == set()

    await members.join("agent", "w1", address="10.0.0.1:9000")
    assert await cluster.campaign()
    await cluster.lead()
    assert await round_of_all() >= {"load_kept", "list_nodes"}


# ── retention ──


async def test_only_the_leader_drops_what_is_old(probe: Probe, cluster: Cluster, clock: NoSleep, tmp_path: Path):
    role = RetentionRole(cluster, Retention(probe, open_files(tmp_path), history_days=0), clock)

    await role.step()
    assert probe.calls["purge_keys"] == 0
    await cluster.campaign()
    await role.step()
    assert probe.calls["purge_keys"] == 1


async def test_every_node_tidies_its_own_outputs_once_an_hour(
    probe: Probe, cluster: Cluster, clock: NoSleep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    files = open_files(tmp_path)
    look, looks = files.stored_ranges, []

    async def counted() -> tuple[list[int], int]:
        looks.append(clock.elapsed())
        return await look()

    monkeypatch.setattr(files, "stored_ranges", counted)
    role = RetentionRole(cluster, Retention(probe, files, history_days=1), clock)

    for _ in range(125):  # a minute each
        await role.step()

    assert not cluster.is_leader
    assert len(looks) == 3


# ── the agent ──


class Crowded:
    """An agent that gets a thousand runs with each claim, in a fifth of a second, and has no room for as many more."""

    is_hungry, draining = True, False

    def __init__(self, clock: FakeClock) -> None:
        self.workload = Workload({"python": Quick()}, Loyal())
        self.claims = 0
        self._clock = clock

    async def claim(self) -> int:
        self.claims += 1
        self._clock.advance(0.2)
        self.workload.free["python"] = 0
        return 1000


async def test_where_thousands_start_a_second_a_claim_waits_until_a_large_one_fits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(roles, "ROOM", DEADLINE)
    agent = Crowded(clock := FakeClock())
    role: Any = AgentRole(agent, None, clock, interval=1)  # type: ignore[arg-type]
    step = asyncio.create_task(role._claim())
    for _ in range(9):
        await asyncio.sleep(0)
    assert not step.done()

    agent.workload.free["python"] = 1  # half of the slots
    agent.workload.slot_freed.set()
    await asyncio.wait_for(step, DEADLINE)
    assert agent.claims == 1


async def test_a_claim_does_not_wait_for_room_that_does_not_come(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(roles, "ROOM", 0.001)
    agent = Crowded(clock := FakeClock())
    role: Any = AgentRole(agent, None, clock, interval=1)  # type: ignore[arg-type]

    await asyncio.wait_for(role._claim(), DEADLINE)

    assert agent.claims == 1


class Quick:
    """An executor that does everything at once, unless told to hold."""

    kind, slots = "python", 2

    def __init__(self) -> None:
        self.hold = False
        self.held: list[tuple[Work, Done]] = []
        self.begun = asyncio.Event()

    async def open(self) -> None: ...

    def start(self, works: Sequence[Work], done: Done) -> None:
        for work in works:
            self.held.append((work, done))
            self.begun.set()
            if not self.hold:
                self.stop(work.assignment.run_id, "")

    def stop(self, run_id: int, reason: str) -> None:
        for work, done in [each for each in self.held if each[0].assignment.run_id == run_id]:
            self.held.remove((work, done))
            state = State.CANCELLED if reason else State.SUCCEEDED
            done(Result(run_id, work.assignment.fence, state, reason, finished_at=START))

    async def close(self) -> None:
        for work, _ in list(self.held):
            self.stop(work.assignment.run_id, "closed")


class Loyal:
    is_alive = True
    keeps = False
    kept: tuple[Any, ...] = ()

    async def open(self) -> None: ...

    def renew(self, seconds: float) -> None: ...

    async def spawn(self, command: Any) -> Any: ...

    async def close(self) -> None: ...


@pytest.fixture
async def working(probe: Probe, tmp_path: Path) -> Any:
    """An agent whose role runs in the background, with a queue of real time."""
    real = Told()
    time = FakeClock()
    link = LocalLink(Execution(probe, real, time, Metrics()), probe, real)
    hands = Quick()
    agent = Agent(
        node("n1"), link, {"python": hands}, open_files(tmp_path / "out"), Loyal(), time, lease_seconds=30,
        output_limit=100,
    )  # fmt: skip
    await agent.join()
    task = asyncio.create_task(AgentRole(agent, link, time, interval=0.01).run())
    yield hands, Jobs(probe, real), time
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with asyncio.timeout(DEADLINE):  # a batch that is under way is written to its end
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.001)


async def until(condition: Any) -> None:
    async with asyncio.timeout(DEADLINE):
        while not await condition():
            await asyncio.sleep(0.001)


async def test_what_is_announced_is_claimed_done_and_reported(working: Any, probe: Probe):
    _, jobs, _ = working
    job = await submitted(jobs, overlap="allow")

    runs = [await jobs.run_now(job.id) for _ in range(9)]

    async def all_done() -> bool:
        return all([(await probe.get_run(run.id)).state is State.SUCCEEDED for run in runs])

    await until(all_done)


async def test_a_cancel_reaches_the_work(working: Any, probe: Probe):
    hands, jobs, _ = working
    hands.hold = True
    run = await jobs.run_now((await submitted(jobs)).id)
    async with asyncio.timeout(DEADLINE):
        await hands.begun.wait()

    await jobs.cancel(run.id)

    async def cancelled() -> bool:
        return (await probe.get_run(run.id)).state is State.CANCELLED

    await until(cancelled)


async def test_progress_is_told_at_most_once_a_second(working: Any, probe: Probe):
    hands, jobs, clock = working
    hands.hold = True
    run = await jobs.run_now((await submitted(jobs)).id)
    async with asyncio.timeout(DEADLINE):
        await hands.begun.wait()
    [(work, _)] = hands.held

    async def told(rows: int) -> bool:
        return (await probe.get_run(run.id)).progress == {"rows": rows}

    work.note_progress({"rows": 1})
    await until(lambda: told(1))
    for rows in (2, 3):
        work.note_progress({"rows": rows})
        for _ in range(50):
            await asyncio.sleep(0)
    assert await told(1)

    clock.advance(1)
    await until(lambda: told(3))
    assert probe.calls["note_progress"] == 2


async def test_an_agent_works_on_after_the_store_was_away(working: Any, probe: Probe):
    _, jobs, clock = working
    for name in ("claim", "finish", "beat"):
        probe.lose_call(name)
    run = await jobs.run_now((await submitted(jobs)).id)

    async def done() -> bool:
        clock.advance(1)
        return (await probe.get_run(run.id)).state is State.SUCCEEDED

    await until(done)
    assert only(await submitted(jobs, schedule="1h")).next_at is not None


# ── the queue within a process ──


async def test_an_announcement_wakes_the_one_who_waits_and_only_once():
    queue = LocalQueue()
    runs, due, other = queue.watch("runs"), queue.watch("due"), queue.watch("runs")
    waiting = asyncio.create_task(runs.wait(DEADLINE))
    await asyncio.sleep(0)
    queue.announce("due")
    queue.announce("runs")

    assert await waiting
    assert not await runs.wait(0)
    assert await due.wait(0)
    assert await other.wait(0)  # every watch hears everything


async def test_announcements_before_the_wait_are_kept_and_merged():
    queue = LocalQueue()
    runs = queue.watch("runs")
    for _ in range(5):
        queue.announce("runs")

    assert await runs.wait(DEADLINE)
    assert not await runs.wait(0.001)


async def test_a_wait_that_is_given_up_takes_no_announcement_with_it():
    queue = LocalQueue()
    runs = queue.watch("runs")
    waiting = asyncio.create_task(runs.wait(DEADLINE))
    await asyncio.sleep(0)
    queue.announce("runs")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert await runs.wait(0)


def test_a_pause_between_batches_comes_only_when_many_come_at_once() -> None:
    clock = FakeClock()
    pace = Pace(clock)

    def after(seconds: float, count: int) -> float:
        clock.advance(seconds)
        return pace.after(count)

    assert after(1.0, 1000) == 0.0
    assert after(0.001, 10) == 0.0  # a handful in a moment is no crowd
    assert after(0.1, 300) == Pace.PAUSE
    assert after(0.11, 100) == 0.0
    assert after(0.02, 5) == 0.0
    assert after(0.005, 60) == 0.0  # what piled up while a batch was written is none either
    assert after(0.11, 100) == 0.0
