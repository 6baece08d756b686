"""The command line: `horae`. Depend on nothing in here but `main` and `EXIT_CODES`.

    session    the list of commands, the frame around each, exit codes
    screen     what reaches the user                jobfiles   job files as bytes
    options    how a command says what it takes
    local      commands that need no server: up, check, migrate
    completion what a shell offers when Tab is pressed
    tokens     commands that ask whoever holds the database: token
    inbox      commands about work that others hand over in their own transactions: inbox
    jobs, runs, logs, events, builds, nodes, secrets  commands that ask a server: one or two calls, then the screen
    following  what runs write, on the screen       when       moments as people write them
    several    one command, several things

Starting fast is a feature: a command loads its own module alone, and what only some need (the client, Rich, asyncio,
the server, the readers of schedules) is imported inside them. tests/unit/test_cli.py says what is not loaded.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any

import click

from horae.cli.options import COMPLETE_VARIABLE, Option
from horae.cli.session import EXIT_CODES, SHARED, Root, Session, option, own_version

__all__ = ["EXIT_CODES", "app", "main"]

_CODES = "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items())
_EPILOG = f"\b\nExit codes (without a command: this help, 0):\n{_CODES}\n\n\b\nExample: horae up"

_ABOUT = """Horae runs jobs: on time, never two copies at once, with an account of what happened.

Start a server with `horae up`, then submit a job with `horae submit FILE`.
"""


@click.pass_context
def _begin(ctx: click.Context, /, version: bool, **shared: Any) -> None:
    ctx.obj = Session()
    ctx.obj.adopt(**shared)
    if version:
        click.echo(f"horae {own_version()}")
        ctx.exit()
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


_VERSION = option("version", Annotated[bool, Option("--version", help="Show the version and exit.")], False)
app = Root(
    "horae",
    callback=_begin,
    parameters=lambda: [*SHARED, _VERSION],
    help=_ABOUT,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The program. A character that the terminal cannot show is escaped, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if asked := os.environ.get(COMPLETE_VARIABLE):
        from horae.cli.completion import complete  # only for a shell that asks

        sys.exit(complete(app, asked))
    try:
        app()
    except SystemExit as end:
        _leave(end)


def _leave(end: SystemExit) -> None:
    """End at once what has nothing left to do: Python takes a sixth of a command to take itself apart. A server, and
    whatever has threads, ends as ever."""
    threads = sys.modules.get("threading")
    if "horae.app" in sys.modules or (threads is not None and threads.active_count() > 1):
        raise end
    if not isinstance(end.code, int | None):
        raise end  # Python shows what it is
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        raise end from None  # who cannot be told is told so by Python
    os._exit(end.code or 0)
