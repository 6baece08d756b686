"""Limits under /v1: what a run waits for, how limits stand, what the cluster has."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from horae.core.policy.limits import belongs_to

from ..unit.service.parts import node
from .world import BOTH, World

JOB = {"name": "a", "steps": [{"run": "true"}], "overlap": "allow"}
TENANT = {**JOB, "concurrency_limits": [{"limit": 2, "per": "data.tenant"}]}


async def made(world: World, document: dict[str, Any], count: int = 1, data: Any = None) -> list[int]:
    answer = await world.http.post("/v1/jobs", json=document)
    assert answer.status_code == 201, answer.text
    job = answer.json()["jobs"][0]["id"]
    body = {} if data is None else {"data": data}
    return [(await world.http.post(f"/v1/jobs/{job}/run", json=body)).json()["id"] for _ in range(count)]


async def read(world: World, run_id: int) -> Any:
    return (await world.http.get(f"/v1/runs/{run_id}")).json()


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


# ── what a run waits for ──
@BOTH
async def test_a_blocked_run_says_who_holds_its_key(world: World) -> None:
    first, second, third = await made(world, TENANT, 3, {"tenant": "acme"})
    await world.claim("shell")
    shown = await read(world, third)
    assert (shown["state"], shown["reason"], shown["eligible_at"]) == ("blocked", "limit", None)
    assert shown["message"] == f"2 of 2 run with tenant acme: runs {first}, {second}"
    assert (await read(world, first))["message"] == ""


@BOTH
async def test_a_blocked_run_says_when_its_rate_lets_it_start(world: World) -> None:
    rate = {**JOB, "rate_limits": [{"rate": "1/min", "per": "owner"}]}
    _, second = await made(world, rate, 2)
    await world.claim("shell")
    shown = await read(world, second)
    assert shown["message"].startswith("waits for the rate 1/min of owner ")
    assert shown["message"].endswith(f": next at {shown['eligible_at']}")
    world.clock.advance(61)
    shown = await read(world, second)
    assert (shown["message"], shown["eligible_at"]) == ("waits for an agent that has room for it", None)


@BOTH
async def test_a_run_held_by_its_queue_names_the_queue(world: World) -> None:
    await world.http.put("/v1/queues/reports", json={"concurrency": 1})
    first, second = await made(world, {**JOB, "queue": "reports"}, 2)
    await world.claim("shell")
    assert (await read(world, second))["message"] == f"1 of 1 run with queue reports: runs {first}"
    await world.http.post("/v1/queues/reports/pause")
    assert (await read(world, second))["message"] == "its queue reports is paused"


@BOTH
async def test_a_blocked_run_whose_labels_nobody_has_says_so(world: World) -> None:
    [run_id] = await made(world, {**TENANT, "labels": ["gpu", "eu"]})
    await world.store.register_node(node("n1", kinds=("shell",), labels=("gpu",)))
    shown = await read(world, run_id)
    assert (shown["reason"], shown["message"]) == ("limit", "no live agent has the labels that it needs: eu, gpu")


# ── all limits ──
@BOTH
async def test_limits_are_listed_with_what_is_used_who_waits_and_when_the_next_may_start(world: World) -> None:
    rate = {"rate": "1/min", "burst": 3, "per": "owner"}
    made_runs = await made(world, {**TENANT, "rate_limits": [rate]}, 4, {"tenant": "acme"})
    await world.claim("shell")
    at_once, per_owner = (await world.http.get("/v1/limits")).json()["items"]
    assert (at_once["name"], at_once["per"], at_once["capacity"]) == ("tenant acme", "data.tenant", 2)
    assert (at_once["used"], at_once["waiting"], at_once["runs"]) == (2, 2, made_runs[:2])
    assert (at_once["rate"], at_once["next_at"]) == (None, None)
    assert (per_owner["per"], per_owner["rate"], per_owner["burst"], per_owner["capacity"]) == (
        "owner", "1/min", 3, None
    )  # fmt: skip
    assert per_owner["next_at"] is not None


async def test_what_belongs_to_another_organisation_is_not_told(world: World) -> None:
    await made(world, {**TENANT, "rate_limits": [{"rate": "1/min"}]}, 1, {"tenant": "acme"})
    assert len(await world.jobs.limits.standing(1)) == 2
    assert await world.jobs.limits.standing(2) == []


def test_keys_tell_whose_they_are() -> None:
    assert belongs_to("queue:3", 7, ())
    assert belongs_to("at_once:queue:3", 7, ())
    assert belongs_to("resource:license-x", 7, ())
    assert belongs_to("rate/min:job:12", 7, {12})
    assert not belongs_to("rate/min:job:12", 7, {13})
    assert belongs_to('at_once:data.tenant:"a:b":7/ann', 7, ())
    assert not belongs_to('at_once:data.tenant:"a:b":ann', 7, ())
    assert belongs_to("at_once:owner:ann", 1, ())
    assert not belongs_to("at_once:owner:7/ann", 1, ())


# ── what the cluster has ──
@BOTH
async def test_a_resource_is_set_listed_changed_and_dropped(world: World) -> None:
    first = await world.http.put("/v1/resources/license-x", json={"capacity": 2})
    shown = (await world.http.get("/v1/resources")).json()["items"]
    again = await world.http.put("/v1/resources/license-x", json={**shown[0], "capacity": 3})
    assert (first.status_code, again.status_code) == (201, 200)
    assert shown == [{"name": "license-x", "capacity": 2, "used": 0, "waiting": 0}]
    assert again.json()["capacity"] == 3
    assert (await world.http.delete("/v1/resources/license-x")).status_code == 204
    assert problem(await world.http.delete("/v1/resources/license-x")) == (404, "E_NOT_FOUND")


async def test_whoever_sets_or_drops_a_resource_wakes_what_waits_for_it(world: World) -> None:
    units, runs = world.queue.watch("units"), world.queue.watch("runs")
    await world.http.put("/v1/resources/license-x", json={"capacity": 2})
    assert [await units.wait(0), await runs.wait(0)] == [True, True]
    await world.http.delete("/v1/resources/license-x")
    assert [await units.wait(0), await runs.wait(0)] == [True, True]


@pytest.mark.parametrize(
    ("name", "body", "code", "path"),
    [
        ("license-x", {"capacity": -1}, "E_RANGE", "capacity"),
        ("license-x", {"capacity": "2"}, "E_TYPE", "capacity"),
        ("license-x", {}, "E_REQUIRED", "capacity"),
        ("license-x", {"capacity": 1, "amount": 2}, "E_UNKNOWN_FIELD", "amount"),
        ("license-x", [], "E_TYPE", ""),
        ("License X", {"capacity": 1}, "E_PATTERN", "name"),
        ("cpus", {"capacity": 1}, "E_PATTERN", "name"),
    ],
)
async def test_a_bad_resource_is_refused_with_what_is_wrong(
    world: World, name: str, body: Any, code: str, path: str
) -> None:
    answer = await world.http.put(f"/v1/resources/{name}", json=body)
    told = answer.json()
    assert (answer.status_code, told["errors"][0]["code"], told["errors"][0].get("path", "")) == (422, code, path)
