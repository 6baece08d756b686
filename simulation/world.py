"""What all parts of a simulation share: the loop, the dice, the true time, and an account of what happens."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from campaign.history import Fault, Operation, Witness

from simulation.loop import CURRENT, WORLD, Loop, Process

START = 1_800_000_000 * 1_000_000  # µs: 2027-01-15T08:00:00Z
SECOND = 1_000_000


class World:
    """`chance` decides everything; `told` hears what happens, if somebody wants to read it."""

    def __init__(self, seed: int, *, most_steps: int, told: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.chance = random.Random(f"{seed} world")
        self.loop = Loop(random.Random(f"{seed} order"), most_steps=most_steps)
        self._told = told
        self.is_told = told is not None
        self.operations: list[Operation] = []
        self.faults: list[Fault] = []
        self.witnesses: list[Witness] = []
        self.counts: Counter[str] = Counter()
        self.is_healed = False  # there are no faults any more

    # ── time ──
    @property
    def elapsed(self) -> float:
        return self.loop.time()

    def now(self) -> int:
        """Return the true time, which is also that of the database."""
        return START + round(self.loop.time() * SECOND)

    def later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        """Done by the world, whatever becomes of whoever asked for it."""
        self.loop.tell(WORLD, callback, *args, after=seconds)

    # ── dice ──
    def rolls(self, share: float) -> bool:
        """Return whether something happens that happens in so many of all cases."""
        return share > 0 and self.chance.random() < share

    def between(self, least: float, most: float) -> float:
        return least + (most - least) * self.chance.random()

    def seldom_long(self, usual: float, longest: float) -> float:
        """Return a time that is short as a rule."""
        share = self.chance.random()
        return usual * share if share < 0.95 else usual + (longest - usual) * (share - 0.95) * 20

    # ── telling ──
    def tell(self, text: str, process: Process | None = None) -> None:
        if self._told is not None:
            name = (process or CURRENT.get()).name
            self._told(f"{self.loop.time():10.4f}  {name:<10} {text}")

    def note_fault(self, kind: str, target: str, seconds: float = 0.0) -> None:
        self.faults.append(Fault(kind, target, self.now(), seconds))
        self.tell(f"FAULT {kind}: {target}" + (f" for {seconds:.1f} s" if seconds else ""), WORLD)


class Clock:
    """The clocks of one machine. Only the wall clock jumps; what it began to count at is its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._began = world.between(0, 1e6)
        self.jumped = 0  # µs that its wall clock is wrong by

    def jump(self, seconds: float) -> None:
        self.jumped += round(seconds * SECOND)

    def now(self) -> int:
        return self._world.now() + self.jumped

    def elapsed(self) -> float:
        return self._began + self._world.elapsed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
