"""The page for the day on which the token of an agent leaks: its commands, as they stand there, on real processes."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from .agent import AgentProcess
from .server import Server
from .test_joining import QUICK, make_join, wait_for_end
from .test_remote_agents import Begin, at, begin, until

assert begin  # a fixture of theirs

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "leaked-agent-token.md"
LONGEST = 600.0  # seconds that all of it may take
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("joining agents")]


def commands() -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert all(line[0] == "horae" for line in lines)
    return [line[1:] for line in lines]


def told(server: Server, command: list[str]) -> list[Any]:
    """Return what a command that lists something says, for programs."""
    items: list[Any] = server.cli_json(*command)["items"]
    return items


def test_S61_after_a_leak_the_agent_is_shut_out_what_it_saw_is_named_and_run_again(
    tmp_path: Path, begin: Begin
) -> None:
    evict, listing, audit, change, join, plan, again = commands()
    assert plan[:-1] == again[:-1]
    server = Server(tmp_path, "--roles", "api,coordinator,scheduler", *QUICK).start()
    try:
        server.cli("secret", "set", "deploy-key", input="old")
        gpu = ("--label", "gpu")
        first = begin(at(server), "gpu-1", *gpu, "--join", make_join(server, "gpu-1", "--label", "gpu-1", *gpu))
        first.joined()
        stop = tmp_path / "stop"
        jobs = server.submit(*(
            {"name": name, "steps": [{"run": run}], "labels": ["gpu"], "triggers": [], **more}
            for name, run, more in (
                ("done", "test -n \"$KEY\"", {"env": {"KEY": {"secret": "deploy-key"}}}),
                ("moved", until(stop), {}),
                ("elsewhere", "true", {}),
            )
        ))  # fmt: skip
        done, moved, elsewhere = (job["id"] for job in jobs)
        saw = [server.post(f"/v1/jobs/{job}/run", status=201)["id"] for job in (done, moved)]
        assert server.ended(saw[0])["state"] == "succeeded"
        server.wait_until(lambda: server.get(f"/v1/runs/{saw[1]}")["state"] == "running", "the second to run")
        second = begin(at(server), "gpu-2", *gpu, "--join", make_join(server, "gpu-2", "--label", "gpu-2", *gpu))
        second.joined()

        began = time.monotonic()
        assert "is evicted" in server.cli(*evict).stdout
        assert wait_for_end(first) == 3
        stop.touch()
        ended = server.ended(saw[1])
        assert (ended["state"], ended["node"], ended["attempt"]) == ("succeeded", "gpu-2", 2)
        other = server.post(f"/v1/jobs/{elsewhere}/run", status=201)["id"]
        assert server.ended(other)["node"] == "gpu-2"

        assert sorted(one["id"] for one in told(server, listing)) == saw
        assert {one["subject"] for one in told(server, audit)} == {"deploy-key"}
        (tmp_path / "new.key").write_text("new")
        server.cli(*change)
        token = server.cli(*join).stdout.strip()
        (tmp_path / "anew").mkdir()
        back = AgentProcess(tmp_path / "anew", at(server), "gpu-1", *gpu, "--join", token)
        back.start().joined()
        try:
            assert sorted(one["run_id"] for one in told(server, plan)) == saw
            made = told(server, again)
            assert sorted(one["run_id"] for one in made) == saw
            for one in made:
                assert server.ended(one["run"]["id"])["state"] == "succeeded"
            assert time.monotonic() - began < LONGEST
            first.start()  # with what was copied
            assert wait_for_end(first) == 3
            assert "error[E_JOIN_TOKEN]" in first.log()
        finally:
            back.stop()
    finally:
        server.stop()
