"""Whose the other end of a connection is, asked of the real kernel."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from horae.web import peers

Pair = tuple[socket.socket, socket.socket]


@contextmanager
def connected(host: str = "127.0.0.1", through: str | None = None, user: int | None = None) -> Iterator[Pair]:
    """(client, server) ends of a connection; the client's socket is made by `user`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        client = _socket_of(user, socket.AF_INET6 if ":" in (through or host) else family)
        client.connect((through or host, listener.getsockname()[1]))
        server, _ = listener.accept()
        with client, server:
            yield client, server


def _socket_of(user: int | None, family: socket.AddressFamily) -> socket.socket:
    if user is None:
        return socket.socket(family)
    os.seteuid(user)
    try:
        return socket.socket(family)
    finally:
        os.seteuid(0)


def owner(server: socket.socket, client: socket.socket | None = None) -> int | None:
    peer = server.getpeername() if client is None else client.getsockname()
    return peers.owner_of(peer[:2], server.getsockname()[:2])


@pytest.mark.parametrize(("host", "through"), [("127.0.0.1", None), ("::1", None), ("127.0.0.1", "::ffff:127.0.0.1")])
def test_ones_own_connection_is_ones_own(host: str, through: str | None):
    with connected(host, through) as (_, server):
        assert owner(server) == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a socket of another user: run this test as root")
def test_a_connection_belongs_to_the_user_who_made_its_socket():
    with connected(user=65534) as (client, server):
        local, remote = server.getpeername(), server.getsockname()
        assert owner(server) == 65534
        assert peers._look_up(local, remote) == peers._ask(local, remote)
        client.close()
        assert owner(server) is None


def test_a_connection_that_has_ended_on_either_side_is_nobodys():
    with connected() as (client, server):
        known = client.getsockname(), server.getsockname()
        client.shutdown(socket.SHUT_WR)
        assert peers.owner_of(*known) is None
    with connected() as (client, server):
        known = client.getsockname(), server.getsockname()
        server.close()
        assert peers.owner_of(*known) is None


def test_what_was_never_connected_is_nobodys():
    assert peers.owner_of(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
    assert peers.owner_of(None, ("127.0.0.1", 2)) is None
    assert peers.owner_of(("no address", 1), ("127.0.0.1", 2)) is None


@pytest.mark.parametrize(("host", "through"), [("127.0.0.1", None), ("::1", None), ("127.0.0.1", "::ffff:127.0.0.1")])
def test_a_kernel_that_cannot_be_asked_is_read_by_its_table(
    host: str, through: str | None, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise PermissionError

    with connected(host, through) as (client, server):
        known = server.getpeername()[:2], server.getsockname()[:2]
        assert peers._look_up(*known) == peers._ask(*known)
        monkeypatch.setattr(peers, "_ask", refuse)
        assert peers.owner_of(*known) == os.geteuid()
        client.close()
        assert peers.owner_of(*known) is None


@pytest.mark.parametrize(
    "header", ["forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"]
)
def test_a_proxy_is_known_by_its_headers(header: str):
    assert peers.was_forwarded(["host", header])
    assert not peers.was_forwarded(["host", "accept", f"not-{header}", "x-request-id"])
