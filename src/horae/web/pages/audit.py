"""The audit log: who did what, to what, and what changed by it. The address holds what is looked for."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from horae import schemas
from horae.core.audit import AuditFilter, Outcome
from horae.core.identity import EVERYWHERE, Principal
from horae.core.rights import may
from horae.core.roles import Permission
from horae.service import Services
from horae.web import http, openapi, params
from horae.web.native.audit import OF, shown
from horae.web.pages import filters
from horae.web.pages.shell import HTML, Shell

SHOWN = 50
KINDS = (
    "alert", "grant", "job", "node", "queue", "resource", "run", "secret", "segment", "source", "token", "trigger",
    "user",
)  # fmt: skip
_ASKED = (
    filters.optional(OF),
    *(
        filters.optional(params.text(name, what, 200))
        for name, what in (
            ("who", "The name of who asked."), ("action", "The permission that was needed."),
            ("kind", "Of what it was done to."), ("id", "Id or name of what it was done to."),
        )
    ),
    filters.optional(params.words("outcome", "How it ended.", {str(each): str(each) for each in Outcome})),
    filters.since("since", "From when on."),
    filters.since("until", "Before when."),
    filters.optional(params.identity("cursor", "Where the page before ended.")),
)  # fmt: skip
# Where the things are shown that rows tell of.
_PAGES = {
    "job": "/jobs/{}", "run": "/runs/{}", "node": "/cluster#node-{}", "queue": "/queues#queue-{}", "alert": "/alerts",
    "secret": "/settings/secrets", "token": "/settings/tokens", "user": "/settings/users",
    "grant": "/settings/roles",
}  # fmt: skip
_NEEDED = {"secret": Permission.SECRETS, "token": Permission.TOKENS, "user": Permission.USERS}  # to see these pages


class Told(NamedTuple):
    """A row as it is shown."""

    row: schemas.AuditRow
    what: str  # was done, in words
    href: str | None  # of what it was done to
    made: list[tuple[str, str | None]]  # ids of what came of it, with their pages
    changes: list[tuple[str, str, str]]  # path, before, after
    cut: str  # what changed, where its end was cut off


class AuditPage:
    def __init__(self, services: Services, api: openapi.Api, shell: Shell) -> None:
        self._audit, self._jobs, self._users = services.audit, services.jobs, services.users
        self._api = api
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation("GET", "/audit", self.show, "pages", "The page of the audit log", HTML, params=_ASKED,
                           needs=Permission.AUDIT),
        ]  # fmt: skip

    async def show(self, request: http.Request) -> http.Answer:
        args, now, zone = request.args, await self._jobs.now(), self._shell.zone_of(request)
        since, until = (filters.moment_of(args[name], now, zone) for name in ("since", "until"))
        who = http.principal(request)
        where = AuditFilter(
            await self._users.audited(args["org"], who), args["who"], args["action"], args["kind"], args["id"],
            args["outcome"][0] if args["outcome"] else None, since, until,
        )  # fmt: skip
        hidden = frozenset(kind for kind, needed in _NEEDED.items() if not may(who, needed))
        page = await self._audit.page(where, args["cursor"], SHOWN)
        asked = {**args, "outcome": args["outcome"][0] if args["outcome"] else None}
        return self._shell.page(
            request, "audit.html", rows=[self._told(shown(row), hidden) for row in page.items], asked=asked,
            outcomes=list(Outcome), kinds=KINDS, spans=list(filters.AGO),
            filtered=any(value for name, value in args.items() if name != "cursor"),
            older=None if page.cursor is None else _address(asked, cursor=page.cursor),
            organisations=await self._organisations(who), is_bound=who.bound_to is not None,
            narrowed=lambda **more: _address(asked, cursor=None, **more),
        )  # fmt: skip

    async def _organisations(self, who: Principal) -> dict[str, str]:
        """Number → name of those whose rows may be looked at; none where there is nothing to choose."""
        found = await self._users.list_organisations(who) if await self._users.runs_installation(who) else []
        names = {str(org.id): org.name for org in found if org.id != EVERYWHERE}
        return names if len(names) > 1 else {}

    def _told(self, row: schemas.AuditRow, hidden: frozenset[str]) -> Told:
        method, _, path = row.operation.partition(" ")
        known = self._api.document["paths"].get(path, {}).get(method.lower(), {})
        changes = row.change if isinstance(row.change, dict) else {}
        return Told(
            row, known.get("summary") or row.operation or row.action, _page_of(row.kind, row.subject, hidden),
            _made(row, hidden),
            [(path, *_both(both)) for path, both in changes.items()],
            row.change if isinstance(row.change, str) else "",
        )  # fmt: skip


def _page_of(kind: str, subject: str, hidden: frozenset[str]) -> str | None:
    """Return the page of a thing; None where there is none, or none that may be seen."""
    place = None if kind in hidden else _PAGES.get(kind)
    return place.format(quote(subject, safe="")) if place and subject else None


def _made(row: schemas.AuditRow, hidden: frozenset[str]) -> list[tuple[str, str | None]]:
    """Return the first and the last of what was made: a run of who asked for one, else a thing of the same kind."""
    kind = "run" if row.action == Permission.RUN else row.kind
    return [(one, _page_of(kind, one, hidden)) for one in row.made.split("-") if one]


def _both(both: Any) -> tuple[str, str]:
    before, after = both if isinstance(both, list) and len(both) == 2 else (None, both)
    return _text(before), _text(after)


def _text(value: Any) -> str:
    """Return a value as people write it; nothing is empty."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _address(asked: dict[str, Any], **changed: Any) -> str:
    wanted = {name: value for name, value in {**asked, **changed}.items() if value}
    return f"/audit?{urlencode(wanted)}" if wanted else "/audit"
