"""When runs that demand more than a slot are looked for, and what new ones demand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from horae.core.model import Overlap, Policy
from horae.core.policy.demands import Demand, Offer, Use
from horae.core.policy.queues import Queue
from horae.core.runs.orders import Assignment, Claimed, NewRun
from horae.queues.local import LocalQueue
from horae.service.policy.demands import REMEMBERED_SECONDS, Demands, is_limited
from horae.service.policy.placing import Candidate, Placing
from horae.service.policy.starting import LOOK_GAP, Starting
from horae.testing import FakeClock

DEFAULT = Queue(0, "default")
OFFER = Offer("n1", None, {"python": 4}, {})


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

    async def list_queues(self) -> list[Queue]:
        return [DEFAULT]


class Scene:
    def __init__(self, *answers: Claimed) -> None:
        self.store, self.queue, self.clock = Answers(*answers), LocalQueue(), FakeClock()
        self.runs = self.queue.watch("runs")
        self.starting = Starting(self.store, self.queue, self.clock)

    async def claim(self, node: str = "n1") -> Claimed | None:
        return await self.starting.claim([OFFER._replace(node=node)], None)

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


async def test_what_one_node_cannot_have_another_looks_for_too():
    scene = Scene(waiting(), waiting())
    await scene.claim()
    assert await scene.claim() is None
    assert await scene.claim("n2") is not None
    assert await scene.claim("n2") is None


async def test_while_nothing_waits_nobody_else_looks_either():
    scene = Scene()
    await scene.claim()
    assert await scene.claim("n2") is None


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
    assert not is_limited(Policy(), DEFAULT)
    assert not is_limited(Policy(resources=(("slots", 1),)), DEFAULT)
    assert is_limited(Policy(resources=(("gpu", 1),)), DEFAULT)
    assert await demands.ids_of([None, None]) == [None, None]
    assert store.asked == []


async def test_equal_demands_are_written_once_and_again_when_they_may_be_forgotten():
    store, clock = Answers(), FakeClock()
    demands = Demands(store, clock.elapsed)
    one = Demand((Use("a"),))
    assert [await demands.ids_of([one]) for _ in range(3)] == [[101]] * 3
    assert len(store.asked) == 1
    clock.advance(REMEMBERED_SECONDS)
    await demands.ids_of([one])
    assert len(store.asked) == 2


async def test_many_are_written_in_one_go():
    store = Answers()
    one, other = Demand((Use("a"),)), Demand((Use("a"), Use("b")))
    assert await Demands(store, FakeClock().elapsed).ids_of([one, None, other, one]) == [101, None, 102, 101]
    assert store.asked == [[one, other]]


def candidate(kind: str = "python", **resources: int) -> Candidate:
    policy = Policy(resources=tuple(sorted(resources.items())))
    return Candidate(NewRun(1, kind, 5, Overlap.ALLOW), policy, "ann", 1, "ann")


@pytest.mark.parametrize("is_shared", [True, False])
async def test_what_the_cluster_has_is_a_use_and_what_it_has_not_is_asked_of_an_agent(is_shared: bool):
    store = Answers()
    store.resources = {"tape": 2} if is_shared else {}
    one, other = candidate(gpu=1, tape=2), candidate(slots=1)
    await Placing(store, LocalQueue()).place([one, other])  # type: ignore[arg-type]  # what it asks of the store
    [[demand]] = store.asked
    assert demand.uses == ((Use("resource:tape", 2),) if is_shared else ())
    assert demand.asks == ((("gpu", 1),) if is_shared else (("gpu", 1), ("tape", 2)))
    assert (one.run.demand, other.run.demand) == (100 + is_shared, None)


async def test_what_is_left_to_workers_outside_demands_nothing():
    store = Answers()
    ours, theirs = candidate(gpu=1), candidate("sync", gpu=1)
    await Placing(store, LocalQueue(), ["sync"]).place([ours, theirs])  # type: ignore[arg-type]
    assert (ours.run.demand, theirs.run.demand) == (100, None)
