"""Sources of data."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.definitions import SOURCE_SORTS, Sort
from horae.core.model import Found, Source
from horae.stores.database import Database
from horae.stores.parts.pages import Where, like
from horae.stores.parts.search import _cut, _ordered
from horae.stores.rows import Row, decode, encode


class SourcePart(Database):
    """Where data comes from."""

    async def add_source(self, source: Source) -> Source:
        values = (source.org, source.owner, source.name, source.kind, encode(source.config))
        rows = await self._put("add_source", *values, source.created_at, source.updated_at)
        return _source_of(rows[0])

    async def save_source(self, source: Source) -> bool:
        values = (source.name, source.kind, encode(source.config), source.updated_at)
        return bool(await self._put("save_source", source.org, source.id, *values))

    async def get_source(self, org: int, source_id: int) -> Source | None:
        rows = await self._get("get_source", org, source_id)
        return _source_of(rows[0]) if rows else None

    async def load_sources(self, source_ids: Sequence[int]) -> list[Source]:
        return [_source_of(row) for row in await self._get("load_sources", self._list(source_ids))]

    async def search_sources(self, org: int, name: str | None, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        found = Where()
        found.add("org = ?", org)
        if name is not None:
            found.add(*like("name", name, self.dialect))
        text = self.queries["search_sources"].replace("{where}", found.text())
        text = f"{text} ORDER BY {_ordered(sorts, SOURCE_SORTS, {})} {_cut(offset, limit)}"
        rows = await self.read(self._statement(text), *found.args)
        text = self._statement(f"SELECT count(*) FROM sources WHERE {found.text()}")  # noqa: S608
        total = (await self.read(text, *found.args))[0][0]
        return Found([_source_of(row) for row in rows], total)

    async def delete_source(self, org: int, source_id: int) -> bool:
        return bool(await self._put("delete_source", org, source_id))


def _source_of(row: Row) -> Source:
    return Source(row[0], row[1], row[2], row[3], row[4], decode(row[5]), row[6], row[7])
