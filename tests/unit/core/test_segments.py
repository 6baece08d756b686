"""Segments: where a job belongs, and who owns what."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.model import SEGMENTS
from horae.core.runs.segments import rebalance, segment_of, share

names = st.lists(st.text("abcdefgh", min_size=1, max_size=3), min_size=1, max_size=12, unique=True)
owners = st.dictionaries(st.integers(0, SEGMENTS - 1), st.sampled_from([*"abcdefgh", "gone", "dead"]))


def after(owned: dict[int, str], nodes: list[str]) -> dict[int, str]:
    return {**owned, **rebalance(owned, nodes)}


def necessary(owned: dict[int, str], nodes: list[str]) -> int:
    """Return the fewest moves after which all is even, worked out from the counts alone."""
    counts = sorted(
        (Counter(owner for owner in owned.values() if owner in nodes)[node] for node in nodes), reverse=True
    )
    share, extra = divmod(SEGMENTS, len(nodes))
    kept = sum(min(count, share + (rank < extra)) for rank, count in enumerate(counts))
    return SEGMENTS - kept


@given(owners, names)
def test_every_segment_has_a_live_owner_and_shares_differ_by_one_at_most(owned: dict[int, str], nodes: list[str]):
    result = after(owned, nodes)
    counts = Counter(result.values())

    assert set(result) == set(range(SEGMENTS))
    assert set(result.values()) <= set(nodes)
    assert max(counts[node] for node in nodes) - min(counts[node] for node in nodes) <= 1


@given(owners, names)
def test_no_more_segments_move_than_evenness_asks_for(owned: dict[int, str], nodes: list[str]):
    moves = rebalance(owned, nodes)

    assert all(owned.get(segment) != owner for segment, owner in moves.items())
    assert len(moves) == necessary(owned, nodes)


@given(owners, names, st.randoms(use_true_random=False))
def test_the_answer_does_not_depend_on_the_order_of_the_nodes(
    owned: dict[int, str], nodes: list[str], chance: random.Random
):
    shuffled = list(nodes)
    chance.shuffle(shuffled)

    assert rebalance(owned, shuffled) == rebalance(owned, nodes)


@given(owners, names)
def test_what_is_shared_out_stays(owned: dict[int, str], nodes: list[str]):
    assert rebalance(after(owned, nodes), nodes) == {}


def test_a_node_that_comes_takes_its_share_and_one_that_goes_gives_only_its_own():
    three = after({}, ["a", "b", "c"])
    four = after(three, ["a", "b", "c", "d"])

    assert Counter(four.values())["d"] == 25
    assert all(four[s] in (three[s], "d") for s in four)
    back = after(four, ["a", "b", "c"])
    assert all(back[s] == four[s] for s in four if four[s] != "d")


def test_without_nodes_nothing_moves():
    assert rebalance({1: "a"}, []) == {}


@pytest.mark.parametrize("step", [1, 2, 3, 10, 100, 1000])
def test_jobs_spread_evenly_however_their_ids_are_spaced(step: int):
    counts = Counter(segment_of(job_id) for job_id in range(1, 10_000 * step, step))

    assert set(counts) <= set(range(SEGMENTS))
    assert len(counts) == SEGMENTS
    assert min(counts.values()) >= 50
    assert max(counts.values()) <= 200


@given(st.integers(1, 2**63 - 1))
def test_every_job_has_one_segment(job_id: int):
    assert 0 <= segment_of(job_id) < SEGMENTS


def test_who_was_told_its_segments_has_them_and_the_others_share_the_rest():
    moves = share({}, ["a", "b", "c"], {"a": [1, 2, 3]})
    assert [segment for segment, node in sorted(moves.items()) if node == "a"] == [1, 2, 3]
    assert sorted(Counter(moves.values()).values()) == [3, 48, 49]


@pytest.mark.parametrize("told", [{"a": []}, {"a": [], "b": []}, {"a": [7], "b": [8]}, {"gone": [1]}])
def test_every_segment_has_an_owner_whatever_anybody_was_told(told: dict[str, list[int]]):
    moves = share({}, ["a", "b"], told)
    assert sorted(moves) == list(range(100))
    assert share(moves, ["a", "b"], told) == {}
