"""Real failures behind real walls: each is told at the end of the log, in the message, and by a code in the result."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.server import Server
from tests.repositories import make_repository

pytestmark = pytest.mark.xdist_group("walls")  # one server
HIDDEN = "hidden-program"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, need: Callable[..., None]) -> Iterator[Server]:
    """With a program on its PATH that lies where no sandbox shows it."""
    need("bwrap")
    programs = tmp_path_factory.mktemp("programs")
    (programs / HIDDEN).write_text("#!/bin/sh\n")
    (programs / HIDDEN).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(programs), prepend=os.pathsep)
        running = Server(tmp_path_factory.mktemp("walls"), "--sandbox", "auto").start()
    yield running
    running.stop()


def run(server: Server, script: str, **job: Any) -> tuple[dict[str, Any], str]:
    (made,) = server.submit({"name": "j", "walled": True, "steps": [{"run": script}], **job})
    ended = server.ended(server.post(f"/v1/jobs/{made['id']}/run", status=201)["id"])
    return ended, server.http.get(f"/v1/runs/{ended['id']}/log").text


ROWS: list[tuple[str, str, dict[str, Any], str, bool]] = [
    ("a name, without a network", "python3 -c 'import socket; socket.getaddrinfo(\"example.org\", 80)'", {},
     "network_off", True),
    ("an address, without a network", "python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80))'", {},
     "network_off", True),
    ("a name that is not listed", "python3 -c 'import socket; socket.getaddrinfo(\"example.org\", 80)'",
     {"network": ["example.com:443"]}, "network_unlisted", False),
    ("an address that is listed and not allowed",
     "python3 -c 'import socket; assert socket.create_connection((\"169.254.1.1\", 9)).recv(1)'",
     {"network": ["169.254.1.1:9"]}, "network_refused", False),
    ("a server of this machine", "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))'", {},
     "network_off", False),
    ("a file of the machine", "cat {mine}", {}, "file_hidden", True),
    ("a program of the machine", "{tool}", {}, "file_hidden", True),
    ("a program of the machine by its name", HIDDEN, {}, "command_hidden", True),
    ("a port of the system", "python3 -c 'import socket; socket.socket().bind((\"127.0.0.1\", 80))'", {},
     "denied", False),
    ("a file of the system that is no program", "/etc/passwd", {}, "denied", False),
    ("a program that nobody has", "no-such-program", {}, "command_missing", True),
    ("no interpreter", "printf '#!/opt/none/tool\\n' > x.sh; chmod +x x.sh; ./x.sh", {}, "interpreter_missing", True),
    ("line ends of another system", "printf '#!/bin/sh\\r\\necho\\r\\n' > x.sh; chmod +x x.sh; ./x.sh", {},
     "line_ends", True),
    ("line ends behind env", "printf '#!/usr/bin/env sh\\r\\n' > x.sh; chmod +x x.sh; ./x.sh", {}, "line_ends", True),
    ("not executable", "printf '#!/bin/sh\\n' > x.sh; ./x.sh", {}, "not_executable", True),
    ("the system is read-only", "touch /usr/mine", {}, "read_only", True),
    ("a device", "cat /dev/kmsg", {}, "device_hidden", True),
    ("memory", "python3 -c 'x = bytearray(300 << 20)'", {"limits": {"memory": "64MiB"}}, "memory_limit", True),
    ("memory of resources", "python3 -c 'x = bytearray(300 << 20)'", {"resources": {"memory": "64MiB"}},
     "memory_limit", True),
    ("processes", "for i in $(seq 200); do sleep 60 & done; wait", {"limits": {"pids": 20}}, "process_limit", True),
    ("time", "sleep 600", {"timeout": "1s"}, "timeout", True),
    ("a call to the kernel", "unshare --user true", {}, "call_denied", False),
]  # fmt: skip


@pytest.mark.parametrize(("what", "script", "job", "code", "is_certain"), ROWS, ids=[row[0] for row in ROWS])
def test_who_meets_a_wall_is_told_which(
    server: Server, what: str, script: str, job: dict[str, Any], code: str, is_certain: bool
) -> None:
    mine, tool = server.directory / "mine.txt", server.directory / "tool"
    mine.write_text("mine")
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    script = script.replace("{mine}", str(mine)).replace("{tool}", str(tool))

    ended, log = run(server, script, **job)

    assert ended["state"] in ("failed", "timed_out"), log
    assert "cause" in ended["result"], log
    cause = ended["result"]["cause"]
    assert (cause["code"], cause["certain"]) == (code, is_certain), (cause, log)
    assert cause["message"] in ended["message"]
    assert log.rstrip().endswith(f"── {cause['message']} ──")
    explained = server.get(f"/v1/explain/runs/{ended['id']}")["sentences"]
    wall = next(one for one in explained if one["code"] == "run.wall")
    assert (wall["text"], wall["unblock"], wall["data"]) == (cause["message"], cause.get("line") or None, cause)


def test_the_lines_that_are_told_help(server: Server) -> None:
    mine = server.directory / "mine.txt"
    mine.write_text("mine")
    ended, _ = run(server, f"cat {mine}")
    assert ended["result"]["cause"]["line"] == "sandbox: plain"
    better, log = run(server, f"cat {mine}", walled=False, sandbox="plain")
    assert better["state"] == "succeeded", log
    ended, _ = run(server, "python3 -c 'x = bytearray(90 << 20)'", resources={"memory": "64MiB"})
    assert ended["result"]["cause"]["line"] == "resources: {memory: 128MiB}"
    better, log = run(server, "python3 -c 'x = bytearray(90 << 20)'", resources={"memory": "128MiB"})
    assert better["state"] == "succeeded", log


def test_the_command_line_shows_the_code(server: Server) -> None:
    ended, _ = run(server, "touch /usr/mine")
    shown = server.cli("runs", "show", str(ended["id"])).stdout
    assert re.search(r"^cause +read_only$", shown, re.MULTILINE), shown


def test_a_step_that_fails_by_itself_is_told_nothing(server: Server) -> None:
    ended, log = run(server, "echo 3 tests failed; exit 1")
    assert "cause" not in ended["result"]
    assert log.rstrip().endswith("s ──")


def test_what_an_earlier_step_said_is_no_sign(server: Server) -> None:
    steps = [{"run": "cat /srv/none || true"}, {"run": "exit 3"}]
    (made,) = server.submit({"name": "j", "walled": True, "steps": steps})
    ended = server.ended(server.cli_json("run", str(made["id"]))["id"])
    assert "cause" not in ended["result"]


def test_a_build_of_a_repository_is_told_what_it_may_miss(server: Server, tmp_path: Path) -> None:
    url = f"file://{make_repository(tmp_path / 'source', {'build.sh': 'cat data.csv'})}"
    ended, log = run(server, "sh build.sh", checkout={"url": url})
    assert ended["result"]["cause"]["code"] == "file_hidden", log
    assert "its checkout" in ended["message"]


def test_where_others_log_in_nobody_learns_what_files_there_are(tmp_path: Path, need: Callable[..., None]) -> None:
    need("bwrap")
    first = Server(tmp_path, "--sandbox", "auto").start()
    first.cli("token", "create", "ann", "--file", str(tmp_path / "ann.token"))
    first.stop()
    (tmp_path / "there").write_text("")
    second = Server(tmp_path, "--sandbox", "auto").start()
    try:
        told = [run(second, f"cat {tmp_path}/{name}", walled=False)[0] for name in ("there", "none")]
        causes = [one["result"]["cause"] for one in told]
        assert {(one["code"], one["certain"], one["line"]) for one in causes} == {
            ("file_hidden", False, "checkout: {url: …}")
        }
        messages = [one["message"].replace("there", "none") for one in causes]
        assert messages[0] == messages[1]
    finally:
        second.stop()


def test_a_link_to_another_file_of_the_machine_does_not_show_its_first_line(server: Server) -> None:
    secret = server.directory / "secret"
    secret.write_text("#!/the/secret\n")
    secret.chmod(0o755)
    _, log = run(server, f"ln -s {secret} x.sh; ./x.sh")
    assert "/the/secret" not in log


def test_trusted_steps_without_walls_are_told_of_their_files(server: Server) -> None:
    script = "printf '#!/bin/sh\\r\\n' > {0}; chmod +x {0}; {0}".format(server.directory / "crlf.sh")
    ended, log = run(server, script, walled=False, sandbox="plain")
    assert (ended["result"]["walls"], ended["result"]["cause"]["code"]) == ("plain", "line_ends"), log


@pytest.mark.skipif(
    subprocess.run(["sh", "-c", "command -v sudo"], capture_output=True).returncode != 0, reason="no sudo"
)
def test_sudo_is_told_that_nobody_becomes_root(server: Server) -> None:
    ended, log = run(server, "sudo -n true")
    assert ended["result"]["cause"]["code"] == "no_root", log
