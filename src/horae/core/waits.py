"""What a run may wait for: a moment, to be told something, or the end of others; and the address at which others tell
it something."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from horae.core.model import Moment, Reason, State

SIGNAL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
CALL_NAME = re.compile(r"call:[1-9][0-9]{0,5}")
WATCH_END = "watch:end"  # the name under which a run is told how others ended it (core.watched)
DECISION = "approval:decision"  # the name under which a run is told what was decided: no signal from outside has it
WAITS = (Reason.SNOOZED, Reason.SIGNAL, Reason.CHILDREN)  # reasons for which an attempt ends by waiting


class Call(NamedTuple):
    """A run that an attempt asks for, and waits for."""

    task: str  # as which it is answered: call:1, the first that its handler asks for
    job: str  # key or id
    data: str | None = None  # JSON text


@dataclass(frozen=True, slots=True)
class Wait:
    """For what an attempt waits that has ended by it."""

    reason: str  # of WAITS
    awaits: str | None = None  # the name under which it shall be told
    seconds: float | None = None  # after which it goes on whatever happens,
    until: Moment | None = None  # or when
    calls: tuple[Call, ...] = ()  # to be made: it goes on when all of them have ended


class Ended(NamedTuple):
    """How a wait ended."""

    state: State
    reason: str = ""
    message: str = ""
    result: Any = None
    exit_code: int | None = None  # of what others did


def callback_key(secret: bytes, run_id: int) -> str:
    """Return what makes the addresses of a run, and of no other; `secret`, of up to 64 bytes, that of all of them."""
    return hashlib.blake2b(b"%d" % run_id, key=secret, digest_size=24).hexdigest()


def callback_token(key: str, name: str) -> str:
    """Return what proves that somebody was given the address of a name: 43 characters."""
    digest = hmac.digest(key.encode(), name.encode("utf-8", "surrogatepass"), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def callback_path(key: str, run_id: int, name: str) -> str:
    return f"/v1/callbacks/{run_id}/{name}/{callback_token(key, name)}"


def awaited(wait: Wait) -> str | None:
    """Return the names of what a run waits to be told, as they are kept with it."""
    return ",".join(call.task for call in wait.calls) if wait.calls else wait.awaits
