"""A run of tests that is killed leaves nothing behind: no server, no process, no directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.leash import MARK, OWNER, PREFIX, clear, find_processes, find_stale, identity

ROOT = Path(__file__).parents[1]
DEADLINE = 120.0
INSIDE = """
import os, subprocess, tempfile, threading
from pathlib import Path
from tests.acceptance.server import Server

def test_that_is_killed(postgres_server, nats, tmp_path):
    server = Server(tmp_path).start()
    subprocess.run(["setsid", "--fork", "sleep", "600"], cwd="/", check=True)  # a daemon, in no group of ours
    tempfile.mkdtemp()
    ready = Path(os.environ["READY_FILE"])
    ready.with_suffix(".new").write_text(f"{nats.process.pid} {server.process.pid} {os.getpid()}")
    ready.with_suffix(".new").rename(ready)
    threading.Event().wait()
"""


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)


def hear_interrupts() -> None:
    """What a shell starts in the background does not, and leaves that to its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def directory_of(pid: int) -> Path:
    """Of the run that a process belongs to, as its environment has it."""
    variables = dict(line.partition("=")[::2] for line in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    return Path(variables["TMPDIR"]).parent


@pytest.mark.slow
@pytest.mark.parametrize("signal_", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "with a worker"])
def test_a_killed_run_leaves_no_process_and_no_directory(
    tmp_path: Path, options: tuple[str, ...], signal_: signal.Signals
) -> None:
    (tmp_path / "test_inside.py").write_text(INSIDE)
    ready = tmp_path / "ready"
    argv = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest"]
    environment = {**os.environ, "READY_FILE": str(ready)}
    with (
        (tmp_path / "said").open("wb") as said,
        subprocess.Popen(
            [*argv, *options, str(tmp_path)],
            cwd=ROOT,
            env=environment,
            stdout=said,
            stderr=said,
            preexec_fn=hear_interrupts,
        ) as run,
    ):
        wait_until(lambda: ready.exists() or run.poll() is not None, "the run to start its servers")
        assert ready.exists(), (tmp_path / "said").read_text()
        nats, *_ = map(int, ready.read_text().split())
        directory = directory_of(nats)
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in find_processes(directory)}
        assert {"postgres", "nats-server", "horae", "sleep"} <= names

        run.send_signal(signal_)

        wait_until(lambda: run.poll() is not None, f"the run to end:\n{(tmp_path / 'said').read_text()}")
    wait_until(lambda: not directory.exists() and not find_processes(directory), "everything to be gone")


def test_a_run_whose_watcher_died_too_is_cleared_by_the_next(tmp_path: Path) -> None:
    left, alive = tmp_path / f"{PREFIX}left", tmp_path / f"{PREFIX}alive"
    for directory, owner in ((left, "1 1"), (alive, identity(os.getpid()))):
        directory.mkdir()
        (directory / OWNER).write_text(owner)
    with subprocess.Popen(["sleep", "600"], env={**os.environ, MARK: f"outer:{left.name}"}) as marked:
        wait_until(lambda: marked.pid in find_processes(left), "the process to have its environment")
        assert marked.pid not in find_processes(alive)

        assert list(find_stale(tmp_path)) == [left]
        clear(left)

        assert marked.wait(DEADLINE) == -signal.SIGTERM
    assert [one.name for one in tmp_path.iterdir()] == [alive.name]


def test_what_stands_still_or_does_not_listen_is_ended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.leash.GRACE", 0.5)
    deaf = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], cwd=tmp_path)
    still = subprocess.Popen(["sleep", "600"], cwd=tmp_path)
    still.send_signal(signal.SIGSTOP)

    clear(tmp_path)

    assert still.wait(DEADLINE) == -signal.SIGTERM
    assert deaf.wait(DEADLINE) == -signal.SIGKILL
    assert not tmp_path.exists()
