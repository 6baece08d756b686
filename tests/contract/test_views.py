"""The views for SQL clients, and the start-up rule of the document they come from: the same on every store."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from horae.core.definitions import Submission
from horae.core.model import SECOND, Job, Overlap, State
from horae.core.runs.orders import NewRun, Order, Result
from horae.errors import ConfigError
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.service.firing import Firing
from horae.service.metrics import Metrics
from horae.stores.postgres import PostgresStore
from horae.stores.sqlite import SqliteStore
from horae.testing import START, FakeClock, make_job

from ..claiming import claim

MS = START // 1000
MINUTE = 60 * SECOND


async def rows(store: Store, view: str) -> dict[int, list[tuple[Any, ...]]]:
    """Return the rows of a view as any client sees them, by job."""
    columns = {
        "JobInfo": "datasource_id, job_data",
        "JobScheduler": "last_time_sync, sync_internal, sync_data, last_sync_status",
        "JobHistory": "sync_time, stats_data",
        "JobStatus": "current_status",
    }[view]
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in await store.read(f"SELECT job_id, {columns} FROM {view} ORDER BY 1, 2"):  # type: ignore[attr-defined]
        found.setdefault(row[0], []).append(tuple(row[1:]))
    return found


async def keep(store: Store, *jobs: Job) -> None:
    await store.submit([Submission(list(jobs))])


async def queue(store: Store, job_id: int = 1, overlap: Overlap = Overlap.FORBID) -> int:
    [receipt] = await store.enqueue([Order(NewRun(job_id, "python", 5, overlap))])
    return receipt.ids[0]


async def run(
    store: Store,
    clock: FakeClock,
    job_id: int,
    state: State,
    result: str | None = None,
    seconds: int = 3,
    message: str = "",
) -> int:
    """Return a run that ended so."""
    run_id = await queue(store, job_id)
    [claimed] = await claim(store, "n1", "python", [], 1)
    now = await store.now()
    clock.advance(seconds)
    ended = Result(run_id, claimed.fence, state, "", now, now + seconds * SECOND, result=result, message=message)
    await store.finish([ended])
    return run_id


async def status(store: Store, job_id: int = 1) -> str:
    return (await rows(store, "JobStatus"))[job_id][0][0]


async def test_the_data_of_a_sync_is_its_cursor_and_before_that_the_result_of_its_last_success(
    store: Store, clock: FakeClock
):
    await keep(store, make_job(1), make_job(2))
    for job_id in (1, 2):
        await run(store, clock, job_id, State.SUCCEEDED, '{"rows":3}')
    await store.set_cursor(2, '{"value":7}')

    found = await rows(store, "JobScheduler")

    assert [found[job_id][0][2] for job_id in (1, 2)] == ['{"rows":3}', '{"value":7}']


async def test_the_info_of_a_job_is_its_name_kind_and_spec_and_its_source_if_it_is_a_sync(store: Store):
    await keep(store, make_job(1, name="nightly", spec={"a": [1]}), make_job(2, kind="sync", spec={"source_id": 7}))

    found = await rows(store, "JobInfo")

    assert [(source, json.loads(data)) for source, data in found[1] + found[2]] == [
        (None, {"name": "nightly", "kind": "python", "spec": {"a": [1]}}),
        (7, {"name": "job", "kind": "sync", "spec": {"source_id": 7}}),
    ]


async def test_a_job_that_never_ran_is_init(store: Store):
    await keep(store, make_job(1))

    assert await status(store) == "Init"
    assert await rows(store, "JobScheduler") == {1: [(None, None, None, "Init")]}
    assert await rows(store, "JobHistory") == {}


async def test_a_job_is_syncing_from_the_queue_to_its_end(store: Store):
    await keep(store, make_job(1))
    seen = []
    await queue(store, overlap=Overlap.QUEUE)
    seen.append(await status(store))
    [claimed] = await claim(store, "n1", "python", [], 1)
    seen.append(await status(store))
    await queue(store, overlap=Overlap.QUEUE)
    await store.finish([Result(claimed.run_id, claimed.fence, State.SUCCEEDED, finished_at=START)])
    seen.append(await status(store))  # its successor waits

    assert seen == ["Syncing"] * 3


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (State.SUCCEEDED, "Synced"),
        (State.FAILED, "Error"),
        (State.TIMED_OUT, "Error"),
        (State.CANCELLED, "Unknown"),
    ],
)
async def test_the_last_run_is_the_status(store: Store, clock: FakeClock, state: State, word: str):
    await keep(store, make_job(1))
    await run(store, clock, 1, state)

    assert await status(store) == word
    assert (await rows(store, "JobScheduler"))[1] == [(MS + 3000, None, None, word)]


async def test_moments_that_were_skipped_are_no_status(store: Store, clock: FakeClock):
    await keep(store, make_job(1))
    await run(store, clock, 1, State.SUCCEEDED)
    waiting = await queue(store)
    skipped = await queue(store)
    assert (await store.get_run(skipped)).state is State.SKIPPED
    await store.cancel([waiting], "requested")

    assert await status(store) == "Unknown"
    assert len((await rows(store, "JobHistory"))[1]) == 2


async def test_the_schedule_row_has_the_last_end_and_the_data_of_the_last_success(store: Store, clock: FakeClock):
    await keep(store, make_job(1))
    await run(store, clock, 1, State.SUCCEEDED, '{"last":5}')
    clock.advance(57)
    await run(store, clock, 1, State.FAILED)

    assert (await rows(store, "JobScheduler"))[1] == [(MS + 63_000, None, '{"last":5}', "Error")]


@pytest.mark.parametrize(
    ("schedule", "minutes"),
    [
        ({"every": "5m"}, 5),
        ({"every": "1h30m"}, 90),
        ({"every": "7d"}, 10_080),
        ({"every": "1d2h3m"}, 1563),
        ({"every": "45s"}, 0.75),
        ({"every": "1m30s", "start_at": "2027-01-01T00:00:00Z"}, 1.5),
        ({"every": "300ms"}, 0.005),
        ({"every": "2h", "mode": "delay"}, 120),
        ({"period": {"unit": "minute", "every": 10}}, 10),
        ({"period": {"unit": "hour"}}, 60),
        ({"period": {"unit": "day"}}, 1440),
        ({"period": {"unit": "week", "every": 2, "days": ["mon", "thu"]}}, 20_160),
        ({"period": {"unit": "month", "month_days": [1, 15]}}, 43_200),
        ({"period": {"unit": "year"}}, 525_600),
        ({"cron": "0 2 * * *"}, None),
        ({"at": "2027-03-28T02:30:00Z"}, None),
    ],
)
async def test_a_plain_interval_is_told_in_minutes(store: Store, schedule: dict[str, Any], minutes: float | None):
    await keep(store, make_job(1, trigger_id=1, schedule=schedule, data={"every": "9m", "n": "\0"}))

    [(_, interval, _, _)] = (await rows(store, "JobScheduler"))[1]
    assert interval is None if minutes is None else float(interval) == minutes


async def test_history_has_a_row_of_each_run_that_ended(store: Store, clock: FakeClock):
    await keep(store, make_job(1))
    await run(store, clock, 1, State.SUCCEEDED, '{"rows":[1,"\\u0000"]}', seconds=2)
    clock.advance(58)
    await run(store, clock, 1, State.TIMED_OUT, message="took too long")
    clock.advance(57)
    waiting = await queue(store)
    await store.cancel([waiting], "requested")

    assert [(at, json.loads(stats)) for at, stats in (await rows(store, "JobHistory"))[1]] == [
        (MS, {"state": "succeeded", "duration_ms": 2000, "result": {"rows": [1, "\0"]}, "error": None}),
        (MS + 60_000, {"state": "timed_out", "duration_ms": 3000, "result": None, "error": "took too long"}),
        (MS + 120_000, {"state": "cancelled", "duration_ms": None, "result": None, "error": "requested"}),
    ]


SENT = {"last_run_time": MS - 5000, "last_status": "Synced", "current_status": "Finished", "sync_interval_in_mn": 60}


async def test_until_a_run_has_ended_what_was_sent_with_the_job_counts(store: Store, clock: FakeClock):
    await keep(store, replace(make_job(1, kind="sync", spec={"begin": "7"}), annotations={"lake": SENT}))

    assert await rows(store, "JobScheduler") == {1: [(MS - 5000, 60, '{"value":"7"}', "Synced")]}
    assert await status(store) == "Synced"
    await run(store, clock, 1, State.FAILED)
    assert (await rows(store, "JobScheduler"))[1] == [(MS + 3000, 60, '{"value":"7"}', "Error")]


@pytest.mark.parametrize("lake", ["text", [1], {"last_run_time": "x", "last_status": 7, "sync_interval_in_mn": {}}])
async def test_annotations_that_are_not_of_the_contract_are_not_believed(store: Store, lake: Any):
    await keep(store, replace(make_job(1), annotations={"lake": lake}))

    assert await rows(store, "JobScheduler") == {1: [(None, None, None, "Init")]}


@pytest.mark.parametrize("view", ["JobInfo", "JobScheduler", "JobHistory", "JobStatus"])
async def test_each_is_there_under_its_name_in_quotes_too(store: Store, clock: FakeClock, view: str):
    await keep(store, make_job(1))
    await run(store, clock, 1, State.SUCCEEDED)

    assert len(await store.read(f'SELECT * FROM "{view}"')) == 1  # type: ignore[attr-defined]


async def test_deleted_jobs_are_absent(store: Store, clock: FakeClock):
    await keep(store, make_job(1), make_job(2))
    await run(store, clock, 1, State.SUCCEEDED)
    await store.delete_job(1)

    for view in ("JobInfo", "JobScheduler", "JobStatus"):
        assert list(await rows(store, view)) == [2]
    assert await rows(store, "JobHistory") == {}


# ── after a stop ──


async def restarted(store: Any, clock: FakeClock) -> Store:
    """Return the store as the next process finds it."""
    await store.close()
    again: Any = (
        SqliteStore(store._path, clock=clock) if store.dialect == "sqlite" else PostgresStore(store._url, clock=clock)
    )
    await again.open()
    return again  # type: ignore[no-any-return]


async def scan(store: Store, clock: FakeClock, term: int = 1) -> None:
    """What a scheduler of all segments does when it starts."""
    firing = Firing(store, LocalQueue(), clock, Metrics())
    firing.own(dict.fromkeys(range(100), term))
    await firing.refill(sweep=True)
    await firing.tick()
    while firing.is_behind:
        await firing.catch_up()


async def test_after_a_stop_whatever_is_overdue_by_its_interval_is_fired_once_at_the_start(
    store: Store, clock: FakeClock
):
    overdue = [make_job(i, trigger_id=i, next_at=START + 5 * MINUTE, schedule={"every": "5m"}) for i in (1, 2, 3)]
    fresh = make_job(4, trigger_id=4, next_at=START + 120 * MINUTE, schedule={"every": "2h"})
    await keep(store, *overdue, fresh)

    clock.advance(3600)
    again = await restarted(store, clock)
    await scan(again, clock)
    await scan(again, clock)  # and another start finds nothing left
    seen = await rows(again, "JobStatus"), await rows(again, "JobScheduler"), await again.census()
    await again.close()

    assert seen[0] == {1: [("Syncing",)], 2: [("Syncing",)], 3: [("Syncing",)], 4: [("Init",)]}
    assert [row[0][1] for row in seen[1].values()] == [5, 5, 5, 120]
    assert seen[2].live == {"queued": 3}


async def test_nobody_else_can_start_on_a_file_that_is_held(sqlite_store: SqliteStore, tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        await SqliteStore(tmp_path / "horae.db", clock=lambda: START).open()

    assert caught.value.code == "E_SINGLE_NODE_LOCK"


async def test_a_start_under_an_old_term_fires_nothing(store: Store, clock: FakeClock):
    await keep(store, make_job(1, trigger_id=1, next_at=START, schedule={"every": "5m"}))
    lease = await store.take_lease("leader", "n1", None)
    for _ in range(2):
        assert await store.assign_segments(dict.fromkeys(range(100), "n1"), lease)

    await scan(store, clock, term=1)
    assert await status(store) == "Init"
    await scan(store, clock, term=2)

    assert await status(store) == "Syncing"
