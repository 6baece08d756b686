"""Three servers of NATS: the one an agent is connected to dies, and work, log and events go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from horae.wire.nats.broker import EVENT_STREAM, Connector

from ..nats_server import Nats
from .agent import AgentProcess
from .server import Server, free_ports

pytestmark = pytest.mark.slow


@contextmanager
def three(directory: Path) -> Iterator[list[Nats]]:
    inner = free_ports(3)
    routes = ",".join(f"nats://127.0.0.1:{port}" for port in inner)
    servers = [
        Nats(
            directory / f"nats-{number}", "--server_name", f"n{number}", "--cluster_name", "three",
            "--cluster", f"nats://127.0.0.1:{port}", "--routes", routes,
        )
        for number, port in enumerate(inner)
    ]  # fmt: skip
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.kill()


async def replicas(address: str) -> int:
    """Of the stream of events; 0 while there is none, or while the servers elect who answers: nobody does then."""
    client = await Connector(address, "test").connect(lambda: None)
    try:
        answer = await client.request(f"$JS.API.STREAM.INFO.{EVENT_STREAM}", b"", timeout=1)
    except TimeoutError:
        return 0
    finally:
        await client.close()
    return int(json.loads(answer.data).get("config", {}).get("num_replicas", 0))


def test_work_goes_on_when_the_broker_an_agent_is_connected_to_is_killed(tmp_path: Path):
    with three(tmp_path) as brokers:
        address = "nats://" + ",".join(f"127.0.0.1:{one.port}" for one in brokers)
        first = "nats://" + ",".join(f"127.0.0.1:{brokers[number].port}" for number in (1, 2, 0))
        flags = ("--queue", address, "--roles", "api,coordinator,scheduler", "--heartbeat-interval", "1")
        server = Server(tmp_path, *flags, "--lease", "20")
        agent = None
        try:
            server.start().cli("token", "create", "far", "--agent", "*", "--label", "*", "--file", "far.token")
            token = ("--token-file", str(tmp_path / "far.token"))
            agent = AgentProcess(tmp_path, first, "far", *token).start().joined()
            server.wait_until(lambda: asyncio.run(replicas(address)) == 3, "the stream of events on three servers")
            (job,) = server.submit({"name": "long", "steps": [{"run": "echo before; sleep 5; echo after"}]})
            run_id = server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]
            log = f"/v1/runs/{run_id}/log"
            server.wait_until(lambda: "before" in server.http.get(log).text, "the job to begin")

            brokers[1].kill()

            ended = server.ended(run_id)
            assert (ended["state"], ended["attempt"]) == ("succeeded", 1)
            assert "before\nafter" in server.http.get(log).text
            later = server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]
            assert server.ended(later)["state"] == "succeeded"
            left = f"nats://127.0.0.1:{brokers[0].port}"
            server.wait_until(lambda: asyncio.run(replicas(left)) == 3, "the stream of events on those that are left")
        finally:
            if agent is not None:
                agent.stop()
            server.stop()
