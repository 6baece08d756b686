"""The sandbox that isolates nothing but the environment: a process of this machine and this user.

What must stay true: of the agent's own environment (which may hold passwords) nothing reaches the command.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import replace

from horae.ports import Command

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class PlainSandbox:
    name = "plain"

    def __init__(self) -> None:
        self._fixed = {"PATH": PATH, "LANG": "C.UTF-8", "TZ": "UTC", "USER": _user()}

    def wrap(self, command: Command, workspace: str) -> Command:
        """The same command in a clean environment, to which its own is added."""
        return replace(command, env={**self._fixed, "HOME": workspace, **command.env})


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a uid that nobody has named
        return str(os.getuid())
