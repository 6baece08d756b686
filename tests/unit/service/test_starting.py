"""When runs that demand more than a slot are looked for, and what new ones demand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from horae.core.model import ConcurrencyLimit, Policy
from horae.core.policy.demands import Demand, Offer, Use
from horae.core.policy.queues import Queue
from horae.core.runs.orders import Assignment, Claimed
from horae.queues.local import LocalQueue
from horae.service.policy.demands import REMEMBERED_SECONDS, Demands, is_limited
from horae.service.policy.starting import LOOK_GAP, Starting
from horae.testing import FakeClock

DEFAULT = Queue(0, "default")
OFFER = Offer("n1", None, {"python": 4}, {})
LIMITED = Policy(concurrency_limits=(ConcurrencyLimit(5),))


def assignment(run_id: int) -> Assignment:
    return Assignment(run_id, 1, 1, 1, None, 0, "python", "job", "{}", "{}", None)


class Answers:
    """A store that says what it is told to, and counts how often it is asked."""

    def __init__(self, *answers: Claimed) -> None:
        self._answers = list(answers)
        self.looks = 0
        self.asked: list[Sequence[Demand]] = []
        self.resources: dict[str, int] = {}

    async def claim_demanding(self, offers: Sequence[Offer], *, standby: str | None = None) -> Claimed:
        self.looks += 1
        return self._answers.pop(0) if self._answers else Claimed([[]], [{"python": 4}])

    async def demand_ids(self, demands: Sequence[Demand]) -> list[int]:
        self.asked.append(demands)
        return [100 + len(one.uses) for one in demands]

    async def load_resources(self) -> dict[str, int]:
        return self.resources


class Scene:
    def __init__(self, *answers: Claimed) -> None:
        self.store, self.queue, self.clock = Answers(*answers), LocalQueue(), FakeClock()
        self.runs = self.queue.watch("runs")
        self.starting = Starting(self.store, self.queue, self.clock)

    async def claim(self) -> Claimed | None:
        return await self.starting.claim([OFFER], None)

    async def woken(self, seconds: float = 30.0) -> bool:
        return await self.runs.wait(seconds)


def waiting(*run_ids: int, **fields: Any) -> Claimed:
    return Claimed([[assignment(run_id) for run_id in run_ids]], [{"python": 4 - len(run_ids)}], True)._replace(
        **fields
    )


async def test_while_nothing_demands_there_is_one_look_in_a_second():
    scene = Scene()
    for _ in range(50):
        await scene.claim()
    assert scene.store.looks == 1
    scene.clock.advance(LOOK_GAP)
    await scene.claim()
    assert scene.store.looks == 2


async def test_whoever_says_that_there_is_something_is_heard_at_once():
    scene = Scene()
    await scene.claim()
    scene.queue.announce("limits")
    assert await scene.claim() is not None
    assert await scene.claim() is None
    assert scene.store.looks == 2


async def test_what_was_not_looked_for_is_looked_for_soon():
    scene = Scene()
    await scene.claim()
    assert await scene.claim() is None
    assert await scene.woken()
    assert await scene.claim() is not None


async def test_agents_are_woken_when_a_rate_allows_the_next_start():
    scene = Scene(waiting(wait=0.01))
    await scene.claim()
    assert await scene.woken()
    assert await scene.claim() is not None


async def test_while_something_waits_it_is_looked_for_again_though_nobody_says_anything():
    scene = Scene(waiting())
    await scene.claim()
    assert await scene.woken()


async def test_a_claim_that_had_no_room_is_followed_by_a_look_with_the_next_one():
    scene = Scene(waiting(1, 2, 3, 4, is_cut=True))
    await scene.claim()
    assert await scene.claim() is not None
    assert scene.store.looks == 2


async def test_the_end_of_a_run_that_held_something_wakes_those_that_wait():
    scene = Scene(waiting(1, 2))
    await scene.claim()
    scene.starting.note_ended([7])
    assert not scene.runs.is_due
    scene.starting.note_ended([1])
    assert scene.runs.is_due
    assert await scene.claim() is not None


async def test_the_end_of_a_run_wakes_nobody_while_nothing_waits():
    scene = Scene(Claimed([[assignment(1)]], [{"python": 3}], False))
    await scene.claim()
    scene.starting.note_ended([1])
    await asyncio.sleep(0)
    assert not scene.runs.is_due


# ── what new runs demand ──
async def test_a_job_without_limits_costs_nothing():
    store = Answers()
    demands = Demands(store, FakeClock().elapsed)
    assert await demands.id_of(Policy(), DEFAULT, 1, "ann", {"a": 1}) is None
    assert not is_limited(Policy(), DEFAULT)
    assert store.asked == []


async def test_equal_demands_are_written_once_and_again_when_they_may_be_forgotten():
    store, clock = Answers(), FakeClock()
    demands = Demands(store, clock.elapsed)
    assert [await demands.id_of(LIMITED, DEFAULT, 1, "ann") for _ in range(3)] == [101] * 3
    assert len(store.asked) == 1
    clock.advance(REMEMBERED_SECONDS)
    await demands.id_of(LIMITED, DEFAULT, 1, "ann")
    assert len(store.asked) == 2


async def test_many_are_written_in_one_go():
    store = Answers()
    one, other = Demand((Use("a"),)), Demand((Use("a"), Use("b")))
    assert await Demands(store, FakeClock().elapsed).ids_of([one, None, other, one]) == [101, None, 102, 101]
    assert store.asked == [[one, other]]


@pytest.mark.parametrize("is_shared", [True, False])
async def test_what_the_cluster_has_is_a_use_and_what_it_has_not_is_asked_of_an_agent(is_shared: bool):
    store = Answers()
    store.resources = {"license-x": 2} if is_shared else {}
    await Demands(store, FakeClock().elapsed).id_of(Policy(), DEFAULT, 1, "ann", asks=[("gpu", 1), ("license-x", 2)])
    [[demand]] = store.asked
    assert demand.uses == ((Use("resource:license-x", 2),) if is_shared else ())
    assert demand.asks == ((("gpu", 1),) if is_shared else (("gpu", 1), ("license-x", 2)))
