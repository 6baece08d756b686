"""Who calls over gRPC, by the same rules as over HTTP: beyond loopback everybody needs a user token, as Bearer or as
the password of Basic; on loopback none is needed, and what clients of other systems send in its place is ignored."""

from __future__ import annotations

import base64
import re
from typing import Any

from horae.core.model import DEFAULT_ORG
from horae.service.access import Access, is_ours
from horae.web.http import LOCAL, Principal


class Callers:
    def __init__(self, access: Access, *, needs_login: bool) -> None:
        self._access = access
        self._needs_login = needs_login

    async def identify(self, context: Any) -> Principal:
        """Who asks, or the refusal of access."""
        sent = token_of(dict(context.invocation_metadata() or ()).get("authorization"))
        if not self._needs_login and (sent is None or not is_ours(sent)):
            return LOCAL
        token = await self._access.check(sent, "user", address_of(context.peer()))
        return Principal(token.owner, DEFAULT_ORG)


def token_of(authorization: str | None) -> str | None:
    """None when nothing was sent; another scheme, or what cannot be read, is a wrong token."""
    if authorization is None:
        return None
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return text.strip()
    try:
        is_basic = scheme.lower() == "basic"
        return base64.b64decode(text.strip(), validate=True).decode().partition(":")[2] if is_basic else ""
    except ValueError:
        return ""


def address_of(peer: str) -> str:
    """The host of what gRPC calls a peer, such as ipv4:10.0.0.1:4711."""
    return re.sub(r"^ipv[46]:|:[0-9]+$", "", peer)
