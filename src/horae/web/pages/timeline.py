"""Time as a picture: jobs as rows, what ran on the left of now, what is to run on the right."""

from __future__ import annotations

from datetime import timedelta
from heapq import nsmallest
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup

from horae.core.insight.arrivals import Window
from horae.core.insight.timeline import EXPECTED, Bar
from horae.core.model import SECOND, Moment
from horae.core.roles import Permission
from horae.core.time import moments
from horae.service import Services
from horae.service.insight.timelines import Row, Timeline, Timelines
from horae.web import http, params, render
from horae.web.pages import filters
from horae.web.pages.shared import Shared
from horae.web.pages.shell import HTML, Shell

WIDTH, TICKS = 1000, 6
ROWS = 40
MOST_IN_TABLE = 200
LISTED = 8  # shortages, and clashes
SECONDS = 1.0  # for which one look serves all who watch
_LEAST = 2  # units of the shortest bar
SPANS = {
    "15m": timedelta(minutes=15), "1h": timedelta(hours=1), "6h": timedelta(hours=6), "24h": timedelta(days=1),
    "3d": timedelta(days=3), "7d": timedelta(days=7), "14d": timedelta(days=14), "28d": timedelta(days=28),
}  # fmt: skip
# Which of several runs that lie on one spot is shown.
_WORST = ("failed", "timed_out", "running", "blocked", "queued", "cancelled", "skipped", "coalesced", "succeeded")
_RANK = {state: rank for rank, state in enumerate(_WORST)}
_Placed = tuple[int, int, Bar]  # where it begins and ends
_ASKED = (
    filters.choice("span", "How much time is shown.", SPANS, "6h"),
    filters.optional(params.moment("at", "The moment in the middle; now, unless given.")),
    filters.clock("clock", "In place of it, the next time at which the clock shows this, such as 03:00."),
    filters.optional(params.text("name", "A part of the name of the job.", 200)),
)


class Drawn(NamedTuple):
    """A bar of the picture: one run, or several that lie on the same spot."""

    x: int
    width: int
    state: str
    run_id: int | None
    many: int
    start: Moment
    look: str

    def said(self) -> str:
        """Return what it is, for a script that shows it to whoever points at it."""
        return f"{self.x} {self.width} {self.state} {self.run_id or 0} {self.many} {self.start // SECOND}"


class Lane(NamedTuple):
    """A row of the picture. Its bars are one link: of thousands, a browser is slow to draw, and nobody could step
    through them."""

    row: Row
    href: str
    shapes: Markup
    spots: str


class TimelinePage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._jobs = services.jobs
        self._forecasting = services.forecasting
        self._timelines = Timelines(services.jobs, services.forecasting, services.insight)
        self._shell = shell
        self._shared = Shared(SECONDS)

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation(
                "GET", "/timeline", self.show, "pages", "The timeline page", HTML, params=_ASKED, needs=Permission.READ
            )
        ]

    async def show(self, request: http.Request) -> http.Answer:
        """Everybody who sees the same is served by one look, until there is a forecast that it has not seen."""
        org, zone = http.principal(request).bound_to, self._shell.zone_of(request)
        key = (org, zone, self._forecasting.made, *sorted(request.args.items()))
        seen = await self._shared.see(key, lambda: self._look(dict(request.args), org, zone))
        return self._shell.shared_page(request, "timeline.html", seen.drawn, seen.values)

    async def _look(self, args: dict[str, Any], org: int | None, zone: str) -> dict[str, Any]:
        now = await self._jobs.now()
        if args["clock"]:
            args["at"] = filters.next_at(args["clock"], now, zone)
        length = int(SPANS[args["span"]].total_seconds()) * SECOND
        middle = now if args["at"] is None else args["at"]
        window = Window(middle - length // 2, middle + length // 2)
        found = await self._timelines.make(window, ROWS, args["name"], org, waits=False)
        lanes = [_lane(row, window, found.now) for row in found.rows]
        return {
            "found": found, "lanes": lanes, "asked": args, "spans": list(SPANS), "steps": _steps(args, middle),
            "ticks": [render.stamp(window.start + length * tick // TICKS) for tick in range(TICKS)], "zone": zone,
            "now_x": _x(found.now, window), "load": _load(found), "behind": _behind(found),
            "at_once": None if args["at"] is None else _at(found, middle), "middle": render.stamp(middle),
            "shortages": _shortages(found), "clashes": _clashes(found),
            "is_foretold": found.forecast is not None or window.end <= found.now,
        }  # fmt: skip


class Ahead(NamedTuple):
    """Something that is to come and that somebody may want to change."""

    x: int  # on the axis
    at: str
    title: str
    about: str
    href: str


_SHORT = {"slots": "/cluster", "queue": "/queues", "limit": "/queues"}


def _shortages(found: Timeline) -> list[Ahead]:
    """Return where places run out, with when and how many."""
    return [
        Ahead(
            _x(it.start_at, found.window), render.stamp(it.start_at), f"{it.what} of {it.name}",
            f"{round(it.wanted)} wanted, {it.rate if it.capacity is None else it.capacity} there, "
            f"until {render.stamp(it.end_at)}", _SHORT[it.what],
        )
        for it in (found.forecast.shortages[:LISTED] if found.forecast else ())
    ]  # fmt: skip


def _clashes(found: Timeline) -> list[Ahead]:
    """Return when many triggers are due in the same second; the first of their jobs leads on."""
    return [
        Ahead(
            _x(it.at, found.window), render.stamp(it.at), f"{it.triggers} triggers, {it.times} times",
            "; ".join(f"{crowd.triggers} with {crowd.expression} ({crowd.timezone})" for crowd in it.crowds),
            f"/jobs/{it.crowds[0].jobs[0]}",
        )
        for it in (found.forecast.clashes[:LISTED] if found.forecast else ())
        if it.crowds and it.crowds[0].jobs
    ]  # fmt: skip


class There(NamedTuple):
    """A run that goes on at the moment that was asked for."""

    job_id: int
    name: str
    run_id: int | None
    state: str
    start_at: str
    end_at: str | None


def _at(found: Timeline, moment: Moment) -> list[There]:
    """Return what runs in the minute that begins at a moment, of the jobs that are shown."""
    return [
        There(row.job_id, row.name, bar.run_id, bar.state, render.stamp(bar.start), render.when(bar.end))
        for row in found.rows
        for bar in row.bars
        if bar.start < moment + 60 * SECOND and (bar.end or found.now) >= moment
    ]


def _x(moment: Moment, window: Window) -> int:
    return round((moment - window.start) * WIDTH / (window.end - window.start))


def _lane(row: Row, window: Window, now: Moment) -> Lane:
    drawn = _drawn(row.bars, window, now)
    if row.more is not None:
        x = _x(row.more.start, window)
        width = max(_LEAST, _x(row.more.end, window) - x)
        drawn.append(Drawn(x, width, EXPECTED, None, row.more.many, row.more.start, "more"))
    asked = {"job": row.job_id, "since": render.stamp(window.start), "until": render.stamp(window.end)}
    href = f"/runs?{urlencode(asked)}" if any(bar.run_id for bar in drawn) else f"/jobs/{row.job_id}"
    return Lane(row, href, _shapes(drawn), ";".join([bar.said() for bar in drawn]))


def _shapes(drawn: list[Drawn]) -> Markup:
    """Return bars as SVG, those that look alike as one shape, the worst on top. What they are made of is numbers and
    words of ours."""
    alike: dict[str, list[str]] = {}
    for bar in drawn:
        alike.setdefault(bar.look, []).append(f"M{bar.x} 4h{bar.width}v12h-{bar.width}z")
    looks = sorted(alike, key=lambda look: -_RANK.get(look, len(_WORST)))
    return Markup("".join([f'<path class="bar {look}" d="{"".join(alike[look])}"/>' for look in looks]))  # noqa: S704


def _drawn(bars: list[Bar], window: Window, now: Moment) -> list[Drawn]:
    """Bars that would lie on one spot are one: a row never has more than fit."""
    spots: dict[tuple[int, bool], list[_Placed]] = {}
    start, length = window.start, window.end - window.start
    for bar in bars:  # of thousands: as _x does it
        x, end = round((bar.start - start) * WIDTH / length), round(((bar.end or now) - start) * WIDTH / length)
        if end >= 0 and x <= WIDTH:
            spots.setdefault((max(0, x) // _LEAST, bar.run_id is None), []).append((x, end, bar))
    return [_merged(spots[spot]) for spot in sorted(spots)]


def _merged(there: list[_Placed]) -> Drawn:
    if len(there) == 1:
        [(x, end, worst)] = there
    else:
        worst = min((bar for _, _, bar in there), key=lambda bar: _RANK.get(bar.state, len(_WORST)))
        x, end = min(x for x, _, _ in there), max(end for _, end, _ in there)
    x = max(0, x)
    look = worst.state if worst.run_id else "foretold"
    return Drawn(x, max(_LEAST, min(WIDTH, end) - x), worst.state, worst.run_id, len(there), worst.start, look)


def _load(found: Timeline) -> dict[str, Any]:
    """How many at once, as two lines under which lies their area."""
    top = max([found.slots, 1, *(one.running for one in found.load)])
    places = {
        is_expected: [
            (_x(one.at, found.window), round(58 - one.running * 54 / top, 1))
            for one in found.load
            if one.is_expected is is_expected
        ]
        for is_expected in (False, True)
    }
    lines = {
        key: "".join(f"{'L' if number else 'M'}{x} {y}" for number, (x, y) in enumerate(them))
        for key, them in places.items()
    }
    short = [
        (max(0, begin), max(_LEAST, _x(one.end_at, found.window) - begin))
        for one in (found.forecast.shortages if found.forecast else ())
        if (begin := _x(one.start_at, found.window)) < WIDTH
    ]
    return {
        "past": lines[False], "ahead": lines[True], "slots_y": round(58 - found.slots * 54 / top, 1), "short": short,
        "top": round(top),
    }  # fmt: skip


def _behind(found: Timeline) -> list[tuple[str, str, str, str]]:
    """Return the same as rows of a table."""
    said = ((bar.start, row.name, bar.state, bar.end) for row in found.rows for bar in row.bars)
    return [
        (name, state.replace("_", " "), render.stamp(start), "–" if end is None else render.stamp(end))
        for start, name, state, end in nsmallest(MOST_IN_TABLE, said, key=itemgetter(0))
    ]


def _steps(args: dict[str, Any], middle: Moment) -> dict[str, str | None]:
    """Return where the buttons lead: earlier, later, nearer, farther, and to now."""
    names, here = list(SPANS), list(SPANS).index(args["span"])
    quarter = int(SPANS[args["span"]].total_seconds()) * SECOND // 2

    def there(span: str, at: Moment | None) -> str:
        kept = {"span": span, "name": args["name"], "at": None if at is None else moments.format_moment(at)}
        return "/timeline?" + urlencode({name: value for name, value in kept.items() if value})

    return {
        "earlier": there(args["span"], middle - quarter), "later": there(args["span"], middle + quarter),
        "nearer": there(names[here - 1], args["at"]) if here else None,
        "farther": there(names[here + 1], args["at"]) if here + 1 < len(names) else None,
        "now": there(args["span"], None),
        **{f"to {span}": there(span, args["at"]) for span in names},
    }  # fmt: skip
