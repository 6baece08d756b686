"""A workflow as shapes: where each box, text and line of its picture stands, in the units of an SVG. What they look
like say the sheets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from horae.core.workflows.picture import Box, Line, Picture
from horae.web.pages.words import MARKS

_WIDTH, _HEIGHT = 200, 46  # of a box
_APART, _BELOW = 64, 22  # between two of them
_LEAST = 576  # the width below which the sheets make no picture smaller
_MOST = 19  # characters of a title: as many as fit where they are wide


class Shape(NamedTuple):
    """A box with two lines of text."""

    x: int
    y: int
    state: str
    mark: str
    title: str
    under: str
    whole: str  # all of it, for who points at it or cannot see it
    href: str | None = None  # what it stands for


class Stroke(NamedTuple):
    path: str
    on: str


class Listed(NamedTuple):
    """A box as a row of the table behind the picture."""

    name: str
    about: str  # its kind, or on what it waits
    state: str  # words; of a workflow that does not run, none
    needs: str
    href: str | None
    link: str  # what the link says


class Drawing(NamedTuple):
    width: int
    height: int
    shapes: list[Shape]
    strokes: list[Stroke]
    rows: list[Listed]
    is_run: bool = False
    box_width: int = _WIDTH
    box_height: int = _HEIGHT

    @property
    def shrinks(self) -> bool:
        """Whether it is a little wider than the cards of most screens: there it is made smaller, and still legible."""
        return _LEAST < self.width <= _LEAST * 3 // 2


class TaskRuns(NamedTuple):
    """Where the runs of the tasks of a run are."""

    parent_id: int
    newest: Mapping[str, int]  # by task

    def href(self, box: Box) -> str | None:
        """Return the page of its run, or of its runs; None while it has none."""
        if box.task not in self.newest:
            return None
        if not box.is_fan_out:
            return f"/runs/{self.newest[box.task]}"
        return "/runs?" + urlencode({"parent": self.parent_id, "task": box.task})


def draw(drawn: Picture, asking: Collection[str] = (), runs: TaskRuns | None = None) -> Drawing:
    """Draw a run of a workflow, with the `runs` of its tasks, or the workflow itself. Tasks that are `asking` wait for
    somebody's decision."""
    width = drawn.layers * (_WIDTH + _APART) - _APART + 2
    height = drawn.lanes * (_HEIGHT + _BELOW) - _BELOW + 2
    return Drawing(
        width,
        height,
        [_shape(box, runs, is_asking=box.task in asking) for box in drawn.boxes],
        [_stroke(line) for line in drawn.lines],
        [_listed(box, drawn, runs) for box in drawn.boxes],
        is_run=runs is not None,
    )


def _listed(box: Box, drawn: Picture, runs: TaskRuns | None) -> Listed:
    needs = ", ".join(f"{line.start} ({line.on})" for line in drawn.lines if line.end == box.task)
    href = None if runs is None else runs.href(box)
    link = "its runs" if box.is_fan_out or href is None else f"#{href.rpartition('/')[2]}"
    return Listed(box.title, box.about, "" if runs is None else _words(box), needs or "–", href, link)


class Neighbour(NamedTuple):
    """A job before or after another."""

    job_id: int
    name: str
    about: str  # on what the one after it waits
    on: str  # success, failure, end


def draw_dependencies(before: Sequence[Neighbour], name: str, after: Sequence[Neighbour]) -> Drawing:
    """Draw a job between those before and those after it: three layers, in the middle of which it stands."""
    lanes = max(1, len(before), len(after))
    own, first = _place(0, 1, lanes), 1 if before else 0
    shapes, strokes = [_job_shape(_left(first), own, name, "this job")], []
    for number, it in enumerate(before):
        y = _place(number, len(before), lanes)
        shapes.append(_job_shape(_left(0), y, it.name, it.about, f"/jobs/{it.job_id}"))
        strokes.append(_bend(_left(0) + _WIDTH, y, own, it.on))
    for number, it in enumerate(after):
        y = _place(number, len(after), lanes)
        shapes.append(_job_shape(_left(first + 1), y, it.name, it.about, f"/jobs/{it.job_id}"))
        strokes.append(_bend(_left(first) + _WIDTH, own, y, it.on))
    width = (1 + bool(before) + bool(after)) * (_WIDTH + _APART) - _APART + 2
    rows = [
        *(Listed(it.name, f"before, {it.about}", "", "–", f"/jobs/{it.job_id}", it.name) for it in before),
        *(Listed(it.name, f"after, {it.about}", "", name, f"/jobs/{it.job_id}", it.name) for it in after),
    ]
    return Drawing(width, lanes * (_HEIGHT + _BELOW) - _BELOW + 2, shapes, strokes, rows)


def _place(number: int, of: int, lanes: int) -> int:
    """Return the top of a box: those of a layer stand around the middle."""
    return round(1 + (number + (lanes - of) / 2) * (_HEIGHT + _BELOW))


def _job_shape(x: int, y: int, name: str, about: str, href: str | None = None) -> Shape:
    title = name if len(name) <= _MOST else f"{name[: _MOST - 1]}…"
    return Shape(x, y, "", "□", title, about, f"{name}: {about}", href)


def _bend(x: int, start: int, end: int, on: str) -> Stroke:
    """From the right side of one box to the left side of one in the next layer."""
    begin, there, half = start + _HEIGHT // 2, end + _HEIGHT // 2, x + _APART // 2
    return Stroke(f"M{x} {begin}C{half} {begin} {half} {there} {x + _APART} {there}", on)


def _left(layer: int) -> int:
    return 1 + layer * (_WIDTH + _APART)


def _middle(lane: int) -> int:
    return 1 + lane * (_HEIGHT + _BELOW) + _HEIGHT // 2


def _shape(box: Box, runs: TaskRuns | None, *, is_asking: bool) -> Shape:
    title = box.title if len(box.title) <= _MOST else f"{box.title[: _MOST - 1]}…"
    at = _left(box.layer), _middle(box.lane) - _HEIGHT // 2
    if runs is None:
        return Shape(*at, "", "□", title, box.about, f"{box.title}: {box.about}")
    under = _counts(box) if box.is_fan_out and box.counts else f"{box.state.replace('_', ' ')} · {box.about}"
    if is_asking and not box.is_fan_out:
        under = "waits for an approval"
    whole = f"{box.title}: {box.about}, {_words(box)}"
    return Shape(*at, box.state, MARKS.get(box.state, "·"), title, under, whole, runs.href(box))


def _counts(box: Box) -> str:
    return " ".join(f"{box.counts[state]}{mark}" for state, mark in MARKS.items() if box.counts.get(state))


def _words(box: Box) -> str:
    counted = [f"{count} {state.replace('_', ' ')}" for state, count in sorted(box.counts.items())]
    return ", ".join(counted) if box.is_fan_out and counted else box.state.replace("_", " ")


def _stroke(line: Line) -> Stroke:
    """From the right side of one box to the left side of the other, and straight through the layers between."""
    (layer, lane), *rest = line.places
    parts = [f"M{_left(layer) + _WIDTH} {_middle(lane)}"]
    for number, (next_layer, next_lane) in enumerate(rest, 1):
        begin, end, half = _left(next_layer) - _APART, _left(next_layer), _APART // 2
        bend = f"{begin + half} {_middle(lane)} {begin + half} {_middle(next_lane)}"
        parts.append(f"C{bend} {end} {_middle(next_lane)}")
        if number < len(rest):
            parts.append(f"H{end + _WIDTH}")
        lane = next_lane
    return Stroke(" ".join(parts), line.on)
