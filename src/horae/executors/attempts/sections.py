"""An attempt as sections: processes one after the other in one fresh workspace, each with its part of the log.

    result {"steps": [{"name", "seconds", "exit_code"}, …], "walls", …}   of the sections that were started, the sandbox
           they ran in, and the work's facts

A kind of work says which sections it has (`Plan`); everything else is the same for all and is here.

What must stay true:
- The first section that fails ends the attempt. Its processes, daemons included, are gone before the next
  one starts: the keeper reports an end only then.
- stdout and stderr share one pipe, so their order is kept; a pipe somebody else still holds open cannot
  keep the attempt alive, because after the end of its processes it is read once more and closed.
- The workspace is gone, however the attempt ended, before `done` is called. Cleaning up never decides how an attempt
  ends.

An attempt may outlive its agent while a section of the job itself runs, or has ended and no other has begun. The next
agent goes through the same plan up to that section, makes the same log again (what is stored is left out), and attends
to its process. What an agent does itself between processes is done again, if it was not done to its end.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from horae.core.model import Json, Phase, Reason
from horae.errors import Invalid
from horae.ports.work import Work

SHELL = "shell"  # the kind whose steps somebody wrote
CHECKOUT = "checkout"  # the name of that section, and of its secret files
NOTES = "HORAE_NOTES"  # environment of a section that may tell us things: the number of a descriptor


@dataclass(slots=True)  # not frozen, which would make it three times as slow to make
class Section:
    """One process of an attempt, with its part of the log."""

    title: str  # heads its part of the log
    name: str
    what: str  # it, in a sentence
    argv: tuple[str, ...]
    cwd: Path
    env: dict[str, str] = field(default_factory=dict)
    reason: Reason = Reason.EXIT  # of a run that fails here
    network: bool = False  # it has the network, whatever the job says; one of ours, that of the machine
    listed: tuple[str, ...] | None = None  # host:port each: it reaches these and nothing else, whatever the job says
    sees: tuple[Path, ...] = ()  # further paths that it reads
    keeps: tuple[Path, ...] = ()  # further paths that it reads and writes
    phase: Phase = Phase.RUNNING
    goes_on: bool = False  # a further part of the section before, in its log and in its time
    may_fail: bool = False  # the next one looks at what it left
    before: Callable[[], Awaitable[Sequence[str]]] | None = None  # done first; returns what the log shall say of it
    watch: Callable[[bytes], None] | None = None  # sees what it writes
    is_ours: bool = False  # in the agent's own sandbox and without the job's variables, whatever it says
    given: bytes = b""  # its standard input: what must stand neither in its arguments nor in its environment
    note: Callable[[Json], None] | None = None  # sees each line of JSON that it writes to the descriptor NOTES names
    gentle: bool = False  # should the agent die, it is asked to end before it is killed


# The sections of a work, in the workspace given. One by one: where the next one starts may depend on what the last
# one left. It raises Invalid when the work cannot be done here.
Plan = Callable[[Work, Path], Iterator[Section]]

# What is left to do in a workspace when its sections are over and nobody has stopped them; told whether all went well.
# It notes the work's facts, and returns what the log shall say. None: there is nothing to do.
Closing = Callable[[Work, Path, bool], Awaitable[Sequence[str]] | None]


def enter(workspace: Path, wanted: str | None, home: Path | None = None) -> Path:
    """Return the directory a step starts in: inside the workspace, or an absolute one that exists. With a `home`, where
    nothing is ours to make, one that exists below that."""
    if not wanted:
        return home or workspace
    if home is not None:
        wanted = os.path.join(home, wanted)
    if os.path.isabs(wanted):
        if not os.path.isdir(wanted):
            raise Invalid(f"working_directory {wanted!r} is not an existing directory of this machine")
        return Path(wanted)
    inside = (workspace / wanted).resolve()
    if not inside.is_relative_to(workspace):
        raise Invalid(f"working_directory {wanted!r} leads out of the workspace: write a path inside it")
    inside.mkdir(parents=True, exist_ok=True)
    return inside
