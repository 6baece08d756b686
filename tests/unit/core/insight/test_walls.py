"""What a step is told of the wall that it met: a row for each, and what must hold for all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.core.insight.symptoms import Sign, Symptom, read_symptom
from horae.core.insight.walls import Cause, Facts, Sight, Wall, decide
from horae.core.model import Reason

DOCS = Path(__file__).parents[4] / "docs" / "howto" / "troubleshooting.md"
MAY = re.compile(r"\bmay\b")


def told(said: str = "", code: int = 1, **facts: Any) -> Cause | None:
    facts = {"sandbox": "bubblewrap", "network": "off", "offers_plain": True} | facts
    return decide(Facts(code, said=said, symptom=read_symptom(said), **facts))


def cause(said: str = "", code: int = 1, **facts: Any) -> Cause:
    found = told(said, code, **facts)
    assert found is not None, said
    return found


# ── what output says ──

SYMPTOMS = [
    ("curl: (6) Could not resolve host: example.org", Sign.NO_NAME, "example.org"),
    ("wget: unable to resolve host address ‘example.org’", Sign.NO_NAME, "example.org"),
    ("socket.gaierror: [Errno -3] Temporary failure in name resolution", Sign.NO_NAME, ""),
    ("java.net.UnknownHostException: example.org", Sign.NO_NAME, "example.org"),
    ("Error: getaddrinfo EAI_AGAIN registry.example.org", Sign.NO_NAME, "registry.example.org"),
    ('psql: error: could not translate host name "db.example.org" to address: Name', Sign.NO_NAME, "db.example.org"),
    ("wget: bad address 'example.org'", Sign.NO_NAME, "example.org"),
    ("ssh: Could not resolve hostname git.example.org: Temporary failure", Sign.NO_NAME, "git.example.org"),
    ("dial tcp: lookup proxy.example.org: no such host", Sign.NO_NAME, "proxy.example.org"),
    ("ping: connect: Network is unreachable", Sign.NO_ROUTE, ""),
    ("curl: (7) Failed to connect to 10.0.0.7 port 80: Network is unreachable", Sign.NO_ROUTE, "10.0.0.7"),
    ('connection to server at "127.0.0.1", port 5432 failed: Connection refused', Sign.NO_CONNECTION, "127.0.0.1"),
    ("sh: 1: backup: not found", Sign.NO_PROGRAM, "backup"),
    ("/bin/sh: 1: ./backup.sh: not found", Sign.NO_PROGRAM, "./backup.sh"),
    ("bash: line 1: backup: command not found", Sign.NO_PROGRAM, "backup"),
    ("env: ‘python4’: No such file or directory", Sign.NO_PROGRAM, "python4"),
    ("/usr/bin/env: ‘python3\\r’: No such file or directory", Sign.NO_PROGRAM, "python3\\r"),
    ("bwrap: execvp /w/x.sh: No such file or directory", Sign.NO_PROGRAM, "/w/x.sh"),
    ("'/w/x.sh' could not be started: No such file or directory", Sign.NO_PROGRAM, "/w/x.sh"),
    ('Cannot run program "gcc": error=2, No such file or directory', Sign.NO_PROGRAM, "gcc"),
    ("bash: ./x: /opt/py: bad interpreter: No such file or directory", Sign.NO_INTERPRETER, "./x"),
    ("bash: line 1: ./x: cannot execute: required file not found", Sign.NO_INTERPRETER, "./x"),
    ("sh: 1: ./x.sh: Permission denied", Sign.NOT_STARTED, "./x.sh"),
    ("sh: 1: ./x: Exec format error", Sign.NO_FORMAT, ""),
    ("touch: cannot touch '/usr/x': Read-only file system", Sign.READ_ONLY, "/usr/x"),
    ("OSError: [Errno 30] Read-only file system: '/usr/x'", Sign.READ_ONLY, "/usr/x"),
    ("sh: 1: cannot create /x: Read-only file system", Sign.READ_ONLY, "/x"),
    ("cat: /srv/data.csv: No such file or directory", Sign.NO_FILE, "/srv/data.csv"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/srv/x'", Sign.NO_FILE, "/srv/x"),
    ("java.io.FileNotFoundException: /srv/x (No such file or directory)", Sign.NO_FILE, "/srv/x"),
    ("PermissionError: [Errno 13] Permission denied: '/etc/x'", Sign.DENIED, "/etc/x"),
    ("dd: error writing '/tmp/x': No space left on device", Sign.NO_SPACE, "/tmp/x"),
    ("MemoryError", Sign.NO_MEMORY, ""),
    ("java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory", Sign.NO_PROCESS, ""),
    ("sh: 1: Cannot fork", Sign.NO_PROCESS, ""),
    ('sudo: The "no new privileges" flag is set, which prevents sudo from running as root.', Sign.NO_ROOT, ""),
    ("sudo: effective uid is not 0, is /usr/bin/sudo on a file system with 'nosuid' set?", Sign.NO_ROOT, ""),
    ("mount: /mnt: Operation not permitted", Sign.NOT_PERMITTED, "/mnt"),
    ("── network: db.example.org:5432 cannot be reached: Connection refused ──", Sign.RELAY, "db.example.org"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "sign", "it"), SYMPTOMS)
def test_what_programs_say_is_read(said: str, sign: Sign, it: str) -> None:
    symptom = read_symptom(f"begins\n{said}\n")
    assert symptom is not None
    assert (symptom.sign, symptom.it) == (sign, it)


def test_the_last_line_that_says_anything_counts() -> None:
    said = (
        "cat: /srv/x: No such file or directory\ncurl: (6) Could not resolve host: example.org\nnpm ERR! see the log\n"
    )
    assert read_symptom(said) == Symptom(Sign.NO_NAME, "example.org")


def test_output_without_a_sign_says_nothing() -> None:
    assert read_symptom("3 tests failed\n") is read_symptom("") is None


@given(st.text(max_size=3000))
def test_no_output_breaks_the_reader(said: str) -> None:
    symptom = read_symptom(said)
    assert symptom is None or symptom.it in said


# ── the network ──


@pytest.mark.parametrize("said", [said for said, sign, _ in SYMPTOMS if sign in (Sign.NO_NAME, Sign.NO_ROUTE)])
def test_a_step_without_network_that_looks_for_one_is_told_so(said: str) -> None:
    found = cause(said)
    assert (found.code, found.is_certain) == (Wall.NETWORK_OFF, True)
    assert found.line.startswith("network: ")
    assert told(said, network="on") is None
    assert told(said, sandbox="plain") is None


def test_the_host_that_was_not_reached_is_named_in_the_line() -> None:
    assert cause("curl: (6) Could not resolve host: example.org").line == "network: [example.org]"
    refused = cause("curl: (7) Failed to connect to 10.0.0.7 port 8080: No route to host")
    assert refused.line == "network: [10.0.0.7:8080]"


def test_who_did_not_ask_for_a_network_is_told_that_none_is_the_default() -> None:
    assert "which is the default" not in cause("Name or service not known").sentence
    assert "which is the default" in cause("Name or service not known", network="default").sentence


def test_who_refuses_a_connection_may_be_within() -> None:
    assert not cause("psql: error: connection failed: Connection refused").is_certain
    own = cause('connection to server at "127.0.0.1", port 5432 failed: Connection refused')
    assert (own.code, own.line, own.is_certain) == (Wall.MACHINE_UNREACHED, "network: [127.0.0.1:5432]", False)
    found = cause('connection to server at "localhost", port 1 failed: Connection refused', network="on")
    assert found.code is Wall.MACHINE_UNREACHED


def test_a_host_that_is_not_listed_is_named_and_added_to_the_list() -> None:
    found = cause("curl: (6) Could not resolve host: example.org", network="listed", listed=("pypi.org:443",))
    assert (found.code, found.is_certain) == (Wall.NETWORK_UNLISTED, True)
    assert found.line == "network: [pypi.org:443, example.org]"
    assert not cause("Name or service not known", network="listed", listed=("pypi.org:443",)).is_certain


def test_a_listed_name_that_has_no_address_is_not_the_fault_of_the_list() -> None:
    assert told("Could not resolve host: pypi.org", network="listed", listed=("pypi.org:443",)) is None


def test_what_the_relay_refused_is_named_though_the_step_said_more_since() -> None:
    why = "it is the loopback of this machine, which allowed_networks does not have"
    said = f"── network: 127.0.0.1:5432 cannot be reached: {why} ──\npsql: error: server closed the connection\n"
    found = cause(said, network="listed", listed=("127.0.0.1:5432",))
    assert (found.code, found.line) == (Wall.NETWORK_REFUSED, 'allowed_networks = ["127.0.0.1:5432"]')
    assert "127.0.0.1:5432 could not be reached" in found.sentence


def test_a_program_that_ends_silently_as_without_a_network_is_told_so_too() -> None:
    assert cause(code=6, script="curl -s https://example.org").code is Wall.NETWORK_OFF
    assert not cause(code=6, script="curl -s https://example.org").is_certain
    assert told(code=6, script="curl -s x", network="on") is told(code=6, script="./check") is None
    assert told(code=3, script="curl -s x") is None


# ── files and programs ──


def test_a_file_of_the_machine_is_certain_only_where_it_was_seen() -> None:
    said = "cat: /srv/x: No such file or directory"
    seen = cause(said, sight=Sight(outside="/srv/x"))
    assert (seen.code, seen.line, seen.is_certain) == (Wall.FILE_HIDDEN, "sandbox: plain", True)
    assert told(said, sight=Sight(outside="")) is None
    unknown = cause(said, offers_plain=False)
    assert (unknown.line, unknown.is_certain) == ("checkout: {url: …}", False)
    assert told(said, sandbox="plain") is None


def test_a_relative_file_is_missed_in_a_directory_that_was_empty() -> None:
    assert "an empty directory" in cause("cat: data.csv: No such file or directory").sentence
    assert "its checkout" in cause("cat: data.csv: No such file or directory", has_checkout=True).sentence


def test_a_program_is_hidden_missing_or_either() -> None:
    said = "sh: 1: backup: not found"
    assert cause(said, 127, sight=Sight(outside="/opt/bin/backup")).code is Wall.COMMAND_HIDDEN
    assert cause(said, 127, sight=Sight(outside="")).code is Wall.COMMAND_MISSING
    maybe = cause(said, 127, offers_plain=False)
    assert (maybe.code, maybe.is_certain) == (Wall.COMMAND_HIDDEN, False)
    assert cause(said, 127, sandbox="docker").line == "image: …"
    own = cause(said, 127, sandbox="plain", sight=Sight(outside="/opt/bin/backup"))
    assert (own.code, own.line) == (Wall.COMMAND_MISSING, 'env: {PATH: "/opt/bin:/usr/bin:/bin"}')


@pytest.mark.parametrize("code", [126, 127])
def test_the_exit_code_of_a_shell_says_something_without_words(code: int) -> None:
    assert not cause(code=code).is_certain
    assert told(code=code, sandbox="plain") is None


@pytest.mark.parametrize("sandbox", ["plain", "bubblewrap", "docker"])
def test_a_script_says_by_its_first_line_why_it_was_not_found(sandbox: str) -> None:
    said = "sh: 1: ./x.sh: not found"
    ends = cause(said, 127, sandbox=sandbox, sight=Sight(is_inside=True, first_line="#!/bin/sh\r"))
    assert (ends.code, ends.line) == (Wall.LINE_ENDS, "run: sed -i 's/\\r$//' ./x.sh")
    absent = cause(said, 127, sandbox=sandbox, sight=Sight(is_inside=True, first_line="#!/opt/py/bin/python -u"))
    assert absent.code is Wall.INTERPRETER_MISSING
    assert "'/opt/py/bin/python'" in absent.sentence
    assert cause("env: ‘python3\\r’: No such file or directory", 127, sandbox=sandbox).code is Wall.LINE_ENDS


@pytest.mark.parametrize("sandbox", ["plain", "bubblewrap", "docker"])
def test_a_script_that_is_not_executable_is_told_so(sandbox: str) -> None:
    found = cause("sh: 1: ./x.sh: Permission denied", 126, sandbox=sandbox, sight=Sight(is_inside=True))
    assert (found.code, found.line) == (Wall.NOT_EXECUTABLE, "run: chmod +x ./x.sh && ./x.sh")


ROWS = [
    ("sh: 1: ./x: Exec format error", Wall.WRONG_FORMAT, False),
    ("touch: cannot touch '/usr/x': Read-only file system", Wall.READ_ONLY, True),
    ("PermissionError: [Errno 13] Permission denied: '/etc/x'", Wall.DENIED, False),
    ("sudo: effective uid is not 0, is sudo on a file system with nosuid", Wall.NO_ROOT, True),
    ("unshare: unshare failed: Operation not permitted", Wall.CALL_DENIED, False),
    ("open: /dev/kvm: No such file or directory", Wall.DEVICE_HIDDEN, False),
    ("dd: error writing '/tmp/x': No space left on device", Wall.NO_SPACE, True),
    ("cp: error writing 'x': No space left on device", Wall.NO_SPACE, False),
]


@pytest.mark.parametrize(("said", "wall", "is_certain"), ROWS)
def test_each_wall_has_its_words(said: str, wall: Wall, is_certain: bool) -> None:
    assert (cause(said).code, cause(said).is_certain) == (wall, is_certain)
    assert wall is Wall.WRONG_FORMAT or told(said, sandbox="plain") is None


# ── limits ──


def test_the_memory_limit_is_named_with_the_field_that_sets_it() -> None:
    found = cause(reason=Reason.OOM, memory=64 << 20, memory_field="resources")
    assert (found.code, found.line, found.is_certain) == (Wall.MEMORY_LIMIT, "resources: {memory: 128MiB}", True)
    assert "64MiB" in found.sentence
    assert cause(reason=Reason.OOM, memory=64 << 20).line == "limits: {memory: 128MiB}"
    assert not cause("MemoryError", memory=64 << 20).is_certain
    assert told("MemoryError") is None


def test_limits_of_processes_time_and_output_are_told() -> None:
    assert cause(reason=Reason.PROCESSES, pids=100).line == "limits: {pids: 200}"
    late = cause(reason=Reason.TIMEOUT, timeout_seconds=1.5, what="step 2 'load'")
    assert (late.code, late.line) == (Wall.TIMEOUT, "timeout: 3s")
    assert "step 2 'load' was still running" in late.sentence
    assert cause(reason=Reason.OUTPUT_LIMIT).code is Wall.OUTPUT_LIMIT
    assert told(reason=Reason.REQUESTED) is told(reason=Reason.LOST) is None


@pytest.mark.parametrize("code", [-9, 137])
def test_who_was_killed_by_nobody_here_may_have_used_up_the_memory(code: int) -> None:
    found = cause(code=code, sandbox="plain")
    assert (found.code, found.is_certain) == (Wall.KILLED, False)


# ── what holds for all ──

SIGHTS = st.builds(
    Sight, st.sampled_from([None, "", "/srv/x"]), st.booleans(), st.booleans(),
    st.sampled_from(["", "#!/bin/sh", "#!/bin/sh\r", "\x7fELF", "#!"]),
)  # fmt: skip
FACTS = st.builds(
    Facts,
    st.sampled_from([0, 1, 6, 126, 127, 128, 137, -9, -15]),
    st.sampled_from(["", "", "", *Reason]),
    st.one_of(
        st.none(),
        st.builds(Symptom, st.sampled_from(Sign), st.sampled_from(["", "x", "/x", "./x", "::1", "localhost"])),
    ),
    st.sampled_from(["", "── network: a.org:1 cannot be reached: no ──\n"]),
    sandbox=st.sampled_from(["plain", "bubblewrap", "docker"]),
    network=st.sampled_from(["on", "off", "default", "listed", "machine"]),
    offers_plain=st.booleans(),
    memory=st.sampled_from([None, 16 << 20, 1]),
    pids=st.sampled_from([None, 8]),
    timeout_seconds=st.sampled_from([None, 0.5, 90.0]),
    sight=SIGHTS,
)


@given(FACTS)
def test_what_is_not_certain_says_may(facts: Facts) -> None:
    found = decide(facts)
    if found is None:
        return
    assert found.is_certain or MAY.search(found.sentence)
    assert found.code in set(Wall)
    assert found.as_json()["code"] == found.code.value
    assert "\n" not in found.sentence
    assert not found.sentence.endswith(".")


@given(FACTS)
def test_plain_is_offered_only_where_it_may_be_had(facts: Facts) -> None:
    found = decide(facts)
    assert found is None or facts.offers_plain or "sandbox: plain" not in found.sentence + found.line


@given(FACTS)
def test_nothing_is_said_of_a_sandbox_to_who_has_none(facts: Facts) -> None:
    found = decide(facts)
    assert found is None or facts.is_walled or "sandbox" not in found.sentence


def test_every_wall_has_its_row_in_the_documentation() -> None:
    assert {wall.value for wall in Wall} <= set(re.findall(r"^\| `(\w+)` \|", DOCS.read_text(), re.MULTILINE))
