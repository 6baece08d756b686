"""Several `horae up` on one PostgreSQL: segments are shared, a death is made good, nothing is missed or doubled."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from .server import Server
from .witness import check_ledger

pytestmark = pytest.mark.slow

Start = Callable[[str], Server]
TIMERS = ("--heartbeat-interval", "0.5s", "--lease", "4s")


@pytest.fixture
def start(postgres_url: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a node by its name, or starts it again."""
    nodes: dict[str, Server] = {}

    def start(name: str) -> Server:
        if name not in nodes:
            (tmp_path / name).mkdir(exist_ok=True)
            nodes[name] = Server(tmp_path / name, "--database", postgres_url, "--node", name, *TIMERS)
        return nodes[name].start()

    yield start
    for node in nodes.values():
        node.stop()


def shares(node: Server) -> dict[str, int]:
    return dict(Counter(segment["owner"] for segment in node.get("/v1/segments")["items"]))


def wait_for_shares(node: Server, *counts: int) -> dict[str, int]:
    def shared() -> dict[str, int] | None:
        found = shares(node)
        return found if sorted(found.values(), reverse=True) == list(counts) else None

    found: dict[str, int] = node.wait_until(shared, f"shares of {counts}")
    return found


def test_segments_follow_the_nodes_that_live_and_every_moment_has_one_record(start: Start) -> None:
    first, second, third = start("n0"), start("n1"), start("n2")
    jobs = second.submit(
        *({"name": f"job {n}", "schedule": "1s", "handler": "horae.handlers:noop", "segment": 5 * n} for n in range(20))
    )
    assert wait_for_shares(third, 34, 33, 33).keys() == {"n0", "n1", "n2"}

    first.kill()  # the leader, with its scheduler and its agent
    assert wait_for_shares(third, 50, 50).keys() == {"n1", "n2"}

    first = start("n0")
    assert wait_for_shares(third, 34, 33, 33).keys() == {"n0", "n1", "n2"}

    second.stop()
    assert shares(third).keys() == {"n0", "n2"}  # handed over before it went

    for job in jobs:
        third.post(f"/v1/jobs/{job['id']}/pause")
    third.wait_until(lambda: not third.every("/v1/runs", state="queued,running,blocked"), "every run to end")
    for job in jobs:
        check_ledger(third, job)


def all_handlers(server: Server) -> Any:
    """Return what there is, once two nodes have told."""
    page = server.get("/v1/handlers")
    return page if [node["state"] for node in page["nodes"]] == ["listed", "listed"] else None


@pytest.mark.long
def test_any_server_lists_the_handlers_of_all_and_names_the_one_that_does_not_answer(
    start: Start, tmp_path: Path
) -> None:
    for name, text in (("n0", "from horae import handler\n@handler\ndef run(): ...\n"), ("n1", "def broken(:\n")):
        (tmp_path / name / "jobs" / f"of-{name}").mkdir(parents=True)
        (tmp_path / name / "jobs" / f"of-{name}" / "job.py").write_text(text)
    first, second = start("n0"), start("n1")

    for server in (first, second):
        page = server.wait_until(partial(all_handlers, server), "both nodes to tell")
        assert [(it["name"], it["node"], bool(it["error"])) for it in page["items"]] == [
            ("jobs/of-n0", "n0", False),
            ("jobs/of-n1", "n1", True),
        ]
    assert [it["node"] for it in first.get("/v1/handlers", node="n1")["items"]] == ["n1"]

    assert second.process is not None
    second.process.send_signal(signal.SIGSTOP)
    try:
        page = first.get("/v1/handlers")  # long before its lease is over
    finally:
        second.process.send_signal(signal.SIGCONT)
    assert [it["node"] for it in page["items"]] == ["n0"]
    assert [(node["name"], node["state"]) for node in page["nodes"]] == [("n0", "listed"), ("n1", "silent")]


@pytest.mark.long
def test_a_standby_takes_over_in_active_passive_mode(postgres_url: str, tmp_path: Path) -> None:
    nodes = []
    for name in ("n0", "n1"):
        (tmp_path / name).mkdir()
        flags = ("--database", postgres_url, "--node", name, "--scheduler-mode", "active-passive", *TIMERS)
        nodes.append(Server(tmp_path / name, *flags).start())
    active, standby = nodes
    try:
        assert shares(standby) == {"n0": 100}
        active.kill()

        standby.wait_until(lambda: shares(standby) == {"n1": 100}, "the standby to take over")
    finally:
        for node in nodes:
            node.stop()
