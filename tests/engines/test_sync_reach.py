"""The process of a sync connects to nothing that users must not reach, by whatever library, after whatever answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from horae.core.model import Json

from .conftest import need_packages

DEADLINE = 300.0


class Serving:
    """What stands for Horae, and a service that answers, or sends on to it."""

    def __init__(self) -> None:
        calls = self.calls = list[str]()

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                calls.append(self.path)
                self.send_response(302 if other.target and self.path == "/there" else 200)
                self.send_header("Location", other.target)
                body = b'[{"a": 1}]'
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_PUT = do_HEAD = do_GET

            def log_message(self, *_: Any) -> None: ...

        other, self.target = self, ""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.port = self.server.server_port
        Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def both() -> Iterator[tuple[Serving, Serving]]:
    need_packages("dlt")
    horae, service = Serving(), Serving()
    service.target = f"http://127.0.0.1:{horae.port}/v1/jobs"
    yield horae, service
    horae.stop()
    service.stop()


def synced(directory: Path, source: Json, read: Json, reach: Json, *destinations: Json) -> tuple[bool, str]:
    """Return whether it succeeded, and what it said."""
    spec = {
        "source": source, "read": read, "mode": "overwrite",
        "destinations": list(destinations) or [{"type": "files", "path": "x", "format": "parquet"}],
    }  # fmt: skip
    order = {"spec": spec, "cursor": None, "attempt": "1-1", "lake_root": str(directory / "lake"), "clickhouse_url": ""}
    notes, out = os.pipe()
    env = {**os.environ, "HORAE_NOTES": str(out), "DLT_DATA_DIR": str(directory / "dlt"), "HOME": str(directory),
           "RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "CRITICAL"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "horae.executors.sync.program"], cwd=directory, env=env, pass_fds=[out], text=True,
        input=json.dumps({**order, "reach": {"places": [], **reach}}), capture_output=True, timeout=DEADLINE,
        check=False,
    )  # fmt: skip
    os.close(notes)
    os.close(out)
    return done.returncode == 0, done.stdout + done.stderr


PLACES: dict[str, tuple[Json, Json]] = {
    "rest": ({"type": "rest", "url": "http://127.0.0.1:OWN"}, {"path": "v1/jobs"}),
    "rest by name": ({"type": "rest", "url": "http://localhost:OWN"}, {"path": "v1/jobs"}),
    "rest, sent on": ({"type": "rest", "url": "http://127.0.0.1:SERVICE"}, {"path": "there"}),
    "metadata": ({"type": "rest", "url": "http://169.254.169.254"}, {"path": "latest/meta-data"}),
    "database": ({"type": "database", "url": "postgresql://u:p@localhost:OWN/x"}, {"table": "t"}),
    "another database": ({"type": "database", "url": "mysql://u:p@127.0.0.1:OWN/x"}, {"table": "t"}),
    "database, named apart": (
        {"type": "database", "url": "postgresql://u:p@db.example/x?host=127.0.0.1&port=OWN"}, {"table": "t"},
    ),
    "bucket": (
        {"type": "s3", "endpoint": "http://127.0.0.1:OWN", "access_key_id": "a", "secret_access_key": "b"},
        {"path": "bucket/a.csv"},
    ),
    "sheet": ({"type": "sheets", "url": "http://127.0.0.1:OWN"}, {"sheet": "s", "range": "A1:B2"}),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACES)
def test_a_sync_does_not_reach_the_server_itself_nor_the_metadata_of_a_cloud(
    both: tuple[Serving, Serving], tmp_path: Path, case: str
) -> None:
    horae, service = both
    text = json.dumps(PLACES[case]).replace("OWN", str(horae.port)).replace("SERVICE", str(service.port))
    source, read = json.loads(text)
    # The loopback of the machine is allowed: it is the user's own.
    reach = {"ports": [horae.port], "allowed": [["127.0.0.0/8", None], ["::1/128", None]]}
    is_good, said = synced(tmp_path, source, read, reach)

    assert not is_good
    assert "not reached from here" in said or "names its host itself" in said, said
    assert "a retry would not help" in said
    assert horae.calls == []


def test_a_sync_reaches_a_service_on_the_loopback_where_that_is_allowed_and_not_elsewhere(
    both: tuple[Serving, Serving], tmp_path: Path
) -> None:
    horae, service = both
    source, read = {"type": "rest", "url": f"http://127.0.0.1:{service.port}"}, {"path": "here"}
    for name, allowed, expected in (("a", [["127.0.0.1/32", service.port]], True), ("b", [], False)):
        (tmp_path / name).mkdir()
        is_good, said = synced(tmp_path / name, source, read, {"ports": [horae.port], "allowed": allowed})
        assert is_good is expected, said
    assert service.calls == ["/here"]


def test_a_destination_is_judged_like_a_source(both: tuple[Serving, Serving], tmp_path: Path) -> None:
    horae, service = both
    place = {"type": "clickhouse", "url": f"http://127.0.0.1:{horae.port}", "database": "d", "table": "t"}
    source, read = {"type": "rest", "url": f"http://127.0.0.1:{service.port}"}, {"path": "here"}
    reach = {"ports": [horae.port], "allowed": [["127.0.0.0/8", None]]}

    is_good, said = synced(tmp_path, source, read, reach, place)

    assert not is_good
    assert "not reached from here" in said, said
    assert horae.calls == []
