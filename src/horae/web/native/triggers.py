"""Triggers under /v1, and a look at the moments of a schedule that nobody has submitted yet."""

from __future__ import annotations

from typing import Any

from horae import schemas
from horae.core import model
from horae.core.fields import Fields, Problems
from horae.core.jobdata import MAX_DATA
from horae.core.roles import Permission
from horae.core.time import moments
from horae.core.work import specs
from horae.errors import Invalid
from horae.service import Services
from horae.web import http, params, render
from horae.web.native.bodies import read_fields, read_moment
from horae.web.native.organisations import Organisations

TRIGGER_EXAMPLE = {"cron": "*/15 * * * *", "timezone": "Europe/Berlin", "data": {"full": False}}
PREVIEW_COUNT = 10  # moments, unless asked otherwise


class Triggers:
    """The endpoints of triggers."""

    def __init__(self, services: Services, organisations: Organisations) -> None:
        self._jobs = services.jobs
        self._organisations = organisations
        self._insight = services.insight

    def operations(self) -> list[http.Operation]:
        op, of_job, trigger = http.Operation, "/v1/jobs/{job_id}/triggers", "/v1/triggers/{trigger_id}"
        document = http.Body("TriggerDocument", TRIGGER_EXAMPLE)
        patch = http.Body("TriggerPatch", {"enabled": False})
        of_any = (params.identity("job_id", "Triggers of one job."), params.CURSOR, params.LIMIT)
        preview = http.Body("PreviewRequest", {"schedule": "0 9 * * MON", "count": 3})
        return [
            op("GET", of_job, self.list_job_triggers, "triggers", "List the triggers of a job", "TriggerPage",
               params=of_any[1:], needs=Permission.READ),
            op("POST", of_job, self.add_trigger, "triggers", "Add a trigger to a job", "Trigger", 201, body=document,
               errors=(409,), needs=Permission.WRITE),
            op("GET", "/v1/triggers", self.list_triggers, "triggers", "List triggers", "TriggerPage", params=of_any,
               needs=Permission.READ),
            op("GET", trigger, self.get_trigger, "triggers", "Read a trigger", "Trigger", needs=Permission.READ),
            op("PUT", trigger, self.replace_trigger, "triggers", "Replace a trigger", "Trigger", body=document,
               errors=(409,), needs=Permission.WRITE),
            op("PATCH", trigger, self.patch_trigger, "triggers", "Change parts of a trigger", "Trigger", body=patch,
               errors=(409,), needs=Permission.WRITE),
            op("DELETE", trigger, self.delete_trigger, "triggers", "Delete a trigger", status=204, errors=(409,),
               needs=Permission.WRITE),
            op("POST", "/v1/preview", self.preview, "triggers", "Show the next moments of a schedule", "Preview",
               body=preview, needs=Permission.READ),
        ]  # fmt: skip

    async def list_job_triggers(self, request: http.Request) -> http.Answer:
        job = await self._jobs.get(request.path_id("job_id"))
        return await self._trigger_page(job.id, request)

    async def list_triggers(self, request: http.Request) -> http.Answer:
        return await self._trigger_page(request.args["job_id"], request)

    async def _trigger_page(self, job_id: int | None, request: http.Request) -> http.Answer:
        page = await self._jobs.triggers.list(job_id, request.args["cursor"], request.args["limit"])
        own = await self._organisations.own_triggers(request, page.items)
        names = await self._insight.job_names(it.job_id for it in own)
        shown = [render.trigger(it, names.get(it.job_id)) for it in own]
        return http.reply(200, schemas.TriggerPage(shown, page.cursor))

    async def get_trigger(self, request: http.Request) -> http.Answer:
        return http.reply(200, render.trigger(await self._jobs.triggers.get(request.path_id("trigger_id"))))

    async def add_trigger(self, request: http.Request) -> http.Answer:
        job_id = request.path_id("job_id")
        draft = specs.parse_trigger(await request.document())
        return http.reply(201, render.trigger(await self._jobs.triggers.add(job_id, draft)))

    async def replace_trigger(self, request: http.Request) -> http.Answer:
        trigger_id = request.path_id("trigger_id")
        draft = specs.parse_trigger(await request.document())
        return http.reply(200, render.trigger(await self._jobs.triggers.replace(trigger_id, draft)))

    async def patch_trigger(self, request: http.Request) -> http.Answer:
        """`next_at` moves the next moment once; the schedule goes on from there."""
        trigger_id = request.path_id("trigger_id")
        changes = _read_patch(await request.document())
        return http.reply(200, render.trigger(await self._jobs.triggers.patch(trigger_id, **changes)))

    async def delete_trigger(self, request: http.Request) -> http.Answer:
        await self._jobs.triggers.delete(request.path_id("trigger_id"))
        return http.Reply(204)

    async def preview(self, request: http.Request) -> http.Answer:
        """Takes a trigger document, or `schedule` as text; shows the first `count` moments from `start_at` on."""
        document, start, count = _read_preview(await request.document())
        draft = specs.parse_trigger(document)
        if "start_at" in draft.schedule:
            start = moments.parse_moment(draft.schedule["start_at"])
        found = self._insight.preview(draft.schedule, start=start, count=count)
        return http.reply(200, render.preview(draft.schedule, found))


def _read_patch(document: Any) -> dict[str, Any]:
    fields = read_fields(document, "enabled", "next_at", "data")
    data = None if fields.values.get("data") is None else fields.json("data", MAX_DATA)
    changes = {"enabled": fields.flag("enabled"), "next_at": read_moment(fields, "next_at"), "data": data}
    fields.problems.raise_any()
    if not fields.values:
        raise Invalid("nothing to change", code="E_REQUIRED", hint="give any of enabled, next_at, data")
    return {name: changes[name] for name in fields.values}


def _read_preview(document: Any) -> tuple[Any, model.Moment | None, int]:
    """Return the trigger document, from when, and how many. Beside a text, `start_at` is only a question."""
    if not isinstance(document, dict):
        return document, None, PREVIEW_COUNT
    fields = Fields(document, "", Problems())
    count = fields.number("count", PREVIEW_COUNT, 1, 1000, whole=True)
    own = ("count", "start_at") if "schedule" in document else ("count",)
    start = read_moment(fields, "start_at") if "schedule" in document else None
    fields.problems.raise_any()
    return {name: value for name, value in document.items() if name not in own}, start, count
