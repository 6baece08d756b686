"""When runs that demand more than a slot are looked for, and what new ones demand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import uvloop

from horae.core.identity import User
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
        self.claims: list[tuple[Sequence[Offer], bool]] = []  # of ordinary runs: what was offered, and whether fresh
        self.beside: list[Claimed] = []
        self.asked: list[Sequence[Demand]] = []
        self.resources: dict[str, int] = {}

    async def claim_demanding(self, offers: Sequence[Offer], *, standby: str | None = None) -> Claimed:
        self.looks += 1
        return self._answers.pop(0) if self._answers else Claimed([[]], [{"python": 4}])

    async def claim_beside(
        self, offers: Sequence[Offer], labels: Sequence[str] = (), *, standby: str | None = None, is_fresh: bool = False
    ) -> Claimed:
        self.claims.append((offers, is_fresh))
        return self.beside.pop(0) if self.beside else Claimed([[]], [dict(offers[0].room)])

    async def demand_ids(self, demands: Sequence[Demand]) -> list[int]:
        self.asked.append(demands)
        return [100 + len(one.uses) for one in demands]

    async def load_owners(self, names: Sequence[str]) -> list[User]:
        return []

    async def load_resources(self) -> dict[str, int]:
        return self.resources

    async def list_queues(self) -> list[Queue]:
        return [DEFAULT]


class Scene:
    def __init__(self, *answers: Claimed) -> None:
        self.store, self.queue, self.clock = Answers(*answers), LocalQueue(), FakeClock()
        self.runs = self.queue.watch("runs")
        self.starting = Starting(self.store, self.queue, self.clock)

    async def claim(self, node: str = "n1") -> list[int]:
        """Return what was started."""
        [given] = await self.starting.claim([OFFER._replace(node=node)], (), None)
        return [one.run_id for one in given or ()]

    async def looks(self, node: str = "n1") -> bool:
        """Claim; return whether there was a look."""
        before = self.store.looks
        await self.claim(node)
        return self.store.looks > before

    async def woken(self, seconds: float = 30.0) -> bool:
        return await self.runs.wait(seconds)


def given(*run_ids: int, **fields: Any) -> Claimed:
    """What was started, all of which hold something."""
    holding = dict.fromkeys(run_ids, Demand((Use("a"),), (("gpu", 1),)))
    claimed = Claimed([[assignment(run_id) for run_id in run_ids]], [{"python": 4 - len(run_ids)}], holding=holding)
    return claimed._replace(**fields)


def waiting(*run_ids: int, **fields: Any) -> Claimed:
    return given(*run_ids, is_waiting=True, **fields)


async def test_while_nothing_waits_nobody_looks_again():
    scene = Scene()
    assert await scene.looks()  # it cannot know yet
    for _ in range(50):
        scene.clock.advance(LOOK_GAP)
        assert not await scene.looks()


async def test_what_a_claim_finds_waiting_is_looked_for_at_once_with_the_room_that_is_left():
    scene = Scene(Claimed([[]], [{"python": 4}]), given(3))
    await scene.claim()
    scene.store.beside = [waiting(1, 2)]
    assert await scene.claim() == [1, 2, 3]
    assert not await scene.looks()


async def test_where_a_claim_leaves_no_room_the_next_one_looks_first():
    scene = Scene(Claimed([[]], [{"python": 4}]), given(9, room=[{"python": 0}]))
    await scene.claim()
    scene.store.beside = [waiting(1, 2, 3, 4)]
    assert await scene.claim() == [1, 2, 3, 4]
    assert await scene.claim() == [9]


async def test_what_was_taken_is_not_offered_again():
    scene = Scene(given(1))
    scene.store.beside = [given(2)]
    offer = OFFER._replace(free={"gpu": 4})
    assert [one.run_id for one in (await scene.starting.claim([offer], (), None))[0] or ()] == [1, 2]
    [(offers, _)] = scene.store.claims
    assert (offers[0].room, offers[0].free) == ({"python": 3}, {})  # some of what is free may be kept for a large run


async def test_whoever_says_that_runs_were_made_is_heard_once_and_costs_no_look():
    scene = Scene()
    await scene.claim()
    scene.queue.announce("limits")
    assert not await scene.looks()
    await scene.claim()
    assert [is_fresh for _, is_fresh in scene.store.claims] == [False, True, False]


async def test_whoever_says_that_something_is_free_is_heard_at_once():
    scene = Scene(waiting(), waiting())
    await scene.claim()
    scene.queue.announce("units")
    assert await scene.looks()
    assert not await scene.looks()


async def test_agents_are_woken_when_a_rate_allows_the_next_start():
    scene = Scene(waiting(wait=0.01))
    await scene.claim()
    assert await scene.woken()
    assert await scene.looks()


async def test_while_something_waits_it_is_looked_for_again_though_nobody_says_anything():
    scene = Scene(waiting(), waiting())
    await scene.claim()
    assert not await scene.looks()
    assert await scene.woken()
    assert await scene.looks()


async def test_a_claim_that_had_no_room_is_followed_by_a_look_with_the_next_one():
    scene = Scene(waiting(1, 2, 3, 4, is_cut=True))
    await scene.claim()
    assert await scene.looks()


async def test_what_one_node_cannot_have_another_looks_for_too():
    scene = Scene(waiting(), waiting())
    await scene.claim()
    assert not await scene.looks()
    assert await scene.looks("n2")
    assert not await scene.looks("n2")


async def test_a_session_that_is_over_gets_nothing():
    scene = Scene(waiting(given=[None]))
    scene.store.beside = [Claimed([[]], [{"python": 4}])]
    assert await scene.starting.claim([OFFER], (), None) == [None]


@pytest.mark.parametrize("is_beside", [False, True])
async def test_the_end_of_a_run_that_held_something_wakes_those_that_wait(is_beside: bool):
    scene = Scene(waiting() if is_beside else waiting(1, 2))
    scene.store.beside = [given(1, 2)] if is_beside else []
    await scene.claim()
    scene.starting.note_ended([7])
    assert not scene.runs.is_due
    scene.starting.note_ended([1])
    assert scene.runs.is_due
    assert await scene.looks()


async def test_the_end_of_a_run_wakes_nobody_who_wants_something_else():
    scene = Scene(waiting(1, 2, wanted=frozenset(["b"])), waiting(3, wanted=frozenset(["a"])))
    await scene.claim()
    scene.starting.note_ended([1])
    assert not scene.runs.is_due
    await scene.claim("n2")
    scene.starting.note_ended([2])
    assert scene.runs.is_due


async def test_the_end_of_a_run_wakes_nobody_while_nothing_waits():
    scene = Scene(given(1))
    await scene.claim()
    scene.starting.note_ended([1])
    await asyncio.sleep(0)
    assert not scene.runs.is_due


def test_a_wait_that_is_over_at_once_is_no_error_on_any_loop():
    async def look_twice() -> int:
        scene = Scene(*[Claimed([[]], [{"python": 4}], is_waiting=True, wait=0.0) for _ in range(2)])
        await scene.claim()
        scene.starting._looks.clear()
        await scene.claim()
        return scene.store.looks

    for loop in (asyncio.new_event_loop(), uvloop.new_event_loop()):
        assert loop.run_until_complete(look_twice()) == 2
        loop.close()


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
