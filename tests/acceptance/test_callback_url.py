"""A handler that hands on the address of its own run: the example of docs/howto/waiting.md, as it stands there."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from .server import Server

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs/howto/waiting.md"


class Service(BaseHTTPRequestHandler):
    """A system elsewhere that is asked for work."""

    asked: list[tuple[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.headers["idempotency-key"], body))
        self.send_response(202)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Not to the terminal."""


def example(directory: Path) -> None:
    shown = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [text] = [each for each in shown if "callback_url" in each]
    (directory / "jobs" / "export").mkdir(parents=True)
    (directory / "jobs" / "export" / "job.py").write_text(text)


def test_a_system_outside_tells_a_run_by_the_address_that_its_handler_gave_it(tmp_path: Path) -> None:
    example(tmp_path)
    Service.asked = []
    service = HTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    server = Server(tmp_path)
    server._flags = ("--public-url", server.url)
    try:
        server.start()
        [job] = server.submit({"name": "export", "handler": "jobs/export"})
        data = {"table": "orders", "service": f"http://127.0.0.1:{service.server_port}/"}
        run = server.post(f"/v1/jobs/{job['id']}/run", {"data": data}, status=201)
        server.wait_until(lambda: server.get(f"/v1/runs/{run['id']}")["state"] == "blocked", "it to wait")
        [(key, order)] = Service.asked

        wrong = order["tell"].replace(f"/{run['id']}/", f"/{run['id'] + 1}/")
        assert httpx.post(wrong, json={"rows": 1}).status_code == 404
        assert httpx.post(order["tell"], json={"rows": 7}).status_code == 202

        ended = server.ended(run["id"])
        assert (ended["state"], ended["result"], order["table"]) == ("succeeded", "7 rows", "orders")
        assert Service.asked == [(key, order)] * 2, "the second time it is given the same"
        path = server.get(f"/v1/runs/{run['id']}/callbacks/exported")["path"]
        assert order["tell"] == server.url + path
    finally:
        server.stop()
        service.shutdown()
        service.server_close()
