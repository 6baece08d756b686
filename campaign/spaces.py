"""Namespaces: one for the whole campaign, and in it one for the network of each remote agent.

What must stay true: nothing outside is touched. Interfaces, packet filters and mounts are made in namespaces that the
campaign itself made, and end with it; so do all its processes, because it has process ids of its own, too.

    campaign's network ── 10.213.N.1 ═══ veth ═══ 10.213.N.2 ── network of agent N

An agent calls its servers on its own loopback, as it would on one machine: the packets are sent on to the campaign's
end of the wire, where links listen. What is dropped on the wire is counted by the filter that drops it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MARK = "CAMPAIGN_SPACE"  # set within
TOOLS = ("unshare", "nsenter", "ip", "iptables", "mount")
TO_SERVERS, TO_AGENT = "to servers", "to agent"


def missing() -> str:
    """Why there can be no namespaces here; empty when there can."""
    if os.geteuid() != 0:
        return "it needs root"
    gone = [tool for tool in TOOLS if shutil.which(tool) is None]
    if gone:
        return f"there is no program {gone[0]}"
    tried = subprocess.run([*_UNSHARE, "iptables", "-nL"], capture_output=True, text=True, check=False)
    return f"this kernel lets nobody make them: {tried.stderr.strip()}" if tried.returncode else ""


_UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def is_within() -> bool:
    return MARK in os.environ


def enter(argv: Sequence[str]) -> None:
    """Go on as the same program in namespaces of its own. The shell is there to bury what nobody else does."""
    command = [sys.executable, "-m", "campaign", *argv]
    os.environ[MARK] = "1"
    os.execvp(_UNSHARE[0], [*_UNSHARE, "sh", "-c", '"$0" "$@"; exit $?', *command])


def open_loopback() -> None:
    _do("ip", "link", "set", "lo", "up")


def _do(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


class Space:
    """A network of its own for one agent, and the wire to it."""

    def __init__(self, number: int, ports: Sequence[int]) -> None:
        self.host, self._own = f"10.213.{number}.1", f"10.213.{number}.2"
        self._wire = f"wire{number}"
        self._ports = ports  # of servers on loopback that it may call
        self._keeper: subprocess.Popen[bytes] | None = None  # while it lives, the namespace does

    def begin(self) -> None:
        self._keeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL)
        self._await_own()
        _do("ip", "link", "add", self._wire, "type", "veth", "peer", "name", "eth0", "netns", str(self._keeper.pid))
        _do("ip", "address", "add", f"{self.host}/30", "dev", self._wire)
        _do("ip", "link", "set", self._wire, "up")
        self._within("ip", "link", "set", "lo", "up")
        self._within("ip", "address", "add", f"{self._own}/30", "dev", "eth0")
        self._within("ip", "link", "set", "eth0", "up")
        self._within("sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet")
        for port in self._ports:
            sent_on = ("-j", "DNAT", "--to-destination", self.host)
            self._within("iptables", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-d", "127.0.0.1", "--dport",
                         str(port), *sent_on)  # fmt: skip
        self._within("iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "eth0", "-j", "MASQUERADE")

    def _await_own(self) -> None:
        """`unshare` has called exec when its namespace is another one than ours."""
        assert self._keeper is not None
        ours, path = os.readlink("/proc/self/ns/net"), Path(f"/proc/{self._keeper.pid}/ns/net")
        while os.readlink(path) == ours:
            if self._keeper.poll() is not None:
                raise RuntimeError("no network namespace could be made")

    @property
    def prefix(self) -> list[str]:
        """What stands before a command that is to run within; it gives way to that command."""
        assert self._keeper is not None
        return ["nsenter", f"--net=/proc/{self._keeper.pid}/ns/net"]

    def _within(self, *argv: str) -> str:
        return _do(*self.prefix, *argv)

    def split(self, *directions: str) -> None:
        """Drop every packet that goes these ways."""
        if TO_SERVERS in directions:
            _do("iptables", "-I", "INPUT", "-i", self._wire, "-j", "DROP")
        if TO_AGENT in directions:
            _do("iptables", "-I", "OUTPUT", "-o", self._wire, "-j", "DROP")

    def dropped(self) -> int:
        """Packets that the present split has dropped."""
        found = _do("iptables", "-nvxL")
        return sum(int(number) for number in re.findall(rf"^ *(\d+) .* DROP .*\b{self._wire}\b", found, re.MULTILINE))

    def join(self) -> None:
        for chain, flag in (("INPUT", "-i"), ("OUTPUT", "-o")):
            rule = (chain, flag, self._wire, "-j", "DROP")
            while subprocess.run(["iptables", "-C", *rule], capture_output=True, check=False).returncode == 0:
                _do("iptables", "-D", *rule)

    def end(self) -> None:
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.wait()
            self._keeper = None
