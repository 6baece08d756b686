"""Calls to workers outside Horae, at the address that they registered.

An address is a stranger's word, so it is looked up once, judged, and that very address is called: never a port of
ours, never the addresses that machines of a cloud ask for credentials, and beyond loopback only a worker that
registered with a token. Redirects are not followed, proxies not asked, and an answer has a size.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Collection
from importlib import import_module
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

import msgspec

from horae.core.model import Json
from horae.errors import Denied, Invalid, Unavailable
from horae.ports.transport import NOT_SENT, OWN_PORT, Reply

MAX_ANSWER = 1 << 20  # bytes

Address = IPv4Address | IPv6Address


class HttpWorkers:
    """Implements ports.transport.OutsideWorkers."""

    def __init__(self, own_ports: Collection[int]) -> None:
        """`own_ports` are those that this machine's server listens on."""
        self._own_ports = frozenset(own_ports)
        self._client: Any = None

    async def post(self, address: str, path: str, document: Json, *, trusted: bool, seconds: float = 5.0) -> Reply:
        host, port = _parted(address)
        if self._client is None:  # most installations have no such worker, and it takes long to load: not in its time
            await asyncio.to_thread(import_module, "httpx")
        try:
            async with asyncio.timeout(seconds):
                found = await _look_up(host, port)
                self._refuse(found, port, trusted=trusted)
                return await self._post(found, port, f"{host}:{port}", path, document)
        except TimeoutError:
            raise Unavailable(f"the worker at {address} gave no answer in {seconds:g} s") from None

    def _refuse(self, found: Address, port: int, *, trusted: bool) -> None:
        if found.is_link_local or found.is_multicast or found.is_unspecified:
            raise Denied(f"no worker is called at {found}")
        if port in self._own_ports and (found.is_loopback or _is_own(found)):
            message = f"port {port} is one of Horae's own"
            raise Denied(message, code=OWN_PORT, hint="register the port on which the worker listens")
        if not found.is_loopback and not trusted:
            raise Denied(
                f"a worker at {found} is called only if it registered with a token",
                hint="horae token create NAME --agent NAME, and send it when registering",
            )

    async def _post(self, found: Address, port: int, host: str, path: str, document: Json) -> Reply:
        import httpx

        if self._client is None:
            nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no TLS: to read whom to trust would hold up the loop
            self._client = httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=60.0, verify=nobody)
        at = f"[{found}]" if found.version == 6 else str(found)
        body = bytearray()
        headers = {"Host": host, "Content-Type": "application/json"}
        request = self._client.build_request(
            "POST", f"http://{at}:{port}{path}", content=msgspec.json.encode(document), headers=headers
        )
        try:
            answer = await self._client.send(request, stream=True)
            try:
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) > MAX_ANSWER:
                        raise Unavailable(f"the worker at {host} answers with more than {MAX_ANSWER} bytes")
            finally:
                await answer.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            message = f"the worker at {host} cannot be reached: {error or type(error).__name__}"
            raise Unavailable(message, code=NOT_SENT) from None
        except httpx.HTTPError as error:
            raise Unavailable(f"the worker at {host} cannot be reached: {error or type(error).__name__}") from None
        return Reply(answer.status_code, _read(bytes(body)))

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def _parted(address: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.netloc != address or "@" in address:
        raise Invalid(f"{address!r} is no address of a worker", hint="host:port", path="address")
    return host, port


async def _look_up(host: str, port: int) -> Address:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unavailable(f"the name of the worker's machine is not known: {host}", code=NOT_SENT) from None
    address = ip_address(str(found[0][4][0]).partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _is_own(address: Address) -> bool:
    """Return whether it is one of this machine: only those can be bound."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def _read(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
