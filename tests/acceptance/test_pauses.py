"""Who owns what while processes and the database stand still: real servers, real pauses."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ..contract.postgres_server import Postgres
from .agent import AgentProcess
from .server import Server
from .witness import check_witness, witness

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("waits")]  # so that others work meanwhile

LEASE = 3.0
TIMERS = ("--heartbeat-interval", "0.5s", "--lease", f"{LEASE:g}s")
DEAD_AFTER = 2 * LEASE
ENDED = "succeeded,failed,timed_out,cancelled"


def server_of(directory: Path, name: str, url: str, node: str, *flags: str) -> Server:
    (directory / name).mkdir()
    return Server(directory / name, "--database", url, "--node", node, *TIMERS, *flags)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def database() -> Iterator[Postgres]:
    """A server that may be stopped."""
    server = Postgres.make()
    server.start()
    yield server
    server.thaw() if server.is_running() else None
    server.remove()


def refused(server: Server) -> str:
    """Return what a server says whose start is refused, and with which code it ends."""
    with pytest.raises(AssertionError, match="the server ended with 5"):
        server.start()
    server.http.close()
    return server.log()


def pid_of(server: Server) -> int:
    assert server.process is not None
    return server.process.pid


def let_go(server: Server) -> None:
    """End it, however it stands."""
    if server.process is not None and server.process.poll() is None:
        server.process.send_signal(signal.SIGCONT)
    server.stop()


# ── one name, one living process ──


def test_a_second_process_of_the_same_name_is_refused_and_told_who_has_it(
    postgres_url: str, tmp_path: Path, stack: ExitStack
):
    first = server_of(tmp_path, "first", postgres_url, "n0").start()
    stack.callback(let_go, first)
    (job,) = first.submit({"name": "job", "schedule": "1s", "handler": "horae.handlers:noop"})

    said = refused(server_of(tmp_path, "second", postgres_url, "n0"))

    assert "E_NODE_TAKEN" in said
    assert f"pid {pid_of(first)} on " in said
    assert "--node" in said
    assert "Traceback" not in said
    first.wait_until(lambda: first.get("/v1/runs", job_id=job["id"], state="succeeded")["items"], "a run")


@pytest.mark.long
def test_a_restart_after_a_crash_takes_its_name_up_at_once_and_a_stranger_waits_for_the_lease(
    postgres_url: str, tmp_path: Path, stack: ExitStack
):
    first = server_of(tmp_path, "first", postgres_url, "n0").start()
    stack.callback(let_go, first)
    first.kill()
    first.start()
    assert "node.waits" not in first.log()
    first.kill()

    second = server_of(tmp_path, "second", postgres_url, "n0").start()
    stack.callback(let_go, second)

    assert "node.waits" in second.log()
    assert "node.taken_over" in second.log()
    assert [node["state"] for node in second.get("/v1/nodes")["items"]] == ["live"]


def test_a_process_that_stood_still_while_its_name_was_taken_over_ends_and_nothing_overlaps(
    postgres_url: str, tmp_path: Path, stack: ExitStack
):
    first = server_of(tmp_path, "first", postgres_url, "n0").start()
    stack.callback(let_go, first)
    jobs = first.submit(*(witness(number, tmp_path) for number in range(3)))
    first.wait_until(lambda: first.get("/v1/runs", state="succeeded")["items"], "a run")
    assert first.process is not None
    first.process.send_signal(signal.SIGSTOP)
    second = server_of(tmp_path, "second", postgres_url, "n0").start()
    stack.callback(let_go, second)

    first.process.send_signal(signal.SIGCONT)

    assert first.process.wait(60) == 5
    assert "E_SUPERSEDED" in first.log()
    assert "Traceback" not in first.log()
    go_on(second, jobs)
    end(second, jobs, tmp_path)


def go_on(server: Server, jobs: list[Any]) -> None:
    """Every job has a run that was made from now on and ends well: none is stuck behind another."""

    def newest_of(**where: Any) -> list[int]:
        """None while the server refuses, as it may just after an outage."""
        answer = server.http.get("/v1/runs", params={**where, "limit": 1})
        assert answer.status_code in (200, 503), answer.text
        return [run["id"] for run in answer.json()["items"]] if answer.status_code == 200 else []

    newest = server.wait_until(newest_of, "a run")[0]

    def succeeded(job: Any) -> bool:
        return any(run_id > newest for run_id in newest_of(job_id=job["id"], state="succeeded"))

    for job in jobs:
        server.wait_until(lambda job=job: succeeded(job), f"another success of {job['name']}")


def end(server: Server, jobs: list[Any], directory: Path) -> None:
    for job in jobs:
        server.post(f"/v1/jobs/{job['id']}/pause")
    server.wait_until(lambda: not server.every("/v1/runs", state="queued,running,blocked"), "every run to end")
    for number, job in enumerate(jobs):
        check_witness(directory / f"{number}.txt", server.every("/v1/runs", job_id=job["id"]))


# ── the database ──


@pytest.mark.long
def test_no_node_is_given_up_for_an_outage_of_the_database_longer_than_its_death(
    database: Postgres, tmp_path: Path, stack: ExitStack
):
    """Nobody could beat. What ran was killed by its keeper and runs again; what is claimed afterwards runs once."""
    nodes = [server_of(tmp_path, name, database.url, name).start() for name in ("n0", "n1", "n2")]
    for node in nodes:
        stack.callback(let_go, node)
    jobs = nodes[0].submit(*(witness(number, tmp_path) for number in range(4)))
    go_on(nodes[0], jobs)

    database.freeze()
    time.sleep(DEAD_AFTER + 2 * LEASE)
    database.thaw()

    first = nodes[0]
    long = f"echo start $HORAE_ATTEMPT >> {tmp_path}/long.txt; sleep {DEAD_AFTER}"
    body = {"jobs": [{"name": "long", "run_once": True, "steps": [{"run": long}]}]}
    first.wait_until(lambda: first.http.post("/v1/jobs", json=body).status_code == 201, "a submit")
    go_on(first, jobs)
    (run,) = first.wait_until(
        lambda: [run for run in first.every("/v1/runs", state=ENDED) if (tmp_path / "long.txt").exists()
                 and run["job_id"] not in {job["id"] for job in jobs}],
        "the long run to end",
    )  # fmt: skip
    assert (run["state"], run["attempt"]) == ("succeeded", 1)
    assert (tmp_path / "long.txt").read_text() == "start 1\n"
    assert not any("died" in node.log() for node in nodes)
    end(first, jobs, tmp_path)


def test_a_stop_while_the_database_is_away_ends_with_a_sentence_and_its_code(database: Postgres, tmp_path: Path):
    server = server_of(tmp_path, "n0", database.url, "n0").start()
    database.stop("immediate")

    code = server.stop()

    assert code == 6
    assert "Traceback" not in server.log()
    assert "stopped, but nobody could be told" in server.log()


# ── a server that stands still, with an agent that goes on through another ──


@pytest.mark.long
def test_a_server_that_wakes_with_old_frames_of_an_agent_does_no_harm(
    postgres_url: str, tmp_path: Path, stack: ExitStack
):
    roles = ("--roles", "api,coordinator,scheduler")
    paused, other = (server_of(tmp_path, name, postgres_url, name, *roles).start() for name in ("s0", "s1"))
    for server in (paused, other):
        stack.callback(let_go, server)
    addresses = f"127.0.0.1:{paused.grpc_port},127.0.0.1:{other.grpc_port}"
    agent = AgentProcess(tmp_path, addresses, "far").start().joined()
    stack.callback(agent.stop)
    jobs = other.submit(*(witness(number, tmp_path) for number in range(4)))
    go_on(other, jobs)
    assert paused.process is not None

    for times in (1, 2):
        paused.process.send_signal(signal.SIGSTOP)
        agent.wait_for(f"joined 127.0.0.1:{other.grpc_port}", times=times)
        time.sleep(2 * LEASE)
        paused.process.send_signal(signal.SIGCONT)
        go_on(other, jobs)
        if times == 1:  # back over the first, to be left again
            other.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
            agent.wait_for(f"joined 127.0.0.1:{paused.grpc_port}", times=2)
            other.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
            go_on(other, jobs)

    end(other, jobs, tmp_path)
    states = {node["name"]: node["state"] for node in other.get("/v1/nodes")["items"]}
    assert states == {"s0": "live", "s1": "live", "far": "live"}
