"""Whoever follows what happens has no gap and no repeat, however often the server is killed."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from horae.client import SyncClient
from horae.client.output import Event, EventReader
from horae.errors import Error

from .server import DEADLINE, Server

KILLS, BETWEEN = 4, 1.5
MANY = 10_000  # events, which are more bytes than all buffers hold
JOBS = [
    {"name": f"often-{n}", "steps": [{"run": "true"}], "triggers": [{"every": "300ms"}], "overlap": overlap}
    for n, overlap in enumerate(("allow", "forbid"))
]


class Reader(threading.Thread):
    """Follows for as long as it is let, and keeps its place as a program would."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.events: list[Any] = []
        self.place: str | None = "0.0.0"
        self.is_wanted = True

    def run(self) -> None:
        while self.is_wanted:
            try:
                with SyncClient(self._url) as client:
                    for event in client.events(after=self.place):
                        self.events.append(event.data)
                        self.place = event.id
                        if not self.is_wanted:
                            return
            except Error:
                time.sleep(0.2)


@pytest.mark.slow
def test_a_follower_has_every_event_once_though_the_server_is_killed_again_and_again(tmp_path: Path):
    server = Server(tmp_path, "--heartbeat-interval", "1", "--slots", "4").start()
    reader = Reader(server.url)
    reader.start()
    jobs = server.submit(*JOBS)
    for _ in range(KILLS):
        time.sleep(BETWEEN)
        server.kill()
        server.start()
    for job in jobs:
        server.post(f"/v1/jobs/{job['id']}/pause")
    server.wait_until(lambda: not server.every("/v1/runs", state="queued,running,blocked"), "all runs to end")
    stored = all_events(server)
    server.wait_until(lambda: len(reader.events) >= len(stored), "the follower to have them all", DEADLINE)
    reader.is_wanted = False
    assert server.stop() == 0

    assert [event["id"] for event in reader.events[: len(stored)]] == [event["id"] for event in stored]
    check_runs(stored, {run["id"]: run["state"] for run in runs_of(tmp_path, server)})


@pytest.mark.slow
def test_a_consumer_that_does_not_read_holds_up_nobody_and_misses_nothing(tmp_path: Path):
    server, line = Server(tmp_path).start(), socket.socket()
    try:
        begin = server.get("/v1/events", limit=1000)["cursor"]
        lazy = follow_without_reading(server, line, begin)
        jobs = [{"name": f"job {n} {'x' * 100}", "steps": [{"run": "true"}]} for n in range(MANY)]
        made = {job["id"] for job in server.submit(*jobs)}
        with SyncClient(server.url) as client:  # another one hears all of it meanwhile
            heard = [event.data for event in islice(client.events(after=begin, kinds=["job.submitted"]), MANY)]
        assert {event["data"]["job"] for event in heard} == made
        told = [event.data["id"] for event in islice(read_on(lazy), MANY)]
        assert told == [event["id"] for event in heard]
        lazy.close()
    finally:
        line.close()
        server.stop()


def follow_without_reading(server: Server, line: socket.socket, after: str) -> http.client.HTTPResponse:
    """As a consumer does that is stuck: what it was sent fills the buffers between the two, and then no more goes."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(DEADLINE)
    line.connect(("127.0.0.1", server.port))
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.sock = line
    connection.request("GET", "/v1/events/stream?kinds=job.submitted", headers={"Last-Event-ID": after})
    return connection.getresponse()


def read_on(answer: http.client.HTTPResponse) -> Iterator[Event]:
    reader = EventReader()
    while piece := answer.read1(65536):
        yield from reader.feed(piece)


def all_events(server: Server) -> list[Any]:
    found: list[Any] = []
    after: dict[str, str] = {}
    while (page := server.get("/v1/events", limit=1000, **after))["items"]:
        found += page["items"]
        after = {"after": page["cursor"]}
    return found


def runs_of(tmp_path: Path, server: Server) -> list[Any]:
    again = Server(tmp_path, port=server.port).start()
    try:
        return again.every("/v1/runs")
    finally:
        again.stop()


def check_runs(events: list[Any], ends: dict[int, str]) -> None:
    """Every run is told from its first to its last, in order, and ends once, as it did."""
    told: dict[int, list[Any]] = defaultdict(list)
    for event in events:
        if event["subject"].startswith("runs/"):
            told[event["data"]["run"]].append(event)
    assert set(told) == set(ends)
    for run_id, state in ends.items():
        last = told[run_id][-1]
        assert (last["type"], last["data"]["state"]) == ("horae.run.finished", state), run_id
        kinds = [event["type"] for event in told[run_id]]
        assert kinds.count("horae.run.finished") == 1
        if state not in ("skipped", "coalesced"):
            assert kinds[:2] == ["horae.run.queued", "horae.run.started"], (run_id, kinds)
        fences = [event["data"]["fence"] for event in told[run_id]]
        assert fences == sorted(fences)
