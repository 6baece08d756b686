"""The command line: `horae`. Depend on nothing in here but `main` and `EXIT_CODES`.

    screen     what reaches the user                session   the frame around every command, exit codes
    jobfiles   job files as bytes                   remote    commands that ask a server
    options    how a command says what it takes
    local      commands that need none: up, check, migrate
    secrets    commands that ask a server to keep secrets
    tokens     commands that ask whoever holds the database: token
    inbox      commands about work that others hand over in their own transactions: inbox

Starting fast is a feature: whatever only some commands need (httpx, Rich, the server, the readers of
schedules) is imported inside them. `horae --help` has 250 ms, a command that asks a server 350 ms.
"""

from __future__ import annotations

import io
import sys
from typing import Any

import click

from horae.cli import inbox, local, remote, secrets, tokens
from horae.cli.options import make_parameter
from horae.cli.session import EXIT_CODES, SHARED, Root, Session, own_version

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


_VERSION = click.Option(["--version"], is_flag=True, default=False, help="Show the version and exit.")
_PARAMS = [*map(make_parameter, SHARED), _VERSION]
app = Root("horae", callback=_begin, params=_PARAMS, help=_ABOUT, epilog=_EPILOG)
local.register(app)
remote.register(app)
tokens.register(app)
inbox.register(app)
secrets.register(app)


def main() -> None:
    """The program. A character that the terminal cannot show is escaped, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
