"""The executor of kind "python": runs handlers inline, in shared workers, or in a worker of their own.

    inline   built-ins and @handler(inline=True): tasks of the agent's own event loop, trusted
    async    `async def`: many at a time in each of a few shared workers, one event loop per process
    sync     `def`: one at a time in a worker of its own; the rest wait here for a free one

The agent never imports a job's code to find out which it is: the first call of a handler goes to a shared
worker, which runs it or says that it is of another sort. Only code that says `inline=True` is then
imported here. Workers are started by the keeper when first needed, and stay.

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

from horae.core.model import Moment, Reason, State
from horae.core.runs.orders import Result
from horae.errors import Invalid, Unavailable, machine_fault
from horae.executors.handlers.messages import End, Report, Setup
from horae.executors.handlers.outcomes import extend_path, raised, read_data, read_previous, refused, returned
from horae.executors.handlers.processes import Live, Route, WorkerProcess
from horae.executors.processes.keeper import LEASE_RAN_OUT
from horae.executors.processes.process import DIED, GRACE
from horae.handlers import Context, Function, resolve
from horae.ports.clock import Clock
from horae.ports.work import Done, Exit, Keeper, Work

RUNS_PER_WORKER = 100  # in every shared one before one more is started
ROUTES_KEPT = 10_000  # distinct specs remembered

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
        grace: float = GRACE,
        find_here: Callable[[str], Function | None] = lambda _: None,
    ) -> None:
        """`processes` bounds the shared workers and the others alike; the default is one per core.
        `grace` is how long a run that was asked to stop may take before its process is killed.
        `find_here` returns what this very program runs inline under a name, importable elsewhere or not."""
        self.slots = slots
        self._processes = processes or os.cpu_count() or 1
        self._jobs_directory = None if jobs_directory is None else jobs_directory.resolve()
        places = [str(self._jobs_directory)] if self._jobs_directory else []
        self._search_path = [*places, *search_path, os.getcwd()]
        self._keeper = keeper
        self._clock = clock
        self._grace = grace
        self._find_here = find_here
        self._routes: dict[str, Route] = {}
        self._live: dict[int, Live] = {}
        self._shared: list[WorkerProcess] = []
        self._sole: list[WorkerProcess] = []
        self._waiting: dict[int, Live] = {}  # plain handlers without a process, in order
        self._inline: deque[Live] = deque()  # not begun
        self._carriers: set[asyncio.Task[None]] = set()
        self._will_carry = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def open(self) -> None:
        """Nothing to do: workers start when they are needed."""

    def start(self, works: Sequence[Work], done: Done) -> None:
        begin = self._begin
        routes = self._routes
        live_runs = self._live
        for work in works:
            route = routes.get(work.assignment.spec) or self._new_route(work)
            live = live_runs[work.assignment.run_id] = Live(work, route, done)
            begin(live)
        for worker in self._shared:
            worker.flush()

    def stop(self, run_id: int, reason: str) -> None:
        live = self._live.get(run_id)
        if live is None or live.stopped is not None:
            return
        live.stopped = reason
        if self._waiting.pop(run_id, None) is not None:
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
        for live in [*self._waiting.values(), *self._inline]:
            self._end(live, End(live.run_id, State.QUEUED), self._clock.now())
        self._waiting.clear()
        self._inline.clear()
        for run_id in list(self._live):
            self.stop(run_id, CLOSED)
        for worker in [*self._shared, *self._sole]:
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
        elif live.route.sort == "sync":
            self._waiting[live.run_id] = live
            self._feed_sole()
        else:
            self._pick_shared().give(live)

    def _carry_on(self) -> None:
        """A task carries inline runs one after the other until one of them has to wait; what is left then
        is found here and carried by the next task. So handlers that never wait share one task."""
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
        while self._inline and not task.cancelling():  # once cancelled, it is no place for another run
            live = self._inline.popleft()
            live.task = task
            try:
                end = await self._call_inline(live)
            except BaseException as error:
                end = raised(live.run_id, error, live)
            self._end(live, end, self._clock.now())

    async def _call_inline(self, live: Live) -> End:
        function = live.route.function
        if live.stopped is not None or function is None:
            return End(live.run_id, State.CANCELLED)
        given = live.work.assignment
        context = Context(
            live,
            given.run_id,
            given.attempt,
            given.fence,
            given.job_id,
            given.name,
            given.due_at,
            read_data(live.data()),
            {**live.env()},
            read_previous(live.work.previous),
            live.work.installation,
        )
        return returned(live.run_id, await function(context))

    def _pick_shared(self) -> WorkerProcess:
        """Return the least loaded; one more process when all of them have plenty."""
        best = min(self._shared, key=WorkerProcess.load, default=None)
        if best is None or (best.load() >= RUNS_PER_WORKER and len(self._shared) < self._processes):
            best = self._launch(self._shared, is_shared=True)
        return best

    def _feed_sole(self) -> None:
        """Give waiting plain handlers to idle processes, and start processes while there may be more."""
        while self._waiting:
            worker = next((each for each in self._sole if not each.live), None)
            if worker is None and len(self._sole) < self._processes:
                worker = self._launch(self._sole, is_shared=False)
            if worker is None:
                return
            live = self._waiting.pop(next(iter(self._waiting)))
            live.started_at = self._clock.now()
            worker.give(live)
            worker.flush()

    # ── what becomes of them ──

    def _report(self, worker: WorkerProcess, report: Report) -> None:
        """Take what a worker said."""
        for run_id, data in report.output.items():
            if (live := worker.live.get(run_id)) is not None:
                live.write(data)
        now = self._clock.now()
        for end in report.ends:
            live = worker.live.pop(end.run_id, None)
            if live is None:
                continue
            live.worker = None
            if end.state == State.QUEUED and live.stopped is None:
                self._move(live, end.message)
            else:
                self._end(live, end, now)
        if self._waiting:
            self._feed_sole()

    def _move(self, live: Live, sort: str) -> None:
        """Begin again the way a worker said is right for this handler."""
        live.route.sort = sort
        if sort == "inline" and live.route.function is None:
            try:
                live.route.function = self._load_inline(live.route.name)
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

    def _end(self, live: Live, end: End, now: Moment, failure: Reason = Reason.ERROR, ailment: str = "") -> None:
        if self._live.pop(live.run_id, None) is None:
            return
        result = _result(live, end, now, failure)
        result.ailment = ailment
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

    def _launch(self, pool: list[WorkerProcess], *, is_shared: bool) -> WorkerProcess:
        jobs = None if self._jobs_directory is None else str(self._jobs_directory)
        worker = WorkerProcess(Setup(is_shared, self._search_path, jobs), pool, self._report)
        self._keep(self._run_worker(worker))
        return worker

    async def _run_worker(self, worker: WorkerProcess) -> None:
        """The whole life of a worker: start it, wait until it is lost or doomed, bury it."""
        is_lost = False
        try:
            gone = await worker.live_through(self._keeper)
            is_lost = gone.message in (LEASE_RAN_OUT, DIED.message) or gone.reason == Reason.LOST
        except Unavailable as error:
            gone, is_lost = Exit(-1, error.message), True
        except Exception as error:
            ailment = machine_fault(error)
            gone, is_lost = Exit(-1, ailment or str(error), ailment=ailment), bool(ailment)
        worker.doom("")
        now = self._clock.now()
        failure = Reason.LOST if is_lost else Reason.ERROR
        for live in list(worker.live.values()):
            self._end(live, End(live.run_id, State.FAILED, worker.epitaph(gone)), now, failure, gone.ailment)
        worker.live.clear()
        self._feed_sole()

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _result(live: Live, end: End, now: Moment, failure: Reason) -> Result:
    """`failure` is why, if it failed: lost with the agent's keeper, it does not count as a try."""
    given = live.work.assignment
    result = Result(live.run_id, given.fence, STATES[end.state], "", live.started_at, now)
    result.output = live.work.output.ref
    if live.stopped is not None:
        _mark_stopped(result, live)
        return result
    result.message = end.message
    result.result = end.result
    result.retry_after = end.retry_after
    if end.state == State.FAILED:
        result.reason = failure
    elif end.state == State.CANCELLED:
        result.reason = Reason.REQUESTED
        result.final = True
    return result


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
