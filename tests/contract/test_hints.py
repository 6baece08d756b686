"""Which agents of a server are told of runs that wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from horae.app.machine import SystemClock, end_task
from horae.core.definitions import Submission
from horae.core.model import Node, Overlap
from horae.core.policy.demands import Demand, Use
from horae.core.runs.orders import NewRun, Order
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.rpc.agents.hints import FEW_TOLD, MANY_TOLD, WorkHints
from horae.testing import make_job

from ..claiming import claim

DEADLINE = 60.0


class Crowd:
    """Agents of one server, and who of them was told."""

    def __init__(self, store: Store) -> None:
        self.store, self.queue = store, LocalQueue()
        self.looks = 0
        self.hints = WorkHints(self, self.queue, SystemClock())  # type: ignore[arg-type]  # the one thing it asks
        self.told: list[str] = []
        self._news = asyncio.Event()

    async def load_backlog(self, kinds: list[str], limit: int) -> object:
        found = await self.store.load_backlog(kinds, limit)
        self.looks += 1
        self._news.set()
        return found

    def idle(
        self, name: str, room: Mapping[str, int] | None = None, labels: tuple[str, ...] = (), since: int = 0
    ) -> None:
        """An agent whose claim, begun after so many announcements, left this room."""
        self.hints.note_claim(name, node(name, labels), room or {"python": 2}, since, lambda: self._note(name))

    def _note(self, name: str) -> None:
        self.told.append(name)
        self._news.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    async def order(self, count: int = 1, **fields: object) -> None:
        new = NewRun(**{"job_id": 1, "kind": "python", "priority": 5, "overlap": Overlap.ALLOW, **fields})  # type: ignore[arg-type]
        await self.store.enqueue([Order(new) for _ in range(count)])
        self.queue.announce("runs")


def node(name: str, labels: tuple[str, ...]) -> Node:
    return Node(
        name=name, roles=("agent",), version="1", address="", started_at=0, heartbeat_at=0, beat=0, labels=labels,
        slots=2, kinds=("python", "shell"),
    )  # fmt: skip


@pytest.fixture
async def crowd(store: Store) -> AsyncIterator[Crowd]:
    await store.submit([Submission([make_job(1)])])
    crowd = Crowd(store)
    task = asyncio.create_task(crowd.hints.run())
    yield crowd
    await end_task(task)


async def test_as_many_are_told_as_there_are_runs_for(crowd: Crowd):
    for number in range(100):
        crowd.idle(f"a{number}")

    await crowd.order(3)
    await crowd.until(lambda: bool(crowd.told))

    assert len(crowd.told) == 3
    assert crowd.looks == 1


async def test_with_more_runs_than_are_counted_everybody_is_told(crowd: Crowd):
    for number in range(50):
        crowd.idle(f"a{number}")

    await crowd.order(1000)
    await crowd.until(lambda: bool(crowd.told))

    assert len(crowd.told) == 50


async def test_only_who_could_take_a_run_is_told(crowd: Crowd):
    crowd.idle("shells", {"shell": 2})
    crowd.idle("plain")
    crowd.idle("gpu", labels=("gpu", "eu"))
    crowd.idle("pinned")
    crowd.idle("full", {"python": 0})

    await crowd.order(needs=("gpu",))
    await crowd.order(pin="pinned")
    await crowd.until(lambda: len(crowd.told) == 2)

    assert sorted(crowd.told) == ["gpu", "pinned"]


async def test_runs_that_few_may_take_hide_none_of_the_others(crowd: Crowd):
    await crowd.order(5, pin="elsewhere", priority=9)
    await crowd.order(5, needs=("gpu",), priority=9)
    await crowd.order(2)

    found = await crowd.store.load_backlog(["python", "shell"], 3)

    assert sorted((one.pin or "", tuple(one.needs), one.runs) for one in found) == [
        ("", (), 2), ("", ("gpu",), 3), ("elsewhere", (), 3)
    ]  # fmt: skip


async def test_whoever_is_told_and_does_not_claim_is_passed_over(crowd: Crowd):
    """It may be cordoned, or its line about to break."""
    crowd.idle("cordoned")
    crowd.idle("free")

    await crowd.order()
    await crowd.until(lambda: len(crowd.told) == 2)

    assert crowd.told == ["cordoned", "free"]


async def test_who_has_claimed_is_told_of_what_comes_next(crowd: Crowd):
    crowd.idle("one")
    await crowd.order()
    await crowd.until(lambda: crowd.told == ["one"])
    await claim(crowd.store, "one", "python", [], 2)
    crowd.idle("one", {"python": 1}, since=crowd.hints.announcements)

    await crowd.order()
    await crowd.until(lambda: len(crowd.told) == 2)

    assert crowd.told == ["one", "one"]


async def test_a_claim_under_way_while_runs_were_announced_does_not_make_idle(crowd: Crowd):
    crowd.idle("other", {"shell": 1})
    crowd.queue.announce("runs")
    await crowd.until(lambda: crowd.looks == 1)

    crowd.idle("late", since=0)

    assert crowd.told == ["late"]


async def test_what_was_not_found_is_not_asked_for_until_something_is_announced(crowd: Crowd):
    assert not crowd.hints.none_wait(["python"])
    crowd.idle("one")
    crowd.queue.announce("runs")
    await crowd.until(lambda: crowd.looks == 1)
    await asyncio.sleep(0)  # the look has been noted

    assert crowd.hints.none_wait(["python"])
    assert not crowd.hints.none_wait(["python", "shell"])
    crowd.queue.announce("runs")
    assert not crowd.hints.none_wait(["python"])


async def test_who_has_left_is_not_told(crowd: Crowd):
    crowd.idle("gone")
    crowd.idle("there")
    crowd.hints.forget("gone")

    await crowd.order(2)
    await crowd.until(lambda: bool(crowd.told))

    assert crowd.told == ["there"]


async def demand_of(crowd: Crowd) -> int:
    return (await crowd.store.demand_ids([Demand((Use("at_once:job:1"),))]))[0]


async def test_agents_are_told_of_runs_that_demand_more_than_a_slot_and_a_claim_is_made_for_them(crowd: Crowd):
    for number in range(50):
        crowd.idle(f"a{number}")
    crowd.idle("shells", {"shell": 2})

    await crowd.order(demand=await demand_of(crowd))
    await crowd.until(lambda: bool(crowd.told))

    assert len(crowd.told) == FEW_TOLD
    assert not crowd.hints.none_wait({"python"})
    assert crowd.hints.none_wait({"shell"})


async def test_of_very_many_demanding_runs_some_agents_are_told_at_once_and_others_when_there_is_news(crowd: Crowd):
    for number in range(100):
        crowd.idle(f"a{number}")
    await crowd.order(1001, demand=await demand_of(crowd))
    await crowd.until(lambda: bool(crowd.told))
    assert len(crowd.told) == MANY_TOLD

    crowd.queue.announce("runs")
    await crowd.until(lambda: len(crowd.told) > MANY_TOLD)

    assert len(set(crowd.told)) == 2 * MANY_TOLD
