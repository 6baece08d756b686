"""Runs on loan, and segments of schedulers outside Horae: the same on every store."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import asyncpg
import pytest

from horae.core.definitions import Submission
from horae.core.model import SECOND, Loan, Node, Overlap, Phase, Policy, RunFilter, State
from horae.core.runs.orders import Fire, Lend, NewRun, Order, Result, Waiting
from horae.errors import Unavailable
from horae.ports.store import Store
from horae.stores.postgres import PostgresStore
from horae.testing import START, FakeClock, make_job

from ..claiming import claim

UNTIL = START + 30 * SECOND
MINE = Lend("w1", UNTIL)


async def queue(store: Store, job_id: int = 1, *, kind: str = "python", **fields: object) -> int:
    """Return a queued run of a job of its own."""
    if await store.get_job(job_id) is None:
        await store.submit([Submission([make_job(job_id, kind=kind)])])
    fields = {"priority": 5, "overlap": Overlap.FORBID, **fields}
    [receipt] = await store.enqueue([Order(NewRun(job_id=job_id, kind=kind, **fields))])  # type: ignore[arg-type]
    return receipt.ids[0]


async def lent(store: Store, job_id: int = 1, lend: Lend = MINE, **fields: object) -> Loan:
    run_id = await queue(store, job_id, **fields)
    loan = await store.lend([], lend, run_id)
    assert loan is not None
    return loan


def ended(loan: Loan, state: State = State.SUCCEEDED) -> Result:
    return Result(loan.run_id, loan.fence, state, finished_at=START)


# ── lend ──


async def test_a_lent_run_is_running_in_the_phase_of_preparing_with_its_worker_as_node(store: Store):
    run_id = await queue(store)

    loan = await store.lend(["python"], MINE)

    run = await store.get_run(run_id)
    assert loan == Loan(run_id, 1, 1, 1, "w1", UNTIL)
    assert (run.state, run.phase, run.node, run.attempt, run.fence) == (State.RUNNING, Phase.PREPARING, "w1", 1, 1)
    assert run.started_at == START
    assert await claim(store, "n1", "python", [], 10) == []


async def test_lending_is_in_the_order_of_claims_across_the_kinds(store: Store):
    low = await queue(store, 1, kind="shell", priority=1)
    high = await queue(store, 2, kind="python", priority=9)
    other = await queue(store, 3, kind="git_java", priority=9)

    loans = [await store.lend(["shell", "python"], MINE) for _ in range(3)]

    assert [loan and loan.run_id for loan in loans] == [high, low, None]
    assert (await store.get_run(other)).state is State.QUEUED


async def test_runs_with_a_pin_or_labels_are_lent_only_when_asked_for_by_id(store: Store):
    pinned = await queue(store, 1, pin="n1")
    labelled = await queue(store, 2, needs=("gpu",))

    assert await store.lend(["python"], MINE) is None
    assert (await store.lend([], MINE, pinned)).run_id == pinned
    assert (await store.lend([], MINE, labelled)).run_id == labelled


async def test_a_run_past_its_start_deadline_is_lent_to_nobody(store: Store, clock: FakeClock):
    run_id = await queue(store, start_by=START + SECOND)
    clock.advance(2)

    assert await store.lend(["python"], MINE) is None
    assert await store.lend([], MINE, run_id) is None


async def test_a_lent_run_has_met_its_start_deadline(store: Store, clock: FakeClock):
    loan = await lent(store, start_by=START + SECOND)
    clock.advance(2)

    await store.sweep()

    assert (await store.get_run(loan.run_id)).state is State.RUNNING


async def test_what_runs_or_has_ended_or_does_not_exist_is_not_lent(store: Store):
    loan = await lent(store)

    assert await store.lend([], replace_worker("w2"), loan.run_id) is None
    await store.finish([ended(loan)])
    assert await store.lend([], MINE, loan.run_id) is None
    assert await store.lend([], MINE, 999) is None


def replace_worker(worker: str, until_at: int = UNTIL) -> Lend:
    return Lend(worker, until_at)


async def test_many_who_ask_at_once_get_different_runs(store: Store):
    made = {await queue(store, i) for i in range(1, 9)}

    loans = await asyncio.gather(*(store.lend(["python"], replace_worker(f"w{i}")) for i in range(12)))

    given = [loan.run_id for loan in loans if loan]
    assert sorted(given) == sorted(made)


async def test_a_run_is_lent_again_under_a_higher_fence_after_a_loss(store: Store):
    first = await lent(store)
    lost = replace(ended(first, State.FAILED), reason="lost")
    await store.finish([], [Waiting(lost, None, lost=True)])

    second = await store.lend(["python"], replace_worker("w2"))

    assert (second.run_id, second.fence, second.attempt) == (first.run_id, 2, 2)
    assert [loan.worker for loan in await store.load_loans()] == ["w2"]
    assert (await store.finish([ended(first)])).accepted == set()


async def test_a_run_that_comes_back_from_a_loan_has_no_phase_of_its_own(store: Store):
    loan = await lent(store)
    await store.finish([], [Waiting(replace(ended(loan, State.FAILED), reason="lost"), None, lost=True)])

    await claim(store, "n1", "python", [], 1)

    assert (await store.get_run(loan.run_id)).phase is Phase.RUNNING


# ── renew ──


async def test_a_report_prolongs_a_loan_and_notes_phase_worker_and_progress(store: Store):
    loan = await lent(store)

    asked = await store.renew_loan(loan.run_id, 1, Lend("w2", UNTIL + 5), Phase.RUNNING, '{"done":7}')

    run = await store.get_run(loan.run_id)
    assert asked is False
    assert (run.phase, run.node) == (Phase.RUNNING, "w2")
    assert await store.load_loans([loan.run_id]) == [Loan(loan.run_id, 1, 1, 1, "w2", UNTIL + 5, {"done": 7})]


async def test_what_a_report_does_not_say_stays_as_it_was(store: Store):
    loan = await lent(store)
    await store.renew_loan(loan.run_id, 1, MINE, Phase.RUNNING, '{"done":7}')

    await store.renew_loan(loan.run_id, None, Lend("w1", UNTIL + 5))

    [found] = await store.load_loans()
    assert found.progress == {"done": 7}
    assert found.until_at == UNTIL + 5
    assert (await store.get_run(loan.run_id)).phase is Phase.RUNNING


async def test_a_report_is_told_that_somebody_wants_the_run_cancelled(store: Store):
    loan = await lent(store)
    await store.cancel([loan.run_id], "requested")

    assert await store.renew_loan(loan.run_id, 1, MINE) is True


async def test_a_report_for_another_attempt_changes_nothing(store: Store):
    loan = await lent(store)

    assert await store.renew_loan(loan.run_id, 2, Lend("w2", UNTIL + 5)) is None
    assert await store.load_loans() == [loan]


async def test_only_what_is_on_loan_is_renewed(store: Store):
    claimed = await queue(store, 1)
    await claim(store, "n1", "python", [], 1)
    waiting = await queue(store, 2)
    over = await lent(store, 3)
    await store.finish([ended(over)])

    for run_id in (claimed, waiting, over.run_id, 999):
        assert await store.renew_loan(run_id, None, MINE) is None
    assert (await store.get_run(claimed)).node == "n1"


async def test_a_run_that_went_from_a_loan_to_an_agent_is_no_loan(store: Store):
    loan = await lent(store)
    await store.finish([], [Waiting(replace(ended(loan, State.FAILED), reason="lost"), None, lost=True)])
    await claim(store, "n1", "python", [], 1)

    assert await store.renew_loan(loan.run_id, None, MINE) is None
    assert await store.load_loans() == []
    assert not await store.return_loan(loan.run_id, 2)


# ── load ──


async def test_loans_under_way_come_oldest_first(store: Store, clock: FakeClock):
    second = await queue(store, 1)
    first = await lent(store, 2)
    clock.advance(1)
    later = await store.lend([], MINE, second)

    assert await store.load_loans() == [first, later]
    assert await store.load_loans([second]) == [later]
    assert await store.load_loans([]) == []


async def test_a_loan_is_overdue_when_its_time_has_come_and_not_before(store: Store, clock: FakeClock):
    loan = await lent(store)
    clock.advance(29.9)
    assert await store.load_overdue_loans() == []

    clock.advance(0.1)

    assert await store.load_overdue_loans() == [loan]


async def test_a_renewed_loan_is_not_overdue(store: Store, clock: FakeClock):
    loan = await lent(store)
    clock.advance(31)

    await store.renew_loan(loan.run_id, 1, Lend("w1", clock.now() + SECOND))

    assert await store.load_overdue_loans() == []


async def test_an_ended_loan_is_never_overdue_and_leaves_nothing(store: Store, clock: FakeClock):
    loan, other = await lent(store, 1), await lent(store, 2)
    await store.finish([ended(loan)])
    clock.advance(31)

    assert await store.load_overdue_loans() == [other]
    rows = await store.read("SELECT run_id FROM loans")  # type: ignore[attr-defined]
    assert [row[0] for row in rows] == [other.run_id]


async def test_a_run_that_is_lent_anew_keeps_its_loan_while_ended_ones_are_dropped(
    postgres_store: PostgresStore, postgres_url: str
):
    loan = await lent(postgres_store)
    await postgres_store.return_loan(loan.run_id, loan.fence)
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("INSERT INTO loans VALUES ($1, $2, 1, 'w1')", loan.run_id, UNTIL)
    async with connection.transaction():
        await connection.execute("UPDATE live SET state = 1, fence = 2 WHERE id = $1", loan.run_id)
        await connection.execute("UPDATE loans SET fence = 2 WHERE run_id = $1", loan.run_id)
        dropping = asyncio.create_task(postgres_store.load_overdue_loans())
        while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0)
    await connection.close()
    await dropping

    assert [each.fence for each in await postgres_store.load_loans()] == [2]


# ── return ──


async def test_a_returned_run_waits_as_if_it_had_never_been_lent(store: Store):
    loan = await lent(store)
    await store.renew_loan(loan.run_id, 1, MINE, Phase.PREPARING)

    assert await store.return_loan(loan.run_id, loan.fence)

    run = await store.get_run(loan.run_id)
    assert (run.state, run.attempt, run.node, run.started_at) == (State.QUEUED, 0, None, None)
    assert run.phase is Phase.RUNNING  # what every run has until somebody says otherwise
    assert await store.load_loans() == []
    [claimed] = await claim(store, "n1", "python", [], 1)
    assert (claimed.attempt, claimed.fence) == (1, 2)


async def test_a_loan_is_returned_once_and_only_under_its_fence(store: Store):
    loan = await lent(store)

    assert not await store.return_loan(loan.run_id, loan.fence + 1)
    assert await store.return_loan(loan.run_id, loan.fence)
    assert not await store.return_loan(loan.run_id, loan.fence)
    assert not await store.return_loan(999, 1)


async def test_a_run_of_an_agent_cannot_be_returned(store: Store):
    run_id = await queue(store)
    [claimed] = await claim(store, "n1", "python", [], 1)

    assert not await store.return_loan(run_id, claimed.fence)
    assert (await store.get_run(run_id)).state is State.RUNNING


async def test_a_returned_run_that_nobody_wants_any_more_ends_as_cancelled(store: Store):
    loan = await lent(store)
    await store.cancel([loan.run_id], "requested")

    assert await store.return_loan(loan.run_id, loan.fence)

    run = await store.get_run(loan.run_id)
    assert (run.state, run.reason, run.attempt, run.finished_at) == (State.CANCELLED, "requested", 0, START)
    assert await store.load_loans() == []


async def test_the_successor_of_a_returned_and_cancelled_run_takes_its_place(store: Store):
    loan = await lent(store, overlap=Overlap.QUEUE)
    successor = await queue(store, overlap=Overlap.QUEUE)
    await store.cancel([loan.run_id], "requested")

    await store.return_loan(loan.run_id, loan.fence)

    assert (await store.get_run(successor)).state is State.QUEUED


# ── fire ──


async def due(store: Store, job_id: int = 1, **policy: object) -> Fire:
    """Return a job that is due, and what its scheduler asks of the store."""
    job = make_job(job_id, trigger_id=job_id * 10, next_at=START, policy=Policy(**policy))  # type: ignore[arg-type]
    await store.submit([Submission([job])])
    new = NewRun(job.id, job.kind, 5, job.policy.overlap)
    return Fire(job_id * 10, job.segment, 1, START, START + 60 * SECOND, START, new, START)


async def runs_of(store: Store, job_id: int):
    return (await store.list_runs(RunFilter(job_id=job_id), None, 100)).items


async def test_a_fired_run_is_lent_from_its_birth(store: Store):
    fire = await due(store)

    fired = await store.fire([fire], lend=MINE)

    [run] = await runs_of(store, 1)
    assert (fired.advanced, fired.queued) == ({10}, 0)
    assert (run.state, run.phase, run.node) == (State.RUNNING, Phase.PREPARING, "w1")
    assert (run.attempt, run.fence, run.started_at) == (1, 1, START)
    assert await store.load_loans() == [Loan(run.id, 1, 1, 1, "w1", UNTIL)]


async def test_a_moment_that_was_fired_before_lends_nothing(store: Store):
    fire = await due(store)
    await store.fire([fire])

    fired = await store.fire([fire], lend=MINE)

    assert fired.advanced == set()
    assert await store.load_loans() == []
    assert [run.state for run in await runs_of(store, 1)] == [State.QUEUED]


async def test_a_moment_that_overlaps_lends_nothing(store: Store):
    fire = await due(store)
    await queue(store, 1)

    fired = await store.fire([fire], lend=MINE)

    assert (fired.queued, fired.skipped) == (0, 1)
    assert await store.load_loans() == []
    assert {run.state for run in await runs_of(store, 1)} == {State.QUEUED, State.SKIPPED}


async def test_a_successor_that_must_wait_is_not_lent(store: Store):
    fire = await due(store, overlap=Overlap.QUEUE)
    before = await lent(store, overlap=Overlap.QUEUE)

    await store.fire([fire], lend=MINE)

    assert [loan.run_id for loan in await store.load_loans()] == [before.run_id]
    assert {run.state for run in await runs_of(store, 1)} == {State.RUNNING, State.BLOCKED}


async def test_a_run_that_replaced_a_waiting_one_is_lent(store: Store):
    fire = await due(store, overlap=Overlap.REPLACE)
    waiting = await queue(store, overlap=Overlap.REPLACE)

    fired = await store.fire([fire], lend=MINE)

    [loan] = await store.load_loans()
    assert loan.run_id != waiting
    assert fired.queued == 0
    assert (await store.get_run(waiting)).state is State.CANCELLED


async def test_missed_moments_are_accounted_for_when_their_run_is_lent(store: Store, clock: FakeClock):
    clock.advance(120)
    fire = replace(await due(store), due_at=START + SECOND, passed=[(START, State.COALESCED, "misfire")])

    await store.fire([fire], lend=Lend("w1", clock.now() + SECOND))

    past, run = sorted(await runs_of(store, 1), key=lambda run: run.due_at)
    assert (past.state, past.into_run_id) == (State.COALESCED, run.id)
    assert run.state is State.RUNNING


# ── failover ──


async def test_nothing_is_lent_while_claims_may_have_been_lost(postgres_store: PostgresStore):
    run_id = await queue(postgres_store)
    fire = await due(postgres_store, 2)
    postgres_store._past.met_at = time.monotonic()

    assert await postgres_store.lend(["python"], MINE) is None
    assert await postgres_store.lend([], MINE, run_id) is None
    with pytest.raises(Unavailable):
        await postgres_store.fire([fire], lend=MINE)
    assert await runs_of(postgres_store, 2) == []


async def test_a_loan_has_a_fence_of_the_servers_timeline(postgres_store: PostgresStore):
    await queue(postgres_store, 1)
    await claim(postgres_store, "n1", "python", [], 1)
    postgres_store._past.timeline = 3
    fire = await due(postgres_store, 2)
    run_id = await queue(postgres_store, 3)

    await postgres_store.fire([fire], lend=MINE)
    loan = await postgres_store.lend([], MINE, run_id)

    assert loan.fence == 2 * 2**20 + 1
    assert {each.fence for each in await postgres_store.load_loans()} == {loan.fence}


# ── segments ──


async def join(store: Store, *names: str) -> None:
    for name in names:
        await store.register_node(Node(name, ("outside-scheduler",), (), (), 0, "", "", START, START, 0))


async def test_a_worker_gets_the_lowest_segments_that_are_free(store: Store):
    await join(store, "a", "b")

    assert await store.take_segments("a", 3) == [0, 1, 2]
    assert await store.take_segments("b", 2) == [3, 4]
    assert await store.take_segments("a", 5) == [0, 1, 2, 5, 6]
    assert await store.load_taken_segments() == {
        **dict.fromkeys((0, 1, 2, 5, 6), ("a", START)),
        **dict.fromkeys((3, 4), ("b", START)),
    }


async def test_a_worker_that_wants_fewer_loses_the_highest(store: Store):
    await join(store, "a", "b")
    await store.take_segments("a", 5)

    assert await store.take_segments("a", 2) == [0, 1]
    assert await store.take_segments("b", 1) == [2]
    assert await store.take_segments("a", 0) == []


async def test_there_are_no_more_segments_than_there_are(store: Store):
    await join(store, "a", "b")

    assert await store.take_segments("a", 1000) == list(range(100))
    assert await store.take_segments("b", 1) == []


async def test_a_segment_keeps_its_moment_when_more_are_taken(store: Store, clock: FakeClock):
    await join(store, "a")
    await store.take_segments("a", 1)
    clock.advance(5)

    await store.take_segments("a", 2)

    assert await store.load_taken_segments() == {0: ("a", START), 1: ("a", START + 5 * SECOND)}


async def test_a_worker_that_is_told_holds_exactly_that(store: Store):
    await join(store, "a", "b")
    await store.take_segments("a", 3)

    await store.hold_segments("b", [2, 7])

    assert await store.load_taken_segments() == {
        **dict.fromkeys((0, 1), ("a", START)),
        **dict.fromkeys((2, 7), ("b", START)),
    }
    await store.hold_segments("b", [7])
    assert await store.take_segments("a", 3) == [0, 1, 2]


async def test_workers_that_are_told_to_hold_none_are_known(store: Store):
    await join(store, "a", "b")

    await store.hold_segments("a", [])
    await store.hold_segments("b", [])
    await store.hold_segments("b", [])

    taken = await store.load_taken_segments()
    assert sorted(worker for worker, _ in taken.values()) == ["a", "b"]
    assert all(segment < 0 for segment in taken)
    assert await store.take_segments("a", 2) == [0, 1]
    await store.drop_segments("b")
    assert {worker for worker, _ in (await store.load_taken_segments()).values()} == {"a"}


async def test_who_is_gone_holds_nothing(store: Store):
    await join(store, "a", "b")
    await store.take_segments("a", 2)

    await store.retire_node("a", "gone")

    assert await store.load_taken_segments() == {}
    assert await store.take_segments("a", 2) == []
    assert await store.take_segments("b", 1) == [0]
    await join(store, "a")
    assert await store.load_taken_segments() == {0: ("b", START)}


async def test_dropped_segments_are_free(store: Store):
    await join(store, "a", "b")
    await store.take_segments("a", 2)

    await store.drop_segments("a")

    assert await store.take_segments("b", 1) == [0]


async def test_workers_that_ask_at_once_never_share_a_segment(store: Store):
    names = [f"w{i}" for i in range(10)]
    await join(store, *names)

    held = await asyncio.gather(*(store.take_segments(name, 10) for name in names))

    assert sorted(segment for each in held for segment in each) == list(range(100))


async def test_workers_of_two_servers_that_ask_at_once_never_share_a_segment(
    postgres_store: PostgresStore, postgres_url: str, clock: FakeClock
):
    other = PostgresStore(postgres_url, clock=clock)
    await other.open()
    names = [f"w{i}" for i in range(10)]
    await join(postgres_store, *names)

    asked = ((postgres_store, other)[i % 2].take_segments(name, 10) for i, name in enumerate(names))
    held = await asyncio.gather(*asked)
    await other.close()

    assert sorted(segment for each in held for segment in each) == list(range(100))
