"""Carries out work that is made of sections."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from horae.core.model import Json, Reason, State
from horae.core.runs.orders import Result
from horae.core.work.isolation import is_own
from horae.errors import Invalid
from horae.executors.attempts.attempt import Attempt, AttemptState
from horae.executors.attempts.secretfiles import SecretFiles
from horae.executors.attempts.sections import CHECKOUT, SHELL, Closing, Plan
from horae.executors.attempts.workspaces import Workspaces
from horae.executors.processes.process import GRACE
from horae.ports.clock import Clock
from horae.ports.work import Done, Keeper, Kept, Memo, Sandbox, Sandboxes, Trust, Work


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
        self._attempts: dict[int, Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_open = False

    def expect(self, kept: Sequence[Kept]) -> None:
        self._kept = {one.name for one in kept}
        for one in kept:
            with suppress(msgspec.DecodeError):
                memo = msgspec.json.decode(one.memo, type=Memo)
                if (place := msgspec.json.decode(memo.own, type=AttemptState).secrets) is not None:
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

    def _attempt(self, work: Work) -> Attempt:
        return Attempt(work, self._clock, self, self._grace, self._plan, self._closing, self._secret_files)

    def _begin(self, attempt: Attempt, done: Done) -> None:
        self._attempts[attempt.work.assignment.run_id] = attempt
        attempt.task = task = asyncio.create_task(self._carry_out(attempt, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def take_up(self, work: Work, kept: Kept, memo: Memo, done: Done) -> None:
        attempt = self._attempt(work)
        attempt.resume(kept, memo)
        self._begin(attempt, done)

    async def _carry_out(self, attempt: Attempt, done: Done) -> None:
        assignment = attempt.work.assignment
        result = await attempt.run(self.workspaces.directory / attempt.name)
        if self._attempts.get(assignment.run_id) is attempt:
            del self._attempts[assignment.run_id]
        done(result)

    def trust_in(self, spec: Json) -> Trust | None:
        """Return what work has that runs as its user does; None for all other."""
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
