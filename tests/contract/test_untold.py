"""Runs that ended and of which others are still to be told: the same on every store."""

from __future__ import annotations

import pytest

from horae.core.definitions import Submission
from horae.core.model import SECOND, Job, Overlap, Policy, State
from horae.core.runs.orders import Fire, NewRun, Order, Result
from horae.ports.store import Store
from horae.testing import START, FakeClock, make_job

from ..claiming import claim


async def queue(store: Store, *, overlap: Overlap = Overlap.ALLOW, kind: str = "shell", **fields: int) -> int:
    job_id = {Overlap.ALLOW: 1, Overlap.FORBID: 2}[overlap]
    if await store.get_job(job_id) is None:
        await store.submit([Submission([make_job(job_id, kind=kind, policy=Policy(overlap=overlap))])])
    [receipt] = await store.enqueue([Order(NewRun(job_id, kind, 5, overlap, **fields))])
    return receipt.ids[0]


async def untold(store: Store) -> dict[int, State]:
    return {run.id: run.state for run in await store.load_untold(100)}


async def end(store: Store) -> int:
    [claimed] = await claim(store, "n1", "shell", [], 1)
    await store.finish([Result(claimed.run_id, claimed.fence, State.SUCCEEDED, finished_at=START)])
    return claimed.run_id


@pytest.fixture
async def watching(store: Store) -> Store:
    await store.watch_ended(True)
    return store


async def test_every_way_to_end_is_noted(watching: Store, clock: FakeClock):
    done, cancelled = await queue(watching), await queue(watching)
    assert await end(watching) == done
    await watching.cancel([cancelled], "requested")
    late = await queue(watching, start_by=START + SECOND)
    clock.advance(2)
    await watching.sweep()
    unrunnable = await queue(watching)
    await watching.fail_unrunnable(["python"], "nobody", {})
    live = await queue(watching, overlap=Overlap.FORBID)
    skipped = await queue(watching, overlap=Overlap.FORBID)

    assert await untold(watching) == {
        done: State.SUCCEEDED, cancelled: State.CANCELLED, late: State.SKIPPED, unrunnable: State.FAILED,
        skipped: State.SKIPPED,
    }  # fmt: skip
    assert live not in await untold(watching)


async def test_moments_that_were_passed_over_are_noted(watching: Store):
    job: Job = make_job(1, kind="shell", trigger_id=1, next_at=START)
    await watching.submit([Submission([job])])
    (trigger,) = job.triggers
    passed = [(START - 2, State.SKIPPED, "misfire"), (START - 1, State.COALESCED, "misfire")]
    new = NewRun(1, "shell", 5, Overlap.ALLOW)
    fire = Fire(trigger.id, job.segment, job.version, START, START + SECOND, START, new, START, passed=passed)

    await watching.fire([fire], {})

    assert sorted((await untold(watching)).values()) == [State.SKIPPED, State.COALESCED]


async def test_what_was_told_is_not_told_again(watching: Store):
    await queue(watching)
    first = await end(watching)
    await queue(watching)
    second = await end(watching)

    assert [run.id for run in await watching.load_untold(1)] == [first]
    await watching.forget_untold([first])

    assert list(await untold(watching)) == [second]


async def test_nothing_is_noted_where_nobody_wants_it(store: Store):
    await queue(store)
    await end(store)
    assert await untold(store) == {}

    for is_wanted in (True, True, False, False):
        await store.watch_ended(is_wanted)
    await queue(store)
    await end(store)
    assert await untold(store) == {}


async def test_what_is_purged_is_no_longer_to_be_told(watching: Store):
    await queue(watching)
    run_id = await end(watching)

    await watching.purge([run_id])

    assert await untold(watching) == {}
    await queue(watching)
    assert list(await untold(watching)) == []
