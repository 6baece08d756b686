"""What all pages share: header, rail, palette, and how whoever looks wants to see things.

A page is a class of its own in this room, with its operations; its template extends shell.html and names its script.
Templates escape everything; no page loads anything from elsewhere, and the policy header forbids it to.

How somebody wants to see things (theme, density, zone) is a cookie that scripts write and nobody else reads: pages come
right from the server, and do not change their looks once they are there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import jinja2
from jinja2.runtime import Context

from horae.core.model import Job
from horae.core.rights import Granted, is_of_job, may
from horae.core.roles import Permission
from horae.core.time import moments
from horae.errors import Error
from horae.service import Services
from horae.web import http
from horae.web.pages import words
from horae.web.pages.assets import Assets

HTML = "text/html"
LOOK = "horae-look"  # the cookie: theme.density.zone
THEMES = ("auto", "light", "dark", "contrast")
DENSITIES = ("roomy", "compact")
_HERE = Path(__file__).parent
MEDIA = b"text/html; charset=utf-8"


class Entry(NamedTuple):
    path: str
    title: str


# In the order in which they stand; what has no page is not shown.
RAIL = (
    Entry("/", "Overview"),
    Entry("/jobs", "Jobs"),
    Entry("/runs", "Runs"),
    Entry("/timeline", "Timeline"),
    Entry("/workflows", "Workflows"),
    Entry("/queues", "Queues"),
    Entry("/forecast", "Forecast"),
    Entry("/cluster", "Cluster"),
    Entry("/alerts", "Alerts"),
    Entry("/audit", "Audit"),
    Entry("/settings", "Settings"),
)


class Look(NamedTuple):
    theme: str = THEMES[0]
    density: str = DENSITIES[0]
    zone: str = "UTC"
    is_chosen: bool = False  # the zone: else a script says which one the viewer lives in


def read_look(text: str | None) -> Look:
    """Return what a cookie says; whatever it says wrong is as if it said nothing."""
    found = re.fullmatch(r"([a-z]+)\.([a-z]+)\.([A-Za-z0-9_+/-]{1,64})", text or "")
    if found is None:
        return Look()
    theme, density, zone = found.groups()
    is_known = _is_zone(zone)
    return Look(
        theme if theme in THEMES else THEMES[0],
        density if density in DENSITIES else DENSITIES[0],
        zone if is_known else "UTC",
        is_known,
    )


def _is_zone(name: str) -> bool:
    try:
        return bool(ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False


class Drawn:
    """The main part of a page, drawn for the first who sees it and kept for others who see the same."""

    def __init__(self) -> None:
        self._text = ""

    def block(self, draw: Callable[[Context], Iterator[str]]) -> Callable[[Context], Iterator[str]]:
        """Return what stands in for the block of a template."""

        def kept(context: Context) -> Iterator[str]:
            self._text = self._text or "".join(draw(context))
            yield self._text

        return kept


class Shell:
    def __init__(self, services: Services, version: str) -> None:
        self._insight = services.insight
        self._grants = services.grants
        self.assets = Assets(_HERE / "static")
        self._environment = _environment()
        self._environment.globals.update(version=version, asset=self.assets.address)
        self._rail: list[tuple[Entry, Permission]] = []

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation(
                "GET", "/static/{path}", self.assets.read, "pages", "A file that the pages use", "*/*", also={304: ""},
                is_open=True, credential=http.no_credential,
            )
        ]  # fmt: skip

    def offer(self, operations: Iterable[http.Operation]) -> None:
        """Show what has a page in the rail, to whoever may see it."""
        served = {operation.path: operation.needed for operation in operations}
        self._rail = [(entry, served[entry.path]) for entry in RAIL if entry.path in served]

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Let templates of a page say something that only they say."""
        self._environment.filters[name] = function

    def now(self) -> str:
        return moments.format_moment(self._insight.now())

    def zone_of(self, request: http.Request) -> str:
        """Return the zone in which whoever asks sees moments."""
        return read_look(http.cookie(request, LOOK)).zone

    def page(self, request: http.Request, template: str, **values: Any) -> http.Reply:
        return self.shared_page(request, template, None, values)

    async def page_of(self, job: Job, request: http.Request, template: str, /, **values: Any) -> http.Reply:
        """Return a page about one job: what was granted on it may be done there too. `may_anywhere` is what the role
        alone allows, for what names jobs in its body."""
        who = http.principal(request)
        granted = await self._grants.of(who.org, who.name) if job.org == who.org else Granted()

        def may_here(name: str) -> bool:
            needed = Permission(name)
            return may(who, needed) or (is_of_job(needed) and granted.has(needed, job.id, job.policy))

        return self.page(
            request, template, may=may_here, may_anywhere=lambda name: may(who, Permission(name)), **values
        )

    async def may_on(self, request: http.Request, needed: Permission, job: Job) -> bool:
        """Return whether whoever asks may do something with a job, by role or by a grant."""
        who = http.principal(request)
        return may(who, needed) or await self._grants.may_on(who, needed, job)

    def shared_page(
        self, request: http.Request, template: str, drawn: Drawn | None, values: Mapping[str, Any]
    ) -> http.Reply:
        """Return a page whose main part, once it was `drawn`, stays as it was."""
        who = http.principal(request)
        shown = {
            "who": who, "has_session": request.has_session, "node": self._insight.node,
            "rail": [entry for entry, needed in self._rail if may(who, needed)],
            "look": read_look(http.cookie(request, LOOK)), "at": self.now(), "here": request.scope["path"],
            "may": lambda permission: may(who, Permission(permission)), **values,
        }  # fmt: skip
        return http.Reply(200, self._render(template, shown, drawn), MEDIA, about=http.PAGE)

    def bare(self, request: http.Request, template: str, **values: Any) -> http.Reply:
        """Return a page for somebody who is not known yet; their browser knows how they want to see it."""
        shown = {"look": read_look(http.cookie(request, LOOK)), **values}
        return http.Reply(200, self._render(template, shown), MEDIA, about=http.PAGE)

    def _render(self, template: str, values: dict[str, Any], drawn: Drawn | None = None) -> bytes:
        found = self._environment.get_template(template)
        context = found.new_context(values)
        if drawn is not None:
            context.blocks["main"] = [drawn.block(context.blocks["main"][0])]
        return "".join(found.root_render_func(context)).encode("utf-8", "replace")


def refused(page: http.Reply, error: Error) -> http.Reply:
    """Return a page with the status of an error that it tells of."""
    return http.Reply(error.status, page.body, MEDIA, http.extra_headers(error), http.PAGE)


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(themes=THEMES, densities=DENSITIES, say=words)
    for each in (
        words.span, words.took, words.away, words.clock, words.day, words.ticks, words.progress, words.share,
        words.plain, words.because, words.mark, words.count, words.fates_words, words.fates_bars, words.dated,
        words.cells, words.linked,
    ):  # fmt: skip
        made.filters[each.__name__] = each
    return made
