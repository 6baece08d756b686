"""Tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from horae.core.identity import EVERYWHERE
from horae.core.model import DEFAULT_ORG, Bounds, Moment, Token
from horae.core.roles import Role
from horae.ports import deeds
from horae.stores.database import Database, Steps
from horae.stores.rows import Row, to_json


class TokenPart(Database):
    """Who may come in."""

    async def add_token(self, token: Token) -> Token:
        given = (token.name, token.scope, token.owner, token.hash, token.created_at, token.expires_at, token.parent_id)
        bounds = None if token.bounds is None else to_json(token.bounds).decode()
        deed = deeds.pending()

        def steps() -> Steps[Token]:
            if token.org not in (DEFAULT_ORG, EVERYWHERE):  # a number that was given by hand is an organisation too
                yield "name_organisation", token.org, token.created_at, f"org-{token.org}"
            added = yield "add_token", *given, bounds, token.org, token.role, token.user_id, token.renewed_at
            if deed is not None:
                deed.subject = str(added[0][0])
            return _token_from(*added[0])

        return await self._transact_apart(steps)

    async def get_token(self, token_id: int) -> Token | None:
        return _token_of(await self._get("get_token", token_id))

    async def load_tokens(self, token_ids: Sequence[int]) -> list[Token]:
        return [_token_from(*row) for row in await self._get("load_tokens", self._list(token_ids))]

    async def list_tokens(self) -> list[Token]:
        return [_token_from(*row) for row in await self._get("list_tokens")]

    async def revoke_token(self, token_id: int, at: Moment) -> Token | None:
        return _token_of(await self._put("revoke_token", token_id, at))

    async def redeem_token(self, credential: Token, at: Moment, identity: str) -> Token | None:
        bounds = credential.bounds
        assert bounds is not None, "a credential is for one agent"
        given = (credential.name, "agent", credential.owner, credential.hash, at, None, credential.parent_id)

        def steps() -> Steps[Token | None]:
            if not (yield "use_token", credential.parent_id, at):
                return None
            if found := (yield "find_credential", credential.parent_id):
                known = _token_from(*found[0])
                return known if known.hash == credential.hash else None
            rows = yield (
                "add_token", *given, to_json(bounds).decode(), credential.org, credential.role, credential.user_id, at
            )  # fmt: skip
            yield "readmit_node", bounds.node, identity
            return _token_from(*rows[0])

        return await self._transact_apart(steps)

    async def renew_token(self, token_id: int, next_hash: str) -> bool:
        return bool(await self._put("renew_token", token_id, next_hash))

    async def confirm_token(self, token_id: int, next_hash: str, at: Moment) -> bool:
        return bool(await self._put("confirm_token", token_id, next_hash, at))


def _token_of(rows: Sequence[Row]) -> Token | None:
    return _token_from(*rows[0]) if rows else None


def _token_from(*row: Any) -> Token:
    *known, bounds, org, role, user_id, used_at, next_hash, renewed_at = row
    given = None if bounds is None else msgspec.json.decode(bounds, type=Bounds)
    return replace(
        Token(*known), bounds=given, org=org, role=Role(role), user_id=user_id, used_at=used_at, next_hash=next_hash,
        renewed_at=renewed_at,
    )  # fmt: skip
