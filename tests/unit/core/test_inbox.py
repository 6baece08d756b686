"""Where the inbox is read on, without a database."""

from __future__ import annotations

from horae.core.runs.inbox import BEGINNING, FURTHEST, MOST_MISSING, PATIENCE, SHARE, SWEEP, Reading, Since


def test_the_first_look_begins_at_the_beginning_and_the_next_behind_the_last_row():
    reading = Reading()
    assert reading.since(5.0) is BEGINNING

    reading.note(BEGINNING, [1, 2, 3], 5.0, 5.0)
    assert reading.since(5.0) == Since(3, [])


def test_numbers_that_were_passed_over_are_looked_for_until_they_come_or_patience_ends():
    reading = Reading()
    reading.note(BEGINNING, [1, 4, 6], 0.0, 0.0)
    assert reading.since(0.5) == Since(6, [2, 3, 5])

    reading.note(Since(6, [2, 3, 5]), [3], 0.5, 0.5)
    assert reading.since(0.5) == Since(6, [2, 5])

    reading.note(BEGINNING, [], PATIENCE, PATIENCE)
    assert reading.since(PATIENCE) == Since(6, [])


def test_only_the_latest_missing_ones_are_looked_for_however_many_there_are():
    reading = Reading()
    last = 10 * FURTHEST
    reading.note(BEGINNING, [last], 0.0, 0.0)

    assert reading.since(0.0) == Since(last, list(range(last - MOST_MISSING, last)))


def test_a_look_from_the_beginning_comes_every_second_and_takes_a_tenth_of_the_time_at_most():
    reading = Reading()
    reading.note(BEGINNING, [7], 0.0, 0.01)
    assert reading.since(SWEEP) is not BEGINNING
    assert reading.since(0.01 + SWEEP) is BEGINNING

    reading.note(BEGINNING, [], 2.0, 3.0)
    assert reading.since(3.0 + SHARE - 0.1) is not BEGINNING
    assert reading.since(3.0 + SHARE) is BEGINNING


def test_rows_from_before_do_not_move_the_place_back():
    reading = Reading()
    reading.note(BEGINNING, [7], 0.0, 0.0)
    reading.note(BEGINNING, [2], 2.0, 2.0)

    assert reading.since(2.0).above == 7
