"""What tests of syncs share: a program that runs here instead of in a process, a service to read from, and a line to
a server on which a sync can be held at a moment."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = 10


class Syncer:
    """Does syncs, one after the other, each as an attempt of its own, and keeps the cursor as the service does."""

    def __init__(self, directory: Path, clickhouse_url: str = "") -> None:
        self.lake = directory / "lake"
        self.lake.mkdir()
        self._clickhouse_url = clickhouse_url
        self._attempts = 0
        self.cursor: Any = None

    def __call__(self, **spec: Any) -> Any:
        """Do it; the facts. The cursor moves as it does with the finish of a run."""
        facts, cursor = self.attempt(**spec)
        self.cursor = cursor or self.cursor
        return facts

    def attempt(self, **spec: Any) -> tuple[Any, Any]:
        """Do it as an attempt whose finish is never heard of: facts and cursor."""
        from horae.executors.sync.program import Notes, sync

        self._attempts += 1
        notes: list[Any] = []
        order = {
            "spec": {"mode": "full", **spec}, "cursor": self.cursor, "attempt": f"{self._attempts}-1",
            "lake_root": str(self.lake), "clickhouse_url": self._clickhouse_url,
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as workspace:
            sync(order, Path(workspace), Notes(notes.append))
        told = {name: value for note in notes for name, value in note.items()}
        return told["facts"], told.get("cursor")

    def fails(self, **spec: Any) -> tuple[str, bool]:
        """(sentence, whether it is final) of a sync that cannot be done."""
        from horae.executors.sync.failures import words_for

        try:
            self.attempt(**spec)
        except Exception as error:
            told = words_for(error, spec)
            return told["message"], told["final"]
        raise AssertionError("it was done")


class Service:
    """Answers /rows in pages, and /v4/spreadsheets/… as Google Sheets does."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.cells: list[list[Any]] = []
        self.asked: list[str] = []
        self.url = ""

    def answer(self, path: str) -> Any:
        self.asked.append(path)
        url = urlsplit(path)
        if url.path.startswith("/v4/spreadsheets/book/values/"):
            return {"range": "A:C", "values": self.cells}
        if url.path != "/rows":
            return None
        page = int(parse_qs(url.query).get("page", ["1"])[0])
        more = f"{self.url}/rows?page={page + 1}" if len(self.rows) > page * PAGE else None
        return {"data": self.rows[(page - 1) * PAGE : page * PAGE], "next": more}


@contextmanager
def running_service() -> Iterator[Service]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            found = service.answer(self.path)
            body = json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()


class Gate:
    """A line to a server on which a request with a certain word is held; who asked may be killed meanwhile."""

    def __init__(self, port: int, word: bytes) -> None:
        self._port, self._word = port, word
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.is_reached = threading.Event()
        self.is_open = False
        self._threads = [threading.Thread(target=self._accept)]
        self._ends: list[socket.socket] = []
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._ends += (client, server)
                for ends in ((client, server), (server, client)):
                    self._threads.append(threading.Thread(target=self._forward, args=ends))
                    self._threads[-1].start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                if self._word in data and not self.is_open:
                    self.is_reached.set()
                    one.recv(1)  # until it is gone: it waits for an answer, and says nothing more
                    break
                other.sendall(data)
        for end in (one, other):
            _shut(end)

    def close(self) -> None:
        _shut(self._listener)
        self._threads[0].join()
        for end in self._ends:
            _shut(end)
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
