"""The calls about nodes, queues and what the cluster has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from horae.client.making import get, send
from horae.client.steps import Call
from horae.client.wire import to_address

if TYPE_CHECKING:
    from horae.schemas import (
        HandlerPage,
        Health,
        LimitPage,
        Node,
        NodePage,
        Overview,
        Queue,
        QueuePage,
        Resource,
        ResourcePage,
        SegmentPage,
    )


def nodes() -> Call[NodePage]:
    """The nodes, dead ones included."""
    return get("/v1/nodes", has="items")


def handlers(*, node: str | None = None) -> Call[HandlerPage]:
    """The Python handlers of every node with an agent, or of one, as far as they are known without running any."""
    return get(to_address("/v1/handlers", {"node": node}), has="items")


def want_node(name: str, verb: str) -> Call[Node]:
    """Cordon, uncordon, drain or evict a node: `verb` is that word."""
    return send("POST", f"/v1/nodes/{quote(name, safe='')}/{verb}")


def segments() -> Call[SegmentPage]:
    """Who schedules which segment."""
    return get("/v1/segments", has="items")


def overview() -> Call[Overview]:
    """What the front page shows."""
    return get("/v1/overview")


def health() -> Call[Health]:
    """Whether the server lives, and which version it is."""
    return get("/healthz")


# ── queues ──


def queues() -> Call[QueuePage]:
    """Queues by name, and how they stand."""
    return get("/v1/queues", has="items")


def queue(name: str) -> Call[Queue]:
    """One queue, and how it stands."""
    return get(_queue(name), has="name")


def set_queue(name: str, document: Mapping[str, Any], *, version: int | None = None) -> Call[Queue]:
    """Make or replace a queue; with `version`, only if it still is that one."""
    return send("PUT", _queue(name), document, {"If-Match": f'"{version}"'} if version is not None else {})


def change_queue(name: str, verb: str) -> Call[Queue]:
    """Verbs: pause, resume, drain."""
    return send("POST", f"{_queue(name)}/{verb}")


def delete_queue(name: str) -> Call[None]:
    """Delete a queue that is drained, that no job names and in which nothing waits."""
    return send("DELETE", _queue(name))


def _queue(name: str) -> str:
    return f"/v1/queues/{quote(name, safe='')}"


# ── limits ──


def limits() -> Call[LimitPage]:
    """Limits that runs use or wait for, and how they stand."""
    return get("/v1/limits", has="items")


def resources() -> Call[ResourcePage]:
    """What the whole cluster has, counted, and how much of it is in use."""
    return get("/v1/resources", has="items")


def set_resource(name: str, capacity: int) -> Call[Resource]:
    """Say how much the whole cluster has of something."""
    return send("PUT", _resource(name), {"capacity": capacity})


def delete_resource(name: str) -> Call[None]:
    """Count it no longer: what waits for some of it is held by it no more."""
    return send("DELETE", _resource(name))


def _resource(name: str) -> str:
    return f"/v1/resources/{quote(name, safe='')}"
