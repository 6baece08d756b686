"""ClickHouse's engine (chDB) behind the HTTP interface of ClickHouse, as a process of its own.

    python tests/engines/clickhouse_server.py DIRECTORY        prints its port once it listens

Clients of ClickHouse work with it unchanged. The engine does one statement at a time. There is one user; requests
without its password are refused as ClickHouse refuses them.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

USER, PASSWORD = "horae", "t0p-secret"
_INSERT = re.compile(rb"\s*INSERT\s+INTO\s+(?P<target>.+?)\s+FORMAT\s+(?P<format>\w+)\s*", re.IGNORECASE | re.DOTALL)
_CONTROL = frozenset(
    {"client_protocol_version", "compress", "database", "decompress", "default_format", "enable_http_compression",
     "http_make_head_request", "password", "query", "query_id", "role", "session_check", "session_id",
     "session_timeout", "user", "wait_end_of_query"}
)  # fmt: skip


class Front(BaseHTTPRequestHandler):
    """Reads a statement from a request, has the engine do it, and answers as ClickHouse does."""

    protocol_version = "HTTP/1.1"
    engine: Any
    lock = threading.Lock()

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self._body())

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        else:
            body = b"".join(self._chunks())
        coding = self.headers.get("Content-Encoding", "")
        if coding == "gzip":
            return gzip.decompress(body)
        if coding == "lz4":
            import lz4.frame

            return bytes(lz4.frame.decompress(body))
        if coding == "zstd":
            import zstandard

            return zstandard.ZstdDecompressor().decompressobj().decompress(body)
        return body

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _serve(self, body: bytes) -> None:
        url = urllib.parse.urlsplit(self.path)
        asked = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        if url.path == "/ping" or (not body and not asked.get("query")):
            return self._answer(200, b"Ok.\n")
        if self._credentials(asked) != (USER, PASSWORD):
            refusal = "Code: 516. DB::Exception: Authentication failed. (AUTHENTICATION_FAILED)\n"
            return self._answer(403, refusal.encode(), {"X-ClickHouse-Exception-Code": "516"})
        try:
            answer, rows = self._do(asked, body)
        except Exception as error:
            code = re.search(r"Code: (\d+)", str(error))
            return self._answer(500, f"{error}\n".encode(), {"X-ClickHouse-Exception-Code": code[1] if code else "1"})
        summary = json.dumps({"read_rows": str(rows), "written_rows": str(rows)})
        told = {"X-ClickHouse-Summary": summary, "X-ClickHouse-Timezone": "UTC"}
        return self._answer(200, answer, told | {"X-ClickHouse-Query-Id": asked.get("query_id", "")})

    def _credentials(self, asked: dict[str, str]) -> tuple[str, str]:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic":
            user, _, password = base64.b64decode(token).decode().partition(":")
            return user, password
        headers = self.headers
        user = headers.get("X-ClickHouse-User") or asked.get("user", "default")
        return user, headers.get("X-ClickHouse-Key") or asked.get("password", "")

    def _do(self, asked: dict[str, str], body: bytes) -> tuple[bytes, int]:
        """Data of an INSERT comes from a file: the engine in a process has no stream to read it from."""
        whole = (asked["query"].encode() + b"\n" + body) if asked.get("query") else body
        insert = _INSERT.match(whole)
        if insert is None:
            return self._query(asked, whole.decode())
        with tempfile.NamedTemporaryFile(delete=False) as file:
            file.write(whole[insert.end("format") :].removeprefix(b"\n"))
        try:
            target = insert["target"].decode()
            source = f"file('{file.name}', '{insert['format'].decode()}')"
            return self._query(asked, f"INSERT INTO {target} SELECT * FROM {source}")
        finally:
            os.unlink(file.name)

    def _query(self, asked: dict[str, str], statement: str) -> tuple[bytes, int]:
        with self.lock:
            if database := asked.get("database"):
                self.engine.query(f"USE `{database}`")
            for name, value in asked.items():
                if name not in _CONTROL and not name.startswith("param_"):
                    self.engine.query(f"SET {name}='{value}'")
            done = self.engine.query(statement, asked.get("default_format") or "TabSeparated")
            return (done.bytes() or b"", done.rows_read()) if done is not None else (b"", 0)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    from chdb.session import Session

    Front.engine = Session(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
    print(server.server_address[1], flush=True)
    server.serve_forever()


# ── for tests ──


@dataclass(frozen=True, slots=True)
class ClickHouse:
    """A running server. `url` is as settings want it."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://{USER}:{PASSWORD}@127.0.0.1:{self.port}"

    def query(self, statement: str) -> str:
        """Do one statement; what it answers, tab separated."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/", statement.encode())
        request.add_header("X-ClickHouse-User", USER)
        request.add_header("X-ClickHouse-Key", PASSWORD)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read().decode().rstrip("\n")
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def rows(self, statement: str) -> list[list[str]]:
        text = self.query(statement)
        return [line.split("\t") for line in text.split("\n")] if text else []


@contextmanager
def running_clickhouse() -> Iterator[ClickHouse]:
    directory = Path(tempfile.mkdtemp(prefix="horae-clickhouse-"))
    argv = [sys.executable, __file__, str(directory / "data")]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        port = process.stdout.readline()
        assert port, (directory / "log").read_text()
        yield ClickHouse(int(port), process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
