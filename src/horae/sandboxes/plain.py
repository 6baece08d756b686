"""The sandbox that hides nothing: a process of this machine and this user, in a clean environment, within its limits.

What must stay true: of the agent's own environment (which may hold passwords) nothing reaches the command.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection
from dataclasses import replace

from horae.ports.work import Boundary, Command, Keeper, Process
from horae.sandboxes.cgroups import Groups

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class PlainSandbox:
    """What the boundary says of network and paths is not its to give or take."""

    name = "plain"

    def __init__(self, keeper: Keeper, groups: Groups) -> None:
        self._keeper = keeper
        self._groups = groups
        self._fixed = environment(_user())

    async def open(self, kept: Collection[str] = ()) -> None:
        self._groups.open(kept)

    async def spawn(self, command: Command, boundary: Boundary) -> Process:
        clean = replace(command, env={**self._fixed, "HOME": boundary.workspace, **command.env})
        return await self._groups.spawn(self._keeper, clean, boundary.name, boundary.limits)

    def take_up(self, process: Process, boundary: Boundary) -> Process:
        return self._groups.take_up(process, boundary.name, boundary.limits)

    def can_hold(self, boundary: Boundary) -> bool:
        return True

    async def close(self) -> None:
        self._groups.close()


def environment(user: str) -> dict[str, str]:
    """Return what every process has, whatever its job says."""
    return {"PATH": PATH, "LANG": "C.UTF-8", "TZ": "UTC", "USER": user}


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a uid that nobody has named
        return str(os.getuid())
