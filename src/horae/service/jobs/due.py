"""Moments that are due, fired without waiting for their scheduler: before a change takes them away, or on request.

Whoever fires a moment, the compare-and-set of the store decides; who was slower is told so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from horae.core.model import SEGMENTS, Job, Moment, Overlap, Reason, Run, RunFilter, State, Trigger
from horae.core.runs.ledger import FiringPlan, Unreadable, account, give_up, plan_firing
from horae.core.runs.orders import NEVER, Definition, Due, Fire, Lend, concern_others, highest_overlap
from horae.core.work.kinds import BY_SERVERS
from horae.errors import Conflict
from horae.ports.store.definitions import Definitions
from horae.ports.store.moments import Moments
from horae.ports.store.runs import Runs
from horae.ports.transport import Queue
from horae.service.policy.placing import Placing


class DueStore(Definitions, Moments, Runs, Protocol):
    """Due moments, and the runs they become."""


class Upcoming(NamedTuple):
    """A job and its next moment."""

    job: Job
    trigger_id: int
    at: Moment


class DueMoments:
    def __init__(self, store: DueStore, queue: Queue, placing: Placing) -> None:
        self._store = store
        self._queue = queue
        self._placing = placing

    async def between(self, start: Moment, end: Moment, segments: Sequence[int], limit: int) -> Sequence[Upcoming]:
        """Jobs with a trigger whose next moment lies in [start, end), soonest first."""
        return await self._upcoming(await self._store.load_due(segments, (start - 1, NEVER), end, limit))

    async def walk(
        self, start: Moment, end: Moment, after: tuple[Moment, int] | None, page: int
    ) -> AsyncIterator[Sequence[Upcoming]]:
        """Every job with a moment in [start, end), soonest first, in pages of up to `page`; one that has several is
        there once, with its soonest. `after` is (moment, trigger) of the last that is known already."""
        after = max(after or (0, 0), (start - 1, NEVER))
        while rows := await self._store.load_due(range(SEGMENTS), after, end, page):
            yield [each for each in await self._upcoming(rows) if _is_soonest(each, start)]
            after = (rows[-1].next_at, rows[-1].trigger_id)
            if len(rows) < page:
                return

    async def _upcoming(self, rows: Sequence[Due]) -> Sequence[Upcoming]:
        by_trigger = {t.id: job for job in await self._jobs_of(rows) for t in job.triggers}
        return [
            Upcoming(by_trigger[row.trigger_id], row.trigger_id, row.next_at)
            for row in rows
            if row.trigger_id in by_trigger
        ]

    async def _jobs_of(self, rows: Sequence[Due]) -> Sequence[Job]:
        definitions = await self._store.load_definitions([row.trigger_id for row in rows]) if rows else []
        return await self._store.load_jobs(sorted({found.job_id for found in definitions}))

    async def fire_oldest(self, job: Job, lend: Lend | None = None) -> Run:
        """Fire the oldest due moment of a job now, and return its run. With `lend` it is lent from its beginning.
        Refused where nothing is due, and where the moment made no run that can go."""
        now = await self._store.now()
        due = [t for t in job.triggers if t.next_at is not None and t.next_at <= now]
        if job.deleted_at is not None or not due:
            raise Conflict(f"nothing of job {job.id} is due", code="E_NOT_DUE")
        fires = await self.fire(job, [min(due, key=lambda t: (t.next_at, t.id))], now, lend)
        if not fires:
            raise Conflict(f"job {job.id} was fired by somebody else", code="E_NOT_DUE")
        run = await self._run_of(job.id, fires[0])
        if run is None or run.state is State.SKIPPED or (lend is not None and run.state is not State.RUNNING):
            raise Conflict(f"job {job.id} was fired, but {_why_not(run)}", code="E_NOT_DUE")
        return run

    async def fire(
        self, job: Job, triggers: Sequence[Trigger], now: Moment, lend: Lend | None = None
    ) -> Sequence[Fire]:
        """Give moments that are due their records; return what was fired, nothing when somebody was faster."""
        ids = [t.id for t in triggers]
        known = {found.trigger_id: found for found in await self._store.load_definitions(ids)}
        last = {run.trigger_id: run for run in await self._store.load_last_runs(ids)}
        rows = [row for t in triggers for row in await self._due_row(job, t)]
        plans = {trigger_id: _plan(definition) for trigger_id, definition in known.items()}
        await self._placing.place_plans(plans.values())
        fires = self._placing.let_in([
            give_up(row, known[row.trigger_id]) if plan is None else
            account(row, plan, now, last.get(row.trigger_id))
            for row in rows
            for plan in (plans[row.trigger_id],)
        ])  # fmt: skip
        fired = await self._store.fire(fires, lend=lend) if fires else None
        runs = [fire.run for fire in fires]
        if any(run.demand is not None for run in runs):
            self._queue.announce("limits")
        if fired is not None and fired.advanced:
            self._queue.announce("runs")
        if highest_overlap(runs) == Overlap.REPLACE:
            self._queue.announce("cancel")
        if concern_others(runs) or any(run.kind in BY_SERVERS for run in runs):
            self._queue.announce("endings")
        return [fire for fire in fires if fired is not None and fire.trigger_id in fired.advanced]

    async def _due_row(self, job: Job, trigger: Trigger) -> Sequence[Due]:
        """Return the due row of one trigger, unless it has moved."""
        at = trigger.next_at or 0
        rows = await self._store.load_due([job.segment], (at, trigger.id - 1), at + 1, 1)
        return [row for row in rows if (row.trigger_id, row.version) == (trigger.id, job.version)]

    async def _run_of(self, job_id: int, fire: Fire) -> Run | None:
        """Return the run of the moment that was fired: each has one record."""
        if not fire.born:
            return None
        moment = RunFilter(job_id, fire.trigger_id, due_from=fire.due_at, due_until=fire.due_at + 1)
        found: list[Run] = (await self._store.list_runs(moment, None, 1)).items
        return found[0] if found else None


def _is_soonest(it: Upcoming, start: Moment) -> bool:
    """Return whether no other trigger of its job comes in between."""
    others = ((t.next_at, t.id) for t in it.job.triggers if t.next_at is not None and t.next_at >= start)
    return min(others, default=(it.at, it.trigger_id)) >= (it.at, it.trigger_id)


def _plan(definition: Definition) -> FiringPlan | None:
    try:
        return plan_firing(definition)
    except Unreadable:  # whoever may not change or delete it could never be rid of it
        return None


def _why_not(run: Run | None) -> str:
    """Why a moment gave nobody anything to do."""
    if run is None:
        return "its schedule or its misfire policy passed the moment over"
    if run.reason == Reason.OVERLAP:
        return f"another run of it is live, so run {run.id} is {run.state.word} (overlap)"
    return f"run {run.id} could not be lent: it is {run.state.word}"
