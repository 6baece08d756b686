"""Time as a picture: how much was going on at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from horae.core.insight.arrivals import Window
from horae.core.insight.timeline import PARTS, Mark, Sample, busiest, load_of
from horae.core.model import State

WINDOW = Window(0, 100 * PARTS)  # each part is 100 long


def ran(number: int, start: int | None, end: int | None) -> Mark:
    return Mark(number, 1, State.RUNNING if end is None else State.SUCCEEDED, start or 0, start, end)


def test_where_all_runs_are_known_the_most_at_once_of_each_part_is_told():
    marks = [ran(1, 10, 20), ran(2, 15, 130), ran(3, 40, 50), ran(4, None, 60)]
    load = load_of(Sample(marks), WINDOW, now=300)
    assert [(one.at, one.running) for one in load] == [(0, 2), (100, 1), (200, 0)]


def test_where_some_stand_for_others_the_average_of_each_part_is_told():
    marks = [ran(1, 10, 20), ran(2, 50, 150)]
    load = load_of(Sample(marks, weight=10), WINDOW, now=300)
    assert [one.running for one in load] == [6.0, 5.0, 0.0]


def test_what_goes_on_counts_until_now_and_what_began_before_from_the_start():
    for weight, expected in ((1.0, [1.0, 1.0]), (2.0, [2.0, 1.0])):
        load = load_of(Sample([ran(1, -500, None)], weight), WINDOW, now=150)
        assert [one.running for one in load] == expected


def test_one_that_has_ended_since_it_was_seen_is_counted_once():
    ended = Sample([ran(1, 10, 20)])
    assert ended.beside([ran(1, 10, None), ran(2, 15, None)]).marks == [ran(1, 10, 20), ran(2, 15, None)]


@given(st.dictionaries(st.integers(1, 50), st.integers(0, 5)), st.integers(0, 60))
def test_the_busiest_have_most_runs_and_of_equal_ones_are_the_oldest(counts: dict[int, int], most: int):
    assert busiest(counts, most) == sorted(counts, key=lambda job_id: (-counts[job_id], job_id))[:most]
