"""The agent's side of the porter: work that may reach some addresses and no others.

The work is in a network of its own that has a loopback and nothing else. Each listed address is one of that loopback,
so that programs need no settings and no proxy: a listed address of numbers as it is, a listed name under an address
of 127.71.0.0/16 that stands in the work's /etc/hosts. Who listens there is the porter (`porter.py`), one process for
each process of work, beside it below the keeper.

What must stay true:
- The work does not begin before its doors are open, and never without them.
- The porter ends with its work, and the work with its porter.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from horae.ports import Command, Exit, Keeper, Process
from horae.sandboxes import porter

NAMES = "127.71.{}.{}"  # addresses inside that stand for names
SHUT = "the doors to its listed addresses could not be opened, or fell shut: see the log"


@dataclass(frozen=True, slots=True)
class Doors:
    """What is reached under which address, inside."""

    doors: Sequence[porter.Door]
    names: dict[str, str]  # name → address inside

    @property
    def hosts(self) -> str:
        """The text of /etc/hosts inside."""
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
        return "\n".join([*lines, *(f"{address} {name}" for name, address in self.names.items())]) + "\n"


def plan_doors(listed: Sequence[str]) -> Doors:
    """`listed` is canonical (core.isolation): host:port each, an IPv6 address in brackets."""
    doors: list[porter.Door] = []
    names: dict[str, str] = {}
    for entry in listed:
        host, _, port = entry.rpartition(":")
        host = host.strip("[]")
        is_name = not _is_address(host)
        inside = names.setdefault(host, NAMES.format(*divmod(len(names) + 1, 256))) if is_name else host
        doors.append((inside, int(port), host, is_name))
    return Doors(doors, names)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def spawn_porter(keeper: Keeper, doors: Doors, info: int, go: int, log: int | None) -> Process:
    """Start a porter; the descriptors are those of porter.py, and stay the caller's too. `log` hears of trouble."""
    program = (sys.executable, "-I", "-S", str(Path(porter.__file__)))
    argv = (*program, str(info), str(go), json.dumps(doors.doors))
    return await keeper.spawn(Command(argv, {}, "/", stderr=log, keep=(info, go)))


class WithDoors:
    """Work with its porter; `go` is where the porter says that the work may begin. We hold it open too, so that the
    end of a porter that has opened nothing is not taken for that word."""

    def __init__(self, work: Process, porter_: Process, go: int) -> None:
        self.pid = work.pid
        self._work = work
        self._porter = porter_
        self._go = go
        self._end = asyncio.create_task(self._attend())

    async def wait(self) -> Exit:
        return await asyncio.shield(self._end)

    async def kill(self, grace: float = 5.0) -> Exit:
        await self._work.kill(grace)
        return await self.wait()

    async def _attend(self) -> Exit:
        work, fallen = (asyncio.ensure_future(one.wait()) for one in (self._work, self._porter))
        await asyncio.wait({work, fallen}, return_when=asyncio.FIRST_COMPLETED)
        is_shut = not work.done()
        await (self._work if is_shut else self._porter).kill(0)
        os.close(self._go)
        exit_, _ = await asyncio.gather(work, fallen)
        return Exit(exit_.code or -9, exit_.message or SHUT, exit_.reason) if is_shut else exit_
