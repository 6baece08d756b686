"""A run of tests that is killed leaves nothing behind: no server, no process, no directory."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.leash import MARK, OWNER, PREFIX, beside, clear, find_processes, find_stale, identity

ROOT = Path(__file__).parents[1]
DEADLINE = 300.0
TELL = """
import os, threading
from pathlib import Path

def tell_and_wait():
    ready = Path(os.environ["READY_FILE"])
    ready.with_suffix(".new").write_text(str(Path(os.environ["TMPDIR"]).parent))
    ready.with_suffix(".new").rename(ready)
    threading.Event().wait()
"""
SERVERS = f"""{TELL}
import subprocess, tempfile
from tests.acceptance.server import Server

def test_that_is_killed(postgres_server, nats, tmp_path):
    Server(tmp_path).start()
    subprocess.run(["setsid", "--fork", "sleep", "600"], cwd="/", check=True)  # a daemon, in no group of ours
    tempfile.mkdtemp()
    tell_and_wait()
"""


DAEMON = f"""{TELL}
import subprocess

def test_that_is_killed():
    subprocess.run(["setsid", "--fork", "sleep", "600"], cwd="/", check=True)
    tell_and_wait()
"""


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)


def find_programs(directory: Path) -> set[str]:
    """Return the names of what belongs to a run; some ends meanwhile."""
    names = set()
    for pid in find_processes(directory):
        with suppress(OSError):
            names.add(Path(f"/proc/{pid}/comm").read_text().strip())
    return names


def hear_interrupts() -> None:
    """What a shell starts in the background does not, and leaves that to its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def ended_by_failure(run: subprocess.Popen[bytes]) -> Iterator[None]:
    """Else it would be waited for."""
    try:
        yield
    except BaseException:
        run.kill()
        raise


def kill_run(
    tmp_path: Path,
    inside: str,
    programs: set[str],
    signal_: signal.Signals,
    *options: str,
    by_make: bool = False,
) -> Path:
    """Run a test until it has started these programs, end the run so, and see that nothing is left of its directory,
    which is the answer. `by_make`: end the make that started the run."""
    (tmp_path / "test_inside.py").write_text(inside)
    ready = tmp_path / "ready"
    argv = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest"]
    argv += [*options, str(tmp_path)]
    if by_make:
        (tmp_path / "Makefile").write_text(f"run:\n\t{shlex.join(argv)}\n")
        argv = ["make", "-f", str(tmp_path / "Makefile")]
    environment = {**os.environ, "READY_FILE": str(ready)}
    environment.pop("MAKELEVEL", None)
    said = (tmp_path / "said").open("w+b")
    run = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=said, stderr=said, preexec_fn=hear_interrupts)
    with said, run, ended_by_failure(run):
        wait_until(lambda: ready.exists() or run.poll() is not None, "the run to start its servers")
        assert ready.exists(), (tmp_path / "said").read_text()
        directory = Path(ready.read_text())
        assert programs <= find_programs(directory)

        run.send_signal(signal_)

        wait_until(lambda: run.poll() is not None, "the run to end")
    wait_until(lambda: not directory.exists() and not find_processes(directory), "everything to be gone")
    assert not beside(directory).exists()
    return directory


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signal_", "options"),
    [(signal.SIGINT, ()), (signal.SIGKILL, ("-n", "1"))],
    ids=["SIGINT", "SIGKILL with a worker"],
)
def test_a_killed_run_leaves_no_process_and_no_directory(
    tmp_path: Path, signal_: signal.Signals, options: tuple[str, ...]
) -> None:
    kill_run(tmp_path, SERVERS, {"postgres", "nats-server", "horae", "sleep"}, signal_, *options)


def test_a_run_ends_with_the_make_that_started_it(tmp_path: Path) -> None:
    kill_run(tmp_path, DAEMON, {"sleep"}, signal.SIGKILL, by_make=True)


@pytest.mark.slow
def test_a_killed_bench_leaves_no_server_and_no_directory(tmp_path: Path) -> None:
    def find_directories() -> list[Path]:
        owners = Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{OWNER}")
        return [one.parent for one in owners if one.read_text().startswith(f"{bench.pid} ")]

    def has_server() -> bool:
        return any("postgres" in find_programs(directory) for directory in find_directories())

    argv = [sys.executable, "-m", "bench", "fire", "--store", "postgres", "--quick"]
    with (tmp_path / "said").open("wb") as said, subprocess.Popen(argv, cwd=ROOT, stdout=said, stderr=said) as bench:
        with ended_by_failure(bench):
            wait_until(lambda: has_server() or bench.poll() is not None, "the bench to start its server")
            assert bench.poll() is None, (tmp_path / "said").read_text()
            [left] = find_directories()

        bench.kill()

    wait_until(lambda: not left.exists() and not find_processes(left), "everything to be gone")


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

    assert still.wait(DEADLINE) in (-signal.SIGTERM, -signal.SIGKILL)
    assert deaf.wait(DEADLINE) == -signal.SIGKILL
    assert not tmp_path.exists()
