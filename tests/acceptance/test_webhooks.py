"""Webhooks of a real server, called as docs/howto/webhooks.md says."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ..repositories import commit, git, make_repository
from .server import DEADLINE, Server

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "webhooks.md"
BLOCKS = dict(re.findall(r"<!-- test: (\w+) -->\n```sh\n(.*?)```", PAGE.read_text(), re.DOTALL))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = Server(tmp_path_factory.mktemp("hooks"))
    made.start()
    yield made
    assert made.stop() == 0


def submit(server: Server, **fields: Any) -> tuple[int, str]:
    """Return the trigger of a new job, and its address as the command line shows it."""
    document = {"name": "job", "steps": [{"run": 'echo "$HORAE_RUN_DATA"'}], "overlap": "allow", **fields}
    told = server.cli("submit", "-", input=json.dumps(document)).stdout
    found = re.search(r"webhook (\d+), shown once: (http://127\.0\.0\.1:\d+/v1/hooks/\d+/\S+)", told)
    assert found, told
    return int(found[1]), found[2]


def call(name: str, address: str, secret: str = "") -> Any:
    """Do what the page says."""
    env = {**os.environ, "ADDRESS": address, "SECRET": secret}
    argv = ["bash", "-euo", "pipefail", "-c", BLOCKS[name]]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=DEADLINE)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_the_page_shows_how_to_call_and_sign():
    assert BLOCKS.keys() == {"plain", "signed"}


def test_a_call_runs_the_job_with_its_body_as_data(server: Server):
    trigger, address = submit(server, triggers=[{"webhook": {}}])
    answer = call("plain", address)
    run = server.ended(answer["run_id"])
    assert (run["state"], run["trigger_id"], run["data"]) == ("succeeded", trigger, {"path": "today.csv"})
    assert '{"path":"today.csv"}' in server.http.get(f"/v1/runs/{run['id']}/log").text.replace(" ", "")


def test_a_signed_call_runs_and_another_does_not(server: Server):
    trigger, address = submit(server, triggers=[{"webhook": {"secret": "correct horse"}}])
    assert call("plain", address)["code"] == "E_SIGNATURE"
    assert call("signed", address, "wrong horse")["code"] == "E_SIGNATURE"
    answer = call("signed", address, "correct horse")
    assert server.ended(answer["run_id"])["state"] == "succeeded"
    assert len(server.every("/v1/runs", trigger_id=trigger)) == 1


def test_a_new_address_is_made_and_shown_once(server: Server):
    trigger, address = submit(server, triggers=[{"webhook": {}}])
    shown = server.cli("triggers", "hook", str(trigger)).stdout.strip()
    assert shown == f"{server.url}/v1/hooks/{trigger}/******"
    assert f"{server.url}/v1/hooks/{trigger}/******" in server.cli("triggers", "show", str(trigger)).stdout
    again = server.cli_json("triggers", "hook", str(trigger), "--rotate")["address"]
    assert call("plain", address)["code"] == "E_NOT_FOUND"
    assert call("plain", again)["run_id"]
    assert address.rpartition("/")[2] not in server.log()


def test_an_address_outlives_a_crash(server: Server):
    _, address = submit(server, triggers=[{"webhook": {"secret": "correct horse"}}])
    server.kill()
    server.start()
    assert call("signed", address, "correct horse")["run_id"]


def test_a_push_builds_the_commit_that_was_pushed(server: Server, tmp_path: Path):
    repository = make_repository(tmp_path / "acme" / "site", {"number": "1"})
    pushed = git(repository, "rev-parse", "HEAD")
    commit(repository, {"number": "2"})
    checkout = {"url": f"file://{repository}", "ref": "main"}
    webhook = {"format": "github", "branches": ["main"]}
    _, address = submit(server, steps=[{"run": "cat number"}], checkout=checkout, triggers=[{"webhook": webhook}])
    said = {
        "ref": "refs/heads/main", "after": pushed, "repository": {"full_name": "acme/site"}, "pusher": {"name": "ann"}
    }  # fmt: skip
    headers = {"x-github-event": "push", "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958"}
    answers = [server.http.post(address, json=said, headers=headers).json() for _ in range(2)]
    assert answers[0]["run_id"] == answers[1]["run_id"]
    run = server.ended(answers[0]["run_id"])
    assert (run["state"], run["result"]["commit"]) == ("succeeded", pushed), run
    ping = server.http.post(address, json={"zen": "x"}, headers={**headers, "x-github-event": "ping"})
    assert (ping.status_code, ping.json()["run_id"]) == (202, None)
