"""Real git repositories for tests, and a real server for them: git's own smart HTTP backend behind http.server."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

GIT = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
}  # fmt: skip


def git(directory: Path, *argv: str) -> str:
    done = subprocess.run(["git", *argv], cwd=directory, env=GIT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(directory: Path, files: Mapping[str, str | bytes], message: str = "a change") -> str:
    """Write files, commit them; answers the hash."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o755 if name.endswith(".sh") or ("/" in name and "bin" in name.split("/")) else 0o644)
    git(directory, "add", "-A")
    git(directory, "commit", "-q", "--allow-empty", "-m", message)
    return git(directory, "rev-parse", "HEAD")


def make_repository(directory: Path, files: Mapping[str, str | bytes]) -> Path:
    directory.mkdir(parents=True)
    git(directory, "init", "-q", "-b", "main")
    commit(directory, files)
    return directory


@dataclass
class GitServer:
    """What a test may know of its server, and change."""

    root: Path
    port: int = 0
    password: str | None = None  # of the user ann; None: everybody may read
    asked: list[str] = field(default_factory=list)  # paths
    on_request: Callable[[], None] = lambda: None  # while a client waits for its answer

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    def admits(self, authorization: str | None) -> bool:
        wanted = base64.b64encode(f"ann:{self.password}".encode()).decode()
        return self.password is None or authorization == f"Basic {wanted}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: GitServer

    def log_message(self, *_: object) -> None:
        pass

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _environment(self, length: int) -> dict[str, str]:
        where = urlsplit(self.path)
        return {
            **GIT, "GIT_PROJECT_ROOT": str(self.site.root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": where.path,
            "QUERY_STRING": where.query, "REQUEST_METHOD": self.command, "CONTENT_LENGTH": str(length),
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_ADDR": "127.0.0.1",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }  # fmt: skip

    def _answer(self) -> None:
        body = self._body()
        self.site.asked.append(self.path)
        self.site.on_request()
        if not self.site.admits(self.headers.get("Authorization")):
            self._send(401, [("WWW-Authenticate", 'Basic realm="git"')], b"")
            return
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=self._environment(len(body)), stdout=subprocess.PIPE, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = [(name, text) for name, _, text in (line.partition(": ") for line in head.decode().split("\r\n"))]
        status = next((int(text[:3]) for name, text in headers if name == "Status"), 200)
        self._send(status, [one for one in headers if one[0] not in ("", "Status")], content)

    def _send(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response(status)
        for name, text in (*headers, ("Content-Length", str(len(content)))):
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _answer


@contextmanager
def serving(root: Path, password: str | None = None) -> Iterator[GitServer]:
    """Serve every repository below a directory."""
    site = GitServer(root, password=password)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"site": site}))
    server.daemon_threads = True
    site.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
