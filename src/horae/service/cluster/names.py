"""Whose a name is: a process that starts takes the name of its node only from nobody, from the dead, or from itself.

    no such node, or it is gone      taken at once
    an earlier life of ours          taken at once: its data directory is ours now, so it is certainly dead
    anybody else                     watched for a lease: who beats keeps the name, and the start is refused;
                                     who stands still has killed its work by then, and is superseded

Taking is a registration under the session that was seen: of two that take at once, one is refused, and looks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import structlog

from horae.core.model import SECOND, Node, NodeState
from horae.errors import ConfigError, Superseded
from horae.ports.clock import Clock
from horae.ports.store.cluster import Nodes
from horae.service.cluster.coordination import patience

log = structlog.get_logger()

LOOK = 0.2  # seconds between two looks at who has the name


async def find_session(
    store: Nodes, clock: Clock, name: str, *, lease_seconds: float, is_dead: Callable[[Node], bool]
) -> int:
    """Return the session under which the name may be taken; 0 when there is no such node. `is_dead` says of whom we
    know it without waiting."""
    known = await store.get_node(name)
    if known is None or known.state == NodeState.GONE or is_dead(known):
        return known.session if known else 0
    since, wait = clock.elapsed(), patience(lease_seconds)
    log.warning("node.waits", node=name, held_by=holder_of(known), wait_seconds=wait, because="it may be alive")
    while True:
        await clock.sleep(LOOK)
        asked = clock.elapsed()
        seen = await store.get_node(name)
        if seen is None or seen.state == NodeState.GONE:
            return seen.session if seen else 0
        if (seen.beat, seen.session) != (known.beat, known.session):
            raise taken(seen)
        if asked - since > wait:
            log.warning("node.taken_over", node=name, held_by=holder_of(seen))
            return seen.session


async def join(look: Callable[[], Awaitable[None]], greet: Callable[[], Awaitable[None]]) -> None:
    """Take the name that `look` found free. Who came between may have been an earlier life of ours, whose last word
    was late; then it is free again. A stranger is found when we look, and keeps it."""
    while True:
        try:
            await greet()
            return
        except Superseded:
            log.warning("node.overtaken", because="the name was taken between the look and the registration")
            await look()


def holder_of(node: Node) -> str:
    """Return the process that has a name, for people."""
    who = f"an agent that comes in through {node.via}" if node.via else node.holder or "a process of an older version"
    where = f", at {node.address}" if node.address else ""
    since = datetime.fromtimestamp(node.started_at / SECOND, UTC)
    return f"{who}{where}, since {since:%Y-%m-%dT%H:%M:%SZ}"


def taken(node: Node) -> ConfigError:
    return ConfigError(
        f"the node {node.name} is there already, and alive: {holder_of(node)}",
        code="E_NODE_TAKEN",
        path="node",
        hint="give this one another --node, or stop the other one first",
    )
