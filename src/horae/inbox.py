"""Hand work over to Horae inside a transaction of your own, on the PostgreSQL that Horae uses.

    async with connection.transaction():
        await connection.execute("INSERT INTO orders …")
        receipt = await horae.enqueue(connection, "send-invoice", {"order": 17})

The work exists if and only if the transaction commits. It is one call of the SQL function `horae_enqueue`, which every
other language can make as well. Nothing is imported here that the caller has not: the connection tells its library.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from horae.errors import Invalid

_ENQUEUE = (
    "SELECT {schema}horae_enqueue({job}, CAST({data} AS jsonb), {key}, "
    "CAST({priority} AS integer), CAST({run_at} AS timestamptz))"
)
_WAKE = "SELECT {schema}horae_wake()"
_NAMES = ("job", "data", "key", "priority", "run_at")
_STYLES = {"asyncpg": "${number}", "psycopg": "%({name})s", "sqlalchemy": ":{name}"}  # how each writes a parameter


def enqueue(
    connection: Any,
    job: str | int,
    data: Mapping[str, Any] | None = None,
    *,
    key: str | None = None,
    priority: int | None = None,
    run_at: datetime | None = None,
    schema: str | None = None,
) -> Any:
    """Return the receipt of work that is handed over in the connection's transaction, or an awaitable of it.

    `connection` is one of asyncpg, a connection or cursor of psycopg 3, or a connection or session of SQLAlchemy; with
    those that are async, await the answer. `job` is the id or key of a job of the owner that the database role acts
    for. With `key`, the same work is not done twice within a day. `schema` is that of Horae, where the search path of
    the connection does not have it.
    """
    values = (str(job), _text(data), key, priority, _moment(run_at))
    return _call(connection, _ENQUEUE, schema, dict(zip(_NAMES, values, strict=True)))


def wake(connection: Any, *, schema: str | None = None) -> Any:
    """Let Horae look for work that was handed over now, and not within a tenth of a second. To be called, or awaited,
    after the commit, with a connection that is in no transaction: inside one that has written it is refused."""
    return _call(connection, _WAKE, schema, {})


def _call(connection: Any, call: str, schema: str | None, arguments: dict[str, Any]) -> Any:
    """Return what a function of the database answers, or an awaitable of it."""
    library = _library(connection)
    statement = _statement(library, call, schema)
    if library == "asyncpg":
        return connection.fetchval(statement, *arguments.values())
    given: Any = statement
    if library == "sqlalchemy":
        given = sys.modules["sqlalchemy"].text(statement)  # whoever has its connection has loaded it
    if inspect.iscoroutinefunction(connection.execute):
        return _execute_async(connection, given, arguments)
    return connection.execute(given, arguments).fetchone()[0]


async def _execute_async(connection: Any, statement: Any, arguments: dict[str, Any]) -> Any:
    row = (await connection.execute(statement, arguments)).fetchone()
    return (await row if inspect.isawaitable(row) else row)[0]


def _library(connection: Any) -> str:
    for kind in type(connection).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in _STYLES:
            return library
    raise Invalid(
        f"a connection of asyncpg, psycopg 3 or SQLAlchemy is expected, got {type(connection).__qualname__}",
        code="E_TYPE",
        hint="with any other library: SELECT horae_enqueue('JOB', '{\"some\": \"data\"}')",
    )


def _statement(library: str, call: str, schema: str | None) -> str:
    style = _STYLES[library]
    holders = {name: style.format(number=number, name=name) for number, name in enumerate(_NAMES, 1)}
    quoted = "" if schema is None else '"' + schema.replace('"', '""') + '".'
    if library == "psycopg":
        quoted = quoted.replace("%", "%%")
    return call.format(schema=quoted, **holders)


def _text(data: Mapping[str, Any] | None) -> str | None:
    """Return data as JSON. Refused here, it does not break the caller's transaction."""
    if data is None:
        return None
    if not isinstance(data, Mapping):
        raise Invalid(f"data must be a mapping, got {type(data).__name__}", code="E_TYPE", path="data")
    try:
        return json.dumps(dict(data), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Invalid(f"data must be JSON: {error}", code="E_TYPE", path="data") from error


def _moment(run_at: datetime | None) -> datetime | None:
    if run_at is not None and run_at.tzinfo is None:
        raise Invalid(f"run_at has no time zone: {run_at}", code="E_TIME_NO_OFFSET", path="run_at")
    return run_at
