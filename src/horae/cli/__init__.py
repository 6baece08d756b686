"""The command line: `horae`. Depend on nothing in here but `main` and `EXIT_CODES`.

    screen     what reaches the user                session   the frame around every command, exit codes
    jobfiles   job files as bytes                   remote    commands that ask a server
    local      commands that need none: up, check, migrate
    secrets    commands that ask a server to keep secrets
    tokens     commands that ask whoever holds the database: token

Starting fast is a feature: whatever only some commands need (httpx, Rich, the server, the readers of
schedules) is imported inside them. `horae --help` has 250 ms, a command that asks a server 350 ms.
"""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from horae.cli import local, remote, secrets, tokens
from horae.cli.session import EXIT_CODES, CaFile, Insecure, Json, Root, Server, Session, TokenFile, own_version

__all__ = ["EXIT_CODES", "app", "main"]

_CODES = "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items())
_EPILOG = f"\b\nExit codes (without a command: this help, 0):\n{_CODES}\n\n\b\nExample: horae up"

app = typer.Typer(cls=Root, add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True, epilog=_EPILOG)
def horae(
    ctx: typer.Context,
    server: Server = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    insecure: Insecure = False,
    json: Json = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Horae runs jobs: on time, never two copies at once, with an account of what happened.

    Start a server with `horae up`, then submit a job with `horae submit FILE`.
    """
    ctx.obj = Session()
    ctx.obj.adopt(server=server, token_file=token_file, ca_file=ca_file, json=json, insecure=insecure)
    if version:
        typer.echo(f"horae {own_version()}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


local.register(app)
remote.register(app)
tokens.register(app)
secrets.register(app)


def main() -> None:
    """The program. A character that the terminal cannot show is escaped, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
