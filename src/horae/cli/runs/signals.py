"""Commands about runs that wait to be told something: signal."""

from __future__ import annotations

import json
from typing import Annotated, Any

import click

from horae.cli.options import Argument, Option
from horae.cli.screen import Json, clean, name_of_job
from horae.cli.session import Session, command
from horae.errors import Invalid

RunArgument = Annotated[int, Argument(metavar="RUN", min=1, help="Id of a run.")]


def signal(
    session: Session,
    run: RunArgument,
    name: Annotated[str, Argument(metavar="NAME", help="Of the signal, as the handler asks for it.")],
    data: Annotated[
        str | None, Option("--data", metavar="JSON", help="What it is told, any JSON; null unless given.")
    ] = None,
) -> int:
    """Tell a run something.

    A run that waits for it goes on; any other finds it when it asks. A name is answered once.
    """
    value = None if data is None else _read_value(data)
    with session.client() as client:
        _say(session, client.json.signal(run, name, value), f"was told {name}")
    return 0


def _read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        hint = "a text needs quotes of its own: --data '\"yes\"'"
        raise Invalid(f"--data is not JSON: {error}", code="E_JSON_SYNTAX", path="--data", hint=hint) from None


def _say(session: Session, run: Json, what: str) -> None:
    if session.as_json:
        session.screen.json(run)
    else:
        session.screen.line(clean(f"run {run['id']} of {name_of_job(run)} {what}; it is {run['state']} now"))


def register(app: click.Group) -> None:
    command(app, "signal", 'horae signal 42 approve --data \'{"by": "ann"}\'')(signal)
