"""Debounce under sixteen callers and kill -9: what docs/howto/debounce.md promises."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from .pair import Servers
from .server import Server

CALLERS, KINDS = 16, 4
CALM, AT_MOST = 0.5, 2.0


class Call(NamedTuple):
    """One that was answered."""

    kind: str
    number: int
    asked_at: float
    answered_at: float
    run_id: int


def job(**debounce: Any) -> dict[str, Any]:
    return {
        "name": "calm", "steps": [{"run": "true"}], "overlap": "allow",
        "debounce": {"seconds": CALM, "at_most": AT_MOST, "per": "data.path", **debounce},
    }  # fmt: skip


def test_calls_that_come_close_together_are_one_run_of_each_kind(tmp_path: Path):
    server = Server(tmp_path).start()
    [made] = server.submit(job(seconds=3, at_most=60))
    address = f"/v1/jobs/{made['id']}/run"

    def ask(number: int) -> Any:
        return server.post(address, {"data": {"path": number % KINDS, "number": number}}, status=201)

    with ThreadPoolExecutor(CALLERS) as callers:
        answers = list(callers.map(ask, range(64)))
    assert len({answer["id"] for answer in answers}) == KINDS
    assert sum(not answer.get("replaced") for answer in answers) == KINDS
    runs = [server.ended(run_id) for run_id in {answer["id"] for answer in answers}]
    assert [run["state"] for run in runs] == ["succeeded"] * KINDS
    assert len(server.every("/v1/runs", job_id=made["id"])) == KINDS
    assert server.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "kills"), [("sqlite", 2), ("postgres", 2), pytest.param("postgres", 30, marks=pytest.mark.long)]
)
def test_sixteen_callers_and_crashes_make_exactly_the_promised_runs(
    tmp_path: Path, request: pytest.FixtureRequest, store: str, kills: int
):
    servers = Servers.of(store, request, tmp_path)
    try:
        [made] = servers.first.submit(job())
        calls = call_under_kills(servers, f"/v1/jobs/{made['id']}/run", kills)
        live = "queued,running,blocked"
        servers.first.wait_until(lambda: not servers.first.every("/v1/runs", state=live), "all runs to end")
        runs = servers.first.every("/v1/runs", job_id=made["id"])
        print(f"\n{servers.kills} kills, {len(calls)} calls were answered, {len(runs)} runs")
        check(calls, runs)
    finally:
        servers.stop()


def call_under_kills(servers: Servers, path: str, kills: int) -> list[Call]:
    """Sixteen callers, each of whom asks any server, while one server after the other is killed."""
    numbers, lock, calls, over = iter(range(10**9)), threading.Lock(), list[Call](), threading.Event()

    def caller(seed: int) -> None:
        chance = random.Random(seed)
        with httpx.Client(timeout=30, verify=False) as client:
            while not over.is_set():
                kind, number, asked_at = f"k{chance.randrange(KINDS)}", next(numbers), time.time()
                address = f"{chance.choice(servers.each).url}{path}"
                try:
                    answer = client.post(address, json={"data": {"path": kind, "number": number}})
                except httpx.TransportError:
                    time.sleep(0.05)
                    continue
                if answer.status_code == 201:
                    with lock:
                        calls.append(Call(kind, number, asked_at, time.time(), answer.json()["id"]))
                time.sleep(chance.choice((0.01, 0.1, 0.7)))

    threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(CALLERS)]
    for thread in threads:
        thread.start()
    chance = random.Random(7)
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(1, 4))
            servers.kill(chance)
        time.sleep(3)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    return calls


def check(calls: list[Call], runs: list[dict[str, Any]]) -> None:
    """Judge what was answered by what there is."""
    assert len(calls) > 100
    by_id = {run["id"]: run for run in runs}
    asked_at = {call.number: call.asked_at for call in calls}
    for call in calls:  # each has a run, with its data or that of a call that was not older
        run = by_id[call.run_id]
        assert run["data"]["path"] == call.kind
        said = run["data"]["number"]
        assert said == call.number or said not in asked_at or answered(calls, said) >= call.asked_at
        assert started(run) >= call.asked_at
    for kind in {call.kind for call in calls}:  # and no two are due closer together than said
        due = sorted(moment(run["due_at"]) for run in runs if run["data"]["path"] == kind)
        assert all(after - before >= CALM for before, after in pairwise(due)), kind
    for run in runs:  # nor later after the first call than said
        assert moment(run["due_at"]) <= moment(run["created_at"]) + AT_MOST + 0.001
        assert run["state"] == "succeeded"


def answered(calls: list[Call], number: int) -> float:
    return next(call.answered_at for call in calls if call.number == number)


def started(run: dict[str, Any]) -> float:
    return moment(run["started_at"])


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
