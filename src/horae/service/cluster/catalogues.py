"""The Python handlers of every node, asked when somebody wants to know.

    server ──► itself, its own agents over their lines, other servers over gRPC ──► their agents

What must stay true: all are asked at once, and the answer comes within a moment; a node that is silent is named, and
holds up nobody. Nothing is written, and nothing is said while nobody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from horae.core.members import is_for
from horae.core.model import Node, NodeState
from horae.core.work.catalogues import HandlerList, NodeHandlers, Told
from horae.errors import Error, Invalid, NotFound
from horae.ports.transport import Peers
from horae.service.local_node import LocalNode

ANSWER_SECONDS = 2.0  # that all nodes together get

OLDER = "it is older than this question: upgrade it"


class NodeList(Protocol):
    async def list_nodes(self) -> list[Node]: ...


async def _no_agents(name: str) -> HandlerList | None:
    raise NotFound(f"the agent {name} is not connected here")


class Catalogues:
    def __init__(self, store: NodeList, local: LocalNode, peers: Peers, *, seconds: float = ANSWER_SECONDS) -> None:
        self._store = store
        self._local = local
        self._peers = peers
        self._seconds = seconds
        # How agents that come in through this server are asked; None is the answer of one that cannot tell.
        self.ask_agent: Callable[[str], Awaitable[HandlerList | None]] = _no_agents

    async def read(self, name: str) -> HandlerList | None:
        """Return what this node has, or an agent that comes in through it."""
        if name == self._local.node:
            return HandlerList(await self._local.handlers())
        return await self.ask_agent(name)

    async def list(self, only: str | None = None, org: int | None = None) -> list[NodeHandlers]:
        """Return what all nodes with an agent have that an organisation sees, or the one of that name; each that could
        not tell says why."""
        nodes = {node.name: node for node in await self._store.list_nodes()}
        seen = {name: node for name, node in nodes.items() if is_for(node, org)}
        if only is not None and only not in seen:
            raise Invalid(f"there is no node {only}", path="node", hint="`horae nodes` lists them")
        chosen = [node for node in seen.values() if _has_agent(node)] if only is None else [seen[only]]
        tasks = {node.name: asyncio.create_task(self._ask(node, nodes)) for node in chosen}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=self._seconds)
        return [await self._collect(name, tasks[name]) for name in sorted(tasks)]

    async def _collect(self, name: str, task: asyncio.Task[NodeHandlers]) -> NodeHandlers:
        if not task.done():
            task.cancel()
            return NodeHandlers(name, Told.SILENT, note=f"did not answer within {self._seconds:g} s")
        return task.result()

    async def _ask(self, node: Node, nodes: Mapping[str, Node]) -> NodeHandlers:
        if why := self._obstacle(node, nodes):
            return NodeHandlers(node.name, Told.UNKNOWN, note=why)
        try:
            told = await self._fetch(node, nodes) if "python" in node.kinds else HandlerList()
        except (Error, OSError) as error:
            return NodeHandlers(node.name, Told.SILENT, note=f"did not answer: {error}")
        if told is None:
            return NodeHandlers(node.name, Told.UNKNOWN, note=OLDER)
        return NodeHandlers(node.name, Told.LISTED, told, f"{told.left_out} more do not fit" if told.left_out else "")

    def _obstacle(self, node: Node, nodes: Mapping[str, Node]) -> str:
        """Return why a node cannot be asked, if so."""
        if node.state is NodeState.GONE:
            return "it is gone"
        if not _has_agent(node):
            return "it has no agent"
        server = nodes.get(node.via) if node.via else node
        if self._local.node in (node.name, node.via) or (server is not None and server.grpc):
            return ""
        return "no server can be reached through which it comes in" if node.via else "it listens for no gRPC"

    async def _fetch(self, node: Node, nodes: Mapping[str, Node]) -> HandlerList | None:
        if self._local.node in (node.name, node.via):
            return await self.read(node.name)
        return await self._peers.list_handlers(nodes[node.via or node.name], node.name)


def _has_agent(node: Node) -> bool:
    return node.state is not NodeState.GONE and "agent" in node.roles
