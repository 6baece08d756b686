"""Telling runs what they wait for: signals, decisions, callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from horae.core.model import Run, State
from horae.core.work.specs import parse_job
from horae.service.workflows.waits import PlainWaits
from horae.web.app import shown_path
from tests.facades.world import BOTH, HERE, World

JSON = {"content-type": "application/json"}
HOSTILE = [b"{", b'"\\ud800"', b"[" * 100_000, b"\xff\xfe", b"NaN", b"1e999"]


@pytest.fixture
async def stranger(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody of another account, without a token."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(world.gate), base_url=HERE) as client:
        yield client


async def wait_for(world: World, **wait: Any) -> Run:
    """Return a run that waits so, on behalf of the servers who do such runs."""
    job = (await world.jobs.submit([parse_job({"name": "waits", "wait": wait, "overlap": "allow"})])).jobs[0]
    run = await world.queue_run(job.id)
    await go_on(world)
    return await world.jobs.get_run(run.id)


async def go_on(world: World) -> None:
    await world.execution.finish(await PlainWaits(world.store).begin(await world.claim("wait")))


async def address_of(world: World, run: Run, name: str = "paid") -> str:
    answer = await world.http.get(f"/v1/runs/{run.id}/callbacks/{name}")
    assert answer.status_code == 200, answer.text
    assert (answer.json()["run_id"], answer.json()["name"]) == (run.id, name)
    path: str = answer.json()["path"]
    return path


async def login(world: World, owner: str) -> dict[str, str]:
    _, text = await world.services.access.create(owner, "user", owner, None)
    return {"authorization": f"Bearer {text}"}


# ── signals ──


@BOTH
async def test_a_signal_is_what_the_run_returns(world: World) -> None:
    run = await wait_for(world, signal="paid")
    assert (run.state, run.reason) == (State.BLOCKED, "signal")
    answer = await world.http.post(f"/v1/runs/{run.id}/signals/paid", json={"amount": 12.5})
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")
    await go_on(world)
    assert (await world.jobs.get_run(run.id)).result == {"amount": 12.5}


async def test_a_signal_is_refused_where_nobody_can_be_told(world: World) -> None:
    run = await wait_for(world, signal="paid")
    assert (await world.http.post("/v1/runs/999/signals/paid")).status_code == 404
    assert (await world.http.post("/v1/runs/x/signals/paid")).status_code == 404
    assert (await world.http.get(f"/v1/runs/{run.id}/signals/paid")).status_code == 405
    for name in ("call:1", "approval:decision", "a%20b", "x" * 129):
        answer = await world.http.post(f"/v1/runs/{run.id}/signals/{name}")
        assert (answer.status_code, answer.json()["code"]) == (422, "E_PATTERN"), name
    assert (await world.http.post(f"/v1/runs/{run.id}/signals/paid", json=1)).status_code == 202
    second = await world.http.post(f"/v1/runs/{run.id}/signals/paid", json=1)
    assert (second.status_code, second.json()["code"]) == (409, "E_ANSWERED")
    await go_on(world)
    late = await world.http.post(f"/v1/runs/{run.id}/signals/other", json=1)
    assert (late.status_code, late.json()["code"]) == (409, "E_TERMINAL")


async def test_a_repeated_signal_is_the_same_and_another_with_its_key_is_refused(world: World) -> None:
    run = await wait_for(world, signal="paid")
    path, key = f"/v1/runs/{run.id}/signals/paid", {"idempotency-key": "once"}
    answers = [await world.http.post(path, json=said, headers=key) for said in (1, 1, 2)]
    assert [answer.status_code for answer in answers] == [202, 202, 409]
    assert answers[2].json()["code"] == "E_IDEMPOTENCY_MISMATCH"


@pytest.mark.parametrize("body", HOSTILE)
async def test_a_body_that_is_no_json_tells_nothing(world: World, stranger: httpx.AsyncClient, body: bytes) -> None:
    run = await wait_for(world, signal="paid")
    callback = await address_of(world, run)
    for client, path in ((world.http, f"/v1/runs/{run.id}/signals/paid"), (stranger, callback)):
        answer = await client.post(path, content=body, headers=JSON)
        assert answer.status_code in (400, 422), answer.text
        assert "Traceback" not in answer.text
    assert (await world.jobs.get_run(run.id)).state is State.BLOCKED


async def test_a_body_that_is_too_large_tells_nothing(world: World, stranger: httpx.AsyncClient) -> None:
    run = await wait_for(world, signal="paid")
    callback = await address_of(world, run)
    for client, path in ((world.http, f"/v1/runs/{run.id}/signals/paid"), (stranger, callback)):
        assert (await client.post(path, json="x" * (256 << 10))).status_code == 413
    assert (await world.jobs.get_run(run.id)).state is State.BLOCKED


# ── decisions ──


@BOTH
async def test_only_those_who_are_asked_decide(world: World, stranger: httpx.AsyncClient) -> None:
    run = await wait_for(world, approval={"by": ["ann"], "message": "publish?"})
    ann, bob = await login(world, "ann"), await login(world, "bob")
    for act in ("approve", "reject"):
        assert (await stranger.post(f"/v1/runs/{run.id}/{act}")).status_code == 401
        refused = await stranger.post(f"/v1/runs/{run.id}/{act}", headers=bob)
        assert (refused.status_code, refused.json()["code"]) == (403, "E_NOT_ASKED")
    assert (await stranger.get("/v1/approvals", headers=bob)).json()["items"] == []
    [asked] = (await stranger.get("/v1/approvals", headers=ann)).json()["items"]
    assert (asked["run_id"], asked["message"], asked["by"]) == (run.id, "publish?", ["ann"])
    approved = await stranger.post(f"/v1/runs/{run.id}/approve", headers=ann, json={"comment": "good"})
    assert approved.status_code == 202, approved.text
    again = await stranger.post(f"/v1/runs/{run.id}/reject", headers=ann)
    assert (again.status_code, again.json()["code"]) == (409, "E_ANSWERED")
    await go_on(world)
    done = await world.jobs.get_run(run.id)
    assert done.state is State.SUCCEEDED
    assert (done.result["approved"], done.result["by"], done.result["comment"]) == (True, "ann", "good")
    assert (await stranger.get("/v1/approvals", headers=ann)).json()["items"] == []


async def test_a_rejected_run_has_failed(world: World) -> None:
    run = await wait_for(world, approval={"by": ["ann"]})
    assert (await world.http.post(f"/v1/runs/{run.id}/reject", json={"comment": "no"})).status_code == 202
    await go_on(world)
    done = await world.jobs.get_run(run.id)
    assert (done.state, done.reason) == (State.FAILED, "rejected")


async def test_a_decision_is_refused_where_none_is_asked_for(world: World) -> None:
    run = await wait_for(world, signal="paid")
    answer = await world.http.post(f"/v1/runs/{run.id}/approve")
    assert (answer.status_code, answer.json()["code"]) == (409, "E_NOT_ASKED")
    assert (await world.http.post("/v1/runs/999/approve")).status_code == 404
    asked = await wait_for(world, approval={"by": ["ann"]})
    for body in ({"comment": 1}, {"approved": True}, [], {"comment": "x" * 1001}):
        assert (await world.http.post(f"/v1/runs/{asked.id}/approve", json=body)).status_code == 422, body


# ── callbacks ──


@BOTH
async def test_a_stranger_with_the_address_tells_the_run(world: World, stranger: httpx.AsyncClient) -> None:
    run = await wait_for(world, signal="paid")
    path = await address_of(world, run)
    assert path == await address_of(world, run)
    assert len(path.rpartition("/")[2]) == 43
    answer = await stranger.post(path, content=b'{"amount": 7}')
    assert (answer.status_code, answer.json()) == (202, {"run_id": run.id, "name": "paid"})
    await go_on(world)
    assert (await world.jobs.get_run(run.id)).result == {"amount": 7}


async def test_the_same_body_again_is_the_same_and_another_is_refused(
    world: World, stranger: httpx.AsyncClient
) -> None:
    run = await wait_for(world, signal="paid")
    path = await address_of(world, run)
    bodies = (b'{"a":1}', b' {"a": 1}\n', b'{"a":2}')
    answers = await asyncio.gather(*[stranger.post(path, content=bodies[0]) for _ in range(5)])
    assert {answer.status_code for answer in answers} == {202}
    assert [(await stranger.post(path, content=body)).status_code for body in bodies] == [202, 202, 409]
    assert (await stranger.post(path, content=bodies[2])).json()["code"] == "E_ANSWERED"
    await go_on(world)
    assert (await world.jobs.get_run(run.id)).result == {"a": 1}
    assert (await stranger.post(path, content=bodies[0])).status_code == 202  # it has ended since
    unasked = await stranger.post(await address_of(world, run, "other"))
    assert (unasked.status_code, unasked.json()["code"]) == (409, "E_TERMINAL")


async def test_a_callback_comes_second_to_a_signal(world: World, stranger: httpx.AsyncClient) -> None:
    run = await wait_for(world, signal="paid")
    assert (await world.http.post(f"/v1/runs/{run.id}/signals/paid", json=1)).status_code == 202
    answer = await stranger.post(await address_of(world, run), json=1)
    assert (answer.status_code, answer.json()["code"]) == (409, "E_ANSWERED")


async def test_a_wrong_address_is_as_if_there_were_nothing(world: World, stranger: httpx.AsyncClient) -> None:
    run, other = await wait_for(world, signal="paid"), await wait_for(world, signal="paid")
    nothing = {**(await world.http.get("/v1/nothing")).json(), "request_id": ""}
    early = await stranger.post(f"/v1/callbacks/{run.id}/paid/{'A' * 43}", json=1)  # nobody was given any yet
    assert {**early.json(), "request_id": ""} == nothing
    token = (await address_of(world, run)).rpartition("/")[2]
    for path in (
        f"{run.id}/paid/x", f"{run.id}/paid/{token}x", f"{run.id}/paid/{token[:-1]}", f"{other.id}/paid/{token}",
        f"{run.id}/other/{token}", f"0{run.id}/paid/{token}", f"999/paid/{token}", f"x/paid/{token}",
        f"{run.id}/paid/%ff%00", f"{run.id}/approval:decision/{token}",
    ):  # fmt: skip
        answer = await stranger.post(f"/v1/callbacks/{path}", json=1)
        assert answer.status_code == 404, path
        assert {**answer.json(), "request_id": ""} == nothing
    assert (await stranger.get(f"/v1/callbacks/{run.id}/paid/{token}")).status_code == 405
    assert (await world.jobs.get_run(run.id)).state is State.BLOCKED


async def test_the_address_is_for_those_who_see_the_run(world: World, stranger: httpx.AsyncClient) -> None:
    run = await wait_for(world, signal="paid")
    assert (await stranger.get(f"/v1/runs/{run.id}/callbacks/paid")).status_code == 401
    assert (await world.http.get("/v1/runs/999/callbacks/paid")).status_code == 404
    answer = await world.http.get(f"/v1/runs/{run.id}/callbacks/approval:decision")
    assert (answer.status_code, answer.json()["code"]) == (422, "E_PATTERN")
    other = (await world.services.access.create("far", "user", "far", None, org=2))[1]
    far = await stranger.get(f"/v1/runs/{run.id}/callbacks/paid", headers={"authorization": f"Bearer {other}"})
    assert far.status_code == 404


async def test_an_address_outlives_the_key_of_secrets(world: World, stranger: httpx.AsyncClient) -> None:
    run = await wait_for(world, signal="paid")
    path = await address_of(world, run)
    before = await world.store.get_setting("callbacks")
    await world.services.rotation.rotate()
    assert await world.store.get_setting("callbacks") not in (None, before)
    world.jobs.callbacks._key = ""  # as in a process that starts now
    assert await address_of(world, run) == path
    assert (await stranger.post(path, json=1)).status_code == 202


def test_no_log_has_the_token_of_an_address() -> None:
    assert shown_path("/v1/callbacks/7/paid/abc") == "/v1/callbacks/7/paid/******"
