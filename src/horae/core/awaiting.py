"""For what an attempt may end by waiting: the values alone. What they mean is decided in core.runs.waits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from horae.core.model import Moment, Reason

CALL_NAME = re.compile(r"call:[1-9][0-9]{0,5}")
SIGNAL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
MAX_CALLS = 1000  # at once
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
