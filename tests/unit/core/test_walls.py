"""What a step is told of the walls that it may have met."""

from __future__ import annotations

import pytest

from horae.core.model import Reason
from horae.core.work.walls import explain, explain_limit

NETWORK = [
    "curl: (6) Could not resolve host: example.org",
    "socket.gaierror: [Errno -3] Temporary failure in name resolution",
    "ping: connect: Network is unreachable",
    "java.net.UnknownHostException: example.org",
    "Error: getaddrinfo EAI_AGAIN registry.example.org",
    "psql: error: connection to server failed: Connection refused",
]


@pytest.mark.parametrize("said", NETWORK)
def test_a_step_without_network_that_looks_for_one_is_told_so(said: str) -> None:
    assert "`network: on`" in explain(1, said, sandbox="bubblewrap", network="off", offers_plain=True)
    assert "`network:`" in explain(1, said, sandbox="bubblewrap", network="listed", offers_plain=True)
    assert explain(1, said, sandbox="bubblewrap", network="on", offers_plain=True) == ""


def test_who_did_not_ask_for_a_network_is_told_that_none_is_the_default() -> None:
    told = {name: explain(1, NETWORK[0], sandbox="s", network=name, offers_plain=True) for name in ("off", "default")}
    assert "gave it no network: if it needs one" in told["off"]
    assert "gave it no network, which is the default: if it needs one" in told["default"]


def test_a_program_that_ends_silently_as_without_a_network_is_told_so_too() -> None:
    def told(code: int, script: str, network: str = "off") -> str:
        return explain(code, "", script=script, sandbox="bubblewrap", network=network, offers_plain=True)

    assert "`network: on`" in told(6, "curl -s https://example.org")
    assert "`network:`" in told(6, "curl -s https://example.org", "listed")
    assert told(6, "curl -s https://example.org", "on") == told(6, "./check") == told(3, "curl -s x") == ""


@pytest.mark.parametrize(
    ("code", "said"), [(127, "sh: 1: ./backup.sh: not found"), (126, ""), (1, "cat: /srv/x: No such file or directory")]
)
def test_a_step_that_misses_a_file_is_told_what_it_sees_and_the_line_that_shows_more(code: int, said: str) -> None:
    assert "`sandbox: plain`" in explain(code, said, sandbox="bubblewrap", network="off", offers_plain=True)
    without = explain(code, said, sandbox="bubblewrap", network="off", offers_plain=False)
    assert "plain" not in without
    assert "`checkout:" in without


def test_a_step_that_fails_otherwise_is_told_nothing() -> None:
    assert explain(1, "3 tests failed", sandbox="docker", network="off", offers_plain=True) == ""
    assert explain_limit(Reason.EXIT) == explain_limit("") == ""


def test_a_step_that_met_a_limit_is_told_how_to_raise_it() -> None:
    assert "memory" in explain_limit(Reason.OOM)
    assert "pids" in explain_limit(Reason.PROCESSES)
