"""Shares of a line: passes grow by weight, and nobody saves up a right of way."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.policy.order import ANYONE, STRIDE, Line, Share, furthest, passes, places_of, share_of
from horae.core.runs.orders import NewRun


def run(share: str = "", weight: int = 1, priority: int = 5) -> NewRun:
    return NewRun(1, "python", priority, 0, share=share, weight=weight)


def test_runs_of_one_share_need_no_numbers():
    places = places_of([run(), run()])

    assert places == ([Share("python", 0, 5, ANYONE, 1)], [], [])
    assert passes(places, 2, [0]) == [STRIDE, 2 * STRIDE]


def test_runs_are_numbered_by_share_in_the_one_order_of_shares():
    places = places_of([run("b"), run("a"), run("b")])

    assert [share.key for share in places.shares] == ["a", "b"]
    assert (places.numbers, places.nths) == ([2, 1, 2], [1, 1, 2])


def test_priorities_are_lines_of_their_own():
    assert [share.line for share in places_of([run(priority=1), run(priority=9)]).shares] == [
        Line("python", 0, 1), Line("python", 0, 9),
    ]  # fmt: skip


def test_who_has_runs_of_several_priorities_counts_them_apart():
    places = places_of([run("a", priority=1), run("a", priority=9), run("b", priority=9), run("a", priority=9)])
    assert [(share.priority, share.key) for share in places.shares] == [(1, "a"), (9, "a"), (9, "b")]
    assert (places.numbers, places.nths) == ([1, 2, 3, 2], [1, 1, 1, 2])


shares = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), min_size=1, max_size=60)


@given(shares)
def test_the_passes_of_a_share_grow_by_its_stride_from_where_it_was(born: list[tuple[str, int]]):
    weights = dict(born)
    runs = [run(key, weights[key]) for key, _ in born]
    places = places_of(runs)
    last = [7 * number for number in range(len(places.shares))]

    at = passes(places, len(runs), last)

    for share, before, far in zip(places.shares, last, furthest(places, at), strict=True):
        own = [one for one, made in zip(at, runs, strict=True) if share_of(made) == share]
        assert own == [before + nth * share.stride for nth in range(1, len(own) + 1)]
        assert far == own[-1]


@pytest.mark.parametrize("weights", [{"a": 1, "b": 2, "c": 4}, {"a": 1, "b": 1}, {"a": 10, "b": 3}])
def test_starts_in_the_order_of_passes_are_dealt_out_by_weight(weights: dict[str, int]):
    waiting = []
    for key, weight in weights.items():
        places = places_of([run(key, weight)] * 2000)
        waiting += [(at, key) for at in passes(places, 2000, [0])]

    started = Counter(key for _, key in sorted(waiting)[:1000])

    for key, weight in weights.items():
        assert started[key] == pytest.approx(1000 * weight / sum(weights.values()), rel=0.01)
