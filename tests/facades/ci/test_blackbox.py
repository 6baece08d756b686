"""The CI contract from outside: every request of its document, and what its users expect beside, against a server.

Each test names the rows of docs/reference/contracts.md that it keeps true.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from tests.acceptance.server import Server
from tests.repositories import commit, git

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ci-blackbox")]  # one server for all
DOCUMENT = Path(__file__).parent / "document"
API = "/api/v1"
LIVE = {"SCHEDULED", "RUNNING"}
REPORT = """<testsuite><testcase classname="m" name="good" time="0.5"/>
<testcase classname="m" name="bad"><failure message="1 != 2"/></testcase></testsuite>"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("ci")).start()
    yield server
    server.stop()


def job(run: str = "true", **fields: Any) -> dict[str, Any]:
    return {"name": "build", "run_once": True, "steps": [{"name": "work", "run": run}], **fields}


def send(server: Server, *jobs: Any, status: int = 201, **headers: str) -> Any:
    answer = server.http.post(f"{API}/submit_job", content=json.dumps({"jobs": list(jobs)}), headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


def ended(server: Server, job_id: int) -> Any:
    """Return how a job stands, once its execution is over."""

    def look() -> Any:
        found = server.get(f"{API}/job_status/{job_id}")
        return found if found["last_execution"] and found["status"] not in LIVE else None

    return server.wait_until(look, f"job {job_id} to end")


def built(server: Server, run: str = "true", **fields: Any) -> tuple[int, Any]:
    """Return a job that has run once, and its execution."""
    job_id = send(server, job(run, **fields))["job_id"]
    return job_id, ended(server, job_id)["last_execution"]


def suites(text: str) -> list[tuple[str | None, list[tuple[str | None, bool]]]]:
    """Of a JUnit report: each suite's cases, and whether they failed."""
    return [
        (suite.get("name"), [(case.get("name"), case.find("failure") is not None) for case in suite])
        for suite in ElementTree.fromstring(text)
    ]


# ── the document ──


@pytest.mark.row("ci-submit-yaml", "ci-schedule-five-fields", "ci-run-once", "ci-several-jobs")
def test_the_file_of_the_document_is_taken_as_it_is(server: Server) -> None:
    answer = server.http.post(f"{API}/submit_job", content=(DOCUMENT / "jobs.yaml").read_bytes())
    assert answer.status_code == 201
    made = answer.json()
    assert made["job_id"] == made["job_ids"][0]
    assert [one["name"] for one in made["jobs"]] == ["BuildAndTest", "NightlyCleanup"]
    assert [one["next_execution_time"][11:] for one in made["jobs"]] == ["00:00:00Z", "02:00:00Z"]
    assert {one["reading"] for one in made["jobs"]} == {"five fields: minute hour day month weekday"}
    rows = {row["job_id"]: row for row in server.get(f"{API}/user_jobs", limit=1000)}
    assert [rows[job_id]["is_recurring"] for job_id in made["job_ids"]] == [True, False]
    assert [rows[job_id]["schedule"] for job_id in made["job_ids"]] == ["0 0 * * *", "0 2 * * *"]


@pytest.mark.row("ci-schedule-four-fields", "ci-url-task-format", "ci-priority", "ci-schedule-duration")
def test_the_notes_of_the_document_are_fields_of_the_file(server: Server) -> None:
    made = server.http.post(f"{API}/submit_job", content=(DOCUMENT / "notes.yaml").read_bytes()).json()
    assert made["jobs"][0]["reading"] == "four fields: second minute hour day"
    assert made["jobs"][0]["next_execution_time"].endswith("T02:30:00Z")
    kept = server.get(f"/v1/jobs/{made['job_id']}")
    assert kept["policy"]["priority"] == 8
    assert [step["run"] for step in kept["spec"]["steps"]] == [
        "go mod download", "go build -v ./...", "go test -v ./...",
    ]  # fmt: skip
    table = server.http.post(f"{API}/submit_job", content=(DOCUMENT / "job_table.yaml").read_bytes()).json()
    row = next(row for row in server.get(f"{API}/user_jobs", limit=1000) if row["job_id"] == table["job_id"])
    assert {name: row[name] for name in ("user_id", "is_recurring", "schedule")} == {
        "user_id": "local", "is_recurring": True, "schedule": "1h30m",
    }  # fmt: skip
    assert row["created_time"].endswith("Z")


@pytest.mark.row("ci-history", "ci-status", "ci-last-log", "ci-steps-in-order", "ci-execution-log", "ci-no-schedule")
def test_a_build_runs_its_steps_in_order_until_one_fails(server: Server) -> None:
    steps = [{"name": "one", "run": "echo 1"}, {"name": "two", "run": "echo 2; exit 3"}, {"name": "three", "run": "x"}]
    job_id = send(server, {"name": "b", "run_once": True, "steps": steps})["job_id"]
    status = ended(server, job_id)
    assert (status["status"], status["next_execution_time"]) == ("FAILED", None)
    [row] = server.get(f"{API}/retrieve_history_execution/{job_id}")
    assert row == status["last_execution"]
    assert row["execution_time"] <= row["last_update_time"]
    assert (row["status"], "exit code 3" in row["message"]) == ("FAILED", True)
    log = server.http.get(f"{API}/last_execution_logs/{job_id}")
    assert log.headers["content-type"].startswith("text/plain")
    assert log.text.startswith("── step 1/3 one ──\n1\n── step 2/3 two ──\n2\n")
    assert "step 3/3" not in log.text
    assert server.http.get(row["logs_path"]).text == log.text
    shown = server.http.get(row["logs_path"], params={"format": "json"}).json()
    assert [step["status"] for step in shown["steps"]] == ["SUCCEEDED", "FAILED", "SKIPPED"]


@pytest.mark.row("ci-follow")
def test_a_log_is_followed_to_its_end(server: Server) -> None:
    job_id = send(server, job("echo begun; sleep 1; echo done"))["job_id"]
    server.wait_until(lambda: server.get(f"{API}/retrieve_history_execution/{job_id}"), "the execution")
    log = server.http.get(f"{API}/last_execution_logs/{job_id}", params={"follow": "true"}).text
    assert log.endswith("begun\ndone\n")


@pytest.mark.row("ci-not-at-once")
def test_a_job_is_never_executed_twice_at_the_same_time(server: Server) -> None:
    place = server.directory / "twice"
    line = f"echo begin >> {place}; sleep 1.5; echo end >> {place}"
    job_id = send(server, job(line, schedule="1s", run_once=False))["job_id"]

    def words() -> set[str]:
        rows = server.get(f"{API}/retrieve_history_execution/{job_id}")
        return {row["status"] for row in rows}

    server.wait_until(lambda: {"SKIPPED", "SUCCEEDED"} <= words() and place.read_text().count("end") >= 2, "skips")
    server.http.delete(f"{API}/job/{job_id}")
    lines = place.read_text().split()
    assert lines == (["begin", "end"] * len(lines))[: len(lines)]


@pytest.mark.row("ci-delete")
def test_a_job_is_deleted_and_its_history_stays(server: Server) -> None:
    job_id, row = built(server)
    assert server.http.delete(f"{API}/job/{job_id}").json() == {"job_id": job_id, "status": "DELETED"}
    assert server.get(f"{API}/job_status/{job_id}")["status"] == "DELETED"
    assert server.get(f"{API}/retrieve_history_execution/{job_id}") == [row]


@pytest.mark.row("ci-idempotent")
def test_a_repeat_with_the_same_key_makes_nothing_twice(server: Server) -> None:
    key = {"Idempotency-Key": "black-box"}
    assert send(server, job(), **key)["job_ids"] == send(server, job(), **key)["job_ids"]
    assert send(server, job("false"), status=409, **key)["code"] == "E_IDEMPOTENCY_MISMATCH"


@pytest.mark.row("ci-durable")
def test_jobs_survive_a_server_that_is_killed(tmp_path: Path) -> None:
    server = Server(tmp_path, "--heartbeat-interval", "0.5", "--lease", "3").start()
    job_id = send(server, job("sleep 1"))["job_id"]
    later = send(server, job(schedule="0 0 * * *", run_once=False))["job_id"]
    server.kill()
    server.start()
    assert ended(server, job_id)["status"] == "SUCCEEDED"
    assert server.get(f"{API}/job_status/{later}")["next_execution_time"].endswith("T00:00:00Z")
    server.stop()


# ── the file ──


@pytest.mark.row("ci-file-network", "ci-file-labels", "ci-file-limits", "ci-file-retry", "ci-file-timezone",
                 "ci-file-sandbox")  # fmt: skip
def test_where_and_how_a_build_runs_stands_in_the_file(server: Server) -> None:
    fields = {
        "schedule": "30 2 * * *", "run_once": False, "timezone": "Asia/Tokyo", "sandbox": "bubblewrap",
        "labels": ["linux"], "limits": {"memory": "512MiB"}, "retry": 3, "network": ["pypi.org:443"],
    }  # fmt: skip
    made = send(server, job(**fields))
    assert made["jobs"][0]["next_execution_time"].endswith("T17:30:00Z")
    kept = server.get(f"/v1/jobs/{made['job_id']}")
    assert kept["policy"]["labels"] == ["linux", "sandbox:bubblewrap"]
    assert kept["policy"]["retry"]["attempts"] == 3
    assert {name: kept["spec"][name] for name in ("network", "limits", "sandbox")} == {
        "network": ["pypi.org:443"], "limits": {"memory": 512 << 20}, "sandbox": "bubblewrap",
    }  # fmt: skip
    on = send(server, job(schedule="@daily", run_once=False, network=True))["job_id"]
    assert server.get(f"/v1/jobs/{on}")["spec"]["network"] == "on"
    wrong = send(server, job(sandbox="plain"), status=400)
    assert "never runs on the machine itself" in wrong["message"]


@pytest.mark.row("ci-task-beside-steps", "ci-errors", "ci-schedule-errors")
def test_what_is_wrong_with_a_file_is_told_at_its_fields(server: Server) -> None:
    before = len(server.get(f"{API}/user_jobs", limit=1000))
    wrong = send(server, job(task="test"), job(schedul="5m"), job(schedule="* * *"), status=400)
    assert [(error["path"], error["code"]) for error in wrong["errors"]] == [
        ("jobs[0].task", "E_FIELD_CONFLICT"),
        ("jobs[1].schedul", "E_UNKNOWN_FIELD"),
        ("jobs[2].schedule", "E_CRON_FIELDS"),
    ]
    assert "task stands for steps of a Go package, and steps are there too" in wrong["message"]
    assert "4 fields (second minute hour day), 5 (minute" in wrong["errors"][2]["message"]
    broken = server.http.post(f"{API}/submit_job", content="jobs:\n  - {name: x, schedule: '5m\n")
    assert (broken.status_code, "line 3, column 1" in broken.json()["message"]) == (400, True)
    for path in ("job_status/999999", "retrieve_history_execution/x", "last_execution_logs/0", "execution_logs/99999"):
        answer = server.http.get(f"{API}/{path}")
        assert (answer.status_code, set(answer.json()) >= {"message", "code"}) == (404, True), path
    assert len(server.get(f"{API}/user_jobs", limit=1000)) == before


@pytest.mark.row("ci-multipart")
def test_a_file_is_uploaded_as_that_of_a_form(server: Server) -> None:
    files = {"file": ("jobs.yaml", (DOCUMENT / "job_table.yaml").read_bytes(), "application/yaml")}
    answer = server.http.post(f"{API}/submit_job", files=files, data={"comment": "x"})
    assert answer.status_code == 201, answer.text
    assert [one["name"] for one in answer.json()["jobs"]] == ["143214"]
    cut = {"content-type": "multipart/form-data; boundary=B"}
    wrong = server.http.post(f"{API}/submit_job", content=b"--B\r\n", headers=cut)
    assert (wrong.status_code, "cut off" in wrong.json()["message"]) == (400, True)


@pytest.mark.row("ci-checkout", "ci-short-commit")
def test_a_commit_by_its_first_digits_is_built_without_noise(server: Server) -> None:
    place = server.directory / "repository"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    first = commit(place, {"a": "one"})
    commit(place, {"a": "two"})
    job_id, row = built(server, "cat a", url=f"file://{place}", branch=first[:8])
    log = server.http.get(row["logs_path"]).text
    assert row["status"] == "SUCCEEDED", log
    assert "fatal" not in log
    assert log.endswith("── step 1/1 work ──\none")
    assert server.http.get(f"{API}/last_execution_logs/{job_id}", params={"format": "json"}).json()["commit"] == first


# ── reports, attempts, files ──


@pytest.mark.row("ci-junit-tests", "ci-junit-steps", "ci-junit-never-hides")
def test_junit_has_tests_where_there_are_reports_and_hides_no_failure(server: Server) -> None:
    write = f"cat > r.xml <<'E'\n{REPORT}\nE\n"
    cases = [("good", False), ("bad", True)]
    seen = {}
    for name, run, more in (
        ("both", f"{write}exit 1", {"reports": ["*.xml"]}),
        ("test", write, {"reports": ["*.xml"]}),
        ("step", "exit 1", {"reports": ["*.xml"]}),
        ("none", "true", {}),
    ):
        _, row = built(server, run, format="junit", **more)
        seen[name] = suites(server.http.get(row["logs_path"]).text)
    assert [(suite, sorted(found, reverse=True)) for suite, found in seen["both"]] == [
        ("build tests", cases),
        ("build", [("work", True)]),
    ]
    assert [(suite, sorted(found, reverse=True)) for suite, found in seen["test"]] == [("build tests", cases)]
    assert seen["step"] == [("build", [("work", True)])]
    assert seen["none"] == [("build", [("work", False)])]


@pytest.mark.row("ci-attempts")
def test_every_attempt_stands_in_the_history_with_its_log(server: Server) -> None:
    mark = server.directory / "tried"
    run = f"test -e {mark} && echo second || {{ touch {mark}; echo first; exit 3; }}"
    _, row = built(server, run, retry={"attempts": 2, "backoff": "0s"})
    assert [(one["attempt"], one["status"], one["exit_code"]) for one in row["attempts"]] == [
        (1, "FAILED", 3),
        (2, "SUCCEEDED", 0),
    ]
    logs = [server.http.get(one["logs_path"]).text for one in row["attempts"]]
    assert ["first\n" in logs[0], logs[1].endswith("second\n")] == [True, True]


@pytest.mark.row("ci-artifacts", "ci-artifact-names")
def test_artifacts_are_objects_of_their_own_names_and_come_by_their_addresses(server: Server) -> None:
    make = "mkdir -p dist; printf hello > 'dist/a b.txt'; head -c 600000 /dev/zero > dist/zeros; touch dist/none"
    _, row = built(server, make, artifacts=["dist"])
    assert [(one["path"], one["size"]) for one in row["artifacts"]] == [
        ("dist/a b.txt", 5), ("dist/none", 0), ("dist/zeros", 600_000),
    ]  # fmt: skip
    got = [server.http.get(one["url"]) for one in row["artifacts"]]
    assert [answer.content for answer in got] == [b"hello", b"", bytes(600_000)]
    assert all(one["url"].startswith(f"{API}/artifacts/") for one in row["artifacts"])
    [place] = server.directory.glob(f"data/**/runs/*/{row['execution_id']}/*-artifacts/dist")
    assert {path.name: path.stat().st_size for path in place.iterdir()} == {"a b.txt": 5, "none": 0, "zeros": 600_000}
    missing = server.http.get(f"{API}/artifacts/{row['execution_id']}/dist/other")
    assert (missing.status_code, set(missing.json())) == (404, {"message", "code"})


# ── users ──


@pytest.fixture(scope="module")
def users(server: Server) -> dict[str, dict[str, str]]:
    """What ann, bob and the operator send from elsewhere."""
    return {
        name: {"authorization": f"Bearer {server.post('/v1/tokens', {'name': name}, status=201)['token']}"}
        for name in ("ann", "bob", "local")
    }


@pytest.mark.row("ci-user-jobs")
def test_a_users_jobs_are_listed_by_the_page(server: Server, users: dict[str, dict[str, str]]) -> None:
    ids = [send(server, job(), **users["bob"])["job_id"] for _ in range(5)]
    path: str | None = f"{API}/user_jobs?limit=2"
    pages = []
    while path:
        answer = server.http.get(path, headers=users["bob"])
        pages.append([row["job_id"] for row in answer.json()])
        path = answer.links["next"]["url"] if answer.links else None
    assert [len(page) for page in pages] == [2, 2, 1]
    assert sorted(job_id for page in pages for job_id in page) == ids


@pytest.mark.row("ci-owner", "ci-operator")
def test_ann_alone_and_the_operator_have_what_is_anns(server: Server, users: dict[str, dict[str, str]]) -> None:
    job_id = send(server, job("echo secret > a", artifacts=["a"]), **users["ann"])["job_id"]
    run_id = ended(server, job_id)["last_execution"]["execution_id"]
    reads = [
        f"job_status/{job_id}", f"retrieve_history_execution/{job_id}", f"last_execution_logs/{job_id}",
        f"execution_logs/{run_id}", f"artifacts/{run_id}/a", "user_jobs?user_id=ann",
    ]  # fmt: skip
    for path in reads:
        refused = server.http.get(f"{API}/{path}", headers=users["bob"])
        assert (refused.status_code, refused.json()["code"]) == (403, "E_NOT_OWNER"), path
        for who in ("ann", "local"):
            assert server.http.get(f"{API}/{path}", headers=users[who]).status_code == 200, path
    place = f"{API}/job/{job_id}"
    assert server.http.delete(place, headers=users["bob"]).status_code == 403
    assert server.http.delete(place, headers=users["local"]).status_code == 200


@pytest.mark.row("ci-login", "ci-logout", "ci-not-authenticated")
def test_a_login_opens_a_session_and_a_logout_ends_it(server: Server, users: dict[str, dict[str, str]]) -> None:
    token = users["ann"]["authorization"].removeprefix("Bearer ")
    with httpx.Client(base_url=server.url, timeout=30) as browser:
        assert browser.post(f"{API}/login", json={"token": token}).json() == {"user": "ann"}
        session = browser.cookies["session"]
        assert token not in session
        assert all(row["user_id"] == "ann" for row in browser.get(f"{API}/user_jobs").json())
        assert browser.post(f"{API}/logout").json() == {"user": "ann"}
        assert "session" not in browser.cookies
    kept = {"cookie": f"session={session}"}
    for path in ("user_jobs", "job_status/1"):
        refused = server.http.get(f"{API}/{path}", headers=kept)
        assert (refused.status_code, refused.json()) == (401, {"message": "Not authenticated"})
    assert server.http.get(f"{API}/user_jobs", headers=users["ann"]).status_code == 200
    assert server.http.post(f"{API}/login").json() == {"user": "local"}


# ── addresses that there are not ──


def refusal(server: Server, method: str, path: str, status: int) -> Any:
    answer = server.http.request(method, path)
    assert answer.status_code == status, (path, answer.text)
    assert answer.headers["content-type"] == "application/json"
    assert (status != 405) or answer.headers["allow"]
    return answer.json()


@pytest.mark.row("ci-unknown-route")
def test_unknown_routes_of_the_ci_contract_answer_in_its_shape(server: Server) -> None:
    for method, path, status in (
        ("GET", f"{API}/nothing", 404), ("POST", f"{API}/job_status/1/2", 404), ("GET", f"{API}/submit_job", 405),
        ("PUT", f"{API}/job/1", 405), ("GET", API, 404),
    ):  # fmt: skip
        assert set(refusal(server, method, path, status)) == {"message", "code"}


@pytest.mark.row("lake-unknown-route")
def test_unknown_routes_of_the_lake_contract_answer_in_its_shape(server: Server) -> None:
    for method, path, status in (
        ("GET", "/lake/nothing", 404), ("GET", "/job/1/2/3", 404), ("GET", "/source", 404),
        ("POST", "/history/nothing", 404), ("GET", "/schedule/nothing", 404), ("GET", "/job/create", 405),
    ):  # fmt: skip
        shown = refusal(server, method, path, status)
        assert (set(shown), shown["code"], shown["reason"]) == (
            {"code", "reason", "message"}, status, "not_supported",
        )  # fmt: skip


@pytest.mark.row("rpc-unknown-route")
def test_unknown_routes_of_the_rpc_contract_answer_in_its_shape(server: Server) -> None:
    for method, path, status in (("GET", "/rpc", 405), ("POST", "/rpc/submit_job", 404)):
        shown = refusal(server, method, path, status)
        assert (shown["jsonrpc"], shown["id"], "code" in shown["error"]) == ("2.0", None, True)


@pytest.mark.row("admin-unknown-route")
def test_unknown_routes_of_the_administration_contract_answer_in_its_shape(server: Server) -> None:
    for method, path, status in (
        ("GET", f"{API}/jobs/7", 404), ("PUT", f"{API}/triggers", 405), ("GET", f"{API}/scheduler", 405),
        ("GET", f"{API}/job", 405), ("GET", f"{API}/job-statuses/1", 404),
    ):  # fmt: skip
        assert set(refusal(server, method, path, status)) == {"code", "message", "details"}


@pytest.mark.row("segments-unknown-route")
def test_unknown_routes_of_the_segment_contract_answer_in_its_envelope(server: Server) -> None:
    for method, path, status, word in (
        ("GET", "/api/nothing", 404, "NOT_FOUND"), ("GET", "/api", 404, "NOT_FOUND"),
        ("PATCH", "/api/jobs", 405, "METHOD_NOT_ALLOWED"),
    ):  # fmt: skip
        shown = refusal(server, method, path, status)
        assert (shown["success"], shown["data"], shown["errorCode"]) == (False, None, word)
