"""A small server that answers as told, for tests of the command line and the client."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

POLICY = {
    "overlap": "forbid", "overlap_limit": 1, "misfire": "run_latest", "misfire_limit": 100, "timeout_seconds": None,
    "retry": {"attempts": 1, "backoff_seconds": 1.0, "factor": 2.0, "cap_seconds": 60.0, "jitter": 0.1},
    "start_deadline_seconds": None, "priority": 5, "labels": [], "offered": False, "synced_at": None,
}  # fmt: skip
JOB = {
    "id": 7, "name": "backup", "key": None, "owner": "local", "org": 1, "kind": "shell", "segment": 3,
    "spec": {"steps": [{"run": "true"}]}, "policy": POLICY, "paused": False, "annotations": {},
    "version": 1, "created_at": "2027-01-15T08:00:00Z", "updated_at": "2027-01-15T08:00:00Z",
    "triggers": [{
        "id": 9, "job_id": 7, "schedule": {"cron": "0 2 * * *"}, "description": "at 02:00 every day", "data": None,
        "enabled": True, "next_at": "2027-01-16T02:00:00Z", "last_at": None, "version": 1,
        "created_at": "2027-01-15T08:00:00Z",
    }],
}  # fmt: skip
TRIGGER: dict[str, Any] = JOB["triggers"][0]  # type: ignore[index]
RUN = {
    "id": 42, "job_id": 7, "trigger_id": 9, "due_at": "2027-01-15T08:00:00Z", "state": "succeeded", "reason": "",
    "phase": None, "progress": None,
    "attempt": 1, "fence": 1, "priority": 5, "kind": "shell", "node": "n1", "created_at": "2027-01-15T08:00:00Z",
    "started_at": "2027-01-15T08:00:00.003Z", "finished_at": "2027-01-15T08:01:15.003Z", "eligible_at": None,
    "exit_code": 0, "message": "", "result": None, "data": None, "into_run_id": None, "cancel_requested": False,
    "lost": 0, "output": True, "late_ms": 3, "job_name": "backup",
}  # fmt: skip
NODE = {
    "name": "n1", "state": "live", "roles": ["api", "agent"], "kinds": ["shell"], "labels": [], "slots": 8, "busy": 2,
    "version": "0.1.0", "address": "http://127.0.0.1:8080", "started_at": "2027-01-15T08:00:00Z",
    "heartbeat_at": "2027-01-15T08:00:00Z", "via": "", "wanted": "live", "segments": 34, "ailment": "",
}  # fmt: skip
PREVIEW = {
    "dialect": "cron", "description": "at 02:30 every day",
    "moments": [{"at": "2027-03-28T01:00:00Z", "local": "2027-03-28T03:00:00+02:00", "note": "02:30 does not exist"}],
}  # fmt: skip


def page(*items: Any) -> dict[str, Any]:
    return {"items": list(items), "cursor": None}


# ── a server that answers as told ──────────────────────────────────────────────────────────────────


@dataclasses.dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


Answer = tuple[int, Any] | tuple[int, Any, dict[str, str]] | None  # None: break the connection
Route = Any  # a JSON body, an Answer, or a function from Request to Answer


class Fake:
    """Routes by (method, path); everything it was asked is in `requests`."""

    def __init__(self) -> None:
        self.routes: dict[tuple[str, str], Route] = {}
        self.requests: list[Request] = []
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def get(self, path: str, route: Route) -> None:
        self.routes["GET", path] = route

    def post(self, path: str, route: Route) -> None:
        self.routes["POST", path] = route

    def asked(self, method: str, path: str) -> list[Request]:
        return [one for one in self.requests if (one.method, one.path) == (method, path)]

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        route = self.routes.get((request.method, request.path))
        if route is None:
            return problem(404, "E_NOT_FOUND", f"no {request.path}")
        if callable(route):
            return route(request)  # type: ignore[no-any-return]
        return route if isinstance(route, tuple) else (200, route)

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                url = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                answer = fake.answer(Request(self.command, url.path, query, headers, body))
                if answer is None:
                    self.connection.close()
                    return
                self.reply(*answer)

            def reply(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in (headers or {"Content-Type": "application/json"}).items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def problem(status: int, code: str, detail: str, **more: Any) -> Answer:
    body = {"type": "about:blank", "title": "t", "status": status, "code": code, "detail": detail, "errors": [], **more}
    return status, body, {"Content-Type": "application/problem+json"}


def events(*lines: tuple[str, Any, int | None]) -> Answer:
    """Server-sent events, then the end of the connection."""
    text = ": hello\n\n"
    for name, data, offset in lines:
        text += f"event: {name}\n" + (f"id: {offset}\n" if offset is not None else "")
        text += f"data: {json.dumps(data, ensure_ascii=False)}\n\n"
    return 200, text.encode(), {"Content-Type": "text/event-stream"}


def log_of(content: bytes) -> Callable[[Request], Answer]:
    """Return a log that is given in pieces of at most 7 bytes."""

    def answer(request: Request) -> Answer:
        offset = int(request.query["offset"])
        piece = content[offset : offset + 7]
        return 200, piece, {"Horae-Log-Offset": str(offset + len(piece)), "Horae-Run-State": "succeeded"}

    return answer


@contextlib.contextmanager
def serving() -> Iterator[Fake]:
    """A server with one job, trigger, run and node."""
    fake = Fake()
    fake.get("/v1/jobs", page(JOB))
    fake.get("/v1/jobs/7", JOB)
    fake.get("/v1/triggers", page(TRIGGER))
    fake.get("/v1/triggers/9", TRIGGER)
    fake.get("/v1/runs", page(RUN))
    fake.get("/v1/runs/42", {**RUN, "attempts": []})
    fake.get("/v1/nodes", page(NODE))
    fake.get("/healthz", {"status": "ok", "version": "0.1.0", "node": "n1"})
    yield fake
    fake.close()
