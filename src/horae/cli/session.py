"""The frame around every command: its options, its session, and how its outcome becomes an exit code.

A command is a function `(session, its own arguments…)`, plain or async, that returns nothing or an exit
code. `command` registers it with click and adds the options all commands share, so `horae --json runs` and
`horae runs --json` mean the same. The flags of a settings command are drawn from settings.SETTINGS.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import click

from horae.cli.commands import COMMANDS
from horae.cli.jobfiles import naming, read_file
from horae.cli.options import Option, make_parameter
from horae.cli.screen import Screen, show_error
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
    from horae.client import Client, SyncClient
    from horae.settings import Setting

DEFAULT_SERVER = "http://127.0.0.1:8080"
LAST_PORT = 65535

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
    "E_TIMERS": 5,
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


def credentials_path() -> str:
    """Return where `horae login` keeps tokens."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(home, "horae", "credentials.json")


class Session:
    """What the shared options say."""

    def __init__(self) -> None:
        self.named_server = os.environ.get("HORAE_SERVER") or None
        self.token_file: str | None = None
        self.ca_file = os.environ.get("HORAE_CA_FILE") or None
        self.cert_file = os.environ.get("HORAE_CERT_FILE") or None
        self.org = os.environ.get("HORAE_ORG") or None
        self.insecure = False
        self.as_json = False

    def adopt(
        self,
        *,
        server: str | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        cert_file: str | None = None,
        organisation: str | None = None,
        json: bool = False,
        insecure: bool = False,
    ) -> None:
        """Take options over: those of a command add to those given before it."""
        self.named_server = server or self.named_server
        self.token_file = token_file or self.token_file
        self.ca_file = ca_file or self.ca_file
        self.cert_file = cert_file or self.cert_file
        self.org = organisation or self.org
        self.as_json = self.as_json or json
        self.insecure = self.insecure or insecure

    @property
    def server(self) -> str:
        """Return what --server names, else HORAE_SERVER, else the port that `horae up` would take of HORAE_PORT."""
        return self.named_server or _server_of_port(os.environ.get("HORAE_PORT")) or DEFAULT_SERVER

    def token(self) -> str | None:
        """Return the token to send: that of --token-file, else HORAE_TOKEN, else that of HORAE_TOKEN_FILE, else what
        `horae login` kept for this server."""
        given = None if self.token_file else os.environ.get("HORAE_TOKEN")
        file = self.token_file or os.environ.get("HORAE_TOKEN_FILE")
        if given:
            return given
        if not file:
            return self._saved_token()
        with naming(file):
            text = read_file(file).decode("ascii", "replace").strip()
            if not text:
                raise Error("it is empty where a token was expected", code="E_FILE")
            return text

    def _saved_token(self) -> str | None:
        place = credentials_path()
        if not os.path.exists(place):
            return None
        from horae.cli import credentials  # few have logged in

        return credentials.saved(place, self.server)

    @property
    def screen(self) -> Screen:
        return Screen(as_json=self.as_json)

    def address_of(self, path: str) -> str:
        """Return the whole address of a path of the server, for others to call."""
        server = self.server.rstrip("/")
        return f"{server if '://' in server else f'http://{server}'}{path}"

    def client(self) -> SyncClient:
        from horae.client import SyncClient  # not needed to start

        return SyncClient(
            self.server, self.token(), insecure=self.insecure, ca_file=self.ca_file, cert_file=self.cert_file,
            org=self.org,
        )  # fmt: skip

    def async_client(self) -> Client:
        from horae.client import Client  # few do several things at once

        return Client(
            self.server, self.token(), insecure=self.insecure, ca_file=self.ca_file, cert_file=self.cert_file,
            org=self.org,
        )  # fmt: skip


def _server_of_port(port: str | None) -> str | None:
    if not port:
        return None
    if not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= LAST_PORT:
        raise ConfigError(
            f"HORAE_PORT must be a whole number from 1 to {LAST_PORT}; got {port!r}",
            hint="mend the variable, or name a server with --server",
        )
    return f"http://127.0.0.1:{int(port)}"


# ── the program ────────────────────────────────────────────────────────────────────────────────────


Parameters = Callable[[], Iterable[inspect.Parameter]]


class Command(click.Command):
    """What it takes is made when it is used: listing all commands does without."""

    def __init__(self, name: str, *, parameters: Parameters, **about: Any) -> None:
        self._parameters = parameters
        self._made: list[click.Parameter] | None = None
        super().__init__(name, **about)

    @property
    def params(self) -> list[click.Parameter]:
        if self._made is None:
            self._made = [make_parameter(one) for one in self._parameters()]
        return self._made

    @params.setter
    def params(self, none: list[click.Parameter]) -> None:  # click sets it first
        self._made = None


class Group(Command, click.Group):
    """A word that does something alone, and has further commands, shown in the order of their registering."""

    def __init__(self, name: str, **about: Any) -> None:
        super().__init__(name, invoke_without_command=True, subcommand_metavar="COMMAND [ARGS]...", **about)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class Root(Group):
    """The whole program: every way a command can end is an exit code, and never a stack trace."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order in which a new user meets them (click would sort them by name)."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> click.Command | None:
        """Load the module of a command when it is asked for: one command does without those of the others."""
        if name in COMMANDS and name not in self.commands:
            importlib.import_module(f"horae.cli.{COMMANDS[name][0]}").register(self)
        return self.commands.get(name)

    def format_commands(self, ctx: Any, formatter: click.HelpFormatter) -> None:
        """List them in the words of the table: none is loaded for it."""
        limit = formatter.width - 6 - max(map(len, COMMANDS))  # as click has it
        rows = [
            (name, click.Command(name, help=said).get_short_help_str(limit)) for name, (_, said) in COMMANDS.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def main(self, args: Sequence[str] | None = None, *_: object, **__: object) -> NoReturn:
        sys.exit(self._outcome(list(sys.argv[1:] if args is None else args)))

    def _outcome(self, args: list[str]) -> int:
        as_json = _asks_for_json(args)  # before click takes them
        try:
            code = self._run(args)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the last flush complains
            return _CLOSED_PIPE
        except (KeyboardInterrupt, click.Abort):
            return _INTERRUPTED
        except Exception as error:  # the last line of defence: say it in one line
            return _report(error, as_json=as_json)
        return code

    def _run(self, args: list[str]) -> int:
        try:
            with self.make_context("horae", args) as ctx:
                return int(self.invoke(ctx) or 0)
        except click.exceptions.Exit as asked:
            return asked.exit_code


def _asks_for_json(args: list[str]) -> bool:
    """Return whether --json stands among the options, whatever else is wrong with them."""
    return "--json" in (args[: args.index("--")] if "--" in args else args)


def _report(error: BaseException, *, as_json: bool) -> int:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        help_of = f"see `{context.command_path if context else 'horae'} --help`"
        message, meant = _in_our_words(error)
        error = Invalid(message, code="E_USAGE", hint=f"{meant} {help_of}".strip())
    if not isinstance(error, Error) and (short_of := machine_fault(error)):
        error = MachineFault(short_of, hint="make room, or give it another place (--data)")
    if not isinstance(error, Error):
        error = Error(f"{type(error).__name__}: {error}", hint="this is a fault of Horae: please report it")
    code = exit_code_of(error)
    show_error(error, code, as_json=as_json)
    return code


def _in_our_words(error: click.ClickException) -> tuple[str, str]:
    """Return what is wrong, and what was most likely meant, if that can be told."""
    from horae.core.spelling import suggest

    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"{error.param.param_type_name} {error.param.get_error_hint(error.ctx)} is missing", ""
    if isinstance(error, click.NoSuchOption):
        return f"there is no option {error.option_name}", suggest(error.option_name, error.possibilities or ())
    if isinstance(error, click.NoSuchCommand):
        path = error.ctx.command_path if error.ctx else "horae"
        known = suggest(error.command_name, error.possibilities or (), lambda name: f"`{path} {name}`")
        return f"there is no command {error.command_name}", known
    return error.format_message(), ""


# ── options ────────────────────────────────────────────────────────────────────────────────────────


def option(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_server = Option(
    "--server",
    metavar="URL",
    help=f"Server to ask. [default: $HORAE_SERVER, else port $HORAE_PORT of this machine, else {DEFAULT_SERVER}]",
)
Server = Annotated[str | None, _server]
Insecure = Annotated[bool, Option("--insecure", help="Allow http:// to another machine.")]
TokenFile = Annotated[
    str | None,
    Option(
        "--token-file",
        metavar="FILE",
        help="File with the token to send. [default: $HORAE_TOKEN, else $HORAE_TOKEN_FILE, else that of `horae login`]",
    ),
]
CaFile = Annotated[
    str | None,
    Option(
        "--ca-file", metavar="FILE", help="Certificates to trust, PEM. [default: $HORAE_CA_FILE, else the usual ones]"
    ),
]
CertFile = Annotated[
    str | None,
    Option("--cert-file", metavar="FILE", help="Our own certificate with its key, PEM. [default: $HORAE_CERT_FILE]"),
]
Organisation = Annotated[
    str | None,
    Option("--org", metavar="ORG", help="Organisation to act in, of who is in several. [default: $HORAE_ORG]"),
]
Json = Annotated[bool, Option("--json", help="Answer in JSON, for programs.")]
JSON = option("json", Json, False)
CA_FILE = option("ca_file", CaFile, None)
CERT_FILE = option("cert_file", CertFile, None)
SHARED = (
    option("server", Server, None),
    option("token_file", TokenFile, None),
    CA_FILE,
    CERT_FILE,
    option("insecure", Insecure, False),
    option("organisation", Organisation, None),
    JSON,
)
APART = tuple(one for one in SHARED if one.name != "organisation")  # of commands that mean something else by --org


def _setting_option(setting: Setting) -> inspect.Parameter:
    """Return the flag of a row of SETTINGS. It gives text: config reads every source with the same eyes."""
    text = f"{setting.help} [default: {setting.described_default()}]"
    if setting.kind.bare:
        return option(setting.name, Annotated[bool, Option(setting.flag, help=text)], False)
    info = Option(setting.flag, metavar=setting.kind.metavar, help=text)
    return option(setting.name, Annotated[str | None, info], None)


def _flag_text(setting: Setting, given: str | bool | None) -> str | None:
    """Return what a flag says, as text; None when it was not given."""
    if isinstance(given, bool):
        return setting.kind.bare if given else None
    return given


# ── commands ───────────────────────────────────────────────────────────────────────────────────────

Function = Callable[..., Any]


def command(
    app: click.Group, name: str, example: str, *, shared: Sequence[inspect.Parameter] = SHARED
) -> Callable[[Function], Function]:
    """Register a command; `shared` says which of the common options it takes."""

    def register(function: Function) -> Function:
        own = functools.partial(_own_parameters, function)
        app.add_command(Command(name, **_framed(function, example, shared, own)))
        return function

    return register


def settings_command(
    app: click.Group,
    name: str,
    example: str,
    settings: Sequence[str] | None = None,
    *,
    shared: Sequence[inspect.Parameter] = (JSON,),
) -> Callable[[Function], Function]:
    """Register a command that reads the settings (all of them, unless named): it takes their flags, and gets those
    given as `flags`."""

    def register(function: Function) -> Function:
        @functools.wraps(function)
        def with_flags(session: Session, **given: Any) -> Any:
            flags = {setting.name: _flag_text(setting, given.pop(setting.name)) for setting in _taken(settings)}
            return function(session, flags={name: text for name, text in flags.items() if text is not None}, **given)

        def parameters() -> list[inspect.Parameter]:
            own = [one for one in _own_parameters(function) if one.name != "flags"]
            return [*own, *map(_setting_option, _taken(settings))]

        app.add_command(Command(name, **_framed(with_flags, example, shared, parameters)))
        return function

    return register


def _taken(settings: Sequence[str] | None) -> list[Setting]:
    from horae.settings import SETTINGS

    return [setting for setting in SETTINGS if settings is None or setting.name in settings]


def listing(app: click.Group, name: str, example: str) -> Callable[[Function], click.Group]:
    """Register a command that lists things and has further commands about one of them."""

    def register(function: Function) -> click.Group:
        own = functools.partial(_own_parameters, function)
        group = Group(name, **_framed(function, example, SHARED, own))
        app.add_command(group)
        return group

    return register


def family(app: click.Group, name: str, help: str, example: str) -> click.Group:
    """Register a word that only further commands give a meaning; alone it shows its help."""

    def alone(session: Session) -> None:
        click.echo(click.get_current_context().get_help())

    group = Group(name, **{**_framed(alone, example, SHARED, list), "help": help})
    app.add_command(group)
    return group


def _own_parameters(function: Function) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())[1:]  # without the session


def _framed(function: Function, example: str, shared: Sequence[inspect.Parameter], own: Parameters) -> dict[str, Any]:
    """Return what click is to know of a command: its parameters are the function's own, plus the shared options."""

    @click.pass_context
    def framed(ctx: click.Context, /, **given: Any) -> Any:
        session: Session = ctx.obj
        session.adopt(**{option.name: given.pop(option.name) for option in shared})
        if ctx.invoked_subcommand is not None:
            return None
        outcome = function(session, **given)
        if not inspect.iscoroutine(outcome):
            return outcome
        import asyncio  # most commands do without

        return asyncio.run(outcome)

    return {
        "callback": framed,
        "parameters": lambda: [*own(), *shared],
        "help": inspect.getdoc(function),
        "epilog": f"Example: {example}",
    }
