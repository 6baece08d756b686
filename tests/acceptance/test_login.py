"""Tokens and TLS with the installed command: a server that listens beyond loopback, reached over loopback."""

from __future__ import annotations

import json
import socket
import sqlite3
import ssl
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.certificates import make_certificate

from .server import DEADLINE, Server, free_port, horae


def run(directory: Path, *args: str, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
    """`horae …` in a directory, with nothing of Horae in its environment but what is given."""
    done = subprocess.run(
        [horae(), *args],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={"PATH": "/bin", **environ},
    )
    assert "Traceback" not in done.stderr
    assert not check or done.returncode == 0, done.stderr
    return done


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


class Far:
    """A server that listens on every address, with a certificate and one user token in `token.txt`."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.directory = directory
        self.certificate, key = make_certificate(directory)
        self.tls = ("--tls-cert", str(self.certificate), "--tls-key", str(key))
        run(directory, "token", "create", "ann", "--data", "data", "--file", "token.txt", *flags)
        self.token = (directory / "token.txt").read_text().strip()
        self.server = Server(directory, "--host", "0.0.0.0", *self.tls, *flags, ca=self.certificate)

    def cli(self, *args: str, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
        return run(self.directory, "--server", self.server.url, *args, check=check, **environ)


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    far = Far(tmp_path)
    far.server.start()
    yield far
    assert far.server.stop() == 0


# ── starting ──


def test_S01_beyond_loopback_a_server_starts_only_with_tls_and_a_token(tmp_path: Path):
    port = str(free_port())
    certificate, key = make_certificate(tmp_path)
    up = ("up", "--host", "0.0.0.0", "--port", port, "--data", "data")
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key))

    plain = run(tmp_path, *up, check=False)
    assert (plain.returncode, "error[E_TLS_REQUIRED]" in plain.stderr) == (2, True), plain.stderr
    assert not (tmp_path / "data").exists()

    unknown = run(tmp_path, *up, *tls, check=False)
    assert (unknown.returncode, "error[E_LOGIN_REQUIRED]" in unknown.stderr) == (2, True), unknown.stderr
    assert "horae token create" in unknown.stderr

    run(tmp_path, "token", "create", "join", "--agent", "*", "--data", "data")
    agents_only = run(tmp_path, *up, *tls, check=False)
    assert "error[E_LOGIN_REQUIRED]" in agents_only.stderr


def test_a_certificate_that_cannot_be_served_with_is_refused_before_anything_is_touched(tmp_path: Path):
    certificate, _ = make_certificate(tmp_path)
    _, other = make_certificate(tmp_path, "other")

    done = run(tmp_path, "up", "--data", "data", "--tls-cert", str(certificate), "--tls-key", str(other), check=False)

    assert (done.returncode, "error[E_TLS]" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "data").exists()


def test_S41_what_commands_write_to_a_database_without_a_server_has_its_rows(tmp_path: Path):
    secret = run(tmp_path, "token", "create", "ann", "--data", "data").stdout.strip()
    run(tmp_path, "token", "revoke", "1", "--data", "data")
    link = run(tmp_path, "admin", "create", "root", "--data", "data").stdout.strip()
    run(tmp_path, "token", "list", "--data", "data")
    assert run(tmp_path, "admin", "create", "root", "--data", "data", check=False).returncode != 0  # it is there

    with closing(sqlite3.connect(tmp_path / "data" / "horae.db")) as database:
        rows = database.execute("SELECT who, operation, kind, subject, outcome FROM audit ORDER BY id").fetchall()
        everything = str(database.execute("SELECT * FROM audit").fetchall())
    assert rows == [
        ("local", "horae token create", "token", "1", "done"),
        ("local", "horae token revoke", "token", "1", "done"),
        ("local", "horae admin create", "user", "root", "done"),
        ("local", "horae admin invite", "user", "root", "done"),
    ]
    assert secret.rpartition("_")[2] not in everything
    assert link.rpartition("_")[2] not in everything


# ── a server that others reach ──


def test_a_server_beyond_loopback_asks_everyone_for_a_token(far: Far):
    http = far.server.http
    stranger = http.get("/v1/jobs")
    assert (stranger.status_code, stranger.json()["code"]) == (401, "E_TOKEN")
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.post("/v1/jobs", json={"name": "x", "steps": [{"run": "true"}]}).status_code == 401

    made = http.post("/v1/jobs", json={"name": "x", "steps": [{"run": "true"}]}, headers=bearer(far.token))

    assert made.status_code == 201
    assert made.json()["jobs"][0]["owner"] == "ann"
    assert far.token not in far.server.log()
    assert "https://0.0.0.0" in far.server.log()


def test_the_command_line_comes_in_with_a_token_and_a_ca_file(far: Far):
    ca = str(far.certificate)

    assert "ann" in far.cli("--ca-file", ca, "--token-file", "token.txt", "token", "list").stdout
    by_file = {"HORAE_CA_FILE": ca, "HORAE_TOKEN_FILE": str(far.directory / "token.txt")}
    assert "live" in far.cli("nodes", **by_file).stdout
    assert "live" in far.cli("nodes", HORAE_CA_FILE=ca, HORAE_TOKEN=far.token).stdout

    nobody = far.cli("--ca-file", ca, "nodes", check=False)
    assert (nobody.returncode, "error[E_TOKEN]" in nobody.stderr, "--token-file" in nobody.stderr) == (3, True, True)
    untrusted = far.cli("--token-file", "token.txt", "nodes", check=False)
    assert (untrusted.returncode, "--ca-file" in untrusted.stderr) == (6, True), untrusted.stderr


def test_a_revoked_token_is_refused_and_whatever_was_made_with_it(far: Far):
    http = far.server.http
    second = http.post("/v1/tokens", json={"name": "bob"}, headers=bearer(far.token)).json()
    assert http.get("/v1/jobs", headers=bearer(second["token"])).status_code == 200

    assert http.delete("/v1/tokens/1", headers=bearer(second["token"])).status_code == 204

    assert http.get("/v1/jobs", headers=bearer(far.token)).status_code == 401
    assert http.get("/v1/jobs", headers=bearer(second["token"])).status_code == 401
    assert "token.revoked" in far.server.log()


def test_F55_S07_what_is_no_tls_gets_no_answer_and_leaves_no_trace_of_a_stack(far: Far):
    with socket.create_connection(("127.0.0.1", far.server.port), timeout=DEADLINE) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP/1.1 200" not in _rest(plain)
    assert _handshake(far.server.port, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    with pytest.warns(DeprecationWarning, match="TLSv1_1"), pytest.raises(ssl.SSLError, match=r"PROTOCOL|EOF"):
        _handshake(far.server.port, ssl.TLSVersion.TLSv1_1)

    assert far.server.http.get("/healthz").status_code == 200
    assert "Traceback" not in far.server.log()


def _handshake(port: int, version: ssl.TLSVersion) -> str | None:
    """Return the version agreed on by a client that speaks only one, however old and weak."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    line = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
    with line, context.wrap_socket(line) as secure:
        return secure.version()


def _rest(line: socket.socket) -> bytes:
    try:
        return line.recv(4096)
    except ConnectionResetError:
        return b""


# ── making tokens ──


def test_while_a_server_holds_the_database_its_tokens_are_made_through_it(tmp_path: Path):
    server = Server(tmp_path)
    server.start()
    try:
        made = json.loads(run(tmp_path, "token", "create", "ci", "--data", "data", "--json").stdout)
        assert httpx.get(f"{server.url}/v1/jobs", headers=bearer(made["token"])).status_code == 200
        wrong = httpx.get(f"{server.url}/v1/jobs", headers=bearer(made["token"][:-2] + "__"))
        assert wrong.status_code == 401
        assert run(tmp_path, "token", "revoke", str(made["id"]), "--data", "data").stdout == "token 1 is revoked\n"
        assert httpx.get(f"{server.url}/v1/jobs", headers=bearer(made["token"])).status_code == 401
    finally:
        assert server.stop() == 0

    listed: Any = json.loads(run(tmp_path, "token", "list", "--data", "data", "--json").stdout)
    assert [(it["name"], it["state"]) for it in listed["items"]] == [("ci", "revoked")]


@pytest.mark.long
def test_on_postgresql_tokens_are_made_beside_a_running_server(tmp_path: Path, postgres_url: str):
    server = Server(tmp_path, "--database", postgres_url)
    server.start()
    database = ("--database", postgres_url)
    try:
        token = run(tmp_path, "token", "create", "ci", *database).stdout.strip()
        assert httpx.get(f"{server.url}/v1/jobs", headers=bearer(token)).status_code == 200

        run(tmp_path, "token", "revoke", "1", *database)

        def is_refused() -> bool:
            return httpx.get(f"{server.url}/v1/jobs", headers=bearer(token)).status_code == 401

        server.wait_until(is_refused, "the revocation to reach the server")
    finally:
        assert server.stop() == 0


def test_a_token_file_is_new_and_only_its_owner_reads_it(tmp_path: Path):
    done = run(tmp_path, "token", "create", "ci", "--data", "data", "--expires", "30d", "--file", "ci.token")

    file = tmp_path / "ci.token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().startswith("horae_u_1_")
    assert file.read_text().strip() not in done.stdout + done.stderr
    again = run(tmp_path, "token", "create", "ci", "--data", "data", "--file", "ci.token", check=False)
    assert (again.returncode, "E_FILE" in again.stderr) == (1, True)
    bad = run(tmp_path, "token", "create", "ci", "--data", "data", "--expires", "soon", "--file", "x", check=False)
    assert (bad.returncode, (tmp_path / "x").exists()) == (2, False)
    assert len(json.loads(run(tmp_path, "token", "list", "--data", "data", "--json").stdout)["items"]) == 1


def test_a_server_and_a_database_at_once_are_refused(tmp_path: Path):
    done = run(tmp_path, "--server", "http://127.0.0.1:9", "token", "list", "--data", "data", check=False)

    assert (done.returncode, "which one is meant" in done.stderr) == (2, True)
