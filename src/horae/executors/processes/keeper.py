"""The keeper: a small program that starts and kills processes for one agent.

It is run as a script (`python -I -S <this file> <fd> <directory> [<life>]`), so it imports the standard library
only. It is one file, however long: an isolated Python finds no module beside its script, and each further one would
cost every start. The agent's side is `process.py`; they talk over a Unix socket pair of packets. Descriptors of
children travel with the packets, so no output flows through here while there is an agent.

    agent → keeper   {"op": "spawn", "id", "argv", "env", "cwd", "fds": [[target, index], …], "groups",
                      "rlimits", "carries", "gentle", "hold"?: {"name", "memo", "fds": [index of the read end of its
                      output, index of the file for it]}} + descriptors
                     {"op": "kill", "id", "grace"}      {"op": "renew", "until"}      {"op": "end"}
                     {"op": "note", "name", "memo"}     {"op": "release", "name"}
    keeper → agent   [["ready", protocol, life, highest id], ["start", id, pid],
                      ["exit", id, code, message, seconds], …]      seconds it ran, if it ended by itself; else null
                     before "ready", to an agent that comes later: ["protocol", number], then for each work that was
                     kept ["kept", name, id, pid, exit or null, is being killed] + read end, file and memo

Between the keeper and each program stands a *process host*: a fork of the keeper that starts one program after the
other and waits for its end. To fork a Python for every program, only so that the kernel is told a few things before
the program begins, would cost more than most programs do; a process host starts them by vfork.

    keeper → host    the packet of the spawn, with its descriptors
    host → keeper    [pid] of the program, then [code, message] when nothing of it is left; all three at once when it
                     was over in a moment

What must stay true:
- Every process that a job leaves behind ends up below the keeper. The keeper is a child subreaper and so is each
  process host: while a host lives, the orphans of its job (daemons, double forks, new sessions) hang below it; when it
  ends, they become children of the keeper. A child of the keeper that is not a process host is therefore a *stranger*,
  left behind by an ended job, and is killed.
- A process host serves one job at a time. It goes on to the next only when it has no child at all; if its program
  leaves something behind, the process host ends as the program did.
- An exit is reported when a process host says that nothing is left, or when it was reaped and no stranger is left, or
  with a message that says why this could not be verified.
- The list of a process's own children is exact: they vanish from it only when it reaps them, and keeper and process
  hosts have one thread each.
- A pid is never trusted: a process is signalled through a pidfd after its parent was checked.
- When the agent is gone, or closed its end, everything is killed (gentle work after a moment) before this program
  ends and lets go of its lock. When the agent has not renewed in time, everything is killed and nothing more is
  started.
- With a `life`, work that was spawned with a hold outlives its agent, but never the lease. Everything else is killed,
  and only when that is gone is the next agent of this user let in (keeper.sock), one at a time. It is told what was
  kept, and its lease is still the one that the agent before it renewed. Nobody comes in while an agent is alive.
- What is held stays until it is released or replaced, with its end if it has ended: whoever dies in between, the next
  one learns it. What is noted with it may be secret, and is written nowhere.
- When the keeper itself is killed, each process host kills what is below it, and the lock is held until the last has
  ended.
- Nothing here waits for a child: that is what process hosts are for.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import gc
import itertools
import json
import os
import resource
import select
import selectors
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

PACKET_LIMIT = 64_000  # bytes; a longer order lies in a memfd, the last descriptor of a packet IN_MEMFD
IN_MEMFD = b"@"
ORDER_LIMIT = 16_000_000
FDS_PER_PACKET = 64
REPORTS_PER_PACKET = 50
PACKETS_PER_TURN = 16
MESSAGE_LIMIT = 500
READY = "ready"
PROTOCOL = 1  # between keepers and agents that come later; another version is told to end
SOCKET_NAME = "keeper.sock"
ADMIT_SECONDS = 1.0  # to tell an agent what was kept
COLLECTED_LIMIT = 16 << 20  # bytes that a held file may have; beyond, its writer waits for the next agent
COLLECTED_AT_ONCE = 1 << 16
LEASE_RAN_OUT = "lease ran out"
MACHINE = "this machine cannot start a process now: "  # begins the message of what is not the program's fault
MACHINE_FAULTS = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM,
})  # fmt: skip

NOT_STARTED, NOT_FOUND = 126, 127  # exit codes of a program that could not be started, as in a shell
VERIFY_SECONDS = 30.0  # how long a killed tree may take to vanish before that is reported
FREEZE_PASSES = 8
ZOMBIE = "Z"
REAP_LIMIT = 50_000  # at once, so that a storm of dying processes cannot starve the loop
LOCK_POLL_SECONDS = 0.02
SHORTEST_PAUSE, LONGEST_PAUSE = 0.004, 0.5  # between sweeps while something should vanish
GENTLE_SECONDS = 5.0  # from TERM to KILL for gentle work whose agent has gone; never beyond the lease
FAREWELL_SECONDS = 5.0  # for the last reports
LONGEST_SLEEP = 1.0  # a suspended machine stops the selector's clock, not the lease's

ORPHANED = signal.SIGUSR1  # to a process host, when its keeper has died
WAITED_FOR = {signal.SIGCHLD, ORPHANED}
write_json, read_json = json.JSONEncoder().encode, json.JSONDecoder().decode
MOMENT_SECONDS = 0.005  # seconds in which a program may be over before anybody is told that it began
FADING_SECONDS = 1.0  # for the rest of a sandbox to end after it
IDLE_HOSTS = 8  # kept for programs to come
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_prctl = ctypes.CDLL(None, use_errno=True).prctl
_prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def log(text: str) -> None:
    """For whoever looks into keeper.log. Where there is no room for it, the work still has to be kept."""
    with contextlib.suppress(OSError):
        os.write(2, f"keeper: {text}\n".encode(errors="replace"))


def boottime() -> float:
    """Seconds on the clock of leases: it never jumps, and it counts suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# ── /proc ──────────────────────────────────────────────────────────────────────────────────────────


def look_at(pid: int) -> tuple[int, str, str]:
    """Parent, state and name of a process; parent 0 when there is none of that number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            name, _, rest = file.read().decode(errors="replace").partition("(")[2].rpartition(")")
        state, parent = rest.split(maxsplit=2)[:2]
        return int(parent), state, name
    except (OSError, ValueError):
        return 0, "", ""


def read_children(parents: Iterable[int]) -> list[int]:
    """Children of some processes, from the kernel's own lists."""
    found: list[int] = []
    for parent in parents:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children", "rb") as file:
                    found += map(int, file.read().split())
        except OSError:  # it has ended
            continue
    return found


def scan_children(parents: Iterable[int]) -> list[int]:
    """Return the same by looking at every process: for kernels without the list of children."""
    wanted = set(parents)
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and look_at(int(name))[0] in wanted]


HAS_CHILDREN_LIST = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
list_children = read_children if HAS_CHILDREN_LIST else scan_children


def describe(pid: int) -> str:
    _, state, name = look_at(pid)
    return f"{pid} ({name}, state {state})"


# ── killing ────────────────────────────────────────────────────────────────────────────────────────


def send(pid: int, signals: Sequence[signal.Signals], family: set[int]) -> bool:
    """Signal a process if it lives and its parent is of the family; False when not.

    The pidfd is opened first: if the process seen in /proc is another one that took over the number,
    the pidfd belongs to the dead one and nobody is hit.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        parent, state, _ = look_at(pid)
        is_member = parent in family and state != ZOMBIE
        for signum in signals if is_member else ():
            signal.pidfd_send_signal(pidfd, signum)
        return is_member
    except OSError:  # ended meanwhile, or runs as somebody else: the next sweep sees it again
        return True
    finally:
        os.close(pidfd)


def collect(tops: Sequence[int], signals: Sequence[signal.Signals] = ()) -> list[int]:
    """Return the living members of whole trees, parents before children, each signalled when it is found.

    The newest come first: a process that forks and leaves is one of them, and soon gone.
    """
    family = {os.getpid()}
    members: list[int] = []
    fresh = list(tops)
    while fresh:
        family.update(fresh)
        living = [pid for pid in reversed(fresh) if send(pid, signals, family)]
        members += living
        fresh = [pid for pid in list_children(living) if pid not in family]
    return members


def freeze(find_tops: Callable[[], Sequence[int]]) -> list[int]:
    """Stop whole trees and list them, again and again until nobody new appears: what is stopped cannot
    fork. Whoever slips through hangs below the keeper in the end, where the next sweep meets it."""
    members: list[int] = []
    known: set[int] = set()
    for _ in range(FREEZE_PASSES):
        members = collect(find_tops(), (signal.SIGSTOP,))
        if known.issuperset(members):
            break
        known.update(members)
    return members


def slay(find_tops: Callable[[], Sequence[int]]) -> None:
    """Kill whole trees, children before their parents: the death of a parent wakes stopped orphans."""
    members = freeze(find_tops)
    family = {os.getpid(), *members}
    for pid in reversed(members):
        send(pid, (signal.SIGKILL,), family)


def terminate(top: int, but: set[int]) -> list[int]:
    """Ask a whole tree, but for some, to end, all of it at once; return who has time for it."""
    members = freeze(lambda: [top])
    family = {os.getpid(), *members}
    for signum in (signal.SIGTERM, signal.SIGCONT):
        for pid in members:
            if pid not in but or signum == signal.SIGCONT:
                send(pid, (signum,), family)
    return members


# ── becoming a job ─────────────────────────────────────────────────────────────────────────────────


class ProcessHost:
    """What a fork of the keeper becomes. `run` never returns."""

    def __init__(self, keeper: int, link: socket.socket, limits: tuple[int, int], kept: Sequence[int]) -> None:
        self.me = os.getpid()
        self.keeper = keeper
        self.link = link
        self.carries = False  # as Child.carries, of the job it serves
        self._close_all_but((*kept, link.fileno()))
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.failures, self.failing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)  # which its programs inherit
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, WAITED_FOR)  # and taken by sigwaitinfo
        self.ignored = [number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN]

    def _close_all_but(self, kept: Sequence[int]) -> None:
        """The ends of others' sockets before all: who holds one would never hear that the keeper is gone."""
        first = 3
        for fd in sorted(kept):
            os.closerange(first, fd)
            first = fd + 1
        os.closerange(first, resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    def run(self) -> NoReturn:
        _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _prctl(PR_SET_PDEATHSIG, ORPHANED, 0, 0, 0)
        while os.getppid() == self.keeper:
            packet, fds, _ = receive_packet(self.link)
            if not packet:
                break
            try:
                pid, failure = self._start(packet, fds)
            finally:
                for fd in fds:
                    os.close(fd)
            self._report(self._see_through(pid) if pid else failure)
        os._exit(0)

    def _report(self, words: list[Any]) -> None:
        try:
            self.link.send(write_json(words).encode())
        except OSError:
            self._kill_all()  # nobody is there to be told

    def _see_through(self, program: int) -> list[Any]:
        """Wait for its end; return what is still to be told of it."""
        code = self._wait(program, MOMENT_SECONDS)
        if code is not None and not self._has_children():
            return [program, code, self._explain(code)]
        self._report([program])
        while code is None:
            code = self._wait(program)
        self._end_like(code)
        return [code, self._explain(code)]

    def _wait(self, program: int, seconds: float | None = None) -> int | None:
        """Until something ends, or the time is over; the code of the program if that has ended."""
        told = signal.sigwaitinfo(WAITED_FOR) if seconds is None else signal.sigtimedwait(WAITED_FOR, seconds)
        if told is not None and told.si_signo == ORPHANED:
            self._kill_all()
        return self._reap(program)

    def _has_children(self) -> bool:
        """Also one that has ended and was not collected."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def _end_like(self, code: int) -> None:
        """If the program left something behind, end in the same way. What a sandbox leaves is dying with it."""
        until = boottime() + (FADING_SECONDS if self.carries else 0.0)
        with contextlib.suppress(ChildProcessError):
            while True:
                self._reap(0)
                left = until - boottime()
                if left <= 0:
                    die_like(code)
                signal.sigtimedwait({signal.SIGCHLD}, left)

    def _reap(self, program: int) -> int | None:
        """Collect who has ended; the code of the program if it was among them. ChildProcessError: nobody is left."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == program:
                return os.waitstatus_to_exitcode(status)
            if pid == 0:
                return None

    def _kill_all(self) -> NoReturn:
        """The keeper died: let nothing survive it."""
        pause = SHORTEST_PAUSE
        with contextlib.suppress(ChildProcessError):
            while True:
                slay(lambda: list_children([self.me]))
                signal.sigtimedwait(WAITED_FOR, pause)
                self._reap(0)
                pause = min(pause * 2, LONGEST_PAUSE)
        os._exit(0)

    # ── starting ──

    def _start(self, packet: bytes, fds: list[int]) -> tuple[int, list[Any]]:
        """Return the pid of the program; 0 and what to tell when it could not be started."""
        code, message = NOT_STARTED, "the program could not be started"
        order: dict[str, Any] = {}
        try:
            order = read_order(packet, fds)
            self.carries = bool(order.get("carries"))
            limited = order.get("groups") or order.get("rlimits")
            return (self._fork(order, fds) if limited else self._spawn(order, fds)), []
        except OSError as error:
            code, message = explain(error, order)
        except BaseException as error:
            message = f"the program could not be started: {error}"
        return 0, [code, message[:MESSAGE_LIMIT]]

    def _spawn(self, order: dict[str, Any], fds: Sequence[int]) -> int:
        """By vfork, as a leader of its session, with no signal ignored or blocked."""
        wanted = self._wanted(order["fds"], fds)
        moved = self._move(wanted)
        try:
            enter(order["cwd"])
            actions = [(os.POSIX_SPAWN_DUP2, moved[target], target) for target in wanted]
            return spawn_on_path(
                order["argv"], order["env"], file_actions=actions, setsid=True, setsigmask=(), setsigdef=self.ignored
            )
        finally:
            os.chdir("/")
            for fd in {*moved.values()}.difference(wanted.values()):
                os.close(fd)

    def _wanted(self, targets: list[list[int]], fds: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys((0, 1, 2), self.null) | {target: fds[index] for target, index in targets}

    def _move(self, wanted: dict[int, int]) -> dict[int, int]:
        """Descriptors above the highest number asked for, so that no move closes one that is still needed."""
        floor = max(wanted) + 1
        return {
            target: fd if fd >= floor else fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, floor)
            for target, fd in wanted.items()
        }

    def _fork(self, order: dict[str, Any], fds: Sequence[int]) -> int:
        """For a program with limits, which it must have before it begins. Signals are blocked meanwhile: one that
        is sent to the child too early waits for it to be the program instead of being swallowed."""
        signal.pthread_sigmask(signal.SIG_BLOCK, self.ignored)
        try:
            pid = os.fork()
            if pid == 0:
                self._become(order, fds)
            return pid
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, WAITED_FOR)

    def _become(self, order: dict[str, Any], fds: Sequence[int]) -> NoReturn:
        code, message = NOT_STARTED, "the program could not be started"
        try:
            os.setsid()
            for number in self.ignored:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            self._place(self._wanted(order["fds"], fds))
            enter(order["cwd"])
            self._limit(order)
            os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606
        except OSError as error:
            code, message = explain(error, order)
        except BaseException as error:
            message = f"the program could not be started: {error}"
        finally:
            try:
                os.write(self.failing, message[:MESSAGE_LIMIT].encode(errors="replace"))
            finally:
                os._exit(code)

    def _place(self, wanted: dict[int, int]) -> None:
        """Put descriptors under the numbers asked for; everything else closes on exec."""
        self.failing = fcntl.fcntl(self.failing, fcntl.F_DUPFD_CLOEXEC, max(wanted) + 1)
        for target, fd in self._move(wanted).items():
            os.dup2(fd, target)

    def _limit(self, order: dict[str, Any]) -> None:
        """Join its groups and lower its limits: nobody else's code has run yet, so nothing escapes them."""
        for path in order.get("groups", ()):
            group = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            os.write(group, b"0")  # itself
        for number, most in order.get("rlimits", ()):
            resource.setrlimit(number, (most, most))

    def _explain(self, code: int) -> str:
        """Return what a child wrote that could not become its program."""
        if code not in (NOT_STARTED, NOT_FOUND):
            return ""
        try:
            return os.read(self.failures, 1 << 16).decode()
        except BlockingIOError:
            return ""


def explain(error: OSError, order: dict[str, Any]) -> tuple[int, str]:
    """Return the exit code and the message of a program that could not be started. Memory that a program with limits of
    its own does not get is its own affair."""
    if is_machine_fault(error) and not (error.errno == errno.ENOMEM and order.get("rlimits")):
        return NOT_STARTED, f"{MACHINE}{error.strerror}"
    code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED
    program = order["argv"][0] if "argv" in order else "the program"
    return code, f"{error.filename or program!r} could not be started: {error.strerror}"


def is_machine_fault(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in MACHINE_FAULTS


def enter(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        raise ValueError(f"directory {directory!r}: {error.strerror}") from error


def spawn_on_path(argv: list[str], env: dict[str, str], **more: Any) -> int:
    """As execvpe looks for a program: on the PATH of the new environment, where the first real obstacle counts."""
    if os.path.dirname(argv[0]):
        return os.posix_spawn(argv[0], argv, env, **more)
    obstacle: OSError | None = None
    missing: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    for directory in os.get_exec_path(env):
        try:
            return os.posix_spawn(os.path.join(directory, argv[0]), argv, env, **more)
        except (FileNotFoundError, NotADirectoryError) as error:
            missing = error
        except OSError as error:
            obstacle = obstacle or error
    raise obstacle or missing


def die_like(code: int) -> NoReturn:
    if code < 0:
        with contextlib.suppress(OSError):  # KILL and STOP have no other way anyhow
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else NOT_STARTED)


# ── the loop ───────────────────────────────────────────────────────────────────────────────────────


class Host:
    """A process host, as the keeper sees it."""

    __slots__ = ("child", "link", "pid")

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self.link = link
        self.child: Child | None = None  # None: it is free


class Child:
    """One job: the program that was spawned, below its process host, and what is known of its end."""

    __slots__ = (
        "begun_at", "carries", "code", "ended_at", "gentle", "host", "id", "kill_at", "message", "pid", "spared",
    )  # fmt: skip

    def __init__(self, number: int, host: Host, *, carries: bool = False, gentle: bool = False) -> None:
        self.id = number
        self.host = host
        self.pid = 0  # of the program, once it was started
        self.carries = carries  # the program is a sandbox, which would take its work with it: TERM passes it by
        self.gentle = gentle  # it has something to end elsewhere: should the agent die, TERM comes before KILL
        self.code: int | None = None  # of the program, once its process host was reaped
        self.begun_at = boottime()
        self.ended_at = 0.0
        self.kill_at: float | None = None  # from then on SIGKILL; a time to come is the grace
        self.spared: set[int] = set()  # members that got SIGTERM and have until kill_at
        self.message = ""

    def is_due(self, now: float) -> bool:
        return self.kill_at is not None and self.kill_at <= now

    def is_overdue(self, now: float) -> bool:
        """Everything of it should have vanished by now."""
        is_ending = self.code is not None or self.kill_at is not None
        return is_ending and now - max(self.ended_at, self.kill_at or 0.0) > VERIFY_SECONDS

    def seconds(self, now: float) -> float | None:
        """Return how long it ran; None when it was told to end."""
        return None if self.kill_at is not None else (self.ended_at or now) - self.begun_at

    def kill_by(self, moment: float) -> None:
        self.kill_at = moment if self.kill_at is None else min(self.kill_at, moment)


class Hold:
    """Work that outlives its agent: its latest process, and what the next agent needs to go on with it."""

    __slots__ = ("exit", "fds", "id", "memo", "name", "pid")

    def __init__(self, name: str, number: int, memo: str, fds: list[int]) -> None:
        self.name = name
        self.id = number
        self.pid = 0
        self.memo = memo
        self.fds = fds  # the read end of its output, and the file that it goes to
        self.exit: list[Any] | None = None  # as it was reported

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)

    def collect(self) -> bool:
        """Move output from its pipe to its file; False when there is no more to come, or no room for it. Nothing is
        ever in both or in neither, whoever dies: the kernel moves it."""
        source, target = self.fds
        try:
            size = os.fstat(target).st_size
            if size >= COLLECTED_LIMIT:
                return False
            return os.splice(source, target, COLLECTED_AT_ONCE, offset_dst=size, flags=os.SPLICE_F_NONBLOCK) > 0
        except BlockingIOError:
            return True
        except OSError:
            return False


class Keeper:
    def __init__(self, link: socket.socket, lock: int, directory: str = "", life: str = "") -> None:
        """With a `life`, held work outlives the agent."""
        self.me = os.getpid()
        self.lock = lock
        self.directory = directory
        self.life = life
        self.holds: dict[str, Hold] = {}  # by name
        self.held: dict[int, Hold] = {}  # the same by the id of their process
        self.highest = 0  # id
        self.is_ending = False
        self.collecting: list[int] = []  # read ends that we listen to, while there is no agent
        self.is_open = False  # the next agent may come in
        self.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.limits[1], self.limits[1]))
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # the keeper ends with its agent, and by nothing else
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.until: float | None = None  # the lease; None before the first renewal
        self.children: dict[int, Child] = {}  # by id: all whose end was not reported
        self.hosts: dict[int, Host] = {}  # by pid: all process hosts not reaped
        self.idle: list[Host] = []  # those that are free
        self.unkillable: set[int] = set()  # reported as such; swept on
        self.reports: deque[list[Any]] = deque()
        self.sweep_at: float | None = None
        self.pause = SHORTEST_PAUSE
        self.is_connected = True
        self.link = link
        self.interest = selectors.EVENT_READ
        self.agent = os.pidfd_open(os.getppid())  # a forked copy of the agent may hold its socket open
        self.bell, self.ringer = socket.socketpair()
        self.selector = selectors.DefaultSelector()
        self.listener = make_listener(directory) if life else None
        self._listen()

    def _listen(self) -> None:
        for end in (self.bell, self.ringer):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler the bell stays silent
        signal.set_wakeup_fd(self.ringer.fileno(), warn_on_full_buffer=False)
        for source in (self.link, self.agent, self.bell):
            self.selector.register(source, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve the agent until it is gone, and the next while something is kept for it; then let nothing survive."""
        self.reports.append([READY, PROTOCOL, self.life, self.highest])
        try:
            while self.is_connected or self.is_keeping():
                self.turn()
        finally:
            self.close_listener()
            self.exterminate()

    def turn(self) -> None:
        self.flush()
        ready = self.selector.select(self.next_timeout())
        has_ended = not ready  # perhaps: the bell rings when somebody ends, and nobody relies on it alone
        for key, events in ready:
            if isinstance(key.data, Host):
                self.read_packet(key.data)  # if there are more, it is ready again
            elif key.fileobj is self.bell:
                self.silence()
                has_ended = True
            elif isinstance(key.data, Hold):
                if key.fd in self.collecting and not key.data.collect():
                    self.stop_collecting(key.fd)
            elif key.fileobj is self.listener:
                self.admit()
            elif key.fileobj == self.agent:
                self.lose_agent()
            elif events & selectors.EVENT_READ and self.is_connected:
                self.receive()
        now = boottime()
        self.check_lease(now)
        if (has_ended and self.reap(now)) or (self.sweep_at is not None and self.sweep_at <= now):
            self.sweep(now)
        if not self.is_connected and self.is_keeping():
            self.wait_for_agent()

    def next_timeout(self) -> float | None:
        now = boottime()
        lease = None if self.lease_is_over(now) else self.until
        moments = [moment for moment in (self.sweep_at, lease) if moment is not None]
        return min(max(min(moments) - now, 0.0), LONGEST_SLEEP) if moments else None

    def silence(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.bell.recv(4096)

    # ── talking to the agent ──

    def receive(self) -> bool:
        """Carry out what the agent has ordered; False when there is no more for now."""
        for _ in range(PACKETS_PER_TURN):
            if self.is_ending:
                return False
            try:
                packet, fds, is_whole = receive_packet(self.link)
            except BlockingIOError:
                return False
            except OSError:
                packet, fds, is_whole = b"", [], False
            if not packet:
                self.is_connected = False
                return False
            try:
                self.carry_out(packet, fds, is_whole=is_whole)
            finally:
                for fd in fds:
                    os.close(fd)
        return True

    def carry_out(self, packet: bytes, fds: list[int], *, is_whole: bool) -> None:
        """Do what one packet asks. Nonsense is written to the log and, if it has an id, reported."""
        order: Any = None
        try:
            order = read_order(packet, fds)
            if not is_whole:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))  # its descriptors were lost
            if order["op"] == "spawn":
                self.spawn(order, packet, fds)
            elif order["op"] == "kill":
                self.kill(order["id"], float(order["grace"]))
            elif order["op"] == "renew":
                self.until = float(order["until"])
            elif order["op"] == "note":
                if (hold := self.holds.get(order["name"])) is not None:  # else its spawn was refused
                    hold.memo = order["memo"]
            elif order["op"] == "release":
                self.release(order["name"])
            elif order["op"] == "end":
                self.is_ending, self.is_connected = True, False
            else:
                raise ValueError(f"there is no order {order['op']!r}")
        except Exception as error:
            log(f"an order was refused: {error!r}")
            if isinstance(order, dict) and order.get("op") == "spawn" and isinstance(order.get("id"), int):
                why = f"{MACHINE}{error}" if is_machine_fault(error) else f"the order was refused: {error}"
                self.reports.append(["exit", order["id"], NOT_STARTED, why])

    def flush(self) -> None:
        if not self.interest:  # there is no agent
            self.reports.clear()
            return
        interest = selectors.EVENT_READ
        try:
            while self.reports:
                batch = list(itertools.islice(self.reports, REPORTS_PER_PACKET))
                self.link.send(write_json(batch).encode())
                for _ in batch:
                    self.reports.popleft()
        except BlockingIOError:
            interest |= selectors.EVENT_WRITE
        except OSError:
            self.reports.clear()  # nobody listens; the end of the link is about to be read
        if interest != self.interest:
            self.interest = interest
            self.selector.modify(self.link, interest)

    # ── between two agents ──

    def release(self, name: str) -> None:
        if (hold := self.holds.pop(name, None)) is not None:
            self.held.pop(hold.id, None)
            self.stop_collecting(hold.fds[0])
            hold.close()

    def lose_agent(self) -> None:
        """It has died; what it ordered before is still carried out."""
        while self.is_connected and self.receive():
            pass
        self.is_connected = False

    def is_keeping(self) -> bool:
        """Return whether there is something to keep for the next agent, and time left for it to come."""
        if self.listener is None or self.is_ending or self.until is None or self.lease_is_over(boottime()):
            return False
        return bool(self.holds)

    def wait_for_agent(self) -> None:
        """There is no agent: kill what is not held, hold on to the output of the rest, and let the next one in when
        nothing else is left."""
        if self.interest:
            for source in (self.link, self.agent):
                self.selector.unregister(source)
            self.link.close()
            os.close(self.agent)
            self.reports.clear()
            self.interest = 0
            for hold in self.holds.values():
                self.selector.register(hold.fds[0], selectors.EVENT_READ, hold)
                self.collecting.append(hold.fds[0])
        others = [child for child in self.children.values() if self.held.get(child.id) is None]
        for child in others:
            if child.kill_at is None:
                self.kill(child.id, GENTLE_SECONDS if child.gentle else 0.0)
        if not others and not self.is_open and self.is_keeping():
            self.is_open = True
            assert self.listener is not None
            self.selector.register(self.listener, selectors.EVENT_READ)

    def stop_collecting(self, fd: int) -> None:
        if fd in self.collecting:
            self.collecting.remove(fd)
            self.selector.unregister(fd)

    def admit(self) -> None:
        """Let the next agent in, unless it is somebody else's; one that does not listen may come again."""
        assert self.listener is not None
        link, _ = self.listener.accept()
        agent = -1
        try:
            pid, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid != os.geteuid():
                raise PermissionError(f"process {pid} of user {uid}")
            agent = os.pidfd_open(pid)
            link.settimeout(ADMIT_SECONDS)
            self.send_kept(link)
        except OSError as error:
            log(f"an agent was not let in: {error!r}")
            link.close()
            if agent >= 0:
                os.close(agent)
            return
        self.selector.unregister(self.listener)
        self.is_open = False
        link.setblocking(False)
        self.link, self.agent, self.is_connected = link, agent, True
        self.interest = selectors.EVENT_READ
        for source in (link, agent):
            self.selector.register(source, selectors.EVENT_READ)

    def send_kept(self, link: socket.socket) -> None:
        """From here on its output is the agent's to read."""
        link.send(json.dumps([["protocol", PROTOCOL]]).encode())
        for hold in self.holds.values():
            self.stop_collecting(hold.fds[0])
            memo = os.memfd_create("memo", os.MFD_CLOEXEC)
            with open(memo, "wb") as file:
                file.write(hold.memo.encode())
                file.flush()
                words = ["kept", hold.name, hold.id, hold.pid, hold.exit, self.was_told(hold)]
                socket.send_fds(link, [json.dumps([words]).encode()], [*hold.fds, memo])
        link.send(json.dumps([[READY, PROTOCOL, self.life, self.highest]]).encode())

    def was_told(self, hold: Hold) -> bool:
        """Return whether somebody has told it to end, be that still to come or over."""
        child = self.children.get(hold.id)
        if child is not None:
            return child.kill_at is not None
        return hold.exit is not None and hold.exit[-1] is None

    def close_listener(self) -> None:
        """Whoever waits there learns that nobody comes any more."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.directory, SOCKET_NAME))

    # ── orders ──

    def spawn(self, order: dict[str, Any], packet: bytes, fds: list[int]) -> None:
        number = int(order["id"])
        if number in self.children:
            raise ValueError(f"there is a process {number} already")
        if self.lease_is_over(boottime()):
            self.reports.append(["exit", number, NOT_STARTED, LEASE_RAN_OUT])
            return
        hold = self.make_hold(number, order["hold"], fds) if order.get("hold") else None
        try:
            host = self.hand_over(packet, fds)
        except BaseException:
            if hold is not None:
                hold.close()
            raise
        host.child = self.children[number] = Child(
            number, host, carries=bool(order.get("carries")), gentle=bool(order.get("gentle"))
        )
        self.highest = max(self.highest, number)
        if hold is not None:
            self.release(hold.name)
            self.holds[hold.name] = self.held[number] = hold

    def make_hold(self, number: int, wanted: dict[str, Any], fds: list[int]) -> Hold:
        copies: list[int] = []
        try:
            copies += (fcntl.fcntl(fds[index], fcntl.F_DUPFD_CLOEXEC, 3) for index in wanted["fds"])
            return Hold(str(wanted["name"]), number, str(wanted["memo"]), copies)
        except BaseException:
            for fd in copies:
                os.close(fd)
            raise

    def hand_over(self, packet: bytes, fds: list[int]) -> Host:
        """Give an order to a process host that is free, or to a new one."""
        while self.idle:
            with contextlib.suppress(ConnectionError):  # somebody has killed it
                return self.entrust(self.idle.pop(), packet, fds)
        return self.entrust(self.fork_host(), packet, fds)

    def entrust(self, host: Host, packet: bytes, fds: list[int]) -> Host:
        try:
            socket.send_fds(host.link, [packet], fds)
        except ConnectionError:
            raise
        except OSError:  # of the order, not of the process host
            self.idle.append(host)
            raise
        return host

    def fork_host(self) -> Host:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            pid = os.fork()
            if pid == 0:
                try:
                    ProcessHost(self.me, theirs, self.limits, (self.lock,)).run()
                except BaseException:
                    sys.excepthook(*sys.exc_info())  # to the log
                finally:
                    os._exit(NOT_STARTED)
        ours.setblocking(False)
        host = self.hosts[pid] = Host(pid, ours)
        self.selector.register(ours, selectors.EVENT_READ, host)
        return host

    def read_all(self, host: Host) -> None:
        """Take all that a process host has to say."""
        while self.read_packet(host):
            pass

    def read_packet(self, host: Host) -> bool:
        """False when there is none. That a process host says nothing more is told by its end."""
        try:
            packet = host.link.recv(PACKET_LIMIT)
        except (BlockingIOError, ConnectionError):
            return False
        if packet and (child := host.child) is not None:
            words = read_json(packet.decode())
            if len(words) != 2:
                self.note_start(child, words[0])
            if len(words) > 1:
                self.discharge(host, child, *words[-2:])
        return bool(packet)

    def note_start(self, child: Child, pid: int) -> None:
        child.pid = pid
        self.reports.append(["start", child.id, pid])
        if (hold := self.held.get(child.id)) is not None:
            hold.pid = pid

    def discharge(self, host: Host, child: Child, code: int, message: str) -> None:
        """Nothing is left of a job: its process host is free."""
        host.child = None
        del self.children[child.id]
        self.report_exit(child, code, child.message or message, boottime())
        if len(self.idle) < IDLE_HOSTS:
            self.idle.append(host)
        else:
            host.link.shutdown(socket.SHUT_WR)

    def kill(self, number: int, grace: float) -> None:
        child = self.children.get(number)
        if child is not None and not child.pid and child.host.pid in self.hosts:
            self.read_all(child.host)  # it may have begun a moment ago, or be over
            child = self.children.get(number)
        if child is None:
            return
        now = boottime()
        program = self.find_program(child)
        if not program:
            grace = 0.0  # nothing of it has begun
        if grace > 0 and child.kill_at is None and child.code is None:
            child.spared = set(terminate(child.host.pid, {child.host.pid, program * child.carries}))
        child.kill_by(now + max(0.0, grace))
        self.sweep_at = now

    def find_program(self, child: Child) -> int:
        """Return its pid, also in the moment before its process host tells it; 0 when it has not begun."""
        if child.pid or child.host.pid not in self.hosts:
            return child.pid
        return next(iter(list_children([child.host.pid])), 0)

    def lease_is_over(self, now: float) -> bool:
        return self.until is not None and self.until <= now

    def check_lease(self, now: float) -> None:
        if not self.lease_is_over(now):
            return
        for child in self.children.values():
            if not child.is_due(now):
                child.kill_by(now)
                child.message = LEASE_RAN_OUT if child.code is None else child.message
                self.sweep_at = now

    # ── ends ──

    def reap(self, now: float) -> bool:
        """Collect exit codes; True when anything has ended."""
        for count in range(REAP_LIMIT):
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                return count > 0
            self.pause = SHORTEST_PAUSE
            self.unkillable.discard(pid)
            if pid in self.hosts:
                self.lose(self.hosts[pid], os.waitstatus_to_exitcode(status), now)
        return True

    def lose(self, host: Host, code: int, now: float) -> None:
        """A process host has ended: as its program did, or because it was killed."""
        self.read_all(host)
        self.strike_off(host)
        if host.child is not None:
            host.child.code, host.child.ended_at = code, now

    def strike_off(self, host: Host) -> None:
        self.selector.unregister(host.link)
        host.link.close()
        del self.hosts[host.pid]
        if host in self.idle:
            self.idle.remove(host)

    def sweep(self, now: float) -> None:
        """Kill what has no right to live, report whose end is complete, plan the next sweep."""
        is_restless = bool(self.list_doomed(now))
        if is_restless:
            slay(lambda: self.list_doomed(now))
            self.reap(now)
        strangers, spared = self.list_strangers(), self.list_spared(now)
        for child in [child for child in self.children.values() if child.code is not None or child.kill_at]:
            left = {pid for pid in strangers if pid not in spared or pid in child.spared}
            self.report_if_over(child, left - self.unkillable, now)
        self.plan(is_restless, now)

    def list_strangers(self) -> list[int]:
        return [pid for pid in list_children([self.me]) if pid not in self.hosts]

    def list_spared(self, now: float) -> set[int]:
        return {pid for child in self.children.values() if not child.is_due(now) for pid in child.spared}

    def list_doomed(self, now: float) -> list[int]:
        """Tops of the trees that must die now."""
        self.reap(now)
        spared = self.list_spared(now)
        due = [pid for pid, host in self.hosts.items() if host.child is not None and host.child.is_due(now)]
        return due + [pid for pid in self.list_strangers() if pid not in spared]

    def report_if_over(self, child: Child, left: set[int], now: float) -> None:
        """Report the end of a child if it is complete, or if it ought to be and is not."""
        if child.code is None:
            left.add(child.host.pid)
        if left and not child.is_overdue(now):
            return
        if left:
            if child.host.pid in self.hosts:
                self.strike_off(child.host)
            self.unkillable |= left
            shown = ", ".join(describe(pid) for pid in sorted(left)[:5])
            child.message = f"not verified: {len(left)} processes do not die: {shown}"
        del self.children[child.id]
        code = -int(signal.SIGKILL) if child.code is None else child.code
        self.report_exit(child, code, child.message, now)

    def report_exit(self, child: Child, code: int, message: str, now: float) -> None:
        report = ["exit", child.id, code, message[:MESSAGE_LIMIT], child.seconds(now)]
        self.reports.append(report)
        if (hold := self.held.get(child.id)) is not None:
            hold.exit = report[2:]

    def plan(self, is_restless: bool, now: float) -> None:
        """Look again soon while something should vanish, and at the end of every grace."""
        moments = [child.kill_at for child in self.children.values() if child.kill_at and child.kill_at > now]
        if is_restless or any(child.code is not None for child in self.children.values()):
            moments.append(now + self.pause)
            self.pause = min(self.pause * 2, LONGEST_PAUSE)
        self.sweep_at = min(moments, default=None)

    def ask_gentle(self) -> None:
        """Let those end by themselves that have something to end elsewhere; the moment for it is short."""
        gentle = [child for child in self.children.values() if child.gentle and child.code is None]
        asked = {child: program for child in gentle if (program := self.find_program(child))}
        for child, program in asked.items():
            terminate(child.host.pid, {child.host.pid, program * child.carries})
        deadline = min(boottime() + GENTLE_SECONDS, float("inf") if self.until is None else self.until)
        while any(child.host.child is child and child.code is None for child in asked) and boottime() < deadline:
            hosts = [child.host for child in asked if child.host.pid in self.hosts]
            wait_for_any([self.bell, *(host.link for host in hosts)], LONGEST_PAUSE)
            self.silence()
            for host in hosts:
                self.read_all(host)
            self.reap(boottime())

    def exterminate(self) -> None:
        """Kill everything, and do not return before it is gone."""
        self.ask_gentle()
        pause = SHORTEST_PAUSE
        while self.list_all():
            slay(self.list_all)
            select.select([self.bell], [], [], pause)
            self.silence()
            pause = min(pause * 2, LONGEST_PAUSE)
        for child in self.children.values():
            code = -int(signal.SIGKILL) if child.code is None else child.code
            self.reports.append(["exit", child.id, code, child.message])
        if self.interest:
            self.link.settimeout(FAREWELL_SECONDS)
        self.flush()

    def list_all(self) -> list[int]:
        self.reap(boottime())
        return list_children([self.me])


def wait_for_any(ends: list[socket.socket], seconds: float) -> None:
    """Until one can be read. (`select` knows only a thousand descriptors.)"""
    poll = select.poll()
    for end in ends:
        poll.register(end, select.POLLIN)
    poll.poll(seconds * 1000)


def receive_packet(link: socket.socket) -> tuple[bytes, list[int], bool]:
    """Return a packet, its descriptors, and whether all of them came. (`socket.recv_fds` of Python 3.11 drops its
    flags, and a descriptor that does not close on exec would leak into the children.)"""
    fds = array.array("i")
    space = socket.CMSG_LEN(FDS_PER_PACKET * fds.itemsize)
    packet, ancillary, flags, _ = link.recvmsg(PACKET_LIMIT, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return packet, list(fds), not flags & socket.MSG_CTRUNC


def read_order(packet: bytes, fds: list[int]) -> Any:
    """Return the order in a packet, or in the memfd that is its last descriptor."""
    if packet != IN_MEMFD:
        return read_json(packet.decode())
    size = os.fstat(fds[-1]).st_size
    if size > ORDER_LIMIT:
        raise ValueError(f"it has {size} bytes, more than {ORDER_LIMIT}")
    return json.loads(os.pread(fds[-1], size, 0))


def make_listener(directory: str) -> socket.socket | None:
    """Return where the next agent connects. By a descriptor of the directory: its path may be longer than that of a
    socket."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET_NAME, dir_fd=place)
        before = os.umask(0o177)
        try:
            listener.bind(f"/proc/self/fd/{place}/{SOCKET_NAME}")
        finally:
            os.umask(before)
        listener.listen()
        listener.setblocking(False)
    except OSError as error:
        log(f"work cannot outlive its agent here: {error!r}")
        listener.close()
        return None
    finally:
        os.close(place)
    return listener


def take_lock(directory: str, link: socket.socket) -> int | None:
    """Wait until no other keeper of this directory lives; None when the agent went away meanwhile."""
    lock = os.open(os.path.join(directory, "keeper.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        with contextlib.suppress(BlockingIOError):
            link.recv(1, socket.MSG_PEEK)  # its end, or the order to end: it asks for nothing before we are ready
            return None
        time.sleep(LOCK_POLL_SECONDS)


def main() -> None:
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    link.setblocking(False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the keeper cannot become a child subreaper")
    lock = take_lock(sys.argv[2], link)
    if lock is not None:
        keeper = Keeper(link, lock, *sys.argv[2:4])
        gc.freeze()  # forked children then copy fewer pages
        keeper.run()


if __name__ == "__main__":
    main()
