"""How pages say moments, durations and states. What scripts say again (static/words.js) is the same."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from horae import schemas
from horae.core.runs.wording import say_reason
from horae.core.time import moments
from horae.core.work.progress import progress_words, share_done
from horae.errors import Error
from horae.web import render

# A state is a shape, a word and a colour: whoever does not see one of them sees the others.
MARKS = {
    "succeeded": "✓", "failed": "✗", "timed_out": "◷", "running": "●", "queued": "○", "blocked": "◌", "cancelled": "■",
    "skipped": "↷", "coalesced": "↪",
}  # fmt: skip
_NONE = Markup('<span class="none">–</span>')
_SMALL = ("skipped", "coalesced", "cancelled")  # nothing came of it
_SHOWING = re.compile(
    r"\bhorae (?:logs (?P<log>\d{1,19})(?: --attempt (?P<attempt>\d{1,9}))?|"
    r"(?:runs show |explain run:)(?P<run>\d{1,19}))",
    re.ASCII,
)
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def progress(it: schemas.Progress | None) -> str:
    return "" if it is None else progress_words(render.plain(it))


def share(it: schemas.Progress | None) -> float | None:
    return None if it is None else share_done(render.plain(it))


def span(ms: float | None) -> str:
    """Milliseconds as people say them: 340 ms, 2.1 s, 3 min 20 s, 5 h 12 min."""
    if ms is None:
        return "–"
    if abs(ms) < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if abs(seconds) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def took(run: schemas.Run, now: str) -> str:
    """Return how long a run has taken, so far or in all."""
    if run.started_at is None:
        return "–"
    return span(max(0, _moment(run.finished_at or now) - _moment(run.started_at)) / 1000)


def away(moment: str | None, now: str) -> str:
    """Return how far a moment is, in its largest unit: in 5 s, 3 min ago."""
    if moment is None:
        return "–"
    seconds = (_moment(moment) - _moment(now)) / 1_000_000
    far = abs(seconds)
    if far < 1:
        return "now"
    unit, word = next((unit, word) for unit, word in _UNITS if far >= unit)
    return f"in {far // unit:.0f} {word}" if seconds > 0 else f"{far // unit:.0f} {word} ago"


def clock(moment: str | None, zone: str = "UTC") -> str:
    """Return a moment to read, in a zone: Sun 2027-03-28 04:30:00 CEST."""
    return "–" if moment is None else f"{_there(moment, zone):%a %Y-%m-%d %H:%M:%S %Z}"


def day(moment: str, zone: str = "UTC") -> str:
    """Return a moment in short: Tue 14:05."""
    return f"{_there(moment, zone):%a %H:%M}"


def _there(moment: str, zone: str) -> datetime:
    return datetime.fromtimestamp(_moment(moment) // 1_000_000, UTC).astimezone(_zone(zone))


_moment = lru_cache(maxsize=1024)(moments.parse_moment)  # a page says most of its moments twice, and now each time


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def plain(state: str) -> str:
    """Return a state or a reason as words."""
    return state.replace("_", " ")


def because(reason: str) -> str:
    return say_reason(reason)


def mark(state: str) -> str:
    return MARKS.get(state, "·")


# What follows is said hundreds of times on a page: a macro of a template takes several times as long.


def badge(state: str, reason: str = "") -> Markup:
    """Return a state as a mark and a word, with what it is for."""
    shown = f'<span class="state {escape(state)}"><i aria-hidden="true">{mark(state)}</i>{escape(plain(state))}</span>'
    why = f' <span class="why">{escape(because(reason))}</span>' if reason else ""
    return Markup(shown + why)  # noqa: S704  escaped


@pass_context
def when(context: Context, moment: str | None) -> Markup:
    """Return how far a moment is, with the moment behind it, in the zone of whoever looks."""
    if not moment:
        return _NONE
    said, there = away(moment, context["at"]), clock(moment, context["look"].zone)
    return Markup(f'<time datetime="{escape(moment)}" data-away title="{there}">{said}</time>')  # noqa: S704  escaped


@pass_context
def moment(context: Context, text: str | None) -> Markup:
    """Return a moment, with how far it is behind it."""
    if not text:
        return _NONE
    said, far = clock(text, context["look"].zone), away(text, context["at"])
    return Markup(f'<time datetime="{escape(text)}" title="{far}">{said}</time>')  # noqa: S704  escaped


def cells(rows: Sequence[Sequence[object]]) -> Markup:
    """Return rows of the table that is behind a chart."""
    said = ("".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in rows)
    return Markup("".join(f"<tr>{row}</tr>" for row in said))  # noqa: S704  escaped


def fates_words(states: Sequence[str]) -> str:
    """Return what a row of small bars shows: 28 succeeded, 2 failed."""
    counted = Counter(states)
    return ", ".join(f"{number} {plain(state)}" for state, number in counted.items()) or "no run yet"


def fates_bars(states: Sequence[str], width: int) -> Markup:
    """Return the same as shapes, the newest at the right end. A page has thousands of bars: those of a state are one
    shape, for a browser takes as long for a bar as for all of them."""
    places: dict[str, list[int]] = {}
    for place, state in enumerate(states, width - len(states)):
        places.setdefault(state, []).append(place)
    return Markup("".join([_fate_shape(state, tuple(them)) for state, them in places.items()]))  # noqa: S704  escaped


@lru_cache(maxsize=1024)
def _fate_shape(state: str, places: tuple[int, ...]) -> str:
    top, height = (8, 12) if state == "succeeded" else (14, 6) if state in _SMALL else (0, 20)
    bars = "".join([f"M{place * 5} {top}h4v{height}h-4z" for place in places])
    return f'<path class="{escape(state)}" d="{bars}"/>'


def count(number: float) -> str:
    """Return a number with its thousands apart."""
    return f"{number:,}".replace(",", " ")


_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z")

_ELSEWHERE = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d[+-]\d\d:\d\d)")  # as the clocks of a trigger show it


def dated(text: str, zone: str, now: str) -> Markup:
    """Escaped text, with the moments in it as pages show them."""
    shown = _MOMENT.sub(lambda found: _as_time(found[0], zone, now), str(escape(text)))
    return Markup(_ELSEWHERE.sub(r"\1 \2", shown))  # noqa: S704  escaped just before


def _as_time(text: str, zone: str, now: str) -> str:
    try:
        return f'<time datetime="{text}" title="{away(text, now)}">{clock(text, zone)}</time>'
    except Error:  # somebody's own text only looks like a moment
        return text


def linked(text: str) -> Markup:
    """Escaped text, with commands that show a run, or its log, as links to where pages show that."""
    return Markup(_SHOWING.sub(_link_to, str(escape(text))))  # noqa: S704  escaped just before


def _link_to(found: re.Match[str]) -> str:
    run_id = found["log"] or found["run"]
    attempt = f"?attempt={found['attempt']}" if found["attempt"] else ""
    return f'<a href="/runs/{run_id}{attempt}{"#log" if found["log"] else ""}"><code>{found[0]}</code></a>'


def ticks(text: str) -> Markup:
    """Escaped text, with `this` set as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704  escaped just before
