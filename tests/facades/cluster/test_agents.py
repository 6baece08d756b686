"""Agents that register by HTTP, who runs what, and this node as a worker agent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.core.model import State
from horae.web import app as web
from tests.facades.cluster.commands import JOB, data_of, refusal_of
from tests.facades.world import NODE, OWN, World, from_here

AGENTS = "/api/execution-coordinator/workers"
DISPATCH = "/api/worker-agent/dispatch"


async def submit(world: World, **changes: Any) -> None:
    data_of(await world.http.post("/api/jobs", json={**JOB, **changes}))


async def schedule(world: World) -> None:
    data_of(await world.http.put("/api/jobs/1/status?status=SCHEDULED"))


async def status_of(world: World) -> str:
    return str(data_of(await world.http.get("/api/jobs/1"))["status"])


async def agent(world: World, name: str = "agent-1") -> Any:
    return data_of(await world.http.get(f"{AGENTS}/{name}"))


# ── members ──


@pytest.mark.parametrize("form", ["query", "form", "json"])
async def test_an_agent_registers_in_every_form(world: World, form: str) -> None:
    said = {"capacity": 4, "host": "10.0.0.5", "port": 8184}
    sent: dict[str, Any] = {"query": {"params": said}, "form": {"data": said}, "json": {"json": said}}[form]
    made = data_of(await world.http.post(f"{AGENTS}/agent-1", **sent))
    assert (made["workerId"], made["status"], made["capacity"], made["currentLoad"]) == ("agent-1", "ONLINE", 4, 0)
    assert (made["workerHost"], made["workerPort"]) == ("10.0.0.5", 8184)
    assert made["registeredAt"] == made["createdAt"]
    assert made == await agent(world)


async def test_the_job_store_registers_agents_with_their_segment(world: World) -> None:
    sent = {"workerId": "agent-1", "segment": 7}
    made = data_of(await world.http.post("/api/workers", json=sent))
    assert (made["segment"], made["capacity"], made["status"], made["currentLoad"]) == (7, 10, "ONLINE", 0)
    data_of(await world.http.post(f"{AGENTS}/agent-1", params={"capacity": 3}))
    [listed] = data_of(await world.http.get("/api/workers"))
    assert (listed["segment"], listed["capacity"]) == (7, 3)


@pytest.mark.parametrize("path", ["/api/workers/agent-1/heartbeat", f"{AGENTS}/agent-1/heartbeat"])
async def test_a_heartbeat_tells_load_and_capacity(world: World, path: str) -> None:
    refusal_of(await world.http.post(path), 404, "WORKER_NOT_FOUND")
    await world.http.post(f"{AGENTS}/agent-1?capacity=4")
    world.clock.advance(5)
    assert data_of(await world.http.post(path, json={"currentLoad": 2, "capacity": 6})) == "Heartbeat recorded"
    found = await agent(world)
    assert (found["currentLoad"], found["capacity"], found["lastHeartbeat"]) == (2, 6, "2027-01-15T08:00:05Z")


async def test_an_agent_that_fell_silent_is_unhealthy_until_it_beats(world: World) -> None:
    await world.http.post(f"{AGENTS}/agent-1")
    await world.store.retire_node("agent-1@agent", "gone")
    assert (await agent(world))["status"] == "UNHEALTHY"
    await world.http.post(f"{AGENTS}/agent-1/heartbeat")
    assert (await agent(world))["status"] == "ONLINE"


@pytest.mark.parametrize("word", ["ONLINE", "OFFLINE", "UNASSIGNED", "UNHEALTHY"])
@pytest.mark.parametrize("by_heartbeat", [False, True])
async def test_an_agent_has_the_status_it_was_given(world: World, word: str, by_heartbeat: bool) -> None:
    await world.http.post(f"{AGENTS}/agent-1")
    if by_heartbeat:
        data_of(await world.http.post(f"{AGENTS}/agent-1/heartbeat", json={"status": word}))
    else:
        answer = await world.http.put(f"/api/workers/agent-1/status?status={word}")
        assert data_of(answer) == "Worker status updated"
    assert (await agent(world))["status"] == word
    data_of(await world.http.put("/api/workers/agent-1/status?status=ONLINE"))
    assert (await agent(world))["status"] == "ONLINE"


async def test_an_agent_that_leaves_is_offline(world: World) -> None:
    await world.http.post(f"{AGENTS}/agent-1")
    data_of(await world.http.delete(f"{AGENTS}/agent-1"))
    assert (await agent(world))["status"] == "OFFLINE"
    refusal_of(await world.http.delete(f"{AGENTS}/nobody"), 404, "WORKER_NOT_FOUND")
    refusal_of(await world.http.put("/api/workers/nobody/status?status=ONLINE"), 404, "WORKER_NOT_FOUND")
    refusal_of(await world.http.get(f"{AGENTS}/nobody"), 404, "WORKER_NOT_FOUND")


async def test_lists_show_horaes_own_agents_too(cluster: World) -> None:
    await cluster.http.post(f"{AGENTS}/agent-1?capacity=4")
    assert [each["workerId"] for each in data_of(await cluster.http.get(AGENTS))] == ["agent-1", NODE]
    health = data_of(await cluster.http.get("/api/execution-coordinator/health"))
    assert health == {
        "totalWorkers": 2, "onlineWorkers": 2, "unhealthyWorkers": 0, "totalCapacity": 12, "usedCapacity": 0,
        "reassignmentEvents": 0,
    }  # fmt: skip


# ── who runs what ──


async def test_assignments_name_the_agent_and_how_far_it_is(world: World) -> None:
    await submit(world)
    refusal_of(await world.http.get("/api/execution-coordinator/assignments/1"), 404, "ASSIGNMENT_NOT_FOUND")
    await schedule(world)
    await world.http.post("/api/execution-coordinator/workers/agent-1")
    report = {"jobId": 1, "workerId": "agent-1", "status": "RUNNING", "checkpointData": {"row": 5}}
    data_of(await world.http.post("/api/job-store/executions", json=report))
    found = data_of(await world.http.get("/api/execution-coordinator/assignments/1"))
    assert found == {
        "jobId": 1, "workerId": "agent-1", "assignedAt": "2027-01-15T08:00:00Z", "checkpointData": {"row": 5},
    }  # fmt: skip
    of_agent = "/api/execution-coordinator/assignments?workerId="
    assert data_of(await world.http.get(of_agent + "agent-1")) == [found]
    assert data_of(await world.http.get(of_agent + "agent-2")) == []


async def test_a_job_that_lost_its_agent_is_a_reassignment(world: World) -> None:
    await submit(world)
    await schedule(world)
    for name in ("agent-1", "agent-2"):
        await world.http.post(f"/api/execution-coordinator/workers/{name}")
    report = {"jobId": 1, "workerId": "agent-1", "status": "RUNNING", "checkpointData": "row 7"}
    data_of(await world.http.post("/api/job-store/executions", json=report))
    await world.execution.reap("agent-1@agent")
    [event] = data_of(await world.http.get("/api/execution-coordinator/reassignments?limit=5"))
    assert (event["jobId"], event["fromWorkerId"], event["success"]) == (1, "agent-1", False)
    assert await world.work("python") == []  # it is not for Horae's own agents
    await schedule(world)
    data_of(await world.http.post("/api/job-store/executions", json={**report, "workerId": "agent-2"}))
    [event] = data_of(await world.http.get("/api/execution-coordinator/reassignments"))
    assert (event["toWorkerId"], event["success"], event["errorMessage"]) == ("agent-2", True, None)
    assert event["checkpointData"] == "row 7"
    assert data_of(await world.http.get("/api/execution-coordinator/health"))["reassignmentEvents"] == 1


# ── this node as a worker agent ──


@pytest.mark.parametrize(
    "form",
    [
        {"executionTime": "2024-12-31T10:00:00Z", "userId": 1, "retryCount": 0},
        {"scheduledTime": "2024-12-31T10:00:00Z", "currentRetryCount": 0},
    ],
)
async def test_a_scheduled_job_is_dispatched_in_both_forms_and_runs(world: World, form: dict[str, Any]) -> None:
    await submit(world)
    await schedule(world)
    assert await world.work("python") == []
    sent = {"jobId": 1, "jobName": "Test Job", "payload": "Test payload", "maxRetries": 3, **form}
    assert data_of(await world.http.post(DISPATCH, json=sent)) == "Job execution triggered"
    refusal_of(await world.http.post(DISPATCH, json=sent), 409, "INVALID_STATE")
    [run] = await world.work("python")
    assert (run.state, run.attempt) == (State.SUCCEEDED, 1)
    refusal_of(await world.http.post(DISPATCH, json=sent), 409, "INVALID_STATE")


async def test_a_due_job_that_nobody_scheduled_is_dispatched_too(world: World) -> None:
    await submit(world)
    data_of(await world.http.post(DISPATCH, json={"jobId": 1}))
    assert len(await world.work("python")) == 1


async def test_what_is_not_due_ended_or_cancelled_is_not_dispatched(world: World) -> None:
    await submit(world, executionTime="2100-01-01T00:00:00Z")
    refusal_of(await world.http.post(DISPATCH, json={"jobId": 1}), 409, "INVALID_STATE")
    await world.http.delete("/api/jobs/1")
    refusal_of(await world.http.post(DISPATCH, json={"jobId": 1}), 409, "INVALID_STATE")
    refusal_of(await world.http.post(DISPATCH, json={"jobId": 9}), 404, "JOB_NOT_FOUND")
    refusal_of(await world.http.post(DISPATCH, json={}), 400, "VALIDATION_ERROR")


@pytest.mark.parametrize("changes", [{"busy": lambda: 8}, {"roles": ("api", "scheduler")}])
async def test_a_node_without_a_free_slot_refuses(world: World, changes: dict[str, Any]) -> None:
    await submit(world)
    full = replace(world.services, local_node=replace(world.services.local_node, **changes))
    gate = web.create_app(full, CONTRACTS, version="1", free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url="http://127.0.0.1:8080") as client:
        refusal_of(await client.post(DISPATCH, json={"jobId": 1}), 503, "WORKER_AT_CAPACITY")
    assert await status_of(world) == "PENDING"
    metrics = world.metrics.text().decode()
    assert 'horae_dispatches_total{outcome="refused"} 1.0' in metrics


async def test_S49_beyond_loopback_a_dispatch_needs_the_token_of_an_agent(world: World) -> None:
    await submit(world)
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    texts = {scope: (await world.services.access.create(scope, scope, "ann", None))[1] for scope in ("user", "agent")}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="https://10.0.0.1:8443") as client:
        refusal_of(await client.post(DISPATCH, json={"jobId": 1}), 401, "UNAUTHORIZED")
        bearer = {scope: {"authorization": f"Bearer {text}"} for scope, text in texts.items()}
        refusal_of(await client.post(DISPATCH, json={"jobId": 1}, headers=bearer["user"]), 403, "FORBIDDEN")
        data_of(await client.post(DISPATCH, json={"jobId": 1}, headers=bearer["agent"]))
        refusal_of(await client.get("/api/jobs/1", headers=bearer["agent"]), 403, "FORBIDDEN")
        data_of(await client.get("/api/jobs/1", headers=bearer["user"]))


async def test_the_status_of_this_nodes_agent_counts_its_jobs(cluster: World) -> None:
    await submit(cluster, maxRetries=0)
    await cluster.fire()
    await cluster.work("python", State.FAILED)
    found = data_of(await cluster.http.get("/api/worker-agent/status"))
    assert found == {
        "workerId": NODE, "status": "ONLINE", "capacity": 8, "currentLoad": 0, "availableSlots": 8,
        "totalJobsExecuted": 1, "successfulJobs": 0, "failedJobs": 1,
    }  # fmt: skip


async def test_running_jobs_of_this_node_are_listed_with_their_time(world: World) -> None:
    await submit(world)
    await world.fire()
    await world.claim("python")
    world.clock.advance(3723)
    [found] = data_of(await world.http.get("/api/worker-agent/jobs/running"))
    assert found == {
        "jobId": 1, "jobName": "Test Job", "startTime": "2027-01-15T08:00:00Z", "elapsedTime": "01:02:03",
    }  # fmt: skip


async def test_load_and_capacity_are_the_same_wherever_one_asks(cluster: World) -> None:
    await submit(cluster)
    await cluster.fire()
    await cluster.claim("python")
    status = data_of(await cluster.http.get("/api/worker-agent/status"))
    listed = await agent(cluster, NODE)
    health = data_of(await cluster.http.get("/api/execution-coordinator/health"))
    assert (status["currentLoad"], status["capacity"], status["availableSlots"]) == (1, 8, 7)
    assert (listed["currentLoad"], listed["capacity"]) == (1, 8)
    assert (health["usedCapacity"], health["totalCapacity"]) == (1, 8)


async def test_the_load_of_an_agent_outside_is_what_it_has_or_says(world: World) -> None:
    await world.http.post(f"{AGENTS}/agent-1")
    await submit(world)
    await schedule(world)
    report = {"jobId": 1, "workerId": "agent-1", "status": "RUNNING"}
    data_of(await world.http.post("/api/job-store/executions", json=report))
    assert (await agent(world))["currentLoad"] == 1
    await world.http.post(f"{AGENTS}/agent-1/heartbeat", json={"currentLoad": 3})
    assert (await agent(world))["currentLoad"] == 3


async def test_an_agent_of_horae_is_an_ordinary_member(cluster: World) -> None:
    made = data_of(await cluster.http.post(f"{AGENTS}/{NODE}?capacity=4"))
    assert (made["workerId"], made["capacity"], made["status"]) == (NODE, 8, "ONLINE")
    assert len(data_of(await cluster.http.get("/api/workers"))) == 1
    data_of(await cluster.http.put(f"/api/workers/{NODE}/status?status=UNASSIGNED"))
    assert (await agent(cluster, NODE))["status"] == "UNASSIGNED"
    data_of(await cluster.http.put(f"/api/workers/{NODE}/status?status=ONLINE"))
    said = refusal_of(await cluster.http.delete(f"{AGENTS}/{NODE}"), 409, "INVALID_STATE")
    assert "SIGTERM" in said
    await cluster.store.retire_node(NODE, "gone")  # as it does itself when it is told to stop
    assert (await agent(cluster, NODE))["status"] == "OFFLINE"


async def test_the_health_of_the_service_has_no_envelope(world: World) -> None:
    answer = await world.http.get("/actuator/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "UP"})


async def test_heartbeats_of_members_are_counted(world: World) -> None:
    await world.http.post(f"{AGENTS}/agent-1")
    for name in ("agent-1", "agent-1", "nobody"):
        await world.http.post(f"{AGENTS}/{name}/heartbeat")
    text = world.metrics.text().decode()
    assert 'horae_outside_heartbeats_total{outcome="ok",role="agent"} 2.0' in text
    assert 'horae_outside_heartbeats_total{outcome="unknown",role="agent"} 1.0' in text


async def test_an_agent_that_registers_again_keeps_what_it_does_not_say_anew(world: World) -> None:
    await world.http.post(f"{AGENTS}/agent-1", json={"capacity": 4, "host": "10.0.0.5", "port": 8184})
    again = data_of(await world.http.post(f"{AGENTS}/agent-1"))
    assert (again["capacity"], again["workerHost"], again["workerPort"]) == (4, "10.0.0.5", 8184)
    assert data_of(await world.http.post(f"{AGENTS}/agent-2"))["capacity"] == 10
