"""Limits of memory, processors and processes: a control group for every process that has some.

    <where our own group is>/horae-<data directory>/<run>-<fence>      one directory per controller (v1), or one (v2)

A limit that was exceeded ends the process with that reason: the kernel tells of it, and we look a few times a second,
because neither a fork bomb at its limit nor a shell that ignores its killed child would end by itself.

What must stay true:
- A process is in its groups before it becomes anybody's program (Command.groups).
- Groups are removed when the end of their process is known, and those of an earlier life at open.
- A directory that an agent was killed in, and whose files are gone since, is nobody's: each agent takes away those of
  others without a group in them, as hundreds of them slow every start and end. Its owner, if there is one, makes it
  again.
- Where a controller cannot be used, the nearest limit of a single process takes its place, and the log says so.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import resource
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from horae.core.model import Reason
from horae.ports.work import NO_LIMITS, Command, Exit, Keeper, Limits, Process

log = structlog.get_logger()

CONTROLLERS = {"memory": "memory", "cpus": "cpu", "pids": "pids"}  # limit → controller
PERIOD_MICROSECONDS = 100_000  # microseconds over which processor time is shared out
LOOK_SECONDS = 0.2
REMOVE_SECONDS = 2.0  # the kernel may hold on to a group for a moment after its last process
IF_THERE = {"memory.swap.max", "memory.memsw.limit_in_bytes"}  # not in a kernel that does not account for swap
PREFIX = "horae-"
OWN_LEAF = "horae-agent"  # where the agent itself moves on v2: a group with processes cannot have limited children


@dataclass(frozen=True, slots=True)
class Place:
    """Where groups of a controller are made."""

    controller: str
    parent: Path
    is_unified: bool  # v2

    def found(self) -> None:
        self.parent.mkdir(exist_ok=True)
        if self.is_unified:
            (self.parent / "cgroup.subtree_control").write_text(f"+{self.controller}")


class Groups:
    """Makes the groups of one agent, which is told from others by its data directory."""

    def __init__(self, data: Path) -> None:
        self._name = f"{PREFIX}{hashlib.sha256(os.fsencode(data.resolve())).hexdigest()[:12]}"
        self._places: dict[str, Place] = {}  # by controller
        self._said: set[str] = set()

    def open(self, kept: Collection[str] = ()) -> None:
        """Find where groups can be made, and remove those of an earlier life, but for `kept`: their processes are
        gone. Whoever shares this opens it; once is enough."""
        if self._places:
            return
        for controller, (top, is_unified) in find_controllers().items():
            place = Place(controller, top / self._name, is_unified)
            try:
                if is_unified:
                    delegate(top, controller)
                place.found()
            except OSError as error:
                log.info("limits.unavailable", controller=controller, error=error.strerror)
                continue
            _, left, _ = next(os.walk(place.parent), ("", [], []))  # none where another agent has just taken it away
            for name in set(left).difference(kept):
                _remove(place.parent / name)
            self._places[controller] = place
        for top in {place.parent.parent for place in self._places.values()}:
            _remove_empty(top, but=self._name)

    def close(self) -> None:
        for parent in {place.parent for place in self._places.values()}:
            _remove(parent)
        self._places.clear()

    async def spawn(self, keeper: Keeper, command: Command, name: str, limits: Limits) -> Process:
        """Start a process within its limits."""
        if limits == NO_LIMITS:
            return await keeper.spawn(command)
        group = self._make(name, limits)
        try:
            limited = replace(command, groups=group.files, rlimits=self._substitutes(limits))
            return _Limited(await keeper.spawn(limited), group, limits)
        except BaseException:
            group.remove()
            raise

    def take_up(self, process: Process, name: str, limits: Limits) -> Process:
        """Return a process that an earlier life has started within its limits."""
        group = Group()
        for limit, controller in CONTROLLERS.items():
            place = self._places.get(controller)
            if getattr(limits, limit) is not None and place is not None and (place.parent / name).is_dir():
                group.directories[limit] = place.parent / name
        return _Limited(process, group, limits) if group.directories else process

    def _make(self, name: str, limits: Limits) -> Group:
        group = Group()
        try:
            for limit, controller in CONTROLLERS.items():
                value, place = getattr(limits, limit), self._places.get(controller)
                if value is not None and place is not None:
                    group.directories[limit] = directory = self._make_directory(place, name)
                    for file, text in _settings(limit, value, is_unified=place.is_unified):
                        if file not in IF_THERE or (directory / file).exists():
                            (directory / file).write_text(text)
        except BaseException:
            group.remove()
            raise
        return group

    def _make_directory(self, place: Place, name: str) -> Path:
        directory = place.parent / name
        try:
            directory.mkdir(exist_ok=True)
        except FileNotFoundError:  # ours was empty, and another agent took it away
            for one in self._places.values():
                one.found()
            directory.mkdir(exist_ok=True)
        return directory

    def _substitutes(self, limits: Limits) -> dict[int, int]:
        """Return what can be had without groups: address space in place of memory, and nothing for the rest (the kernel
        counts processes per user, so that one job would pay for another)."""
        missing = [
            limit
            for limit, controller in CONTROLLERS.items()
            if getattr(limits, limit) is not None and controller not in self._places
        ]
        for limit in set(missing) - self._said:
            self._said.add(limit)
            instead = "the address space of each process is limited instead" if limit == "memory" else "not enforced"
            log.warning("limits.missing", limit=limit, instead=instead)
        return {resource.RLIMIT_AS: limits.memory} if "memory" in missing and limits.memory else {}


@dataclass(slots=True)
class Group:
    """The groups of one process: one directory per limit, which on v2 are the same."""

    directories: dict[str, Path] = field(default_factory=dict)

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(f"{directory}/cgroup.procs" for directory in self.directories.values()))

    def exceeded(self) -> str:
        """Return the limit that was exceeded, as a reason; empty when none was."""
        if "memory" in self.directories and _count(self.directories["memory"], _OOM_FILES, "oom_kill"):
            return Reason.OOM
        if "pids" in self.directories and _count(self.directories["pids"], ("pids.events",), "max"):
            return Reason.PROCESSES
        return ""

    def remove(self) -> None:
        for directory in set(self.directories.values()):
            _remove(directory)


_OOM_FILES = ("memory.events", "memory.oom_control")  # of v2, of v1


class _Limited:
    """A process in its groups."""

    def __init__(self, process: Process, group: Group, limits: Limits) -> None:
        self.pid = process.pid
        self._process = process
        self._group = group
        self._limits = limits
        self._exit = asyncio.create_task(self._watch())

    async def wait(self) -> Exit:
        return await asyncio.shield(self._exit)

    async def kill(self, grace: float = 5.0) -> Exit:
        await self._process.kill(grace)
        return await self.wait()

    async def _watch(self) -> Exit:
        """Watch it to its end, or end it when it has exceeded a limit. Should we be the first to go, its group stays
        with it."""
        ending = asyncio.create_task(self._process.wait())
        while not (await asyncio.wait((ending,), timeout=LOOK_SECONDS))[0]:
            if self._group.exceeded():
                await self._process.kill(0)
        exit_, reason = ending.result(), self._group.exceeded()
        await asyncio.to_thread(self._group.remove)
        if not reason or exit_.message:
            return exit_
        return Exit(exit_.code or -9, words_of(reason, self._limits), reason)


def words_of(reason: str, limits: Limits) -> str:
    if reason == Reason.OOM:
        most = "there was" if limits.memory is None else f"its limit of {limits.memory / 2**20:g} MiB"
        return f"it needed more memory than {most}"
    return f"it made more processes than its limit of {limits.pids}"


# ── the file system of groups ──────────────────────────────────────────────────────────────────────


def find_controllers(mounts: str | None = None, own: str | None = None) -> dict[str, tuple[Path, bool]]:
    """Controller → (our own group, whether it is of v2); the arguments are what the kernel tells of this process."""
    mounts = Path("/proc/self/mounts").read_text() if mounts is None else mounts
    own = Path("/proc/self/cgroup").read_text() if own is None else own
    paths = {names: path for _, names, path in (line.split(":", 2) for line in own.splitlines())}
    found: dict[str, tuple[Path, bool]] = {}
    for kind, mount, options in _mounted(mounts):
        if kind == "cgroup2":
            top = _inside(mount, paths.get("", "/").removesuffix(f"/{OWN_LEAF}"))
            found |= {name: (top, True) for name in _read(top / "cgroup.controllers").split() if name not in found}
            continue
        for names, path in paths.items():
            wanted = set(names.split(","))
            if names and wanted <= options:
                found |= {name: (_inside(mount, path), False) for name in wanted}
    return {name: found[name] for name in CONTROLLERS.values() if name in found}


def group_of(pid: int, name: str) -> Group:
    """Return the groups of a process that others made, if their paths bear this name; else none, for they are not its
    own."""
    own = _read(Path(f"/proc/{pid}/cgroup"))
    found = find_controllers(own=own) if name in own else {}
    limits = {controller: limit for limit, controller in CONTROLLERS.items()}
    return Group({limits[one]: directory for one, (directory, _) in found.items() if name in str(directory)})


def _mounted(mounts: str) -> Iterable[tuple[str, Path, set[str]]]:
    for line in mounts.splitlines():
        _, mount, kind, options = line.split()[:4]
        if kind in ("cgroup", "cgroup2"):
            yield kind, Path(mount), set(options.split(","))


def _inside(mount: Path, path: str) -> Path:
    """Our own group; in a container its path may be that of the machine outside, and the mount is the group itself."""
    inside = mount / path.lstrip("/")
    return inside if inside.is_dir() else mount


def delegate(top: Path, controller: str) -> None:
    """Let children of our own group have this controller. A group that hands out controllers has no processes of its
    own (but for the root of all): we, the keeper, and what it has started move to a leaf. Where others are in our
    group it was not made for us, and stays as it is."""
    control = top / "cgroup.subtree_control"
    if controller in control.read_text().split():
        return
    try:
        control.write_text(f"+{controller}")
    except OSError:
        _step_down(top)
        control.write_text(f"+{controller}")


def _step_down(top: Path) -> None:
    ours = _family(os.getpid())
    there = [int(pid) for pid in (top / "cgroup.procs").read_text().split()]
    if others := [pid for pid in there if pid not in ours]:
        raise OSError(errno.EBUSY, f"process {others[0]}, which is not ours, is in our control group")
    leaf = top / OWN_LEAF
    leaf.mkdir(exist_ok=True)
    for pid in there:
        with suppress(ProcessLookupError):
            (leaf / "cgroup.procs").write_text(str(pid))


def _family(pid: int) -> set[int]:
    """Return a process and all below it."""
    found, fresh = {pid}, [pid]
    while fresh:
        tasks = Path(f"/proc/{fresh.pop()}/task")
        lists = [_read(task / "children") for task in tasks.iterdir()] if tasks.is_dir() else []
        fresh += (below := [int(word) for text in lists for word in text.split()])
        found.update(below)
    return found


def _settings(limit: str, value: float, *, is_unified: bool) -> Iterable[tuple[str, str]]:
    """Files and what to write into them."""
    if limit == "pids":
        return [("pids.max", str(value))]
    if limit == "cpus":
        quota = str(int(value * PERIOD_MICROSECONDS))
        if is_unified:
            return [("cpu.max", f"{quota} {PERIOD_MICROSECONDS}")]
        return [("cpu.cfs_period_us", str(PERIOD_MICROSECONDS)), ("cpu.cfs_quota_us", quota)]
    if is_unified:
        return [("memory.max", str(value)), ("memory.swap.max", "0"), ("memory.oom.group", "1")]
    return [("memory.limit_in_bytes", str(value)), ("memory.memsw.limit_in_bytes", str(value))]


def _count(directory: Path, files: Iterable[str], name: str) -> int:
    for file in files:
        for line in _read(directory / file).splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _remove_empty(top: Path, but: str) -> None:
    """Take away what other agents have left."""
    for directory in top.glob(f"{PREFIX}*"):
        if directory.name not in (but, OWN_LEAF):
            with suppress(OSError):  # there are groups in it
                directory.rmdir()


def _remove(directory: Path) -> None:
    """Remove a group. What resists is left for the next open."""
    until = time.monotonic() + REMOVE_SECONDS
    while True:
        try:
            return directory.rmdir()
        except FileNotFoundError:
            return None
        except OSError as error:
            if time.monotonic() > until:
                log.warning("limits.left_behind", group=str(directory), error=error.strerror)
                return None
        time.sleep(0.01)
