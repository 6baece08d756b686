"""Passwords of local users: argon2id, in threads, few at once.

What must stay true:
- To check the password of a user who does not exist takes as long as of one who does.
- However many try at once, memory and threads are bounded: PARALLEL are judged, WAITING wait, others are told so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from horae.errors import Invalid, Limited

PARALLEL = 2
WAITING = 32
LEAST, MOST = 12, 1024  # characters

T = TypeVar("T")


def refuse_weak(password: str, name: str) -> None:
    """Length is what counts; a password that is the name, or one letter, is none."""
    if not LEAST <= len(password) <= MOST:
        raise Invalid(f"a password has {LEAST} to {MOST} characters, got {len(password)}", code="E_PASSWORD")
    if (name.lower() in password.lower() and len(password) < len(name) + LEAST // 2) or len(set(password)) < 5:
        raise Invalid("this password is too easy to guess", code="E_PASSWORD", hint="take a few words of your own")


class Passwords:
    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(PARALLEL)
        self._waiting = 0
        self._hasher = PasswordHasher()
        self._nobody = ""  # a hash that no password has

    async def hash(self, password: str) -> str:
        return await self._in_thread(lambda hasher: hasher.hash(password))

    async def is_right(self, expected: str | None, password: str) -> bool:
        """Without an expected hash, no; but not sooner."""
        return await self._in_thread(lambda hasher: self._verified(hasher, expected, password))

    def _verified(self, hasher: PasswordHasher, expected: str | None, password: str) -> bool:
        self._nobody = self._nobody or hasher.hash("nobody has this one")
        try:
            return hasher.verify(expected or self._nobody, password) and expected is not None
        except (VerificationError, InvalidHashError):
            return False

    async def _in_thread(self, act: Callable[[PasswordHasher], T]) -> T:
        if self._waiting >= WAITING:
            raise Limited("too many log in at once", code="E_LOGIN_LIMIT", hint="try again in a moment")
        self._waiting += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(act, self._hasher)
        finally:
            self._waiting -= 1
