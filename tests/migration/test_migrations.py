"""The schema: from nothing, from before, from the future, from somebody's hands; on both databases."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import asyncpg
import pytest

import horae
from horae.core import audit
from horae.errors import ConfigError, Error, Unavailable
from horae.service.audit import Audit
from horae.service.metrics import Metrics
from horae.stores import migrate
from horae.stores.migrate import Migration, Report
from horae.stores.postgres import PostgresStore
from horae.stores.sqlite import SqliteStore
from horae.testing import START, FakeClock
from tests.acceptance.server import free_port
from tests.conftest import with_database

DIALECTS = ("sqlite", "postgres")
LATEST = migrate.migrations("sqlite")[-1].version
EVERYTHING = [migration.name for migration in migrate.migrations("sqlite")]

OLDER = 9  # the schema of the version that tests/engines/test_upgrade.py begins with
LONG_HISTORY = """
INSERT INTO history
  (id, job_id, due_at, created_at, finished_at, fence, state, attempt, priority, lost, kind, reason, message)
SELECT i, 1, i, i, i, 1, 10, 1, 0, 0, 'python', '', '' FROM generate_series(1, 20000) AS i;
SELECT setval('run_id', 150000)"""


class Database(Protocol):
    """An empty database, and what a test does to it."""

    dialect: str

    async def migrate(self, *, check: bool = False) -> Report: ...

    async def execute(self, statement: str) -> None: ...

    async def tables(self) -> set[str]: ...

    async def execute_all(self, statements: Sequence[str]) -> None: ...

    async def rows(self, statement: str) -> list[Any]: ...


class Lite:
    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path

    async def migrate(self, *, check: bool = False) -> Report:
        return await asyncio.to_thread(migrate.migrate_sqlite, self.path, check=check)

    async def execute(self, statement: str) -> None:
        await self.execute_all([statement])

    async def execute_all(self, statements: Sequence[str]) -> None:
        connection = sqlite3.connect(self.path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    async def tables(self) -> set[str]:
        connection = sqlite3.connect(self.path)
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        connection.close()
        return {row[0] for row in rows}

    async def rows(self, statement: str) -> list[Any]:
        connection = sqlite3.connect(self.path)
        rows = connection.execute(statement).fetchall()
        connection.close()
        return rows


class Postgres:
    dialect = "postgres"

    def __init__(self, url: str) -> None:
        self.url = url

    async def migrate(self, *, check: bool = False) -> Report:
        return await migrate.migrate_postgres(self.url, check=check)

    async def execute(self, statement: str) -> None:
        await self.execute_all([statement])

    async def execute_all(self, statements: Sequence[str]) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute(";".join(statements))
        await connection.close()

    async def tables(self) -> set[str]:
        connection = await asyncpg.connect(self.url)
        rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        await connection.close()
        return {row[0] for row in rows}

    async def rows(self, statement: str) -> list[Any]:
        connection = await asyncpg.connect(self.url)
        rows = list(await connection.fetch(statement))
        await connection.close()
        return rows


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


async def test_a_new_file_that_somebody_writes_to_is_waited_for(tmp_path: Path):
    path = tmp_path / "horae.db"
    first = sqlite3.connect(path, isolation_level=None)
    first.execute("BEGIN IMMEDIATE")
    migrating = asyncio.create_task(asyncio.to_thread(migrate.migrate_sqlite, path))
    await asyncio.wait([migrating], timeout=0.2)
    assert not migrating.done()
    first.execute("COMMIT")
    first.close()
    assert (await migrating).applied == EVERYTHING


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


async def test_nobody_waits_for_a_migration_that_waits_for_the_transaction_of_another_program(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
):
    """A dump has read the nodes, and goes on: they still beat, and the column is added when it has ended."""
    database = Postgres(empty_url)
    await database.migrate()
    add(monkeypatch, "more", "ALTER TABLE nodes ADD COLUMN colour text;")
    dump, beating = [await asyncpg.connect(empty_url) for _ in range(2)]
    await dump.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM nodes")
    await beating.execute("SET lock_timeout = '5s'")
    migrating = asyncio.create_task(database.migrate())
    while not await waits_for_a_lock(beating):
        assert not migrating.done()

    for _ in range(10):
        await beating.execute("UPDATE nodes SET beat = beat + 1")
        await asyncio.sleep(0.1)
    assert not migrating.done()
    await dump.execute("COMMIT")
    assert await migrating == Report(LATEST + 1, LATEST + 1, ["more"])
    for connection in (dump, beating):
        await connection.close()


async def waits_for_a_lock(connection: Any) -> bool:
    found = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'nodes'::regclass)"
    return bool(await connection.fetchval(found))


async def test_a_migration_is_committed_before_the_next_one_begins(empty_url: str, monkeypatch: pytest.MonkeyPatch):
    """Else its locks would be held for as long as the next one takes."""
    database = Postgres(empty_url)
    await database.migrate()
    add(monkeypatch, "more", "ALTER TABLE nodes ADD COLUMN colour text;")
    known = migrate.migrations("postgres")
    broken = Migration(LATEST + 2, "broken", "SELECT * FROM nowhere;")
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "migrations", lambda _: (*known, broken))
        with pytest.raises(Error):
            await database.migrate()

    assert await database.migrate() == Report(LATEST + 1, LATEST + 1, [])


async def test_a_long_history_of_an_older_schema_is_migrated_moved_to_partitions_and_migrated_again(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
):
    database, known = Postgres(empty_url), migrate.migrations("postgres")
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "migrations", lambda _: known[:OLDER])
        await database.migrate()
    await database.execute(LONG_HISTORY)

    assert (await database.migrate()).current == LATEST
    store = PostgresStore(empty_url)
    assert await store.tend_history()
    await store.close()
    add(monkeypatch, "more", "ALTER TABLE history ADD COLUMN colour text;")
    assert await database.migrate() == Report(LATEST + 1, LATEST + 1, ["more"])
    assert await database.migrate() == Report(LATEST + 1, LATEST + 1, [])
    count, kind = (
        await database.rows("SELECT count(*), min(tableoid::regclass::text) FROM history WHERE colour IS NULL")
    )[0]
    assert (count, kind) == (20_000, "history_0")


@pytest.mark.parametrize("schema", ["public", "ours"])
async def test_a_database_of_schema_18_gets_an_inbox_that_works_in_whatever_schema_it_lies(
    schema: str, empty_url: str, monkeypatch: pytest.MonkeyPatch
):
    known, quoted = migrate.migrations("postgres"), f'"{schema}"'
    database = Postgres(f"{empty_url}&search_path={quote(quoted)}")
    await database.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted}")
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "migrations", lambda _: known[:18])
        await database.migrate()

    assert await database.migrate() == Report(LATEST, LATEST, [migration.name for migration in known[18:]])
    caller = await asyncpg.connect(empty_url)
    assert await horae.enqueue(caller, "mail", {"order": 7}, schema=schema) == 1
    await caller.close()
    assert [tuple(row) for row in await database.rows("SELECT job, data FROM inbox")] == [("mail", '{"order": 7}')]


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
        "ALTER TABLE history DROP COLUMN exit_code",
        "DROP TABLE attempts",
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
    assert str(tmp_path) in caught.value.message


async def test_a_server_out_of_reach_is_named_without_its_login():
    with pytest.raises(Unavailable) as caught:
        await migrate.migrate_postgres(f"postgresql://user:hush@127.0.0.1:{free_port()},localhost:1/none")
    assert "127.0.0.1:" in caught.value.message
    assert "localhost:1" in caught.value.message
    assert "hush" not in caught.value.message


# ── beside others ──


@pytest.mark.parametrize("when", ["before", "after"])
async def test_tables_of_others_change_nothing(database: Database, when: str, monkeypatch: pytest.MonkeyPatch):
    """A replicator keeps its own in the file, an extension in the schema; they come, change and go."""
    if when == "before" and database.dialect == "postgres":
        await database.execute("CREATE TABLE _litestream_seq (id integer)")
    await database.migrate()
    await database.execute("CREATE TABLE _litestream_lock (id integer)")
    assert await database.migrate() == Report(LATEST, LATEST, [])
    await database.execute("ALTER TABLE _litestream_lock ADD COLUMN seq integer")

    add(monkeypatch, "more", "ALTER TABLE jobs ADD COLUMN colour text;")
    assert await database.migrate() == Report(LATEST + 1, LATEST + 1, ["more"])
    await database.execute("DROP TABLE _litestream_lock")
    assert await database.migrate() == Report(LATEST + 1, LATEST + 1, [])


@pytest.mark.parametrize("check", [False, True])
async def test_a_fingerprint_of_everything_as_it_was_stored_before_is_accepted(
    database: Database, check: bool, monkeypatch: pytest.MonkeyPatch
):
    await database.migrate()
    await database.execute("CREATE TABLE _litestream_seq (id integer)")
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "fingerprint", lambda _, columns: migrate.digest(columns))
        add(patch, "more", "ALTER TABLE jobs ADD COLUMN colour text;")
        patch.setattr(migrate, "pending", lambda dialect, done, _: list(migrate.migrations(dialect)[len(done) :]))
        assert await database.migrate() == Report(LATEST + 1, LATEST + 1, ["more"])

    add(monkeypatch, "more", "ALTER TABLE jobs ADD COLUMN colour text;")
    assert await database.migrate(check=check) == Report(LATEST + 1, LATEST + 1, [])
    if not check:
        await database.execute("DROP TABLE _litestream_seq")
        assert await database.migrate() == Report(LATEST + 1, LATEST + 1, [])


async def test_the_fingerprint_of_a_database_without_others_is_what_it_always_was(database: Database):
    await database.migrate()
    stored = dict(await database.rows("SELECT version, fingerprint FROM migrations"))

    before = {"sqlite": ("51dc22871ca7b3d2", "c45b241c0e69f200"), "postgres": ("25c45eb45c087911", "bc3fd05c8cc21539")}
    assert (stored[1], stored[9]) == before[database.dialect]


# ── files and databases of others ──

THEIRS = "CREATE TABLE theirs (id integer)"


def strangers(path: Path) -> dict[str, Callable[[], None]]:
    def make(*statements: str) -> Callable[[], None]:
        def run() -> None:
            connection = sqlite3.connect(path)
            for statement in statements:
                connection.execute(statement)
            connection.commit()
            connection.close()

        return run

    return {
        "no database": lambda: path.write_bytes(b"this is not a database, however long it may be" * 100) and None,
        "an application id": make("PRAGMA application_id = 252006674", THEIRS),
        "a table": make(THEIRS),
        "migrations of its own": make("CREATE TABLE migrations (id integer, migration text, batch integer)"),
    }


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("what", ["no database", "an application id", "a table", "migrations of its own"])
def test_a_file_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path, what: str, check: bool):
    path = tmp_path / "horae.db"
    strangers(path)[what]()
    before = path.read_bytes()

    with pytest.raises(ConfigError) as caught:
        migrate.migrate_sqlite(path, check=check)
    with pytest.raises(ConfigError):
        SqliteStore(path, clock=lambda: 0).hold()

    assert caught.value.code == "E_DB_FOREIGN"
    assert caught.value.hint
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["horae.db"]


def test_a_file_is_signed_and_one_from_before_is_known_by_its_tables(tmp_path: Path):
    path = tmp_path / "horae.db"
    path.touch()  # an empty file is nobody's
    migrate.migrate_sqlite(path)
    assert path.read_bytes()[68:72] == b"hora"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 0")
    connection.close()

    assert migrate.migrate_sqlite(path, check=True) == Report(LATEST, LATEST)
    assert migrate.migrate_sqlite(path) == Report(LATEST, LATEST)

    assert path.read_bytes()[68:72] == b"hora"


def test_a_directory_is_no_database(tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        SqliteStore(tmp_path, clock=lambda: 0).hold()
    assert caught.value.code == "E_FILE"


async def test_a_table_of_migrations_of_another_program_is_refused(empty_url: str):
    await Postgres(empty_url).execute("CREATE TABLE migrations (id integer, migration text)")
    with pytest.raises(ConfigError) as caught:
        await migrate.migrate_postgres(empty_url)
    assert caught.value.code == "E_DB_FOREIGN"


async def test_a_database_that_does_not_know_its_encoding_is_refused(postgres_server: str):
    name = f"ascii_{uuid.uuid4().hex[:12]}"
    connection = await asyncpg.connect(postgres_server)
    await connection.execute(
        f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    with pytest.raises(ConfigError) as caught:
        await migrate.migrate_postgres(with_database(postgres_server, name))
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()
    assert caught.value.code == "E_DB_ENCODING"
    assert "SQL_ASCII" in caught.value.message


async def test_a_role_that_may_not_create_is_told_so_unless_there_is_nothing_to_create(empty_url: str):
    role = f"poor_{uuid.uuid4().hex[:12]}"
    owner = await asyncpg.connect(empty_url)
    await owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    await owner.execute(f"REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO {role}")
    theirs = empty_url.replace("://postgres:", f"://{role}:").replace("://postgres@", f"://{role}:x@")
    try:
        with pytest.raises(ConfigError) as caught:
            await migrate.migrate_postgres(theirs)
        assert caught.value.code == "E_DB_RIGHTS"
        assert "GRANT" in caught.value.hint
        await migrate.migrate_postgres(empty_url)
        await owner.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
        assert await migrate.migrate_postgres(theirs) == Report(LATEST, LATEST)
    finally:
        await owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await owner.close()


# ── 0027: ends that nobody was told of are events ──

ENDED = """INSERT INTO history
  (id, job_id, due_at, created_at, finished_at, fence, state, attempt, priority, lost, kind, reason, message)
VALUES (7, 1, 5, 5, 9, 1, 11, 1, 0, 0, 'python', '', ''), (8, 1, 5, 5, 9, 0, 14, 0, 0, 0, 'python', 'overlap', '')"""
WATCHED = {
    "sqlite": "CREATE TRIGGER history_untold AFTER INSERT ON history BEGIN SELECT 1; END",
    "postgres": "ALTER TABLE history ENABLE TRIGGER history_untold",
}


@pytest.mark.parametrize("is_watched", [True, False])
async def test_ends_that_nobody_was_told_of_become_events(
    database: Database, monkeypatch: pytest.MonkeyPatch, is_watched: bool
):
    known = {dialect: migrate.migrations(dialect) for dialect in DIALECTS}
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "migrations", lambda dialect: tuple(m for m in known[dialect] if m.version < 27))
        await database.migrate()
    await database.execute(ENDED)
    await database.execute("INSERT INTO untold (run_id) VALUES (7), (8) ON CONFLICT DO NOTHING")
    if is_watched:
        await database.execute(WATCHED[database.dialect])

    await database.migrate()

    rows = await database.rows("SELECT kind, state, fence FROM events WHERE kind = 'run.finished' ORDER BY id")
    assert [tuple(row) for row in rows] == [("run.finished", 11, 1), ("run.finished", 14, 0)]
    readers = await database.rows("SELECT name, place FROM event_readers")
    assert [tuple(row) for row in readers] == ([("nats", "0.0.0")] if is_watched else [])


# ── 0036: what seals rows of the audit log lies beside them ──

DEED = """INSERT INTO audit (id, at, org, who, via, address, action, operation, kind, subject, made, count, change,
  request_id, nth, outcome, code, seq, hash)
VALUES ({row.id}, {row.at}, 1, 'ann', '', '', '', '', '', '', '', 1, '', 'r{row.id}', 0, 'done', '', {seq}, {hash})"""


async def test_sealed_rows_of_before_are_sealed_as_they_were(
    database: Lite | Postgres, monkeypatch: pytest.MonkeyPatch
):
    known = {dialect: migrate.migrations(dialect) for dialect in DIALECTS}
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "migrations", lambda dialect: tuple(m for m in known[dialect] if m.version < 36))
        await database.migrate()
    rows = [
        audit.Row(number, START + number, 1, "ann", *[""] * 7, 1, "", f"r{number}", 0, "done", "")
        for number in range(1, audit.SEALED + 6)
    ]
    late, *sealed = rows
    order = [*sealed[1:], sealed[0]] if database.dialect == "postgres" else rows
    old = audit.Seal.of(order, 0, audit.NO_HASH)
    texts = [DEED.format(row=rows[row_id - 1], seq=seq, hash=f"'{text}'") for row_id, seq, text in old.entries()]
    if late not in order:  # it has committed after the others were sealed
        texts.append(DEED.format(row=late, seq="NULL", hash="NULL"))
    texts.append(f"UPDATE audit_head SET seq = {old.seq}, hash = '{old.last_hash}'")
    await database.execute_all(texts)

    await database.migrate()

    store: PostgresStore | SqliteStore = (
        PostgresStore(database.url)
        if isinstance(database, Postgres)
        else SqliteStore(database.path, clock=lambda: START)
    )
    await store.open()
    try:
        assert (await store.seal_audit(10))[0] == len(rows) - len(order)
        log = Audit(store, FakeClock(START), Metrics())
        check, head, is_last = await log.verify(None, f"{old.seq}:{old.last_hash}")
        assert (check.faults, check.checked, head.seq, is_last) == ([], len(rows), len(rows), True)
        numbers = {row.id: row.seq for row in await store.list_audit(audit.AuditFilter(), None, 1000)}
        assert numbers == {row_id: seq for row_id, seq, _ in old.entries()} | {late.id: numbers[late.id]}
        assert numbers[late.id] in (1, len(rows))
    finally:
        await store.close()


# ── 0039: jobs are found by their tags ──

JOB_OF_BEFORE = """INSERT INTO jobs (id, org, owner, name, kind, spec, policy, segment, paused, annotations, version,
  created_at, updated_at, triggers, deleted_at)
VALUES ({id}, 1, 'ann', 'job', 'shell', '{{}}', '{policy}', 0, {false}, '{{}}', 1, 0, 0, '[]', {deleted_at})"""


async def test_jobs_of_before_are_found_by_the_tags_that_they_have(
    database: Lite | Postgres, monkeypatch: pytest.MonkeyPatch
):
    known = {dialect: migrate.migrations(dialect) for dialect in DIALECTS}
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "migrations", lambda dialect: tuple(m for m in known[dialect] if m.version < 39))
        await database.migrate()
    false = "false" if database.dialect == "postgres" else "0"
    policies = {1: ('{"tags":["a","b"]}', "NULL"), 2: ("{}", "NULL"), 3: ('{"tags":["a"]}', "7")}
    await database.execute_all(
        [
            JOB_OF_BEFORE.format(id=number, policy=policy, false=false, deleted_at=deleted_at)
            for number, (policy, deleted_at) in policies.items()
        ]
    )

    await database.migrate()

    rows = await database.rows("SELECT tag, org, job_id FROM job_tags ORDER BY tag, job_id")
    assert [tuple(row) for row in rows] == [("a", 1, 1), ("b", 1, 1)]
    await database.execute('UPDATE jobs SET policy = \'{"tags":["b","c"]}\' WHERE id < 3')
    await database.execute("UPDATE jobs SET deleted_at = 7 WHERE id = 2")
    rows = await database.rows("SELECT tag, org, job_id FROM job_tags ORDER BY tag, job_id")
    assert [tuple(row) for row in rows] == [("b", 1, 1), ("c", 1, 1)]
