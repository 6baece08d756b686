"""Where processes of ours may connect to, whoever names the address and however it is written."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest

from horae.errors import Invalid
from horae.executors.reach import Reach

LOOPBACK = [("127.0.0.0/8", None), ("::1/128", None)]
OWN = 8080


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.7.7.7", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
        "169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "100.100.100.200",
    ],
)  # fmt: skip
def test_loopback_and_link_are_refused_in_every_writing(host: str):
    assert Reach([OWN], []).refusal(host, 80)


@pytest.mark.parametrize("host", ["93.184.216.34", "10.1.2.3", "2606:2800:220:1::1"])
def test_other_addresses_are_reached(host: str):
    assert Reach([OWN], []).refusal(host, 80) == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::ffff:127.0.0.1"])
def test_our_own_ports_are_refused_where_loopback_is_allowed(host: str):
    reach = Reach([OWN], [*LOOPBACK, ("0.0.0.0/32", None)])

    assert "Horae itself" in reach.refusal(host, OWN)
    assert reach.refusal("127.0.0.1", 5432) == ""
    assert Reach([OWN], [("127.0.0.1/32", OWN)]).refusal("127.0.0.1", OWN) == ""
    assert Reach([OWN], [("127.0.0.1/32", OWN)]).refusal("127.0.0.1", 5432)


def test_what_the_operator_named_is_reached_and_nothing_beside_it():
    reach = Reach([OWN], [], [("localhost", 9000)])

    assert reach.refusal("127.0.0.1", 9000) == ""
    assert reach.refusal("127.0.0.1", 9001)


def test_a_name_is_looked_up_once_and_refused_if_any_of_its_addresses_is(monkeypatch: pytest.MonkeyPatch):
    answers = iter([["93.184.216.34"], ["169.254.169.254"], ["93.184.216.34", "127.0.0.1"]])

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (one, port)) for one in next(answers)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    reach = Reach([OWN], [])

    assert reach.pinned("rebinding.example", 5432) == "93.184.216.34"  # which is connected to, whatever comes next
    for _ in range(2):
        with pytest.raises(Invalid, match="not reached from here"):
            reach.pinned("rebinding.example", 5432)


PROGRAM = """
import asyncio, http.client, socket, sys, urllib.request
from horae.executors.reach import Reach, guard
port, own = map(int, sys.argv[1:])
guard(Reach([own], [("127.0.0.1/32", port)]))
def tried(work):
    try:
        work()
    except Exception as error:
        chain = error
        while chain is not None and "not reached" not in str(chain):
            chain = chain.__cause__ or chain.__context__ or getattr(chain, "reason", None)
        return "refused" if chain is not None else repr(error)
    return "reached"
print(tried(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60)))
print(tried(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/there", timeout=60)))
print(tried(lambda: urllib.request.urlopen("http://169.254.169.254/latest", timeout=60)))
print(tried(lambda: http.client.HTTPConnection("2130706433", own, timeout=60).request("GET", "/")))
print(tried(lambda: asyncio.run(asyncio.open_connection("localhost", own))))
print(tried(lambda: socket.create_connection(("::ffff:127.0.0.1", own), 60)))
print(tried(lambda: socket.socket(socket.AF_UNIX).connect("/run/nothing")))
print(tried(lambda: socket.socket().connect(("localhost", port))))
"""


def test_a_guarded_process_connects_to_nothing_else_also_after_a_redirect():
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    own = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)

    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            there = self.path == "/there"
            self.send_response(302 if there else 200)
            if there:
                self.send_header("Location", f"http://127.0.0.1:{own.server_port}/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with own, ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as service:
        Thread(target=service.serve_forever, daemon=True).start()
        argv = [sys.executable, "-c", PROGRAM, str(service.server_port), str(own.server_port)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        service.shutdown()

    assert done.stdout.split() == ["reached", *["refused"] * 7], done.stdout + done.stderr


@pytest.mark.parametrize(
    "host",
    [
        "10.1.2.3",
        "172.16.0.1",
        "192.168.7.7",
        "100.64.0.1",
        "fc00::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "224.0.0.1",
    ],
)
def test_requests_of_an_agent_reach_no_private_network_unless_it_is_allowed(host: str):
    assert "private network" in Reach([], [], is_public_only=True).refusal(host, 80)
    everything = [("0.0.0.0/0", None), ("::/0", None)]
    assert Reach([], everything, is_public_only=True).refusal(host, 80) == ""


@pytest.mark.parametrize("host", ["93.184.216.34", "2606:2800:220:1::1"])
def test_requests_of_an_agent_reach_the_world(host: str):
    assert Reach([OWN], [], is_public_only=True).refusal(host, 80) == ""
