"""What a job owes whose last success is longer ago than its interval."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from horae.core.model import SECOND, Job, Policy, Run, Standing, State
from horae.core.runs.overdue import hastened, interval_of, owed
from horae.testing import START, make_job

HOUR = 3600 * SECOND
DAY = 24 * HOUR
SCHEDULE = {"period": {"unit": "hour"}, "anchor": "2027-01-01T00:00:00Z"}


def job(synced_at: int | None, **changes: Any) -> Job:
    made = make_job(1, trigger_id=1, next_at=START + HOUR, schedule=SCHEDULE, kind="sync")
    return replace(made, policy=Policy(synced_at=synced_at), **changes)


def run(state: State, created_at: int = START - DAY) -> Run:
    return Run(1, 1, 1, created_at, state, "", 1, 1, 5, "sync", created_at)


@pytest.mark.parametrize(
    ("schedule", "interval"),
    [
        ({"every": "5m"}, HOUR // 12),
        ({"period": {"unit": "hour", "every": 2}}, 2 * HOUR),
        ({"period": {"unit": "day"}}, DAY),
        ({"period": {"unit": "week", "every": 2, "days": ["monday"]}}, 14 * DAY),
        ({"period": {"unit": "month", "month_days": [1]}}, 30 * DAY),
        ({"cron": "0 2 * * *"}, None),
        ({"at": "2027-03-28T02:30:00Z"}, None),
    ],
)
def test_a_round_of_a_schedule_has_a_length(schedule: Any, interval: int | None):
    assert interval_of(schedule) == interval


@pytest.mark.parametrize(
    ("synced_at", "first"),
    [
        (START - DAY, START),  # long overdue: now
        (START - HOUR // 2, START + HOUR // 2),
        (START + HOUR, START + HOUR),  # its schedule is sooner
        (0, START + HOUR),
        (None, START + HOUR),
    ],
)
def test_a_new_job_begins_when_its_last_success_is_an_interval_ago(synced_at: int | None, first: int):
    assert [trigger.next_at for trigger in hastened(job(synced_at), START).triggers] == [first]


@pytest.mark.parametrize(
    ("latest", "succeeded_at", "is_owed"),
    [
        (None, None, True),
        (run(State.FAILED), None, True),
        (run(State.FAILED), START - 2 * HOUR, True),
        (run(State.SUCCEEDED), START - HOUR // 2, False),
        (run(State.QUEUED), None, False),
        (run(State.RUNNING), None, False),
        (run(State.FAILED, START - SECOND), None, False),  # made since the start
    ],
)
def test_at_a_start_the_overdue_are_owed_unless_they_are_live_or_were_made_since(
    latest: Run | None, succeeded_at: int | None, is_owed: bool
):
    found = owed(job(START - DAY), Standing(latest, latest), succeeded_at, START - HOUR // 4, START)
    assert (found is not None) == is_owed


@pytest.mark.parametrize(
    "it", [job(None), job(0), job(START - DAY, paused=True), job(START - DAY, deleted_at=START), job(START - HOUR // 2)]
)
def test_nothing_is_owed_by_others(it: Job):
    assert owed(it, Standing(), None, START, START) is None


def test_what_is_due_already_fires_as_it_is():
    due = job(START - DAY)
    due = replace(due, triggers=tuple(replace(t, next_at=START) for t in due.triggers))
    assert owed(due, Standing(), None, START, START) is None
