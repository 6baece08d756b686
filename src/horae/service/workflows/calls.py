"""Calls: runs that a handler asks for, and waits for.

What is called goes to the store with the wait itself, in one transaction: an attempt that is lost before has called
nothing, and one that is lost afterwards waits already. When the called runs end, their caller is told, and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from horae.core.model import SECOND, Job, Overlap, Reason, State
from horae.core.policy.demands import own_data
from horae.core.policy.queues import user_of
from horae.core.runs.calls import Calls
from horae.core.runs.endings import CANCEL, Ending
from horae.core.runs.flows import Unrun
from horae.core.runs.ledger import new_run
from horae.core.runs.orders import NewRun, Order, Result
from horae.core.waits import Call
from horae.ports.store.definitions import Definitions
from horae.ports.store.flows import Flows
from horae.ports.store.runs import Runs
from horae.ports.store.signals import Signals
from horae.ports.transport import Queue
from horae.service.policy.placing import Candidate, Placing
from horae.service.workflows.courses import usable


class CallStore(Definitions, Flows, Runs, Signals, Protocol):
    """Jobs, and runs that wait for others."""


class Callers:
    def __init__(self, store: CallStore, queue: Queue, placing: Placing) -> None:
        self._store = store
        self._queue = queue
        self._placing = placing

    async def make(self, callers: Mapping[int, tuple[int, Result]]) -> dict[int, Calls]:
        """Return what runs call (run id → job id and result), ready to be written."""
        jobs = {job.id: job for job in await self._store.load_jobs(sorted({job_id for job_id, _ in callers.values()}))}
        made: dict[int, Calls] = {}
        for run_id, (job_id, result) in callers.items():
            calls = result.wait.calls if result.wait is not None else ()
            found = await self._find(jobs[job_id], {call.job for call in calls})
            orders = [_order(run_id, call, job) for call in calls if isinstance(job := found[call.job], Job)]
            unrun = [
                _unrun(run_id, call, jobs[job_id], why) for call in calls if isinstance(why := found[call.job], str)
            ]
            await self._place(calls, found, orders)
            made[run_id] = Calls(orders, unrun)
        return made

    async def _find(self, caller: Job, names: set[str]) -> dict[str, Job | str]:
        """Return jobs by how they were named: by the key that one of the same owner has, else by id."""
        keyed = {job.key: job for job in await self._store.find_keys(caller.org, caller.owner, sorted(names))}
        ids = [int(name) for name in names if name not in keyed and name.isdecimal() and len(name) < 19]
        by_id = {str(job.id): job for job in await self._store.load_jobs(ids)} if ids else {}
        return {name: usable(keyed.get(name) or by_id.get(name), caller.org, name) for name in names}

    async def _place(self, calls: Sequence[Call], found: Mapping[str, Job | str], orders: Sequence[Order]) -> None:
        jobs = [job for call in calls if isinstance(job := found[call.job], Job)]
        await self._placing.place(
            [
                Candidate(
                    order.run, job.policy, job.owner, job.org, user_of(job.owner, job.annotations),
                    own_data(job.policy, job.spec),
                )
                for job, order in zip(jobs, orders, strict=True)
            ]
        )  # fmt: skip

    # ── their ends ──
    async def act(self, rows: Sequence[Ending]) -> None:
        """Act on rows of the outbox that concern callers. Who cancels one cancels what it called: asked before the row
        is dropped, so that whoever dies in between leaves it to be asked again."""
        cancelled = {row.parent_id: row.name or Reason.REQUESTED for row in rows if row.kind == CANCEL}
        if cancelled:
            await self._cancel({parent: reason for parent, reason in cancelled.items() if parent is not None})
        answered = await self._store.answer_calls(rows)
        if answered.demanding:
            self._queue.announce("limits")
        if answered.queued:
            self._queue.announce("runs")
        if answered.noted:
            self._queue.announce("endings")

    async def _cancel(self, parents: Mapping[int, str]) -> None:
        tasks = [task for task in await self._store.load_tasks(sorted(parents)) if not task.state.is_terminal]
        for parent, reason in parents.items():
            live = [task.run_id for task in tasks if task.parent_id == parent]
            if live and (await self._store.cancel(live, reason)).asked:
                self._queue.announce("cancel")


def _order(run_id: int, call: Call, job: Job) -> Order:
    run = new_run(job.id, job.kind, job.policy, 0, data=call.data, followed=True)
    run.overlap, run.parent_id, run.task = Overlap.ALLOW, run_id, call.task
    deadline = job.policy.start_deadline_seconds
    return Order(run, start_within=None if deadline is None else round(deadline * SECOND))


def _unrun(run_id: int, call: Call, caller: Job, why: str) -> Unrun:
    """A call of a job that is not there: a run of the caller's own that has failed."""
    run = NewRun(caller.id, caller.kind, caller.policy.priority, Overlap.ALLOW, data=call.data)
    run.parent_id, run.task, run.followed = run_id, call.task, True
    return Unrun(run, State.FAILED, Reason.ERROR, why)
