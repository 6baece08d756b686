"""Walls made by bubblewrap: own pid, network, mount, ipc and user namespaces around a read-only system.

Inside are the programs and libraries of the machine, the little of /etc that they need, empty /tmp and /run in memory,
and the workspace. Everything else, the data directory of the agent before all, is not there.

What must stay true:
- What is not named here is not visible: paths are added one by one, never taken away from a whole.
- The workspace is the only thing of the machine that can be written to, but for what our own sections keep. This
  includes /proc: its settings belong to root, and the kernel takes the work of a root agent for root there.
- The work makes no call to the kernel that containers deny by default, and no namespace (see sandboxes.seccomp).
- Nothing of the job reaches bwrap itself, which runs outside: neither its environment nor its directory.
- bwrap is the root that the keeper kills; it dies with the keeper, and with it everything in its pid namespace.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from horae.errors import Invalid
from horae.ports.work import Boundary, Command, Keeper, Limits, Process
from horae.sandboxes.cgroups import Groups
from horae.sandboxes.endpoints import Reach, Relayed, spawn_relay
from horae.sandboxes.plain import environment
from horae.sandboxes.seccomp import build_filter

log = structlog.get_logger()

PROBE_SECONDS = 10.0
NOBODY = 65534  # the name of the work, inside, where the agent is root
PIDS = 4096  # processes of work that has no limit of its own: a fork bomb ends itself, not the machine
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Of /etc, what programs need and nobody needs to hide: names, certificates, alternatives, settings of toolchains.
ETC = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "fonts"),
    *("gai.conf", "group", "host.conf", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias"),
    *("localtime", "magic", "maven", "mime.types", "nsswitch.conf", "os-release", "passwd", "pki/tls/certs"),
    *("pki/ca-trust", "pki/java", "protocols", "resolv.conf", "services", "ssl/certs", "ssl/openssl.cnf"),
    *("terminfo", "timezone"),
)
ETC_PATTERNS = ("java-*", "python3*")
# The nodes of /dev: major and minor number.
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
WALLS = ("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
NOTHING = Reach()
NO_NESTING = "--disable-userns"  # refused by some kernels, and by a bwrap that is setuid


@dataclass(frozen=True, slots=True)
class Bwrap:
    """A bwrap that works here."""

    program: str
    walls: tuple[str, ...]
    filter: bytes | None = None  # of calls to the kernel
    warning: str = ""  # what is missing of its walls


def find_bwrap() -> Bwrap | str:
    """Return the bwrap of this machine, tried out; or why there is none."""
    program = shutil.which("bwrap")
    if program is None:
        return "bwrap is not on PATH: install bubblewrap"
    machine = os.uname().machine
    calls = build_filter(machine)
    why = _try(program, (*WALLS, NO_NESTING, *_identity()), calls)
    if not why:
        unknown = f"the calls of a {machine} to the kernel are not filtered (E_SANDBOX)"
        return Bwrap(program, (*WALLS, NO_NESTING, *_identity()), calls, "" if calls else unknown)
    if calls is not None and not _try(program, (*WALLS, *_identity()), calls):
        first = why.splitlines()[0]
        weaker = f"that work makes no user namespaces is held by a filter alone, for bwrap cannot (E_SANDBOX): {first}"
        return Bwrap(program, (*WALLS, *_identity()), calls, weaker)
    return f"bwrap does not work here: {why}"


def _try(program: str, walls: Sequence[str], calls: bytes | None) -> str:
    """Why a process cannot be started behind such walls; empty when it can."""
    with _file("filter", calls or b"") as given:
        words = ("--seccomp", str(given)) if calls else ()
        argv = [program, *walls, *_system(), *words, "--", "/bin/sh", "-c", ":"]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False, cwd="/", pass_fds=(given,)
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"it ended with {done.returncode}"


class BubblewrapSandbox:
    """`hidden` is the agent's data directory; `roots` are directories that every job may read."""

    name = "bubblewrap"

    def __init__(
        self, bwrap: Bwrap, keeper: Keeper, groups: Groups, *, hidden: Path, roots: Sequence[Path] = (),
        reach: Reach = NOTHING,
    ) -> None:  # fmt: skip
        self._keeper = keeper
        self._reach = reach
        self._groups = groups
        self._roots = tuple(str(root.resolve()) for root in roots)
        hiding = _hide(str(hidden.resolve()), (*SYSTEM, *self._roots))
        self._filter = bwrap.filter
        self._begin = (bwrap.program, *bwrap.walls, *_system(), *_bind("--ro-bind", self._roots), *hiding)
        user = "nobody" if os.getuid() == 0 else str(os.getuid())
        self._fixed = environment(user)
        self._nodes = hidden.resolve() / "agent" / "dev"
        self._devices: tuple[str, ...] = ()
        self._null: int | None = None

    async def open(self, kept: Collection[str] = ()) -> None:
        self._groups.open(kept)
        if os.getuid() == 0 and self._null is None:
            self._make_devices()

    def _make_devices(self) -> None:
        """Nodes that the work does not own. Beyond its namespace the work of a root agent counts as root, so it could
        change the mode of the machine's own /dev/null, for everybody."""
        try:
            self._nodes.mkdir(parents=True, exist_ok=True)
            for name, (major, minor) in DEVICES.items():
                (self._nodes / name).unlink(missing_ok=True)
                os.mknod(self._nodes / name, stat.S_IFCHR, os.makedev(major, minor))
                os.chown(self._nodes / name, NOBODY, NOBODY)
                os.chmod(self._nodes / name, 0o666)  # noqa: S103  # as every /dev has them
            self._null = os.open(self._nodes / "null", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:  # a container that may not, or a file system without devices
            log.warning("sandbox.devices", sandbox=self.name, shared="/dev/null and others", error=error.strerror)
        else:
            nodes = ((str(self._nodes / name), f"/dev/{name}") for name in DEVICES)
            self._devices = tuple(word for node, path in nodes for word in ("--dev-bind", node, path))

    async def spawn(self, command: Command, boundary: Boundary) -> Process:
        self._refuse_unseen(command.cwd, boundary)
        if boundary.network in ("listed", "on"):
            return await self._spawn_with_relay(command, boundary)
        return await self._spawn(command, boundary, ("--share-net",) if boundary.network == "machine" else ())

    async def _spawn_with_relay(self, command: Command, boundary: Boundary) -> Process:
        """bwrap tells the relay where the work will be, and lets it begin when the relay says so."""
        plan = self._reach.plan(boundary)
        with ExitStack() as stack:
            (info, told), (blocked, go) = os.pipe(), os.pipe()
            hosts, resolvers = os.memfd_create("hosts"), os.memfd_create("resolvers")
            for descriptor in (info, told, blocked, go, hosts, resolvers):
                stack.callback(os.close, descriptor)
            os.pwrite(hosts, plan.listed.hosts.encode(), 0)
            os.pwrite(resolvers, plan.resolv_conf.encode(), 0)
            relay = await spawn_relay(self._keeper, plan, info, go, command.stderr)
            words = (
                *("--info-fd", str(told), "--block-fd", str(blocked), "--ro-bind-data", str(hosts), "/etc/hosts"),
                *("--ro-bind-data", str(resolvers), "/etc/resolv.conf"),
            )
            try:
                held_back = replace(command, keep=(*command.keep, told, blocked, hosts, resolvers))
                return Relayed(await self._spawn(held_back, boundary, words), relay, os.dup(go))
            except BaseException:
                await relay.kill(0)
                raise

    async def _spawn(self, command: Command, boundary: Boundary, words: Sequence[str]) -> Process:
        variables = b"".join(map(_terminated, _variables({"HOME": boundary.workspace, **command.env})))
        with _file("arguments", variables) as given, _file("filter", self._filter or b"") as calls:
            filtering = ("--seccomp", str(calls)) if self._filter else ()
            return await self._spawn_with(command, boundary, (*words, *filtering, "--args", str(given)), (given, calls))

    async def _spawn_with(
        self, command: Command, boundary: Boundary, words: Sequence[str], given: Sequence[int]
    ) -> Process:
        """bwrap itself is outside the walls: what the job says of the environment is none of its own."""
        argv = (
            *self._begin,
            *self._devices,
            *words,
            *_bind("--ro-bind", (*boundary.sees, *([boundary.secrets] if boundary.secrets else ()))),
            *_bind("--bind", (*boundary.keeps, boundary.workspace)),
            *("--remount-ro", "/", "--chdir", command.cwd, "--"),
            *command.argv,
        )
        inside = replace(
            command, argv=argv, env=self._fixed, cwd="/", carries=True, stdin=self._stdin(command),
            keep=(*command.keep, *given),
        )  # fmt: skip
        return await self._groups.spawn(self._keeper, inside, boundary.name, _limits(boundary))

    def take_up(self, process: Process, boundary: Boundary) -> Process:
        return self._groups.take_up(process, boundary.name, _limits(boundary))

    def can_hold(self, boundary: Boundary) -> bool:
        """But for work that has a relay, which would have to outlive us too."""
        return boundary.network not in ("listed", "on")

    def _stdin(self, command: Command) -> int | None:
        return self._null if command.stdin is None else command.stdin

    def _refuse_unseen(self, cwd: str, boundary: Boundary) -> None:
        seen = (boundary.workspace, *boundary.keeps, *boundary.sees, *self._roots, *SYSTEM)
        if not any(Path(cwd).is_relative_to(path) for path in seen):
            hint = (
                "write a path inside the workspace, or ask for `sandbox: plain`; a job that was submitted before this "
                "server had logins is submitted again"
            )
            raise Invalid(f"working_directory {cwd!r} cannot be seen in the sandbox bubblewrap: {hint}")

    async def close(self) -> None:
        self._groups.close()
        if self._null is not None:
            os.close(self._null)
            self._null = None


def _limits(boundary: Boundary) -> Limits:
    return replace(boundary.limits, pids=PIDS) if boundary.limits.pids is None else boundary.limits


@contextmanager
def _file(name: str, content: bytes) -> Iterator[int]:
    """A descriptor that bwrap reads once: arguments, where nobody sees them in a list of processes, or a filter."""
    given = os.memfd_create(name)
    try:
        os.pwrite(given, content, 0)
        yield given
    finally:
        os.close(given)


def _terminated(word: str) -> bytes:
    return os.fsencode(word) + b"\0"


def _variables(env: Mapping[str, str]) -> Iterator[str]:
    for name, value in env.items():
        yield from ("--setenv", name, value)


def _identity() -> tuple[str, ...]:
    return ("--uid", str(NOBODY), "--gid", str(NOBODY)) if os.getuid() == 0 else ()


def _system() -> tuple[str, ...]:
    """Return the machine as every process inside sees it."""
    return (
        *_programs(),
        *_bind("--ro-bind", map(str, _settings())),
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run", "--tmpfs", "/var/tmp"),  # noqa: S108
        *("--remount-ro", "/proc"),
    )


def _programs() -> Iterator[str]:
    for path in SYSTEM:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.isdir(path):
            yield from ("--ro-bind", path, path)


def _settings() -> list[Path]:
    etc = Path("/etc")
    named = [etc / name for name in ETC]
    return [path for path in (*named, *(one for pattern in ETC_PATTERNS for one in etc.glob(pattern))) if path.exists()]


def _bind(how: str, paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for path in paths for word in (how, path, path))


def _hide(path: str, shown: Sequence[str]) -> tuple[str, ...]:
    """Return an empty directory in the place of one that lies in something shown."""
    return ("--tmpfs", path) if any(Path(path).is_relative_to(one) for one in shown) else ()
