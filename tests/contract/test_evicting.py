"""A node that is evicted: gone at once, fenced, its tokens revoked, and refused until somebody lets it in again; on
SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from horae.core.model import ANY, Bounds, NodeState, State, Token
from horae.core.runs.orders import Result
from horae.core.signs import NewLine
from horae.errors import Conflict, Evicted, NotFound
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.service.access import Access
from horae.service.cluster.operators import Nodes
from horae.service.execution import Execution
from horae.service.metrics import Metrics
from horae.testing import FakeClock

from ..claiming import claim
from .test_sessions import IDENTITY, lead, node, queue_run

DEAD_AFTER = 17.0
OTHER = "o" * 32


class Cluster:
    def __init__(self, store: Store, clock: FakeClock) -> None:
        queue = LocalQueue()
        self.store, self.clock = store, clock
        self.access = Access(store, clock)
        self.execution = Execution(store, queue, clock, Metrics())
        self.nodes = Nodes(store, queue, self.execution, self.access, node="server", dead_after=DEAD_AFTER)


@pytest.fixture
def cluster(store: Store, clock: FakeClock) -> Cluster:
    return Cluster(store, clock)


async def state_of(store: Store, run_id: int) -> tuple[State, int]:
    run = await store.get_run(run_id)
    assert run is not None
    return run.state, run.lost


async def test_what_an_evicted_node_ran_is_lost_at_once_and_begins_elsewhere_when_its_lease_is_over(cluster: Cluster):
    store = cluster.store
    session = await store.register_node(node())
    (run_id,) = await queue_run(store)
    (held,) = await claim(store, "n1", "python", (), 1, session=session)

    shown = await cluster.nodes.evict("n1")

    assert (shown.state, shown.evicted_at) == ("gone", cluster.clock.now())
    assert await state_of(store, run_id) == (State.BLOCKED, 1)
    now = cluster.clock.now()
    late = Result(run_id, held.fence, State.SUCCEEDED, started_at=now, finished_at=now)
    assert await cluster.execution.finish([late]) == set()  # its word counts no more
    await store.register_node(node("n2"))
    cluster.clock.advance(DEAD_AFTER - 1)
    await store.sweep()
    assert await claim(store, "n2", "python", (), 1) == []
    cluster.clock.advance(1)
    await store.sweep()
    (again,) = await claim(store, "n2", "python", (), 1)
    assert (again.run_id, again.attempt) == (run_id, 2)
    assert again.fence > held.fence


async def test_an_evicted_node_claims_beats_and_joins_no_more(cluster: Cluster):
    store = cluster.store
    session = await store.register_node(node())
    await queue_run(store)
    await cluster.nodes.evict("n1")

    assert await store.beat("n1", 0, session=session) is None
    with pytest.raises(Conflict):
        await claim(store, "n1", "python", (), 1, session=session)
    for given in (session, None):
        with pytest.raises(Evicted) as caught:
            await store.register_node(node(), session=given)
        assert (caught.value.code, caught.value.status) == ("E_EVICTED", 403)
    lines = [
        NewLine("n1", IDENTITY, "server", "l1"),
        NewLine("n1", OTHER, "server", "l2"),  # its data directory was emptied
        NewLine("n2", IDENTITY, "server", "l3"),  # it calls itself otherwise
        NewLine("n2", OTHER, "server", "l4"),
    ]
    assert await store.open_lines(lines) == [-1, -1, -1, 0]


async def test_an_evicted_agent_takes_no_name_that_there_is_either(cluster: Cluster):
    store = cluster.store
    await store.register_node(node(via="server"))
    await store.register_node(replace(node("n2", via="server"), identity=OTHER))
    await store.retire_node("n2", NodeState.GONE)
    await cluster.nodes.evict("n1")
    assert await store.open_lines([NewLine("n2", IDENTITY, "server", "l1")]) == [-1]
    [session] = await store.open_lines([NewLine("n2", OTHER, "server", "l2")])
    assert session is not None
    assert session > 0


async def test_an_agent_that_was_evicted_is_let_in_by_joining_anew_alone(cluster: Cluster):
    """A token for any agent is good still, and an operator's word is not enough."""
    store, access = cluster.store, cluster.access
    text = (await access.create("any", "agent", "ann", None, bounds=Bounds(ANY)))[1]
    await store.register_node(node(via="server"))
    await cluster.nodes.evict("n1")
    await access.check(text, "agent")
    with pytest.raises(Conflict) as refused:
        await cluster.nodes.uncordon("n1")
    assert refused.value.code == "E_EVICTED"
    assert await store.open_lines([NewLine("n1", IDENTITY, "server", "l1")]) == [-1]

    join = (await access.create("join", "join", "ann", 60.0, bounds=Bounds(ANY)))[0]
    credential = Token(0, "n3", "agent", "ann", "a" * 64, 0, parent_id=join.id, bounds=Bounds("n3"))
    assert await store.redeem_token(credential, cluster.clock.now(), IDENTITY) is not None

    lines = [NewLine("n3", IDENTITY, "server", "l2"), NewLine("n1", IDENTITY, "server", "l3")]
    first, second = await store.open_lines(lines)
    assert first == 0  # it is new by this name
    assert second is not None
    assert second > 0


async def test_eviction_outlives_what_the_node_says_and_ends_with_an_operators_word(cluster: Cluster):
    store = cluster.store
    await store.register_node(node())
    first = await cluster.nodes.evict("n1")
    cluster.clock.advance(5)
    assert (await cluster.nodes.evict("n1")).evicted_at == first.evicted_at  # again is no harm
    await cluster.nodes.want("n1", "live")  # as a worker may say of itself
    with pytest.raises(Evicted):
        await store.register_node(node())

    assert (await cluster.nodes.uncordon("n1")).evicted_at is None

    assert await store.register_node(node()) > 0


async def test_the_tokens_of_an_evicted_node_are_refused_at_once_and_those_of_others_go_on(cluster: Cluster):
    access = cluster.access
    texts: dict[str, Any] = {}
    for name in ("n1", "n2", "*"):
        texts[name] = (await access.create(name, "agent", "ann", None, bounds=Bounds(name)))[1]
    await access.create("ann", "user", "ann", None)
    await cluster.store.register_node(node())
    for text in texts.values():
        await access.check(text, "agent")

    await cluster.nodes.evict("n1")

    states = {token.name: access.state_of(token) for token in await access.list()}
    assert states == {"n1": "revoked", "n2": "good", "*": "good", "ann": "good"}
    with pytest.raises(Evicted):
        await access.check(texts["n1"], "agent")
    for name in ("n2", "*"):
        await access.check(texts[name], "agent")


async def test_the_leader_takes_back_what_an_eviction_that_broke_off_left_running(cluster: Cluster):
    """The server that evicted was killed before it had taken anything back."""
    from horae.service.cluster.coordination import Cluster as Coordination

    store, clock = cluster.store, cluster.clock
    session = await store.register_node(node(via="server"))
    (run_id,) = await queue_run(store)
    await claim(store, "n1", "python", (), 1, session=session)
    assert await store.evict_node("n1", clock.now()) == {run_id: 1}
    leader = Coordination(
        store, LocalQueue(), clock, cluster.execution, node="boss", lease_seconds=15.0, dead_after=DEAD_AFTER,
        is_exclusive=False,
    )  # fmt: skip
    await lead(store)

    for _ in range(20):
        await leader.campaign()
        await leader.lead()
        clock.advance(1)

    assert await state_of(store, run_id) == (State.QUEUED, 1)


async def test_who_is_asked_does_not_evict_itself_and_strangers_are_not_found(cluster: Cluster):
    await cluster.store.register_node(node("server"))
    with pytest.raises(Conflict) as caught:
        await cluster.nodes.evict("server")
    assert caught.value.code == "E_EVICT_SELF"
    with pytest.raises(NotFound):
        await cluster.nodes.evict("nobody")
