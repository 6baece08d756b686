"""The schema: from nothing, from before, from the future, from somebody's hands; on both databases."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import pytest

from horae.errors import ConfigError, Error, Unavailable
from horae.stores import migrate
from horae.stores.migrate import Migration, Report
from tests.conftest import with_database

DIALECTS = ("sqlite", "postgres")
LATEST = migrate.migrations("sqlite")[-1].version
EVERYTHING = [migration.name for migration in migrate.migrations("sqlite")]


class Database(Protocol):
    """An empty database, and what a test does to it."""

    dialect: str

    async def migrate(self, *, check: bool = False) -> Report: ...

    async def execute(self, statement: str) -> None: ...

    async def tables(self) -> set[str]: ...


class Lite:
    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path

    async def migrate(self, *, check: bool = False) -> Report:
        return await asyncio.to_thread(migrate.migrate_sqlite, self.path, check=check)

    async def execute(self, statement: str) -> None:
        connection = sqlite3.connect(self.path)
        connection.execute(statement)
        connection.commit()
        connection.close()

    async def tables(self) -> set[str]:
        connection = sqlite3.connect(self.path)
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        connection.close()
        return {row[0] for row in rows}


class Postgres:
    dialect = "postgres"

    def __init__(self, url: str) -> None:
        self.url = url

    async def migrate(self, *, check: bool = False) -> Report:
        return await migrate.migrate_postgres(self.url, check=check)

    async def execute(self, statement: str) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute(statement)
        await connection.close()

    async def tables(self) -> set[str]:
        connection = await asyncpg.connect(self.url)
        rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        await connection.close()
        return {row[0] for row in rows}


@pytest.fixture
async def empty_url(postgres_server: str) -> AsyncIterator[str]:
    name = f"empty_{uuid.uuid4().hex[:12]}"
    connection = await asyncpg.connect(postgres_server)
    await connection.execute(f"CREATE DATABASE {name}")
    yield with_database(postgres_server, name)
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


@pytest.fixture(params=DIALECTS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return Lite(tmp_path / "deep" / "horae.db")
    return Postgres(request.getfixturevalue("empty_url"))


# ── the files ──


def test_every_migration_exists_in_both_dialects_numbered_without_a_gap():
    both = [[(m.version, m.name) for m in migrate.migrations(dialect)] for dialect in DIALECTS]

    assert both[0] == both[1]
    assert [version for version, _ in both[0]] == list(range(1, len(both[0]) + 1))


def test_every_file_in_the_directory_is_a_migration_that_says_when_it_goes():
    for entry in files("horae.stores").joinpath("migrations").iterdir():
        if entry.name.startswith("__"):
            continue
        assert entry.name.endswith((".sqlite.sql", ".postgres.sql")), entry.name
        assert entry.read_text().startswith(("-- before the code", "-- after the code")), entry.name


# ── making it ──


async def test_a_schema_is_made_from_nothing_and_a_second_run_does_nothing(database: Database):
    assert await database.migrate() == Report(LATEST, LATEST, EVERYTHING)
    assert {"jobs", "due", "live", "history", "attempts", "nodes", "leases", "segments"} <= await database.tables()

    assert await database.migrate() == Report(LATEST, LATEST, [])


async def test_a_check_says_where_a_schema_stands_and_touches_nothing(database: Database):
    assert await database.migrate(check=True) == Report(0, LATEST)
    if isinstance(database, Lite):
        assert not database.path.parent.exists()
    else:
        assert await database.tables() == set()
    await database.migrate()

    assert await database.migrate(check=True) == Report(LATEST, LATEST)


async def test_two_migrators_at_once_make_one_schema(database: Database):
    reports = await asyncio.gather(*(database.migrate() for _ in range(4)))

    assert sorted(report.applied for report in reports) == [[], [], [], EVERYTHING]
    assert await database.migrate() == Report(LATEST, LATEST, [])


async def test_only_what_is_missing_is_applied(database: Database, monkeypatch: pytest.MonkeyPatch):
    await database.migrate()
    add(monkeypatch, "more", "ALTER TABLE jobs ADD COLUMN colour text;")
    assert await database.migrate(check=True) == Report(LATEST, LATEST + 1)

    assert await database.migrate() == Report(LATEST + 1, LATEST + 1, ["more"])
    assert await database.migrate() == Report(LATEST + 1, LATEST + 1, [])


async def test_a_migration_that_breaks_leaves_nothing_behind(database: Database, monkeypatch: pytest.MonkeyPatch):
    await database.migrate()
    before = await database.tables()
    with monkeypatch.context() as patch:
        add(patch, "broken", "CREATE TABLE half (id integer);\nSELECT * FROM nowhere;")
        with pytest.raises(Error):
            await database.migrate()

    assert await database.tables() == before
    assert await database.migrate() == Report(LATEST, LATEST, [])


def add(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """One more migration than there is."""
    known = {dialect: migrate.migrations(dialect) for dialect in DIALECTS}
    more = Migration(LATEST + 1, name, text)
    monkeypatch.setattr(migrate, "migrations", lambda dialect: (*known[dialect], more))


# ── refusing ──


@pytest.mark.parametrize("check", [False, True])
async def test_a_schema_of_a_newer_horae_is_refused(database: Database, check: bool):
    await database.migrate()
    await database.execute(f"INSERT INTO migrations VALUES ({LATEST + 1}, 'tomorrow', 'x')")

    await refused(database, "E_SCHEMA_NEWER", check=check)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE jobs ADD COLUMN colour text",
        "ALTER TABLE history DROP COLUMN message",
        "DROP TABLE attempts",
        "CREATE TABLE mine (id integer)",
    ],
)
async def test_a_schema_that_somebody_changed_is_refused(database: Database, change: str):
    await database.migrate()
    await database.execute(change)

    await refused(database, "E_SCHEMA_DRIFT")
    await refused(database, "E_SCHEMA_DRIFT", check=True)


async def refused(database: Database, code: str, **fields: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        await database.migrate(**fields)
    assert caught.value.code == code
    assert caught.value.hint


async def test_a_database_out_of_reach_is_unavailable(tmp_path: Path):
    with pytest.raises(Unavailable) as caught:
        await migrate.migrate_postgres(f"postgresql://nobody@/none?host={tmp_path}")
    assert caught.value.code == "E_DB_UNREACHABLE"


def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path):
    path = tmp_path / "horae.db"
    path.write_bytes(b"this is not a database, however long it may be" * 100)

    with pytest.raises(Unavailable, match="cannot be used"):
        migrate.migrate_sqlite(path)
