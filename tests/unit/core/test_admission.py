"""Who starts and where: against a model that tries everything, and in a line of owners with weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.policy.admission import Admission, Head, admit, large_ones
from horae.core.policy.demands import Demand, Offer, Use
from horae.core.policy.limits import Limit
from horae.core.policy.resources import RESERVE_AFTER, has_turn
from horae.core.policy.resources import Head as Large

from .waiting_line import KIND, WaitingLine

NOW = 1_700_000_000_000_000
KEYS = ("a", "b", "c")


def head(run_id: int, demand: Demand | None = None, *, rank: int = 5, turn: int = 0, **fields: object) -> Head:
    demand = demand or Demand()
    return Head(run_id, rank, turn, KIND, demand_id=hash(demand), demand=demand)._replace(**fields)


def ordinary(run_id: int, rank: int = 5) -> Head:
    return Head(run_id, rank, 0, KIND)


def uses(*keys: str) -> Demand:
    return Demand(tuple(Use(key) for key in sorted(keys)))


def offer(room: int, node: str = "n", **fields: object) -> Offer:
    return Offer(node, None, {KIND: room}, {})._replace(**fields)


def ids(admission: Admission) -> list[int]:
    return [start.run_id for start in admission.starts]


def test_a_limit_lets_in_what_it_has_left():
    heads = [head(number, uses("a")) for number in range(10)]
    assert ids(admit(heads, {"a": 3}, {"a": Limit("a", 5)}, [offer(9)], [], NOW)) == [0, 1]


def test_a_full_limit_holds_nobody_else():
    heads = [head(1, uses("a")), head(2, uses("b")), head(3, uses("a"))]
    assert ids(admit(heads, {"a": 5}, {"a": Limit("a", 5), "b": Limit("b", 1)}, [offer(9)], [], NOW)) == [2]


def test_who_uses_two_limits_waits_for_both_and_holds_neither_meanwhile():
    heads = [head(1, uses("a", "b")), head(2, uses("b"))]
    limits = {"a": Limit("a", 1), "b": Limit("b", 1)}
    assert ids(admit(heads, {"a": 1}, limits, [offer(9)], [], NOW)) == [2]
    assert ids(admit(heads, {}, limits, [offer(9)], [], NOW)) == [1]


def test_more_units_of_a_resource_are_more_of_its_capacity():
    heads = [head(number, Demand((Use("resource:x", 2),))) for number in range(3)]
    assert ids(admit(heads, {}, {"resource:x": Limit("resource:x", 5)}, [offer(9)], [], NOW)) == [0, 1]


def test_a_rate_lets_in_its_burst_and_says_when_the_next_may_come():
    heads = [head(number, uses("r")) for number in range(5)]
    admission = admit(heads, {}, {"r": Limit("r", None, 600_000, 2)}, [offer(9)], [], NOW)
    assert (ids(admission), admission.next_at) == ([0, 1], NOW + 600_000)
    assert admission.moved["r"].ready_at == NOW + 1_200_000
    later = admit(heads[2:], {}, admission.moved, [offer(9)], [], NOW + 600_000)
    assert ids(later) == [2]


def test_a_full_limit_says_no_moment():
    limits = {"r": Limit("r", None, 600_000, 1, NOW + 600_000), "a": Limit("a", 1)}
    assert admit([head(1, uses("r", "a"))], {"a": 1}, limits, [offer(9)], [], NOW).next_at is None


def test_an_ordinary_run_that_comes_first_keeps_its_slot():
    heads = [head(number, uses("a"), rank=5) for number in range(3)]
    first = [ordinary(10, rank=9), ordinary(11, rank=1)]
    admission = admit(heads, {}, {"a": Limit("a", 5)}, [offer(3)], first, NOW)
    assert ids(admission) == [0, 1]
    assert admission.is_cut


def test_the_order_is_rank_then_pass_then_id():
    heads = [head(1, rank=5, turn=9), head(2, rank=5, turn=1), head(3, rank=7, turn=50), head(4, rank=5, turn=1)]
    assert ids(admit(heads, {}, {}, [offer(9)], [], NOW)) == [3, 2, 4, 1]


def test_every_node_gets_one_before_any_gets_two():
    admission = admit([head(n) for n in range(4)], {}, {}, [offer(5, "a"), offer(1, "b"), offer(5, "c")], [], NOW)
    assert Counter(start.offer for start in admission.starts) == {0: 2, 1: 1, 2: 1}


def test_labels_pins_and_kinds_are_kept():
    heads = [
        head(1, needs=frozenset({"gpu"})),
        head(2, pin="b"),
        head(3, kind="shell"),
        head(4, needs=frozenset({"gpu"}), pin="a"),
        head(5),
    ]
    admission = admit(heads, {}, {}, [offer(9, "a"), offer(9, "b", labels=("gpu", "eu"))], [], NOW)
    assert {start.run_id: start.offer for start in admission.starts} == {1: 1, 2: 1, 5: 0}


def test_what_is_past_its_start_deadline_starts_nowhere():
    assert ids(admit([head(1, start_by=NOW), head(2, start_by=NOW + 1)], {}, {}, [offer(9)], [], NOW)) == [2]


def test_slots_and_what_else_is_asked_of_an_agent_must_fit_on_one():
    wide = Demand((), (("cpus", 1500), ("slots", 2)))
    heads = [head(1, wide), head(2, wide), head(3)]
    admission = admit(heads, {}, {}, [offer(3, "a", free={"cpus": 2000}), offer(1, "b")], [], NOW)
    assert {start.run_id: start.offer for start in admission.starts} == {1: 0, 3: 1}


def test_what_lacks_resources_is_not_looked_for_again_at_once():
    graphics = head(1, Demand((), (("gpu", 1),)))
    assert not admit([graphics], {}, {}, [offer(3)], [], NOW).is_cut
    assert admit([graphics, head(2, Demand((), (("gpu", 2),)))], {}, {}, [offer(0, free={"gpu": 1})], [], NOW).is_cut


# ── large runs ──
BIG = Demand((), (("slots", 3),))
LONG_AGO = NOW - RESERVE_AFTER


def kept(run_id: int, demand: Demand = BIG) -> Large:
    return Large(run_id, KIND, demand.asks, (), None, LONG_AGO, (0,))


def test_on_a_node_that_is_kept_nobody_else_gets_what_the_run_needs():
    heads = [head(1, BIG), head(2, uses("a")), head(3, uses("a"))]
    offers = [offer(2, "a"), offer(1, "b")]
    admission = admit(heads, {}, {}, offers, [], NOW, {"a": kept(1)})
    assert {start.run_id: start.offer for start in admission.starts} == {2: 1}
    assert admission.room_left(offers) == [{KIND: 0}, {KIND: 0}]
    assert admission.is_cut


def test_beside_a_run_that_a_node_is_kept_for_others_may_have_the_rest():
    offers = [offer(2, "a", free={"gpu": 3})]
    graphics = Demand((), (("gpu", 2),))
    heads = [head(1, BIG), head(2, graphics), head(3, Demand((), (("gpu", 1),)))]
    admission = admit(heads, {}, {}, offers, [], NOW, {"a": kept(9, graphics)})
    assert ids(admission) == [3]


def test_who_fits_where_it_is_kept_starts_and_the_rest_is_for_all_again():
    offers = [offer(4, "a")]
    admission = admit([head(1, BIG)], {}, {}, offers, [ordinary(5, rank=1)], NOW, {"a": kept(1)})
    assert (ids(admission), admission.kept, admission.room_left(offers)) == ([1], {}, [{KIND: 1}])


def test_only_the_first_of_a_demand_that_has_waited_and_that_no_limit_holds_may_have_a_node_kept():
    held = Demand((Use("a"),), (("slots", 3),))
    heads = [head(1, BIG, due_at=LONG_AGO), head(2, BIG, due_at=LONG_AGO), head(3, held, due_at=LONG_AGO), head(4)]
    found, fronts = large_ones(heads, {"a": 1}, {"a": Limit("a", 1)}, [ordinary(9, rank=1)], NOW)
    assert [one.run_id for one in found] == [1]
    assert has_turn(found[0], fronts)
    assert large_ones([head(1, BIG, due_at=LONG_AGO + 1)], {}, {}, [], NOW) == ([], {})


# ── against everything that could be ──
@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[Head], dict[str, int], dict[str, Limit], list[Offer], list[Head]]:
    limits = {
        key: Limit(key, draw(st.none() | st.integers(0, 4)), draw(st.none() | st.integers(1, 50)),
                   draw(st.integers(1, 3)), NOW + draw(st.integers(-100, 100)))
        for key in KEYS
    }  # fmt: skip
    chosen = draw(st.lists(st.sets(st.sampled_from(KEYS), min_size=1), min_size=1, max_size=4))
    demands = [Demand(tuple(Use(key, draw(st.integers(1, 2))) for key in sorted(keys))) for keys in chosen]
    heads = [
        head(number, draw(st.sampled_from(demands)), rank=draw(st.integers(0, 2)), turn=draw(st.integers(0, 2)),
             pin=draw(st.sampled_from([None, None, "n0"])),
             needs=frozenset(draw(st.sampled_from([(), ("x",)]))))
        for number in range(draw(st.integers(0, 12)))
    ]  # fmt: skip
    first = [ordinary(100 + number, draw(st.integers(0, 2))) for number in range(draw(st.integers(0, 3)))]
    offers = [offer(draw(st.integers(0, 4)), f"n{number}", labels=draw(st.sampled_from([(), ("x",)])))
              for number in range(draw(st.integers(1, 3)))]  # fmt: skip
    return heads, {key: draw(st.integers(0, 4)) for key in KEYS}, limits, offers, first


def model(
    heads: Sequence[Head], usage: Mapping[str, int], limits: Mapping[str, Limit], offers: Sequence[Offer],
    first: Sequence[Head],
) -> list[int]:  # fmt: skip
    """One at a time, each looked at anew from the beginning: the first of all that can start, starts."""
    used, ready = Counter(usage), {key: limit.ready_at for key, limit in limits.items()}
    room = {one.node: one.room[KIND] for one in offers}
    given: Counter[str] = Counter()
    started, passed = [], set()
    for one in sorted([*heads, *first], key=lambda each: (-each.rank, each.turn, each.run_id)):
        terms = [(limits[use.key]._replace(ready_at=ready[use.key]), use) for use in one.demand.uses]
        if one.demand in passed and one.demand_id is not None:
            continue
        if any(
            used[use.key] + use.cost > (10**9 if limit.capacity is None else limit.capacity) for limit, use in terms
        ) or any(limit.free_at(NOW) > NOW for limit, _ in terms):
            passed.add(one.demand)
            continue
        nodes = [o.node for o in offers if room[o.node] and one.pin in (None, o.node) and one.needs <= set(o.labels)]
        if not nodes:
            continue
        node = min(nodes, key=lambda name: (given[name], name))
        room[node] -= 1
        given[node] += 1
        if one.demand_id is None:
            continue
        started.append(one.run_id)
        for limit, use in terms:
            used[use.key] += use.cost
            ready[use.key] = limit.started(NOW).ready_at
    return started


@given(scenes())
def test_admission_is_what_the_model_says(scene):
    heads, usage, limits, offers, first = scene
    assert ids(admit(heads, usage, limits, offers, first, NOW)) == model(heads, usage, limits, offers, first)


@given(scenes())
def test_no_capacity_and_no_room_is_ever_exceeded(scene):
    heads, usage, limits, offers, first = scene
    admission = admit(heads, usage, limits, offers, first, NOW)
    by_id = {one.run_id: one for one in heads}
    used = Counter(usage)
    for start in admission.starts:
        for use in by_id[start.run_id].demand.uses:
            used[use.key] += use.cost
            capacity = limits[use.key].capacity
            assert capacity is None or used[use.key] <= capacity
    for number, count in Counter(start.offer for start in admission.starts).items():
        assert count <= offers[number].room[KIND]
    assert len(set(ids(admission))) == len(admission.starts)


# ── fair shares ──
def test_owners_of_weights_1_2_and_4_start_in_that_ratio():
    line = WaitingLine({"ann": 1, "bob": 2, "cleo": 4})
    for owner in line.weights:
        line.order(owner, 450)
    started: Counter[str] = Counter()
    for _ in range(100):
        started.update(line.claim(7))
        line.finish(7)

    total = sum(started.values())
    assert total == 700
    for owner, weight in line.weights.items():
        assert started[owner] / total == pytest.approx(weight / 7, rel=0.05)


def test_a_fourth_who_joins_starts_with_the_next_claim():
    line = WaitingLine({"ann": 1, "bob": 2, "cleo": 4, "dan": 1})
    for owner in ("ann", "bob", "cleo"):
        line.order(owner, 1000)
    for _ in range(20):
        line.claim(12)
        line.finish(12)
    line.order("dan", 1)
    assert "dan" in line.claim(12)


def test_shares_hold_under_a_limit_too():
    key = Demand((Use("queue:1"),))
    line = WaitingLine({"ann": 1, "bob": 2, "cleo": 4}, {"queue:1": Limit("queue:1", 5)})
    for owner in line.weights:
        line.order(owner, 500, key)
    started: Counter[str] = Counter()
    for _ in range(100):
        started.update(line.claim(20))
        assert len(line.running) == 5
        line.finish(3)
    total = sum(started.values())
    for owner, weight in line.weights.items():
        assert started[owner] / total == pytest.approx(weight / 7, rel=0.05)
