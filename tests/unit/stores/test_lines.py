"""How far lines have come, as one process knows it."""

from __future__ import annotations

from horae.core.policy.order import Line
from horae.stores.lines import SAVE_SECONDS, Lines


class Watch:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_line_is_as_far_as_the_furthest_run_that_was_started():
    lines = Lines()

    lines.note_started([("python", 0, 5, 30), ("python", 0, 5, 20), ("python", 0, 9, 7)])

    assert (lines.at(Line("python", 0, 5)), lines.at(Line("python", 0, 9)), lines.at(Line("shell", 0, 5))) == (30, 7, 0)


def test_what_has_moved_is_written_down_at_once_and_then_every_now_and_then():
    watch = Watch()
    lines = Lines(watch)
    lines.note_started([("python", 0, 5, 30)])

    assert lines.unsaved() == [("python", 0, 5, 30)]
    lines.note_started([("python", 0, 5, 40)])
    assert lines.unsaved() == []
    watch.seconds += SAVE_SECONDS
    assert lines.unsaved() == [("python", 0, 5, 40)]
    watch.seconds += SAVE_SECONDS
    assert lines.unsaved() == []
