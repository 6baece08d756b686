"""How often somebody may ask: a share for each user, and for each address of those who are not known.

What must stay true:
- Whoever asks too often keeps nobody else out: each has a share of its own, whatever token or session it comes with.
- Strangers cannot push out what is remembered of users. Memory is bounded; each node counts for itself.
- The user who runs the server is not counted: there is nobody to be fair to.
- It is asked at every request: a look into a dictionary, and a few additions.
"""

from __future__ import annotations

from functools import lru_cache

from horae.core.identity import OPERATOR, Principal
from horae.errors import TooOften
from horae.ports.clock import Clock
from horae.service.access.credentials import keep
from horae.service.access.throttle import network_of

BURST = 10.0  # seconds: whoever was silent for so long may ask at once for what these have room for
REMEMBERED = 4096  # users, and as many addresses
Key = int | str

_network = lru_cache(REMEMBERED)(network_of)


class Rates:
    def __init__(self, clock: Clock, rate: float = 0) -> None:
        """`rate` is in requests a second; 0: as many as anybody likes."""
        self.refused = 0
        self._elapsed = clock.elapsed
        self._rate = rate
        self._gap = 1 / rate if rate else 0.0  # seconds that a request uses up
        self._most = BURST - self._gap  # seconds that may be used up before another is taken
        self._users: dict[Key, float] = {}  # → the moment by which all that was asked for is used up
        self._strangers: dict[Key, float] = {}

    def take(self, who: Principal) -> None:
        """Count a request of somebody who is known; TooOften when there were too many."""
        if self._gap and who.via != OPERATOR:
            self._count(self._users, who.scope if who.user_id is None else who.user_id, who.name)

    def take_stranger(self, address: str) -> None:
        """Count a request that came without a login."""
        if self._gap:
            self._count(self._strangers, _network(address), "this address")

    def _count(self, known: dict[Key, float], key: Key, name: str) -> None:
        now = self._elapsed()
        until = known.pop(key, now)  # the newest stands last
        if until < now:
            until = now
        if until - now > self._most:
            known[key] = until
            self._refuse(name, until - now - self._most)
        known[key] = until + self._gap
        if len(known) > REMEMBERED:
            keep(known, REMEMBERED)

    def _refuse(self, name: str, seconds: float) -> None:
        self.refused += 1
        error = TooOften(
            f"{name} asks more often than {self._rate:g} times a second",
            hint="wait, ask for many things at once, or have request_rate raised",
        )
        error.seconds = seconds
        raise error
