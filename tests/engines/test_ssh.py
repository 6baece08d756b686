"""Clones by ssh from a real sshd: the key comes from a secret, the server's own key is remembered and held to."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..acceptance.server import DEADLINE, Server, free_port
from ..repositories import make_repository
from .test_java_projects import run, steps

SSHD = "/usr/sbin/sshd"  # wants to be called by its full path
CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {directory}/host
AuthorizedKeysFile {directory}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
"""


@dataclass
class Shell:
    """An sshd of our own, which lets the owner of one key in."""

    directory: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen([SSHD, "-D", "-f", str(self.directory / "config")])
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert self.process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(DEADLINE)

    def make_key(self, name: str) -> str:
        (self.directory / name).unlink(missing_ok=True)
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(self.directory / name)]
        subprocess.run(argv, check=True)
        return (self.directory / name).read_text()


@pytest.fixture
def shell(tmp_path: Path, need: Callable[..., None]) -> Iterator[Shell]:
    need("git", "ssh", "ssh-keygen", "bwrap", SSHD)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it locks itself in as root
    made = Shell(tmp_path / "sshd", free_port())
    made.directory.mkdir()
    made.make_key("host")
    (made.directory / "config").write_text(CONFIG.format(port=made.port, directory=made.directory))
    yield made
    made.stop()


@pytest.fixture(params=["plain", "bubblewrap"])
def server(request: pytest.FixtureRequest, tmp_path: Path, shell: Shell) -> Iterator[Server]:
    running = Server(tmp_path, "--heartbeat-interval", "0.5", "--sandbox", request.param)
    yield running.start()
    running.stop()


def test_a_project_is_cloned_with_a_key_and_the_server_is_known_again(
    server: Server, shell: Shell, tmp_path: Path
) -> None:
    repository = make_repository(tmp_path / "project.git", {"main.py": "print('hello by ssh')"})
    key = shell.make_key("user")
    shell.start()
    server.cli("secret", "set", "deploy-key", input=key)
    source: dict[str, Any] = {"url": f"ssh://{getpass.getuser()}@127.0.0.1:{shell.port}{repository}"}
    source["private_key"] = {"secret": "deploy-key"}
    job = {"name": "by ssh", "kind": "git_python", "run_once": True, "main_file": "main.py", "source": source}

    ended, log = run(server, **job)
    assert (ended["state"], steps(ended)) == ("succeeded", ["checkout", "run"]), log
    assert "hello by ssh" in log
    known = server.directory / "data" / "agent" / "known_hosts"
    assert (shell.directory / "host.pub").read_text().split()[1] in known.read_text()

    shell.stop()
    shell.make_key("host")  # somebody else answers at that address
    shell.start()
    ended, log = run(server, **job)
    assert (ended["state"], ended["reason"], steps(ended)) == ("failed", "error", ["checkout"]), log
    assert "Host key verification failed" in log

    known.unlink()
    shell.make_key("user")  # the key of somebody else is let in
    ended, log = run(server, **job)
    assert ended["state"] == "failed"
    assert "Permission denied" in log
    assert key.splitlines()[1] not in log
