"""The bad-input catalogue against a real server: the right status, a stable code, a sentence that helps, and
nothing half done. The parsers have their own, longer tables; this one goes in through the door."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from .server import Server

pytestmark = pytest.mark.xdist_group("bad-input")  # one server for all that is refused
YAML, JSON = "application/yaml", "application/json"


def job(**fields: object) -> str:
    return json.dumps({"name": "x", "steps": [{"run": "true"}], **fields})


# id, content type, body, status, code, words of the message
SUBMITS = [
    ("A01", YAML, "", 400, "E_BODY_EMPTY", "empty"),
    ("A03", YAML, "null", 422, "E_TYPE", "mapping"),
    ("A05", YAML, "hello", 422, "E_TYPE", "mapping"),
    ("A07", YAML, 'name: "x', 400, "E_YAML_SYNTAX", "line"),
    ("A09", YAML, "name: a\nsteps: []\nname: b", 422, "E_DUP_KEY", "name"),
    ("A11", YAML, "name: a\n---\nname: b", 422, "E_MULTI_DOC", "one"),
    ("A13", YAML, "name: !!python/name:os.system", 422, "E_YAML_TAG", "tag"),
    ("A15", YAML, "name: !!binary aGk=", 422, "E_YAML_TAG", "tag"),
    ("A17", YAML, "a: &a [*a]", 422, "E_YAML_ALIAS", ""),
    ("A19", YAML, "#" * (1024 * 1024 + 1), 413, "E_TOO_LARGE", "1"),
    ("A21", JSON, json.dumps({"jobs": [{"name": "x", "steps": [{"run": "true"}]}] * 10_001}), 422, "E_LIMIT", "10000"),
    ("A23", YAML, b"name: \xff", 400, "E_ENCODING", ""),
    ("A25", JSON, job(name="\x1b[31mred"), 422, "E_CHAR", ""),
    ("A27", JSON, '{"steps": [{"run": "true"}]}', 422, "E_REQUIRED", "name"),
    ("A29", JSON, job(name="n" * 10_000), 422, "E_LEN", "128"),
    ("A31", JSON, job(name="-rf"), 422, "E_PATTERN", "dash"),
    ("A33", YAML, "name: yes\nsteps: [{run: 'true'}]", 422, "E_TYPE", "quote"),
    ("A35", YAML, "jobs: {}", 422, "E_TYPE", "jobs"),
    ("A37", YAML, "jobs: [foo]", 422, "E_TYPE", "jobs[0]"),
    ("A39", JSON, job(run_once=False), 422, "E_REQUIRED", "schedule"),
    ("A41", JSON, job(schedule=["a", "b"]), 422, "E_TYPE", "schedule"),
    ("A43", YAML, "name: x\nsteps: [{run: 'true'}]\nschedule: 2024-02-24", 422, "E_TYPE", "quote"),
    ("A47", JSON, '{"name": "x"}', 422, "E_REQUIRED", "steps"),
    ("A49", JSON, job(steps=[{"run": "true"}] * 201), 422, "E_LIMIT", "200"),
    ("A51", JSON, job(steps=[{"run": ""}]), 422, "E_EMPTY", "run"),
    ("A53", JSON, job(steps=[{"run": "x" * 65_537}]), 422, "E_LEN", "run"),
    ("A55", JSON, job(steps=[{"name": "a", "run": "true"}] * 2), 422, "E_DUP_NAME", "a"),
    ("A57", JSON, job(env={"A": {"b": 1}}), 422, "E_TYPE", "env"),
    ("A59", JSON, job(env={"A": "x" * 131_072}), 422, "E_LIMIT", "env"),
    ("A61", YAML, "name: x\nsteps: [{run: 'true'}]\ntimeout: .nan", 422, "E_RANGE", "timeout"),
    ("A63", JSON, job(priority=11), 422, "E_ENUM", "0"),
    ("A67", JSON, job(privileged=True), 403, "E_POLICY", "privileged"),
    ("A69", JSON, job(network="host"), 403, "E_POLICY", "network"),
    ("A71", JSON, job(concurrency="sometimes"), 422, "E_ENUM", "forbid"),
    ("A73", "image/png", "x", 415, "E_MEDIA_TYPE", ""),
    ("B01", JSON, job(triggers=[{"cron": ""}]), 422, "E_CRON_EMPTY", "cron"),
    ("B03", JSON, job(schedule="0 0 2 *"), 422, "E_CRON_FIELDS", "5"),
    ("B05", JSON, job(schedule="60 * * * *"), 422, "E_CRON_RANGE", "0-59"),
    ("B13", JSON, job(schedule="*/0 * * * *"), 422, "E_CRON_STEP", "step"),
    ("B17", JSON, job(schedule="1,,2 * * * *"), 422, "E_CRON_SYNTAX", ""),
    ("B23", JSON, job(schedule="* * * * MOO"), 422, "E_CRON_SYNTAX", "MOO"),
    ("B25", JSON, job(schedule="0 0 31 4 *"), 422, "E_CRON_NEVER", ""),
    ("B29", JSON, job(schedule="@reboot"), 422, "E_CRON_UNSUPPORTED", "reboot"),
    ("B31", JSON, job(schedule="@every -1m"), 422, "E_INTERVAL_SYNTAX", ""),
    ("B33", JSON, job(schedule="@every 400000h"), 422, "E_INTERVAL_RANGE", "366"),
    ("B39", JSON, job(schedule="０ 0 * * *"), 422, "E_CRON_SYNTAX", ""),
    ("B47", JSON, job(schedule="@daily", timezone="Mars/Phobos"), 422, "E_TZ_UNKNOWN", "Mars"),
    ("B49", JSON, job(schedule="@daily", timezone="../../etc/passwd"), 422, "E_TZ_UNKNOWN", ""),
    ("B51", JSON, job(schedule="@daily", timezone=2), 422, "E_TYPE", "timezone"),
    ("B53", JSON, job(schedule="@daily", timezone="CST"), 422, "E_TZ_AMBIGUOUS", "CST"),
    ("B59", JSON, job(run_at="2024-02-30T00:00:00Z"), 422, "E_TIME_SYNTAX", "February"),
    ("B61", JSON, job(run_at="2024-12-31T10:00:00"), 422, "E_TIME_NO_OFFSET", "Z"),
    ("B65", JSON, job(triggers=[{"cron": "@daily", "start_at": "2030-01-02T00:00:00Z",
                                 "end_at": "2030-01-01T00:00:00Z"}]), 422, "E_FIELD_CONFLICT", ""),
    ("B69", JSON, job(triggers=[{"every": "1m", "jitter": "1m"}]), 422, "E_RANGE", "jitter"),
    ("B71", JSON, job(misfire={"policy": "run_all", "limit": -1}), 422, "E_RANGE", "1000"),
    ("C01", JSON, "{", 400, "E_JSON_SYNTAX", "line"),
    ("C03", JSON, '{"name": NaN}', 400, "E_JSON_SYNTAX", ""),
    ("C05", JSON, "[]", 422, "E_EMPTY", ""),
    ("C07", JSON, "[" * 100_000, 400, "E_DEPTH", ""),
    ("C09", JSON, '{"name": "\\ud800"}', 422, "E_CHAR", ""),
    ("C13", JSON, job(priority="1"), 422, "E_ENUM", ""),
    ("C51", "text/plain", job(), 415, "E_MEDIA_TYPE", ""),
    ("unknown field", JSON, job(shedule="@daily"), 422, "E_UNKNOWN_FIELD", "shedule"),
]  # fmt: skip


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has nothing, and is to have nothing afterwards."""
    running = Server(tmp_path_factory.mktemp("empty")).start()
    yield running
    left = running.get("/v1/jobs")["items"]
    running.stop()
    assert left == []


def test_every_bad_submit_is_refused_with_its_code_and_leaves_nothing(empty: Server):
    wrong = []
    for case, kind, body, status, code, words in SUBMITS:
        content = body if isinstance(body, bytes) else body.encode()
        answer = empty.http.post("/v1/jobs", content=content, headers={"Content-Type": kind})
        shown = answer.json()
        told = json.dumps(shown, ensure_ascii=False)
        if (answer.status_code, shown["code"]) != (status, code) or words.lower() not in told.lower():
            wrong.append((case, answer.status_code, told[:200]))
        assert answer.headers["content-type"] == "application/problem+json", case
        assert len(answer.content) < 20_000, case

    assert wrong == []
    assert empty.get("/v1/jobs")["items"] == []


def test_the_same_mistakes_are_told_by_the_command_line(empty: Server, tmp_path: Path):
    file = tmp_path / "bad.yaml"
    file.write_text("name: x\nsteps: [{run: 'true'}]\nschedule: '60 * * * *'\n")

    submitted = empty.cli("submit", str(file), check=False)
    checked = empty.cli("check", str(file), check=False)

    for done in (submitted, checked):
        assert done.returncode == 2
        assert "E_CRON_RANGE" in done.stderr + done.stdout
        assert "Traceback" not in done.stderr
    assert empty.get("/v1/jobs")["items"] == []


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/jobs/%00", 404, "E_NOT_FOUND"),
        ("GET", "/v1/jobs/%2e%2e%2f", 404, "E_NOT_FOUND"),
        ("GET", "/v1/jobs/99999999999999999999", 404, "E_NOT_FOUND"),
        ("GET", "/v1/runs/1", 404, "E_NOT_FOUND"),
        ("DELETE", "/v1/jobs/1", 404, "E_NOT_FOUND"),
        ("POST", "/v1/jobs/1/run", 404, "E_NOT_FOUND"),
        ("GET", "/v1/jobs?stauts=x", 422, "E_UNKNOWN_PARAM"),
        ("GET", "/v1/jobs?limit=0", 422, "E_RANGE"),
        ("GET", "/v1/jobs?cursor=%27;drop", 422, "E_PATTERN"),
        ("GET", "/v1/runs?state=sideways", 422, "E_ENUM"),
        ("GET", "/v1/runs?due_from=2027-01-01T00:00:00Z&due_until=2026-01-01T00:00:00Z", 422, "E_RANGE"),
        ("GET", "/nothing/here", 404, "E_NOT_FOUND"),
        ("PATCH", "/v1/jobs", 405, "E_METHOD"),
    ],
)
def test_a_bad_address_is_told_what_is_wrong(empty: Server, method: str, path: str, status: int, code: str):
    answer = empty.http.request(method, path, json={} if method == "POST" else None)

    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_states_that_forbid_it_say_so(server: Server):
    (made,) = server.submit({"name": "x", "steps": [{"run": "true"}]})
    path = f"/v1/jobs/{made['id']}"
    run = server.ended(server.post(f"{path}/run", status=201)["id"])

    def code(answer: httpx.Response) -> tuple[int, str]:
        return answer.status_code, answer.json()["code"]

    assert code(server.http.post(f"/v1/runs/{run['id']}/cancel")) == (409, "E_TERMINAL")
    body = {"name": "y", "steps": [{"run": "true"}]}
    assert code(server.http.put(path, json=body, headers={"If-Match": '"9"'})) == (412, "E_VERSION_CONFLICT")
    server.post(f"{path}/pause")
    assert code(server.http.post(f"{path}/run", json={})) == (409, "E_PAUSED")
    key = {"Idempotency-Key": "once"}
    first = server.http.post("/v1/jobs", json=body, headers=key).json()["jobs"][0]["id"]
    assert server.http.post("/v1/jobs", json=body, headers=key).json()["jobs"][0]["id"] == first
    other = server.http.post("/v1/jobs", json={**body, "name": "z"}, headers=key)
    assert code(other) == (409, "E_IDEMPOTENCY_MISMATCH")
    assert server.http.delete(path).status_code == 204
    assert code(server.http.delete(path)) == (404, "E_NOT_FOUND")
