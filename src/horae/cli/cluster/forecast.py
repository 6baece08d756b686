"""The command that foretells runs: how many, how many at once against the slots there are, and where they run out.

    03:00  ████████████████████░░░░│     412 runs   38 at once
    03:30  ███▌                    │      61 runs    7 at once

A bar is what is expected at once; dots go on to what nine times of ten is not exceeded; the line is the slots.
"""

from __future__ import annotations

import shutil
from datetime import datetime
from typing import Annotated

import click

from horae.cli.options import Option
from horae.cli.screen import Cell, Json, Screen, clean, duration, local_time
from horae.cli.session import Session, command
from horae.errors import Invalid

_EIGHTHS = " ▏▎▍▌▋▊▉"
LEAST_BAR, MOST_BAR = 10, 60  # columns of a terminal
BESIDE = 46  # columns beside a bar
SHOWN_CLASHES = 5


def register(app: click.Group) -> None:
    command(app, "forecast", "horae forecast --hours 24 --by queue")(forecast)


def forecast(
    session: Session,
    hours: Annotated[int, Option("--hours", metavar="N", max=744, help="Hours to look ahead.")] = 24,
    minutes: Annotated[int, Option("--minutes", metavar="N", max=44_640, help="Minutes instead of hours.")] = 0,
    start: Annotated[
        str | None, Option("--from", metavar="MOMENT", help="Where to begin, such as 2027-01-15T00:00:00Z; else now.")
    ] = None,
    by: Annotated[str, Option("--by", metavar="WHAT", help="What to list: job, queue or owner.")] = "job",
    limit: Annotated[int, Option("--limit", metavar="N", max=1000, help="How many of them to list.")] = 10,
) -> None:
    """Foretell the runs of the next hours: how many, how many at once, how late, where slots or limits run out, and
    which schedules clash."""
    span = minutes / 60 if minutes else hours
    if not span:
        raise Invalid("some time to look ahead expected, got none", code="E_RANGE", hint="for example --hours 24")
    with session.client() as client:
        found = client.json.forecast(span, start_at=start, by=by, limit=limit)
    if session.as_json:
        return session.screen.json(found)
    _show(session.screen, found, by)
    return None


def _show(screen: Screen, found: Json, by: str) -> None:
    screen.line(f"{local_time(found['start_at'])} to {local_time(found['end_at'])}")
    _show_totals(screen, found)
    if found["moments"] or found["runs"]:
        screen.line()
        screen.lines(_bars(found))
        screen.line()
        _show_items(screen, found, by)
    _show_shortages(screen, found["shortages"])
    _show_clashes(screen, found["clashes"])
    for note in found["notes"]:
        screen.note(f"note: {note}")


def _show_totals(screen: Screen, found: Json) -> None:
    are = "is" if _about(found["skipped"]) == "1" else "are"
    skipped = f", of which {_about(found['skipped'])} {are} skipped" if found["skipped"] >= 0.5 else ""
    others = f", {_about(found['followers'])} of them made by others" if found["followers"] >= 0.5 else ""
    screen.record([
        ("moments", f"{found['moments']:,} of {_some(found['triggers'], 'trigger')}{skipped}"),
        ("runs", f"{_about(found['runs'])}{others}"),
        ("at once", f"{_about(found['peak'])} ({_about(found['peak_high'])} at most, nine times of ten), "
                    f"at {local_time(found['peak_at'])}; {_some(found['slots'], 'slot')}"),
        ("late", f"up to {duration(found['late_seconds'])}" if found["late_seconds"] >= 1 else ""),
    ])  # fmt: skip


def _some(count: int, what: str) -> str:
    return f"{count:,} {what if count == 1 else what + 's'}"


def _about(value: float) -> str:
    return f"{round(value):,}" if value >= 10 or value == round(value) else f"{value:.1f}"


# ── bars ──


def _bars(found: Json) -> list[list[Cell]]:
    width = min(MOST_BAR, max(LEAST_BAR, shutil.get_terminal_size().columns - BESIDE))
    most = max([bucket["running_high"] for bucket in found["buckets"]] + [1.0])
    slots = found["slots"]
    full = max(most, slots if slots <= 2 * most else 0)
    is_long = found["bucket_seconds"] >= 7200
    return [_bar(bucket, width, full, slots, is_long=is_long) for bucket in found["buckets"]]


def _bar(bucket: Json, width: int, full: float, slots: int, *, is_long: bool) -> list[Cell]:
    at = datetime.fromisoformat(bucket["start_at"]).astimezone()
    bar = _filled(bucket["running"] * width / full)
    bar += "░" * (round(bucket["running_high"] * width / full) - len(bar))
    line = round(slots * width / full)
    mark = "│" if len(bar) <= line <= width else ""
    late = f"  late {duration(bucket['late_seconds'])}" if bucket["late_seconds"] >= 1 else ""
    text = f"{bar:<{line}}{mark}" if mark else bar
    runs = _about(bucket["runs"])
    figures = f" {runs:>8} {'run ' if runs == '1' else 'runs'} {_about(bucket['running']):>6} at once"
    is_short = bool(slots) and bucket["running"] > slots
    return [
        Cell(f"{at:%m-%d %H:%M  }" if is_long else f"{at:%H:%M  }", "bright_black"),
        Cell(f"{text:<{width + 1}}", "red" if is_short else "green"),
        Cell(figures),
        Cell(late, "red"),
    ]


def _filled(columns: float) -> str:
    whole, rest = divmod(round(columns * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


# ── lists ──


def _show_items(screen: Screen, found: Json, by: str) -> None:
    rows: list[list[str | Cell]] = [_item(it) for it in found["items"]]
    columns = [by, ">moments", ">runs", ">slot time?", "takes??"]
    screen.table(columns, rows)
    if found["item_count"] > len(rows):
        screen.note(f"these are {len(rows)} of {found['item_count']:,}: raise --limit")


def _item(it: Json) -> list[str | Cell]:
    took = it["duration"]
    words = f"{duration(took['low_seconds'])} to {duration(took['high_seconds'])}" if took else ""
    return [clean(it["name"]), f"{it['moments']:,}", _about(it["runs"]), duration(it["busy_seconds"]), words]


def _show_shortages(screen: Screen, shortages: list[Json]) -> None:
    for one in shortages:
        what = {
            "slots": f"slots for {one['name']}",
            "queue": f"queue {one['name']}",
            "limit": f"limit of {one['name']}",
        }
        there = one["rate"] or f"{one['capacity']:,}"
        wait = "nobody can run them" if one["late_seconds"] is None else f"up to {duration(one['late_seconds'])} late"
        screen.lines([[
            Cell("runs out: ", "red"),
            Cell(f"{clean(what[one['what']])}, from {local_time(one['start_at'])} to {local_time(one['end_at'])}: "
                 f"{_about(one['wanted'])} wanted, {there} there; {wait}"),
        ]])  # fmt: skip


def _show_clashes(screen: Screen, clashes: list[Json]) -> None:
    for one in clashes[:SHOWN_CLASHES]:
        times = f", {one['times']:,} times" if one["times"] > 1 else ""
        screen.lines([[Cell("clash: ", "yellow"), Cell(f"{one['triggers']:,} at {local_time(one['at'])}{times}")]])
        for crowd in one["crowds"]:
            instead = f"; write {crowd['instead']!r} to spread them" if crowd["instead"] else ""
            names = ", ".join(map(clean, crowd["jobs"]))
            more = ", …" if crowd["triggers"] > len(crowd["jobs"]) else ""
            screen.line(
                f"  {crowd['triggers']:,} × {crowd['schedule']!r} ({crowd['timezone']}){instead}: {names}{more}"
            )
