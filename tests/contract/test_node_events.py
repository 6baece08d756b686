"""Triggers that listen to what becomes of nodes, rule by rule, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from horae.core.model import NodeState, OperatorWish, Run, State
from horae.core.runs.endings import NODE, node_event
from horae.core.time.moments import format_moment
from horae.core.work.specs import parse_trigger
from horae.errors import Superseded
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.service.policy.placing import Placing
from horae.service.workflows.dependencies import Dependencies
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock

from .test_dependencies import World
from .test_sessions import lead, node, seen


@pytest.fixture
async def world(store: Store, clock: FakeClock) -> World:
    return World(store, clock)


def on(name: str, *states: str, **fields: Any) -> dict[str, Any]:
    return {"on": {"node": name, "states": list(states)}, **fields}


async def listen(world: World, *triggers: dict[str, Any], **fields: Any) -> int:
    return await world.job("alarm", every=None, triggers=list(triggers), **{"overlap": "allow", **fields})


async def noted(store: Store) -> list[tuple[str, str, str]]:
    rows = await store.load_endings(0, 100)
    return [node_event(row)[:3] for row in rows if row.kind == NODE]


async def told(world: World) -> list[tuple[str, str, str]]:
    await world.act()
    events = [run.data["event"] for run in await world.runs("alarm") if run.data]
    return [(event["node"], event["state"], event["reason"]) for event in events]


# ── what is noted ──


async def test_what_becomes_of_a_node_is_noted_once_each_time(store: Store):
    session = await store.register_node(node())
    session = await store.register_node(node(), session=session)  # again, and nobody has missed it
    await store.retire_node("n1", NodeState.DRAINING, session=session)
    await store.retire_node("n1", NodeState.DRAINING, session=session)
    await store.retire_node("n1", NodeState.GONE, session=session)
    await store.retire_node("n1", NodeState.GONE, session=session)
    await store.register_node(node())
    lease = await lead(store)
    before = await seen(store)
    await store.bury_nodes([before], lease)
    await store.bury_nodes([before], lease)
    assert await noted(store) == [
        ("n1", "joined", "new"),
        ("n1", "draining", "stopping"),
        ("n1", "gone", "left"),
        ("n1", "joined", "returned"),
        ("n1", "gone", "silent"),
    ]


async def test_an_operator_who_drains_a_node_is_heard_and_not_once_more_when_it_stops(store: Store):
    session = await store.register_node(node())
    assert await store.want_node("n1", OperatorWish.CORDONED)
    assert await store.want_node("n1", OperatorWish.DRAINED)
    assert await store.want_node("n1", OperatorWish.DRAINED)
    await store.retire_node("n1", NodeState.DRAINING, session=session)
    assert not await store.want_node("nobody", OperatorWish.DRAINED)
    assert await noted(store) == [("n1", "joined", "new"), ("n1", "draining", "asked")]


async def test_what_was_not_done_is_not_noted(store: Store):
    session = await store.register_node(node())
    lease = await lead(store)
    before = await seen(store)
    await lead(store, "heir")
    assert await store.bury_nodes([before], lease) == {}  # its term is over
    await store.beat("n1", 0)
    assert await store.bury_nodes([before], replace(lease, owner="heir", term=lease.term + 1)) == {}  # it was heard
    with pytest.raises(Superseded):
        await store.retire_node("n1", NodeState.GONE, session=session + 1)
    with pytest.raises(Superseded):
        await store.register_node(node(), session=session + 1)
    await store.retire_node("nobody", NodeState.GONE)
    assert await noted(store) == [("n1", "joined", "new")]


async def test_many_who_register_one_name_at_once_have_joined_once(store: Store):
    await asyncio.gather(*(store.register_node(node()) for _ in range(8)))
    assert await noted(store) == [("n1", "joined", "new")]


# ── what fires ──


async def test_each_event_that_is_named_fires_once_and_is_told_in_the_data(world: World):
    alarm = await listen(world, on("any", "gone", data={"to": "ann"}))
    await world.store.register_node(node())
    lease = await lead(world.store)
    await world.store.bury_nodes([await seen(world.store)], lease)
    await world.act()
    run = await world.run("alarm")
    [trigger] = (await world.jobs.get(alarm)).triggers
    assert (run.state, run.trigger_id, run.due_at) == (State.QUEUED, trigger.id, world.clock.now())
    said = {"node": "n1", "state": "gone", "reason": "silent", "seen_at": format_moment(START)}
    assert run.data == {"to": "ann", "event": said}
    assert await world.store.load_endings(0, 10) == []


async def test_a_node_that_comes_and_goes_fires_each_time(world: World):
    await listen(world, on("any", "gone", "joined"))
    lease = await lead(world.store)
    for _ in range(3):
        await world.store.register_node(node())
        await world.store.bury_nodes([await seen(world.store)], lease)
    found = await told(world)
    assert [state for _, state, _ in found] == ["joined", "gone"] * 3
    assert [reason for _, state, reason in found if state == "joined"] == ["new", "returned", "returned"]


async def test_who_listens_to_one_node_hears_nothing_of_others(world: World):
    await listen(world, on("n2", "joined"))
    await world.store.register_node(node("n1"))
    await world.store.register_node(node("n2"))
    assert await told(world) == [("n2", "joined", "new")]


async def test_every_owner_is_heard_and_every_trigger_for_itself(world: World):
    await listen(world, on("any", "joined"), on("n1", "joined"))
    await world.job("other", every=None, triggers=[on("any", "joined", "gone")])
    await world.store.register_node(node())
    assert len(await told(world)) == 2
    assert len(await world.runs("other")) == 1


@pytest.mark.parametrize("what", ["paused", "disabled", "deleted"])
async def test_who_is_paused_disabled_or_deleted_is_not_fired(world: World, what: str):
    alarm = await listen(world, on("any", "joined", enabled=what != "disabled"))
    if what == "paused":
        await world.jobs.set_paused(alarm, True)
    elif what == "deleted":
        await world.jobs.delete(alarm)
    await world.store.register_node(node())
    assert await told(world) == []
    assert await world.store.load_endings(0, 10) == []


async def test_overlap_and_debounce_of_the_job_hold(world: World):
    await listen(world, on("any", "joined"), overlap="forbid")
    await world.job("calm", every=None, triggers=[on("any", "joined")], debounce={"seconds": 10})
    for name in ("n1", "n2", "n3"):
        await world.store.register_node(node(name))
    await world.act()
    states = [run.state for run in await world.runs("alarm")]
    assert states == [State.QUEUED, State.SKIPPED, State.SKIPPED]
    calm: Run = await world.run("calm")
    assert calm.data is not None
    assert calm.data["event"]["node"] == "n3"


async def test_a_trigger_that_is_added_later_hears_what_comes_then(world: World):
    alarm = await world.job("alarm", every=None)
    await world.store.register_node(node("n1"))
    await world.act()
    trigger = await world.jobs.triggers.add(alarm, parse_trigger(on("any", "joined")))
    await world.store.register_node(node("n2"))
    assert await told(world) == [("n2", "joined", "new")]
    assert (await world.run("alarm")).trigger_id == trigger.id


# ── once ──


async def test_two_who_act_on_the_same_row_make_one_run(world: World, postgres_url: str, clock: FakeClock):
    await listen(world, on("any", "joined"))
    other = PostgresStore(postgres_url, clock=clock.now)
    await other.open()
    store = other if isinstance(world.store, PostgresStore) else world.store
    second = Dependencies(store, LocalQueue(), Placing(store, LocalQueue()))
    try:
        for number in range(5):
            await world.store.register_node(node(f"n{number}"))
            rows = await world.store.load_endings(0, 100)
            await asyncio.gather(world.dependencies.act(rows), second.act(rows))
            await second.act(rows)  # as one that died after it had read them, and came back
        assert [name for name, _, _ in await told(world)] == [f"n{number}" for number in range(5)]
    finally:
        await other.close()


async def test_a_job_that_changes_while_its_run_is_made_is_read_again(world: World):
    alarm = await listen(world, on("any", "joined"))
    await world.store.register_node(node())
    rows = await world.store.load_endings(0, 10)
    stale = await world.dependencies._concerned(rows)
    await world.jobs.set_paused(alarm, True)
    assert (await world.store.follow(stale)).stale
    assert await world.store.load_endings(0, 10) == rows
    await world.jobs.set_paused(alarm, False)
    assert await told(world) == [("n1", "joined", "new")]
