"""The list of jobs: found by words, filtered, sorted, with how each of them fares; many can be paused, resumed or run
at once. The address holds all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from horae import schemas
from horae.core.definitions import Sort
from horae.core.model import Found, Job, JobFilter, LatestRun, Run, State
from horae.core.roles import Permission
from horae.core.work.kinds import KINDS
from horae.errors import Invalid
from horae.service import Services
from horae.service.jobs.glances import FATES
from horae.web import http, params, render
from horae.web.pages.shell import HTML, Shell

SHOWN = 50  # on a page
SORTS = {
    "newest": [Sort("id", descending=True)],
    "name": [Sort("name")],
    "next": [Sort("next_at")],
    "last": [Sort("last_at", descending=True)],
}
_FILTERS = ("q", "owner", "kind", "tag", "queue", "is", "state")
LONGEST = 128  # characters of what is looked for
STATES = {
    "failing": (State.FAILED, State.TIMED_OUT),
    "running": (State.RUNNING,),
    "waiting": (State.QUEUED, State.BLOCKED),
    "fine": (State.SUCCEEDED,),
}


def _blank(name: str, description: str) -> params.Param:
    """Text that a form may leave empty."""

    def read(text: str) -> str | None:
        if len(text) > LONGEST:
            raise Invalid(f"at most {LONGEST} characters expected, got {len(text)}", code="E_LEN")
        return text.strip() or None

    return params.Param(name, description, {"type": "string", "minLength": 0, "maxLength": LONGEST}, read)


def _choice(name: str, description: str, known: tuple[str, ...]) -> params.Param:
    def read(text: str) -> str | None:
        if text and text not in known:
            raise Invalid(f"one of {', '.join(known)} expected, got {text[:40]!r}", code="E_ENUM")
        return text or None

    return params.Param(name, description, {"type": "string", "enum": ["", *known]}, read)


_ASKED = (
    _blank("q", "Words of the name, or of the key."),
    _blank("owner", "The owner, exactly."),
    _blank("kind", "The kind of work."),
    _blank("tag", "One of the tags, exactly."),
    _blank("queue", "The queue, by its name."),
    _choice("is", "Whether they are paused.", ("paused", "active")),
    _choice("state", "How their latest run stands.", tuple(STATES)),
    _choice("sort", "In which order.", tuple(SORTS)),
    params.number("page", "Which page.", 1, 100_000, 1),
    params.identities("only", "Only these jobs, whatever else is asked: so a page looks at some of its rows again.",
                      SHOWN),
)  # fmt: skip


class Row(NamedTuple):
    """A job as the list shows it."""

    job: schemas.Job
    next_at: str | None
    latest: schemas.Run | None
    fates: list[str]


class JobsPage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._jobs = services.jobs
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation(
                "GET", "/jobs", self.show, "pages", "The list of jobs", HTML, params=_ASKED, needs=Permission.READ
            )
        ]

    async def show(self, request: http.Request) -> http.Answer:
        asked = request.args
        found = await self._find(request)
        return self._shell.page(
            request, "jobs.html", rows=await self._rows(found.items), found=found, asked=asked, sorts=tuple(SORTS),
            states=tuple(STATES), shown=SHOWN, width=FATES, address=lambda **changed: _address(asked, changed),
            kinds=tuple(KINDS), where=_where(asked), is_filtered=any(asked[name] for name in _FILTERS),
        )  # fmt: skip

    async def _find(self, request: http.Request) -> Found:
        asked, org = request.args, http.principal(request).bound_to
        if asked["only"]:
            return await self._these(asked["only"], org)
        where = JobFilter(
            org, asked["owner"], words=asked["q"], kind=asked["kind"],
            tag=asked["tag"], queue=asked["queue"],
            paused=None if asked["is"] is None else asked["is"] == "paused", latest=_latest(asked["state"]),
        )  # fmt: skip
        return await self._jobs.search(where, SORTS[asked["sort"] or "newest"], (asked["page"] - 1) * SHOWN, SHOWN)

    async def _these(self, ids: Sequence[int], org: int | None) -> Found:
        jobs = await self._jobs.get_many(ids)
        known = [job for job in jobs if job.deleted_at is None and (org is None or job.org == org)]
        return Found(known, len(known))

    async def _rows(self, jobs: list[Job]) -> list[Row]:
        """Each of these is one read for all jobs of the page."""
        ids = [job.id for job in jobs]
        standing, fates = await asyncio.gather(self._jobs.standing(ids), self._jobs.glances.fates(ids))
        return [_row(job, standing[job.id].latest, fates.get(job.id, ())) for job in jobs]


def _row(job: Job, latest: Run | None, fates: Sequence[tuple[int, State]]) -> Row:
    shown = render.job(job)
    next_at = min((one.next_at for one in shown.triggers if one.next_at), default=None)
    return Row(shown, next_at, None if latest is None else render.run(latest), [state.word for _, state in fates])


def _latest(state: str | None) -> LatestRun | None:
    return None if state is None else LatestRun.of(STATES[state], is_counted=False)


def _where(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the filter as the API takes it, for what is done with all that were found."""
    found = {name: asked[name] for name in ("q", "owner", "kind", "tag", "queue") if asked[name]}
    if asked["is"]:
        found["paused"] = asked["is"] == "paused"
    if asked["state"]:
        found["state"] = [state.word for state in STATES[asked["state"]]]
    return found


def _address(asked: dict[str, Any], changed: dict[str, Any]) -> str:
    """Return the address of this list, changed in some way."""
    asked = {**asked, "page": 1, "only": (), **changed}
    wanted = {name: value for name, value in asked.items() if value not in (None, "", 1, ())}
    return f"/jobs?{urlencode(wanted)}" if wanted else "/jobs"
