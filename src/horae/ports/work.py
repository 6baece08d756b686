"""Doing the work: executors, the processes that they start, and the sandboxes around those.

Executor   does one kind of work                                            (executors/)
Keeper     the process that starts and kills work                           (executors/process)
Sandbox    where a process runs                                             (sandboxes/)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from horae.core.model import Json, Moment, Phase
from horae.core.runs import traces
from horae.core.runs.orders import Assignment, Result
from horae.ports.outputs import Output


class Listener(Protocol):
    """Is told how work goes on: one for all, because there are thousands a second."""

    def note_phase(self, assignment: Assignment, phase: Phase) -> None: ...

    def note_progress(self, assignment: Assignment, progress: Json) -> None: ...

    def note_step(self, assignment: Assignment, step: Step) -> None: ...


class Step(NamedTuple):
    """A part of an attempt, once it is over."""

    number: int  # from 0
    name: str
    begun_at: Moment
    ended_at: Moment
    exit_code: int


@dataclass(slots=True)
class Work:
    """One attempt, ready to be executed."""

    assignment: Assignment
    spec: Any = field(repr=False)  # decoded once per distinct job; the values of secrets stand in it
    output: Output
    timeout_seconds: float | None
    started_at: Moment
    previous: str | None = None  # result of the job's last success, JSON text, if its spec asks for it
    cursor: str | None = None  # JSON text: how far the job's earlier syncs have come
    listener: Listener | None = None
    origin: Assignment | None = None  # the assignment with its secrets, where it may outlive this agent
    installation: str = ""  # its part of the trace id (core.runs.traces)
    facts: Json = field(default_factory=dict)  # what became known while it was done: part of its result
    trace: str = ""  # its traceparent, where that is not of its run alone
    has_spans: bool = False  # its agent tells of its steps

    @property
    def traceparent(self) -> str:
        """By which what it starts is part of its trace."""
        a = self.assignment
        return self.trace or traces.traceparent(a.run_id, a.fence, self.installation, root=a.root)

    def step_parent(self, number: int) -> str:
        """As traceparent, of its nth step."""
        if not self.has_spans:
            return self.traceparent
        a = self.assignment
        return traces.with_span(self.traceparent, traces.span_id(a.run_id, a.fence, traces.step_part(number)))

    def note_phase(self, phase: Phase) -> None:
        """To be called when the work enters another phase."""
        if self.listener is not None:
            self.listener.note_phase(self.assignment, phase)

    def note_progress(self, progress: Json) -> None:
        """How far it is (core.work.progress); the newest word counts."""
        if self.listener is not None:
            self.listener.note_progress(self.assignment, progress)

    def note_step(self, step: Step) -> None:
        """To be called when a step is over."""
        if self.listener is not None:
            self.listener.note_step(self.assignment, step)


Done = Callable[[Result], None]


class Executor(Protocol):
    """Does one kind of work. Every started work ends in exactly one call of `done`."""

    kind: str
    slots: int  # how many it can do at once

    async def open(self) -> None: ...

    def start(self, works: Sequence[Work], done: Done) -> None:
        """Begin; never raises, never blocks. Timeouts are counted by the caller, who stops the work."""

    def stop(self, run_id: int, reason: str) -> None:
        """Kill one work (Reason.TIMEOUT → timed_out, Reason.REQUESTED → cancelled). Its `done` is
        called when the whole process tree is gone. Unknown ids are ignored."""

    async def close(self) -> None:
        """Kill what is left and return when it is gone."""


@runtime_checkable
class LastingExecutor(Executor, Protocol):
    """One whose work may outlive this agent, and is taken up by the next."""

    def expect(self, kept: Sequence[Kept]) -> None:
        """Leave everything of these in its place. Comes before `open`; they may be of any kind."""

    def take_up(self, work: Work, kept: Kept, memo: Memo, done: Done) -> None:
        """Go on with a work. As `start`."""

    def lasting(self) -> set[int]:
        """Return the runs that would go on without us."""

    async def leave(self) -> None:
        """As `close`, but leave those as they are; their `done` is never called."""


@dataclass(frozen=True, slots=True)
class Memo:
    """What is noted with held work."""

    assignment: Assignment
    begun: float  # when the attempt began, on Clock.elapsed
    own: str = field(repr=False)  # JSON text of the executor


@dataclass(frozen=True, slots=True)
class Hold:
    """What makes a process outlive its agent, and lets the next one go on with it."""

    name: str  # of the attempt, <run>-<fence>
    memo: str  # what the next agent needs to know; it may be secret
    source: int  # the read end of its output
    file: int  # where output goes as it is read


class HandlerSchemas(Protocol):
    """What the Python handlers that can be seen from here take."""

    async def load(self, names: Collection[str]) -> Mapping[str, Json]:
        """Return the JSON Schema of the data of each of these handlers that is here and takes data of some type.
        Never raises, soon answers, and costs nothing for what it was asked lately."""

    async def load_result(self, name: str) -> Json | None:
        """Return the JSON Schema of what a handler returns, if it is here and says so. As load."""


@dataclass(slots=True)  # not frozen, which would make it three times as slow to make
class Command:
    argv: Sequence[str]
    env: dict[str, str]
    cwd: str
    stdin: int | None = None  # file descriptors; None is /dev/null
    stdout: int | None = None
    stderr: int | None = None
    keep: Sequence[int] = ()  # further descriptors, inherited under the same number
    groups: Sequence[str] = ()  # files of control groups that it joins before it becomes its program
    rlimits: Mapping[int, int] = field(default_factory=dict)  # resource → most of it
    carries: bool = False  # it only carries the work: what asks the work to end passes it by
    gentle: bool = False  # should the agent die, it is asked to end (TERM) a moment before it is killed
    hold: Hold | None = field(default=None, repr=False)  # None: should the agent die, it is killed


@dataclass(frozen=True, slots=True)
class Exit:
    code: int  # negative: the signal that ended it
    message: str = ""  # why it could not be started, or was ended
    reason: str = ""  # Reason.OOM or Reason.PROCESSES: a limit ended it; Reason.LOST: not its own fault
    ailment: str = ""  # what the machine is short of, so that it could not be started
    seconds: float | None = field(default=None, compare=False)  # it ran, if it ended by itself before it was told to


class Process(Protocol):
    pid: int

    async def wait(self) -> Exit:
        """Return when the process and every descendant is gone."""

    async def kill(self, grace: float = 5.0) -> Exit:
        """TERM to the tree, KILL after `grace` seconds; returns when all of it is gone, verified."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Work of an earlier life of this agent that its keeper has kept."""

    name: str  # as of Hold
    memo: str = field(repr=False)
    process: Process  # the latest of it, which may have ended
    source: int  # as of Hold; ours to close
    file: int
    is_ending: bool = False  # somebody has told it to end


class Keeper(Protocol):
    """The process that starts and kills work. It outlives a crash of the agent just long enough to kill everything the
    agent had started; or, with what is held, for the rest of the lease, so that the next agent can go on with it."""

    @property
    def kept(self) -> Sequence[Kept]:
        """What an earlier life left to us; known once it is open."""

    @property
    def keeps(self) -> bool:
        """Whether held work outlives us."""

    async def open(self) -> None:
        """Take over the one that kept work for us, or start one; then it returns when any earlier keeper of this
        directory, and all its work, is gone."""

    def note(self, name: str, memo: str) -> None:
        """Note something else with work that is held."""

    def release(self, name: str) -> None:
        """It is held no longer: should we die, it dies with us; if it has ended, nobody need know."""

    async def leave(self) -> None:
        """Leave the keeper to the next agent, with what is held; everything else is killed."""

    async def spawn(self, command: Command) -> Process: ...

    def renew(self, seconds: float) -> None:
        """Everything dies unless renewed again within this time."""

    @property
    def is_alive(self) -> bool: ...

    async def close(self) -> None:
        """Kill everything and end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that the processes of an attempt may use together; None: no limit."""

    memory: int | None = None  # bytes
    cpus: float | None = None
    pids: int | None = None  # processes and threads


NO_LIMITS = Limits()


@dataclass(slots=True)  # not frozen, which would make it three times as slow to make
class Boundary:
    """What a process may see and use besides the system itself."""

    workspace: str  # it owns this
    name: str  # of the attempt, <run>-<fence>: one process at a time is within it
    network: str = "off"  # or "listed", or "on": the world without this machine; "machine" is for programs of ours
    limits: Limits = NO_LIMITS
    sees: Sequence[str] = ()  # further paths, to read
    keeps: Sequence[str] = ()  # further paths, to read and write
    image: str = ""  # of a container
    listed: Sequence[str] = ()  # host:port each: all that it reaches where its network is listed
    is_ours: bool = False  # what runs within is a program of ours
    secrets: str = ""  # the directory of its secret files, to read


class Sandbox(Protocol):
    """Where processes run: how much of the machine they see, and how much of it they can use up."""

    name: str

    async def open(self, kept: Collection[str] = ()) -> None:
        """Remove what an earlier life left, but for that of these attempts. The keeper must be open: then nothing
        else of it runs."""

    async def spawn(self, command: Command, boundary: Boundary) -> Process:
        """As Keeper.spawn, inside. Of the agent's own environment nothing reaches the command. Invalid when the
        sandbox cannot do it as asked. What a process left (groups, mounts) is gone when its end is told."""

    def take_up(self, process: Process, boundary: Boundary) -> Process:
        """Go on with what an earlier life has spawned within a boundary."""

    def can_hold(self, boundary: Boundary) -> bool:
        """Return whether a process within such a boundary can outlive us."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Trust:
    """Of a server with one user: their own steps run as they do at their terminal."""

    directory: str  # where those start that name none
    environment: Mapping[str, str]  # of the user


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """Those that work here, by name, and the one for work that does not say."""

    named: Mapping[str, Sandbox]
    default: str
    warning: str = ""  # what whoever runs this should know of its walls
    trust: Trust | None = None  # in steps of one's own: these run in plain, in place

    @property
    def walls(self) -> str:
        """In words: what work gets that does not say, and what it may ask for."""
        others = [name for name in self.named if name != self.default]
        own = "your own steps run as you, on this machine; all else: " if self.trust else ""
        return f"{own}{self.default or 'none'}{'; on offer: ' if others else ''}{', '.join(others)}"


Payload = Json
