"""Who calls over gRPC: the owner of the bearer token in the metadata. While only loopback is listened on, none is
needed, and what other systems' clients send there is ignored, as over HTTP."""

from __future__ import annotations

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
        sent = dict(context.invocation_metadata() or ()).get("authorization")
        scheme, _, text = str(sent or "").partition(" ")
        token = text.strip() if scheme.lower() == "bearer" else None if sent is None else ""
        if not self._needs_login and (token is None or not is_ours(token)):
            return LOCAL
        known = await self._access.check(token, "user", address_of(context.peer()))
        return Principal(known.owner, DEFAULT_ORG)


def address_of(peer: str) -> str:
    """The host of what gRPC calls a peer, such as ipv4:10.0.0.1:4711."""
    return re.sub(r"^ipv[46]:|:[0-9]+$", "", peer)
