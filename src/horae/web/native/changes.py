"""Jobs that are paused, resumed or tagged by the many, under /v1."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import convert

from horae import schemas
from horae.core import model
from horae.core.fields import Fields, read_labels
from horae.core.roles import Permission
from horae.errors import Error
from horae.service import Services
from horae.service.jobs.many import MAX_JOBS, Changed, Deed, pausing, resuming, tagging
from horae.service.jobs.orders import Asker
from horae.web import http
from horae.web.native.bodies import read_fields
from horae.web.native.chosen import read_chosen, read_states

PAUSE_EXAMPLE = {"where": {"owner": "ann"}, "dry_run": True}
TAG_EXAMPLE = {"jobs": [7, 8], "add": ["nightly"]}
STATES = {state.word: state for state in model.State}
_TEXTS = ("q", "name", "named", "owner", "kind", "tag", "queue")
_FIELDS = ("jobs", "where", "dry_run")


class Changes:
    """The endpoints."""

    def __init__(self, services: Services) -> None:
        self._jobs = services.jobs

    def operations(self) -> list[http.Operation]:
        op, answers = http.Operation, "JobChanges"
        body, tags = http.Body("JobsRequest", PAUSE_EXAMPLE), http.Body("TagsRequest", TAG_EXAMPLE)
        return [
            op("POST", "/v1/jobs/pause", self.pause, "jobs", "Pause jobs", answers, body=body, needs=Permission.PAUSE),
            op("POST", "/v1/jobs/resume", self.resume, "jobs", "Let paused jobs go on", answers, body=body,
               needs=Permission.PAUSE),
            op("POST", "/v1/jobs/tag", self.tag, "jobs", "Add tags to jobs, or take them away", answers, body=tags,
               needs=Permission.WRITE),
        ]  # fmt: skip

    async def pause(self, request: http.Request) -> http.Answer:
        """Up to 10,000, named by `jobs` or found by `where`; there is one answer for each. `dry_run` says what would be
        changed. What is paused already stays as it is, so a repeat does no harm."""
        return await self._change(request, lambda fields: pausing(http.principal(request).name), ())

    async def resume(self, request: http.Request) -> http.Answer:
        """As pause. Moments that have passed meanwhile are not made up for."""
        return await self._change(request, lambda fields: resuming(), ())

    async def tag(self, request: http.Request) -> http.Answer:
        """As pause. The tags that jobs have besides stay."""
        return await self._change(request, _read_tags, ("add", "remove"))

    async def _change(
        self, request: http.Request, read: Callable[[Fields], Deed], more: tuple[str, ...]
    ) -> http.Answer:
        fields = read_fields(await request.document(), *_FIELDS, *more)
        who = http.principal(request)
        asker = Asker(who.name, who.org, is_bound=not who.is_local)
        org = who.org if asker.is_bound else None
        asked, deed = read_chosen(fields, "jobs", MAX_JOBS, lambda where: _read_where(where, org)), read(fields)
        fields.problems.raise_any()
        ids = asked.ids if asked.where is None else await self._jobs.many.find(asked.where)
        done = await (self._jobs.many.plan if asked.is_dry else self._jobs.many.change)(ids, deed, asker)
        return http.reply(200, schemas.JobChanges([_shown(it, request.id) for it in done]))


def _shown(it: Changed, request_id: str) -> schemas.JobChange:
    if isinstance(it.answer, Error):
        return schemas.JobChange(it.job_id, error=convert(http.problem_of(it.answer, request_id), schemas.Problem))
    return schemas.JobChange(it.job_id, it.answer.name, "changed" if it.is_changed else "unchanged")


def _read_tags(fields: Fields) -> Deed:
    if "add" not in fields.values and "remove" not in fields.values:
        fields.require("add", "which tags? give them as add, or as remove")
    add, remove = (read_labels(fields, name=name) if name in fields.values else () for name in ("add", "remove"))
    return tagging(add, remove)


def _read_where(fields: Fields, org: int | None) -> model.JobFilter:
    fields.refuse_others(frozenset({*_TEXTS, "paused", "state"}))
    text = {name: fields.text(name) for name in _TEXTS}
    paused = fields.flag("paused") if "paused" in fields.values else None
    states = read_states(fields, STATES)
    latest = model.LatestRun.of(states) if states else None
    return model.JobFilter(
        org, text["owner"], text["name"], text["named"], text["q"], kind=text["kind"], tag=text["tag"],
        queue=text["queue"], paused=paused, latest=latest,
    )  # fmt: skip
