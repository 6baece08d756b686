"""The agent's side of the keeper: starts it, sends it orders, learns of every end.

What must stay true:
- Nothing blocks the event loop; orders that the socket does not take at once wait in order.
- Every spawned process gets exactly one Exit, also when the keeper dies.
- The keeper is never killed from here. It is ordered to kill everything and end, and holds the lock of its directory
  until that is done.
- One that keeps work beyond its agent is taken over by the next one of the same directory: it tells what it kept, each
  with what was noted with it, and everything goes on as if the same agent had come back.

If somebody kills the keeper itself (SIGKILL, out of memory), its process hosts kill all work, and hold the lock until
that is done. Work that kills both its process host and the keeper may survive: a sandbox with its own pid namespace
closes that gap.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from horae.core.model import Reason
from horae.errors import Unavailable
from horae.executors.processes import keeper as program
from horae.ports.work import Command, Exit, Hold, Kept

DIED = Exit(-9, "the keeper died")
GRACE = 3.0  # seconds from TERM to KILL: whatever it does, work is gone five seconds after it was told to stop
PACKET_BYTES = 1 << 16
RETRY_SECONDS = 0.01
LEAVE_SECONDS = 5.0  # for orders that are still on their way
CLOSE_SECONDS = program.GENTLE_SECONDS + program.VERIFY_SECONDS + program.FAREWELL_SECONDS


class Spawned:
    """One process of the keeper, with everything below it."""

    def __init__(self, keeper: KeeperProcess, number: int) -> None:
        self.pid = 0  # 0: it could not even be forked
        self._keeper = keeper
        self._number = number
        loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = loop.create_future()
        self._exit: asyncio.Future[Exit] = loop.create_future()

    async def wait(self) -> Exit:
        return self._exit.result() if self._exit.done() else await asyncio.shield(self._exit)

    async def kill(self, grace: float = GRACE) -> Exit:
        self._keeper.order_kill(self._number, grace)
        return await self.wait()

    async def wait_started(self) -> None:
        """For one to wait: who gives up waiting leaves nothing that anybody else waits for."""
        await self._started

    def started(self, pid: int) -> None:
        self.pid = pid
        if not self._started.done():  # an agent before us may have been told, and not we
            self._started.set_result(None)

    def ended(self, exit_: Exit) -> None:
        if not self._started.done():
            self._started.set_result(None)
        self._exit.set_result(exit_)


@dataclass(slots=True)
class _Parcel:
    """One packet on its way to the keeper."""

    data: bytes
    fds: Sequence[int] = ()
    number: int | None = None  # the spawn it orders
    is_last: bool = False


class KeeperProcess:
    """Starts the keeper program and speaks to it. `directory` holds its lock and its log. With `keeps`, held work
    outlives this process for the rest of its lease, and that of an earlier one is taken up. `umask` is that of the
    work; -1: ours."""

    def __init__(self, directory: Path, *, keeps: bool = False, umask: int = -1) -> None:
        self.closed = asyncio.Event()  # the keeper is gone, wanted or not; or it was left to the next agent
        self.keeps = keeps
        self._umask = umask
        self.kept: list[Kept] = []  # by an earlier life, and now ours
        self.life = secrets.token_hex(16)  # of the keeper: all agents that it has had are one
        self._directory = directory.resolve()  # the keeper works in another directory
        self._program: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._is_foreign = False  # it keeps work that we cannot or may not take up
        self._link: socket.socket | None = None
        self._pidfd = -1
        self._answered = asyncio.Event()  # it said that it is ready, or ended without
        self._outbox: deque[_Parcel] = deque()
        self._is_waiting = False  # for the socket to take more
        self._children: dict[int, Spawned] = {}
        self._last = 0

    @property
    def is_alive(self) -> bool:
        return self._answered.is_set() and not self.closed.is_set()

    @property
    def pid(self) -> int:
        """The keeper's own; 0 before `open`."""
        return self._pid

    # ── life ──

    async def open(self) -> None:
        """Take over the one that kept work for us, or start one; then it returns when any earlier keeper of this
        directory, and all its work, is gone."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if await self._take_over():
            return
        try:
            self._launch()
            await self._answered.wait()
            if self.closed.is_set():
                raise Unavailable(f"the keeper could not start: {self._directory / 'keeper.log'} says why")
        except BaseException:
            await self.close()
            raise

    async def _take_over(self) -> bool:
        """False when nobody has kept anything for us, or nothing that we could go on with."""
        try:
            link = _connect(self._directory)
        except OSError:
            return False
        try:
            pid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            self._attach(link, pid)
        except OSError:  # it has just ended
            link.close()
            return False
        await self._answered.wait()
        if not self._is_foreign and not self.closed.is_set():
            return True
        self._post(_Parcel(_encode({"op": "end"}), is_last=True))
        await self.closed.wait()
        for one in self.kept:  # it died before it was done
            os.close(one.source)
            os.close(one.file)
        self.kept, self._is_foreign = [], False
        self.closed.clear()
        self._answered.clear()
        return False

    def _attach(self, link: socket.socket, pid: int) -> None:
        self._pidfd = os.pidfd_open(pid)
        self._link, self._pid = link, pid
        link.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(link, self._receive)
        loop.add_reader(self._pidfd, self._bury)

    def _detach(self) -> None:
        assert self._link is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._link)
        loop.remove_writer(self._link)
        loop.remove_reader(self._pidfd)
        self._link.close()
        os.close(self._pidfd)
        self._outbox.clear()

    def _launch(self) -> None:
        link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = str(theirs.fileno())
        with theirs, (self._directory / "keeper.log").open("ab") as log:
            self._program = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-E", "-X", "utf8", program.__file__, number, str(self._directory)),
                    *([self.life] if self.keeps else ()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                start_new_session=True,
                pass_fds=[theirs.fileno()],
                umask=self._umask,
            )
        self._attach(link, self._program.pid)

    async def leave(self) -> None:
        """Leave the keeper to the next agent, with what is held; everything else is killed."""
        if self._link is None or self.closed.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                while self._outbox:  # noqa: ASYNC110  # the socket is mostly faster than any event
                    await asyncio.sleep(RETRY_SECONDS)
        self._detach()
        if self._program is not None:
            self._program.returncode = 0  # its end is no affair of ours any more
        self.closed.set()

    async def close(self) -> None:
        """Kill everything and end. Should something not die, it is left to the keeper, which keeps its
        lock: the next one waits for it."""
        if self._link is None or self.closed.is_set():
            return
        self._outbox.clear()
        self._post(_Parcel(_encode({"op": "end"}), is_last=True))
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.closed.wait()
        except TimeoutError:
            self._bury()

    def _bury(self) -> None:
        """The keeper has ended (or is given up): read its last reports, then nobody waits any longer."""
        self._receive()
        self._detach()
        if self._program is not None:
            self._program.poll()
        self.closed.set()
        self._answered.set()
        for number in list(self._children):
            self._children.pop(number).ended(DIED)

    # ── orders ──

    async def spawn(self, command: Command) -> Spawned:
        """Start a process. Descriptors may be closed as soon as this returns.

        What cannot be started is a process that ends with 126 or 127 and a message.
        """
        if not self.is_alive:
            raise Unavailable("the keeper is not running: no process can be started")
        self._last += 1
        number = self._last
        child = self._children[number] = Spawned(self, number)
        self._post(_spawn_parcel(number, command, command.hold if self.keeps else None))
        try:
            await child.wait_started()
        except asyncio.CancelledError:
            self._withdraw(number)
            raise
        return child

    def _withdraw(self, number: int) -> None:
        """Nobody will hold this process: make sure that it does not run."""
        for parcel in self._outbox:
            if parcel.number == number:
                self._outbox.remove(parcel)
                self._children.pop(number).ended(DIED)
                return
        self.order_kill(number, 0.0)

    def order_kill(self, number: int, grace: float) -> None:
        if number in self._children:
            self._post(_Parcel(_encode({"op": "kill", "id": number, "grace": grace})))

    def note(self, name: str, memo: str) -> None:
        """Note something else with work that is held."""
        if self.keeps and self.is_alive:
            self._post(_Parcel(_encode({"op": "note", "name": name, "memo": memo})))

    def release(self, name: str) -> None:
        """It is held no longer: should we die, it dies with us; if it has ended, nobody need know."""
        if self.keeps and self.is_alive:
            self._post(_Parcel(_encode({"op": "release", "name": name})))

    def renew(self, seconds: float) -> None:
        """Everything dies unless renewed again within this time, counted from this call: an order that
        lies in the socket for long renews nothing."""
        if self.is_alive:
            self._post(_Parcel(_encode({"op": "renew", "until": program.boottime() + seconds})))

    # ── the socket ──

    def _post(self, parcel: _Parcel) -> None:
        self._outbox.append(parcel)
        if len(self._outbox) == 1:
            self._flush()

    def _flush(self) -> None:
        if self._link is None or self.closed.is_set():
            return
        loop = asyncio.get_running_loop()
        while self._outbox:
            try:
                _send(self._link, self._outbox[0])
                if self._outbox[0].is_last:
                    self._link.shutdown(socket.SHUT_WR)
            except BlockingIOError:
                loop.add_writer(self._link, self._flush)
                self._is_waiting = True
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:  # the keeper has not taken up the earlier ones
                    loop.call_later(RETRY_SECONDS, self._flush)
                    return
                self._refuse(self._outbox[0], error)
            self._outbox.popleft()
        if self._is_waiting:
            loop.remove_writer(self._link)
            self._is_waiting = False

    def _refuse(self, parcel: _Parcel, error: OSError) -> None:
        """An order that cannot be sent: its own fault (a closed descriptor), or the keeper is dying."""
        child = self._children.pop(parcel.number, None) if parcel.number else None
        if child is not None:
            begin = program.MACHINE if program.is_machine_fault(error) else "the order could not be sent: "
            child.ended(_exit(program.NOT_STARTED, f"{begin}{error.strerror}"))

    def _receive(self) -> None:
        assert self._link is not None
        while True:
            fds: list[int] = []  # come only before it is ready
            try:
                if self._answered.is_set():
                    packet = self._link.recv(PACKET_BYTES)
                else:
                    packet, fds, _ = program.receive_packet(self._link)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:  # the end of the keeper itself is told by its pidfd
                asyncio.get_running_loop().remove_reader(self._link)
                return
            if self._is_foreign:
                for fd in fds:
                    os.close(fd)
                continue
            for report in json.loads(packet):
                self._take_report(report, fds)

    def _take_report(self, report: list[Any], fds: list[int]) -> None:
        if report[0] == "start" and report[1] in self._children:
            self._children[report[1]].started(report[2])
        elif report[0] == "exit" and report[1] in self._children:
            self._children.pop(report[1]).ended(_exit(*report[2:]))
        elif report[0] == program.READY:
            self.life, self._last = report[2], report[3]
            self._answered.set()
        elif report[0] == "kept":
            self._adopt(*report[1:], fds=fds)
        elif report[0] == "protocol" and (report[1] != program.PROTOCOL or not self.keeps):
            self._is_foreign = True
            self._answered.set()

    def _adopt(
        self, name: str, number: int, pid: int, ended: list[Any] | None, is_ending: bool, *, fds: list[int]
    ) -> None:
        """A process of an earlier life."""
        child = Spawned(self, number)
        child.started(pid)
        if ended is None:
            self._children[number] = child
        else:
            child.ended(_exit(*ended))
        source, file, memo = fds
        with open(memo, "rb") as opened:
            opened.seek(0)
            self.kept.append(Kept(name, opened.read().decode(), child, source, file, is_ending=is_ending))


def _exit(code: int, message: str, seconds: float | None = None) -> Exit:
    is_ill = message.startswith(program.MACHINE)
    return Exit(code, message, Reason.LOST, message) if is_ill else Exit(code, message, seconds=seconds)


def _encode(order: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(order)
    except UnicodeEncodeError:  # names of files may be no UTF-8
        return json.dumps(order, separators=(",", ":")).encode()


def _spawn_parcel(number: int, command: Command, hold: Hold | None) -> _Parcel:
    wanted = {0: command.stdin, 1: command.stdout, 2: command.stderr} | {fd: fd for fd in command.keep}
    sources = list(dict.fromkeys(fd for fd in wanted.values() if fd is not None))
    held = [hold.source, hold.file] if hold else []
    order: dict[str, Any] = {
        "op": "spawn",
        "id": number,
        "argv": list(command.argv),
        "env": command.env,
        "cwd": command.cwd,
        "fds": [[target, sources.index(fd)] for target, fd in wanted.items() if fd is not None],
        "groups": list(command.groups),
        "rlimits": list(command.rlimits.items()),
        "carries": command.carries,
        "gentle": command.gentle,
    }
    if hold is not None:
        order["hold"] = {"name": hold.name, "memo": hold.memo, "fds": [len(sources), len(sources) + 1]}
    return _Parcel(_encode(order), [*sources, *held], number)


def _connect(directory: Path) -> socket.socket:
    """To a keeper that may have been left to us."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            link.connect(f"/proc/self/fd/{place}/{program.SOCKET_NAME}")
        finally:
            os.close(place)
    except BaseException:
        link.close()
        raise
    return link


def _send(link: socket.socket, parcel: _Parcel) -> None:
    if len(parcel.data) <= program.PACKET_LIMIT:
        if parcel.fds:
            socket.send_fds(link, [parcel.data], list(parcel.fds))
        else:
            link.send(parcel.data)
        return
    memfd = os.memfd_create("horae-order", os.MFD_CLOEXEC)
    with open(memfd, "wb") as file:
        file.write(parcel.data)
        file.flush()
        socket.send_fds(link, [program.IN_MEMFD], [*parcel.fds, memfd])
