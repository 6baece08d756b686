"""Agents that join by themselves, renew their secrets, are evicted and come back: real processes, both stores."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.certificates import make_authority, make_certificate, make_client

from .agent import AgentProcess
from .server import DEADLINE, Server
from .test_login import run
from .test_remote_agents import WITNESS, Begin, at, begin, check_one_after_the_other, lines_of, node, shell

assert begin  # a fixture of theirs

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("joining agents")]
QUICK = ("--heartbeat-interval", "0.5", "--lease", "3", "--credential-renewal", "2s")
SERVER = ("--roles", "api,coordinator,scheduler", *QUICK)


@pytest.fixture(params=["sqlite", "postgres"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """Whom one asks, and whom agents call: on PostgreSQL two processes, on SQLite there is but one."""
    stores: tuple[str, ...] = ()
    names = ["one"]
    if request.param == "postgres":
        stores, names = ("--database", request.getfixturevalue("postgres_url")), ["one", "two"]
    started = []
    for name in names:
        (tmp_path / name).mkdir()
        started.append(Server(tmp_path / name, *SERVER, *stores, "--node", name).start())
    yield started[0], started[-1]
    for server in started:
        server.stop()


def make_join(server: Server, name: str, *flags: str) -> str:
    return server.cli("nodes", "join-token", name, *flags).stdout.strip()


def wait_for_end(agent: AgentProcess) -> int:
    assert agent.process is not None
    return agent.process.wait(DEADLINE)


def kept(agent: AgentProcess) -> Any:
    return json.loads((agent.directory / "data" / "agent" / "credential").read_bytes())


@pytest.mark.long
def test_an_evicted_agent_is_refused_with_a_token_for_any_agent_by_whatever_name(
    servers: tuple[Server, Server], begin: Begin, tmp_path: Path
):
    asked, called = servers
    token = tmp_path / "any.token"
    asked.cli("token", "create", "any", "--agent", "*", "--label", "*", "--file", str(token))
    shared = ("--token-file", str(token), "--data", str(tmp_path / "shared"))
    first = begin(at(called), "first", *shared).joined()
    assert "is evicted" in asked.cli("nodes", "evict", "first").stdout
    assert wait_for_end(first) == 3
    assert "comes back by joining anew" in asked.cli("nodes", "uncordon", "first", check=False).stderr

    for name in ("first", "second"):
        again = begin(at(called), name, *shared)
        assert wait_for_end(again) == 3
        assert "error[E_EVICTED]" in again.log()

    another = begin(at(called), "third", "--token-file", str(token)).joined()
    assert another.stop() == 0
    joined = begin(at(called), "second", *shared[2:], "--join", make_join(asked, "second", "--label", "second"))
    joined.joined()
    assert joined.stop() == 0


def test_S61_an_agent_joins_once_renews_itself_is_evicted_and_comes_back_with_a_new_token(
    servers: tuple[Server, Server], begin: Begin, tmp_path: Path
):
    asked, called = servers
    witness = tmp_path / "witness"
    join = make_join(asked, "first", "--label", "first", "--label", "k")
    first = begin(at(called), "first", "--label", "k", "--join", join).joined()
    secret = kept(first)["token"]
    assert (first.directory / "data" / "agent" / "credential").stat().st_mode & 0o777 == 0o600

    thief = begin(at(called), "first", "--label", "k", "--data", str(tmp_path / "thief"), "--join", join)
    assert wait_for_end(thief) == 3
    assert "error[E_JOIN_USED]" in thief.log()

    first.wait_for("credential.renewed")
    first.wait_for(f"agent {first.name} joined", times=2)
    assert kept(first)["token"] != secret
    run_id = shell(asked, WITNESS.format(file=witness), "k")
    asked.wait_until(lambda: lines_of(witness), "the first line")
    second = begin(
        at(called), "second", "--label", "k", "--join", make_join(asked, "second", "--label", "second", "--label", "k")
    )
    second.joined()

    began = time.monotonic()
    assert "is evicted" in asked.cli("nodes", "evict", "first").stdout
    first.wait_for("error[E_EVICTED]")
    told = time.monotonic() - began
    assert wait_for_end(first) == 3

    assert told < 5 + 2, told  # of which the command itself takes up to two
    ended = asked.ended(run_id)
    assert (ended["state"], ended["node"], ended["attempt"]) == ("succeeded", "second", 2)
    check_one_after_the_other(witness)
    assert node(asked, "first")["evicted_at"] is not None
    first.start()
    assert wait_for_end(first) == 3  # nor with what it has kept
    assert first.log().count("error[E_EVICTED]") == 2

    again = AgentProcess(
        tmp_path, at(called), "first", "--label", "first", "--join", make_join(asked, "first", "--label", "first")
    )
    again.start().wait_for("agent first joined", times=first.log().count("agent first joined") + 1)
    assert again.stop() == 0
    told_of = [(one["operation"], one["subject"], one["outcome"]) for one in asked.every("/v1/audit")]
    for row in (
        ("agent join", "first", "done"),
        ("agent renew", "first", "done"),
        ("agent join", "first", "refused"),
        ("POST /v1/nodes/{name}/evict", "first", "done"),
    ):
        assert row in told_of, told_of
    for text in (join, secret):
        for server in servers:
            assert text.rpartition("_")[2] not in server.log()


def test_an_agent_that_is_killed_as_it_joins_and_as_it_renews_comes_back_by_itself(
    servers: tuple[Server, Server], begin: Begin, tmp_path: Path
):
    asked, called = servers
    join = make_join(asked, "mortal", "--label", "mortal")
    agent = begin(at(called), "mortal", "--join", join)
    file = agent.directory / "data" / "agent" / "credential"
    asked.wait_until(file.exists, "the secret to be kept")
    agent.kill()  # before the answer, or right after it
    for number in range(3):
        agent.start().wait_for("credential.renewed", times=number + 1)
        agent.kill()
    agent.start()
    asked.wait_until(lambda: (node(asked, "mortal") or {}).get("state") == "live", "it to be back")
    assert "error[" not in agent.log()


def test_a_server_that_is_evicted_stops_and_says_why(tmp_path: Path, postgres_url: str):
    started = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        flags = ("--database", postgres_url, "--node", name, *QUICK)
        started.append(Server(tmp_path / name, *flags).start())
    one, two = started
    try:
        refused = two.cli("nodes", "evict", "two", check=False)
        assert "error[E_EVICT_SELF]" in refused.stderr

        one.cli("nodes", "evict", "two")

        assert two.process is not None
        assert two.process.wait(DEADLINE) == 3
        assert "error[E_EVICTED]" in two.log()
    finally:
        one.stop()
        two.stop()


# ── certificates of clients ──


def test_d01_a_server_that_asks_for_certificates_refuses_who_shows_none(tmp_path: Path, begin: Begin):
    authority, stranger = make_authority(tmp_path), make_authority(tmp_path, "stranger")
    certificate, key = make_certificate(tmp_path)
    good, bad = make_client(tmp_path, "good", authority), make_client(tmp_path, "bad", stranger)
    run(tmp_path, "token", "create", "ann", "--data", "data", "--file", "token.txt")
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key), "--tls-client-ca", str(authority[0]))
    server = Server(tmp_path, "--host", "0.0.0.0", *tls, *SERVER, ca=certificate, shown=good).start()
    try:
        ca = ("--ca-file", str(certificate))
        comes_in = (*ca, "--token-file", "token.txt", "--cert-file", str(good))
        join = run(
            tmp_path, "--server", server.url, *comes_in, "nodes", "join-token", "n", "--label", "n"
        ).stdout.strip()
        begin(at(server), "n", *ca, "--cert-file", str(good), "--join", join).joined()
        assert "\nn " in run(tmp_path, "--server", server.url, *comes_in, "nodes").stdout

        for shown in ((), ("--cert-file", str(bad))):
            said = run(tmp_path, "--server", server.url, *ca, "--token-file", "token.txt", *shown, "nodes", check=False)
            assert said.returncode != 0, said.stdout
            assert "error[E_" in said.stderr
            agent = begin(at(server), f"x{len(shown)}", *ca, *shown, "--token-file", str(tmp_path / "token.txt"))
            agent.wait_for("server.lost")
            assert "joined" not in agent.log()
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.url}/healthz", verify=ssl.create_default_context(cafile=certificate))
        with socket.create_connection(("127.0.0.1", server.port)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP/1.1 200" not in plain.recv(1000)
        assert "Traceback" not in server.log()
    finally:
        assert server.stop() == 0


def test_the_nodes_of_a_cluster_show_each_other_their_certificates(tmp_path: Path, postgres_url: str):
    """The output of a run lies with the node that ran it: another fetches it from there."""
    authority = make_authority(tmp_path)
    certificate, key = make_certificate(tmp_path)
    both = tmp_path / "both.pem"
    both.write_bytes(authority[0].read_bytes() + certificate.read_bytes())
    good = make_client(tmp_path, "good", authority)
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key), "--tls-client-ca", str(both))
    started = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        roles = ("--roles", "api,coordinator,scheduler,agent") if name == "two" else ("--roles", "api")
        flags = ("--database", postgres_url, "--node", name, *tls, *QUICK, *roles)
        started.append(Server(tmp_path / name, *flags, ca=certificate, shown=good).start())
    one, two = started
    try:
        run_id = shell(one, "echo found it")
        assert one.ended(run_id)["node"] == "two"
        two.wait_until(lambda: "rpc.up" in two.log(), "others to reach it")
        one.wait_until(lambda: "found it" in one.http.get(f"/v1/runs/{run_id}/log").text, "the output", 30)
    finally:
        one.stop()
        two.stop()
