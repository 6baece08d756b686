"""Each call of the administration contract over HTTP, and what its words mean."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.contracts.admin import calls, failures, vocabulary
from horae.contracts.admin.guids import Kind, guid
from horae.core.identity import LOCAL
from horae.core.model import Phase, Reason, Run, RunFilter, State
from horae.core.runs.orders import Result
from horae.core.runs.traces import trace_id
from horae.errors import Conflict, Error, Stale, TooLarge, Unavailable
from horae.web import app as web
from tests.facades.admin.jobs import job_guid, make, run_id, statuses
from tests.facades.world import NODE, World

WORDS = {"InProgress", "Finished", "Failed", "FailedBecauseOfLock", "Stale"}
SHELL: dict[str, Any] = {"steps": [{"run": "true"}]}


# ── jobs and triggers ──


async def test_jobs_are_listed_by_name_with_what_they_run(world: World) -> None:
    await make(world, "zeta", paused=True, **SHELL)
    await make(world, "alpha", annotations={"admin": {"description": "the first", "job_type": "Some.AlphaHandler"}})
    await make(world, "foreign", org=2)
    answer = await world.http.get("/api/v1/jobs")
    alpha, zeta = answer.json()["Jobs"]
    assert (alpha["JobName"], alpha["JobType"], alpha["Description"]) == ("alpha", "Some.AlphaHandler", "the first")
    assert (zeta["JobName"], zeta["JobType"], zeta["IsDisabled"]) == ("zeta", "shell", True)
    assert "Description" not in zeta


async def test_triggers_say_when_they_fire_in_cron_and_in_english(world: World) -> None:
    schedules = [{"cron": "0 3 * * *"}, {"every": "10m", "enabled": False}, {"at": "2030-01-01T00:00:00Z"}]
    job = await make(world, "nightly", triggers=schedules)
    cron, every, once = (await world.http.get("/api/v1/triggers")).json()["Triggers"]
    assert cron == {
        "TriggerId": guid(Kind.TRIGGER, job.triggers[0].id),
        "JobId": job_guid(job),
        "JobType": "jobs/nightly",
        "JobName": "nightly",
        "TriggerName": "nightly #1",
        "CronExpression": "0 3 * * *",
        "CronExpressionText": cron["CronExpressionText"],
        "IsDisabled": False,
    }
    assert "03:00" in cron["CronExpressionText"]
    assert (every["CronExpression"], every["IsDisabled"]) == ("@every 10m", True)
    assert once["CronExpression"] == "2030-01-01T00:00:00Z"


async def test_a_trigger_keeps_its_name_when_others_come_and_go(world: World) -> None:
    named = [{"name": "night", "schedule": {"cron": "0 3 * * *"}}, {"name": "noon", "schedule": {"cron": "0 12 * * *"}}]
    job = await make(
        world,
        triggers=[{"cron": "0 3 * * *"}, {"cron": "0 12 * * *"}, {"cron": "0 13 * * *"}],
        annotations={"admin": {"triggers": named}},
    )
    await world.jobs.triggers.delete(job.triggers[0].id)
    shown = (await world.http.get("/api/v1/triggers")).json()["Triggers"]
    assert [each["TriggerName"] for each in shown] == ["noon", "DownloadRdmCodebooks #2"]


async def test_a_list_that_is_too_long_is_refused_and_not_cut(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await make(world, "a", triggers=[{"every": "1h"}, {"every": "2h"}, {"every": "3h"}])
    await make(world, "b")
    monkeypatch.setattr(calls, "LONGEST_LIST", 2)
    assert (await world.http.get("/api/v1/jobs")).status_code == 200
    triggers = await world.http.get("/api/v1/triggers")
    await make(world, "c")
    jobs = await world.http.get("/api/v1/jobs")
    assert {(answer.status_code, answer.json()["code"]) for answer in (jobs, triggers)} == {(429, 8)}


@pytest.mark.parametrize("annotations", [{"admin": 1}, {"admin": {"triggers": 1}}, {"admin": {"triggers": [1, {}]}}])
async def test_annotations_that_somebody_else_wrote_break_nothing(world: World, annotations: dict[str, Any]) -> None:
    await make(world, "odd", annotations=annotations, schedule="1h")
    [trigger] = (await world.http.get("/api/v1/triggers")).json()["Triggers"]
    [job] = (await world.http.get("/api/v1/jobs")).json()["Jobs"]
    assert (trigger["TriggerName"], job["JobType"]) == ("odd #1", "jobs/odd")


# ── running ──


async def test_a_job_is_run_on_the_node_that_was_called_with_its_data(world: World) -> None:
    job = await make(world)
    answer = await world.http.post("/api/v1/job", json={"JobId": job_guid(job).upper(), "JobData": '["CB_A"]'})
    run = await world.jobs.get_run(run_id(answer.json()["ScheduleJobStatusId"]))
    assert (run.job_id, run.trigger_id, run.pin, run.data) == (job.id, None, NODE, {"job_data": '["CB_A"]'})


async def test_a_job_without_data_is_run_without_any(world: World) -> None:
    job = await make(world)
    answer = await world.http.post("/api/v1/job", json={"JobId": job_guid(job), "JobData": None})
    assert (await world.jobs.get_run(run_id(answer.json()["ScheduleJobStatusId"]))).data is None


async def test_a_second_run_of_a_busy_job_failed_because_of_lock(world: World) -> None:
    job = await make(world)
    answers = [await world.http.post("/api/v1/job", json={"JobId": job_guid(job)}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    shown = await statuses(world)
    assert sorted(each["Status"] for each in shown) == ["FailedBecauseOfLock", "InProgress"]
    held, refused = (answer.json()["ScheduleJobStatusId"] for answer in answers)
    [locked] = await statuses(world, ScheduleJobStatusId=refused)
    why = f"another run of this job was live: run {run_id(held)}"
    assert (locked["Status"], locked["FailedMessage"]) == ("FailedBecauseOfLock", why)


async def test_the_same_promise_runs_a_job_once(world: World) -> None:
    job = await make(world, overlap="allow")
    answers = [
        await world.http.post("/api/v1/job", json={"JobId": job_guid(job)}, headers={"Idempotency-Key": "k"})
        for _ in range(2)
    ]
    assert answers[0].json() == answers[1].json()
    assert len(await statuses(world)) == 1


async def test_a_disabled_job_and_a_deleted_one_are_not_run(world: World) -> None:
    disabled, deleted = await make(world, "off", paused=True), await make(world, "gone")
    await world.jobs.delete(deleted.id)
    off = await world.http.post("/api/v1/job", json={"JobId": job_guid(disabled)})
    gone = await world.http.post("/api/v1/job", json={"JobId": job_guid(deleted)})
    assert (off.status_code, off.json()["code"]) == (400, 9)
    assert (gone.status_code, gone.json()["code"]) == (404, 5)
    assert await statuses(world) == []


async def test_a_node_without_agent_says_that_it_runs_nothing(world: World) -> None:
    job = await make(world)
    services = replace(world.services, local_node=replace(world.services.local_node, roles=("api", "scheduler")))
    with pytest.raises(Unavailable, match="has no agent"):
        await calls.Calls(services).execute_job(LOCAL, {"JobId": job_guid(job)})


# ── statuses ──


async def test_statuses_have_pages_beyond_the_first_newest_first(world: World) -> None:
    job = await make(world, overlap="allow")
    made = []
    for _ in range(5):
        answer = await world.http.post("/api/v1/job", json={"JobId": job_guid(job)})
        made.append(answer.json()["ScheduleJobStatusId"])
        world.clock.advance(1)
    pages = [await statuses(world, PageSize=2, Page=page) for page in (1, 2, 3, 4)]
    assert [[each["ScheduleJobStatusId"] for each in page] for page in pages] == [
        [made[4], made[3]], [made[2], made[1]], [made[0]], [],
    ]  # fmt: skip


async def test_a_status_is_found_by_its_trace_and_by_its_id_and_by_both(world: World) -> None:
    job = await make(world, overlap="allow")
    one, other = [await world.jobs.run_now(job.id) for _ in range(2)]
    ids = {run.id: guid(Kind.RUN, run.id) for run in (one, other)}
    by_trace = await statuses(world, TraceId=trace_id(one.id))
    by_id = await statuses(world, ScheduleJobStatusId=ids[one.id], TraceId="")
    by_both = await statuses(world, ScheduleJobStatusId=ids[one.id], TraceId=trace_id(one.id))
    assert [[each["ScheduleJobStatusId"] for each in found] for found in (by_trace, by_id, by_both)] == [
        [ids[one.id]]
    ] * 3
    assert await statuses(world, ScheduleJobStatusId=ids[other.id], TraceId=trace_id(one.id)) == []
    assert await statuses(world, TraceId=trace_id(one.id), Page=2) == []


@pytest.mark.parametrize(
    "fields", [{"TraceId": "f" * 32}, {"TraceId": "no trace"}, {"ScheduleJobStatusId": guid(Kind.RUN, 999)},
               {"ScheduleJobStatusId": guid(Kind.JOB, 1)}],
)  # fmt: skip
async def test_a_filter_that_fits_nothing_finds_nothing(world: World, fields: dict[str, str]) -> None:
    await world.jobs.run_now((await make(world)).id)
    assert await statuses(world, **fields) == []


async def test_runs_of_other_organisations_do_not_exist(world: World) -> None:
    foreign = await make(world, org=2)
    run = await world.jobs.run_now(foreign.id)
    assert await statuses(world) == []
    assert await statuses(world, TraceId=trace_id(run.id)) == []
    answer = await world.http.post("/api/v1/job", json={"JobId": job_guid(foreign)})
    assert (answer.status_code, answer.json()["code"]) == (404, 5)


async def test_a_run_of_a_trigger_names_it_and_ends_with_its_moment(world: World) -> None:
    job = await make(world, run_once=True)
    await world.fire()
    [one] = await world.claim("python")
    began = world.clock.now()
    world.clock.advance(1)
    await world.execution.finish([Result(one.run_id, one.fence, State.SUCCEEDED, "", began, world.clock.now(), 0)])
    [status] = await statuses(world)
    assert status["TriggerId"] == guid(Kind.TRIGGER, job.triggers[0].id)
    assert (status["Status"], status["TriggerName"]) == ("Finished", "DownloadRdmCodebooks #1")
    assert status["StartedAt"] == {
        "year": 2027, "month": 1, "day": 15, "hours": 8, "minutes": 0, "seconds": 0, "nanos": 0,
    }  # fmt: skip
    assert status["StatusChangedAt"]["seconds"] == 1
    assert "FailedMessage" not in status


async def test_a_run_of_a_trigger_that_is_gone_is_still_shown(world: World) -> None:
    job = await make(world, run_once=True)
    await world.fire()
    await world.jobs.triggers.delete(job.triggers[0].id)
    [status] = await statuses(world)
    assert "TriggerId" in status
    assert "TriggerName" not in status


async def test_a_run_lost_with_its_agents_is_stale(world: World) -> None:
    job = await make(world)
    await world.jobs.run_now(job.id)
    for _ in range(6):
        [before] = await statuses(world)
        assert before["Status"] == "InProgress"
        await world.claim("python")
        await world.execution.reap(NODE)
    [status] = await statuses(world)
    assert status["Status"] == "Stale"
    assert "died" in status["FailedMessage"]


async def test_moments_that_were_merged_have_no_row_of_their_own(world: World) -> None:
    job = await make(world, schedule="1m")
    world.clock.advance(600)
    await world.fire()
    every = (await world.jobs.list_runs(RunFilter(job_id=job.id))).items
    [status] = await statuses(world)
    merged = next(run for run in every if run.state is State.COALESCED)
    [by_id] = await statuses(world, ScheduleJobStatusId=guid(Kind.RUN, merged.id))
    assert len(every) > 1
    assert by_id["FailedMessage"].endswith(f"see {status['ScheduleJobStatusId']}")


# ── the instance ──


async def test_the_active_instance_is_the_one_that_schedules(world: World) -> None:
    async def asked() -> tuple[bool, str]:
        shown = (await world.http.get("/api/v1/instance-status")).json()
        return shown["IsActiveInstance"], shown["ActiveInstanceName"]

    lease = await world.store.take_lease("leader", "node-2", None)
    assert lease is not None
    assert await asked() == (False, "")
    await world.store.assign_segments(dict.fromkeys(range(100), "node-2"), lease)
    assert await asked() == (False, "node-2")
    await world.store.assign_segments({50: NODE}, lease)
    assert await asked() == (True, NODE)


async def test_the_scheduler_is_told_to_read_its_triggers_again(world: World) -> None:
    watch = world.queue.watch("due")
    answer = await world.http.put("/api/v1/scheduler")
    assert (answer.status_code, answer.json()) == (200, {})
    assert await watch.wait(0)


# ── words and failures ──


def test_every_state_has_a_word_of_the_contract() -> None:
    for state, reason, phase in itertools.product(State, Reason, Phase):
        word = vocabulary.status_word(state, reason, phase)
        assert word in WORDS
        assert (word == "InProgress") == (not state.is_terminal)
        assert (word == "Finished") == (state is State.SUCCEEDED)
        run = Run(1, 1, None, 1, state, reason, 1, 1, 5, "shell", 1, phase=phase, finished_at=2)
        assert vocabulary.status(run, "job", None, "")["Status"] == word


def test_the_words_that_depend_on_the_reason() -> None:
    assert vocabulary.status_word(State.FAILED, Reason.LOST, Phase.RUNNING) == "Stale"
    assert vocabulary.status_word(State.QUEUED, Reason.LOST, Phase.RUNNING) == "InProgress"
    assert vocabulary.status_word(State.SKIPPED, Reason.OVERLAP, Phase.PREPARING) == "FailedBecauseOfLock"
    assert vocabulary.status_word(State.SKIPPED, Reason.MISFIRE, Phase.PREPARING) == "Failed"


def test_nanoseconds_are_nanoseconds() -> None:
    assert vocabulary.date_time(1_800_000_000_123_456)["nanos"] == 123_456_000


def _errors(of: type[Error] = Error) -> list[type[Error]]:
    """Return the tree of errors, without what modules add to it that may be loaded or not."""
    tree = [each for each in of.__subclasses__() if each.__module__ == Error.__module__]
    return [of, *(found for each in tree for found in _errors(each))]


@pytest.mark.parametrize("kind", [each for each in _errors() if each.__init__ is Error.__init__])
def test_every_error_has_a_status_and_a_code_of_grpc(kind: type[Error]) -> None:
    status, code = failures.statuses_of(kind("x"))
    assert 400 <= status < 600
    assert 0 < code <= 16


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Conflict("x"), (400, 9)),
        (Conflict("x", code="E_KEY_TAKEN"), (400, 6)),
        (Stale("x"), (400, 9)),
        (TooLarge("x"), (413, 8)),
        (Unavailable("x"), (503, 14)),
        (Error("x"), (500, 13)),
    ],
)
def test_failures_that_no_request_here_can_provoke_have_their_place_too(
    error: Error, expected: tuple[int, int]
) -> None:
    assert failures.statuses_of(error) == expected


async def test_beyond_loopback_the_password_of_basic_is_a_token(world: World) -> None:
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    _, token = await world.services.access.create("noby", "user", "noby", None)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="http://horae") as far:
        stranger = await far.get("/api/v1/jobs")
        known = await far.get("/api/v1/jobs", auth=("technical-user", token))
    assert (stranger.status_code, stranger.json()["code"]) == (401, 16)
    assert (known.status_code, known.json()) == (200, {"Jobs": []})


async def test_what_other_systems_send_beyond_the_contract_is_ignored(world: World) -> None:
    headers = {"noby-user-id": "3048", "noby-user-ident": "KBUID=A09FK3", "Authorization": "Basic YTph"}
    answer = await world.http.get("/api/v1/jobs?api-version=1.0", headers=headers)
    assert answer.status_code == 200
