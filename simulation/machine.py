"""A machine: its clocks, its disk, its keeper, and the work that runs on it.

The keeper is a process of its own: it outlives a crash or a pause of its agent, and kills at the deadline or when its
agent is gone. What it starts are witnesses: they do nothing but be there, and the world writes down from when to when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
from campaign.history import Witness
from campaign.witness import TICK, chance, failure_code, line_of

from horae.core.model import Reason, State
from horae.core.runs.orders import Assignment, Result
from horae.core.waits import Wait
from horae.errors import Error, Unavailable
from horae.ports.outputs import Output, Written
from horae.ports.work import Command, Done, Kept, Work
from horae.ports.work import Process as ProcessPort
from simulation.loop import CURRENT, Process
from simulation.world import Clock, World

SPAWN = 0.05  # most seconds to start a process
KILL = 0.1  # most seconds to kill one, and see that it is gone
GRACE = 5.0  # seconds from TERM to KILL
SHORT = 0.5  # most seconds that work takes once all is healed
UP = 0.3  # most seconds that a keeper takes to start


class Machine:
    def __init__(self, world: World, name: str, disk: Path) -> None:
        self.world = world
        self.name = name
        self.identity = f"{name:0>32}"
        self.clock = Clock(world)
        self.disk = disk
        self.files = MemoryFiles()
        self.running: dict[int, WitnessProcess] = {}  # by pid: what is alive, whoever started it
        self.keeper: SimulatedKeeper | None = None  # the one that is alive, if any


# ── work ───────────────────────────────────────────────────────────────────────────────────────────


class WitnessProcess:
    """A process of a run."""

    def __init__(self, machine: Machine, work: Work, agent: Process) -> None:
        a, world = work.assignment, machine.world
        least, most, percent, habits = work.spec["steps"][0]["run"].split()[1:]
        self._machine = machine
        self._agent = agent
        self.is_stubborn = "stubborn" in habits
        self._talks = "talks" in habits
        self.habits = habits
        self._work = work
        seconds = float(least) + (float(most) - float(least)) * chance(f"time {a.run_id} {a.fence}")
        seconds = min(seconds, SHORT) if world.is_healed else seconds
        self._fails = 100 * chance(f"fail {a.run_id} {a.attempt}") < float(percent)
        self.pid = len(world.witnesses) + 1
        self.witness = Witness(
            run=a.run_id, attempt=a.attempt, fence=a.fence, job=a.job_id, due_at=a.due_at, pid=self.pid,
            started=world.elapsed, started_at=world.now(), last=world.elapsed, last_at=world.now(),
        )  # fmt: skip
        world.witnesses.append(self.witness)
        self.gone: asyncio.Future[int] = world.loop.create_future()  # answers its exit code
        self._is_over = False
        machine.running[self.pid] = self
        world.tell(f"run {a.run_id} fence {a.fence} begins on {machine.name}")
        world.later(seconds, self._end)
        if self._talks:
            world.later(0.0, self._talk)

    def _talk(self) -> None:
        if not self._is_over:
            line = line_of(self.witness.run, self.witness.fence, self.witness.lines)
            self.witness.lines += 1
            world = self._machine.world
            world.loop.tell(self._agent, self._work.output.write, line.encode() + b"\n")
            world.later(TICK * 5, self._talk)

    def hurry(self) -> None:
        """All faults are over: nobody wants to wait for it."""
        self._machine.world.later(SHORT, self._end)

    def _end(self) -> None:
        if not self._is_over:
            self.witness.code = failure_code(self.witness.fence) if self._fails else 0
            self._vanish(self.witness.code)

    def kill(self, seconds: float) -> None:
        """It is gone after so many seconds, unless it ends before."""
        self._machine.world.later(seconds, self._die)

    def _die(self) -> None:
        if not self._is_over:
            self._vanish(-9)

    def _vanish(self, code: int) -> None:
        world = self._machine.world
        self._is_over = True
        self.witness.last, self.witness.last_at = world.elapsed, world.now()
        del self._machine.running[self.pid]
        world.tell(f"run {self.witness.run} fence {self.witness.fence} is gone, code {code}")
        self.gone.set_result(code)


class SimulatedKeeper:
    """One life of a keeper. It serves one life of an agent."""

    keeps = False  # no work outlives its agent here
    kept: Sequence[Kept] = ()

    def __init__(self, machine: Machine, process: Process) -> None:
        self._machine = machine
        self._world = machine.world
        self._process = process
        self._until = float("-inf")
        self._is_open = False
        self._is_gone = False

    @property
    def is_alive(self) -> bool:
        return self._is_open and not self._is_gone

    async def open(self) -> None:
        """An earlier keeper holds its lock until all its work is gone."""
        while self._machine.running or (self._machine.keeper is not None and self._machine.keeper.is_alive):
            await asyncio.sleep(0.02)
        await asyncio.sleep(self._world.between(0, UP))
        self._machine.keeper = self
        self._is_open = True

    def renew(self, seconds: float) -> None:
        self._until = self._world.elapsed + seconds
        self._world.later(max(0.0, seconds), self._look)

    def _look(self) -> None:
        if self._is_gone or self._world.elapsed < self._until - 1e-9:
            return
        if self._machine.running:
            self._world.tell(f"the lease of {self._machine.name} ran out: its keeper kills")
        self.kill_all()

    @property
    def is_lease_over(self) -> bool:
        return self._world.elapsed >= self._until

    def kill_all(self) -> None:
        for witness in list(self._machine.running.values()):
            witness.kill(self._world.between(0, KILL))

    def end(self) -> None:
        """Its agent is gone, or it is killed itself: nothing that it started lives on."""
        self._is_gone = True
        self.kill_all()
        if self._machine.keeper is self:
            self._machine.keeper = None

    async def spawn(self, command: Command) -> ProcessPort:
        raise NotImplementedError("executors that need real processes are not simulated")

    def note(self, name: str, memo: str) -> None:
        """Nothing is held."""

    def release(self, name: str) -> None:
        """Nothing is held."""

    async def leave(self) -> None:
        raise NotImplementedError("no work outlives its agent here")

    async def close(self) -> None:
        self.end()
        while self._machine.running:
            await asyncio.sleep(0.02)


class WitnessExecutor:
    """Kind `shell`: every step is a witness."""

    kind = "shell"

    def __init__(self, machine: Machine, keeper: SimulatedKeeper, slots: int) -> None:
        self._machine = machine
        self._keeper = keeper
        self.slots = slots
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._stopped: dict[int, str] = {}  # run → why
        self._processes: dict[int, WitnessProcess] = {}

    async def open(self) -> None:
        """Nothing to do."""

    def start(self, works: Sequence[Work], done: Done) -> None:
        for work in works:
            self._tasks[work.assignment.run_id] = asyncio.create_task(self._execute(work, done))

    def stop(self, run_id: int, reason: str) -> None:
        if run_id not in self._tasks or run_id in self._stopped:
            return
        self._stopped[run_id] = reason
        if run_id in self._processes:
            self._kill(self._processes[run_id])

    def _kill(self, witness: WitnessProcess) -> None:
        grace = GRACE if witness.is_stubborn else 0.0
        witness.kill(grace + self._machine.world.between(0, KILL))

    async def _execute(self, work: Work, done: Done) -> None:
        run_id = work.assignment.run_id
        result = await self._attempt(work)
        try:
            await work.output.close()
        finally:
            del self._tasks[run_id]
            self._stopped.pop(run_id, None)
            self._processes.pop(run_id, None)
        result.output = work.output.ref
        done(result)

    async def _attempt(self, work: Work) -> Result:
        run_id = work.assignment.run_id
        await asyncio.sleep(self._machine.world.between(0, SPAWN))
        if run_id in self._stopped:
            return self._result(work, None)
        if self._keeper.is_lease_over or not self._keeper.is_alive:
            return self._result(work, None, "lease ran out")
        witness = self._processes[run_id] = WitnessProcess(self._machine, work, CURRENT.get())
        code = await asyncio.shield(witness.gone)
        if code == 0 and "waits" in witness.habits and work.assignment.answers is None:
            return self._wait(work)
        result = self._result(work, code, "" if witness.witness.code is not None else "killed")
        result.result = _returned(witness.habits, work.assignment) if code == 0 else None
        return result

    def _wait(self, work: Work) -> Result:
        """As handlers do: it is begun again when it was told."""
        a, now = work.assignment, self._machine.clock.now()
        wait = Wait(Reason.SIGNAL, "go")
        return Result(a.run_id, a.fence, State.BLOCKED, wait.reason, work.started_at, now, wait=wait)

    def _result(self, work: Work, code: int | None, why: str = "") -> Result:
        a, reason = work.assignment, self._stopped.get(work.assignment.run_id)
        if code == 0:
            state, reason = State.SUCCEEDED, ""
        elif code is not None and code > 0:
            state, reason = State.FAILED, Reason.EXIT
        elif reason is None:
            state, reason = State.FAILED, Reason.LOST
        else:
            state = {Reason.TIMEOUT: State.TIMED_OUT, Reason.LOST: State.FAILED}.get(Reason(reason), State.CANCELLED)
        now = self._machine.clock.now()
        return Result(a.run_id, a.fence, state, str(reason), work.started_at, now, exit_code=code, message=why)

    async def close(self) -> None:
        for run_id in list(self._tasks):
            self.stop(run_id, Reason.LOST)
        while self._tasks:
            await asyncio.sleep(0.01)


def _returned(habits: str, a: Assignment) -> str | None:
    """Return what a witness returns: a list to fan out over, or what it was given."""
    if habits.startswith("lists"):
        return msgspec.json.encode(list(range(int(habits.removeprefix("lists"))))).decode()
    return a.data if habits == "echoes" else None


# ── output ─────────────────────────────────────────────────────────────────────────────────────────


class MemoryFiles:
    """Output of attempts, by chunks; it is there as long as its machine."""

    is_shared = False

    def __init__(self) -> None:
        self.chunks: dict[str, dict[int, bytes]] = {}
        self.on_stored: Callable[[str, int], None] = lambda _, __: None
        self.names_files = True

    async def take_up(self) -> None:
        """Nothing is ever left undone."""

    async def settle(self, seconds: float) -> None:
        """Nothing is ever left undone."""

    def ref(self, run_id: int, attempt: int, fence: int) -> str:
        return f"runs/{run_id // 1000:d}/{run_id:d}/{attempt:d}-{fence:d}"

    def file_ref(self, ref: str, number: int) -> str:
        return f"{ref}-files/{number:d}"

    def artifact_ref(self, ref: str, path: str) -> str:
        return f"{ref}-artifacts/{path}"

    async def name_file(self, ref: str, number: int, path: str, size: int) -> None:
        """There are no files beside logs."""

    def open(self, run_id: int, attempt: int, fence: int, limit: int) -> Output:
        return _MemoryOutput(self, self.ref(run_id, attempt, fence))

    async def reopen(self, run_id: int, attempt: int, fence: int, limit: int) -> Output:
        raise NotImplementedError("no work outlives its agent here")

    async def stored_sizes(self, ref: str) -> list[int]:
        return [len(self.chunks[ref][number]) for number in sorted(self.chunks.get(ref, ()))]

    async def store_chunk(self, ref: str, number: int, data: bytes) -> None:
        await asyncio.sleep(0.001)
        self.chunks.setdefault(ref, {})[number] = data

    async def load_chunk(self, ref: str, number: int) -> bytes:
        await asyncio.sleep(0.001)
        try:
            return self.chunks[ref][number]
        except KeyError:
            raise Error(f"there is no chunk {number} of {ref}") from None

    def text(self, ref: str) -> str:
        chunks = self.chunks.get(ref, {})
        return b"".join(chunks[number] for number in sorted(chunks)).decode()

    async def read(self, ref: str, offset: int, limit: int) -> bytes:
        return self.text(ref).encode()[offset : offset + limit]

    async def size(self, ref: str) -> int:
        return len(self.text(ref))

    async def written(self, ref: str, offset: int, limit: int) -> list[Written]:
        return []  # nobody looks

    async def remove(self, ref: str) -> None:
        self.chunks.pop(ref, None)

    async def remove_all(self, refs: Sequence[str]) -> None:
        for ref in refs:
            await self.remove(ref)

    async def stored_ranges(self) -> tuple[list[int], int]:
        return [], 1000

    async def remove_range(self, first_id: int) -> None:
        """There are no ranges."""

    async def trim(self, limit: int) -> int:
        return 0

    def changed(self, ref: str) -> Awaitable[None]:
        return asyncio.sleep(0.1)


class _MemoryOutput:
    is_full = False
    has_gaps = False

    def __init__(self, files: MemoryFiles, ref: str) -> None:
        self._files = files
        self._ref = ref
        self._count = 0

    def write(self, data: bytes) -> None:
        self._files.chunks.setdefault(self._ref, {})[self._count] = data
        self._files.on_stored(self._ref, self._count)
        self._count += 1

    def when_free(self, resume: Callable[[], None]) -> bool:
        return False

    @property
    def ref(self) -> str | None:
        return self._ref if self._count else None

    async def attach(self, number: int, file: BinaryIO, size: int, path: str) -> int:
        raise Unavailable("there are no files beside logs")

    async def close(self) -> None:
        await asyncio.sleep(0.001)
