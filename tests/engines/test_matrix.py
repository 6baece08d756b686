"""Every kind of work in every sandbox, through a whole `horae up`: that it runs there, and that nothing survives its
cancel, its timeout, or the death of its agent, in its build or in its run.

What is alive is seen from outside: in /proc of the machine, and by the Docker daemon.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from horae.core.time.moments import parse_moment

from ..acceptance.agent import AgentProcess
from .matrix import CASES, CODE, IMAGE, KINDS, SANDBOXES, Witness, World, make_world, processes

pytestmark = pytest.mark.xdist_group("matrix")  # one server, one daemon
EXAMPLE = Path(__file__).parents[2] / "examples" / "container.yaml"
GONE = 5.0  # seconds within which nothing of it is alive
TIMEOUT = 6.0  # seconds; enough to be at work on a busy machine
OURS = os.readlink("/proc/self/ns/pid")
STAYS = [(kind, sandbox, "run") for kind, sandbox in CASES] + [
    (kind, sandbox, "build") for kind in KINDS[1:] for sandbox in SANDBOXES
]
STEPS = {
    "shell": ["look", "work"],
    "build": ["checkout", "look", "build", "test"],
    "git_java": ["checkout", "build", "run"],
    "git_python": ["checkout", "build", "run"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with make_world(tmp_path_factory.mktemp("matrix")) as world:
        yield world


@pytest.fixture
def world(need: Callable[..., None], request: pytest.FixtureRequest) -> World:
    need("bwrap", "dockerd", "docker", "busybox", "git", "go", "java", "javac")
    made: World = request.getfixturevalue("made")
    return made


@pytest.mark.parametrize(("kind", "sandbox"), CASES)
def test_each_kind_runs_in_each_sandbox(world: World, kind: str, sandbox: str) -> None:
    run_id = world.begin(world.job(kind, sandbox))
    run, log = world.ended(run_id), world.log(run_id)

    is_inside = f"namespace {OURS}\n" not in log
    assert "namespace pid:[" in log, log
    assert is_inside == (sandbox in ("bubblewrap", "docker"))
    assert (IMAGE in log) == (sandbox == "docker")
    if kind == "python":
        assert (run["state"], run["result"]) == ("succeeded", "done by a handler")
    else:
        assert (run["state"], run["reason"], run["exit_code"]) == ("failed", "exit", CODE), log
        assert [step["name"] for step in run["result"]["steps"]] == STEPS[kind]
        assert "done by" in log
    if kind == "build":
        assert "\n5\n" in log, "what was built runs"
        assert {name: run["result"]["tests"][name] for name in ("passed", "skipped")} == {"passed": 3, "skipped": 1}
    world.until_clean()


@pytest.mark.parametrize(("kind", "sandbox", "stay"), STAYS)
def test_nothing_survives_a_cancel(world: World, kind: str, sandbox: str, stay: str) -> None:
    job = world.job(kind, sandbox, stay)
    if (kind, stay) == ("build", "build"):
        world.hanging.set()
    try:
        run_id = world.begin(job)
        world.until_staying(run_id, job["name"], stay, kind)
        if sandbox == "docker" and (kind, stay) != ("build", "build"):  # a checkout is done outside
            assert len(world.daemon.containers("status=running")) == 1

        asked = time.monotonic()
        world.server.post(f"/v1/runs/{run_id}/cancel", status=202)
        world.server.wait_until(lambda: not processes(job["name"]), "its processes to go")
        took = time.monotonic() - asked
    finally:
        world.hanging.clear()

    run = world.ended(run_id)
    assert run["state"] == "cancelled", run
    assert took < GONE
    assert "done by" not in world.log(run_id)
    world.until_clean()


@pytest.mark.parametrize("sandbox", [*SANDBOXES, "worker"])
def test_nothing_survives_a_timeout(world: World, sandbox: str) -> None:
    stays = [(kind, stay) for kind, place, stay in STAYS if place == sandbox and (kind, stay) != ("build", "build")]
    jobs = [world.job(kind, sandbox, stay) | {"timeout": f"{TIMEOUT:g}s"} for kind, stay in stays]
    runs = {world.begin(job): job["name"] for job in jobs}

    for run_id, name in runs.items():
        run = world.ended(run_id)
        assert processes(name) == {}
        assert (run["state"], run["reason"]) == ("timed_out", "timeout"), f"{name}: {run} {world.log(run_id)}"
        lasted = (parse_moment(run["finished_at"]) - parse_moment(run["started_at"])) / 1e6
        assert lasted + 0.1 >= TIMEOUT
        assert lasted < TIMEOUT + GONE
    world.until_clean()


@pytest.mark.parametrize("sandbox", [*SANDBOXES, "worker"])
def test_the_next_attempt_starts_clean_after_the_agent_was_killed(world: World, sandbox: str) -> None:
    """Every kind at once, in its build and in its run; the checkout that gets no answer comes last."""
    runs: dict[int, str] = {}
    for kind, place, stay in sorted(STAYS, key=lambda case: case[::2] == ("build", "build")):
        if place != sandbox:
            continue
        job = world.job(kind, sandbox, stay, code=0)
        if (kind, stay) == ("build", "build"):
            world.hanging.set()
        run_id = world.begin(job)
        world.until_staying(run_id, job["name"], stay, kind)
        runs[run_id] = job["name"]
    witness = Witness(list(runs.values()))
    witness.start()
    try:
        world.server.kill()
        world.hanging.clear()
        world.server.start()
        ended = [world.ended(run_id) for run_id in runs]
    finally:
        world.hanging.clear()
        overlaps = witness.stop()

    assert overlaps == []
    for run, (run_id, name) in zip(ended, runs.items(), strict=True):
        # Usually the second; a machine that is very busy may lose that one too.
        assert run["state"] == "succeeded", f"{name}: {world.log(run_id)}"
        assert run["attempt"] >= 2
        assert "done by" in world.log(run_id) or run["result"] == "done by a handler"
        assert processes(name) == {}
    world.until_clean()


def test_what_a_killed_remote_agent_ran_is_gone_before_it_runs_again(world: World, tmp_path: Path) -> None:
    """In every sandbox at once; the same agent comes back and does it again."""
    flags = (
        "--label",
        "far",
        "--sandbox",
        "plain",
        "--docker-url",
        world.daemon.url,
        "--slots",
        "16",
        "--on-restart",
        "end",
    )
    agent = AgentProcess(tmp_path, f"127.0.0.1:{world.server.grpc_port}", "far", *flags).start().joined()
    runs: dict[int, str] = {}
    try:
        for sandbox in SANDBOXES:
            job = world.job("shell", sandbox, "run", code=0) | {"labels": ["far"]}
            runs[run_id := world.begin(job)] = job["name"]
            world.until_staying(run_id, job["name"], "run", "shell")
        witness = Witness(list(runs.values()))
        witness.start()
        agent.kill()
        agent.start()
        ended = [world.ended(run_id) for run_id in runs]
        assert witness.stop() == []
        assert {(run["state"], run["attempt"], run["node"]) for run in ended} == {("succeeded", 2, "far")}
        world.server.wait_until(lambda: not world.daemon.containers(), "the containers to go")
        assert os.listdir(agent.directory / "data" / "agent" / "workspaces") == []
    finally:
        agent.stop()
    assert [processes(name) for name in runs.values()] == [{}, {}, {}]


def test_the_example_of_a_container_runs_in_it(world: World) -> None:
    world.daemon.docker("tag", IMAGE, "golang:1.22")
    world.server.cli("submit", str(EXAMPLE))
    (job,) = (job for job in world.server.every("/v1/jobs") if job["key"] == "container")
    (run,) = world.server.wait_until(lambda: world.server.every("/v1/runs", job_id=job["id"]), "the run")
    assert world.ended(run["id"])["state"] == "succeeded", world.log(run["id"])
    assert "hello from a container" in world.log(run["id"])
