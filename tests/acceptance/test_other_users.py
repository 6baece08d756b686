"""Loopback belongs to its user: what other accounts of the machine get from a server that needs no login."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from .server import DEADLINE, Server
from .test_login import bearer, run

HERE = Path(__file__).parents[2]
WAYS = {"http": ("200", "401"), "grpc": ("OK", "UNAUTHENTICATED"), "agent": ("OK", "UNAUTHENTICATED")}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user: run this test as root")


def ask(server: Server, uid: int, way: str, **headers: str) -> str:
    """Return what the user with this id is told by a server, over HTTP, by gRPC, or as an agent that joins."""
    port = server.port if way == "http" else server.grpc_port
    argv = [sys.executable, "-m", "tests.acceptance.stranger", str(uid), way, str(port)]
    argv += [f"{name}={value}" for name, value in headers.items()]
    done = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def nobody() -> int:
    return pwd.getpwnam("nobody").pw_uid


@needs_root
@pytest.mark.parametrize("way", WAYS)
def test_S43_another_account_of_the_machine_needs_a_token(server: Server, way: str):
    let_in, refused = WAYS[way]
    asked = {"scope": "agent", "node": "*"} if way == "agent" else {}
    made = server.post("/v1/tokens", {"name": "guest", **asked}, status=201)

    assert ask(server, os.geteuid(), way) == let_in
    assert ask(server, nobody(), way) == refused
    assert ask(server, nobody(), way, authorization=f"Bearer {made['token']}") == let_in


@pytest.mark.parametrize("way", WAYS)
def test_a_proxy_that_says_so_gets_nobody_in_without_a_token(server: Server, way: str):
    let_in, refused = WAYS[way]

    assert ask(server, os.geteuid(), way) == let_in
    assert ask(server, os.geteuid(), way, **{"x-forwarded-for": "10.0.0.1"}) == refused


def test_a_proxy_that_is_believed_says_from_where_who_is_refused_came_and_lets_nobody_in(tmp_path: Path):
    server = Server(tmp_path, "--trusted-proxies", "127.0.0.1")
    server.start()
    for number, (way, (_, refused)) in enumerate(WAYS.items(), 1):
        told = {"authorization": "Bearer wrong", "x-forwarded-for": f"203.0.113.9, 192.0.2.{number}"}
        assert ask(server, os.geteuid(), way, **told) == refused, way
    server.wait_until(
        lambda: {row["address"] for row in server.get("/v1/audit")["items"]} == {f"192.0.2.{n}" for n in (1, 2, 3)},
        "the refusals of all three",
    )
    server.stop()


def test_with_require_token_also_the_servers_own_user_needs_one(tmp_path: Path):
    alone = run(tmp_path, "up", "--data", "data", "--require-token", check=False)
    assert (alone.returncode, "error[E_LOGIN_REQUIRED]" in alone.stderr) == (2, True), alone.stderr
    token = run(tmp_path, "token", "create", "ann", "--data", "data").stdout.strip()
    server = Server(tmp_path, "--require-token").start()
    try:
        assert [ask(server, os.geteuid(), way) for way in WAYS] == ["401", "UNAUTHENTICATED", "UNAUTHENTICATED"]
        assert server.http.get("/v1/jobs", headers=bearer(token)).status_code == 200
    finally:
        assert server.stop() == 0
