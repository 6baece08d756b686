"""One picture of the cluster, the same whoever is asked: who its members are, what each has to do, who holds what.

Members that registered and processes of Horae are shown alike. What a process knows better about itself than the store
does is left out on purpose: else two nodes would say two things. Reads only.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from horae.core.members import Life, Member, Role, has_role, holders, is_external, life_of, merge, plain_name
from horae.core.model import SEGMENTS, Moment, Node
from horae.ports.store.cluster import Nodes, Segments
from horae.ports.store.moments import StoreClock


class PictureStore(Nodes, Segments, StoreClock, Protocol):
    """Nodes and segments."""


class Holding(NamedTuple):
    """One segment."""

    segment: int
    holder: str | None  # the member that holds it
    since: Moment | None  # when it was given to it; None where nobody had to give it
    owner: str | None  # the node of Horae that fires it, unless the holder does


class Picture:
    def __init__(self, store: PictureStore, *, dead_after: float, external_after: float) -> None:
        """Seconds of silence after which a node of Horae, or one that registered, is shown as silent."""
        self._store = store
        self._dead_after = dead_after
        self._external_after = external_after

    async def members(self, role: Role) -> list[Member]:
        """Everybody who ever had this role, by name, with the runs that it has by the books, or says to have."""
        now, running = await self._store.now(), await self._store.count_running()
        nodes = [node for node in await self._store.list_nodes() if has_role(node, role)]
        return merge(Member(node, self._life(node, now), _load(node, running)) for node in nodes)

    async def segments(self) -> list[Holding]:
        """Return all segments, in order."""
        alive = {each.name for each in await self.members("scheduler") if each.life in (Life.ONLINE, Life.RESERVED)}
        taken = {n: (plain_name(name), since) for n, (name, since) in (await self._store.load_taken_segments()).items()}
        owners = {segment: owner for segment, (owner, _) in (await self._store.load_segments()).items()}
        given = {segment: name for segment, (name, _) in taken.items() if segment >= 0}
        held = holders(owners, given, {name for name, _ in taken.values()}, alive)
        return [
            Holding(n, held.get(n), taken[n][1] if n in taken and held.get(n) == given[n] else None, owners.get(n))
            for n in range(SEGMENTS)
        ]

    async def held_by(self, name: str) -> list[int]:
        return [each.segment for each in await self.segments() if each.holder == name]

    def _life(self, node: Node, now: Moment) -> Life:
        return life_of(node, now, self._external_after if is_external(node) else self._dead_after)


def _load(node: Node, running: dict[str, int]) -> int:
    """By the books; one that registered may have work of its own beside, and says how much it has in all."""
    known = running.get(node.name, 0)
    return max(known, node.busy) if is_external(node) else known
