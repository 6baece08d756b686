"""Runs that wait, under kill -9: what docs/howto/waiting.md promises."""

from __future__ import annotations

import random
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from .server import Server

HANDLERS = """
    from horae import Context, handler

    @handler
    async def child(context: Context) -> int:
        return context.data["number"] * 2

    @handler
    async def caller(context: Context) -> object:
        first = context.call("child", {"number": context.data["number"]})
        told = context.signal("go")
        both = context.call_all([("child", {"number": 1}), ("child", {"number": 2})])
        return [first, told, both]
"""
RUNS, KILLS, GAP = 30, 3, 3.0  # seconds between kills
CHILDREN = 3  # of each run


def serve(directory: Path, *flags: str) -> Server:
    jobs = directory / "jobs"
    jobs.mkdir()
    (jobs / "waits.py").write_text(textwrap.dedent(HANDLERS))
    server = Server(directory, "--jobs-directory", str(jobs), *flags).start()
    server.submit(
        {"name": "child", "key": "child", "handler": "waits:child", "overlap": "allow"},
        {"name": "caller", "key": "caller", "handler": "waits:caller", "overlap": "allow"},
    )
    return server


def begin(server: Server, number: int) -> int:
    job = next(job for job in server.every("/v1/jobs") if job["key"] == "caller")
    run: int = server.post(f"/v1/jobs/{job['id']}/run", {"data": {"number": number}}, status=201)["id"]
    return run


def children_of(server: Server, run_id: int) -> list[Any]:
    return server.every("/v1/runs", parent=run_id)


def test_a_caller_gives_its_only_slot_to_what_it_calls(tmp_path: Path) -> None:
    server = serve(tmp_path, "--handler-slots", "1")
    runs = [begin(server, number) for number in range(3)]
    for run_id in runs:
        server.post(f"/v1/runs/{run_id}/signals/go", run_id, status=202)
    for number, run_id in enumerate(runs):
        run = server.ended(run_id)
        assert (run["state"], run["result"]) == ("succeeded", [number * 2, run_id, [2, 4]]), run
        assert len(children_of(server, run_id)) == CHILDREN
    assert server.stop() == 0


@pytest.mark.slow
def test_no_signal_that_was_acknowledged_is_lost_and_calls_are_made_once(tmp_path: Path) -> None:
    server = serve(tmp_path, "--heartbeat-interval", "1", "--handler-slots", "4")
    runs = [begin(server, number) for number in range(RUNS)]
    paths = [server.get(f"/v1/runs/{run_id}/callbacks/go")["path"] for run_id in runs]
    told: dict[int, int] = {}  # by run: what was acknowledged

    def tell() -> None:
        """Tell every run something, by one of its doors, again with the same until it is acknowledged."""
        chance = random.Random(7)
        with httpx.Client(base_url=server.url, timeout=30, verify=False) as client:
            for number, (run_id, path) in enumerate(zip(runs, paths, strict=True)):
                door = path if number % 2 else f"/v1/runs/{run_id}/signals/go"
                while run_id not in told:
                    try:
                        answer = client.post(door, json=number, headers={"idempotency-key": f"go-{number}"})
                    except httpx.TransportError:
                        time.sleep(0.05)
                        continue
                    assert answer.status_code == 202, answer.text
                    told[run_id] = number
                time.sleep(chance.uniform(0, 2 * KILLS * GAP / RUNS))

    teller = threading.Thread(target=tell)
    teller.start()
    for _ in range(KILLS):
        time.sleep(GAP)
        server.kill()
        server.start()
    teller.join()
    assert len(told) == RUNS
    for number, run_id in enumerate(runs):
        run = server.ended(run_id)
        assert (run["state"], run["result"]) == ("succeeded", [number * 2, told[run_id], [2, 4]]), run
        children = children_of(server, run_id)
        assert sorted(child["task"] for child in children) == ["call:1", "call:2", "call:3"]
    assert server.stop() == 0
