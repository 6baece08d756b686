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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from horae.errors import Error

Json = dict[str, Any]  # an answer of the API

# C0 and C1 controls, direction marks that reorder what is read, line separators, halves of surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_COLOUR = re.compile("\x1b\\[[0-9;:]*m")

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


def clean(text: str) -> str:
    """Text of somebody else, safe on a terminal and on one line."""
    return _CONTROL.sub(lambda found: _escape(found[0]), text)


def clean_log(text: str) -> str:
    """Output of a job, safe on a terminal: its lines and tabs stay, its colours go."""
    lines = _COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(lambda found: found[0] if found[0] in "\n\t" else _escape(found[0]), lines)


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


@dataclass(frozen=True, slots=True)
class Cell:
    """Text of a table with what a terminal adds to it."""

    text: str
    style: str = ""
    symbol: str = ""


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
        """Rows under headings. A heading that begins with `>` sets its column to the right."""
        if not rows:
            self.note(empty)
        elif self.is_terminal:
            self._rich_table(columns, rows)
        else:
            self._plain_table(columns, rows)

    def record(self, fields: Sequence[tuple[str, str | Cell]]) -> None:
        """Name and value, one pair per line; empty values are left out."""
        shown = [(name, _text(value)) for name, value in fields if _text(value)]
        width = max((len(name) for name, _ in shown), default=0)
        for name, text in shown:
            self.line(f"{name:<{width}}  {text}")

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """A spinner while the body takes its time; nothing outside a terminal."""
        if not (self.is_terminal and sys.stderr.isatty()):
            yield
            return
        from rich.console import Console

        with Console(stderr=True, color_system=_colours()).status(clean(text)):
            yield

    def _plain_table(self, columns: Sequence[str], rows: Sequence[Sequence[str | Cell]]) -> None:
        lines = [[name.lstrip(">").upper() for name in columns], *([_text(cell) for cell in row] for row in rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
        for line in lines:
            cells = [
                cell.rjust(width) if name.startswith(">") else cell.ljust(width)
                for name, cell, width in zip(columns, line, widths, strict=True)
            ]
            self.line("  ".join(cells).rstrip())

    def _rich_table(self, columns: Sequence[str], rows: Sequence[Sequence[str | Cell]]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for name in columns:
            table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left", overflow="fold")
        for row in rows:
            cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
            table.add_row(*(Text(f"{cell.symbol} {_text(cell)}".lstrip(), style=cell.style) for cell in cells))
        Console(file=sys.stdout, color_system=_colours(), highlight=False).print(table)


def _json_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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
