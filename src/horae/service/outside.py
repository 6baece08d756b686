"""Members of the cluster that are not Horae: schedulers, agents and coordinators that register by HTTP.

They are nodes like all others, with a role of their own and a name that says so (`worker-1@scheduler`), so that they
are seen, watched and buried like all others; only their patience is longer. Their segments have nothing to do with
those of Horae's own schedulers: they say which due moments are offered to them first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from horae.core.model import Moment, Node
from horae.errors import NotFound
from horae.ports import Queue, Store

Role = Literal["scheduler", "agent", "coordinator"]
PREFIX = "outside-"  # of the role of such a node


def node_name(role: Role, name: str) -> str:
    return f"{name}@{role}"


def plain_name(node: str) -> str:
    """The name under which a member registered."""
    return node.rpartition("@")[0] or node


def is_outside(node: Node) -> bool:
    return any(role.startswith(PREFIX) for role in node.roles)


class Outside:
    def __init__(self, store: Store, queue: Queue, *, node: str, version: str = "") -> None:
        """`node` is this one, through which they come in."""
        self._store = store
        self._queue = queue
        self._node = node
        self._version = version

    async def join(
        self, role: Role, name: str, *, address: str = "", slots: int = 0, labels: tuple[str, ...] = ()
    ) -> Node:
        """Register, or appear again; who is here already stays as it was, but for what is said anew. `labels` are
        for whoever registers to find again: nothing is matched with them."""
        now = await self._store.now()
        known = await self._find(role, name)
        node = Node(
            name=node_name(role, name), roles=(PREFIX + role,), kinds=(), labels=labels, slots=slots,
            version=self._version, address=address, started_at=known.started_at if known else now, heartbeat_at=now,
            beat=0, via=self._node,
        )  # fmt: skip
        if known is not None:
            node = replace(
                node, slots=slots or known.slots, address=address or known.address, labels=labels or known.labels
            )
        await self._store.want_node(node.name, "live")
        await self._store.register_node(node)
        self._queue.announce("nodes")
        return await self.get(role, name)

    async def beat(self, role: Role, name: str, *, busy: int | None = None, slots: int | None = None) -> Node:
        """A sign of life; one that was given up is back with it."""
        known = await self.get(role, name)
        changed = slots is not None and slots != known.slots
        if changed or await self._store.beat(known.name, known.busy if busy is None else busy) is None:
            await self.join(role, name, slots=slots or 0)
            await self._store.beat(known.name, busy or 0)
        return await self.get(role, name)

    async def leave(self, role: Role, name: str, *, in_peace: bool = True) -> None:
        """Go: `drained` tells one that went in peace from one that fell silent, or was found to be ill."""
        known = await self.get(role, name)
        await self._store.drop_segments(known.name)
        await self._store.want_node(known.name, "drained" if in_peace else "live")
        await self._store.retire_node(known.name, "gone")
        self._queue.announce("due")

    async def get(self, role: Role, name: str) -> Node:
        found = await self._find(role, name)
        if found is None:
            raise NotFound(f"there is no {role} {name}", hint="register it first")
        return found

    async def members(self, role: Role) -> list[Node]:
        """All that ever registered, by name; `state` says who is live."""
        return [node for node in await self._store.list_nodes() if PREFIX + role in node.roles]

    async def _find(self, role: Role, name: str) -> Node | None:
        wanted = node_name(role, name)
        return next((node for node in await self._store.list_nodes() if node.name == wanted), None)

    # ── segments ──
    async def take_segments(self, name: str, wanted: int) -> list[int]:
        """Give a scheduler the lowest free segments up to `wanted` in all; answers all it holds now."""
        held = await self._store.take_segments((await self.get("scheduler", name)).name, wanted)
        self._queue.announce("due")
        return held

    async def release_segments(self, name: str) -> None:
        await self._store.drop_segments((await self.get("scheduler", name)).name)
        self._queue.announce("due")

    async def segments(self) -> dict[int, tuple[str, Moment]]:
        """Segment → (name of the scheduler, since when)."""
        taken = await self._store.load_taken_segments()
        return {segment: (plain_name(worker), since) for segment, (worker, since) in taken.items()}
