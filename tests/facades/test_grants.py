"""Grants: somebody who may only look is operator, or editor, on some jobs and on no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.contracts.rpc.caller import Caller
from horae.contracts.rpc.calls import Calls
from horae.core.identity import Principal
from horae.core.roles import Role
from horae.errors import Denied
from horae.service.access.grants import CACHE_SECONDS, Grants
from horae.web import app as web
from tests.facades.test_native import problem_of
from tests.facades.world import BOTH, World

FAR = "https://10.0.0.1:8443"


class People:
    """Ann, who is admin, and Bob, who may look; and the admin of another organisation."""

    def __init__(self, http: httpx.AsyncClient, texts: dict[str, str]) -> None:
        self._http, self._texts = http, texts

    async def ask(self, who: str, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {self._texts[who]}"}
        return await self._http.request(method, path, json=body, headers=headers)

    async def submit(self, **fields: Any) -> int:
        job = {"name": "j", "steps": [{"run": "true"}], "overlap": "allow", **fields}
        answer = await self.ask("ann", "POST", "/v1/jobs", job)
        assert answer.status_code == 201, answer.text
        return int(answer.json()["jobs"][0]["id"])

    async def grant(self, role: str = "operator", **on: Any) -> Any:
        answer = await self.ask("ann", "POST", "/v1/grants", {"who": "bob", "role": role, **on})
        assert answer.status_code == 201, answer.text
        return answer.json()

    async def runs(self, job: int) -> int:
        """Return how Bob's wish to run a job is answered."""
        return (await self.ask("bob", "POST", f"/v1/jobs/{job}/run")).status_code


@pytest.fixture
async def people(world: World) -> AsyncIterator[People]:
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    access, texts = world.services.access, {}
    for name, org, role in (("ann", 1, Role.ADMIN), ("bob", 1, Role.VIEWER), ("eve", 7, Role.ADMIN)):
        texts[name] = (await access.create(name, "user", name, None, org=org, role=role))[1]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url=FAR) as client:
        yield People(client, texts)


@BOTH
async def test_who_may_look_runs_the_jobs_that_were_granted_and_no_others(people: People) -> None:
    one, tagged, queued, other = (
        await people.submit(), await people.submit(tags=["nightly"]), await people.submit(queue="default"),
        await people.submit(tags=["daily"]),
    )  # fmt: skip
    jobs = (one, tagged, other)
    assert [await people.runs(job) for job in jobs] == [403, 403, 403]
    await people.grant(job=one)
    assert [await people.runs(job) for job in jobs] == [201, 403, 403]
    await people.grant(tag="nightly")
    assert [await people.runs(job) for job in jobs] == [201, 201, 403]
    made = await people.grant(queue="default")
    assert [await people.runs(job) for job in (*jobs, queued)] == [201, 201, 201, 201]
    assert (await people.ask("ann", "DELETE", f"/v1/grants/{made['id']}")).status_code == 204
    assert [await people.runs(job) for job in jobs] == [201, 201, 403]


async def test_a_grant_gives_what_its_role_has_and_nothing_else(people: People) -> None:
    job = await people.submit(schedule="@yearly")
    run = (await people.ask("ann", "POST", f"/v1/jobs/{job}/run")).json()["id"]
    trigger = (await people.ask("ann", "GET", f"/v1/jobs/{job}")).json()["triggers"][0]["id"]
    await people.grant(job=job)
    assert (await people.ask("bob", "POST", f"/v1/runs/{run}/cancel")).status_code == 202
    assert (await people.ask("bob", "POST", f"/v1/jobs/{job}/pause")).status_code == 200
    patch = {"enabled": False}
    problem_of(await people.ask("bob", "PATCH", f"/v1/triggers/{trigger}", patch), 403, "E_ROLE")
    await people.grant("editor", job=job)
    assert (await people.ask("bob", "PATCH", f"/v1/triggers/{trigger}", patch)).status_code == 200
    assert (await people.ask("bob", "DELETE", f"/v1/jobs/{job}")).status_code == 204
    for method, path in (("POST", "/v1/jobs"), ("PUT", "/v1/secrets/A"), ("GET", "/v1/grants"), ("POST", "/v1/runs")):
        problem_of(await people.ask("bob", method, path, {}), 403, "E_ROLE")


async def test_contracts_of_other_systems_ask_the_same(people: People, world: World) -> None:
    job, other = await people.submit(), await people.submit()
    await people.grant(job=job)
    answers = [await people.ask("bob", "PUT", f"/lake/schedule/job/{each}/now", {}) for each in (job, other)]
    assert [each.status_code for each in answers] == [200, 403]
    calls, bob = Calls(world.services), Caller(Principal("bob", 1, Role.VIEWER, via="token 2"))
    assert (await calls.call("cancel", {"job_id": job}, bob))["cancelled"]
    with pytest.raises(Denied):
        await calls.call("cancel", {"job_id": other}, bob)
    with pytest.raises(Denied):
        await calls.call("submit_job", {"user_id": "bob", "code_location": "a:b", "job_id": job}, bob)


async def test_a_grant_counts_in_its_organisation_alone(people: People, world: World) -> None:
    job = await people.submit()
    made = await people.grant(job=job)
    assert (await people.ask("eve", "GET", "/v1/grants")).json()["items"] == []
    problem_of(await people.ask("eve", "DELETE", f"/v1/grants/{made['id']}"), 404, "E_NOT_FOUND")
    mine = {"who": "eve", "role": "editor", "job": job}
    problem_of(await people.ask("eve", "POST", "/v1/grants", mine), 404, "E_NOT_FOUND")
    await people.ask("eve", "POST", "/v1/grants", {"who": "eve", "role": "editor", "queue": "default"})
    assert (await people.ask("eve", "DELETE", f"/v1/jobs/{job}")).status_code == 404
    namesake = Principal("bob", 7, Role.VIEWER, via="token 9")
    assert not await world.services.grants.may_on(namesake, "runs.start", await world.jobs.get(job))  # type: ignore[arg-type]


async def test_a_grant_that_was_taken_back_elsewhere_is_gone_here_within_seconds(people: People, world: World) -> None:
    job = await people.submit()
    made = await people.grant(job=job)
    assert await people.runs(job) == 201
    await Grants(world.store, world.clock).remove(1, made["id"])
    assert await people.runs(job) == 201  # it is still believed
    world.clock.advance(CACHE_SECONDS)
    assert await people.runs(job) == 403


@BOTH
async def test_the_same_jobs_granted_again_have_the_new_role(people: People) -> None:
    first, second = await people.grant(tag="t"), await people.grant("editor", tag="t")
    assert (first["id"], second["role"]) == (second["id"], "editor")
    listed = (await people.ask("ann", "GET", "/v1/grants")).json()["items"]
    assert listed == [second]
    assert {name: second[name] for name in ("who", "job", "tag", "queue", "created_by")} == {
        "who": "bob", "job": None, "tag": "t", "queue": None, "created_by": "ann",
    }  # fmt: skip


async def test_grants_come_in_pages(people: People) -> None:
    for number in range(5):
        await people.grant(tag=f"t{number}")
    first = (await people.ask("ann", "GET", "/v1/grants?limit=3")).json()
    second = (await people.ask("ann", "GET", f"/v1/grants?limit=3&cursor={first['cursor']}")).json()
    assert [it["tag"] for it in first["items"] + second["items"]] == [f"t{number}" for number in range(5)]
    assert second["cursor"] is None


@pytest.mark.parametrize(
    ("sent", "path", "code"),
    [
        ({}, "who", "E_REQUIRED"),
        ({"who": "bob", "tag": "t"}, "role", "E_REQUIRED"),
        ({"who": "bob", "role": "admin", "tag": "t"}, "role", "E_ENUM"),
        ({"who": "bob", "role": "viewer", "tag": "t"}, "role", "E_ENUM"),
        ({"who": "bob", "role": "operator"}, "job", "E_REQUIRED"),
        ({"who": "bob", "role": "operator", "tag": "t", "queue": "q"}, "queue", "E_FIELD_CONFLICT"),
        ({"who": "bob", "role": "operator", "job": 0}, "job", "E_RANGE"),
        ({"who": "bob", "role": "operator", "job": "x"}, "job", "E_TYPE"),
        ({"who": "bob", "role": "operator", "tag": "a b"}, "tag[0]", "E_PATTERN"),
        ({"who": "bob", "role": "operator", "tag": ["t"]}, "tag", "E_TYPE"),
        ({"who": "-x", "role": "operator", "tag": "t"}, "who", "E_PATTERN"),
        ({"who": "bob", "role": "operator", "tag": "t", "until": 1}, "until", "E_UNKNOWN_FIELD"),
        ([], "", "E_TYPE"),
    ],
)
async def test_what_is_no_grant_is_refused_at_its_path(people: People, sent: Any, path: str, code: str) -> None:
    answer = await people.ask("ann", "POST", "/v1/grants", sent)
    assert answer.status_code == 422, answer.text
    assert (path, code) in [(each["path"], each["code"]) for each in answer.json()["errors"]], answer.text
