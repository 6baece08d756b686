"""What servers work with owns nothing: it can do all that is needed, and nothing that only a migration does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from horae.core.definitions import Submission
from horae.core.model import SECOND
from horae.core.runs.orders import NewRun, Order
from horae.errors import ConfigError
from horae.stores import migrate
from horae.stores.postgres import PostgresStore, partitions
from horae.testing import START, FakeClock, make_job

from ..claiming import claim
from ..database_roles import Roles, database_with_roles
from .test_partitions import ask, parts, run, skip_ids, small

assert small  # a fixture of theirs: a history of few runs lies in partitions
SECRET = {"secrets", "tokens", "sessions", "devices", "users", "identities", "settings", "sources"}


@pytest.fixture
async def roles(postgres_server: str) -> AsyncIterator[Roles]:
    async with database_with_roles(postgres_server) as made:
        yield made


@pytest.fixture
async def migrated(roles: Roles, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Roles:
    """By its owner, as `horae migrate` does it; servers have history in partitions from the first run on."""
    await migrate.migrate_postgres(roles.owner)
    owner = PostgresStore(roles.owner, clock=clock.now)
    with monkeypatch.context() as before:
        before.setattr(partitions, "FROM_RUNS", 1_000_000)
        assert not await owner.tend_history()
    await owner.close()
    await roles.give_rights()
    return roles


@pytest.fixture
async def store(migrated: Roles, clock: FakeClock) -> AsyncIterator[PostgresStore]:
    """As servers open it."""
    await migrate.migrate_postgres(migrated.server)
    made = PostgresStore(migrated.server, clock=clock.now)
    await made.open()
    await made.submit([Submission([make_job(1)])])
    yield made
    await made.close()


async def refused(url: str, statement: str) -> bool:
    try:
        await ask(url, statement)
    except asyncpg.InsufficientPrivilegeError:
        return True
    return False


async def test_S47_history_gets_and_loses_its_partitions_by_a_role_that_owns_nothing(
    store: PostgresStore, migrated: Roles, clock: FakeClock
) -> None:
    old = await run(store, 3)
    assert await store.tend_history()
    await skip_ids(migrated.server, 50_000)
    recent = await run(store, 2, START + 99 * SECOND)
    assert await store.tend_history()
    assert [part.end is None for part in await parts(migrated.server)] == [False, False, True]
    clock.advance(5)
    [part] = await store.load_outdated_parts(START + SECOND)
    await store.drop_part(part)
    assert [row[0] for row in await ask(migrated.reader, "SELECT id FROM history ORDER BY id")] == recent
    assert await ask(migrated.reader, "SELECT count(*) FROM JobHistory") == [(2,)]
    assert [await store.get_run(run_id) for run_id in old] == [None] * 3
    await store.purge(recent)
    assert await store.get_run(recent[0]) is None
    assert await run(store)
    owners = "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    assert await ask(migrated.superuser, owners) == [(migrated.names[0],)]
    assert (await migrate.migrate_postgres(migrated.server)).applied == []


async def test_S47_the_role_of_servers_makes_changes_and_drops_nothing(store: PostgresStore, migrated: Roles) -> None:
    owner, server, reader = migrated.names
    await run(store)
    for statement in (
        "CREATE TABLE mine (id int)",
        "CREATE VIEW mine AS SELECT 1",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE SCHEMA mine",
        "CREATE ROLE mine",
        "CREATE INDEX mine ON jobs (name)",
        "CREATE TRIGGER mine AFTER INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION keep_tags()",
        "CREATE OR REPLACE FUNCTION horae_tend_history(step text, part text, low bigint, high bigint) RETURNS void "
        "LANGUAGE sql AS ''",
        "DROP TABLE jobs",
        "DROP FUNCTION horae_wake()",
        "ALTER TABLE jobs ADD COLUMN colour text",
        "ALTER TABLE jobs DISABLE TRIGGER ALL",
        f"ALTER TABLE jobs OWNER TO {server}",
        "TRUNCATE audit",
        "UPDATE migrations SET version = 0",
        "DELETE FROM migrations",
        f"GRANT SELECT ON secrets TO {reader}",
        f"SET ROLE {owner}",
        "COPY jobs TO PROGRAM 'true'",
        "COPY jobs FROM '/etc/passwd'",
        "SELECT pg_read_file('/etc/passwd')",
    ):
        if statement.startswith("GRANT"):  # of this one the database only warns
            await ask(migrated.server, statement)
            assert await refused(migrated.reader, "SELECT 1 FROM secrets")
        else:
            assert await refused(migrated.server, statement), statement
    flags = "SELECT rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls FROM pg_roles WHERE rolname = "
    assert await ask(migrated.superuser, f"{flags}'{server}'") == [(False,) * 5]
    owned = f"SELECT count(*) FROM pg_class WHERE relowner = '{server}'::regrole"
    assert await ask(migrated.superuser, owned) == [(0,)]


async def test_S47_the_function_with_the_rights_of_the_owner_tends_history_and_nothing_else(
    store: PostgresStore, migrated: Roles
) -> None:
    await run(store)
    assert await store.tend_history()
    before = await parts(migrated.server)
    for step, part in (
        ("drop", "jobs"),
        ("drop", "history"),
        ("drop", 'history_0"; DROP TABLE jobs; --'),
        ("unbind", "jobs"),
        ("move", "history_0"),
        ("DROP TABLE jobs", "history_0"),
    ):
        with pytest.raises(asyncpg.InvalidParameterValueError):
            await ask(migrated.server, f"SELECT horae_tend_history('{step}', $x${part}$x$, 1, 2)")
    connection = await asyncpg.connect(migrated.server)
    await connection.execute("CREATE TEMP TABLE history (id bigint)")  # stands before ours for whoever calls
    await connection.execute("SET search_path = pg_temp, public")
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await connection.execute("SELECT public.horae_tend_history('bind', 'history', 1, 2)")
    await connection.close()
    assert await parts(migrated.server) == before
    assert await refused(migrated.reader, "SELECT horae_tend_history('unbind', 'history_0', 1, 2)")


async def test_S47_whoever_looks_reads_and_writes_nothing(store: PostgresStore, migrated: Roles) -> None:
    await run(store)
    tables = {
        str(row[0])
        for row in await ask(migrated.superuser, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    }
    assert tables > SECRET
    for table in tables:
        assert await refused(migrated.reader, f"SELECT 1 FROM {table}") is (table in SECRET), table
        for statement in (f"DELETE FROM {table}", f"TRUNCATE {table}", f"INSERT INTO {table} DEFAULT VALUES"):
            assert await refused(migrated.reader, statement), statement
    assert await refused(migrated.reader, "SELECT nextval('run_id')")
    assert await refused(migrated.reader, "CREATE TABLE mine (id int)")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await ask(migrated.reader, "SELECT horae_enqueue('1')")


async def test_S47_a_server_whose_role_may_not_migrate_says_who_may(
    roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError) as caught:
        await migrate.migrate_postgres(roles.server)
    assert (caught.value.code, "horae migrate" in caught.value.hint) == ("E_DB_RIGHTS", True)
    await migrate.migrate_postgres(roles.owner)
    await roles.give_rights()
    known = migrate.migrations("postgres")
    more = migrate.Migration(known[-1].version + 1, "more", "CREATE TABLE more (id int)")
    monkeypatch.setattr(migrate, "migrations", lambda _: (*known, more))
    with pytest.raises(ConfigError) as caught:
        await migrate.migrate_postgres(roles.server)
    owner, server, _ = roles.names
    assert caught.value.code == "E_DB_RIGHTS"
    assert caught.value.message == (
        f"the schema is at version {known[-1].version} of {more.version}, and the role {server} may not change it: "
        f"it belongs to {owner}"
    )
    assert owner in caught.value.hint
    await migrate.migrate_postgres(roles.owner)
    assert (await migrate.migrate_postgres(roles.server)).applied == []  # what it made is the server's to use
    assert await ask(roles.server, "SELECT id FROM more") == []


async def test_S47_work_is_handed_over_and_taken_where_the_owner_has_allowed_it(
    store: PostgresStore, migrated: Roles
) -> None:
    shop = migrated.names[2]  # any role of the database
    with pytest.raises(ConfigError) as caught:
        await store.grant_inbox(shop, 1, "local")
    assert caught.value.code == "E_DB_RIGHTS"
    assert await store.list_grants() == []
    owner = PostgresStore(migrated.owner)
    await owner.grant_inbox(shop, 1, "local")
    await owner.close()
    await ask(migrated.reader, "SELECT horae_enqueue('1')")
    assert await ask(migrated.server, "DELETE FROM inbox RETURNING role") == [(shop,)]


async def test_S47_without_its_indexes_history_waits_for_its_owner(
    store: PostgresStore, migrated: Roles, clock: FakeClock
) -> None:
    await store.enqueue([Order(NewRun(1, "python", 5, 1))])
    assert await claim(store, "n1", "python", (), 1)
    await migrated.tell("DROP INDEX history_state")
    assert not await store.tend_history()
    owner = PostgresStore(migrated.owner, clock=clock.now)
    assert await owner.tend_history()
    await owner.close()
    assert await store.tend_history()
