"""What operators want of nodes. It is written down, and holds until they want something else, restarts included."""

from __future__ import annotations

from horae.core.model import Node
from horae.errors import NotFound
from horae.ports import Queue, Store

WANTED = ("live", "cordoned", "drained")


class Nodes:
    def __init__(self, store: Store, queue: Queue) -> None:
        self._store = store
        self._queue = queue

    async def want(self, name: str, wanted: str) -> Node:
        """Cordoned: it takes nothing new. Drained: and it owns no segments. Live: as ever. Told at once."""
        assert wanted in WANTED
        if not await self._store.want_node(name, wanted):
            raise NotFound(f"there is no node {name}", hint="`horae nodes` lists them")
        self._queue.announce("cancel")  # it hears of it with its next beat, which comes now
        self._queue.announce("nodes")
        return next(node for node in await self._store.list_nodes() if node.name == name)
