"""Who did what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.audit import AuditFilter, Deed, Gone, Head, Row
from horae.core.model import Moment


class AuditLog(Protocol):
    """Only grows. What a request changes is written together with its row, where the store can (ports.deeds)."""

    async def append_audit(self, deeds: Sequence[Deed]) -> None:
        """Write rows of their own. A row of the same request and number is written once."""

    async def list_audit(self, where: AuditFilter, before: int | None, limit: int) -> list[Row]:
        """Newest first, of those with a lower id than `before`."""

    async def seal_audit(self, limit: int) -> tuple[int, Head]:
        """Seal rows that are not sealed yet, oldest first; how many it were, and the head since then. Who seals at the
        same time waits, and goes on after them."""

    async def audit_head(self) -> Head: ...

    async def read_sealed(self, after: int, limit: int) -> list[Row | Gone]:
        """In their order, after a number."""

    async def find_strays(self, after: int, last: int) -> list[int]:
        """Ids of rows that no seal names, though those sealed after one number and up to another have higher ones; a
        few of them."""

    async def drop_audit(self, before: Moment, limit: int) -> tuple[int, Head]:
        """Drop the first seals with their rows, as far as all of them are older, about so many rows; how many it were,
        and the head since then."""
