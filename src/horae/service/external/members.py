"""Members of the cluster that are not Horae: schedulers, agents and coordinators that register by HTTP.

They are nodes like all others, with a role of their own and a name that says so (`worker-1@scheduler`), so that they
are seen, watched and buried like all others; only their patience is longer. Their segments say which due moments are
offered to them first; what nobody holds, Horae's own schedulers have.

Who registers under the name of a live process of Horae is that process: nothing is written but which segments it shall
hold, and those it fires itself. Had it registered before the process came, it is one with it from its next word on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

from horae.core.members import PREFIX, Role, is_external, is_for, node_name, org_label, org_of, plain_name
from horae.core.model import DEFAULT_ORG, Moment, Node, NodeState, OperatorWish
from horae.errors import Conflict, NotFound
from horae.ports.store.cluster import Nodes, Segments
from horae.ports.store.moments import StoreClock
from horae.ports.transport import Queue
from horae.service.cluster.picture import Picture


class MemberStore(Nodes, Segments, StoreClock, Protocol):
    """Nodes and segments."""


class ExternalMembers:
    def __init__(
        self,
        store: MemberStore,
        queue: Queue,
        *,
        node: str,
        version: str = "",
        dead_after: float = 25.0,
        external_after: float = 60.0,
    ) -> None:
        """`node` is this one, through which they come in. Who is silent for `dead_after` (a node of Horae), or
        `external_after` seconds, is shown so."""
        self._store = store
        self._queue = queue
        self._node = node
        self._version = version
        self.picture = Picture(store, dead_after=dead_after, external_after=external_after)
        self.moves = 0  # times that segments changed hands on somebody's word

    async def join(
        self, role: Role, name: str, *, address: str = "", slots: int = 0, labels: tuple[str, ...] = (),
        org: int = DEFAULT_ORG,
    ) -> Node:  # fmt: skip
        """Register, or appear again; who is here already stays as it was, but for what is said anew. `labels` are
        name=value, for whoever registers to find again: nothing is matched with them. A name belongs to the
        organisation that had it first, and who has it works for that one alone."""
        if (own := await self._own(role, name)) is not None:
            return own
        now = await self._store.now()
        known = await self._find(role, name)
        if known is not None and org_of(known) != org:
            raise Conflict(f"the name {name} is taken", hint="register under another one")
        if org != DEFAULT_ORG:
            labels = (*labels, org_label(org))
        node = Node(
            name=node_name(role, name), roles=(PREFIX + role,), kinds=(), labels=labels, slots=slots,
            version=self._version, address=address, started_at=known.started_at if known else now, heartbeat_at=now,
            beat=0, via=self._node,
        )  # fmt: skip
        if known is not None:
            said = {label.partition("=")[0] for label in labels}
            kept = tuple(label for label in known.labels if label.partition("=")[0] not in said)
            node = replace(node, slots=slots or known.slots, address=address or known.address, labels=kept + labels)
        await self._store.want_node(node.name, OperatorWish.LIVE)
        await self._store.register_node(node)
        self._queue.announce("nodes")
        return await self.get(role, name)

    async def beat(
        self, role: Role, name: str, *, busy: int | None = None, slots: int | None = None, org: int | None = None
    ) -> Node:
        """A sign of life; one that was given up is back with it."""
        known = await self.get(role, name, org=org)
        if not is_external(known):
            return await self._own(role, name) or known  # it beats by itself
        changed = slots is not None and slots != known.slots
        if changed or await self._store.beat(known.name, known.busy if busy is None else busy) is None:
            await self.join(role, name, slots=slots or 0, org=org_of(known))
            await self._store.beat(known.name, busy or 0)
        return await self.get(role, name)

    async def leave(self, role: Role, name: str, *, in_peace: bool = True, org: int | None = None) -> None:
        """Go: `drained` tells one that went in peace from one that fell silent, or was found to be ill."""
        known = await self.get(role, name, org=org)
        if not is_external(known):
            raise Conflict(
                f"{name} is a process of Horae, which leaves when it is stopped",
                hint="send it SIGTERM, or set its status to UNASSIGNED: then it takes nothing new",
            )
        await self._drop(known.name)
        await self._store.want_node(known.name, OperatorWish.DRAINED if in_peace else OperatorWish.LIVE)
        await self._store.retire_node(known.name, NodeState.GONE)
        self._queue.announce("due")

    async def get(self, role: Role, name: str, *, org: int | None = None) -> Node:
        """Return a member; with `org`, those that registered for others do not exist."""
        found = await self._find(role, name)
        if found is None or not is_for(found, org):
            raise NotFound(f"there is no {role} {name}", hint="register it first")
        return found

    async def members(self, role: Role) -> list[Node]:
        """Return all that ever registered, by name; `state` says who is live."""
        return [node for node in await self._store.list_nodes() if PREFIX + role in node.roles]

    async def _find(self, role: Role, name: str) -> Node | None:
        """Return the process of that name, if it lives; else who registered so."""
        nodes = {node.name: node for node in await self._store.list_nodes()}
        own = nodes.get(name)
        is_own = own is not None and role in own.roles and own.state == NodeState.LIVE
        return own if is_own else nodes.get(node_name(role, name))

    async def _own(self, role: Role, name: str) -> Node | None:
        """Return the live process of Horae of that name; a registration that it had before is its own from now on."""
        found = await self._find(role, name)
        if found is None or is_external(found):
            return None
        before = await self._store.get_node(node_name(role, name))
        if before is not None and before.state != NodeState.GONE:
            taken = await self._store.load_taken_segments()
            if held := [segment for segment, (worker, _) in taken.items() if worker == before.name and segment >= 0]:
                await self._store.hold_segments(found.name, held)
            await self._store.want_node(before.name, OperatorWish.DRAINED)
            await self._store.retire_node(before.name, NodeState.GONE)
            self._queue.announce("due")
        return found

    # ── segments ──
    async def take_segments(self, name: str, wanted: int) -> list[int]:
        """Give a scheduler the lowest free segments up to `wanted` in all; return all it holds now. Free is what was
        given to nobody by name: what Horae's own have because nobody else does is given away."""
        known = await self._own("scheduler", name) or await self.get("scheduler", name)
        if wanted == 0:
            await self.hold_segments(name, [])
            return []
        before = await self._held(known.name)
        held = await self._store.take_segments(known.name, wanted)
        self._note_move(before != held)
        return held

    async def release_segments(self, name: str) -> None:
        known = await self._own("scheduler", name) or await self.get("scheduler", name)
        if is_external(known):
            await self._drop(known.name)
        else:
            await self.hold_segments(name, [])

    async def hold_segments(self, name: str, segments: Collection[int]) -> None:
        """Tell a scheduler exactly what it holds, whoever held that before."""
        known = await self._own("scheduler", name) or await self.get("scheduler", name)
        before = await self._held(known.name)
        if segments or not is_external(known):
            await self._store.hold_segments(known.name, segments)
        else:
            await self._store.drop_segments(known.name)
        self._note_move(before != sorted(segments))

    async def segments(self) -> dict[int, tuple[str, Moment]]:
        """Segment → (name of the scheduler, since when), of those that were given to somebody by name."""
        taken = await self._store.load_taken_segments()
        return {segment: (plain_name(worker), since) for segment, (worker, since) in taken.items() if segment >= 0}

    async def _drop(self, worker: str) -> None:
        before = await self._held(worker)
        await self._store.drop_segments(worker)
        self._note_move(bool(before))

    async def _held(self, worker: str) -> list[int]:
        taken = await self._store.load_taken_segments()
        return sorted(segment for segment, (name, _) in taken.items() if name == worker and segment >= 0)

    def _note_move(self, has_moved: bool) -> None:
        self.moves += has_moved
        self._queue.announce("due")
