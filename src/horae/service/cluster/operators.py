"""What operators want of nodes. It is written down, and holds until they want something else, restarts included."""

from __future__ import annotations

from horae.core.model import Node, OperatorWish
from horae.errors import NotFound
from horae.ports import deeds
from horae.ports.store.cluster import Nodes as NodesPort
from horae.ports.transport import Queue


class Nodes:
    def __init__(self, store: NodesPort, queue: Queue) -> None:
        self._store = store
        self._queue = queue

    async def want(self, name: str, wanted: OperatorWish) -> Node:
        """Cordoned: it takes nothing new. Drained: and it owns no segments. Live: as ever. Told at once."""
        before = {node.name: node.wanted for node in await self._store.list_nodes()}
        deeds.note_change({"wanted": before.get(name)}, {"wanted": wanted})
        if not await self._store.want_node(name, OperatorWish(wanted)):
            raise NotFound(f"there is no node {name}", hint="`horae nodes` lists them")
        self._queue.announce("cancel")  # it hears of it with its next beat, which comes now
        self._queue.announce("nodes")
        return next(node for node in await self._store.list_nodes() if node.name == name)
