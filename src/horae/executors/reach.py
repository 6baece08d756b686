"""Where we connect to, when users name the addresses.

Names are looked up by whoever connects, redirects are followed and addresses change between two looks: so what counts
is the address of each connection, at the moment it is made. Python tells before it makes one (PEP 578), and nothing
that runs here can take the hook away again. Libraries that make connections themselves get an address that was judged
(`pinned`) in the place of a name.

What must stay true: without leave, no connection of a guarded process goes to the machine's loopback, its link (where
clouds tell secrets), or the ports of Horae on any of the machine's addresses; and none of the agent itself, which makes
requests for users, to a private network.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Sequence
from typing import Any

from horae.core.model import Json
from horae.errors import Invalid

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Where clouds tell secrets to whoever asks from within, besides the link.
METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")))
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # IPv4 in IPv6, by NAT64


class Reach:
    """Judges addresses. `ports` are those of Horae; `allowed` are networks that may be reached all the same, each with
    a port or None for all but those; `places` are host and port of what the operator named. With `is_public_only`, no
    private network is reached."""

    def __init__(
        self,
        ports: Sequence[int],
        allowed: Sequence[tuple[str, int | None]],
        places: Sequence[tuple[str, int]] = (),
        *,
        is_public_only: bool = False,
    ) -> None:
        self._is_public_only = is_public_only
        self._ports = frozenset(ports)
        self._allowed = [(ipaddress.ip_network(network), port) for network, port in allowed]
        self._places = {(str(_plain(found)), port) for host, port in places for found in _look_up(host, port)}

    def refusal(self, host: str, port: int) -> str:
        """Why an address may not be reached; empty when it may."""
        address = _plain(host)
        if (str(address), port) in self._places:
            return ""
        is_horae = port in self._ports and _is_own(address)
        ports = (port,) if is_horae else (port, None)
        if any(address in network and each in ports for network, each in self._allowed):
            return ""
        if is_horae:
            return "it is Horae itself"
        if address.is_loopback or address.is_unspecified:
            return "it is the loopback of the agent's machine"
        if address.is_link_local or address in METADATA:
            return "it is an address of the link or of a cloud's metadata"
        if self._is_public_only and (address.is_multicast or not address.is_global):
            return "it is an address of a private network"
        return ""

    @property
    def trusts_machine(self) -> bool:
        return not self.refusal("127.0.0.1", 0)

    def check(self, host: str, port: int) -> None:
        if why := self.refusal(host, port):
            raise _refused(f"{host}:{port}", why)

    def pinned(self, host: str, port: int) -> str:
        """Return the first address of a name, if all that it has may be reached."""
        found = self.addresses(host, port)
        if not found:
            raise Invalid(f"{host} has no address", code="E_NETWORK")
        return found[0]

    def addresses(self, host: str, port: int) -> list[str]:
        """Return those of a name, if all of them may be reached; none where it has none."""
        found = _look_up(host, port)
        for address in found:
            if why := self.refusal(address, port):
                raise _refused(f"{host}:{port}", why)
        return found


_guard: Reach | None = None  # of this process


def guard(reach: Reach) -> None:
    """From now on this process connects to nothing else."""
    global _guard
    _guard = reach
    sys.addaudithook(_check_connection)


def guarded() -> Reach | None:
    return _guard


def reach_of(order: Json) -> Reach:
    """From what the agent sends to its process: {ports, allowed, places, is_public_only?}."""
    allowed = [(network, port) for network, port in order["allowed"]]
    places = [(host, port) for host, port in order["places"]]
    return Reach(order["ports"], allowed, places, is_public_only=order.get("is_public_only", False))


def _check_connection(event: str, args: Any) -> None:
    if event != "socket.connect" or _guard is None:
        return
    address = args[1]
    if not isinstance(address, tuple):  # a socket of this machine's files
        if not _guard.trusts_machine:
            raise _refused(repr(address), "it is a socket of the agent's machine")
        return
    if address[1]:  # port 0 connects to nobody: so libraries ask which way they would go
        _guard.check(str(address[0]), int(address[1]))


def _plain(host: str) -> Address:
    """Return the address that is meant, however it is wrapped."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        raise _refused(host, "it is a name that was not looked up") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address in _TRANSLATED:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _is_own(address: Address) -> bool:
    """Return whether it is one of this machine's: only then it can be bound to."""
    if address.is_loopback or address.is_unspecified:
        return True
    with socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
        return True


def _look_up(host: str, port: int) -> list[str]:
    try:
        return [str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []


def _refused(what: str, why: str) -> Invalid:
    return Invalid(
        f"{what} is not reached from here: {why}",
        code="E_NETWORK",
        hint="allowed_networks of the agent can allow it, 10.0.0.0/8 or 127.0.0.1:8080",
    )
