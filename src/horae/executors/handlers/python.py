"""The executor of kind "python": runs handlers inline, in shared workers, or in a worker of their own.

    inline   built-ins and @handler(inline=True): tasks of the agent's own event loop, trusted
    async    `async def`: many at a time in each of a few shared workers, one event loop per process
    sync     `def`: one at a time in a worker of its own; the rest wait here for a free one

The agent never imports a job's code to find out which it is: the first call of a handler goes to a shared
worker, which runs it or says that it is of another sort. Only code that says `inline=True` is then
imported here. Workers are started by the keeper when first needed, and stay while their code is current: one whose
files have changed (`sources.py`) hands its calls back, and ends with the last run that it has under way.

What must stay true: every work leads to one call of `done`, after its output is stored; a work that was
asked to stop ends as that asked, whatever its handler made of it; and what `processes.py` promises.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec

from horae.core.insight.walls import Cause, Facts, decide
from horae.core.model import Moment, Phase, Reason, State
from horae.core.runs.orders import Result
from horae.discovery import resolve
from horae.errors import Error, Invalid, Unavailable, machine_fault
from horae.executors.handlers.catalogue import Catalogue
from horae.executors.handlers.environments import Environments, worker_program
from horae.executors.handlers.messages import ELSEWHERE, STALE, End, Report, Setup
from horae.executors.handlers.outcomes import (
    SUCCEEDED,
    extend_path,
    one_line,
    raised,
    read_data,
    read_previous,
    refused,
    returned,
    settle,
)
from horae.executors.handlers.processes import Live, Pool, Route, WorkerProcess
from horae.executors.handlers.requirements import Requirements
from horae.executors.processes.keeper import LEASE_RAN_OUT
from horae.executors.processes.process import DIED, GRACE
from horae.handlers import Context, Function
from horae.ports.clock import Clock
from horae.ports.work import Done, Exit, Keeper, Work

WARM_SECONDS = 1.0  # after the agent has opened: by then the server is up
MOST_REFUSALS = 5  # of one run, by workers whose code is not current
ROUTES_KEPT = 10_000  # distinct specs remembered
PORTION = 200  # inline runs that are carried before others have their turn

STATES = {int(state): state for state in State}  # calling the enum takes ten times as long
CLOSED = "closed"  # stands where a reason to stop does while the executor closes

log = logging.getLogger("horae.python")


class PythonExecutor:
    kind = "python"

    def __init__(
        self,
        keeper: Keeper,
        clock: Clock,
        *,
        slots: int = 1000,
        processes: int | None = None,
        jobs_directory: Path | None = None,
        search_path: Sequence[str] = (),
        environments: Path | None = None,
        grace: float = GRACE,
        find_here: Callable[[str], Function | None] = lambda _: None,
    ) -> None:
        """`environments` is where those of handlers are kept that need one; without it, such handlers fail.
        `processes` bounds the shared workers of an environment and the others alike; the default is one per core.
        `grace` is how long a run that was asked to stop may take before its process is killed.
        `find_here` returns what this very program runs inline under a name, importable elsewhere or not."""
        self.slots = slots
        self._processes = processes or os.cpu_count() or 1
        self._jobs_directory = None if jobs_directory is None else jobs_directory.absolute()  # links may be swapped
        places = [str(self._jobs_directory)] if self._jobs_directory else []
        self._search_path = [*places, *search_path, os.getcwd()]
        self._keeper = keeper
        self._clock = clock
        self._grace = grace
        self._find_here = find_here
        self._routes: dict[str, Route] = {}
        self._live: dict[int, Live] = {}
        self.catalogue = Catalogue(self._jobs_directory)
        self._base = Pool(self._launch, self._processes, clock)
        self._pools: dict[Path | None, Pool] = {None: self._base}
        self._environments = None if environments is None else Environments(keeper, environments)
        self._inline: deque[Live] = deque()  # not begun
        self._carriers: set[asyncio.Task[None]] = set()
        self._will_carry = False
        self._warming: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._builds: set[asyncio.Task[None]] = set()  # those of them that make environments
        self._is_closed = False

    async def open(self) -> None:
        """Workers start when they are needed; one of each sort that the jobs directory has handlers of, a moment after
        the agent, so that the first run need not wait for it."""
        self._warming = asyncio.get_running_loop().call_later(WARM_SECONDS, lambda: self._keep(self._warm()))

    async def _warm(self) -> None:
        kinds = {fact.kind for fact in await self.catalogue.read()}
        if not self._is_closed and kinds & {"async", "plain"}:
            self._base.warm(is_shared=True)
            if "plain" in kinds:
                self._base.warm(is_shared=False)

    def start(self, works: Sequence[Work], done: Done) -> None:
        begin = self._begin
        routes = self._routes
        live_runs = self._live
        for work in works:
            route = routes.get(work.assignment.spec) or self._new_route(work)
            live = live_runs[work.assignment.run_id] = Live(work, route, done)
            begin(live)
        self._flush()

    def stop(self, run_id: int, reason: str) -> None:
        live = self._live.get(run_id)
        if live is None or live.stopped is not None:
            return
        live.stopped = reason
        if any(pool.drop(run_id) for pool in self._pools.values()):
            self._end(live, End(run_id, State.CANCELLED), self._clock.now())
        elif live.worker is not None:
            live.worker.stop(run_id)
            asyncio.get_running_loop().call_later(self._grace, self._condemn, live)
        elif live.task is not None:
            live.task.cancel()

    async def close(self) -> None:
        """What waits is handed back; what runs ends as failed. An inline handler that will not stop is
        left behind after the grace."""
        self._is_closed = True
        if self._warming is not None:
            self._warming.cancel()
        pools = list(self._pools.values())
        for live in [*(live for pool in pools for live in pool.drop_all()), *self._inline]:
            self._end(live, End(live.run_id, State.QUEUED), self._clock.now())
        self._inline.clear()
        for build in self._builds:
            build.cancel()
        for run_id in list(self._live):
            self.stop(run_id, CLOSED)
        for worker in [worker for pool in pools for worker in (*pool.shared, *pool.sole)]:
            worker.doom("the agent was stopped")
        if self._carriers:
            await asyncio.wait(self._carriers, timeout=self._grace)
        for live in [each for each in self._live.values() if each.task is not None]:
            self._end(live, End(live.run_id, State.FAILED), self._clock.now())
        while self._tasks:
            await asyncio.wait(self._tasks)

    # ── the three ways ──

    def _new_route(self, work: Work) -> Route:
        if len(self._routes) >= ROUTES_KEPT:
            self._routes.clear()
        route = self._routes[work.assignment.spec] = Route(work.spec)
        if (here := self._find_here(route.name)) is not None:
            route.function, route.sort = here, "inline"
        return route

    def _begin(self, live: Live) -> None:
        """Shared workers are flushed by the caller, so that a batch is one frame."""
        if self._is_closed:
            self._end(live, End(live.run_id, State.QUEUED), self._clock.now())
        elif live.route.function is not None:
            self._inline.append(live)
            if not self._will_carry:
                self._carry_on()
        elif (pool := self._pool_of(live)) is None:
            message = f"{live.route.name} needs packages, and this agent makes no environments"
            self._end(live, End(live.run_id, State.FAILED, message), self._clock.now())
        elif not pool.is_ready:
            pool.preparing[live.run_id] = live
            live.work.note_phase(Phase.PREPARING)
        elif live.route.sort == "sync":
            pool.waiting[live.run_id] = live
            pool.feed_sole()
        else:
            pool.pick_shared().give(live)

    def _carry_on(self) -> None:
        """A task carries inline runs one after the other until one of them has to wait, or it has carried a portion;
        what is left then is found here and carried by the next task. So handlers that never wait share a few tasks, and
        keep nobody waiting: the next claim goes out, and the results of the last one, while they run."""
        self._will_carry = bool(self._inline)
        if self._will_carry:
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._carry())
            self._carriers.add(task)
            task.add_done_callback(self._carriers.discard)
            loop.call_soon(self._carry_on)  # runs right after the task's first step

    async def _carry(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        for _ in range(PORTION):
            if not self._inline or task.cancelling():  # once cancelled, it is no place for another run
                break
            live = self._inline.popleft()
            live.task, function = task, live.route.function
            try:
                if live.stopped is not None or function is None:
                    end = End(live.run_id, State.CANCELLED)
                else:
                    context = _context_of(live)
                    end = returned(live.run_id, await function(context), context, function)
            except BaseException as error:
                end = raised(live.run_id, error, live, function)
            self._end(live, end, self._clock.now())

    # ── environments ──

    def _pool_of(self, live: Live) -> Pool | None:
        """Return the workers that can run it; those of a new environment are there when it is made."""
        wanted = live.route.requirements
        if wanted is None:
            return self._base
        if self._environments is None:
            return None
        place = self._environments.place(wanted, live.work.assignment.owner)
        pool = self._pools.get(place)
        if pool is None:
            pool = self._pools[place] = Pool(self._launch, self._processes, self._clock, place, wanted.digest)
            pool.is_ready = self._environments.is_made(place)
            if not pool.is_ready:
                build = self._keep(self._prepare(self._environments, pool, place, wanted))
                self._builds.add(build)
                build.add_done_callback(self._builds.discard)
        return pool

    def _give_up(self, pool: Pool) -> None:
        """A handler of this environment needs another now. Should somebody need this one still, it is found again."""
        if pool is not self._base and not pool.waiting and not pool.preparing:
            pool.retire_all()
            self._pools.pop(pool.place, None)

    async def _prepare(self, environments: Environments, pool: Pool, place: Path, wanted: Requirements) -> None:
        """Make an environment, then begin the runs that wait for it. One that fails is made anew for the next run."""
        head = f"horae: making the environment of {wanted.file}\n".encode()

        def say(data: bytes) -> None:
            for live in pool.preparing.values():
                live.write(data)

        asyncio.get_running_loop().call_soon(say, head)  # when the run that asked for it waits
        gone, said = Exit(-1), ""
        try:
            gone, said = await environments.make(place, wanted, say)
        except Error as error:
            gone = Exit(-1, error.message, reason=Reason.LOST)
        except OSError as error:
            gone = Exit(-1, str(error), ailment=machine_fault(error))
        waiting = list(pool.preparing.values())
        pool.preparing.clear()
        pool.is_ready = gone.code == 0
        if not pool.is_ready:
            self._pools.pop(place, None)
        for live in waiting:
            if pool.is_ready:
                live.work.note_phase(Phase.RUNNING)
                self._begin(live)
            else:
                live.route.requirements = None  # they may be others next time: a worker reads them again
                why = f"the environment that {wanted.file} asks for was not made: {gone.message or said}"
                failure = Reason.LOST if _is_lost(gone) else Reason.ERROR
                self._end(live, End(live.run_id, State.FAILED, one_line(why)), self._clock.now(), failure, gone.ailment)
        pool.flush()

    # ── what becomes of them ──

    def _report(self, worker: WorkerProcess, report: Report) -> None:
        """Take what a worker said."""
        for run_id, data in report.output.items():
            if (live := worker.live.get(run_id)) is not None:
                live.write(data)
        for run_id, progress in report.progress.items():
            if (live := worker.live.get(run_id)) is not None:
                live.note_progress(progress)
        now, moved = self._clock.now(), False
        for load in report.loads:
            self.catalogue.note(load, now)
        for end in report.ends:
            if end.message == STALE and end.state == State.QUEUED:
                worker.pool.retire(worker)
            live = worker.live.pop(end.run_id, None)
            if live is None:
                continue
            live.worker = None
            if end.state == State.QUEUED and live.stopped is None:
                moved = True
                self._move(live, end, worker.pool)
            else:
                self._end(live, end, now)
        if worker.is_done:
            worker.doom("")
        if worker.pool.waiting:
            worker.pool.feed_sole()
        if moved:
            self._flush()

    def _flush(self) -> None:
        for pool in self._pools.values():
            pool.flush()

    def _move(self, live: Live, end: End, pool: Pool) -> None:
        """Begin again the way a worker said is right for this handler."""
        route, is_stale = live.route, end.message == STALE
        live.refusals += is_stale or end.message == ELSEWHERE
        if live.refusals > MOST_REFUSALS:
            why = f"the code of {route.name} changed each of the {live.refusals} times that it was loaded"
            message = f"{why}: {end.result if is_stale else route.name} (save it, and leave it alone for a moment)"
            self._end(live, End(live.run_id, State.FAILED, message), self._clock.now())
            return
        if is_stale:  # whatever is known of it may have changed
            route.sort = "async"
        elif end.message == ELSEWHERE:
            self._give_up(pool)
            route.requirements = msgspec.json.decode(end.result or "null", type=Requirements | None)
        else:
            route.sort = end.message
        if route.sort == "inline" and route.function is None:
            try:
                route.function = self._load_inline(route.name)
            except Invalid as error:
                self._end(live, refused(live.run_id, error, live), self._clock.now())
                return
        self._begin(live)

    def _load_inline(self, name: str) -> Function:
        extend_path(self._search_path)
        found = resolve(name, self._jobs_directory)
        if not found.inline:
            raise Invalid(f"{name} was inline in a worker and is not here: restart the agent", code="E_HANDLER")
        return found.function

    def _condemn(self, live: Live) -> None:
        """A run that was asked to stop has had its grace."""
        if live.worker is not None and self._live.get(live.run_id) is live:
            live.worker.doom(f"the worker process was killed because run {live.run_id}, which shared it, did not stop")

    def _end(
        self, live: Live, end: End, now: Moment, failure: Reason = Reason.ERROR, ailment: str = "",
        cause: Cause | None = None,
    ) -> None:  # fmt: skip
        if self._live.pop(live.run_id, None) is None:
            return
        result = _result(live, end, now, failure, ailment)
        if live.stopped is not None:
            cause = decide(Facts(reason=live.stopped, timeout_seconds=live.work.timeout_seconds, what="the handler"))
        if cause is not None:
            _tell(live, result, cause)
        if result.output is None:
            live.done(result)
        else:
            self._keep(self._store(live, result))

    async def _store(self, live: Live, result: Result) -> None:
        try:
            await live.work.output.close()
        except Exception as error:  # whatever it is, the run has ended and its result must be told
            log.warning("output of run %d: %s", live.run_id, error)
            result.message = result.message or f"the output is incomplete: {error}"
            result.ailment = result.ailment or machine_fault(error)
        live.done(result)

    # ── workers ──

    def _launch(self, pool: Pool, is_shared: bool) -> WorkerProcess:
        jobs = None if self._jobs_directory is None else str(self._jobs_directory)
        setup = Setup(is_shared, self._search_path, jobs, pool.digest)
        worker = WorkerProcess(setup, pool, self._report, worker_program(pool.place))
        self._keep(self._run_worker(worker))
        return worker

    async def _run_worker(self, worker: WorkerProcess) -> None:
        """The whole life of a worker: start it, wait until it is lost or doomed, bury it."""
        is_lost = False
        try:
            gone = await worker.live_through(self._keeper)
            is_lost = _is_lost(gone)
        except Unavailable as error:
            gone, is_lost = Exit(-1, error.message), True
        except Exception as error:
            ailment = machine_fault(error)
            gone, is_lost = Exit(-1, ailment or str(error), ailment=ailment), bool(ailment)
        worker.doom("")
        now = self._clock.now()
        failure = Reason.LOST if is_lost else Reason.ERROR
        cause = worker.cause_of(gone)
        for live in list(worker.live.values()):
            end = End(live.run_id, State.FAILED, worker.epitaph(gone))
            self._end(live, end, now, failure, gone.ailment, cause)
        worker.live.clear()
        worker.pool.feed_sole()

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_lost(gone: Exit) -> bool:
    return gone.message in (LEASE_RAN_OUT, DIED.message) or gone.reason == Reason.LOST


def _context_of(live: Live) -> Context:
    """Return what an inline handler is given."""
    work, given = live.work, live.work.assignment
    return Context(
        live, given.run_id, given.attempt, given.fence, given.job_id, given.name, given.due_at, read_data(live.data()),
        {**live.env()}, read_previous(work.previous), work.installation, given.answers,
        live.started_at, given.callbacks, work.trace,
    )  # fmt: skip


def _result(live: Live, end: End, now: Moment, failure: Reason, ailment: str) -> Result:
    """`failure` is why, if it failed: lost with the agent's keeper, it does not count as a try."""
    work, state = live.work, STATES[end.state]
    fence, policy = work.assignment.fence, work.assignment.policy
    result = Result(live.run_id, fence, state, "", live.started_at, now, output=work.output.ref, ailment=ailment)
    if live.stopped is not None:
        _mark_stopped(result, live)
        return result
    result.message, result.result, result.retry_after = end.message, end.result, end.retry_after
    if end.state == SUCCEEDED:
        return result
    if state is State.FAILED:
        result.reason = failure
        settle(result, end, policy)
    elif state is State.CANCELLED:
        result.reason = Reason.REQUESTED
        result.final = True
    elif end.wait is not None:
        result.reason, result.wait = end.wait.reason, end.wait
    return result


def _tell(live: Live, result: Result, cause: Cause) -> None:
    """Say at the end of the log, in the message and in the result which limit was met."""
    live.write(f"── {cause.sentence} ──\n".encode(errors="replace"))
    result.message = f"{result.message}; {cause.sentence}"
    result.result = msgspec.json.encode({"cause": cause.as_json()}).decode()
    result.output = live.work.output.ref


def _mark_stopped(result: Result, live: Live) -> None:
    assert live.stopped is not None
    if live.stopped == CLOSED:
        result.state, result.reason, result.message = State.FAILED, Reason.ERROR, "the agent was stopped"
        return
    is_late = live.stopped == Reason.TIMEOUT
    result.state = State.TIMED_OUT if is_late else State.CANCELLED
    result.reason = live.stopped
    if is_late and live.work.timeout_seconds is not None:
        result.message = f"the attempt ran longer than {live.work.timeout_seconds:g} s"
