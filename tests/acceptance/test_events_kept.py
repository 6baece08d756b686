"""kill -9 of the server and of the broker, again and again: no run has ended without its event."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from horae.wire.nats.broker import EVENT_STREAM, Connector

from ..nats_server import Nats, running
from .server import DEADLINE, Server

BETWEEN = 1.5  # seconds
JOBS = [
    {"name": f"often-{n}", "steps": [{"run": "true"}], "triggers": [{"every": "300ms"}], "overlap": overlap}
    for n, overlap in enumerate(("allow", "forbid", "forbid"))
]


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.long)])
def test_no_run_ends_without_its_event_however_often_server_and_broker_are_killed(tmp_path: Path, kills: int):
    with running(tmp_path / "nats") as nats:
        server = Server(tmp_path, "--queue", nats.url, "--heartbeat-interval", "1", "--slots", "4").start()
        try:
            ends = crash_often(server, nats, kills)
            told = asyncio.run(until_told(nats.url, set(ends)))
        finally:
            code = server.stop()

    assert told == ends
    assert {"succeeded", "skipped"} <= set(ends.values())
    assert len(ends) > 4 * kills
    assert code == 0


def crash_often(server: Server, nats: Nats, kills: int) -> dict[int, str]:
    """Run → state of all that ended meanwhile."""
    jobs = server.submit(*JOBS, {"name": "long", "steps": [{"run": "sleep 1"}], "triggers": [{"every": "300ms"}]})
    for kill in range(kills):
        time.sleep(BETWEEN)
        server.kill()
        if kill % 2:
            nats.kill()
            nats.start()
        server.start()
    for job in jobs:
        server.post(f"/v1/jobs/{job['id']}/pause")
    server.wait_until(lambda: not server.every("/v1/runs", state="queued,running,blocked"), "all runs to end")
    return {run["id"]: run["state"] for run in server.every("/v1/runs")}


async def until_told(url: str, run_ids: set[int]) -> dict[int, str]:
    """Run → state as the events say, once there is one of each."""
    client = await Connector(url, "reader").connect(lambda: None)
    told: dict[int, str] = {}
    sequence = 0
    try:
        async with asyncio.timeout(DEADLINE):
            while run_ids - set(told):
                asked = json.dumps({"seq": sequence + 1, "next_by_subj": "horae.events.run.finished"}).encode()
                answer = await client.request(f"$JS.API.STREAM.MSG.GET.{EVENT_STREAM}", asked, timeout=60)
                message = json.loads(answer.data).get("message")
                if message is None:
                    await asyncio.sleep(0.1)
                    continue
                sequence = message["seq"]
                _note(told, json.loads(base64.b64decode(message["data"]))["data"])
    finally:
        await client.close()
    return told


def _note(told: dict[int, str], data: Any) -> None:
    assert told.setdefault(data["run"], data["state"]) == data["state"], "a run ends once"
