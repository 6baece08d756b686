"""Data as shapes, in the units of an SVG: what they look like say the sheets. Each comes with the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from html import escape
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from markupsafe import Markup

from horae import schemas
from horae.core.insight import timeline
from horae.core.insight.baselines import Expected
from horae.core.model import Moment
from horae.core.time import moments
from horae.web.pages.words import day, plain, span

_CELL = 13  # a day, with what lies between two
_BAD = ("failed", "timed_out")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Cell(NamedTuple):
    x: int
    y: int
    look: str
    title: str
    href: str | None  # its runs

    def shape(self) -> str:
        """Return it as SVG: a year has hundreds, of which a template takes several times as long."""
        title = escape(self.title)
        day = (
            f'<rect class="{self.look}" x="{self.x}" y="{self.y}" width="11" height="11" rx="2">'
            f"<title>{title}</title></rect>"
        )
        return f'<a href="{escape(self.href)}" aria-label="{title}">{day}</a>' if self.href else day


class Heat(NamedTuple):
    width: int
    height: int
    cells: list[Cell]
    months: list[tuple[int, str]]
    rows: list[tuple[str, str]]  # days with runs

    @property
    def shapes(self) -> Markup:
        return Markup("".join([cell.shape() for cell in self.cells]))  # noqa: S704  escaped


def heat(days: Sequence[schemas.Day], job_id: int, zone: str) -> Heat:
    """A year of fates: weeks from left to right, Monday on top. Red where anything failed, the darker the more."""
    first = date.fromisoformat(days[0].date)
    start = first - timedelta(days=first.weekday())
    most = max((sum(one.runs.values()) for one in days), default=0)
    cells, months = [], []
    for one in days:
        at = date.fromisoformat(one.date)
        week, weekday = divmod((at - start).days, 7)
        cells.append(
            Cell(week * _CELL, 16 + weekday * _CELL, _look(one.runs, most), _fate_words(one), _day(one, job_id, zone))
        )
        if at.day == 1:
            months.append((week * _CELL, _MONTHS[at.month - 1]))
    width = (cells[-1].x // _CELL + 1) * _CELL
    rows = [(one.date, _fate_words(one).partition(": ")[2]) for one in reversed(days) if one.runs]
    return Heat(width, 16 + 7 * _CELL, cells, months, rows)


def _day(one: schemas.Day, job_id: int, zone: str) -> str | None:
    """Return the runs of a day of this zone; None where there are none."""
    if not one.runs:
        return None
    return f"/runs?job={job_id}&{_within(one.date, zone)}"


@lru_cache(maxsize=4096)
def _within(day: str, zone: str) -> str:
    """Return a day of a zone as the list of runs is asked for it."""
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    until = begin + timedelta(days=1)  # by the clock, however long that day is
    return urlencode({"since": begin.isoformat(), "until": until.isoformat()})


def _fate_words(one: schemas.Day) -> str:
    counted = ", ".join(f"{number} {plain(state)}" for state, number in sorted(one.runs.items()))
    return f"{one.date}: {counted or 'no run'}"


def _look(runs: Mapping[str, int], most: int) -> str:
    total, bad = sum(runs.values()), sum(runs.get(state, 0) for state in _BAD)
    if bad:
        return f"bad{1 + (bad * 3 > total) + (bad * 3 > 2 * total)}"
    return f"good{1 + (total * 3 > most) + (total * 3 > 2 * most)}" if runs.get("succeeded") else ""


class Trend(NamedTuple):
    """How long runs took, oldest left."""

    points: list[tuple[float, float, str, int, str]]  # x, y, state, run, in words
    path: str
    middle: float  # where that lies which half of them take less than
    median: str
    highest: str
    usual: tuple[float, float] | None  # where two of three are expected: top and height
    usual_words: str
    width: int = 600
    height: int = 120


def trend(runs: Sequence[schemas.Run], expected: Expected | None = None) -> Trend | None:
    """Of runs, newest first; None where fewer than two have taken any time. What was learned of the job is shown where
    it is known, else the median of these runs."""
    known = [(run, took) for run in reversed(runs) if (took := _took(run)) is not None]
    if len(known) < 2:
        return None
    low, high = (None, None) if expected is None else (expected.at(-1) * 1000, expected.at(1) * 1000)
    most = max(max(took for _, took in known), high or 0, 1)
    step = 600 / (len(known) - 1)

    def y_of(ms: float) -> float:
        return round(112 - 104 * ms / most, 1)

    places = [(round(n * step, 1), y_of(took)) for n, (_, took) in enumerate(known)]
    middle = median(took for _, took in known) if expected is None else expected.median * 1000
    return Trend(
        [
            (x, y, run.state, run.id, f"#{run.id} {plain(run.state)}, took {span(took)}")
            for (x, y), (run, took) in zip(places, known, strict=True)
        ],
        "M" + "L".join(f"{x} {y}" for x, y in places),
        y_of(middle),
        span(middle),
        span(max(took for _, took in known)),
        None if low is None or high is None else (y_of(high), round(y_of(low) - y_of(high), 1)),
        "" if low is None else f"two of three are expected to take {span(low)} to {span(high)}",
    )


def _took(run: schemas.Run) -> float | None:
    if run.started_at is None or run.finished_at is None:
        return None
    return (moments.parse_moment(run.finished_at) - moments.parse_moment(run.started_at)) / 1000


class Mark(NamedTuple):
    x: float
    y: float
    width: float
    look: str
    title: str
    href: str


class Line(NamedTuple):
    """Time from left to right, now in the middle."""

    marks: list[Mark]
    ticks: list[tuple[float, str]]
    rows: list[tuple[str, str, str]]
    width: int = 1000
    height: int = 104


_LANES = 8


def line(
    past: Sequence[timeline.Mark],
    due: Sequence[schemas.Trigger],
    names: Mapping[str, str],
    now: Moment,
    minutes: int,
    zone: str,
) -> Line:
    """Runs on the left, moments that come on the right. Lanes keep those apart that lie over each other."""
    half = minutes * 60_000_000
    ends = [-1.0] * _LANES
    marks: list[Mark] = []
    rows: list[tuple[str, str, str]] = []

    def x_of(moment: int) -> float:
        return round(500 + 500 * (moment - now) / half, 1)

    def put(start: float, end: float, look: str, title: str, href: str) -> None:
        lane = min(range(_LANES), key=lambda number: (ends[number] > start, ends[number]))
        ends[lane] = end + 2
        marks.append(Mark(start, 4 + lane * 12, round(max(4, end - start), 1), look, title, href))

    for run in sorted(past, key=lambda one: one.started_at or one.due_at):
        begin, end = run.started_at or run.due_at, run.finished_at or now
        if end < now - half:
            continue
        name, said = names.get(str(run.job_id), f"job {run.job_id}"), plain(run.state.word)
        put(max(0, x_of(begin)), min(500, x_of(end)), run.state.word, f"{name} #{run.id}, {said}", f"/runs/{run.id}")
        rows.append((day(moments.format_moment(begin), zone), name, said))
    for one in due:
        if one.next_at is None or not now <= (moment := moments.parse_moment(one.next_at)) < now + half:
            continue
        name = names.get(str(one.job_id), f"job {one.job_id}")
        put(x_of(moment), x_of(moment) + 6, "foretold", f"{name}, due {day(one.next_at, zone)}", f"/jobs/{one.job_id}")
        rows.append((day(one.next_at, zone), name, "due"))
    ticks = [
        (500 + 500 * part / 4, day(moments.format_moment(now + half * part // 4), zone)[4:])
        for part in (-4, -2, 0, 2, 4)
    ]
    return Line(marks, ticks, rows)


class Bars(NamedTuple):
    """Small upright bars, each with a share that went wrong."""

    bars: list[tuple[float, float, float, str]]  # x, height, height of what is bad, in words
    rows: list[tuple[Any, ...]]
    step: float
    highest: str


def bars(values: Sequence[tuple[str, float, float]], words: Any) -> Bars:
    """Of (when, how much, how much of it bad)."""
    highest = max((value for _, value, _ in values), default=0)
    most = highest or 1
    step = 300 / max(1, len(values))
    found = [
        (round(n * step, 1), round(60 * value / most, 1), round(60 * bad / most, 1), f"{when}: {words(value)}")
        for n, (when, value, bad) in enumerate(values)
    ]
    return Bars(found, [(when, words(value)) for when, value, _ in values], step, words(highest))
