"""Natural group commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from horae.errors import Unavailable
from horae.service.batching import Coalescer


class Slow:
    """A flush that takes as long as the test wants."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun = asyncio.Event()

    async def flush(self, items: list[int]) -> Sequence[int]:
        self.batches.append(items)
        self.begun.set()
        await self.gate.wait()
        if any(item < 0 for item in items):
            raise ValueError(f"no {min(items)}")
        return [item * 10 for item in items]


async def test_a_lone_call_goes_at_once():
    slow = Slow()

    assert await Coalescer(slow.flush).add(4) == 40
    assert slow.batches == [[4]]


async def test_what_comes_during_a_flush_goes_with_the_next_one():
    slow = Slow()
    slow.gate.clear()
    coalescer = Coalescer(slow.flush)
    first = asyncio.create_task(coalescer.add(1))
    await slow.begun.wait()
    rest = [asyncio.create_task(coalescer.add(item)) for item in range(2, 50)]
    await asyncio.sleep(0)
    assert not first.done()
    slow.gate.set()

    assert await asyncio.gather(first, *rest) == [item * 10 for item in range(1, 50)]
    assert slow.batches == [[1], list(range(2, 50))]


async def test_who_was_answered_together_may_come_along_with_the_next_flush():
    slow = Slow()
    slow.gate.clear()
    coalescer = Coalescer(slow.flush)

    async def ask_twice(item: int) -> None:
        await coalescer.add(await coalescer.add(item))

    twice = [asyncio.create_task(ask_twice(item)) for item in (1, 2)]
    await slow.begun.wait()
    meanwhile = asyncio.create_task(coalescer.add(3))
    await asyncio.sleep(0)
    slow.gate.set()
    await asyncio.gather(*twice, meanwhile)

    assert [sorted(batch) for batch in slow.batches] == [[1, 2], [3, 10, 20]]


async def test_a_batch_has_its_limit():
    slow = Slow()
    coalescer = Coalescer(slow.flush, limit=10)

    await asyncio.gather(*(coalescer.add(item) for item in range(25)))

    assert [len(batch) for batch in slow.batches] == [10, 10, 5]


async def test_a_caller_that_gives_up_does_not_disturb_the_others():
    slow = Slow()
    slow.gate.clear()
    coalescer = Coalescer(slow.flush)
    tasks = [asyncio.create_task(coalescer.add(item)) for item in (1, 2)]
    await slow.begun.wait()
    tasks[0].cancel()
    slow.gate.set()

    assert await tasks[1] == 20
    assert await coalescer.add(3) == 30


async def test_one_item_that_cannot_be_written_takes_nobody_with_it():
    slow = Slow()
    coalescer = Coalescer(slow.flush)

    answers = await asyncio.gather(*(coalescer.add(item) for item in (1, -2, 3)), return_exceptions=True)

    assert answers[0] == 10
    assert answers[2] == 30
    assert isinstance(answers[1], ValueError)


async def test_a_store_out_of_reach_is_told_to_all_and_asked_once():
    calls = []

    async def flush(items: list[int]) -> Sequence[int]:
        calls.append(items)
        raise Unavailable("gone")

    coalescer = Coalescer(flush)
    answers = await asyncio.gather(*(coalescer.add(item) for item in range(5)), return_exceptions=True)

    assert [type(answer) for answer in answers] == [Unavailable] * 5
    assert len(calls) == 1
    with pytest.raises(Unavailable):
        await coalescer.add(1)


async def test_a_batch_is_full_by_weight_and_a_heavy_item_goes_alone():
    slow = Slow()
    coalescer = Coalescer(slow.flush, limit=10, weigh=lambda item: item)

    await asyncio.gather(*(coalescer.add(item) for item in (4, 6, 1, 50, 10)))

    assert slow.batches == [[4, 6], [1], [50], [10]]


async def test_flushes_keep_their_distance_and_what_comes_meanwhile_is_gathered():
    begun, gap = [], 0.1

    async def flush(items: list[int]) -> list[int]:
        begun.append(asyncio.get_running_loop().time())
        return items

    coalescer = Coalescer(flush, gap=gap)

    async def come(item: int) -> int:
        for _ in range(item):
            await asyncio.sleep(0)
        return await coalescer.add(item)

    assert await asyncio.gather(*map(come, range(100))) == list(range(100))
    assert 2 <= len(begun) < 50, "the first goes at once, and others wait for each other"
    assert all(after - before >= gap for before, after in pairwise(begun))
