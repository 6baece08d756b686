"""Jobs of kind http on a real server and a real agent elsewhere, against a server of the test's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from .agent import AgentProcess
from .server import Server

pytestmark = pytest.mark.slow
CANARY = "sesame-4711-open"


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: list[dict[str, Any]]
    busy: int  # answers that ask to come again
    hangs: threading.Event

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append({"path": self.path, "headers": dict(self.headers), "body": body})
        if self.path == "/hang":
            self.hangs.set()
            self.rfile.read(1)  # until the other side goes
            return
        if self.path == "/busy" and len(self.asked) <= self.busy:
            self._say(429, b"come again", Retry_After="0")
        else:
            self._say(200, json.dumps({"token": self.headers["Authorization"], "got": body.decode()}).encode())

    def _say(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def shop() -> Iterator[tuple[type[Shop], str]]:
    handler = type("Shop", (Shop,), {"asked": [], "busy": 0, "hangs": threading.Event()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def started(server: Server, job: Any, data: Any = None) -> Any:
    (made,) = server.submit(job)
    return server.post(f"/v1/jobs/{made['id']}/run", {"data": data} if data else None, status=201)["id"]


def test_a_request_with_data_and_a_secret_by_the_one_user_of_a_server(server: Server, shop: tuple[type[Shop], str]):
    handler, url = shop
    server.cli("secret", "set", "TOKEN", input=f"{CANARY}\n")
    http = {"url": f"{url}/orders", "method": "POST", "headers": {"Authorization": "Bearer ${secret.TOKEN}"}}

    run = server.ended(started(server, {"name": "order", "http": http}, {"order": 7}))

    assert (run["state"], run["message"]) == ("succeeded", "")
    assert run["result"]["json"] == {"token": "Bearer ***", "got": '{"order":7}'}
    [asked] = handler.asked
    assert asked["headers"]["Authorization"] == f"Bearer {CANARY}"
    assert asked["headers"]["X-Horae-Run-Id"] == str(run["id"])
    log = server.http.get(f"/v1/runs/{run['id']}/log").text
    assert "200 OK" in log
    assert CANARY not in log + server.http.get("/v1/jobs").text + json.dumps(run)


def test_a_server_that_asks_to_wait_is_asked_again_with_the_same_key(server: Server, shop: tuple[type[Shop], str]):
    handler, url = shop
    handler.busy = 2
    job = {"name": "n", "http": {"url": f"{url}/busy", "method": "POST"}, "retry": {"attempts": 5, "backoff": "1h"}}

    run = server.ended(started(server, job))

    assert (run["state"], run["attempt"]) == ("succeeded", 3)
    assert len({asked["headers"]["Idempotency-Key"] for asked in handler.asked}) == 1
    assert [asked["headers"]["X-Horae-Attempt"] for asked in handler.asked] == ["1", "2", "3"]


def test_a_request_under_way_can_be_cancelled(server: Server, shop: tuple[type[Shop], str]):
    handler, url = shop
    run_id = started(server, {"name": "n", "http": {"url": f"{url}/hang", "body": "x"}})
    assert handler.hangs.wait(60)
    server.cli("cancel", str(run_id))

    run = server.ended(run_id)
    assert (run["state"], "waiting for the answer" in run["message"]) == ("cancelled", True)


def test_what_is_wrong_with_a_request_is_told_at_submit(server: Server):
    answer = server.http.post("/v1/jobs", json={"name": "n", "http": {"url": "https://ann:word@example.org/"}})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "http.url")
    assert "word" not in answer.text.replace("password", "")


def test_a_job_that_comes_back_as_it_was_shown_is_no_change(server: Server):
    http = {"url": "https://example.org/${secret.A}", "headers": {"X": {"secret": "B"}}, "json": [{"secret": "C"}]}
    (made,) = server.submit({"name": "n", "key": "n", "http": http})
    again = server.http.put(f"/v1/jobs/{made['id']}", json=server.get(f"/v1/jobs/{made['id']}"))
    assert again.json()["version"] == made["version"]


def test_an_agent_elsewhere_reaches_its_loopback_only_where_its_settings_allow_it(
    tmp_path: Path, shop: tuple[type[Shop], str]
):
    handler, url = shop
    server = Server(tmp_path, "--roles", "api,coordinator,scheduler", "--heartbeat-interval", "0.5").start()
    agents = []
    try:
        for name, *flags in (
            ("shut", "--label", "shut"),
            ("open", "--label", "open", "--allowed-networks", "127.0.0.0/8"),
        ):
            agents.append(AgentProcess(tmp_path, f"127.0.0.1:{server.grpc_port}", name, *flags).start().joined())
        runs = {
            name: server.ended(started(server, {"name": name, "http": {"url": url, "body": "x"}, "labels": [name]}))
            for name in ("shut", "open")
        }
        assert (runs["shut"]["state"], runs["open"]["state"]) == ("failed", "succeeded")
        assert "it is the loopback of the agent's machine (E_NETWORK)" in runs["shut"]["message"]
        assert len(handler.asked) == 1
    finally:
        for agent in agents:
            agent.stop()
        server.stop()
