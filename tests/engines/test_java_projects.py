"""Java projects, really built by Maven (offline, from Debian's repository) and run; the lake contract end to end.

sbt is not in Debian: the project of its test brings a stand-in along, which calls javac and jar.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..acceptance.server import Server
from ..repositories import GitServer, commit, make_repository, serving

PATIENCE = 180.0  # seconds: a first build takes a quarter of a minute on a quiet machine
STOPPED = 5.0  # seconds within which a cancelled or overdue program is gone
PASSWORD = "s3cret"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId><artifactId>greeter</artifactId><version>1.0</version><packaging>jar</packaging>
  <properties>
    <maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version><scope>test</scope></dependency>
  </dependencies>
</project>
"""
MAIN = """package org.example;
public class Main {
  static String greet(String who) { return "hello " + who; }
  public static void main(String[] args) throws Exception {
    System.out.println(greet(args.length > 0 ? args[0] : "nobody"));
    if (args.length > 1 && args[1].equals("wait")) { System.out.println("waiting"); Thread.sleep(600_000); }
    if (args.length > 1) System.exit(Integer.parseInt(args[1]));
  }
}
"""
TEST = """package org.example;
import static org.junit.Assert.assertEquals;
import org.junit.Test;
public class MainTest {
  @Test public void greets() { assertEquals("hello ann", Main.greet("ann")); }
}
"""
SBT = """#!/bin/sh -e
echo "stand-in for sbt: $*"
mkdir -p target/classes target/scala-2.13
javac -d target/classes $(find src/main/java -name '*.java')
jar --create --file target/scala-2.13/greeter.jar --main-class org.example.Main -C target/classes .
"""
FILES = {
    "pom.xml": POM, "src/main/java/org/example/Main.java": MAIN, "src/test/java/org/example/MainTest.java": TEST,
    "tools/bin/sbt": SBT,
}  # fmt: skip


@pytest.fixture(autouse=True)
def engines(need: Callable[..., None]) -> None:
    need("git", "java", "javac", "mvn", "bwrap")


@pytest.fixture(scope="session")
def repository_of_maven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Maven has loaded once: the other builds of this run need not."""
    return tmp_path_factory.mktemp("maven")


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path, repository_of_maven: Path) -> Iterator[Server]:
    """In the sandbox that the test names: plain unless it does. Inside walls, Maven loads into the workspace."""
    sandbox = getattr(request, "param", "plain")
    kept = f"<localRepository>{repository_of_maven}</localRepository>" if sandbox == "plain" else ""
    settings = tmp_path / "settings.xml"
    settings.write_text(
        f"<settings>{kept}<mirrors><mirror><id>debian</id>"
        "<mirrorOf>*</mirrorOf><url>file:///usr/share/maven-repo</url></mirror></mirrors></settings>"
    )
    running = Server(
        tmp_path,
        "--heartbeat-interval",
        "0.5",
        "--maven-settings",
        str(settings),
        "--sandbox",
        sandbox,
        "--on-restart",
        "end",
    )
    yield running.start()
    running.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[GitServer]:
    make_repository(tmp_path / "served" / "greeter.git", FILES)
    with serving(tmp_path / "served", PASSWORD) as site:
        yield site


def project(site: GitServer, **more: Any) -> dict[str, Any]:
    source = {"url": site.url("greeter.git"), "username": "ann", "password": PASSWORD}
    given = {"name": "greeter", "kind": "git_java", "run_once": True, "source": source, "build_tool": "maven",
             "maven_settings": True}  # fmt: skip
    return {**given, "main_class": "org.example.Main", **more}


def run(server: Server, **job: Any) -> tuple[Any, str]:
    """Submit it; its run, once it has ended, and its log."""
    run_id = started(server, **job)
    ended = server.wait_until(lambda: finished(server, run_id), f"run {run_id} to end", PATIENCE)
    return ended, log_of(server, run_id)


def started(server: Server, **job: Any) -> int:
    (made,) = server.submit(job)
    found = server.wait_until(lambda: server.every("/v1/runs", job_id=made["id"]), "the run")
    return int(found[0]["id"])


def finished(server: Server, run_id: int) -> Any:
    run = server.get(f"/v1/runs/{run_id}")
    return run if run["state"] not in ("queued", "running", "blocked") else None


def log_of(server: Server, run_id: int) -> str:
    return server.http.get(f"/v1/runs/{run_id}/log").text


def steps(run: Any) -> list[str]:
    return [step["name"] for step in run["result"]["steps"]]


def test_a_maven_project_is_tested_packaged_and_run_and_its_exit_code_passes_through(
    server: Server, site: GitServer
) -> None:
    ended, log = run(server, **project(site, args="'ann of green gables' 3"))

    assert (ended["state"], ended["exit_code"]) == ("failed", 3), log
    assert steps(ended) == ["checkout", "build", "run"]
    assert "hello ann of green gables" in log
    assert PASSWORD not in log + json.dumps(ended)

    commit(site.root / "greeter.git", {"src/main/java/org/example/Main.java": MAIN.replace("hello", "good day")})
    ended, log = run(server, **project(site))
    assert (ended["state"], steps(ended)) == ("failed", ["checkout", "build"]), log  # its test fails
    assert ended["message"] == "the build ended with exit code 1"
    assert "greets" in log


@pytest.mark.parametrize("server", ["bubblewrap"], indirect=True)
def test_the_lake_contract_builds_and_runs_a_project_of_a_real_git_server(server: Server, site: GitServer) -> None:
    url = site.url("greeter.git").replace("//", f"//ann:{PASSWORD}@")
    job = {
        "class_name": "java_job", "display_name": "greeter", "git_url": url,
        "build_tool": "maven", "build_cmd": "mvn -q -B package", "main_class": "org.example.Main", "args": "lake",
        "schedule_time": {"class_name": "schedule_once", "start_time": 0},
    }  # fmt: skip
    job_id = server.post("/lake/job/create", {"job": job})["job"]["job_id"]
    seen: list[str] = []

    def look() -> bool:
        status = server.get(f"/lake/job/{job_id}")["job"]["current_sync_status"]
        if status not in seen:
            seen.append(status)
        return status in ("Finished", "Error")

    server.wait_until(look, "the job to end", PATIENCE)
    (ended,) = server.every("/v1/runs", job_id=job_id)
    log = log_of(server, ended["id"])
    assert seen[-1] == "Finished", log
    assert [status for status in seen if status in ("Compiling", "Finished")] == ["Compiling", "Finished"]
    assert "hello lake" in log


def test_the_phase_is_preparing_while_it_is_built_and_running_while_it_runs(server: Server, site: GitServer) -> None:
    run_id = started(server, **project(site, args="ann wait", build_cmd=FAST_BUILD))
    server.wait_until(lambda: "waiting" in log_of(server, run_id), "the program", PATIENCE)
    server.wait_until(lambda: server.get(f"/v1/runs/{run_id}")["phase"] == "running", "its phase")
    assert len(programs(server)) == 1

    asked = time.monotonic()
    server.post(f"/v1/runs/{run_id}/cancel", status=202)
    ended = server.wait_until(lambda: finished(server, run_id), "the run to end")

    assert time.monotonic() - asked < STOPPED
    assert ended["state"] == "cancelled"
    assert programs(server) == []
    assert workspaces(server) == []


FAST_BUILD = "mkdir -p target/classes && javac -d target/classes src/main/java/org/example/Main.java"


def programs(server: Server) -> list[str]:
    """Processes that work in a workspace of this server."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            cwd = os.readlink(entry / "cwd") if entry.name.isdigit() else ""
        except OSError:
            continue
        found += [entry.name] if cwd.startswith(f"{server.directory}/data/agent/workspaces/") else []
    return found


def workspaces(server: Server) -> list[Path]:
    return list((server.directory / "data" / "agent" / "workspaces").iterdir())


def test_a_timeout_ends_the_program_and_leaves_nothing(server: Server, site: GitServer) -> None:
    ended, log = run(server, **project(site, args="ann wait", build_cmd=FAST_BUILD, timeout="20s"))

    assert (ended["state"], ended["reason"]) == ("timed_out", "timeout"), log
    assert "waiting" in log
    assert (programs(server), workspaces(server)) == ([], [])


@pytest.mark.parametrize("moment", ["build", "run"])
def test_the_next_attempt_begins_anew_after_the_agent_was_killed(
    server: Server, site: GitServer, tmp_path: Path, moment: str
) -> None:
    """The first attempt stops at the moment and leaves a mark in its workspace; the second finds none and goes on."""
    mark, first = f"test ! -e left && touch left {tmp_path}/seen-$HORAE_ATTEMPT", "[ $HORAE_ATTEMPT = 1 ]"
    wait = f"{first} && sleep 600 || true" if moment == "build" else "true"
    job = project(site, build_cmd=f"{mark}; {FAST_BUILD}; {wait}", args="ann 0")
    if moment == "run":
        waiting = MAIN.replace(
            "System.out.println(greet",
            'if (System.getenv("HORAE_ATTEMPT").equals("1")) Thread.sleep(600_000);\n    System.out.println(greet',
        )
        commit(site.root / "greeter.git", {"src/main/java/org/example/Main.java": waiting})
    run_id = started(server, **job)
    server.wait_until(
        lambda: (tmp_path / "seen-1").exists() and phase_is(server, run_id, moment), "the moment", PATIENCE
    )

    server.kill()
    server.start()
    ended = server.wait_until(lambda: finished(server, run_id), "the run to end", PATIENCE)

    assert (ended["state"], ended["attempt"]) == ("succeeded", 2), log_of(server, run_id)
    assert (tmp_path / "seen-2").exists()
    assert (programs(server), workspaces(server)) == ([], [])


def phase_is(server: Server, run_id: int, moment: str) -> bool:
    return bool(server.get(f"/v1/runs/{run_id}")["phase"] == ("preparing" if moment == "build" else "running"))


def test_sbt_builds_a_jar_that_runs_by_itself(server: Server, site: GitServer) -> None:
    command = 'PATH="$PWD/tools/bin:$PATH"\nsbt -batch package'
    job = project(site, build_tool="sbt", build_cmd=command, args="bob")
    del job["main_class"]

    ended, log = run(server, **job)

    assert (ended["state"], steps(ended)) == ("succeeded", ["checkout", "build", "run"]), log
    assert "stand-in for sbt: -batch package" in log
    assert "hello bob" in log


def test_a_build_tool_that_is_missing_is_named(server: Server, site: GitServer) -> None:
    ended, _ = run(server, **project(site, build_tool="sbt"))

    assert (ended["state"], ended["reason"]) == ("failed", "error")
    assert "needs sbt, which this agent does not have" in ended["message"]


def test_a_build_without_anything_to_run_is_all_there_is_to_do(server: Server, site: GitServer) -> None:
    job = project(site, build_cmd=FAST_BUILD)
    del job["main_class"]

    ended, log = run(server, **job)

    assert (ended["state"], steps(ended)) == ("succeeded", ["checkout", "build"]), log
