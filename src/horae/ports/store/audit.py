"""Who did what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.audit import AuditFilter, Deed, Head, Row
from horae.core.model import Moment


class AuditLog(Protocol):
    """Only grows. What a request changes is written together with its row, where the store can (ports.deeds)."""

    async def append_audit(self, deeds: Sequence[Deed]) -> None:
        """Write rows of their own. A row of the same request and number is written once."""

    async def list_audit(self, where: AuditFilter, before: int | None, limit: int) -> list[Row]:
        """Newest first, of those with a lower id than `before`."""

    async def load_unsealed(self, limit: int) -> list[Row]:
        """Oldest first."""

    async def seal_audit(self, seen: Head, rows: Sequence[tuple[int, str]]) -> bool:
        """Seal rows (id, hash) after those that were seen sealed; False, and nothing is done, if somebody else has
        sealed meanwhile."""

    async def audit_head(self) -> Head: ...

    async def read_sealed(self, after: int, limit: int) -> list[Row]:
        """In their order, after a number."""

    async def drop_audit(self, before: Moment, limit: int) -> tuple[int, Head]:
        """Drop the first sealed rows, as far as all of them are older; how many it were, and the head since then."""
