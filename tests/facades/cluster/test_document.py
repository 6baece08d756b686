"""The source document, replayed: every request of its text, and every field that it shows."""

from __future__ import annotations

from typing import Any

import httpx

from horae.core.time import moments
from tests.facades.cluster.commands import JOB, Call, calls, data_of, endpoints, missing_fields
from tests.facades.world import World


async def send(world: World, call: Call, job_id: int = 1) -> httpx.Response:
    headers = {"content-type": "application/json"} if call.body else {}
    path = call.path.replace("{id}", str(job_id))
    return await world.http.request(call.method, path, content=call.body, headers=headers)


async def test_scenario_1_a_job_is_submitted_offered_and_taken(cluster: World) -> None:
    submit, register, assign, check = calls("scenario-1-basic-workflow.sh")
    job = data_of(await send(cluster, submit))
    assert (job["id"], job["status"], job["retryCount"], job["segment"]) == (1, "PENDING", 0, 5)
    assert data_of(await send(cluster, register))["status"] == "ONLINE"
    assert data_of(await send(cluster, assign)) == list(range(10))

    await cluster.http.put("/api/jobs/1/status?status=SCHEDULED")

    assert data_of(await send(cluster, check))["status"] == "SCHEDULED"


async def test_scenario_2_two_workers_share_all_segments(cluster: World) -> None:
    _, first, _, second = [data_of(await send(cluster, call)) for call in calls("scenario-2-multiple-workers.sh")]
    assert first == list(range(50))
    assert second == list(range(50, 100))


async def test_scenario_3_a_daily_job_waits_for_its_next_day(cluster: World) -> None:
    [submit] = calls("scenario-3-recurring-job.sh")
    made = data_of(await send(cluster, submit))
    assert (made["status"], made["frequency"], made["executionTime"]) == ("PENDING", "DAILY", "2024-12-31T09:00:00Z")

    await cluster.fire()
    await cluster.work("python")

    after = data_of(await cluster.http.get("/api/jobs/1"))
    assert after["status"] == "PENDING"
    assert after["nextRunTime"] == "2027-01-15T09:00:00Z"  # on its own clock, the next after the test's now
    assert after["lastRunTime"] is not None
    assert data_of(await cluster.http.get("/api/executions?jobId=1"))[0]["status"] == "COMPLETED"


async def test_every_command_of_the_troubleshooting_section_answers(cluster: World) -> None:
    data_of(await cluster.http.post("/api/jobs", json=JOB))
    answers = [data_of(await send(cluster, call)) for call in calls("troubleshooting.sh")]
    status, segments, job, agent, distribution, leader, worker, held = answers
    assert status["assignedSegmentCount"] == len(segments["segments"]) == 100
    assert (job["id"], agent["status"], leader["leader"]) == (1, "ONLINE", True)
    assert [each["segment"] for each in distribution] == list(range(100))
    assert (worker["workerId"], held) == ("worker-1", list(range(10)))


async def test_every_request_of_the_text_gives_the_fields_it_shows(cluster: World) -> None:
    """The scanning flow of the document, with a worker that holds the job's segment."""
    await cluster.http.post("/api/scheduler-workers/register?workerId=worker-1")
    await cluster.http.post("/api/segments/assign?workerId=worker-1&desiredSegments=10")
    data_of(await cluster.http.post("/api/jobs", json=JOB))
    await cluster.fire()  # so that there is a last scan
    # What is offered to a worker is not fired by Horae within the scan interval: else this would be refused below.
    filled: dict[str, Any] = {"{id}": 1, "{now}": moments.format_moment(cluster.clock.now()), "{assigned}": "5,6"}
    for each in endpoints():
        method, path = each["request"].split(" ")
        for mark, value in filled.items():
            path = path.replace(mark, str(value))
        body = each.get("body") and {name: filled.get(str(value), value) for name, value in each["body"].items()}
        answer = await cluster.http.request(method, path, json=body)
        assert answer.status_code == 200, (each["request"], answer.text)
        assert missing_fields(each["shows"], answer.json()) == [], each["request"]
    ended = await cluster.work("python")
    assert len(ended) == 1
