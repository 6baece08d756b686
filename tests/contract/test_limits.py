"""Runs that demand more than a slot: limits are never exceeded, and nothing leaks; on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from horae.core.definitions import Submission
from horae.core.model import (
    SECOND,
    ConcurrencyLimit,
    Overlap,
    Phase,
    Policy,
    RateLimit,
    RunFilter,
    State,
)
from horae.core.policy.demands import Demand, Offer, Use, Whose, demand_of
from horae.core.policy.limits import why_waiting
from horae.core.policy.queues import Queue
from horae.core.policy.resources import RESERVE_AFTER
from horae.core.runs.orders import Assignment, Claimed, NewRun, Order, Result, Waiting, Want
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.service.cluster.coordination import Cluster
from horae.service.execution import Execution
from horae.service.metrics import Metrics
from horae.stores.parts import limits as parts
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock, changed, make_job

from ..unit.service.parts import node

DEFAULT = Queue(0, "default")
KINDS = ("python", "shell", "sync", "git_java")
DAY = 86_400 * SECOND
FIVE = Policy(concurrency_limits=(ConcurrencyLimit(5),))
ONE = Policy(concurrency_limits=(ConcurrencyLimit(1),))


async def define(store: Store, policy: Policy = FIVE, job_id: int = 1, **fields: Any) -> None:
    await store.submit([Submission([make_job(job_id, policy=policy, **fields)])])


async def order(
    store: Store, count: int = 1, policy: Policy = FIVE, *, job_id: int = 1, queue: Queue = DEFAULT, data: Any = None,
    resources: Sequence[tuple[str, int]] = (), asks: Sequence[tuple[str, int]] = (), kind: str = "python",
    **fields: Any,
) -> list[int]:  # fmt: skip
    """Make runs that demand what the policy of their job says."""
    demand = demand_of(policy, queue, Whose(job_id, "local", queue.id), data, asks, resources)
    assert demand is not None
    [demand_id] = await store.demand_ids([demand])
    new = NewRun(job_id=job_id, kind=kind, priority=5, overlap=Overlap.ALLOW, queue=queue.id, demand=demand_id)
    new = replace(new, **fields)
    return [receipt.ids[0] for receipt in await store.enqueue([Order(new) for _ in range(count)])]


def offer(room: int = 100, name: str = "n1", *, kind: str = "python", **fields: Any) -> Offer:
    return Offer(name, None, {kind: room}, {})._replace(**fields)


async def start(store: Store, *offers: Offer) -> list[Assignment]:
    claimed = await store.claim_demanding(offers or [offer()])
    return [one for each in claimed.given for one in each or ()]


async def beside(store: Store, *offers: Offer) -> list[Assignment]:
    """Start what goes with ordinary runs."""
    claimed = await store.claim_beside(offers or [offer()])
    return [one for each in claimed.given for one in each or ()]


def ids(claimed: Sequence[Assignment]) -> list[int]:
    return [one.run_id for one in claimed]


def done(one: Assignment, state: State = State.SUCCEEDED) -> Result:
    return Result(one.run_id, one.fence, state, finished_at=START)


async def blocked(store: Store) -> list[int]:
    return sorted(run.id for run in (await store.list_runs(RunFilter(states=(State.BLOCKED,)), None, 1000)).items)


async def running(store: Store) -> list[int]:
    return sorted(run.id for run in (await store.list_runs(RunFilter(states=(State.RUNNING,)), None, 1000)).items)


# ── demands ──
async def test_equal_demands_have_one_id_and_others_another(store: Store):
    one, other = Demand((Use("a"), Use("b", 2))), Demand((Use("a"),), (("cpus", 500),))
    first = await store.demand_ids([one, other, one])
    assert first[0] == first[2] != first[1]
    assert await store.demand_ids([other, one]) == [first[1], first[0]]


async def test_demands_that_nobody_has_are_dropped_when_nobody_asked_for_long(store: Store, clock: FakeClock):
    await define(store)
    [waits] = await order(store)
    unused, wanted = Demand((Use("unused"),)), Demand((Use("wanted"),))
    await store.demand_ids([unused])
    await store.demand_ids([wanted])
    clock.advance(2 * 86_400)
    await store.demand_ids([wanted])

    assert await store.drop_demands(clock() - DAY, 100) == 2  # the demand, and its key
    assert await store.drop_demands(clock() - DAY, 100) == 0
    assert ids(await start(store)) == [waits]


async def test_the_key_of_a_rate_that_is_not_ready_yet_is_kept(store: Store, clock: FakeClock):
    policy = Policy(rate_limits=(RateLimit("1/day", 3),))
    await define(store, policy)
    await order(store, 3, policy)
    for one in await start(store):
        await store.finish([done(one)])
    clock.advance(2 * 86_400)
    assert await store.drop_demands(clock() - DAY, 100) == 1  # the demand alone: its key is ready in a day
    await order(store, 3, policy)
    assert len(await start(store)) == 2


# ── what runs at once ──
async def test_a_limit_is_never_exceeded_and_what_ends_makes_room(store: Store):
    await define(store)
    made = await order(store, 12)

    first = await start(store)
    assert ids(first) == made[:5]
    assert await start(store) == []
    await store.finish([done(first[0]), done(first[3], State.FAILED)])
    assert ids(await start(store)) == made[5:7]


async def test_a_started_run_is_as_a_claimed_one(store: Store, clock: FakeClock):
    await define(store)
    [made] = await order(store, data={"a": 1}, start_by=clock() + SECOND)

    [one] = await start(store)

    assert (one.run_id, one.fence, one.attempt, one.job_id, one.kind, one.owner) == (made, 1, 1, 1, "python", "local")
    run = await store.get_run(made)
    assert run is not None
    assert (run.state, run.node, run.reason, run.phase) == (State.RUNNING, "n1", "", Phase.RUNNING)
    assert run.started_at == clock()
    assert (await store.finish([done(one)])).accepted == {made}


async def test_nothing_waits_when_nothing_demands(store: Store):
    await define(store)
    await store.enqueue([Order(NewRun(1, "python", 5, Overlap.ALLOW))])
    assert await store.claim_demanding([offer()]) == Claimed([[]], [{"python": 100}])


async def test_a_lost_attempt_gives_back_what_it_had(store: Store):
    await define(store, ONE)
    await order(store, 2, ONE)
    [first] = await start(store)
    lost = Result(first.run_id, first.fence, State.FAILED, "lost", finished_at=START)
    await store.finish([], [Waiting(lost, None, lost=True)])
    assert len(await start(store)) == 1


async def test_a_cancelled_attempt_gives_back_what_it_had(store: Store):
    await define(store, ONE)
    _, second = await order(store, 2, ONE)
    [first] = await start(store)
    await store.cancel([first.run_id], "requested")
    assert await start(store) == []  # it still runs
    await store.finish([done(first, State.CANCELLED)])
    assert ids(await start(store)) == [second]


async def test_a_waiting_run_that_is_cancelled_never_starts(store: Store):
    await define(store)
    first, second = await order(store, 2)
    await store.cancel([first], "requested")
    assert ids(await start(store)) == [second]


async def test_a_retry_takes_its_units_again(store: Store, clock: FakeClock):
    await define(store, ONE)
    await order(store, 1, ONE)
    [one] = await start(store)
    await store.finish([], [Waiting(done(one, State.FAILED), clock() + SECOND)])
    others = await order(store, 1, ONE)
    assert ids(await start(store)) == others


async def test_keys_of_the_data_are_counted_each_for_itself(store: Store):
    policy = Policy(concurrency_limits=(ConcurrencyLimit(2, "data.tenant"),))
    await define(store, policy)
    acme = await order(store, 5, policy, data={"tenant": "acme"})
    bolt = await order(store, 1, policy, data={"tenant": "bolt"})
    none = await order(store, 3, policy, data={})
    assert sorted(ids(await start(store))) == [*acme[:2], *bolt, *none[:2]]


async def test_two_limits_hold_at_once(store: Store):
    policy = Policy(concurrency_limits=(ConcurrencyLimit(2, "data.tenant"), ConcurrencyLimit(3, "owner")))
    await define(store, policy)
    acme = await order(store, 5, policy, data={"tenant": "acme"})
    bolt = await order(store, 5, policy, data={"tenant": "bolt"})
    started = await start(store)
    assert sorted(ids(started)) == [*acme[:2], bolt[0]]
    await store.finish([done(started[0])])
    assert ids(await start(store)) == [acme[2]]


async def test_jobs_of_one_owner_share_its_limit(store: Store):
    policy = Policy(concurrency_limits=(ConcurrencyLimit(2, "owner"),))
    await define(store, policy)
    await define(store, policy, 2)
    one, other = await order(store, 2, policy), await order(store, 2, policy, job_id=2)
    assert ids(await start(store)) == one
    assert await start(store) == []
    assert other


async def test_a_limit_that_is_raised_or_taken_away_holds_for_what_waits(store: Store):
    await define(store, ONE)
    made = await order(store, 9, ONE)
    assert len(await start(store)) == 1
    job = make_job(1, policy=FIVE)
    assert await store.save_job(changed(job), 1)
    assert len(await start(store)) == 4
    assert await store.save_job(changed(changed(job), policy=Policy()), 2)
    assert len(await start(store)) == len(made) - 5


async def test_a_resource_of_the_cluster_is_counted_by_units(store: Store):
    await store.set_resource("license-x", 5)
    await define(store, Policy())
    made = await order(store, 4, Policy(), resources=[("license-x", 2)])
    first = await start(store)
    assert ids(first) == made[:2]
    await store.set_resource("license-x", 6)
    assert await store.load_resources() == {"license-x": 6}
    assert ids(await start(store)) == made[2:3]
    assert await store.drop_resource("license-x")
    assert not await store.drop_resource("license-x")
    assert await store.load_resources() == {}
    assert ids(await start(store)) == made[3:]


# ── resources of agents, and large runs ──
async def test_a_run_gets_an_agent_that_has_what_it_asks_for_and_as_many_slots(store: Store):
    await define(store, Policy())
    wide = await order(store, 2, Policy(), asks=[("slots", 2)])
    graphics = await order(store, 2, Policy(), asks=[("gpu", 1)])
    offers = [offer(3, "n1"), offer(1, "n2", free={"gpu": 1})]
    claimed = await store.claim_demanding(offers)
    assert [ids(each or ()) for each in claimed.given] == [wide[:1], graphics[:1]]
    assert claimed.room == [{"python": 1}, {"python": 0}]
    assert ids(await start(store, offer(2, "n3", free={"gpu": 0, "cpus": 4000}))) == wide[1:]


async def stand(store: Store, clock: FakeClock, *slots: int) -> tuple[int, list[int]]:
    """A run of three slots that has waited for long, and ordinary ones behind it; nodes that have so many slots."""
    for number, each in enumerate(slots, 1):
        await store.register_node(node(f"n{number}", slots=each))
    await define(store, Policy())
    [large] = await order(store, 1, Policy(), asks=[("slots", 3)])
    clock.advance(RESERVE_AFTER / SECOND)
    small = [receipt.ids[0] for receipt in await store.enqueue([Order(NewRun(1, "python", 5, Overlap.ALLOW))] * 9)]
    return large, small


async def test_an_agent_is_kept_for_a_large_run_that_has_waited(store: Store, clock: FakeClock):
    large, _ = await stand(store, clock, 4, 4, 2)

    claimed = await store.claim_demanding([offer(2, "n1"), offer(2, "n2"), offer(2, "n3")])

    assert claimed.given == [[], [], []]
    assert claimed.room == [{"python": 0}, {"python": 2}, {"python": 2}]  # one is kept, and one that could ever run it
    assert claimed.is_cut
    assert ids(await start(store, offer(3, "n1"))) == [large]
    assert (await store.claim_demanding([offer(2, "n1")])).room == [{"python": 2}]


async def test_nothing_is_kept_for_a_run_that_has_not_waited_or_whose_turn_it_is_not(store: Store, clock: FakeClock):
    await store.register_node(node("n1"))
    await define(store, Policy())
    await store.enqueue([Order(NewRun(1, "python", 5, Overlap.ALLOW))])
    await order(store, 1, Policy(), asks=[("slots", 3)])
    assert (await store.claim_demanding([offer(2)])).room == [{"python": 2}]
    clock.advance(RESERVE_AFTER / SECOND)
    assert (await store.claim_demanding([offer(2)])).room == [{"python": 2}]  # an ordinary one comes first
    [first] = (await store.claim([Want("n1", "python", 1)], ()))[0] or ()
    clock.advance(2)
    assert (await store.claim_demanding([offer(3)])).given[0]
    assert first.attempt == 1


async def test_among_endless_small_runs_a_large_one_starts_when_what_runs_has_ended(store: Store, clock: FakeClock):
    large, _ = await stand(store, clock, 4)
    execution, agent = Execution(store, LocalQueue(), clock, Metrics()), node("n1")
    busy = (await store.claim([Want("n1", "python", 4)], ()))[0] or ()
    for free, ended in enumerate(busy[:2], 1):
        await execution.finish([done(ended)])
        assert await execution.claim(agent, {"python": free}) == []
    await execution.finish([done(busy[2])])
    assert ids(await execution.claim(agent, {"python": 3})) == [large]


async def test_what_was_handed_back_unbegun_is_no_attempt(store: Store):
    await define(store, Policy())
    [made] = await order(store, 1, Policy(), asks=[("gpu", 1)])
    [one] = await start(store, offer(free={"gpu": 1}))
    refused = replace(done(one, State.FAILED), reason="limit", message="less is free")
    assert (await store.finish([], [Waiting(refused, START, begun=False)])).accepted == {made}
    run = await store.get_run(made)
    assert run is not None
    assert (run.state, run.reason, run.attempt, run.lost, run.message) == (State.BLOCKED, "retry", 0, 0, "less is free")
    assert await store.list_attempts(made) == []
    await store.sweep()
    [again] = await start(store, offer(free={"gpu": 1}))
    assert (again.attempt, again.fence > one.fence) == (1, True)


# ── queues ──
async def make_queue(store: Any, id_: int, document: str = "{}", *, state: str = "open", offset: int = 0,
                     labels: str | None = None) -> None:  # fmt: skip
    quoted = "NULL" if labels is None else f"'{labels}'"
    text = (
        "INSERT INTO queues (id, name, state, priority_offset, labels, document, version, created_at, updated_at) "
        f"VALUES ({id_}, 'q{id_}', '{state}', {offset}, {quoted}, '{document}', 1, 0, 0)"
    )
    await store.write(text)


async def test_a_queue_limits_how_much_of_it_runs_at_once(store: Store):
    await make_queue(store, 3, '{"concurrency": 2}')
    await define(store, Policy())
    made = await order(store, 5, Policy(), queue=Queue(3, "q3", concurrency=2))
    assert ids(await start(store)) == made[:2]
    await store.write("UPDATE queues SET document = '{\"concurrency\": 3}' WHERE id = 3")  # type: ignore[attr-defined]
    assert ids(await start(store)) == made[2:3]


async def test_what_demands_more_than_a_slot_is_taken_from_queues_of_its_organisation_alone(store: Store):
    await make_queue(store, 3, '{"concurrency": 2, "org": 7}')
    await define(store, Policy())
    own = await order(store, 1, Policy(), queue=Queue(3, "q3", concurrency=2))
    await order(store, 1, FIVE)
    assert ids(await start(store, offer(labels=("org=8",)))) == []
    assert ids(await start(store, offer(labels=("org=7",)))) == own


async def test_a_queue_limits_how_fast_it_is_started(store: Store, clock: FakeClock):
    await make_queue(store, 3, '{"rate": "10/s", "burst": 2}')
    await define(store, Policy())
    made = await order(store, 5, Policy(), queue=Queue(3, "q3", rate="10/s", burst=2))
    assert ids(await start(store)) == made[:2]
    clock.advance(0.1)
    assert ids(await start(store)) == made[2:3]


async def test_nothing_starts_from_a_paused_queue(store: Store):
    await make_queue(store, 3, state="paused")
    await define(store)
    await order(store, 5, queue=Queue(3, "q3"))
    plain = await order(store, 1)
    assert ids(await start(store)) == plain


async def test_a_queue_with_an_offset_goes_first_and_one_with_labels_goes_to_who_has_them(store: Store):
    await make_queue(store, 3, offset=3)
    labels = '{"gpu"}' if isinstance(store, PostgresStore) else '["gpu"]'
    await make_queue(store, 4, offset=9, labels=labels)
    await define(store)
    policy = Policy(concurrency_limits=(ConcurrencyLimit(5, "queue"),))
    await define(store, policy, 2)
    plain = await order(store, 1, policy, job_id=2, priority=7)
    lifted = await order(store, 1, policy, job_id=2, queue=Queue(3, "q3"))
    labelled = await order(store, 1, policy, job_id=2, queue=Queue(4, "q4"))
    assert ids(await start(store, offer(1))) == lifted
    assert ids(await start(store, offer(1, labels=("gpu",)))) == labelled
    assert ids(await start(store, offer(1))) == plain


# ── rates ──
async def test_a_rate_is_kept_over_restarts(store: Store, clock: FakeClock):
    policy = Policy(rate_limits=(RateLimit("100/min", 10),))
    await define(store, policy)
    made = await order(store, 30, policy)

    claimed = await store.claim_demanding([offer()])
    assert claimed.given[0] is not None
    assert ids(claimed.given[0]) == made[:10]
    assert claimed.wait == pytest.approx(0.6)
    clock.advance(0.599_999)
    assert await start(store) == []
    clock.advance(0.000_001)
    assert ids(await start(store)) == made[10:11]  # the store has nothing in memory that could be forgotten
    clock.advance(3600)
    assert ids(await start(store)) == made[11:21]


async def test_two_rates_hold_at_once(store: Store, clock: FakeClock):
    policy = Policy(rate_limits=(RateLimit("10/s", 5), RateLimit("60/min", 8)))
    await define(store, policy)
    await order(store, 30, policy)
    assert len(await start(store)) == 5
    clock.advance(1)
    assert len(await start(store)) == 4  # 8 + 1 in all
    clock.advance(1)
    assert len(await start(store)) == 1


# ── order and room ──
async def test_the_order_is_priority_then_pass(store: Store):
    policy = Policy(concurrency_limits=(ConcurrencyLimit(2, "owner"),))
    await define(store, policy)
    await define(store, ONE, 2)
    low, high = await order(store, 1, policy, priority=1), await order(store, 2, policy, priority=9)
    other = await order(store, 1, ONE, job_id=2, priority=5)
    assert ids(await start(store, offer(2))) == high
    assert ids(await start(store)) == other
    assert low


async def test_an_ordinary_run_that_comes_first_finds_its_slot(store: Store):
    await define(store)
    ordinary = [r.ids[0] for r in await store.enqueue([Order(NewRun(1, "python", 9, Overlap.ALLOW))] * 2)]
    made = await order(store, 5)

    assert ids(await start(store, offer(3))) == made[:1]
    (claimed,) = await store.claim([Want("n1", "python", 2)])
    assert claimed is not None
    assert sorted(ids(claimed)) == ordinary


async def test_pins_labels_kinds_and_start_deadlines_are_kept(store: Store, clock: FakeClock):
    await define(store)
    pinned = await order(store, 1, pin="n2")
    choosy = await order(store, 1, needs=("gpu",))
    await order(store, 1, kind="shell")
    await order(store, 1, start_by=clock())
    assert await start(store) == []
    assert sorted(ids(await start(store, offer(name="n2"), offer(name="n3", labels=("eu", "gpu"))))) == [
        *pinned,
        *choosy,
    ]


async def test_every_node_gets_one_before_any_gets_two(store: Store):
    await define(store)
    await order(store, 4)
    claimed = await store.claim_demanding([offer(3, "a"), offer(1, "b"), offer(3, "c")])
    assert [len(each or ()) for each in claimed.given] == [2, 1, 1]


async def test_more_demands_than_one_claim_looks_at_all_have_their_turn(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parts, "DEMANDS_AT_ONCE", 3)
    policy = Policy(concurrency_limits=(ConcurrencyLimit(1, "data.tenant"),))
    await define(store, policy)
    for tenant in range(8):
        await order(store, 2, policy, data={"tenant": tenant})
    started: list[int] = []
    for _ in range(6):
        started += ids(await start(store))
    assert len(started) == 8


# ── sessions, standing by, failover ──
async def test_an_offer_of_a_line_that_is_over_gets_nothing(store: Store):
    await define(store)
    made = await order(store, 2)
    old = await store.register_node(node("n1"))
    new = await store.register_node(node("n1"))
    claimed = await store.claim_demanding([offer(1, session=old), offer(1, session=new)])
    assert claimed.given[0] is None
    assert claimed.given[1] is not None
    assert ids(claimed.given[1]) == made[:1]


async def test_a_node_that_stands_by_gets_only_what_is_pinned_to_it(store: Store):
    await define(store)
    await order(store, 1)
    pinned = await order(store, 1, pin="n2")
    await store.register_node(node("n1"))
    lease = await store.take_lease("leader", "n1", None)
    assert lease is not None
    await store.assign_segments({0: "n1"}, lease)
    claimed = await store.claim_demanding([offer(name="n2")], standby="n2")
    assert [ids(each or ()) for each in claimed.given] == [pinned]
    assert len((await store.claim_demanding([offer()], standby="n1")).given[0] or ()) == 1


async def test_nothing_starts_while_a_failover_is_in_doubt(postgres_store: PostgresStore):
    await define(postgres_store)
    await order(postgres_store, 1)
    postgres_store._past.note_timeline(2, 0.0)
    postgres_store._past.met_at = time.monotonic()
    claimed = await postgres_store.claim_demanding([offer()])
    assert (claimed.given, claimed.is_waiting) == ([[]], True)
    postgres_store._past.met_at = float("-inf")
    [one] = await start(postgres_store)
    assert one.fence > 2**20


# ── what nobody can run, and what comes back ──
async def test_runs_held_by_limits_fail_if_nobody_has_their_kind(store: Store):
    await define(store)
    await define(store, ONE, 2)
    kept = await order(store, 30)
    behind = await order(store, 3, kind="cobol", priority=1)  # not among the first of their demand
    doomed = await order(store, 30, ONE, job_id=2, kind="ada")
    outside = await order(store, 1, ONE, job_id=2, kind="ada", pin="@worker")

    assert await store.fail_unrunnable(["python"], "nobody can", {"ada": "install gnat"}) == 33
    assert await store.fail_unrunnable(["python"], "nobody can", {}) == 0
    run = await store.get_run(doomed[-1])
    assert run is not None
    assert (run.state, run.reason, run.message) == (State.FAILED, "no_agent", "nobody can: install gnat")
    states = [(await store.get_run(id_)).state for id_ in (behind[0], outside[0], kept[0])]  # type: ignore[union-attr]
    assert states == [State.FAILED, State.BLOCKED, State.BLOCKED]


async def test_of_many_that_are_held_by_limits_all_are_looked_at_in_some_rounds(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(parts, "LOOKED_THROUGH", 10)
    monkeypatch.setattr(parts, "ROWS_AT_ONCE", 4)
    await define(store)
    kept = await order(store, 60)
    doomed = [run_id for _ in range(3) for run_id in (*await order(store, 5, kind="ada", priority=1),)]
    last = await order(store, 30, priority=1)
    late = await order(store, 1, kind="ada", priority=0)

    failed = [await store.fail_unrunnable(["python"], "nobody can", {}) for _ in range(25)]
    assert sum(failed) == 16
    assert max(failed) <= 4
    for run_id in (*doomed, *late):
        assert (await store.get_run(run_id)).state is State.FAILED  # type: ignore[union-attr]
    assert len(await start(store, offer(100))) == 5
    assert len(kept) + len(last) == len(await blocked(store)) + 5


async def test_the_sweep_says_how_many_of_those_it_released_demand_more_than_a_slot(store: Store, clock: FakeClock):
    await define(store)
    await define(store, Policy(), 2)
    [made] = await order(store)
    [one] = await start(store)
    await store.finish([], [Waiting(done(one, State.FAILED), START + SECOND)])
    await store.enqueue([Order(NewRun(2, "python", 5, Overlap.ALLOW), run_at=START + SECOND)])
    demand_id = (await store.demand_ids([Demand((Use("a"),))]))[0]
    await store.enqueue([Order(NewRun(1, "python", 5, Overlap.ALLOW, demand=demand_id), run_at=START + SECOND)])
    clock.advance(2)

    swept = await store.sweep()

    assert (swept.queued, swept.demanding) == (3, 2)
    assert made in ids(await start(store))


async def test_a_finish_says_whether_a_successor_demands_more_than_a_slot(store: Store):
    for job_id, policy in ((1, FIVE), (2, Policy())):
        await define(store, replace(policy, overlap=Overlap.QUEUE), job_id)
    demanding = await order(store, 2, overlap=Overlap.QUEUE)
    plain = NewRun(2, "python", 5, Overlap.QUEUE)
    await store.enqueue([Order(plain), Order(plain)])
    [one] = await start(store)
    [[other]] = await store.claim([Want("n1", "python", 1)])  # type: ignore[misc]

    first, second = await store.finish([done(one)]), await store.finish([done(other)])

    assert (first.promoted, first.demanding, second.promoted, second.demanding) == (1, 1, 1, 0)
    assert ids(await start(store)) == demanding[1:]


# ── what people see ──
async def test_limits_are_shown_as_they_stand(store: Store):
    policy = Policy(concurrency_limits=(ConcurrencyLimit(2, "data.tenant"),), rate_limits=(RateLimit("100/min", 3),))
    await define(store, policy)
    made = await order(store, 5, policy, data={"tenant": "acme"})
    await start(store)

    at_once, rate = await store.load_limits()

    assert (at_once.limit.key, at_once.limit.capacity) == ('at_once:data.tenant:"acme":local', 2)
    assert (at_once.used, at_once.waiting, at_once.runs) == (2, 3, tuple(made[:2]))
    assert (rate.rate, rate.waiting, rate.next_at(START)) == ("100/min", 3, START)
    assert await store.load_limits(made[0]) == []  # it runs
    states = await store.load_limits(made[4])
    assert why_waiting(states, START, str) == (f"2 of 2 run with tenant acme: runs {made[0]}, {made[1]}", None)


async def test_a_run_that_waits_for_a_rate_says_until_when(store: Store):
    policy = Policy(rate_limits=(RateLimit("100/min", per="owner"),))
    await define(store, policy)
    made = await order(store, 2, policy)
    await start(store)
    words = f"waits for the rate 100/min of owner local: next at {START + 600_000}"
    assert why_waiting(await store.load_limits(made[1]), START, str) == (words, START + 600_000)


async def test_a_resource_of_the_cluster_is_shown_with_its_units(store: Store):
    await store.set_resource("license-x", 3)
    await define(store, Policy())
    made = await order(store, 2, Policy(), resources=[("license-x", 2)])
    await start(store)
    [state] = await store.load_limits(made[1])
    assert (state.limit.capacity, state.used, state.waiting) == (3, 2, 1)
    words = f"2 of 3 are in use of resource license-x, and it wants 2: runs {made[0]}"
    assert why_waiting([state], START, str) == (words, None)


# ── through the service ──
async def test_an_agent_gets_what_its_limits_allow_and_the_end_of_one_wakes_it_for_the_next(store: Store):
    queue, agent = LocalQueue(), node("n1")
    execution, woken = Execution(store, queue, FakeClock(), Metrics()), queue.watch("runs")
    await define(store)
    ordinary = [r.ids[0] for r in await store.enqueue([Order(NewRun(1, "python", 5, Overlap.ALLOW))] * 2)]
    made = await order(store, 8)

    first = await execution.claim(agent, {"python": 10})
    assert sorted(ids(first)) == [*ordinary, *made[:5]]
    assert not woken.is_due
    await execution.finish([done(one) for one in first if one.run_id == made[0]])
    assert woken.is_due
    assert ids(await execution.claim(agent, {"python": 10})) == made[5:6]


async def test_what_limits_hold_takes_no_room_from_ordinary_runs(store: Store):
    await define(store, ONE)
    await order(store, 5, ONE)
    ordinary = [r.ids[0] for r in await store.enqueue([Order(NewRun(1, "python", 1, Overlap.ALLOW))] * 5)]
    execution = Execution(store, LocalQueue(), FakeClock(), Metrics())
    claimed = await execution.claim(node("n1"), {"python": 4})
    assert len(claimed) == 4
    assert len(set(ids(claimed)) & set(ordinary)) == 3


# ── many at once ──
async def test_many_claims_at_once_never_exceed_a_limit(store: Store):
    await define(store)
    for kind in KINDS:
        await order(store, 10, kind=kind)
    offers = [offer(10, f"n{number}", kind=KINDS[number % 4]) for number in range(12)]
    answers = await asyncio.gather(*(start(store, one) for one in offers))
    assert sum(map(len, answers)) == 5
    assert len(await running(store)) == 5


async def test_twelve_claimers_of_one_key_of_five_never_start_six(postgres_url: str):
    await compete(postgres_url, seconds=5.0)


async def compete(url: str, seconds: float) -> None:
    """Twelve processes' worth of claimers start and finish runs of overlapping keys, while somebody counts. They are of
    different kinds of work, so that no two of them have to choose the same runs: only the lock keeps them apart."""
    policy = Policy(concurrency_limits=(ConcurrencyLimit(5), ConcurrencyLimit(3, "data.tenant")))
    stores = [PostgresStore(url) for _ in range(12)]
    for one in stores:
        await one.open()
    await define(stores[0], policy)
    for tenant in range(4):
        for kind in KINDS:
            await order(stores[0], 300, policy, data={"tenant": tenant}, kind=kind)
    deadline = time.monotonic() + seconds
    finished: Counter[str] = Counter()

    async def work(number: int) -> None:
        chance, store = random.Random(number), stores[number]
        while time.monotonic() < deadline:
            asked = offer(chance.randint(1, 8), f"n{number}", kind=KINDS[number % 4])
            held = await (beside if chance.random() < 0.7 else start)(store, asked)
            assert len(held) <= 5
            await asyncio.sleep(chance.random() / 200)
            await store.finish([done(one) for one in held])
            finished[f"n{number}"] += len(held)

    async def watch() -> int:
        connection = await asyncpg.connect(url)
        seen = 0
        while time.monotonic() < deadline:
            by_demand = await connection.fetch("SELECT demand, count(*) FROM live WHERE state = 1 GROUP BY demand")
            assert sum(row[1] for row in by_demand) <= 5
            assert all(row[1] <= 3 for row in by_demand)
            seen = max(seen, sum(row[1] for row in by_demand))
        await connection.close()
        return seen

    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())
            for number in range(12):
                group.create_task(work(number))
    finally:
        for one in stores:
            with contextlib.suppress(Exception):
                await one.close()
    assert watching.result() == 5
    assert sum(finished.values()) > 20 * seconds


async def test_a_successor_that_demands_more_than_a_slot_is_looked_for_at_once(store: Store):
    queue, agent = LocalQueue(), node("n1")
    watch = FakeClock()
    execution, news = Execution(store, queue, watch, Metrics()), queue.watch("limits")
    await define(store, replace(FIVE, overlap=Overlap.QUEUE))
    made = await order(store, 2, overlap=Overlap.QUEUE)
    [first] = await execution.claim(agent, {"python": 4})
    watch.advance(2)
    assert await execution.claim(agent, {"python": 4}) == []  # nothing waits for limits, as far as it knows
    await news.wait(0)

    await execution.finish([done(first)])

    assert await news.wait(0)
    assert ids(await execution.claim(agent, {"python": 4})) == made[1:]


async def test_the_sweep_has_what_it_released_looked_for_at_once(store: Store, clock: FakeClock):
    queue = LocalQueue()
    execution, news = Execution(store, queue, clock, Metrics()), queue.watch("limits")
    cluster = Cluster(
        store, queue, clock, execution, node="s1", lease_seconds=15.0, dead_after=30.0, is_exclusive=True
    )  # fmt: skip
    await define(store)
    await order(store)
    [one] = await start(store)
    await store.finish([], [Waiting(done(one, State.FAILED), START + SECOND)])
    await news.wait(0)
    clock.advance(2)

    await cluster.sweep()

    assert await news.wait(0)
