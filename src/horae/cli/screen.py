"""What reaches the user: tables, single records, JSON, log text and errors.

On a terminal: Rich tables, colour and spinners. In a pipe: the same columns as plain aligned text, one row
per line. With --json: the API's own answer. What must stay true: text that a user or a job wrote never
reaches a terminal with its control characters intact, and colour appears only on a terminal without NO_COLOR.

Rich is imported where it is used: it takes a third of the time that `horae runs` has to start, and output
into a pipe does without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from horae.errors import Error

Json = dict[str, Any]  # an answer of the API

GAP = 2  # columns of a terminal between two of a table
READABLE = 16  # of a terminal: text that is folded to fewer can hardly be read

# C0 and C1 controls, direction marks that reorder what is read, line separators, halves of surrogates.
_CONTROL = "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
_COLOUR = "\x1b\\[[0-9;:]*m"

SYMBOLS = {
    "queued": ("○", "cyan"),
    "blocked": ("◌", "cyan"),
    "running": ("●", "blue"),
    "succeeded": ("✓", "green"),
    "failed": ("✗", "red"),
    "timed_out": ("✗", "red"),
    "cancelled": ("■", "yellow"),
    "skipped": ("↷", "yellow"),
    "coalesced": ("↪", "bright_black"),
}


def _without_controls(text: str, instead: Callable[[str], str]) -> str:
    """Return text with something else for each control character; most has none, and needs no long look."""
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_CONTROL, lambda found: instead(found[0]), text)


def clean(text: str) -> str:
    """Text of somebody else, safe on a terminal and on one line."""
    return _without_controls(text, _escape)


def clean_log(text: str) -> str:
    """Output of a job, safe on a terminal: its lines and tabs stay, its colours go."""
    lines = re.sub(_COLOUR, "", text).replace("\r\n", "\n").replace("\r", "\n")
    return _without_controls(lines, lambda found: found if found in "\n\t" else _escape(found))


def _escape(character: str) -> str:
    return repr(character)[1:-1] if ord(character) < 0x80 else f"\\u{ord(character):04x}"


# ── words for numbers ──────────────────────────────────────────────────────────────────────────────


def duration(seconds: float | None) -> str:
    """Return a length of time as people say it: 3ms, 1.2s, 4m05s, 2h10m, 3d4h."""
    if seconds is None:
        return ""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


def local_time(moment: str | None) -> str:
    """Return an RFC 3339 moment in this machine's time zone, to the second."""
    if not moment:
        return ""
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def between(start: str | None, end: str | None) -> float | None:
    if not start or not end:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def name_of_job(one: Json) -> str:
    """Return the name of the job of a run or a trigger; the number of one that is gone, or that an older server does
    not name."""
    return str(one.get("job_name") or one["job_id"])


# ── the screen ─────────────────────────────────────────────────────────────────────────────────────


class Cell(NamedTuple):
    """Text of a table with what a terminal adds to it."""

    text: str
    style: str = ""
    symbol: str = ""

    @property
    def whole(self) -> str:
        return f"{self.symbol} {clean(self.text)}".lstrip()


def state_cell(state: str) -> Cell:
    symbol, style = SYMBOLS.get(state, ("", ""))
    return Cell(state, style, symbol)


class Screen:
    """Where a command writes. Decided once: terminal, pipe or JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.is_terminal = sys.stdout.isatty() and not as_json

    def json(self, value: Any) -> None:
        """One JSON document on one line."""
        self.line(_json_text(value))

    def line(self, text: str = "") -> None:
        """A line of our own making; words of others in it are cleaned by the caller."""
        sys.stdout.write(f"{text}\n")

    def note(self, text: str) -> None:
        """A remark that is no result: kept out of pipes."""
        if not self.as_json:
            sys.stderr.write(f"{clean(text)}\n")
            sys.stderr.flush()

    def tell(self, text: str, shown: Json) -> None:
        """A remark that a program may need too: with --json, an object on standard error."""
        sys.stderr.write(f"{_json_text(shown) if self.as_json else clean(text)}\n")
        sys.stderr.flush()

    def warn(self, text: str) -> None:
        self.tell(f"warning: {text}", {"warning": text})

    def log(self, text: str) -> None:
        sys.stdout.write(clean_log(text) if self.is_terminal else text)
        self.flush()

    def flush(self) -> None:
        sys.stdout.flush()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str | Cell]], empty: str = "") -> None:
        """Rows under headings. A heading that begins with `>` sets its column to the right; one that ends with `?` can
        be spared on a narrow terminal, and with `??` sooner."""
        if not rows:
            return self.note(empty)
        read = [Column.read(heading) for heading in columns]
        cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
        return self._rich_table(read, cells) if self.is_terminal else self._plain_table(read, cells)

    def record(self, fields: Sequence[tuple[str, str | Cell]]) -> None:
        """Name and value, one pair per line; empty values are left out."""
        shown = [(name, _text(value)) for name, value in fields if _text(value)]
        width = max((len(name) for name, _ in shown), default=0)
        for name, text in shown:
            self.line(f"{name:<{width}}  {text}")

    def lines(self, rows: Sequence[Sequence[Cell]]) -> None:
        """Rows of cells as they are, one beside the other: a drawing."""
        if not self.is_terminal:
            for row in rows:
                self.line("".join(cell.text for cell in row))
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(file=sys.stdout, color_system=_colours(), highlight=False)
        for row in rows:
            console.print(Text.assemble(*((cell.text, cell.style) for cell in row)), no_wrap=True, crop=False)

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """A spinner while the body takes its time; nothing outside a terminal."""
        if not (self.is_terminal and sys.stderr.isatty()):
            yield
            return
        from rich.console import Console

        with Console(stderr=True, color_system=_colours()).status(clean(text)):
            yield

    def _plain_table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        lines = [[column.title.upper() for column in columns], *([_text(cell) for cell in row] for row in rows)]
        widths = [max(map(width_of, cells)) for cells in zip(*lines, strict=True)]
        for line in lines:
            cells = [
                _fill(text, width, column.is_right) for column, text, width in zip(columns, line, widths, strict=True)
            ]
            self.line("  ".join(cells).rstrip())

    def _rich_table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(file=sys.stdout, color_system=_colours(), highlight=False)
        cells = list(zip(_headings(columns), *rows, strict=True))
        least = [max(map(_least_width, column)) for column in cells]
        shown = _that_fit(columns, least, console.width)
        natural = [max(width_of(cell.whole) for cell in cells[n]) for n in shown]
        widths = _folded(natural, [least[n] for n in shown], console.width)
        table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
        for n, width in zip(shown, widths, strict=True):
            side: Any = "right" if columns[n].is_right else "left"
            table.add_column(columns[n].title, justify=side, overflow="fold", width=width)
        for row in rows:
            table.add_row(*(Text(row[n].whole, style=row[n].style) for n in shown))
        console.print(table)
        if len(shown) < len(columns):
            hidden = ", ".join(column.title for n, column in enumerate(columns) if n not in shown)
            self.note(f"this terminal is too narrow for: {hidden}")


# ── tables ──


class Column(NamedTuple):
    title: str
    is_right: bool
    dispensable: int  # on a narrow terminal: the most goes first, and of equals the last

    @classmethod
    def read(cls, heading: str) -> Column:
        title = heading.strip(">?")
        return cls(title, heading.startswith(">"), heading.count("?"))


def _headings(columns: Sequence[Column]) -> list[Cell]:
    return [Cell(column.title) for column in columns]


def _that_fit(columns: Sequence[Column], least: Sequence[int], room: int) -> list[int]:
    """Return which columns to show. What nobody said can be spared stays, and is folded."""
    shown = list(range(len(columns)))
    while sum(least[n] for n in shown) + GAP * (len(shown) - 1) > room:
        worst = max(shown, key=lambda n: (columns[n].dispensable, n))
        if not columns[worst].dispensable:
            break
        shown.remove(worst)
    return shown


def _least_width(cell: Cell) -> int:
    """Return the room below which a cell is hard to read: numbers and states are not folded, text not to nothing."""
    width = width_of(cell.whole)
    is_text = not cell.symbol and any(map(str.isalpha, cell.text))
    return min(width, READABLE) if is_text else width


def _folded(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return how wide columns are to be: the widest gives way, as long as any can."""
    widths, most = list(natural), room - GAP * (len(natural) - 1)
    while sum(widths) > most:
        can = [n for n in range(len(widths)) if widths[n] > least[n]] or [
            n for n in range(len(widths)) if widths[n] > 1
        ]
        if not can:
            break
        widths[max(can, key=widths.__getitem__)] -= 1
    return widths


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes: those of many languages, and emoji, take two a character."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # few need it

    return cell_len(text)


def _fill(text: str, width: int, is_right: bool) -> str:
    room = " " * (width - width_of(text))
    return room + text if is_right else text + room


def _json_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    return _without_controls(text, lambda found: f"\\u{ord(found):04x}")


def _text(cell: str | Cell) -> str:
    return clean(cell.text if isinstance(cell, Cell) else cell)


def _colours() -> Any:
    """Rich's name of the colours to use. NO_COLOR alone would leave it bold and dim: it means none here."""
    return None if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else "auto"


def problem_of(error: Error, exit_code: int) -> Json:
    """Return an error as --json shows it: what the server's problem document has for people, and our exit code."""
    shown: Json = {"code": error.code, "message": error.message}
    if error.hint:
        shown["hint"] = error.hint
    further = error.listed() if len(error.problems) > 1 else []
    return {**shown, "errors": [one.as_dict() for one in further], "exit_code": exit_code}


def show_error(error: Error, exit_code: int, *, as_json: bool) -> None:
    """`error[CODE]: message`, every further problem, and what to do, on stderr; or all that as JSON."""
    if as_json:
        sys.stderr.write(f"{_json_text(problem_of(error, exit_code))}\n")
        return
    lines = [f"error[{error.code}]: {clean(error.message)}"]
    if len(error.problems) > 1:
        lines += [_problem_line(one.path, one.message, one.hint) for one in error.listed()]
    if error.hint:
        lines.append(f"hint: {clean(error.hint)}")
    sys.stderr.write("\n".join(lines) + "\n")


def _problem_line(path: str, message: str, hint: str) -> str:
    where = f"{path}: " if path else ""
    return f"  - {clean(where + message)}{f' ({clean(hint)})' if hint else ''}"


def note_more(screen: Screen, page: Json) -> None:
    if page["cursor"]:
        screen.note(f"these are {len(page['items'])}; there are more: raise --limit")
