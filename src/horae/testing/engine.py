"""A whole Horae on a virtual clock: the product's own scheduler, coordinator and agent, moved by hand.

    settle    whatever is due at this moment fires, runs and ends, until everybody waits for time to pass
    pass      to the next moment at which something happens, settle; and so on to the end

No loop polls: a month without moments costs nothing. Time moves only in `pass_until` and `outage`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

from horae.app.local_calls import Document, Job, LocalCalls, OwnHandlers
from horae.core.model import SECOND, Moment, Node
from horae.core.runs.orders import NEVER
from horae.core.watched import WATCHED
from horae.core.work.kinds import BY_SERVERS, EVERY, KINDS, WORKFLOW
from horae.core.work.waiting import WAIT
from horae.discovery import resolve
from horae.errors import Error, Invalid
from horae.executors.handlers.python import PythonExecutor
from horae.handlers import Context, Function, Handler
from horae.ports.work import Executor
from horae.queues.local import LocalQueue
from horae.service.agent.agent import Agent
from horae.service.cluster.coordination import Cluster
from horae.service.execution import Execution, LocalLink
from horae.service.external.watching import Watches
from horae.service.firing import Firing
from horae.service.insight.views import Insight
from horae.service.jobs import Jobs
from horae.service.jobs.breaker import Breaker
from horae.service.jobs.callbacks import RunKeys
from horae.service.metrics import Metrics
from horae.service.policy.placing import Placing
from horae.service.secrets.sealing import Sealing
from horae.service.workflows.calls import Callers
from horae.service.workflows.driver import Begin, Driver
from horae.service.workflows.flows import Workflows
from horae.service.workflows.outbox import Outbox
from horae.service.workflows.parts import Parts
from horae.service.workflows.waits import PlainWaits
from horae.testing.adapters import MemoryOutputs, MemoryStore, NoKeeper, Perform, Recorded, Recorder
from horae.testing.calls import ADDRESS
from horae.testing.loop import VirtualClock, VirtualLoop
from horae.testing.packages import install_advice

NAME = "world"
FOREVER = 1e12  # seconds of a lease: nobody here dies
SLOTS = 1000  # of each kind
OUTPUT_LIMIT = 16 * 1024 * 1024  # bytes of one attempt
ROUNDS = 10_000  # within one moment, after which somebody goes in circles


class Engine:
    def __init__(self, start: Moment, jobs_directory: Path | None, perform: Perform | None) -> None:
        self.clock = clock = VirtualClock(start)
        self.loop = VirtualLoop(clock)
        self.recorded: list[Recorded] = []
        self._jobs_directory = jobs_directory
        self._perform = perform
        self._own = OwnHandlers()
        self._store = store = MemoryStore(clock.now)
        self._queue = queue = LocalQueue()
        self._watches = {topic: queue.watch(topic) for topic in ("due", "runs", "waiting", "cancel", "endings")}
        self._sweep_at: Moment | None = None  # when something that waits may go on
        self._wake_at: Moment = 0  # when the scheduler looks again
        self._kinds, self._segments = set[str](), set[int]()  # of the jobs that there are: nobody looks for others
        self._terms: dict[int, int] = {}
        metrics, outputs = Metrics(), MemoryOutputs()
        breaker = Breaker(store, queue, Sealing(store))
        execution = Execution(
            store, queue, clock, metrics, after_failures=breaker.look, run_keys=RunKeys(_callback_secret, ADDRESS)
        )
        self._link = LocalLink(execution, store, queue)
        placing = Placing(store, queue)
        workflows = Workflows(store, queue, placing, Parts(store, Sealing(store)), after_failures=breaker.look)
        callers = Callers(store, queue, placing)
        execution.serve_calls(callers)
        begins: dict[str, Begin] = dict.fromkeys((WORKFLOW, EVERY), workflows.begin)
        begins |= {WAIT: PlainWaits(store).begin, WATCHED: Watches(store).begin}
        outbox = Outbox(store, workflows, calls=callers.act)
        self._driver = Driver(self._link, outbox, begins, self._link.beside)
        self._cluster = Cluster(
            store, queue, clock, execution, node=NAME, lease_seconds=FOREVER, dead_after=FOREVER, is_exclusive=True
        )
        self._firing = Firing(store, queue, clock, metrics)
        executors = self._make_executors()
        self._node = Node(
            NAME, ("coordinator", "scheduler", "agent"), tuple(executors), (), SLOTS, "", "", start, start, 0
        )
        self._agent = Agent(
            self._node, self._link, executors, outputs, NoKeeper(), clock, lease_seconds=FOREVER,
            output_limit=OUTPUT_LIMIT,
        )  # fmt: skip
        self._jobs = Jobs(store, queue)
        insight = Insight(store, outputs, clock, metrics, node=NAME, checks={})
        self.calls = LocalCalls(self._jobs, insight, self._own.add)

    def _make_executors(self) -> dict[str, Executor]:
        python = PythonExecutor(NoKeeper(), self.clock, slots=SLOTS, find_here=self._find_handler)
        recorded = KINDS.keys() - BY_SERVERS - {"python"}
        others = {kind: Recorder(kind, SLOTS, self._record, self.clock.now) for kind in sorted(recorded)}
        return {"python": python, **others}

    def _record(self, recorded: Recorded) -> Any:
        self.recorded.append(recorded)
        return None if self._perform is None else self._perform(recorded)

    def _find_handler(self, name: str) -> Function:
        """Return a handler as one that runs in this process, whatever it is."""
        try:
            found = self._own.get(name) or resolve(name, self._jobs_directory)
        except Invalid as error:
            error.hint = install_advice(error, name, self._jobs_directory) or error.hint
            return partial(_refuse, error)
        return self._here(name, found)

    def _here(self, name: str, found: Handler) -> Function:
        """A plain handler may block, or have an event loop of its own."""

        @wraps(found.function)
        async def run(context: Context) -> Any:
            try:
                if found.is_async:
                    return await found.function(context)
                return await asyncio.to_thread(found.function, context)
            except ModuleNotFoundError as error:
                if advice := install_advice(error, name, self._jobs_directory):
                    error.msg = f"{error.msg} ({advice})"
                raise

        return run

    # ── life ──
    async def open(self) -> None:
        await self._agent.join()
        await self._cluster.campaign()
        await self._cluster.lead()
        self._terms = await self._cluster.own_segments()

    async def close(self) -> None:
        self._agent.workload.let_go_all()
        await self._agent.drain(0)
        await self._store.close()
        await self.loop.shutdown_default_executor()

    # ── calls ──
    async def submit(self, document: Document) -> Job:
        job = await self.calls.submit(document)
        await self._equip([job.id])
        await self._settle()
        return job

    async def submit_all(self, document: Document) -> list[Job]:
        made = await self.calls.submit_all(document)
        await self._equip([job.id for job in made])
        await self._settle()
        return made

    async def _equip(self, job_ids: list[int]) -> None:
        """Let the one agent of this world have every label that a job asks for, and look for its kind of work."""
        jobs = await self._jobs.get_many(job_ids)
        self._kinds |= {job.kind for job in jobs}
        self._segments |= {job.segment for job in jobs}
        self._firing.own({segment: self._terms[segment] for segment in self._segments})
        self._wake_at = self.clock.now()
        asked = {label for job in jobs for label in job.policy.labels}
        if not asked <= set(self._node.labels):
            self._node = replace(self._node, labels=tuple(sorted({*self._node.labels, *asked})))
            await self._link.hello(self._node)

    async def settled(self, call: Awaitable[Any]) -> Any:
        """Return what a call answers, once all that follows from it at this moment is done."""
        answer = await call
        await self._settle()
        return answer

    # ── time ──
    async def pass_until(self, end: Moment) -> None:
        """Live on to a moment: what is due at the end itself fires, too."""
        await self._settle()
        while (moment := await self._next_moment()) is not None and moment <= end:
            self.clock.set(moment)
            await self._settle()
        self.clock.set(end)

    async def outage(self, end: Moment) -> None:
        """Nothing happens up to a moment: whatever runs is lost, and what falls due is found missed."""
        await self._settle()
        self._agent.workload.let_go_all()
        await self.loop.idle()
        await self._agent.delivery.report_last()
        self.clock.set(end)
        await self._settle()

    async def _next_moment(self) -> Moment | None:
        """Return when something happens: a trigger is due, a run may go on, somebody who sleeps wakes."""
        due = await self._store.load_due(sorted(self._segments), (-1, NEVER), NEVER, 1)
        moments = (due[0].next_at if due else None, self._sweep_at, self.loop.next_timer())
        soonest = min((moment for moment in moments if moment is not None), default=None)
        return None if soonest is None else max(soonest, self.clock.now())

    async def _settle(self) -> None:
        for _ in range(ROUNDS):
            await self._fire()
            await self._sweep()
            await self._work()
            await self._drive()
            if self._wake_at > self.clock.now() and not any(watch.is_due for watch in self._watches.values()):
                return
        raise Error(f"something goes on for ever at one moment: {ROUNDS:,} rounds did not end it")

    async def _fire(self) -> None:
        """The scheduler's part, if there is any at this moment."""
        firing, is_told = self._firing, await self._is_told("due")
        if not is_told and self._wake_at > self.clock.now():
            return
        await firing.refill(sweep=is_told)
        self._wake_at = await firing.tick()
        if firing.is_behind:
            await firing.catch_up()
            self._wake_at = self.clock.now()

    async def _sweep(self) -> None:
        """The coordinator's part: let go on what has waited long enough."""
        is_due = self._sweep_at is not None and self._sweep_at <= self.clock.now()
        if await self._is_told("waiting") or is_due or self._agent.busy:
            seconds = await self._cluster.sweep()
            self._sweep_at = None if seconds is None else self.clock.now() + round(seconds * SECOND)

    async def _work(self) -> None:
        """The agent's part: claim, let handlers run until they end or sleep, report."""
        agent = self._agent
        if await self._is_told("runs"):
            # What workflows hold, nobody has looked at.
            agent.workload.hungry = set(agent.workload.free) if WORKFLOW in self._kinds else self._kinds - BY_SERVERS
            while agent.is_hungry and await agent.claim():
                pass
        if await self._is_told("cancel"):
            await agent.leash.beat()
        timer = self.loop.next_timer()
        if agent.busy or (timer is not None and timer <= self.clock.now()):
            await self.loop.idle()
            await self._deliver_news()
        while agent.delivery.waiting:
            await agent.delivery.report()

    async def _drive(self) -> None:
        """What servers do themselves, if there is any at this moment."""
        if await self._is_told("endings"):
            while await self._driver.step():
                pass

    async def _deliver_news(self) -> None:
        delivery = self._agent.delivery
        if delivery.phases_changed.is_set():
            await delivery.send_phases()
        if delivery.progress_made.is_set():
            await delivery.send_progress()

    async def _is_told(self, topic: str) -> bool:
        """Return whether something was announced since the last look."""
        watch = self._watches[topic]
        return watch.is_due and await watch.wait(0)


async def _callback_secret() -> str:
    return "test"


async def _refuse(error: Invalid, _: Context) -> None:
    raise error
