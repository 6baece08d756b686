"""History, and the start-up rule: seen over time, with a clock moved by hand."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.model import State
from horae.service.jobs import Jobs
from tests.facades.lake.bodies import NEVER, ONCE, Client, java, sync
from tests.facades.world import World

HOUR = 3_600_000  # ms
HOURLY = {"class_name": "schedule_hourly", "recur_every": 1}


def now(client: Client) -> int:
    return client.world.clock.now() // 1000


async def history(client: Client, side: str = "/lake") -> Any:
    return (await client.ask("POST", f"{side}/history/list", {"from": 0, "size": 50}))["data"]


# ── history ──


async def test_a_row_keeps_its_id_from_the_queue_to_its_end(client: Client) -> None:
    await client.make(java())
    await client.world.fire()
    [queued] = await history(client)
    taken = await client.pull()
    [running] = await history(client)
    await client.report(taken, "Finished")
    [ended] = await history(client)
    assert queued["run_id"] == taken["run_id"] == running["run_id"] == ended["run_id"]
    assert [row["job_status"] for row in (queued, running, ended)] == ["Queued", "Compiling", "Finished"]
    assert queued["start_time"] == running["start_time"] == ended["start_time"]


async def test_an_attempt_that_was_lost_has_a_row_of_its_own_that_stays(client: Client) -> None:
    await client.make(java())
    await client.world.fire()
    first = await client.pull()
    client.world.clock.advance(3600)
    await client.take_back()
    waiting, lost = await history(client)
    assert (lost["run_id"], lost["job_status"], waiting["job_status"]) == (first["run_id"], "Error", "Queued")
    assert lost["end_time"] == lost["updated_time"] == now(client)
    assert lost["message"]
    second = await client.pull()
    assert second["run_id"] == waiting["run_id"] == first["run_id"] + 1
    await client.report(second, "Finished")
    assert [(row["run_id"], row["job_status"]) for row in await history(client)] == [
        (second["run_id"], "Finished"),
        (first["run_id"], "Error"),
    ]
    assert (await client.ask("POST", "/lake/history/list", {"size": 1}))["total"] == 2


async def test_a_run_that_was_killed_while_it_waited_again_keeps_the_id_of_that_row(client: Client) -> None:
    job_id = await client.make(java())
    await client.world.fire()
    await client.pull()
    client.world.clock.advance(3600)
    await client.take_back()
    waiting, _ = await history(client)
    await client.ask("PUT", f"/lake/schedule/job/{job_id}/kill")
    killed, _ = await history(client)
    assert (killed["run_id"], killed["job_status"]) == (waiting["run_id"], "Killed")


async def test_updated_time_moves_with_every_report_and_with_our_own_agents(client: Client, world: World) -> None:
    await client.make(java())
    await world.fire()
    taken = await client.pull()
    seen = []
    for _ in range(3):
        world.clock.advance(5)
        await client.report(taken, "Running", updated_time=1)  # whatever a worker's clock says
        seen.append((await history(client))[0]["updated_time"])
    assert seen == [now(client) - 10_000, now(client) - 5_000, now(client)]
    await client.report(taken, "Finished")
    job_id = await client.make(java())
    await world.fire()
    assert (await world.jobs.standing([job_id]))[job_id].latest is not None
    await world.claim("git_java")
    world.clock.advance(7)
    row = (await history(client))[0]
    assert row["updated_time"] - row["start_time"] == 7000


async def test_while_it_is_queued_the_next_run_is_that_one(client: Client) -> None:
    made = (await client.ask("POST", "/lake/job/create", java(schedule_time=ONCE)))["job"]
    await client.world.fire()
    client.world.clock.advance(60)
    queued = await client.job(made["job_id"])
    assert (queued["current_sync_status"], queued["next_run_time"]) == ("Queued", made["next_run_time"])
    await client.report(await client.pull(), "Finished")
    assert (await client.job(made["job_id"]))["next_run_time"] == 99999999999999


# ── the start-up rule ──


async def start(world: World) -> int:
    """Return what the first leader of a process that has just started does."""
    found = await Jobs(world.store, world.queue).overdue.enqueue()
    await world.fire()
    return found


async def runs(client: Client, job_id: int) -> list[str]:
    return [row["sync_status"] for row in await history(client, "") if row["job_id"] == job_id]


async def test_a_job_that_is_overdue_when_it_is_made_is_enqueued_once_and_goes_on_by_its_schedule(
    client: Client,
) -> None:
    sent = sync(last_successful_sync=now(client) - 24 * HOUR, sync_interval_in_mn=60, schedule_time=None)
    made = (await client.ask("POST", "/job/create", sent))["job"]
    assert made["next_run_time"] == now(client)
    await client.world.fire()
    await client.world.fire()
    assert await runs(client, made["job_id"]) == ["Queued"]
    await client.report(await client.pull(""), "Synced")
    assert (await client.sync_job(made["job_id"]))["next_run_time"] == now(client) + HOUR


async def test_one_that_falls_overdue_while_nobody_is_there_is_enqueued_at_the_start(client: Client) -> None:
    job_id = await client.make(sync(last_successful_sync=now(client) - HOUR // 2, schedule_time=HOURLY), "")
    await client.world.fire()
    assert await runs(client, job_id) == []
    client.world.clock.advance(2000)
    await start(client.world)
    assert await runs(client, job_id) == ["Queued"]


@pytest.mark.parametrize("last", [0, 1])
async def test_a_start_enqueues_again_what_has_not_succeeded_for_an_interval_and_only_that(
    client: Client, last: int
) -> None:
    world = client.world
    sent = sync(last_successful_sync=now(client) - last * 24 * HOUR * (1 if last else 0), schedule_time=HOURLY)
    job_id = await client.make(sent, "")
    world.clock.advance(3600)
    await world.fire()
    await client.report(await client.pull(""), "Synced" if not last else "Error")
    world.clock.advance(10)
    assert await start(world) == last
    assert await start(world) == 0  # a second node, while the first's run waits
    assert len(await runs(client, job_id)) == 1 + last


async def test_two_who_start_at_once_and_one_who_dies_in_between_enqueue_it_once(client: Client) -> None:
    world = client.world
    job_id = await client.make(sync(last_successful_sync=now(client) - 24 * HOUR, schedule_time=HOURLY), "")
    await world.fire()
    await client.report(await client.pull(""), "Error")
    world.clock.advance(10)
    first, second = Jobs(world.store, world.queue).overdue, Jobs(world.store, world.queue).overdue
    await second.begin()
    assert await first.enqueue() == 1  # and dies: nobody has fired it yet
    assert await second.enqueue() == 0
    await world.fire()
    await client.report(await client.pull(""), "Error")
    assert await second.enqueue() == 0  # it was made since that one started, too
    assert await runs(client, job_id) == ["Error", "Error"]


async def test_jobs_without_an_interval_paused_ones_and_others_are_left_alone(client: Client) -> None:
    world = client.world
    old = now(client) - 24 * HOUR
    never = await client.make(sync(last_successful_sync=old, schedule_time=NEVER, sync_interval_in_mn=60), "")
    lake = await client.make(java(last_run_time=old, schedule_time=HOURLY))
    paused = await client.make(sync(last_successful_sync=now(client), schedule_time=HOURLY), "")
    await client.ask("POST", f"/v1/jobs/{paused}/pause")
    world.clock.advance(3000)
    assert await start(world) == 0
    standing = await world.jobs.standing([never, lake, paused])
    assert [standing[each].latest for each in (never, lake, paused)] == [None] * 3


async def test_what_our_own_agents_synced_counts(client: Client, world: World) -> None:
    job_id = await client.make(sync(last_successful_sync=1, schedule_time=HOURLY), "")
    await world.fire()
    await world.work("sync", State.SUCCEEDED)
    world.clock.advance(10)
    assert await start(world) == 0
    assert await runs(client, job_id) == ["Synced"]
