"""Limits under /v1: what a run waits for, how limits stand, what the cluster has."""

from __future__ import annotations

from typing import Any

import httpx

from horae.core.model import Node
from horae.testing import START

from .world import World

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
async def test_a_blocked_run_says_who_holds_its_key(world: World) -> None:
    first, second, third = await made(world, TENANT, 3, {"tenant": "acme"})
    await world.claim("shell")
    shown = await read(world, third)
    assert (shown["state"], shown["reason"], shown["eligible_at"]) == ("blocked", "limit", None)
    assert shown["message"] == f"2 of 2 run with tenant acme: runs {first}, {second}"
    assert (await read(world, first))["message"] == ""


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


async def test_a_run_held_by_its_queue_names_the_queue(world: World) -> None:
    await world.http.put("/v1/queues/reports", json={"concurrency": 1})
    first, second = await made(world, {**JOB, "queue": "reports"}, 2)
    await world.claim("shell")
    assert (await read(world, second))["message"] == f"1 of 1 run with queue reports: runs {first}"
    await world.http.post("/v1/queues/reports/pause")
    assert (await read(world, second))["message"] == "its queue reports is paused"


async def test_a_blocked_run_whose_labels_nobody_has_says_so(world: World) -> None:
    [run_id] = await made(world, {**TENANT, "labels": ["gpu", "eu"]})
    agent = Node("n1", ("agent",), "1", "", START, START, 0, labels=("gpu",), slots=2, kinds=("shell",))
    await world.store.register_node(agent)
    shown = await read(world, run_id)
    assert (shown["reason"], shown["message"]) == ("limit", "no live agent has the labels that it needs: eu, gpu")
