"""What may be started without a look."""

from __future__ import annotations

import random

import pytest

from horae.core.model import SECOND
from horae.core.policy.admission import Head, admit
from horae.core.policy.demands import Demand, Offer, Use
from horae.core.policy.grants import HOLDS, MOST_KNOWN, MOST_POLICIES, Grants, Key, Terms
from horae.core.policy.limits import Limit

NOW = 1_000 * SECOND
UNTIL = NOW + HOLDS


def offer(room: int = 100, **free: int) -> Offer:
    return Offer("n1", None, {"python": room}, free)


def terms(*limits: Limit, asks: tuple[tuple[str, int], ...] = (), cost: int = 1, policy: str = "p") -> Terms:
    demand = Demand(tuple(Use(limit.key, cost) for limit in limits), asks)
    return Terms(demand, {limit.key: limit for limit in limits}, frozenset([policy]), until=UNTIL)


def learned(*seen: Terms, used: dict[str, int] | None = None, running: dict[int, int] | None = None) -> Grants:
    """Demands 1, 2 … of which so much is in use."""
    grants = Grants()
    keys = {key: Key(7, None, limit.ready_at) for one in seen for key, limit in one.limits.items()}
    grants.learn(dict(enumerate(seen, 1)), keys, running or {}, used or {}, NOW)
    return grants


def most(grants: Grants, *offers: Offer) -> dict[int, int]:
    granted, _ = grants.of(offers or [offer()])
    return {grant.demand_id: grant.most for grant in granted}


def test_nothing_is_granted_of_what_nobody_has_seen():
    assert Grants().of([offer()]) == ([], [])


def test_no_more_is_granted_than_is_free_or_there_is_room_for():
    grants = learned(terms(Limit("a", 10)), used={"a": 4})
    assert most(grants) == {1: 6}
    assert most(grants, offer(2)) == {1: 2}
    assert most(learned(terms(Limit("a", 10), cost=4), used={"a": 4})) == {1: 1}
    assert most(learned(terms(Limit("a", 10)), used={"a": 12})) == {}


def test_what_is_free_of_a_key_is_divided_among_those_that_use_it():
    grants = learned(terms(Limit("a", 10)), terms(Limit("a", 10), Limit("b", 3)))
    assert most(grants) == {1: 5, 2: 3}


def test_of_two_that_say_different_things_of_a_key_the_smaller_counts_for_both():
    assert most(learned(terms(Limit("a", 10)), terms(Limit("a", 4), Limit("b")))) == {1: 2, 2: 2}


def test_a_rate_grants_what_is_left_of_its_burst():
    rate = Limit("a", None, SECOND, 5, NOW + 2 * SECOND)
    assert most(learned(terms(rate))) == {1: 3}
    assert most(learned(terms(rate._replace(ready_at=0)))) == {1: 5}
    assert most(learned(terms(rate._replace(ready_at=NOW + 99 * SECOND)))) == {}


def test_of_agents_the_one_with_the_least_decides():
    grants = learned(terms(asks=(("gpu", 2),)), terms(asks=(("gpu", 1), ("cpus", 500))))
    assert most(grants, offer(gpu=9, cpus=9000)) == {1: 2, 2: 4}
    assert most(grants, offer(gpu=9, cpus=9000), offer(gpu=2)) == {}
    assert grants.plenty() == frozenset()


def test_several_slots_are_never_granted():
    assert most(learned(terms(asks=(("slots", 2),)))) == {}


def test_a_claim_leaves_less_and_its_stamp():
    grants = learned(terms(Limit("a", 10, SECOND, 5)), used={"a": 4}, running={1: 4})
    grants.note({1: 3}, {1: 1}, {"a": NOW + 3 * SECOND}, 8, NOW)
    [grant], [bound] = grants.of([offer()])
    assert grant.most == 2  # of the rate; three of the four have ended meanwhile
    assert (bound.stamp, bound.most, bound.period, bound.burst) == (8, 2, SECOND, 5)
    grants.note({1: 2}, {1: 3}, {"a": 0}, 9, NOW)
    assert most(grants) == {1: 5}


def test_terms_of_several_jobs_hold_together_until_they_are_old():
    narrow, wide = terms(Limit("a", 2), policy="narrow"), terms(Limit("a", 9), policy="wide")
    grants = learned(narrow)
    grants.learn({1: wide}, {}, {}, {}, NOW)
    assert [(one.most, one.policies) for one in grants.of([offer()])[0]] == [(2, ["narrow", "wide"])]
    grants.learn({1: wide._replace(until=UNTIL + HOLDS)}, {}, {}, {}, UNTIL)
    assert [(one.most, one.policies) for one in grants.of([offer()])[0]] == [(9, ["wide"])]
    grants.learn({}, {}, {}, {}, UNTIL + HOLDS)
    assert most(grants) == {}


def test_only_so_many_are_remembered():
    grants = learned(*(terms(Limit(f"k{n}", 5)) for n in range(MOST_KNOWN + 9)))
    assert len(most(grants)) == MOST_KNOWN
    grants.note({1: 1}, {}, {"k0": 0}, 8, NOW)  # of one that was forgotten meanwhile
    many = terms(Limit("a", 5))._replace(policies=frozenset(map(str, range(MOST_POLICIES + 1))))
    assert most(learned(many)) == {}


@pytest.mark.parametrize("seed", range(100))
def test_whatever_is_granted_a_look_would_allow(seed: int):
    """All of it together, in whichever order, on whichever agents."""
    chance = random.Random(seed)
    every = [
        Limit(f"k{n}", chance.choice([None, chance.randint(1, 30)]), chance.choice([None, SECOND]),
              chance.randint(1, 20), NOW + chance.randint(-5, 25) * SECOND)
        for n in range(4)
    ]  # fmt: skip
    seen = [
        terms(*chance.sample(every, chance.randint(0, 3)), cost=chance.randint(1, 3),
              asks=chance.choice([(), (("gpu", chance.randint(1, 3)),)]))
        for _ in range(5)
    ]  # fmt: skip
    used = {limit.key: chance.randint(0, 10) for limit in every}
    offers = [Offer(f"n{n}", None, {"python": 200}, {"gpu": chance.randint(0, 30)}) for n in range(2)]
    granted = most(learned(*seen, used=used), *offers)
    heads = [
        Head(number * 1000 + nth, 5, chance.randint(0, 99), "python", pin=chance.choice(["n0", "n1", None]),
             demand_id=number, demand=seen[number - 1].demand)
        for number, runs in granted.items() for nth in range(min(runs, 60))
    ]  # fmt: skip
    limits = {limit.key: limit for limit in every}
    assert len(admit(heads, used, limits, offers, [], NOW).starts) == len(heads)
