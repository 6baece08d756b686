"""The scheduler coordinator and the scheduler worker (ports 8082 and 8083 of the contract).

Coordinators and workers that register here are members of the cluster, as Horae's own processes are, and all are shown
alike. The leader is always Horae's: it lends nobody its lease. Segments that are given out here say which due jobs are
offered to whom; the others are with Horae's own schedulers.
"""

from __future__ import annotations

from typing import Any

from horae.contracts.cluster.envelope import Envelope, Rows
from horae.contracts.cluster.reading import MAX_HOST, Sent, query, read_segments, read_sent
from horae.contracts.cluster.vocabulary import member_word, show_coordinator, show_scheduler, stamp
from horae.core.members import Life, Member
from horae.core.model import SEGMENTS, Json
from horae.core.roles import Permission
from horae.errors import Invalid, NotFound, Unavailable
from horae.service import Services
from horae.service.cluster.picture import Holding, Picture
from horae.web import http

MANY = 2**31 - 1

_WORKER = query("workerId", "The name of the worker.")
_NODE = (query("nodeId", "The name of the coordinator."), query("coordinatorId", "The same, by its other name."))


class Coordination:
    def __init__(self, services: Services, envelope: Envelope) -> None:
        self._services = services
        self._envelope = envelope

    @property
    def _picture(self) -> Picture:
        return self._services.external_members.picture

    def operations(self, rows: Rows) -> list[http.Operation]:
        row, worker = rows.row, "/api/scheduler-workers"
        wanted = query("desiredSegments", "How many it shall hold in all.")
        own = "/api/scheduler-worker"
        return [
            row("POST", "/api/coordinator/register", self.register_node, "Register a coordinator", *_NODE,
                query("priority", "Kept, and not used."), needs=Permission.CLUSTER),
            row("GET", "/api/coordinator/leader", self.leader, "Say who leads", errors=(503,), needs=Permission.READ),
            row("POST", "/api/coordinator/heartbeat", self.beat_node, "A coordinator's sign of life", *_NODE,
                needs=Permission.CLUSTER),
            row("POST", f"{worker}/register", self.register, "Register a scheduler worker", _WORKER,
                needs=Permission.CLUSTER),
            row("POST", f"{worker}/heartbeat", self.beat, "A scheduler worker's sign of life", _WORKER,
                needs=Permission.CLUSTER),
            row("GET", worker, self.workers, "List the scheduler workers that are online", needs=Permission.READ),
            row("POST", "/api/segments/assign", self.assign, "Give segments to a worker", _WORKER, wanted,
                needs=Permission.CLUSTER),
            row("DELETE", "/api/segments/release", self.release, "Take all segments from a worker", _WORKER,
                needs=Permission.CLUSTER),
            row("GET", "/api/segments", self.segments, "List who holds which segment", _WORKER, needs=Permission.READ),
            row("POST", f"{own}/segments", self.push, "Tell this node its segments", needs=Permission.CLUSTER),
            row("GET", f"{own}/segments", self.own_segments, "List the segments of this node", needs=Permission.READ),
            row("GET", f"{own}/status", self.status, "How this node's scheduler is", needs=Permission.READ),
        ]  # fmt: skip

    # ── coordinators ──

    async def register_node(self, request: http.Request) -> http.Answer:
        """It is watched like all members, and never leads: Horae's own coordinators do."""
        sent = await read_sent(request)
        name = sent.worker("nodeId", "coordinatorId")
        priority = sent.whole("priority", low=-MANY, high=MANY)
        labels = () if priority is None else (f"priority={priority}",)
        node = await self._services.external_members.join(
            "coordinator", name, address=read_address(sent), labels=labels
        )
        leader = await self._services.insight.leader()
        return self._envelope.give(show_coordinator(node, is_leader=leader is not None and leader.name == node.name))

    async def leader(self, request: http.Request) -> http.Answer:
        found = await self._services.insight.leader()
        if found is None:
            raise Unavailable("No leader elected", code="E_NO_LEADER", hint="try again in a moment")
        local_node = self._services.local_node
        since = local_node.led_since() if found.name == local_node.node else None  # only the leader itself knows
        return self._envelope.give(show_coordinator(found, is_leader=True, elected_at=since))

    async def beat_node(self, request: http.Request) -> http.Answer:
        """One that is not known is ignored, as the contract has it."""
        name = (await read_sent(request)).worker("nodeId", "coordinatorId")
        try:
            await self._services.external_members.beat("coordinator", name)
        except NotFound:
            self._services.local_node.metrics.heartbeats["coordinator", "unknown"] += 1
        else:
            self._services.local_node.metrics.heartbeats["coordinator", "ok"] += 1
        return self._envelope.give("Heartbeat recorded")

    # ── scheduler workers ──

    async def register(self, request: http.Request) -> http.Answer:
        name = await self._name(request)
        await self._services.external_members.join("scheduler", name)
        return await self._shown(name)

    async def beat(self, request: http.Request) -> http.Answer:
        name, beats = await self._name(request), self._services.local_node.metrics.heartbeats
        try:
            await self._services.external_members.beat("scheduler", name)
        except NotFound:
            beats["scheduler", "unknown"] += 1
            raise
        beats["scheduler", "ok"] += 1
        return await self._shown(name)

    async def workers(self, request: http.Request) -> http.Answer:
        held = await self._held()
        online = [each for each in await self._picture.members("scheduler") if each.life is Life.ONLINE]
        return self._envelope.give([show_scheduler(each, held.get(each.name, [])) for each in online])

    async def _shown(self, name: str) -> http.Answer:
        return self._envelope.give(show_scheduler(await self._member(name), (await self._held()).get(name, [])))

    async def _member(self, name: str) -> Member:
        found = next((each for each in await self._picture.members("scheduler") if each.name == name), None)
        if found is None:
            raise NotFound(f"there is no scheduler {name}", hint="register it first")
        return found

    async def _name(self, request: http.Request) -> str:
        return (await read_sent(request)).worker("workerId")

    # ── segments ──

    async def assign(self, request: http.Request) -> http.Answer:
        """Return the lowest segments that no other worker holds, until it holds `desiredSegments`; gives all it holds
        now."""
        sent = await read_sent(request)
        name = sent.worker("workerId")
        wanted = sent.whole("desiredSegments", low=0, high=MANY, needed="desiredSegments is required") or 0
        return self._envelope.give(await self._services.external_members.take_segments(name, min(wanted, SEGMENTS)))

    async def release(self, request: http.Request) -> http.Answer:
        await self._services.external_members.release_segments(await self._name(request))
        return self._envelope.give("Segments released")

    async def segments(self, request: http.Request) -> http.Answer:
        """Return all of them, or with `workerId` those that one worker holds."""
        name = Sent(request.args).text("workerId")
        if name is not None:
            await self._member(name)
            return self._envelope.give({"workerId": name, "segments": await self._picture.held_by(name)})
        return self._envelope.give([_show_segment(each) for each in await self._picture.segments()])

    async def _held(self) -> dict[str, list[int]]:
        """Return the segments of each worker, in order."""
        held: dict[str, list[int]] = {}
        for each in await self._picture.segments():
            if each.holder is not None:
                held.setdefault(each.holder, []).append(each.segment)
        return held

    # ── this node as a scheduler worker ──

    async def push(self, request: http.Request) -> http.Answer:
        """This worker holds these from now on, and no others. What nobody holds goes on firing all the same."""
        segments = read_segments(_pushed(await request.json()))
        local_node = self._services.local_node
        if "scheduler" not in local_node.roles:
            raise Unavailable(f"node {local_node.node} schedules nothing", hint="ask one that has the role scheduler")
        await self._services.external_members.hold_segments(local_node.node, set(segments))
        local_node.reload()
        return self._envelope.give("Segments updated")

    async def own_segments(self, request: http.Request) -> http.Answer:
        node = self._services.local_node.node
        return self._envelope.give({"workerId": node, "segments": await self._picture.held_by(node)})

    async def status(self, request: http.Request) -> http.Answer:
        local_node = self._services.local_node
        found = next((each for each in await self._picture.members("scheduler") if each.name == local_node.node), None)
        return self._envelope.give(
            {
                "workerId": local_node.node,
                "status": "OFFLINE" if found is None else member_word(found),
                "assignedSegmentCount": len(await self._picture.held_by(local_node.node)),
                "lastScanTime": stamp(local_node.scanned_at()),
                "jobsDispatchedCount": local_node.metrics.fired,
            }
        )


def _pushed(document: Any) -> Any:
    """Both forms: a list, or an object with one."""
    if isinstance(document, dict) and "segments" in document:
        return document["segments"]
    if isinstance(document, list):
        return document
    raise Invalid("a list of segments is expected, or an object with one", code="E_TYPE", path="segments")


def read_address(sent: Sent) -> str:
    """host and port, as a registration may say them."""
    host = sent.text("host", longest=MAX_HOST)
    port = sent.whole("port", low=1, high=65535)
    return "" if host is None and port is None else f"{host or ''}:{port or ''}"


def _show_segment(held: Holding) -> Json:
    return {
        "segment": held.segment,
        "workerId": held.holder,
        "assignedAt": stamp(held.since),
        "status": "AVAILABLE" if held.holder is None else "ASSIGNED",
        "owner": held.owner,
    }
