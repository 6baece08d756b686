"""What a failed step wrote last, read for signs of why it failed.

    read_symptom("curl: (6) Could not resolve host: example.org")   a name without an address: example.org

Lines are read from the last one upwards, and the first that says anything counts. What is found is what the step said,
not yet why: that is decided with all else that is known (core.insight.walls).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

SEEN = 4096  # bytes of output that are looked at: the last ones
_LINE = 600  # characters of a line
_LINES = 40


class Sign(StrEnum):
    """What a line tells of."""

    RELAY = "relay"  # the relay could not reach an address
    NO_NAME = "no_name"  # a name has no address
    NO_ROUTE = "no_route"  # no way leads there
    NO_CONNECTION = "no_connection"  # nobody answers there
    NO_ROOT = "no_root"  # a program that becomes root could not
    NO_INTERPRETER = "no_interpreter"  # what the first line of a script names is not there
    NO_PROGRAM = "no_program"
    NOT_STARTED = "not_started"  # a program may not be executed
    NO_FORMAT = "no_format"  # a file is no program of this machine
    READ_ONLY = "read_only"
    NO_SPACE = "no_space"
    NO_PROCESS = "no_process"
    NO_MEMORY = "no_memory"
    NO_FILE = "no_file"
    DENIED = "denied"
    NOT_PERMITTED = "not_permitted"  # a call to the kernel


@dataclass(frozen=True, slots=True)
class Symptom:
    sign: Sign
    it: str = ""  # the host, the file or the program that the line names
    why: str = ""  # what the line says of it, of a relay
    port: str = ""


_HOST = r"\[?(?P<it>[A-Za-z0-9_](?:[A-Za-z0-9_.:-]{0,252}[A-Za-z0-9_])?)"
_OPEN, _SHUT = r"['\"‘“`]?", r"['\"’”`]?"
_FILE = r"(?P<it>[^\s:'\"‘’“”`()]{1,300})"
_HOSTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"resolve (?:host ?name|host address|host|proxy)[: ]{{0,3}}{_OPEN}{_HOST}",
        rf"getaddrinfo \w{{1,20}} {_HOST}",
        rf"UnknownHostException: {_HOST}",
        rf"translate host name {_OPEN}{_HOST}",
        rf"bad address {_OPEN}{_HOST}",
        rf"host='{_HOST}'",
        rf"\blookup {_HOST}(?: on |:)",
        rf"(?:connect to|connection to(?: server at)?) {_OPEN}{_HOST}",
        r"(?P<it>[0-9]{1,3}(?:\.[0-9]{1,3}){3})",
    )
)
_PORT = re.compile(r"port[= ](?P<port>[0-9]{1,5})\b|[A-Za-z0-9\]]:(?P<after>[0-9]{2,5})\b")
_FILES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:directory|denied|system|permitted|device|quota exceeded): {_OPEN}{_FILE}{_SHUT}\s*$",
        rf"{_FILE}{_SHUT}: (?:No such|Permission|Read-only|Directory nonex|No space|Operation not|Disk quota)",
        rf"{_FILE} \((?:No such|Permission|Read-only)",
        rf"(?:NoSuchFileException|AccessDeniedException|can(?:no|')t open):? {_OPEN}{_FILE}",
        rf"Exception: {_FILE}",
    )
)
_SH = r"sh: (?:line )?(?:[0-9]{1,6}: )?"

# What is more precise comes first: a line may fit more than one.
_TABLE: tuple[tuple[Sign, re.Pattern[str]], ...] = tuple(
    (sign, re.compile(pattern, re.IGNORECASE))
    for sign, pattern in (
        (Sign.RELAY, r"── network: (?P<it>\S{1,255}):(?P<port>[0-9]{1,5}) cannot be reached: (?P<why>.{1,200}?) ──"),
        (Sign.NO_ROOT, r"no new privileges|effective uid is not 0|must be (?:set)?suid|must be setuid|su: cannot set"),
        (
            Sign.NO_NAME,
            r"(?:could not|unable to|cannot|can't|failed to) resolve (?:host|proxy)|name resolution"
            r"|name or service not known|no address associated|nodename nor servname|unknown ?host|bad address"
            r"|getaddrinfo|eai_again|translate host name|\blookup \S{1,255}: no such host",
        ),
        (Sign.NO_ROUTE, r"network is unreachable|network unreachable|no route to host|enetunreach|ehostunreach"),
        (
            Sign.NO_CONNECTION,
            r"connection refused|econnrefused|failed to establish a new connection|failed to connect to"
            r"|(?:could not|couldn't|can't|cannot) connect|connection timed out|connect: permission denied",
        ),
        (Sign.NO_INTERPRETER, rf"{_FILE}: \S{{1,200}}: bad interpreter"),
        (Sign.NO_INTERPRETER, rf"{_FILE}: cannot execute: required file"),
        (Sign.NO_PROGRAM, rf"{_FILE}: command not found"),
        (Sign.NO_PROGRAM, rf"{_SH}{_FILE}: not found"),
        (Sign.NO_PROGRAM, rf"env: {_OPEN}(?P<it>[^:'\"‘’]{{1,300}}){_SHUT}: No such file"),
        (Sign.NO_PROGRAM, rf"exec: {_OPEN}{_FILE}{_SHUT}: (?:not found|executable file not found)"),
        (Sign.NO_PROGRAM, rf"(?:execvp|run command) {_OPEN}{_FILE}{_SHUT}: No such file"),
        (Sign.NO_PROGRAM, rf"Cannot run program {_OPEN}{_FILE}{_SHUT}.{{0,200}} No such file"),
        (Sign.NO_PROGRAM, rf"{_OPEN}{_FILE}{_SHUT} could not be started: No such file"),
        (Sign.NOT_STARTED, rf"(?:execvp|run command) {_OPEN}{_FILE}{_SHUT}: Permission denied"),
        (Sign.NOT_STARTED, rf"{_OPEN}{_FILE}{_SHUT} could not be started: Permission denied"),
        (Sign.NOT_STARTED, rf"{_SH}{_FILE}: Permission denied"),
        (Sign.NO_FORMAT, r"exec format error|cannot execute binary file"),
        (Sign.READ_ONLY, r"read-only file system|erofs"),
        (Sign.NO_SPACE, r"no space left on device|disk quota exceeded|enospc"),
        (
            Sign.NO_PROCESS,
            r"cannot fork|can't fork|fork: retry|fork failed|can't start new thread"
            r"|unable to create (?:new )?native thread|fork: resource temporarily unavailable|pthread_create failed",
        ),
        (Sign.NO_MEMORY, r"memoryerror|cannot allocate memory|out of memory|outofmemoryerror|bad_alloc|enomem"),
        (
            Sign.NO_FILE,
            r"no such file or directory|directory nonexistent|can't open|cannot open|nosuchfileexception"
            r"|filenotfoundexception|enoent",
        ),
        (Sign.DENIED, r"permission denied|eacces|accessdeniedexception"),
        (Sign.NOT_PERMITTED, r"operation not permitted|eperm\b|function not implemented"),
    )
)  # fmt: skip
_OF_HOSTS = (Sign.NO_NAME, Sign.NO_ROUTE, Sign.NO_CONNECTION)
_OF_FILES = (Sign.READ_ONLY, Sign.NO_SPACE, Sign.NO_FILE, Sign.DENIED, Sign.NOT_PERMITTED)


def read_symptom(said: str) -> Symptom | None:
    """Return the last sign in the end of an output."""
    return next(_symptoms(said), None)


def relayed(said: str) -> Symptom | None:
    """Return the last address that the relay could not reach."""
    return next((one for one in _symptoms(said) if one.sign is Sign.RELAY), None)


def _symptoms(said: str) -> Iterator[Symptom]:
    lines = [line for line in said.split("\n") if line.strip()]
    for line in reversed(lines[-_LINES:]):
        if (found := _read_line(line[:_LINE])) is not None:
            yield found


def _read_line(line: str) -> Symptom | None:
    for sign, pattern in _TABLE:
        if (match := pattern.search(line)) is not None:
            groups = {name: text for name, text in match.groupdict().items() if text}
            if sign in _OF_HOSTS:
                return Symptom(sign, _first(_HOSTS, line), port=_port(line))
            it = _first(_FILES, line) if sign in _OF_FILES else groups.get("it", "")
            return Symptom(sign, it, groups.get("why", ""), groups.get("port", ""))
    return None


def _first(patterns: tuple[re.Pattern[str], ...], line: str) -> str:
    return next((match["it"] for pattern in patterns if (match := pattern.search(line))), "")


def _port(line: str) -> str:
    match = _PORT.search(line)
    return (match["port"] or match["after"]) if match else ""
