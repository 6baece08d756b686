"""The porter: a small program through which work in a network of its own reaches listed addresses, and nothing else.

It is run as a script (`python -I -S <this file> <info> <go> <doors>`), so it imports the standard library only. The
agent's side is `doors.py`. `doors` is JSON: [[address inside, port, host outside, whether it is a name], …].

    info   a descriptor from which {"child-pid": …} can be read: a process in the network namespace, not begun yet
    go     a descriptor that gets a line once the doors are open; then the work begins

The doors are listening sockets made inside the namespace, on addresses of its loopback; this process stays outside,
takes what comes in there, and connects it to the door's own host and port. Bytes are carried as they are: names,
certificates and protocols are the business of both ends.

What must stay true:
- A connection leads to the host and port of the door it came through; nothing that is sent chooses where it goes.
- A name never leads to this machine: whoever answers for the name could make a door to our loopback of it. An address
  of this machine is reached only where the list has the address itself.
- Connections are bounded, so that the work cannot use up the agent's machine through here.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import selectors
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

CONNECTIONS = 256  # at a time; who comes later waits in the backlog
CONNECT_SECONDS = 30.0
SETUP_SECONDS = 30.0
CHUNK = 1 << 16
STACK = 256 << 10

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
NS_GET_USERNS = 0xB701
SIOCGIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8913, 0x8916, 0x891C
IFF_UP = 1
IPV6_FREEBIND = 78
_libc = ctypes.CDLL(None, use_errno=True)

Door = tuple[str, int, str, bool]


def say(words: str) -> None:
    """A line in the log of the work."""
    with suppress(OSError):
        os.write(2, f"── network: {words} ──\n".encode(errors="replace"))


# ── inside ─────────────────────────────────────────────────────────────────────────────────────────


def open_doors(pid: int, doors: Sequence[Door]) -> list[socket.socket]:
    """Listening sockets in the network of a process. They are made by a child: there is no way back from there."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            enter(pid)
            wait_for_loopback()
            made = [listen(number, *door[:2]) for number, door in enumerate(doors)]
            socket.send_fds(theirs, [b"."], [one.fileno() for one in made])
            code = 0
        except OSError as error:
            say(f"the doors could not be made: {error.strerror}")
        finally:
            os._exit(code)
    theirs.close()
    _, fds, _, _ = socket.recv_fds(ours, 1, len(doors))
    os.waitpid(child, 0)
    return [socket.socket(fileno=fd) for fd in fds]


def enter(pid: int) -> None:
    """Join the network of a process, by way of the user namespace that owns it, whose owner we are."""
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if os.path.sameopenfile(network, os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)):
        raise OSError(0, "the work has no network of its own")
    owner = fcntl.ioctl(network, NS_GET_USERNS)
    if not os.path.sameopenfile(owner, os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)):
        set_namespace(owner, CLONE_NEWUSER)
    set_namespace(network, CLONE_NEWNET)


def set_namespace(descriptor: int, kind: int) -> None:
    if _libc.setns(descriptor, kind) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def wait_for_loopback() -> None:
    """Whoever made the network also makes its loopback, perhaps this very moment."""
    until = time.monotonic() + SETUP_SECONDS
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        while True:
            answer = fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sh22x", b"lo", 0))
            if struct.unpack("16sh22x", answer)[1] & IFF_UP:
                return
            if time.monotonic() > until:
                raise OSError(0, "its loopback did not come up")
            time.sleep(0.002)


def listen(number: int, address: str, port: int) -> socket.socket:
    """Listen there, after making the address one of the loopback."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)  # the kernel takes its time to add an address
    if not is_own(family, address):
        add_address(number, family, address)
    made.bind((address, port))
    made.listen(128)
    return made


def is_own(family: int, address: str) -> bool:
    """Whether an address is one of this machine's, or here of this namespace's: only then it can be bound to."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


def add_address(number: int, family: int, address: str) -> None:
    packed = socket.inet_pton(family, address)
    with socket.socket(family, socket.SOCK_DGRAM) as any_socket:
        if family == socket.AF_INET6:
            index = socket.if_nametoindex("lo")
            fcntl.ioctl(any_socket, SIOCSIFADDR, packed + struct.pack("Ii", 128, index))
            return
        name = f"lo:{number}".encode()
        fcntl.ioctl(any_socket, SIOCSIFADDR, struct.pack("16sHH4s16x", name, socket.AF_INET, 0, packed))
        fcntl.ioctl(any_socket, SIOCSIFNETMASK, struct.pack("16sHH4s16x", name, socket.AF_INET, 0, b"\xff" * 4))


# ── outside ────────────────────────────────────────────────────────────────────────────────────────


def carry(inner: socket.socket, door: Door, free: threading.Semaphore) -> None:
    """One connection from its beginning to its end."""
    try:
        with inner:
            outer = dial(*door[1:])
            with outer:
                back = threading.Thread(target=pump, args=(outer, inner), daemon=True)
                back.start()
                pump(inner, outer)
                back.join()
    except OSError as error:
        say(f"{door[2]}:{door[1]} cannot be reached: {error.strerror or error}")
    finally:
        free.release()


def dial(port: int, host: str, is_name: bool) -> socket.socket:
    """Connect to the first address that answers."""
    failure = OSError(0, "it is a name of this machine itself: list the address")
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if is_name and is_own(family, str(address[0])):
            continue
        made = socket.socket(family, kind)
        made.settimeout(CONNECT_SECONDS)
        try:
            made.connect(address)
        except OSError as error:
            made.close()
            failure = error
            continue
        made.settimeout(None)
        return made
    raise failure


def pump(source: socket.socket, target: socket.socket) -> None:
    """Carry bytes one way until they end; the other way may go on. An error ends both."""
    try:
        while data := source.recv(CHUNK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def serve(listeners: Sequence[socket.socket], doors: Sequence[Door]) -> None:
    free = threading.Semaphore(CONNECTIONS)
    selector = selectors.DefaultSelector()
    for listener, door in zip(listeners, doors, strict=True):
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, door)
    while True:
        for key, _ in selector.select():
            free.acquire()
            try:
                inner, _ = key.fileobj.accept()  # type: ignore[union-attr]
            except OSError:  # whoever knocked is gone
                free.release()
                continue
            threading.Thread(target=carry, args=(inner, key.data, free), daemon=True).start()


def read_pid(info: int) -> int:
    """From what bwrap tells, which may come in parts."""
    told = b""
    while data := os.read(info, CHUNK):
        told += data
        with suppress(ValueError):
            return int(json.loads(told)["child-pid"])
    raise SystemExit("── network: the work has gone before it began ──")


def main() -> None:
    info, go = map(int, sys.argv[1:3])
    doors: Any = [tuple(door) for door in json.loads(sys.argv[3])]
    threading.stack_size(STACK)
    listeners = open_doors(read_pid(info), doors)
    if len(listeners) != len(doors):
        raise SystemExit(1)
    os.write(go, b"\n")
    os.close(go)
    serve(listeners, doors)


if __name__ == "__main__":
    main()
