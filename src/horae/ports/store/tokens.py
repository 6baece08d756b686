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

    async def redeem_token(self, credential: Token, at: Moment, identity: str) -> Token | None:
        """Keep the credential of an agent, made by the token to join by that is its parent, which is used with it; a
        node of its name, or of this identity, that was evicted may come back. Again with the same hash answers the
        same; None when the parent was used for another one, or is revoked."""

    async def renew_token(self, token_id: int, next_hash: str) -> bool:
        """Keep what is kept of the secret that a credential shall have next; False when it is none, or revoked."""

    async def confirm_token(self, token_id: int, next_hash: str, at: Moment) -> bool:
        """The next secret of a credential was used: the one before is nothing from now on. False if it was not the
        next one, or is no more."""

    async def revoke_token(self, token_id: int, at: Moment) -> Token | None:
        """Mark it revoked; one that was revoked before keeps its moment. None when there is no such token."""
