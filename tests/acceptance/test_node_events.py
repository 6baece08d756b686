"""Triggers on what becomes of nodes, in a real cluster: nodes are killed, the leader too, and each is told once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .server import Server

pytestmark = pytest.mark.slow

TIMERS = ("--heartbeat-interval", "0.5s", "--lease", "3s")
ALARM = {
    "name": "alarm", "key": "alarm", "overlap": "allow", "handler": "horae.handlers:noop",
    "triggers": [{"on": {"node": "any", "states": ["gone", "joined", "draining"]}}],
}  # fmt: skip


@pytest.fixture
def nodes(postgres_url: str, tmp_path: Path) -> Iterator[list[Server]]:
    made = []
    for name in ("n0", "n1", "n2"):
        (tmp_path / name).mkdir()
        made.append(Server(tmp_path / name, "--database", postgres_url, "--node", name, *TIMERS))
    yield made
    for node in made:
        node.stop()


def told(server: Server) -> Counter[tuple[str, str, str]]:
    runs = server.every("/v1/runs", state="succeeded")
    events = [server.get(f"/v1/runs/{run['id']}")["data"]["event"] for run in runs]
    return Counter((event["node"], event["state"], event["reason"]) for event in events)


def wait_for(server: Server, *wanted: tuple[str, str, str]) -> None:
    server.wait_until(lambda: set(wanted) <= told(server).keys(), f"runs for {wanted}")


def test_every_node_that_dies_stops_or_comes_back_is_told_exactly_once(nodes: list[Server]) -> None:
    first, second, third = nodes
    first.start()
    first.submit(ALARM)
    second.start()
    third.start()
    wait_for(third, ("n1", "joined", "new"), ("n2", "joined", "new"))

    second.kill()
    wait_for(third, ("n1", "gone", "silent"))
    first.kill()  # the leader: its heir declares it
    wait_for(third, ("n0", "gone", "silent"))
    second.start()
    wait_for(third, ("n1", "joined", "returned"))
    second.stop()
    wait_for(third, ("n1", "draining", "stopping"), ("n1", "gone", "left"))

    assert told(third) == Counter(
        [
            ("n1", "joined", "new"), ("n2", "joined", "new"), ("n1", "gone", "silent"), ("n0", "gone", "silent"),
            ("n1", "joined", "returned"), ("n1", "draining", "stopping"), ("n1", "gone", "left"),
        ]
    )  # fmt: skip
