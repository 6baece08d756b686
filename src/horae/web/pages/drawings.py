"""A workflow as shapes: where each box, text and line of its picture stands, in the units of an SVG. What they look
like say the sheets."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from horae.core.workflows.picture import Box, Line, Picture
from horae.web.pages.words import MARKS

_WIDTH, _HEIGHT = 200, 46  # of a box
_APART, _BELOW = 64, 22  # between two of them
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


class Stroke(NamedTuple):
    path: str
    on: str


class Drawing(NamedTuple):
    width: int
    height: int
    shapes: list[Shape]
    strokes: list[Stroke]
    box_width: int = _WIDTH
    box_height: int = _HEIGHT


def draw(drawn: Picture, asking: Collection[str] = (), *, is_run: bool) -> Drawing:
    """Draw a run of a workflow, or the workflow itself. Tasks that are `asking` wait for somebody's decision."""
    width = drawn.layers * (_WIDTH + _APART) - _APART + 2
    height = drawn.lanes * (_HEIGHT + _BELOW) - _BELOW + 2
    return Drawing(
        width,
        height,
        [_shape(box, is_run=is_run, is_asking=box.task in asking) for box in drawn.boxes],
        [_stroke(line) for line in drawn.lines],
    )


def _left(layer: int) -> int:
    return 1 + layer * (_WIDTH + _APART)


def _middle(lane: int) -> int:
    return 1 + lane * (_HEIGHT + _BELOW) + _HEIGHT // 2


def _shape(box: Box, *, is_run: bool, is_asking: bool) -> Shape:
    title = box.title if len(box.title) <= _MOST else f"{box.title[: _MOST - 1]}…"
    at = _left(box.layer), _middle(box.lane) - _HEIGHT // 2
    if not is_run:
        return Shape(*at, "", "□", title, box.about, f"{box.title}: {box.about}")
    under = _counts(box) if box.is_fan_out and box.counts else f"{box.state.replace('_', ' ')} · {box.about}"
    if is_asking and not box.is_fan_out:
        under = "waits for an approval"
    return Shape(*at, box.state, MARKS.get(box.state, "·"), title, under, f"{box.title}: {box.about}, {_words(box)}")


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
