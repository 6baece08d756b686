"""Acts on the outbox: hands each row to whoever knows what to do about it.

    row ──► has a parent ──► with a graph ──► flows
       │                └──► without      ──► calls
       └──► has none ─────────────────────► dependencies

Whoever acts on rows drops them in the transaction of what it does; what it leaves is there in the next round. Rows that
nobody has to act on (the parent has ended) are dropped here.

What must stay true: one row that cannot be acted on never holds up the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

import structlog

from horae.core.runs.endings import Ending
from horae.core.runs.flows import Flow
from horae.errors import Unavailable
from horae.ports.store.endings import Endings
from horae.ports.store.flows import Flows

log = structlog.get_logger(__name__)
ROWS = 2000  # that are looked at together

Act = Callable[[Sequence[Ending]], Awaitable[None]]


class FlowActs(Protocol):
    async def advance(self, flows: Sequence[Flow], rows: Sequence[Ending]) -> None:
        """Move workflows on, to each of which some of the rows belong."""


class OutboxStore(Endings, Flows, Protocol):
    """What is to be acted on, and which runs have a graph."""


class Outbox:
    def __init__(
        self, store: OutboxStore, flows: FlowActs, *, calls: Act | None = None, dependencies: Act | None = None
    ) -> None:
        """`calls` acts on rows of parents that are no workflows, `dependencies` on rows without a parent."""
        self._store = store
        self._flows = flows
        self._calls = calls
        self._dependencies = dependencies
        self._after = 0  # rows up to here were looked at in this round

    async def act(self) -> bool:
        """Act on some rows; return whether there may be more. What is left over has its turn in the next round."""
        rows = await self._store.load_endings(self._after, ROWS)
        self._after = rows[-1].id if len(rows) == ROWS else 0
        if rows:
            await self._act_on(rows)
        return len(rows) == ROWS

    async def _act_on(self, rows: Sequence[Ending]) -> None:
        parents = sorted({row.parent_id for row in rows if row.parent_id is not None})
        flows = await self._store.load_flows(parents)
        graphs, over = {flow.run_id for flow in flows}, {flow.run_id for flow in flows if flow.is_over}
        await self._store.drop_endings([row.id for row in rows if row.parent_id in over])
        going = [flow for flow in flows if not flow.is_over]
        names = graphs - over
        await self._hand(partial(self._flows.advance, going), (row for row in rows if row.parent_id in names))
        await self._hand(self._calls, (r for r in rows if r.parent_id is not None and r.parent_id not in graphs))
        await self._hand(self._dependencies, (row for row in rows if row.parent_id is None))

    async def _hand(self, act: Act | None, rows: Iterable[Ending]) -> None:
        """Rows that cannot be acted on stay, and the others go on."""
        given = list(rows)
        if not given:
            return
        if act is None:
            await self._store.drop_endings([row.id for row in given])
            return
        try:
            await act(given)
        except Unavailable:
            raise
        except Exception:
            log.exception("endings.failed", rows=[row.id for row in given[:10]])
