"""Projects that are really built and tested: Go by the file of the CI document, Python with a JUnit report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.server import Server
from tests.engines.git_server import commit, serve_git

DOCUMENT = Path(__file__).parents[1] / "facades" / "ci" / "document" / "jobs.yaml"
OFFLINE = {"GOFLAGS": "-mod=mod", "GOPROXY": "off"}
GO = {
    "go.mod": "module example.org/sum\n\ngo 1.19\n",
    "sum.go": "package sum\n\nfunc Sum(a, b int) int { return a + b }\n",
    "cmd/add/main.go": """package main

import (
\t"fmt"

\t"example.org/sum"
)

func main() { fmt.Println(sum.Sum(2, 3)) }
""",
    "sum_test.go": """package sum

import "testing"

func TestSum(t *testing.T) {
\tfor _, name := range []string{"small", "large"} {
\t\tt.Run(name, func(t *testing.T) {
\t\t\tif Sum(1, 2) != 3 {
\t\t\t\tt.Fatal("wrong")
\t\t\t}
\t\t})
\t}
}

func TestLater(t *testing.T) { t.Skip("not yet") }
""",
}
BROKEN = 'package sum\n\nimport "testing"\n\nfunc TestBroken(t *testing.T) { t.Fatal("broken on purpose") }\n'
PYTHON = {
    "package/__init__.py": "def double(x):\n    return 2 * x\n",
    "tests/test_double.py": """import pytest
from package import double


def test_double():
    assert double(2) == 4


def test_wrong():
    assert double(2) == 5


@pytest.mark.skip
def test_later():
    pass
""",
}


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest, need: Callable[..., None]) -> Iterator[Server]:
    if request.param == "bubblewrap":
        need("bwrap")
    server = Server(tmp_path, "--sandbox", request.param).start()
    yield server
    server.stop()


def built(server: Server, job_id: int) -> Any:
    """Return the newest run of a job, once it has ended."""
    run = server.post(f"/v1/jobs/{job_id}/run", status=201)
    return server.wait_until(
        lambda: (found := server.get(f"/v1/runs/{run['id']}"))["finished_at"] is not None and found, "the build", 300
    )


@pytest.mark.parametrize("server", ["plain", "bubblewrap"], indirect=True)
def test_the_file_of_the_ci_document_builds_and_tests_a_go_project(
    need: Callable[..., None], server: Server, tmp_path: Path
) -> None:
    need("git", "go")
    first = commit(tmp_path / "git" / "sum", GO)
    jobs = yaml.safe_load(DOCUMENT.read_text())["jobs"]
    with serve_git(tmp_path / "git") as address:
        cache = [{"key": "go-{hash:go.mod}", "paths": [".cache/go-build"]}]
        job = {**jobs[0], "url": f"{address}/sum", "env": OFFLINE, "cache": cache, "format": "json"}
        made = server.http.post("/api/v1/submit_job", content=yaml.safe_dump({"jobs": [job]}))
        assert made.status_code == 201, made.text
        job_id = made.json()["job_id"]
        run = built(server, job_id)
        log = server.http.get(f"/v1/runs/{run['id']}/log").text
        assert run["state"] == "succeeded", log
        result = run["result"]
        assert result["commit"] == first
        assert [step["name"] for step in result["steps"]] == ["checkout", "Set up Go", "Build", "Test"]
        assert all(step["seconds"] > 0 and step["exit_code"] == 0 for step in result["steps"])
        counts = {name: result["tests"][name] for name in ("passed", "failed", "skipped")}
        assert counts == {"passed": 3, "failed": 0, "skipped": 1}
        assert "--- PASS: TestSum/large" in log

        second = commit(tmp_path / "git" / "sum", {"broken_test.go": BROKEN})
        run = built(server, job_id)
        assert run["state"] == "failed"
        assert run["result"]["caches"][0]["hit"]
        assert run["result"]["commit"] == second
        assert run["result"]["tests"]["failures"] == [{"name": "TestBroken", "message": ""}]
        shown = server.cli("runs", "show", str(run["id"])).stdout
        assert "tests     3 passed, 1 failed, 1 skipped" in shown, shown
        assert f"commit    {second}" in shown
        report = server.http.get(f"/api/v1/last_execution_logs/{job_id}").json()
        assert [step["status"] for step in report["steps"]] == ["SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "FAILED"]
        assert report["tests"]["failed"] == 1

        pinned = {**job, "branch": first, "artifacts": ["add"]}
        pinned["steps"] = [{"name": "Build", "run": "go build ./cmd/add && ./add"}]
        made = server.http.post("/api/v1/submit_job", content=yaml.safe_dump({"jobs": [pinned]}))
        run = built(server, made.json()["job_id"])
        assert (run["state"], run["result"]["commit"]) == ("succeeded", first)
        (row,) = server.get(f"/api/v1/retrieve_history_execution/{run['job_id']}")
        (artifact,) = row["artifacts"]
        assert artifact["path"] == "add"
        binary = server.http.get(artifact["url"])
        assert binary.headers["content-disposition"] == "attachment; filename*=UTF-8''add"
        assert binary.content.startswith(b"\x7fELF")
        assert len(binary.content) == artifact["size"]


@pytest.mark.parametrize("server", ["plain"], indirect=True)  # bubblewrap hides the pytest of this checkout
def test_a_python_project_is_tested_and_its_report_summed_up(
    need: Callable[..., None], server: Server, tmp_path: Path
) -> None:
    need("git")
    first = commit(tmp_path / "git" / "package", PYTHON)
    with serve_git(tmp_path / "git") as address:
        job = {
            "name": "python",
            "checkout": {"url": f"{address}/package", "ref": first[:10]},
            "steps": [{"name": "test", "run": f"{sys.executable} -m pytest --junit-xml=out/junit.xml"}],
            "reports": ["out/*.xml"],
            "artifacts": ["out/**"],
        }  # fmt: skip
        (made,) = server.submit(job)
        run = built(server, made["id"])
    assert (run["state"], run["exit_code"]) == ("failed", 1)
    result = run["result"]
    assert result["commit"] == first
    assert {name: result["tests"][name] for name in ("passed", "failed", "skipped")} == {
        "passed": 1, "failed": 1, "skipped": 1,
    }  # fmt: skip
    (failure,) = result["tests"]["failures"]
    assert failure["name"] == "tests.test_double.test_wrong"
    assert "assert 4 == 5" in failure["message"]
    listed = server.cli("artifacts", str(run["id"])).stdout
    assert "out/junit.xml" in listed
    server.cli("artifacts", str(run["id"]), "out/junit.xml", "--output", "here.xml")
    assert "test_wrong" in (server.directory / "here.xml").read_text()
