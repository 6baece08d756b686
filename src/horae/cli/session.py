"""The frame around every command: its options, its session, and how its outcome becomes an exit code.

A command is a function `(session, its own arguments…)`, plain or async, that returns nothing or an exit
code. `command` registers it with typer and adds the options all commands share, so `horae --json runs` and
`horae runs --json` mean the same. The flags of a settings command are drawn from config.SETTINGS.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from horae.cli.jobfiles import naming, read_file
from horae.cli.screen import Screen, show_error
from horae.config import SETTINGS, Setting
from horae.errors import (
    ConfigError,
    Conflict,
    Denied,
    Error,
    Invalid,
    Limited,
    MachineFault,
    Malformed,
    MediaType,
    NotFound,
    Stale,
    Unavailable,
    machine_fault,
)

if TYPE_CHECKING:
    from horae.client import Client

DEFAULT_SERVER = "http://127.0.0.1:8080"

ORDER = (
    *("up", "agent", "submit", "jobs", "triggers", "runs", "logs", "artifacts", "run", "cancel", "pause", "resume"),
    *("preview", "nodes", "secret", "token", "check", "migrate"),
)
EXIT_CODES: dict[int, str] = {
    0: "It worked.",
    1: "Any other failure, such as a file that cannot be read.",
    2: "The command line, a job or a setting makes no sense.",
    3: "Not allowed.",
    4: "No such job, trigger, run, node or secret.",
    5: "The present state forbids it: ended, paused, changed, or held by another process.",
    6: "The server or the database is out of reach, or does not offer what was asked.",
}
_BY_CODE = {
    "E_FILE": 1,
    "E_TOO_LARGE": 1,
    "E_LISTEN": 1,
    "E_DB_VERSION": 1,
    "E_SCHEMA_NEWER": 1,
    "E_SCHEMA_DRIFT": 1,
    "E_SINGLE_NODE_LOCK": 5,
    "E_NODE_TAKEN": 5,
    "E_DB_UNREACHABLE": 6,
    "E_DB_READ_ONLY": 6,
}
_BY_KIND: tuple[tuple[type[Error], int], ...] = (
    (ConfigError, 2),
    (Invalid, 2),
    (Malformed, 2),
    (MediaType, 2),
    (Denied, 3),
    (NotFound, 4),
    (Conflict, 5),
    (Stale, 5),
    (Limited, 6),
    (Unavailable, 6),
)
_INTERRUPTED, _CLOSED_PIPE = 130, 141  # as a shell reports SIGINT and SIGPIPE


def exit_code_of(error: Error) -> int:
    by_kind = (code for kind, code in _BY_KIND if isinstance(error, kind))
    return _BY_CODE.get(error.code) or next(by_kind, 1)


def own_version() -> str:
    import importlib.metadata  # slow to load, and rarely needed

    return importlib.metadata.version("horae")


class Session:
    """What the shared options say."""

    def __init__(self) -> None:
        self.named_server = os.environ.get("HORAE_SERVER") or None
        self.token_file: str | None = None
        self.ca_file = os.environ.get("HORAE_CA_FILE") or None
        self.insecure = False
        self.as_json = False

    def adopt(
        self,
        *,
        server: str | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        json: bool = False,
        insecure: bool = False,
    ) -> None:
        """Take options over: those of a command add to those given before it."""
        self.named_server = server or self.named_server
        self.token_file = token_file or self.token_file
        self.ca_file = ca_file or self.ca_file
        self.as_json = self.as_json or json
        self.insecure = self.insecure or insecure

    @property
    def server(self) -> str:
        return self.named_server or DEFAULT_SERVER

    def token(self) -> str | None:
        """The token to send: that of --token-file, else HORAE_TOKEN, else that of HORAE_TOKEN_FILE."""
        given = None if self.token_file else os.environ.get("HORAE_TOKEN")
        file = self.token_file or os.environ.get("HORAE_TOKEN_FILE")
        if given or not file:
            return given or None
        with naming(file):
            text = read_file(file).decode("ascii", "replace").strip()
            if not text:
                raise Error("it is empty where a token was expected", code="E_FILE")
            return text

    @property
    def screen(self) -> Screen:
        return Screen(as_json=self.as_json)

    def client(self, server: str = "") -> Client:
        # httpx loads its own command line with it, Pygments included, which takes longer than a request.
        sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
        from horae.client import Client

        return Client(server or self.server, self.token(), insecure=self.insecure, ca_file=self.ca_file)


# ── reading the command line ───────────────────────────────────────────────────────────────────────
#
# typer reads words and numbers through pydantic, and loading that would double the time a command takes to
# start. All our parameters are flags, words, lists of words and whole numbers, so they are read here.


def _read_value(param: Any, ctx: Any, value: Any) -> Any:
    kind = param.type_descriptor.annotation
    if kind is bool:
        return param.callback(ctx, param, bool(value)) if param.callback else bool(value)
    if value is None or value == ():
        if param.required:
            ctx.fail(f"{param.param_type_name} {param.get_error_hint()} is missing")
        return value
    return _read_number(param, ctx, value) if kind is int else value


def _read_number(param: Any, ctx: Any, value: int | str) -> int:
    number = int(value) if re.fullmatch(r"[0-9]{1,18}", str(value)) else -1
    if not param.min <= number <= (param.max or sys.maxsize):
        name = param.metavar if param.param_type_name == "argument" else param.opts[0]
        most = f" to {param.max}" if param.max else ""
        ctx.fail(f"{name} must be a whole number from {param.min}{most}; got {value!r}")
    return number


def _read_ourselves(params: list[Any]) -> list[Any]:
    for param in params:
        param.process_value = functools.partial(_read_value, param)
    return params


class OneCommand(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _read_ourselves(super().get_params(ctx))


class Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _read_ourselves(super().get_params(ctx))


class Root(Group):
    """The whole program: every way a command can end is an exit code, and never a stack trace."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order in which a new user meets them (typer would put those with sub-commands last)."""
        return sorted(self.commands, key=ORDER.index)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        sys.exit(self._outcome(list(sys.argv[1:] if args is None else args)))

    def _outcome(self, args: list[str]) -> int:
        try:
            code = self._run(args)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the last flush complains
            return _CLOSED_PIPE
        except (KeyboardInterrupt, typer.Abort):
            return _INTERRUPTED
        except Exception as error:  # the last line of defence: say it in one line
            return _report(error)
        return code

    def _run(self, args: list[str]) -> int:
        try:
            with self.make_context("horae", args) as ctx:
                return int(self.invoke(ctx) or 0)
        except typer.Exit as asked:
            return asked.exit_code


def _report(error: BaseException) -> int:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        hint = f"see `{context.command_path} --help`" if context else "see `horae --help`"
        error = Invalid(error.format_message(), code="E_USAGE", hint=hint)
    if not isinstance(error, Error) and (short_of := machine_fault(error)):
        error = MachineFault(short_of, hint="make room, or give it another place (--data)")
    if not isinstance(error, Error):
        error = Error(f"{type(error).__name__}: {error}", hint="this is a fault of Horae: please report it")
    show_error(error)
    return exit_code_of(error)


# ── options ────────────────────────────────────────────────────────────────────────────────────────


def _option(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_server = typer.Option(
    "--server", metavar="URL", help=f"Server to ask. [default: $HORAE_SERVER, else {DEFAULT_SERVER}]"
)
Server = Annotated[str | None, _server]
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow http:// to another machine.")]
TokenFile = Annotated[
    str | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the token to send. [default: $HORAE_TOKEN, else $HORAE_TOKEN_FILE]",
    ),
]
CaFile = Annotated[
    str | None,
    typer.Option(
        "--ca-file", metavar="FILE", help="Certificates to trust, PEM. [default: $HORAE_CA_FILE, else the usual ones]"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]
JSON = _option("json", Json, False)
SHARED = (
    _option("server", Server, None),
    _option("token_file", TokenFile, None),
    _option("ca_file", CaFile, None),
    _option("insecure", Insecure, False),
    JSON,
)


def _setting_option(setting: Setting) -> inspect.Parameter:
    """The flag of a row of SETTINGS. It gives text: config reads every source with the same eyes."""
    text = f"{setting.help} [default: {setting.described_default()}]"
    if setting.kind.bare:
        return _option(setting.name, Annotated[bool, typer.Option(setting.flag, help=text)], False)
    info = typer.Option(setting.flag, metavar=setting.kind.metavar, help=text)
    return _option(setting.name, Annotated[str | None, info], None)


def _flag_text(setting: Setting, given: str | bool | None) -> str | None:
    """What a flag says, as text; None when it was not given."""
    if isinstance(given, bool):
        return setting.kind.bare if given else None
    return given


# ── commands ───────────────────────────────────────────────────────────────────────────────────────

Command = Callable[..., Any]
_CONTEXT = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)


def command(
    app: typer.Typer, name: str, example: str, *, shared: Sequence[inspect.Parameter] = SHARED
) -> Callable[[Command], Command]:
    """Register a command; `shared` says which of the common options it takes."""

    def register(function: Command) -> Command:
        app.command(name, cls=OneCommand, help=inspect.getdoc(function), epilog=f"Example: {example}")(
            _framed(function, shared)
        )
        return function

    return register


def settings_command(
    app: typer.Typer,
    name: str,
    example: str,
    settings: Sequence[str],
    *,
    shared: Sequence[inspect.Parameter] = (JSON,),
) -> Callable[[Command], Command]:
    """Register a command that reads the settings: it takes their flags, and gets those given as `flags`."""
    taken = [setting for setting in SETTINGS if setting.name in settings]
    options = [_setting_option(setting) for setting in taken]

    def register(function: Command) -> Command:
        def with_flags(session: Session, **given: Any) -> Any:
            flags = {setting.name: _flag_text(setting, given.pop(setting.name)) for setting in taken}
            return function(session, flags={name: text for name, text in flags.items() if text is not None}, **given)

        own = [one for one in _own_parameters(function) if one.name != "flags"]
        framed = _framed(with_flags, shared, [*own, *options])
        app.command(name, cls=OneCommand, help=inspect.getdoc(function), epilog=f"Example: {example}")(framed)
        return function

    return register


def listing(app: typer.Typer, name: str, example: str) -> Callable[[Command], typer.Typer]:
    """Register a command that lists things and has further commands about one of them."""

    def register(function: Command) -> typer.Typer:
        group = typer.Typer(cls=Group)
        framed = _framed(function, SHARED)
        group.callback(invoke_without_command=True, help=inspect.getdoc(function), epilog=f"Example: {example}")(framed)
        app.add_typer(group, name=name)
        return group

    return register


def family(app: typer.Typer, name: str, help: str, example: str) -> typer.Typer:
    """Register a word that only further commands give a meaning; alone it shows its help."""
    group = typer.Typer(cls=Group)

    def alone(ctx: typer.Context, **given: Any) -> None:
        ctx.obj.adopt(**given)
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())

    alone.__signature__ = inspect.Signature([_CONTEXT, *SHARED])  # type: ignore[attr-defined]
    group.callback(invoke_without_command=True, help=help, epilog=f"Example: {example}")(alone)
    app.add_typer(group, name=name)
    return group


def _own_parameters(function: Command) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())[1:]  # without the session


def _framed(
    function: Command, shared: Sequence[inspect.Parameter], own: Sequence[inspect.Parameter] | None = None
) -> Command:
    """The function that typer sees: its signature is the command's, plus the shared options."""

    def framed(ctx: typer.Context, **given: Any) -> Any:
        session: Session = ctx.obj
        session.adopt(**{option.name: given.pop(option.name) for option in shared})
        if ctx.invoked_subcommand is not None:
            return None
        outcome = function(session, **given)
        return asyncio.run(outcome) if inspect.iscoroutine(outcome) else outcome

    parameters = [_CONTEXT, *(_own_parameters(function) if own is None else own), *shared]
    framed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return framed
