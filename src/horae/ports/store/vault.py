"""Secrets and settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.model import Moment, Secret
from horae.core.secrets.sealing import Sealed, SealedPlace


class Vault(Protocol):
    """Secrets, and whatever else is sealed."""

    async def put_secret(self, org: int, name: str, sealed: str, at: Moment) -> int:
        """Keep a sealed value in the place of any earlier one; answers its version, 1 for a new one."""

    async def list_secrets(self, org: int) -> list[Secret]:
        """By name."""

    async def get_sealed(self, org: int, names: Sequence[str]) -> dict[str, str]:
        """Name → sealed value, of those that exist."""

    async def list_sealed(self) -> list[tuple[int, str, str]]:
        """(org, name, sealed value) of every secret there is."""

    async def delete_secret(self, org: int, name: str) -> bool: ...

    async def load_sealable(self, place: SealedPlace, after: int, limit: int) -> list[Sealed]:
        """Return what may be sealed there, of rows with an id above `after`, by id; also of deleted jobs. Secrets and
        settings have none: all of them come at once, and with `after`, nothing."""

    async def reseal(self, row: Sealed, text: str) -> bool:
        """Put a text in the place of the one that was loaded, if that is still there. Nothing else changes: neither
        version nor moment."""


class Settings(Protocol):
    """Values that the whole cluster shares."""

    async def keep_setting(self, name: str, value: str) -> str:
        """Keep a value for the whole cluster unless there is one; answers the one that is kept."""

    async def replace_setting(self, name: str, expected: str, value: str, *, unless_beaten_since: Moment) -> bool:
        """Put a value in the place of another, if that is still there, and no node on the database has given a sign of
        life since then."""

    async def get_setting(self, name: str) -> str | None:
        """Return the value that is kept for the whole cluster, if there is one."""
