"""Secrets that we make: their text, their hash, and what the store said of them for a while.

    horae_u_12_kQ3v…   `u` user, `a` agent or `j` to join by, the id it is looked up by, then 256 random bits
    horae_s_7_pW0a…    a session of a browser
    horae_i_3_Zx81…    an invitation to set a password
    horae_d_9_b7Qk…    a program that waits to be let in

The hash is one SHA-256, without salt or stretching. Those protect words that people choose, which can be
guessed; nobody guesses 256 random bits, and a slow hash would only let strangers keep this process busy.
Of agents, who prove over a broker that they have their secret, a verifier is kept in its place (horae.verifiers): by a
hash such a proof could be made.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from horae import verifiers
from horae.errors import Limited
from horae.ports.clock import Clock

CACHE_SECONDS = 3.0  # with the time between two looks of a stream (web.streams), less than the five that are promised
CACHED = 4096  # tokens remembered
TRIES = 20
WINDOW = 60.0  # seconds
PEERS = 4096  # whose failures are remembered
NO_HASH = "0" * 64
OF_AGENTS = ("a", "j")  # kinds

_TEXT = re.compile(r"horae_([uajsid])_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})")

T = TypeVar("T")


def is_ours(text: str) -> bool:
    """Return whether this could be a token, rather than what another system uses for one."""
    return text.startswith("horae_")


def new_secret(kind: str = "") -> str:
    return verifiers.new_secret() if kind in OF_AGENTS else secrets.token_urlsafe(32)


def text_of(kind: str, number: int, secret: str) -> str:
    return f"horae_{kind}_{number}_{secret}"


def parts_of(text: str) -> tuple[str, int, str] | None:
    """(kind, id, secret); None when it is nothing that we made."""
    found = _TEXT.fullmatch(text)
    return (found[1], int(found[2]), found[3]) if found else None


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("ascii")).hexdigest()


def digest_of(text: str) -> bytes:
    """Return what a text is found by again, without it being kept."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).digest()


def kept_of(kind: str, secret: str) -> str:
    """Return what is kept of a secret: by the secret alone, so that what is wrong takes as long as what is right."""
    return verifiers.kept_of(secret) if kind in OF_AGENTS else hash_of(secret)


def is_secret_of(secret: str, kept: str | None, kind: str = "") -> bool:
    """Return whether this is kept of it; of what is not there, that takes as long."""
    return hmac.compare_digest(kept_of(kind, secret), kept or NO_HASH)


class Asked(NamedTuple):
    """When the store was asked: what it said may be older than its answer, not older than this."""

    at: float
    changes: int  # that had been made here until then


NEVER = Asked(-math.inf, -1)


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    value: T | None
    asked: Asked


class Believed(Generic[T]):
    """What the store said, by id. It is believed for CACHE_SECONDS, unless something was changed here after it was
    asked; memory is bounded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[int, Known[T]] = {}
        self._changes = 0

    def ask(self) -> Asked:
        """Return what to put the answer of the store with, before it is asked."""
        return Asked(self._clock.elapsed(), self._changes)

    def find(self, number: int) -> Known[T] | None:
        return self._known.get(number)

    def is_fresh(self, known: Known[T] | None) -> bool:
        return known is not None and self._clock.elapsed() - known.asked.at < CACHE_SECONDS

    def put(self, number: int, value: T | None, asked: Asked) -> None:
        self.drop(number)  # the newest stands last
        self._known[number] = Known(value, asked if asked.changes == self._changes else NEVER)
        keep(self._known, CACHED)

    def until(self, known: Known[T]) -> float:
        """Return when it is fresh no more, if nothing changes meanwhile."""
        return known.asked.at + CACHE_SECONDS

    def drop(self, number: int) -> None:
        """Nothing has changed, and nothing is remembered of it."""
        self._known.pop(number, None)

    def forget(self, number: int) -> None:
        """It was changed."""
        self._changes += 1
        self.drop(number)

    def doubt(self, which: Callable[[T], bool]) -> None:
        """Ask the store anew of all of these, when they are next needed."""
        self._changes += 1
        for number, known in self._known.items():
            if known.value is not None and which(known.value):
                self._known[number] = replace(known, asked=NEVER)


class Guessers:
    """Whose secrets were wrong, by address: after TRIES within WINDOW seconds, they wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, tuple[float, int]] = {}  # peer → since when, how many

    def count(self, peer: str) -> None:
        now = self._clock.elapsed()
        since, count = self._failures.pop(peer, (now, 0))
        self._failures[peer] = (since, count + 1) if now - since < WINDOW else (now, 1)
        keep(self._failures, PEERS)

    def refuse(self, peer: str) -> None:
        since, count = self._failures.get(peer, (0.0, 0))
        if count >= TRIES and self._clock.elapsed() - since < WINDOW:
            raise Limited(f"more than {TRIES} wrong tokens came from this address", hint="wait a minute")


def keep(entries: dict[Any, Any], most: int) -> None:
    """Forget the oldest beyond `most`."""
    while len(entries) > most:
        del entries[next(iter(entries))]
