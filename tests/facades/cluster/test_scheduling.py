"""Coordinators, scheduler workers and their segments; this node as a scheduler worker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.core.model import Node
from horae.web import app as web
from tests.facades.cluster.commands import JOB, data_of, refusal_of
from tests.facades.world import NODE, OWN, World, from_here

WORKERS = "/api/scheduler-workers"


async def register(world: World, name: str = "worker-1") -> Any:
    return data_of(await world.http.post(f"{WORKERS}/register", params={"workerId": name}))


async def assign(world: World, wanted: int, name: str = "worker-1") -> Any:
    asked = {"workerId": name, "desiredSegments": wanted}
    return data_of(await world.http.post("/api/segments/assign", params=asked))


# ── coordinators ──


async def test_the_leader_is_horaes_own(cluster: World) -> None:
    found = data_of(await cluster.http.get("/api/coordinator/leader"))
    assert (found["nodeId"], found["coordinatorId"], found["leader"], found["isLeader"]) == (NODE, NODE, True, True)
    assert set(found) == {
        "id", "nodeId", "leader", "priority", "lastHeartbeat", "createdAt", "updatedAt", "coordinatorId", "isLeader",
        "electedAt",
    }  # fmt: skip


async def test_without_a_leader_it_says_so(world: World) -> None:
    refusal_of(await world.http.get("/api/coordinator/leader"), 503, "NO_LEADER")


@pytest.mark.parametrize("as_body", [False, True])
async def test_a_coordinator_registers_in_both_forms_and_does_not_lead(cluster: World, as_body: bool) -> None:
    path = "/api/coordinator/register"
    if as_body:
        body = {"coordinatorId": "c-1", "host": "localhost", "port": 8082}
        made = data_of(await cluster.http.post(path, json=body))
    else:
        made = data_of(await cluster.http.post(path, params={"nodeId": "c-1", "priority": 3}))
    assert (made["nodeId"], made["leader"], made["priority"]) == ("c-1", False, None if as_body else 3)
    assert data_of(await cluster.http.get("/api/coordinator/leader"))["nodeId"] == NODE


async def test_a_coordinators_heartbeat_is_recorded_or_ignored(world: World) -> None:
    await world.http.post("/api/coordinator/register?nodeId=c-1&priority=1")
    world.clock.advance(5)
    for name in ("nodeId=c-1", "coordinatorId=c-1", "nodeId=unknown"):
        assert data_of(await world.http.post(f"/api/coordinator/heartbeat?{name}")) == "Heartbeat recorded"
    [node] = await world.services.external_members.members("coordinator")
    assert node.heartbeat_at == world.clock.now()
    refusal_of(await world.http.post("/api/coordinator/heartbeat"), 400, "VALIDATION_ERROR")


# ── scheduler workers ──


async def test_a_worker_registers_as_often_as_it_likes(world: World) -> None:
    first = await register(world)
    assert (first["workerId"], first["status"], first["assignedSegments"]) == ("worker-1", "ONLINE", [])
    await assign(world, 3)
    again = await register(world)
    assert (again["id"], again["assignedSegments"]) == (first["id"], [0, 1, 2])
    assert again["createdAt"] == first["createdAt"]


async def test_a_heartbeat_needs_a_worker_that_registered(world: World) -> None:
    refusal_of(await world.http.post(f"{WORKERS}/heartbeat?workerId=nobody"), 404, "WORKER_NOT_FOUND")
    await register(world)
    world.clock.advance(5)
    shown = data_of(await world.http.post(f"{WORKERS}/heartbeat?workerId=worker-1"))
    assert shown["lastHeartbeat"] == "2027-01-15T08:00:05Z"


async def test_a_worker_that_was_given_up_is_back_with_its_next_heartbeat(world: World) -> None:
    await register(world)
    await world.store.retire_node("worker-1@scheduler", "gone")
    assert data_of(await world.http.get(WORKERS)) == []
    assert data_of(await world.http.post(f"{WORKERS}/heartbeat?workerId=worker-1"))["status"] == "ONLINE"
    assert [worker["workerId"] for worker in data_of(await world.http.get(WORKERS))] == ["worker-1"]


@pytest.mark.parametrize("name", ["", " ", "a@b", "a/b", "x" * 101, "a\nb"])
async def test_a_worker_has_a_name_that_can_be_shown(world: World, name: str) -> None:
    refusal_of(await world.http.post(f"{WORKERS}/register", params={"workerId": name}), 400, "VALIDATION_ERROR")


# ── segments ──


async def test_the_wanted_segments_are_the_total(world: World) -> None:
    await register(world)
    assert await assign(world, 3) == [0, 1, 2]
    assert await assign(world, 5) == [0, 1, 2, 3, 4]
    assert await assign(world, 5) == [0, 1, 2, 3, 4]


async def test_no_segment_is_held_twice(world: World) -> None:
    await register(world)
    await register(world, "worker-2")
    await assign(world, 60)
    assert await assign(world, 60, "worker-2") == list(range(60, 100))
    assert await assign(world, 2**31 - 1, "worker-2") == list(range(60, 100))


async def test_released_segments_are_free_again(world: World) -> None:
    await register(world)
    await register(world, "worker-2")
    await assign(world, 50)
    assert data_of(await world.http.delete("/api/segments/release?workerId=worker-1")) == "Segments released"
    assert await assign(world, 2, "worker-2") == [0, 1]


async def test_only_registered_workers_get_segments(world: World) -> None:
    asked = {"workerId": "nobody", "desiredSegments": 5}
    refusal_of(await world.http.post("/api/segments/assign", params=asked), 404, "WORKER_NOT_FOUND")
    refusal_of(await world.http.delete("/api/segments/release?workerId=nobody"), 404, "WORKER_NOT_FOUND")
    refusal_of(await world.http.get("/api/segments?workerId=nobody"), 404, "WORKER_NOT_FOUND")


async def test_the_distribution_names_every_segment(cluster: World) -> None:
    await register(cluster)
    await assign(cluster, 2)
    every = data_of(await cluster.http.get("/api/segments"))
    assert every[1] == {
        "segment": 1, "workerId": "worker-1", "assignedAt": "2027-01-15T08:00:00Z", "status": "ASSIGNED", "owner": NODE,
    }  # fmt: skip
    assert (every[2]["status"], every[2]["workerId"], every[2]["assignedAt"]) == ("ASSIGNED", NODE, None)
    assert len(every) == 100
    held = data_of(await cluster.http.get("/api/segments?workerId=worker-1"))
    assert held == {"workerId": "worker-1", "segments": [0, 1]}


# ── this node ──


async def test_this_nodes_scheduler_shows_its_segments_and_scans(cluster: World) -> None:
    found = data_of(await cluster.http.get("/api/scheduler-worker/segments"))
    assert found == {"workerId": NODE, "segments": list(range(100))}
    await cluster.fire()
    status = data_of(await cluster.http.get("/api/scheduler-worker/status"))
    assert status == {
        "workerId": NODE, "status": "ONLINE", "assignedSegmentCount": 100, "lastScanTime": "2027-01-15T08:00:00Z",
        "jobsDispatchedCount": 0,
    }  # fmt: skip


@pytest.mark.parametrize("body", [{"segments": [0, 1]}, [1, 0], [0, 1, 1], []])
async def test_a_push_changes_what_the_node_holds_on_every_port(cluster: World, body: Any) -> None:
    assert data_of(await cluster.http.post("/api/scheduler-worker/segments", json=body)) == "Segments updated"
    held = sorted(set(body["segments"] if isinstance(body, dict) else body))
    assert data_of(await cluster.http.get("/api/scheduler-worker/segments")) == {"workerId": NODE, "segments": held}
    assert data_of(await cluster.http.get("/api/scheduler-worker/status"))["assignedSegmentCount"] == len(held)
    every = data_of(await cluster.http.get("/api/segments"))
    assert [each["segment"] for each in every if each["workerId"] == NODE] == held
    assert {each["status"] for each in every if each["segment"] not in held} == {"AVAILABLE"}
    assert {each["owner"] for each in every} == {NODE}  # which goes on firing them


async def test_a_push_takes_segments_from_who_held_them(cluster: World) -> None:
    await register(cluster)
    await assign(cluster, 10)
    data_of(await cluster.http.post("/api/scheduler-worker/segments", json=[3, 4]))
    every = data_of(await cluster.http.get("/api/segments"))
    assert [each["workerId"] for each in every[2:6]] == ["worker-1", NODE, NODE, "worker-1"]
    assert await assign(cluster, 10) == [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]  # what was told is not free


async def test_a_node_that_schedules_nothing_cannot_be_told(cluster: World) -> None:
    idle = replace(cluster.services, local_node=replace(cluster.services.local_node, roles=("api",)))
    gate = web.create_app(idle, CONTRACTS, version="1", free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url="http://127.0.0.1:8080") as client:
        refusal_of(await client.post("/api/scheduler-worker/segments", json=[1]), 503, "SERVICE_UNAVAILABLE")


# ── a registration and a process of one name ──


async def test_who_registers_as_a_process_of_horae_is_that_process(cluster: World) -> None:
    made = await register(cluster, NODE)
    assert (made["assignedSegments"], made["status"]) == (list(range(100)), "ONLINE")
    assert await assign(cluster, 10, NODE) == list(range(10))
    assert data_of(await cluster.http.get("/api/scheduler-worker/segments"))["segments"] == list(range(10))
    assert [each["workerId"] for each in data_of(await cluster.http.get(WORKERS))] == [NODE]
    assert await cluster.services.external_members.members("scheduler") == []
    beat = data_of(await cluster.http.post(f"{WORKERS}/heartbeat?workerId={NODE}"))
    assert beat == {**made, "assignedSegments": list(range(10))}
    data_of(await cluster.http.delete(f"/api/segments/release?workerId={NODE}"))
    assert data_of(await cluster.http.get("/api/scheduler-worker/segments"))["segments"] == []


async def test_what_a_process_was_told_it_fires_at_once(cluster: World) -> None:
    await assign(cluster, 10, NODE)
    data_of(await cluster.http.post("/api/jobs", json=JOB))
    await cluster.fire()
    assert data_of(await cluster.http.get("/api/jobs/1"))["status"] == "SCHEDULED"


async def test_a_registration_from_before_the_process_came_is_one_with_it(world: World) -> None:
    await register(world, NODE)
    await assign(world, 3, NODE)
    now = world.clock.now()
    node = Node(
        name=NODE, roles=("scheduler",), kinds=(), labels=(), slots=0, version="1", address="", started_at=now,
        heartbeat_at=now, beat=0,
    )  # fmt: skip
    await world.store.register_node(node)
    assert [each["workerId"] for each in data_of(await world.http.get(WORKERS))] == [NODE]
    data_of(await world.http.post(f"{WORKERS}/heartbeat?workerId={NODE}"))
    assert await world.store.load_taken_segments() == dict.fromkeys(range(3), (NODE, now))
    assert [one.state for one in await world.services.external_members.members("scheduler")] == ["gone"]


async def test_a_silent_member_is_shown_so_before_anybody_declares_it_gone(cluster: World) -> None:
    await register(cluster)
    await assign(cluster, 10)
    cluster.clock.advance(61)
    await cluster.store.beat(NODE, 0)
    assert [each["workerId"] for each in data_of(await cluster.http.get(WORKERS))] == [NODE]
    every = data_of(await cluster.http.get("/api/segments"))
    assert {each["workerId"] for each in every} == {NODE}


async def test_a_leader_that_was_not_heard_within_its_lease_leads_no_more(cluster: World) -> None:
    cluster.clock.advance(15)
    assert data_of(await cluster.http.get("/api/coordinator/leader"))["nodeId"] == NODE
    cluster.clock.advance(2)
    refusal_of(await cluster.http.get("/api/coordinator/leader"), 503, "NO_LEADER")


async def test_a_push_makes_the_scheduler_look_at_once(cluster: World) -> None:
    told = cluster.queue.watch("due")
    await cluster.http.post("/api/scheduler-worker/segments", json=[0])
    assert await told.wait(0)


async def test_segments_of_workers_outside_are_measured(world: World) -> None:
    await register(world)
    await assign(world, 3)
    await world.http.get("/readyz")
    assert 'horae_outside_segments{worker="worker-1"} 3.0' in world.metrics.text().decode()
