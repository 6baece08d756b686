"""An attempt as sections: processes one after the other in one fresh workspace, each with its part of the log.

    result {"steps": [{"name", "seconds", "exit_code"}, …], "walls", …}   of the sections that were started, the sandbox
           they ran in, and the work's facts

A kind of work says which sections it has (`Plan`); everything else is the same for all and is here.

What must stay true:
- The first section that fails ends the attempt. Its processes, daemons included, are gone before the next
  one starts: the keeper reports an end only then.
- stdout and stderr share one pipe, so their order is kept; a pipe somebody else still holds open cannot
  keep the attempt alive, because after the end of its processes it is read once more and closed.
- The workspace is gone, however the attempt ended, before `done` is called. Cleaning up never decides how an attempt
  ends.

An attempt may outlive its agent while a section of the job itself runs, or has ended and no other has begun. The next
agent goes through the same plan up to that section, makes the same log again (what is stored is left out), and attends
to its process. What an agent does itself between processes is done again, if it was not done to its end.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import structlog

from horae.core.isolation import is_own
from horae.core.model import Json, Moment, Phase, Reason, State
from horae.core.moments import format_moment
from horae.core.traces import traceparent
from horae.core.walls import SEEN, explain, explain_limit
from horae.errors import Denied, Error, Invalid, Unavailable, machine_fault
from horae.executors.keeper import LEASE_RAN_OUT
from horae.executors.process import DIED, GRACE
from horae.executors.secretfiles import SecretFiles
from horae.executors.stash import PIECE, Stash
from horae.executors.workspaces import Workspaces
from horae.ports import (
    NO_LIMITS,
    Assignment,
    Clock,
    Command,
    Done,
    Exit,
    Hold,
    Keeper,
    Kept,
    Limits,
    Memo,
    Output,
    Process,
    Result,
    Room,
    Sandbox,
    Sandboxes,
    Trust,
    Work,
)

log = structlog.get_logger()

SHELL = "shell"  # the kind whose steps somebody wrote
CHECKOUT = "checkout"  # the name of that section, and of its secret files
FLOOD = 10  # times the output that is kept: beyond that nobody will read it, and the work is stopped
NOTES = "HORAE_NOTES"  # environment of a section that may tell us things: the number of a descriptor
LONGEST_NOTE = 1 << 20  # bytes
_write_json = json.JSONEncoder(ensure_ascii=False).encode
_STATES: dict[str, State] = {  # any other stop: cancelled
    Reason.TIMEOUT: State.TIMED_OUT,
    Reason.LOST: State.FAILED,
    Reason.OUTPUT_LIMIT: State.FAILED,
}


def describe_attempt(assignment: Assignment) -> dict[str, str]:
    """What every process of an attempt is told of itself, as environment."""
    told = {
        "HORAE_RUN_ID": str(assignment.run_id),
        "HORAE_JOB_ID": str(assignment.job_id),
        "HORAE_JOB_NAME": assignment.name,
        "HORAE_ATTEMPT": str(assignment.attempt),
        "HORAE_FENCE": str(assignment.fence),
        "HORAE_SCHEDULED_FOR": format_moment(assignment.due_at),
        "TRACEPARENT": traceparent(assignment.run_id, assignment.fence),
    }
    return told if assignment.data is None else {**told, "HORAE_RUN_DATA": assignment.data}


@dataclass(slots=True)  # not frozen, which would make it three times as slow to make
class Section:
    """One process of an attempt, with its part of the log."""

    title: str  # heads its part of the log
    name: str
    what: str  # it, in a sentence
    argv: tuple[str, ...]
    cwd: Path
    env: dict[str, str] = field(default_factory=dict)
    reason: Reason = Reason.EXIT  # of a run that fails here
    network: bool = False  # it has the network, whatever the job says; one of ours, that of the machine
    listed: tuple[str, ...] | None = None  # host:port each: it reaches these and nothing else, whatever the job says
    sees: tuple[Path, ...] = ()  # further paths that it reads
    keeps: tuple[Path, ...] = ()  # further paths that it reads and writes
    phase: Phase = Phase.RUNNING
    goes_on: bool = False  # a further part of the section before, in its log and in its time
    may_fail: bool = False  # the next one looks at what it left
    before: Callable[[], Awaitable[Sequence[str]]] | None = None  # done first; answers what the log shall say of it
    watch: Callable[[bytes], None] | None = None  # sees what it writes
    is_ours: bool = False  # in the agent's own sandbox and without the job's variables, whatever it says
    given: bytes = b""  # its standard input: what must stand neither in its arguments nor in its environment
    note: Callable[[Json], None] | None = None  # sees each line of JSON that it writes to the descriptor NOTES names
    gentle: bool = False  # should the agent die, it is asked to end before it is killed


# The sections of a work, in the workspace given. One by one: where the next one starts may depend on what the last
# one left. It raises Invalid when the work cannot be done here.
Plan = Callable[[Work, Path], Iterator[Section]]

# What is left to do in a workspace when its sections are over and nobody has stopped them; told whether all went well.
# It notes the work's facts, and answers what the log shall say. None: there is nothing to do.
Closing = Callable[[Work, Path, bool], Awaitable[Sequence[str]] | None]


class _State(msgspec.Struct):
    """How far an attempt is, for an agent that goes on with it."""

    own: int  # sections of the job itself that have begun; the last of them is the one that is held
    steps: list[Json]
    facts: Json
    started_at: Moment
    section_begun: float
    used: float
    phase: int
    secrets: str | None
    cursor: str | None
    lines: list[tuple[int, str]]  # as of _Log
    at: int  # where the output of the section begins
    result: Result | None = None  # how it ended: nothing is left to do but to clean up


class SectionExecutor:
    """Carries out the sections of one kind of work, each in the sandbox that the work asks for. `grace` is the time
    from TERM to KILL. With a `keeper` that keeps work, attempts may outlive this agent."""

    def __init__(
        self,
        kind: str,
        plan: Plan,
        sandboxes: Sandboxes,
        workspaces: Path,
        slots: int,
        clock: Clock,
        *,
        grace: float = GRACE,
        closing: Closing | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.kind = kind
        self._keeper = keeper
        self._kept: set[str] = set()  # names of what may be in workspaces
        self._kept_secrets: set[Path] = set()
        self.slots = slots
        self._plan = plan
        self._closing = closing
        self._sandboxes = sandboxes
        self.workspaces = Workspaces(workspaces, kind)
        self._secret_files = SecretFiles(kind, self.workspaces.directory)
        self._clock = clock
        self._grace = grace
        self._attempts: dict[int, _Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_open = False

    def expect(self, kept: Sequence[Kept]) -> None:
        self._kept = {one.name for one in kept}
        for one in kept:
            with suppress(msgspec.DecodeError):
                memo = msgspec.json.decode(one.memo, type=Memo)
                if (place := msgspec.json.decode(memo.own, type=_State).secrets) is not None:
                    self._kept_secrets.add(Path(place))

    async def open(self) -> None:
        """Remove workspaces of an earlier life, but for those of work that goes on. The keeper must be open: then
        nobody is in them."""
        await self.workspaces.open(self._kept)
        for secret_files in (self._secret_files, SecretFiles(CHECKOUT, self.workspaces.directory)):
            secret_files.open(self._kept_secrets)
        self._is_open = True

    def start(self, works: Sequence[Work], done: Done) -> None:
        for work in works:
            if not self._is_open:
                done(Result(work.assignment.run_id, work.assignment.fence, State.QUEUED))
                continue
            self._begin(self._attempt(work), done)

    def _attempt(self, work: Work) -> _Attempt:
        return _Attempt(work, self._clock, self, self._grace, self._plan, self._closing, self._secret_files)

    def _begin(self, attempt: _Attempt, done: Done) -> None:
        self._attempts[attempt.work.assignment.run_id] = attempt
        attempt.task = task = asyncio.create_task(self._carry_out(attempt, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def take_up(self, work: Work, kept: Kept, memo: Memo, done: Done) -> None:
        attempt = self._attempt(work)
        attempt.resume(kept, memo)
        self._begin(attempt, done)

    async def _carry_out(self, attempt: _Attempt, done: Done) -> None:
        assignment = attempt.work.assignment
        result = await attempt.run(self.workspaces.directory / attempt.name)
        if self._attempts.get(assignment.run_id) is attempt:
            del self._attempts[assignment.run_id]
        done(result)

    def trust_in(self, spec: Json) -> Trust | None:
        """What work has that runs as its user does; None for all other."""
        return self._sandboxes.trust if self.kind == SHELL and is_own(spec) else None

    def sandbox_of(self, spec: Json, *, is_ours: bool = False) -> Sandbox:
        default = "plain" if not is_ours and self.trust_in(spec) else self._sandboxes.default
        wanted = default if is_ours else spec.get("sandbox") or ("docker" if "image" in spec else default)
        if wanted not in self._sandboxes.named:
            offered = ", ".join(self._sandboxes.named)
            raise Invalid(f"the work asks for the sandbox {wanted!r}, and this agent has {offered}")
        return self._sandboxes.named[wanted]

    @property
    def offered(self) -> Collection[str]:
        return self._sandboxes.named

    @property
    def keeper(self) -> Keeper | None:
        """One that keeps work beyond this agent."""
        return self._keeper if self._keeper is not None and self._keeper.keeps else None

    def lasting(self) -> set[int]:
        return {run_id for run_id, attempt in self._attempts.items() if attempt.is_lasting}

    async def leave(self) -> None:
        self._is_open = False
        for run_id in self.lasting():
            self._attempts.pop(run_id).abandon()
        await self.close()

    def stop(self, run_id: int, reason: str) -> None:
        if run_id in self._attempts:
            self._attempts[run_id].stop(reason)

    async def close(self) -> None:
        """Kill what is left: those attempts fail as lost, for they did nothing wrong."""
        self._is_open = False
        for attempt in self._attempts.values():
            attempt.stop(Reason.LOST)
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self.workspaces.close()


class _Attempt:
    """One work from its workspace to its result."""

    def __init__(
        self,
        work: Work,
        clock: Clock,
        executor: SectionExecutor,
        grace: float,
        plan: Plan,
        closing: Closing | None,
        secret_files: SecretFiles,
    ) -> None:
        self.work = work
        self.name = f"{work.assignment.run_id}-{work.assignment.fence}"
        self.task: asyncio.Task[None] | None = None
        self._executor = executor
        self._keeper = executor.keeper if work.origin is not None else None
        self._stash = Stash() if self._keeper is not None else None
        self._is_held = False  # the section that runs would outlive us
        self._is_left = False  # to the next agent
        self._taken: tuple[Kept, _State] | None = None  # what an earlier agent left to us
        self._own = 0  # sections of the job itself that have begun
        self._section_begun = 0.0
        self._secret_files = secret_files
        self._plan = plan
        self._closing = closing
        self._clock = clock
        self._grace = grace
        self._log = _Log(work.output, lambda: self.stop(Reason.OUTPUT_LIMIT), self._stash)
        self._reason = ""  # why it was stopped
        self._process: Process | None = None
        self._killing: asyncio.Task[Exit] | None = None
        self._errand: asyncio.Task[Sequence[str]] | None = None  # what we do ourselves, between processes
        self._secrets: Path | None = None  # where its secret files are
        self._steps: list[Json] = []
        self._fault: Json = {}  # what the last section said of its failure
        self._cursor: str | None = None  # how far a section said it came
        self._phase = Phase.PREPARING
        self._started_at: Moment = clock.now()
        self._begun = clock.elapsed()
        self._used = 0.0  # seconds of its time before the last section began

    def stop(self, reason: str) -> None:
        """The first reason stands."""
        if not self._reason:
            self._reason = reason
            self._kill()
            if self._errand is not None:
                self._errand.cancel()

    def _kill(self) -> None:
        if self._process is not None and self._killing is None:
            self._killing = asyncio.create_task(self._process.kill(self._grace))

    async def run(self, workspace: Path) -> Result:
        """Never raises."""
        limit = self.work.timeout_seconds
        rest = 0.0 if limit is None else max(0.0, limit - (self._clock.elapsed() - self._begun))
        timer = None if limit is None else asyncio.create_task(self._expire(rest))
        result = None
        try:
            result = await self._find_result(workspace)
        finally:
            if timer is not None:
                timer.cancel()
            if not self._is_left:
                await self._clean_up(workspace, has_succeeded=result is not None and result.state is State.SUCCEEDED)
            if self._stash is not None:
                self._stash.close()
        return await self._store_output(result)

    async def _find_result(self, workspace: Path) -> Result:
        try:
            sections = self._run_sections(workspace) if self._taken is None else self._go_on(workspace, *self._taken)
            result = await sections
            if not self._is_settled:
                result = await self._close(result, workspace)
        except Exception as error:
            result = self._broken(error)
        if self._is_held and self._keeper is not None and not self._is_settled:
            self._keeper.note(self.name, self._memo(self._state(result)))
        return result

    async def _clean_up(self, workspace: Path, *, has_succeeded: bool) -> None:
        """Never raises: how the attempt ended is known already."""
        try:
            await self._remove_secrets()
            await self._executor.workspaces.take_back(workspace, has_succeeded=has_succeeded)
        except Exception as error:
            log.warning("workspace.left", path=str(workspace), error=str(error))

    async def _expire(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self.stop(Reason.TIMEOUT)

    async def _run_sections(self, workspace: Path) -> Result:
        await self._executor.workspaces.make(workspace)
        return await self._run_all(self._plan(self.work, workspace), workspace)

    async def _run_all(self, sections: Iterator[Section], workspace: Path, *, is_late: bool = False) -> Result:
        """`is_late`: the timeout came when the last section had ended in time."""
        for section in sections:
            if is_late:
                self._reason = Reason.TIMEOUT
            if self._reason:
                break
            if section.reason is Reason.EXIT:
                if not self._own:
                    self._secrets = self._secret_files.write(self.work.spec.get("files") or {}, workspace)
                self._own += 1
            self._enter(section.phase)
            if not section.goes_on:
                self._log.say(section.title)
            if section.before is not None and not await self._run_errand(section.before()):
                break
            exit_ = await self._run_section(section, workspace)
            is_late = self._is_timeout_late(exit_)
            if is_late:  # we stood still when it ended: that its time is over now is not its doing
                self._reason = ""
            if (exit_.code and not section.may_fail) or exit_.message or self._reason:
                return self._explain(section, exit_)
        return self._stopped("") if self._reason else self._result(State.SUCCEEDED, Reason.NONE, "", 0)

    def _is_timeout_late(self, exit_: Exit) -> bool:
        """Whether the section had ended by itself, in time, before the timeout came."""
        limit, ran = self.work.timeout_seconds, exit_.seconds
        return self._reason == Reason.TIMEOUT and limit is not None and ran is not None and self._used + ran <= limit

    def _enter(self, phase: Phase) -> None:
        if phase is not self._phase:
            self._phase = phase
            self.work.tell_phase(phase)

    async def _close(self, result: Result, workspace: Path) -> Result:
        """Do what is left to do, unless somebody stopped it, also meanwhile."""
        if self._closing is None or self._reason:
            return result
        await self._remove_secrets()  # before files of the workspace are kept
        left = self._closing(self.work, workspace, result.state is State.SUCCEEDED)
        if left is None:
            return result
        try:
            was_done = await self._run_errand(left)
        except Exception as error:  # the work itself is over, and this does not change how it ended
            self._log.say(f"its files could not be kept: {error}")
            return result
        if not was_done:
            return self._stopped(" while its files were stored")
        result.result, result.finished_at = self._facts(), self._clock.now()
        return result

    async def _remove_secrets(self) -> None:
        if self._secrets is not None:
            await asyncio.to_thread(self._secret_files.remove, self._secrets)

    async def _run_errand(self, errand: Awaitable[Sequence[str]]) -> bool:
        """Something that we do ourselves: a stop ends it too. False when it was stopped."""
        task = self._errand = asyncio.ensure_future(errand)
        await asyncio.wait({task})
        self._errand = None
        if task.cancelled():
            return False
        for line in task.result():
            self._log.say(line)
        return not self._reason

    async def _run_section(self, section: Section, workspace: Path) -> Exit:
        self._section_begun = self._clock.elapsed()
        self._used = self._section_begun - self._begun
        with ExitStack() as stack:
            output = stack.enter_context(_Pipe(self._log, section.watch, self._stash, on_loss=self._release))
            stdin = stack.enter_context(_sealed(section.given)) if section.given else None
            notes = stack.enter_context(_Pipe(_Notes(self._hearing(section.note)))) if section.note else None
            sandbox = self._executor.sandbox_of(self.work.spec, is_ours=section.is_ours)
            room = self._room(section, workspace)
            if not section.is_ours:
                self.work.facts["walls"] = sandbox.name
            environment = self._environment(section)
            if notes is not None:
                environment[NOTES] = str(notes.write_end)
            command = Command(
                section.argv,
                environment,
                str(section.cwd),
                stdin=stdin,
                stdout=output.write_end,
                stderr=output.write_end,
                keep=() if notes is None else (notes.write_end,),
                gentle=section.gentle,
                hold=self._hold(section, sandbox, room, output),
            )
            exit_ = await self._attend(await sandbox.spawn(command, room), output, notes)
        return self._count(section, exit_)

    def _count(self, section: Section, exit_: Exit) -> Exit:
        """Note how long a section took: by the keeper, where the next agent may have to say the same."""
        seconds = self._clock.elapsed() - self._section_begun
        if self._is_held and exit_.seconds is not None:
            seconds = exit_.seconds
        if section.goes_on:
            seconds += self._steps.pop()["seconds"]
        self._steps.append({"name": section.name, "seconds": round(seconds, 3), "exit_code": exit_.code})
        return exit_

    def _hearing(self, note: Callable[[Json], None]) -> Callable[[Json], None]:
        """Keep what a section says of its own failure: {"error": {"message", "final"?}}; and its cursor."""
        self._fault = {}

        def hear(told: Json) -> None:
            if isinstance(fault := told.get("error"), dict) and isinstance(fault.get("message"), str):
                self._fault = fault
            if isinstance(cursor := told.get("cursor"), dict):
                self._cursor = json.dumps(cursor)
            note(told)

        return hear

    # ── outliving the agent ──

    @property
    def is_lasting(self) -> bool:
        """Whether it would go on without us."""
        return self._is_held and self._process is not None and not self._reason

    @property
    def _is_settled(self) -> bool:
        """An earlier agent knew how it ended."""
        return self._taken is not None and self._taken[1].result is not None

    def abandon(self) -> None:
        """Leave everything as it is to the next agent."""
        self._is_left = True
        if self.task is not None:
            self.task.cancel()

    def _hold(self, section: Section, sandbox: Sandbox, room: Room, pipe: _Pipe) -> Hold | None:
        """What lets a section outlive us; None where it cannot, and then nothing of this attempt does any more."""
        may = section.reason is Reason.EXIT and section.note is None and not section.given
        is_whole = self._stash is not None and self._stash.is_whole and not self.work.output.has_gaps
        if not may or not is_whole or not sandbox.can_hold(room):
            self._release()
            return None
        assert self._stash is not None
        self._is_held = True
        return Hold(self.name, self._memo(self._state()), pipe.read_end, self._stash.file)

    def _release(self) -> None:
        if self._is_held and self._keeper is not None:
            self._keeper.release(self.name)
        self._is_held = False

    def _state(self, result: Result | None = None) -> _State:
        at = 0 if self._stash is None else self._stash.size
        return _State(
            self._own, self._steps, self.work.facts, self._started_at, self._section_begun, self._used,
            int(self._phase), None if self._secrets is None else str(self._secrets), self._cursor, self._log.lines, at,
            result,
        )  # fmt: skip

    def _memo(self, state: _State) -> str:
        assert self.work.origin is not None
        own = msgspec.json.encode(state).decode()
        return msgspec.json.encode(Memo(self.work.origin, self._begun, own)).decode()

    def resume(self, kept: Kept, memo: Memo) -> None:
        """Be what an earlier agent left. Comes before `run`."""
        state = msgspec.json.decode(memo.own, type=_State)
        if self._stash is not None:
            self._stash.close()
        self._stash = self._log.stash = Stash(kept.file)
        self._taken, self._process, self._is_held = (kept, state), kept.process, True
        self._begun, self._section_begun, self._used = memo.begun, state.section_begun, state.used
        self._steps, self._own, self._phase = state.steps, state.own, Phase(state.phase)
        self._started_at, self._cursor = state.started_at, state.cursor
        self._secrets = None if state.secrets is None else Path(state.secrets)
        self.work.facts.update(state.facts)
        limit = self.work.timeout_seconds
        if limit is not None and self._clock.elapsed() - self._begun >= limit:
            self.stop(Reason.TIMEOUT)
        elif kept.is_ending:  # for a reason that nobody knows any more; the service may
            self.stop(Reason.LOST)

    async def _go_on(self, workspace: Path, kept: Kept, state: _State) -> Result:
        """Find the section that an earlier agent began, attend to it, and do the rest."""
        sections = self._plan(self.work, workspace)
        try:
            section = self._find_section(sections, state)
            await self._log.replay(state.lines, state.at, section.watch)
        except Exception:
            await kept.process.kill(0)
            os.close(kept.source)
            raise
        if state.result is not None:
            os.close(kept.source)
            return state.result
        with _Pipe(self._log, section.watch, self._stash, kept.source, on_loss=self._release) as output:
            sandbox = self._executor.sandbox_of(self.work.spec, is_ours=section.is_ours)
            exit_ = await self._attend(sandbox.take_up(kept.process, self._room(section, workspace)), output)
        self._count(section, exit_)
        is_late = self._is_timeout_late(exit_)
        if is_late:
            self._reason = ""
        if (exit_.code and not section.may_fail) or exit_.message or self._reason:
            return self._explain(section, exit_)
        return await self._run_all(sections, workspace, is_late=is_late)

    def _find_section(self, sections: Iterator[Section], state: _State) -> Section:
        """The plan is gone through once more: it may look at what the sections before have left."""
        try:
            own = [next(one for one in sections if one.reason is Reason.EXIT) for _ in range(state.own)]
        except Exception as error:
            raise Unavailable(f"it could not be taken up by the next agent: {error!r}") from error
        self.work.facts.update({name: fact for name, fact in state.facts.items() if not isinstance(fact, dict)})
        return own[-1]

    def _room(self, section: Section, workspace: Path) -> Room:
        spec, name = self.work.spec, self.name
        network: str | Sequence[str] = spec.get("network", "off")
        if section.listed is not None:
            network = section.listed or "off"
        elif section.network:
            network = "machine" if section.is_ours else "on"
        listed = () if isinstance(network, str) else tuple(network)
        sees = [str(path) for path in section.sees]
        keeps = map(str, section.keeps)
        limits = Limits(**spec["limits"]) if spec.get("limits") else NO_LIMITS
        image = spec.get("image", "")
        how = network if isinstance(network, str) else "listed"
        secrets = "" if self._secrets is None else str(self._secrets)
        return Room(
            str(workspace), name, how, limits, tuple(sees), tuple(keeps), image, listed, section.is_ours, secrets
        )

    def _environment(self, section: Section) -> dict[str, str]:
        theirs = {} if section.is_ours else self.work.spec.get("env") or {}  # which could name another git
        trust = None if section.is_ours else self._executor.trust_in(self.work.spec)
        asked = {**(trust.environment if trust else {}), **theirs, **section.env}
        written = {name: str(value) for name, value in asked.items()}
        told = describe_attempt(self.work.assignment)
        if self._secrets is not None:
            told["HORAE_SECRETS_DIR"] = str(self._secrets)
        return {**written, **told, "HORAE_STEP": section.name}

    async def _attend(self, process: Process, *pipes: _Pipe | None) -> Exit:
        """Wait for the end, killing it if a stop came before there was something to kill."""
        self._process = process
        for pipe in pipes:
            if pipe is not None:
                pipe.listen()
        if self._reason:
            self._kill()
        exit_ = await process.wait()
        self._process = None
        if self._killing is not None:
            await self._killing
        return exit_

    # ── results ──

    def _explain(self, section: Section, exit_: Exit) -> Result:
        """The result of an attempt that ends with this section, whose exit says why."""
        step = section.what
        verdict = exit_.message or _ending(exit_.code)
        wall = "" if self._reason else self._wall(section, exit_)
        self._log.say(f"{step} {verdict} after {self._steps[-1]['seconds']:.2f} s")
        if wall:
            self._log.say(wall)
        if self._reason:
            return self._stopped(f" in {step}", exit_)
        reason = section.reason
        if self._fault and not exit_.message and not exit_.reason:
            result = self._result(State.FAILED, reason, self._fault["message"], exit_.code)
            result.final = self._fault.get("final") is True
            return result
        if exit_.message:
            reason = Reason.LOST if exit_.message in (LEASE_RAN_OUT, DIED.message) else Reason.ERROR
        colon = ":" if exit_.message else ""
        message = f"{step}{colon} {verdict}{'; ' * bool(wall)}{wall}"
        result = self._result(State.FAILED, exit_.reason or reason, message, exit_.code)
        result.ailment = exit_.ailment
        return result

    def _wall(self, section: Section, exit_: Exit) -> str:
        """What a step of the job itself is told of the walls that it may have met."""
        if exit_.reason:
            return explain_limit(exit_.reason)
        sandbox = self._executor.sandbox_of(self.work.spec).name
        if section.is_ours or section.reason is not Reason.EXIT or exit_.message or sandbox == "plain":
            return ""
        network = self.work.spec.get("network", "off")
        return explain(
            exit_.code, self._log.tail.decode(errors="replace"), script=section.argv[-1], sandbox=sandbox,
            network="on" if section.network else network if isinstance(network, str) else "listed",
            offers_plain="plain" in self._executor.offered,
        )  # fmt: skip

    def _broken(self, error: Exception) -> Result:
        """The result of an attempt that we could not make: lost where the machine, or what we need, is to blame."""
        ailment = machine_fault(error)
        message = _told(error) if isinstance(error, Error) else f"the attempt could not be made: {ailment or error}"
        is_lost = bool(ailment) or isinstance(error, Unavailable)
        result = self._result(State.FAILED, Reason.LOST if is_lost else Reason.ERROR, message)
        result.ailment = ailment
        return result

    def _stopped(self, where: str, exit_: Exit | None = None) -> Result:
        words: dict[str, str] = {
            Reason.TIMEOUT: f"stopped{where} after its timeout of {self.work.timeout_seconds} s",
            Reason.LOST: f"stopped{where} because its agent was closed",
            Reason.OUTPUT_LIMIT: f"stopped{where}: it wrote more than {FLOOD} times the output that is kept",
        }
        message = words.get(self._reason, f"cancelled{where}")
        if exit_ and exit_.message:
            message += f"; {exit_.message}"
        state = _STATES.get(self._reason, State.CANCELLED)
        return self._result(state, self._reason, message, exit_.code if exit_ else None)

    def _result(self, state: State, reason: str, message: str, exit_code: int | None = None) -> Result:
        return Result(
            self.work.assignment.run_id,
            self.work.assignment.fence,
            state,
            reason,
            started_at=self._started_at,
            finished_at=self._clock.now(),
            exit_code=exit_code,
            message=message,
            result=self._facts(),
            cursor=self._cursor if state is State.SUCCEEDED else None,
        )

    def _facts(self) -> str:
        return _write_json({"steps": self._steps, **self.work.facts})

    async def _store_output(self, result: Result) -> Result:
        try:
            await self.work.output.close()
        except Exception as error:
            result.message = f"{result.message}; its output could not be stored: {error}".lstrip("; ")
            result.ailment = result.ailment or machine_fault(error)
        result.output = self.work.output.ref
        return result


def _told(error: Error) -> str:
    """What happened, its code where it has one of its own, and what to do."""
    has_code = isinstance(error, Denied) or error.code != type(error).code
    code = f" ({error.code})" if has_code else ""
    return f"{error.message}{code}{'; ' if error.hint else ''}{error.hint}"


def _ending(code: int) -> str:
    if code < 0:
        return f"was killed by {_signal_name(-code)}"
    shown = f"ended with exit code {code}"
    return f"{shown} ({_signal_name(code - 128)})" if 128 < code <= 128 + 64 else shown


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ── output ─────────────────────────────────────────────────────────────────────────────────────────


class _Log:
    """The output of an attempt: what its processes write, and our own lines between."""

    def __init__(self, output: Output, on_flood: Callable[[], None], stash: Stash | None = None) -> None:
        """`stash` has what the processes have written."""
        self._output = output
        self._on_flood = on_flood
        self.stash = stash
        self.lines: list[tuple[int, str]] = []  # our own, each with how much of the stash comes before it
        self._written = 0
        self._kept = 0  # bytes, once no more is kept
        self._is_line_open = False
        self.tail = b""  # the end of what was written

    def write(self, data: bytes) -> None:
        self._output.write(data)
        self.tail = (self.tail + data)[-SEEN:]
        self._is_line_open = not data.endswith(b"\n")
        self._written += len(data)
        if self._output.is_full:
            self._kept = self._kept or self._written
            if self._written > FLOOD * self._kept:
                self._on_flood()

    def when_free(self, resume: Callable[[], None]) -> bool:
        return self._output.when_free(resume)

    @property
    def has_gaps(self) -> bool:
        return self._output.has_gaps

    def say(self, text: str) -> None:
        line = f"{chr(10) * self._is_line_open}── {text} ──\n"
        if self.stash is not None:
            self.lines.append((self.stash.size, line.encode(errors="replace").decode()))
        self.write(line.encode(errors="replace"))

    async def replay(self, lines: list[tuple[int, str]], at: int, watch: Callable[[bytes], None] | None) -> None:
        """Write everything again that an earlier agent wrote, or had yet to; `watch` sees what comes after `at`."""
        stash = self.stash
        assert stash is not None
        self.lines = lines
        start = 0
        for end, line in sorted([*lines, (at, ""), (stash.size, "")], key=lambda one: one[0]):
            for data in stash.read(start, end):
                self.write(data)
                if watch is not None and start >= at:
                    watch(data)
                await self._catch_breath()
            if line:
                self.write(line.encode())
            start = max(start, end)

    async def _catch_breath(self) -> None:
        is_free = asyncio.Event()
        if self.when_free(is_free.set):
            await is_free.wait()


class _Notes:
    """Lines of JSON that a section of ours tells, whole ones one by one; what is none is passed over."""

    def __init__(self, note: Callable[[Json], None]) -> None:
        self._note = note
        self._begun = b""

    def write(self, data: bytes) -> None:
        *lines, self._begun = (self._begun + data).split(b"\n")
        self._begun = self._begun[:LONGEST_NOTE]
        for line in lines:
            with suppress(ValueError):
                if isinstance(told := json.loads(line), dict):
                    self._note(told)

    def when_free(self, resume: Callable[[], None]) -> bool:
        return False

    @property
    def has_gaps(self) -> bool:
        return False


@contextmanager
def _sealed(data: bytes) -> Iterator[int]:
    """A file of no name that holds these bytes, open for reading."""
    held = os.memfd_create("given")
    try:
        os.write(held, data)
        os.lseek(held, 0, os.SEEK_SET)
        yield held
    finally:
        os.close(held)


class _Pipe:
    """Carries what a step writes to the log, in large chunks."""

    def __init__(
        self,
        log: _Log | _Notes,
        watch: Callable[[bytes], None] | None = None,
        stash: Stash | None = None,
        read_end: int | None = None,
        *,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        """All of it goes through the `stash`; `on_loss` hears of it when that, or the log, does not have all any more.
        `read_end` is that of a pipe which an earlier agent made."""
        self._log = log
        self._watch = watch
        self._stash = stash
        self._on_loss = on_loss
        self.read_end, self.write_end = os.pipe() if read_end is None else (read_end, -1)
        os.set_blocking(self.read_end, False)
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._is_listening = False

    def listen(self) -> None:
        """Read whatever comes; but of a program that is over by now, all at once when the pipe is closed."""
        self._loop.call_soon(self._listen)

    def _listen(self) -> None:
        if self._is_open:
            self._is_listening = True
            self._loop.add_reader(self.read_end, self._on_data)

    def _on_data(self) -> None:
        """Read, and pause when the store cannot keep up: the step then waits at its full pipe."""
        data = self._take()
        if data == b"" or self._log.when_free(self._listen):  # at its end there is nothing more to wait for
            self._is_listening = False
            self._loop.remove_reader(self.read_end)

    def _take(self) -> bytes | None:
        """What is there now; empty at the end, None when there is nothing."""
        stash = self._stash
        data = _read_pipe(self.read_end) if stash is None else stash.take(self.read_end)
        if data:
            self._log.write(data)
            if self._watch is not None:
                self._watch(data)
        if stash is not None and (not stash.is_whole or self._log.has_gaps):
            self._on_loss()
        return data

    def __enter__(self) -> _Pipe:
        return self

    def __exit__(self, *_: object) -> None:
        """Take what is in the pipe and no more: a writer that survived elsewhere must not hold us."""
        if self.write_end >= 0:
            os.close(self.write_end)
        self._is_open = False
        if self._is_listening:
            self._loop.remove_reader(self.read_end)
        left = fcntl.fcntl(self.read_end, fcntl.F_GETPIPE_SZ)
        while left > 0 and (data := self._take()):
            left -= len(data)
        os.close(self.read_end)


def _read_pipe(read_end: int) -> bytes | None:
    try:
        return os.read(read_end, PIECE)
    except BlockingIOError:
        return None


# ── workspaces ─────────────────────────────────────────────────────────────────────────────────────


def enter(workspace: Path, wanted: str | None, home: Path | None = None) -> Path:
    """The directory a step starts in: inside the workspace, or an absolute one that exists. With a `home`, where
    nothing is ours to make, one that exists below that."""
    if not wanted:
        return home or workspace
    if home is not None:
        wanted = os.path.join(home, wanted)
    if os.path.isabs(wanted):
        if not os.path.isdir(wanted):
            raise Invalid(f"working_directory {wanted!r} is not an existing directory of this machine")
        return Path(wanted)
    inside = (workspace / wanted).resolve()
    if not inside.is_relative_to(workspace):
        raise Invalid(f"working_directory {wanted!r} leads out of the workspace: write a path inside it")
    inside.mkdir(parents=True, exist_ok=True)
    return inside
