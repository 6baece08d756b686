"""Rates and demands: arithmetic alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.model import SECOND, ConcurrencyLimit, Policy, RateLimit
from horae.core.policy.demands import (
    LONGEST,
    Demand,
    Use,
    Whose,
    demand_from_text,
    demand_of,
    limits_of,
    reads_data,
    rule_of,
)
from horae.core.policy.limits import UNITS, Limit, parse_rate
from horae.core.policy.queues import Queue
from horae.errors import Invalid

NOW = 1_700_000_000 * SECOND
DEFAULT = Queue(0, "default")
ANN = Whose(job_id=12, owner="ann", queue=0)


# ── rates ──
@pytest.mark.parametrize(
    ("text", "period"),
    [("100/min", 600_000), ("5/s", 200_000), ("1000/h", 3_600_000), ("1/day", 86_400 * SECOND), ("7/s", 142_858)],
)
def test_a_rate_is_whole_microseconds_and_never_too_short(text: str, period: int):
    assert parse_rate(text).period == period
    assert str(parse_rate(text)) == text


@pytest.mark.parametrize(
    "text", ["", "5", "5/", "/s", "0/s", "-1/s", "1.5/s", "5/m", "5 / s", "5/s ", "05/s", "5/week"]
)
def test_what_is_no_rate_is_refused(text: str):
    with pytest.raises(Invalid, match="such as 100/min"):
        parse_rate(text)


def test_more_than_one_start_in_a_microsecond_is_refused():
    assert parse_rate("1000000/s").period == 1
    for text in ("1000001/s", "60000001/min"):
        with pytest.raises(Invalid, match="at most 1000000/s"):
            parse_rate(text)


def starts(limit: Limit, arrivals: list[int]) -> list[int]:
    """Who comes and is let in."""
    let_in = []
    for at in arrivals:
        if limit.free_at(at) <= at:
            limit = limit.started(at)
            let_in.append(at)
    return let_in


@given(
    st.integers(1, 50), st.sampled_from(sorted(UNITS)), st.integers(1, 20),
    st.lists(st.integers(0, 3 * SECOND), min_size=1, max_size=80),
)  # fmt: skip
def test_no_window_ever_has_more_starts_than_burst_and_rate_allow(count: int, unit: str, burst: int, gaps: list[int]):
    rate = parse_rate(f"{count}/{unit}")
    at, arrivals = NOW, []
    for gap in gaps:
        at += gap
        arrivals.append(at)

    let_in = starts(Limit("k", None, rate.period, burst), arrivals)

    for first, began in enumerate(let_in):
        for last in range(first, len(let_in)):
            window = let_in[last] - began
            assert (last - first + 1 - burst) * UNITS[unit] <= window * count


@given(st.integers(1, 1000), st.integers(1, 20))
def test_whoever_always_comes_as_soon_as_may_be_has_the_whole_rate(count: int, burst: int):
    limit = Limit("k", None, parse_rate(f"{count}/min").period, burst)
    at, let_in = NOW, 0
    while at < NOW + UNITS["min"]:
        at = limit.free_at(at)
        limit = limit.started(at)
        let_in += 1

    assert count * 0.95 + burst - 1 <= let_in <= count + burst + 1


def test_a_burst_comes_at_once_and_then_one_by_one():
    limit = Limit("k", None, parse_rate("10/s").period, 3)
    assert len(starts(limit, [NOW] * 10)) == 3
    arrivals = [NOW, NOW, *(NOW + 50_000 * number for number in range(7))]
    assert starts(limit, arrivals) == [NOW, NOW, *(NOW + 100_000 * number for number in range(4))]


def test_a_clock_that_was_set_back_holds_nobody_for_longer_than_a_burst():
    limit = Limit("k", None, SECOND, 2, ready_at=NOW + 3600 * SECOND)
    assert limit.free_at(NOW) == NOW + SECOND
    assert limit.started(NOW + SECOND).ready_at <= NOW + 4 * SECOND


def test_a_rate_that_was_raised_holds_at_once():
    slow = Limit("k", None, parse_rate("1/day").period, 1).started(NOW)
    fast = slow._replace(period=parse_rate("5/s").period)
    assert fast.free_at(NOW) == NOW + 200_000


def test_of_two_limits_of_one_key_the_smaller_numbers_count():
    one, other = Limit("k", 5, 100, 3), Limit("k", 2, 200, 7)
    assert one.tightened(other) == Limit("k", 2, 200, 3)
    assert Limit("k", 5).tightened(Limit("k")) == Limit("k", 5)


# ── demands ──
def test_a_job_without_limits_demands_nothing():
    assert demand_of(Policy(), DEFAULT, ANN, {"tenant": "acme"}) is None


@pytest.mark.parametrize(
    ("per", "key"),
    [
        ("job", "at_once:job:12"),
        ("owner", "at_once:owner:ann"),
        ("queue", "at_once:queue:0"),
        ("data.tenant", 'at_once:data.tenant:"acme":ann'),
        ("data.tenant.name", "at_once:data.tenant.name::ann"),
        ("data.deep.path", "at_once:data.deep.path:7:ann"),
        ("data.missing", "at_once:data.missing::ann"),
    ],
)
def test_a_limit_counts_by_job_owner_queue_or_a_path_into_the_data(per: str, key: str):
    policy = Policy(concurrency_limits=(ConcurrencyLimit(5, per),))
    demand = demand_of(policy, DEFAULT, ANN, {"tenant": "acme", "deep": {"path": 7}})
    assert demand == Demand((Use(key, 1),))
    assert limits_of(policy, DEFAULT, demand.uses) == {key: Limit(key, 5)}
    assert reads_data(policy) == per.startswith("data.")


def test_owners_of_different_organisations_are_different_owners():
    policy = Policy(concurrency_limits=(ConcurrencyLimit(5, "owner"),))
    assert demand_of(policy, DEFAULT, ANN._replace(org=2)) != demand_of(policy, DEFAULT, ANN)


def test_two_rates_of_one_owner_are_two_keys():
    policy = Policy(rate_limits=(RateLimit("10/s", 5, "owner"), RateLimit("100/h", 1, "owner")))
    demand = demand_of(policy, DEFAULT, ANN)
    assert demand is not None
    limits = limits_of(policy, DEFAULT, demand.uses)
    assert limits == {
        "rate/h:owner:ann": Limit("rate/h:owner:ann", None, 36 * SECOND, 1),
        "rate/s:owner:ann": Limit("rate/s:owner:ann", None, 100_000, 5),
    }


def test_a_queue_limits_what_waits_in_it_and_a_resource_of_the_cluster_is_a_use():
    queue = Queue(3, "reports", concurrency=2, rate="60/min", burst=4)
    demand = demand_of(Policy(), queue, ANN, None, [("cpus", 1500)], [("license-x", 2)])
    assert demand == Demand(
        (Use("queue:3"), Use("queue_rate:3"), Use("resource:license-x", 2)), (("cpus", 1500),)
    )  # fmt: skip
    assert limits_of(Policy(), queue, demand.uses)["queue_rate:3"] == Limit("queue_rate:3", None, SECOND, 4)
    assert limits_of(Policy(), DEFAULT, demand.uses)["queue:3"].capacity is None


def test_a_limit_that_was_taken_away_allows_everything():
    limited = Policy(concurrency_limits=(ConcurrencyLimit(1),))
    demand = demand_of(limited, DEFAULT, ANN)
    assert demand is not None
    assert limits_of(Policy(), DEFAULT, demand.uses) == {"at_once:job:12": Limit("at_once:job:12")}


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=5)
                    | st.dictionaries(st.text(max_size=5), inner, max_size=5)), st.text(min_size=1))  # fmt: skip
def test_keys_are_short_and_equal_demands_have_equal_text(value: object, owner: str):
    policy = Policy(concurrency_limits=(ConcurrencyLimit(5, "data.x"),), rate_limits=(RateLimit("5/s", per="owner"),))
    demands = [demand_of(policy, DEFAULT, Whose(1, owner, 0), {"x": value, "y": number}) for number in (1, 2)]
    assert demands[0] == demands[1]
    assert demands[0] is not None
    assert demands[1] is not None
    assert demands[0].text == demands[1].text
    assert demand_from_text(demands[0].text) == demands[0]
    for use in demands[0].uses:
        assert len(use.key) <= 2 * LONGEST + 40
        assert rule_of(use.key) in (("at_once", "data.x"), ("rate/s", "owner"))


def test_long_values_with_the_same_beginning_have_different_keys():
    policy = Policy(concurrency_limits=(ConcurrencyLimit(5, "data.x"),))
    one, other = (demand_of(policy, DEFAULT, ANN, {"x": "a" * 10_000 + end}) for end in "bc")
    assert one != other
