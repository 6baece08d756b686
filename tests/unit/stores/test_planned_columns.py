"""Columns of very many triggers: read in the short way where that is safe, and as a whole where it is not."""

from __future__ import annotations

import json

import pytest

from horae.stores.database import _column_of
from horae.stores.insight.schedules import LINE, read_schedules


def text_of(*triggers: tuple[int, str], created_at: int = 5, data: object = None) -> str:
    """Return the triggers of a job, as it keeps them."""
    return json.dumps(
        [
            {"id": id_, "schedule": {"cron": cron}, "data": data, "enabled": True, "created_at": created_at + id_}
            for id_, cron in triggers
        ]
    )


def read(*rows: tuple[int, str]) -> list[tuple[str, int]]:
    schedules, made = read_schedules([id_ for id_, _ in rows], LINE.join(text for _, text in rows))
    return [(schedule.replace(" ", ""), made[row]) for row, schedule in enumerate(schedules)]


def test_jobs_with_one_trigger_are_read_in_the_short_way():
    nested = {"created_at": 1, "rows": [[{"id": 3}]], "schedule": {"cron": "x"}}
    rows = [(1, text_of((1, "a"), data=nested)), (2, text_of((2, "b"), data="a\nb"))]
    assert read(*rows) == [('{"cron":"a"}', 6), ('{"cron":"b"}', 7)]


def test_of_several_triggers_of_a_job_each_row_has_its_own():
    both = text_of((1, "a"), (2, "b"))
    assert read((1, both), (2, both), (3, text_of((3, "c")))) == [
        ('{"cron":"a"}', 6), ('{"cron":"b"}', 7), ('{"cron":"c"}', 8),
    ]  # fmt: skip


@pytest.mark.parametrize("broken", ["", "[]", "{}", "nonsense", '[{"id":2,"schedule":', text_of((9, "z"))])
def test_what_cannot_be_read_or_is_another_trigger_has_no_schedule_and_spoils_no_other(broken: str):
    assert read((1, text_of((1, "a"))), (2, broken), (3, text_of((3, "c")))) == [
        ('{"cron":"a"}', 6), ("", 0), ('{"cron":"c"}', 8),
    ]  # fmt: skip


def test_no_triggers_are_no_schedules():
    schedules, made = read_schedules([], "")
    assert (schedules, len(made)) == ([], 0)


@pytest.mark.parametrize(
    "values",
    [
        [], [1], [1, 1, 1], [1, 2, 1], [None, None], ["a,b", "a,b"], ["a,b", "a"], ["", ""], ["\u00fc\"", "\u00fc\""],
        [1, 11, 1], ["x", "x,x", "x"],
    ],
)  # fmt: skip
def test_a_column_is_the_list_that_was_written(values: list[object]):
    assert _column_of(json.dumps(values, separators=(",", ":"), ensure_ascii=False)) == values
