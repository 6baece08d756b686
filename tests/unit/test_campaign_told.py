"""The judge of what a consumer of events heard."""

from __future__ import annotations

from dataclasses import replace

import pytest
from campaign.case import arrange
from campaign.happenings import told
from campaign.history import Attempt, Final, History, Run, Told

RUN = Run(
    id=7, job_id=1, by_hand=True, due_at=0, state="succeeded", reason="", attempt=2, fence=2, lost=0, created_at=0,
    finished_at=9, exit_code=0, into_run_id=None, key=None, earlier=(Attempt(1, 1, "failed", ""),),
)  # fmt: skip
GOOD = [
    Told("1.0", "run.queued", 7, 0, "queued"), Told("2.0", "run.started", 7, 1, "running"),
    Told("3.0", "run.retrying", 7, 1, "failed"), Told("4.0", "run.queued", 7, 1, "queued"),
    Told("5.0", "run.started", 7, 2, "running"), Told("6.0", "run.finished", 7, 2, "succeeded"),
]  # fmt: skip


def complaints(events: list[Told], run: Run = RUN) -> list[str]:
    return [found.what for found in told(arrange(History([], [], Final((run,), ()), [], told=events)))]


def test_a_whole_life_is_good() -> None:
    assert complaints(GOOD) == []


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([Told("9.0", "node.joined")], "nothing was told of it"),
        (GOOD[:-1], "the last that was told is run.started"),
        (GOOD[:1] + GOOD[2:], "run.retrying was told after run.queued"),
        ([*GOOD, GOOD[-1]], "event 6.0 was told 2 times"),
        ([*GOOD[:4], replace(GOOD[4], fence=0), GOOD[5]], "were told in the order"),
        ([*GOOD[:-1], replace(GOOD[-1], state="failed")], "it is succeeded, and the last that was told"),
        ([GOOD[0], *GOOD[4:]], "with the fences [1] began was not told"),
    ],
)
def test_what_is_missing_repeated_or_out_of_order_is_found(events: list[Told], complaint: str) -> None:
    assert any(complaint in what for what in complaints(events))


def test_where_nobody_listened_nothing_is_judged() -> None:
    assert complaints([]) == []
