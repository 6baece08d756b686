"""Where tasks and lines stand in the picture of a workflow."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horae.cli import pictures
from horae.cli.screen import Screen
from horae.core.workflows.picture import Picture, picture
from horae.web.pages.drawings import TaskRuns, draw

SPEC = {
    "tasks": {
        "list": {"kind": "python"},
        "convert": {"needs": ["list"], "for_each": "${list.result}", "kind": "python"},
        "check": {"needs": ["convert"], "job": "check-all"},
        "clean": {"needs": [{"task": "convert", "on": "failure"}], "kind": "shell"},
        "tell": {"needs": ["check", {"task": "list", "on": "end"}], "kind": "shell"},
    }
}
COUNTS = {
    "list": {"succeeded": 1},
    "convert": {"succeeded": 812, "failed": 3, "running": 185},
    "clean": {"skipped": 1},
}


def boxes(drawn: Picture) -> dict[str, tuple[int, int]]:
    return {box.task: (box.layer, box.lane) for box in drawn.boxes}


def test_a_task_stands_behind_all_that_it_needs():
    drawn = picture(SPEC)

    assert {task: layer for task, (layer, _) in boxes(drawn).items()} == {
        "list": 0, "convert": 1, "check": 2, "clean": 2, "tell": 3,
    }  # fmt: skip
    assert (drawn.layers, [line.on for line in drawn.lines if line.end == "clean"]) == (4, ["failure"])


def test_a_fan_out_says_how_many_and_what_matters_most():
    convert = picture(SPEC, COUNTS).boxes[1]

    assert (convert.title, convert.state) == ("convert ×1000", "running")
    assert picture(SPEC).boxes[1].title == "convert ×n"
    assert picture(SPEC, COUNTS).boxes[-1].state == "waiting"


graphs = st.lists(st.lists(st.integers(0, 20), max_size=4), min_size=1, max_size=20).map(
    lambda rows: {
        "tasks": {
            f"t{number}": {"kind": "shell", "needs": sorted({f"t{each % number}" for each in row} if number else ())}
            for number, row in enumerate(rows)
        }
    }
)


@settings(max_examples=200, deadline=None)
@given(graphs)
def test_no_two_things_have_one_place(spec: dict):
    drawn = picture(spec)
    places = list(boxes(drawn).values())
    crossed = {(line.start, place) for line in drawn.lines for place in line.places[1:-1]}

    assert len(set(places)) == len(places)
    assert {place for _, place in crossed}.isdisjoint(places)
    assert len({place for _, place in crossed}) == len(crossed)  # lines of one task may share theirs
    for line in drawn.lines:
        assert [layer for layer, _ in line.places] == list(range(line.places[0][0], line.places[-1][0] + 1))
        assert (line.places[0], line.places[-1]) == (boxes(drawn)[line.start], boxes(drawn)[line.end])
    assert picture(spec) == drawn


def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    tasks = [{"name": name, **task, "runs": COUNTS.get(name, {})} for name, task in SPEC["tasks"].items()]
    pictures.show_tasks(Screen(as_json=False), tasks)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_a_terminal_shows_tasks_with_lines_between_them(capsys, monkeypatch):
    assert shown(capsys, monkeypatch, 120) == [
        "✓ list ────┬───────────────────────────────────┬──▶ · tell",
        "succeeded  │                                   │    waiting",
        "           │                                   │",
        "           └─▶ ● convert ×1000 ──┬─▶ · check ──┘",
        "               185● 812✓ 3✗      │   waiting",
        "                                 │",
        "                                 └─▶ ↷ clean",
        "                                     skipped",
    ]


def test_a_narrow_terminal_shows_a_list_that_says_what_each_task_needs(capsys, monkeypatch):
    lines = shown(capsys, monkeypatch, 40)

    assert lines[0].split() == ["TASK", "STATE", "NEEDS"]
    assert lines[2].split() == ["convert", "×1000", "185●", "812✓", "3✗", "list"]
    assert lines[-1].split() == ["tell", "waiting", "check,", "list", "(end)"]


@settings(max_examples=100, deadline=None)
@given(graphs)
def test_every_workflow_can_be_drawn(spec: dict):
    sheet = pictures._Sheet(picture(spec), is_run=False)
    text = "\n".join("".join(cell.text for cell in row) for row in sheet.rows())
    drawing = draw(picture(spec), runs=TaskRuns(1, {}))

    assert all(f"□ {name}" in text for name in spec["tasks"])
    assert max(map(len, text.splitlines())) <= sheet.width
    assert all(0 < shape.x + drawing.box_width < drawing.width for shape in drawing.shapes)
    assert all(0 < shape.y + drawing.box_height < drawing.height for shape in drawing.shapes)
