"""The ledger against a model of it: any schedule, any policy, any outages, any changes, and still every due
moment has exactly one record, and the one that the policy asks for.

The model shares nothing with the product: moments are worked out by stepping through seconds.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from horae.core.model import SECOND, Misfire, Policy, Retry, Run, State
from horae.core.runs.ledger import CATCH_UP, account, plan_firing
from horae.core.runs.orders import NEVER, Definition, Due
from horae.core.work.policies import policy_text
from horae.service.jobs import Jobs
from horae.stores import migrate
from horae.stores.sqlite import SqliteStore
from horae.testing import START, FakeClock

from .parts import Told, come_round, draft, fire_due, ledger, live_until, only, scheduler

# ── the model, in whole seconds ──


@dataclass
class Plan:
    every: int = 0  # seconds from creation
    cron: int = 0  # minutes: */n
    end: int | None = None  # seconds after creation

    def document(self, created: int) -> dict[str, Any]:
        doc: dict[str, Any] = {"every": f"{self.every}s"} if self.every else {"cron": f"*/{self.cron} * * * *"}
        if self.end is not None:
            doc["end_at"] = created + self.end
        return doc

    def matches(self, at: int, created: int) -> bool:
        if self.end is not None and at > created + self.end:
            return False
        if self.every:
            return at > created and (at - created) % self.every == 0
        return at >= created and at % 60 == 0 and at // 60 % 60 % self.cron == 0

    def after(self, at: int, created: int) -> int | None:
        """Return the first match after a second; nothing lies further ahead than two hours."""
        limit = at + 7200 if self.end is None else min(at + 7200, created + self.end)
        step = self.every or 60
        first = created if self.every else 0
        candidate = max(first, at + 1 - (at + 1 - first) % step)
        while candidate <= limit:
            if candidate > at and self.matches(candidate, created):
                return candidate
            candidate += step
        return None


@dataclass
class Model:
    plan: Plan
    policy: str
    limit: int
    created: int
    next: int | None = None
    last: int = -1
    paused: bool = False
    records: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.next = self.plan.after(self.created - 1, self.created)

    def look(self, now: int) -> None:
        """A scheduler sees what is due."""
        pending = []
        while self.next is not None and self.next <= now:
            pending.append(self.next)
            self.last = self.next
            self.next = self.plan.after(self.next, self.created)
        if self.policy == "skip":
            self.records += [(at, "skipped" if now - at > 60 else "run") for at in pending]
            return
        limit = 1 if self.policy == "run_latest" else self.limit
        left_out = max(0, len(pending) - limit)
        word = "coalesced" if limit else "skipped"
        self.records += [(at, word if index < left_out else "run") for index, at in enumerate(pending)]

    def live(self, now: int, end: int) -> None:
        """A scheduler is there all the time."""
        self.look(now)
        while self.next is not None and self.next <= end:
            self.look(self.next)

    def begin_anew(self, plan: Plan, now: int) -> None:
        self.look(now)
        self.plan, self.created = plan, now
        self.next = None if self.paused else plan.after(max(now - 1, self.last), now)

    def pause(self, now: int) -> None:
        self.look(now)
        self.paused, self.next = True, None

    def resume(self, now: int) -> None:
        if self.paused:
            self.paused, self.next = False, self.plan.after(max(now, self.last), self.created)

    def move(self, now: int, to: int) -> None:
        if to != self.next:
            self.look(now)
            self.next = to


# ── the product, driven through the same life ──


class World:
    """One store and one clock for all examples: opening a database takes longer than an example."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.store = SqliteStore(path, clock=self.clock)
        self.queue = Told()
        self.jobs = Jobs(self.store, self.queue)

    def now(self) -> int:
        return self.clock.now() // SECOND

    async def live_through(self, plan: Plan, policy: str, limit: int, life: list[tuple[str, int]]) -> None:
        self.clock.advance(61)
        misfire: Any = {"policy": policy, "limit": limit} if policy == "run_all" else policy
        fields: dict[str, Any] = {"misfire": misfire, "overlap": "allow"}
        (job,) = (await self.jobs.submit([self.draft(plan, fields)])).jobs
        model = Model(plan, policy, limit, self.now())
        firing = scheduler(self.store, self.clock)
        for what, amount in life:
            firing = await self.step(what, amount, job.id, model, firing, fields)
        await fire_due(firing)
        model.look(self.now())
        await self.compare(job.id, model)
        await self.jobs.delete(job.id)

    def draft(self, plan: Plan, fields: dict[str, Any], name: str = "job") -> Any:
        document = plan.document(self.now())
        if "end_at" in document:
            document["end_at"] = f"{_rfc(document['end_at'])}"
        return draft(name, triggers=[document], **fields)

    async def step(self, what: str, amount: int, job_id: int, model: Model, firing: Any, fields: dict[str, Any]) -> Any:
        now = self.now()
        if "due" in self.queue.take():
            await firing.refill(sweep=True)
        if what == "up":
            await fire_due(firing)
            await live_until(firing, self.store, self.clock, (now + amount) * SECOND)
            model.live(now, now + amount)
        elif what == "down":
            self.clock.advance(amount)
        elif what == "crash":
            return scheduler(self.store, self.clock)
        elif what == "part":  # a scheduler that dies in the middle of its work
            await come_round(firing)
            await fire_due(scheduler(self.store, self.clock))
            model.look(now)
        elif what == "pause":
            await self.jobs.set_paused(job_id, True)
            model.pause(now)
        elif what == "resume":
            await self.jobs.set_paused(job_id, False)
            model.resume(now)
        elif what == "rename":
            job = await self.jobs.get(job_id)
            await self.jobs.triggers.patch(only(job).id, data={"version": job.version})
        elif what == "reschedule":
            plan = Plan(every=amount % 50 + 3)
            trigger = only(await self.jobs.get(job_id))
            await self.jobs.triggers.replace(trigger.id, self.draft(plan, fields).triggers[0])
            if plan != model.plan:
                model.begin_anew(plan, now)
        elif what == "move" and not model.paused:
            trigger = only(await self.jobs.get(job_id))
            await self.jobs.triggers.patch(trigger.id, next_at=(now + amount) * SECOND)
            model.move(now, now + amount)
        return firing

    async def compare(self, job_id: int, model: Model) -> None:
        runs = await ledger(self.store, job_id)
        assert [(run.due_at // SECOND, _word(run)) for run in runs] == model.records
        trigger = only(await self.jobs.get(job_id))
        assert trigger.next_at == (None if model.next is None else model.next * SECOND)
        by_id = {run.id: run for run in runs}
        for run in runs:
            assert run.created_at >= run.due_at
            if run.state is State.COALESCED:
                assert run.into_run_id is not None
                target = by_id[run.into_run_id]
                assert target.state is State.QUEUED
                assert target.due_at > run.due_at


def _word(run: Run) -> str:
    return {State.QUEUED: "run", State.COALESCED: "coalesced", State.SKIPPED: "skipped"}[run.state]


def _rfc(second: int) -> str:
    return datetime.datetime.fromtimestamp(second, datetime.UTC).isoformat()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[asyncio.Runner, World]]:
    with asyncio.Runner() as runner:
        path = tmp_path / "horae.db"
        migrate.migrate_sqlite(path)
        world = World(path)
        runner.run(world.store.open())
        yield runner, world
        runner.run(world.store.close())


plans = st.one_of(
    st.builds(Plan, every=st.integers(2, 90), end=st.none() | st.integers(1, 600)),
    st.builds(Plan, cron=st.sampled_from([1, 2, 7])),
)
steps = st.one_of(
    st.tuples(st.just("up"), st.integers(0, 200)),
    st.tuples(st.just("down"), st.integers(1, 400)),
    st.tuples(st.sampled_from(["crash", "part", "pause", "resume", "resume", "rename"]), st.just(0)),
    st.tuples(st.just("reschedule"), st.integers(0, 200)),
    st.tuples(st.just("move"), st.integers(1, 300)),
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    plan=plans,
    policy=st.sampled_from(["run_latest", "run_all", "skip"]),
    limit=st.integers(0, 4),
    life=st.lists(steps, min_size=1, max_size=10),
)
def test_every_due_moment_has_exactly_the_record_the_policy_asks_for(
    world: tuple[asyncio.Runner, World], plan: Plan, policy: str, limit: int, life: list[tuple[str, int]]
):
    runner, parts = world
    event(policy)
    runner.run(parts.live_through(plan, policy, limit, life))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    policy=st.sampled_from(["run_latest", "run_all", "skip"]),
    outage=st.integers(CATCH_UP - 2, 2 * CATCH_UP + 3),
    change=st.sampled_from(["part", "pause", "reschedule", "move", "rename", "crash"]),
)
def test_so_it_has_after_an_outage_of_thousands_of_moments(
    world: tuple[asyncio.Runner, World], policy: str, outage: int, change: str
):
    runner, parts = world
    life = [("up", 3), ("down", outage), (change, 40), ("resume", 0), ("up", 5)]
    runner.run(parts.live_through(Plan(every=1), policy, 3, life))


# ── the decision alone ──


def known_of(schedule: str, policy: Policy) -> Any:
    return plan_firing(Definition(7, 1, 3, schedule, START, None, "python", policy_text(policy)))


@given(
    every=st.integers(1, 400),
    late=st.integers(0, 3000),
    misfire=st.sampled_from(Misfire),
    limit=st.integers(0, 1000),
    reserved=st.none() | st.just(99),
)
def test_a_fire_moves_forward_and_accounts_for_a_gapless_stretch(
    every: int, late: int, misfire: Misfire, limit: int, reserved: int | None
):
    policy = Policy(misfire=misfire, misfire_limit=limit, retry=Retry())
    known = known_of(f'{{"every":"{every}s"}}', policy)
    at = START + every * SECOND
    now = at + late * SECOND

    fire = account(Due(at, 7, 1, 5, reserved), known, now)

    moments = [moment for moment, _, _ in fire.passed] + ([fire.due_at] if fire.born else [])
    assert moments[0] == at == fire.cur_at
    assert moments == list(range(at, moments[-1] + 1, every * SECOND))
    assert fire.last_at == moments[-1] <= now
    assert fire.next_at == moments[-1] + every * SECOND
    states = {state for _, state, _ in fire.passed}
    assert len(states) <= 1
    if State.COALESCED in states:
        assert fire.born or fire.reserve
    if reserved is not None and not fire.born:
        assert fire.reserve


def test_a_schedule_that_is_over_is_never_due_again():
    known = known_of('{"at":"2027-01-15T08:00:05Z"}', Policy())

    fire = account(Due(START + 5 * SECOND, 7, 1, 5, None), known, START + 10 * SECOND)

    assert (fire.born, fire.next_at) == (True, NEVER)
