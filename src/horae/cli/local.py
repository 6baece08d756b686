"""The commands that need no server, or are one: up, agent, check, migrate, mcp."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from horae.cli.jobfiles import media_type, naming, read_file
from horae.cli.options import Argument, Option
from horae.cli.screen import Screen, clean, show_error
from horae.cli.session import (
    DEFAULT_SERVER,
    SHARED,
    CertFile,
    Session,
    command,
    exit_code_of,
    own_version,
    settings_command,
)
from horae.errors import Error, Invalid

if TYPE_CHECKING:
    from horae.config import Config
    from horae.ports.work import Sandboxes

ConfigFile = Annotated[
    str | None,
    Option("--config", metavar="FILE", help="TOML file of settings. [default: ./horae.toml if there is one]"),
]
Resources = Annotated[
    list[str] | None,
    Option("--resource", metavar="NAME=N", help="What runs may have of this agent, as gpu=1; may be repeated."),
]
AGENT_SETTINGS = [
    *(
        "data",
        "node",
        "slots",
        "labels",
        "resources",
        "kinds",
        "files",
        "files_endpoint",
        "otlp_endpoint",
        "handler_slots",
        "workers",
        "jobs_directory",
        "script_roots",
        "repository_roots",
        "sandbox",
        "allowed_networks",
    ),
    *("docker_url", "maven_settings", "output_limit", "artifact_limit", "cache_limit", "log_format", "on_restart"),
]
EXAMPLE = Path("examples/hello.yaml")
HELLO = '{"name": "hello", "run_once": true, "steps": [{"run": "echo hello"}]}'


def register(app: click.Group) -> None:
    settings_command(app, "up", "horae up --port 9000 --data ./horae-data")(up)
    settings_command(app, "agent", "horae agent --server 127.0.0.1:8090 --label gpu", AGENT_SETTINGS)(agent)
    settings_command(app, "check", "horae check jobs/*.yaml")(check)
    settings_command(app, "migrate", "horae migrate --check", ["data", "database", "startup_timeout"])(migrate)
    shared = [one for one in SHARED if one.name != "json"]  # all that it writes is JSON
    command(app, "mcp", "horae mcp --server https://horae.example.org --token-file token.txt", shared=shared)(mcp)


def with_resources(flags: dict[str, str], resources: list[str]) -> dict[str, str]:
    """Return the flags with what was offered one by one."""
    offered = ",".join([*filter(None, [flags.get("resources")]), *resources])
    return {**flags, "resources": offered} if offered else flags


def load_settings(flags: dict[str, str], file: str | None, screen: Screen) -> Config:
    from horae.config import load

    config = load(flags, file=file)
    for warning in config.warnings:
        screen.warn(warning)
    return config


def up(session: Session, flags: dict[str, str], resource: Resources = None, config_file: ConfigFile = None) -> None:
    """Start Horae: everything in one process, until Ctrl-C.

    Each flag may also be a line of the settings file, or a variable such as HORAE_PORT.
    Flags win over variables, variables over the file.
    """
    config = load_settings(with_resources(flags, resource or []), config_file, session.screen)
    # Only here: the whole server is loaded with it, which no other command needs.
    import asyncio

    import uvloop

    from horae.app.process import serve

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(config, partial(_greet, session)))


def _greet(session: Session, config: Config, sandboxes: Sandboxes) -> None:
    """Say where Horae is, unless there is no room to say it, as in a log on a full disk."""
    with suppress(OSError):
        _introduce(session, config, sandboxes)


def _introduce(session: Session, config: Config, sandboxes: Sandboxes) -> None:
    """Where Horae is, what to do with it, and what to know first."""
    from horae.values import mask_database

    screen, version, database, address = session.screen, own_version(), mask_database(config.database), config.address
    if session.as_json:
        places = {"url": address, "node": config.node, "data": str(config.data), "database": database}
        kept = {"history_days": config.history_days, "files_limit": config.files_limit}
        walls = {"walls": sandboxes.walls, "warnings": [sandboxes.warning] if sandboxes.warning else []}
        screen.json({"version": version, **places, **kept, **walls})
    else:
        screen.line(f"Horae {version} is up at {address}\n")
        screen.record(
            [
                ("  dashboard", f"{address}/"),
                *_further(config),
                ("  data", str(config.data)),
                ("  database", database),
                ("  keeps", _kept(config)),
                ("  walls", sandboxes.walls),
                *([("  WARNING", sandboxes.warning)] if sandboxes.warning else ()),
                ("  node", f"{config.node} ({', '.join(config.roles)})"),
                ("  try it", _first_submit(address) if config.free_pass else _first_look(config.port)),
                ("  stop", "Ctrl-C"),
            ]
        )
        screen.line()
    screen.flush()


def _kept(config: Config) -> str:
    from horae.values import show_bytes

    history = f"{config.history_days} days of history" if config.history_days else "history for ever"
    return f"{history}, {show_bytes(config.files_limit) + ' of output' if config.files_limit else 'all output'}"


def _further(config: Config) -> list[tuple[str, str]]:
    return [("  also on", "ports " + ", ".join(map(str, config.further_ports)))] if config.further_ports else []


def _first_submit(address: str) -> str:
    """Return a command that works in another terminal of this directory."""
    horae = "horae" if shutil.which("horae") else os.path.relpath(sys.argv[0])  # as in a fresh checkout
    horae = horae if address == DEFAULT_SERVER else f"{horae} --server {address}"
    import shlex  # rarely needed

    return f"{horae} submit {EXAMPLE}" if EXAMPLE.is_file() else f"echo {shlex.quote(HELLO)} | {horae} submit -"


def _first_look(port: int) -> str:
    return f"horae --server https://NAME:{port} --token-file FILE nodes, from anywhere"


def agent(
    session: Session,
    flags: dict[str, str],
    servers: Annotated[
        str,
        Option(
            "--server", metavar="HOST:PORT[,…]", help="gRPC addresses of servers, tried in turn, or nats:// or tls://."
        ),
    ],
    label: Annotated[
        list[str] | None, Option("--label", metavar="LABEL", help="A label of this agent; may be repeated.")
    ] = None,
    resource: Resources = None,
    token_file: Annotated[
        str | None, Option("--token-file", metavar="FILE", help="File with a token of the scope agent.")
    ] = None,
    join: Annotated[
        str | None,
        Option("--join", metavar="TOKEN", help="Join by this token, once; also HORAE_JOIN_TOKEN or …_FILE."),
    ] = None,
    ca_file: Annotated[
        str | None, Option("--ca-file", metavar="FILE", help="PEM file of who signed the server's certificate.")
    ] = None,
    cert_file: CertFile = None,
    port: Annotated[
        int | None,
        Option("--port", metavar="N", min=1, max=65535, help="Serve /healthz and /metrics here, on loopback."),
    ] = None,
    config_file: ConfigFile = None,
) -> None:
    """Run jobs of a server elsewhere, until Ctrl-C.

    The agent needs no database: it calls the server's gRPC port, or, with nats:// or tls://, nothing but the NATS
    that is the servers' queue. Beyond loopback, and over NATS, it needs a token, and what it calls a certificate.
    Its node is called <host name>-agent and its data lie in ./.horae-agent unless said.
    """
    from horae.cli.joining import agent_flags, read_login, read_way

    given = agent_flags(with_resources(flags, resource or []), label or [])
    config = load_settings(given, config_file, session.screen)
    way = read_way(servers, read_login(token_file, join, config.data), ca_file, cert_file or session.cert_file)
    import asyncio  # as in `up`

    import uvloop

    from horae.app.remote_agent import serve_agent

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_agent(config, way, lambda word, text: _tell(session, config.node, word, text), port))


def _tell(session: Session, node: str, word: str, text: str) -> None:
    """One line for every change of the connection."""
    said = {"joined": f"agent {node} joined {text}", "lost": f"reconnecting: {text}", "drained": f"{node} is drained"}
    if session.as_json:
        session.screen.json({"node": node, "event": word, "about": text})
    else:
        session.screen.line(clean(said[word]))
    session.screen.flush()


def check(
    session: Session,
    flags: dict[str, str],
    paths: Annotated[list[str] | None, Argument(metavar="[FILE]...", help="Job files; - reads stdin.")] = None,
    config_file: ConfigFile = None,
) -> int:
    """Check job files, or the settings.

    Job files are checked without a server. Without files, every setting is shown with where it comes from, and the
    declarations are read.
    """
    if paths:
        return _check_files(session, paths)
    config = load_settings(flags, config_file, session.screen)
    warnings = [*config.warnings, *_check_tls(config, session.screen)]
    declared = _check_declarations(config)
    if session.as_json:
        shown = [{"name": name, "value": value, "source": source} for name, value, source in config.shown()]
        session.screen.json({"settings": shown, "warnings": warnings, "declarations": declared})
    else:
        session.screen.table(["setting", "value", "source"], config.shown())
        for name in declared:
            session.screen.line(f"declaration {clean(name)}: ok")
    return 0


def _check_declarations(config: Config) -> list[str]:
    """Return the files that `up` would apply; one it would refuse is refused here too, and so is a job without
    handler."""
    if config.declarations is None:
        return []
    from horae.app.declarations import read_declarations, refuse_missing_handlers  # few have any

    declared = read_declarations(config.declarations)
    refuse_missing_handlers(declared, config.jobs_directory)
    return [file.name for file in declared]


def _check_tls(config: Config, screen: Screen) -> list[str]:
    """Return what `up` would warn of; a certificate it would refuse is refused here too."""
    if config.tls_cert is None or config.tls_key is None:
        return []
    from horae.tls import server_context  # few have a certificate

    _, warnings = server_context(config.tls_cert, config.tls_key, datetime.now(UTC), config.tls_client_ca)
    for warning in warnings:
        screen.warn(warning)
    return warnings


def _check_files(session: Session, paths: list[str]) -> int:
    results = [_check_file(name) for name in paths]
    for name, jobs, error in results:
        if error:
            show_error(error, exit_code_of(error), as_json=session.as_json)
        elif not session.as_json:
            session.screen.line(f"{clean(name)}: ok, {len(jobs)} job{'' if len(jobs) == 1 else 's'}")
    if session.as_json:
        session.screen.json({"files": [_result_json(*result) for result in results]})
    return max((exit_code_of(error) for _, _, error in results if error), default=0)


def _check_file(name: str) -> tuple[str, list[str], Error | None]:
    """Return the names of the jobs in a file, or what is wrong with it."""
    from horae.core.work import specs  # with cron and time zones: only this command needs them
    from horae.web import documents

    try:
        with naming(name):
            content = read_file(name)
            drafts = specs.parse_jobs(documents.read_document(content, media_type(name, content)))
    except Error as error:
        return name, [], error
    return name, [draft.name for draft in drafts], None


def _result_json(name: str, jobs: list[str], error: Error | None) -> dict[str, Any]:
    problems = [one.as_dict() for one in error.listed()] if error else []
    return {"file": name, "ok": error is None, "jobs": jobs, "errors": problems}


def migrate(
    session: Session,
    flags: dict[str, str],
    only_check: Annotated[
        bool, Option("--check", help="Change nothing; exit 1 if the schema is not the newest.")
    ] = False,
    roles: Annotated[
        str | None,
        Option("--roles", metavar="OWNER,SERVER,READER", help="Print the SQL that makes these roles of PostgreSQL."),
    ] = None,
    config_file: ConfigFile = None,
) -> int:
    """Bring the database schema up to this version.

    With --roles nothing is changed: the SQL is for a superuser, who says it before the first migration and after each.
    """
    if roles is not None:
        return _print_roles(session, roles)
    config = load_settings(flags, config_file, session.screen)
    import asyncio  # as in `up`

    from horae.app.store import migrate as migrate_database
    from horae.app.store import tend_history
    from horae.values import mask_database

    report = asyncio.run(migrate_database(config, check=only_check))
    if not only_check:
        asyncio.run(tend_history(config))
    is_current = report.current == report.latest
    if session.as_json:
        session.screen.json({**dataclasses.asdict(report), "database": mask_database(report.database)})
    else:
        for name in report.applied:
            session.screen.line(f"applied {clean(name)}")
        behind = "" if is_current else f" of {report.latest}: run `horae migrate`"
        session.screen.line(f"{mask_database(report.database)}: schema {report.current}{behind}")
    return 1 if only_check and not is_current else 0


def _print_roles(session: Session, roles: str) -> int:
    from horae.app.store import roles_sql  # no other command needs it

    names = roles.split(",")
    if len(set(names)) != 3 or not all(re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name) for name in names):
        raise Invalid(
            f"--roles takes three different names of small letters, digits and _, with commas; got {roles[:200]!r}",
            code="E_USAGE",
            hint="horae migrate --roles horae_owner,horae_server,horae_reader",
        )
    text = roles_sql(*names)
    if session.as_json:
        session.screen.json({"sql": text})
    else:
        session.screen.line(text.rstrip("\n"))
    return 0


def mcp(
    session: Session,
    allow_writes: Annotated[
        bool, Option("--allow-writes", help="Offer tools that change something, with the rights of the token.")
    ] = False,
) -> None:
    """Let an assistant list, explain and run jobs: a server of the Model Context Protocol on stdin and stdout.

    It asks the server of --server with the token of $HORAE_TOKEN or --token-file, and can do what that token can. It
    only reads, unless --allow-writes is given.
    """
    from horae.cli.assistants.server import Conversation, McpServer  # no other command needs them

    with session.client() as client:
        server = McpServer(client, allow_writes=allow_writes)
        Conversation(server.protocol(), sys.stdout.buffer).hold(sys.stdin.buffer)
