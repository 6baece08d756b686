"""Sources of data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.definitions import Sort
from horae.core.model import Found, Source


class Sources(Protocol):
    """Where data comes from."""

    async def add_source(self, source: Source) -> Source:
        """Keep a new one, under a fresh id in place of the given one."""

    async def save_source(self, source: Source) -> bool:
        """Replace name, kind, config and updated_at of the one with its org and id; False when there is none."""

    async def get_source(self, org: int, source_id: int) -> Source | None: ...

    async def load_sources(self, source_ids: Sequence[int]) -> list[Source]:
        """Return those of them that exist, of any organisation."""

    async def search_sources(
        self, org: int, name: str | None, sorts: Sequence[Sort], offset: int, limit: int
    ) -> Found: ...

    async def delete_source(self, org: int, source_id: int) -> bool: ...
