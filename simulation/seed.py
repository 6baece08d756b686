"""One seed: a cluster is made, lived through and judged."""

from __future__ import annotations

import asyncio
import gc
import random
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import structlog
from campaign import history as past
from campaign.case import Violation
from campaign.checker import RED, Verdict, judge

from horae.app.machine import end_task
from horae.core.model import Attempt, JobFilter, Run, RunFilter
from simulation.cluster import Cluster
from simulation.crowd import Crowd
from simulation.database import Store
from simulation.faults import Faults
from simulation.flows import Flows
from simulation.loop import Livelock, Stuck
from simulation.processes import Settings
from simulation.workload import Workload
from simulation.world import World

CALM = 5.0  # seconds before the first fault
QUIET = 200.0  # seconds in which everything must have come to its end, once all is healed
SETTLED = 30.0  # seconds after which no request of earlier can have an effect any more
MOST_STEPS = 3_000_000
MEMORY = Path("/dev/shm")  # a disk that costs nothing, where there is one


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    verdict: Verdict
    digest: int
    steps: int
    seconds: float  # of virtual time
    shape: str

    @property
    def is_good(self) -> bool:
        return self.verdict.color != RED


def live_through(
    seed: int,
    *,
    seconds: float | None = None,
    faults: Sequence[str] | None = None,
    told: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one seed; `seconds` of these `faults`, else as many, and those, that the seed says. `told` hears all that
    happens."""
    disk = Path(tempfile.mkdtemp(prefix="horae-simulation-", dir=MEMORY if MEMORY.is_dir() else None))
    world = World(seed, most_steps=MOST_STEPS, told=told)
    asyncio.set_event_loop(None)
    with _still(seed), _logs(world):
        try:
            life = _Life(world, disk, seconds, faults)
            failure = _run(world, life)
            verdict = _judged(life.history(), life.workload.cancelled)
            extra = [Violation("progress", failure)] if failure else life.violations
            if extra:
                verdict = Verdict(RED, [*verdict.violations, *extra], verdict.reasons, verdict.counts)
            return Outcome(seed, verdict, world.loop.digest, world.loop.steps, world.elapsed, life.shape)
        finally:
            world.loop.bury()
            life.cluster.database.close()
            shutil.rmtree(disk, ignore_errors=True)


def _judged(history: past.History, cancelled: Collection[int]) -> Verdict:
    """Return the judge of campaigns decides, but for three things that it cannot know. When a run ended is what the
    store says here, which may be long after its last sign: for one that timed out, that is no contradiction. The start
    deadline of a run by hand counts from the request, and its server may have been paused since. And these runs
    somebody wanted cancelled."""
    verdict = judge(history)
    states = {run.id: run.state for run in history.final.runs}
    known = {("result", run_id) for run_id, state in states.items() if state == "timed_out"}
    known |= {("justified", run_id) for run_id in cancelled if states.get(run_id) == "cancelled"}
    known |= {("justified", run.id) for run in history.final.runs if run.by_hand and run.reason == "start_deadline"}
    left = [one for one in verdict.violations if (one.rule, one.run) not in known]
    return Verdict(RED if left else "green", left, verdict.reasons, verdict.counts)


def _run(world: World, life: _Life) -> str:
    """Answers what went wrong with the simulation as a whole."""
    try:
        world.loop.run_until_complete(life.live())
    except Stuck:
        return "nobody has anything to do any more"
    except Livelock as error:
        return str(error)
    return ""


@contextmanager
def _still(seed: int) -> Iterator[None]:
    """Nothing moves by itself: no collection of garbage, and whoever rolls dice of his own gets the same ones."""
    state = random.getstate()
    random.seed(seed)
    _freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        random.setstate(state)


@cache
def _freeze() -> None:
    """What is loaded is not looked at again whenever garbage is collected: that would cost more than most seeds."""
    gc.collect()
    gc.freeze()


@contextmanager
def _logs(world: World) -> Iterator[None]:
    """What the product logs is part of the account."""

    def hear(_: Any, method: str, event: MutableMapping[str, Any]) -> Any:
        words = " ".join(f"{name}={value}" for name, value in event.items() if name != "event")
        world.counts[f"log {event['event']}"] += 1
        world.tell(f"log {method} {event['event']} {words}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[hear], wrapper_class=structlog.BoundLogger, cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)


class _Life:
    """From the first start to the last read."""

    def __init__(self, world: World, disk: Path, seconds: float | None, faults: Sequence[str] | None = None) -> None:
        self.world = world
        chance = world.chance
        lease = chance.choice((9.0, 15.0, 15.0, 21.0))
        settings = Settings(lease, lease / 3, slots=chance.choice((1, 2, 4)), is_shared=chance.random() < 0.8)
        self.cluster = Cluster(world, settings, disk)
        servers, agents = chance.choice((1, 2, 2, 2, 3)), chance.choice((0, 1, 2, 2, 3, 4))
        names = tuple(f"s{number}" for number in range(1, servers + 1))
        for name in names:
            self.cluster.add_server(name, is_agent=agents == 0 or chance.random() < 0.5)
        for number in range(1, agents + 1):
            self.cluster.add_agent(f"a{number}", tuple(chance.sample(names, len(names))))
        self.workload = Workload(world, self.cluster, jobs=chance.randint(2, 8))
        self.crowd = Crowd(world, self.workload)
        self.flows = Flows(world, self.cluster, self.workload)
        self.seconds = seconds if seconds is not None else chance.choice((30.0, 60.0, 90.0, 120.0))
        self.faults = Faults(world, self.cluster, faults)
        self.shape = (
            f"{servers} servers, {agents} agents, lease {lease:g} s, {self.seconds:g} s of "
            f"{', '.join(self.faults.names) or 'no faults'}"
            + (", with a crowd" if self.crowd.queue else "")
            + (", with workflows" if self.flows.is_there else "")
        )
        self._healed_at: int | None = None
        self.final = past.Final((), (), incomplete="it was not read")
        self.violations: list[Violation] = []
        self._store = Store(self.cluster.database)

    async def live(self) -> None:
        self.world.tell(self.shape)
        for place in self.cluster.places.values():
            self.cluster.start(place)
        await asyncio.sleep(CALM)
        await self.workload.begin()
        await self.crowd.begin()
        await self.flows.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.workload.run(self.seconds))
            group.create_task(self.crowd.run(self.seconds))
            group.create_task(self.flows.run(self.seconds))
            group.create_task(self.faults.run(self.seconds))
        self.world.tell("everything is healed")
        self.faults.heal()
        self._healed_at = self.world.now()
        if any(one.outcome == past.INFO for one in self.world.operations):
            await asyncio.sleep(SETTLED)
        await self._look_for_halves()
        await self.workload.end()
        telling = asyncio.create_task(self.flows.tell_the_rest())
        await self._wait_until_quiet()
        await end_task(telling)
        self.final = await self._read()

    async def _wait_until_quiet(self) -> None:
        deadline = self.world.elapsed + QUIET
        while self.world.elapsed < deadline:
            live, due, endings = self.cluster.database.connection.execute(
                "SELECT (SELECT count(*) FROM live), (SELECT count(*) FROM due WHERE next_at <= ?), "
                "(SELECT count(*) FROM endings)", (self.world.now(),),
            ).fetchone()  # fmt: skip
            if not live and not due and not endings and not self._alive():
                return
            await asyncio.sleep(1.0)
        self.violations.append(Violation("progress", f"not done {QUIET:g} s after everything was healed"))

    async def _look_for_halves(self) -> None:
        """A job that is neither paused nor deleted has a next moment, unless it has had its last."""
        page = await self._store.list_jobs(JobFilter(paused=False), None, 500)
        for job in page.items:
            if job.triggers and job.triggers[0].next_at is None and "at" not in job.triggers[0].schedule:
                what = "neither deleted nor paused, but it has no next moment"
                self.violations.append(Violation("half", what, job.name))

    def _alive(self) -> list[int]:
        return [pid for place in self.cluster.places.values() for pid in place.machine.running]

    async def _read(self) -> past.Final:
        runs: list[Run] = []
        cursor: str | None = None
        while True:
            page = await self._store.list_runs(RunFilter(tasks=True), cursor, 500)
            runs += page.items
            cursor = page.cursor
            if cursor is None:
                break
        jobs = await self._store.list_jobs(JobFilter(), None, 500)
        rows = [await self._row(run) for run in runs]
        names = tuple(job.name for job in jobs.items)
        return past.Final(tuple(rows), names, tuple(self._alive()))

    async def _row(self, run: Run) -> past.Run:
        earlier = await self._store.list_attempts(run.id) if run.attempt > 1 else []
        database = self.cluster.database
        finished_at, resumes = database.ends.get(run.id, run.finished_at), database.resumed.get(run.id)
        key = (run.data or {}).get("key") if resumes is None else f"retry-{resumes}"
        return past.Run(
            id=run.id, job_id=run.job_id, by_hand=self._is_by_hand(run),
            due_at=run.due_at, state=run.state.word,
            reason=run.reason, attempt=run.attempt, fence=run.fence, lost=run.lost, created_at=run.created_at,
            finished_at=finished_at, exit_code=run.exit_code, into_run_id=run.into_run_id,
            key=key, node=run.node, earlier=tuple(map(_attempt, earlier)), log=self._log(run), parent_id=run.parent_id,
            task=run.task, resumes=resumes, result=run.result,
        )  # fmt: skip

    def _is_by_hand(self, run: Run) -> bool:
        """Else a trigger made it, or it is a task of another, or follows another."""
        by_others = run.parent_id is not None or run.job_id in self.flows.followers
        return run.trigger_id is None and not by_others

    def _log(self, run: Run) -> str | None:
        place, _, ref = (run.output or "").partition(":")
        return self.cluster.places[place].machine.files.text(ref) if ref else None

    def history(self) -> past.History:
        world = self.world
        return past.History(
            world.operations, world.witnesses, self.final, world.faults, dict(world.counts), queues=self.crowd.queues,
            holds=self.cluster.database.holds, healed_at=self._healed_at, read_at=world.now(),
        )  # fmt: skip


def _attempt(one: Attempt) -> past.Attempt:
    return past.Attempt(one.attempt, one.fence, one.state.word, one.reason, one.exit_code)
