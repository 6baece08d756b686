"""Workers that pull and report, and people who run and kill."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from horae.core.model import State
from tests.facades.lake.bodies import NEVER, Client, java, sync
from tests.facades.world import World

HOURLY = {"class_name": "schedule_hourly", "recur_every": 1}


async def test_nothing_to_do_is_said_at_once(client: Client) -> None:
    assert await client.ask("GET", "/lake/schedule/job/next") == {"has_job": False}
    assert await client.ask("GET", "/schedule/job/next") == {"has_job": False}


async def test_neither_a_head_nor_a_page_of_another_site_takes_a_run(client: Client) -> None:
    job_id = await client.make(java())
    await client.world.fire()
    path = "/lake/schedule/job/next"
    assert (await client.send("HEAD", path)).status_code == 405
    seen = await client.world.http.get(path, headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"})
    assert (seen.status_code, seen.json()["reason"]) == (403, "insufficient_permission")
    assert (await client.job(job_id))["current_sync_status"] == "Queued"


async def test_a_worker_pulls_reports_and_finishes(client: Client) -> None:
    job_id = await client.make(java())
    await client.world.fire()
    assert (await client.job(job_id))["current_sync_status"] == "Queued"
    answer = await client.ask("GET", "/lake/schedule/job/next")
    taken = answer["data"]
    assert (answer["has_job"], taken["job"]["job_id"], taken["job"]["build_cmd"]) == (True, job_id, "mvn package")
    assert taken["run_id"] % 1000 == 1
    assert await client.pull() is None
    for status, shown in (("Compiling", "Compiling"), ("Running", "Running"), ("Unknown", "Running")):
        assert await client.report(taken, status, yarn_app_id="app_1", message="on it") == {"success": True}
        assert (await client.job(job_id))["current_sync_status"] == shown
    [row] = (await client.ask("POST", "/lake/history/list", {}))["data"]
    assert (row["run_id"], row["job_status"], row["end_time"]) == (taken["run_id"], "Running", 0)
    assert (row["message"], row["log_path"]) == ("on it", "/app-logs/root/logs-tfile/app_1")
    client.world.clock.advance(5)
    assert await client.report(taken, "Finished", yarn_app_id="app_1") == {"success": True}
    job = await client.job(job_id)
    now = client.world.clock.now() // 1000
    assert (job["current_sync_status"], job["last_sync_status"], job["last_run_time"]) == ("Finished", "Finished", now)
    assert job["next_run_time"] == 99999999999999
    [row] = (await client.ask("POST", "/lake/history/list", {}))["data"]
    assert (row["job_status"], row["job_name"], row["end_time"], row["updated_time"]) == ("Finished", "build", now, now)
    assert (row["start_time"], row["log_path"]) == (now - 5000, "/app-logs/root/logs-tfile/app_1")


@pytest.mark.parametrize(
    ("reported", "shown", "state"),
    [("Error", "Error", State.FAILED), ("Killed", "Killed", State.CANCELLED), ("Canceled", "Killed", State.CANCELLED)],
)
async def test_a_run_ends_as_its_worker_says(client: Client, reported: str, shown: str, state: State) -> None:
    job_id = await client.make(java(last_sync_status="Finished"))
    await client.world.fire()
    taken = await client.pull()
    await client.report(taken, reported, message="it broke")
    job = await client.job(job_id)
    assert (job["current_sync_status"], job["last_sync_status"]) == (shown, shown)
    run = await client.world.jobs.get_run(taken["run_id"] // 1000)
    assert (run.state, run.message) == (state, "it broke")


async def test_the_statuses_that_were_sent_are_shown_until_a_run_is_there_and_one_has_ended(client: Client) -> None:
    job_id = await client.make(java(last_sync_status="Error", current_sync_status="Unknown", last_run_time=7))
    job = await client.job(job_id)
    assert (job["last_sync_status"], job["current_sync_status"], job["last_run_time"]) == ("Error", "Unknown", 7)
    await client.world.fire()
    job = await client.job(job_id)
    assert (job["last_sync_status"], job["current_sync_status"], job["last_run_time"]) == ("Error", "Queued", 7)


async def test_an_ended_attempt_takes_no_further_report(client: Client) -> None:
    await client.make(java())
    await client.world.fire()
    taken = await client.pull()
    await client.report(taken, "Finished")
    for status in ("Running", "Finished", "Error"):
        assert await client.report(taken, status) == {"success": False}
    assert (await client.world.jobs.get_run(taken["run_id"] // 1000)).state is State.SUCCEEDED


async def test_a_worker_that_was_silent_too_long_cannot_speak_for_the_one_that_has_its_run(client: Client) -> None:
    job_id = await client.make(java())
    await client.world.fire()
    first = await client.pull()
    client.world.clock.advance(599)
    assert await client.report(first, "Running") == {"success": True}  # which prolongs the loan
    client.world.clock.advance(599)
    await client.take_back()
    assert await client.pull() is None
    client.world.clock.advance(2)
    await client.take_back()
    second = await client.pull()
    assert (second["job"]["job_id"], second["run_id"]) == (job_id, first["run_id"] + 1)
    assert await client.report(first, "Finished") == {"success": False}
    assert (await client.job(job_id))["current_sync_status"] == "Compiling"
    assert await client.report(second, "Finished") == {"success": True}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"run_id": 4_711_001}, "bad_request"),
        ({"job_id": 4711}, "bad_request"),
        ({"run_id": -1}, "invalid_param"),
        ({"run_id": None}, "invalid_param"),
        ({"job_status": "Dozing"}, "invalid_param"),
        ({"job_status": None}, "invalid_param"),
        ({"class_name": "java_job"}, "invalid_param"),
        ({"message": {}}, "invalid_param"),
        ({"message": "x" * 70_000}, "invalid_param"),
    ],
)
async def test_a_report_that_makes_no_sense_changes_nothing(
    client: Client, changes: dict[str, Any], reason: str
) -> None:
    await client.make(java())
    await client.world.fire()
    taken = await client.pull()
    body = {
        "class_name": "java_job_progress", "run_id": taken["run_id"], "job_id": taken["job"]["job_id"],
        "job_status": "Finished", **changes,
    }  # fmt: skip
    assert (await client.refused("POST", "/lake/schedule/job/report", body))[0] == reason
    assert (await client.world.jobs.get_run(taken["run_id"] // 1000)).state is State.RUNNING


async def test_each_half_pulls_and_reports_its_own_kinds_only(client: Client) -> None:
    await client.make(sync(), "")
    await client.world.fire()
    assert await client.pull() is None
    taken = await client.pull("")
    body = {"class_name": "java_job_progress", "run_id": taken["sync_id"], "job_status": "Finished"}
    assert (await client.refused("POST", "/lake/schedule/job/report", body))[0] == "bad_request"


async def test_progress_shows_what_workers_said_last(client: Client) -> None:
    job_id = await client.make(java())
    await client.make(sync(), "")
    await client.world.fire()
    taken, _ = await client.pull(), await client.pull("")
    assert (await client.ask("GET", "/lake/schedule/job/progress"))[str(job_id)]["run_id"] == taken["run_id"]
    await client.report(taken, "Running", yarn_app_id="app_7")
    progress = await client.ask("GET", "/lake/schedule/job/progress")
    assert list(progress) == [str(job_id)]
    assert (progress[str(job_id)]["job_status"], progress[str(job_id)]["yarn_app_id"]) == ("Running", "app_7")
    await client.report(taken, "Finished")
    assert await client.ask("GET", "/lake/schedule/job/progress") == {}


# ── run now ──


async def test_now_runs_a_job_that_has_no_live_run(client: Client) -> None:
    job_id = await client.make(java(schedule_time=NEVER))
    path = f"/lake/schedule/job/{job_id}/now"
    assert await client.ask("PUT", path, {"at_time": 5, "mode": "OnceTime"}) == {"success": True}
    assert await client.refused("PUT", path) == ("bad_request", "job is already queued")
    taken = await client.pull()
    assert await client.refused("PUT", path) == ("bad_request", "job is already running")
    await client.report(taken, "Running")
    assert await client.refused("PUT", path) == ("bad_request", "job is already running")
    await client.report(taken, "Error")
    assert await client.ask("PUT", path) == {"success": True}


async def test_of_many_who_ask_at_once_one_is_the_first(client: Client) -> None:
    job_id = await client.make(java(schedule_time=NEVER))
    path = f"/lake/schedule/job/{job_id}/now"
    answers = await asyncio.gather(*(client.send("PUT", path) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [200, 400, 400, 400, 400]
    assert {answer.json().get("message") for answer in answers} == {None, "job is already queued"}
    assert (await client.world.rows())[2] == 1


@pytest.mark.parametrize("schedule", [NEVER, HOURLY, {"class_name": "schedule_once", "start_time": 0}])
async def test_now_at_a_later_moment_moves_the_next_run_there(client: Client, schedule: dict[str, Any]) -> None:
    job_id = await client.make(java(schedule_time=schedule))
    await client.world.fire()
    if (taken := await client.pull()) is not None:
        await client.report(taken, "Finished")
    for _ in range(2):  # also a second time, when a moment of its own is there already
        at = client.world.clock.now() // 1000 + 90_000
        await client.ask("PUT", f"/lake/schedule/job/{job_id}/now", {"at_time": at})
        job = await client.job(job_id)
        assert (job["next_run_time"], job["schedule_time"]) == (at, schedule)
        client.world.clock.advance(89)
        await client.world.fire()
        assert await client.pull() is None
        client.world.clock.advance(1)
        await client.world.fire()
        taken = await client.pull()
        assert taken["job"]["job_id"] == job_id
        await client.report(taken, "Finished")
    assert len((await client.world.jobs.get(job_id)).triggers) == 1


@pytest.mark.parametrize("body", [{"at_time": -1}, {"at_time": 2**62}, {"at_time": "now"}, {"mode": "Twice"}, [], "x"])
async def test_now_refuses_what_is_no_moment_or_mode(client: Client, body: Any) -> None:
    job_id = await client.make(java(schedule_time=NEVER))
    assert (await client.refused("PUT", f"/lake/schedule/job/{job_id}/now", body))[0] == "invalid_param"
    assert (await client.world.rows())[2] == 0


# ── kill, stop, start ──


async def test_kill_ends_a_queued_run_and_asks_the_worker_of_a_running_one(client: Client) -> None:
    job_id = await client.make(java(schedule_time=NEVER))
    kill, now = f"/lake/schedule/job/{job_id}/kill", f"/lake/schedule/job/{job_id}/now"
    assert await client.ask("PUT", kill) == {"success": False}
    await client.ask("PUT", now)
    assert await client.ask("PUT", kill) == {"success": True}
    assert (await client.job(job_id))["current_sync_status"] == "Killed"
    await client.ask("PUT", now)
    taken = await client.pull()
    assert await client.ask("PUT", kill) == {"success": True}
    assert (await client.job(job_id))["current_sync_status"] == "Compiling"
    assert await client.report(taken, "Running") == {"success": True, "cancel": True}
    assert await client.report(taken, "Killed") == {"success": True}
    assert (await client.job(job_id))["current_sync_status"] == "Killed"
    assert await client.ask("PUT", kill) == {"success": False}


async def test_stop_empties_the_lake_queue_and_touches_nothing_else(client: Client) -> None:
    lake = [await client.make(java()) for _ in range(3)]
    other = await client.make(sync(), "")
    [shell] = (await client.ask("POST", "/v1/jobs", {"name": "s", "steps": [{"run": "a"}], "run_once": True}, 201))[
        "jobs"
    ]
    await client.world.fire()
    running = (await client.pull())["job"]["job_id"]
    assert await client.ask("POST", "/lake/schedule/stop") is True
    shown = {job_id: (await client.job(job_id))["current_sync_status"] for job_id in lake}
    assert shown == {job_id: "Compiling" if job_id == running else "Killed" for job_id in lake}
    assert (await client.sync_job(other))["current_sync_status"] == "Queued"
    assert (await client.job(shell["id"]))["current_sync_status"] == "Queued"
    assert await client.ask("POST", "/lake/schedule/start") is False


async def test_a_run_that_was_deleted_with_its_job_cannot_be_pulled(client: Client) -> None:
    job_id = await client.make(java())
    await client.world.fire()
    await client.ask("DELETE", f"/lake/job/{job_id}")
    assert await client.pull() is None


async def test_history_shows_runs_of_other_interfaces_but_no_skipped_moments(client: Client, world: World) -> None:
    body = {"name": "s", "steps": [{"run": "a"}], "schedule": "@every 1m"}
    [made] = (await client.ask("POST", "/v1/jobs", body, 201))["jobs"]
    for _ in range(3):
        world.clock.advance(60)
        await world.fire()
    history = await client.ask("POST", "/lake/history/list", {"sorts": [{"field": "start_time", "order": "DESC"}]})
    assert [(row["job_id"], row["job_status"], row["run_id"] % 1000) for row in history["data"]] == [
        (made["id"], "Queued", 1)
    ]
    assert history["total"] == 1
