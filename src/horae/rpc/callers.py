"""Who calls over gRPC, by the same rules as over HTTP: everybody needs a user token, as Bearer or as the password of
Basic, but for the user who runs a server that listens on loopback only; what that user's clients of other systems send
in its place is ignored."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Collection
from typing import Any

import grpc

from horae import wire
from horae.core.audit import Deed
from horae.core.definitions import Idempotency
from horae.core.identity import Principal
from horae.errors import Invalid, Unauthenticated
from horae.service.access import Access
from horae.service.access.credentials import is_ours
from horae.service.audit import Audit
from horae.web.peers import owner_of, was_forwarded
from horae.web.proxies import NOBODY, Proxies

_PEER = re.compile(r"ipv[46]:(?:\[|%5B)?(.+?)(?:\]|%5D)?:([0-9]+)")  # as gRPC writes it: ipv4:127.0.0.1:4711


class Callers:
    def __init__(
        self, access: Access, audit: Audit, needs_no_token: Callable[[Any], bool], proxies: Proxies = NOBODY
    ) -> None:
        """`needs_no_token` judges the context of a call; what `proxies` tell of who calls is believed."""
        self._access = access
        self._audit = audit
        self._needs_no_token = needs_no_token
        self._proxies = proxies

    async def identify(self, context: Any) -> Principal:
        """Return who asks, or the refusal of access."""
        metadata = dict(context.invocation_metadata() or ())
        sent, org = token_of(metadata.get("authorization")), metadata.get("horae-organisation")
        if (sent is None or not is_ours(sent)) and self._needs_no_token(context):
            return await self._access.locally(org)
        address = self.address_of(context)
        if sent is None:
            self._access.rates.take_stranger(address)
        try:
            who = (await self._access.admit(sent, "user", address, org)).who
        except Unauthenticated as error:
            await self._audit.refuse(Deed("", address=address, operation="grpc"), error.code)
            raise
        self._access.rates.take(who)
        return who

    def address_of(self, context: Any) -> str:
        """Return from where a call came."""
        return sender_of(context, self._proxies)


async def check_peer(context: Any, secret: str, what: str) -> None:
    """End the call unless it comes from a server of this cluster, which alone may do this."""
    given = dict(context.invocation_metadata() or ()).get(wire.SECRET_HEADER, "")
    if not hmac.compare_digest(given.encode(), secret.encode()):
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"only servers of this cluster {what} here")


class FreePass:
    """Which calls need no token, by the owner of the connection (web/peers.py). gRPC tells of it only the peer's
    address, so the kernel is asked at every call: by the next, the address may be another's."""

    def __init__(self, uids: Collection[int], host: str, port: int) -> None:
        """`uids` need no token, where `host` and `port` are listened on; none: everybody does."""
        self._uids = uids
        self._host, self._port = host, port

    def covers(self, context: Any) -> bool:
        found = _PEER.fullmatch(context.peer())
        if not self._uids or found is None or was_forwarded(dict(context.invocation_metadata() or ())):
            return False
        client = (found[1], int(found[2]))
        return owner_of(client, (self._server(found[1]), self._port)) in self._uids

    def _server(self, client: str) -> str:
        """Return where a client of this family arrived: `localhost` is two addresses."""
        if self._host.lower() == "localhost":
            return "::1" if ":" in client else "127.0.0.1"
        return self._host


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
    """Return the host of what gRPC calls a peer, such as ipv4:10.0.0.1:4711."""
    found = _PEER.fullmatch(peer)
    return found[1] if found else re.sub(r":[0-9]+$", "", peer)


def sender_of(context: Any, proxies: Proxies) -> str:
    """Return from where a call came, by proxies that are believed too."""
    return proxies.sender_of_call(address_of(context.peer()), context.invocation_metadata())


def promise_of(name: str, raw: bytes, who: Principal, context: Any) -> Idempotency | None:
    """Return the client's promise that a repeat is the same call, in the metadata: what was done for it is not done
    again."""
    key = dict(context.invocation_metadata() or ()).get("idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= 200:
        raise Invalid(f"an idempotency-key has 1 to 200 characters, got {len(key)}", code="E_LEN")
    digest = hashlib.sha256(name.encode() + b"\n" + raw).hexdigest()
    return Idempotency(f"{who.scope} rpc {name}", str(key), digest)
