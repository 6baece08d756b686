"""Nodes, leases and segments."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from horae.core.model import Lease, Moment, Node, NodeState, OperatorWish
from horae.core.runs.holdings import Holding
from horae.core.signs import Beat, NewLine, Sign
from horae.errors import Superseded


class Nodes(Protocol):
    """Processes of the cluster.

    A node has a session number. Every registration and every new line takes the next one; what is asked with another
    one is not done, and raises Superseded.
    """

    async def register_node(self, node: Node, *, session: int | None = None, line: str = "") -> int:
        """Appear, or appear anew: state live, beat moved, the next session, which is answered. With `session`, only if
        that is the present one (0: there is no such node), or `line` itself took the present one: then that is answered
        again, because the answer to a registration may be lost, and what was sent twice may come late. One that was
        evicted raises Evicted."""

    async def open_lines(self, lines: Sequence[NewLine]) -> list[int | None]:
        """Remote agents go on over new lines: answers the next session of each. 0 when there is no such node, None when
        it is a living one of another identity, -1 when it was evicted, by this name or another."""

    async def beat(
        self,
        name: str,
        busy: int,
        *,
        session: int | None = None,
        held: Holding | None = None,
        free: Mapping[str, int] | None = None,
    ) -> Beat | None:
        """Move a node's beat, and note what is free of its resources; answer what is wanted of it, and whether what it
        holds differs from the books. None when the node was retired meanwhile: it must kill its work and register
        anew."""

    async def beat_all(self, signs: Sequence[Sign]) -> list[Beat | Superseded | None]:
        """Many beats in one statement, answered in their order."""

    async def retire_node(self, name: str, state: NodeState, *, session: int | None = None) -> None:
        """Say that a node is draining or gone."""

    async def bury_nodes(self, seen: Sequence[Node], lease: Lease) -> dict[str, dict[int, int]]:
        """Declare nodes gone that still are as `seen` (beat, session and state), if `lease`, the leader's, is held
        under its term; answers which of them are, each with run → fence of everything it holds, in the same
        transaction."""

    async def load_running_of(self, nodes: Sequence[str]) -> dict[str, dict[int, int]]:
        """Node → run → fence of everything running on these nodes; one that runs nothing is left out."""

    async def count_running(self) -> dict[str, int]:
        """Node → how many runs it has; one that runs nothing is left out."""

    async def want_node(self, name: str, wanted: OperatorWish) -> bool:
        """What an operator wants of a node (see Node.wanted), also when it comes back; False if unknown."""

    async def evict_node(self, name: str, at: Moment) -> dict[int, int] | None:
        """Declare a node gone that may not come back, and revoke the tokens that are good for it alone; answers run →
        fence of everything it holds. None when there is no such node."""

    async def readmit_node(self, name: str) -> None:
        """Let a node that was evicted come back, if it can."""

    async def note_ailment(self, name: str, ailment: str, *, session: int | None = None) -> None:
        """What the machine of a node is short of (see Node.ailment), until it is told otherwise or joins anew. What
        an earlier session says is passed over."""

    async def list_nodes(self) -> list[Node]: ...

    async def get_node(self, name: str) -> Node | None: ...


class Leases(Protocol):
    """Who leads."""

    async def get_lease(self, name: str) -> Lease | None: ...

    async def take_lease(self, name: str, owner: str, seen: Lease | None) -> Lease | None:
        """Become owner with term + 1, if the lease still is what was `seen` (None: does not exist)."""

    async def renew_lease(self, lease: Lease) -> Lease | None:
        """Move the beat; None when it is no longer held under this term."""

    async def resign_lease(self, lease: Lease) -> None:
        """Give it up at once, if still held: anyone may take it without waiting."""


class SegmentLoad(NamedTuple):
    """What there is to schedule of a segment."""

    triggers: int = 0  # that have a moment ahead
    soon: int = 0  # of them, those whose next moment comes soon


class Segments(Protocol):
    """Which scheduler fires what: those of the cluster, and workers outside Horae."""

    async def load_segments(self) -> dict[int, tuple[str, int]]:
        """Segment → (owner, term) for those assigned."""

    async def load_segment_holders(self) -> tuple[dict[int, str], dict[int, str]]:
        """Return in one look segment → owner, and segment → worker as `load_taken_segments` does."""

    async def count_by_segment(self, before: Moment) -> dict[int, SegmentLoad]:
        """Return segment → its load, `soon` being before a moment; segments without triggers are left out. It reads
        every trigger."""

    async def assign_segments(self, moves: dict[int, str], lease: Lease) -> bool:
        """Give segments to nodes, each term + 1, if `lease` (the leader's) is still held."""

    async def take_segments(self, worker: str, wanted: int) -> list[int]:
        """Give a worker the lowest segments that no other live worker holds, until it holds `wanted`, or take the
        highest from it; answers all it holds now, in order. Workers are nodes; those that are not live hold nothing."""

    async def hold_segments(self, worker: str, segments: Collection[int]) -> None:
        """Give a worker exactly these, whoever held them."""

    async def drop_segments(self, worker: str) -> None: ...

    async def load_taken_segments(self) -> dict[int, tuple[str, Moment]]:
        """Segment → (worker, since when), of live workers. A number below zero is no segment: its worker was told
        that it holds none."""
