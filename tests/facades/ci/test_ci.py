"""The CI contract: its document replayed, and what each of its routes does."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.contracts.ci import rendering
from horae.core.model import ConcurrencyLimit, Phase, RateLimit, Reason, Run, Standing, State
from horae.core.work.specs import parse_job
from horae.testing import START, make_job
from horae.web import app as web
from tests.facades.world import World

DOCUMENT = Path(__file__).parent / "document"
API = "/api/v1"


async def submit(world: World, text: str | bytes, **headers: str) -> Any:
    answer = await world.http.post(f"{API}/submit_job", content=text, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def get(world: World, path: str, status: int = 200) -> Any:
    answer = await world.http.get(f"{API}/{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


def one(**fields: Any) -> str:
    """Return a file with one job, as YAML (of which JSON is a part)."""
    return json.dumps({"jobs": [{"name": "a", "run_once": True, "steps": [{"run": "true"}], **fields}]})


# ── the document ───────────────────────────────────────────────────────────────────────────────────


async def test_the_file_of_the_document_makes_its_two_jobs(world: World) -> None:
    made = await submit(world, (DOCUMENT / "jobs.yaml").read_bytes())

    assert made["job_id"] == made["job_ids"][0]
    assert len(made["job_ids"]) == 2
    assert [(job["name"], job["next_execution_time"]) for job in made["jobs"]] == [
        ("BuildAndTest", "2027-01-16T00:00:00Z"),
        ("NightlyCleanup", "2027-01-16T02:00:00Z"),
    ]
    build, cleanup = [await world.jobs.get(job_id) for job_id in made["job_ids"]]
    assert [step["run"] for step in build.spec["steps"]] == ["go mod download", "go build -v ./...", "go test -v ./..."]
    assert build.triggers[0].schedule == {"cron": "0 0 * * *"}
    assert cleanup.triggers[0].schedule == {"at": "2027-01-16T02:00:00Z"}


async def test_every_route_of_the_document_answers_with_its_fields(world: World) -> None:
    made = await submit(world, (DOCUMENT / "job_table.yaml").read_bytes())
    world.clock.advance(5400)
    await world.fire()
    await world.work("shell", log=b"\xe2\x94\x80\xe2\x94\x80 step 1/1 step 1 \xe2\x94\x80\xe2\x94\x80\nhello\n")
    shown = {}
    for line in (DOCUMENT / "routes.txt").read_text().splitlines():
        method, path = line.format(job_id=made["job_id"]).split()
        body = (DOCUMENT / "jobs.yaml").read_bytes() if "submit" in path else b""
        answer = await world.http.request(method, path, content=body)
        assert answer.is_success, (line, answer.text)
        shown[path.split("/")[3]] = answer

    assert shown["submit_job"].status_code == 201
    [row] = shown["retrieve_history_execution"].json()
    assert row == {
        "execution_id": row["execution_id"],
        "job_id": made["job_id"],
        "execution_time": "2027-01-15T09:30:00Z",
        "status": "SUCCEEDED",
        "last_update_time": "2027-01-15T09:30:00Z",
        "logs_path": f"/api/v1/execution_logs/{row['execution_id']}",
        "reason": "",
        "message": "",
        "attempts": [
            {
                "attempt": 1, "status": "SUCCEEDED", "start_time": "2027-01-15T09:30:00Z",
                "end_time": "2027-01-15T09:30:00Z", "exit_code": 0, "node": "node-1", "reason": "", "message": "",
                "logs_path": f"/api/v1/execution_logs/{row['execution_id']}?attempt=1",
            }
        ],
        "artifacts": [],
    }  # fmt: skip
    assert shown["last_execution_logs"].text == "── step 1/1 step 1 ──\nhello\n"
    assert shown["last_execution_logs"].headers["content-type"].startswith("text/plain")
    assert (await world.http.get(row["logs_path"])).text.endswith("hello\n")
    assert shown["job_status"].json() == {
        "job_id": made["job_id"],
        "name": "143214",
        "status": "SUCCEEDED",
        "next_execution_time": "2027-01-15T11:00:00Z",
        "last_execution": row,
    }
    assert shown["login"].json() == {"user": "local"}


async def test_the_fields_of_the_notes_are_all_read(world: World) -> None:
    made = await submit(world, (DOCUMENT / "notes.yaml").read_bytes())
    job = await world.jobs.get(made["job_id"])

    assert made["jobs"][0]["reading"] == "four fields: second minute hour day"
    assert made["jobs"][0]["next_execution_time"] == "2027-01-16T02:30:00Z"
    assert job.spec["checkout"] == {"url": "https://example.org/team/package.git", "ref": "main"}
    assert [step["run"] for step in job.spec["steps"]] == ["go mod download", "go build -v ./...", "go test -v ./..."]
    assert job.spec["env"] == {"CGO_ENABLED": "0"}
    assert (job.policy.priority, job.policy.timeout_seconds) == (8, 600)


# ── submitting ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "reading", "next_at"),
    [
        ("30 9 * * *", "five fields: minute hour day month weekday", "2027-01-15T09:30:00Z"),
        ("*/30 * * * * *", "six fields: second minute hour day month weekday", "2027-01-15T08:00:00Z"),
        ("15 30 9 20", "four fields: second minute hour day", "2027-01-20T09:30:15Z"),
        ("1h30m", "a duration: from due moment to due moment", "2027-01-15T09:30:00Z"),
        ("90s", "a duration: from due moment to due moment", "2027-01-15T08:01:30Z"),
        ("@daily", "a macro of cron", "2027-01-16T00:00:00Z"),
    ],
)
async def test_a_schedule_is_read_by_its_form_and_the_answer_says_how(
    world: World, text: str, reading: str, next_at: str
) -> None:
    [job] = (await submit(world, one(schedule=text, run_once=False)))["jobs"]
    assert (job["schedule"], job["reading"], job["next_execution_time"]) == (text, reading, next_at)


async def test_without_a_schedule_a_job_runs_once_now(world: World) -> None:
    [job] = (await submit(world, one()))["jobs"]
    assert (job["schedule"], job["reading"]) == (None, "no schedule: once, now")
    await world.fire()
    await world.work("shell")
    assert (await get(world, f"job_status/{job['job_id']}"))["status"] == "SUCCEEDED"
    assert (await get(world, f"job_status/{job['job_id']}"))["next_execution_time"] is None


async def test_a_list_at_the_root_is_taken_too(world: World) -> None:
    made = await submit(world, "- {name: a, run_once: true, steps: [{run: x}]}\n- {name: b, schedule: 5m, task: build}")
    assert [job["name"] for job in made["jobs"]] == ["a", "b"]
    assert [step["run"] for step in (await world.jobs.get(made["job_ids"][1])).spec["steps"]] == ["go build -v ./..."]


async def test_a_task_beside_steps_is_refused_with_a_sentence(world: World) -> None:
    answer = await world.http.post(f"{API}/submit_job", content=one(task=["test"]))
    assert answer.status_code == 400
    [error] = answer.json()["errors"]
    assert (error["path"], error["code"]) == ("jobs[0].task", "E_FIELD_CONFLICT")
    assert "task stands for steps of a Go package, and steps are there too" in answer.json()["message"]


async def test_where_and_how_a_build_runs_can_be_written_in_the_file(world: World) -> None:
    fields = {
        "schedule": "0 30 2 *", "run_once": False, "timezone": "Europe/Berlin", "sandbox": "bubblewrap",
        "labels": ["linux"], "limits": {"memory": "512MiB", "cpus": 1.5, "pids": 200}, "resources": {"gpu": 1},
        "retry": {"attempts": 3, "backoff": "1s"}, "network": ["pypi.org"],
    }  # fmt: skip
    made = await submit(world, one(**fields))
    job = await world.jobs.get(made["job_id"])

    assert made["jobs"][0]["next_execution_time"] == "2027-01-16T01:30:00Z"
    assert job.policy.labels == ("linux", "sandbox:bubblewrap")
    assert job.policy.resources == (("gpu", 1),)
    assert (job.policy.retry.attempts, job.policy.retry.backoff_seconds) == (3, 1)
    assert job.spec["limits"] == {"memory": 512 << 20, "cpus": 1.5, "pids": 200}
    assert (job.spec["sandbox"], job.spec["network"]) == ("bubblewrap", ["pypi.org:443", "pypi.org:80"])
    assert job.spec["walled"] is True


@pytest.mark.parametrize(
    ("fields", "path", "words"),
    [
        ({"sandbox": "plain"}, "sandbox", "never runs on the machine itself"),
        ({"sandbox": "chroot"}, "sandbox", "one of plain, bubblewrap, docker"),
        ({"schedule": "0 0 0 *", "timezone": "Europe/Nowhere"}, "timezone", "no time zone"),
        ({"timezone": "UTC"}, "timezone", "means nothing without a schedule"),
        ({"labels": ["no blanks"]}, "labels[0]", "letters, digits"),
        ({"limits": {"memory": "1 potato"}}, "limits.memory", "a size expected"),
        ({"retry": 0}, "retry", "1"),
        ({"schedule": "* * *"}, "schedule", "4 fields (second minute hour day)"),
    ],
)
async def test_what_cannot_be_kept_is_told_at_its_field(
    world: World, fields: dict[str, object], path: str, words: str
) -> None:
    answer = await world.http.post(f"{API}/submit_job", content=one(**fields))
    assert answer.status_code == 400
    assert [error["path"] for error in answer.json()["errors"]] == [f"jobs[0].{path}"]
    assert words in answer.json()["message"]
    assert (await world.rows())[0] == 0


@pytest.mark.parametrize(
    ("written", "kept"), [(True, "on"), ("on", "on"), (["proxy.golang.org:443"], ["proxy.golang.org:443"])]
)
async def test_a_build_may_ask_for_the_network(world: World, written: object, kept: object) -> None:
    made = await submit(world, one(network=written))
    assert (await world.jobs.get(made["job_id"])).spec["network"] == kept


async def test_a_network_that_is_none_is_refused_where_it_stands(world: World) -> None:
    answer = await world.http.post(f"{API}/submit_job", content=one(network="sometimes"))
    assert (answer.status_code, "jobs[0].network" in answer.text) == (400, True), answer.text


async def test_a_job_with_an_image_waits_for_an_agent_that_has_containers(world: World) -> None:
    made = await submit(world, one(image="golang:1.22"))
    await world.fire()
    assert await world.claim("shell") == []
    assert (await get(world, f"job_status/{made['job_id']}"))["status"] == "SCHEDULED"


async def test_a_repeat_with_the_same_key_makes_nothing_twice(world: World) -> None:
    first = await submit(world, one(), **{"Idempotency-Key": "k"})
    again = await submit(world, one(), **{"Idempotency-Key": "k"})
    assert first["job_ids"] == again["job_ids"]
    other = await world.http.post(f"{API}/submit_job", content=one(name="b"), headers={"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["code"]) == (409, "E_IDEMPOTENCY_MISMATCH")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jobs:\n  - {name: x, schedule: '5m\n", "line 3, column 1"),
        ("jobs:\n  - name: !!python/object:os.system x\n", "line 2, column 11"),
        ("jobs:\n  - name: x\n    name: y\n", "lines 2 and 3"),
        ("jobs:\n  - *a\n", "line 2, column 5"),
    ],
)
async def test_an_error_in_yaml_says_where_it_stands(world: World, text: str, words: str) -> None:
    answer = await world.http.post(f"{API}/submit_job", content=text)
    assert answer.status_code == 400
    assert words in answer.json()["message"]


async def test_everything_wrong_with_a_file_is_told_at_once_at_its_own_paths(world: World) -> None:
    text = "jobs:\n- {name: a, schedul: 5m, url: 'ext::sh', branch: -x, task: [biuld], format: pdf, timeout: -1}\n- 5\n"
    answer = await world.http.post(f"{API}/submit_job", content=text)
    assert answer.status_code == 400
    assert {(error["path"], error["code"]) for error in answer.json()["errors"]} == {
        ("jobs[0].schedul", "E_UNKNOWN_FIELD"),
        ("jobs[0].schedule", "E_REQUIRED"),
        ("jobs[0].url", "E_PATTERN"),
        ("jobs[0].branch", "E_PATTERN"),
        ("jobs[0].task[0]", "E_ENUM"),
        ("jobs[0].format", "E_ENUM"),
        ("jobs[0].timeout", "E_RANGE"),
        ("jobs[1]", "E_TYPE"),
    }
    assert "did you mean 'schedule'?" in answer.json()["message"]
    assert (await world.rows())[0] == 0


async def test_paths_of_a_list_at_the_root_begin_with_the_index(world: World) -> None:
    answer = await world.http.post(f"{API}/submit_job", content="- {name: a, schedule: 61 * * * *, steps: [{run: x}]}")
    assert [error["path"] for error in answer.json()["errors"]] == ["[0].schedule"]


async def test_what_would_break_isolation_is_forbidden(world: World) -> None:
    answer = await world.http.post(f"{API}/submit_job", content=one(privileged=True))
    assert (answer.status_code, answer.json()["code"]) == (403, "E_POLICY")


# ── executions ─────────────────────────────────────────────────────────────────────────────────────


async def test_history_has_every_moment_skipped_and_coalesced_ones_too(world: World) -> None:
    job_id = (await submit(world, one(schedule="1m", run_once=False)))["job_id"]
    world.clock.advance(60)
    await world.fire()
    [running] = await world.claim("shell")
    world.clock.advance(60)
    await world.fire()
    world.clock.advance(180)
    await world.fire()

    rows = await get(world, f"retrieve_history_execution/{job_id}")
    words = {row["execution_time"][11:16]: row["status"] for row in rows}
    assert words == {
        "08:01": "RUNNING",
        "08:02": "SKIPPED",
        "08:03": "COALESCED",
        "08:04": "COALESCED",
        "08:05": "SKIPPED",
    }
    assert {row["logs_path"] for row in rows if row["status"] != "RUNNING"} == {None}
    assert (await get(world, f"job_status/{job_id}"))["last_execution"]["execution_id"] == running.run_id


async def test_history_is_paged_by_link(world: World) -> None:
    job_id = (await submit(world, one(schedule="1m", run_once=False)))["job_id"]
    for _ in range(3):
        world.clock.advance(60)
        await world.fire()
        await world.work("shell")
    path: str | None = f"{API}/retrieve_history_execution/{job_id}?limit=2"
    seen = []
    while path:
        answer = await world.http.get(path)
        seen.append([row["execution_time"][11:16] for row in answer.json()])
        path = answer.links["next"]["url"] if answer.links else None
    assert seen == [["08:03", "08:02"], ["08:01"]]


async def test_before_the_first_execution_there_is_no_log(world: World) -> None:
    job_id = (await submit(world, one(schedule="1h", run_once=False)))["job_id"]
    assert "has not run yet" in (await get(world, f"last_execution_logs/{job_id}", 404))["message"]
    assert await get(world, f"retrieve_history_execution/{job_id}") == []


async def test_while_an_execution_waits_the_last_log_is_the_one_before(world: World) -> None:
    job_id = (await submit(world, one(schedule="1m", run_once=False)))["job_id"]
    for log in (b"first\n", b""):
        world.clock.advance(60)
        await world.fire()
        if log:
            await world.work("shell", log=log)
    answer = await world.http.get(f"{API}/last_execution_logs/{job_id}")
    assert answer.text == "first\n"


async def test_a_long_log_is_sent_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.contracts.ci.executions.PIECE", 1000)
    log = b"".join(b"line %d\n" % n for n in range(1000))
    job_id = (await submit(world, one()))["job_id"]
    await world.fire()
    await world.work("shell", log=log)
    answer = await world.http.get(f"{API}/last_execution_logs/{job_id}")
    assert answer.content == log
    assert world.gate.streams.taken == 0


async def test_a_followed_log_ends_with_its_execution(world: World) -> None:
    job_id = (await submit(world, one()))["job_id"]
    await world.fire()
    following = asyncio.create_task(world.http.get(f"{API}/last_execution_logs/{job_id}?follow=true"))
    await asyncio.sleep(0)
    await world.work("shell", log=b"grown\n")
    answer = await following
    assert (answer.text, answer.headers["content-type"]) == ("grown\n", "text/plain; charset=utf-8")
    assert world.gate.streams.taken == 0


async def test_a_job_asks_for_the_form_of_its_report_and_a_request_may_ask_for_another(world: World) -> None:
    job_id = (await submit(world, one(format="json")))["job_id"]
    await world.fire()
    [run] = await world.work("shell", log="── step 1/1 step 1 ──\nout\n".encode())
    path = f"{API}/last_execution_logs/{job_id}"
    assert (await world.http.get(path)).json() == {
        "job_id": job_id,
        "execution_id": run.id,
        "status": "SUCCEEDED",
        "steps": [{"name": "step 1", "status": "SUCCEEDED", "seconds": None, "log": "out\n"}],
    }
    xml = await world.http.get(path, params={"format": "junit"})
    assert xml.headers["content-type"].startswith("application/xml")
    assert ElementTree.fromstring(xml.text).find("testsuite/testcase/system-out").text == "out\n"  # type: ignore[union-attr]
    assert (await world.http.get(path, params={"format": "text"})).text.endswith("out\n")


async def test_a_deleted_job_is_told_so_and_keeps_its_history(world: World) -> None:
    job_id = (await submit(world, one()))["job_id"]
    await world.fire()
    await world.work("shell", log=b"kept\n")
    gone = await world.http.delete(f"{API}/job/{job_id}")
    assert (gone.status_code, gone.json()) == (200, {"job_id": job_id, "status": "DELETED"})
    assert (await get(world, f"job_status/{job_id}"))["status"] == "DELETED"
    assert len(await get(world, f"retrieve_history_execution/{job_id}")) == 1
    assert (await world.http.get(f"{API}/last_execution_logs/{job_id}")).text == "kept\n"
    assert (await world.http.delete(f"{API}/job/{job_id}")).status_code == 404


async def test_jobs_of_another_organisation_do_not_exist(world: World) -> None:
    draft = parse_job({"name": "theirs", "run_once": True, "steps": [{"run": "x"}]})
    [job] = (await world.jobs.submit([draft], owner="ann", org=2)).jobs
    await world.fire()
    [run] = await world.work("shell", log=b"secret")
    for path in ("job_status", "retrieve_history_execution", "last_execution_logs"):
        await get(world, f"{path}/{job.id}", 404)
    await get(world, f"execution_logs/{run.id}", 404)
    assert (await world.http.delete(f"{API}/job/{job.id}")).status_code == 404
    assert (await world.jobs.get(job.id)).deleted_at is None


async def test_a_job_of_another_interface_is_shown_with_sensible_words(world: World) -> None:
    native = {"name": "n", "handler": "horae.handlers:noop", "annotations": {"ci": ["not", "ours"]}}
    job_id = (await world.http.post("/v1/jobs", json=native)).json()["jobs"][0]["id"]
    assert (await get(world, f"job_status/{job_id}"))["status"] == "IDLE"
    await world.http.post(f"/v1/jobs/{job_id}/run")
    await world.work("python", State.FAILED, message="it broke", log=b"trace\n")
    assert (await world.http.get(f"{API}/last_execution_logs/{job_id}")).text == "trace\n"
    report = (await world.http.get(f"{API}/last_execution_logs/{job_id}?format=json")).json()
    assert report["steps"] == [{"name": "n", "status": "FAILED", "seconds": None, "log": "trace\n"}]


# ── words ──────────────────────────────────────────────────────────────────────────────────────────


def test_every_run_has_a_word() -> None:
    job = make_job()
    for state, reason, phase in itertools.product(State, Reason, Phase):
        run = Run(1, 1, None, START, state, reason, 1, 1, 5, "shell", START, phase=phase)
        word = rendering.execution(run)["status"]
        assert word in WORDS
        assert rendering.status(job, Standing(run, None), [])["status"] == word


WORDS = {"SCHEDULED", "RUNNING", "SUCCEEDED", "FAILED", "TIMEOUT", "CANCELLED", "SKIPPED", "COALESCED"}


# ── login ──────────────────────────────────────────────────────────────────────────────────────────


async def test_on_loopback_nobody_needs_a_token_but_a_wrong_one_of_ours_is_refused(world: World) -> None:
    for body in (b"", b"{}", b'{"token": "auth0|abc"}'):
        answer = await world.http.post(f"{API}/login", content=body)
        assert (answer.status_code, answer.json()) == (200, {"user": "local"})
        assert "set-cookie" not in answer.headers
    wrong = await world.http.post(f"{API}/login", json={"token": f"horae_u_1_{'x' * 43}"})
    assert (wrong.status_code, wrong.json()) == (401, {"message": "Not authenticated"})


@pytest.mark.parametrize("form", ["json", "data"])
async def test_a_login_gives_a_cookie_that_opens_the_other_routes(world: World, form: str) -> None:
    _, token = await world.services.access.create("ci", "user", "ann", None)
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="https://ci.example.org") as far:
        for method, path in (("POST", "submit_job"), ("GET", "job_status/1"), ("DELETE", "job/1")):
            refused = await far.request(method, f"{API}/{path}", content=one())
            assert (refused.status_code, refused.json()) == (401, {"message": "Not authenticated"})
        assert (await far.post(f"{API}/login")).status_code == 401
        assert (await far.post(f"{API}/login", **{form: {"token": token[:-1] + "_"}})).status_code == 401
        answer = await far.post(f"{API}/login", **{form: {"token": token}})
        assert (answer.status_code, answer.json()) == (200, {"user": "ann"})
        cookie, _, flags = answer.headers["set-cookie"].partition(";")
        assert re.fullmatch(r"session=horae_s_1_[\w-]{43}", cookie)
        assert flags == " Max-Age=86400; HttpOnly; SameSite=Strict; Path=/; Secure"
        assert token[-43:] not in answer.headers["set-cookie"]
        made = await far.post(f"{API}/submit_job", content=one())
        assert made.status_code == 201
        stolen = {"authorization": f"Bearer {cookie.removeprefix('session=')}"}
        assert (await far.get("/v1/jobs", headers=stolen)).status_code == 401
        far.cookies.set("session", "horae_u_9_stale")
        assert (await far.post(f"{API}/login", **{form: {"token": token}})).status_code == 200
        await world.services.access.revoke(1)
        assert (await far.get(f"{API}/job_status/{made.json()['job_id']}")).status_code == 401
    assert (await world.jobs.get(made.json()["job_id"])).owner == "ann"


async def test_a_file_may_name_a_queue(world: World) -> None:
    await world.jobs.queues.put("builds", {})
    made = await submit(world, one(queue="builds", labels=["linux"]))
    job = await world.jobs.get(made["job_id"])
    assert (job.policy.queue, job.policy.labels[0]) == ("builds", "linux")


async def test_a_file_may_name_limits(world: World) -> None:
    limits = {"rate_limits": [{"rate": "10/h", "burst": 2}], "concurrency_limits": [{"limit": 1, "per": "owner"}]}
    made = await submit(world, one(**limits))
    job = await world.jobs.get(made["job_id"])
    assert (job.policy.rate_limits, job.policy.concurrency_limits) == (
        (RateLimit("10/h", 2),), (ConcurrencyLimit(1, "owner"),)
    )  # fmt: skip


async def test_wrong_limits_of_a_file_are_told_where_they_stand(world: World) -> None:
    answer = await world.http.post(f"{API}/submit_job", content=one(rate_limits=[{"rate": "often"}]))
    assert answer.status_code == 400
    assert "jobs[0].rate_limits[0].rate" in answer.text


async def test_a_file_that_names_a_queue_that_is_not_there_is_refused(world: World) -> None:
    answer = await world.http.post(f"{API}/submit_job", content=one(queue="biulds"))
    assert answer.status_code == 400
    assert "there is no queue 'biulds'" in answer.text
