"""Tokens and sessions."""

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

    async def add_session(self, token_id: int, hash: str, at: Moment, expires_at: Moment) -> int:
        """Keep a session of a token; answers its id. Those that have expired go."""

    async def get_session(self, session_id: int) -> tuple[int, str, Moment] | None:
        """(token, hash, when it expires); None when there is none."""

    async def end_session(self, session_id: int) -> None:
        """It is gone. What is not there is no error."""
