"""Data is refused where it is sent, if the handler that it is for can be seen; and retries by class are kept."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.facades.world import BOTH, World

pytestmark = BOTH

JOB = {"name": "report", "handler": "jobs/report", "data": {"rows": [{"price": 1}]}}
PRICE = {"type": "object", "properties": {"price": {"type": "integer"}}, "additionalProperties": False}
SCHEMA = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": PRICE}},
    "required": ["rows"],
    "additionalProperties": False,
}
BAD = {"rows": [{"price": 1}, {"price": "x"}]}


@pytest.fixture
def api(world: World) -> httpx.AsyncClient:
    world.handlers.schemas["jobs/report"] = SCHEMA
    return world.http


async def made(api: httpx.AsyncClient, **fields: Any) -> Any:
    answer = await api.post("/v1/jobs", json={**JOB, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["jobs"][0]


def refused(answer: httpx.Response) -> list[tuple[str, str, str]]:
    assert (answer.status_code, answer.json()["code"]) == (422, "E_DATA"), answer.text
    return [(each["path"], each["code"], each["message"]) for each in answer.json()["errors"]]


async def test_a_job_whose_data_does_not_fit_is_refused_with_its_path(api: httpx.AsyncClient) -> None:
    answer = await api.post("/v1/jobs", json={**JOB, "data": BAD})
    assert refused(answer) == [("data.rows[1].price", "E_DATA", 'expected int, got "x"')]
    assert (await api.get("/v1/jobs")).json()["items"] == []


async def test_of_several_jobs_none_is_made_and_every_problem_named(api: httpx.AsyncClient) -> None:
    triggers = [{"every": "1h", "data": {"row": []}}, {"every": "2h"}]
    jobs = [JOB, {**JOB, "data": BAD}, {"name": "none", "handler": "jobs/report", "triggers": triggers}]
    answer = await api.post("/v1/jobs", json={"jobs": jobs})
    assert [path for path, _, _ in refused(answer)] == [
        "jobs[1].data.rows[1].price", "jobs[2].data.rows", "jobs[2].triggers[0].data.rows",
        "jobs[2].triggers[0].data.row",
    ]  # fmt: skip
    assert (await api.get("/v1/jobs")).json()["items"] == []


async def test_a_job_that_gets_its_data_by_hand_is_taken_without(api: httpx.AsyncClient) -> None:
    job = await made(api, data={})
    assert refused(await api.post(f"/v1/jobs/{job['id']}/run")) == [
        ("data.rows", "E_DATA", "is missing: expected list")
    ]
    assert (await api.post(f"/v1/jobs/{job['id']}/run", json={"data": {"rows": []}})).status_code == 201


async def test_a_run_whose_data_does_not_fit_is_refused_and_none_is_made(api: httpx.AsyncClient) -> None:
    job = await made(api)
    refused(await api.post(f"/v1/jobs/{job['id']}/run", json={"data": BAD}))
    assert (await api.get("/v1/runs")).json()["items"] == []
    assert (await api.post(f"/v1/jobs/{job['id']}/run")).status_code == 201


async def test_changes_are_checked_too(api: httpx.AsyncClient) -> None:
    job = await made(api, triggers=[{"every": "1h"}])
    trigger = job["triggers"][0]["id"]
    refused(await api.put(f"/v1/jobs/{job['id']}", json={**JOB, "data": BAD}))
    refused(await api.post(f"/v1/jobs/{job['id']}/triggers", json={"every": "2h", "data": BAD}))
    refused(await api.patch(f"/v1/triggers/{trigger}", json={"data": BAD}))
    refused(await api.put(f"/v1/triggers/{trigger}", json={"every": "2h", "data": BAD}))
    assert (await api.get(f"/v1/jobs/{job['id']}")).json() == job


async def test_what_handlers_elsewhere_take_is_not_known_here(world: World, api: httpx.AsyncClient) -> None:
    world.handlers.schemas.clear()
    job = await made(api, data=BAD)
    assert (await api.post(f"/v1/jobs/{job['id']}/run", json={"data": {"any": 1}})).status_code == 201


async def test_retries_by_class_are_kept_and_shown(api: httpx.AsyncClient) -> None:
    retry = {"attempts": 5, "on": ["TimeoutError", "requests.ConnectionError"], "never": ["ValueError"]}
    job = await made(api, retry=retry)
    shown = (await api.get(f"/v1/jobs/{job['id']}")).json()["policy"]["retry"]
    assert {name: shown[name] for name in retry} == retry


async def test_only_handlers_have_exceptions(api: httpx.AsyncClient) -> None:
    steps = {"name": "a", "steps": [{"run": "true"}], "retry": {"attempts": 2, "never": ["ValueError"]}}
    answer = await api.post("/v1/jobs", json=steps)
    assert (answer.status_code, answer.json()["code"]) == (422, "E_FIELD_CONFLICT")
    assert answer.json()["errors"][0]["path"] == "retry.never"


async def test_progress_of_a_handler_is_shown_by_the_api_and_by_the_page(world: World, api: httpx.AsyncClient) -> None:
    work = await world.start_run()
    said = '{"step":"paper","items":{"done":1,"total":2}}'
    await world.store.note_progress([(work.run_id, work.fence, said)])
    shown = (await api.get(f"/v1/runs/{work.run_id}")).json()["progress"]
    assert shown == {"step": "paper", "items": {"done": 1, "total": 2}}
    page = (await api.get(f"/runs/{work.run_id}")).text
    assert '<progress id="bar" aria-label="Progress" max="1" value="0.5"></progress>' in page
    assert "paper, 1 of 2" in page
