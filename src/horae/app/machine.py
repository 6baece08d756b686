"""This machine and this process on it: its clock, its data directory, its tasks."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from horae.config import Config
from horae.core.model import Moment
from horae.core.policy.resources import CPUS, MEMORY, MILLI
from horae.errors import ConfigError

MEBIBYTE = 2**20
PRIVATE = 0o077  # rights that nobody else has to what we write

log = structlog.get_logger()


class SystemClock:
    def now(self) -> Moment:
        return time.time_ns() // 1000

    def elapsed(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)  # counts suspend, which CLOCK_MONOTONIC does not

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def keep_private(directory: Path) -> int:
    """From now on, what this process writes is its user's alone, and so is its data directory. Return the umask that
    work has: that of the user."""
    umask = os.umask(PRIVATE)
    make_private(directory)
    return umask


def make_private(directory: Path) -> None:
    """Make a data directory of its user's alone; it is mended where others may look into it."""
    if not directory.exists():
        directory.mkdir(parents=True, exist_ok=True, mode=0o777 & ~PRIVATE)
        return
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & PRIVATE:
        try:
            directory.chmod(mode & ~PRIVATE)
        except PermissionError:
            hint = f"run as its owner, or give another directory: --data; or its owner runs chmod 700 {directory}"
            raise ConfigError(
                f"others can look into {directory}, and it is not ours to mend", path="data", hint=hint
            ) from None
        log.warning("data.was_open", path=str(directory), mode=f"{mode:o}", now=f"{mode & ~PRIVATE:o}")


class OwnDirectory:
    """A data directory, held by a lock for as long as this process lives. Others may use it too; but whoever holds it
    knows that no process which held it before is alive."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "node.lock"
        self._lock: int | None = None

    def hold(self) -> bool:
        if self._lock is None:
            lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                return False
            self._lock = lock
        return True

    def release(self) -> None:
        """For the next of this very process."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def keeps_work(config: Config) -> bool:
    """Return whether running work outlives this process. Not where everything ends with it: as the first of a
    container."""
    return config.on_restart == "keep" and os.getpid() != 1


def identity_of(directory: Path) -> str:
    """Of this data directory: made once, so that others know the node again after a crash."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "identity"
    if not file.exists():
        part = directory / "identity.part"
        part.write_text(secrets.token_hex(16))
        part.rename(file)
    return file.read_text().strip()


def here() -> str:
    """Return how a process of this machine ends its name for people."""
    return f" on {socket.gethostname()}"


async def end_task(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# ── what it has ──
def machine_resources(root: Path = Path("/")) -> dict[str, int]:
    """Return the cpus, in thousandths, and the memory, in bytes, that this process may use: those of the machine, or
    less where a control group allows less. `root` is where the files of the system lie."""
    groups = list(_own_groups(root))
    cpus = [len(os.sched_getaffinity(0)) * MILLI, *(_cpus_of(group) for group in groups)]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    memory = [pages, *(_memory_of(group) for group in groups)]
    return {CPUS: min(one for one in cpus if one), MEMORY: min(one for one in memory if one) // MEBIBYTE * MEBIBYTE}


def _own_groups(root: Path) -> Iterator[Path]:
    """The directories of our control groups, of either version, and of those above them."""
    top = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        tree = top / controllers if controllers else top
        if controllers in ("", "memory", "cpu,cpuacct", "cpu"):
            inner = tree / path.lstrip("/")
            yield from (each for each in (inner, *inner.parents) if each.is_relative_to(tree))


def _cpus_of(group: Path) -> int:
    """0: no limit."""
    quota, _, period = _text(group / "cpu.max").partition(" ")
    if not quota:
        quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
    return int(quota) * MILLI // int(period) if quota.isdigit() and period.isdigit() and int(period) else 0


def _memory_of(group: Path) -> int:
    """0: no limit; the older version has a very large number for that, which is more than any machine has."""
    most = _text(group / "memory.max") or _text(group / "memory.limit_in_bytes")
    return int(most) if most.isdigit() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
