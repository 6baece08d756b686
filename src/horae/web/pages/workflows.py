"""Workflows, and how they go."""

from __future__ import annotations

from horae.core import model
from horae.core.roles import Permission
from horae.core.workflows.picture import picture
from horae.service import Services
from horae.web import http, params, render
from horae.web.pages.shell import HTML, Shell

SHOWN = 50
_ASKED = (params.CURSOR,)


class WorkflowsPage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._jobs = services.jobs
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation(
                "GET",
                "/workflows",
                self.show,
                "pages",
                "The page of workflows",
                HTML,
                params=_ASKED,
                needs=Permission.READ,
            )
        ]

    async def show(self, request: http.Request) -> http.Answer:
        where = model.JobFilter(org=http.principal(request).bound_to, kind="workflow")
        page = await self._jobs.list(where, request.args["cursor"], SHOWN)
        standing = await self._jobs.standing([job.id for job in page.items])
        rows = []
        for job in page.items:
            stands = standing.get(job.id, model.Standing())
            counts = await self._counts(stands.latest)
            latest = None if stands.latest is None else render.run(stands.latest)
            rows.append((render.job(job), len(job.spec.get("tasks", ())), latest, counts))
        return self._shell.page(request, "workflows.html", rows=rows, cursor=page.cursor)

    async def _counts(self, run: model.Run | None) -> dict[str, int]:
        """Return how the tasks of a run stand, each by its own state."""
        workflow = None if run is None else await self._jobs.tasks.of_run(run)
        if workflow is None:
            return {}
        found: dict[str, int] = {}
        for box in picture(workflow[0], workflow[1].counts).boxes:
            found[box.state] = found.get(box.state, 0) + 1
        return found
