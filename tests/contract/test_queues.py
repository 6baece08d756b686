"""Queues and what is counted for policies: the same on every store."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from horae.core.definitions import Submission
from horae.core.members import org_label
from horae.core.model import SECOND, Job, Overlap, Policy, State
from horae.core.policy.queues import DEFAULT_NAME, DEFAULT_QUEUE, Figures, Queue, QueueState
from horae.core.runs.orders import NewRun, Order, Result, Waiting
from horae.ports.store.queues import QueueUse
from horae.stores.parts import queues as part
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock, make_job

from ..claiming import claim

MOST = 100
REPORTS = Queue(
    0, "reports", QueueState.OPEN, 2, ("gpu", "zone=eu"), ("python",), 5, "100/min", 10, {"ann": 2}, 1000
)  # fmt: skip


async def added(store: Any, name: str = "reports", **fields: Any) -> Queue:
    found = await store.add_queue(Queue(0, name, **fields), MOST)
    assert found is not None
    return found


async def submit(store: Any, *jobs: Job) -> None:
    assert all(receipt.ids for receipt in await store.submit([Submission([job]) for job in jobs]))


async def ordered(store: Any, job_id: int = 1, count: int = 1, queue: int = 0, overlap: Overlap = Overlap.ALLOW) -> int:
    """Return the first of some runs that wait in a queue."""
    receipts = await store.enqueue([Order(NewRun(job_id, "python", 5, overlap)) for _ in range(count)])
    ids = ", ".join(str(receipt.ids[0]) for receipt in receipts)
    await store.write(f"UPDATE live SET queue = {queue} WHERE id IN ({ids})")
    return receipts[0].ids[0]


def made(job_id: int = 1, owner: str = "local", queue: str = "default", **fields: Any) -> Job:
    policy = Policy(overlap=Overlap.ALLOW, queue=queue)
    return replace(make_job(job_id, policy=policy), owner=owner, **fields)


async def end(store: Any, state: State, count: int = 1) -> None:
    for a in await claim(store, "n1", "python", [], count):
        await store.finish([Result(a.run_id, a.fence, state, finished_at=await store.now())])


# ── organisations ──

OWN, OTHER, FOR_ALL = 7, 8, None


async def waiting_in_each(store: Any) -> dict[int | None, int]:
    """Return a run that waits in a queue of each organisation, and one in the default queue, which is for all."""
    await submit(store, made())
    queues = {org: (await added(store, f"of-{org}", org=org)).id for org in (OWN, OTHER)}
    return {org: await ordered(store, queue=queue) for org, queue in {**queues, FOR_ALL: DEFAULT_QUEUE}.items()}


async def test_a_queue_has_its_organisation_or_is_for_all(store: Any):
    await added(store, org=OWN)
    assert {each.name: each.org for each in await store.list_queues()} == {DEFAULT_NAME: FOR_ALL, "reports": OWN}


async def test_an_agent_of_an_organisation_takes_from_its_own_queues_alone(store: Any):
    runs = await waiting_in_each(store)
    claimed = await claim(store, "n1", "python", ["gpu", org_label(OWN)], 10)
    assert [a.run_id for a in claimed] == [runs[OWN]]


async def test_an_agent_of_the_installation_takes_from_all_queues(store: Any):
    runs = await waiting_in_each(store)
    claimed = await claim(store, "n1", "python", ["gpu", "org=acme"], 10)  # as anybody may have called a label
    assert {a.run_id for a in claimed} == set(runs.values())


# ── definitions ──


async def test_there_is_always_the_default_queue(store: Any):
    assert await store.list_queues() == [Queue(DEFAULT_QUEUE, DEFAULT_NAME)]


async def test_a_queue_is_kept_as_it_is(store: Any, clock: FakeClock):
    clock.advance(5)

    kept = await store.add_queue(REPORTS, MOST)

    at = START + 5 * SECOND
    assert kept == replace(REPORTS, id=1, version=1, created_at=at, updated_at=at)
    assert (await store.list_queues())[1] == kept


async def test_queues_are_listed_by_name(store: Any):
    for name in ("zeta", "alpha"):
        await added(store, name)
    assert [queue.name for queue in await store.list_queues()] == ["alpha", "default", "zeta"]


async def test_a_name_belongs_to_one_queue(store: Any):
    first = await added(store)
    assert await store.add_queue(Queue(0, "reports", concurrency=9), MOST) is None
    assert (await store.list_queues())[1] == first


async def test_there_are_no_more_than_so_many(store: Any):
    assert await store.add_queue(Queue(0, "one"), 2) is not None
    assert await store.add_queue(Queue(0, "two"), 2) is None


async def test_a_change_counts_only_on_the_version_it_was_made_from(store: Any, clock: FakeClock):
    first = await added(store)
    clock.advance(1)

    second = await store.save_queue(replace(first, concurrency=3, labels=("gpu",)))

    assert second == replace(first, concurrency=3, labels=("gpu",), version=2, updated_at=START + SECOND)
    assert await store.save_queue(replace(first, concurrency=4)) is None
    assert (await store.list_queues())[1] == second


async def test_the_default_queue_can_be_configured(store: Any):
    [default] = await store.list_queues()
    saved = await store.save_queue(replace(default, concurrency=3))
    assert saved is not None
    assert (saved.id, saved.concurrency, saved.version) == (DEFAULT_QUEUE, 3, 2)


async def test_a_state_is_set_whatever_the_version(store: Any):
    await added(store)

    paused = await store.set_queue_state("reports", QueueState.PAUSED)
    again = await store.set_queue_state("reports", QueueState.PAUSED)

    assert (paused.state, paused.version) == (QueueState.PAUSED, 2)
    assert again == paused
    assert await store.set_queue_state("none", QueueState.PAUSED) is None


# ── deleting ──


async def test_a_queue_that_nothing_needs_is_deleted_with_its_shares(store: Any):
    queue = await added(store)
    await store.write(
        f"INSERT INTO shares (kind, queue, priority, key, pass) VALUES ('python', {queue.id}, 5, 'ann', 7)"
    )

    assert await store.delete_queue(queue) is None

    assert [each.name for each in await store.list_queues()] == ["default"]
    assert await store.read("SELECT 1 FROM shares") == []


async def test_a_queue_that_jobs_name_is_not_deleted(store: Any):
    queue = await added(store)
    await submit(store, made(1, queue="reports"), made(2, queue="other"), made(3))

    assert await store.delete_queue(queue) == QueueUse(1, 0)

    assert len(await store.list_queues()) == 2


async def test_a_deleted_job_does_not_need_its_queue(store: Any):
    queue = await added(store)
    job = made(1, queue="reports")
    await submit(store, job)
    await store.delete_job(1, job)

    assert await store.delete_queue(queue) is None
    assert len(await store.list_queues()) == 1


async def test_a_queue_in_which_runs_wait_or_run_is_not_deleted(store: Any):
    queue = await added(store)
    await submit(store, made())
    await ordered(store, count=2, queue=queue.id)
    await claim(store, "n1", "python", [], 1)

    assert await store.delete_queue(queue) == QueueUse(0, 2)


async def test_a_queue_that_was_changed_is_not_deleted(store: Any):
    queue = await added(store)
    await store.set_queue_state("reports", QueueState.PAUSED)
    await store.delete_queue(queue)
    assert len(await store.list_queues()) == 2


async def test_the_default_queue_is_never_deleted(store: Any):
    [default] = await store.list_queues()
    await store.delete_queue(default)
    assert await store.list_queues() == [default]


# ── figures ──


async def test_an_idle_queue_has_nothing_to_say(store: Any):
    assert await store.load_queue_figures() == {DEFAULT_QUEUE: Figures()}


async def test_figures_tell_what_waits_runs_and_is_blocked(store: Any, clock: FakeClock):
    queue = await added(store)
    await submit(store, made())
    await ordered(store, count=4, queue=queue.id)
    for a in await claim(store, "n1", "python", [], 2):
        if a.run_id % 2:
            failed = Result(a.run_id, a.fence, State.FAILED, finished_at=START)
            await store.finish([], [Waiting(failed, START + 60 * SECOND)])
    clock.advance(30)
    await ordered(store)

    figures = await store.load_queue_figures()

    assert figures[queue.id] == Figures(2, {"retry": 1}, 1, START, came=4, went=0)
    assert figures[DEFAULT_QUEUE] == Figures(1, {}, 0, START + 30 * SECOND, came=1, went=0)


async def test_it_is_counted_whose_runs_are_running_in_which_queue(store: Any):
    queue = await added(store)
    await submit(store, made(1, "ann"), made(2, "bob"), made(3, "eve", org=7))
    for job_id, place in ((1, 0), (1, queue.id), (2, queue.id), (2, queue.id), (3, queue.id)):
        await ordered(store, job_id, queue=place)
    assert await store.count_served(None, 9) == []  # they wait
    await claim(store, "n1", "python", [], 9)

    served = [(0, "ann", 1), (queue.id, "ann", 1), (queue.id, "bob", 2)]
    assert sorted(await store.count_served(1, 9)) == served
    assert sorted(await store.count_served(None, 9)) == [*served, (queue.id, "eve", 1)]
    assert sum(number for _, _, number in await store.count_served(None, 3)) == 3


async def test_rates_are_those_of_the_last_minute(store: Any, clock: FakeClock):
    await added(store)
    await submit(store, made(1, queue="reports"), made(2))
    await ordered(store, 1, 3)
    await end(store, State.SUCCEEDED, 3)
    clock.advance(61)
    await ordered(store, 1, 2, queue=1)
    await end(store, State.FAILED, 1)

    figures = await store.load_queue_figures()

    assert (figures[1].came, figures[1].went) == (2, 1)
    assert (figures[DEFAULT_QUEUE].came, figures[DEFAULT_QUEUE].went) == (0, 0)


async def test_counts_stop_at_a_limit_and_say_so(store: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(part, "COUNTED", 2)
    await submit(store, made())
    await ordered(store, count=2)
    assert ((await store.load_queue_figures())[0].waiting, (await store.load_queue_figures())[0].is_cut) == (2, False)

    await ordered(store)

    figures = (await store.load_queue_figures())[0]
    assert (figures.waiting, figures.is_cut) == (2, True)


async def test_the_figures_of_very_many_waiting_runs_are_quick(store: Any):
    """The count stops: a hundred thousand take no longer than ten thousand."""
    await submit(store, made())
    columns = "id, job_id, due_at, created_at, state, priority, overlap, kind, reason"
    if isinstance(store, PostgresStore):
        rows = "SELECT n, 1, n, n, {}, 5, 1, 'python', '{}' FROM generate_series({}, {}) AS n"
    else:
        rows = (
            "WITH RECURSIVE s(n) AS (SELECT {2} UNION ALL SELECT n + 1 FROM s WHERE n < {3}) "
            "SELECT n, 1, n, n, {0}, 5, 1, 'python', '{1}' FROM s"
        )
    await store.write(f"INSERT INTO live ({columns}) {rows.format(0, '', 1_000, 101_000)}")
    await store.write(f"INSERT INTO live ({columns}) {rows.format(2, 'limit', 200_000, 300_000)}")
    began = time.perf_counter()

    figures = (await store.load_queue_figures())[0]

    assert (figures.waiting, figures.is_cut) == (part.COUNTED, True)
    assert figures.blocked["limit"] > part.BLOCKED_COUNTED
    assert figures.blocked_is_cut
    assert time.perf_counter() - began < 2.0


# ── quotas ──


async def test_what_waits_is_counted_by_owner(store: Any):
    await submit(store, made(1, "ann"), made(2, "ann"), made(3, "bob"))
    await ordered(store, 1, 2)
    await ordered(store, 2, 1)
    await ordered(store, 3, 1)
    await claim(store, "n1", "python", [], 1)

    assert await store.count_waiting(1, "ann", None, 100) == 2
    assert await store.count_waiting(1, "bob", None, 100) == 1
    assert await store.count_waiting(1, "eve", None, 100) == 0
    assert await store.count_waiting(2, "ann", None, 100) == 0


async def test_what_holds_a_gate_is_counted_too(store: Any):
    await submit(store, made(1, "ann"))
    await ordered(store, overlap=Overlap.QUEUE, count=2)
    assert await store.count_waiting(1, "ann", None, 100) == 2


async def test_what_waits_may_be_counted_in_one_queue(store: Any):
    await added(store)
    await submit(store, made(1, "ann"))
    await ordered(store, count=2, queue=1)
    await ordered(store)

    assert await store.count_waiting(1, "ann", 1, 100) == 2
    assert await store.count_waiting(1, "ann", 0, 100) == 1


async def test_what_a_contract_made_for_a_user_counts_to_the_user(store: Any):
    await submit(store, made(1, annotations={"rpc": {"user_id": 7}}))
    await ordered(store)
    assert await store.count_waiting(1, "7", None, 100) == 1
    assert await store.count_waiting(1, "local", None, 100) == 0


async def test_no_more_is_counted_than_asked_for(store: Any):
    await submit(store, made(1, "ann"))
    await ordered(store, count=5)
    assert await store.count_waiting(1, "ann", None, 3) == 3


# ── breakers ──


@pytest.mark.parametrize("state", [State.FAILED, State.TIMED_OUT])
async def test_failures_in_a_row_are_counted(store: Any, state: State):
    await submit(store, made())
    for _ in range(3):
        await ordered(store)
        await end(store, state)
    assert await store.count_failures(1, START, 10) == 3
    assert await store.count_failures(1, START, 2) == 2


async def test_failures_before_a_success_do_not_count(store: Any):
    await submit(store, made())
    for state in (State.FAILED, State.SUCCEEDED, State.FAILED):
        await ordered(store)
        await end(store, state)
    assert await store.count_failures(1, START, 10) == 1


async def test_cancelled_runs_neither_count_nor_end_a_row(store: Any):
    await submit(store, made())
    for state in (State.FAILED, State.CANCELLED, State.FAILED):
        await ordered(store)
        await end(store, state)
    assert await store.count_failures(1, START, 10) == 2


async def test_failures_of_runs_made_before_a_moment_do_not_count(store: Any, clock: FakeClock):
    await submit(store, made())
    await ordered(store)
    await end(store, State.FAILED)
    clock.advance(10)
    await ordered(store)
    await end(store, State.FAILED)
    assert await store.count_failures(1, START + 10 * SECOND, 10) == 1


async def test_two_nodes_that_add_queues_at_once_both_get_an_answer(postgres_url: str):
    """Whoever loses is told so, and tries again."""
    store, other = PostgresStore(postgres_url), PostgresStore(postgres_url)
    await store.open()
    await other.open()
    try:
        made_both = await asyncio.gather(
            *(one.add_queue(Queue(0, f"q{n}"), MOST) for n, one in enumerate((store, other) * 5))
        )
        names = {queue.name for queue in await store.list_queues()}
        assert names == {"default"} | {queue.name for queue in made_both if queue is not None}
        assert len({queue.id for queue in await store.list_queues()}) == len(names)
    finally:
        await store.close()
        await other.close()
