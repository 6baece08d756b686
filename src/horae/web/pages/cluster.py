"""The cluster: nodes, what they run, who leads, and who owns which segment."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from horae.core import model
from horae.core.identity import Principal
from horae.core.members import is_for, owner_of
from horae.core.model import SEGMENTS
from horae.core.rights import may
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
        who, org = http.principal(request), http.principal(request).bound_to
        nodes = [node for node in await self._insight.nodes() if is_for(node, org)]
        where = model.RunFilter(states=(model.State.RUNNING,), org=org)
        running = (await self._jobs.list_runs(where, None, SHOWN_RUNS)).items
        names = await self._insight.job_names(run.job_id for run in running)
        doing: dict[str, list[object]] = {}
        for run in running:
            doing.setdefault(run.node or "", []).append(render.run(run, names.get(run.job_id)))
        begun = {node.name: node.started_at for node in nodes}
        colours = colours_of({owner: begun.get(owner, 0) for owner, _ in segments.values() if owner})
        cells = [(number, *segments.get(number, ("", 0))) for number in range(SEGMENTS)]
        return self._shell.page(
            request, "cluster.html", nodes=render.nodes(nodes, segments), leader=leader and leader.name, term=term,
            doing=doing, cells=cells, colours=colours, ours={node.name for node in nodes if _may_change(who, node)},
        )  # fmt: skip


def _may_change(who: Principal, node: model.Node) -> bool:
    """Return whether somebody may cordon a node, and the like: those of the installation are for who has that."""
    return may(who, Permission.NODES) and (owner_of(node) is not None or may(who, Permission.CLUSTER))


def colours_of(owners: Mapping[str, model.Moment]) -> dict[str, int]:
    """Return the colour of each owner, by when it began: its own, made of its name, unless one that began earlier has
    it. So whoever comes later takes no other's colour, and all servers say the same."""
    taken: dict[int, str] = {}
    for name in sorted(owners, key=lambda each: (owners[each], each)):
        first = zlib.crc32(name.encode()) % COLOURS
        free = (place for step in range(COLOURS) if (place := (first + step) % COLOURS) not in taken)
        taken[next(free, len(taken) + COLOURS)] = name
    return {name: place % COLOURS for place, name in sorted(taken.items(), key=lambda it: it[1])}
