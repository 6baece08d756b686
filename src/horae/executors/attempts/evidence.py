"""What is known of a section that failed, gathered after its end: the facts that say which wall it met, if any.

What must stay true: a file is opened only if it really lies, links followed, in what is the job's own, and whether one
exists elsewhere on the machine is looked at only where jobs may run without walls and see it for themselves.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from horae.core.insight.symptoms import Sign, Symptom, read_symptom
from horae.core.insight.walls import NOT_EXECUTED, Cause, Facts, Sight, decide
from horae.core.model import Reason
from horae.executors.attempts.sections import Section
from horae.ports.work import Boundary, Exit, Work

FIRST_BYTES = 256  # of a script, in which its first line ends
PROCESSES = 4096  # of work in a sandbox that has no limit of its own
_OF_HOSTS = (Sign.RELAY, Sign.NO_NAME, Sign.NO_ROUTE, Sign.NO_CONNECTION)


def find_cause(
    work: Work, section: Section, exit_: Exit, stopped: str, tail: bytes, sandbox: str, boundary: Boundary,
    offered: Collection[str],
) -> Cause | None:  # fmt: skip
    """Return why a section failed, where it met a wall. `stopped` is why somebody ended it; `tail` is the end of the
    log."""
    facts = _facts_of(work, section, exit_, stopped, sandbox, boundary)
    if facts.reason:
        return decide(facts)
    if stopped or (exit_.message and exit_.code not in NOT_EXECUTED):
        return None
    said = tail.decode(errors="replace").rpartition(f"── {section.title} ──\n")[2] + exit_.message
    if section.is_ours:  # which is not told what would be shown to a job
        return decide(replace(facts, said=said, code=0))
    facts = replace(facts, said=said, symptom=read_symptom(said), offers_plain="plain" in offered)
    return decide(replace(facts, sight=_look(facts, section.cwd, boundary)))


def _facts_of(work: Work, section: Section, exit_: Exit, stopped: str, sandbox: str, boundary: Boundary) -> Facts:
    spec, limits = work.spec, boundary.limits
    is_walled = sandbox != "plain"
    network = "default" if boundary.network == "off" and "network" not in spec else boundary.network
    return Facts(
        exit_.code, exit_.reason if exit_.reason in (Reason.OOM, Reason.PROCESSES) else stopped,
        script=section.argv[-1], sandbox=sandbox, network=network, listed=tuple(boundary.listed),
        has_checkout="checkout" in spec or "source" in spec, memory=limits.memory,
        memory_field="limits" if "memory" in spec.get("limits", {}) else "resources",
        pids=limits.pids or (PROCESSES if is_walled else None), timeout_seconds=work.timeout_seconds,
        what=section.what,
    )  # fmt: skip


def _look(facts: Facts, cwd: Path, boundary: Boundary) -> Sight:
    symptom = facts.symptom
    if symptom is None or not symptom.it or symptom.sign in _OF_HOSTS:
        return Sight()
    try:
        return _look_for(symptom, facts, cwd, boundary)
    except (OSError, ValueError):  # a loop of links, a name that is too long
        return Sight()


def _look_for(symptom: Symptom, facts: Facts, cwd: Path, boundary: Boundary) -> Sight:
    it = symptom.it
    if symptom.sign is Sign.NO_PROGRAM and "/" not in it:
        return Sight(shutil.which(it) or "" if facts.offers_plain else None)
    path = os.path.join(cwd, it)
    own = [boundary.workspace] if facts.is_walled else [boundary.workspace, str(cwd)]
    if (inside := _inside(path, own)) is not None:
        return inside
    is_there = facts.offers_plain and os.path.isabs(it) and os.path.lexists(it)
    return Sight(it if is_there else "" if facts.offers_plain else None)


def _inside(path: str, own: Sequence[str]) -> Sight | None:
    """Return what is known of a file of the job's own; None of any other. Nothing of the job runs any more."""
    real = os.path.realpath(path)
    if not any(Path(real).is_relative_to(os.path.realpath(root)) for root in own) or not os.path.exists(real):
        return None
    if not stat.S_ISREG(os.lstat(real).st_mode):
        return Sight(is_inside=True, is_executable=True)
    descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        is_executable = bool(os.fstat(descriptor).st_mode & 0o111)
        first, _, _ = os.read(descriptor, FIRST_BYTES).partition(b"\n")
    finally:
        os.close(descriptor)
    return Sight(is_inside=True, is_executable=is_executable, first_line=first.decode(errors="replace"))
