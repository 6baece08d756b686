"""The cluster: nodes, what they run, who leads, who owns which segment, and how much there is to schedule of each."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from horae import schemas
from horae.core import model
from horae.core.identity import Principal
from horae.core.members import is_for, owner_of
from horae.core.model import SEGMENTS
from horae.core.rights import may
from horae.core.roles import Permission
from horae.core.time.moments import quoted
from horae.errors import Invalid
from horae.service import Services
from horae.web import http, params, render
from horae.web.pages.shell import HTML, Shell

COLOURS = 8  # of owners on the map
SHOWN_RUNS = 200  # that are running
SIDE = 18  # of a segment on the map
LOADS = {"due": "due within the hour", "triggers": "triggers"}  # by which a segment is full
_LEAST = 2  # units of the map: a little load is seen too


def _load(text: str) -> str:
    if text not in LOADS:
        raise Invalid(f"one of {', '.join(LOADS)} expected, got {quoted(text)}", code="E_ENUM")
    return text


_ASKED = (
    params.Param(
        "load", "By what segments are full: due (within the hour, unless said), or triggers.",
        {"type": "string", "enum": list(LOADS), "default": "due"}, _load, "due",
    ),
)  # fmt: skip


class Cell(NamedTuple):
    """A segment on the map."""

    number: int
    owner: str
    term: int
    triggers: int
    due: int
    height: int  # of what is full


class Owner(NamedTuple):
    """What a scheduler has of the map."""

    name: str
    colour: int
    segments: int
    triggers: int
    due: int


class ClusterPage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._jobs = services.jobs
        self._insight = services.insight
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation(
                "GET",
                "/cluster",
                self.show,
                "pages",
                "The page of the cluster",
                HTML,
                params=_ASKED,
                needs=Permission.READ,
            )
        ]

    async def show(self, request: http.Request) -> http.Answer:
        segments = await self._insight.segments()
        leader, term = await self._insight.leader(), await self._insight.leader_term()
        who, by = http.principal(request), request.args["load"]
        nodes = [node for node in await self._insight.nodes() if is_for(node, who.bound_to)]
        begun = {node.name: node.started_at for node in nodes}
        colours = colours_of({owner: begun.get(owner, 0) for owner, _ in segments.values() if owner})
        cells = cells_of(segments, await self._insight.segment_loads(), by)
        return self._shell.page(
            request, "cluster.html", nodes=render.nodes(nodes, segments), leader=leader and leader.name, term=term,
            doing=await self._doing(who.bound_to), ours={node.name for node in nodes if _may_change(who, node)},
            cells=cells, listed=[it[:5] for it in cells], owners=owners_of(cells, colours), colours=colours, by=by,
            loads=LOADS,
        )  # fmt: skip

    async def _doing(self, org: int | None) -> dict[str, list[schemas.Run]]:
        """Return what runs on each node."""
        where = model.RunFilter(states=(model.State.RUNNING,), org=org)
        running = (await self._jobs.list_runs(where, None, SHOWN_RUNS)).items
        names = await self._insight.job_names(run.job_id for run in running)
        found: dict[str, list[schemas.Run]] = {}
        for run in running:
            found.setdefault(run.node or "", []).append(render.run(run, names.get(run.job_id)))
        return found


def _may_change(who: Principal, node: model.Node) -> bool:
    """Return whether somebody may cordon a node, and the like: those of the installation are for who has that."""
    return may(who, Permission.NODES) and (owner_of(node) is not None or may(who, Permission.CLUSTER))


def cells_of(segments: Mapping[int, tuple[str, int]], loads: Mapping[int, tuple[int, int]], by: str) -> list[Cell]:
    """Return the segments, each as full as its load is a share of the largest one."""
    most = max((loads[number][by == "due"] for number in range(SEGMENTS)), default=0) or 1
    found = []
    for number in range(SEGMENTS):
        load = loads[number][by == "due"]
        height = max(_LEAST, round(SIDE * load / most)) if load else 0
        found.append(Cell(number, *segments.get(number, ("", 0)), *loads[number], height))
    return found


def owners_of(cells: Sequence[Cell], colours: Mapping[str, int]) -> list[Owner]:
    """Return the sums of each owner; what nobody owns is not among them."""
    return [
        Owner(name, colour, len(own), sum(it.triggers for it in own), sum(it.due for it in own))
        for name, colour in colours.items()
        if (own := [it for it in cells if it.owner == name])
    ]


def colours_of(owners: Mapping[str, model.Moment]) -> dict[str, int]:
    """Return the colour of each owner, by when it began: its own, made of its name, unless one that began earlier has
    it. So whoever comes later takes no other's colour, and all servers say the same."""
    taken: dict[int, str] = {}
    for name in sorted(owners, key=lambda each: (owners[each], each)):
        first = zlib.crc32(name.encode()) % COLOURS
        free = (place for step in range(COLOURS) if (place := (first + step) % COLOURS) not in taken)
        taken[next(free, len(taken) + COLOURS)] = name
    return {name: place % COLOURS for place, name in sorted(taken.items(), key=lambda it: it[1])}
