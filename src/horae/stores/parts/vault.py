"""Secrets, settings, and whatever else is sealed."""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.model import Moment, Secret
from horae.core.secrets.sealing import Sealed, SealedPlace
from horae.stores.database import Database


class VaultPart(Database):
    """Secrets and settings."""

    async def put_secret(self, org: int, name: str, sealed: str, at: Moment) -> int:
        return int((await self._put("put_secret", org, name, sealed, at))[0][0])

    async def list_secrets(self, org: int) -> list[Secret]:
        return [Secret(*row) for row in await self._get("list_secrets", org)]

    async def get_sealed(self, org: int, names: Sequence[str]) -> dict[str, str]:
        return {row[0]: row[1] for row in await self._get("get_sealed", org, self._list(names))}

    async def list_sealed(self) -> list[tuple[int, str, str]]:
        return [(row[0], row[1], row[2]) for row in await self._get("list_sealed")]

    async def delete_secret(self, org: int, name: str) -> bool:
        return bool(await self._put("delete_secret", org, name))

    async def load_sealable(self, place: SealedPlace, after: int, limit: int) -> list[Sealed]:
        if place in ("job", "trigger", "source"):
            rows = await self._get(f"sealable_{place}", after, limit)
        else:
            rows = await self._get("list_sealed" if place == "secret" else "sealable_setting") if not after else ()
        return [Sealed(place, row[0], str(row[1]), row[2]) for row in rows]

    async def reseal(self, row: Sealed, text: str) -> bool:
        return bool(await self._put(f"reseal_{row.place}", row.id, row.name, row.text, text))

    async def keep_setting(self, name: str, value: str) -> str:
        return str((await self._put("keep_setting", name, value))[0][0])

    async def replace_setting(self, name: str, expected: str, value: str, *, unless_beaten_since: Moment) -> bool:
        return bool(await self._put("replace_setting", name, expected, value, unless_beaten_since))

    async def get_setting(self, name: str) -> str | None:
        rows = await self._get("get_setting", name)
        return str(rows[0][0]) if rows else None
