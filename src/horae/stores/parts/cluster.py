"""Nodes: who is there, over which line, and what that line may still do.

A node's row has a session number. Every registration and every new line takes the next one in the statement that
registers or opens it, and whatever a line asks carries the number it took: the statement that would do it finds
another number in the row, does nothing, and the caller learns that it was superseded. PostgreSQL locks the row while a
claim is under way, so that whoever takes the next number sees every claim of the lines before it.

What becomes of a node is noted in the transaction in which it does (ports.store.endings): that it joined or came back,
is draining, is gone. One that registers anew before anybody missed it has become nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from horae.core.model import SEGMENTS, Lease, Moment, Node, NodeState, OperatorWish
from horae.core.runs.endings import ASKED, EVICTED, LEFT, NEW, RETURNED, SILENT, STOPPING, NodeNote
from horae.core.runs.holdings import Holding
from horae.core.signs import Beat, Sign
from horae.errors import Error, Superseded, evicted
from horae.ports.store.cluster import SegmentLoad
from horae.stores.database import Database, Steps
from horae.stores.rows import Row, encode, node_from_row, node_values


def superseded(name: str) -> Superseded:
    return Superseded(
        f"the node {name} goes on elsewhere: another process has taken its name, or its agent has a newer line"
    )


class NodePart(Database):
    """Processes of the cluster."""

    async def register_node(self, node: Node, *, session: int | None = None, line: str = "") -> int:
        def steps() -> Steps[int | Error]:
            known = yield from self._hold_node(node.name)
            rows = yield "register_node", *node_values(node), line, session
            if not rows:
                return superseded(node.name) if known[0][2] is None else evicted(node.name)
            if not known or known[0][0] != NodeState.LIVE:
                yield from self._note_nodes([node.name], RETURNED if known else NEW)
            return int(rows[0][0])

        taken = await self._transact(steps)
        if isinstance(taken, Error):
            raise taken
        return taken

    async def retire_node(self, name: str, state: NodeState, *, session: int | None = None) -> None:
        def steps() -> Steps[bool]:
            known = yield from self._hold_node(name)
            rows = yield "retire_node", name, state, session
            if rows and known[0][0] != state and (state != NodeState.DRAINING or known[0][1] != OperatorWish.DRAINED):
                yield from self._note_nodes([name], LEFT if state == NodeState.GONE else STOPPING)
            return bool(rows)

        if not await self._transact(steps) and session is not None:
            raise superseded(name)

    def _hold_node(self, name: str) -> Steps[Sequence[Row]]:
        """Return its state, what is wanted of it, and since when it is evicted, if it is there; nobody else changes it
        meanwhile."""
        yield "hold_node", name
        return (yield "lock_node", name)

    def _note_nodes(self, names: Sequence[str], note: NodeNote) -> Steps[None]:
        if names:
            yield "note_nodes", self._list(names), note.text

    async def bury_nodes(self, seen: Sequence[Node], lease: Lease) -> dict[str, dict[int, int]]:
        given = encode([(node.name, node.beat, node.session, node.state) for node in seen])

        def steps() -> Steps[dict[str, dict[int, int]]]:
            buried = yield "bury_nodes", given, lease.name, lease.owner, lease.term
            held: dict[str, dict[int, int]] = {row[0]: {} for row in buried}
            yield from self._note_nodes(sorted(held), SILENT)
            for name, run_id, fence in (yield "load_running_of", self._list(list(held))):
                held[name][run_id] = fence
            return held

        return await self._transact(steps)

    async def beat(
        self,
        name: str,
        busy: int,
        *,
        session: int | None = None,
        held: Holding | None = None,
        free: Mapping[str, int] | None = None,
    ) -> Beat | None:
        (answer,) = await self.beat_all([Sign(name, busy, session, held, free)])
        if isinstance(answer, Superseded):
            raise answer
        return answer

    async def beat_all(self, signs: Sequence[Sign]) -> list[Beat | Superseded | None]:
        # Of one that beats twice, the later word counts: a row can be moved only once in a statement.
        last = {(sign.name, sign.session): sign for sign in signs}
        answers = dict(zip(last, await self._beat_all(list(last.values())), strict=True))
        return [answers[sign.name, sign.session] for sign in signs]

    async def _beat_all(self, signs: Sequence[Sign]) -> list[Beat | Superseded | None]:
        raise NotImplementedError  # each database has its own way to write many rows

    async def want_node(self, name: str, wanted: OperatorWish) -> bool:
        def steps() -> Steps[bool]:
            known = yield from self._hold_node(name)
            rows = yield "want_node", name, wanted
            is_live = bool(rows) and known[0][0] == NodeState.LIVE
            if is_live and wanted == OperatorWish.DRAINED != known[0][1]:
                yield from self._note_nodes([name], ASKED)
            return bool(rows)

        return await self._transact(steps)

    async def evict_node(self, name: str, at: Moment) -> dict[int, int] | None:
        def steps() -> Steps[dict[int, int] | None]:
            known = yield from self._hold_node(name)
            rows = yield "evict_node", name, at
            if not rows:
                return None
            yield "revoke_tokens_of", name, at
            if known[0][0] != NodeState.GONE:
                yield from self._note_nodes([name], EVICTED)
            return {run_id: fence for _, run_id, fence in (yield "load_running_of", self._list([name]))}

        return await self._transact(steps)

    async def readmit_node(self, name: str) -> None:
        await self._put("readmit_node", name, None)

    async def note_ailment(self, name: str, ailment: str, *, session: int | None = None) -> None:
        await self._put("note_ailment", name, ailment, session)

    async def count_running(self) -> dict[str, int]:
        return {row[0]: row[1] for row in await self._get("count_running")}

    async def list_nodes(self) -> list[Node]:
        return [node_from_row(row) for row in await self._get("list_nodes")]

    async def get_node(self, name: str) -> Node | None:
        rows = await self._get("get_node", name)
        return node_from_row(rows[0]) if rows else None


class LeasePart(Database):
    """Who leads, and which scheduler fires what."""

    async def get_lease(self, name: str) -> Lease | None:
        rows = await self._get("get_lease", name)
        return Lease(*rows[0]) if rows else None

    async def take_lease(self, name: str, owner: str, seen: Lease | None) -> Lease | None:
        if seen is None:
            rows = await self._put("make_lease", name, owner)
        else:
            rows = await self._put("take_lease", name, owner, seen.owner, seen.term, seen.beat)
        return Lease(*rows[0]) if rows else None

    async def renew_lease(self, lease: Lease) -> Lease | None:
        rows = await self._put("renew_lease", lease.name, lease.owner, lease.term)
        return Lease(*rows[0]) if rows else None

    async def resign_lease(self, lease: Lease) -> None:
        await self._put("resign_lease", lease.name, lease.owner, lease.term)

    async def load_segments(self) -> dict[int, tuple[str, int]]:
        return {row[0]: (row[1], row[2]) for row in await self._get("load_segments")}

    async def load_segment_holders(self) -> tuple[dict[int, str], dict[int, str]]:
        owners: dict[int, str] = {}
        taken: dict[int, str] = {}
        for segment, name, is_taken in await self._get("load_segment_holders"):
            (taken if is_taken else owners)[segment] = name
        return owners, taken

    async def count_by_segment(self, before: Moment) -> dict[int, SegmentLoad]:
        rows = await self._get("count_by_segment", before)
        return {segment: SegmentLoad(triggers, int(soon)) for segment, triggers, soon in rows}

    async def take_segments(self, worker: str, wanted: int) -> list[int]:
        now = await self.now()

        def steps() -> Steps[list[int]]:
            yield ("lock_segments",)
            yield ("drop_dead_segments",)
            yield "give_segments", worker, wanted, now, SEGMENTS
            yield "trim_segments", worker, wanted
            rows = yield "segments_of", worker
            return [row[0] for row in rows]

        return await self._transact(steps)

    async def hold_segments(self, worker: str, segments: Collection[int]) -> None:
        now = await self.now()

        def steps() -> Steps[None]:
            yield ("lock_segments",)
            yield ("drop_dead_segments",)
            yield "drop_segments", worker
            for segment in sorted(segments):
                yield "hold_segment", segment, worker, now
            if not segments:
                yield "hold_nothing", worker, now

        await self._transact(steps)

    async def drop_segments(self, worker: str) -> None:
        await self._put("drop_segments", worker)

    async def load_taken_segments(self) -> dict[int, tuple[str, Moment]]:
        return {row[0]: (row[1], row[2]) for row in await self._get("load_taken_segments")}


def beat_of(sign: Sign, rows: Sequence[Row], is_in_doubt: bool = False) -> Beat | Superseded | None:
    """Return the answer to a sign of life, from rows of (0, beat, wanted, [count, digest]) for the node, (run id,
    fence) for what shall stop, and (-1, session, state) for a node that could not beat."""
    own = next((row for row in rows if row[0] == 0), None)
    if own is None:
        is_superseded = any(row[0] == -1 and sign.session is not None and row[1] != sign.session for row in rows)
        return superseded(sign.name) if is_superseded else None
    books = own[3]
    differs = sign.held is not None and books is not None and Holding(*books) != sign.held
    return Beat([(row[0], row[1]) for row in rows if row[0] > 0], OperatorWish(own[2]), is_in_doubt, differs)
