"""One work from its workspace to its result: sections one after the other, watched, stopped and cleaned up after.

Its timeout is counted by the agent, which stops it; here it is only known whether a section ended in time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from horae.core.model import Json, Moment, Phase, Reason, State
from horae.core.runs.orders import Result
from horae.errors import Unavailable, machine_fault
from horae.executors.attempts.evidence import find_cause
from horae.executors.attempts.output import Log, Notes, Pipe, sealed
from horae.executors.attempts.record import Record, verdict
from horae.executors.attempts.secretfiles import SecretFiles
from horae.executors.attempts.sections import NOTES, Closing, Plan, Section
from horae.executors.attempts.stash import Stash
from horae.executors.attempts.surroundings import boundary_of, environment_of
from horae.executors.attempts.workspaces import Workspaces
from horae.ports.clock import Clock
from horae.ports.work import Boundary, Command, Exit, Hold, Keeper, Kept, Memo, Process, Sandbox, Trust, Work

log = structlog.get_logger()


class Workbench(Protocol):
    """What an attempt needs of its executor."""

    workspaces: Workspaces

    @property
    def keeper(self) -> Keeper | None: ...

    @property
    def offered(self) -> Collection[str]: ...

    def sandbox_of(self, spec: Json, *, is_ours: bool = False) -> Sandbox: ...

    def trust_in(self, spec: Json) -> Trust | None: ...


class AttemptState(msgspec.Struct):
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
    lines: list[tuple[int, str]]  # as of Log
    at: int  # where the output of the section begins
    result: Result | None = None  # how it ended: nothing is left to do but to clean up


class Attempt:
    """One work from its workspace to its result."""

    def __init__(
        self,
        work: Work,
        clock: Clock,
        executor: Workbench,
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
        self._taken: tuple[Kept, AttemptState] | None = None  # what an earlier agent left to us
        self._own = 0  # sections of the job itself that have begun
        self._section_begun = 0.0
        self._secret_files = secret_files
        self._plan = plan
        self._closing = closing
        self._clock = clock
        self._grace = grace
        self._log = Log(work.output, lambda: self.stop(Reason.OUTPUT_LIMIT), self._stash)
        self._record = Record(work, clock)
        self._process: Process | None = None
        self._killing: asyncio.Task[Exit] | None = None
        self._errand: asyncio.Task[Sequence[str]] | None = None  # what we do ourselves, between processes
        self._secrets: Path | None = None  # where its secret files are
        self._phase = Phase.PREPARING
        self._begun = clock.elapsed()
        self._used = 0.0  # seconds of its time before the last section began

    def stop(self, reason: str) -> None:
        """The first reason stands."""
        if not self._record.reason:
            self._record.reason = reason
            self._kill()
            if self._errand is not None:
                self._errand.cancel()

    def _kill(self) -> None:
        if self._process is not None and self._killing is None:
            self._killing = asyncio.create_task(self._process.kill(self._grace))

    async def run(self, workspace: Path) -> Result:
        """Never raises."""
        result = None
        try:
            result = await self._find_result(workspace)
        finally:
            if not self._is_left:
                await self._clean_up(workspace, has_succeeded=result is not None and result.state is State.SUCCEEDED)
            if self._stash is not None:
                self._stash.close()
        return await self._store_output(result)

    async def _find_result(self, workspace: Path) -> Result:
        try:
            sections = self._run_sections(workspace) if self._taken is None else self._go_on(workspace, *self._taken)
            result = await sections
            if not self._was_over:
                result = await self._close(result, workspace)
        except Exception as error:
            result = self._record.broken(error)
        if self._is_held and self._keeper is not None and not self._was_over:
            self._keeper.note(self.name, self._memo(self._state(result)))
        return result

    async def _clean_up(self, workspace: Path, *, has_succeeded: bool) -> None:
        """Never raises: how the attempt ended is known already."""
        try:
            await self._remove_secrets()
            await self._executor.workspaces.take_back(workspace, has_succeeded=has_succeeded)
        except Exception as error:
            log.warning("workspace.left", path=str(workspace), error=str(error))

    async def _run_sections(self, workspace: Path) -> Result:
        await self._executor.workspaces.make(workspace)
        return await self._run_all(self._plan(self.work, workspace), workspace)

    async def _run_all(self, sections: Iterator[Section], workspace: Path, *, is_late: bool = False) -> Result:
        """`is_late`: the timeout came when the last section had ended in time."""
        for section in sections:
            if is_late:
                self._record.reason = Reason.TIMEOUT
            if self._record.reason:
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
                self._record.reason = ""
            if (exit_.code and not section.may_fail) or exit_.message or self._record.reason:
                return await self._explain(section, exit_, workspace)
        if self._record.reason:
            return self._record.stopped("")
        return self._record.result(State.SUCCEEDED, Reason.NONE, "", 0)

    def _is_timeout_late(self, exit_: Exit) -> bool:
        """Return whether the section had ended by itself, in time, before the timeout came."""
        limit, ran = self.work.timeout_seconds, exit_.seconds
        if self._record.reason != Reason.TIMEOUT or limit is None or ran is None:
            return False
        return self._used + ran <= limit

    def _enter(self, phase: Phase) -> None:
        if phase is not self._phase:
            self._phase = phase
            self.work.note_phase(phase)

    async def _close(self, result: Result, workspace: Path) -> Result:
        """Do what is left to do, unless somebody stopped it, also meanwhile."""
        if self._closing is None or self._record.reason:
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
            return self._record.stopped(" while its files were stored")
        result.result, result.finished_at = self._record.facts(), self._clock.now()
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
        return not self._record.reason

    async def _run_section(self, section: Section, workspace: Path) -> Exit:
        self._section_begun = self._clock.elapsed()
        self._used = self._section_begun - self._begun
        with ExitStack() as stack:
            output = stack.enter_context(Pipe(self._log, section.watch, self._stash, on_loss=self._release))
            stdin = stack.enter_context(sealed(section.given)) if section.given else None
            notes = stack.enter_context(Pipe(Notes(self._record.reader(section.note)))) if section.note else None
            sandbox = self._executor.sandbox_of(self.work.spec, is_ours=section.is_ours)
            boundary = boundary_of(self.work, section, self.name, workspace, self._secrets)
            if not section.is_ours:
                self.work.facts["walls"] = sandbox.name
            trust = self._executor.trust_in(self.work.spec)
            environment = environment_of(self.work, section, self._record.next_step(section), self._secrets, trust)
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
                hold=self._hold(section, sandbox, boundary, output),
            )
            exit_ = await self._watch(await sandbox.spawn(command, boundary), output, notes)
        self._count(section, exit_)
        return exit_

    def _count(self, section: Section, exit_: Exit) -> None:
        """Note how long a section took: by the keeper, where the next agent may have to say the same."""
        seconds = self._clock.elapsed() - self._section_begun
        if self._is_held and exit_.seconds is not None:
            seconds = exit_.seconds
        self._record.count(section, exit_, seconds)

    # ── outliving the agent ──

    @property
    def is_lasting(self) -> bool:
        """Whether it would go on without us."""
        return self._is_held and self._process is not None and not self._record.reason

    @property
    def _was_over(self) -> bool:
        """An earlier agent knew how it ended."""
        return self._taken is not None and self._taken[1].result is not None

    def abandon(self) -> None:
        """Leave everything as it is to the next agent."""
        self._is_left = True
        if self.task is not None:
            self.task.cancel()

    def _hold(self, section: Section, sandbox: Sandbox, boundary: Boundary, pipe: Pipe) -> Hold | None:
        """Return what lets a section outlive us; None where it cannot, and then nothing of this attempt does any
        more."""
        may = section.reason is Reason.EXIT and section.note is None and not section.given
        is_whole = self._stash is not None and self._stash.is_whole and not self.work.output.has_gaps
        if not may or not is_whole or not sandbox.can_hold(boundary):
            self._release()
            return None
        assert self._stash is not None
        self._is_held = True
        return Hold(self.name, self._memo(self._state()), pipe.read_end, self._stash.file)

    def _release(self) -> None:
        if self._is_held and self._keeper is not None:
            self._keeper.release(self.name)
        self._is_held = False

    def _state(self, result: Result | None = None) -> AttemptState:
        record, at = self._record, 0 if self._stash is None else self._stash.size
        return AttemptState(
            self._own, record.steps, self.work.facts, record.started_at, self._section_begun, self._used,
            int(self._phase), None if self._secrets is None else str(self._secrets), record.cursor, self._log.lines, at,
            result,
        )  # fmt: skip

    def _memo(self, state: AttemptState) -> str:
        assert self.work.origin is not None
        own = msgspec.json.encode(state).decode()
        return msgspec.json.encode(Memo(self.work.origin, self._begun, own)).decode()

    def resume(self, kept: Kept, memo: Memo) -> None:
        """Be what an earlier agent left. Comes before `run`."""
        state = msgspec.json.decode(memo.own, type=AttemptState)
        if self._stash is not None:
            self._stash.close()
        self._stash = self._log.stash = Stash(kept.file)
        self._taken, self._process, self._is_held = (kept, state), kept.process, True
        self._begun, self._section_begun, self._used = memo.begun, state.section_begun, state.used
        self._own, self._phase = state.own, Phase(state.phase)
        record = self._record
        record.steps, record.started_at, record.cursor = state.steps, state.started_at, state.cursor
        self._secrets = None if state.secrets is None else Path(state.secrets)
        self.work.facts.update(state.facts)
        limit = self.work.timeout_seconds
        if limit is not None and self._clock.elapsed() - self._begun >= limit:
            self.stop(Reason.TIMEOUT)
        elif kept.is_ending:  # for a reason that nobody knows any more; the service may
            self.stop(Reason.LOST)

    async def _go_on(self, workspace: Path, kept: Kept, state: AttemptState) -> Result:
        """Find the section that an earlier agent began, watch it to its end, and do the rest."""
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
        with Pipe(self._log, section.watch, self._stash, kept.source, on_loss=self._release) as output:
            sandbox = self._executor.sandbox_of(self.work.spec, is_ours=section.is_ours)
            boundary = boundary_of(self.work, section, self.name, workspace, self._secrets)
            exit_ = await self._watch(sandbox.take_up(kept.process, boundary), output)
        self._count(section, exit_)
        is_late = self._is_timeout_late(exit_)
        if is_late:
            self._record.reason = ""
        if (exit_.code and not section.may_fail) or exit_.message or self._record.reason:
            return await self._explain(section, exit_, workspace)
        return await self._run_all(sections, workspace, is_late=is_late)

    def _find_section(self, sections: Iterator[Section], state: AttemptState) -> Section:
        """The plan is gone through once more: it may look at what the sections before have left."""
        try:
            own = [next(one for one in sections if one.reason is Reason.EXIT) for _ in range(state.own)]
        except Exception as error:
            raise Unavailable(f"it could not be taken up by the next agent: {error!r}") from error
        self.work.facts.update({name: fact for name, fact in state.facts.items() if not isinstance(fact, dict)})
        return own[-1]

    async def _watch(self, process: Process, *pipes: Pipe | None) -> Exit:
        """Wait for the end, killing it if a stop came before there was something to kill."""
        self._process = process
        for pipe in pipes:
            if pipe is not None:
                pipe.listen()
        if self._record.reason:
            self._kill()
        exit_ = await process.wait()
        self._process = None
        if self._killing is not None:
            await self._killing
        return exit_

    # ── its end ──

    async def _explain(self, section: Section, exit_: Exit, workspace: Path) -> Result:
        """Say in the log how an attempt ended with this section, and which wall it met, if any; return its result."""
        sandbox = self._executor.sandbox_of(self.work.spec, is_ours=section.is_ours).name
        boundary = boundary_of(self.work, section, self.name, workspace, self._secrets)
        cause = await asyncio.to_thread(
            find_cause, self.work, section, exit_, self._record.reason, self._log.tail, sandbox, boundary,
            self._executor.offered,
        )  # fmt: skip
        self._log.say(f"{section.what} {verdict(exit_)} after {self._record.steps[-1]['seconds']:.2f} s")
        if cause is None:
            return self._record.judge(section, exit_)
        self._log.say(cause.sentence)
        self.work.facts["cause"] = cause.as_json()
        return self._record.judge(section, exit_, cause.sentence)

    async def _store_output(self, result: Result) -> Result:
        try:
            await self.work.output.close()
        except Exception as error:
            result.message = f"{result.message}; its output could not be stored: {error}".lstrip("; ")
            result.ailment = result.ailment or machine_fault(error)
        result.output = self.work.output.ref
        return result
