"""What is broken: a random set of faults for each seed, each of them again and again; then all of it is healed.

Pauses, outages and splits last from an instant to more than twice the time after which a silent node is declared gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from simulation.cluster import Cluster, Place
from simulation.loop import Process
from simulation.network import Connection
from simulation.world import SECOND, World

FUSE = 60  # most steps from the moment of a crash or pause to the crash or pause: it hits at any await
LET_IN = 25  # steps of a server, about, until an agent that comes in has joined
GIVEN_UP = 21.0  # seconds after which an agent no longer waits to be let in
LONGEST_WORD = 8.0  # seconds for which a leader's word may be on its way
PATIENCE = 60.0  # seconds that a process gets to stop when it is told to
JUMPS = (0.3, 5.0, 70.0, 4000.0)  # seconds


class Faults:
    """`names` are those that this seed has chosen."""

    def __init__(self, world: World, cluster: Cluster, names: Sequence[str] | None = None) -> None:
        self._world, self._cluster = world, cluster
        self._dead_after = cluster.settings.dead_after
        share = world.chance.choice((0.1, 0.25, 0.4))
        chosen = [name for name in FAULTS if world.chance.random() < share]
        if world.chance.random() < FOCUSED:
            chosen = list(world.chance.choice(FEW))
        self.names = chosen if names is None else list(names)

    async def run(self, seconds: float) -> None:
        """Break things until the time is up."""
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for name in self.names:
                    group.create_task(self._repeat(FAULTS[name], self._world.between(4, 30)))
        except TimeoutError:
            return

    async def _repeat(self, fault: Callable[[Faults], None], gap: float) -> None:
        while True:
            await asyncio.sleep(self._world.between(0.2, 2.0) * gap)
            fault(self)

    def heal(self) -> None:
        """Nothing is broken any more, and everybody is up."""
        database, network = self._cluster.database, self._cluster.network
        self._world.is_healed = True
        database.weather.clear_up()
        database.apart.clear()
        database.on_burial.clear()
        database.come_back()
        network.mend()
        network.hints_lost = 0.0
        for place in self._cluster.places.values():
            if place.process is not None:
                place.process.fuse = None
                self._world.loop.resume(place.process)
            place.is_wanted = True
            self._cluster.start(place)
            for witness in list(place.machine.running.values()):
                witness.hurry()

    # ── choosing ──
    def _any(self) -> Place:
        return self._world.chance.choice(list(self._cluster.places.values()))

    def _leader(self) -> Place:
        return self._cluster.leader() or self._any()

    def _long(self) -> float:
        """Seconds: below the lease, around it, just until a node is declared gone, or well beyond that."""
        lease, gone = self._cluster.settings.lease, self._dead_after
        spans = ((0.1, lease), (lease * 0.7, gone), (gone - 1, gone + 3), (gone, gone * 2.3))
        return self._world.between(*self._world.chance.choice(spans))

    def _soon(self, place: Place, act: Callable[[], None], steps: int = FUSE) -> None:
        """At one of the next steps of a process."""
        is_there = place.is_up and place.process is not None and not place.process.is_paused
        if is_there and place.process is not None and not self._world.is_healed:
            place.process.fuse = (self._world.chance.randint(0, steps), act)

    # ── processes ──
    def _crash(self, place: Place) -> None:
        def act() -> None:
            self._world.note_fault("kill node" if place.name.startswith("s") else "kill agent", place.name)
            self._cluster.kill(place)
            self._world.later(self._world.between(0.05, self._dead_after * 1.5), self._cluster.start, place)

        self._soon(place, act)

    def crash(self) -> None:
        self._crash(self._any())

    def crash_leader(self) -> None:
        self._crash(self._leader())

    def _pause(self, place: Place, seconds: float, steps: int = FUSE) -> None:
        def act() -> None:
            process = place.process
            kind = "pause below lease" if seconds < self._cluster.settings.lease else "pause beyond lease"
            self._world.note_fault(kind, place.name, seconds)
            assert process is not None
            self._world.later(seconds, self._world.loop.resume, process)

        self._soon(place, act, steps)

    def pause(self) -> None:
        self._pause(self._any(), self._long())

    def pause_leader(self) -> None:
        self._pause(self._leader(), self._long())

    def kill_keeper(self) -> None:
        place = self._any()
        keeper = place.machine.keeper
        if place.is_up and keeper is not None:
            self._world.note_fault("kill keeper", place.name)
            place.is_expected_to_end = True
            keeper.end()

    def restart(self) -> None:
        """As an upgrade does: asked to stop, killed if that takes too long, started again."""
        place = self._any()
        if not place.is_up or place.process is None or place.process.is_paused or not place.is_wanted:
            return
        self._world.note_fault("restart", place.name)
        process = place.process
        self._cluster.stop(place)

        def start() -> None:
            if place.process is process:
                self._cluster.kill(place)
                self._cluster.start(place)

        self._world.later(self._world.between(5, PATIENCE), start)

    def jump(self) -> None:
        """The wall clock of one machine."""
        machine = self._any().machine
        seconds = self._world.chance.choice(JUMPS) * self._world.between(-1, 1)
        if self._world.rolls(0.3):
            seconds = -machine.clock.jumped / SECOND  # somebody has set it right
        machine.clock.jump(seconds)
        self._world.note_fault("clock jump", f"{machine.name} by {seconds:.1f} s")

    # ── what is worst together ──
    def strand(self) -> None:
        """An agent is started again, and a server stops while it is about to let it in."""
        if not self._cluster.agents:
            return
        agent = self._world.chance.choice(self._cluster.agents)
        self._world.note_fault("kill agent", agent.name)
        self._cluster.kill(agent)

        network = self._cluster.network
        seconds = self._world.between(GIVEN_UP, self._dead_after * 2.3)

        def stop(connection: Connection) -> None:
            connection.is_forgotten = True  # and nobody tells it that the agent went on elsewhere
            self._pause(self._cluster.places[connection.server], seconds, LET_IN)

        network.on_accept[agent.name] = stop
        self._world.later(self._world.between(0.05, 3.0), self._cluster.start, agent)

    def come_back(self) -> None:
        """A process goes on just when it is declared gone, while the database takes its time."""
        place, weather, gone = self._any(), self._cluster.database.weather, self._dead_after
        seconds = self._world.between(gone - self._cluster.settings.lease / 3, gone + 2.0)

        def begin() -> None:
            if self._world.is_healed:
                return
            weather.slow, weather.late = self._world.chance.choice(((0.3, 0.05), (0.6, 0.1)))
            self._world.later(5.0, weather.clear_up)

        def act() -> None:
            self._world.note_fault("pause beyond lease", place.name, seconds)
            assert place.process is not None
            self._world.later(seconds - 1.0, begin)
            self._world.later(seconds, self._world.loop.resume, place.process)

        self._soon(place, act)

    def rise(self) -> None:
        """A process goes on while the leader's word that it is gone is on its way."""
        place = self._any()
        seconds = self._dead_after * 2

        def act() -> None:
            process = place.process
            assert process is not None
            self._world.note_fault("pause beyond lease", place.name, seconds)
            self._cluster.database.on_burial[place.name] = lambda: self._rise(process)
            self._world.later(seconds, self._world.loop.resume, process)

        self._soon(place, act)

    def _rise(self, process: Process) -> float:
        self._world.loop.resume(process)
        return self._world.between(0, LONGEST_WORD)

    # ── the database ──
    def outage(self) -> None:
        database = self._cluster.database
        if not database.is_away:
            seconds = self._long()
            database.is_away, database.is_silent = True, self._world.rolls(0.5)
            self._world.note_fault("database away", "silent" if database.is_silent else "refusing", seconds)
            self._world.later(seconds, database.come_back)

    def apart(self) -> None:
        """One server does not reach the database."""
        database, name = self._cluster.database, self._world.chance.choice(self._cluster.servers).name
        seconds = self._long()
        database.apart.add(name)
        database.is_silent = self._world.rolls(0.5)
        self._world.note_fault("apart from the database", name, seconds)
        self._world.later(seconds, database.apart.discard, name)

    def bad_weather(self) -> None:
        weather = self._cluster.database.weather
        for share in ("lost_before", "lost_after", "late", "slow"):
            setattr(weather, share, self._world.chance.choice((0.0, 0.01, 0.05, 0.2)))
        seconds = self._world.between(1, 30)
        self._world.note_fault("bad weather", "statements", seconds)
        self._world.later(seconds, weather.clear_up)

    # ── the network ──
    def split(self) -> None:
        """One agent and one server, or all of them, do not reach each other; or only one of them does not."""
        if not self._cluster.agents:
            return
        agent, servers = self._world.chance.choice(self._cluster.agents), self._cluster.servers
        if self._world.rolls(0.5):
            servers = [self._world.chance.choice(servers)]
        ways = {(agent.name, server.name) for server in servers} | {(server.name, agent.name) for server in servers}
        if self._world.rolls(0.4):
            is_in = self._world.rolls(0.5)
            ways = {way for way in ways if (way[0] == agent.name) == is_in}
        seconds, network = self._long(), self._cluster.network

        def mend() -> None:
            network.cut -= ways
            network.go_on()

        network.cut |= ways
        self._world.note_fault("split", ", ".join(f"{one}→{other}" for one, other in sorted(ways)), seconds)
        self._world.later(seconds, mend)

    def reset(self) -> None:
        number = self._cluster.network.reset_some(0.5)
        if number:
            self._world.note_fault("connections reset", str(number))

    def slow(self) -> None:
        network, seconds = self._cluster.network, self._world.between(1, 40)
        network.slow = self._world.chance.choice((0.2, 1.0, 4.0))
        self._world.note_fault("slow network", f"up to {network.slow} s", seconds)
        self._world.later(seconds, setattr, network, "slow", 0.0)

    def lose_hints(self) -> None:
        network, seconds = self._cluster.network, self._world.between(1, 60)
        network.hints_lost = self._world.chance.choice((0.3, 1.0))
        self._world.note_fault("hints lost", f"{network.hints_lost:.0%}", seconds)
        self._world.later(seconds, setattr, network, "hints_lost", 0.0)


FOCUSED = 0.35  # share of seeds that have few faults: many hide each other
FEW = (
    ("strand", "pause"), ("strand", "pause"), ("strand",), ("come_back",), ("rise",), ("rise", "jump"),
    ("crash", "bad_weather"), ("pause", "bad_weather"), ("split",), ("outage",), ("apart", "pause_leader"),
)  # fmt: skip

FAULTS: dict[str, Callable[[Faults], None]] = {
    "crash": Faults.crash, "crash_leader": Faults.crash_leader, "pause": Faults.pause,
    "pause_leader": Faults.pause_leader, "kill_keeper": Faults.kill_keeper, "restart": Faults.restart,
    "jump": Faults.jump, "outage": Faults.outage, "apart": Faults.apart, "bad_weather": Faults.bad_weather,
    "split": Faults.split, "reset": Faults.reset, "slow": Faults.slow, "lose_hints": Faults.lose_hints,
    "strand": Faults.strand, "come_back": Faults.come_back, "rise": Faults.rise,
}  # fmt: skip
