"""What happened, as the native API tells it."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.model import State
from tests.facades.test_organisations import member
from tests.facades.world import World


async def ended(world: World) -> int:
    work = await world.start_run()
    await work.end(State.FAILED, exit_code=3, message="no such table")
    return work.run_id


async def events(world: World, **asked: Any) -> Any:
    answer = await world.http.get("/v1/events", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_life_of_a_run_is_read_in_pages(world: World) -> None:
    run_id = await ended(world)
    found, after = [], {}
    while (page := await events(world, run=run_id, limit=1, **after))["items"]:
        found += page["items"]
        after = {"after": page["cursor"]}
    assert [event["type"] for event in found] == ["horae.run.queued", "horae.run.started", "horae.run.finished"]
    told = found[-1]["data"]
    assert (told["run"], told["state"], told["exit_code"], told["message"]) == (run_id, "failed", 3, "no such table")
    assert page["cursor"] == after["after"]


async def test_kinds_jobs_and_moments_narrow_it(world: World) -> None:
    run_id = await ended(world)
    (one,) = (await events(world, kinds="run.finished"))["items"]
    assert one["subject"] == f"runs/{run_id}"
    assert (await events(world, job=99))["items"] == []
    assert (await events(world, since="2100-01-01T00:00:00Z"))["items"] == []


@pytest.mark.parametrize(
    ("query", "code"),
    [("after=1", "E_PATTERN"), ("after=0.99999999.0", "E_RANGE"), ("kinds=run.eaten", "E_ENUM"), ("job=0", "E_RANGE"),
     ("since=noon", "E_TIME_SYNTAX"), ("limit=0", "E_RANGE")],
)  # fmt: skip
async def test_what_makes_no_sense_is_refused(world: World, query: str, code: str) -> None:
    answer = await world.http.get(f"/v1/events?{query}")
    assert (answer.status_code, answer.json()["code"]) == (422, code)


async def test_a_stream_refuses_a_place_that_is_none(world: World) -> None:
    answer = await world.http.get("/v1/events/stream", headers={"Last-Event-ID": "yesterday"})
    assert (answer.status_code, answer.json()["code"]) == (422, "E_PATTERN")


async def test_a_stream_goes_on_after_the_last_event_that_was_seen(world: World) -> None:
    await ended(world)
    page = await events(world, limit=1)
    rest = await events(world, after=page["cursor"])
    said = await world.hear(
        "/v1/events/stream", headers={"last-event-id": page["cursor"]}, until=f"id: {rest['cursor']}\n"
    )
    assert said.count("event: horae.") == len(rest["items"])


async def test_organisations_do_not_hear_of_each_other(world: World) -> None:
    ours, theirs = await member(world, 1), await member(world, 7)
    body = {"name": "s", "steps": [{"run": "a"}]}
    [job] = (await theirs.ask("POST", "/v1/jobs", body, 201))["jobs"]
    await theirs.ask("POST", f"/v1/jobs/{job['id']}/run", status=201)
    seen = [event["type"] for event in (await theirs.ask("GET", "/v1/events"))["items"]]
    assert {"horae.job.submitted", "horae.run.queued"} <= set(seen)
    assert "horae.setting.changed" not in seen
    assert job["id"] not in [event["data"].get("job") for event in (await ours.ask("GET", "/v1/events"))["items"]]
