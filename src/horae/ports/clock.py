"""Time, so that tests can move it."""

from __future__ import annotations

from typing import Protocol

from horae.core.model import Moment


class Clock(Protocol):
    def now(self) -> Moment:
        """Wall time."""

    def elapsed(self) -> float:
        """Seconds on a clock that never jumps and counts suspend; only differences mean anything."""

    async def sleep(self, seconds: float) -> None: ...
