"""The scheduler coordinator and the scheduler worker (ports 8082 and 8083 of the contract).

Coordinators and workers that register here are members of the cluster, outside Horae's own. The leader is always
Horae's: it lends nobody its lease. The segments given out here say which due jobs are offered to whom; they have
nothing to do with those that Horae's own schedulers share, which the worker's routes show.
"""

from __future__ import annotations

from typing import Any

from horae.core.model import SEGMENTS, Json, Node
from horae.errors import Conflict, Invalid, NotFound, Unavailable
from horae.service import Services
from horae.service.outside import plain_name
from horae.web import http
from horae.web.facades.cluster.envelope import Envelope, Rows
from horae.web.facades.cluster.reading import MAX_HOST, Sent, query, read_segments, read_sent
from horae.web.facades.cluster.words import show_coordinator, show_member, stamp

MANY = 2**31 - 1

_WORKER = query("workerId", "The name of the worker.")
_NODE = (query("nodeId", "The name of the coordinator."), query("coordinatorId", "The same, by its other name."))


class Coordination:
    def __init__(self, services: Services, envelope: Envelope) -> None:
        self._services = services
        self._envelope = envelope

    def operations(self, rows: Rows) -> list[http.Operation]:
        row, worker = rows.row, "/api/scheduler-workers"
        wanted = query("desiredSegments", "How many it shall hold in all.")
        own = "/api/scheduler-worker"
        return [
            row("POST", "/api/coordinator/register", self.register_node, "Register a coordinator", *_NODE,
                query("priority", "Kept, and not used.")),
            row("GET", "/api/coordinator/leader", self.leader, "Say who leads", errors=(503,)),
            row("POST", "/api/coordinator/heartbeat", self.beat_node, "A coordinator's sign of life", *_NODE),
            row("POST", f"{worker}/register", self.register, "Register a scheduler worker", _WORKER),
            row("POST", f"{worker}/heartbeat", self.beat, "A scheduler worker's sign of life", _WORKER),
            row("GET", worker, self.workers, "List the scheduler workers that are online"),
            row("POST", "/api/segments/assign", self.assign, "Give segments to a worker", _WORKER, wanted),
            row("DELETE", "/api/segments/release", self.release, "Take all segments from a worker", _WORKER),
            row("GET", "/api/segments", self.segments, "List who holds which segment", _WORKER),
            row("POST", f"{own}/segments", self.push, "Tell this node its segments"),
            row("GET", f"{own}/segments", self.own_segments, "List the segments of this node"),
            row("GET", f"{own}/status", self.status, "How this node's scheduler is"),
        ]  # fmt: skip

    # ── coordinators ──

    async def register_node(self, request: http.Request) -> http.Answer:
        """It is watched like all members, and never leads: Horae's own coordinators do."""
        sent = await read_sent(request)
        name = sent.worker("nodeId", "coordinatorId")
        priority = sent.whole("priority", low=-MANY, high=MANY)
        labels = () if priority is None else (f"priority={priority}",)
        node = await self._services.outside.join("coordinator", name, address=read_address(sent), labels=labels)
        return self._envelope.give(show_coordinator(node, is_leader=False))

    async def leader(self, request: http.Request) -> http.Answer:
        found = await self._services.insight.leader()
        if found is None:
            raise Unavailable("No leader elected", code="E_NO_LEADER", hint="try again in a moment")
        station = self._services.station
        since = station.led_since() if found.name == station.node else None  # only the leader itself knows
        return self._envelope.give(show_coordinator(found, is_leader=True, elected_at=since))

    async def beat_node(self, request: http.Request) -> http.Answer:
        """One that is not known is ignored, as the contract has it."""
        name = (await read_sent(request)).worker("nodeId", "coordinatorId")
        try:
            await self._services.outside.beat("coordinator", name)
        except NotFound:
            self._services.station.metrics.heartbeats["coordinator", "unknown"] += 1
        else:
            self._services.station.metrics.heartbeats["coordinator", "ok"] += 1
        return self._envelope.give("Heartbeat recorded")

    # ── scheduler workers ──

    async def register(self, request: http.Request) -> http.Answer:
        node = await self._services.outside.join("scheduler", await self._name(request))
        return self._envelope.give(_show_scheduler(node, await self._held()))

    async def beat(self, request: http.Request) -> http.Answer:
        name, beats = await self._name(request), self._services.station.metrics.heartbeats
        try:
            node = await self._services.outside.beat("scheduler", name)
        except NotFound:
            beats["scheduler", "unknown"] += 1
            raise
        beats["scheduler", "ok"] += 1
        return self._envelope.give(_show_scheduler(node, await self._held()))

    async def workers(self, request: http.Request) -> http.Answer:
        held = await self._held()
        shown = [_show_scheduler(node, held) for node in await self._services.outside.members("scheduler")]
        return self._envelope.give([worker for worker in shown if worker["status"] == "ONLINE"])

    async def _name(self, request: http.Request) -> str:
        return (await read_sent(request)).worker("workerId")

    # ── segments ──

    async def assign(self, request: http.Request) -> http.Answer:
        """The lowest segments that no other worker holds, until it holds `desiredSegments`; gives all it holds now."""
        sent = await read_sent(request)
        name = sent.worker("workerId")
        wanted = sent.whole("desiredSegments", low=0, high=MANY, needed="desiredSegments is required") or 0
        return self._envelope.give(await self._services.outside.take_segments(name, min(wanted, SEGMENTS)))

    async def release(self, request: http.Request) -> http.Answer:
        await self._services.outside.release_segments(await self._name(request))
        return self._envelope.give("Segments released")

    async def segments(self, request: http.Request) -> http.Answer:
        """All of them, or with `workerId` those that one worker holds."""
        name = Sent(request.args).text("workerId")
        if name is not None:
            await self._services.outside.get("scheduler", name)
            return self._envelope.give({"workerId": name, "segments": (await self._held()).get(name, [])})
        taken = await self._services.outside.segments()
        owners = await self._services.insight.segments()
        return self._envelope.give([_show_segment(n, taken.get(n), owners.get(n)) for n in range(SEGMENTS)])

    async def _held(self) -> dict[str, list[int]]:
        """The segments of each worker, in order."""
        held: dict[str, list[int]] = {}
        for segment, (name, _) in sorted((await self._services.outside.segments()).items()):
            held.setdefault(name, []).append(segment)
        return held

    # ── this node as a scheduler worker ──

    async def push(self, request: http.Request) -> http.Answer:
        """Horae's coordinator decides which segments a node has. So this takes what the node has already, and makes
        it look for due jobs at once; anything else is refused, because it would not be done."""
        segments = read_segments(_pushed(await request.json()))
        foreign = sorted(set(segments) - set(await self._own()))
        if foreign:
            node = self._services.station.node
            message = f"node {node} does not have the segments {', '.join(map(str, foreign))}"
            raise Conflict(message, hint="Horae's own coordinator gives them out; GET shows those it has")
        self._services.station.reload()
        return self._envelope.give("Segments updated")

    async def own_segments(self, request: http.Request) -> http.Answer:
        return self._envelope.give({"workerId": self._services.station.node, "segments": await self._own()})

    async def status(self, request: http.Request) -> http.Answer:
        station = self._services.station
        return self._envelope.give(
            {
                "workerId": station.node,
                "status": "ONLINE" if "scheduler" in station.roles else "OFFLINE",
                "assignedSegmentCount": len(await self._own()),
                "lastScanTime": stamp(station.scanned_at()),
                "jobsDispatchedCount": station.metrics.fired,
            }
        )

    async def _own(self) -> list[int]:
        node = self._services.station.node
        owners = await self._services.insight.segments()
        return sorted(segment for segment, (owner, _) in owners.items() if owner == node)


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


def _show_scheduler(node: Node, held: dict[str, list[int]]) -> Json:
    return {**show_member(node), "assignedSegments": held.get(plain_name(node.name), [])}


def _show_segment(segment: int, taken: tuple[str, int] | None, owner: tuple[str, int] | None) -> Json:
    return {
        "segment": segment,
        "workerId": taken[0] if taken else None,
        "assignedAt": stamp(taken[1]) if taken else None,
        "status": "ASSIGNED" if taken else "AVAILABLE",
        "owner": owner[0] if owner else None,
    }
