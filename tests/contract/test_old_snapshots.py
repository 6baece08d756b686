"""While another program holds an old snapshot, PostgreSQL keeps all that has ended since; claims do not read it again
and again. Counted, not timed: entries of the index that claims go by."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest

from horae.core.definitions import Submission
from horae.core.model import Overlap, State
from horae.core.runs.orders import NewRun, Order, Result, Waiting
from horae.queues.local import LocalQueue
from horae.service.execution import Execution
from horae.service.metrics import Metrics
from horae.stores.postgres import PostgresStore, marks
from horae.testing import START, FakeClock, make_job

from ..claiming import claim
from ..unit.service.parts import node

ENDED = 20_000


class Watched(marks.Marks):
    """With a watch that stands still unless it is moved; knows how many entries each claim went by."""

    def __init__(self) -> None:
        super().__init__(lambda: self.seconds)
        self.seconds = 1000.0
        self.gone_by: list[int] = []

    def note(self, labels: Sequence[str], begin: marks.Begin, stepped: int, taken: marks.Taken, seconds: float) -> None:
        self.gone_by.append(stepped)
        super().note(labels, begin, stepped, taken, seconds)


@pytest.fixture
async def store(postgres_store: PostgresStore) -> PostgresStore:
    await postgres_store.submit([Submission([make_job(1, trigger_id=10, next_at=START)])])
    return postgres_store


@pytest.fixture
async def watched(store: PostgresStore, postgres_url: str) -> AsyncIterator[Watched]:
    """Of a store with very many runs that have ended, all of which a forgotten session can still see as queued."""
    await make(store, ENDED)
    other = await asyncpg.connect(postgres_url)
    await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await other.execute("SELECT count(*) FROM live")
    for _ in range(ENDED // 1000):
        given = await claim(store, "n1", "python", [], 1000)
        await store.finish([Result(a.run_id, a.fence, State.SUCCEEDED, finished_at=START) for a in given])
    store._marks = watched = Watched()
    yield watched
    await other.execute("ROLLBACK")
    await other.close()


async def make(store: PostgresStore, count: int, **fields: Any) -> list[int]:
    new = NewRun(**{"job_id": 1, "kind": "python", "priority": 0, "overlap": Overlap.ALLOW, **fields})
    return [receipt.ids[0] for receipt in await store.enqueue([Order(new)] * count)]


async def claimed(store: PostgresStore, limit: int, labels: Sequence[str] = (), node: str = "n1") -> list[int]:
    return sorted(a.run_id for a in await claim(store, node, "python", labels, limit))


async def test_what_has_ended_is_stepped_over_once_and_not_by_each_claim(store: PostgresStore, watched: Watched):
    made = await make(store, 100)
    given = [run_id for _ in range(10) for run_id in await claimed(store, 10)]

    assert given == made
    assert watched.gone_by[0] > ENDED
    assert max(watched.gone_by[1:]) <= 15  # ten, and perhaps those of the claim before
    assert len(watched.gone_by) == 10


async def test_a_run_that_comes_back_is_found_within_a_second(store: PostgresStore, watched: Watched):
    made = await make(store, 30)
    first = await claim(store, "n1", "python", [], 10)
    lost = Result(first[0].run_id, first[0].fence, State.FAILED, reason="lost", finished_at=START)
    await store.finish([], [Waiting(lost, None, lost=True)])

    assert await claimed(store, 10) == made[10:20]  # it lies before the mark
    seconds = await store.look_again([])
    assert seconds is not None
    assert seconds >= 1.0
    watched.seconds += seconds
    assert await store.look_again([]) is None
    assert await claimed(store, 10) == [made[0], *made[20:29]]


async def test_priorities_go_first_also_those_that_were_never_seen(store: PostgresStore, watched: Watched):
    ordinary = await make(store, 10)
    assert await claimed(store, 2) == ordinary[:2]
    higher, lower = await make(store, 2, priority=7), await make(store, 2, priority=-7)
    highest, between = await make(store, 1, priority=9), await make(store, 1, priority=3)

    assert await claimed(store, 1) == highest
    assert await claimed(store, 2) == higher
    assert await claimed(store, 2) == sorted([*between, ordinary[2]])
    assert await claimed(store, 9) == sorted([*ordinary[3:], *lower])
    assert max(watched.gone_by[1:]) < 100


async def test_marks_of_some_labels_hide_nothing_from_others_nor_pinned_runs(store: PostgresStore, watched: Watched):
    (special,) = await make(store, 1, needs=("gpu",))
    (pinned,) = await make(store, 1, pin="n2")
    made = await make(store, 10)
    assert await claimed(store, 5) == made[:5]
    (pinned_later,) = await make(store, 1, pin="n2")

    assert await claimed(store, 1, ["gpu"]) == [special]
    assert await claimed(store, 1, node="n2") == [pinned]
    assert await claimed(store, 9, node="n2") == sorted([*made[5:], pinned_later])


async def test_without_much_to_step_over_the_order_is_exact(store: PostgresStore):
    made = await make(store, 20)
    first = await claim(store, "n1", "python", [], 10)
    lost = Result(first[0].run_id, first[0].fence, State.FAILED, reason="lost", finished_at=START)
    await store.finish([], [Waiting(lost, None, lost=True)])

    assert await claimed(store, 1) == [made[0]]
    assert await store.look_again([]) is None


async def test_whoever_waits_is_told_when_a_claim_may_have_overlooked_a_run(store: PostgresStore, watched: Watched):
    queue = LocalQueue()
    execution = Execution(store, queue, FakeClock(), Metrics())
    await store.register_node(node("n1"))
    watch = queue.watch("runs")
    await make(store, 1)
    for _ in range(2):
        await execution.claim(node("n1"), {"python": 5})

    assert await watch.wait(180)
