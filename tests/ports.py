"""Ports for servers of tests.

A port that the kernel gave and took back may be given to anybody before the server listens: to another test, or to
any connection that goes out. So these lie below those of outgoing connections, and a name in the kernel's own space,
which ends with the process, says that they are taken.
"""

from __future__ import annotations

import random
import socket
from collections import deque
from pathlib import Path

LOWEST = 10_000
_chance = random.SystemRandom()  # tests set the seed of the other
_claims: deque[socket.socket] = deque()
HELD = 200  # claims at most: who was given the oldest port listens by now


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ones, and nobody else who asks here gets them, in whatever process."""
    found: list[int] = []
    while len(found) < count:
        port = _chance.randrange(LOWEST, highest())
        if _claim(port):
            found.append(port)
    return found


def highest() -> int:
    """Return the first that outgoing connections may have."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    return first if first > 11_000 else 65_536


def _claim(port: int) -> bool:
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0horae-tests-port-{port}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    if len(_claims) > HELD:
        _claims.popleft().close()
    return True
