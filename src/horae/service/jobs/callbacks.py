"""Callbacks: addresses at which systems outside, who have no login here, tell a run what it waits for.

An address is made of the run, the name and a token, which is a keyed hash of both: nothing of it is stored, and whoever
knows the address of one name of one run can answer that, once, and nothing else. The key is of the installation, sealed
like a secret, and stays when other keys change. A handler is given one that makes the addresses of its own run alone.

What must stay true: a wrong token, a run that is not there and a name that is none are refused in the same words.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence

import structlog

from horae.core.definitions import Idempotency
from horae.core.model import Run
from horae.core.runs.orders import Assignment
from horae.core.waits import callback_key, callback_path, callback_token
from horae.errors import Conflict, NotFound
from horae.service.jobs.signals import Signals, answered_already
from horae.service.secrets.sealing import CALLBACKS, Sealing

log = structlog.get_logger(__name__)
BY = "callback"  # who has said it
HANDLERS = "python"  # the kind of work that is given its addresses


class Callbacks:
    def __init__(self, signals: Signals, sealing: Sealing) -> None:
        self._signals = signals
        self._sealing = sealing
        self._key = ""  # when it is known

    async def make_path(self, run_id: int, name: str) -> str:
        """Return the address on this server; always the same. Conflict(E_SECRET_KEY) where the key of the installation
        does not open here."""
        self._key = self._key or await self._sealing.make_key(CALLBACKS)
        return callback_path(callback_key(_secret(self._key), run_id), run_id, name)

    async def make_token(self, number: int, name: str) -> str:
        """Return what proves that somebody was given an address of another sort; its number is below 0, for those of
        runs are handed out."""
        self._key = self._key or await self._sealing.make_key(CALLBACKS)
        return callback_token(callback_key(_secret(self._key), number), name)

    async def admit(self, run_id: int | None, name: str, token: str) -> int:
        """Return the run to which an address belongs. NotFound where it is none."""
        self._key = self._key or await self._sealing.load_key(CALLBACKS) or ""
        right = callback_token(callback_key(_secret(self._key), run_id or 0), name)
        is_right = hmac.compare_digest(right.encode(), token.encode("utf-8", "surrogatepass"))
        if run_id is None or not self._key or not is_right:
            raise nothing_there()
        return run_id

    async def answer(self, run_id: int, name: str, value: str) -> Run:
        """Tell the run (JSON text). Senders repeat what they got no answer to: the same again is the same."""
        once = Idempotency(f"callback {run_id}", name, hashlib.sha256(value.encode()).hexdigest())
        try:
            return await self._signals.send(run_id, name, value, BY, once)
        except NotFound:
            raise nothing_there() from None
        except Conflict as error:
            if error.code == "E_IDEMPOTENCY_MISMATCH":  # it was called with something else before
                raise answered_already(run_id, name) from None
            raise


def nothing_there() -> NotFound:
    return NotFound("there is nothing at this address", hint="see /docs for what there is")


def _secret(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


class RunKeys:
    """Gives the runs of handlers what they need to make their own addresses."""

    def __init__(self, load: Callable[[], Awaitable[str]], address: str) -> None:
        """`load` returns the key of the installation, `address` is where others reach it."""
        self._load = load
        self._address = address
        self._secret = b""
        self._is_refused = False  # the key does not open here

    async def provide(self, claimed: Sequence[Assignment]) -> Sequence[Assignment]:
        if self._is_refused or not any(a.kind == HANDLERS for a in claimed):
            return claimed
        if not self._secret:
            try:
                self._secret = _secret(await self._load())
            except Conflict as error:
                self._is_refused = True
                log.warning("callbacks.none", because=error.message, hint=error.hint)
                return claimed
        return [self._with_key(a) if a.kind == HANDLERS else a for a in claimed]

    def _with_key(self, a: Assignment) -> Assignment:
        return a._replace(callbacks=f"{callback_key(self._secret, a.run_id)} {self._address}")
