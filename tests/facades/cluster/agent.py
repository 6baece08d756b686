"""An agent of the contract that listens on a port of its own, and answers as a test wants it to."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeAgent:
    """Takes dispatches: `status` is its answer, None for none at all."""

    def __init__(self) -> None:
        self.status: int | None = 200
        self.got: list[dict[str, Any]] = []
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                agent.got.append({"path": self.path, **body})
                if agent.status is None:
                    self.close_connection = True
                    return
                self.send_response(agent.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def jobs(self) -> list[int]:
        return [each["jobId"] for each in self.got]

    def registration(self, capacity: int = 10) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.port, "capacity": capacity}
