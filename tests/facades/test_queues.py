"""Queues under /v1, and what jobs and runs are told of them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from horae.core.model import State

from ..claiming import claim
from .world import World

JOB = {"name": "a", "steps": [{"run": "true"}], "overlap": "allow"}


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def submitted(world: World, **fields: Any) -> int:
    answer = await world.http.post("/v1/jobs", json={**JOB, **fields})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["jobs"][0]["id"])


async def test_a_queue_is_made_read_changed_and_listed(world: World) -> None:
    made = await world.http.put("/v1/queues/reports", json={"concurrency": 5, "weights": {"ann": 2}})
    again = await world.http.put("/v1/queues/reports", json={"concurrency": 6}, headers={"If-Match": '"1"'})
    stale = await world.http.put("/v1/queues/reports", json={}, headers={"If-Match": '"1"'})

    assert (made.status_code, made.headers["etag"], made.json()["weights"]) == (201, '"1"', {"ann": 2})
    assert (again.status_code, again.json()["concurrency"], again.json()["weights"]) == (200, 6, {})
    assert problem(stale) == (412, "E_VERSION_CONFLICT")
    shown = await world.http.get("/v1/queues/reports")
    assert (shown.json()["version"], shown.headers["etag"]) == (2, '"2"')
    listed = (await world.http.get("/v1/queues")).json()["items"]
    assert [(each["name"], each["state"]) for each in listed] == [("default", "open"), ("reports", "open")]


async def test_what_is_read_can_be_sent_back(world: World) -> None:
    await world.http.put("/v1/queues/reports", json={"rate": "100/min", "burst": 10, "labels": ["gpu"]})
    before = (await world.http.get("/v1/queues/reports")).json()
    after = await world.http.put("/v1/queues/reports", json=before)
    assert after.status_code == 200
    changing = ("version", "updated_at", "figures")
    assert {k: v for k, v in after.json().items() if k not in changing} == {
        k: v for k, v in before.items() if k not in changing
    }


async def test_figures_tell_how_a_queue_stands(world: World) -> None:
    job = await submitted(world)
    for _ in range(3):
        await world.http.post(f"/v1/jobs/{job}/run")
    await claim(world.store, "n1", "shell", [], 1)
    world.clock.advance(30)
    figures = (await world.http.get("/v1/queues/default")).json()["figures"]
    assert (figures["waiting"], figures["running"], figures["oldest_wait_seconds"]) == (2, 1, 30.0)
    assert (figures["in_last_minute"], figures["blocked"], figures["waiting_is_cut"]) == (3, {}, False)


@pytest.mark.parametrize(
    ("name", "document", "path", "code"),
    [
        ("reports", {"concurrency": 0}, "concurrency", "E_RANGE"),
        ("reports", {"weights": {"ann": "x"}}, "weights.ann", "E_TYPE"),
        ("reports", {"kinds": ["pyton"]}, "kinds[0]", "E_ENUM"),
        ("reports", {"colour": 1}, "colour", "E_UNKNOWN_FIELD"),
        ("reports", [], "", "E_TYPE"),
        ("a%20b", {}, "name", "E_PATTERN"),
        ("%00", {}, "name", "E_PATTERN"),
        ("x" * 64, {}, "name", "E_PATTERN"),
    ],
)
async def test_bad_queues_are_refused_at_their_path(
    world: World, name: str, document: Any, path: str, code: str
) -> None:
    answer = await world.http.put(f"/v1/queues/{name}", json=document)
    assert problem(answer) == (422, code)
    assert answer.json()["errors"][0]["path"] == path


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/drain")],
)
async def test_a_queue_that_is_not_there_is_not_found(world: World, method: str, path: str) -> None:
    for name in ("none", "%00", "a%20b", "ä" * 40):
        answer = await world.http.request(method, f"/v1/queues/{name}{path}")
        assert problem(answer) == (404, "E_NOT_FOUND")


async def test_pause_drain_and_resume_set_the_state(world: World) -> None:
    for verb, state in (("pause", "paused"), ("drain", "draining"), ("resume", "open")):
        answer = await world.http.post(f"/v1/queues/default/{verb}")
        assert (answer.status_code, answer.json()["state"]) == (200, state)


async def test_a_queue_is_deleted_when_nothing_needs_it(world: World) -> None:
    await world.http.put("/v1/queues/reports", json={})
    job = await submitted(world, queue="reports")
    assert problem(await world.http.delete("/v1/queues/reports")) == (409, "E_QUEUE_IN_USE")
    await world.http.post("/v1/queues/reports/drain")
    world.clock.advance(10)
    assert problem(await world.http.delete("/v1/queues/reports")) == (409, "E_QUEUE_IN_USE")
    await world.http.delete(f"/v1/jobs/{job}")
    assert (await world.http.delete("/v1/queues/reports")).status_code == 204
    assert problem(await world.http.delete("/v1/queues/default")) == (409, "E_QUEUE_IN_USE")


async def test_a_job_in_a_queue_that_is_not_there_is_refused(world: World) -> None:
    answer = await world.http.post("/v1/jobs", json={**JOB, "queue": "defualt"})
    assert problem(answer) == (422, "E_QUEUE_UNKNOWN")
    assert answer.json()["errors"][0]["path"] == "queue"
    assert answer.json()["hint"] == "did you mean 'default'?"


async def test_a_run_for_a_queue_that_is_draining_is_refused(world: World) -> None:
    job = await submitted(world)
    await world.http.post("/v1/queues/default/drain")
    assert problem(await world.http.post(f"/v1/jobs/{job}/run")) == (409, "E_QUEUE_DRAINING")
    answer = await world.http.post("/v1/runs", json={"runs": [{"job": job}]})
    assert [each["code"] for each in answer.json()["runs"]] == ["E_QUEUE_DRAINING"]


async def test_too_much_waiting_is_told_with_when_to_come_again(world: World) -> None:
    job = await submitted(world)
    await world.http.put("/v1/queues/default", json={"most_waiting": 2})
    many = await world.http.post("/v1/runs", json={"runs": [{"job": job}] * 3})
    one = await world.http.post(f"/v1/jobs/{job}/run")
    submit = await world.http.post("/v1/jobs", json={**JOB, "run_once": True})

    assert [each.get("code") for each in many.json()["runs"]] == [None, None, "E_TOO_MUCH_WAITING"]
    for answer in (one, submit):
        assert problem(answer) == (429, "E_TOO_MUCH_WAITING")
        assert answer.headers["retry-after"] == "5"


async def test_each_user_of_the_rpc_contract_has_a_quota_of_its_own(world: World) -> None:
    await world.http.put("/v1/queues/default", json={"most_waiting": 1})
    ids = [await submitted(world, annotations={"rpc": {"user_id": user}}) for user in ("ann", "bob")]
    first = [(await world.http.post(f"/v1/jobs/{each}/run")).status_code for each in ids]
    second = [(await world.http.post(f"/v1/jobs/{each}/run")).status_code for each in ids]
    assert (first, second) == ([201, 201], [429, 429])


async def test_a_job_that_paused_itself_says_why(world: World) -> None:
    job = await submitted(world, pause_after_failures=1)
    work = await world.start_run(job)
    await work.end(State.FAILED)
    shown = (await world.http.get(f"/v1/jobs/{job}")).json()
    assert (shown["paused"], shown["paused_because"]) == (True, "its last run failed")
    resumed = (await world.http.post(f"/v1/jobs/{job}/resume")).json()
    assert (resumed["paused"], "paused_because" in resumed) == (False, False)
