"""The judge of what a consumer of events heard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from campaign.case import arrange
from campaign.happenings import told
from campaign.history import Attempt, Final, History, Run, Told
from campaign.listening import BEGINNING, drop_unfinished, last_place

RUN = Run(
    id=7, job_id=1, by_hand=True, due_at=0, state="succeeded", reason="", attempt=2, fence=2, lost=0, created_at=0,
    finished_at=9, exit_code=0, into_run_id=None, key=None, earlier=(Attempt(1, 1, "failed", ""),),
)  # fmt: skip
GOOD = [
    Told("1.0", "run.queued", 7, 0, "queued"), Told("2.0", "run.started", 7, 1, "running"),
    Told("3.0", "run.retrying", 7, 1, "failed"), Told("4.0", "run.queued", 7, 1, "queued"),
    Told("5.0", "run.started", 7, 2, "running"), Told("6.0", "run.finished", 7, 2, "succeeded"),
]  # fmt: skip


STORED = [event.id for event in GOOD]


def complaints(events: list[Told], run: Run = RUN, stored: list[str] | None = None) -> list[str]:
    history = History([], [], Final((run,), ()), [], told=events, stored=stored or [])
    return [found.what for found in told(arrange(history))]


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
        (GOOD[1:], "the first that was told is run.started"),
    ],
)
def test_what_is_missing_repeated_or_out_of_order_is_found(events: list[Told], complaint: str) -> None:
    assert any(complaint in what for what in complaints(events))


OTHER = Told("3.5", "node.leading")  # of no run: only the store knows of it


@pytest.mark.parametrize(
    ("events", "stored", "complaint"),
    [
        (GOOD, [*STORED[:3], "3.5", *STORED[3:]], "1 of 7 events were not told, the first of them 3.5"),
        ([*GOOD[:2], OTHER, *GOOD[2:]], [*STORED[:3], "3.5", *STORED[3:]], "event 3.5 was told before 3.0"),
        ([*GOOD[:3], OTHER, *GOOD[3:]], STORED, "1 events were told that are not stored, such as 3.5"),
        ([*GOOD[:3], OTHER, OTHER, *GOOD[3:]], [*STORED[:3], "3.5", *STORED[3:]], "event 3.5 was told 2 times"),
        (GOOD[:-1], STORED, "1 of 6 events were not told, the first of them 6.0"),
    ],
)
def test_what_was_told_is_what_is_stored(events: list[Told], stored: list[str], complaint: str) -> None:
    assert any(complaint in what for what in complaints(events, stored=stored))


def test_what_happens_after_the_last_look_is_not_judged() -> None:
    assert complaints([*GOOD, Told("9.0", "node.gone")], stored=STORED) == []


def test_a_consumer_that_was_killed_while_it_wrote_goes_on_after_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.touch()
    assert last_place(path) == BEGINNING
    whole = b'{"id": "1.0", "place": "5.2.0"}\n'
    path.write_bytes(whole + b'{"id": "2.0", "pla')
    assert last_place(path) == "5.2.0"
    drop_unfinished(path)
    assert path.read_bytes() == whole


def test_where_nobody_listened_nothing_is_judged() -> None:
    assert complaints([]) == []
