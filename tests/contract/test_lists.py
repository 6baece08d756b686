"""Lists cost the same however long the past is: what they look at is bounded, and reached by index."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from horae.core.definitions import Sort, Submission
from horae.core.model import SECOND, JobFilter, RunFilter, State
from horae.core.runs.orders import NewRun, Order, Result
from horae.errors import Invalid
from horae.ports.store import Store
from horae.stores.parts import lists, search
from horae.testing import START, make_job

from ..claiming import claim

LIVE = tuple(state for state in State if not state.is_terminal)


async def run(store: Store, job_id: int, state: State = State.SUCCEEDED) -> int:
    [receipt] = await store.enqueue([Order(NewRun(job_id, "python", 5, 1))])
    [claimed] = [a for a in await claim(store, "node", "python", (), 100) if a.run_id == receipt.ids[0]]
    await store.finish([Result(claimed.run_id, claimed.fence, state, "", START, START + SECOND)])
    return receipt.ids[0]


async def walk(store: Store, where: RunFilter, limit: int = 100) -> list[list[int]]:
    """Return the ids of each page, to the end."""
    pages, cursor = [], None
    while True:
        page = await store.list_runs(where, cursor, limit)
        pages.append([run.id for run in page.items])
        cursor = page.cursor
        if cursor is None:
            return pages


async def test_a_page_that_has_looked_at_enough_ends_short_and_its_cursor_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "SCANNED", 8)
    await store.submit([Submission([make_job(1), make_job(2)])])
    mine = [await run(store, 1)]
    for _ in range(12):
        await run(store, 2)
    due = (await store.list_runs(RunFilter(job_id=1), None, 1)).items[0].due_at
    pages = await walk(store, RunFilter(due_until=due + 1, due_from=due))
    found = [run_id for page in pages for run_id in page]
    assert len(pages) > 1
    assert len(found) == len(set(found))
    assert set(mine) <= set(found)


async def test_no_run_is_left_out_or_shown_twice_by_pages_of_any_size(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "SCANNED", 12)
    await store.submit([Submission([make_job(1, trigger_id=7, next_at=START + 9 * SECOND), make_job(2)])])
    ends = [State.FAILED, State.SUCCEEDED, State.TIMED_OUT, State.CANCELLED]
    made = [await run(store, 1 + number % 2, ends[number % 4]) for number in range(14)]
    [queued] = await store.enqueue([Order(NewRun(1, "python", 5, 1))])
    everything = [*made, *queued.ids]
    for limit in (1, 3, 100):
        for where, wanted in (
            (RunFilter(), everything),
            (RunFilter(job_id=1), [*made[::2], *queued.ids]),
            (RunFilter(states=(State.FAILED, State.CANCELLED)), [i for n, i in enumerate(made) if n % 4 in (0, 3)]),
            (RunFilter(states=(State.SUCCEEDED, State.QUEUED)), [*made[1::4], *queued.ids]),
            (RunFilter(job_id=1, states=(State.FAILED,)), made[::4]),
            (RunFilter(trigger_id=7), []),
            (RunFilter(due_from=START), everything),
        ):
            found = [run_id for page in await walk(store, where, limit) for run_id in page]
            assert found == sorted(wanted, reverse=True), where


async def test_runs_due_since_end_where_everything_older_was_made_long_before(
    store: Store, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "SCANNED", 4)
    await store.submit([Submission([make_job(1)])])
    for _ in range(20):
        await run(store, 1)
    clock.advance(3 * lists.AHEAD / SECOND)
    late = await run(store, 1)
    pages = await walk(store, RunFilter(due_from=clock.now() - SECOND))
    assert pages[0] == [late]
    assert len(pages) < 5


@pytest.mark.parametrize(
    ("states", "tables"), [((State.QUEUED,), {"live"}), ((State.FAILED,), {"history"}), (LIVE, {"live"})]
)
async def test_a_live_state_is_never_looked_for_in_history_nor_an_end_among_the_living(
    store: Any, states: tuple[State, ...], tables: set[str]
) -> None:
    for where in (RunFilter(states=states), RunFilter(job_id=1, states=states)):
        assert {stretch.table for stretch in store._wanted_runs(where).stretches} == tables


async def test_a_job_is_found_by_its_whole_name_and_by_its_key_alone(store: Store) -> None:
    jobs = [make_job(1, name="backup"), make_job(2, name="backup 2"), make_job(3, name="other", key="k")]
    await store.submit([Submission(jobs)])
    assert [job.id for job in (await store.list_jobs(JobFilter(named="backup"), None, 9)).items] == [1]
    assert [job.id for job in (await store.list_jobs(JobFilter(key="k"), None, 9)).items] == [3]
    assert (await store.list_jobs(JobFilter(named="Backup"), None, 9)).items == []


async def test_names_of_jobs_are_those_that_are_there_deleted_ones_included(store: Store) -> None:
    await store.submit([Submission([make_job(1, name="one"), make_job(2, name="two")])])
    await store.delete_job(2)
    assert await store.load_job_names([1, 2, 3]) == {1: "one", 2: "two"}
    assert await store.load_job_names([]) == {}


async def test_a_search_for_part_of_a_name_goes_on_by_cursor(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "SCANNED", 3)
    await store.submit([Submission([make_job(1, name="needle"), *(make_job(i, name="hay") for i in range(2, 12))])])
    first = await store.list_jobs(JobFilter(name="EEDL"), None, 9)
    assert (first.items, first.cursor is None) == ([], False)
    cursor, found = first.cursor, []
    while cursor is not None:
        page = await store.list_jobs(JobFilter(name="EEDL"), cursor, 9)
        found, cursor = found + [job.id for job in page.items], page.cursor
    assert found == [1]


async def test_the_triggers_of_a_job_are_those_that_it_names(store: Store) -> None:
    jobs = [make_job(i, trigger_id=i + 10, next_at=START + SECOND) for i in (1, 2)]
    await store.submit([Submission([*jobs, make_job(3)])])
    assert [t.id for t in (await store.list_triggers(2, None, 9)).items] == [12]
    assert (await store.list_triggers(3, None, 9)).items == []
    assert (await store.list_triggers(99, None, 9)).items == []


async def test_a_list_by_number_says_that_it_is_cut_and_refuses_what_it_does_not_reach(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SORTED", 4)
    await store.submit([Submission([make_job(i, name=f"job {i}") for i in range(1, 9)])])
    made = [await run(store, 1) for _ in range(8)]
    found = await store.search_runs(RunFilter(org=1), [Sort("started_at")], 0, 3)
    assert (found.is_cut, found.total < 8) == (True, True)
    assert {run.id for run, _ in found.items} < set(made[-4:])
    with pytest.raises(Invalid) as refused:
        await store.search_runs(RunFilter(org=1), [Sort("started_at")], 6, 3)
    assert refused.value.code == "E_RANGE"
    jobs = await store.search_jobs(JobFilter(), [Sort("owner")], 0, 9)
    assert (jobs.is_cut, [job.id for job in jobs.items]) == (True, [8, 7, 6, 5])
    by_name = await store.search_jobs(JobFilter(), [Sort("name")], 0, 9)
    assert (by_name.is_cut, by_name.total) == (False, 8)


FILTERS = (
    RunFilter(job_id=1), RunFilter(job_id=1, states=(State.SUCCEEDED,)), RunFilter(states=(State.TIMED_OUT,)),
    RunFilter(trigger_id=11), RunFilter(job_id=1, due_from=START, due_until=START + 1),
    RunFilter(job_id=1, states=LIVE), RunFilter(states=(State.FAILED, State.TIMED_OUT), due_from=START),
)  # fmt: skip


@pytest.mark.parametrize("where", FILTERS, ids=str)
async def test_runs_of_a_job_a_trigger_or_a_state_are_reached_by_their_index(
    store: Any, where: RunFilter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.submit([Submission([make_job(1, trigger_id=11, next_at=START + SECOND)])])
    for state in (State.SUCCEEDED, State.TIMED_OUT):
        await run(store, 1, state)
    plans = await explained(store, monkeypatch, lambda: store.list_runs(where, None, 10))
    assert "SCAN history" not in plans
    assert "Seq Scan on history" not in plans
    assert not is_walked(plans)
    assert "SCAN live" not in plans
    assert not is_half_used(plans)


JOBS = {
    "jobs_paused": (JobFilter(paused=True), ()), "jobs_owner": (JobFilter(owner="ann"), ()),
    "jobs_kind": (JobFilter(kind="shell"), ()), "jobs_named": (JobFilter(), (Sort("name"),)),
}  # fmt: skip


@pytest.mark.parametrize("index", JOBS)
async def test_jobs_are_reached_by_the_index_that_has_what_is_asked_for(
    store: Any, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.submit([Submission([make_job(1)])])
    where, sorts = JOBS[index]
    ask = (lambda: store.search_jobs(where, sorts, 0, 10)) if sorts else (lambda: store.list_jobs(where, None, 10))
    plans = await explained(store, monkeypatch, ask)
    assert index in plans
    assert not is_half_used(plans)


async def test_the_last_success_and_the_standing_of_a_job_are_probes_of_one_index(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.submit([Submission([make_job(1)])])
    await run(store, 1, State.FAILED)
    plans = await explained(store, monkeypatch, lambda: store.load_previous([1]))
    assert "history_job_state" in plans
    assert "history_pkey" not in plans


async def test_the_jobs_of_a_user_are_reached_by_their_index(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.submit([Submission([make_job(1)])])
    plans = await explained(store, monkeypatch, lambda: store.search_jobs(JobFilter(made_for="ann"), (), 0, 10))
    assert "jobs_made_for" in plans


async def test_those_who_come_after_others_are_reached_by_their_index(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.submit([Submission([make_job(1)])])
    plans = await explained(store, monkeypatch, lambda: store.load_following(1, "ann"))
    assert "jobs_following" in plans
    assert not is_half_used(plans)


def is_walked(plans: str) -> bool:
    """Return whether the primary key is followed from its end, where what is rare comes last."""
    lines = plans.splitlines()
    return any("using history_pkey" in line and "id = ANY" not in below for line, below in pairwise(lines))


def is_half_used(plans: str) -> bool:
    """Return whether SQLite takes an index by the range of its first column alone, and reads all that it has there."""
    return re.search(r"USING (COVERING )?INDEX \w+ \(\w+>", plans) is not None


async def explained(store: Any, monkeypatch: pytest.MonkeyPatch, ask: Any) -> str:
    """Return the plans of all that was read, where PostgreSQL does not mind how small the tables are."""
    read, plans = type(store).read, []

    async def explain(statement: str, *args: Any) -> Any:
        if store.dialect == "postgres":
            async with store._readers.use() as connection, connection.transaction():
                await connection.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
                plans.extend(await connection.fetch("EXPLAIN " + statement, *args))
        else:
            plans.extend(row[3:] for row in await read(store, "EXPLAIN QUERY PLAN " + statement, *args))
        return await read(store, statement, *args)

    async def get(name: str, *args: Any) -> Any:
        return await explain(store.queries[name], *args)

    monkeypatch.setattr(store, "read", explain)
    monkeypatch.setattr(store, "_get", get)
    await ask()
    return "\n".join(row[0] for row in plans)
