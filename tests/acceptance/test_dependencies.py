"""Jobs that come after others, through a real server: as a user would, and under kill -9."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .pair import Servers
from .server import Server

ANCHOR = "2026-01-01T00:00:00Z"


@pytest.fixture
def server(tmp_path: Path):
    server = Server(tmp_path, "--heartbeat-interval", "1", "--slots", "64").start()
    yield server
    server.stop()


def step(run: str) -> dict[str, Any]:
    return {"steps": [{"run": run}]}


def test_a_chain_runs_by_itself_and_shows_what_it_waits_for(server: Server, tmp_path: Path):
    (tmp_path / "chain.yaml").write_text(
        f"""
jobs:
  - {{name: extract, key: extract, steps: [{{run: "while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"}}]}}
  - {{name: load, key: load, after: [extract], steps: [{{run: 'printf %s "$HORAE_RUN_DATA" > {tmp_path}/seen'}}]}}
  - {{name: clean, key: clean, after: [{{job: extract, on: failure}}], steps: [{{run: "true"}}]}}
"""
    )
    server.cli("submit", "chain.yaml")
    assert "after extract" in server.cli("jobs").stdout
    shown = server.cli("jobs", "show", "extract").stdout
    assert "before" in shown
    assert "load, clean" in shown
    extract = server.cli_json("run", "extract")
    by_hand = server.cli_json("run", "load")
    waiting = server.wait_until(
        lambda: (run := server.get(f"/v1/runs/{by_hand['id']}"))["message"] and run, "it to say for what it waits"
    )
    assert (waiting["state"], waiting["reason"]) == ("blocked", "dependency")
    assert f"run {extract['id']}" in waiting["message"]
    assert "waits for the latest run of extract" in server.cli("runs", "show", str(by_hand["id"])).stdout

    (tmp_path / "go").touch()
    assert server.ended(by_hand["id"])["state"] == "succeeded"
    told = json.loads((tmp_path / "seen").read_text())["after"]["extract"]
    assert (told["run"], told["state"]) == (extract["id"], "succeeded")
    clean = server.get("/v1/jobs", key="clean")["items"][0]
    [record] = server.wait_until(lambda: server.every("/v1/runs", job_id=clean["id"]), "a record of the other branch")
    assert (record["state"], record["reason"]) == ("skipped", "dependency")


def test_a_circle_is_refused_with_its_path(server: Server):
    server.submit(
        {"name": "a", "key": "a", **step("true")}, {"name": "b", "key": "b", "after": ["a"], **step("true")}
    )  # fmt: skip
    answer = server.http.post("/v1/jobs", json={"name": "a", "key": "a", "after": ["b"], **step("true")})
    assert (answer.status_code, answer.json()["code"]) == (422, "E_CYCLE")
    assert "a after b after a" in answer.text
    job = server.get("/v1/jobs", key="b")["items"][0]
    again = server.http.put(f"/v1/jobs/{job['id']}", json=server.get(f"/v1/jobs/{job['id']}"))
    assert again.json()["version"] == job["version"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "kills"), [("sqlite", 4), ("postgres", 4), pytest.param("postgres", 20, marks=pytest.mark.long)]
)
def test_every_moment_of_a_chain_has_one_record_with_the_right_verdict_through_crashes(
    tmp_path: Path, request: pytest.FixtureRequest, store: str, kills: int
):
    servers = Servers.of(store, request, tmp_path, "--slots", "64")
    try:
        play_chain(servers, kills)
    finally:
        servers.stop()


def play_chain(servers: Servers, kills: int) -> None:
    server = servers.first
    often = {"overlap": "allow", "misfire": "run_all"}
    schedule = {"schedule": {"every": "1s", "anchor": ANCHOR}}
    fails = 'case "$HORAE_SCHEDULED_FOR" in *0Z|*5Z|*3Z) exit 1;; esac'
    after = {"overlap": "allow", **step("true")}
    first, second, third, own = server.submit(
        {"name": "first", "key": "first", **often, **schedule, **step(fails)},
        {"name": "second", "key": "second", "after": ["first"], **after},
        {"name": "third", "key": "third", "after": [{"job": "second", "on": "end"}], **after},
        {"name": "own", "key": "own", **often, **schedule, "after": [{"job": "first", "on": "failure"}], **step(":")},
    )  # fmt: skip
    chance = random.Random(7)
    for _ in range(kills):
        time.sleep(chance.uniform(1, 4))
        servers.kill(chance)
    time.sleep(3)
    for job in (own, first):
        server.post(f"/v1/jobs/{job['id']}/pause")

    def records(job: Any) -> list[Any]:
        return server.every("/v1/runs", job_id=job["id"])

    def is_done() -> bool:
        live = server.every("/v1/runs", state="queued,running,blocked")
        return not live and len(records(first)) == len(records(second)) == len(records(third))

    server.wait_until(is_done, "the chain to end")
    ended = {run["due_at"]: run for run in records(first)}
    assert len(ended) > 10
    for job in (second, third, own):
        assert max(Counter(run["due_at"] for run in records(job)).values()) == 1
    assert {run["due_at"] for run in records(second)} == {run["due_at"] for run in records(third)} == ended.keys()
    for run in records(second):
        goes = ended[run["due_at"]]["state"] == "succeeded"
        assert (run["state"], run["reason"]) == (("succeeded", "") if goes else ("skipped", "dependency")), run
    assert {run["state"] for run in records(third)} == {"succeeded"}
    for run in records(own):
        failed = run["due_at"] in ended and ended[run["due_at"]]["state"] == "failed"
        assert (run["state"], run["reason"]) == (("succeeded", "") if failed else ("skipped", "dependency")), run
    lost = sum(run["lost"] for job in (first, second, third, own) for run in records(job))
    print(f"\n{servers.kills} kills, {len(ended)} moments, {lost} attempts lost")
