"""Numbered migrations, forward only, applied at start under a lock.

`migrations/NNNN_name.<dialect>.sql`. On PostgreSQL each is a transaction of its own, unless there was nothing before:
other nodes work on these tables meanwhile. So it asks for each lock with a short timeout, and begins anew when it does
not get it: behind one that waits, everybody waits. The first line of each says whether it goes before or after the code
that needs it. A schema newer than the code is refused; so is one whose tables are not what the migrations made, found
by a fingerprint of our own tables and columns. Others may have theirs beside them: a replicator, an extension.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import asyncpg
import structlog

from horae.errors import ConfigError, Unavailable
from horae.stores.postgres import lanes
from horae.stores.sqlite import connections as sqlite

log = structlog.get_logger()
LONGEST = 600.0  # seconds a migration may take, or wait for another one
LOCK_TIME = "200ms"  # that everybody may have to wait for a migration that waits for a lock
PAUSE = 1.0  # seconds between two tries
LOCK = 0x686F726165  # "horae": the advisory lock two migrators meet at

_MADE = re.compile(r"\b(?:CREATE\s+(?:TABLE|VIEW)(?:\s+IF\s+NOT\s+EXISTS)?|RENAME\s+TO)\s+(\w+)", re.IGNORECASE)
Column = tuple[str, str, str]  # table, column, type

TABLE = """CREATE TABLE IF NOT EXISTS migrations
  (version integer PRIMARY KEY, name text NOT NULL, fingerprint text NOT NULL)"""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """Where a schema stands, and what was done about it."""

    current: int
    latest: int
    applied: list[str] = field(default_factory=list)


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    found = []
    for entry in files("horae.stores").joinpath("migrations").iterdir():
        if entry.name.endswith(f".{dialect}.sql"):
            number, _, rest = entry.name.partition("_")
            found.append(Migration(int(number), rest.split(".")[0], entry.read_text()))
    return tuple(sorted(found, key=lambda migration: migration.version))


@cache
def own_names(made_by: tuple[Migration, ...]) -> frozenset[str]:
    """Return the tables and views that these migrations make, as both databases spell them."""
    return frozenset(name.lower() for migration in made_by for name in _MADE.findall(migration.text))


def pending(dialect: str, done: list[tuple[int, str]], columns: Sequence[Column]) -> list[Migration]:
    """Return what is still to be applied. `done` are (version, fingerprint after it), in order."""
    known = migrations(dialect)
    latest = known[-1].version
    if done and done[-1][0] > latest:
        raise ConfigError(
            f"the schema is at version {done[-1][0]}, this Horae knows up to {latest}",
            code="E_SCHEMA_NEWER",
            hint="start the newer Horae that made it, or restore a backup from before its upgrade",
        )
    if done and done[-1][1] not in (fingerprint(dialect, columns), digest(columns)):
        raise ConfigError(
            f"the tables are not those that migration {done[-1][0]} makes: somebody changed them by hand",
            code="E_SCHEMA_DRIFT",
            hint="undo the change by hand, or restore a backup",
        )
    return list(known[len(done) :])


def fingerprint(dialect: str, columns: Sequence[Column]) -> str:
    """Of our own tables."""
    ours = own_names(migrations(dialect))
    return digest([column for column in columns if column[0].lower() in ours])


def digest(columns: Sequence[Column]) -> str:
    """Return a fingerprint of these, whoever's they are: what was stored before others were told apart."""
    text = "\n".join("|".join(column) for column in sorted(columns) if column[0] != "migrations")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ── SQLite ─────────────────────────────────────────────────────────────────────────────────────────


def migrate_sqlite(path: Path, *, check: bool = False) -> Report:
    if check and not path.exists():
        return Report(0, migrations("sqlite")[-1].version)
    sqlite.refuse_foreign(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with closing(sqlite.connect(path)) as connection:
            connection.execute("BEGIN EXCLUSIVE")  # two migrators: the second waits, then finds nothing to do
            report = _migrate_sqlite(connection, check)
            connection.execute("COMMIT")
            return report
    except sqlite3.Error as error:
        raise Unavailable(f"{path} cannot be used as a database: {error}") from error


def _migrate_sqlite(connection: sqlite3.Connection, check: bool) -> Report:
    exists = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone()
    done = (
        connection.execute("SELECT version, fingerprint FROM migrations ORDER BY version").fetchall() if exists else []
    )
    columns = _sqlite_columns(connection)
    todo = pending("sqlite", done, columns)
    current, latest = done[-1][0] if done else 0, migrations("sqlite")[-1].version
    if check:
        return Report(current, latest)
    sqlite.sign(connection)
    connection.execute(TABLE)
    if done and done[-1][1] != (ours := fingerprint("sqlite", columns)):
        connection.execute("UPDATE migrations SET fingerprint = ? WHERE version = ?", (ours, current))
    for migration in todo:
        for statement in _statements(migration.text):
            connection.execute(statement)
        row = (migration.version, migration.name, fingerprint("sqlite", _sqlite_columns(connection)))
        connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", row)
    return Report(latest, latest, [migration.name for migration in todo])


def _statements(text: str) -> list[str]:
    """Return the statements of a script; `executescript` would commit the transaction we are in."""
    found, rest = [], ""
    for line in text.splitlines(keepends=True):
        rest += line
        if sqlite3.complete_statement(rest):
            found.append(rest)
            rest = ""
    return found


def _sqlite_columns(connection: sqlite3.Connection) -> list[Column]:
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return [
        (table, row[1], row[2])
        for table in tables
        if not table.startswith("sqlite_")
        for row in connection.execute("SELECT * FROM pragma_table_info(?)", (table,))
    ]


# ── PostgreSQL ─────────────────────────────────────────────────────────────────────────────────────


def roles_sql(owner: str, server: str, reader: str) -> str:
    """Return what makes the roles of a database that Horae works with, and gives them their rights."""
    text = files("horae.stores").joinpath("roles.sql").read_text()
    for name, role in (("{owner}", owner), ("{server}", server), ("{reader}", reader)):
        text = text.replace(name, role)
    return text


async def migrate_postgres(url: str, *, check: bool = False) -> Report:
    try:
        connection = await lanes.connect(url, timeout=LONGEST, settings={"lock_timeout": "0"})
    except (*lanes.LOST, asyncpg.PostgresError) as error:
        raise Unavailable(lanes.refusal(error).message, code="E_DB_UNREACHABLE") from error
    try:
        applied: list[str] = []
        while True:
            report = await _step(connection, check)
            applied += report.applied
            if check or report.current == report.latest:
                return replace(report, applied=applied)
    except asyncpg.ReadOnlySQLTransactionError as error:
        raise _standby() from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise ConfigError(
            f"the role of this address may not make what the schema needs: {error}",
            code="E_DB_RIGHTS",
            hint="let the role that owns the tables run `horae migrate`; where there are none yet, let the schema's "
            "owner say: GRANT USAGE, CREATE ON SCHEMA public TO that role",
        ) from error
    except asyncpg.UndefinedColumnError as error:
        raise _foreign_migrations() from error
    except (*lanes.LOST, asyncpg.PostgresError) as error:
        raise Unavailable(f"the schema could not be brought up to date: {error}") from error
    finally:
        await lanes.part_from(connection)


async def _step(connection: lanes.Connection, check: bool) -> Report:
    """One transaction of it, tried again when others have what it needs."""
    deadline = time.monotonic() + LONGEST
    while True:
        try:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
                await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIME}'")
                return await _migrate_postgres(connection, check)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
            if time.monotonic() > deadline:
                raise
            log.warning("migration.waits", error=str(error), retry_seconds=PAUSE)
        await asyncio.sleep(PAUSE)


def _standby() -> ConfigError:
    return ConfigError("the database is a standby; give the address of the primary", code="E_DB_READ_ONLY")


def _foreign_migrations() -> ConfigError:
    return ConfigError(
        "the table migrations in this schema is that of another program",
        code="E_DB_FOREIGN",
        hint="give Horae a database or a schema of its own",
    )


async def _refuse_encoding(connection: lanes.Connection) -> None:
    """One that does not know what its bytes mean keeps text that nobody can read back."""
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise ConfigError(
            f"the encoding of the database must be UTF8; it is {encoding}",
            code="E_DB_ENCODING",
            hint="make another: CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0",
        )


async def _migrate_postgres(connection: lanes.Connection, check: bool) -> Report:
    await _refuse_encoding(connection)
    if not check and await connection.fetchval("SELECT pg_is_in_recovery()"):
        raise _standby()
    exists = await connection.fetchval("SELECT to_regclass('migrations')")
    rows = await connection.fetch("SELECT version, fingerprint FROM migrations ORDER BY version") if exists else []
    done = [(row[0], row[1]) for row in rows]
    columns = await _postgres_columns(connection)
    todo = pending("postgres", done, columns)
    current, latest = done[-1][0] if done else 0, migrations("postgres")[-1].version
    if check:
        return Report(current, latest)
    if not exists:  # else it needs no right to make tables
        await connection.execute(TABLE)
    if done and done[-1][1] != (ours := fingerprint("postgres", columns)):
        await connection.execute("UPDATE migrations SET fingerprint = $1 WHERE version = $2", ours, current)
    if done and todo:
        await _refuse_others(connection, f"is at version {current} of {latest}")
    todo = todo[:1] if done else todo
    for migration in todo:
        await connection.execute(migration.text)
        row = (migration.version, migration.name, fingerprint("postgres", await _postgres_columns(connection)))
        await connection.execute("INSERT INTO migrations VALUES ($1, $2, $3)", *row)
    return Report(todo[-1].version if todo else current, latest, [migration.name for migration in todo])


async def _refuse_others(connection: lanes.Connection, behind: str) -> None:
    """Roles that work with the tables and do not own them cannot change them."""
    owner, user, may = await connection.fetchrow(
        "SELECT relowner::regrole::text, current_user::text, pg_has_role(relowner, 'USAGE') FROM pg_class "
        "WHERE oid = 'migrations'::regclass"
    )  # type: ignore[misc]  # there always is a row
    if not may:
        raise ConfigError(
            f"the schema {behind}, and the role {user} may not change it: it belongs to {owner}",
            code="E_DB_RIGHTS",
            hint=f"run `horae migrate --database` with the address of {owner}, and start again with this one",
        )


async def _postgres_columns(connection: lanes.Connection) -> list[Column]:
    rows = await connection.fetch(
        "SELECT table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND table_name NOT IN ("
        "SELECT relname FROM pg_class WHERE relispartition AND relnamespace = current_schema()::regnamespace)"
    )
    return [(row[0], row[1], row[2]) for row in rows]
