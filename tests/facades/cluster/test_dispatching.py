"""Agents that registered with host and port are called: once, within their capacity, and nobody does their work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from horae.core.model import State
from tests.facades.world import BOTH, SCAN, World

from .agent import FakeAgent
from .commands import JOB, data_of, refusal_of

DISPATCH = "/api/worker-agent/dispatch"
AGENTS = "/api/execution-coordinator/workers"


@pytest.fixture
def agent() -> Iterator[FakeAgent]:
    made = FakeAgent()
    yield made
    made.stop()


@pytest.fixture
def other() -> Iterator[FakeAgent]:
    made = FakeAgent()
    yield made
    made.stop()


async def register(world: World, name: str, agent: FakeAgent, capacity: int = 10) -> None:
    data_of(await world.http.post(f"{AGENTS}/{name}", json=agent.registration(capacity)))


async def submit(world: World, count: int = 1, **changes: Any) -> list[int]:
    answers = [await world.http.post("/api/jobs", json={**JOB, **changes}) for _ in range(count)]
    return [data_of(answer)["id"] for answer in answers]


async def schedule(world: World, job_id: int = 1) -> None:
    data_of(await world.http.put(f"/api/jobs/{job_id}/status?status=SCHEDULED"))


async def dispatch(world: World, worker: str | None = "agent-1", job_id: int = 1) -> httpx.Response:
    return await world.http.post(DISPATCH, json={"jobId": job_id, **({"workerId": worker} if worker else {})})


async def report(world: World, word: str, worker: str = "agent-1", **more: Any) -> httpx.Response:
    sent = {"jobId": 1, "workerId": worker, "status": word, **more}
    return await world.http.post("/api/job-store/executions", json=sent)


async def status_of(world: World, job_id: int = 1) -> Any:
    return data_of(await world.http.get(f"/api/jobs/{job_id}"))["status"]


@pytest.mark.parametrize("is_scheduled", [True, False])
async def test_the_agent_that_was_asked_is_called(world: World, agent: FakeAgent, is_scheduled: bool) -> None:
    await register(world, "agent-1", agent)
    await submit(world)
    if is_scheduled:
        await schedule(world)
    assert data_of(await dispatch(world)) == "Job execution triggered"
    [got] = agent.got
    assert (got["path"], got["jobId"], got["jobName"]) == (DISPATCH, 1, "Test Job")
    assert (got["payload"], got["maxRetries"], got["retryCount"]) == ("Test payload", 3, 0)
    assert await status_of(world) == "SCHEDULED"
    data_of(await report(world, "RUNNING"))
    assert await status_of(world) == "RUNNING"
    data_of(await report(world, "COMPLETED"))
    assert await status_of(world) == "COMPLETED"
    assert await world.work("python") == []


@pytest.mark.parametrize("how", ["query", "agentId", "address"])
async def test_an_agent_is_asked_for_in_several_ways(world: World, agent: FakeAgent, how: str) -> None:
    await register(world, "agent-1", agent)
    await submit(world)
    url = f"{DISPATCH}?workerId=agent-1" if how == "query" else DISPATCH
    address = {"host": "127.0.0.1", "port": agent.port}
    more = {"query": {}, "agentId": {"agentId": "agent-1"}, "address": address}[how]
    data_of(await world.http.post(url, json={"jobId": 1, **more}))
    assert agent.jobs == [1]


async def test_an_agent_that_nobody_knows_is_not_found(world: World) -> None:
    await submit(world)
    refusal_of(await dispatch(world, "nobody"), 404, "WORKER_NOT_FOUND")
    assert await status_of(world) == "PENDING"


async def test_an_agent_without_host_and_port_is_not_called(world: World) -> None:
    await submit(world)
    data_of(await world.http.post(f"{AGENTS}/agent-1", json={"capacity": 2}))
    await schedule(world)
    refusal_of(await dispatch(world), 503, "SERVICE_UNAVAILABLE")
    assert await status_of(world) == "SCHEDULED"


@pytest.mark.parametrize("is_scheduled", [True, False])
async def test_a_refusal_changes_nothing(world: World, agent: FakeAgent, other: FakeAgent, is_scheduled: bool) -> None:
    await register(world, "agent-1", agent)
    await register(world, "agent-2", other)
    agent.status = 503
    await submit(world)
    if is_scheduled:
        await schedule(world)
    before = await status_of(world)
    refusal_of(await dispatch(world), 503, "WORKER_AT_CAPACITY")
    assert await status_of(world) == before
    assert await world.work("python") == []
    data_of(await dispatch(world, "agent-2"))
    assert other.jobs == [1]
    assert other.got[0].get("isReassignment") is None


async def test_an_agent_that_is_not_reached_changes_nothing(world: World, agent: FakeAgent) -> None:
    await register(world, "agent-1", agent)
    agent.stop()
    await submit(world)
    await schedule(world)
    [before] = await world.services.lending.loans()
    refusal_of(await dispatch(world), 503, "SERVICE_UNAVAILABLE")
    assert await world.services.lending.loans() == [before]


async def test_an_agent_that_gives_no_answer_keeps_the_job(world: World, agent: FakeAgent) -> None:
    await register(world, "agent-1", agent)
    agent.status = None
    await submit(world)
    await schedule(world)
    refusal_of(await dispatch(world), 503, "SERVICE_UNAVAILABLE")
    [loan] = await world.services.lending.loans()
    assert loan.worker == "agent-1@agent"
    refusal_of(await dispatch(world), 409, "INVALID_STATE")
    data_of(await report(world, "RUNNING"))
    data_of(await report(world, "COMPLETED"))


@BOTH
async def test_an_agent_gets_no_more_than_it_can_run(world: World, agent: FakeAgent) -> None:
    await register(world, "agent-1", agent, capacity=2)
    jobs = await submit(world, 6)
    for job_id in jobs:
        await schedule(world, job_id)
    answers = await asyncio.gather(*(dispatch(world, job_id=job_id) for job_id in jobs))
    assert sorted(answer.status_code for answer in answers) == [200] * 2 + [503] * 4
    assert len(agent.jobs) == 2


@BOTH
@pytest.mark.parametrize("worker", ["agent-1", None])
@pytest.mark.parametrize("is_scheduled", [True, False])
async def test_of_many_dispatches_of_one_job_one_succeeds(
    world: World, agent: FakeAgent, worker: str | None, is_scheduled: bool
) -> None:
    await register(world, "agent-1", agent)
    await submit(world)
    if is_scheduled:
        await schedule(world)
    answers = await asyncio.gather(*(dispatch(world, worker) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 19
    assert agent.jobs == ([1] if worker else [])


async def test_only_who_holds_a_run_reports_on_it(world: World, agent: FakeAgent, other: FakeAgent) -> None:
    await register(world, "agent-1", agent)
    await register(world, "agent-2", other)
    await submit(world)
    data_of(await dispatch(world))
    for word in ("RUNNING", "COMPLETED"):
        for worker in ("agent-2", "stranger"):
            refusal_of(await report(world, word, worker), 409, "INVALID_STATE")
    data_of(await report(world, "RUNNING", attempt=1))
    refusal_of(await report(world, "COMPLETED", attempt=2), 409, "INVALID_STATE")
    data_of(await report(world, "COMPLETED", attempt=1))
    refusal_of(await report(world, "COMPLETED", "agent-2"), 409, "INVALID_STATE")


@BOTH
async def test_a_lost_execution_goes_on_elsewhere_with_its_checkpoint(
    world: World, agent: FakeAgent, other: FakeAgent
) -> None:
    await register(world, "agent-1", agent)
    await submit(world)
    data_of(await dispatch(world))
    data_of(await report(world, "RUNNING", checkpointData={"row": 5}))
    await world.http.delete(f"{AGENTS}/agent-1")
    await world.execution.reap("agent-1@agent")
    await world.dispatching.reassign()
    run = await world.jobs.get_run(1)
    assert (run.state, run.reason) == (State.QUEUED, "no_agent")  # it waits, and says why
    assert await world.work("python") == []

    await register(world, "agent-2", other)
    await world.store.load_overdue_loans()  # what is left of old loans is dropped here
    await world.dispatching.reassign()
    [got] = other.got
    assert (got["checkpointData"], got["isReassignment"], got["previousWorkerId"]) == ({"row": 5}, True, "agent-1")
    assert (got["payload"], got["retryCount"]) == ("Test payload", 0)
    data_of(await report(world, "COMPLETED", "agent-2"))
    shown = data_of(await world.http.get("/api/executions?jobId=1"))
    assert [(each["workerId"], each["status"]) for each in shown] == [("agent-2", "COMPLETED"), ("agent-1", "FAILED")]


@pytest.mark.row("segments-agents-failed")
async def test_a_failed_execution_is_offered_to_its_scheduler_first(world: World, agent: FakeAgent) -> None:
    await register(world, "agent-1", agent)
    await world.http.post("/api/scheduler-workers/register?workerId=worker-1")
    await world.http.post("/api/segments/assign?workerId=worker-1&desiredSegments=10")
    await submit(world)
    data_of(await dispatch(world))
    data_of(await report(world, "FAILED", errorMessage="disk full"))
    world.clock.advance(61)
    await world.store.sweep()
    await world.dispatching.reassign()
    assert agent.jobs == [1]
    due = await world.http.get("/api/job-schedules/due?asOf=2100-01-01T00:00:00Z&segments=5")
    assert [each["jobId"] for each in data_of(due)] == [1]
    world.clock.advance(SCAN)
    await world.dispatching.reassign()
    assert agent.jobs == [1, 1]  # the scheduler did not take it
    assert agent.got[1]["retryCount"] == 1


async def test_a_retry_that_is_dispatched_here_goes_to_an_agent_outside(world: World, agent: FakeAgent) -> None:
    await register(world, "agent-1", agent)
    await submit(world)
    data_of(await dispatch(world))
    data_of(await report(world, "FAILED"))
    world.clock.advance(61)
    await world.store.sweep()
    await schedule(world)
    data_of(await dispatch(world, worker=None))
    assert agent.jobs == [1, 1]


async def test_beyond_loopback_an_agent_needs_a_token(world: World, agent: FakeAgent) -> None:
    address = {"host": "192.0.2.1", "port": agent.port}
    data_of(await world.http.post(f"{AGENTS}/agent-1", json=address))
    await submit(world)
    await schedule(world)
    message = refusal_of(await dispatch(world), 503, "SERVICE_UNAVAILABLE")
    assert "token" in message
    assert await status_of(world) == "SCHEDULED"


@pytest.mark.parametrize("word", ["RUNNING", "COMPLETED"])
async def test_an_agent_hears_of_a_cancelled_job_when_it_reports(world: World, agent: FakeAgent, word: str) -> None:
    await register(world, "agent-1", agent, capacity=1)
    await submit(world, 2)
    data_of(await dispatch(world))
    data_of(await report(world, "RUNNING"))
    await world.http.delete("/api/jobs/1")
    refusal_of(await report(world, word), 409, "INVALID_STATE")
    assert (await world.jobs.get_run(1)).state is State.CANCELLED
    data_of(await dispatch(world, job_id=2))


async def test_what_waits_for_an_agent_outside_does_not_fail_for_want_of_ours(world: World, agent: FakeAgent) -> None:
    await register(world, "agent-1", agent)
    await submit(world)
    data_of(await dispatch(world))
    await world.execution.reap("agent-1@agent")
    assert await world.store.fail_unrunnable(["shell"], "nobody can", {}) == 0
    assert await status_of(world) == "PENDING"
