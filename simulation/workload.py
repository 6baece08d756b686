"""The clients: they submit jobs, ask for runs, and change their minds, through any server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from campaign.history import (
    DELETE,
    FAIL,
    INFO,
    OK,
    ORDER,
    PAUSE,
    RESUME,
    RUN,
    SUBMIT,
    UPDATE,
    Operation,
    Plan,
    QueuePlan,
)
from campaign.workload import data_of, document_of

from horae.core.definitions import Idempotency
from horae.core.work import specs
from horae.errors import Error, Unavailable
from horae.service.jobs import Jobs
from simulation.cluster import Cluster, Place
from simulation.loop import Process
from simulation.world import SECOND, World

ZONES = ("UTC", "Europe/Vienna", "Asia/Kathmandu", "America/St_Johns", "Australia/Lord_Howe")
OVERLAPS = ("forbid", "forbid", "allow", "queue", "replace")
MISFIRES = ("run_latest", "run_latest", "run_all", "skip")
REQUEST = 4.0  # seconds an answer may take before another node is asked
TRIES = 12

Call = Callable[[Jobs], Awaitable[Any]]


class Refused(Exception):
    """The server said no: it did not happen."""


class Unknown(Exception):
    """Nobody knows whether it happened."""


class Unheard(Exception):
    """It did not happen: nobody was there."""


class Workload:
    def __init__(self, world: World, cluster: Cluster, *, jobs: int) -> None:
        self._world, self._cluster, self._count = world, cluster, jobs
        self.jobs: dict[str, int] = {}  # name → id
        self.made: dict[str, Plan] = {}  # as they were first
        self._plans: dict[str, tuple[Plan, str]] = {}  # of those, with what their witnesses are told
        self._paused: set[str] = set()
        self._unsure: set[str] = set()  # a change of it was not answered: it may happen at any time
        self.cancelled: set[int] = set()  # runs that somebody wanted cancelled
        self.refused: set[str] = set()  # keys of requests that a server refused: to ask again is no use
        self._keys = 0

    # ── plans ──
    def _scheduled(self, number: int) -> tuple[Plan, str]:
        chance = self._world.chance
        plan = Plan(
            name=f"job-{number}", overlap=chance.choice(OVERLAPS), misfire=chance.choice(MISFIRES),
            misfire_limit=chance.choice((2, 5, 100)), talks=chance.random() < 0.3, stubborn=chance.random() < 0.2,
        )  # fmt: skip
        if chance.random() < 0.3:
            plan = replace(plan, seconds=chance.choice((10, 15, 20, 30)), minutes=chance.choice((1, 1, 2)),
                           timezone=chance.choice(ZONES))  # fmt: skip
        else:
            plan = replace(plan, every=chance.randint(40, 300) * SECOND // 10)
        if chance.random() < 0.3:
            plan = replace(plan, attempts=chance.choice((2, 3)))
        if chance.random() < 0.15:
            plan = replace(plan, timeout=2.0)
        if chance.random() < 0.15:
            plan = replace(plan, start_deadline=5.0)
        return plan, self._labour(plan)

    def _labour(self, plan: Plan) -> str:
        """Least and most seconds, per cent of attempts that fail, habits: what a witness is told."""
        most = self._world.chance.choice((0.1, 0.5, 2.0, 8.0, 25.0, 60.0))
        habits = "talks" * plan.talks + "stubborn" * plan.stubborn or "none"
        return f"witness 0.0 {max(most, 4.0) if plan.timeout else most} {40.0 if plan.attempts > 1 else 5.0} {habits}"

    # ── requests ──
    async def begin(self) -> None:
        for number in range(self._count):
            await self.submit(*self._scheduled(number))

    async def run(self, seconds: float) -> None:
        """Ask for more, until the time is up."""
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                group.create_task(self._run_once_jobs())
                group.create_task(self._run_now())
                group.create_task(self._change())
                group.create_task(self._cancel())
        except TimeoutError:
            return

    async def _run_once_jobs(self) -> None:
        while True:
            await asyncio.sleep(self._world.between(5, 25))
            soon = self._world.now() // 1000 * 1000 + self._world.chance.randint(1000, 9000) * 1000
            plan = Plan(name=f"once-{self._keys}", at=self._world.chance.choice((0, soon)))
            self._keys += 1
            await self.submit(plan, self._labour(plan))

    async def _run_now(self) -> None:
        while True:
            await asyncio.sleep(self._world.between(2, 12))
            self._keys += 1
            key = f"run-{self._keys}"
            if jobs := {name: job_id for name, job_id in self.jobs.items() if not self.made[name].is_special}:
                name, job_id = self._world.chance.choice(list(jobs.items()))
                call = run_with(self.made[name], job_id, key)
                for _ in range(self._world.chance.choice((1, 1, 1, 2))):
                    await self.insist(Operation(RUN, key, FAIL, 0, 0, job_id=job_id), call)

    async def _change(self) -> None:
        """Pause, resume, give another schedule, delete. Of one job, nothing before the last change was answered."""
        chance = self._world.chance
        while True:
            await asyncio.sleep(self._world.between(2, 20))
            if names := sorted(self._plans.keys() - self._unsure):
                name = chance.choice(names)
                await self._change_one(name, chance.choice((PAUSE, PAUSE, UPDATE, DELETE)))

    async def _change_one(self, name: str, kind: str) -> None:
        job_id = self.jobs[name]
        if kind == PAUSE and name in self._paused:
            kind = RESUME
        self._keys += 1
        blank = Operation(kind, f"{name} {kind} {self._keys}", FAIL, 0, 0, job_id=job_id)
        if kind == UPDATE:
            plan, labour = self._plans[name]
            every = self._world.chance.randint(40, 300) * SECOND // 10
            every += SECOND * (every == plan.every)  # the same one would not begin anew
            plan = replace(plan, every=every, seconds=None, minutes=None)
            draft = specs.parse_job(document_of(plan, labour))  # which is not paused
            self._plans[name] = (plan, labour)
            self._paused.discard(name)
            answer = await self.insist(replace(blank, plan=plan), lambda jobs: jobs.replace(job_id, draft))
        elif kind == DELETE:
            answer = await self.insist(blank, lambda jobs: jobs.delete(job_id))
            self._unsure.add(name)
        else:
            answer = await self.insist(blank, lambda jobs: jobs.set_paused(job_id, kind == PAUSE))
            self._paused ^= {name} if answer is not None else set()
        if any(one.outcome == INFO for one in self._world.operations if one.key == blank.key):
            self._unsure.add(name)

    async def _cancel(self) -> None:
        while True:
            await asyncio.sleep(self._world.between(5, 40))
            runs = sorted({witness.run for witness in self._world.witnesses[-5:]})
            if runs:
                await self.cancel(self._world.chance.choice(runs))

    async def cancel(self, run_id: int) -> None:
        self.cancelled.add(run_id)
        await self._try(partial(_cancel, run_id))

    async def end(self) -> None:
        """Let nothing more come due. The cluster is healed."""
        for name, job_id in self.jobs.items():
            if not self.made[name].has_moments:
                continue  # it follows what still runs
            self._keys += 1
            await self.insist(
                Operation(PAUSE, f"{name} end {self._keys}", FAIL, 0, 0, job_id=job_id),
                partial(_pause, job_id),
            )

    async def make_queue(self, queue: QueuePlan) -> None:
        """Before there are any faults."""
        document = {"weights": queue.weights, "concurrency": queue.concurrency}
        await self._send(self._cluster.servers[0], lambda jobs: jobs.queues.put(queue.name, document))

    async def submit(self, plan: Plan, labour: str) -> None:
        key = f"submit-{plan.name}"
        draft = specs.parse_job(document_of(plan, labour))
        call: Call = lambda jobs: jobs.submit([draft], idempotency=Idempotency("client submit", key, key))  # noqa: E731
        answer = await self.insist(Operation(SUBMIT, key, FAIL, 0, 0, plan=plan), call)
        if answer is not None:
            self.jobs[plan.name], self.made[plan.name] = answer.jobs[0].id, plan
            if plan.at is None and plan.has_moments:
                self._plans[plan.name] = (plan, labour)

    async def _try(self, call: Call) -> None:
        with suppress(Refused, Unheard, Unknown):
            await self._send(self._world.chance.choice(self._cluster.servers), call)

    async def insist(self, blank: Operation, call: Call) -> Any:
        """Send a request until it is answered."""
        for _ in range(TRIES):
            place = self._world.chance.choice(self._cluster.servers)
            blank = replace(blank, invoked_at=self._world.now())
            try:
                answer = await self._send(place, call)
            except (Refused, Unheard, Unknown) as failure:
                outcome = INFO if isinstance(failure, Unknown) else FAIL
                self._note(replace(blank, outcome=outcome, answered_at=self._world.now()), str(failure))
                if isinstance(failure, Refused):
                    self.refused.add(blank.key)
                    return None
            except asyncio.CancelledError:  # the time is up: whether this one happened, nobody knows
                self._note(replace(blank, outcome=INFO, answered_at=self._world.now()), "not waited for")
                raise
            else:
                self._note(_read(replace(blank, outcome=OK, answered_at=self._world.now()), answer))
                return OK if answer is None else answer
            await asyncio.sleep(0.5)
        return None

    def _note(self, operation: Operation, why: str = "") -> None:
        self._world.operations.append(operation)
        self._world.tell(
            f"{operation.kind} {operation.key}: {operation.outcome} {operation.run_id or operation.job_id or ''} {why}"
        )

    async def _send(self, place: Place, call: Call) -> Any:
        """One request to one server."""
        server = self._cluster.server(place)
        if server is None or place.process is None:
            raise Unheard("nobody listens there")
        answer: asyncio.Future[Any] = self._world.loop.create_future()
        process: Process = place.process
        delay = self._cluster.network.delay
        tasks: set[asyncio.Task[None]] = set()

        async def handle() -> None:
            try:
                result = await call(server.jobs)
            except Error as error:
                self._world.later(delay(), _refuse, answer, error)
            else:
                self._world.later(delay(), _answer, answer, result)

        self._world.loop.tell(process, lambda: tasks.add(asyncio.create_task(handle())), after=delay())
        try:
            async with asyncio.timeout(REQUEST):
                return await answer
        except TimeoutError:
            raise Unknown("no answer") from None


def _answer(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _refuse(answer: asyncio.Future[Any], error: Error) -> None:
    if not answer.done():
        unknown = isinstance(error, Unavailable) or error.status >= 500
        answer.set_exception((Unknown if unknown else Refused)(f"{error.code} {error.message}"))


async def _cancel(run_id: int, jobs: Jobs) -> Any:
    return await jobs.cancel(run_id)


async def _pause(job_id: int, jobs: Jobs) -> Any:
    return await jobs.set_paused(job_id, True)


def run_with(plan: Plan, job_id: int, key: str) -> Call:
    data = data_of(plan, key)
    return lambda jobs: jobs.run_now(job_id, data=data, idempotency=Idempotency("client run", key, key))


def _read(heard: Operation, answer: Any) -> Operation:
    """Return what an answer tells."""
    if heard.kind in (RUN, ORDER):
        return replace(heard, run_id=answer.id)
    if heard.kind == UPDATE:
        return replace(heard, created_at=answer.triggers[0].created_at)
    if heard.kind != SUBMIT:
        return heard
    job = answer.jobs[0]
    next_at = job.triggers[0].next_at if job.triggers else None
    return replace(heard, job_id=job.id, created_at=job.created_at, next_at=next_at, replayed=answer.replayed)
