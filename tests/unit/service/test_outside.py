"""Members that are not Horae: they join, beat, fall silent and come back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from horae.core.members import node_name, plain_name
from horae.core.model import SECOND, State
from horae.errors import NotFound
from horae.service.cluster.coordination import Cluster
from horae.service.execution import Execution
from horae.service.external.loans import Lending
from horae.service.external.members import ExternalMembers
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.testing import START, FakeClock

from .parts import BOTH, Probe, Told, node, submitted

OUTSIDE_AFTER = 60.0


@pytest.fixture
def outside(probe: Probe, queue: Told) -> ExternalMembers:
    return ExternalMembers(probe, queue, node="boss", version="1")


def coordinator(probe: Probe, queue: Told, clock: FakeClock, **fields: Any) -> Cluster:
    execution = Execution(probe, queue, clock, Metrics())
    given = {"lease_seconds": 15.0, "dead_after": 25.0, "is_exclusive": False, **fields}
    return Cluster(probe, queue, clock, execution, node="boss", **given)


async def lead(leader: Cluster, clock: FakeClock, seconds: float, step: float = 5.0) -> None:
    for _ in range(round(seconds / step)):
        clock.advance(step)
        assert await leader.campaign()
        await leader.lead()
        await leader.tidy()


async def states(outside: ExternalMembers) -> dict[str, str]:
    return {plain_name(member.name): member.state for member in await outside.members("scheduler")}


def test_a_member_is_named_by_role_and_keeps_its_own_name():
    assert node_name("agent", "a@b") == "a@b@agent"
    assert plain_name("a@b@agent") == "a@b"
    assert plain_name("n1") == "n1"


# ── joining ──


@BOTH
async def test_a_member_that_registers_is_seen_live(probe: Probe, outside: ExternalMembers, queue: Told):
    member = await outside.join("scheduler", "w1", address="10.0.0.1:8083", slots=4)

    assert (member.name, member.roles, member.state) == ("w1@scheduler", ("outside-scheduler",), "live")
    assert (member.address, member.slots, member.via) == ("10.0.0.1:8083", 4, "boss")
    assert queue.take() == ["nodes"]
    assert await outside.members("agent") == []


async def test_one_name_may_have_several_roles(outside: ExternalMembers):
    await outside.join("scheduler", "w1")
    await outside.join("agent", "w1", slots=2)

    assert (await outside.get("scheduler", "w1")).slots == 0
    assert (await outside.get("agent", "w1")).slots == 2


async def test_who_registers_again_stays_as_it_was_but_for_what_is_said_anew(
    outside: ExternalMembers, clock: FakeClock
):
    await outside.join("agent", "w1", address="here", slots=4)
    clock.advance(10)

    member = await outside.join("agent", "w1", slots=8)

    assert (member.address, member.slots, member.started_at) == ("here", 8, START)
    assert member.heartbeat_at == START + 10 * SECOND


async def test_a_beat_is_noted_with_what_it_says(outside: ExternalMembers, clock: FakeClock):
    await outside.join("agent", "w1", slots=4)
    clock.advance(10)

    first = await outside.beat("agent", "w1", busy=3)
    second = await outside.beat("agent", "w1")
    third = await outside.beat("agent", "w1", busy=1, slots=6)

    assert (first.busy, first.heartbeat_at) == (3, START + 10 * SECOND)
    assert (second.busy, second.beat) == (3, first.beat + 1)
    assert (third.busy, third.slots) == (1, 6)


async def test_who_never_registered_is_not_known(outside: ExternalMembers):
    with pytest.raises(NotFound):
        await outside.beat("agent", "w1")
    with pytest.raises(NotFound):
        await outside.take_segments("w1", 3)


async def test_who_leaves_is_told_from_who_fell_silent(outside: ExternalMembers, queue: Told):
    await outside.join("scheduler", "w1")
    await outside.take_segments("w1", 3)
    queue.take()

    await outside.leave("scheduler", "w1")

    member = await outside.get("scheduler", "w1")
    assert (member.state, member.wanted) == ("gone", "drained")
    assert await outside.segments() == {}
    assert "due" in queue.take()
    assert (await outside.join("scheduler", "w1")).wanted == "live"


# ── silence ──


@BOTH
async def test_a_silent_member_is_buried_after_its_own_patience(
    probe: Probe, outside: ExternalMembers, queue: Told, clock: FakeClock
):
    leader = coordinator(probe, queue, clock)
    await leader.campaign()
    await outside.join("scheduler", "w1")
    await probe.register_node(node("n1"))
    await lead(leader, clock, 5)

    await lead(leader, clock, 55)
    assert await states(outside) == {"w1": "live"}
    assert {n.name: n.state for n in await probe.list_nodes()}["n1"] == "gone"
    queue.take()
    await lead(leader, clock, 10)

    assert await states(outside) == {"w1": "gone"}
    assert "due" in queue.take()  # moments that were offered to it are free


async def test_a_member_that_beats_lives_and_one_that_was_buried_is_back_with_its_next_beat(
    probe: Probe, outside: ExternalMembers, queue: Told, clock: FakeClock
):
    leader = coordinator(probe, queue, clock, external_after=20)
    await leader.campaign()
    for name in ("a", "b"):
        await outside.join("scheduler", name)
    for _ in range(6):
        await lead(leader, clock, 5)
        await outside.beat("scheduler", "a")
    assert await states(outside) == {"a": "live", "b": "gone"}

    await outside.beat("scheduler", "b", busy=2)

    assert await states(outside) == {"a": "live", "b": "live"}
    assert (await outside.get("scheduler", "b")).busy == 2


async def test_a_restarted_server_that_has_the_store_for_itself_buries_no_member_at_once(
    probe: Probe, outside: ExternalMembers, queue: Told, clock: FakeClock
):
    await outside.join("scheduler", "w1")
    await outside.take_segments("w1", 2)
    clock.advance(3600)  # the server was down
    leader = coordinator(probe, queue, clock, is_exclusive=True)
    await leader.campaign()

    await leader.lead()
    assert await states(outside) == {"w1": "live"}
    assert sorted(await outside.segments()) == [0, 1]
    await lead(leader, clock, OUTSIDE_AFTER + 5)

    assert await states(outside) == {"w1": "gone"}


async def test_what_a_buried_member_had_on_loan_is_taken_back(
    probe: Probe, outside: ExternalMembers, jobs: Jobs, execution: Execution, queue: Told, clock: FakeClock
):
    leader = coordinator(probe, queue, clock)
    await leader.campaign()
    await outside.join("agent", "w1")
    run = await jobs.run_now((await submitted(jobs)).id)
    await Lending(probe, jobs, execution).lend_run(run.id, worker=node_name("agent", "w1"), seconds=3600)

    await lead(leader, clock, OUTSIDE_AFTER + 10)

    assert (await jobs.get_run(run.id)).state is State.QUEUED


# ── segments ──


async def test_members_never_get_the_segments_of_horaes_own_schedulers(
    probe: Probe, outside: ExternalMembers, queue: Told, clock: FakeClock
):
    leader = coordinator(probe, queue, clock)
    await leader.campaign()
    await outside.join("scheduler", "w1")
    await probe.register_node(node("boss", roles=("scheduler", "coordinator")))

    await lead(leader, clock, 5)
    await outside.take_segments("w1", 60)

    assert {owner for owner, _ in (await probe.load_segments()).values()} == {"boss"}
    assert len(await probe.load_segments()) == 100


async def test_segments_are_taken_released_and_told(outside: ExternalMembers, queue: Told):
    await outside.join("scheduler", "a")
    await outside.join("scheduler", "b")
    queue.take()

    assert await outside.take_segments("a", 2) == [0, 1]
    assert await outside.take_segments("b", 1) == [2]
    assert await outside.segments() == {0: ("a", START), 1: ("a", START), 2: ("b", START)}
    await outside.release_segments("a")

    assert await outside.segments() == {2: ("b", START)}
    assert queue.take() == ["due", "due", "due"]


# ── kinds left to workers outside Horae ──


async def test_runs_of_foreign_kinds_are_left_waiting_for_their_workers(
    probe: Probe, jobs: Jobs, queue: Told, clock: FakeClock
):
    execution = Execution(probe, queue, clock, Metrics(), foreign_kinds=["python"])
    leader = coordinator(probe, queue, clock, foreign_kinds=("python",))
    await leader.campaign()
    await probe.register_node(node("n1", kinds=("shell", "python")))
    run = await jobs.run_now((await submitted(jobs)).id)

    await lead(leader, clock, 10)
    assert await execution.claim(node("n1"), {"python": 10}) == []

    await probe.register_node(node("n1", kinds=("shell",)))
    await lead(leader, clock, 10)
    assert (await jobs.get_run(run.id)).state is State.QUEUED
    assert (await Lending(probe, jobs, execution).lend_run(run.id, worker="w1", seconds=30)).node == "w1"


async def test_segments_that_change_hands_are_counted_whoever_moves_them(
    probe: Probe, outside: ExternalMembers, queue: Told, clock: FakeClock
):
    leader = coordinator(probe, queue, clock, external_after=OUTSIDE_AFTER)
    assert await leader.campaign()
    await outside.join("scheduler", "w1")
    for wanted in (10, 10, 5):
        await outside.take_segments("w1", wanted)
    assert outside.moves == 2
    await outside.release_segments("w1")
    await outside.release_segments("w1")
    assert outside.moves == 3
    await outside.take_segments("w1", 10)

    await lead(leader, clock, OUTSIDE_AFTER + 15)

    assert await states(outside) == {"w1": "gone"}
    assert leader.rebalances == 1


async def test_a_scheduler_that_was_told_its_segments_fires_those(
    probe: Probe, outside: ExternalMembers, queue: Told, clock: FakeClock
):
    leader = coordinator(probe, queue, clock)
    for name in ("a", "b"):
        await probe.register_node(replace(node(name), roles=("scheduler",), heartbeat_at=clock.now()))
    assert await leader.campaign()
    await outside.hold_segments("a", [3, 4])

    await leader.lead()

    owners = {segment: owner for segment, (owner, _) in (await probe.load_segments()).items()}
    assert [segment for segment, owner in owners.items() if owner == "a"] == [3, 4]
    assert len(owners) == 100
    assert (await outside.picture.held_by("a"), len(await outside.picture.held_by("b"))) == ([3, 4], 98)
