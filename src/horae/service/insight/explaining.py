"""Gathers what an explanation is drawn from, and has it drawn (core.insight.why.explain).

However much there is of anything, a bounded number of statements is asked, each of bounded cost: by state and reason it
is known which facts matter. Of a job, at most MOST_RUNS of what is live are explained.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from horae.core.insight.why.explain import Explanation, explain_at, explain_job, explain_run, explain_this_trigger
from horae.core.insight.why.facts import SHOWN, Done, Facts, Standing
from horae.core.insight.why.late import NOTICED
from horae.core.insight.why.schedules import MOST_TRIGGERS, Asked, read_asked
from horae.core.insight.why.waiting import runs_named
from horae.core.members import is_for
from horae.core.model import Job, Moment, NodeState, OperatorWish, Reason, Run, RunFilter, State, Trigger
from horae.core.policy.queues import QueueState
from horae.core.time.moments import read_clock
from horae.errors import NotFound
from horae.ports.store.cluster import Nodes
from horae.ports.store.definitions import Definitions
from horae.ports.store.explaining import Explained
from horae.ports.store.limits import Limits
from horae.ports.store.moments import StoreClock
from horae.ports.store.runs import Runs
from horae.ports.store.signals import Signals
from horae.service.policy.queues import Queues

MOST_RUNS = 3  # of a job that are explained at once
MOST_RECORDS = 2_000  # of each state that are looked through for a moment
COUNTED = 1_000  # of those that go before a run
BESIDE = 500  # runs made before, and after, one that was late
MOST_BUSY = 100  # runs of agents that are named
MOST_DONE = 50  # deeds that are looked through
MOST_CORDONED = 3  # agents of which it is asked who cordoned them
MOST_NODES = 50  # whose runs are asked for
LIVE = tuple(state for state in State if not state.is_terminal)


class ExplainingStore(Definitions, Runs, Nodes, Limits, Signals, Explained, StoreClock, Protocol):
    """What explanations are drawn from."""


class Explaining:
    def __init__(self, store: ExplainingStore, queues: Queues) -> None:
        self._store = store
        self._queues = queues

    async def run(self, run_id: int) -> Explanation:
        """Why a run is where it is, or ended as it did."""
        run = await self._store.get_run(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        return await self.of_run(run)

    async def of_run(self, run: Run) -> Explanation:
        look = await self._look(await self._job(run.job_id))
        return explain_run(await look.facts_of(run))

    async def job(self, job_id: int, at: str | None = None) -> Explanation:
        """Why a job does or does not run; with `at`, a moment as text, why it did or did not then."""
        return await self.of_job(await self._job(job_id), at)

    async def of_job(self, job: Job, at: str | None = None) -> Explanation:
        look = await self._look(job)
        if at is None:
            return explain_job(look.base, await look.runs(RunFilter(job_id=job.id)))
        asked = [(trigger, read_asked(at, trigger)) for trigger in job.triggers[:MOST_TRIGGERS]]
        records = await look.records(asked, None, at)
        return explain_at(await look.of_moments(asked), asked, records)

    async def trigger(self, trigger_id: int, at: str | None = None) -> Explanation:
        """The same of one trigger of a job."""
        found = await self._store.get_trigger(trigger_id)
        if found is None:
            raise NotFound(f"there is no trigger {trigger_id}")
        job = await self._job(found.job_id)
        trigger = next((one for one in job.triggers if one.id == trigger_id), found)
        look = await self._look(job)
        if at is None:
            return explain_this_trigger(look.base, trigger, await look.runs(RunFilter(job.id, trigger_id)))
        asked = [(trigger, read_asked(at, trigger))]
        records = await look.records(asked, trigger_id, at)
        return explain_at(await look.of_moments(asked), asked, records, "trigger")

    async def _job(self, job_id: int) -> Job:
        job = await self._store.get_job(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id}")
        return job

    async def _look(self, job: Job) -> _Look:
        """Begin with what is known whatever is asked of a job."""
        now, nodes, owner, _ = await asyncio.gather(
            self._store.now(), self._store.list_nodes(), self._store.load_owner(job.segment), self._queues.refresh()
        )
        base = Facts(
            now, job, nodes=[node for node in nodes if is_for(node, job.org)],
            queue=self._queues.find(job.policy.queue), owner=owner,
            queue_names={str(queue.id): queue.name for queue in self._queues.known},
        )  # fmt: skip
        return _Look(self._store, self._queues, base)


class _Look:
    """One look at a job and its runs: what concerns several of them is asked for once."""

    def __init__(self, store: ExplainingStore, queues: Queues, base: Facts) -> None:
        self._store = store
        self._queues = queues
        self._offered: dict[str, dict[str, Any]] = {}  # by kind
        self.base = base

    async def runs(self, where: RunFilter) -> list[Facts]:
        """What is live, and else the newest record."""
        live = (await self._store.list_runs(replace(where, states=LIVE, tasks=True), None, MOST_RUNS)).items
        runs = live or (await self._store.list_runs(replace(where, tasks=True), None, 1)).items
        return [await self.facts_of(run) for run in runs]

    async def records(self, asked: Sequence[tuple[Trigger, Asked]], trigger_id: int | None, at: str) -> list[Facts]:
        """The records of a moment, as each trigger understands it."""
        wanted = {moment for _, one in asked for moment in (one.at, one.again_at) if moment is not None}
        wanted = wanted or {_moment(at)}
        found: dict[int, Run] = {}
        for moment in sorted(wanted):
            found |= {run.id: run for run in await self._store.load_at(self.base.job.id, moment, MOST_RECORDS)}
        runs = [run for run in found.values() if trigger_id in (None, run.trigger_id)]
        return [await self.facts_of(run) for run in runs[:MOST_RUNS]]

    async def of_moments(self, asked: Sequence[tuple[Trigger, Asked]]) -> Facts:
        """Return what matters of moments without a record: who changed the job after them."""
        job = self.base.job
        is_since = any(one.at is not None and one.at < job.updated_at for _, one in asked)
        return replace(self.base, done=await self._done([("job", str(job.id))])) if is_since else self.base

    async def _done(self, subjects: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[Done]]:
        """Return what people of the job's organisation did lately to each of these."""
        org = self.base.job.org
        return {subject: await self._store.load_done(*subject, org, MOST_DONE) for subject in subjects}

    async def facts_of(self, run: Run) -> Facts:
        """Return what matters of a run, with the names of jobs of its organisation."""
        facts = await self._gathered(run)
        ids = {one.job_id for runs in (facts.busy, facts.beside, facts.others.values()) for one in runs}
        return replace(facts, names=await self._store.load_names_in(facts.job.org, sorted(ids))) if ids else facts

    async def _gathered(self, run: Run) -> Facts:
        facts = replace(self.base, run=run, attempts=await self._attempts(run))
        if run.state.is_terminal:
            return replace(facts, others=await self._others(run), beside=await self._beside(facts))
        standing = await self._store.load_standing_of(run.id) or Standing()
        facts = replace(facts, standing=standing, queue=self._queues.by_id(standing.queue))
        if facts.queue.state is QueueState.PAUSED:
            facts = replace(facts, done=await self._done([("queue", facts.queue.name)]))
        gather = self._by_reason().get(run.reason if run.state is State.BLOCKED else run.state.word)
        return replace(facts, **(await gather(facts) if gather is not None else {}))

    def _by_reason(self) -> Mapping[str, Callable[[Facts], Awaitable[dict[str, Any]]]]:
        """What else matters of a live run, by its reason if it is blocked, and else by its state."""
        return {
            State.QUEUED.word: self._for_agent, Reason.LIMIT: self._for_limits, Reason.OVERLAP: self._for_holder,
            Reason.DEPENDENCY: self._for_others, Reason.DESTINATION_BUSY: self._for_others,
            Reason.CHILDREN: self._for_tasks, State.RUNNING.word: self._for_late,
        }  # fmt: skip

    async def _for_agent(self, facts: Facts) -> dict[str, Any]:
        line = await self._store.load_line(facts.the_run.id, COUNTED)
        return {"line": line, **await self._offers(facts), "done": {**facts.done, **await self._cordoned(facts)}}

    async def _cordoned(self, facts: Facts) -> dict[tuple[str, str], list[Done]]:
        """Return who keeps new work from agents that may be meant."""
        kind = facts.the_run.kind
        names = [node.name for node in facts.nodes if kind in node.kinds and node.wanted is not OperatorWish.LIVE]
        return await self._done([("node", name) for name in names[:MOST_CORDONED]])

    async def _for_limits(self, facts: Facts) -> dict[str, Any]:
        limits = await self._store.load_limits(facts.the_run.id)
        shown = [run_id for state in limits for run_id in state.runs[:SHOWN]]
        return {"limits": limits, "others": await self._others(facts.the_run, *shown), **await self._offers(facts)}

    async def _offers(self, facts: Facts) -> dict[str, Any]:
        """What agents have, and who has the rest."""
        kind = facts.the_run.kind
        if kind not in self._offered:
            able = [node.name for node in facts.nodes if kind in node.kinds and node.state is not NodeState.GONE]
            self._offered[kind] = {
                "supplies": {supply.node: supply for supply in await self._store.load_supplies()},
                "shared": await self._store.load_resources(),
                "busy": await self._store.load_busy_of(able[:MOST_NODES], MOST_BUSY),
            }
        return self._offered[kind]

    async def _for_holder(self, facts: Facts) -> dict[str, Any]:
        where = RunFilter(job_id=facts.job.id, states=LIVE, tasks=True)
        live: list[Run] = (await self._store.list_runs(where, None, COUNTED)).items
        holding = [run for run in live if run.reason not in (Reason.OVERLAP, Reason.LATER, Reason.DEBOUNCE)]
        return {"holder": holding[-1] if holding else None}

    async def _for_others(self, facts: Facts) -> dict[str, Any]:
        return {"others": await self._others(facts.the_run, facts.standing.waits_for)}

    async def _for_tasks(self, facts: Facts) -> dict[str, Any]:
        return {"tasks": await self._store.tally_tasks(facts.the_run.id)}

    async def _for_late(self, facts: Facts) -> dict[str, Any]:
        return {"beside": await self._beside(facts)}

    async def _attempts(self, run: Run) -> Sequence[Any]:
        """Return those that ended before its last one, pauses among them as far as they are recorded."""
        found = await self._store.list_attempts(run.id) if run.fence > 1 or run.attempt > 0 else []
        if run.fence - 1 > len(found):
            found = sorted([*found, *await self._store.list_turns(run.id)], key=lambda one: one.fence)
        return found

    async def _others(self, run: Run, *more: int | None) -> dict[int, Run]:
        """Runs that the record of one names."""
        ids = {*runs_named(run.message)[:MOST_BUSY], *(one for one in (run.into_run_id, *more) if one is not None)}
        return {one.id: one for one in await self._store.load_runs(sorted(ids))} if ids else {}

    async def _beside(self, facts: Facts) -> Sequence[Any]:
        """Runs made around one that was late, if it was."""
        run = facts.the_run
        begun = run.started_at if run.started_at is not None else run.created_at
        is_late = run.state is not State.SKIPPED and begun - run.due_at >= NOTICED
        return await self._store.load_beside(run, BESIDE) if is_late else ()


def _moment(text: str) -> Moment:
    """Of a job without triggers, a clock without an offset is UTC."""
    wall, offset = read_clock(text)
    return wall - (offset or 0)
