"""The agent's side of the relay: work that may reach some addresses and no others, or the world without this machine.

The work is in a network of its own that has a loopback and nothing else. Each listed address is one of that loopback,
so that programs need no settings and no proxy: a listed address of numbers as it is, a listed name under an address
of 127.71.0.0/16 that stands in the work's /etc/hosts. Who listens there is the relay (`relay.py`), one process for
each process of work, beside it below the keeper. The world comes in by pasta or slirp4netns, which the relay starts.

What must stay true:
- The work does not begin before its endpoints are open, and never without them.
- The relay ends with its work, and the work with its relay.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from horae.core.model import Json
from horae.errors import Invalid
from horae.ports.work import Boundary, Command, Exit, Keeper, Process
from horae.sandboxes import relay

NAMES = "127.71.{}.{}"  # addresses inside that stand for names
SHUT = "the doors to its listed addresses could not be opened, or fell shut: see the log"
LOOPBACK = ("127.0.0.0/8", "::1/128")
METADATA = ("169.254.0.0/16", "fd00:ec2::254/128")  # where clouds hand out the keys of a machine
DNS = "192.0.0.10"  # inside, where it stands for a resolver that only this machine reaches; nobody else's address
SLIRP_DNS = "10.0.2.3"
PROBE_SECONDS = 10.0
SOUND_SINCE = 2024  # the year of a pasta that can be relied on
RESOLVERS = Path("/etc/resolv.conf")
SEARCH = ("search", "domain", "options")  # of its lines, what is kept
_PASTA = (
    *(
        "--foreground",
        "--pid",
        "/proc/self/fd/1",
        "--config-net",
        "--no-map-gw",
        "--quiet",
        "-t",
        "none",
        "-u",
        "none",
        "-T",
        "none",
        "-U",
        "none",
    ),
    *("--no-dhcp", "--no-dhcpv6", "--no-ra", "--netns-only", "--netns", "{netns}"),
)
_SLIRP = (
    *("--configure", "--disable-host-loopback", "--enable-sandbox", "--enable-seccomp", "--mtu=65520"),
    *("--ready-fd=1", "--netns-type=path", "{netns}", "world0"),
)


@dataclass(frozen=True, slots=True)
class Joiner:
    """The program by which a network of its own gets the world behind it."""

    program: str
    is_pasta: bool

    def argv(self, *, is_container: bool) -> tuple[str, ...]:
        """The network of a container is root's own, and pasta would be somebody else."""
        if not self.is_pasta:
            return (self.program, *_SLIRP)
        needs_dns = resolvers_of(RESOLVERS)[0] == [DNS]
        who = ("--runas", "0:0") if is_container else ()
        return (self.program, *who, *(("--dns-forward", DNS) if needs_dns else ()), *_PASTA)

    def resolvers(self) -> tuple[list[str], list[str]]:
        """Addresses of resolvers as they are inside, and the further lines of their settings."""
        found, more = resolvers_of(RESOLVERS)
        return (found if self.is_pasta else [SLIRP_DNS]), more


def find_joiner(path: str | None = None) -> Joiner | None:
    """pasta where it is new enough, else slirp4netns, which knows IPv4 only."""
    pasta, slirp = shutil.which("pasta", path=path), shutil.which("slirp4netns", path=path)
    if pasta and _is_sound(pasta):
        return Joiner(pasta, is_pasta=True)
    return Joiner(slirp, is_pasta=False) if slirp else None


def _is_sound(pasta: str) -> bool:
    """Those of 2023 (`unknown version` among them) do not pass on the end of a connection, and repeat bytes of it, on
    kernels that came after them."""
    try:
        done = subprocess.run((pasta, "--version"), capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = re.search(r"\b(20[0-9]{2})_?[0-9]{2}_?[0-9]{2}\b", done.stdout)
    return found is not None and int(found[1]) >= SOUND_SINCE


def resolvers_of(file: Path) -> tuple[list[str], list[str]]:
    """Resolvers that are reached as they are; else the one that stands for those of this machine."""
    try:
        rows = [line.split() for line in file.read_text(errors="replace").splitlines()]
    except OSError:
        rows = []
    named = [row[1].partition("%")[0] for row in rows if len(row) > 1 and row[0] == "nameserver"]
    far = [one for one in named if _is_address(one) and not _is_near(ipaddress.ip_address(one))]
    return far or [DNS], [" ".join(row) for row in rows if row and row[0] in SEARCH]


def _is_near(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Such a one is not reached from inside."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    return address.is_loopback or address.is_link_local or relay.is_own(family, str(address))


@dataclass(frozen=True, slots=True)
class Reach:
    """What the network of work may lead to on this agent."""

    joiner: Joiner | None = None
    ports: Sequence[int] = ()  # those that Horae listens on
    allowed: Sequence[str] = ()  # networks, or network:port, of this machine or its link that may be reached
    has_one_user: bool = False  # all on the loopback of this machine is theirs: addresses that a checkout names too
    is_behind_loopback: bool = False  # no port of Horae on this machine can be reached but by its loopback

    def for_ours(self) -> Json:
        """Return the same for a process of ours in the network of this machine: executors.reach."""
        allowed = [_split(entry) for entry in (*self.allowed, *(LOOPBACK if self.has_one_user else ()))]
        return {"ports": list(self.ports), "allowed": allowed}

    def for_requests(self) -> Json:
        """Return the same for requests that the agent itself makes for users: it may stand in a network that is closed
        to them, unless it has one user alone."""
        return {**self.for_ours(), "places": [], "is_public_only": not self.has_one_user}

    def plan(self, boundary: Boundary, *, is_container: bool = False) -> Plan:
        """Invalid when this agent cannot do it."""
        trusted = LOOPBACK if boundary.is_ours and self.has_one_user else ()
        allowed = [_split(entry) for entry in (*self.allowed, *trusted)]
        if boundary.network != "on":
            return Plan(plan_endpoints(boundary.listed), self.ports, allowed)
        if self.joiner is None:
            raise Invalid(
                "the network cannot be given: this agent has neither slirp4netns nor a pasta of 2024 or later",
                code="E_NETWORK",
                hint="install one there (apt-get install slirp4netns), or list the addresses under network:",
            )
        argv = self.joiner.argv(is_container=is_container)  # as it is now: resolvers change with networks
        return Plan(plan_endpoints(boundary.listed), self.ports, allowed, argv, self.joiner.resolvers())


def _split(entry: str) -> tuple[str, int | None]:
    """`network` or `network:port`; an IPv6 network with a port is in brackets."""
    if entry.startswith("["):
        network, _, port = entry[1:].partition("]:")
        return network.rstrip("]"), int(port) if port else None
    network, _, port = entry.partition(":") if entry.count(":") == 1 else (entry, "", "")
    return network, int(port) if port else None


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a relay must know."""

    listed: Endpoints
    ports: Sequence[int]
    allowed: Sequence[tuple[str, int | None]]
    world: Sequence[str] = ()  # argv of the joiner
    resolvers: tuple[Sequence[str], Sequence[str]] = ((), ())

    @property
    def resolv_conf(self) -> str:
        addresses, more = self.resolvers
        return "\n".join([*(f"nameserver {one}" for one in addresses), *more]) + "\n"

    def as_json(self) -> str:
        world = {"argv": self.world, "barred": METADATA} if self.world else None
        return json.dumps({"endpoints": self.listed.each, "ports": self.ports, "allowed": self.allowed, "world": world})


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The endpoints that are allowed: what is reached under which address, inside."""

    each: Sequence[relay.Endpoint]
    names: dict[str, str]  # name → address inside

    @property
    def hosts(self) -> str:
        """The text of /etc/hosts inside."""
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
        return "\n".join([*lines, *(f"{address} {name}" for name, address in self.names.items())]) + "\n"


def plan_endpoints(listed: Sequence[str]) -> Endpoints:
    """`listed` is canonical (core.isolation): host:port each, an IPv6 address in brackets."""
    endpoints: list[relay.Endpoint] = []
    names: dict[str, str] = {}
    for entry in listed:
        host, _, port = entry.rpartition(":")
        host = host.strip("[]")
        is_name = not _is_address(host)
        inside = names.setdefault(host, NAMES.format(*divmod(len(names) + 1, 256))) if is_name else host
        endpoints.append((inside, int(port), host, is_name))
    return Endpoints(endpoints, names)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def spawn_relay(keeper: Keeper, plan: Plan, info: int, go: int, log: int | None) -> Process:
    """Start a relay; the descriptors are those of relay.py, and stay the caller's too. trouble is told in `log`."""
    program = (sys.executable, "-I", "-S", str(Path(relay.__file__)))
    argv = (*program, str(info), str(go), plan.as_json())
    return await keeper.spawn(Command(argv, {}, "/", stderr=log, keep=(info, go)))


class Relayed:
    """Work with its relay; `go` is where the relay says that the work may begin. We hold it open too, so that the
    end of a relay that has opened nothing is not taken for that word."""

    def __init__(self, work: Process, relay_: Process, go: int) -> None:
        self.pid = work.pid
        self._work = work
        self._relay = relay_
        self._go = go
        self._end = asyncio.create_task(self._watch())

    async def wait(self) -> Exit:
        return await asyncio.shield(self._end)

    async def kill(self, grace: float = 5.0) -> Exit:
        await self._work.kill(grace)
        return await self.wait()

    async def _watch(self) -> Exit:
        work, fallen = (asyncio.ensure_future(one.wait()) for one in (self._work, self._relay))
        await asyncio.wait({work, fallen}, return_when=asyncio.FIRST_COMPLETED)
        is_shut = not work.done()
        await (self._work if is_shut else self._relay).kill(0)
        os.close(self._go)
        exit_, _ = await asyncio.gather(work, fallen)
        return Exit(exit_.code or -9, exit_.message or SHUT, exit_.reason) if is_shut else exit_
