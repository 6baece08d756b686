"""Where it leads, a node seals the rows of the audit log, and drops those that are past their time.

Nobody who writes waits for it, and no row is written again: what seals it lies beside. Two leaders at once do no harm:
one waits for the other, and goes on after it. A row that commits late, with a lower id than others, is found by the
hole that it left.
"""

from __future__ import annotations

from typing import Protocol

import structlog

from horae.core.audit import Deed
from horae.core.model import SECOND, Moment
from horae.ports.store.audit import AuditLog
from horae.ports.store.moments import StoreClock
from horae.service.metrics import Metrics

log = structlog.get_logger(__name__)

DAY = 86_400 * SECOND
TOGETHER = 2000  # rows of one transaction
TOLD = 600 * SECOND  # between heads in the log of the process


class SealStore(AuditLog, StoreClock, Protocol):
    """Who did what, and when it is."""


class Sealer:
    def __init__(self, store: SealStore, metrics: Metrics, *, days: int) -> None:
        """`days` 0 keeps all rows for ever."""
        self._store = store
        self._metrics = metrics
        self._days = days
        self._told_at: Moment | None = None  # when the log of the process was told a head

    async def seal(self) -> int:
        """Seal the next rows; return how many."""
        count, head = await self._store.seal_audit(TOGETHER)
        if count:
            self._metrics.sealed = head.seq
            await self._tell_head(f"{head.seq}:{head.hash}")
        return count

    async def _tell_head(self, head: str) -> None:
        """Now and then: whoever keeps the log of this process elsewhere has heads of the chain there too."""
        now = await self._store.now()
        if self._told_at is None or now - self._told_at >= TOLD:
            self._told_at = now
            log.info("audit.sealed", head=head)

    async def drop(self) -> bool:
        """Drop the first rows, as far as they are past their time; True when there may be more."""
        if not self._days:
            return False
        dropped, head = await self._store.drop_audit(await self._store.now() - self._days * DAY, TOGETHER)
        if dropped:
            told = Deed(
                "", action="audit.drop", kind="audit", subject=str(head.first_seq), count=dropped,
                request_id=f"audit-drop-{head.first_seq}",
            )  # fmt: skip
            await self._store.append_audit([told])
            log.info("audit.dropped", rows=dropped, head=f"{head.first_seq}:{head.first_hash}")
        return dropped >= TOGETHER
