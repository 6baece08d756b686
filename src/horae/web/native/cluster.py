"""Nodes and segments under /v1, and everything at a glance."""

from __future__ import annotations

import asyncio
import time

from horae import schemas
from horae.core import model
from horae.core.identity import Principal
from horae.core.members import is_for
from horae.core.model import OperatorWish
from horae.core.roles import Permission
from horae.core.time import moments
from horae.schemas import views
from horae.service import Services
from horae.web import http, params, render

OVERVIEW_RUNS = 50  # running ones that are shown, and as many that wait
OVERVIEW_SECONDS = 1.0  # how long one look serves all who watch

WAITING = (model.State.QUEUED, model.State.BLOCKED)


class Cluster:
    """The endpoints of the cluster."""

    def __init__(self, services: Services) -> None:
        self._jobs = services.jobs
        self._insight = services.insight
        self._nodes = services.nodes
        self._catalogues = services.catalogues
        self._seen: dict[int | None, tuple[float, schemas.Overview]] = {}  # by who sees it: until when, and what
        self._collecting = asyncio.Lock()

    def operations(self) -> list[http.Operation]:
        op = http.Operation
        return [
            op("GET", "/v1/nodes", self.list_nodes, "cluster", "List nodes", "NodePage", needs=Permission.READ),
            op("POST", "/v1/nodes/{name}/cordon", self.cordon, "cluster", "Let a node take no new runs", "Node",
               needs=Permission.NODES),
            op("POST", "/v1/nodes/{name}/uncordon", self.uncordon, "cluster", "Let a node take runs again", "Node",
               errors=(409,), needs=Permission.NODES),
            op("POST", "/v1/nodes/{name}/drain", self.drain, "cluster", "Empty a node", "Node",
               needs=Permission.NODES),
            op("POST", "/v1/nodes/{name}/evict", self.evict, "cluster", "Send a node off for good", "Node",
               needs=Permission.NODES, is_dangerous=True),
            op("GET", "/v1/handlers", self.list_handlers, "cluster", "List Python handlers", "HandlerPage",
               params=(params.text("node", "Handlers of this node.", 200),), needs=Permission.READ),
            op("GET", "/v1/segments", self.list_segments, "cluster", "List who owns which segment", "SegmentPage",
               needs=Permission.READ),
            op("GET", "/v1/leader", self.leader, "cluster", "Read who leads", "Leader", needs=Permission.READ),
            op("GET", "/v1/overview", self.overview, "cluster", "Everything at a glance", "Overview",
               needs=Permission.READ),
        ]  # fmt: skip

    async def list_nodes(self, request: http.Request) -> http.Answer:
        org, segments = http.principal(request).bound_to, await self._insight.segments()
        nodes = [node for node in await self._insight.nodes() if is_for(node, org)]
        return http.reply(200, schemas.NodePage(render.nodes(nodes, segments)))

    async def cordon(self, request: http.Request) -> http.Answer:
        """What runs there goes on. This holds, also when the node restarts, until it is uncordoned."""
        return await self._want(request, OperatorWish.CORDONED)

    async def uncordon(self, request: http.Request) -> http.Answer:
        """A server that was evicted may come back; an agent that was has to join anew (409, `E_EVICTED`)."""
        return await self._show(await self._nodes.uncordon(*_asked(request)))

    async def drain(self, request: http.Request) -> http.Answer:
        """It takes no new runs and gives its segments away; what runs there goes on to its end. This holds, also
        when the node restarts, until it is uncordoned."""
        return await self._want(request, OperatorWish.DRAINED)

    async def evict(self, request: http.Request) -> http.Answer:
        """It is gone at once, and so are the tokens that are good for it alone: every node refuses it within 5 seconds,
        and it does not come back by itself. What it ran is lost, and begins elsewhere when its lease is over."""
        return await self._show(await self._nodes.evict(*_asked(request)))

    async def _want(self, request: http.Request, wanted: OperatorWish) -> http.Answer:
        name, who = _asked(request)
        return await self._show(await self._nodes.want(name, wanted, who))

    async def _show(self, node: model.Node) -> http.Answer:
        (shown,) = render.nodes([node], await self._insight.segments())
        return http.reply(200, shown)

    async def list_handlers(self, request: http.Request) -> http.Answer:
        """Those of every live node with an agent: what its jobs directory has, and what was loaded of it. Nothing is
        run to find out. A node that does not answer within two seconds is named under `nodes`."""
        told = await self._catalogues.list(request.args["node"], http.principal(request).bound_to)
        return http.reply(200, render.handlers(told))

    async def list_segments(self, request: http.Request) -> http.Answer:
        """With how much there is to schedule of each."""
        owned, loads = sorted((await self._insight.segments()).items()), await self._insight.segment_loads()
        return http.reply(
            200, schemas.SegmentPage([schemas.Segment(n, owner, term, *loads[n]) for n, (owner, term) in owned])
        )

    async def leader(self, request: http.Request) -> http.Answer:
        """The one who gives segments to schedulers, and takes them from those that are gone."""
        found = await self._insight.leader()
        return http.reply(200, views.Leader(None if found is None else found.name, await self._insight.leader_term()))

    async def overview(self, request: http.Request) -> http.Answer:
        """Jobs, triggers and runs are those of one's organisation; what is counted is of the whole installation."""
        return http.reply(200, await self.read_overview(http.principal(request).bound_to))

    async def read_overview(self, org: int | None) -> schemas.Overview:
        """Return what there is now, or was a second ago: any number of open pages costs one look a second for each
        organisation. None sees all of them."""
        async with self._collecting:
            until, seen = self._seen.get(org, (0.0, None))
            if seen is None or time.monotonic() >= until:
                seen = await self._collect(org)
                self._seen = {each: one for each, one in self._seen.items() if one[0] > time.monotonic()}
                self._seen[org] = time.monotonic() + OVERVIEW_SECONDS, seen
            return seen

    async def _collect(self, org: int | None) -> schemas.Overview:
        seen = await self._insight.overview(org)
        waiting = model.RunFilter(states=WAITING, org=org)
        live = [
            *await self._jobs.glances.running(org, OVERVIEW_RUNS),
            *(await self._jobs.list_runs(waiting, None, OVERVIEW_RUNS)).items,
        ]
        wanted = {run.job_id for run in (*live, *seen.recent)} | {trigger.job_id for trigger in seen.due}
        names = await self._insight.job_names(wanted)
        return schemas.Overview(
            at=moments.format_moment(time.time_ns() // 1000),
            node=seen.node,
            census=render.census(seen.census),
            nodes=render.nodes([node for node in seen.nodes if is_for(node, org)], seen.segments),
            live=[render.run(run, names.get(run.job_id)) for run in live],
            recent=[render.run(run, names.get(run.job_id)) for run in seen.recent],
            due=[render.trigger(trigger, names.get(trigger.job_id)) for trigger in seen.due],
            names={str(job_id): name for job_id, name in names.items()},
            catch_up=schemas.CatchUp(*seen.behind),
            unreadable={str(trigger_id): why for trigger_id, why in seen.unreadable.items()},
        )


def _asked(request: http.Request) -> tuple[str, Principal]:
    """Return which node is meant, and by whom."""
    return request.scope["path_params"]["name"], http.principal(request)
