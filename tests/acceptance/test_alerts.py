"""Alerts of a real server: once in the calm case, at least once when it is killed, one message for ten thousand."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from .server import Server

MANY = 10_000


class Receiver:
    """Takes what a server tells; refuses, or dies with the server, where a test says so."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []  # key, message
        self.before_answer = lambda: None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append((self.headers["idempotency-key"], json.loads(body)))
                receiver.before_answer()
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def apply(server: Server, url: str, **rule: Any) -> None:
    document = {
        "channels": {"ops": {"kind": "webhook", "url": url}},
        "rules": {"all": {"when": "failure", "channels": ["ops"], "wait": "1s", **rule}},
    }
    server.cli("alerts", "apply", "-", input=json.dumps(document))


FAILS = {"name": "fails", "steps": [{"run": "exit 3"}], "overlap": "allow"}


def test_a_failure_is_told_once_and_what_a_kill_leaves_is_told_after_it(tmp_path: Path, receiver: Receiver) -> None:
    server = Server(tmp_path).start()
    try:
        apply(server, receiver.url, every="0s")
        [job] = server.submit(FAILS)
        server.ended(server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])
        server.wait_until(lambda: len(receiver.got) == 1, "the failure to be told")
        server.wait_until(
            lambda: server.get("/v1/alerts/deliveries")["items"][0]["state"] == "sent", "it to be noted as sent"
        )

        # Killed while the message is on its way: nobody noted that it was taken.
        receiver.before_answer = server.kill
        [other] = server.submit({**FAILS, "name": "fails too"})
        server.post(f"/v1/jobs/{other['id']}/run", status=201)
        server.wait_until(lambda: len(receiver.got) == 2, "the second failure to be told")
        assert server.process is not None
        server.process.wait(60)
        receiver.before_answer = lambda: None
        _forward(tmp_path / "data" / "horae.db")
        server.start()
        server.wait_until(lambda: len(receiver.got) == 3, "it to be told again")
        assert receiver.got[1] == receiver.got[2]  # under the same key, by which a repeat is known
        assert len({key for key, _ in receiver.got}) == 2
        server.wait_until(
            lambda: {it["state"] for it in server.get("/v1/alerts/deliveries")["items"]} == {"sent"}, "all to be sent"
        )
        assert len(receiver.got) == 3
    finally:
        server.stop()


def _forward(database: Path) -> None:
    """As if the two minutes were over for which a delivery belongs to whoever took it."""
    import sqlite3

    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE alert_deliveries SET next_at = 0 WHERE state = 'waiting'")
    connection.close()


def test_ten_thousand_failures_are_one_message_with_a_count(tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "bad.py").write_text(
        "from horae import handler\n\n\n@handler\nasync def bad() -> None:\n    raise ValueError('no')\n"
    )
    server = Server(tmp_path, "--jobs-directory", str(tmp_path / "jobs")).start()
    try:
        apply(server, receiver.url, wait="60s")  # however slow this machine is
        [job] = server.submit({"name": "bad", "handler": "bad.bad", "overlap": "allow"})
        for _ in range(MANY // 5000):
            server.post("/v1/runs", {"runs": [{"job": job["id"]}] * 5000}, status=200)
        server.wait_until(lambda: _count(server) == MANY, "all to fail and be counted")
        server.wait_until(lambda: receiver.got, "it to be told")
        [(_, told)] = receiver.got
        assert told["title"] == f"all: job bad ({job['id']}) failed {MANY} times"
        assert told["count"] == MANY
    finally:
        server.stop()


def _count(server: Server) -> int:
    return sum(it["count"] for it in server.get("/v1/alerts")["items"])


class Mailbox:
    def __init__(self) -> None:
        self.mails: list[str] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append(envelope.content.decode())
        return "250 kept"


@pytest.fixture
def mail() -> Iterator[tuple[Mailbox, int]]:
    """A mail server in a thread of its own."""
    box, loop = Mailbox(), asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(lambda: SMTP(box, loop=loop), "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield box, server.sockets[0].getsockname()[1]
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_new_user_is_told_by_mail_and_by_a_command(tmp_path: Path, mail: tuple[Mailbox, int]) -> None:
    box, port = mail
    program = tmp_path / "page"
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/paged\n")
    program.chmod(0o755)
    server = Server(
        tmp_path, "--smtp-url", f"smtp://127.0.0.1:{port}", "--smtp-from", "horae@example.org",
        "--alert-commands", f"page={program}",
    ).start()  # fmt: skip
    try:
        document = {
            "channels": {"mail": {"kind": "email", "to": ["ann@example.org"]}},
            "rules": {"all": {"when": "failure", "channels": ["mail", "page"], "wait": 0}},
        }
        server.cli("alerts", "apply", "-", input=json.dumps(document))
        assert "was taken" in server.cli("alerts", "test", "mail").stdout
        refused = server.cli("alerts", "test", "none", check=False)
        assert (refused.returncode, "E_NOT_FOUND" in refused.stderr) == (4, True)
        assert server.cli_json("alerts") == {"items": []}
        [job] = server.submit(FAILS)
        server.post(f"/v1/jobs/{job['id']}/run", status=201)
        server.wait_until(lambda: len(box.mails) == 2, "the mail")
        assert "Subject: [Horae] all: job fails (1) failed" in box.mails[1]
        server.wait_until(lambda: (tmp_path / "paged").exists() and (tmp_path / "paged").read_text(), "the page")
        [alert] = server.cli_json("alerts")["items"]
        assert "is known to local" in server.cli("alerts", "ack", str(alert["id"])).stdout
        assert {it["name"]: it["kind"] for it in server.cli_json("alerts", "channels")["items"]} == {
            "mail": "email", "page": "command",
        }  # fmt: skip
        server.wait_until(
            lambda: {it["state"] for it in server.cli_json("alerts", "sent")["items"]} == {"sent"}, "both to be noted"
        )
        assert "deleted" in server.cli("alerts", "delete", "rule", "all").stdout
    finally:
        server.stop()
