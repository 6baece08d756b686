"""Tokens and sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from horae.core.model import Bounds, Moment, Token
from horae.core.roles import Role
from horae.stores.database import Database
from horae.stores.rows import Row, to_json


class TokenPart(Database):
    """Who may come in."""

    async def add_token(self, token: Token) -> Token:
        given = (token.name, token.scope, token.owner, token.hash, token.created_at, token.expires_at, token.parent_id)
        bounds = None if token.bounds is None else to_json(token.bounds).decode()
        return _token_from(*(await self._put("add_token", *given, bounds, token.org, token.role))[0])

    async def get_token(self, token_id: int) -> Token | None:
        return _token_of(await self._get("get_token", token_id))

    async def load_tokens(self, token_ids: Sequence[int]) -> list[Token]:
        return [_token_from(*row) for row in await self._get("load_tokens", self._list(token_ids))]

    async def list_tokens(self) -> list[Token]:
        return [_token_from(*row) for row in await self._get("list_tokens")]

    async def revoke_token(self, token_id: int, at: Moment) -> Token | None:
        return _token_of(await self._put("revoke_token", token_id, at))

    async def add_session(self, token_id: int, hash: str, at: Moment, expires_at: Moment) -> int:
        await self._put("drop_sessions", at)
        return int((await self._put("add_session", token_id, hash, at, expires_at))[0][0])

    async def get_session(self, session_id: int) -> tuple[int, str, Moment] | None:
        rows = await self._get("get_session", session_id)
        return (rows[0][0], rows[0][1], rows[0][2]) if rows else None

    async def end_session(self, session_id: int) -> None:
        await self._put("end_session", session_id)


def _token_of(rows: Sequence[Row]) -> Token | None:
    return _token_from(*rows[0]) if rows else None


def _token_from(*row: Any) -> Token:
    *known, bounds, org, role = row
    given = None if bounds is None else msgspec.json.decode(bounds, type=Bounds)
    return replace(Token(*known), bounds=given, org=org, role=Role(role))
