"""What runs ask of an agent: read, matched, and for large runs reserved."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.fields import Fields, Problems
from horae.core.model import SECOND
from horae.core.policy import resources as it
from horae.core.policy.resources import Head, Supply

GIB = 2**30


def read(value: Any) -> it.Asks:
    problems = Problems()
    found = it.read_resources(Fields({"resources": value}, "", problems))
    problems.raise_any()
    return found


def faults(value: Any) -> list[tuple[str, str]]:
    problems = Problems()
    it.read_resources(Fields({"resources": value}, "", problems))
    return [(one.path, one.code) for one in problems.listed]


# ── the document ──
def test_amounts_are_whole_numbers_of_the_smallest_unit() -> None:
    assert read({"slots": 2, "cpus": 1.5, "memory": "512MiB", "gpu": 1, "license-x": 2}) == (
        ("cpus", 1500), ("gpu", 1), ("license-x", 2), ("memory", 512 * 2**20), ("slots", 2),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (5, ("resources", "E_TYPE")),
        ({"gpu": 0}, ("resources.gpu", "E_RANGE")),
        ({"gpu": 1.5}, ("resources.gpu", "E_TYPE")),
        ({"gpu": True}, ("resources.gpu", "E_TYPE")),
        ({"gpu": None}, ("resources.gpu", "E_TYPE")),
        ({"slots": 0}, ("resources.slots", "E_RANGE")),
        ({"cpus": 0}, ("resources.cpus", "E_RANGE")),
        ({"cpus": float("nan")}, ("resources.cpus", "E_RANGE")),
        ({"memory": "much"}, ("resources.memory", "E_TYPE")),
        ({"memory": "1KiB"}, ("resources.memory", "E_RANGE")),
        ({"GPU": 1}, ("resources.GPU", "E_PATTERN")),
        ({"a" * 42: 1}, (f"resources.{'a' * 42}", "E_PATTERN")),
        ({1: 1}, ("resources", "E_TYPE")),
        ({f"r{number}": 1 for number in range(17)}, ("resources", "E_RANGE")),
    ],
)
def test_what_is_no_amount_is_refused_with_its_place(value: Any, fault: tuple[str, str]) -> None:
    assert faults(value) == [fault]


@st.composite
def asked(draw: st.DrawFn) -> it.Asks:
    found = {name: draw(st.integers(1, 6)) for name in draw(st.sets(st.sampled_from(["slots", "gpu", "license-x"])))}
    if draw(st.booleans()):
        found["cpus"] = draw(st.integers(10, 8000))
    if draw(st.booleans()):
        found["memory"] = draw(st.integers(16 * 2**20, 2**40))
    return tuple(sorted(found.items()))


@given(asked())
def test_what_is_rendered_can_be_read_again(asks: it.Asks) -> None:
    assert read(it.render_resources(asks)) == asks
    assert it.resources_from(it.render_resources(asks)) == asks


def test_one_slot_is_what_every_run_takes() -> None:
    assert it.asks_of((("gpu", 1), ("slots", 1))) == (("gpu", 1),)
    assert it.slots_of((("gpu", 1),)) == 1
    assert it.asks_of((("slots", 2),)) == (("slots", 2),)


# ── matching ──
@given(st.lists(asked(), max_size=20), st.integers(0, 8), st.integers(0, 4))
def test_what_was_taken_never_exceeds_what_was_offered_and_comes_back(
    runs: list[it.Asks], slots: int, gpu: int
) -> None:
    whole = it.of_kind(slots, {"gpu": gpu, "cpus": 8000, "memory": 64 * GIB})
    free = dict(whole)
    started = []
    for asks in runs:
        every = (*it.beyond_slots(asks), ("slots", it.slots_of(asks)))
        if it.fits(asks, free):
            it.take(free, every)
            started.append(every)
        assert all(amount >= 0 for amount in free.values())
    for every in started:
        it.give_back(free, every)
    assert {name: amount for name, amount in free.items() if amount} == {n: a for n, a in whole.items() if a}


def test_without_a_slot_nothing_fits() -> None:
    assert not it.fits((("gpu", 1),), it.of_kind(0, {"gpu": 1}))


def test_what_no_agent_offers_is_named() -> None:
    offers = [it.of_kind(4, {"gpu": 1, "memory": GIB}), it.of_kind(8, {"memory": 4 * GIB})]
    assert it.lack((("gpu", 2),), offers) == "asks for gpu: 2; no live agent offers more than 1"
    assert it.lack((("tape", 1),), offers) == "asks for tape: 1; no live agent offers any"
    assert it.lack((("memory", 8 * GIB),), offers) == "asks for memory: 8GiB; no live agent offers more than 4GiB"
    assert it.lack((("gpu", 1), ("slots", 8)), offers) == (
        "asks for gpu: 1, slots: 8; no live agent offers all of it together"
    )
    assert it.lack((("gpu", 1), ("slots", 4)), offers) == ""
    assert it.lack((("cpus", 1500),), []) == "asks for cpus: 1.5; no live agent offers any"


# ── reservations ──
def agent(node: str, slots: int, free: int, **others: int) -> Supply:
    return Supply(node, frozenset(), {"shell": slots}, others, {"shell": free}, others)


def head(run_id: int, slots: int, since: int = 0, **more: Any) -> Head:
    values = {"labels": (), "pin": None, "order": (0, run_id), **more}
    return Head(run_id, "shell", (("slots", slots),), since_at=since, **values)


LATE = it.RESERVE_AFTER


def test_nobody_is_kept_for_a_run_that_has_not_waited() -> None:
    assert it.reserve([head(1, 4)], [agent("a", 4, 0)], LATE - 1, {}) == {}
    assert it.reserve([head(1, 4)], [agent("a", 4, 0)], LATE, {}) == {"a": 1}


def test_the_agent_is_kept_that_misses_least() -> None:
    agents = [agent("a", 4, 0), agent("b", 8, 3), agent("c", 3, 3)]
    assert it.reserve([head(1, 4)], agents, LATE, {}) == {"b": 1}


def test_an_agent_that_could_never_run_it_is_not_kept() -> None:
    assert it.reserve([head(1, 9)], [agent("a", 4, 4)], LATE, {}) == {}
    assert it.reserve([head(1, 4, labels=("gpu",))], [agent("a", 4, 0)], LATE, {}) == {}
    assert it.reserve([head(1, 4, pin="b")], [agent("a", 4, 0)], LATE, {}) == {}


def test_a_large_run_that_comes_after_a_small_one_waits_for_its_turn() -> None:
    assert it.reserve([head(5, 4)], [agent("a", 4, 0)], LATE, {"shell": (0, 4)}) == {}
    assert it.reserve([head(5, 4)], [agent("a", 4, 0)], LATE, {"shell": (0, 6)}) == {"a": 5}
    assert it.reserve([head(5, 4)], [agent("a", 4, 0)], LATE, {"python": (0, 4)}) == {"a": 5}


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3)), max_size=8), st.integers(1, 6), st.randoms())
def test_every_process_decides_alike_and_keeps_half_of_the_agents_at_most(
    waiting: list[tuple[int, int]], count: int, chance: random.Random
) -> None:
    heads = [head(number, slots, since) for number, (slots, since) in enumerate(waiting, 1)]
    agents = [agent(f"n{number}", 2 + number, number) for number in range(count)]
    kept = it.reserve(heads, agents, LATE + 2, {})
    chance.shuffle(heads)
    chance.shuffle(agents)
    assert it.reserve(heads, agents, LATE + 2, {}) == kept
    assert len(kept) <= max(1, count // 2)
    assert len(set(kept.values())) == len(kept)


def test_beside_a_run_for_which_it_is_kept_an_agent_takes_what_that_run_does_not_need() -> None:
    large = Head(1, "shell", (("gpu", 1),), (), None, 0, (0, 1))
    assert it.room_beside(large, {"shell": 3, "python": 7}) == {"shell": 2, "python": 7}
    assert it.room_beside(head(1, 4), {"shell": 3}) == {"shell": 0}


# ── a simulated cluster ──
@dataclass
class Box:
    node: str
    slots: int
    running: list[tuple[int, int]] = field(default_factory=list)  # (ends at, slots)

    def free(self, now: int) -> int:
        self.running = [(until, slots) for until, slots in self.running if until > now]
        return self.slots - sum(slots for _, slots in self.running)


@dataclass
class World:
    """Seconds go by; small runs of `small` seconds always wait, large ones come when `arrivals` says. Runs of both are
    numbered as they come, which is their order."""

    boxes: list[Box]
    chance: random.Random
    reserves: bool = True
    now: int = 0
    number: int = 0
    large: list[tuple[int, int]] = field(default_factory=list)  # (number, since)
    small: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)  # of large runs that were started
    small_started: int = 0
    used: int = 0

    def arrive(self, large: int, small: int) -> None:
        for _ in range(large):
            self.number += 1
            self.large.append((self.number, self.now))
        for _ in range(small):
            self.number += 1
            self.small.append(self.number)

    def step(self, size: int, longest: int) -> None:
        """Whose turn it is goes first; others have what is left."""
        if self._has_turn(size):
            self._start_large(size)
        kept = self._kept(size)
        for box in self.boxes:
            room = {"shell": box.free(self.now)}
            if box.node in kept:
                room = it.room_beside(head(kept[box.node], size), room)
            for _ in range(min(room["shell"], len(self.small))):
                self.small.pop(0)
                self.small_started += 1
                box.running.append((self.now + self.chance.randint(1, longest), 1))
        self._start_large(size)
        self.used += sum(box.slots - box.free(self.now) for box in self.boxes)
        self.now += 1

    def _start_large(self, size: int) -> None:
        for box in self.boxes:
            if self.large and box.free(self.now) >= size:
                _, since = self.large.pop(0)
                self.waits.append(self.now - since)
                box.running.append((self.now + 10, size))

    @property
    def _fronts(self) -> dict[str, tuple[int, ...]]:
        return {"shell": (0, self.small[0])} if self.small else {}

    def _has_turn(self, size: int) -> bool:
        return bool(self.large) and it.has_turn(head(self.large[0][0], size), self._fronts)

    def _kept(self, size: int) -> dict[str, int]:
        heads = [head(number, size, since * SECOND) for number, since in self.large[:1]] if self.reserves else []
        agents = [agent(box.node, box.slots, box.free(self.now)) for box in self.boxes]
        return it.reserve(heads, agents, self.now * SECOND, self._fronts)


def worlds() -> Iterator[World]:
    for seed in range(20):
        chance = random.Random(seed)
        yield World([Box(f"n{number}", 4) for number in range(chance.randint(1, 6))], chance)


def test_a_large_run_among_endless_small_ones_starts_in_bounded_time() -> None:
    """Its turn has come when all that came before it has started. From then on, or from its thirtieth second on, it
    waits no longer than the longest run takes."""
    longest, wait = 20, it.RESERVE_AFTER // SECOND
    for world in worlds():
        turn: int | None = None
        for second in range(600):
            world.arrive(1 if second == 50 else 0, 20 - len(world.small))
            world.step(4, longest)
            if turn is None and world.large and world.small[0] > world.large[0][0]:
                turn = world.now
        assert turn is not None
        assert world.waits[0] <= max(turn - 50, wait) + longest
        assert world.used >= 0.85 * world.now * 4 * len(world.boxes)


def test_without_reservations_it_would_starve() -> None:
    world = World([Box("a", 4)], random.Random(1), reserves=False)
    world.arrive(0, 10)
    world.step(4, 20)
    world.arrive(1, 0)
    for _ in range(600):
        world.arrive(0, 8)
        world.step(4, 20)
    assert not world.waits


def test_neither_large_runs_nor_small_ones_starve_where_there_are_too_many_of_both() -> None:
    for world in worlds():
        for _ in range(900):
            world.arrive(1, 1)
            world.step(4, 5)
        assert abs(world.small_started - len(world.waits)) <= 4 * len(world.boxes) + 1  # as they came: one by one
        assert len(world.waits) > 10
