"""Moves workflows on: from what is written of their tasks, by core.workflows.progress, to what is written next.

    claimed ──► begin ──► tasks are made, the run waits blocked(children)
    a task ended ──► advance ──► more tasks are made, skipped or failed, or the workflow ends

Many workflows are one batch, and all that happened to one of them since the last look is one step: a few statements for
all. Nothing is remembered between two steps, so that any server may do the next one.

What must stay true: whatever is decided is decided from what was read with the version that the write compares; a
workflow of which nothing can be made ends, and never holds up others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

import structlog

from horae.core.model import SECOND, Job, Reason, State
from horae.core.policy.demands import own_data
from horae.core.policy.queues import user_of
from horae.core.runs.endings import Ending
from horae.core.runs.flows import Begin, Flow, Move, Moved, Parent, Task
from horae.core.runs.orders import Assignment, Result
from horae.core.work.kinds import BY_SERVERS, EVERY, WORKFLOW
from horae.core.workflows import every, progress
from horae.errors import Error, Unavailable
from horae.ports.store.cluster import Nodes
from horae.ports.store.definitions import Definitions
from horae.ports.store.endings import Endings
from horae.ports.store.flows import Flows
from horae.ports.store.moments import StoreClock
from horae.ports.transport import Queue
from horae.service.policy.placing import Candidate, Placing
from horae.service.workflows import courses
from horae.service.workflows.courses import Course, JobName, decoded, encode
from horae.service.workflows.parts import Parts, graph_of, jobs_named

log = structlog.get_logger(__name__)


class FlowStore(Definitions, Endings, Flows, Nodes, StoreClock, Protocol):
    """Jobs, workflows under way, what is to be acted on, and the agents."""


class Workflows:
    def __init__(
        self,
        store: FlowStore,
        queue: Queue,
        placing: Placing,
        parts: Parts,
        *,
        after_failures: Callable[[Collection[int]], Awaitable[None]] | None = None,
    ) -> None:
        """`after_failures` is told of jobs whose runs have failed, of those that pause themselves then."""
        self._store = store
        self._queue = queue
        self._placing = placing
        self._parts = parts
        self._after_failures = after_failures

    # ── the beginning ──
    async def begin(self, claimed: Sequence[Assignment]) -> list[Result]:
        """Make parents of runs that were claimed; return the ends of those that cannot be."""
        jobs = {job.id: job for job in await self._store.load_jobs(sorted({a.job_id for a in claimed}))}
        parents = {parent.run_id: parent for parent in await self._store.load_parents([a.run_id for a in claimed])}
        known = [a for a in claimed if a.run_id in parents and a.job_id in jobs]
        ways, failed = [], []
        for a in known:
            try:
                ways.append(await self._course(a, jobs[a.job_id], parents[a.run_id]))
            except Unavailable:
                raise
            except Error as error:
                failed.append(Result(a.run_id, a.fence, State.FAILED, Reason.ERROR, message=error.message))
        fences = {a.run_id: a.fence for a in known}
        why = "its first step could not be written"
        failed += [Result(i, fences[i], State.FAILED, Reason.ERROR, message=why) for i in await self._step(ways)]
        return failed

    async def _course(self, a: Assignment, job: Job, parent: Parent) -> Course:
        course = Course(a.run_id, job, parent.priority, {}, decoded(a.data), [])
        adopted: dict[str, int] = {}
        earlier = await self._store.load_flows([parent.resumes]) if parent.resumes is not None else []
        if a.kind == EVERY:
            await self._placing.queues.refresh()
            queue, nodes = self._placing.queues.find(job.policy.queue), await self._store.list_nodes()
            course.spec = {courses.EVERY: every.agents_for(job.kind, job.policy, nodes, queue.org)}
        elif earlier and earlier[0].job_id == job.id:
            adopted = await self._take_over(earlier[0], course)
        else:
            course.spec = graph_of(job, await self._parts.find(job))
        seconds = job.policy.timeout_seconds if a.kind == WORKFLOW else None
        until_at = None if seconds is None else await self._store.now() + round(seconds * SECOND)
        kept = encode(adopted).decode() if adopted else None
        course.begin = Begin(a.fence, job.id, encode(course.spec).decode(), kept, until_at)
        return course

    async def _take_over(self, earlier: Flow, course: Course) -> dict[str, int]:
        """Give a course the graph of an earlier run, and of its tasks those that need not be done again. Those that are
        workflows take over from theirs in the same way, when they begin."""
        course.spec = decoded(earlier.document)
        states = courses.states_of(earlier, await self._store.load_tasks([earlier.run_id]))
        course.spec[courses.RESUMES] = courses.resumed(course.spec, states)
        course.tasks = progress.adopt(course.spec, states)
        course.take_results(await self._store.load_results(course.results_wanted()))
        return {progress.label(task.name, task.index): task.run_id for task in course.tasks if task.run_id is not None}

    # ── on the way ──
    async def advance(self, flows: Sequence[Flow], rows: Sequence[Ending]) -> None:
        """Move workflows on, to each of which some of the rows belong."""
        rows = await self._without_idle(flows, rows)
        told = {row.parent_id for row in rows}
        flows = [flow for flow in flows if flow.run_id in told]
        if flows:
            await self._advance(flows, rows)

    async def _without_idle(self, flows: Sequence[Flow], rows: Sequence[Ending]) -> list[Ending]:
        """Return the rows by which something may come next. Nothing does when an item of a fan-out ends of which others
        go on: the last to end sees to all. So the work for a fan-out does not grow with the square of its items."""
        spread = courses.fan_outs_of(flows)
        asked = {row.id: (row.parent_id or 0, progress.split_label(row.task)[0]) for row in rows if row.task}
        busy = await self._store.load_busy(sorted(set(asked.values()) & spread))
        idle = {row_id for row_id, fan_out in asked.items() if fan_out in busy}
        await self._store.drop_endings(sorted(idle))
        return [row for row in rows if row.id not in idle]

    async def _advance(self, flows: Sequence[Flow], rows: Sequence[Ending]) -> None:
        jobs = {job.id: job for job in await self._store.load_jobs(sorted({flow.job_id for flow in flows}))}
        tasks: dict[int, list[Task]] = {flow.run_id: [] for flow in flows}
        for task in await self._store.load_tasks(list(tasks)):
            tasks[task.parent_id].append(task)
        ways = [courses.course_of(flow, jobs[flow.job_id], tasks[flow.run_id]) for flow in flows]
        results = await self._store.load_results([run_id for way in ways for run_id in way.results_wanted()])
        for way in ways:
            way.take_results(results)
        told: dict[int, list[Ending]] = {}
        for row in rows:
            told.setdefault(row.parent_id or 0, []).append(row)
        await self._step(ways, told)

    # ── a step ──
    async def _step(self, ways: Sequence[Course], told: Mapping[int, Sequence[Ending]] | None = None) -> set[int]:
        """Return the runs of which the step cannot be written."""
        if not ways:
            return set()
        moves = await self._moves(ways)
        if told is not None:
            moves = [
                courses.acting(move, told[move.run_id], way.flow.reason if way.flow else "")
                for move, way in zip(moves, ways, strict=True)
            ]
        try:
            await self._write(moves, ways)
            return set()
        except Unavailable:
            raise
        except Exception:
            log.exception("workflows.failed", run_ids=[move.run_id for move in moves[:10]])
        return {move.run_id for move, way in zip(moves, ways, strict=True) if not await self._is_written(move, way)}

    async def _is_written(self, move: Move, way: Course) -> bool:
        """Write one alone, so that it takes no other with it."""
        try:
            await self._write([move], [way])
        except Unavailable:
            raise
        except Exception:
            log.exception("workflow.failed", run_id=move.run_id)
            return False
        return True

    async def _moves(self, ways: Sequence[Course]) -> list[Move]:
        """Decide about each, and find the jobs of the tasks that are to be made. One without a job fails, and that may
        decide something else."""
        found: dict[JobName, Job | str] = {}
        undecided = list(ways)
        while undecided:
            for way in undecided:
                way.decide()
            await self._find_jobs(undecided, found)
            undecided = [way for way in undecided if way.note_missing(found)]
        moves = [way.move(found) for way in ways]
        await self._place(ways, moves, found)
        return moves

    async def _find_jobs(self, ways: Sequence[Course], found: dict[JobName, Job | str]) -> None:
        wanted = {way.name_of(make.task) for way in ways for make in way.step.make} - found.keys()
        ids, keys = jobs_named(wanted)
        by_id = {job.id: job for job in await self._store.load_jobs(ids)} if ids else {}
        by_key: dict[JobName, Job] = {}
        for (org, owner), some in keys.items():
            by_key |= {(org, owner, job.key or ""): job for job in await self._store.find_keys(org, owner, some)}
        for org, owner, name in wanted:
            job = by_id.get(name) if isinstance(name, int) else by_key.get((org, owner, name))
            found[org, owner, name] = courses.usable(job, org, name)

    async def _place(self, ways: Sequence[Course], moves: Sequence[Move], found: Mapping[JobName, Job | str]) -> None:
        candidates = []
        for way, move in zip(ways, moves, strict=True):
            for make, order in zip(way.step.make, move.orders, strict=True):
                job = found[way.name_of(make.task)]
                assert isinstance(job, Job)
                user, own = user_of(job.owner, job.annotations), own_data(job.policy, job.spec)
                candidates.append(Candidate(order.run, job.policy, job.owner, job.org, user, own))
        await self._placing.place(candidates)

    async def _write(self, moves: Sequence[Move], ways: Sequence[Course]) -> None:
        moved = await self._store.move_flows(moves)
        self._tell(moves, moved)
        failed = {
            way.job.id
            for move, way in zip(moves, ways, strict=True)
            if move.run_id in moved.accepted and move.end is not None
            and move.end.state in (State.FAILED, State.TIMED_OUT) and way.job.policy.pause_after_failures is not None
        }  # fmt: skip
        if failed and self._after_failures is not None:
            await self._after_failures(failed)

    def _tell(self, moves: Sequence[Move], moved: Moved) -> None:
        if moved.demanding:
            self._queue.announce("limits")
        if moved.queued:
            self._queue.announce("runs")
        if moved.asked:
            self._queue.announce("cancel")
        if moved.noted or any(order.run.kind in BY_SERVERS for move in moves for order in move.orders):
            self._queue.announce("endings")
        if any(move.begin is not None and move.begin.until_at is not None for move in moves):
            self._queue.announce("waiting")
