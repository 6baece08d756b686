"""The cluster: machines, the process that runs on each now, and whoever starts them again when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.history import CRASH

from simulation.database import Database
from simulation.loop import WORLD, Process
from simulation.machine import Machine
from simulation.network import Network
from simulation.processes import Program, RemoteAgent, Server, Settings
from simulation.world import World

AGAIN = 1.0  # seconds after which a process that ended is started again


@dataclass(slots=True)
class Place:
    """A machine with what is to run on it."""

    machine: Machine
    build: Callable[[], Program]
    process: Process | None = None
    program: Program | None = None
    is_wanted: bool = True  # if it ends, it is started again
    is_expected_to_end: bool = False  # something was done to it that it cannot outlive
    lives: int = 0
    stopped: asyncio.Event = field(default_factory=asyncio.Event)  # it has ended as it was told to

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.process.is_dead


class Cluster:
    def __init__(self, world: World, settings: Settings, disk: Path) -> None:
        self.world, self.settings, self._disk = world, settings, disk
        self.database = Database(world)
        self.network = Network(world)
        self.places: dict[str, Place] = {}

    @property
    def servers(self) -> list[Place]:
        return [place for place in self.places.values() if place.name.startswith("s")]

    @property
    def agents(self) -> list[Place]:
        return [place for place in self.places.values() if not place.name.startswith("s")]

    def add_server(self, name: str, *, is_agent: bool) -> None:
        machine = Machine(self.world, name, self._disk / name)

        def build() -> Program:
            return Server(self.world, machine, self.database, self.network, self.settings, is_agent=is_agent)

        self.places[name] = Place(machine, build)

    def add_agent(self, name: str, servers: tuple[str, ...]) -> None:
        machine = Machine(self.world, name, self._disk / name)
        self.places[name] = Place(
            machine, lambda: RemoteAgent(self.world, machine, self.network, self.settings, servers)
        )

    def server(self, place: Place) -> Server | None:
        """Return the server that runs there now."""
        return place.program if isinstance(place.program, Server) and place.is_up else None

    def leader(self) -> Place | None:
        return next((place for place in self.servers if (one := self.server(place)) and one.cluster.is_leader), None)

    # ── lives ──
    def start(self, place: Place) -> None:
        if place.is_up:
            return
        place.is_wanted = True
        place.lives += 1
        place.stopped.clear()
        process = place.process = self.world.loop.new_process(f"{place.name}#{place.lives}")
        self.world.tell("starts", process)
        program = place.program = process.context.run(place.build)
        task = self.world.loop.spawn(process, program.run())
        task.add_done_callback(lambda ended: self._note_end(place, process, ended), context=WORLD.context)

    def _note_end(self, place: Place, process: Process, ended: asyncio.Task[Any]) -> None:
        """It has ended by itself: as it was told to, or because of an error."""
        error = None if ended.cancelled() else ended.exception()
        if error is not None or ended.cancelled():
            told = _leaf(error)
            self.world.tell(f"ended by itself: {told}", process)
            if place.is_expected_to_end:
                place.is_expected_to_end = False
            else:
                self.world.note_fault(CRASH, f"{process.name} ({told})")
        self._bury(place, process)
        place.stopped.set()
        if place.is_wanted:
            self.world.later(AGAIN, self._start_again, place)

    def _start_again(self, place: Place) -> None:
        if place.is_wanted:
            self.start(place)

    def kill(self, place: Place) -> None:
        """As kill -9. Nobody starts it again, until `start`."""
        place.is_wanted = False
        if place.is_up:
            assert place.process is not None
            self._bury(place, place.process)

    def _bury(self, place: Place, process: Process) -> None:
        if not process.is_dead:
            self.world.loop.kill(process)
            if place.program is not None:
                place.program.die()

    def stop(self, place: Place) -> None:
        """As SIGTERM. Nobody starts it again, until `start`."""
        place.is_wanted = False
        if place.is_up and place.process is not None and place.program is not None:
            self.world.loop.tell(place.process, place.program.stop)


def _leaf(error: BaseException | None) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
