"""Webhooks as strangers call them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from horae.core.hooks import sign, sign_plain
from horae.core.model import SECOND, RunFilter
from horae.service.access.wanted import parse_token
from tests.facades.world import BOTH, HERE, World
from tests.unit.core.test_hooks import COMMIT, github

JSON = {"content-type": "application/json"}


@pytest.fixture
async def stranger(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody of another account, without a token."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(world.gate), base_url=HERE) as client:
        yield client


async def make(world: World, webhook: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the trigger of a new job as its maker sees it."""
    document = {"name": "job", "steps": [{"run": "true"}], "overlap": "allow", **fields}
    trigger = {"webhook": webhook, **({"data": document.pop("data")} if "data" in document else {})}
    answer = await world.http.post("/v1/jobs", json={**document, "triggers": [trigger]})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()["jobs"][0]["triggers"][0]
    return found


async def runs_of(world: World, trigger: dict[str, Any]) -> list[Any]:
    return list((await world.store.list_runs(RunFilter(trigger_id=trigger["id"]), None, 100)).items)


@BOTH
async def test_a_call_makes_a_run_with_its_body_as_data(world: World, stranger: httpx.AsyncClient) -> None:
    trigger = await make(world, {}, data={"a": 0, "b": 2})
    assert (trigger["next_at"], trigger["description"]) == (None, "when its address is called")
    answer = await stranger.post(trigger["hook"], json={"a": 1})
    assert answer.status_code == 202, answer.text
    [run] = await runs_of(world, trigger)
    assert answer.json() == {"run_id": run.id, "state": "queued", "message": ""}
    assert (run.data, run.trigger_id) == ({"a": 1, "b": 2}, trigger["id"])


async def test_the_address_is_shown_once(world: World, stranger: httpx.AsyncClient) -> None:
    trigger = await make(world, {})
    [_, _, _, number, token] = trigger["hook"].split("/")
    assert number == str(trigger["id"])
    assert len(token) >= 43
    for path in (f"/v1/triggers/{trigger['id']}", f"/v1/jobs/{trigger['job_id']}", "/v1/triggers"):
        text = (await world.http.get(path)).text
        assert token not in text
        assert f"/v1/hooks/{number}/******" in text
    [job] = await world.store.load_jobs([trigger["job_id"]])
    assert token not in repr(job)
    assert (await stranger.post(trigger["hook"])).status_code == 202


async def test_a_new_address_takes_the_place_of_the_old_one(world: World, stranger: httpx.AsyncClient) -> None:
    trigger = await make(world, {})
    again = (await world.http.post(f"/v1/triggers/{trigger['id']}/hook")).json()
    assert again["hook"] != trigger["hook"]
    assert (await stranger.post(trigger["hook"])).status_code == 404
    assert (await stranger.post(again["hook"])).status_code == 202
    assert (await stranger.post(f"/v1/triggers/{trigger['id']}/hook")).status_code == 401
    other = (await world.submit(schedule="@yearly")).triggers[0]
    assert (await world.http.post(f"/v1/triggers/{other.id}/hook")).status_code == 409


async def test_a_wrong_address_is_as_if_there_were_nothing(world: World, stranger: httpx.AsyncClient) -> None:
    trigger, other = await make(world, {}), await make(world, {})
    plain = (await world.submit(schedule="@yearly")).triggers[0]
    token = trigger["hook"].rpartition("/")[2]
    nothing = (await world.http.get("/v1/nothing")).json()
    for path in (f"{trigger['id']}/x", f"{other['id']}/{token}", f"{plain.id}/{token}", f"999/{token}", f"x/{token}"):
        answer = await stranger.post(f"/v1/hooks/{path}", json={})
        assert answer.status_code == 404, path
        assert {**answer.json(), "request_id": ""} == {**nothing, "request_id": ""}
    await world.jobs.delete(trigger["job_id"])
    assert (await stranger.post(trigger["hook"])).status_code == 404


async def test_a_login_for_somebody_else_is_not_looked_at(world: World, stranger: httpx.AsyncClient) -> None:
    trigger = await make(world, {})
    answer = await stranger.post(trigger["hook"], headers={"authorization": "Bearer horae_u_9_" + "x" * 43})
    assert answer.status_code == 202


async def test_a_page_of_another_site_cannot_call(world: World, stranger: httpx.AsyncClient) -> None:
    trigger = await make(world, {})
    for headers, status in (({"origin": "https://evil.example"}, 403), ({"host": "evil.example"}, 421)):
        assert (await stranger.post(trigger["hook"], headers=headers)).status_code == status
    assert await runs_of(world, trigger) == []


@BOTH
async def test_without_its_signature_a_call_makes_nothing(world: World, stranger: httpx.AsyncClient) -> None:
    trigger = await make(world, {"secret": "hunter2"})
    body, now = b'{"a": 1}', world.clock.now() // SECOND
    for signed in (None, sign_plain("wrong", body, now), sign_plain("hunter2", body, now - 301)):
        headers = {"x-horae-signature": signed} if signed else {}
        answer = await stranger.post(trigger["hook"], content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "E_SIGNATURE")
    assert await runs_of(world, trigger) == []
    good = {"x-horae-signature": sign_plain("hunter2", body, now)}
    first = await stranger.post(trigger["hook"], content=body, headers=good)
    again = await stranger.post(trigger["hook"], content=body, headers=good)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["run_id"] == again.json()["run_id"]


async def test_a_secret_is_kept_sealed_and_can_be_named(world: World, stranger: httpx.AsyncClient) -> None:
    await world.services.secrets.set(1, "KEY", "hunter2")
    body, now = b"{}", world.clock.now() // SECOND
    signed = {"x-horae-signature": sign_plain("hunter2", body, now)}
    for secret in ("hunter2", {"secret": "KEY"}):
        trigger = await make(world, {"secret": secret})
        assert trigger["schedule"]["webhook"]["secret"] == (secret if isinstance(secret, dict) else "******")
        [job] = await world.store.load_jobs([trigger["job_id"]])
        assert "hunter2" not in repr(job)
        assert (await stranger.post(trigger["hook"], content=body, headers=signed)).status_code == 202
    await world.services.secrets.delete(1, "KEY")
    answer = await stranger.post(trigger["hook"], content=body, headers=signed)
    assert (answer.status_code, "there is no secret KEY" in answer.text) == (409, True)


async def test_a_job_that_is_sent_back_keeps_the_secret_and_the_address(
    world: World, stranger: httpx.AsyncClient
) -> None:
    trigger = await make(world, {"secret": "hunter2"}, key="k")
    shown = (await world.http.get(f"/v1/jobs/{trigger['job_id']}")).json()
    answer = await world.http.put(f"/v1/jobs/{trigger['job_id']}", json=shown)
    assert (answer.status_code, answer.json()["version"]) == (200, shown["version"]), answer.text
    document = {
        "name": "other",
        "key": "k",
        "steps": [{"run": "true"}],
        "triggers": [{"webhook": {"secret": "hunter2"}}],
    }
    for version in (2, 2):  # the second changes nothing
        [job] = (await world.http.post("/v1/jobs", json=document)).json()["jobs"]
        assert (job["version"], job["triggers"][0]["id"]) == (version, trigger["id"])
    body = b"{}"
    signed = {"x-horae-signature": sign_plain("hunter2", body, world.clock.now() // SECOND)}
    assert (await stranger.post(trigger["hook"], content=body, headers=signed)).status_code == 202
    hidden = {"name": "new", "steps": [{"run": "true"}], "triggers": [{"webhook": {"secret": "******"}}]}
    assert (await world.http.post("/v1/jobs", json=hidden)).status_code == 422


async def test_a_schedule_becomes_a_webhook_and_back(world: World, stranger: httpx.AsyncClient) -> None:
    trigger = (await world.submit(schedule="@yearly")).triggers[0]
    path = f"/v1/triggers/{trigger.id}"
    made = (await world.http.put(path, json={"webhook": {}})).json()
    assert (made["next_at"], (await stranger.post(made["hook"])).status_code) == (None, 202)
    moved = await world.http.patch(path, json={"next_at": "2030-01-01T00:00:00Z"})
    assert (moved.status_code, moved.json()["code"]) == (422, "E_FIELD_CONFLICT")
    again = (await world.http.put(path, json={"cron": "@yearly"})).json()
    assert "hook" not in again
    assert again["next_at"] is not None
    assert (await stranger.post(made["hook"])).status_code == 404


async def test_a_new_key_opens_the_secrets_of_webhooks_too(world: World, stranger: httpx.AsyncClient) -> None:
    trigger = await make(world, {"secret": "hunter2"})
    [before] = await world.store.load_jobs([trigger["job_id"]])
    rotated = await world.services.rotation.rotate()
    [after] = await world.store.load_jobs([trigger["job_id"]])
    assert (rotated.old, rotated.unopened) == ([], 0)
    assert after.triggers[0].schedule != before.triggers[0].schedule
    signed = {"x-horae-signature": sign_plain("hunter2", b"", world.clock.now() // SECOND)}
    assert (await stranger.post(trigger["hook"], headers=signed)).status_code == 202


# ── GitHub and Gitea ──


def delivery(body: bytes, number: str = "d-1", event: str = "push", system: str = "github") -> dict[str, str]:
    signature = {"github": ("x-hub-signature-256", "sha256="), "gitea": ("x-gitea-signature", "")}[system]
    return {
        f"x-{system}-event": event, f"x-{system}-delivery": number,
        signature[0]: signature[1] + sign("hunter2", body), **JSON,
    }  # fmt: skip


@BOTH
@pytest.mark.parametrize("system", ["github", "gitea"])
async def test_a_push_to_a_branch_makes_a_run(world: World, stranger: httpx.AsyncClient, system: str) -> None:
    trigger = await make(world, {"format": system, "secret": "hunter2", "branches": ["main"]})
    body = json.dumps(github()).encode()
    answer = await stranger.post(trigger["hook"], content=body, headers=delivery(body, system=system))
    assert answer.status_code == 202, answer.text
    [run] = await runs_of(world, trigger)
    assert (run.data["branch"], run.data["commit"], run.data["payload"]) == ("main", COMMIT, github())
    side = json.dumps(github(ref="refs/heads/side")).encode()
    for event, content in (("ping", b'{"zen": "x"}'), ("push", side)):
        headers = delivery(content, "d-2", event, system)
        answer = await stranger.post(trigger["hook"], content=content, headers=headers)
        assert (answer.status_code, answer.json()["run_id"]) == (202, None)
        assert answer.json()["message"]
    assert len(await runs_of(world, trigger)) == 1


async def test_a_form_has_the_payload_in_a_field(world: World, stranger: httpx.AsyncClient) -> None:
    trigger = await make(world, {"format": "github"})
    headers = {"x-github-event": "push"}
    answer = await stranger.post(trigger["hook"], data={"payload": json.dumps(github())}, headers=headers)
    assert answer.json()["state"] == "queued", answer.text
    plain = await make(world, {})
    answer = await stranger.post(plain["hook"], data={"a": "1", "b": ["2", "3"]})
    assert [run.data for run in await runs_of(world, plain)] == [{"a": "1", "b": ["2", "3"]}]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", JSON, 400),
        (b"\xff\xfe", JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b"[]", JSON, 422),
        (b'{"a": NaN}', JSON, 400),
        (b'{"a": "\\u0000"}', JSON, 422),
        (b'{"a": "\\ud800"}', JSON, 422),
        (b"x" * ((1 << 20) + 1), JSON, 413),
        (json.dumps({"a": "x" * (300 << 10)}).encode(), JSON, 422),
        (b"a=1&" * 2000, {"content-type": "application/x-www-form-urlencoded"}, 400),
        (b"a=%ff", {"content-type": "application/x-www-form-urlencoded"}, 400),
    ],
)
async def test_a_hostile_body_is_refused(
    world: World, stranger: httpx.AsyncClient, body: bytes, headers: dict[str, str], status: int
) -> None:
    trigger = await make(world, {})
    answer = await stranger.post(trigger["hook"], content=body, headers=headers)
    assert answer.status_code in {status, 400 if status == 422 else status}, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert await runs_of(world, trigger) == []


# ── promises ──


@BOTH
async def test_a_delivery_that_comes_sixteen_times_at_once_makes_one_run(
    world: World, stranger: httpx.AsyncClient
) -> None:
    trigger = await make(world, {"format": "github", "secret": "hunter2"})
    body = json.dumps(github()).encode()
    calls = [stranger.post(trigger["hook"], content=body, headers=delivery(body)) for _ in range(16)]
    answers = await asyncio.gather(*calls)
    assert {answer.status_code for answer in answers} == {202}
    [run] = await runs_of(world, trigger)
    assert {answer.json()["run_id"] for answer in answers} == {run.id}
    other = json.dumps(github(after="f" * 40)).encode()
    mixed = await stranger.post(trigger["hook"], content=other, headers=delivery(other))
    assert (mixed.status_code, mixed.json()["code"]) == (409, "E_IDEMPOTENCY_MISMATCH")
    twin = await make(world, {"format": "github", "secret": "hunter2"})
    answer = await stranger.post(twin["hook"], content=body, headers=delivery(body))
    assert answer.json()["run_id"] != run.id


async def test_a_call_obeys_overlap_pause_and_the_trigger_that_is_off(
    world: World, stranger: httpx.AsyncClient
) -> None:
    trigger = await make(world, {}, overlap="forbid")
    states = [(await stranger.post(trigger["hook"])).json()["state"] for _ in range(2)]
    assert states == ["queued", "skipped"]
    assert [run.trigger_id for run in await runs_of(world, trigger)] == [trigger["id"]] * 2
    await world.http.patch(f"/v1/triggers/{trigger['id']}", json={"enabled": False})
    answer = await stranger.post(trigger["hook"])
    assert (answer.status_code, answer.json()["code"]) == (409, "E_PAUSED")
    await world.http.patch(f"/v1/triggers/{trigger['id']}", json={"enabled": True})
    await world.jobs.set_paused(trigger["job_id"], True)
    answer = await stranger.post(trigger["hook"])
    assert (answer.status_code, answer.json()["code"]) == (409, "E_PAUSED")


async def test_a_schedule_of_moments_goes_on_beside_a_webhook(world: World, stranger: httpx.AsyncClient) -> None:
    job = await world.submit(triggers=[{"webhook": {}}, {"every": "1h"}], overlap="allow")
    hook, hourly = job.triggers
    world.clock.advance(3600)
    await world.fire()
    runs = (await world.store.list_runs(RunFilter(job_id=job.id), None, 10)).items
    assert [run.trigger_id for run in runs] == [hourly.id]
    assert (await world.jobs.triggers.get(hook.id)).next_at is None


async def test_only_its_own_organisation_sees_or_changes_a_webhook(world: World) -> None:
    trigger = await make(world, {})
    _, text = await world.services.access.issue(parse_token({"name": "eve", "org": 7}))
    headers = {"authorization": f"Bearer {text}"}
    answer = await world.http.post(f"/v1/triggers/{trigger['id']}/hook", headers=headers)
    assert answer.status_code == 404
