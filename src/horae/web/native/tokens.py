"""Tokens under /v1: what people and agents log in with."""

from __future__ import annotations

from horae import schemas
from horae.core.model import DEFAULT_ORG
from horae.core.rights import refuse_without
from horae.core.roles import Permission
from horae.service import Services
from horae.service.access.wanted import OF_AGENTS, parse_token
from horae.web import http, render

TOKEN_EXAMPLE = {"name": "ci", "scope": "user", "owner": "ann", "expires_in": "30d"}


class Tokens:
    """The endpoints of tokens."""

    def __init__(self, services: Services) -> None:
        self._access = services.access

    def operations(self) -> list[http.Operation]:
        op, tokens = http.Operation, "/v1/tokens"
        return [
            op("POST", tokens, self.create_token, "tokens", "Make a token", "NewToken", 201,
               body=http.Body("TokenRequest", TOKEN_EXAMPLE), needs=Permission.TOKENS, is_dangerous=True),
            op("GET", tokens, self.list_tokens, "tokens", "List tokens, newest first", "TokenPage",
               needs=Permission.TOKENS),
            op("DELETE", f"{tokens}/{{token_id}}", self.revoke_token, "tokens", "Revoke a token", status=204,
               needs=Permission.TOKENS),
        ]  # fmt: skip

    async def create_token(self, request: http.Request) -> http.Answer:
        """`token` in the answer is shown this once: Horae keeps only what it is known by. What is made with a
        token has its owner, and ends with it."""
        wanted = parse_token(await request.document())
        who = http.principal(request)
        if wanted.scope in OF_AGENTS:  # it is given work with its secrets: of its organisation, or of all
            refuse_without(who, Permission.CLUSTER if (wanted.org or who.org) == DEFAULT_ORG else Permission.NODES)
        token, text = await self._access.issue(wanted, request.token, who)
        return http.reply(201, render.new_token(token, self._access.state_of(token), text))

    async def list_tokens(self, request: http.Request) -> http.Answer:
        """Return those of the organisation of who asks, revoked and expired ones too; never their secrets."""
        items = [
            render.token(token, self._access.state_of(token))
            for token in await self._access.list(http.principal(request))
        ]
        return http.reply(200, schemas.TokenPage(items))

    async def revoke_token(self, request: http.Request) -> http.Answer:
        """This node refuses it at once, every other one within 5 seconds."""
        await self._access.revoke(request.path_id("token_id"), http.principal(request))
        return http.Reply(204)
