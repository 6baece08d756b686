"""A port that a test was given stays its own until its server listens."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ports

ROOT = Path(__file__).parents[1]


def test_no_port_is_given_twice_in_any_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LOWEST", ports.highest() - 200)
    mine = ports.free_ports(60)
    code = f"from tests import ports; ports.LOWEST = {ports.LOWEST}; print(*ports.free_ports(60))"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    theirs = [int(word) for word in said.split()]
    assert len({*mine, *theirs}) == 120


def test_no_outgoing_connection_gets_such_a_port() -> None:
    with socket.socket() as outgoing:
        outgoing.bind(("127.0.0.1", 0))
        assert outgoing.getsockname()[1] >= ports.highest() > max(ports.free_ports(3))


def test_a_port_in_use_is_not_given() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        assert not ports._claim(server.getsockname()[1])
