"""What the service tests are made of: a watched store, a queue that remembers, a scheduler driven by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from horae.core.model import SECOND, Job, Json, Moment, Node, Run, RunFilter, Trigger
from horae.core.runs.orders import NEVER
from horae.core.work import specs
from horae.core.work.specs import Draft
from horae.errors import Unavailable
from horae.ports.store import Store
from horae.ports.transport import OWN_TOPICS
from horae.queues.local import LocalQueue
from horae.service.firing import Firing
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.testing import FakeClock

# Every store is checked by tests/contract; here, where what is tested leans on how the store does it.
BOTH = pytest.mark.parametrize("probe", ["sqlite", "postgres"], indirect=True)

ALL_SEGMENTS = range(100)
ROUNDS = 2000  # of a scheduler within one moment, after which it is going in circles

Hook = Callable[..., Awaitable[None]]


class Probe:
    """A real store, with every call counted and one thing allowed to happen just before or after a call."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.calls: Counter[str] = Counter()
        self.given: list[tuple[str, Any]] = []
        self._before: dict[str, Hook] = {}
        self._after: dict[str, Hook] = {}

    def before(self, name: str, hook: Hook) -> None:
        """Let this happen once, right before the next call of a method; it gets the arguments."""
        self._before[name] = hook

    def after(self, name: str, hook: Hook) -> None:
        """Let this happen once, right after the next call of a method, before its answer is given."""
        self._after[name] = hook

    def lose_call(self, name: str) -> None:
        """The next call does not reach the store."""
        self.before(name, _unreachable)

    def lose_answer(self, name: str) -> None:
        """The next call happens, but nobody learns of it."""
        self.after(name, _unreachable)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)

        async def call(*args: Any, **fields: Any) -> Any:
            self.calls[name] += 1
            self.given.append((name, args))
            if (hook := self._before.pop(name, None)) is not None:
                await hook(*args)
            answer = await method(*args, **fields)
            if (hook := self._after.pop(name, None)) is not None:
                await hook(answer)
            return answer

        return call


class Machine(FakeClock):
    """A machine's clocks: its wall clock may say anything, its elapsed time is true."""

    jumped = 0  # µs

    def now(self) -> Moment:
        return super().now() + self.jumped

    def jump(self, seconds: float) -> None:
        self.jumped += round(seconds * SECOND)


async def _unreachable(*_: Any) -> None:
    raise Unavailable("the wire was cut")


class Told(LocalQueue):
    """A queue that remembers what was announced to other processes too."""

    def __init__(self) -> None:
        super().__init__()
        self.topics: list[str] = []

    def announce(self, topic: str) -> None:
        if topic not in OWN_TOPICS:
            self.topics.append(topic)
        super().announce(topic)

    def take(self) -> list[str]:
        """Return the topics since the last look."""
        told, self.topics = self.topics, []
        return told


def draft(name: str = "job", **fields: Any) -> Draft:
    """Return a job document, read."""
    return specs.parse_job({"name": name, "handler": "horae.handlers:noop", **fields})


def trigger_draft(**fields: Any) -> specs.TriggerDraft:
    return specs.parse_trigger(fields)


async def submitted(jobs: Jobs, name: str = "job", **fields: Any) -> Job:
    (job,) = (await jobs.submit([draft(name, **fields)])).jobs
    return job


def only(job: Job) -> Trigger:
    """Return the one trigger of a job."""
    (trigger,) = job.triggers
    return trigger


def set_clock(clock: FakeClock, moment: Moment) -> None:
    clock.advance((moment - clock.now()) / SECOND)
    assert clock.now() == moment


async def ledger(store: Store, job_id: int) -> list[Run]:
    """Every record of a job, by due moment."""
    runs: list[Run] = []
    cursor = None
    while True:
        page = await store.list_runs(RunFilter(job_id=job_id), cursor, 1000)
        runs += page.items
        cursor = page.cursor
        if cursor is None:
            return sorted(runs, key=lambda run: (run.due_at, run.id))


def words(runs: list[Run]) -> list[tuple[Moment, str, str]]:
    return [(run.due_at, run.state.word, run.reason) for run in runs]


# ── a scheduler driven by hand ──


def scheduler(store: Any, clock: FakeClock, queue: LocalQueue | None = None) -> Firing:
    firing = Firing(store, queue or LocalQueue(), clock, Metrics())
    firing.own(dict.fromkeys(ALL_SEGMENTS, 0))
    return firing


async def come_round(firing: Firing) -> Moment:
    """Return what a scheduler does in one round: fire what is due, and a portion of what was missed."""
    await firing.refill()
    wake_at = await firing.tick()
    if firing.is_behind:
        await firing.catch_up()
        return firing.now()
    return wake_at


async def fire_due(firing: Firing) -> Moment:
    """Come round until nothing more is due; answers when to look again."""
    for _ in range(ROUNDS):
        wake_at = await come_round(firing)
        if wake_at > firing.now():
            return wake_at
    raise AssertionError("the scheduler goes in circles")


async def live_until(firing: Firing, store: Store, clock: FakeClock, end: Moment) -> None:
    """Live up to a moment, waking at every due one on the way."""
    before = None
    while rows := await store.load_due(ALL_SEGMENTS, (-1, NEVER), end + 1, 1):
        assert rows != before, "the scheduler does not see what is due"
        before = rows
        set_clock(clock, max(clock.now(), rows[0].next_at))
        await fire_due(firing)
    set_clock(clock, end)


def node(name: str = "n1", **fields: Any) -> Node:
    given: Json = {
        "roles": ("agent",), "kinds": ("python",), "labels": (), "slots": 4, "version": "1", "address": "here",
        "started_at": 0, "heartbeat_at": 0, "beat": 0, **fields,
    }  # fmt: skip
    return Node(name=name, **given)
