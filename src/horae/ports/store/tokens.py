"""Tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.model import Moment, Token


class Tokens(Protocol):
    """Who may come in."""

    async def add_token(self, token: Token) -> Token:
        """Keep a new token, under a fresh id in place of the given one."""

    async def get_token(self, token_id: int) -> Token | None:
        """Revoked and expired ones too. One that was made by another is revoked with it, at every remove."""

    async def load_tokens(self, token_ids: Sequence[int]) -> list[Token]: ...

    async def list_tokens(self) -> list[Token]: ...

    async def revoke_token(self, token_id: int, at: Moment) -> Token | None:
        """Mark it revoked; one that was revoked before keeps its moment. None when there is no such token."""
