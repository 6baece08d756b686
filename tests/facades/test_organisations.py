"""Organisations do not see each other's work, by whatever interface."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from horae.core.members import org_label
from horae.core.model import RunFilter
from horae.service.access.wanted import parse_token
from horae.service.policy.placing import Placing
from horae.service.secrets.sealing import Sealing
from horae.service.workflows.flows import Workflows
from horae.service.workflows.parts import Parts
from tests.facades.lake.bodies import java, source, sync
from tests.facades.world import BOTH, World


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


@BOTH
async def test_a_queue_of_an_organisation_is_its_own_to_use_and_to_change(world: World) -> None:
    ours, theirs, installer = await member(world, 7), await member(world, 8), await member(world, 1)
    made = await ours.ask("PUT", "/v1/queues/reports", {"most_waiting": 1}, 201)
    assert made["org"] == 7
    assert (await installer.ask("PUT", "/v1/queues/shared", {}, 201))["org"] is None
    assert (await installer.ask("PUT", "/v1/queues/private", {"org": 1}, 201))["org"] == 1
    listed = [await each.ask("GET", "/v1/queues") for each in (ours, theirs, installer)]
    names = [[queue["name"] for queue in page["items"]] for page in listed]
    assert names == [["default", "reports", "shared"], ["default", "shared"], ["default", "private", "shared"]]

    job = {"name": "j", "steps": [{"run": "a"}], "queue": "reports", "overlap": "allow"}
    [own] = (await ours.ask("POST", "/v1/jobs", job, 201))["jobs"]
    refused = await theirs.ask("POST", "/v1/jobs", job, 422)
    assert (refused["code"], refused["errors"][0]["hint"]) == ("E_QUEUE_UNKNOWN", "`horae queues set reports` makes it")
    [other] = (await theirs.ask("POST", "/v1/jobs", {**job, "queue": "shared"}, 201))["jobs"]
    await theirs.ask("PUT", f"/v1/jobs/{other['id']}", job, 422)
    await ours.ask("POST", f"/v1/jobs/{own['id']}/run", status=201)
    assert (await ours.ask("POST", f"/v1/jobs/{own['id']}/run", status=429))["code"] == "E_TOO_MUCH_WAITING"

    assert (await ours.ask("PUT", "/v1/queues/reports", {**made, "concurrency": 3}))["concurrency"] == 3
    moved = await ours.ask("PUT", "/v1/queues/reports", {"org": 8}, 422)
    assert (moved["code"], moved["errors"][0]["path"]) == ("E_FIELD_CONFLICT", "org")
    await ours.ask("PUT", "/v1/queues/more", {"org": 8}, 422)
    assert (await ours.ask("POST", "/v1/queues/reports/pause"))["state"] == "paused"
    assert (await ours.ask("POST", "/v1/queues/shared/pause", status=403))["code"] == "E_INSTALLATION"
    for method, path in (("GET", ""), ("POST", "/resume"), ("DELETE", "")):
        await theirs.ask(method, f"/v1/queues/reports{path}", status=404)


async def test_what_happens_to_a_queue_or_an_agent_is_told_to_its_organisation(world: World) -> None:
    ours, theirs = await member(world, 7), await member(world, 8)
    await ours.ask("PUT", "/v1/queues/reports", {}, 201)
    await world.store.register_node(replace(world.agent(), name="own-agent", labels=(org_label(7),)))
    await world.join()
    told = [await each.ask("GET", "/v1/events") for each in (ours, theirs)]
    subjects = [[event["subject"] for event in page["items"]] for page in told]
    assert subjects == [["queues/reports", "nodes/own-agent", "nodes/node-1"], ["nodes/node-1"]]


async def test_an_admin_evicts_agents_of_its_own_organisation(world: World) -> None:
    ours, theirs = await member(world, 7), await member(world, 8)
    await world.store.register_node(replace(world.agent(), name="own-agent", labels=(org_label(7),), via="server"))
    await theirs.ask("POST", "/v1/nodes/own-agent/evict", status=404)
    assert (await ours.ask("POST", "/v1/nodes/own-agent/cordon"))["wanted"] == "cordoned"
    assert (await ours.ask("POST", "/v1/nodes/own-agent/evict"))["evicted_at"] is not None


@BOTH
async def test_a_job_for_every_agent_has_a_child_on_those_that_take_from_its_queue(world: World) -> None:
    ours = await member(world, 7)
    await ours.ask("PUT", "/v1/queues/reports", {}, 201)
    await world.join()
    for name, org in (("own", 7), ("other", 8)):
        await world.store.register_node(replace(world.agent(), name=name, labels=(org_label(org),)))
    found = {}
    for queue in ("default", "reports"):
        job = {"name": "j", "steps": [{"run": "a"}], "queue": queue, "every": "agent"}
        [made] = (await ours.ask("POST", "/v1/jobs", job, 201))["jobs"]
        run = await ours.ask("POST", f"/v1/jobs/{made['id']}/run", status=201)
        placing = Placing(world.store, world.queue)
        workflows = Workflows(world.store, world.queue, placing, Parts(world.store, Sealing(world.store)))
        assert await workflows.begin(await world.claim("every")) == []
        children = (await world.jobs.list_runs(RunFilter(parent_id=run["id"]))).items
        found[queue] = sorted(child.pin or "" for child in children)
    assert found == {"default": ["node-1"], "reports": ["node-1", "own"]}


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


async def test_whoever_runs_the_server_lets_agents_in_for_any_organisation(world: World) -> None:
    body = {"name": "a", "scope": "agent", "node": "n", "org": 2}
    assert (await world.http.post("/v1/tokens", json=body)).json()["org"] == 2
