"""The relay: a small program through which work in a network of its own reaches listed addresses and nothing else, or
the world without this machine.

It is run as a script (`python -I -S <this file> <info> <go> <plan>`), so it imports the standard library only. The
agent's side is `endpoints.py`. `plan` is JSON:

    endpoints  [[address inside, port, host outside, whether it is a name], …]
    ports      those that Horae listens on here
    allowed    [[network, port or null], …]: what of this machine, or of its link, may be reached all the same
    world      {"argv": the program that joins a network to the world, "barred": [networks that are left out]}, or null

    info   a descriptor from which {"child-pid": …} can be read: a process in the network namespace, not begun yet
    go     a descriptor that gets a line once all is open; then the work begins

The endpoints are listening sockets made inside the namespace, on addresses of its loopback; this process stays outside,
takes what comes in there, and connects it to the endpoint's own host and port. Bytes are carried as they are: names,
certificates and protocols are the business of both ends.

The world is brought in by pasta or slirp4netns, which answer packets of the namespace by connections that they make
outside. There they would reach this machine under each of its addresses; so inside no route leads to these.

What must stay true:
- A connection leads to the host and port of the endpoint it came through; nothing that is sent chooses where it goes.
- Loopback, addresses of the link and Horae's own ports are reached only where the operator allows it, by whatever name
  or address. Of a name, no address of this machine is taken: whoever answers for it could choose one.
- The work has no power over its network: what has no route has none as long as it runs.
- Connections are bounded, so that the work cannot use up the agent's machine through here.
"""

from __future__ import annotations

import ctypes
import fcntl
import ipaddress
import json
import os
import re
import selectors
import signal
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
CHUNK_BYTES = 1 << 16
STACK_BYTES = 256 << 10

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
NS_GET_USERNS = 0xB701
SIOCGIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8913, 0x8916, 0x891C
IFF_UP = 1
IPV6_FREEBIND = 78
_libc = ctypes.CDLL(None, use_errno=True)

RTM_NEWROUTE, NLM_F_NEW = 24, 0x605  # a request to make it, answered
RT_TABLE_MAIN, RTPROT_STATIC, RTN_PROHIBIT = 254, 4, 8
RTA_DST = 1
EEXIST = 17
PR_SET_PDEATHSIG = 1

Endpoint = tuple[str, int, str, bool]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Allowed = Sequence[tuple[Network, int | None]]


def say(words: str) -> None:
    """A line in the log of the work."""
    with suppress(OSError):
        os.write(2, f"── network: {words} ──\n".encode(errors="replace"))


# ── inside ─────────────────────────────────────────────────────────────────────────────────────────


def open_endpoints(pid: int, endpoints: Sequence[Endpoint]) -> list[socket.socket]:
    """Listening sockets in the network of a process. They are made by a child: there is no way back from there."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            enter(pid)
            wait_for_loopback()
            made = [listen(number, *endpoint[:2]) for number, endpoint in enumerate(endpoints)]
            socket.send_fds(theirs, [b"."], [one.fileno() for one in made])
            code = 0
        except OSError as error:
            say(f"the doors could not be made: {error.strerror}")
        finally:
            os._exit(code)
    theirs.close()
    _, fds, _, _ = socket.recv_fds(ours, 1, len(endpoints))
    os.waitpid(child, 0)
    return [socket.socket(fileno=fd) for fd in fds]


def enter(pid: int) -> None:
    """Join the network of a process."""
    set_namespace(enter_owner(pid), CLONE_NEWNET)


def enter_owner(pid: int) -> int:
    """Join the user namespace that owns the network of a process, whose owner we are; return that network."""
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if os.path.sameopenfile(network, os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)):
        raise OSError(0, "the work has no network of its own")
    owner = fcntl.ioctl(network, NS_GET_USERNS)
    if not os.path.sameopenfile(owner, os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)):
        set_namespace(owner, CLONE_NEWUSER)
    return network


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
    """Return whether an address is one of this machine's, or here of this namespace's: only then it can be bound to."""
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


# ── the world ──────────────────────────────────────────────────────────────────────────────────────


def join_world(pid: int, argv: Sequence[str], barred: Sequence[str], allowed: Allowed) -> None:
    """Join the network of a process to the world but for this machine, as long as we live."""
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    os.set_inheritable(network, True)
    words = [word.format(netns=f"/proc/self/fd/{network}") for word in argv]
    start_joiner(pid, words)
    every = (*own_networks(), *map(ipaddress.ip_network, barred))
    networks = [each for each in every if not each.is_loopback and not is_open(each, allowed)]  # it has its own
    child = os.fork()
    if child == 0:
        code = 1
        try:
            enter(pid)
            bar(networks)
            code = 0
        except OSError as error:
            say(f"the way to this machine could not be barred: {error.strerror}")
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise SystemExit(1)


def start_joiner(pid: int, argv: list[str]) -> None:
    """Start it in the user namespace that owns the network, and wait until it is ready, which it says on its standard
    output."""
    ready, told = os.pipe()
    said = os.memfd_create("said")
    child = os.fork()
    if child == 0:
        try:
            os.dup2(told, 1)
            os.dup2(said, 2)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and pasta takes this for a failure
            enter_owner(pid)
            wait_for_identity()
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # it ends with us
            os.execv(argv[0], argv)  # noqa: S606  # there is no text for a shell here
        except OSError as error:
            os.write(said, f"{argv[0]}: {error.strerror}".encode())
        finally:
            os._exit(127)
    os.close(told)
    has_said = os.read(ready, 1)
    os.close(ready)
    if not has_said:
        os.waitpid(child, 0)
        lines = os.pread(said, CHUNK_BYTES, 0).decode(errors="replace").strip().splitlines() or ["it says nothing"]
        say(f"the world could not be joined: {lines[-1]}")
        raise SystemExit(1)


def wait_for_identity() -> None:
    """Whoever made the user namespace says who is who in it, perhaps this very moment: until then we are nobody there,
    and a program that we become has no power over the network."""
    until = time.monotonic() + SETUP_SECONDS
    for name in ("uid_map", "gid_map"):
        while not read_whole(f"/proc/self/{name}"):
            if time.monotonic() > until:
                raise OSError(0, "its user namespace got no users")
            time.sleep(0.002)


def read_whole(path: str) -> str:
    with open(path) as file:
        return file.read()


def own_networks() -> list[Network]:
    """Everything that is this machine itself."""
    found = set(re.findall(r"\|-- (\S+)\n\s+/(\d+) host LOCAL", read_whole("/proc/net/fib_trie")))
    networks: list[Network] = [ipaddress.IPv4Network(f"{address}/{length}") for address, length in found]
    with suppress(OSError), open("/proc/net/if_inet6") as lines:  # without IPv6 there is none
        networks += [ipaddress.IPv6Network((bytes.fromhex(line.split()[0]), 128)) for line in lines]
    return networks


def is_open(network: Network, allowed: Allowed) -> bool:
    return any(port is None and network.version == one.version and network.subnet_of(one) for one, port in allowed)  # type: ignore[arg-type]


def bar(networks: Sequence[Network]) -> None:
    """No packet of this network finds a way there. Each in two halves where it has them: more precise than what the
    network itself has for its link."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as kernel:
        for network in networks:
            for half in network.subnets() if 0 < network.prefixlen < 32 else (network,):
                kernel.send(prohibiting(half))
                answer = kernel.recv(CHUNK_BYTES)
                failure = -struct.unpack_from("=i", answer, 16)[0]
                if failure not in (0, EEXIST):
                    raise OSError(failure, os.strerror(failure))


def prohibiting(network: Network) -> bytes:
    """Return a message to the kernel: there is no route to this network, for everybody."""
    packed = network.network_address.packed
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    route = struct.pack("=8BI", family, network.prefixlen, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, 0, RTN_PROHIBIT, 0)
    route += struct.pack("=HH", 4 + len(packed), RTA_DST) + packed
    return struct.pack("=IHHII", 16 + len(route), RTM_NEWROUTE, NLM_F_NEW, 1, 0) + route


# ── outside ────────────────────────────────────────────────────────────────────────────────────────


class Rules:
    """Where endpoints may lead."""

    def __init__(self, ports: Sequence[int], allowed: Allowed) -> None:
        self._ports = frozenset(ports)
        self._allowed = allowed

    def refusal(self, host: str, port: int, is_name: bool) -> str:
        """Why a connection to an address is refused; empty when it is not."""
        address = ipaddress.ip_address(host.partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        is_here = is_own(socket.AF_INET6 if address.version == 6 else socket.AF_INET, str(address))
        if is_name and is_here:
            return "it is a name of this machine itself: list the address"
        if self._is_allowed(address, port, needs_port=is_here and port in self._ports):
            return ""
        if is_here and port in self._ports:
            return "it is Horae itself: allowed_networks does not have this address with its port"
        if address.is_loopback or address.is_unspecified:
            return "it is the loopback of this machine, which allowed_networks does not have"
        if address.is_link_local:
            return "it is an address of the link (of a cloud's metadata, say), which allowed_networks does not have"
        return ""

    def _is_allowed(self, address: Any, port: int, *, needs_port: bool) -> bool:
        ports = (port,) if needs_port else (port, None)
        return any(address in network and each in ports for network, each in self._allowed)


def carry(inner: socket.socket, endpoint: Endpoint, rules: Rules, free: threading.Semaphore) -> None:
    """One connection from its beginning to its end. A failure is in the log before the work, which may end, sees it."""
    try:
        with inner:
            try:
                outer = dial(rules, *endpoint[1:])
            except OSError as error:
                say(f"{endpoint[2]}:{endpoint[1]} cannot be reached: {error.strerror or error}")
                return
            with outer:
                back = threading.Thread(target=pump, args=(outer, inner), daemon=True)
                back.start()
                pump(inner, outer)
                back.join()
    finally:
        free.release()


def dial(rules: Rules, port: int, host: str, is_name: bool) -> socket.socket:
    """Connect to the first address that answers, of those that may be reached."""
    failure = OSError(0, "the name has no address")
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if refusal := rules.refusal(str(address[0]), port, is_name):
            failure = OSError(0, refusal)
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
        while data := source.recv(CHUNK_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def serve(listeners: Sequence[socket.socket], endpoints: Sequence[Endpoint], rules: Rules) -> None:
    free = threading.Semaphore(CONNECTIONS)
    selector = selectors.DefaultSelector()
    for listener, endpoint in zip(listeners, endpoints, strict=True):
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, endpoint)
    while True:
        for key, _ in selector.select():
            free.acquire()
            try:
                inner, _ = key.fileobj.accept()  # type: ignore[union-attr]
            except OSError:  # whoever knocked is gone
                free.release()
                continue
            threading.Thread(target=carry, args=(inner, key.data, rules, free), daemon=True).start()


def read_pid(info: int) -> int:
    """From what bwrap tells, which may come in parts."""
    told = b""
    while data := os.read(info, CHUNK_BYTES):
        told += data
        with suppress(ValueError):
            return int(json.loads(told)["child-pid"])
    raise SystemExit("── network: the work has gone before it began ──")


def main() -> None:
    info, go = map(int, sys.argv[1:3])
    for descriptor in (info, go):
        os.set_inheritable(descriptor, False)
    plan: Any = json.loads(sys.argv[3])
    endpoints = [tuple(endpoint) for endpoint in plan["endpoints"]]
    allowed = [(ipaddress.ip_network(network), port) for network, port in plan["allowed"]]
    threading.stack_size(STACK_BYTES)
    pid, world = read_pid(info), plan["world"]
    listeners = open_endpoints(pid, endpoints) if endpoints else []
    if len(listeners) != len(endpoints):
        raise SystemExit(1)
    if world:
        join_world(pid, world["argv"], world["barred"], allowed)
    os.write(go, b"\n")
    os.close(go)
    rules = Rules(plan["ports"], allowed)
    if not world:
        serve(listeners, endpoints, rules)
    threading.Thread(target=serve, args=(listeners, endpoints, rules), daemon=True).start()
    wait_for_children()
    say("the way to the world is gone")


def wait_for_children() -> None:
    """Until none is left: then nobody joins the network to the world any more."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


if __name__ == "__main__":
    main()
