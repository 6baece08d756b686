"""Nodes: who is there, over which line, and what that line may still do.

A node's row has a session number. Every registration and every new line takes the next one in the statement that
registers or opens it, and whatever a line asks carries the number it took: the statement that would do it finds
another number in the row, does nothing, and the caller learns that it was superseded. PostgreSQL locks the row while a
claim is under way, so that whoever takes the next number sees every claim of the lines before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.holdings import Holding
from horae.core.model import Lease, Node
from horae.errors import Superseded
from horae.ports import Beat, Sign
from horae.stores.loans import LoanStore, Steps
from horae.stores.sql import Row, node_from_row, node_values


def superseded(name: str) -> Superseded:
    return Superseded(f"{name} goes on over a newer line, or under another process of that name")


class NodeStore(LoanStore):
    async def register_node(self, node: Node, *, session: int | None = None, line: str = "") -> int:
        rows = await self._put("register_node", *node_values(node), line, session)
        if not rows:
            raise superseded(node.name)
        return int(rows[0][0])

    async def retire_node(self, name: str, state: str, *, session: int | None = None) -> None:
        if not await self._put("retire_node", name, state, session) and session is not None:
            raise superseded(name)

    async def bury_node(self, seen: Node, lease: Lease) -> list[tuple[int, int]] | None:
        given = (seen.name, seen.beat, seen.session, seen.state, lease.name, lease.owner, lease.term)

        def steps() -> Steps[list[tuple[int, int]] | None]:
            buried = yield "bury_node", *given
            if not buried:
                return None
            held = yield "load_running", seen.name
            return [(row[0], row[1]) for row in held]

        return await self._transact(steps)

    async def beat(
        self, name: str, busy: int, *, session: int | None = None, held: Holding | None = None
    ) -> Beat | None:
        (answer,) = await self.beat_all([Sign(name, busy, session, held)])
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

    async def want_node(self, name: str, wanted: str) -> bool:
        return bool(await self._put("want_node", name, wanted))

    async def note_ailment(self, name: str, ailment: str, *, session: int | None = None) -> None:
        await self._put("note_ailment", name, ailment, session)

    async def list_nodes(self) -> list[Node]:
        return [node_from_row(row) for row in await self._get("list_nodes")]

    async def get_node(self, name: str) -> Node | None:
        rows = await self._get("get_node", name)
        return node_from_row(rows[0]) if rows else None

    async def load_running(self, node: str, *, session: int | None = None) -> list[tuple[int, int]]:
        if session is None:
            return [(row[0], row[1]) for row in await self._get("load_running", node)]
        rows = await self._get("load_running_in_session", node, session)
        if not rows:
            raise superseded(node)
        return [(row[0], row[1]) for row in rows if row[0] is not None]

    async def load_running_of(self, nodes: Sequence[str]) -> dict[str, dict[int, int]]:
        held: dict[str, dict[int, int]] = {}
        for node, run_id, fence in await self._get("load_running_of", self._list(nodes)):
            held.setdefault(node, {})[run_id] = fence
        return held


def beat_of(sign: Sign, rows: Sequence[Row], is_in_doubt: bool = False) -> Beat | Superseded | None:
    """The answer to a sign of life, from rows of (0, beat, wanted, [count, digest]) for the node, (run id, fence) for
    what shall stop, and (-1, session, state) for a node that could not beat."""
    own = next((row for row in rows if row[0] == 0), None)
    if own is None:
        is_superseded = any(row[0] == -1 and sign.session is not None and row[1] != sign.session for row in rows)
        return superseded(sign.name) if is_superseded else None
    books = own[3]
    differs = sign.held is not None and books is not None and Holding(*books) != sign.held
    return Beat([(row[0], row[1]) for row in rows if row[0] > 0], own[2], is_in_doubt, differs)
