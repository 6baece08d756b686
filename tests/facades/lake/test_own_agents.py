"""What people see of work on data that Horae's own agents do: in the native API and in the lake contract."""

from __future__ import annotations

import json
from typing import Any

from horae.core.definitions import Submission
from horae.core.model import SECOND, State
from horae.core.runs.orders import Result
from horae.testing import START, make_job
from tests.facades.lake.bodies import NEVER, Client, sync
from tests.facades.world import World

FACTS = {
    "steps": [],
    "rows": 1234,
    "bytes": 5_100_000,
    "tables": [{"name": "orders", "rows": 1234, "bytes": 5_100_000, "changes": ["column note added"]}],
    "query_id": "q-1",
    "cursor": {"value": "77"},
}


async def claimed(client: Client, kind: str = "sync") -> Any:
    """Return a run that an agent works at."""
    [assignment] = await client.world.claim(kind)
    return assignment


async def finish(world: World, one: Any, state: State = State.SUCCEEDED, cursor: str | None = None) -> None:
    now = world.clock.now()
    world.clock.advance(3)
    result = json.dumps(FACTS) if state is State.SUCCEEDED else None
    await world.execution.finish(
        [Result(one.run_id, one.fence, state, "", now, now + 3 * SECOND, 0, "", result, cursor=cursor)]
    )


async def started(client: Client) -> tuple[int, Any]:
    job_id = await client.make(sync(schedule_time=NEVER), "")
    await client.ask("PUT", f"/schedule/job/{job_id}/now")
    return job_id, await claimed(client)


# ── the native API ──


async def test_the_cursor_of_a_sync_is_shown_with_the_job_and_can_be_taken_away(client: Client):
    world = client.world
    job_id, one = await started(client)
    await finish(world, one, cursor='{"value":"77"}')

    shown = (await world.http.get(f"/v1/jobs/{job_id}")).json()
    moved = {"value": {"value": "77"}, "run_id": one.run_id, "moved_at": "2027-01-15T08:00:03Z"}
    assert shown["cursor"] == moved
    assert (await world.http.delete(f"/v1/jobs/{job_id}/cursor")).status_code == 204

    assert (await world.http.get(f"/v1/jobs/{job_id}")).json()["cursor"] is None
    await client.ask("PUT", f"/schedule/job/{job_id}/now")
    assert (await claimed(client)).cursor is None


async def test_only_syncs_have_a_cursor(client: Client):
    world = client.world
    await world.store.submit([Submission([make_job(1)])])

    assert "cursor" not in (await world.http.get("/v1/jobs/1")).json()
    refused = await world.http.delete("/v1/jobs/1/cursor")
    assert (refused.status_code, refused.json()["code"]) == (409, "E_CONFLICT")
    assert "is no sync but of kind python" in refused.json()["detail"]
    assert (await world.http.delete("/v1/jobs/9/cursor")).status_code == 404


async def test_a_running_run_shows_its_progress_and_an_ended_one_its_result(client: Client):
    world = client.world
    _, one = await started(client)
    said = {"step": "load", "rows": 7, "tables": {"done": 1, "total": 2}}
    await world.store.note_progress([(one.run_id, one.fence, json.dumps(said))])

    assert (await world.http.get(f"/v1/runs/{one.run_id}")).json()["progress"] == said
    await finish(world, one)

    run = (await world.http.get(f"/v1/runs/{one.run_id}")).json()
    assert (run["progress"], run["result"]) == (None, FACTS)


async def test_a_run_that_waits_for_its_destination_says_so(client: Client):
    world = client.world
    ids = [await client.make(sync(schedule_time=NEVER), "") for _ in range(2)]
    for job_id in ids:
        await client.ask("PUT", f"/schedule/job/{job_id}/now")
    one = await claimed(client)

    waiting = [run for run in (await world.http.get("/v1/runs")).json()["items"] if run["state"] == "blocked"]

    assert [run["reason"] for run in waiting] == ["destination_busy"]
    assert waiting[0]["message"].startswith(f"run {one.run_id} writes to ")
    assert waiting[0]["eligible_at"] == "2027-01-15T08:00:03Z"
    assert await client.ask("GET", "/schedule/job/next") == {"has_job": False}


# ── the lake contract ──


async def test_a_sync_that_an_agent_does_shows_rows_time_and_where_it_came_to(client: Client):
    job_id, one = await started(client)
    world = client.world
    await world.store.note_progress([(one.run_id, one.fence, '{"step":"load","rows":7}')])
    world.clock.advance(2)

    progress = (await client.ask("GET", "/schedule/job/progress"))[str(job_id)]
    [row] = (await client.ask("POST", "/history/list", {"from": 0, "size": 5}))["data"]

    assert progress == {
        "class_name": "jdbc_progress", "org_id": 1, "sync_id": one.run_id * 1000 + 1, "job_id": job_id,
        "start_time": START // 1000, "updated_time": START // 1000 + 2000, "job_status": "Syncing",
        "total_sync_record": 7, "total_execution_time": 2000, "message": "load, 7 rows",
    }  # fmt: skip
    assert (row["sync_status"], row["total_rows_inserted"], row["message"]) == ("Syncing", 7, "load, 7 rows")
    await finish(world, one, cursor='{"value":"77"}')
    [row] = (await client.ask("POST", "/history/list", {"from": 0, "size": 5}))["data"]
    assert (row["sync_status"], row["total_rows_inserted"], row["total_synced_time"]) == ("Synced", 1234, 3000)
    assert (await client.sync_job(job_id))["last_synced_value"] == "77"
    assert await client.ask("GET", "/schedule/job/progress") == {}


async def test_the_value_sent_when_a_sync_is_made_is_its_first_cursor(client: Client):
    job_id = await client.make(sync(schedule_time=NEVER, last_synced_value="500"), "")
    await client.ask("PUT", f"/schedule/job/{job_id}/now")

    assert json.loads((await claimed(client)).cursor) == {"value": "500"}


async def test_the_value_sent_when_a_sync_is_changed_is_where_an_agent_goes_on(client: Client):
    job_id, one = await started(client)
    assert one.cursor is None
    await finish(client.world, one, cursor='{"value":"77"}')
    echo = await client.sync_job(job_id)
    without = {name: value for name, value in echo.items() if name != "last_synced_value"}

    await client.ask("PUT", f"/job/{job_id}", {"job": {**without, "display_name": "renamed"}})
    assert (await client.sync_job(job_id))["last_synced_value"] == "77"
    await client.ask("PUT", f"/job/{job_id}", {"job": {**echo, "last_synced_value": "3"}})
    await client.ask("PUT", f"/schedule/job/{job_id}/now")

    assert json.loads((await claimed(client)).cursor) == {"value": "3"}


async def test_a_sql_job_that_an_agent_does_is_in_the_progress_of_the_lake_half(client: Client):
    spec = {"query": "SELECT 1"}
    await client.world.store.submit([Submission([make_job(1, kind="spark_sql", spec=spec)])])
    await client.world.jobs.run_now(1)
    one = await claimed(client, "spark_sql")
    await client.world.store.note_progress([(one.run_id, one.fence, '{"stages":{"done":3,"total":8}}')])

    progress = (await client.ask("GET", "/lake/schedule/job/progress"))["1"]

    assert (progress["class_name"], progress["job_status"]) == ("sql_job_progress", "Running")
    assert progress["message"] == "3 of 8 stages"
