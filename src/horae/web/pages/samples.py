"""Samples of what pages draw, for the page of styles: each shape in each of its states."""

from __future__ import annotations

from datetime import date, timedelta
from functools import cache
from typing import Any

from horae import schemas
from horae.core.model import SEGMENTS
from horae.web.pages.charts import Heat, Line, Mark, Trend, bars, heat
from horae.web.pages.cluster import Cell, Owner
from horae.web.pages.drawings import Drawing, Listed, Shape, Stroke
from horae.web.pages.waterfall import Stretch
from horae.web.pages.words import MARKS, count, plain

_FIRST = date(2026, 1, 5)  # a Monday
_AT = "2026-01-05T10:00:00Z"
_OWNERS = 8


@cache
def samples() -> dict[str, Any]:
    """They are always the same."""
    return {
        "heat": _year(), "trend": _trend(), "line": _line(), "stretches": _stretches(),
        "flow": _flow(), "alone": _alone(), **_map(),
        "done": bars([(f"{hour:02d}:00", hour % 7, hour % 3) for hour in range(24)], count),
    }  # fmt: skip


def _year() -> Heat:
    drawn = heat(_days(), 1, "UTC")
    return drawn._replace(cells=[cell._replace(href=None) for cell in drawn.cells])


def _days() -> list[schemas.Day]:
    fates: list[dict[str, int]] = [
        {}, {"succeeded": 1}, {"succeeded": 4}, {"succeeded": 9}, {"succeeded": 5, "failed": 1},
        {"succeeded": 3, "failed": 3}, {"failed": 4},
    ]  # fmt: skip
    return [
        schemas.Day(str(_FIRST + timedelta(days=number)), fates[number % 7 if number % 20 < 7 else 2])
        for number in range(371)
    ]


def _trend() -> Trend:
    points = [(n * 75.0, round(100 - n * n * 1.4, 1), state, 0, plain(state)) for n, state in enumerate(MARKS)]
    path = "M" + "L".join(f"{x} {y}" for x, y, *_ in points)
    return Trend(points, path, 60, "40 s", "2 min 3 s", (40, 30), "two of three are expected to take 30 s to 50 s")


def _line() -> Line:
    looks = [*MARKS, "foretold"]
    marks = [Mark(40 + 90 * n, 4 + n % 8 * 12, 70, look, plain(look), "#main") for n, look in enumerate(looks)]
    ticks = [(0.0, "09:30"), (250.0, "09:45"), (500.0, "now"), (750.0, "10:15"), (1000.0, "10:30")]
    return Line(marks, ticks, [])


def _stretches() -> list[Stretch]:
    kinds = ("waiting", *MARKS)
    return [Stretch(plain(kind), kind, _AT, _AT, 1200.0 * n, 90 * n, 110) for n, kind in enumerate(kinds)]


def _flow() -> Drawing:
    """A box of each state, and a line of each kind."""
    states = [*MARKS, "waiting", ""]
    shapes = [
        Shape(1 + n % 3 * 264, 1 + n // 3 * 68, state, MARKS.get(state, "□"), plain(state) or "a task", "shell",
              plain(state) or "a task", None if n else "#main")
        for n, state in enumerate(states)
    ]  # fmt: skip
    strokes = [
        Stroke(f"M201 {24 + row * 68}C233 {24 + row * 68} 233 {24 + row * 68} 265 {24 + row * 68}", on)
        for row, on in enumerate(("success", "failure", "end"))
    ]
    rows = [Listed(plain(state) or "a task", "shell", plain(state), "–", None, "") for state in states]
    return Drawing(730, 250, shapes, strokes, rows, is_run=True)


def _alone() -> Drawing:
    return Drawing(202, 48, [Shape(1, 1, "", "□", "nightly report", "this job", "nightly report")], [], [])


def _map() -> dict[str, Any]:
    """Segments from empty to full, of each colour, and some that nobody owns."""
    colours = {f"node-{number}": number for number in range(_OWNERS)}
    cells = [
        Cell(n, f"node-{n // 12}" if n < _OWNERS * 12 else "", 3, n % 13 * 10, n % 13, round(18 * (n % 13) / 12))
        for n in range(SEGMENTS)
    ]
    owners = [Owner(name, colour, 12, 780, 78) for name, colour in colours.items()]
    return {"cells": cells, "colours": colours, "owners": owners}
