"""Reverse proxies that are believed: from where a request came, and whether by TLS, as they tell it.

What must stay true:
- Only what came from an address of `trusted_proxies` is looked at. Of the hops that it tells of, the right-most that is
  no such proxy is who asks: what stands left of that is the word of a stranger.
- What cannot be read, or is told twice and differently (most proxies set one of the two headers, and pass the other
  on as it came), is not believed: the request is from the proxy then.
- Whoever came through a proxy needs a token, believed or not: that is judged elsewhere (peers.was_forwarded).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

_HOPS, _SCHEME, _BOTH = "x-forwarded-for", "x-forwarded-proto", "forwarded"
_NAMES = frozenset((_HOPS, _SCHEME, _BOTH))
_SCHEMES = ("http", "https")
# An address as proxies write it, with a port or without: 192.0.2.7:4711, 2001:db8::7, [2001:db8::7]:4711
_ADDRESS = re.compile(r"\[([0-9A-Fa-f:.]{2,45})\](?::[0-9]{1,5})?|([0-9.]{7,15})(?::[0-9]{1,5})?|([0-9A-Fa-f:.]{2,45})")
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PAIR = re.compile(rf'[ \t]*({_WORD})=({_WORD}|"(?:[^"\\]|\\.)*")[ \t]*([;,]|\Z)')  # of the header Forwarded


class Hop(NamedTuple):
    address: str | None  # None: it is told, and is no address
    scheme: str | None = None


class Sender(NamedTuple):
    """From where a request came, and how; None: as the connection says."""

    address: str
    scheme: str | None = None


class Proxies:
    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]
        self.include = lru_cache(4096)(self._includes)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def _includes(self, address: str) -> bool:
        """Return whether this is one of them."""
        plain = _plain(address)
        if plain is None:
            return False
        found = ipaddress.ip_address(plain)
        return any(found in network for network in self._networks)

    def sender(self, peer: str, headers: Iterable[tuple[str, str]]) -> Sender:
        """Return who sent what came from a peer, as its headers tell it if that is a proxy that is believed."""
        if not self._networks or not self.include(peer):
            return Sender(peer)
        told: dict[str, list[str]] = {}
        for name, value in headers:
            if name in _NAMES:
                told.setdefault(name, []).append(value)
        nearest_first = (Hop(_plain(text)) for text in reversed(_split(told.get(_HOPS, ()))))
        listed = self._outermost(nearest_first) if _HOPS in told else None
        written = self._outermost(reversed(_read_forwarded(",".join(told[_BOTH])))) if _BOTH in told else None
        addresses = {hop.address for hop in (listed, written) if hop is not None}
        schemes = {_scheme(told[_SCHEME])} if _SCHEME in told else set()
        schemes |= {written.scheme} if written is not None and written.scheme else set()
        return Sender(_agreed(addresses) or peer, _agreed(schemes))

    def sender_of_call(self, peer: str, metadata: Any) -> str:
        """As sender, of a call over gRPC."""
        if not self._networks:
            return peer
        return self.sender(peer, ((name, text) for name, text in metadata or () if isinstance(text, str))).address

    def believe(self, scope: Any) -> None:
        """Set in the scope of a request from where it came, and how."""
        client = scope.get("client")
        if client is None or not self.include(client[0]):
            return
        told = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        sender = self.sender(client[0], told)
        if sender.address != client[0]:
            scope["client"] = (sender.address, 0)
        if sender.scheme is not None:
            scope["scheme"] = sender.scheme

    def _outermost(self, nearest_first: Iterable[Hop]) -> Hop:
        """Return who is beyond our proxies; where there are only those, the farthest of them."""
        farthest = Hop(None)
        for hop in nearest_first:
            if hop.address is None or not self.include(hop.address):
                return hop
            farthest = hop
        return farthest


NOBODY = Proxies()


def _agreed(told: set[str | None]) -> str | None:
    """Return what all say; None where they differ, or one says what cannot be read."""
    return next(iter(told)) if len(told) == 1 else None


def _split(values: Sequence[str]) -> list[str]:
    return [part.strip() for value in values for part in value.split(",")]


def _plain(text: str) -> str | None:
    """Return an address as it is written everywhere here; None: it is none."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return None
    try:
        address = ipaddress.ip_address(found[1] or found[2] or found[3])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def _scheme(values: Sequence[str]) -> str | None:
    scheme = values[0].strip().lower() if len(values) == 1 else ""
    return scheme if scheme in _SCHEMES else None


def _read_forwarded(text: str) -> list[Hop]:
    """Return the hops of RFC 7239; what cannot be read is one hop that nobody knows."""
    hops: list[Hop] = []
    pairs: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _PAIR.match(text, at)
        if found is None or found[1].lower() in pairs:
            return [Hop(None)]
        pairs[found[1].lower()] = _unquoted(found[2])
        at = found.end()
        if found[3] != ";":
            hops.append(_hop(pairs))
            pairs = {}
    return hops if not pairs and not text.rstrip().endswith(",") else [Hop(None)]


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def _hop(pairs: Mapping[str, str]) -> Hop:
    return Hop(_plain(pairs.get("for", "")), _scheme([pairs.get("proto", "")]))
