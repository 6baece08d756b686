"""Why a step failed that met a wall: of its sandbox, of its limits, or of the file it wanted to start.

    decide(Facts(code=6, sandbox="bubblewrap", network="off", symptom=read_symptom(said)))
    → Cause(Wall.NETWORK_OFF, "it has no network, …", "network: [example.org]", is_certain=True)

The sentence comes at the end of the log and in the message of the run; all of it stands in the run's result as `cause`.

What must stay true:
- What is not known for certain is said with "may". Where nothing points to a wall, nothing is said.
- Codes are stable: they are stored, and docs/howto/troubleshooting.md has a row for each.
- Whether a file exists on the agent's machine is told only to those who may see that machine anyway (`Sight`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from horae.core.insight.symptoms import Sign, Symptom, relayed
from horae.core.model import Json, Reason
from horae.core.sizes import show_size

NOT_EXECUTED = (126, 127)  # exit codes of a shell that could not start a command
KILLED = (-9, 137)
_SILENT = {"curl": (5, 6, 7, 28), "wget": (4,), "ssh": (255,), "git": (128,)}  # exit codes of who found no network
_FULL = "it may have filled /tmp, which is memory in a sandbox, or the disk of its agent may be full"
_HERE = re.compile(r"localhost|127\.|::1|0\.0\.0\.0")


class Wall(StrEnum):
    """What a step met. Stored: never rename."""

    NETWORK_OFF = "network_off"
    NETWORK_UNLISTED = "network_unlisted"
    NETWORK_REFUSED = "network_refused"
    MACHINE_UNREACHED = "machine_unreached"
    ADDRESS_REFUSED = "address_refused"
    FILE_HIDDEN = "file_hidden"
    COMMAND_HIDDEN = "command_hidden"
    COMMAND_MISSING = "command_missing"
    INTERPRETER_MISSING = "interpreter_missing"
    LINE_ENDS = "line_ends"
    NOT_EXECUTABLE = "not_executable"
    WRONG_FORMAT = "wrong_format"
    READ_ONLY = "read_only"
    DENIED = "denied"
    NO_ROOT = "no_root"
    CALL_DENIED = "call_denied"
    DEVICE_HIDDEN = "device_hidden"
    MEMORY_LIMIT = "memory_limit"
    PROCESS_LIMIT = "process_limit"
    OUTPUT_LIMIT = "output_limit"
    NO_SPACE = "no_space"
    TIMEOUT = "timeout"
    KILLED = "killed"


@dataclass(frozen=True, slots=True)
class Sight:
    """What the agent finds, after the end, of the file or program that a symptom names."""

    outside: str | None = None  # its path on the machine; empty: it is not there; None: nobody may know
    is_inside: bool = False  # it is one of the job's own
    is_executable: bool = False
    first_line: str = ""  # of its own file


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of a step that failed."""

    code: int = 0  # negative: the signal that ended it
    reason: str = ""  # the limit that ended it, or why it was stopped
    symptom: Symptom | None = None
    said: str = ""  # the end of its output
    script: str = ""
    sandbox: str = "plain"
    network: str = "on"  # or off, default (which is off), listed
    listed: tuple[str, ...] = ()  # host:port each
    offers_plain: bool = False  # whether the job may ask for no walls
    has_checkout: bool = False
    memory: int | None = None  # its limit, in bytes
    memory_field: str = "limits"  # of the job, which sets it; or resources
    pids: int | None = None
    timeout_seconds: float | None = None
    what: str = "it"  # the step, in a sentence
    sight: Sight = Sight()

    @property
    def is_walled(self) -> bool:
        return self.sandbox != "plain"

    @property
    def is_container(self) -> bool:
        return self.sandbox == "docker"


@dataclass(frozen=True, slots=True)
class Cause:
    code: Wall
    sentence: str  # without a full stop: it goes on in messages
    line: str = ""  # to add to the job; empty where no line helps
    is_certain: bool = True

    def as_json(self) -> Json:
        return {"code": str(self.code), "message": self.sentence, "line": self.line, "certain": self.is_certain}


def decide(facts: Facts) -> Cause | None:
    """None where nothing points to a wall."""
    if facts.reason:
        return _by_limit(facts)
    if facts.is_walled and facts.network == "listed" and (refused := relayed(facts.said)):
        return _refused(refused)
    symptom = facts.symptom or _silent(facts)
    if symptom is not None and (found := _RULES[symptom.sign](facts, symptom)) is not None:
        return found
    if facts.code in KILLED and symptom is None:
        return _killed(facts)
    return None


def _silent(facts: Facts) -> Symptom | None:
    """Of a step that says nothing, its exit code may."""
    if any(facts.code in codes and re.search(rf"\b{name}\b", facts.script) for name, codes in _SILENT.items()):
        return Symptom(Sign.NO_CONNECTION)
    return Symptom(Sign.NO_PROGRAM) if facts.code in NOT_EXECUTED and facts.is_walled else None


# ── limits ──


def _by_limit(facts: Facts) -> Cause | None:
    """Of what was ended by Horae or by the kernel, who say why."""
    if facts.reason == Reason.OOM:
        return _out_of_memory(facts)
    if facts.reason == Reason.PROCESSES:
        line = f"limits: {{pids: {2 * (facts.pids or 2000)}}}"
        return _limit(Wall.PROCESS_LIMIT, f"its processes and threads are limited to {facts.pids}", line)
    if facts.reason == Reason.TIMEOUT and facts.timeout_seconds is not None:
        return _limit(Wall.TIMEOUT, f"{facts.what} was still running", f"timeout: {2 * facts.timeout_seconds:g}s")
    if facts.reason == Reason.OUTPUT_LIMIT:
        sentence = "it wrote more than is kept: let it write less, or to a file that `artifacts:` names"
        return Cause(Wall.OUTPUT_LIMIT, sentence, "artifacts: [out/*]")
    return None


def _out_of_memory(facts: Facts) -> Cause:
    if facts.memory is None:
        sentence = "the machine had no more memory, and the job has no limit of its own: it may not have been to blame"
        return Cause(Wall.MEMORY_LIMIT, sentence, is_certain=False)
    return _limit(Wall.MEMORY_LIMIT, f"its memory is limited to {show_size(facts.memory)}", _more_memory(facts))


def _more_memory(facts: Facts) -> str:
    return f"{facts.memory_field}: {{memory: {show_size(2 * (facts.memory or 2**29))}}}"


def _limit(code: Wall, words: str, line: str, *, is_certain: bool = True) -> Cause:
    return Cause(code, f"{words}: if it needs more, write in the job, for example, `{line}`", line, is_certain)


def _no_memory(facts: Facts, _: Symptom) -> Cause | None:
    if facts.memory is None:
        return None
    words = f"it may have met its memory limit of {show_size(facts.memory)}"
    return _limit(Wall.MEMORY_LIMIT, words, _more_memory(facts), is_certain=False)


def _no_process(facts: Facts, _: Symptom) -> Cause | None:
    if facts.pids is None:
        return None
    line = f"limits: {{pids: {2 * facts.pids}}}"
    words = f"it may have met its limit of {facts.pids} processes and threads"
    return _limit(Wall.PROCESS_LIMIT, words, line, is_certain=False)


def _killed(facts: Facts) -> Cause:
    words = "it was killed, and not by Horae: the machine may have run out of memory"
    line = _more_memory(facts).replace("limits", "resources")
    return Cause(Wall.KILLED, f"{words}; `{line}` lets it start only where there is as much", line, is_certain=False)


def _no_space(facts: Facts, symptom: Symptom) -> Cause | None:
    if not facts.is_walled:
        return None
    is_memory = symptom.it.startswith(("/tmp/", "/run/", "/var/tmp/"))  # noqa: S108  # of the job, not ours
    line = 'export TMPDIR="$HOME"'
    why = "in a sandbox /tmp and /run are memory, and small" if is_memory else _FULL
    sentence = f"{why}: let it write large files below $HOME, for example after `{line}`"
    return Cause(Wall.NO_SPACE, sentence, line, is_memory)


# ── the network ──


def _refused(symptom: Symptom) -> Cause:
    """What the relay says is so; whether the step failed because of it is not known."""
    sentence = f"{symptom.it}:{symptom.port} could not be reached ({symptom.why}), which may be why it failed"
    line = f'allowed_networks = ["{symptom.it}:{symptom.port}"]' if "allowed_networks" in symptom.why else ""
    if line:
        sentence += f"; the operator can allow it in the settings of the agent: `{line}`"
    return Cause(Wall.NETWORK_REFUSED, sentence, line, is_certain=False)


def _unreached(facts: Facts, symptom: Symptom) -> Cause | None:
    if not facts.is_walled:
        return None
    if _HERE.match(symptom.it):
        return _own_loopback(facts, symptom)
    is_certain = symptom.sign is not Sign.NO_CONNECTION  # who refuses may be within
    if facts.network in ("off", "default"):
        return _cut_off(facts, symptom, is_certain=is_certain)
    return _unlisted(facts, symptom) if facts.network == "listed" else None


def _cut_off(facts: Facts, symptom: Symptom, *, is_certain: bool) -> Cause:
    address = _address(symptom)
    which = ", which is the default" if facts.network == "default" else ""
    what = f", so {address} cannot be reached" if address else ""
    line = f"network: [{address or 'example.org:443'}]"
    maybe = "" if is_certain else " (this may be why it failed)"
    sentence = (
        f"the sandbox {facts.sandbox} gave it no network{which}{what}{maybe}: if it needs one, add to the job "
        f"`{line}`, or `network: on` for all addresses"
    )
    return Cause(Wall.NETWORK_OFF, sentence, line if address else "network: on", is_certain)


def _unlisted(facts: Facts, symptom: Symptom) -> Cause | None:
    hosts = {entry.rpartition(":")[0].strip("[]") for entry in facts.listed}
    if symptom.it in hosts and symptom.sign is Sign.NO_NAME:
        return None
    address = _address(symptom)
    is_certain = bool(symptom.it) and symptom.it not in hosts
    if is_certain:
        words = f"{symptom.it} is not among the addresses that the job lists, and its network reaches nothing else"
    else:
        words = "its network reaches nothing but what the job lists, which may be why it failed"
    line = f"network: [{', '.join((*facts.listed, address or 'example.org:443'))}]"
    return Cause(Wall.NETWORK_UNLISTED, f"{words}: if it needs more, add to the job `{line}`", line, is_certain)


def _own_loopback(facts: Facts, symptom: Symptom) -> Cause:
    line = f"network: [127.0.0.1:{symptom.port or 5432}]"
    return Cause(
        Wall.MACHINE_UNREACHED,
        f"{symptom.it} is the sandbox itself there, and a server of this machine cannot be reached under it, which may "
        f"be why it failed: if it is meant, add to the job `{line}`, which the operator must allow in allowed_networks",
        line,
        is_certain=False,
    )


def _address(symptom: Symptom) -> str:
    host = f"[{symptom.it}]" if ":" in symptom.it else symptom.it
    return f"{host}:{symptom.port}" if host and symptom.port else host


def address_refused(words: str) -> Cause:
    """Of a request that Horae itself did not make; `words` say why, and what the operator can do."""
    return Cause(Wall.ADDRESS_REFUSED, words, "allowed_networks = […]")


# ── files and programs ──


def _no_program(facts: Facts, symptom: Symptom) -> Cause | None:
    it = symptom.it
    if it.endswith(("\r", "\\r", "^M")):
        return _line_ends(it.removesuffix("\r").removesuffix("\\r").removesuffix("^M"))
    if facts.sight.is_inside:
        return _no_interpreter(facts, symptom)
    if "/" in it:
        return _no_file(facts, symptom)
    outside = facts.sight.outside
    if not facts.is_walled:
        if not it:
            return None
        line = f'env: {{PATH: "{outside.rpartition("/")[0]}:/usr/bin:/bin"}}' if outside else ""
        more = f"; it is {outside}: add to the job `{line}`" if outside else ""
        return Cause(Wall.COMMAND_MISSING, f"there is no program {it!r} on the PATH of its steps{more}", line)
    if facts.is_container:
        sentence = f"its image has no program {it!r}" if it else "its image may not have the program that it calls"
        return Cause(Wall.COMMAND_MISSING, f"{sentence}: name one that has it, `image: …`", "image: …", bool(it))
    if outside:
        return _shown(facts, Wall.COMMAND_HIDDEN, f"{outside} of this machine is hidden from it by the sandbox")
    if outside == "" and it:
        return Cause(Wall.COMMAND_MISSING, f"there is no program {it!r} on this machine: install it there")
    which = f"{it!r}" if it else "the program"
    return _shown(facts, Wall.COMMAND_HIDDEN, f"{which} may be hidden from it by the sandbox", is_certain=False)


def _no_interpreter(facts: Facts, symptom: Symptom) -> Cause | None:
    first = facts.sight.first_line
    if first.startswith("#!") and first.endswith("\r"):
        return _line_ends(symptom.it)
    if not first.startswith("#!"):
        return None
    interpreter = (first[2:].split() or [""])[0]
    where = "its image" if facts.is_container else "its sandbox" if facts.is_walled else "this machine"
    return Cause(
        Wall.INTERPRETER_MISSING,
        f"{symptom.it} is there, but {interpreter!r} is not, which its first line names: {where} does not have it; "
        "name another there, such as `#!/usr/bin/env python3`",
    )


def _line_ends(it: str) -> Cause:
    line = f"run: sed -i 's/\\r$//' {it}" if "/" in it else ""
    sentence = f"the first line of the script ends with a carriage return, so that {it!r} is not found"
    if line:
        sentence = f"the first line of {it} ends with a carriage return, which becomes part of its interpreter's name"
    return Cause(Wall.LINE_ENDS, f"{sentence}: save it with line ends of Unix (`sed -i 's/\\r$//'`)", line)


def _not_started(facts: Facts, symptom: Symptom) -> Cause | None:
    sight, it = facts.sight, symptom.it
    if sight.is_inside and not sight.is_executable:
        line = f"run: chmod +x {it} && {it}"
        return Cause(Wall.NOT_EXECUTABLE, f"{it} is not executable: write in the step `chmod +x {it}` before it", line)
    return _denied(facts, symptom)


def _wrong_format(facts: Facts, _: Symptom) -> Cause:
    words = "what it started is no program of this machine: it may be built for another one, or be a script without a"
    return Cause(Wall.WRONG_FORMAT, f"{words} first line such as `#!/bin/sh`", is_certain=False)


def _no_file(facts: Facts, symptom: Symptom) -> Cause | None:
    it, outside = symptom.it, facts.sight.outside
    if not facts.is_walled or facts.sight.is_inside:
        return None
    if it.startswith(("/dev/", "/sys/", "/proc/")):
        return _device(facts, it)
    if outside:
        return _shown(facts, Wall.FILE_HIDDEN, f"{outside} of this machine is hidden from it by the sandbox")
    if outside == "" and it.startswith("/"):
        return None  # it is not on the machine either
    if it.startswith("/"):
        return _shown(facts, Wall.FILE_HIDDEN, f"{it} may be hidden from it by the sandbox", is_certain=False)
    begins = "the files of its checkout" if facts.has_checkout else "an empty directory"
    which = f"{it} is not there" if it else "something is not there"
    words = f"{which}; it begins with {begins}, and the files of this machine may be what it misses"
    return _shown(facts, Wall.FILE_HIDDEN, words, is_certain=False)


def _shown(facts: Facts, code: Wall, words: str, *, is_certain: bool = True) -> Cause:
    """With the line that shows more of the machine."""
    line = "sandbox: plain" if facts.offers_plain and not facts.is_container else "checkout: {url: …}"
    how = f"`{line}`" if line == "sandbox: plain" else f"`{line}`, which brings files along"
    return Cause(code, f"{words}: if it needs it, add to the job {how}", line, is_certain)


def _device(facts: Facts, it: str) -> Cause:
    is_certain = bool(facts.sight.outside)
    verb = "is" if is_certain else "may be"
    words = f"{it} {verb} hidden from it by the sandbox, which has only the plain devices and a /proc of its own"
    line = "sandbox: plain" if facts.offers_plain else ""
    how = f": if it needs it, add to the job `{line}`" if line else ""
    return Cause(Wall.DEVICE_HIDDEN, f"{words}{how}", line, is_certain)


def _read_only(facts: Facts, symptom: Symptom) -> Cause | None:
    if not facts.is_walled or facts.sight.is_inside:
        return None
    it = symptom.it or "what it wrote to"
    sentence = f"{it} is read-only in the sandbox: write below $HOME, which is its own, or to /tmp"
    line = "sandbox: plain" if facts.offers_plain and not facts.is_container else ""
    more = f"; if it must write there, add to the job `{line}`" if line else ""
    return Cause(Wall.READ_ONLY, f"{sentence}{more}", line)


def _denied(facts: Facts, symptom: Symptom) -> Cause | None:
    if not facts.is_walled or facts.sight.is_inside:
        return None
    it = symptom.it or "something"
    words = f"{it} may not be used: in the sandbox it is not root, and has no rights but to its own directory"
    return _shown(facts, Wall.DENIED, f"{words}, which may be why", is_certain=False)


def _no_root(facts: Facts, _: Symptom) -> Cause | None:
    if not facts.is_walled:
        return None
    words = "no program becomes root in a sandbox, neither by sudo nor by su"
    line = "sandbox: plain" if facts.offers_plain and not facts.is_container else ""
    how = f"add to the job `{line}`, or do without" if line else "do without, or let an image bring what is needed"
    return Cause(Wall.NO_ROOT, f"{words}: {how}", line)


def _not_permitted(facts: Facts, symptom: Symptom) -> Cause | None:
    if not facts.is_walled:
        return None
    words = "the sandbox denies what only root may do, and calls such as mount and unshare, which may be why it failed"
    line = "sandbox: plain" if facts.offers_plain and not facts.is_container else ""
    how = f": if it needs them, add to the job `{line}`" if line else ""
    return Cause(Wall.CALL_DENIED, f"{words}{how}", line, is_certain=False)


_RULES: dict[Sign, Callable[[Facts, Symptom], Cause | None]] = {
    Sign.RELAY: lambda _, symptom: _refused(symptom),
    Sign.NO_NAME: _unreached,
    Sign.NO_ROUTE: _unreached,
    Sign.NO_CONNECTION: _unreached,
    Sign.NO_ROOT: _no_root,
    Sign.NO_INTERPRETER: _no_program,
    Sign.NO_PROGRAM: _no_program,
    Sign.NOT_STARTED: _not_started,
    Sign.NO_FORMAT: _wrong_format,
    Sign.READ_ONLY: _read_only,
    Sign.NO_SPACE: _no_space,
    Sign.NO_PROCESS: _no_process,
    Sign.NO_MEMORY: _no_memory,
    Sign.NO_FILE: _no_file,
    Sign.DENIED: _denied,
    Sign.NOT_PERMITTED: _not_permitted,
}
