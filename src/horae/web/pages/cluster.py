"""The cluster: nodes, what they run, who leads, and who owns which segment."""

from __future__ import annotations

from horae.core import model
from horae.core.members import is_for
from horae.core.model import SEGMENTS
from horae.core.roles import Permission
from horae.service import Services
from horae.web import http, render
from horae.web.pages.shell import HTML, Shell

COLOURS = 8  # of owners on the map
SHOWN_RUNS = 200  # that are running


class ClusterPage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._jobs = services.jobs
        self._insight = services.insight
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation(
                "GET", "/cluster", self.show, "pages", "The page of the cluster", HTML, needs=Permission.READ
            )
        ]

    async def show(self, request: http.Request) -> http.Answer:
        segments = await self._insight.segments()
        leader, term = await self._insight.leader(), await self._insight.leader_term()
        org = http.principal(request).bound_to
        nodes = [node for node in await self._insight.nodes() if is_for(node, org)]
        where = model.RunFilter(states=(model.State.RUNNING,), org=org)
        running = (await self._jobs.list_runs(where, None, SHOWN_RUNS)).items
        names = await self._insight.job_names(run.job_id for run in running)
        doing: dict[str, list[object]] = {}
        for run in running:
            doing.setdefault(run.node or "", []).append(render.run(run, names.get(run.job_id)))
        owners = sorted({owner for owner, _ in segments.values() if owner})
        colours = {owner: number % COLOURS for number, owner in enumerate(owners)}
        cells = [(number, *segments.get(number, ("", 0))) for number in range(SEGMENTS)]
        return self._shell.page(
            request, "cluster.html", nodes=render.nodes(nodes, segments), leader=leader and leader.name, term=term,
            doing=doing, cells=cells, colours=colours,
        )  # fmt: skip
