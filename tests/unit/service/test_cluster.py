"""Who leads, who lives, who owns what: judged by watching, never by comparing clocks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from structlog.testing import capture_logs

from horae.core.model import SECOND, Run, State
from horae.core.runs.orders import Result
from horae.errors import Unavailable
from horae.ports.store import Store
from horae.service.cluster.coordination import LEADER, Cluster, margin, patience
from horae.service.execution import Execution, LocalLink
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.testing import START, FakeClock

from ...claiming import claim
from .parts import BOTH, Probe, Told, node, submitted

TTL = 15.0
DEAD_AFTER = 40.0


class Host(FakeClock):
    """A machine's clocks: its wall clock may say anything, its elapsed time is true."""

    def __init__(self, wall: int = START) -> None:
        super().__init__()
        self._wall = wall

    def now(self) -> int:
        return self._wall

    def jump(self, seconds: float) -> None:
        self._wall += round(seconds * SECOND)


def member(store: Any, name: str, clock: FakeClock, queue: Told | None = None, **fields: Any) -> Cluster:
    queue = queue or Told()
    execution = Execution(store, queue, clock, Metrics())
    given = {"lease_seconds": TTL, "dead_after": DEAD_AFTER, "is_exclusive": False, **fields}
    return Cluster(store, queue, clock, execution, node=name, **given)


async def watch(cluster: Cluster, clock: FakeClock, seconds: float, step: float = 1.0) -> bool:
    """Campaign each second for a while; True as soon as it leads."""
    passed = 0.0
    while passed + step <= seconds:
        clock.advance(step)
        passed += step
        if await cluster.campaign():
            return True
    return False


# ── the lease ──


@BOTH
async def test_the_first_candidate_leads_at_once_and_stays_leader(probe: Probe, clock: FakeClock):
    one, two = member(probe, "a", clock), member(probe, "b", clock)

    assert await one.campaign()
    assert not await two.campaign()
    since = clock.now()
    for _ in range(30):
        clock.advance(5)
        assert await one.campaign()
        assert not await two.campaign()
    assert one.is_leader
    assert (one.led_since, two.led_since) == (since, None)


async def test_a_lease_is_taken_only_after_its_beat_was_seen_to_stand_still(probe: Probe, clock: FakeClock):
    await member(probe, "a", clock).campaign()
    heir = member(probe, "b", clock)
    assert not await heir.campaign()

    assert not await watch(heir, clock, patience(TTL))
    assert await watch(heir, clock, 1.5)
    lease = await probe.get_lease(LEADER)
    assert (lease.owner, lease.term) == ("b", 2)


async def test_every_renewal_starts_the_watch_anew(probe: Probe, clock: FakeClock):
    one, two = member(probe, "a", clock), member(probe, "b", clock)
    await one.campaign()
    for _ in range(6):
        assert not await watch(two, clock, TTL)
        await one.campaign()


@pytest.mark.parametrize("jump", [-86_400, 86_400])
async def test_jumps_of_wall_clocks_change_nothing(jump: int, probe: Probe):
    clock = Host()
    one, two = member(probe, "a", clock), member(probe, "b", clock)
    await one.campaign()
    await two.campaign()
    clock.jump(jump)

    assert one.is_leader
    assert not await two.campaign()
    assert not await watch(two, clock, patience(TTL))
    assert await watch(two, clock, 1.5)


async def test_the_old_leader_stops_trusting_itself_before_anybody_else_may_lead(probe: Probe, clock: FakeClock):
    one, two = member(probe, "a", clock), member(probe, "b", clock)
    await one.campaign()
    led = []
    for _ in range(60):
        clock.advance(0.5)
        led.append((one.is_leader, await two.campaign()))

    assert (True, True) not in led
    assert (False, False) in led
    assert led[-1] == (False, True)


async def test_a_slow_renewal_does_not_extend_trust(probe: Probe, clock: FakeClock):
    one = member(probe, "a", clock)
    await one.campaign()

    async def take_long(*_: Any) -> None:
        clock.advance(10)

    probe.after("renew_lease", take_long)
    assert await one.campaign()
    clock.advance(TTL - margin(TTL) - 10 - 0.1)
    assert one.is_leader
    clock.advance(0.2)
    assert not one.is_leader


async def test_a_renewal_slower_than_the_lease_leaves_no_leader(probe: Probe, clock: FakeClock):
    one = member(probe, "a", clock)
    await one.campaign()

    async def take_for_ever(*_: Any) -> None:
        clock.advance(TTL)

    probe.after("renew_lease", take_for_ever)

    assert not await one.campaign()


async def test_a_leader_that_cannot_renew_leads_until_its_trust_is_over(probe: Probe, clock: FakeClock):
    one = member(probe, "a", clock)
    await one.campaign()
    clock.advance(5)
    probe.lose_call("renew_lease")
    with pytest.raises(Unavailable):
        await one.campaign()

    assert one.is_leader
    clock.advance(TTL - margin(TTL) - 5)
    assert not one.is_leader


async def test_a_leader_whose_term_is_over_notices_with_its_next_renewal(probe: Probe, clock: FakeClock):
    one, two = member(probe, "a", clock), member(probe, "b", clock)
    await one.campaign()
    await two.campaign()
    assert await watch(two, clock, 60)

    assert not await one.campaign()
    assert two.is_leader


async def test_resigning_hands_over_at_once(probe: Probe, clock: FakeClock):
    one, two = member(probe, "a", clock), member(probe, "b", clock)
    await one.campaign()
    await two.campaign()

    await one.resign()

    assert not one.is_leader
    assert await two.campaign()


async def test_a_node_takes_up_its_own_lease_from_an_earlier_life(probe: Probe, clock: FakeClock):
    await member(probe, "a", clock).campaign()

    assert await member(probe, "a", clock).campaign()
    assert (await probe.get_lease(LEADER)).term == 2


async def test_with_the_store_for_itself_a_node_waits_for_nobody(probe: Probe, clock: FakeClock):
    await member(probe, "a", clock).campaign()

    assert await member(probe, "b", clock, is_exclusive=True).campaign()


# ── nodes ──


async def running_on(probe: Probe, jobs: Jobs, name: str = "n1") -> Run:
    job = await submitted(jobs)
    run = await jobs.run_now(job.id)
    assert len(await claim(probe, name, "python", [], 1)) == 1
    return run


async def lead(cluster: Cluster, clock: FakeClock, seconds: float, step: float = 5.0) -> None:
    """Lead for a while, in rounds."""
    passed = 0.0
    while passed + step <= seconds:
        clock.advance(step)
        passed += step
        assert await cluster.campaign()
        await cluster.lead()


@BOTH
async def test_a_node_is_buried_only_after_its_silence_was_watched(probe: Probe, jobs: Jobs, clock: FakeClock):
    leader = member(probe, "boss", clock)
    await leader.campaign()
    await probe.register_node(node("n1"))
    run = await running_on(probe, jobs)
    clock.advance(3600)  # nobody watched all the while

    await lead(leader, clock, 5)
    await lead(leader, clock, DEAD_AFTER)
    assert (await jobs.get_run(run.id)).state is State.RUNNING
    await lead(leader, clock, 5)

    assert (await jobs.get_run(run.id)).state is State.QUEUED
    assert [n.state for n in await probe.list_nodes()] == ["gone"]
    assert await probe.beat("n1", 0) is None


@BOTH
async def test_many_dead_nodes_are_buried_together(probe: Probe, jobs: Jobs, clock: FakeClock):
    leader = member(probe, "boss", clock)
    await leader.campaign()
    for number in range(30):
        await probe.register_node(node(f"n{number}"))
    runs = [await running_on(probe, jobs, f"n{number}") for number in range(30)]
    await lead(leader, clock, DEAD_AFTER)
    probe.calls.clear()

    await lead(leader, clock, 10)

    assert {n.state for n in await probe.list_nodes()} == {"gone"}
    assert {(await jobs.get_run(run.id)).state for run in runs} == {State.QUEUED}
    assert (await jobs.get_run(runs[7].id)).lost == 1
    assert (probe.calls["bury_nodes"], probe.calls["load_held"], probe.calls["finish"]) == (1, 1, 1)


async def test_a_node_that_beats_lives(probe: Probe, jobs: Jobs, clock: FakeClock):
    leader = member(probe, "boss", clock)
    await leader.campaign()
    await probe.register_node(node("n1"))
    for _ in range(20):
        await lead(leader, clock, 10)
        await probe.beat("n1", 0)

    assert [n.state for n in await probe.list_nodes()] == ["live"]


async def test_a_leader_that_was_frozen_between_looking_and_judging_buries_nobody(
    probe: Probe, jobs: Jobs, clock: FakeClock
):
    """What it holds in hand is old: the node may have beaten all the while."""
    leader = member(probe, "boss", clock, lease_seconds=500.0)
    await leader.campaign()
    await probe.register_node(node("n1"))
    await leader.lead()

    async def freeze(*_: Any) -> None:
        clock.advance(DEAD_AFTER + 60)
        await probe.store.beat("n1", 0)

    probe.after("list_nodes", freeze)
    await leader.lead()

    assert [n.state for n in await probe.list_nodes()] == ["live"]


@BOTH
async def test_a_node_that_beats_again_while_the_leader_judges_is_not_buried(
    probe: Probe, jobs: Jobs, clock: FakeClock
):
    """Between the look and the burial it has come back and claimed."""
    leader = member(probe, "boss", clock)
    await leader.campaign()
    await probe.register_node(node("n1"))
    await lead(leader, clock, DEAD_AFTER + 5)
    claimed: list[Run] = []

    async def come_back(*_: Any) -> None:
        await probe.store.beat("n1", 0)
        claimed.append(await running_on(Probe(probe.store), Jobs(probe.store, Told())))

    probe.after("list_nodes", come_back)
    await lead(leader, clock, 5)

    assert [n.state for n in await probe.list_nodes()] == ["live"]
    assert (await jobs.get_run(claimed[0].id)).state is State.RUNNING


@BOTH
async def test_what_a_node_claims_while_the_leader_takes_back_is_its_own(probe: Probe, jobs: Jobs, clock: FakeClock):
    """Between the burial and the taking back it has registered anew and claimed."""
    leader = member(probe, "boss", clock)
    await leader.campaign()
    await probe.register_node(node("n1"))
    run = await running_on(probe, jobs)
    await lead(leader, clock, DEAD_AFTER + 5)
    again: list[Any] = []

    async def come_back(*_: Any) -> None:
        link = LocalLink(Execution(probe.store, Told(), clock, Metrics()), probe.store, Told())
        await link.hello(node("n1"))
        again.extend(await link.claim({"python": 1}))

    probe.before("load_held", come_back)
    await lead(leader, clock, 5)

    assert [one.run_id for one in again] == [run.id]
    found = await jobs.get_run(run.id)
    assert (found.state, found.fence) == (State.RUNNING, again[0].fence)


@BOTH
async def test_a_leader_that_was_replaced_unawares_buries_nobody(probe: Probe, clock: FakeClock):
    """Its own clock lets it trust itself, but its term is over."""
    leader = member(probe, "boss", clock)
    await leader.campaign()
    await probe.register_node(node("n1"))
    await lead(leader, clock, DEAD_AFTER + 5)
    clock.advance(5)
    await leader.campaign()
    seen = await probe.get_lease(LEADER)
    assert seen is not None
    assert await probe.take_lease(LEADER, "heir", seen) is not None

    await leader.lead()

    assert [n.state for n in await probe.list_nodes()] == ["live"]


@BOTH
async def test_silence_while_the_store_did_not_answer_counts_for_nothing(probe: Probe, clock: FakeClock):
    """Nobody could beat: after the outage everybody has the whole time to come back."""
    leader = member(probe, "boss", clock)
    await leader.campaign()
    await probe.register_node(node("n1"))
    await lead(leader, clock, 10)
    clock.advance(10 * DEAD_AFTER)  # no look succeeded

    await lead(leader, clock, DEAD_AFTER - 10)
    assert [n.state for n in await probe.list_nodes()] == ["live"]
    await lead(leader, clock, 15)

    assert [n.state for n in await probe.list_nodes()] == ["gone"]


@BOTH
async def test_silence_while_an_answer_was_late_counts_for_nothing(probe: Probe, clock: FakeClock):
    leader = member(probe, "boss", clock)
    await leader.campaign()
    await probe.register_node(node("n1"))
    await lead(leader, clock, 10)

    async def hang(*_: Any) -> None:
        clock.advance(10 * DEAD_AFTER)

    probe.after("list_nodes", hang)
    await lead(leader, clock, DEAD_AFTER - 10)

    assert [n.state for n in await probe.list_nodes()] == ["live"]


async def test_a_leader_whose_trust_is_over_buries_nobody(probe: Probe, clock: FakeClock):
    leader = member(probe, "boss", clock)
    await leader.campaign()
    await probe.register_node(node("n1"))
    await leader.lead()
    clock.advance(DEAD_AFTER + 10)

    await leader.lead()

    assert [n.state for n in await probe.list_nodes()] == ["live"]


async def test_a_leader_does_not_bury_itself(probe: Probe, clock: FakeClock):
    leader = member(probe, "boss", clock)
    await leader.campaign()
    await probe.register_node(node("boss"))

    await lead(leader, clock, 120)

    assert [n.state for n in await probe.list_nodes()] == ["live"]


async def test_with_the_store_for_itself_every_other_node_is_dead(probe: Probe, jobs: Jobs, clock: FakeClock):
    await probe.register_node(node("n1"))
    run = await running_on(probe, jobs)
    leader = member(probe, "boss", clock, is_exclusive=True)
    await leader.campaign()

    await leader.lead()

    assert (await jobs.get_run(run.id)).state is State.QUEUED


async def test_a_burial_that_broke_off_is_completed(probe: Probe, jobs: Jobs, clock: FakeClock):
    leader = member(probe, "boss", clock)
    await leader.campaign()
    await probe.register_node(node("n1"))
    run = await running_on(probe, jobs)
    await lead(leader, clock, DEAD_AFTER + 5)
    probe.lose_call("finish")
    clock.advance(5)
    await leader.campaign()
    with pytest.raises(Unavailable):
        await leader.lead()
    assert [n.state for n in await probe.list_nodes()] == ["gone"]

    heir = member(probe, "heir", clock)
    await leader.resign()
    await heir.campaign()
    await heir.lead()
    assert (await jobs.get_run(run.id)).state is State.RUNNING  # whoever declared it: its lease is waited out
    await lead(heir, clock, TTL + 5)

    assert (await jobs.get_run(run.id)).state is State.QUEUED


async def test_what_a_node_left_behind_with_its_goodbye_is_taken_back(
    probe: Probe, jobs: Jobs, clock: FakeClock, execution: Execution, queue: Told
):
    link = LocalLink(execution, probe, queue)
    await link.hello(node("n1"))
    run = await running_on(probe, jobs)  # claimed, but nobody was told: the claim was cut off by the stop
    await link.goodbye()
    leader = member(probe, "boss", clock)
    await leader.campaign()
    await leader.lead()

    await lead(leader, clock, TTL + 5)

    assert (await jobs.get_run(run.id)).state is State.QUEUED
    asked = probe.calls["load_running_of"]
    await leader.lead()
    assert asked == probe.calls["load_running_of"] == 1  # once is enough


async def test_what_a_node_claims_in_its_new_life_is_not_taken_for_a_remnant_of_the_old(
    probe: Probe, jobs: Jobs, clock: FakeClock
):
    leader = member(probe, "boss", clock)
    await leader.campaign()
    await probe.register_node(node("n1"))
    await probe.retire_node("n1", "gone")
    await leader.lead()
    await lead(leader, clock, TTL)
    fresh: list[Run] = []

    async def come_back(*_: Any) -> None:
        await probe.store.register_node(node("n1"))
        fresh.append(await running_on(Probe(probe.store), Jobs(probe.store, Told())))

    probe.after("list_nodes", come_back)
    await lead(leader, clock, 5)

    assert probe.calls["load_running_of"] == 1
    assert (await jobs.get_run(fresh[0].id)).state is State.RUNNING


async def test_runs_of_a_kind_that_no_live_agent_has_fail_with_the_reason(probe: Probe, jobs: Jobs, clock: FakeClock):
    leader = member(probe, "boss", clock)
    await leader.campaign()
    run = await jobs.run_now((await submitted(jobs)).id)
    await leader.lead()
    await leader.tidy()
    assert (await jobs.get_run(run.id)).state is State.QUEUED  # no agent at all: it waits for one
    await probe.register_node(node("n1", kinds=("shell",)))

    await leader.lead()
    await leader.tidy()

    found = await jobs.get_run(run.id)
    assert (found.state, found.reason) == (State.FAILED, "no_agent")
    assert found.message


# ── segments ──


async def owners(store: Store | Probe) -> Counter[str]:
    return Counter(owner for owner, _ in (await store.load_segments()).values())


@BOTH
async def test_segments_are_shared_out_and_given_anew_when_a_node_dies(probe: Probe, clock: FakeClock, queue: Told):
    leader = member(probe, "boss", clock, queue)
    await leader.campaign()
    for name in ("a", "b"):
        await probe.register_node(node(name, roles=("scheduler",)))
    await probe.register_node(node("c", roles=("agent",)))

    await leader.lead()

    assert await owners(probe) == {"a": 50, "b": 50}
    assert queue.take() == ["due"]
    before = await probe.load_segments()
    for _ in range(int(DEAD_AFTER / 5) + 2):
        await probe.beat("a", 0)
        await probe.beat("c", 0)
        await lead(leader, clock, 5)
    after = await probe.load_segments()
    assert await owners(probe) == {"a": 100}
    assert all(after[s] == before[s] for s in before if before[s][0] == "a")
    assert {term for s, (_, term) in after.items() if before[s][0] == "b"} == {2}


async def test_a_draining_node_gets_no_segments(probe: Probe, clock: FakeClock):
    leader = member(probe, "boss", clock)
    await leader.campaign()
    for name in ("a", "b"):
        await probe.register_node(node(name, roles=("scheduler",)))
    await probe.retire_node("b", "draining")

    await leader.lead()

    assert await owners(probe) == {"a": 100}
    assert len(await member(probe, "a", clock).own_segments()) == 100
    assert await member(probe, "b", clock).own_segments() == {}


async def test_a_silent_scheduler_loses_its_segments_with_its_lease_and_its_runs_later(
    probe: Probe, jobs: Jobs, clock: FakeClock
):
    leader = member(probe, "boss", clock)
    for name in ("a", "b"):
        await probe.register_node(node(name, roles=("scheduler", "agent")))
    await leader.campaign()
    await leader.lead()
    run = await running_on(probe, jobs, "b")
    silent = 0

    while (await owners(probe)).get("b"):
        clock.advance(1)
        silent += 1
        await probe.beat("a", 0)
        await leader.campaign()
        await leader.lead()

    assert TTL < silent <= TTL + 2
    assert (await probe.get_run(run.id)).state is State.RUNNING  # its keeper has not killed it yet


async def test_a_new_leader_knows_who_was_silent_before_it_led(probe: Probe, clock: FakeClock):
    """The leader's machine dies, with the scheduler on it: one lease is waited for, not two."""
    old, heir = member(probe, "old", clock), member(probe, "heir", clock)
    for name in ("old", "heir"):
        await probe.register_node(node(name, roles=("scheduler",)))
    await old.campaign()
    await old.lead()
    assert await owners(probe) == {"old": 50, "heir": 50}
    seconds = 0

    while (await owners(probe)).get("old"):
        clock.advance(1)
        seconds += 1
        await probe.beat("heir", 0)
        await heir.look()
        if await heir.campaign():
            await heir.lead()

    assert seconds <= TTL + 2


async def test_a_node_that_returns_gets_its_share_and_no_more_segments_move(probe: Probe, clock: FakeClock):
    leader = member(probe, "boss", clock)
    await leader.campaign()
    for name in ("a", "b", "c"):
        await probe.register_node(node(name, roles=("scheduler",)))
    await leader.lead()
    assert sorted((await owners(probe)).values()) == [33, 33, 34]
    await probe.retire_node("c", "gone")
    await leader.lead()
    before = await probe.load_segments()
    assert await owners(probe) == {"a": 50, "b": 50}

    await probe.register_node(node("c", roles=("scheduler",)))
    await leader.lead()

    after = await probe.load_segments()
    assert sorted((await owners(probe)).values()) == [33, 33, 34]
    moved = [s for s in after if before[s] != after[s]]
    assert len(moved) in (33, 34)
    assert {after[s][0] for s in moved} == {"c"}


async def test_in_active_passive_mode_one_scheduler_has_all_segments_until_it_dies(probe: Probe, clock: FakeClock):
    leader = member(probe, "boss", clock, is_shared=False)
    await leader.campaign()
    for name in ("b", "a"):
        await probe.register_node(node(name, roles=("scheduler",)))
    await leader.lead()
    assert await owners(probe) == {"a": 100}
    await probe.register_node(node("0", roles=("scheduler",)))
    await leader.lead()
    assert await owners(probe) == {"a": 100}  # whoever comes later stands by

    await probe.retire_node("a", "gone")
    await leader.lead()

    assert await owners(probe) == {"0": 100}


async def test_in_active_passive_mode_who_takes_no_work_is_active_only_while_nobody_else_does(
    probe: Probe, clock: FakeClock
):
    leader = member(probe, "boss", clock, is_shared=False)
    await leader.campaign()
    for name in ("a", "b"):
        await probe.register_node(node(name, roles=("scheduler", "agent")))
    await leader.lead()
    assert await owners(probe) == {"a": 100}

    await probe.want_node("a", "cordoned")
    await leader.lead()
    assert await owners(probe) == {"b": 100}

    await probe.note_ailment("b", "the disk is full")
    await leader.lead()
    assert await owners(probe) == {"b": 100}  # a does no better

    await probe.want_node("a", "live")
    await leader.lead()
    assert await owners(probe) == {"a": 100}


async def test_becoming_active_or_passive_is_said_once_and_what_waits_is_looked_for(probe: Probe, clock: FakeClock):
    queue = Told()
    leader, standby = member(probe, "a", clock, is_shared=False), member(probe, "b", clock, queue, is_shared=False)
    await leader.campaign()
    for name in ("a", "b"):
        await probe.register_node(node(name, roles=("scheduler",)))
    await leader.lead()
    with capture_logs() as said:
        for _ in range(2):
            await standby.own_segments()
        await probe.retire_node("a", "gone")
        await leader.lead()
        assert "runs" not in queue.topics
        for _ in range(2):
            await standby.own_segments()

    assert [(line["event"], line["node"]) for line in said if line["event"].startswith("node.")] == [
        ("node.passive", "b"), ("node.active", "b")
    ]  # fmt: skip
    assert said[0]["active"] == "a"
    assert queue.topics.count("runs") == 1


async def test_a_node_that_stops_hands_its_segments_over_before_it_goes(probe: Probe, clock: FakeClock):
    leader, leaver = member(probe, "a", clock), member(probe, "b", clock)
    for name in ("a", "b"):
        await probe.register_node(node(name, roles=("scheduler",)))
    await leader.campaign()
    await leader.lead()
    assert await owners(probe) == {"a": 50, "b": 50}

    async def notice(*_: Any) -> None:
        await leader.lead()

    probe.before("load_segments", notice)
    await leaver.hand_over()

    assert await owners(probe) == {"a": 100}
    assert {n.name: n.state for n in await probe.list_nodes()} == {"a": "live", "b": "draining"}


async def test_a_leader_that_stops_hands_its_own_segments_over(probe: Probe, clock: FakeClock):
    leader = member(probe, "a", clock)
    for name in ("a", "b"):
        await probe.register_node(node(name, roles=("scheduler",)))
    await leader.campaign()
    await leader.lead()

    await leader.hand_over()

    assert await owners(probe) == {"b": 100}


async def test_the_last_scheduler_keeps_its_segments_when_it_stops(probe: Probe, clock: FakeClock):
    leader = member(probe, "a", clock)
    await probe.register_node(node("a", roles=("scheduler",)))
    await leader.campaign()
    await leader.lead()

    await leader.hand_over()

    assert await owners(probe) == {"a": 100}
    assert clock.elapsed() == FakeClock().elapsed()  # it waited for nobody


async def test_what_is_queued_is_looked_through_a_few_times_in_a_lease_not_in_every_round(
    probe: Probe, clock: FakeClock
):
    leader = member(probe, "boss", clock)
    await probe.register_node(node("n1"))
    await leader.campaign()

    for _ in range(10):  # a second each
        await leader.lead()
        await leader.tidy()
        clock.advance(1)

    assert probe.calls["fail_unrunnable"] == probe.calls["mark_unlabelled"] == 2


async def test_a_run_that_needs_a_label_nobody_has_waits_and_says_so(probe: Probe, jobs: Jobs, clock: FakeClock):
    leader = member(probe, "boss", clock)
    await probe.register_node(node("n1"))
    await leader.campaign()
    run = await jobs.run_now((await submitted(jobs, labels=["gpu"])).id)

    await leader.lead()
    await leader.tidy()

    assert (await probe.get_run(run.id)).reason == "no_label"


@BOTH
async def test_a_leader_of_an_old_term_assigns_nothing(probe: Probe, clock: FakeClock):
    old = member(probe, "old", clock)
    await old.campaign()
    await probe.register_node(node("a", roles=("scheduler",)))
    new = member(probe, "new", clock)
    await new.campaign()
    assert await watch(new, clock, patience(TTL) + 2)

    await old.lead()  # it does not know yet

    assert await probe.load_segments() == {}
    await new.lead()
    assert await owners(probe) == {"a": 100}


# ── the rest of a leader's work ──


async def test_the_sweep_says_when_there_is_more_to_do(
    probe: Probe, jobs: Jobs, clock: FakeClock, execution: Execution, queue: Told
):
    leader = member(probe, "boss", clock, queue)
    assert await leader.sweep() is None
    job = await submitted(jobs, retry={"attempts": 2, "backoff": "10s", "jitter": 0})
    await jobs.run_now(job.id)
    (assignment,) = await execution.claim(node("n1"), {"python": 1})
    await execution.finish([Result(assignment.run_id, assignment.fence, State.FAILED, finished_at=START)])
    queue.take()

    assert await leader.sweep() == 10.0
    clock.advance(10)
    await leader.sweep()

    assert queue.take() == ["runs"]
    assert await leader.sweep() is None
