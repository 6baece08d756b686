"""Builds of the CI contract with real engines: packages through the walls of bubblewrap, artifacts in a bucket."""

from __future__ import annotations

import io
import json
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.server import Server
from tests.engines.git_server import commit, serve_git
from tests.engines.s3_server import S3

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("data")]
DEPENDENCY = "example.org/greeting"
PROJECT = {
    "go.mod": f"module example.org/hello\n\ngo 1.19\n\nrequire {DEPENDENCY} v1.0.0\n",
    "main.go": f'package main\n\nimport "{DEPENDENCY}"\n\nfunc main() {{ println(greeting.Text) }}\n',
}


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[str]:
    """host:port of a server that speaks the protocol of Go's module proxies, with one module."""
    place = tmp_path / "proxy" / DEPENDENCY / "@v"
    place.mkdir(parents=True)
    module = f"module {DEPENDENCY}\n\ngo 1.19\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in (("go.mod", module), ("g.go", 'package greeting\n\nconst Text = "from afar"\n')):
            archive.writestr(f"{DEPENDENCY}@v1.0.0/{name}", text)
    (place / "list").write_text("v1.0.0\n")
    (place / "v1.0.0.info").write_text(json.dumps({"Version": "v1.0.0", "Time": "2024-02-24T21:09:02Z"}))
    (place / "v1.0.0.mod").write_text(module)
    (place / "v1.0.0.zip").write_bytes(packed.getvalue())
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "proxy"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{service.server_port}"
        service.shutdown()


def built(server: Server, job: dict[str, Any]) -> tuple[Any, str]:
    """Return the execution of a job, once it has ended, and its log."""
    made = server.http.post("/api/v1/submit_job", content=json.dumps({"jobs": [{"run_once": True, **job}]}))
    assert made.status_code == 201, made.text
    path = f"/api/v1/retrieve_history_execution/{made.json()['job_id']}"

    def look() -> Any:
        rows = server.get(path)
        return rows[0] if rows and rows[0]["status"] not in ("SCHEDULED", "RUNNING") else None

    row = server.wait_until(look, "the build", 300)
    return row, server.http.get(row["logs_path"], params={"format": "text"}).text


@pytest.mark.row("ci-packages")
def test_a_build_that_needs_packages_is_built_with_a_network_and_told_the_default_without(
    need: Callable[..., None], tmp_path: Path, proxy: str
) -> None:
    need("git", "go", "bwrap")
    commit(tmp_path / "git" / "hello", PROJECT)
    server = Server(tmp_path, "--sandbox", "bubblewrap", "--allowed-networks", "127.0.0.0/8").start()
    env = {"GOPROXY": f"http://{proxy}", "GOSUMDB": "off", "GOFLAGS": "-mod=mod"}
    run = [{"name": "Build", "run": "go build -o hello . && ./hello"}]
    try:
        with serve_git(tmp_path / "git") as address:
            job = {"name": "hello", "url": f"{address}/hello", "env": env, "steps": run, "artifacts": ["hello"]}
            row, log = built(server, {**job, "network": [proxy]})
            assert row["status"] == "SUCCEEDED", log
            assert log.count("from afar") == 1
            assert [one["path"] for one in row["artifacts"]] == ["hello"]
            row, log = built(server, job)
            assert row["status"] == "FAILED"
            assert "127.0.0.1 is the sandbox itself" in row["message"], log
            assert f"add to the job `network: [{proxy}]`" in log
    finally:
        server.stop()


def test_artifacts_lie_in_the_bucket_by_their_names(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.store("outputs")
    for name, value in s3.environment.items():
        if name.endswith(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")):
            monkeypatch.setenv(name, value)
    place = f"ci-{time.time_ns()}"
    server = Server(tmp_path, "--files", f"s3://outputs/{place}", "--files-endpoint", s3.endpoint).start()
    try:
        make = "mkdir -p dist/sub; printf hello > 'dist/a b.txt'; head -c 700000 /dev/zero > dist/sub/zeros"
        row, log = built(server, {"name": "keep", "steps": [{"run": make}], "artifacts": ["dist"]})
        assert row["status"] == "SUCCEEDED", log
        kept = {
            name.partition("-artifacts/")[2]: content
            for name, content in s3.files("outputs", place).items()
            if "-artifacts/" in name
        }
        assert kept == {"dist/a b.txt": b"hello", "dist/sub/zeros": bytes(700_000)}
        assert not [name for name in s3.files("outputs", place) if "-files/" in name]
        assert [server.http.get(one["url"]).content for one in row["artifacts"]] == list(kept.values())
    finally:
        server.stop()
