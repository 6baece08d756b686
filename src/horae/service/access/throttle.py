"""Who tries passwords too often: by account, by address, and by both together.

What must stay true:
- A stranger who guesses at an account keeps nobody else out: whoever logged in to it from an address before is judged
  by what comes from there alone.
- A stranger who guesses from an address keeps nobody out who logged in from it before.
- Names that do not exist count like those that do. Memory is bounded; each node counts for itself.
"""

from __future__ import annotations

import ipaddress

from horae.errors import Limited
from horae.ports.clock import Clock
from horae.service.access.credentials import keep

WINDOW = 900.0  # seconds
TRIES = 10  # of one account from one address
TRIES_OF_MANY = 50  # of an account from everywhere, or of an address for all accounts
REMEMBERED = 20_000

Pair = tuple[str, str]


class Throttle:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tries: dict[Pair, tuple[float, int]] = {}  # (account, address), or one of them → since when, how many
        self._proven: dict[Pair, None] = {}  # who logged in from where

    def begin(self, account: str, address: str) -> None:
        """Count a try before it is judged; Limited when there were too many."""
        pair = (account[:128], network_of(address))
        wide = [] if pair in self._proven else [(pair[0], ""), ("", pair[1])]
        limits = [(pair, TRIES), *((each, TRIES_OF_MANY) for each in wide)]
        for key, most in limits:
            if self._count(key) >= most:
                raise Limited(
                    "too many wrong passwords: wait a quarter of an hour",
                    code="E_LOGIN_LIMIT",
                    hint="wait, or log in from where you did before",
                )
        for key, _ in limits:
            since, count = self._tries.pop(key, (self._clock.elapsed(), 0))
            self._tries[key] = (since, count + 1)
        keep(self._tries, REMEMBERED)

    def succeed(self, account: str, address: str) -> None:
        pair = (account[:128], network_of(address))
        self._tries.pop(pair, None)
        for key in ((pair[0], ""), ("", pair[1])):
            since, count = self._tries.get(key, (0.0, 0))
            if count:
                self._tries[key] = (since, count - 1)
        self._proven.pop(pair, None)
        self._proven[pair] = None
        keep(self._proven, REMEMBERED)

    def _count(self, key: Pair) -> int:
        since, count = self._tries.get(key, (0.0, 0))
        if count and self._clock.elapsed() - since >= WINDOW:
            del self._tries[key]
            return 0
        return count


def network_of(address: str) -> str:
    """Return what one customer has of addresses: one of IPv4, a /64 of IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)
