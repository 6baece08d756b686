"""Which line of a node counts: what an earlier one asks has no effect, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from horae.core.definitions import Submission
from horae.core.model import Lease, Node, Overlap, Phase, State
from horae.core.runs.holdings import Holding, holding_of
from horae.core.runs.orders import NewRun, Order, Want
from horae.core.signs import NewLine
from horae.errors import Superseded
from horae.ports.store import Store
from horae.stores.postgres import PostgresStore, arrays, database, lanes
from horae.stores.postgres.marks import Marks
from horae.stores.queries import DIGEST
from horae.testing import START, make_job

from ..claiming import claim

IDENTITY = "i" * 32


def node(name: str = "n1", **fields: str) -> Node:
    return Node(name, ("agent",), ("python",), (), 8, "0.1", "", START, START, 0, identity=IDENTITY, **fields)


async def queue_run(store: Store, count: int = 1) -> list[int]:
    await store.submit([Submission([make_job(1)])])
    order = Order(NewRun(1, "python", 5, Overlap.ALLOW))
    return [receipt.ids[0] for receipt in await store.enqueue([order] * count)]


async def lead(store: Store, owner: str = "boss") -> Lease:
    lease = await store.take_lease("leader", owner, await store.get_lease("leader"))
    assert lease is not None
    return lease


async def seen(store: Store, name: str = "n1") -> Node:
    found = await store.get_node(name)
    assert found is not None
    return found


# ── sessions ──


async def open_line(store: Store, name: str, identity: str, via: str, line: str) -> int | None:
    (session,) = await store.open_lines([NewLine(name, identity, via, line)])
    return session


async def test_every_registration_and_every_line_takes_the_next_session(store: Store):
    assert await store.register_node(node()) == 1
    assert await open_line(store, "n1", IDENTITY, "server-2", "line-2") == 2
    assert await store.register_node(node(), session=2) == 3

    found = await seen(store)
    assert (found.session, found.via) == (3, "")


async def test_a_registration_of_an_earlier_session_is_refused(store: Store):
    await store.register_node(node())
    await open_line(store, "n1", IDENTITY, "server-2", "line-2")
    before = await seen(store)

    with pytest.raises(Superseded):
        await store.register_node(node(), session=1, line="line-1")

    assert await seen(store) == before


async def test_a_registration_whose_answer_was_lost_can_be_repeated(store: Store):
    first = await store.register_node(node(), session=0, line="line-1")

    assert await store.register_node(node(), session=0, line="line-1") == first
    with pytest.raises(Superseded):
        await store.register_node(node(), session=0, line="line-2")


async def test_a_registration_that_was_repeated_and_comes_late_after_all_supersedes_nobody(store: Store):
    """Whoever gave up waiting for the first had its answer from the second."""
    session = await store.register_node(node(), session=0, line="line-1")

    await store.register_node(node(), session=0, line="line-1")

    assert await store.beat("n1", 0, session=session) is not None
    assert await store.register_node(node(), session=session, line="line-1") == session + 1


async def test_a_name_without_a_node_is_registered_once(store: Store):
    assert await store.register_node(node(), session=0, line="line-1") == 1

    with pytest.raises(Superseded):
        await store.register_node(node(), session=0, line="line-2")


async def test_only_the_same_agent_opens_a_line_of_a_living_node(store: Store):
    assert await open_line(store, "n1", IDENTITY, "s", "a") == 0
    await store.register_node(node())

    assert await open_line(store, "n1", "x" * 32, "s", "a") is None
    await store.retire_node("n1", "gone")
    assert await open_line(store, "n1", "x" * 32, "s", "a") == 2


async def test_a_claim_of_an_earlier_line_takes_nothing(store: Store):
    old = await store.register_node(node())
    (run_id,) = await queue_run(store)
    new = await open_line(store, "n1", IDENTITY, "server-2", "line-2")

    with pytest.raises(Superseded):
        await claim(store, "n1", "python", [], 5, session=old)

    run = await store.get_run(run_id)
    assert run is not None
    assert (run.state, run.fence) == (State.QUEUED, 0)
    assert [one.run_id for one in await claim(store, "n1", "python", [], 5, session=new)] == [run_id]


async def test_a_node_that_is_gone_claims_nothing(store: Store):
    session = await store.register_node(node())
    await queue_run(store)
    await store.retire_node("n1", "gone")

    with pytest.raises(Superseded):
        await claim(store, "n1", "python", [], 5, session=session)


async def test_a_beat_of_an_earlier_line_is_no_sign_of_life(store: Store):
    old = await store.register_node(node())
    new = await open_line(store, "n1", IDENTITY, "server-2", "line-2")
    before = await seen(store)

    with pytest.raises(Superseded):
        await store.beat("n1", 0, session=old)

    assert (await seen(store)).beat == before.beat
    assert await store.beat("n1", 0, session=new) is not None


async def test_a_beat_of_the_present_line_of_a_node_that_is_gone_is_told_so(store: Store):
    session = await store.register_node(node())
    await store.retire_node("n1", "gone")

    assert await store.beat("n1", 0, session=session) is None


async def test_a_goodbye_of_an_earlier_line_is_refused(store: Store):
    old = await store.register_node(node())
    new = await open_line(store, "n1", IDENTITY, "server-2", "line-2")

    with pytest.raises(Superseded):
        await store.retire_node("n1", "gone", session=old)

    assert (await seen(store)).state == "live"
    await store.retire_node("n1", "gone", session=new)
    assert (await seen(store)).state == "gone"


async def test_what_a_node_runs_is_told_to_its_present_line_only(store: Store):
    old = await store.register_node(node())
    assert await store.load_running("n1", session=old) == []
    await queue_run(store)
    (claimed,) = await claim(store, "n1", "python", [], 5, session=old)
    new = await open_line(store, "n1", IDENTITY, "server-2", "line-2")

    with pytest.raises(Superseded):
        await store.load_running("n1", session=old)

    assert await store.load_running("n1", session=new) == [(claimed.run_id, claimed.fence)]
    assert await store.load_running_of(["n1", "n2"]) == {"n1": {claimed.run_id: claimed.fence}}
    assert await store.count_running() == {"n1": 1}


async def test_phases_and_progress_of_an_earlier_line_are_not_noted(store: Store):
    old = await store.register_node(node())
    await queue_run(store)
    (claimed,) = await claim(store, "n1", "python", [], 5, session=old)
    new = await open_line(store, "n1", IDENTITY, "server-2", "line-2")

    await store.set_phases([(claimed.run_id, claimed.fence, Phase.PREPARING)], session=old)
    await store.note_progress([(claimed.run_id, claimed.fence, '{"percent": 5}')], session=old)

    run = await store.get_run(claimed.run_id)
    assert run is not None
    assert (run.phase, run.progress) == (Phase.RUNNING, None)
    await store.set_phases([(claimed.run_id, claimed.fence, Phase.PREPARING)], session=new)
    await store.note_progress([(claimed.run_id, claimed.fence, '{"percent": 5}')], session=new)
    run = await store.get_run(claimed.run_id)
    assert run is not None
    assert (run.phase, run.progress) == (Phase.PREPARING, {"percent": 5})


@pytest.mark.parametrize("name", ["claim", "claim_lean"])
async def test_whoever_opens_a_line_sees_the_claims_that_were_under_way(
    postgres_url: str, postgres_store: PostgresStore, name: str
):
    """The claim has not committed when the line opens: either the line waits for it, or the claim is refused."""
    store = postgres_store
    session = await store.register_node(node())
    (run_id,) = await queue_run(store)
    connection = await lanes.connect(postgres_url, settings=database.BY_INDEX)
    try:
        claiming = connection.transaction()
        await claiming.start()
        wants = [Want("n1", "python", 5, session)]
        whole = *arrays.claim_arrays(wants, Marks().begin([], ["python"])), None, [], [], [], [], None, None, 0, None
        more = whole if name == "claim" else (*arrays.want_arrays(wants), False)
        rows = await connection.fetch(store.queries[name], START, 1, [], *more)
        assert [row[1] for row in rows if row[0]] == [run_id]

        opening = asyncio.create_task(open_line(store, "n1", IDENTITY, "server-2", "line-2"))
        await asyncio.wait([opening], timeout=0.3)
        assert not opening.done()
        await claiming.commit()

        new = await opening
        assert [run for run, _ in await store.load_running("n1", session=new)] == [run_id]
    finally:
        await connection.close()


# ── what is held ──


async def test_a_beat_says_whether_what_is_held_differs_from_the_books(store: Store):
    session = await store.register_node(node())
    await queue_run(store, 3)
    claimed = await claim(store, "n1", "python", [], 3, session=session)
    held = [(one.run_id, one.fence) for one in claimed]

    async def differs(holding: Holding | None) -> bool:
        answer = await store.beat("n1", 3, session=session, held=holding)
        assert answer is not None
        return answer.differs

    assert not await differs(None)
    assert not await differs(holding_of(held))
    assert not await differs(holding_of(reversed(held)))
    assert await differs(holding_of(held[:2]))
    assert await differs(holding_of([(run_id, fence + 1) for run_id, fence in held]))
    assert await differs(holding_of([(held[0][0] - 1, 1), held[1], (held[2][0] + 1, 1)]))


async def test_large_ids_and_fences_have_the_same_digest_in_the_database(store: Store):
    """As far as both may go: the arithmetic must not run over."""
    attempts = [(2**63 - 1, 2047 * 2**20), (2**62 + 12345, 1), (2**31 - 1, 2**31 - 1)]
    session = await store.register_node(node())
    mixed = holding_of(attempts)

    rows = " UNION ALL ".join(f"SELECT {run_id} AS id, {fence} AS fence" for run_id, fence in attempts)
    term = DIGEST
    ((total,),) = await store.read(f"SELECT sum({term}) FROM ({rows}) AS x")  # type: ignore[attr-defined]

    assert int(total) == mixed.digest
    answer = await store.beat("n1", 0, session=session, held=Holding(0, 0))
    assert answer is not None
    assert not answer.differs


# ── burying ──


async def test_a_node_is_buried_as_it_was_seen_and_what_it_holds_is_told(store: Store):
    session = await store.register_node(node())
    await queue_run(store)
    (claimed,) = await claim(store, "n1", "python", [], 5, session=session)
    lease = await lead(store)

    assert await store.bury_nodes([await seen(store)], lease) == {"n1": {claimed.run_id: claimed.fence}}

    assert (await seen(store)).state == "gone"
    assert await store.beat("n1", 0, session=session) is None


async def test_a_node_that_was_heard_since_it_was_seen_is_not_buried(store: Store):
    await store.register_node(node())
    lease = await lead(store)
    before = await seen(store)
    await store.beat("n1", 0)

    assert await store.bury_nodes([before], lease) == {}
    before = await seen(store)
    await open_line(store, "n1", IDENTITY, "server-2", "line-2")

    assert await store.bury_nodes([before], lease) == {}
    assert (await seen(store)).state == "live"


async def test_nobody_is_buried_by_a_leader_whose_term_is_over(store: Store):
    await store.register_node(node())
    lease = await lead(store)
    await lead(store, "heir")

    assert await store.bury_nodes([await seen(store)], lease) == {}
    assert await store.bury_nodes([await seen(store)], replace(lease, owner="heir")) == {}
    assert (await seen(store)).state == "live"
