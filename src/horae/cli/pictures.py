"""A workflow on a terminal: its tasks from left to right with lines between them; where that does not fit, a list in
the order in which they can be done, each with what it needs.

    ✓ list ──▶ ● convert ×1000 ─┬─▶ ○ check
    succeeded  812✓ 3✗ 185●     └─▶ ↷ clean
                                    skipped
"""

from __future__ import annotations

import shutil

from horae.cli.screen import SYMBOLS, Cell, Json, Screen, clean, width_of
from horae.core.workflows.picture import WAITING, Box, Line, Picture, needs_words, picture

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_STROKES = {
    _LEFT | _RIGHT: "─", _UP | _DOWN: "│", _DOWN | _RIGHT: "┌", _DOWN | _LEFT: "┐", _UP | _RIGHT: "└", _UP | _LEFT: "┘",
    _UP | _DOWN | _RIGHT: "├", _UP | _DOWN | _LEFT: "┤", _DOWN | _LEFT | _RIGHT: "┬", _UP | _LEFT | _RIGHT: "┴",
    _UP | _DOWN | _LEFT | _RIGHT: "┼", _LEFT: "─", _RIGHT: "─", _UP: "│", _DOWN: "│",
}  # fmt: skip
_ROWS = 3  # of a lane: the task, how it stands, and nothing
_ARROW = "▶"


def show_picture(screen: Screen, spec: Json, counts: dict[str, Json] | None = None) -> None:
    """Draw a workflow; `counts` has, of a run of it, by task how many of its runs are in which state."""
    drawn = picture(spec, counts)
    sheet = _Sheet(drawn, is_run=counts is not None)
    screen.line()
    if sheet.width <= shutil.get_terminal_size().columns:
        screen.lines(sheet.rows())
    else:
        _show_list(screen, spec, drawn, is_run=counts is not None)


def show_tasks(screen: Screen, tasks: list[Json]) -> None:
    """Draw how the tasks of a run stand."""
    spec = {"tasks": {task["name"]: task for task in tasks}}
    show_picture(screen, spec, {task["name"]: task["runs"] for task in tasks})


def _show_list(screen: Screen, spec: Json, drawn: Picture, *, is_run: bool) -> None:
    rows: list[list[str | Cell]] = [
        [_head(box, is_run=is_run), _under(box, is_run=is_run), needs_words(spec, box.task)] for box in drawn.boxes
    ]
    screen.table(["task", "state" if is_run else "kind", "needs?"], rows)


def _head(box: Box, *, is_run: bool) -> Cell:
    symbol, style = SYMBOLS.get(box.state, ("·", "bright_black")) if is_run else ("□", "")
    return Cell(box.title, style, symbol)


def _under(box: Box, *, is_run: bool) -> str:
    if not is_run:
        return box.about
    if not box.is_fan_out or not box.counts:
        return box.state.replace("_", " ")
    known = [state for state in SYMBOLS if box.counts.get(state)]
    return " ".join(f"{box.counts[state]}{SYMBOLS[state][0]}" for state in known)


class _Sheet:
    """A picture as rows of cells: each layer has a column, and between two of them is room for lines."""

    def __init__(self, drawn: Picture, *, is_run: bool) -> None:
        self._boxes = {box.task: box for box in drawn.boxes}
        self._texts = {box.task: (_head(box, is_run=is_run), _under(box, is_run=is_run)) for box in drawn.boxes}
        self._lanes = drawn.lanes
        self._strokes: dict[tuple[int, int], int] = {}
        self._arrows: set[tuple[int, int]] = set()
        self._columns = self._placed(drawn)
        self.width = self._columns[-1][1] if self._columns else 0
        for line in drawn.lines:
            self._draw(line)

    def _placed(self, drawn: Picture) -> list[tuple[int, int]]:
        """Return where each layer begins and ends; before it is a place to turn for each of those that come to it."""
        self._turns: dict[tuple[int, int], int] = {}  # layer, lane from which a line comes → column where it turns
        columns, at = [], 0
        for layer in range(drawn.layers):
            if layer:
                sources = sorted({place[1] for line in drawn.lines for place in line.places if place[0] == layer - 1})
                for number, lane in enumerate(sources):
                    self._turns[layer, lane] = at + 2 + number
                at += len(sources) + 5
            width = max((self._width(box) for box in drawn.boxes if box.layer == layer), default=0)
            columns.append((at, at + width))
            at += width
        return columns

    def _width(self, box: Box) -> int:
        head, under = self._texts[box.task]
        return max(width_of(head.whole), width_of(clean(under)))

    def _draw(self, line: Line) -> None:
        at = self._columns[self._boxes[line.start].layer][0] + width_of(self._texts[line.start][0].whole) + 1
        for (_, lane), (layer, next_lane) in zip(line.places, line.places[1:], strict=False):
            turn, begin = self._turns[layer, lane], self._columns[layer][0]
            is_end = (layer, next_lane) == line.places[-1]
            end = begin - 2 if is_end else begin
            self._across(lane * _ROWS, at, turn)
            self._down(turn, lane * _ROWS, next_lane * _ROWS)
            self._across(next_lane * _ROWS, turn, end)
            if is_end:
                self._arrows.add((next_lane * _ROWS, end))
            at = end

    def _across(self, row: int, begin: int, end: int) -> None:
        for at in range(begin, end + 1):
            sides = (_LEFT if at > begin else 0) | (_RIGHT if at < end else 0)
            self._strokes[row, at] = self._strokes.get((row, at), 0) | sides

    def _down(self, at: int, one: int, other: int) -> None:
        top, bottom = min(one, other), max(one, other)
        for row in range(top, bottom + 1) if top < bottom else ():
            sides = (_UP if row > top else 0) | (_DOWN if row < bottom else 0)
            self._strokes[row, at] = self._strokes.get((row, at), 0) | sides

    def rows(self) -> list[list[Cell]]:
        """Each row as pieces of text, one after the other."""
        pieces: dict[int, dict[int, Cell]] = {}
        for task, (head, under) in self._texts.items():
            box = self._boxes[task]
            row, at = box.lane * _ROWS, self._columns[box.layer][0]
            pieces.setdefault(row, {})[at] = Cell(head.whole, head.style)
            pieces.setdefault(row + 1, {})[at] = Cell(
                clean(under), "bright_black" if box.state == WAITING else head.style
            )
        for (row, at), sides in self._strokes.items():
            stroke = _ARROW if (row, at) in self._arrows else _STROKES.get(sides, " ")
            pieces.setdefault(row, {})[at] = Cell(stroke, "bright_black")
        found = [_row(pieces.get(row, {})) for row in range(self._lanes * _ROWS)]
        while found and not found[-1]:
            found.pop()
        return found


def _row(pieces: dict[int, Cell]) -> list[Cell]:
    found: list[Cell] = []
    at = 0
    for begin in sorted(pieces):
        if begin > at:
            found.append(Cell(" " * (begin - at)))
        found.append(pieces[begin])
        at = begin + width_of(pieces[begin].text)
    return found
