"""Who owns the other end of a connection: the user of this machine whose socket it is.

On a server that listens on loopback only, the user who runs it (and root, who may do everything anyway) needs no
token. An address alone proves nothing: every account of the machine comes from 127.0.0.1.

Linux knows the owner of each socket. It is asked for exactly one, by the four numbers of the connection
(sock_diag, some microseconds); a kernel without that is read by its table, /proc/net/tcp.

What must stay true:
- A connection is somebody's only while both of its ends are established and held by a process: the numbers of one
  that has ended may be taken by another user, and a socket that nobody holds any more shows uid 0.
- What cannot be decided (no Linux, another namespace, an end that is gone) is nobody's, and needs a token.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

Address = tuple[str, int]

_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1  # a family of netlink, its only question, and the flag of a question
_ESTABLISHED = 1
_ANY = 0xFFFFFFFF
_QUESTION = struct.Struct("=IHHII BBBxI")  # length, kind, flags, number, from whom; family, protocol, parts, states
_ANSWER = struct.Struct("=IHHII BBxx 48x 12x II")  # the same; family, state, …, uid, inode
_SECONDS = 1.0  # that the kernel has to answer: it does so at once
_PROXIES = re.compile(r"forwarded|via|x-real-ip|x-forwarded(-.*)?|x-original-(host|forwarded-for)")


class _End(NamedTuple):
    state: int
    uid: int
    inode: int


def was_forwarded(headers: Iterable[str]) -> bool:
    """Return whether a proxy says that it passed this on: then its sender is somebody else."""
    return any(map(_is_of_proxy, headers))


@lru_cache(1024)
def _is_of_proxy(name: str) -> bool:
    return _PROXIES.fullmatch(name) is not None


def owner_of(client: Address | None, server: Address | None) -> int | None:
    """Return the user id of a connection's client; None where it cannot be told."""
    if client is None or server is None or sys.platform != "linux":
        return None
    try:
        theirs, ours = _find(client, server), _find(server, client)
    except (OSError, ValueError, struct.error):
        return None
    is_whole = all(end is not None and end.state == _ESTABLISHED and end.inode for end in (theirs, ours))
    return theirs.uid if theirs and is_whole else None


def _find(local: Address, remote: Address) -> _End | None:
    try:
        return _ask(local, remote)
    except FileNotFoundError:  # the kernel's answer: there is no such connection
        return None
    except OSError:  # this kernel cannot be asked
        return _look_up(local, remote)


def _ask(local: Address, remote: Address) -> _End:
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    ports = struct.pack("!HH", local[1], remote[1])
    places = b"".join(socket.inet_pton(family, host).ljust(16, b"\0") for host, _ in (local, remote))
    rest = ports + places + struct.pack("=III", 0, _ANY, _ANY)  # any interface, no cookie
    length = _QUESTION.size + len(rest)
    question = _QUESTION.pack(length, _BY_FAMILY, _REQUEST, 0, 0, family, socket.IPPROTO_TCP, 0, _ANY) + rest
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
        kernel.settimeout(_SECONDS)
        kernel.connect((0, 0))
        kernel.send(question)
        answer = kernel.recv(4096)
    _, kind, _, _, _ = struct.unpack_from("=IHHII", answer)
    if kind != _BY_FAMILY:
        (code,) = struct.unpack_from("=i", answer, 16)
        raise OSError(-code, os.strerror(-code))
    *_, state, uid, inode = _ANSWER.unpack_from(answer)
    return _End(state, uid, inode)


def _look_up(local: Address, remote: Address, tables: Path = Path("/proc/net")) -> _End | None:
    """Return the same from the kernel's table of all connections; one over IPv4 may stand in either."""
    for name, form in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        ends = [_written(each, form) for each in (local, remote)]
        for line in (tables / name).read_text().splitlines()[1:] if None not in ends else ():
            fields = line.split()
            if fields[1:3] == ends:
                return _End(int(fields[3], 16), int(fields[7]), int(fields[9]))
    return None


def _written(address: Address, family: socket.AddressFamily) -> str | None:
    """Return an address as the table has it: each word of it as a number of this machine."""
    host, port = address
    if family is socket.AF_INET and ":" in host:
        return None
    packed = socket.inet_pton(family, f"::ffff:{host}" if family is socket.AF_INET6 and ":" not in host else host)
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
