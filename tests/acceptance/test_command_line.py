"""The command line against a real server: runs that are waited for, lines of logs, several names at once."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from .server import Server, horae


def test_a_run_that_is_waited_for_is_named_at_once_and_followed_while_it_writes(server: Server, tmp_path: Path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    server.submit({"name": "talker", "steps": [{"run": f"echo before; read line < {gate}; echo after $line; exit 3"}]})
    argv = [horae(), "--server", server.url, "run", "talker", "--wait"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        assert waiting.stderr is not None
        first = waiting.stderr.readline().split()
        assert (first[0], first[2:]) == ("run", ["of", "talker"])
        while waiting.stdout.readline() != "before\n":
            pass
        assert server.get(f"/v1/runs/{first[1]}")["state"] == "running"  # it was shown while it was written
        gate.write_text("all\n")
        rest = waiting.stdout.read()
        last = waiting.stderr.read()
    assert rest.startswith("after all\n")
    assert last.startswith(f"run {first[1]} failed; took ")
    assert waiting.returncode == 3


def test_lines_of_a_log_are_chosen_by_number_text_pattern_and_attempt(server: Server):
    lines = "for n in $(seq 1 2000); do echo line $n; done; echo attempt $HORAE_ATTEMPT; exit 1"
    server.submit({"name": "many", "retry": {"attempts": 2, "backoff": "10ms"}, "steps": [{"run": lines}]})
    server.cli("run", "many", "--wait", "--quiet", check=False)

    def shown(*args: str) -> list[str]:
        return [line for line in server.cli("logs", "many", *args).stdout.splitlines() if not line.startswith("──")]

    assert shown("--tail", "2") == ["attempt 2"]  # and how the step ended
    assert shown("--grep", "line 199") == ["line 199", *(f"line {n}" for n in range(1990, 2000))]
    assert shown("--grep", "^line 19+$", "--regex") == ["line 19", "line 199", "line 1999"]
    assert shown("--attempt", "1", "--grep", "attempt") == ["attempt 1"]
    assert shown("--since", "1h", "--grep", "attempt") == ["attempt 2"]
    run_id = str(server.get("/v1/runs")["items"][0]["id"])
    followed = server.cli("logs", run_id, "-f", "--tail", "2", "--grep", "attempt")
    assert (followed.stdout, followed.stderr.split()[:3]) == ("attempt 2\n", ["run", run_id, "failed"])


def test_a_job_is_cancelled_with_all_that_it_runs_and_nothing_on_a_dry_run(server: Server):
    server.submit({"name": "nap", "overlap": "allow", "steps": [{"run": "sleep 600"}]})
    runs = sorted(server.cli_json("run", "nap")["id"] for _ in range(3))

    planned = server.cli_json("cancel", "nap", "--dry-run")
    assert ([run["id"] for run in planned["runs"]], planned["dry_run"]) == (runs, True)
    assert {server.get(f"/v1/runs/{run_id}")["cancel_requested"] for run_id in runs} == {False}

    cancelled = server.cli_json("cancel", "nap")
    assert ([run["id"] for run in cancelled["runs"]], cancelled["job_name"]) == (runs, "nap")
    assert {server.ended(run_id)["state"] for run_id in runs} == {"cancelled"}

    done = server.cli("--json", "runs", "show", str(runs[0]), "999", "--json", check=False)
    found, missing = json.loads(done.stdout)
    assert (found["id"], found["job_name"], missing["error"]["code"], done.returncode) == (
        runs[0], "nap", "E_NOT_FOUND", 4,
    )  # fmt: skip
    [node] = server.get("/v1/nodes")["items"]
    assert [run["id"] for run in server.cli_json("runs", "--node", node["name"], "--since", "1h")["items"]] == runs[
        ::-1
    ]
