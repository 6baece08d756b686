"""The command line and its client, against a small server that answers as told.

Streams are tested with real processes and a real pseudo-terminal. Ids in comments are rows of the bad-input
catalogue.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

import horae.cli
from horae.cli import EXIT_CODES, app, screen
from horae.cli.commands import COMMANDS
from horae.cli.jobfiles import MAX_BYTES, media_type, read_file
from horae.cli.runs.batches import _size_of
from horae.cli.runs.runs import exit_code_of_run
from horae.cli.when import read_when
from horae.client.address import server_url
from horae.errors import CODES, ConfigError, Error, Invalid
from horae.ports.work import Sandboxes
from tests.unit.fake_api import (
    JOB,
    NODE,
    PREVIEW,
    RUN,
    TRIGGER,
    Answer,
    Fake,
    Request,
    events,
    log_of,
    page,
    problem,
    serving,
)

PATIENCE = 180.0


@pytest.fixture
def api() -> Iterator[Fake]:
    with serving() as fake:
        yield fake


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()


def invoke(api: Fake | None, *args: str) -> Any:
    return CliRunner().invoke(app, [*args, *(["--server", api.url] if api else [])])


def start(*args: str, **options: Any) -> subprocess.Popen[bytes]:
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    # A shell that runs the tests in the background makes them ignore Ctrl-C; our command must not inherit that.
    return subprocess.Popen([sys.executable, "-m", "horae", *args], preexec_fn=_hear_interrupts, **streams)


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(process: subprocess.Popen[bytes], text: bytes | None = None) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(text, timeout=PATIENCE)
    finally:
        process.kill()  # one that does not end
    return process.returncode, out.decode(), err.decode()


def on_terminal(*args: str, columns: int = 100, **env: str) -> tuple[int, str]:
    """Return the exit code and everything a terminal got to see."""
    mine, theirs = pty.openpty()
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), **env}
    process = start(*args, stdin=theirs, stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # a terminal whose other end is gone cannot be read
        while select.select([mine], [], [], PATIENCE)[0]:
            if not (piece := os.read(mine, 65536)):
                break
            seen += piece
    os.close(mine)
    return process.wait(PATIENCE), seen.decode()


# ── the frame ──────────────────────────────────────────────────────────────────────────────────────


def test_without_arguments_help_is_shown_on_stdout() -> None:  # E01
    result = invoke(None)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Usage: horae" in result.stdout


def test_the_help_lists_every_command_and_exit_code() -> None:
    shown = invoke(None, "--help").stdout
    for word in ("up", "submit", "jobs", "triggers", "runs", "logs", "run", "cancel", "pause", "resume", "preview"):
        assert f"\n  {word} " in shown
    for code, meaning in EXIT_CODES.items():
        assert f"{code}  {meaning}" in shown


def every_command(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from every_command(command.get_command(None, name), (*path, name))


@pytest.mark.parametrize("path", list(every_command(app)), ids=" ".join)
def test_the_help_of_every_command_has_an_example_and_json(path: tuple[str, ...]) -> None:
    result = invoke(None, *path, "--help")
    assert result.exit_code == 0
    assert "Example: horae " + " ".join(path) in " ".join(result.stdout.split())
    assert "--json" in result.stdout or path in (("exec",), ("mcp",)), "they write what another speaks"


@pytest.mark.parametrize("path", [(), ("runs",), ("runs", "show"), ("up",)], ids=" ".join)
def test_help_has_a_short_form_on_every_command(path: tuple[str, ...]) -> None:
    result = invoke(None, *path, "-h")
    assert (result.exit_code, result.stdout) == (0, invoke(None, *path, "--help").stdout)
    assert "-h, --help" in result.stdout


def test_an_unknown_flag_is_answered_with_the_nearest() -> None:  # E03
    result = invoke(None, "jobs", "--naem", "x")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "error[E_USAGE]: there is no option --naem\nhint: did you mean --name? see `horae jobs" in result.stderr


def test_an_unknown_command_is_answered_with_the_nearest() -> None:
    result = invoke(None, "sumbit")
    assert result.exit_code == 2
    assert "error[E_USAGE]: there is no command sumbit\nhint: did you mean `horae submit`? see" in result.stderr


def test_the_version_is_shown() -> None:
    assert invoke(None, "--version").stdout.startswith("horae 0.")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("runs", "show", "abc"), "RUN must be a whole number from 1; got 'abc'"),
        (("runs", "show", "0"), "RUN must be a whole number from 1; got '0'"),
        (("runs", "--limit", "0"), "--limit must be a whole number from 1 to 100000; got '0'"),
        (("runs", "show"), "argument 'RUN...' is missing"),
        (("triggers", "move", "3"), "option '--to' is missing"),
        (("preview", "* * * * *", "--count", "1001"), "--count must be a whole number from 1 to 1000"),
    ],
)
def test_arguments_that_make_no_sense_are_usage_errors(args: tuple[str, ...], message: str) -> None:
    result = invoke(None, *args)
    assert result.exit_code == 2
    assert f"error[E_USAGE]: {message}" in result.stderr


@pytest.mark.parametrize("args", [("--json", "runs"), ("runs", "--json"), ("--json", "runs", "show", "42")])
def test_shared_options_stand_before_or_after_the_command(api: Fake, args: tuple[str, ...]) -> None:
    assert json.loads(invoke(api, *args).stdout)


def test_nodes_tells_what_is_caught_up_and_what_cannot_be_read(api: Fake) -> None:
    why = "trigger 9 cannot be read on this node: no time zone 'Mars/Olympus_Mons'"
    api.get("/v1/overview", {"node": "n1", "catch_up": {"triggers": 3, "moments": 700}, "unreadable": {"9": why}})

    result = invoke(api, "nodes")

    assert result.exit_code == 0
    assert "n1 catches up: 3 triggers, about 700 moments" in result.stderr
    assert f"n1: {why}" in result.stderr


def test_handlers_are_listed_with_what_is_wrong_with_them(api: Fake) -> None:
    known = {"node": "n1", "kind": "async", "version": "0123456789ab", "file": "/jobs/a/job.py", "loaded_at": None}
    items = [{"name": "jobs/a", **known, "error": ""}, {"name": "jobs/b", **known, "error": "SyntaxError: line 3"}]
    nodes = [
        {"name": "n1", "state": "listed", "note": ""},
        {"name": "n2", "state": "silent", "note": "did not answer within 2 s"},
        {"name": "n3", "state": "unknown", "note": "it is older than this question: upgrade it"},
    ]
    api.get("/v1/handlers", {"items": items, "nodes": nodes, "cursor": None})

    result = invoke(api, "handlers")

    assert result.exit_code == 0
    assert "0123456789ab" in result.stdout
    assert "warning: n1" not in result.stderr
    assert "n2: did not answer within 2 s" in result.stderr
    assert "n3: unknown: it is older than this question: upgrade it" in result.stderr
    assert "jobs/b on n1: SyntaxError: line 3" in result.stderr
    assert json.loads(invoke(api, "handlers", "--json").stdout)["items"] == items


def test_the_server_may_come_from_the_environment(api: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORAE_SERVER", api.url)
    assert CliRunner().invoke(app, ["nodes"]).exit_code == 0


def test_the_port_may_come_from_the_environment_as_the_servers_does(api: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORAE_PORT", api.url.rpartition(":")[2])
    assert CliRunner().invoke(app, ["nodes"]).exit_code == 0
    monkeypatch.setenv("HORAE_SERVER", "http://127.0.0.1:1")  # is named, and wins
    assert "no Horae at http://127.0.0.1:1" in CliRunner().invoke(app, ["nodes"]).stderr
    assert invoke(api, "nodes").exit_code == 0


@pytest.mark.parametrize("port", ["x", "0", "65536", "-1", "80 80"])
def test_a_port_of_the_environment_that_is_none_is_refused(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORAE_PORT", port)
    result = CliRunner().invoke(app, ["nodes"])
    assert result.exit_code == 2
    assert f"error[E_CONFIG]: HORAE_PORT must be a whole number from 1 to 65535; got {port!r}" in result.stderr


def test_a_token_is_sent_from_where_it_is_named_first(
    api: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("flag", "file"):
        (tmp_path / name).write_text(f"token-of-{name}\n")

    def sent(*args: str) -> str | None:
        assert invoke(api, "nodes", *args).exit_code == 0
        return api.requests[-1].headers.get("authorization")

    assert sent() is None
    monkeypatch.setenv("HORAE_TOKEN_FILE", str(tmp_path / "file"))
    assert sent() == "Bearer token-of-file"
    monkeypatch.setenv("HORAE_TOKEN", "token-of-environment")
    assert sent() == "Bearer token-of-environment"
    assert sent("--token-file", str(tmp_path / "flag")) == "Bearer token-of-flag"


@pytest.mark.parametrize(
    ("content", "code"), [("", "E_FILE"), ("two words", "E_TOKEN"), ("a\nb", "E_TOKEN"), ("é", "E_TOKEN")]
)
def test_what_is_no_token_is_not_sent(api: Fake, tmp_path: Path, content: str, code: str) -> None:
    (tmp_path / "t").write_text(content)
    result = invoke(api, "nodes", "--token-file", str(tmp_path / "t"))
    assert f"error[{code}]" in result.stderr
    assert api.requests == []


def test_files_of_tokens_and_authorities_that_are_not_there_are_named(api: Fake, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    for server, option in ((api.url, "--token-file"), ("https://127.0.0.1:1", "--ca-file")):
        result = CliRunner().invoke(app, ["nodes", "--server", server, option, gone])
        assert result.exit_code == 1
        assert "error[E_FILE]" in result.stderr
        assert gone in result.stderr


def test_a_refused_token_tells_what_to_do(api: Fake) -> None:
    api.get("/v1/nodes", problem(401, "E_TOKEN", "this needs a token", hint="give it with --token-file"))
    result = invoke(api, "nodes")
    assert result.exit_code == 3
    assert "error[E_TOKEN]: this needs a token" in result.stderr
    assert "--token-file" in result.stderr


def test_a_fault_of_ours_is_one_line_and_no_stack_trace(api: Fake) -> None:
    api.get("/v1/nodes", {"items": [{"unexpected": True}]})
    result = invoke(api, "nodes")
    assert result.exit_code == 1
    assert result.stderr.startswith("error[E_INTERNAL]: KeyError")
    assert "Traceback" not in result.stderr


# What takes longer to load than a request takes to be answered.
HEAVY = ("aiohttp", "asyncio", "asyncpg", "cryptography", "grpc", "httpx", "jinja2", "msgspec", "obstore", "pydantic",
         "pygments", "rich", "structlog", "uvicorn", "yaml", "horae.app", "horae.core.model", "horae.service",
         "horae.schemas")  # fmt: skip


@pytest.mark.parametrize(
    ("args", "most", "never"),
    [
        (["--help"], 130, ("horae.client", "horae.settings", "horae.cli.jobs", "pathlib", "socket", "ssl", "urllib")),
        (["jobs", "--help"], 135, ("horae.client", "horae.settings", "pathlib", "ssl", "urllib")),
        (["jobs"], 165, ("horae.settings", "horae.values", "horae.cli.runs.runs", "pathlib", "ssl")),
        (["runs", "--json"], 165, ("horae.settings", "horae.values", "horae.cli.local", "pathlib", "ssl")),
    ],
)
def test_a_command_loads_only_what_it_needs(api: Fake, args: list[str], most: int, never: tuple[str, ...]) -> None:
    code = (
        "import sys; from horae.cli import app; sys.argv[1:] = sys.argv[2:]\n"
        "try: app()\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "print('\\n' + ' '.join(sys.modules))"
    )
    server = {**os.environ, "HORAE_SERVER": api.url}
    done = subprocess.run(
        [sys.executable, "-c", code, "horae", *args], capture_output=True, text=True, timeout=PATIENCE, env=server
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.splitlines()[-1].split())
    assert sorted(loaded & {*HEAVY, *never}) == []
    assert len(loaded) <= most


def test_a_command_with_threads_ends_as_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("horae.cli.app", lambda: sys.exit(5))
    monkeypatch.setattr("os._exit", ended.append)
    monkeypatch.delitem(sys.modules, "horae.app", raising=False)
    monkeypatch.setattr("threading.active_count", lambda: 1)
    horae.cli.main()
    assert ended == [5]
    monkeypatch.setattr("threading.active_count", lambda: 2)
    with pytest.raises(SystemExit) as end:
        horae.cli.main()
    assert (end.value.code, ended) == (5, [5])


def test_the_list_of_commands_says_of_each_what_it_says_itself() -> None:
    for name, (_, said) in COMMANDS.items():
        told = app.get_command(None, name)
        assert told is not None
        assert " ".join((told.help or "").split("\n\n")[0].split()).startswith(said), name
        assert said.endswith("."), name


def _said_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield where a message names a command of ours, and its words."""
    source = Path(horae.cli.__file__).parent.parent
    for file in source.rglob("*.py"):
        if "`horae " not in (text := file.read_text()) and '"horae ' not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            is_hint = isinstance(node, ast.keyword) and node.arg == "hint"
            said = _text_of(node.value if isinstance(node, ast.keyword) else node)
            for found in re.finditer(rf"(?:{'^' if is_hint else '(?!)'}|`)horae ((?:[a-z][a-z-]*(?: |$|`))+)", said):
                yield f"{file.relative_to(source)}: {found[0]}", found[1].strip("` ").split()


def _text_of(node: ast.AST) -> str:
    """Return a text as it is written, with a gap for what is put into it."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in parts)


def test_every_command_that_a_message_names_is_there() -> None:
    missing, count = [], 0
    for where, words in _said_commands():
        command, count = app.get_command(None, words[0]), count + 1
        further = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else None
        if command is None or (further and words[1:] and words[1] not in further):
            missing.append(where)
    assert missing == []
    assert count > 50


# ── errors and exit codes ──────────────────────────────────────────────────────────────────────────


def test_without_a_server_the_way_to_start_one_is_told() -> None:
    result = CliRunner().invoke(app, ["runs", "--server", "http://127.0.0.1:1"])
    assert result.exit_code == 6
    assert "no Horae at http://127.0.0.1:1; start one with `horae up`" in result.stderr


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [(400, "E_SYNTAX", 2), (401, "E_POLICY", 3), (403, "E_POLICY", 3), (404, "E_NOT_FOUND", 4), (409, "E_TERMINAL", 5),
     (412, "E_VERSION_CONFLICT", 5), (413, "E_TOO_LARGE", 1), (415, "E_MEDIA_TYPE", 2), (422, "E_TYPE", 2),
     (429, "E_LIMITED", 6), (500, "E_INTERNAL", 1), (503, "E_UNAVAILABLE", 6)],
)  # fmt: skip
def test_what_the_server_refuses_is_told_in_its_words(api: Fake, status: int, code: str, exit_code: int) -> None:
    api.post("/v1/runs/42/cancel", problem(status, code, "it will not", hint="do this"))
    result = invoke(api, "cancel", "42")
    assert result.exit_code == exit_code
    assert result.stderr == f"error[{code}]: it will not\nhint: do this\n"


@pytest.mark.parametrize(
    ("args", "code", "exit_code"),
    [(("cancel", "42"), "E_TERMINAL", 5), (("runs", "--naem"), "E_USAGE", 2), (("nothing",), "E_USAGE", 2),
     (("runs", "show", "x"), "E_USAGE", 2), (("submit", "nowhere"), "E_FILE", 1),
     (("jobs", "show", "x"), "E_NOT_FOUND", 4), (("runs", "--since", "x"), "E_USAGE", 2),
     (("check", "--port", "x"), "E_CONFIG", 2)],
)  # fmt: skip
@pytest.mark.parametrize("is_first", [True, False])
def test_with_json_every_error_is_an_object_on_stderr(
    api: Fake, args: tuple[str, ...], code: str, exit_code: int, is_first: bool
) -> None:
    api.post("/v1/runs/42/cancel", problem(409, "E_TERMINAL", "it has ended\x1b[2J", hint="let it be"))
    api.get("/v1/jobs", page())
    given = ["--json", *args] if is_first else [*args, "--json"]
    result = invoke(None if args[0] in ("check", "nothing") else api, *given)
    [line] = result.stderr.splitlines()
    shown = json.loads(line)
    assert (result.stdout, result.exit_code, shown["exit_code"], shown["code"]) == ("", exit_code, exit_code, code)
    assert shown["message"]
    assert "\x1b" not in line


def test_with_json_every_problem_of_a_document_is_in_the_object(api: Fake, tmp_path: Path) -> None:
    wrong = [
        {"path": "name", "code": "E_REQUIRED", "message": "is missing"},
        {"path": "a", "code": "E_TYPE", "message": "b"},
    ]
    api.post("/v1/jobs", problem(422, "E_REQUIRED", "name: is missing (and 1 more)", errors=wrong))
    (tmp_path / "j.yaml").write_text("a: 1")
    assert json.loads(invoke(api, "submit", "j.yaml", "--json").stderr)["errors"] == wrong


def test_json_as_a_word_of_somebody_else_is_no_option(api: Fake) -> None:
    api.get("/v1/jobs", page())
    result = CliRunner().invoke(app, ["--server", api.url, "jobs", "show", "--", "--json"])
    assert result.stderr.startswith("error[E_NOT_FOUND]")


def test_every_problem_of_a_document_is_listed(api: Fake, tmp_path: Path) -> None:
    wrong = [
        {"path": "name", "code": "E_REQUIRED", "message": "is missing"},
        {"path": "steps[0].run", "code": "E_TYPE", "message": "text expected", "hint": "quote it"},
    ]
    api.post("/v1/jobs", problem(422, "E_REQUIRED", "name: is missing (and 1 more)", errors=wrong))
    (tmp_path / "j.yaml").write_text("a: 1")
    result = invoke(api, "submit", "j.yaml")
    assert result.exit_code == 2
    assert "error[E_REQUIRED]: j.yaml: name: is missing (and 1 more)" in result.stderr
    assert "  - steps[0].run: text expected (quote it)\n" in result.stderr


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("E_DB_UNREACHABLE", 6), ("E_DB_READ_ONLY", 6), ("E_DB_VERSION", 1), ("E_SINGLE_NODE_LOCK", 5),
     ("E_SCHEMA_NEWER", 1), ("E_SCHEMA_DRIFT", 1), ("E_LISTEN", 1), ("E_CONFIG", 2)],
)  # fmt: skip
def test_a_refused_start_says_why_and_what_to_do(
    code: str, exit_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # E31-E43
    async def serve(config: Any, on_ready: Any) -> None:
        raise ExceptionGroup("start", [ConfigError("not like this", code=code, hint="do that")])

    monkeypatch.setitem(sys.modules, "horae.app.process", module(serve=serve))
    result = invoke(None, "up")
    assert result.exit_code == exit_code
    assert result.stderr == f"error[{code}]: not like this\nhint: do that\n"


def module(**members: Any) -> types.ModuleType:
    made = types.ModuleType("horae.app.process")
    vars(made).update(members)
    return made


def test_every_error_has_a_documented_exit_code() -> None:
    from horae.cli.session import exit_code_of

    tree = [kind for kind in Error.__subclasses__() if kind.__module__ == Error.__module__]
    for kind in [Error, *tree]:
        for code in CODES:
            assert exit_code_of(kind("", code=code)) in set(EXIT_CODES) - {0}


@pytest.mark.parametrize(
    "reply", [(200, b"<html>hi</html>"), (200, [1]), (404, b"nothing here"), (200, b"\xff"), {"status": "up"}]
)
def test_another_server_is_not_taken_for_horae(api: Fake, reply: Answer) -> None:
    api.get("/v1/nodes", reply)
    api.get("/healthz", (404, b""))
    result = invoke(api, "nodes")
    assert result.exit_code == 6
    assert "not as Horae does" in result.stderr


@pytest.mark.parametrize("reply", [problem(404, "E_NOT_FOUND", "no such page"), (404, b""), (405, b""), (501, b"")])
def test_a_server_without_the_call_is_named_with_its_version(api: Fake, reply: Answer) -> None:  # E19
    api.get("/healthz", {"status": "ok", "version": "1.4.0"})
    api.post("/v1/preview", reply)
    result = invoke(api, "preview", "0 2 * * *")
    assert result.exit_code == 6
    assert "server 1.4.0 does not support POST /v1/preview" in result.stderr


# ── addresses ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("localhost", "http://localhost"),
        (" http://LocalHost:80/ ", "http://localhost:80"),
        ("https://horae.example", "https://horae.example"),
        ("https://horae.example:8443/", "https://horae.example:8443"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("http://[::1]", "http://[::1]"),
    ],
)
def test_a_server_can_be_written_in_several_ways(given: str, used: str) -> None:  # E17
    assert server_url(given) == used


@pytest.mark.parametrize(
    "given",
    ["", "::1", "ftp://127.0.0.1", "http://", "http://127.0.0.1:0", "http://127.0.0.1:99999", "http://127.0.0.1/v1",
     "http://127.0.0.1?x=1", "http://me:secret@127.0.0.1", "http://[::1", "http://a b", "file:///etc/passwd"],
)  # fmt: skip
def test_what_is_no_server_is_refused(given: str) -> None:  # E17
    with pytest.raises(Invalid) as caught:
        server_url(given)
    assert caught.value.code == "E_URL"


def test_plain_text_to_another_machine_needs_to_be_asked_for() -> None:  # E17
    result = CliRunner().invoke(app, ["runs", "--server", "http://horae.example:8080"])
    assert result.exit_code == 2
    assert "error[E_URL]" in result.stderr
    assert "--insecure" in result.stderr
    assert server_url("http://horae.example:8080", insecure=True) == "http://horae.example:8080"


# ── files ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_missing_file_or_a_directory_is_told_with_its_path(api: Fake, tmp_path: Path) -> None:  # E07
    there_is = {
        "nowhere.yaml": "cannot be read: No such file or directory",
        str(tmp_path): "no job file in this directory",
    }
    for name, reason in there_is.items():
        result = invoke(api, "submit", name)
        assert result.exit_code == 1
        assert result.stderr.splitlines()[0] == f"error[E_FILE]: {name}: {reason}"
    assert api.requests == []


def test_a_file_without_permission_is_told(tmp_path: Path) -> None:  # E07
    secret = tmp_path / "secret.yaml"
    secret.write_text("name: x")
    secret.chmod(0)
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(Error, match="Permission denied") as caught:
            read_file(str(secret))
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
    assert caught.value.code == "E_FILE"


def test_a_pipe_that_nobody_writes_to_does_not_block(api: Fake) -> None:  # E07
    os.mkfifo("p")
    result = invoke(api, "submit", "p")
    assert result.exit_code == 1
    assert "p: cannot be read: it is a pipe, and nobody writes to it" in result.stderr


def test_a_pipe_is_read_to_its_end() -> None:
    os.mkfifo("p")
    reading = os.open("p", os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open("p", os.O_WRONLY)

    def write() -> None:
        os.write(writing, b"name: ")
        os.write(writing, b"x")
        os.close(writing)

    writer = threading.Timer(0.05, write)
    writer.start()
    assert read_file("p") == b"name: x"
    writer.join()
    os.close(reading)


def test_an_endless_file_is_cut_off(api: Fake) -> None:  # E07
    result = invoke(api, "submit", "/dev/zero")
    assert result.exit_code == 1
    assert "error[E_TOO_LARGE]: /dev/zero: larger than 268435456 bytes (256 MiB)" in result.stderr


def test_endless_input_is_cut_off(api: Fake) -> None:  # E07
    process = start("submit", "-", "--server", api.url, stdin=subprocess.PIPE)
    code, _, err = finish(process, b"x" * (MAX_BYTES + 1))
    assert (code, api.requests) == (1, [])
    assert "error[E_TOO_LARGE]: -: the body has 1048577 bytes" in err  # as YAML, one document


def test_an_at_sign_is_just_a_character(api: Fake) -> None:  # E09
    result = invoke(api, "submit", "@/etc/passwd")
    assert result.stderr == "error[E_FILE]: @/etc/passwd: cannot be read: No such file or directory\n"
    result = invoke(api, "run", "7", "--data", "@/etc/passwd")
    assert result.exit_code == 2
    assert "root:" not in result.output


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [("a.json", b"{", "json"), ("a.yaml", b"{}", "yaml"), ("a.yml", b"{}", "yaml"), ("-", b'{"name": "x"}', "json"),
     ("-", b"name: x", "yaml"), ("-", b"{name: x}", "yaml"), ("-", b"\xff", "yaml"), ("job", b"[" * 100_000, "yaml")],
)  # fmt: skip
def test_the_language_of_a_file_is_known_by_its_name_or_content(name: str, content: bytes, expected: str) -> None:
    assert media_type(name, content) == f"application/{expected}"


# ── streams and terminals ──────────────────────────────────────────────────────────────────────────


def test_a_closed_pipe_ends_the_command_quietly(api: Fake) -> None:  # E11
    api.get("/v1/jobs", page(*([JOB] * 5000)))
    process = start("jobs", "--limit", "5000", "--server", api.url)
    assert process.stdout is not None
    assert process.stdout.readline().split() == [b"ID", b"NAME", b"KIND", b"SCHEDULE", b"NEXT", b"STATE"]
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(PATIENCE) in (0, 141)


def test_a_terminal_gets_colour_and_symbols(api: Fake) -> None:
    code, seen = on_terminal("runs", "--server", api.url)
    assert code == 0
    assert "✓ succeeded" in seen
    assert "\x1b[32m" in seen


def test_no_color_is_honoured_on_a_narrow_terminal(api: Fake) -> None:  # E13
    for command, expected in ((["runs"], 0), (["jobs", "show", "7"], 0), (["runs", "--naem"], 2)):
        code, seen = on_terminal(*command, "--server", api.url, columns=20, NO_COLOR="1")
        assert code == expected, seen
        assert "\x1b" not in seen


def test_a_pipe_gets_plain_aligned_text(api: Fake) -> None:  # E13
    api.get("/v1/runs", page(RUN, {**RUN, "id": 1041, "state": "failed", "reason": "exit", "exit_code": 3}))
    result = invoke(api, "runs")
    assert result.stdout.splitlines() == [
        "  ID  JOB     STATE      DUE                  LATE   TOOK  REMARK",
        "  42  backup  succeeded  2027-01-15 08:00:00   3ms  1m15s",
        "1041  backup  failed     2027-01-15 08:00:00   3ms  1m15s  exit, exit code 3",
    ]


WIDE = ({**RUN, "job_name": "夜間バックアップ"}, {**RUN, "job_name": "🎉 party"}, {**RUN, "job_name": "plain"})


def test_names_of_any_language_leave_the_columns_aligned(api: Fake) -> None:
    api.get("/v1/runs", page(*WIDE))
    lines = invoke(api, "runs").stdout.splitlines()
    assert (
        len({cell_len(line[: line.index(word)]) for line, word in zip(lines, ["STATE", *["succ"] * 3], strict=True)})
        == 1
    )
    seen = on_terminal("runs", "--server", api.url, NO_COLOR="1")[1]
    rows = [line for line in seen.splitlines() if "✓" in line]
    assert {cell_len(line[: line.index("✓")]) for line in rows} == {22}


@pytest.mark.parametrize(("columns", "left"), [(40, "id job state"), (60, "id job state due"), (200, "")])
def test_a_narrow_terminal_keeps_the_columns_that_matter_and_names_the_others(
    api: Fake, columns: int, left: str
) -> None:
    why = {"state": "failed", "reason": "exit", "message": "step 1 'load' ended with exit code 3"}
    api.get("/v1/runs", page(*WIDE, {**RUN, **why}))
    code, seen = on_terminal("runs", "--server", api.url, columns=columns, NO_COLOR="1")
    lines = seen.splitlines()
    every = ["id", "job", "state", "due", "late", "took", "remark"]
    assert code == 0
    assert lines[0].split() == (left.split() or every)
    assert max(map(cell_len, [line for line in lines if "narrow" not in line])) <= columns
    assert next(line.split()[1:4] for line in lines if "plain" in line) == ["plain", "✓", "succeeded"]
    assert len([line for line in lines if "✓" in line or "✗" in line]) == 4
    hidden = ", ".join(name for name in every if name not in left.split())
    assert (f"this terminal is too narrow for: {hidden}" in seen) is bool(left)


EVIL = "a\x1b]0;owned\x07\x1b[2J\u202eb\nc\x9bd"


def test_S51_control_characters_of_others_never_reach_a_terminal(api: Fake) -> None:
    evil = {**JOB, "name": EVIL, "triggers": [{**TRIGGER, "description": EVIL}]}
    api.get("/v1/jobs", page(evil))
    api.get("/v1/jobs/7", evil)
    api.get("/v1/runs", page({**RUN, "state": "failed", "message": EVIL}))
    api.get("/v1/runs/42/log", (200, EVIL.encode(), {"Horae-Log-Offset": str(len(EVIL.encode()))}))
    api.post("/v1/runs/42/cancel", problem(409, "E_TERMINAL", EVIL, hint=EVIL))
    commands = (["jobs"], ["jobs", "show", "7"], ["runs"], ["logs", "42"], ["cancel", "42"], ["jobs", "--json"])
    for command in commands:
        _, seen = on_terminal(*command, "--server", api.url, NO_COLOR="1")
        assert "owned" in seen, command
        assert not set(seen) & set("\x1b\x07\u202e\x9b"), command


def test_a_job_name_stays_on_one_line_in_a_pipe(api: Fake) -> None:
    api.get("/v1/jobs", page({**JOB, "name": EVIL}))
    assert len(invoke(api, "jobs").stdout.splitlines()) == 2


def test_log_text_in_a_pipe_is_what_the_job_wrote(api: Fake) -> None:
    text = "\x1b[31mred\x1b[0m\ttab\r\nend"
    api.get("/v1/runs/42/log", log_of(text.encode()))
    code, out, _ = finish(start("logs", "42", "--server", api.url))
    assert (code, out) == (0, text)


def test_text_that_the_terminal_cannot_show_is_no_crash(api: Fake) -> None:
    api.get("/v1/jobs", page({**JOB, "name": "späße 日本"}))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    code, out, err = finish(start("jobs", "--server", api.url, env=environment))
    assert (code, err) == (0, "")
    assert "sp\\xe4" in out


def test_a_log_on_a_terminal_keeps_lines_and_loses_colours() -> None:
    assert screen.clean_log("\x1b[1;31mred\x1b[0m\ta\r\nb\rc\x00\x1b[2J") == "red\ta\nb\nc\\x00\\x1b[2J"


QUEUE = {
    "name": "reports-of-the-night", "state": "open", "concurrency": 5, "rate": "100/min", "burst": 20, "figures": {
        "waiting": 10_000, "waiting_is_cut": True, "blocked": {"limit": 17, "later": 4}, "blocked_is_cut": False,
        "running": 5, "oldest_wait_seconds": 70.0, "in_last_minute": 100, "out_last_minute": 100},
}  # fmt: skip
TOKEN = {"id": 3, "name": "laptop of ann", "scope": "user", "owner": "ann", "org": 1, "role": "admin", "state": "good",
         "created_at": "2027-01-15T08:00:00Z", "expires_at": None, "node": None}  # fmt: skip
AGENT_TOKEN = {
    **TOKEN,
    "scope": "agent",
    "role": None,
    "node": "n1",
    "kinds": ["*"],
    "labels": ["gpu"],
    "resources": [],
}
USER = {"name": "ann", "kind": "local", "email": "ann@example.org", "roles": {"default": "admin"}, "state": "good",
        "created_at": "2027-01-15T08:00:00Z"}  # fmt: skip
GRANT = {"id": 7, "who": "bob", "role": "operator", "job": None, "tag": "nightly", "queue": None,
         "created_by": "ann of the house", "created_at": "2027-01-15T08:00:00Z"}  # fmt: skip
ALERT = {"id": 1, "rule": "night", "name": "backup of the house", "count": 3, "since_at": "2027-01-15T08:00:00Z",
         "last_at": "2027-01-15T08:00:00Z", "acked_by": "", "text": "failed 3 times"}  # fmt: skip


def test_tokens_of_agents_that_are_to_be_replaced_are_shown(api: Fake) -> None:
    given = [{"by_hash": True}, {"by_hash": True, "state": "revoked"}, {"by_hash": False}, {}]
    api.get("/v1/tokens", page(*({**AGENT_TOKEN, **one} for one in given)))
    shown = [re.findall(r"n1; gpu(?:; by hash)?", line) for line in invoke(api, "token", "list").stdout.splitlines()]
    assert shown[-4:] == [["n1; gpu; by hash"], ["n1; gpu"], ["n1; gpu"], ["n1; gpu"]]


@pytest.mark.parametrize(
    ("path", "item", "args"),
    [("/v1/queues", QUEUE, ["queues"]), ("/v1/tokens", TOKEN, ["token", "list"]), ("/v1/users", USER, ["users"]),
     ("/v1/grants", GRANT, ["grants"]), ("/v1/alerts", ALERT, ["alerts"])],
)  # fmt: skip
def test_on_a_narrow_terminal_what_is_shown_can_be_read(
    api: Fake, path: str, item: dict[str, Any], args: list[str]
) -> None:
    api.get(path, page(item))
    code, seen = on_terminal(*args, "--server", api.url, columns=60, NO_COLOR="1")
    heading = seen.splitlines()[0]
    _, _, hidden = seen.partition("this terminal is too narrow for: ")
    assert code == 0
    assert all(cell_len(line) <= 60 for line in seen.splitlines() if "too narrow" not in line), seen
    assert len(heading.split()) >= 3
    assert {"waiti", "runni", "oldes"}.isdisjoint(heading.split()), seen  # headings are whole words
    assert hidden, seen


# ── words for numbers ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, ""), (0, "0ms"), (0.0034, "3ms"), (0.9996, "1.0s"), (1.25, "1.2s"), (59.96, "1m00s"), (75, "1m15s"),
     (3600, "1h00m"), (7865, "2h11m"), (93_600, "1d2h"), (-0.002, "-2ms")],
)  # fmt: skip
def test_durations_are_in_human_units(seconds: float | None, words: str) -> None:
    assert screen.duration(seconds) == words


def test_moments_are_shown_in_local_time(api: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    assert screen.local_time("2027-07-15T08:00:00.5Z") == "2027-07-15 10:00:00"
    assert json.loads(invoke(api, "runs", "--json").stdout)["items"][0]["due_at"] == "2027-01-15T08:00:00Z"


@pytest.mark.parametrize(
    "text",
    ["5x", "tomorrow", "", "-5m", "2027-13-01", "25:00", "2027-01-01T99:00", "20270101", "9" * 30 + "d", "0001-01-01"],
)
def test_what_is_no_moment_is_refused_with_what_would_be_one(text: str) -> None:  # E21
    for option in ("--since", "--until"):
        result = invoke(None, "runs", f"{option}={text}", "--server", "http://127.0.0.1:1")
        assert result.exit_code == 2
        assert f"{option} must be how long ago (30m, 2h, 1d), a time of today (14:30), a date" in result.stderr


def test_since_counts_back_from_now() -> None:
    first, second = read_when("--since", "2d"), read_when("--since", "1h30m")
    seconds = screen.between(first, second)
    assert seconds == pytest.approx(2 * 86_400 - 5400, abs=60)
    assert read_when("--since", "2027-01-01T01:00:00+01:00") == "2027-01-01T00:00:00Z"


def test_what_names_no_zone_is_in_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    assert read_when("--since", "2027-07-15") == "2027-07-14T22:00:00+00:00"
    assert read_when("--since", "2027-01-15T08:30") == "2027-01-15T07:30:00+00:00"
    assert read_when("--since", "2027-01-15 08:30:05") == "2027-01-15T07:30:05+00:00"
    today = datetime.fromisoformat(read_when("--since", "0:05")).astimezone()
    assert (today.hour, today.minute) == (0, 5)
    assert abs((datetime.now().astimezone() - today).days) <= 1


# ── commands that ask a server ─────────────────────────────────────────────────────────────────────


def test_submit_sends_each_file_as_it_is(api: Fake, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a  # ä\n")
    (tmp_path / "b.json").write_text('{"name": "b"}')
    api.post("/v1/jobs", (201, {"jobs": [JOB], "replayed": False}))
    result = invoke(api, "submit", "a.yaml", "b.json")
    assert result.exit_code == 0
    sent = [(one.headers["content-type"], one.body.decode()) for one in api.asked("POST", "/v1/jobs")]
    assert sent == [("application/yaml", "name: a  # ä\n"), ("application/json", '{"name": "b"}')]
    assert result.stdout.splitlines()[1].startswith(" 7  backup  shell  at 02:00 every day  2027-01-16 02:00:00")


def test_submit_reads_stdin(api: Fake) -> None:
    api.post("/v1/jobs", (201, {"jobs": [JOB], "replayed": False}))
    code, out, _ = finish(start("--json", "submit", "-", "--server", api.url, stdin=subprocess.PIPE), b'{"name": "x"}')
    assert (code, json.loads(out)) == (0, {"jobs": [JOB]})
    assert api.requests[0].headers["content-type"] == "application/json"


def test_jobs_submitted_before_an_error_are_told(api: Fake, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a")
    (tmp_path / "b.yaml").write_text("name: b")
    answers = iter([(201, {"jobs": [JOB], "replayed": False}), problem(422, "E_TYPE", "no")])
    api.post("/v1/jobs", lambda request: next(answers))
    result = invoke(api, "submit", "a.yaml", "b.yaml")
    assert result.exit_code == 2
    assert "backup" in result.stdout
    assert "error[E_TYPE]: b.yaml: no" in result.stderr


def planned(*outcomes: str) -> tuple[int, Any]:
    return 200, {"items": [{"name": "n", "key": None, "outcome": one, "job_id": None} for one in outcomes]}


def test_submit_sends_a_stream_of_documents_and_lines_in_batches(api: Fake, tmp_path: Path) -> None:
    (tmp_path / "d" / "in").mkdir(parents=True)
    (tmp_path / "d" / "a.yaml").write_text("name: a\n---\n# two\njobs:\n  - name: b\n  - {name: c}\n")
    (tmp_path / "d" / "b.ndjson").write_text('{"name": "d"}\n\n{"name": "e"}\n')
    (tmp_path / "d" / "in" / "c.json").write_text('[\n {"name": "f"},\n\n {"name": "g"}]')
    (tmp_path / "d" / "readme.txt").write_text("no job")
    api.post("/v1/jobs", (201, {"jobs": [JOB], "replayed": False}))
    assert invoke(api, "submit", "d").exit_code == 0
    sent = [json.loads(one.body)["jobs"] for one in api.asked("POST", "/v1/jobs")]
    assert [[job["name"] for job in jobs] for jobs in sent] == [["a", "b", "c", "d", "e"], ["f", "g"]]

    api.post("/v1/jobs", lambda request: planned(*["created"] * len(json.loads(request.body)["jobs"])))
    result = invoke(api, "submit", "d", "--dry-run")
    places = [line.split()[-1] for line in result.stdout.splitlines()[1:]]
    files = [
        ("a.yaml", 1),
        ("a.yaml", 5),
        ("a.yaml", 6),
        ("b.ndjson", 1),
        ("b.ndjson", 3),
        ("in/c.json", 2),
        ("in/c.json", 4),
    ]
    assert places == [f"d/{name}:{line}" for name, line in files]
    assert "7 created; nothing was done" in result.stderr


def test_what_is_wrong_with_one_of_many_jobs_names_its_file_and_line(api: Fake, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\n---\nname: b\n")
    found = problem(422, "E_REQUIRED", "jobs[1].steps: a job needs steps")
    found[1]["errors"] = [{"path": "jobs[1].steps", "code": "E_REQUIRED", "message": "a job needs steps"}]
    api.post("/v1/jobs", found)
    result = invoke(api, "submit", "a.yaml")
    assert (result.exit_code, result.stderr) == (2, "error[E_REQUIRED]: a.yaml:3: steps: a job needs steps\n")
    (tmp_path / "a.yaml").write_text("name: a\n---\nname: b\nsteps: [\n")
    assert "a.yaml: " in (wrong := invoke(api, "submit", "a.yaml").stderr)
    assert "line 5" in wrong or "line 4" in wrong


def test_a_run_is_asked_for_with_each_line_of_a_file(api: Fake, tmp_path: Path) -> None:
    (tmp_path / "d.ndjson").write_text('{"n": 1}\n\nnope\n[1]\n{"n": 2}\n')
    api.get("/v1/jobs/7", (200, JOB))
    refused = problem(409, "E_PAUSED", "job 7 is paused")[1]
    api.post("/v1/runs", (200, {"runs": [{**RUN, "state": "queued"}, refused]}))
    result = invoke(api, "run", "7", "--data-file", "d.ndjson")
    assert (result.exit_code, result.stdout) == (1, "1 run: 1 queued\n")
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["line 3", "line 4", "line 5", "3 refused"]
    [sent] = api.asked("POST", "/v1/runs")
    assert json.loads(sent.body) == [{"job": 7, "data": {"n": 1}}, {"job": 7, "data": {"n": 2}}]


def test_what_was_shown_is_run_again(api: Fake) -> None:
    api.get("/v1/jobs/7", (200, JOB))
    api.post("/v1/runs/rerun", (200, {"items": [{"run_id": n, "run": {**RUN, "id": n}} for n in (4, 5)]}))
    result = invoke(api, "runs", "rerun", "--job", "7", "--state", "failed,timed_out", "--yes")
    assert (result.exit_code, result.stdout) == (0, "2 runs: 2 succeeded\n")
    asked = [json.loads(one.body) for one in api.asked("POST", "/v1/runs/rerun")]
    assert asked == [{"where": {"job": 7, "state": ["failed", "timed_out"]}, "dry_run": True}, {"runs": [4, 5]}]
    assert invoke(api, "runs", "rerun").exit_code == 2
    assert invoke(api, "runs", "rerun", "4", "--job", "7").exit_code == 2


def test_several_triggers_are_shown_and_changed_at_once(api: Fake) -> None:
    api.get("/v1/triggers/8", {**TRIGGER, "id": 8})
    for number in (8, 9):
        api.routes["PATCH", f"/v1/triggers/{number}"] = {**TRIGGER, "id": number, "enabled": False}
    shown = invoke(api, "triggers", "show", "8", "9")
    assert (shown.exit_code, shown.stdout.count("schedule ")) == (0, 2)
    done = invoke(api, "triggers", "disable", "8", "9", "10", "--json")
    answers = json.loads(done.stdout)
    assert [one.get("id") for one in answers] == [8, 9, None]
    assert answers[2]["of"] == 10
    assert done.exit_code != 0


def test_several_runs_are_approved_at_once_and_one_that_waits_for_nothing_keeps_no_other_from_it(api: Fake) -> None:
    api.post("/v1/runs/42/approve", RUN)
    api.post("/v1/runs/43/approve", problem(409, "E_TERMINAL", "run 43 has ended"))
    api.post("/v1/runs/44/approve", {**RUN, "id": 44})
    done = invoke(api, "approve", "42", "43", "44")
    assert done.stdout.count("is approved") == 2
    assert "run 43 has ended" in done.stderr
    assert done.exit_code != 0


# ── bars ──


@pytest.fixture
def slow_api(api: Fake, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Answers of many jobs and runs, in pages."""
    jobs = [{**JOB, "id": n, "key": f"job-{n}"} for n in range(1, 4)]
    pages = {None: {"items": jobs[:2], "cursor": "a"}, "a": {"items": jobs[2:], "cursor": None}}
    api.get("/v1/jobs", lambda request: (200, pages[request.query.get("cursor")]))
    api.get("/v1/jobs/7", JOB)
    api.get("/v1/overview", {"census": {"jobs": 3}})
    api.post("/v1/jobs", lambda request: (201, {"jobs": [JOB] * len(json.loads(request.body)["jobs"])}))
    api.post("/v1/runs", lambda request: (200, {"runs": [RUN for _ in json.loads(request.body)]}))

    def again(request: Any) -> Any:
        return 200, {"items": [{"run_id": n, "run": RUN} for n in json.loads(request.body)["runs"]]}

    api.post("/v1/runs/rerun", again)
    return api


def written_lines(path: Path, count: int, line: str) -> Path:
    path.write_text(line * count)
    return path


ONE_JOB = '{"name": "n", "steps": [{"run": "true"}]}\n'  # 42 bytes
BARS = [
    (("submit", "many.ndjson"), ONE_JOB, ["submitting jobs", "2500/2500"]),
    (("run", "7", "--data-file", "many.ndjson"), '{"n": 1234}\n', ["running backup", "30.0/30.0 kB"]),
    (("export", "--all", "--out", "jobs"), "", ["reading jobs", "3/3", "writing files"]),
    (("runs", "rerun", "--yes", *map(str, range(1, 2501))), "", ["running again", "2500/2500"]),
]


@pytest.mark.parametrize(("command", "line", "expected"), BARS, ids=["submit", "data", "export", "rerun"])
def test_a_bar_shows_on_a_terminal_how_far_many_are(
    slow_api: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], line: str, expected: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written_lines(tmp_path / "many.ndjson", 2500, line)
    code, seen = on_terminal(*command, "--server", slow_api.url, NO_COLOR="1")
    assert code == 0, seen
    for text in expected:
        assert text in seen


def test_the_size_of_a_regular_file_is_known_and_that_of_a_pipe_is_not(tmp_path: Path) -> None:
    with written_lines(tmp_path / "many.ndjson", 3, "{}\n").open("rb") as file:
        assert _size_of(file) == 9
    read, write = os.pipe()
    os.close(write)
    with open(read, "rb") as file:
        assert _size_of(file) is None


def test_in_a_pipe_there_is_no_bar(slow_api: Fake, tmp_path: Path) -> None:
    file = written_lines(tmp_path / "many.ndjson", 10, '{"n": 1}\n')
    result = invoke(slow_api, "run", "7", "--data-file", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "10 runs: 10 succeeded\n"


def test_a_rerun_of_many_that_breaks_says_how_far_it_came(slow_api: Fake) -> None:
    def again(request: Any) -> Any:
        wanted = json.loads(request.body)
        if wanted["runs"][0] > 1000 and not wanted.get("dry_run"):
            return problem(409, "E_PAUSED", "it is paused")
        return 200, {"items": [{"run_id": n, "run": RUN} for n in wanted["runs"]]}

    slow_api.post("/v1/runs/rerun", again)
    result = invoke(slow_api, "runs", "rerun", "--yes", *map(str, range(1, 1501)))
    assert "1000 of 1500 runs were asked for before this" in result.stderr
    assert "it is paused" in result.stderr


def test_an_export_overwrites_nothing_unless_forced(api: Fake, tmp_path: Path) -> None:
    api.get("/v1/jobs", page({**JOB, "key": "nightly"}, {**JOB, "id": 8, "name": "a / b"}))
    assert invoke(api, "export", "--all", "--out", "out").exit_code == 0
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == ["a-b-8.yaml", "nightly.yaml"]
    text = (tmp_path / "out" / "nightly.yaml").read_text()
    assert text.startswith("name: backup\nkey: nightly\nschedule: 0 2 * * *\n")
    (tmp_path / "out" / "nightly.yaml").write_text("mine")
    refused = invoke(api, "export", "--all", "--out", "out")
    assert (refused.exit_code, (tmp_path / "out" / "nightly.yaml").read_text()) == (1, "mine")
    assert "out/nightly.yaml and 1 more exist already" in refused.stderr
    assert invoke(api, "export", "--all", "--out", "out", "--force").exit_code == 0
    assert (tmp_path / "out" / "nightly.yaml").read_text() == text


def test_an_edited_job_is_put_with_its_version_and_a_wrong_one_is_shown_again(
    api: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {**JOB, "version": 3}
    api.get("/v1/jobs/7", (200, job))
    api.routes["PUT", "/v1/jobs/7"] = (200, {**job, "version": 4})
    script = tmp_path / "editor"  # breaks the file, then mends it, and notes what it saw
    script.write_text('#!/bin/sh\ncat "$1" >> seen\ngrep -q "^#!" "$1" && sed -i s/nmae/name/ "$1" && exit\n'
                      'sed -i "s/name: backup/nmae: new/" "$1"\n')  # fmt: skip
    script.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(script))
    monkeypatch.delenv("VISUAL", raising=False)
    result = invoke(api, "jobs", "edit", "7")
    assert result.exit_code == 0, result.stderr
    assert "#! nmae: there is no field 'nmae' here" in (tmp_path / "seen").read_text()
    assert "-name: backup\n+name: new\n" in result.stdout
    [sent] = api.asked("PUT", "/v1/jobs/7")
    assert (sent.headers["if-match"], json.loads(sent.body)["name"]) == ('"3"', "new")

    api.routes["PUT", "/v1/jobs/7"] = problem(412, "E_VERSION_CONFLICT", "job 7 is at version 4")
    stale = invoke(api, "jobs", "edit", "7")
    assert stale.exit_code == 5
    kept = Path(stale.stderr.splitlines()[0].removeprefix("your text is kept in "))
    assert "name: new" in kept.read_text()
    kept.unlink()
    monkeypatch.setenv("EDITOR", "true")
    assert invoke(api, "jobs", "edit", "7").stdout == "nothing changed\n"


@pytest.mark.parametrize(
    ("text", "expected"), [("7", 7), ("nightly", 8), ("backup", 7), ("11", 9)], ids=["id", "key", "name", "number"]
)
def test_a_job_is_named_by_id_key_or_unique_name(api: Fake, text: str, expected: int) -> None:
    jobs = [JOB, {**JOB, "id": 8, "name": "x", "key": "nightly"}, {**JOB, "id": 9, "name": "11"}]
    api.get("/v1/jobs", find_among(jobs))
    for job in jobs:
        api.get(f"/v1/jobs/{job['id']}", job)
    result = invoke(api, "jobs", "show", text, "--json")
    assert json.loads(result.stdout)["id"] == expected


def find_among(jobs: list[dict[str, Any]]) -> Callable[[Request], Answer]:
    """As the server does it: `key` exactly, `name` in part."""

    def answer(request: Request) -> Answer:
        key, name = request.query.get("key"), request.query.get("named")
        found = [job for job in jobs if key in (None, job["key"]) and name in (None, job["name"])]
        return 200, page(*found)

    return answer


def test_a_name_that_several_jobs_have_is_refused_with_their_ids(api: Fake) -> None:
    api.get("/v1/jobs", find_among([JOB, {**JOB, "id": 8}, {**JOB, "id": 9, "name": "backup 2"}]))
    result = invoke(api, "pause", "backup")
    assert result.exit_code == 5
    assert "2 jobs are called 'backup': say which by its id (7, 8)" in result.stderr
    assert {one.method for one in api.requests} == {"GET"}


def test_a_job_that_is_not_there_is_not_found(api: Fake) -> None:
    api.get("/v1/jobs", find_among([JOB]))
    for text in ("back", "99"):
        result = invoke(api, "jobs", "show", text)
        assert result.exit_code == 4
        assert f"no job has the id, key or name '{text}'" in result.stderr


def test_pause_resume_and_delete_act_on_the_job_named(api: Fake) -> None:
    api.post("/v1/jobs/7/pause", {**JOB, "paused": True})
    api.post("/v1/jobs/7/resume", JOB)
    api.routes["DELETE", "/v1/jobs/7"] = (204, b"")
    assert invoke(api, "pause", "backup").stdout == "paused job 7 backup; next 2027-01-16 02:00:00\n"
    assert invoke(api, "resume", "7").stdout == "resumed job 7 backup; next 2027-01-16 02:00:00\n"
    assert invoke(api, "jobs", "delete", "7").stdout == "deleted job 7 backup\n"


def test_triggers_are_moved_enabled_and_disabled(api: Fake) -> None:
    api.routes["PATCH", "/v1/triggers/9"] = TRIGGER
    for args in (["move", "9", "--to", "2027-03-28T02:30:00Z"], ["enable", "9"], ["disable", "9"]):
        assert invoke(api, "triggers", *args).exit_code == 0
    sent = [json.loads(one.body) for one in api.asked("PATCH", "/v1/triggers/9")]
    assert sent == [{"next_at": "2027-03-28T02:30:00Z"}, {"enabled": True}, {"enabled": False}]


def test_triggers_are_listed_with_the_names_of_their_jobs(api: Fake) -> None:
    api.get("/v1/triggers", page({**TRIGGER, "job_name": "backup"}))
    result = invoke(api, "triggers", "--job", "backup")
    assert result.stdout.splitlines()[1].split("  ")[:3] == [" 9", "backup", "at 02:00 every day"]
    assert api.asked("GET", "/v1/triggers")[0].query["job_id"] == "7"
    invoke(api, "triggers")
    assert [one.path for one in api.requests][-1:] == ["/v1/triggers"]  # names take no further request


def test_a_trigger_is_told_with_the_name_of_its_job(api: Fake) -> None:
    assert "job       7 backup\n" in invoke(api, "triggers", "show", "9").stdout
    assert json.loads(invoke(api, "triggers", "show", "9", "--json").stdout)["job_name"] == "backup"


def test_runs_are_filtered_by_the_server(api: Fake) -> None:
    invoke(api, "runs", "--job", "backup", "--state", "failed,timed_out", "--since", "2027-01-01T00:00:00Z")
    query = api.asked("GET", "/v1/runs")[0].query
    assert query == {"job_id": "7", "state": "failed,timed_out", "due_from": "2027-01-01T00:00:00Z", "limit": "50"}
    invoke(api, "runs", "--node", "a b", "--until", "2027-01-02T00:00:00Z")
    query = api.asked("GET", "/v1/runs")[1].query
    assert query == {"node": "a b", "due_until": "2027-01-02T00:00:00Z", "limit": "50"}


def test_runs_are_listed_with_the_names_of_their_jobs_in_one_request(api: Fake) -> None:
    api.get("/v1/runs", page(*({**RUN, "job_id": n, "job_name": f"job {n}"} for n in range(1, 200))))
    assert "job 199" in invoke(api, "runs", "--limit", "200").stdout
    assert json.loads(invoke(api, "runs", "--json").stdout)["items"][0]["job_name"] == "job 1"
    assert [one.path for one in api.requests] == ["/v1/runs", "/v1/runs"]


def test_a_run_of_a_job_that_is_gone_is_still_listed(api: Fake) -> None:
    api.get("/v1/runs", page({name: value for name, value in {**RUN, "job_id": 5}.items() if name != "job_name"}))
    assert "  5  " in invoke(api, "runs").stdout


def test_one_run_is_shown_with_its_attempts(api: Fake) -> None:
    attempt = {name: RUN[name] for name in ("fence", "node", "started_at", "finished_at", "message", "output")}
    attempt |= {"attempt": 1, "state": "failed", "reason": "exit", "exit_code": 3}
    api.get("/v1/runs/42", {**RUN, "attempt": 2, "attempts": [attempt]})
    shown = invoke(api, "runs", "show", "42").stdout
    assert "job       7 backup\n" in shown
    assert "took      1m15s\n" in shown
    assert "exit, exit code 3" in shown


PROGRESS = {"step": "load", "tables": {"done": 2, "total": 5}, "rows": 1234}


def test_how_far_a_run_is_is_shown_as_a_bar_and_shortly_in_the_list(api: Fake) -> None:
    run = {**RUN, "state": "running", "kind": "sync", "progress": PROGRESS, "attempts": []}
    api.get("/v1/runs/42", run)
    api.get("/v1/runs", page(run))
    bar = "progress  [#########...............] 40%  load, 2 of 5 tables, 1,234 rows\n"
    assert bar in invoke(api, "runs", "show", "42").stdout
    assert invoke(api, "runs").stdout.endswith("load, 2 of 5 tables, 1,234 rows\n")


def test_what_a_run_wrote_is_shown_in_fields_and_a_table(api: Fake) -> None:
    result = {
        "steps": [{"name": "sync", "seconds": 1.0, "exit_code": 0}], "rows": 1234, "bytes": 5_100_000, "odd": 1,
        "tables": [{"name": "orders", "rows": 1234, "bytes": 5_100_000, "changes": ["note added"]}],
        "stages": {"done": 3, "total": 3}, "query_id": "q-1", "cursor": {"value": "77"},
    }  # fmt: skip
    api.get("/v1/runs/42", {**RUN, "kind": "sync", "result": result, "attempts": []})
    shown = invoke(api, "runs", "show", "42").stdout
    lines = ["written   1,234 rows, 5.1 MB", "stages    3 of 3", "query     q-1", 'cursor    {"value": "77"}',
             'result    {"odd": 1}', "orders  1,234  5.1 MB  note added"]  # fmt: skip
    assert [line for line in lines if line not in shown.splitlines()] == []


def test_a_result_of_other_work_that_looks_like_data_is_shown_as_it_is(api: Fake) -> None:
    api.get("/v1/runs/42", {**RUN, "kind": "python", "result": {"rows": 3}, "attempts": []})
    assert 'result    {"rows": 3}\n' in invoke(api, "runs", "show", "42").stdout


def test_the_cursor_of_a_sync_is_shown_and_taken_away(api: Fake) -> None:
    cursor = {"value": {"value": "77"}, "run_id": 42, "moved_at": "2027-01-15T08:00:00Z"}
    api.get("/v1/jobs/7", {**JOB, "cursor": cursor})
    api.routes["DELETE", "/v1/jobs/7/cursor"] = (204, b"")
    assert 'cursor   {"value": "77"}, moved 2027-01-15 08:00:00 by run 42\n' in invoke(api, "jobs", "show", "7").stdout
    told = "job 7 backup reads everything at its next run\n"
    assert invoke(api, "jobs", "reset-cursor", "7").stdout == told
    assert json.loads(invoke(api, "jobs", "reset-cursor", "7", "--json").stdout) == {"reset": 7}
    assert len(api.asked("DELETE", "/v1/jobs/7/cursor")) == 2


def test_more_than_a_page_is_fetched_until_the_limit(api: Fake) -> None:
    def answer(request: Request) -> Answer:
        first = int(request.query.get("cursor", 0))
        last = min(first + int(request.query["limit"]), 2500)
        return 200, {"items": [RUN] * (last - first), "cursor": str(last) if last < 2500 else None}

    api.get("/v1/runs", answer)
    assert len(json.loads(invoke(api, "runs", "--limit", "100000", "--json").stdout)["items"]) == 2500
    shown = json.loads(invoke(api, "runs", "--limit", "1200", "--json").stdout)
    assert (len(shown["items"]), shown["cursor"]) == (1200, "1200")
    assert "there are more" in invoke(api, "runs", "--limit", "10").stderr


def test_the_next_moments_are_shown_with_marks_dialect_and_english(api: Fake) -> None:
    api.post("/v1/preview", PREVIEW)
    shown = invoke(api, "preview", "30 2 * * *", "--timezone", "Europe/Berlin", "--count", "3").stdout
    assert shown.splitlines()[0] == "at 02:30 every day (read as cron)"
    assert "2027-03-28T03:00:00+02:00  2027-03-28T01:00:00Z  02:30 does not exist" in shown
    sent = json.loads(api.requests[0].body)
    assert sent == {"schedule": "30 2 * * *", "timezone": "Europe/Berlin", "count": 3}


def test_an_expression_may_begin_with_a_dash_or_star(api: Fake) -> None:
    api.post("/v1/preview", problem(422, "E_CRON_SYNTAX", "no"))
    assert invoke(api, "preview", "*/5 * * * *").exit_code == 2
    assert len(api.requests) == 1


def test_nodes_are_listed(api: Fake) -> None:
    api.get("/v1/nodes", page(NODE, {**NODE, "name": "a1", "labels": ["gpu"], "address": "", "via": "n1"}))
    first, second = invoke(api, "nodes").stdout.splitlines()[1:]
    assert first.split()[:5] == ["n1", "live", "live", "api,agent", "2/8"]
    assert first.endswith("http://127.0.0.1:8080")
    assert "gpu" in second
    assert second.endswith("via n1")


@pytest.mark.parametrize(
    ("verb", "said"),
    [("cordon", "a b takes no new runs; 2 still running"), ("uncordon", "a b takes runs again"),
     ("drain", "a b takes no new runs and gives its segments away; 2 still running")],
)  # fmt: skip
def test_a_node_is_taken_out_of_service_and_back(api: Fake, verb: str, said: str) -> None:
    api.post(f"/v1/nodes/a%20b/{verb}", NODE)
    assert invoke(api, "nodes", verb, "a b").stdout == f"{said}\n"


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--server", "127.0.0.1"], "E_URL"),
        (["--server", "127.0.0.1:8090,"], "E_URL"),
        (["--server", "127.0.0.1:99999"], "E_URL"),
        (["--server", "http://127.0.0.1:8090"], "E_URL"),
        (["--server", "http://me:secret@127.0.0.1:8090"], "E_URL"),
        (["--server", "me:secret@127.0.0.1:8090"], "E_URL"),
        (["--server", "horae.example.com:8090"], "E_JOIN_TOKEN"),
        (["--server", "127.0.0.1:8090,horae.example.com:8090"], "E_JOIN_TOKEN"),
        (["--server", "127.0.0.1:8090", "--token-file", "none"], "E_FILE"),
        (["--server", "127.0.0.1:8090", "--token-file", "empty"], "E_FILE"),
        (["--server", "127.0.0.1:8090", "--ca-file", "none"], "E_FILE"),
        (["--server", "127.0.0.1:8090", "--slots", "0"], "E_CONFIG"),
        (["--server", "127.0.0.1:8090", "--node", "a/b"], "E_CONFIG"),
        ([], "E_USAGE"),
    ],
)
def test_an_agent_that_cannot_join_is_refused_before_it_starts(tmp_path: Path, flags: list[str], code: str) -> None:
    (tmp_path / "empty").touch()
    result = invoke(None, "agent", *flags)
    assert f"error[{code}]" in result.stderr
    assert "secret" not in result.stderr
    assert not (tmp_path / ".horae-agent").exists()


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [("succeeded", 0, 0), ("failed", 3, 3), ("failed", 125, 125), ("failed", 126, 1), ("failed", -9, 1),
     ("failed", None, 1), ("timed_out", None, 1), ("cancelled", None, 1), ("skipped", None, 1)],
)  # fmt: skip
def test_waiting_for_a_run_exits_as_the_job_did(api: Fake, state: str, code: int | None, expected: int) -> None:
    ended = {**RUN, "state": state, "exit_code": code}
    assert exit_code_of_run(ended) == expected
    waiting = {**RUN, "state": "queued", "started_at": None, "finished_at": None, "exit_code": None}
    answers = iter([waiting, {**waiting, "state": "running"}])
    api.post("/v1/jobs/7/run", (201, waiting))
    api.get("/v1/runs/42", lambda request: (200, next(answers, ended)))
    api.get("/v1/runs/42/log/follow", events(("log", {"offset": 0, "text": "hello\n"}, 6), ("end", ended, None)))
    result = invoke(api, "run", "7", "--data", '{"full": true}', "--wait")
    assert (result.exit_code, result.stdout) == (expected, "hello\n")
    first, last = result.stderr.splitlines()
    assert first == "run 42 of backup"
    assert last.startswith(f"run 42 {state}; took 1m15s")
    assert json.loads(api.asked("POST", "/v1/jobs/7/run")[0].body) == {"data": {"full": True}}


def waiting_for(api: Fake, *log: tuple[str, Any, int | None], state: str = "succeeded") -> None:
    """A job whose run writes this and ends."""
    api.post("/v1/jobs/7/run", (201, {**RUN, "state": "queued", "started_at": None, "finished_at": None}))
    api.get("/v1/runs/42", {**RUN, "state": state, "attempts": []})
    api.get("/v1/runs/42/log/follow", events(*log, ("end", {**RUN, "state": state}, None)))


def test_waiting_quietly_shows_no_log_and_says_the_end_on_stdout(api: Fake) -> None:
    waiting_for(api, ("log", {"offset": 0, "text": "hello\n"}, 6))
    result = invoke(api, "run", "7", "--wait", "--quiet")
    assert (result.stdout, result.stderr) == ("run 42 succeeded; took 1m15s\n", "run 42 of backup\n")
    assert api.asked("GET", "/v1/runs/42/log/follow") == []


def test_waiting_in_json_names_the_run_at_once_on_stderr_and_ends_with_it(api: Fake) -> None:
    waiting_for(api)
    result = invoke(api, "run", "7", "--wait", "--json")
    named = {"run_id": 42, "job_id": 7, "job_name": "backup", "state": "queued"}
    assert json.loads(result.stderr) == named
    assert json.loads(result.stdout)["state"] == "succeeded"


@pytest.mark.parametrize("reply", [problem(429, "E_STREAM_LIMIT", "too many follow"), (503, b"")])
def test_a_run_is_waited_for_also_where_its_log_cannot_be_followed(
    api: Fake, reply: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.client.sync.time.sleep", lambda seconds: None)
    waiting_for(api, state="failed")
    api.get("/v1/runs/42/log/follow", reply)
    result = invoke(api, "run", "7", "--wait")
    assert "warning: the log of run 42 cannot be followed: " in result.stderr
    assert "run 42 failed" in result.stderr.splitlines()[-1]


def test_whoever_stops_waiting_is_told_that_the_run_goes_on(api: Fake) -> None:
    waiting = {**RUN, "state": "running", "finished_at": None}
    api.post("/v1/jobs/7/run", (201, waiting))
    api.get("/v1/runs/42", {**waiting, "attempts": []})
    process = start("run", "7", "--wait", "--quiet", "--server", api.url)
    assert process.stderr is not None
    assert process.stderr.readline() == b"run 42 of backup\n"
    while not api.asked("GET", "/v1/runs/42"):
        pass
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert (code, err) == (130, "run 42 goes on: `horae logs -f 42` follows it, `horae cancel 42` ends it\n")


def test_a_log_without_a_last_line_end_does_not_swallow_the_end_on_a_terminal(api: Fake) -> None:
    waiting_for(api, ("log", {"offset": 0, "text": "no end"}, 6))
    code, seen = on_terminal("run", "7", "--wait", "--server", api.url, NO_COLOR="1")
    assert (code, seen.split()[:4]) == (0, ["run", "42", "of", "backup"])
    assert "no end\r\nrun 42 succeeded" in seen


def test_running_without_waiting_succeeds_at_once(api: Fake) -> None:
    api.post("/v1/jobs/7/run", (201, {**RUN, "state": "skipped", "reason": "overlap", "started_at": None}))
    result = invoke(api, "run", "7")
    assert (result.exit_code, result.stdout) == (0, "run 42 skipped; overlap\n")


@pytest.mark.parametrize("data", ["[1]", "x", "{", "1"])
def test_data_is_a_json_object(api: Fake, data: str) -> None:
    result = invoke(api, "run", "7", "--data", data)
    assert (result.exit_code, api.requests) == (2, [])
    assert "--data must be a JSON object" in result.stderr


def test_cancel_says_what_became_of_the_run(api: Fake) -> None:
    api.post("/v1/runs/42/cancel", (202, {**RUN, "state": "running", "cancel_requested": True}))
    assert invoke(api, "cancel", "42").stdout == "run 42 is being cancelled\n"
    api.post("/v1/runs/42/cancel", (202, {**RUN, "state": "cancelled", "started_at": None, "reason": "requested"}))
    assert invoke(api, "cancel", "42").stdout == "run 42 cancelled; requested\n"


# ── several at once ──


def test_several_are_each_answered_for_themselves(api: Fake) -> None:
    api.get("/v1/runs/43", {**RUN, "id": 43, "attempts": []})
    result = invoke(api, "runs", "show", "42", "99", "43", "42")
    assert result.exit_code == 4
    assert [line.split()[1] for line in result.stdout.splitlines() if line.startswith("id ")] == ["42", "43"]
    assert result.stdout.count("\n\n") == 1
    assert result.stderr == "error[E_NOT_FOUND]: no /v1/runs/99\n"


def test_several_are_a_list_in_json_with_the_errors_in_their_places(api: Fake) -> None:
    result = invoke(api, "runs", "show", "99", "42", "--json")
    error, answer = json.loads(result.stdout)
    assert error["of"] == 99
    assert (error["error"]["code"], error["error"]["exit_code"]) == ("E_NOT_FOUND", 4)
    assert (answer["id"], answer["job_name"]) == (42, "backup")
    assert (json.loads(result.stderr), result.exit_code) == (error["error"], 4)


def test_what_was_done_before_the_server_was_lost_is_told(api: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.client.sync.time.sleep", lambda seconds: None)
    api.post("/v1/runs/42/cancel", (202, {**RUN, "state": "cancelled"}))
    api.post("/v1/runs/43/cancel", problem(503, "E_UNAVAILABLE", "no database"))
    result = invoke(api, "cancel", "42", "43", "44", "--json")
    assert ([one["id"] for one in json.loads(result.stdout)], result.exit_code) == ([42], 6)
    assert api.asked("POST", "/v1/runs/44/cancel") == []


def test_several_jobs_are_paused_resumed_shown_and_deleted(api: Fake) -> None:
    other = {**JOB, "id": 8, "name": "other"}
    api.get("/v1/jobs/8", other)
    for verb in ("pause", "resume"):
        api.post(f"/v1/jobs/7/{verb}", JOB)
        api.post(f"/v1/jobs/8/{verb}", problem(409, "E_DELETED", "it is deleted"))
    result = invoke(api, "pause", "7", "8")
    assert (result.exit_code, result.stdout) == (5, "paused job 7 backup; next 2027-01-16 02:00:00\n")
    assert result.stderr == "error[E_DELETED]: 8: it is deleted\n"
    assert invoke(api, "resume", "8", "7").exit_code == 5
    shown = invoke(api, "jobs", "show", "7", "8").stdout
    assert ("name     backup" in shown, "name     other" in shown) == (True, True)
    api.routes["DELETE", "/v1/jobs/7"] = api.routes["DELETE", "/v1/jobs/8"] = (204, b"")
    deleted = json.loads(invoke(api, "jobs", "delete", "7", "8", "--json").stdout)
    assert deleted == [{"deleted": 7, "name": "backup"}, {"deleted": 8, "name": "other"}]


def test_cancelling_a_job_cancels_what_waits_and_runs(api: Fake) -> None:
    live = [{**RUN, "id": 44, "state": "queued"}, {**RUN, "id": 43, "state": "running"}, {**RUN, "state": "running"}]
    api.get("/v1/runs", page(*live))
    api.post("/v1/runs/42/cancel", problem(409, "E_TERMINAL", "run 42 has ended"))
    api.post("/v1/runs/43/cancel", (202, {**RUN, "id": 43, "state": "running"}))
    api.post("/v1/runs/44/cancel", (202, {**RUN, "id": 44, "state": "cancelled", "started_at": None}))
    result = invoke(api, "cancel", "backup")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "run 42 succeeded; took 1m15s", "run 43 is being cancelled", "run 44 cancelled"
    ]  # fmt: skip
    assert api.asked("GET", "/v1/runs")[0].query["state"] == "queued,blocked,running"
    answer = json.loads(invoke(api, "cancel", "backup", "--json").stdout)
    assert (answer["job_id"], answer["job_name"], [run["id"] for run in answer["runs"]]) == (7, "backup", [42, 43, 44])
    api.get("/v1/runs", page())
    assert invoke(api, "cancel", "backup").stdout == "job 7 backup has no run that waits or runs\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [(("cancel", "backup"), "would cancel run 43 of backup, running\n"),
     (("cancel", "43"), "would cancel run 43 of backup, running\n"),
     (("jobs", "delete", "backup"), "would delete job 7 backup, and cancel run 43\n"),
     (("pause", "7"), "would pause job 7 backup; next 2027-01-16 02:00:00\n"),
     (("resume", "7"), "would resume job 7 backup; next 2027-01-16 02:00:00\n")],
)  # fmt: skip
def test_a_dry_run_shows_what_would_be_done_and_does_nothing(api: Fake, args: tuple[str, ...], said: str) -> None:
    live = {**RUN, "id": 43, "state": "running"}
    api.get("/v1/runs", page(live))
    api.get("/v1/runs/43", {**live, "attempts": []})
    assert invoke(api, *args, "--dry-run").stdout == said
    assert json.loads(invoke(api, *args, "--dry-run", "--json").stdout)["dry_run"] is True
    assert {one.method for one in api.requests} == {"GET"}


def test_a_dry_run_refuses_what_would_be_refused(api: Fake) -> None:
    result = invoke(api, "cancel", "42", "--dry-run")
    assert (result.exit_code, result.stderr) == (5, "error[E_TERMINAL]: run 42 has ended: succeeded\n")


@pytest.mark.parametrize(
    "args",
    [("jobs",), ("jobs", "show", "7"), ("jobs", "delete", "7"), ("triggers",), ("triggers", "show", "9"),
     ("triggers", "enable", "9"), ("runs",), ("runs", "show", "42"), ("logs", "42"), ("logs", "42", "-f"),
     ("run", "7"), ("run", "7", "--wait"), ("cancel", "42"), ("pause", "7"), ("resume", "7"),
     ("preview", "@daily"), ("nodes",), ("check",)],
    ids=" ".join,
)  # fmt: skip
def test_every_command_answers_in_json(api: Fake, args: tuple[str, ...]) -> None:
    api.post("/v1/jobs/7/run", (201, RUN))
    api.post("/v1/runs/42/cancel", (202, RUN))
    api.post("/v1/jobs/7/pause", JOB)
    api.post("/v1/jobs/7/resume", JOB)
    api.post("/v1/preview", PREVIEW)
    api.routes["DELETE", "/v1/jobs/7"] = (204, b"")
    api.routes["PATCH", "/v1/triggers/9"] = TRIGGER
    api.get("/v1/runs/42/log", log_of(b"hello"))
    api.get("/v1/runs/42/log/follow", events(("log", {"offset": 0, "text": "hello"}, 5), ("end", RUN, None)))
    result = invoke(None if args == ("check",) else api, *args, "--json")
    assert result.exit_code == 0
    assert bool(result.stderr) is ("--wait" in args)
    for line in (result.stdout + result.stderr).splitlines():
        assert isinstance(json.loads(line), dict)


# ── logs ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_log_of_the_newest_run_is_shown(api: Fake) -> None:
    api.get("/v1/runs/42/log", log_of(b"a line of text\n"))
    for args in ((), ("--job", "backup"), ("backup",), ("42",)):
        assert invoke(api, "logs", *args).stdout == "a line of text\n"
    assert "skipped" not in api.asked("GET", "/v1/runs")[0].query["state"]


def test_without_any_run_there_is_no_log(api: Fake) -> None:
    api.get("/v1/runs", page())
    result = invoke(api, "logs")
    assert result.exit_code == 4
    assert "nothing has run yet" in result.stderr


def test_a_followed_log_goes_on_where_the_connection_broke(api: Fake) -> None:
    def answer(request: Request) -> Answer:
        if "last-event-id" not in request.headers:
            return events(("state", {**RUN, "state": "running"}, None), ("log", {"offset": 0, "text": "één\u2028"}, 8))
        assert request.headers["last-event-id"] == "8"
        return events(
            ("log", {"offset": 8, "text": " two\n"}, 13), ("end", {**RUN, "state": "failed", "reason": "exit"}, None)
        )

    api.get("/v1/runs/42/log/follow", answer)
    result = invoke(api, "logs", "42", "-f")
    assert (result.exit_code, result.stdout) == (0, "één\u2028 two\n")
    assert result.stderr == "run 42 failed (exit)\n"


def test_following_survives_a_server_that_is_gone_for_a_moment(api: Fake) -> None:
    replies = iter([None, problem(503, "E_UNAVAILABLE", "later"), events(("log", {"offset": 0, "text": "x"}, 1)), None])
    end = events(("end", RUN, None))
    api.get("/v1/runs/42/log/follow", lambda request: next(replies, end))
    assert invoke(api, "logs", "42", "-f").stdout == "x"
    assert [one.headers.get("last-event-id") for one in api.asked("GET", "/v1/runs/42/log/follow")] == [
        None, None, None, "1", "1"
    ]  # fmt: skip


def test_a_job_is_followed_run_after_run_until_interrupted(api: Fake) -> None:
    runs = [RUN]
    api.get("/v1/runs", lambda request: (200, page(*reversed(runs))))
    for run_id in (42, 43):
        run = {**RUN, "id": run_id}
        api.get(f"/v1/runs/{run_id}", {**run, "attempts": []})
        api.get(
            f"/v1/runs/{run_id}/log/follow",
            events(("log", {"offset": 0, "text": f"run {run_id}\n"}, 7), ("end", run, None)),
        )
    process = start("logs", "-f", "--job", "7", "--tail", "3", "--attempt", "1", "--server", api.url)
    assert process.stdout is not None
    assert process.stdout.readline() == b"run 42\n"
    runs.append({**RUN, "id": 43})
    assert process.stdout.readline() == b"run 43\n"
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    asked = [api.asked("GET", f"/v1/runs/{run_id}/log/follow")[0].query for run_id in (42, 43)]
    assert asked == [{"tail": "3", "attempt": "1"}, {}]  # of a run that comes later all is new


@pytest.mark.parametrize(
    ("args", "query"),
    [(("--tail", "5"), {"tail": "5"}), (("--tail", "0"), {"tail": "0"}), (("--attempt", "2"), {"attempt": "2"}),
     (("--grep", "a b"), {"grep": "a b"})],
)  # fmt: skip
def test_lines_of_a_log_are_chosen_by_the_server(api: Fake, args: tuple[str, ...], query: dict[str, str]) -> None:
    api.get("/v1/runs/42/log", (200, b"x", {"Horae-Log-Offset": "0"}))
    assert invoke(api, "logs", "42", *args).stdout == "x"
    asked = api.asked("GET", "/v1/runs/42/log")[0].query
    assert asked == (query if "tail" in query else {"offset": "0", **query})


def test_a_search_goes_on_while_the_server_has_more_to_look_at(api: Fake) -> None:
    pieces = {"0": (b"", "10"), "10": (b"found\n", "20"), "20": (b"", "20")}

    def answer(request: Request) -> Answer:
        body, end = pieces[request.query["offset"]]
        return 200, body, {"Horae-Log-Offset": end}

    api.get("/v1/runs/42/log", answer)
    assert invoke(api, "logs", "42", "--grep", "found").stdout == "found\n"


def test_a_regular_expression_is_tried_here_on_whole_lines(api: Fake) -> None:
    api.get("/v1/runs/42/log", log_of("error 17\nwarn 3\nno errors\nerröre 4".encode()))
    result = invoke(api, "logs", "42", "--grep", r"^err\w+ \d", "--regex")
    assert result.stdout == "error 17\nerröre 4"
    assert "grep" not in api.asked("GET", "/v1/runs/42/log")[0].query
    wrong = invoke(api, "logs", "42", "--grep", "(", "-E")
    assert wrong.exit_code == 2
    assert "--grep is no regular expression: missing ), unterminated subpattern" in wrong.stderr
    assert invoke(api, "logs", "42", "-E").exit_code == 2


def test_a_followed_log_shows_the_lines_that_are_wanted_when_they_are_whole(api: Fake) -> None:
    log = [("log", {"offset": n, "text": text}, n) for n, text in enumerate(("a bad", " line\nfine\nba", "d again"))]
    api.get("/v1/runs/42/log/follow", events(*log, ("end", RUN, None)))
    assert invoke(api, "logs", "42", "-f", "--grep", "bad", "--tail", "9").stdout == "a bad line\nbad again"
    assert api.asked("GET", "/v1/runs/42/log/follow")[0].query == {"tail": "9"}
    shown = [
        json.loads(line) for line in invoke(api, "logs", "42", "-f", "--grep", "bad", "--json").stdout.splitlines()
    ]
    assert [one.get("text") for one in shown] == ["a bad line\n", "bad again", None]
    assert {one["job_name"] for one in shown} == {"backup"}


def test_since_shows_every_run_since_then_the_oldest_first(api: Fake) -> None:
    api.get("/v1/runs", page({**RUN, "id": 43}, RUN))
    for run_id in (42, 43):
        api.get(f"/v1/runs/{run_id}/log", (200, b"log of %d\n" % run_id, {"Horae-Log-Offset": "0"}))
    result = invoke(api, "logs", "backup", "--since", "2027-01-15T00:00:00Z")
    assert result.stdout == "log of 42\nlog of 43\n"
    assert result.stderr.splitlines()[0] == "run 42 of backup, due 2027-01-15 08:00:00"
    asked = api.asked("GET", "/v1/runs")[0].query
    assert (asked["due_from"], asked["job_id"]) == ("2027-01-15T00:00:00Z", "7")
    for line in invoke(api, "logs", "backup", "--since", "1h", "--json").stdout.splitlines():
        assert json.loads(line)["job_name"] == "backup"


def test_since_does_not_choose_among_the_lines_of_one_run(api: Fake) -> None:
    assert invoke(api, "logs", "backup", "--since", "10m", "--attempt", "1").exit_code == 2
    result = invoke(api, "logs", "42", "--since", "10m")
    assert (result.exit_code, api.requests) == (2, [])
    assert "lines have no times of their own: use --tail or --grep" in result.stderr


def test_a_node_that_does_not_exist_is_said_to_be_missing(api: Fake) -> None:
    api.post("/v1/nodes/nobody/drain", problem(404, "E_NOT_FOUND", "there is no node nobody"))

    result = invoke(api, "nodes", "drain", "nobody")

    assert result.exit_code == 4
    assert "there is no node nobody" in result.stderr


# ── commands that need no server ───────────────────────────────────────────────────────────────────


def test_job_files_are_checked_without_a_server(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("jobs: [{name: a, steps: [{run: 'true'}]}, {name: b, steps: [{run: 'true'}]}]")
    (tmp_path / "bad.yaml").write_text("name: [1]\nstps: 1\n")
    result = invoke(None, "check", "good.yaml")
    assert (result.exit_code, result.stdout) == (0, "good.yaml: ok, 2 jobs\n")
    result = invoke(None, "check", "good.yaml", "bad.yaml")
    assert (result.exit_code, result.stdout) == (2, "good.yaml: ok, 2 jobs\n")
    assert "bad.yaml: " in result.stderr
    result = invoke(None, "check", "good.yaml", "bad.yaml", "nowhere.yaml", "--json")
    files = json.loads(result.stdout)["files"]
    assert [(one["file"], one["ok"], one["jobs"]) for one in files] == [
        ("good.yaml", True, ["a", "b"]), ("bad.yaml", False, []), ("nowhere.yaml", False, [])
    ]  # fmt: skip
    assert files[2]["errors"][0]["code"] == "E_FILE"


def test_check_shows_every_setting_with_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # E29
    (tmp_path / "horae.toml").write_text('slots = 5\ndatabase = "postgresql://u:hush@h/n"\n')
    (tmp_path / "horae.toml").chmod(0o604)
    monkeypatch.setenv("HORAE_WORKERS", "3")
    result = invoke(None, "check", "--port", "99")
    lines = {
        line.split()[0]: line.split(maxsplit=2)[1:] for line in result.stdout.splitlines() if len(line.split()) > 2
    }
    assert lines["port"] == ["99", "flag --port"]
    assert lines["workers"] == ["3", "environment HORAE_WORKERS"]
    assert lines["slots"] == ["5", "file horae.toml:1:1"]
    assert lines["database"][0] == "postgresql://u:***@h/n"
    assert "hush" not in result.output
    assert result.stderr.startswith("warning: horae.toml holds a password")  # E27


def test_a_setting_that_is_a_switch_takes_no_value() -> None:
    result = invoke(None, "check", "--compat-ports", "--port", "99", "--json")
    shown = {each["name"]: each for each in json.loads(result.stdout)["settings"]}
    assert shown["compat_ports"]["value"] == "8081,8082,8083,8084,8085"
    assert shown["compat_ports"]["source"] == "flag --compat-ports"
    assert shown["port"]["value"] == "99"
    result = invoke(None, "check", "--json")
    assert {each["name"]: each["value"] for each in json.loads(result.stdout)["settings"]}["compat_ports"] == ""


@pytest.mark.parametrize("command", ["up", "check", "migrate"])
def test_settings_that_cannot_be_used_refuse_the_start(command: str, tmp_path: Path) -> None:
    result = invoke(None, command, "--config", "nowhere.toml")  # E23
    assert result.exit_code == 2
    assert "error[E_CONFIG]: the settings file nowhere.toml cannot be read" in result.stderr
    (tmp_path / "horae.toml").write_text("prot = 1\n")  # E25
    result = invoke(None, command)
    assert result.exit_code == 2
    assert result.stderr == "error[E_CONFIG]: horae.toml:1:1: prot is no setting of Horae\nhint: did you mean port?\n"


@pytest.mark.parametrize("port", ["abc", "0", "70000", "-1"])
def test_a_wrong_port_is_a_usage_error(port: str) -> None:  # E05
    result = invoke(None, "up", "--port", port)
    assert result.exit_code == 2
    assert "port must be a whole number from 1 to 65535" in result.stderr


def test_listening_beyond_loopback_without_tls_is_refused() -> None:
    result = invoke(None, "up", "--host", "0.0.0.0")
    assert result.exit_code == 2
    assert "error[E_TLS_REQUIRED]" in result.stderr


def test_up_greets_when_it_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    async def serve(config: Any, on_ready: Callable[[Any, Sandboxes], None]) -> None:
        started.append(config)
        plain = Sandboxes({"plain": None}, "plain", "jobs run without walls")  # type: ignore[dict-item]
        on_ready(dataclasses.replace(config, history_days=90, files_limit=5 * 2**30), plain)

    monkeypatch.setitem(sys.modules, "horae.app.process", module(serve=serve))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    result = invoke(None, "up", "--port", "9123", "--data", "d", "--roles", "api,agent")
    assert (result.exit_code, result.stderr) == (0, "")
    assert started[0].roles == ("api", "agent")
    assert "is up at http://127.0.0.1:9123" in result.stdout
    assert str(tmp_path / "d") in result.stdout
    assert "90 days of history, 5GiB of output" in result.stdout
    assert re.search(r"WARNING +jobs run without walls", result.stdout)
    assert "| horae --server http://127.0.0.1:9123 submit -" in result.stdout
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples/hello.yaml").write_text("")
    assert "  horae submit examples/hello.yaml\n" in invoke(None, "up").stdout
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sys.argv", [str(tmp_path / ".venv/bin/horae"), "up"])
    assert "  .venv/bin/horae submit examples/hello.yaml\n" in invoke(None, "up").stdout
    assert json.loads(invoke(None, "up", "--json").stdout)["url"] == "http://127.0.0.1:8080"


@dataclasses.dataclass
class Report:
    current: int
    latest: int
    applied: list[str]
    database: str


def test_S47_migrate_prints_the_sql_of_three_roles_and_touches_no_database() -> None:
    result = invoke(None, "migrate", "--roles", "mine,works,looks", "--database", "postgresql://u@nowhere.invalid/n")
    assert result.exit_code == 0
    assert "'mine', 'works', 'looks'" in result.stdout
    assert "{" not in result.stdout
    for wrong in ("a,b", "a,b,b", "a,b,c;d", "a,b,", "A,b,c"):
        assert "E_USAGE" in invoke(None, "migrate", "--roles", wrong).stderr, wrong


@pytest.mark.parametrize(("current", "args", "exit_code"), [(3, [], 0), (3, ["--check"], 0), (2, ["--check"], 1)])
def test_migrate_reports_the_schema(
    current: int, args: list[str], exit_code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def migrate(config: Any, *, check: bool) -> Report:
        assert check is bool(args)
        return Report(current, 3, [] if check else ["0003_more"], "postgresql://u:hush@h/n")

    tended = []

    async def tend_history(config: Any) -> None:
        tended.append(config)

    monkeypatch.setitem(sys.modules, "horae.app.store", module(migrate=migrate, tend_history=tend_history))
    result = invoke(None, "migrate", *args)
    assert result.exit_code == exit_code
    assert len(tended) == (not args)
    assert f"postgresql://u:***@h/n: schema {current}" in result.stdout
    assert ("applied 0003_more" in result.stdout) is (not args)
    assert json.loads(invoke(None, "migrate", *args, "--json").stdout)["latest"] == 3
