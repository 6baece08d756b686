"""Callbacks: addresses at which systems outside, who have no login here, tell a run what it waits for.

An address is made of the run, the name and a token, which is a keyed hash of both: nothing of it is stored, and whoever
knows the address of one name of one run can answer that, once, and nothing else. The key is of the installation, sealed
like a secret, and stays when other keys change.

What must stay true: a wrong token, a run that is not there and a name that is none are refused in the same words.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from horae.core.definitions import Idempotency
from horae.core.model import Run
from horae.errors import Conflict, NotFound
from horae.service.jobs.signals import Signals, answered_already
from horae.service.secrets.sealing import CALLBACKS, Sealing

BY = "callback"  # who has said it


class Callbacks:
    def __init__(self, signals: Signals, sealing: Sealing) -> None:
        self._signals = signals
        self._sealing = sealing
        self._key = ""  # when it is known

    async def make_token(self, run_id: int, name: str) -> str:
        """Return what proves that somebody was given the address; always the same. Conflict(E_SECRET_KEY) where the
        key of the installation does not open here."""
        self._key = self._key or await self._sealing.make_key(CALLBACKS)
        return _token(self._key, run_id, name)

    async def admit(self, run_id: int | None, name: str, token: str) -> int:
        """Return the run to which an address belongs. NotFound where it is none."""
        self._key = self._key or await self._sealing.load_key(CALLBACKS) or ""
        right = _token(self._key, run_id or 0, name)
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


def _token(key: str, run_id: int, name: str) -> str:
    """43 characters. An id has no space, so no two pairs are hashed alike."""
    text = f"{run_id} {name}".encode("utf-8", "surrogatepass")
    return base64.urlsafe_b64encode(hmac.digest(key.encode(), text, "sha256")).rstrip(b"=").decode()
