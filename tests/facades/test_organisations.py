"""Organisations do not see each other's work, by whatever interface."""

from __future__ import annotations

from typing import Any

import pytest

from horae.service.access.wanted import parse_token
from tests.facades.lake.bodies import java, source, sync
from tests.facades.world import World


class Member:
    """Somebody who asks with a token."""

    def __init__(self, world: World, token: str) -> None:
        self._world, self._token = world, token

    async def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        headers = {"authorization": f"Bearer {self._token}"}
        answer = await self._world.http.request(method, path, json=body, headers=headers)
        assert answer.status_code == status, (method, path, answer.text)
        return answer.json() if answer.content else None


async def member(world: World, org: int, name: str = "ann") -> Member:
    _, text = await world.services.access.issue(parse_token({"name": name, "org": org}))
    return Member(world, text)


async def test_what_is_made_with_a_token_is_of_its_organisation_whatever_the_body_says(world: World) -> None:
    ours, theirs = await member(world, 1), await member(world, 7)
    made = (await theirs.ask("POST", "/lake/job/create", java(org_id=1, creator_id="bob", job_id=99)))["job"]
    assert (made["org_id"], made["creator_id"]) == (7, "ann")
    kept = await theirs.ask("POST", "/source/create", source(org_id=1))
    assert kept["org_id"] == 7
    synced = (await theirs.ask("POST", "/job/create", sync(org_id=1, source_id=kept["id"])))["job"]
    assert synced["org_id"] == 7
    assert (await ours.ask("POST", "/lake/job/list", {}))["total"] == 0
    await ours.ask("GET", f"/lake/job/{made['job_id']}", status=400)
    await ours.ask("GET", f"/source/{kept['id']}", status=400)
    await ours.ask("POST", "/job/create", sync(source_id=kept["id"]), status=400)


async def test_nothing_of_another_organisation_is_there_by_its_id(world: World) -> None:
    ours, theirs = await member(world, 1), await member(world, 7)
    body = {"name": "s", "steps": [{"run": "a"}], "schedule": "@every 1h"}
    [job] = (await theirs.ask("POST", "/v1/jobs", body, 201))["jobs"]
    trigger = job["triggers"][0]["id"]
    run = await theirs.ask("POST", f"/v1/jobs/{job['id']}/run", status=201)
    for method, path in (
        ("GET", f"/v1/jobs/{job['id']}"),
        ("DELETE", f"/v1/jobs/{job['id']}"),
        ("POST", f"/v1/jobs/{job['id']}/run"),
        ("POST", f"/v1/jobs/{job['id']}/pause"),
        ("GET", f"/v1/jobs/{job['id']}/triggers"),
        ("GET", f"/v1/triggers/{trigger}"),
        ("DELETE", f"/v1/triggers/{trigger}"),
        ("GET", f"/v1/runs/{run['id']}"),
        ("POST", f"/v1/runs/{run['id']}/cancel"),
        ("GET", f"/v1/runs/{run['id']}/log"),
        ("GET", f"/runs/{run['id']}"),
    ):
        await ours.ask(method, path, status=404)
    assert (await ours.ask("GET", "/v1/runs"))["items"] == []
    assert (await ours.ask("GET", "/v1/triggers"))["items"] == []
    assert [each["id"] for each in (await theirs.ask("GET", "/v1/runs"))["items"]] == [run["id"]]
    assert [each["id"] for each in (await theirs.ask("GET", "/v1/triggers"))["items"]] == [trigger]


async def test_tokens_make_and_end_only_those_of_their_own_organisation(world: World) -> None:
    ours, theirs = await member(world, 1), await member(world, 7)
    made = await theirs.ask("POST", "/v1/tokens", {"name": "ci"}, 201)
    assert made["org"] == 7
    refused = await theirs.ask("POST", "/v1/tokens", {"name": "ci", "org": 1}, 403)
    assert refused["code"] == "E_TOKEN_ORG"
    assert made["id"] not in [each["id"] for each in (await ours.ask("GET", "/v1/tokens"))["items"]]
    await ours.ask("DELETE", f"/v1/tokens/{made['id']}", status=404)
    await theirs.ask("DELETE", f"/v1/tokens/{made['id']}", status=204)


@pytest.mark.parametrize("org", [0, -1, "x", 2**31, 1.5])
async def test_an_organisation_is_a_number_from_1_up(world: World, org: Any) -> None:
    refused = await world.http.post("/v1/tokens", json={"name": "t", "org": org})
    assert refused.status_code == 422
    assert "org" in refused.json()["detail"]


async def test_an_agent_works_for_every_organisation(world: World) -> None:
    body = {"name": "a", "scope": "agent", "node": "n", "org": 2}
    assert (await world.http.post("/v1/tokens", json=body)).json()["code"] == "E_FIELD_CONFLICT"
