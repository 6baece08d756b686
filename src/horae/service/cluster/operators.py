"""What operators want of nodes. It is written down, and holds until they want something else, restarts included.

**Evicting** a node: it is gone at once, what it holds is lost under its fence, its tokens are revoked, and it may not
come back by itself. Its work may still run where nobody hears us, until its keeper kills it when the lease is over: so
the next attempts wait for so long, and no run is worked at twice at a time. Should this process die halfway, the leader
takes back what a gone node still holds.
"""

from __future__ import annotations

from typing import Protocol

import structlog

from horae.core.identity import LOCAL, Principal
from horae.core.members import is_for, owner_of
from horae.core.model import Node, OperatorWish
from horae.core.rights import refuse_without
from horae.core.roles import Permission
from horae.errors import Conflict, NotFound
from horae.ports import deeds
from horae.ports.store.cluster import Nodes as NodesPort
from horae.ports.store.moments import StoreClock
from horae.ports.transport import Queue
from horae.service.access import Access
from horae.service.execution import Execution

log = structlog.get_logger(__name__)


class NodesStore(NodesPort, StoreClock, Protocol):
    """Nodes, and when it is."""


class Nodes:
    def __init__(
        self, store: NodesStore, queue: Queue, execution: Execution, access: Access, *, node: str, dead_after: float
    ) -> None:
        """`node` is this one. `dead_after`: seconds after which whatever a silent node ran is certainly killed."""
        self._store = store
        self._queue = queue
        self._execution = execution
        self._access = access
        self._node = node
        self._dead_after = dead_after

    async def want(self, name: str, wanted: OperatorWish, who: Principal = LOCAL) -> Node:
        """Cordoned: it takes nothing new. Drained: and it owns no segments. Live: as ever. Told at once."""
        before = await self._of(name, who)
        deeds.note_change({"wanted": before.wanted}, {"wanted": wanted})
        if not await self._store.want_node(name, OperatorWish(wanted)):
            raise _unknown(name)
        return await self._told(name)

    async def _of(self, name: str, who: Principal) -> Node:
        """Return a node that somebody may change: those of other organisations are not there, and those of the
        installation are for who has that."""
        node = await self._store.get_node(name)
        if node is None or not is_for(node, who.bound_to):
            raise _unknown(name)
        if owner_of(node) is None:
            refuse_without(who, Permission.CLUSTER)
        return node

    async def uncordon(self, name: str, who: Principal = LOCAL) -> Node:
        """As ever. A server that was evicted may come back, having the password of the database; an agent has to join
        anew, whatever token it has."""
        node = await self._of(name, who)
        if node.evicted_at is not None and node.via:
            raise Conflict(
                f"the agent {name} was evicted, and comes back by joining anew",
                code="E_EVICTED",
                hint=f"`horae nodes join-token {name}`, and start it with --join",
            )
        await self._store.readmit_node(name)
        return await self.want(name, OperatorWish.LIVE, who)

    async def evict(self, name: str, who: Principal = LOCAL) -> Node:
        """It is gone, and does not come back by itself; its runs begin elsewhere when its lease is over."""
        await self._of(name, who)
        if name == self._node:
            raise Conflict(
                f"{name} is the node that you ask: it does not evict itself",
                code="E_EVICT_SELF",
                hint="ask another node of the cluster with --server, or stop this one",
            )
        held = await self._store.evict_node(name, await self._store.now())
        if held is None:
            raise _unknown(name)
        self._access.doubt_agents()
        why = f"its agent {name} was evicted"
        taken = await self._execution.take_back(name, held, why, wait=self._dead_after)
        log.warning("node.evicted", node=name, runs=taken)
        self._queue.announce("endings")  # somebody may listen to what becomes of nodes
        return await self._told(name)

    async def _told(self, name: str) -> Node:
        self._queue.announce("cancel")  # it hears of it with its next beat, which comes now
        self._queue.announce("nodes")
        node = await self._store.get_node(name)
        if node is None:
            raise _unknown(name)
        return node


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no node {name}", hint="`horae nodes` lists them")
