"""Whether the machine of an agent can work: it takes nothing new while it is short of something.

    well ──► an attempt failed by the machine ──► ill: claims nothing, says why on `nodes`
      ▲                                             │  examined after a pause, which grows
      └──────────── it has what it needs ◄──────────┘

A machine that is well when it is examined and ill when it works would take a run, lose it and take it again: so the
pause is the longer the sooner it fell ill again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from horae.ports.clock import Clock

log = structlog.get_logger()

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between two looks at a machine that is ill
LONGEST_AILMENT = 500  # characters

Examine = Callable[[], Awaitable[str]]  # returns what the machine is short of; empty when it is well


async def always_well() -> str:
    return ""


class Health:
    def __init__(self, clock: Clock, examine: Examine, on_well: Callable[[], None]) -> None:
        """`on_well` is called when it is well again."""
        self._clock = clock
        self._examine = examine
        self._on_well = on_well
        self._pause = FIRST_PAUSE
        self._well_since = float("-inf")
        self.ailment = ""
        self.changed = asyncio.Event()  # there is something to tell
        self._fell_ill = asyncio.Event()

    def note(self, ailment: str) -> None:
        """Something could not be done because of the machine. The first ailment stands."""
        if self.ailment:
            return
        self.ailment = _one_line(ailment)
        if self._clock.elapsed() - self._well_since > LONGEST_PAUSE:
            self._pause = FIRST_PAUSE
        log.error("agent.ill", ailment=self.ailment, next_look_seconds=self._pause)
        self._fell_ill.set()
        self.changed.set()

    async def recover(self) -> None:
        """Wait until it falls ill, then until it is well again."""
        await self._fell_ill.wait()
        while True:
            await self._clock.sleep(self._pause)
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            if not (ailment := await self._examine()):
                break
            if _one_line(ailment) != self.ailment:
                self.ailment = _one_line(ailment)
                self.changed.set()
        self._fell_ill.clear()
        self.ailment, self._well_since = "", self._clock.elapsed()
        log.info("agent.well")
        self.changed.set()
        self._on_well()


def _one_line(text: str) -> str:
    """As every database takes it: paths may hold any bytes."""
    return " ".join(text.replace("\0", "").encode(errors="replace").decode().split())[:LONGEST_AILMENT]
