"""Claims of many nodes and kinds in one statement, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from horae.core.definitions import Submission
from horae.core.model import Lease, Node, Overlap, RunFilter, State
from horae.core.runs.holdings import Holding, holding_of
from horae.core.runs.orders import Assignment, NewRun, Order, Want
from horae.core.signs import Beat, NewLine, Sign
from horae.errors import Superseded
from horae.ports.store import Store
from horae.stores.postgres import PostgresStore, database, lanes
from horae.testing import make_job

from .test_postgres_plans import plan_of


@pytest.fixture
async def with_job(store: Store) -> None:
    await store.submit([Submission([make_job(1)])])


async def order(
    store: Store,
    kind: str = "python",
    count: int = 1,
    *,
    priority: int = 5,
    needs: tuple[str, ...] = (),
    pin: str | None = None,
) -> list[int]:
    new = NewRun(job_id=1, kind=kind, priority=priority, overlap=Overlap.ALLOW, needs=needs, pin=pin)
    return [receipt.ids[0] for receipt in await store.enqueue([Order(new) for _ in range(count)])]


def ids(claimed: Sequence[Assignment]) -> list[int]:
    return sorted(one.run_id for one in claimed)


@pytest.mark.usefixtures("with_job")
async def test_one_claim_serves_all_kinds(store: Store):
    python, shell = await order(store, "python", 3), await order(store, "shell", 2)
    await order(store, "sync")

    claimed = await store.claim([Want("n1", "python", 2), Want("n1", "shell", 10), Want("n1", "git_java", 10)])

    assert [ids(one) for one in claimed] == [python[:2], shell, []]
    assert {run.id: run.node for run in await running(store)} == dict.fromkeys([*python[:2], *shell], "n1")


@pytest.mark.usefixtures("with_job")
async def test_one_claim_serves_many_nodes_and_each_gets_one_before_any_gets_two(store: Store):
    await order(store, count=5)

    claimed = await store.claim([Want(name, "python", room) for name, room in (("a", 4), ("b", 1), ("c", 4))])

    assert [len(one) for one in claimed] == [2, 1, 2]
    assert {run.id: run.node for run in await running(store)} == {
        one.run_id: name for name, list_ in zip("abc", claimed, strict=True) for one in list_
    }


@pytest.mark.usefixtures("with_job")
async def test_the_best_runs_are_given_whoever_gets_them(store: Store):
    low, high = await order(store, count=3, priority=1), await order(store, count=2, priority=9)

    claimed = await store.claim([Want("a", "python", 1), Want("b", "python", 2)])

    assert sorted(one for each in claimed for one in ids(each)) == sorted([*high, low[0]])


@pytest.mark.usefixtures("with_job")
async def test_pinned_runs_go_to_their_node_and_keep_nobody_else_waiting(store: Store):
    pinned = await order(store, count=50, priority=9, pin="a")
    plain = await order(store, count=3)
    elsewhere = await order(store, pin="z")

    a, b = await store.claim([Want("a", "python", 2), Want("b", "python", 3)])

    assert ids(a) == pinned[:2]
    assert ids(b) == plain
    assert ids((await store.claim([Want("z", "python", 1)]))[0]) == elsewhere


@pytest.mark.usefixtures("with_job")
async def test_a_pinned_run_waits_for_its_turn_among_the_others(store: Store):
    low, high = await order(store, priority=1, pin="a"), await order(store, count=2, priority=9)

    (first,) = await store.claim([Want("a", "python", 2)])
    (second,) = await store.claim([Want("a", "python", 2)])

    assert (ids(first), ids(second)) == (high, low)


@pytest.mark.usefixtures("with_job")
async def test_runs_that_need_labels_go_to_nodes_that_have_them_all(store: Store):
    choosy = await order(store, needs=("gpu", "eu"))

    assert await store.claim([Want("a", "python", 1)], ["gpu"]) == [[]]
    assert [ids(one) for one in await store.claim([Want("a", "python", 1)], ["eu", "gpu"])] == [choosy]


@pytest.mark.usefixtures("with_job")
async def test_many_claims_of_many_nodes_at_once_share_no_run(store: Store):
    await order(store, "python", 150)
    await order(store, "shell", 150)

    def wants(server: int) -> list[Want]:
        return [Want(f"n{server}-{number}", kind, 5) for number in range(10) for kind in ("python", "shell")]

    answers = await asyncio.gather(*(store.claim(wants(server)) for server in range(4)))

    given = Counter(one.run_id for claimed in answers for each in claimed for one in each)
    assert set(given.values()) == {1}
    assert len(given) == 300 or await rest(store) == 300 - len(given)
    assert all(len(each) <= 5 for claimed in answers for each in claimed)


async def running(store: Store):
    return (await store.list_runs(RunFilter(states=(State.RUNNING,)), None, 1000)).items


async def rest(store: Store) -> int:
    """Return how many a last claim still finds."""
    claimed = await store.claim([Want("last", kind, 300) for kind in ("python", "shell")])
    return sum(map(len, claimed))


# From the beginning; and from a mark.
@pytest.mark.parametrize(("name", "places"), [("claim", 2), ("claim_lean", 1)])
async def test_a_claim_finds_its_runs_by_index_however_many_wait(
    postgres_url: str, postgres_store: PostgresStore, name: str, places: int
):
    """Also while the statistics say that the tables are empty."""
    connection = await lanes.connect(postgres_url, settings=database.BY_INDEX)
    await connection.execute("ANALYZE jobs, live")
    await postgres_store.submit([Submission([make_job(1)])])
    await order(postgres_store, count=600)
    await connection.close()

    plan = await plan_of(postgres_url, postgres_store, name)

    assert plan.count("Index Scan using live_order") == places
    assert bool(re.search(r"Index Cond: .*ROW\(.*pass, .*id\) > ROW\(", plan)) == (places == 2)
    assert "Index Scan using live_pinned_order" in plan
    assert set(re.findall(r"Seq Scan on (\w+)", plan)) <= {"queues"}  # a handful
    by_name = {"live_pkey", "nodes_pkey", "limits_pkey"}
    assert set(re.findall(r"Bitmap Index Scan on (\w+)", plan)) <= by_name  # or id
    assert "Scan using live_demanding on live" in plan


async def test_of_many_wants_only_those_of_earlier_lines_are_refused(store: Store):
    await store.submit([Submission([make_job(1)])])
    old = await store.register_node(node("a"))
    new, other = await store.register_node(node("a")), await store.register_node(node("b"))
    waiting = await order(store, count=3)

    late, gone, b, a = await store.claim([
        Want("a", "python", 5, old), Want("z", "python", 5, 1), Want("b", "python", 1, other),
        Want("a", "python", 5, new),
    ])  # fmt: skip

    assert (late, gone) == (None, None)
    assert len(b or ()) == 1
    assert sorted(ids(a or ()) + ids(b or ())) == waiting


def node(name: str) -> Node:
    return Node(
        name=name, roles=("agent",), version="1", address="", started_at=0, heartbeat_at=0, beat=0, labels=(), slots=4,
        kinds=("python",), identity=name,
    )  # fmt: skip


# ── signs of life ──


async def test_many_beats_are_one_and_each_is_answered_for_itself(store: Store):
    sessions = {name: await store.register_node(node(name)) for name in ("a", "b", "c", "d")}
    await store.register_node(node("d"))
    await store.retire_node("c", "gone")
    await store.want_node("b", "cordoned")
    await store.submit([Submission([make_job(1)])])
    await order(store, count=2)
    ((claimed,),) = await store.claim([Want("a", "python", 1)])
    await store.cancel([claimed.run_id], "requested")
    before = {one.name: one.beat for one in await store.list_nodes()}

    held = holding_of([(claimed.run_id, claimed.fence)])
    a, b, c, d, z, again = await store.beat_all([
        Sign("a", 1, sessions["a"], held), Sign("b", 0, sessions["b"], Holding(1, 1)), Sign("c", 0, sessions["c"]),
        Sign("d", 0, sessions["d"]), Sign("z", 0), Sign("a", 1, sessions["a"], held),
    ])  # fmt: skip

    assert a == again == Beat([(claimed.run_id, claimed.fence)], "live")
    assert b == Beat([], "cordoned", differs=True)
    assert (c, z) == (None, None)
    assert isinstance(d, Superseded)
    moved = {one.name: one.beat - before[one.name] for one in await store.list_nodes()}
    assert moved == {"a": 1, "b": 1, "c": 0, "d": 0}
    assert {one.name: one.busy for one in await store.list_nodes()}["a"] == 1


async def test_many_lines_are_opened_at_once_and_each_is_answered_for_itself(store: Store):
    for name in ("a", "b", "c"):
        await store.register_node(node(name))
    await store.retire_node("b", "gone")

    answers = await store.open_lines([
        NewLine("a", "a", "s2", "1"), NewLine("b", "another", "s2", "2"), NewLine("c", "another", "s2", "3"),
        NewLine("z", "z", "s2", "4"), NewLine("a", "a", "s2", "5"),
    ])  # fmt: skip

    assert answers == [2, 2, None, 0, 3]
    assert {one.name: one.via for one in await store.list_nodes()} == {"a": "s2", "b": "s2", "c": ""}


async def standing_by(store: Store, **fields: Any) -> Lease:
    """Two nodes, of which `a` has the segments."""
    for name in ("a", "b"):
        await store.register_node(replace(node(name), **fields))
    lease = await store.take_lease("leader", "a", None)
    assert lease is not None
    await store.assign_segments(dict.fromkeys(range(100), "a"), lease)
    return lease


@pytest.mark.usefixtures("with_job")
async def test_a_node_that_stands_by_claims_only_what_is_pinned_to_it(store: Store):
    lease = await standing_by(store, kinds=("python",))
    free, pinned = await order(store, count=2), await order(store, pin="b")

    assert [ids(one or ()) for one in await store.claim([Want("b", "python", 5)], standby="b")] == [pinned]
    assert [ids(one or ()) for one in await store.claim([Want("a", "python", 1)], standby="a")] == [free[:1]]
    await store.assign_segments(dict.fromkeys(range(100), "b"), lease)
    assert await store.claim([Want("a", "python", 5)], standby="a") == [[]]
    assert [ids(one or ()) for one in await store.claim([Want("b", "python", 5)], standby="b")] == [free[1:]]


@pytest.mark.usefixtures("with_job")
async def test_a_node_that_stands_by_does_what_the_active_one_cannot_do(store: Store):
    await standing_by(store, kinds=("python",))
    await order(store)
    shell = await order(store, "shell")

    claimed = await store.claim([Want("b", "python", 5), Want("b", "shell", 5)], standby="b")

    assert [ids(one or ()) for one in claimed] == [[], shell]


@pytest.mark.usefixtures("with_job")
async def test_while_the_active_node_is_gone_nobody_stands_in_for_it(store: Store):
    await standing_by(store, kinds=("python",))
    await order(store)
    await order(store, "shell")
    await store.retire_node("a", "gone")

    assert await store.claim([Want("b", "python", 5), Want("b", "shell", 5)], standby="b") == [[], []]


@pytest.mark.usefixtures("with_job")
async def test_before_anybody_is_active_nobody_claims_what_is_pinned_to_nobody(store: Store):
    await order(store)

    assert await store.claim([Want("b", "python", 5)], standby="b") == [[]]
