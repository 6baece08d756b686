"""What an overview reads stays true however many runs wait, and however fast they end: the same on every store."""

from __future__ import annotations

import pytest

from horae.core.insight.arrivals import Window
from horae.core.model import SECOND, Moment, RunFilter, State
from horae.ports.store import Store
from horae.service.jobs.glances import MOST_LATE, Glances
from horae.stores.database import Database
from horae.stores.parts import lists
from horae.testing import FakeClock, make_job
from tests.contract.test_search import keep

HOUR = 3600 * SECOND
BACKLOG = 10_000
SERIES = "(WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last}) SELECT i FROM n) AS n"


async def write(store: Store, statement: str) -> None:
    assert isinstance(store, Database)
    await store.write(statement)


async def put_live(store: Store, first: int, last: int, at: Moment, state: State, reason: str = "") -> None:
    """Add live runs of job 1 with these ids, all of them made at a moment."""
    node, started = ("'n1'", at) if state is State.RUNNING else ("NULL", "NULL")
    columns = "id, job_id, due_at, created_at, started_at, state, reason, priority, overlap, kind, node, attempt, fence"
    values = f"i, 1, {at}, {at}, {started}, {state:d}, '{reason}', 5, 1, 'python', {node}, 1, 1"
    await write(store, f"INSERT INTO live ({columns}) SELECT {values} FROM {SERIES.format(first=first, last=last)}")


async def put_ended(
    store: Store, job_id: int, first: int, last: int, at: Moment, every: int, state: State, late: int = 0
) -> None:
    """Add runs of a job that have ended, with these ids, one every so many microseconds from a moment on."""
    columns = (
        "id, job_id, due_at, created_at, started_at, finished_at, fence, state, attempt, priority, lost, kind, reason, "
        "message"
    )
    values = f"i, {job_id}, at, at, at + {late}, at + {late}, 1, {state:d}, 1, 5, 0, 'python', '', ''"
    ids = f"SELECT i, {at} + (i - {first}) * {every} AS at FROM {SERIES.format(first=first, last=last)}"
    await write(store, f"INSERT INTO history ({columns}) SELECT {values} FROM ({ids}) AS r")


async def test_what_runs_is_found_below_a_backlog(store: Store, clock: FakeClock):
    await keep(store, make_job(1))
    await put_live(store, 1, 3, clock.now() - HOUR, State.RUNNING)
    await put_live(store, 4, BACKLOG, clock.now(), State.QUEUED)
    glances = Glances(store)
    assert [run.id for run in await glances.running(None, 2)] == [3, 2]
    assert [run.id for run in await glances.running(1, 9)] == [3, 2, 1]
    assert await glances.running(7, 9) == []


async def test_late_runs_are_counted_below_a_backlog_and_many_are_told_as_more(store: Store, clock: FakeClock):
    await keep(store, make_job(1))
    await put_live(store, 1, 1, clock.now() - HOUR, State.BLOCKED, "later")
    await put_live(store, 2, 4, clock.now() - HOUR, State.QUEUED)
    await put_live(store, 5, BACKLOG, clock.now(), State.QUEUED)
    glances = Glances(store)
    assert await glances.late(clock.now() - SECOND, None) == (3, False, 2, clock.now() - HOUR)
    assert await glances.late(clock.now() - SECOND, 7) == (0, False, None, None)
    assert await glances.late(clock.now() + SECOND, 1) == (MOST_LATE, True, 2, clock.now() - HOUR)


async def test_what_is_blocked_for_long_is_counted_by_its_reason(store: Store, clock: FakeClock):
    await keep(store, make_job(1))
    await put_live(store, 1, 2, clock.now() - HOUR, State.BLOCKED, "limit")
    await put_live(store, 3, 3, clock.now(), State.BLOCKED, "limit")
    await put_live(store, 4, 4, clock.now(), State.BLOCKED, "later")
    await put_live(store, 5, BACKLOG, clock.now(), State.QUEUED)
    found, is_cut = await Glances(store).held(clock.now() - SECOND, None)
    assert found == [("later", 1, 0, None, None), ("limit", 3, 2, 1, clock.now() - HOUR)]
    assert not is_cut
    assert await Glances(store).held(clock.now(), 7) == ([], False)


async def test_the_oldest_of_a_backlog_are_on_the_first_page_of_their_list(store: Store, clock: FakeClock):
    await keep(store, make_job(1))
    await put_live(store, 1, 2, clock.now() - HOUR, State.QUEUED)
    await put_live(store, 3, BACKLOG, clock.now(), State.QUEUED)
    assert BACKLOG > lists.SCANNED
    page = await store.list_runs(RunFilter(states=(State.QUEUED,), due_until=clock.now(), org=1), None, 50)
    assert ([run.id for run in page.items], page.cursor) == ([2, 1], None)


async def test_a_job_that_fails_ever_again_does_not_hide_another(store: Store, clock: FakeClock):
    await keep(store, make_job(1), make_job(2), make_job(3))
    at = clock.now() - HOUR
    await put_ended(store, 3, 1, 1, at - HOUR, 0, State.FAILED)
    await put_ended(store, 2, 2, 2, at, 0, State.TIMED_OUT)
    await put_ended(store, 1, 3, 5000, at + 1, 1, State.FAILED)
    assert await failing(store, at) == ([5000, 2], 2)
    assert await failing(store, at - HOUR, 1) == ([5000, 2, 1], 3)
    assert await failing(store, at - HOUR, shown=1) == ([5000], 3)
    assert await failing(store, at - HOUR, most=2) == ([5000, 2], 2)
    assert await failing(store, at, 7) == ([], 0)


async def test_a_job_that_was_done_or_cancelled_since_it_failed_is_not_failing(store: Store, clock: FakeClock):
    await keep(store, *(make_job(id_) for id_ in range(1, 7)))
    at = clock.now() - HOUR
    since = [State.SUCCEEDED, State.CANCELLED, State.SKIPPED, State.COALESCED, State.TIMED_OUT]
    for job_id, state in enumerate(since, 1):
        await put_ended(store, job_id, job_id, job_id, at, 0, State.FAILED)
        await put_ended(store, job_id, job_id + 10, job_id + 10, at + 1, 0, state)
    await put_ended(store, 6, 6, 6, at, 0, State.FAILED)
    assert await failing(store, at) == ([15, 6, 4, 3], 4)
    await store.delete_job(6)
    assert await failing(store, at) == ([15, 4, 3], 3)


async def failing(
    store: Store, since: Moment, org: int | None = None, *, shown: int = 9, most: int = 9
) -> tuple[list[int], int]:
    runs, number = await Glances(store).failing(since, org, shown, most)
    return [run.id for run in runs], number


async def test_of_few_runs_each_counts_in_the_part_in_which_it_ended(store: Store, clock: FakeClock):
    await keep(store, make_job(1))
    start = clock.now() - 4 * HOUR
    await put_ended(store, 1, 1, 1, start - HOUR, 0, State.SUCCEEDED, late=2 * HOUR)  # made before, ended within
    await put_ended(store, 1, 2, 11, start, 1, State.SUCCEEDED)
    await put_ended(store, 1, 12, 13, start + 3 * HOUR, 0, State.FAILED, late=SECOND)
    found = await Glances(store).activity(Window(start, clock.now()), 4, None)
    assert (found.ended, found.bad) == ([10, 1, 0, 2], [0, 0, 0, 2])
    assert found.late == [0, 2 * HOUR, 0, SECOND]
    assert (len(found.marks), found.is_whole) == (13, True)
    assert sum((await Glances(store).activity(Window(start, clock.now()), 4, 7)).ended) == 0


@pytest.mark.parametrize("waiting", [0, BACKLOG], ids=["", "with-a-backlog"])
async def test_at_a_hundred_runs_a_second_every_part_has_about_as_many_as_ended(
    store: Store, clock: FakeClock, waiting: int
):
    """Five minutes; in the last of them everything fails, and begins a second late."""
    await keep(store, make_job(1))
    start = clock.now() - 300 * SECOND
    await put_ended(store, 1, 1, 24_000, start, SECOND // 100, State.SUCCEEDED)
    await put_ended(store, 1, 24_001, 30_000, start + 240 * SECOND, SECOND // 100, State.FAILED, SECOND)
    if waiting:
        await put_live(store, 30_001, 30_000 + waiting, clock.now(), State.QUEUED)
    found = await Glances(store).activity(Window(start, clock.now()), 5, 1)
    assert not found.is_whole
    assert len(found.marks) < 1000
    assert [round(one, -3) for one in found.ended] == [6000] * 5
    assert found.bad[:4] == [0] * 4
    assert round(found.bad[4], -3) == 6000
    assert found.late == [0, 0, 0, 0, SECOND]
