"""The job store: submit, read, cancel, statuses, due jobs, executions."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from horae.core.model import Policy, RunFilter, State
from horae.core.time import moments
from tests.facades.cluster.commands import JOB, data_of, refusal_of
from tests.facades.world import SCAN, World

FAR_FUTURE = "2100-01-01T00:00:00Z"


async def submit(world: World, **changes: Any) -> Any:
    return data_of(await world.http.post("/api/jobs", json={**JOB, **changes}))


async def status_of(world: World, job_id: int = 1) -> str:
    return str(data_of(await world.http.get(f"/api/jobs/{job_id}"))["status"])


async def put(world: World, word: str, job_id: int = 1) -> httpx.Response:
    return await world.http.put(f"/api/jobs/{job_id}/status", params={"status": word})


async def due(world: World, **changes: str) -> Any:
    asked = {"asOf": moments.format_moment(world.clock.now()), "segments": "5", **changes}
    return data_of(await world.http.get("/api/job-schedules/due", params=asked))


# ── submit ──


async def test_a_submitted_job_is_given_back_as_it_was_sent(world: World) -> None:
    made = await submit(world, executionTime="2030-01-01T12:00:00+02:00")
    expected = {**JOB, "executionTime": "2030-01-01T10:00:00Z", "status": "PENDING", "retryCount": 0}
    assert {name: made[name] for name in expected} == expected
    assert made == data_of(await world.http.get("/api/jobs/1"))


async def test_a_job_that_runs_before_the_answer_is_written_was_pending_when_it_was_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = world.jobs.submit

    async def submit_and_fire(*args: Any, **more: Any) -> Any:
        done = await submitted(*args, **more)
        await world.fire()
        return done

    monkeypatch.setattr(type(world.jobs), "submit", lambda _, *args, **more: submit_and_fire(*args, **more))
    assert (await submit(world))["status"] == "PENDING"
    assert await status_of(world) == "SCHEDULED"


async def test_a_submitted_job_is_offered_and_is_tried_again_as_the_contract_says(world: World) -> None:
    await submit(world, maxRetries=2)
    policy: Policy = (await world.jobs.get(1)).policy
    assert policy.offered
    retry = policy.retry
    assert (retry.attempts, retry.backoff_seconds, retry.factor, retry.cap_seconds) == (3, 60, 5, 600)


async def test_what_is_left_out_has_the_contracts_defaults(world: World) -> None:
    sent = {name: value for name, value in JOB.items() if name not in ("maxRetries", "segment")}
    made = data_of(await world.http.post("/api/jobs", json=sent))
    assert (made["maxRetries"], made["segment"]) == (3, 0)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("jobName", "Job name is required"),
        ("userId", "User ID must be provided"),
        ("frequency", "Frequency must be specified"),
        ("executionTime", "Execution time must be set"),
        ("payload", "Payload is required"),
    ],
)
@pytest.mark.parametrize("is_null", [True, False])
async def test_what_is_missing_is_told_in_the_contracts_words(
    world: World, field: str, message: str, is_null: bool
) -> None:
    sent = {**JOB, field: None} if is_null else {name: value for name, value in JOB.items() if name != field}
    answer = await world.http.post("/api/jobs", json=sent)
    assert refusal_of(answer, 400, "VALIDATION_ERROR").startswith(message)


async def test_a_content_type_that_a_tool_chose_is_no_hindrance(world: World) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = await world.http.post("/api/jobs", content=httpx.Response(200, json=JOB).content, headers=headers)
    assert data_of(answer)["id"] == 1


async def test_a_repeat_with_the_same_key_makes_no_second_job(world: World) -> None:
    headers = {"idempotency-key": "once"}
    first = data_of(await world.http.post("/api/jobs", json=JOB, headers=headers))
    second = data_of(await world.http.post("/api/jobs", json=JOB, headers=headers))
    assert first["id"] == second["id"] == 1
    assert (await world.rows())[0] == 1


async def test_names_of_the_contract_may_be_longer_than_horaes(world: World) -> None:
    made = await submit(world, jobName="-" + "x" * 250)
    assert made["jobName"] == "-" + "x" * 250


@pytest.mark.parametrize("name", ["'; DROP TABLE jobs; --", "../../etc/passwd", "${jndi:ldap://x}", "<b>x</b>"])
async def test_text_is_only_text(world: World, name: str) -> None:
    made = await submit(world, jobName=name, payload=name)
    assert (made["jobName"], made["payload"]) == (name, name)


async def test_a_text_payload_runs_as_a_handler_that_writes_it(world: World) -> None:
    await submit(world, payload="Test payload")
    job = await world.jobs.get(1)
    assert (job.kind, job.spec) == (
        "python", {"handler": "horae.handlers:payload", "data": {"payload": "Test payload"}},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ('{"handler": "horae.handlers:echo", "data": {"a": 1}}', "python"),
        ('{"steps": [{"run": "true"}]}', "shell"),
        ({"steps": [{"run": "true"}]}, "shell"),
        ('{"report": 5}', "python"),
        ("{not json", "python"),
        ("", "python"),
    ],
)
async def test_a_payload_may_name_its_work(world: World, payload: Any, kind: str) -> None:
    made = await submit(world, payload=payload)
    assert (await world.jobs.get(1)).kind == kind
    if isinstance(payload, str):
        assert made["payload"] == payload


async def test_work_that_cannot_be_is_refused(world: World) -> None:
    answer = await world.http.post("/api/jobs", json={**JOB, "payload": '{"steps": [{"go": "x"}]}'})
    assert "steps[0]" in refusal_of(answer, 400, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    ("frequency", "then"),
    [("DAILY", "2027-02-02T10:00:00Z"), ("WEEKLY", "2027-02-08T10:00:00Z"), ("MONTHLY", "2027-03-01T10:00:00Z")],
)
async def test_a_recurring_job_goes_on_from_its_own_time(world: World, frequency: str, then: str) -> None:
    await submit(world, frequency=frequency, executionTime="2027-02-01T10:00:00Z")
    world.clock.advance((moments.parse_moment("2027-02-01T10:00:01Z") - world.clock.now()) / 1e6)
    await world.fire()
    await world.work("python")
    shown = data_of(await world.http.get("/api/jobs/1"))
    assert (shown["status"], shown["nextRunTime"]) == ("PENDING", then)
    assert shown["lastRunTime"] == "2027-02-01T10:00:00Z"


# ── read ──


async def test_jobs_are_listed_by_status_and_user(world: World) -> None:
    await submit(world)
    await submit(world, executionTime=FAR_FUTURE, userId=2)
    await world.fire()
    assert [job["id"] for job in data_of(await world.http.get("/api/jobs?status=SCHEDULED"))] == [1]
    assert [job["id"] for job in data_of(await world.http.get("/api/jobs?status=pending&userId=2"))] == [2]
    assert data_of(await world.http.get("/api/jobs?status=PENDING&userId=1")) == []


async def test_a_list_needs_a_status_that_there_is(world: World) -> None:
    refusal_of(await world.http.get("/api/jobs"), 400, "VALIDATION_ERROR")
    refusal_of(await world.http.get("/api/jobs?status=LATE"), 400, "VALIDATION_ERROR")


async def test_jobs_of_other_interfaces_are_shown(world: World) -> None:
    made = await world.http.post("/v1/jobs", json={"name": "a", "schedule": "0 2 * * *", "steps": [{"run": "true"}]})
    shown = data_of(await world.http.get(f"/api/jobs/{made.json()['jobs'][0]['id']}"))
    assert (shown["jobName"], shown["frequency"], shown["status"]) == ("a", "DAILY", "PENDING")
    assert [job["id"] for job in data_of(await world.http.get("/api/jobs?status=PENDING"))] == [1]


async def test_a_job_that_does_not_exist_is_not_found(world: World) -> None:
    for path in ("/api/jobs/7", "/api/jobs/0", "/api/jobs/-3", f"/api/jobs/{2**70}", "/api/executions?jobId=7"):
        refusal_of(await world.http.get(path), 404, "JOB_NOT_FOUND")
    refusal_of(await put(world, "SCHEDULED", 7), 404, "JOB_NOT_FOUND")
    refusal_of(await world.http.get("/api/jobs/abc"), 400, "VALIDATION_ERROR")


# ── cancel ──


async def test_a_deleted_job_is_cancelled_and_stays_so(world: World) -> None:
    await submit(world)
    data_of(await put(world, "SCHEDULED"))
    assert data_of(await world.http.delete("/api/jobs/1")) == "Job cancelled successfully"
    assert await status_of(world) == "CANCELLED"
    refusal_of(await put(world, "COMPLETED"), 409, "INVALID_STATE")
    assert await status_of(world) == "CANCELLED"
    assert data_of(await world.http.delete("/api/jobs/1")) == "Job cancelled successfully"


async def test_deleted_jobs_are_listed_as_cancelled_and_as_nothing_else(world: World) -> None:
    await submit(world)
    await submit(world, executionTime=FAR_FUTURE)
    data_of(await world.http.delete("/api/jobs/2"))
    assert [job["id"] for job in data_of(await world.http.get("/api/jobs?status=CANCELLED"))] == [2]
    assert [job["id"] for job in data_of(await world.http.get("/api/jobs?status=PENDING"))] == [1]


async def test_cancelling_what_does_not_exist_succeeds(world: World) -> None:
    assert data_of(await world.http.delete("/api/jobs/99")) == "Job cancelled successfully"


async def test_a_status_of_cancelled_cancels(world: World) -> None:
    await submit(world, executionTime=FAR_FUTURE)
    data_of(await put(world, "CANCELLED"))
    data_of(await put(world, "CANCELLED"))
    assert await status_of(world) == "CANCELLED"
    assert (await world.jobs.get(1)).deleted_at is not None


# ── what is due, and who takes it ──


async def test_due_jobs_of_the_asked_segments_are_listed(world: World) -> None:
    await submit(world)
    await submit(world, segment=6)
    await submit(world, executionTime=FAR_FUTURE)
    await world.http.post("/v1/jobs", json={"name": "a", "segment": 5, "run_once": True, "steps": [{"run": "true"}]})
    [found] = await due(world)
    assert (found["jobId"], found["segment"], found["status"], found["frequency"]) == (1, 5, "PENDING", "ONE_TIME")
    assert found["payload"] == JOB["payload"]
    assert found["nextRunTime"].endswith("Z")
    assert [job["jobId"] for job in await due(world, segments="5,6")] == [1, 2]
    repeated = f"asOf={FAR_FUTURE}&segments=5&segments=6"
    assert len(data_of(await world.http.get(f"/api/job-schedules/due?{repeated}"))) == 3


@pytest.mark.parametrize("asked", ["", "asOf=now&segments=1", f"asOf={FAR_FUTURE}", f"asOf={FAR_FUTURE}&segments=100"])
async def test_a_due_query_says_what_it_needs(world: World, asked: str) -> None:
    refusal_of(await world.http.get(f"/api/job-schedules/due?{asked}"), 400, "VALIDATION_ERROR")


async def test_of_two_workers_that_schedule_a_job_one_is_refused(world: World) -> None:
    await submit(world)
    data_of(await put(world, "SCHEDULED"))
    refusal_of(await put(world, "SCHEDULED"), 409, "INVALID_STATE")
    assert await status_of(world) == "SCHEDULED"
    assert await due(world) == []


async def test_a_job_that_is_not_due_is_not_scheduled(world: World) -> None:
    await submit(world, executionTime=FAR_FUTURE)
    refusal_of(await put(world, "SCHEDULED"), 409, "INVALID_STATE")
    assert await status_of(world) == "PENDING"


async def test_a_scheduled_job_that_nobody_begins_is_taken_back_after_a_scan_interval(world: World) -> None:
    await submit(world)
    data_of(await put(world, "SCHEDULED"))
    [loan] = await world.services.lending.loans()
    assert loan.until_at == world.clock.now() + SCAN * 1e6


async def test_a_worker_outside_runs_a_job_by_its_status(world: World) -> None:
    await submit(world)
    for word in ("SCHEDULED", "RUNNING", "RUNNING", "COMPLETED"):
        data_of(await put(world, word))
        assert await status_of(world) == word
    data_of(await put(world, "COMPLETED"))  # a repeat is safe
    refusal_of(await put(world, "FAILED"), 409, "INVALID_STATE")
    assert await status_of(world) == "COMPLETED"


async def test_a_failure_waits_for_its_retry_as_pending(world: World) -> None:
    await submit(world, maxRetries=1)
    for word in ("SCHEDULED", "RUNNING", "FAILED"):
        data_of(await put(world, word))
    shown = data_of(await world.http.get("/api/jobs/1"))
    assert (shown["status"], shown["retryCount"]) == ("PENDING", 1)
    assert await due(world) == []
    world.clock.advance(61)
    await world.store.sweep()
    assert await world.work("python") == []  # Horae's agents never do what another one has begun
    assert [each["jobId"] for each in await due(world)] == [1]
    for word in ("SCHEDULED", "RUNNING", "FAILED"):
        data_of(await put(world, word))
        assert await status_of(world) == word
    executions = data_of(await world.http.get("/api/executions?jobId=1"))
    assert [each["status"] for each in executions] == ["FAILED", "FAILED"]
    assert executions[0]["id"] != executions[1]["id"] == 1


async def test_a_job_given_back_is_run_by_horae(world: World) -> None:
    await submit(world)
    data_of(await put(world, "SCHEDULED"))
    data_of(await put(world, "PENDING"))
    assert len(await world.work("python")) == 1
    assert await status_of(world) == "COMPLETED"


@pytest.mark.parametrize("word", ["RUNNING", "COMPLETED", "FAILED"])
async def test_what_nobody_scheduled_cannot_go_on(world: World, word: str) -> None:
    await submit(world)
    refusal_of(await put(world, word), 409, "INVALID_STATE")
    assert await status_of(world) == "PENDING"


async def test_a_job_that_horae_runs_is_not_ended_by_others(world: World) -> None:
    await submit(world)
    await world.fire()
    await world.claim("python")
    for word in ("RUNNING", "COMPLETED", "PENDING"):
        refusal_of(await put(world, word), 409, "INVALID_STATE")
    assert await status_of(world) == "RUNNING"


# ── executions ──


async def test_an_agent_outside_reports_on_its_execution(world: World) -> None:
    await submit(world, maxRetries=0)
    data_of(await put(world, "SCHEDULED"))
    report = {"jobId": 1, "workerId": "agent-1", "status": "RUNNING", "startTime": "2027-01-15T08:00:00Z"}
    refusal_of(await world.http.post("/api/job-store/executions", json=report), 409, "INVALID_STATE")
    await world.http.post("/api/execution-coordinator/workers/agent-1")
    begun = data_of(await world.http.post("/api/job-store/executions", json=report))
    assert (begun["workerId"], begun["status"], begun["checkpointData"]) == ("agent-1", "RUNNING", None)
    data_of(await world.http.post("/api/job-store/executions", json={**report, "checkpointData": "row 100"}))
    other = {**report, "workerId": "agent-2"}
    for word in ("RUNNING", "COMPLETED"):
        late = await world.http.post("/api/job-store/executions", json={**other, "status": word})
        refusal_of(late, 409, "INVALID_STATE")

    [by_worker] = data_of(await world.http.get("/api/executions?workerId=agent-1"))
    [by_job] = data_of(await world.http.get("/api/executions?jobId=1"))
    assert by_worker == by_job
    assert by_job["checkpointData"] == "row 100"
    assert data_of(await world.http.get("/api/executions?workerId=agent-2")) == []

    ended = {**report, "status": "FAILED", "errorMessage": "disk full"}
    assert data_of(await world.http.post("/api/job-store/executions", json=ended))["errorMessage"] == "disk full"


async def test_executions_are_asked_for_by_job_or_worker(world: World) -> None:
    refusal_of(await world.http.get("/api/executions"), 400, "VALIDATION_ERROR")


async def test_jobs_of_another_organisation_do_not_exist(world: World) -> None:
    from horae.core.work import specs

    draft = specs.parse_job({"name": "theirs", "run_once": True, "handler": "horae.handlers:echo"})
    await world.jobs.submit([draft], owner="eve", org=2)
    refusal_of(await world.http.get("/api/jobs/1"), 404, "JOB_NOT_FOUND")
    refusal_of(await put(world, "SCHEDULED"), 404, "JOB_NOT_FOUND")
    refusal_of(await world.http.post("/api/worker-agent/dispatch", json={"jobId": 1}), 404, "JOB_NOT_FOUND")
    refusal_of(await world.http.get("/api/execution-coordinator/assignments/1"), 404, "ASSIGNMENT_NOT_FOUND")
    assert data_of(await world.http.delete("/api/jobs/1")) == "Job cancelled successfully"
    assert (await world.jobs.get(1)).deleted_at is None


async def test_a_job_that_still_runs_keeps_its_next_moment(world: World) -> None:
    await submit(world, frequency="DAILY")
    await world.fire()
    await world.claim("python")
    world.clock.advance(86_400)
    refusal_of(await put(world, "SCHEDULED"), 409, "INVALID_STATE")
    assert [run.state for run in (await world.jobs.list_runs(RunFilter(job_id=1))).items] == [State.RUNNING]


async def test_of_many_that_ask_at_once_one_schedules(world: World) -> None:
    await submit(world)
    answers = await asyncio.gather(*(put(world, "SCHEDULED") for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 9
    assert len((await world.jobs.list_runs(RunFilter(job_id=1))).items) == 1


@pytest.mark.parametrize("data", ["\ud800", "x" * 70_000, {"a": "\u0000"}])
async def test_a_checkpoint_is_json_that_can_be_kept(world: World, data: Any) -> None:
    await submit(world)
    data_of(await put(world, "SCHEDULED"))
    report = {"jobId": 1, "workerId": "agent-1", "status": "RUNNING", "checkpointData": data}
    answer = await world.http.post("/api/job-store/executions", content=json.dumps(report).encode())
    refusal_of(answer, 400, "VALIDATION_ERROR")
    assert await status_of(world) == "SCHEDULED"


async def test_a_job_given_back_while_it_runs_has_failed_once(world: World) -> None:
    await submit(world, maxRetries=1)
    for word in ("SCHEDULED", "RUNNING", "PENDING"):
        data_of(await put(world, word))
    shown = data_of(await world.http.get("/api/jobs/1"))
    assert (shown["status"], shown["retryCount"]) == ("PENDING", 1)
