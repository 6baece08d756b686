"""The native API, the pages and the gate before them, over ASGI and, where bytes matter, over a socket."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
import pytest
import uvicorn

from horae.contracts import CONTRACTS
from horae.core.model import State, Trigger
from horae.errors import CODES, Unavailable
from horae.schemas import access, alerts, basics, cluster, jobs, runs
from horae.testing import START
from horae.web import app as web
from horae.web import connections, http, openapi, render, streams
from tests.facades.world import DELAY, NODE, OWN, TWICE, Work, World, from_here

JOB = {"name": "nightly", "schedule": "0 3 * * *", "steps": [{"run": "echo hello"}]}
HERE = "http://127.0.0.1:8080"
DEADLINE = 180.0


@pytest.fixture
def gate(world: World) -> web.Gate:
    return web.create_app(
        world.services, CONTRACTS, version="1.2.3", allowed_hosts=["horae.example"], free_pass=OWN, stream_limit=3
    )


@pytest.fixture
async def api(gate: web.Gate) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE) as client:
        yield client


def problem_of(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Return the problem, after checking that it has the one shape."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    shown: dict[str, Any] = answer.json()
    assert (answer.status_code, shown["code"]) == (status, code), shown
    assert shown["status"] == status
    assert shown["type"] == f"/docs#{code}"
    assert shown["title"] == CODES[code]
    assert shown["request_id"] == answer.headers["x-request-id"]
    assert {each["code"] for each in shown["errors"]} <= CODES.keys()
    return shown


async def submitted(api: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await api.post("/v1/jobs", json={**JOB, **fields})
    assert answer.status_code == 201, answer.text
    job: dict[str, Any] = answer.json()["jobs"][0]
    return job


# ── jobs ──


async def test_a_submitted_job_can_be_read_back_with_its_trigger(api: httpx.AsyncClient) -> None:
    job = await submitted(api, annotations={"team": "x"}, priority=7)
    assert job["policy"]["priority"] == 7
    assert job["policy"]["retry"]["attempts"] == 1
    assert job["created_at"] == "2027-01-15T08:00:00Z"
    assert job["triggers"][0]["schedule"] == {"cron": "0 3 * * *"}
    assert "03:00" in job["triggers"][0]["description"]
    assert "deleted_at" not in job
    read = await api.get(f"/v1/jobs/{job['id']}")
    assert read.json() == job
    assert read.headers["etag"] == '"1"'


@pytest.mark.parametrize("media", ["application/yaml", "text/yaml", "application/x-yaml; charset=utf-8"])
async def test_yaml_with_several_jobs_makes_them_all(api: httpx.AsyncClient, media: str) -> None:
    body = "jobs:\n- {name: a, steps: [{run: ls}]}\n- {name: b, handler: 'm:f', run_once: true}\n"
    answer = await api.post("/v1/jobs", content=body, headers={"content-type": media})
    assert answer.status_code == 201
    assert [(job["name"], job["kind"]) for job in answer.json()["jobs"]] == [("a", "shell"), ("b", "python")]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "E_JSON_SYNTAX"),
        (b'{"name": NaN}', 400, "E_JSON_SYNTAX"),
        (b'{"name": -Infinity}', 400, "E_JSON_SYNTAX"),
        (b"[]", 422, "E_EMPTY"),
        (b'"x"', 422, "E_TYPE"),
        (b"null", 422, "E_TYPE"),
        (b"1", 422, "E_TYPE"),
        (b"[" * 100_000 + b"]" * 100_000, 400, "E_DEPTH"),
        (b'{"name": "\\ud800", "steps": [{"run": "ls"}]}', 422, "E_CHAR"),
        (b'{"name": "a", "steps": [{"run": "ls"}], "segment": 1.0}', 422, "E_SEGMENT"),
        (b'{"name": "a", "steps": [{"run": "ls"}], "retry": "1"}', 422, "E_TYPE"),
        (b"", 400, "E_BODY_EMPTY"),
        (b"\xff", 400, "E_ENCODING"),
        (b'{"name": "a", "name": "b"}', 422, "E_DUP_KEY"),
        (b" " * (1024 * 1024 + 1), 413, "E_TOO_LARGE"),
        (b'{"name": "a", "steps": [{"run": "ls"}], "privileged": true}', 403, "E_POLICY"),
    ],
    ids=lambda value: value[:24].decode("latin-1") if isinstance(value, bytes) else str(value),
)
async def test_bad_bodies_are_refused_and_nothing_is_made(
    api: httpx.AsyncClient, world: World, body: bytes, status: int, code: str
) -> None:
    answer = await api.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    problem_of(answer, status, code)
    assert await world.rows() == (0, 0, 0)


async def test_a_byte_order_mark_is_accepted(api: httpx.AsyncClient) -> None:
    body = b"\xef\xbb\xbf" + json.dumps(JOB).encode()
    answer = await api.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 201


async def test_every_problem_of_a_document_is_named_with_its_path(api: httpx.AsyncClient) -> None:
    answer = await api.post("/v1/jobs", json={"jobs": [JOB, {"steps": [{"run": ""}], "prioritz": 3}]})
    shown = problem_of(answer, 422, "E_REQUIRED")
    assert {"jobs[1].name", "jobs[1].steps[0].run", "jobs[1].prioritz"} <= {it["path"] for it in shown["errors"]}


@pytest.mark.parametrize("media", [None, "text/plain", "image/png", "application/json; charset=latin-1"])
async def test_content_types_that_are_not_read_are_refused(api: httpx.AsyncClient, media: str | None) -> None:
    headers = {} if media is None else {"content-type": media}
    problem_of(await api.post("/v1/jobs", content=json.dumps(JOB), headers=headers), 415, "E_MEDIA_TYPE")


async def test_jobs_are_filtered_and_paged(api: httpx.AsyncClient) -> None:
    made = [await submitted(api, name=f"job {n}", paused=n % 2 == 0) for n in range(5)]
    first = (await api.get("/v1/jobs", params={"limit": 2})).json()
    assert [job["id"] for job in first["items"]] == [made[4]["id"], made[3]["id"]]
    second = (await api.get("/v1/jobs", params={"limit": 2, "cursor": first["cursor"]})).json()
    assert [job["id"] for job in second["items"]] == [made[2]["id"], made[1]["id"]]
    paused = (await api.get("/v1/jobs", params={"paused": "true"})).json()
    assert {job["name"] for job in paused["items"]} == {"job 0", "job 2", "job 4"}
    assert paused["cursor"] is None
    assert len((await api.get("/v1/jobs", params={"name": "b 3"})).json()["items"]) == 1


async def test_replacing_checks_the_version_that_was_read(api: httpx.AsyncClient) -> None:
    job = await submitted(api)
    path = f"/v1/jobs/{job['id']}"
    done = await api.put(path, json={**JOB, "name": "renamed"}, headers={"if-match": '"1"'})
    assert (done.status_code, done.json()["name"], done.headers["etag"]) == (200, "renamed", '"2"')
    problem_of(await api.put(path, json=JOB, headers={"if-match": '"1"'}), 412, "E_VERSION_CONFLICT")
    problem_of(await api.put(path, json=JOB, headers={"if-match": '"abc"'}), 412, "E_VERSION_CONFLICT")
    assert (await api.put(path, json=JOB, headers={"if-match": "*"})).status_code == 200
    assert (await api.put(path, json=JOB)).status_code == 200


async def test_deleting_twice_is_204_then_404(api: httpx.AsyncClient) -> None:
    job = await submitted(api)
    first = await api.delete(f"/v1/jobs/{job['id']}")
    assert (first.status_code, first.content) == (204, b"")
    assert "content-type" not in first.headers
    problem_of(await api.delete(f"/v1/jobs/{job['id']}"), 404, "E_NOT_FOUND")
    assert (await api.get(f"/v1/jobs/{job['id']}")).json()["deleted_at"] == "2027-01-15T08:00:00Z"


async def test_a_paused_job_does_not_run_until_it_is_resumed(api: httpx.AsyncClient) -> None:
    path = f"/v1/jobs/{(await submitted(api))['id']}"
    assert (await api.post(f"{path}/pause")).json()["paused"] is True
    problem_of(await api.post(f"{path}/run"), 409, "E_PAUSED")
    assert (await api.post(f"{path}/resume")).json()["paused"] is False
    assert (await api.post(f"{path}/run")).status_code == 201


async def test_a_deleted_job_does_not_run(api: httpx.AsyncClient) -> None:
    path = f"/v1/jobs/{(await submitted(api))['id']}"
    await api.delete(path)
    problem_of(await api.post(f"{path}/run", json={}), 404, "E_NOT_FOUND")


async def test_run_now_passes_data_and_node(api: httpx.AsyncClient, world: World) -> None:
    path = f"/v1/jobs/{(await submitted(api))['id']}/run"
    made = (await api.post(path, json={"data": {"n": 1}, "node": "beta"})).json()
    assert made["data"] == {"n": 1}
    assert made["state"] == "queued"
    assert (await world.jobs.get_run(made["id"])).pin == "beta"


@pytest.mark.parametrize(
    ("body", "code", "path"),
    [
        ({"dta": {}}, "E_UNKNOWN_FIELD", "dta"),
        ({"data": []}, "E_TYPE", "data"),
        ({"node": 7}, "E_TYPE", "node"),
        ({"node": "n" * 129}, "E_LEN", "node"),
        ({"node": "a\tb"}, "E_CHAR", "node"),
        ([], "E_TYPE", ""),
    ],
)
async def test_run_now_reads_its_body_strictly(api: httpx.AsyncClient, body: Any, code: str, path: str) -> None:
    answer = await api.post(f"/v1/jobs/{(await submitted(api))['id']}/run", json=body)
    assert problem_of(answer, 422, code)["errors"][0]["path"] == path


# ── idempotency ──


async def test_a_repeated_key_acts_once_and_a_different_body_conflicts(api: httpx.AsyncClient, world: World) -> None:
    key = {"idempotency-key": "k-1"}
    first = await api.post("/v1/jobs", json=JOB, headers=key)
    again = await api.post("/v1/jobs", json=JOB, headers=key)
    assert (first.json()["replayed"], again.json()["replayed"]) == (False, True)
    assert first.json()["jobs"] == again.json()["jobs"]
    problem_of(await api.post("/v1/jobs", json={**JOB, "name": "x"}, headers=key), 409, "E_IDEMPOTENCY_MISMATCH")
    assert (await world.rows())[0] == 1


async def test_a_key_is_bound_to_who_asks_and_what_for(api: httpx.AsyncClient, world: World) -> None:
    jobs = [await submitted(api), await submitted(api)]
    runs = [await api.post(f"/v1/jobs/{job['id']}/run", headers={"idempotency-key": "k"}) for job in jobs]
    assert len({run.json()["id"] for run in runs}) == 2
    _, token = await world.services.access.create("ci", "user", "ann", None)
    theirs = {"idempotency-key": "k", "authorization": f"Bearer {token}"}
    other = await api.post(f"/v1/jobs/{jobs[0]['id']}/run", headers=theirs)
    assert other.json()["id"] not in {run.json()["id"] for run in runs}


@pytest.mark.parametrize(("key", "code"), [("", "E_LEN"), ("k" * 201, "E_LEN"), ("a b", "E_CHAR"), ("é", "E_CHAR")])
async def test_odd_idempotency_keys_are_refused(api: httpx.AsyncClient, key: str, code: str) -> None:
    headers = {"idempotency-key": key.encode("latin-1")}
    answer = await api.post("/v1/jobs", json=JOB, headers=headers)  # type: ignore[arg-type]
    assert problem_of(answer, 422, code)["errors"][0]["path"] == "Idempotency-Key"


async def test_a_header_that_stands_twice_is_refused(api: httpx.AsyncClient) -> None:
    headers = [("idempotency-key", "a"), ("idempotency-key", "b"), ("content-type", "application/json")]
    problem_of(await api.post("/v1/jobs", content=json.dumps(JOB), headers=headers), 400, "E_HEADER")


# ── triggers ──


async def test_triggers_are_added_read_replaced_and_deleted(api: httpx.AsyncClient) -> None:
    job = await submitted(api)
    made = await api.post(f"/v1/jobs/{job['id']}/triggers", json={"every": "5m", "data": {"n": 1}})
    assert made.status_code == 201
    path = f"/v1/triggers/{made.json()['id']}"
    assert (await api.get(path)).json() == made.json()
    assert len((await api.get(f"/v1/jobs/{job['id']}/triggers")).json()["items"]) == 2
    assert len((await api.get("/v1/triggers", params={"job_id": job["id"]})).json()["items"]) == 2
    replaced = await api.put(path, json={"every": "10m", "enabled": False})
    assert (replaced.json()["schedule"], replaced.json()["enabled"]) == ({"every": "10m"}, False)
    assert (await api.delete(path)).status_code == 204
    problem_of(await api.get(path), 404, "E_NOT_FOUND")


async def test_a_patch_changes_only_what_it_names(api: httpx.AsyncClient) -> None:
    trigger = (await submitted(api))["triggers"][0]
    path = f"/v1/triggers/{trigger['id']}"
    moved = (await api.patch(path, json={"next_at": "2027-02-01T02:00:00+02:00"})).json()
    assert moved == {**trigger, "next_at": "2027-02-01T00:00:00Z", "version": 2}
    assert (await api.patch(path, json={"data": {"a": 1}})).json()["data"] == {"a": 1}
    assert (await api.patch(path, json={"data": None, "enabled": False})).json()["data"] is None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "E_REQUIRED"),
        ({"enabled": "true"}, "E_TYPE"),
        ({"enabled": None}, "E_TYPE"),
        ({"next_at": "tomorrow"}, "E_TIME_SYNTAX"),
        ({"next_at": "2027-02-01T00:00:00"}, "E_TIME_NO_OFFSET"),
        ({"enabledd": True}, "E_UNKNOWN_FIELD"),
        ({"data": 1}, "E_TYPE"),
    ],
)
async def test_bad_patches_are_refused(api: httpx.AsyncClient, body: Any, code: str) -> None:
    trigger = (await submitted(api))["triggers"][0]
    problem_of(await api.patch(f"/v1/triggers/{trigger['id']}", json=body), 422, code)


async def test_triggers_of_an_unknown_job_are_not_an_empty_list(api: httpx.AsyncClient) -> None:
    problem_of(await api.get("/v1/jobs/99/triggers"), 404, "E_NOT_FOUND")


async def test_preview_shows_the_next_moments_in_the_zone(api: httpx.AsyncClient) -> None:
    asked = {"schedule": "0 9 * * MON", "timezone": "Europe/Berlin", "count": 2, "start_at": "2027-03-20T00:00:00Z"}
    answer = await api.post("/v1/preview", json=asked)
    shown = answer.json()
    assert [moment["at"] for moment in shown["moments"]] == ["2027-03-22T08:00:00Z", "2027-03-29T07:00:00Z"]
    assert shown["moments"][1]["local"] == "2027-03-29T09:00:00+02:00"
    assert shown["dialect"] == "unix5"
    assert "09:00" in shown["description"]
    document = {"every": "1h", "start_at": "2027-03-20T00:30:00Z", "count": 1}
    assert (await api.post("/v1/preview", json=document)).json()["moments"][0]["at"] == "2027-03-20T00:30:00Z"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"schedule": "0 9 * *  99"}, "E_CRON_RANGE"),
        ({"schedule": "0 9 * * *", "count": 0}, "E_RANGE"),
        ({"schedule": "0 9 * * *", "count": 1001}, "E_RANGE"),
        ({"schedule": "0 9 * * *", "count": True}, "E_TYPE"),
        ({"schedule": "0 9 * * *", "start_at": "x"}, "E_TIME_SYNTAX"),
        ([], "E_TYPE"),
    ],
)
async def test_bad_previews_are_refused(api: httpx.AsyncClient, body: Any, code: str) -> None:
    problem_of(await api.post("/v1/preview", json=body), 422, code)


# ── runs ──


async def test_a_run_shows_lateness_and_attempts(api: httpx.AsyncClient, world: World) -> None:
    run = await world.queue_run((await world.submit(retry=TWICE)).id)
    world.clock.advance(0.012_345)
    work = await (await world.take(run.id)).fail_once()
    await work.write(b"x")
    await work.end(State.SUCCEEDED)
    shown = (await api.get(f"/v1/runs/{run.id}")).json()
    late = 12 + 2 * DELAY * 1000
    assert (shown["late_ms"], shown["output"], shown["state"]) == (late, True, "succeeded")
    assert shown["attempts"][0]["exit_code"] == 3
    assert shown["attempts"][0]["output"] is False
    assert (await api.get("/v1/runs")).json()["items"][0].keys() == shown.keys() - {"attempts"}


async def test_runs_are_filtered_by_state_and_due_moment(api: httpx.AsyncClient, world: World) -> None:
    early = await world.queue_run()
    await world.claim("shell")
    world.clock.advance(3600)
    job = await world.submit(overlap="allow")
    work = await world.start_run(job.id)
    await work.end(State.FAILED)
    await world.start_run(job.id)
    await world.queue_run(job.id)
    found = (await api.get("/v1/runs", params={"state": "queued,failed", "job_id": job.id})).json()["items"]
    assert {run["state"] for run in found} == {"queued", "failed"}
    before = (await api.get("/v1/runs", params={"due_until": "2027-01-15T09:00:00Z"})).json()["items"]
    assert [run["id"] for run in before] == [early.id]


async def test_a_finished_run_cannot_be_cancelled(api: httpx.AsyncClient, world: World) -> None:
    ended, live = await world.end_run(State.SUCCEEDED), await world.queue_run()
    answer = await api.post(f"/v1/runs/{live.id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
    problem_of(await api.post(f"/v1/runs/{ended.id}/cancel"), 409, "E_TERMINAL")


# ── query parameters and paths ──


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("/v1/runs?statez=failed", "E_UNKNOWN_PARAM"),
        ("/v1/jobs?sort=name;drop%20table", "E_UNKNOWN_PARAM"),
        ("/v1/runs?state=failed&state=queued", "E_FIELD_CONFLICT"),
        ("/v1/runs?state=failedd", "E_ENUM"),
        ("/v1/runs?state=", "E_ENUM"),
        ("/v1/runs?job_id=x", "E_TYPE"),
        ("/v1/runs?job_id=1.0", "E_TYPE"),
        ("/v1/runs?job_id=%D9%A1", "E_TYPE"),
        ("/v1/runs?job_id=0", "E_RANGE"),
        ("/v1/runs?job_id=9223372036854775808", "E_RANGE"),
        ("/v1/runs?limit=0", "E_RANGE"),
        ("/v1/runs?limit=1001", "E_RANGE"),
        ("/v1/runs?limit=1e2", "E_TYPE"),
        ("/v1/runs?due_from=yesterday", "E_TIME_SYNTAX"),
        ("/v1/runs?due_from=2027-01-02T00:00:00Z&due_until=2027-01-01T00:00:00Z", "E_RANGE"),
        ("/v1/runs?due_from=1990-01-01T00:00:00Z&due_until=2100-01-01T00:00:00Z", "E_RANGE"),
        ("/v1/jobs?name=" + "a" * 10_000, "E_LEN"),
        ("/v1/jobs?name=", "E_EMPTY"),
        ("/v1/jobs?name=%00", "E_CHAR"),
        ("/v1/jobs?paused=yes", "E_TYPE"),
        ("/v1/jobs?cursor=../../x", "E_PATTERN"),
        ("/v1/jobs?cursor=zz", "E_PATTERN"),
        ("/v1/runs/1/log?file=../../other-run", "E_UNKNOWN_PARAM"),
        ("/v1/nodes?x", "E_UNKNOWN_PARAM"),
        ("/v1/jobs?" + "&".join(f"a{n}=1" for n in range(70)), "E_LIMIT"),
    ],
    ids=lambda value: value[:48],
)
async def test_query_parameters_are_strict(api: httpx.AsyncClient, address: str, code: str) -> None:
    problem_of(await api.get(address), 422, code)


async def test_all_wrong_parameters_are_named_and_the_nearest_name_is_suggested(api: httpx.AsyncClient) -> None:
    shown = problem_of(await api.get("/v1/runs?limit=x&stat=failed"), 422, "E_TYPE")
    assert [each["path"] for each in shown["errors"]] == ["limit", "stat"]
    assert shown["errors"][1]["hint"] == "did you mean state?"


async def test_a_query_that_is_not_utf8_is_refused(api: httpx.AsyncClient) -> None:
    problem_of(await api.get("/v1/jobs?name=%ff"), 400, "E_ENCODING")


async def test_a_cursor_past_the_end_gives_an_empty_page(api: httpx.AsyncClient) -> None:
    answer = await api.get("/v1/jobs", params={"cursor": "c0"})
    assert answer.json() == {"items": [], "cursor": None}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs/%00",
        "/v1/jobs/%2e%2e%2f",
        "/v1/jobs/..;/",
        "/v1/jobs/x",
        "/v1/jobs/0",
        "/v1/jobs/-1",
        "/v1/jobs/01",
        "/v1/jobs/1.0",
        "/v1/jobs/9223372036854775808",
        "/v1/jobs/%D9%A1",
        "/v1/jobs/",
        "/v1",
        "/v2/jobs",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/runs/x",
    ],
)
async def test_a_path_that_names_nothing_is_404(api: httpx.AsyncClient, path: str) -> None:
    problem_of(await api.get(path), 404, "E_NOT_FOUND")


async def test_a_wrong_method_is_told_the_right_ones(api: httpx.AsyncClient) -> None:
    answer = await api.delete("/v1/jobs")
    problem_of(answer, 405, "E_METHOD")
    assert answer.headers["allow"] == "GET, HEAD, POST"
    assert (await api.patch("/v1/jobs/1")).headers["allow"] == "DELETE, GET, HEAD, PUT"


async def test_head_answers_as_get_without_a_body(api: httpx.AsyncClient) -> None:
    await submitted(api)
    got, head = await api.get("/v1/jobs"), await api.head("/v1/jobs")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


async def test_a_method_override_is_ignored(api: httpx.AsyncClient) -> None:
    job = await submitted(api)
    answer = await api.get(f"/v1/jobs/{job['id']}", headers={"x-http-method-override": "DELETE"})
    assert (answer.status_code, "deleted_at" in answer.json()) == (200, False)


# ── the gate ──


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:9", "localhost:8080", "LOCALHOST", "127.8.9.1", "[::1]:8080", "horae.example:1"]
)
async def test_loopback_and_listed_hosts_are_answered(api: httpx.AsyncClient, host: str) -> None:
    assert (await api.get("/healthz", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1", "", "[::2]", "[", "127.0.0.1@x"]
)
async def test_other_hosts_are_not_answered(api: httpx.AsyncClient, host: str) -> None:
    problem_of(await api.get("/v1/jobs", headers={"host": host}), 421, "E_HOST")


async def test_two_host_headers_are_not_answered(gate: web.Gate) -> None:
    request = httpx.Request("GET", f"{HERE}/healthz", headers=[("host", "127.0.0.1"), ("host", "evil.example")])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate)) as client:
        problem_of(await client.send(request), 400, "E_HEADER")


async def test_any_host_is_answered_beyond_loopback_unless_some_are_listed(world: World) -> None:
    async def status(*listed: str) -> int:
        gate = web.create_app(world.services, CONTRACTS, version="1", allowed_hosts=listed, loopback_only=False)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="http://10.0.0.1") as client:
            return (await client.get("/healthz")).status_code

    assert await status() == 200
    assert await status("horae.example") == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:3000", "file://", "127.0.0.1:8080"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT"])
async def test_pages_of_other_sites_get_nothing(api: httpx.AsyncClient, world: World, method: str, origin: str) -> None:
    problem_of(await api.request(method, "/v1/jobs", headers={"origin": origin}), 403, "E_ORIGIN")
    assert await world.rows() == (0, 0, 0)


@pytest.mark.parametrize("origin", [HERE, "https://127.0.0.1:8080", "https://horae.example"])
async def test_our_own_pages_are_answered(api: httpx.AsyncClient, origin: str) -> None:
    assert (await api.post("/v1/jobs", json=JOB, headers={"origin": origin})).status_code == 201


async def test_large_or_many_headers_are_refused(api: httpx.AsyncClient) -> None:
    problem_of(await api.get("/healthz", headers={"x": "a" * 33_000}), 431, "E_HEADER")
    problem_of(await api.get("/healthz", headers=[("x", "a")] * 101), 431, "E_HEADER")


def break_store(world: World, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception) -> None:
    async def broken(*_: Any) -> None:
        raise error

    monkeypatch.setattr(world.store, method, broken)


async def test_S58_an_unexpected_error_shows_nothing_but_its_request_id(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_store(world, monkeypatch, "list_nodes", RuntimeError("secret in /etc/horae"))
    answer = await api.get("/v1/nodes")
    shown = problem_of(answer, 500, "E_INTERNAL")
    assert "secret" not in answer.text
    assert shown["detail"] == CODES["E_INTERNAL"]


async def test_an_unreachable_store_is_503_and_may_be_retried(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_store(world, monkeypatch, "census", Unavailable("the database does not answer"))
    answer = await api.get("/v1/overview")
    problem_of(answer, 503, "E_UNAVAILABLE")
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("path", ["/v1/jobs", "/", "/docs", "/static/page.css", "/nothing", "/healthz"])
async def test_S08_every_answer_has_the_safe_headers(api: httpx.AsyncClient, path: str) -> None:
    headers = (await api.get(path)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == ("same-origin" if path in ("/", "/docs") else "no-referrer")
    assert headers["cross-origin-resource-policy"] == "same-origin"
    source = "'self'" if path in ("/", "/docs", "/static/page.css") else "'none'"
    assert headers["content-security-policy"].startswith(f"default-src {source};")
    assert "unsafe" not in headers["content-security-policy"]


async def test_request_ids_differ(api: httpx.AsyncClient) -> None:
    ids = [(await api.get("/healthz")).headers["x-request-id"] for _ in range(3)]
    assert len(set(ids)) == 3


# ── logs ──


async def test_the_log_of_a_run_that_has_not_started_is_empty_and_says_so(api: httpx.AsyncClient, world: World) -> None:
    run = await world.queue_run()
    answer = await api.get(f"/v1/runs/{run.id}/log")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["horae-run-state"] == "queued"
    assert answer.headers["horae-log-offset"] == "0"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    problem_of(await api.get("/v1/runs/999/log"), 404, "E_NOT_FOUND")


async def started(world: World, log: bytes) -> Work:
    """Return a run at work, that has said something."""
    work = await world.start_run()
    await work.write(log)
    return work


async def test_a_log_is_read_in_pieces_by_offset(api: httpx.AsyncClient, world: World) -> None:
    run = await started(world, b"0123456789")
    first = await api.get(f"/v1/runs/{run.run_id}/log", params={"limit": 4})
    offset = first.headers["horae-log-offset"]
    rest = await api.get(f"/v1/runs/{run.run_id}/log", params={"offset": offset})
    assert (first.content, offset, rest.content) == (b"0123", "4", b"456789")
    assert rest.headers["horae-run-state"] == "running"


@pytest.mark.parametrize(
    ("asked", "got", "where"),
    [("bytes=2-4", b"234", "bytes 2-4/*"), ("bytes=7-", b"789", "bytes 7-9/*"), ("bytes=8-99", b"89", "bytes 8-9/*")],
)
async def test_one_byte_range_is_answered(
    api: httpx.AsyncClient, world: World, asked: str, got: bytes, where: str
) -> None:
    run = await started(world, b"0123456789")
    answer = await api.get(f"/v1/runs/{run.run_id}/log", headers={"range": asked})
    assert (answer.status_code, answer.content, answer.headers["content-range"]) == (206, got, where)


@pytest.mark.parametrize(
    "asked", ["bytes=0-0,1-1", "bytes=" + ",".join(["0-0"] * 5000), "bytes=-5", "bytes=5-2", "lines=1-2", "bytes=10-"]
)
async def test_S16_other_ranges_are_refused(api: httpx.AsyncClient, world: World, asked: str) -> None:
    run = await started(world, b"0123456789")
    answer = await api.get(f"/v1/runs/{run.run_id}/log", headers={"range": asked})
    problem_of(answer, 416, "E_RANGE_HEADER")


async def test_a_range_beside_an_offset_is_a_conflict(api: httpx.AsyncClient, world: World) -> None:
    run = await world.queue_run()
    answer = await api.get(f"/v1/runs/{run.id}/log?offset=3", headers={"range": "bytes=0-1"})
    problem_of(answer, 422, "E_FIELD_CONFLICT")


class Follower:
    """Reads an event stream straight from the application, as httpx's ASGI transport would buffer it."""

    def __init__(
        self,
        gate: web.Gate,
        run_id: int,
        last: str | None = None,
        method: str = "GET",
        headers: Sequence[tuple[bytes, bytes]] = (),
        path: str = "/v1/runs/{}/log/follow",
    ) -> None:
        headers = [(b"host", b"127.0.0.1"), *headers]
        headers += [(b"last-event-id", last.encode())] if last is not None else []
        self.scope = {
            "type": "http",
            "method": method,
            "path": path.format(run_id),
            "query_string": b"follow=true" if path.startswith("/api") else b"",
            "headers": headers,
            web.OWNER: os.geteuid(),
        }
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.left = asyncio.Event()
        self.text = ""
        self.task = asyncio.create_task(gate(self.scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.put_nowait(message)

    async def start(self) -> dict[str, Any]:
        async with asyncio.timeout(DEADLINE):
            return await self.sent.get()

    async def events(self, count: int) -> list[tuple[str, str | None, Any]]:
        """Return the next events as (name, id, data). Comments are signs of life, where nothing else was to be said."""
        found: list[tuple[str, str | None, Any]] = []
        async with asyncio.timeout(DEADLINE):
            while len(found) < count:
                part, end, rest = self.text.partition("\n\n")
                if end:
                    self.text = rest
                    found += [] if part.startswith(":") else [_parsed(part)]
                    continue
                message = await self.sent.get()
                assert message["type"] == "http.response.body"
                self.text += message["body"].decode()
        return found

    async def leave(self) -> None:
        self.left.set()
        async with asyncio.timeout(DEADLINE):
            await self.task


def _parsed(part: str) -> tuple[str, str | None, Any]:
    fields = dict(line.split(": ", 1) for line in part.split("\n"))
    return fields["event"], fields.get("id"), json.loads(fields["data"])


async def test_a_follower_sees_the_log_grow_and_the_run_end(gate: web.Gate, world: World) -> None:
    run = await world.queue_run()
    follower = Follower(gate, run.id)
    start = await follower.start()
    assert start["status"] == 200
    assert (b"content-type", b"text/event-stream") in start["headers"]
    assert (await follower.events(1))[0][2]["state"] == "queued"
    work = await world.take(run.id)
    state = (await follower.events(1))[0]
    assert (state[0], state[2]["state"]) == ("state", "running")
    await work.write(b"one\n")
    assert await follower.events(1) == [("log", "1:4", {"attempt": 1, "offset": 0, "text": "one\n"})]
    await work.write(b"two\n")
    assert await follower.events(1) == [("log", "1:8", {"attempt": 1, "offset": 4, "text": "two\n"})]
    await work.end(State.SUCCEEDED)
    state, end = await follower.events(2)
    assert (state[0], state[2]["state"]) == ("state", "succeeded")
    assert (end[0], end[2]["state"], end[2]["finished_at"]) == ("end", "succeeded", "2027-01-15T08:00:00Z")
    async with asyncio.timeout(DEADLINE):
        await follower.task
    assert gate.streams.taken == world.followers == 0


async def test_a_character_cut_in_two_arrives_whole_and_the_id_waits_for_it(gate: web.Gate, world: World) -> None:
    euro = "€".encode()
    work = await started(world, b"a" + euro[:1])
    follower = Follower(gate, work.run_id)
    await follower.start()
    _, first = await follower.events(2)
    assert first == ("log", "1:1", {"attempt": 1, "offset": 0, "text": "a"})
    await work.write(euro[1:] + b"\xff")
    second = (await follower.events(1))[0]
    assert second == ("log", "1:5", {"attempt": 1, "offset": 1, "text": "€\ufffd"})
    await follower.leave()


async def test_the_log_of_the_next_attempt_follows_from_its_beginning(gate: web.Gate, world: World) -> None:
    first = await world.start_run((await world.submit(retry=TWICE)).id)
    await first.write(b"a\xe2")
    follower = Follower(gate, first.run_id)
    await follower.start()
    await follower.events(2)
    second = await first.fail_once()
    await second.write(b"again")
    seen: list[tuple[str, str | None, Any]] = []
    while not seen or seen[-1][:2] != ("log", "2:5"):
        seen += await follower.events(1)
    logs = [each for each in seen if each[0] == "log"]
    assert logs == [
        ("log", None, {"attempt": 1, "offset": 1, "text": "\ufffd"}),
        ("log", "2:5", {"attempt": 2, "offset": 0, "text": "again"}),
    ]
    await follower.leave()


async def tried_twice(world: World) -> int:
    """Return a run that succeeded at its second attempt, and what each said."""
    first = await world.start_run((await world.submit(retry=TWICE)).id)
    await first.write(b"abcdefgh")
    second = await first.fail_once()
    await second.write(b"0123456789")
    await second.end(State.SUCCEEDED)
    return first.run_id


@pytest.mark.parametrize("last", ["6", "2:6"])
async def test_a_follower_resumes_where_it_was(gate: web.Gate, world: World, last: str) -> None:
    follower = Follower(gate, await tried_twice(world), last=last)
    await follower.start()
    _, log, end = await follower.events(3)
    assert log == ("log", "2:10", {"attempt": 2, "offset": 6, "text": "6789"})
    assert end[0] == "end"
    await follower.leave()


async def test_a_follower_may_resume_in_an_earlier_attempt(gate: web.Gate, world: World) -> None:
    follower = Follower(gate, await tried_twice(world), last="1:4")
    await follower.start()
    _, first, second, end = await follower.events(4)
    assert first == ("log", "1:8", {"attempt": 1, "offset": 4, "text": "efgh"})
    assert second == ("log", "2:10", {"attempt": 2, "offset": 0, "text": "0123456789"})
    assert end[0] == "end"
    await follower.leave()


async def test_a_follower_of_an_attempt_that_has_not_been_is_refused(api: httpx.AsyncClient, world: World) -> None:
    run_id = await tried_twice(world)
    answer = await api.get(f"/v1/runs/{run_id}/log/follow", headers={"last-event-id": "3:0"})
    problem_of(answer, 422, "E_RANGE")


async def test_a_follower_that_leaves_frees_its_seat(gate: web.Gate, world: World) -> None:
    work = await started(world, b"x")
    follower = Follower(gate, work.run_id)
    await follower.start()
    await follower.events(2)
    async with asyncio.timeout(DEADLINE):
        while not world.followers:
            await asyncio.sleep(0)
    assert (gate.streams.taken, world.followers) == (1, 1)
    await follower.leave()
    assert (gate.streams.taken, world.followers) == (0, 0)


async def test_more_followers_than_seats_are_turned_away(gate: web.Gate, world: World) -> None:
    run = await world.queue_run()
    followers = [Follower(gate, run.id) for _ in range(3)]
    starts = [await follower.start() for follower in followers]  # they sit before the fourth comes
    followers.append(Follower(gate, run.id))
    starts.append(await followers[3].start())
    assert [start["status"] for start in starts] == [200, 200, 200, 429]
    assert (b"retry-after", b"5") in starts[3]["headers"]
    assert json.loads((await followers[3].start())["body"])["code"] == "E_STREAM_LIMIT"
    for follower in followers:
        await follower.leave()


async def test_closing_the_streams_ends_every_follower(gate: web.Gate, world: World) -> None:
    run = await world.queue_run()
    followers = [Follower(gate, run.id) for _ in range(2)]
    for follower in followers:
        await follower.start()
    gate.streams.close()
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*(follower.task for follower in followers))
    assert world.followers == 0
    for follower in followers:
        sent = [follower.sent.get_nowait() for _ in range(follower.sent.qsize())]
        assert sent[-1] == {"type": "http.response.body", "body": b""}, "the answer must end, not break off"


async def test_a_silent_stream_has_a_heartbeat(gate: web.Gate, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.01)
    run = await world.queue_run()
    follower = Follower(gate, run.id)
    await follower.start()
    await follower.events(1)
    async with asyncio.timeout(DEADLINE):
        message = await follower.sent.get()
    assert message == {"type": "http.response.body", "body": b": still here\n\n", "more_body": True}
    await follower.leave()


async def test_following_what_is_not_there_is_a_plain_problem(api: httpx.AsyncClient, gate: web.Gate) -> None:
    problem_of(await api.get("/v1/runs/9/log/follow"), 404, "E_NOT_FOUND")
    assert gate.streams.taken == 0


@pytest.mark.parametrize("last", ["-1", "", "x", "1" * 19, "1:", ":1", "1:2:3", "1:-2", "1234567890:1"])
async def test_an_odd_last_event_id_is_refused(api: httpx.AsyncClient, world: World, gate: web.Gate, last: str) -> None:
    run = await world.queue_run()
    answer = await api.get(f"/v1/runs/{run.id}/log/follow", headers={"last-event-id": last})
    problem_of(answer, 422, "E_TYPE")
    assert gate.streams.taken == 0


async def test_head_of_a_stream_ends_at_once(gate: web.Gate, world: World) -> None:
    run = await world.queue_run()
    follower = Follower(gate, run.id, method="HEAD")
    async with asyncio.timeout(DEADLINE):
        await follower.task
    assert gate.streams.taken == 0


# ── pages and process ──

EVIL = "<script>alert(1)</script>"


async def test_the_overview_lists_counts_nodes_runs_and_due_triggers(api: httpx.AsyncClient, world: World) -> None:
    job = await submitted(api)
    await world.join()
    failed = await world.start_run(job["id"])
    await failed.end(State.FAILED, finished_at=world.clock.now() + 2_500_000)
    await world.start_run(job["id"])
    seen = (await api.get("/v1/overview")).json()
    assert seen["census"]["live"] == {"running": 1}
    assert [run["state"] for run in seen["live"]] == ["running"]
    assert [run["state"] for run in seen["recent"]] == ["failed"]
    assert seen["due"][0]["job_id"] == job["id"]
    assert seen["names"] == {str(job["id"]): "nightly"}
    page = (await api.get("/")).text
    assert "2.5 s" in page
    assert NODE in page
    assert "at 03:00" in page


async def test_S50_user_text_is_escaped_on_every_page(api: httpx.AsyncClient, world: World) -> None:
    job = await submitted(api, name=EVIL)
    run = await world.start_run(job["id"])
    await run.end(State.FAILED, message=EVIL, reason=EVIL)
    for path in ("/", f"/runs/{run.run_id}"):
        page = await api.get(path)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "alert(1)" in page.text
        assert EVIL not in page.text
    assert (await api.get(f"/v1/jobs/{job['id']}")).json()["name"] == EVIL


async def test_pages_load_nothing_from_elsewhere(api: httpx.AsyncClient, world: World) -> None:
    job = await submitted(api)
    run = await world.queue_run(job["id"])
    for path in ("/", "/docs", f"/runs/{run.id}"):
        page = (await api.get(path)).text
        for link in (part.split('"')[0] for mark in ('src="', 'href="') for part in page.split(mark)[1:]):
            assert link.startswith(("/", "#")), link
            assert not link.startswith("//")
            if link.startswith("/static/"):
                assert (await api.get(link)).status_code == 200


async def test_the_page_of_an_unknown_run_is_404(api: httpx.AsyncClient) -> None:
    problem_of(await api.get("/runs/77"), 404, "E_NOT_FOUND")


async def test_static_files_are_revalidated(api: httpx.AsyncClient) -> None:
    first = await api.get("/static/overview.js")
    assert first.headers["content-type"] == "text/javascript; charset=utf-8"
    again = await api.get("/static/overview.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_health_readiness_and_metrics(api: httpx.AsyncClient, world: World) -> None:
    assert (await api.get("/healthz")).json() == {"status": "ok", "version": "1.2.3", "node": NODE}
    assert (await api.get("/readyz")).json() == {"ready": True, "checks": {"progress": "ok"}}
    await submitted(api, schedule="* * * * *")
    world.clock.advance(180)  # and nobody fires
    unready = await api.get("/readyz")
    late = "the oldest due moment has waited for 180 s"
    assert (unready.status_code, unready.json()["checks"]) == (503, {"progress": late})
    metrics = await api.get("/metrics")
    assert b"# TYPE horae_" in metrics.content
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_handlers_are_listed_with_the_nodes_that_were_asked(api: httpx.AsyncClient, world: World) -> None:
    await world.join()
    found = (await api.get("/v1/handlers")).json()
    assert found == {"items": [], "nodes": [{"name": NODE, "state": "listed", "note": ""}], "cursor": None}
    assert (await api.get("/v1/handlers", params={"node": NODE})).json() == found
    missing = await api.get("/v1/handlers", params={"node": "nobody"})
    assert (missing.status_code, missing.json()["detail"]) == (422, "there is no node nobody")


async def test_nodes_and_segments_are_listed(api: httpx.AsyncClient, world: World) -> None:
    await world.join()
    await world.store.beat(NODE, 1)
    lease = await world.store.take_lease("leader", NODE, None)
    assert lease is not None
    assert await world.store.assign_segments({7: NODE}, lease)
    node = (await api.get("/v1/nodes")).json()["items"][0]
    assert (node["name"], node["busy"], node["slots"], node["state"]) == (NODE, 1, 8, "live")
    assert node["segments"] == 1
    segments = (await api.get("/v1/segments")).json()["items"]
    assert {"segment": 7, "owner": NODE, "term": 1, "triggers": 0, "due_within_hour": 0} in segments


# ── over a socket ──


@pytest.fixture
def crowd() -> connections.Crowd:
    return connections.Crowd()


@pytest.fixture
async def port(gate: web.Gate, crowd: connections.Crowd) -> AsyncIterator[int]:
    """The application behind its real HTTP server, on a free port."""
    protocol: Any = partial(connections.Protocol, crowd=crowd)
    config = uvicorn.Config(gate, port=0, http=protocol, ws="none", lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(DEADLINE):
        while not server.started:
            await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    gate.streams.close()
    server.should_exit = True
    await serving


async def raw(port: int, *pieces: bytes) -> bytes:
    """Send bytes as they are; everything the server answers until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(DEADLINE):
            return await reader.read()
    except ConnectionResetError:
        return b"reset"
    finally:
        writer.close()


POST = b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        POST + b"Content-Length: -1\r\n\r\n{}",
        POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        POST + b"Content-Length: x\r\n\r\n{}",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: a\rb\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
    ],
)
async def test_broken_http_is_400_and_the_connection_closes(port: int, world: World, request_: bytes) -> None:
    answer = await raw(port, request_)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in answer
    assert json.loads(answer.split(b"\r\n\r\n")[1])["code"] == "E_HEADER"
    assert await world.rows() == (0, 0, 0)


UPGRADE = (
    b"Host: 127.0.0.1\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize("path", [b"/", b"/v1/jobs", b"/v1/events/stream", b"/nothing"])
async def test_F39_a_page_of_another_site_opens_no_websocket(port: int, path: bytes) -> None:
    """Nobody does: there is none. What wants to become one is a request like any other."""
    foreign = await raw(port, b"GET " + path + b" HTTP/1.1\r\n" + UPGRADE + b"Origin: https://evil.example\r\n\r\n")
    assert foreign.startswith(b"HTTP/1.1 403 ")
    own = await raw(port, b"HEAD " + path + b" HTTP/1.1\r\n" + UPGRADE + b"\r\n")
    assert own.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 404 "))


async def test_a_body_shorter_than_announced_is_given_up(
    port: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BODY_SECONDS", 0.05)
    answer = await raw(port, POST + b"Content-Length: 100\r\n\r\n{}")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in answer
    assert b'"code":"E_SYNTAX"' in answer
    assert await world.rows() == (0, 0, 0)


HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.mark.parametrize(
    "sent",
    [b"", b"\r\n", b"G", HEAD, HEAD + b"\r\n" + b"\r\n", HEAD + b"\r\n" + HEAD, HEAD + b"Content-Length: 9\r\n\r\n{"],
)
async def test_S59_a_connection_that_is_idle_or_half_sends_is_closed(
    port: int, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.05)
    answer = await raw(port, sent)  # which ends when the server closes
    assert answer == b"reset" or answer.count(b"HTTP/1.1 200 ") == (b"\r\n\r\n" in sent)


async def test_a_head_that_trickles_is_closed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEAD)

    async def trickle() -> None:
        with suppress(ConnectionError):
            while True:
                writer.write(b"X: y\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)

    trickling = asyncio.create_task(trickle())
    async with asyncio.timeout(DEADLINE):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        await trickling
    writer.close()


async def test_a_client_that_does_not_read_its_answer_is_cut_off(
    port: int, gate: web.Gate, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALL_SECONDS", 0.05)
    work = await world.start_run()
    for _ in range(16):
        await work.write(b"x" * (1 << 20))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(b"GET /v1/runs/%d/log/follow HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % work.run_id)
    async with asyncio.timeout(DEADLINE):
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        while gate.streams.taken:
            await asyncio.sleep(0.01)
    writer.close()


async def test_one_connection_too_many_is_told_so_and_closed(port: int, crowd: connections.Crowd) -> None:
    crowd.most = 2
    open_ones = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    for reader, writer in open_ones:  # each is known to the server once it has answered
        writer.write(HEAD + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")

    answer = await raw(port, HEAD + b"\r\n")
    assert answer == b"reset" or b'"code":"E_CONNECTION_LIMIT"' in answer

    open_ones[0][1].close()
    async with asyncio.timeout(DEADLINE):
        while not (await raw(port, HEAD + b"Connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200"):
            await asyncio.sleep(0.01)
    open_ones[1][1].close()


def test_beyond_loopback_one_address_has_a_share_only() -> None:
    crowd = connections.Crowd(8)
    assert [bool(crowd.enter("192.0.2.1")) for _ in range(3)] == [False, False, True]
    assert [bool(crowd.enter("127.0.0.1")) for _ in range(5)] == [False] * 5
    assert "8 connections" in crowd.enter("192.0.2.2")
    for address in ["192.0.2.1"] * 3 + ["127.0.0.1"] * 5 + ["192.0.2.2"]:
        crowd.leave(address)
    assert crowd.enter("192.0.2.1") == ""


async def test_what_follows_a_body_must_be_a_request(port: int) -> None:
    body = json.dumps(JOB).encode()
    answer = await raw(port, POST + b"Content-Length: %d\r\n\r\n" % len(body) + body + b"garbage\r\n\r\n")
    assert b"HTTP/1.1 400 " in answer


async def test_a_body_announced_too_large_is_refused_before_it_is_read(port: int) -> None:
    answer = await raw(port, POST + b"Content-Length: 9999999999\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer


async def test_a_chunked_body_past_the_limit_is_refused(port: int) -> None:
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    for path, count in ((b"/v1/preview", 17), (b"/v1/jobs", 513)):
        head = POST.replace(b"/v1/jobs", path)
        answer = await raw(port, head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * count)
        assert answer == b"reset" or answer.startswith(b"HTTP/1.1 413 ")


async def test_S14_headers_without_end_are_cut_off(port: int) -> None:
    answer = await raw(port, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", *[b"a" * 65536] * 40)
    assert answer == b"reset" or answer.startswith(b"HTTP/1.1 431 ")


async def test_many_headers_are_431(port: int) -> None:
    headers = b"".join(b"X-%d: 1\r\n" % n for n in range(1000))
    answer = await raw(port, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" + headers + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"E_HEADER"' in answer


async def test_pipelined_requests_are_answered_in_order(port: int) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n%b\r\n"
    answer = await raw(port, one % b"" + one % b"Connection: close\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 2


async def test_a_follower_that_hangs_up_is_noticed(port: int, gate: web.Gate, world: World) -> None:
    run = await world.queue_run()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v1/runs/%d/log/follow HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % run.id)
    async with asyncio.timeout(DEADLINE):
        await reader.readuntil(b"event: state")
        assert gate.streams.taken == 1
        writer.close()
        while gate.streams.taken:
            await asyncio.sleep(0.01)


def test_every_answer_is_a_schema_of_the_document() -> None:
    rooms = (access, alerts, basics, cluster, jobs, runs)
    structs = {
        name
        for room in rooms
        for name, each in vars(room).items()
        if isinstance(each, type) and each.__module__ == room.__name__
    }
    assert structs <= openapi.components().keys()


# ── secrets ──


async def test_a_secret_is_set_listed_and_deleted_and_never_shown(api: httpx.AsyncClient) -> None:
    made = await api.put("/v1/secrets/DB_PASSWORD", json={"value": "correct horse"})
    again = await api.put("/v1/secrets/DB_PASSWORD", json={"value": "battery staple"})
    assert (made.status_code, made.content) == (201, b"")
    assert (again.status_code, again.content) == (204, b"")

    listed = await api.get("/v1/secrets")
    (shown,) = listed.json()["items"]
    assert (shown["name"], shown["version"]) == ("DB_PASSWORD", 2)
    assert "horse" not in listed.text
    assert "battery" not in listed.text
    assert (await api.get("/v1/secrets/DB_PASSWORD")).status_code == 405

    assert (await api.delete("/v1/secrets/DB_PASSWORD")).status_code == 204
    problem_of(await api.delete("/v1/secrets/DB_PASSWORD"), 404, "E_NOT_FOUND")
    assert (await api.get("/v1/secrets")).json()["items"] == []


@pytest.mark.parametrize(
    ("name", "body", "code"),
    [
        ("1st", {"value": "hunter2"}, "E_PATTERN"),
        ("a" * 64, {"value": "hunter2"}, "E_PATTERN"),
        ("A", {}, "E_REQUIRED"),
        ("A", {"value": ""}, "E_EMPTY"),
        ("A", {"value": ["hunter2"]}, "E_TYPE"),
        ("A", {"value": "hunter2\0"}, "E_CHAR"),
        ("A", {"value": "hunter2" * 10_000}, "E_LEN"),
        ("A", {"value": "hunter2", "org": 2}, "E_UNKNOWN_FIELD"),
    ],
)
async def test_a_secret_that_cannot_be_kept_is_refused_without_repeating_it(
    api: httpx.AsyncClient, name: str, body: dict[str, Any], code: str
) -> None:
    answer = await api.put(f"/v1/secrets/{name}", json=body)
    problem_of(answer, 422, code)
    assert "hunter2" not in answer.text


def test_a_trigger_that_this_node_cannot_read_is_shown_and_says_so() -> None:
    schedule = {"cron": "0 9 * * *", "timezone": "Mars/Olympus_Mons"}
    trigger = Trigger(7, 3, schedule, None, True, 1, next_at=START, last_at=None, created_at=START)

    shown = render.trigger(trigger)

    assert shown.schedule == schedule
    assert shown.description.startswith("cannot be read, and is not fired, by this node: ")
    assert "Mars/Olympus_Mons" in shown.description
