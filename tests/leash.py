"""What a run of tests, or of benches, starts and makes ends with it, however it ends.

A run has one directory: pytest's own, and everything made by `tempfile`, lie below it. Beside it there is one of the
same name in memory, where there is room: a database is copied there with a tenth of the work.

A process of its own, in a session of its own, holds the reading end of a pipe whose writing end only the run has. When
that closes, be it by SIGKILL, the process ends whatever belongs to the run and removes its directories. What not even
that survived is put right by the next run.

To the run belongs who carries its mark in the environment, stands in its directory, or is in a control group named
for it. Such a process may have become a daemon, or a container.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "ht-"  # short: the path of a socket has 108 bytes
MARK = "TESTS_LEASH"  # in the environment: the names of the run's directories, outermost first
GRACE = 5.0  # seconds from SIGTERM to SIGKILL
PATIENCE = 30.0  # seconds for what was killed to be gone
MEMORY = Path("/dev/shm")
ROOM = 4 << 30  # bytes that must be free there: databases of all workers
IN_MEMORY = "TESTS_IN_MEMORY"  # in the environment: the run's directory there
OWNER = "owner"  # the file that says whose the directory is


class Leash:
    """Held by the process that is the run."""

    def __init__(self, *, may_use_memory: bool = True) -> None:
        """What measures a disk does without memory."""
        for stale in find_stale(Path(tempfile.gettempdir())):
            clear(stale)
        self.directory = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        self.directory.chmod(0o755)  # PostgreSQL does not run as root: its user must get through
        (self.directory / OWNER).write_text(identity(os.getpid()))
        (self.directory / "tmp").mkdir(mode=0o1777)
        (self.directory / "tmp").chmod(0o1777)
        if may_use_memory and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
            beside(self.directory).mkdir()
            beside(self.directory).chmod(0o1777)
            os.environ[IN_MEMORY] = str(beside(self.directory))
        argv = [sys.executable, "-I", __file__, str(self.directory)]
        self._watcher = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True, cwd="/")
        os.environ["TMPDIR"] = str(self.directory / "tmp")
        os.environ[MARK] = ":".join(filter(None, (os.environ.get(MARK), self.directory.name)))
        tempfile.tempdir = None  # read it again
        atexit.register(self._release)  # after all that asks for it later: some write there as they leave

    def _release(self) -> None:
        """Wait until everything is gone."""
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()
        self._watcher.wait()


def beside(directory: Path) -> Path:
    """Return where a run's directory in memory is, if it has one."""
    return MEMORY / directory.name


def make_directory(prefix: str) -> Path:
    """Return a new directory for what need not outlive the machine: in memory, where there is room."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=os.environ.get(IN_MEMORY)))


def end_with_make() -> None:
    """Let this process end when the make that started it does, if one did."""
    if "MAKELEVEL" not in os.environ:
        return
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if os.getppid() == 1:
        os.kill(os.getpid(), signal.SIGTERM)


# ── whose is it ──


def identity(pid: int) -> str:
    """Return a process: its number, and when it began, as numbers come again. Empty for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else f"{pid} {fields[19]}"


def find_stale(place: Path) -> Iterator[Path]:
    """Directories of runs that are no more."""
    for directory in place.glob(f"{PREFIX}*"):
        try:
            owner = (directory / OWNER).read_text()
            is_ours = directory.stat().st_uid == os.getuid()
        except OSError:
            continue
        if is_ours and owner and identity(int(owner.split()[0])) != owner:
            yield directory


def find_processes(directory: Path) -> list[int]:
    """Return those that belong to a run."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    spared = {os.getpid(), *_ancestors()}
    return [pid for pid in numbers if pid not in spared and _belongs(pid, directory) and identity(pid)]


def _ancestors() -> Iterator[int]:
    pid = os.getpid()
    while pid > 1:
        yield (pid := int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]))


def _belongs(pid: int, directory: Path) -> bool:
    name = directory.name.encode()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if line.startswith(MARK.encode() + b"=") and name in line.partition(b"=")[2].split(b":"):
                return True
    with contextlib.suppress(OSError):
        if Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(directory):
            return True
    with contextlib.suppress(OSError):
        return name in Path(f"/proc/{pid}/cgroup").read_bytes()
    return False


# ── the end ──


def clear(directory: Path) -> None:
    """End what belongs to a run, and remove what it made."""
    _end(directory)
    for mount in _mounts(directory):
        subprocess.run(["umount", "-l", mount], stderr=subprocess.DEVNULL, check=False)
    for place in (beside(directory), directory):  # the one that names its owner last
        subprocess.run(["rm", "-rf", "--", place], stderr=subprocess.DEVNULL, check=False)  # however deep it is
    for group in _groups(directory):
        with contextlib.suppress(OSError):
            group.rmdir()


def _end(directory: Path) -> None:
    """Ask, then do not ask. Whoever starts others meanwhile is met in the next round."""
    asked: dict[int, float] = {}
    deadline = time.monotonic() + GRACE + PATIENCE
    while (found := find_processes(directory)) and (now := time.monotonic()) < deadline:
        for pid in found:
            with contextlib.suppress(OSError):
                if pid not in asked:
                    os.kill(pid, signal.SIGTERM)
                    os.kill(pid, signal.SIGCONT)  # one that stands still would never hear it
                elif now > asked[pid] + GRACE:
                    os.kill(pid, signal.SIGKILL)
            asked.setdefault(pid, now)
        time.sleep(0.05)


def _mounts(directory: Path) -> list[str]:
    """Innermost first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = [line.split()[4] for line in lines]
    return sorted((place for place in places if Path(place).is_relative_to(directory)), key=len, reverse=True)


def _groups(directory: Path) -> list[Path]:
    """Control groups named for a run, innermost first."""
    top = Path("/sys/fs/cgroup")
    tops = [*top.glob(f"{directory.name}*"), *top.glob(f"*/{directory.name}*")]
    return [Path(path) for one in tops for path, _, _ in os.walk(one, topdown=False)]


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()  # until the run is no more
    clear(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
