"""Work handed over inside the caller's own transaction, on real PostgreSQL."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as aio

import horae
from horae.app.roles import InboxRole
from horae.core.definitions import Submission
from horae.core.events import BEGINNING, EventFilter
from horae.core.identity import User
from horae.core.model import SECOND, Debounce, Overlap, Policy, Reason, Run, RunFilter, State
from horae.core.roles import Role
from horae.core.runs import inbox as inbox_rules
from horae.core.runs.inbox import MOST_MISSING, PATIENCE, SWEEP, Handed, Refusal, Target
from horae.core.runs.orders import Order
from horae.errors import Invalid, NotFound
from horae.queues.local import LocalQueue
from horae.queues.shared import SharedQueue
from horae.service.cluster.coordination import Cluster
from horae.service.execution import Execution
from horae.service.jobs.inbox import BATCH, Inbox
from horae.service.metrics import Metrics
from horae.stores.postgres import PostgresStore
from horae.stores.postgres.notices import Notices
from horae.testing import FakeClock, changed, make_job
from tests.unit.service.parts import Probe


@pytest.fixture
async def store(postgres_store: PostgresStore) -> PostgresStore:
    """With a job `mail` that may run many times at once, and one `report` that may not."""
    mail = make_job(1, key="mail", policy=Policy(overlap=Overlap.ALLOW))
    await postgres_store.submit([Submission([mail]), Submission([make_job(2, key="report")])])
    return postgres_store


@pytest.fixture
async def caller(store: PostgresStore, postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE orders (id int)")
    yield connection
    await connection.close()


@pytest.fixture
def inbox(store: PostgresStore, clock: FakeClock) -> Inbox:
    return Inbox(store.for_roles(), LocalQueue(), clock, Metrics())


async def drain(inbox: Inbox) -> int:
    count = 0
    while taken := await inbox.drain():
        count += taken
    return count


async def runs(store: PostgresStore, **where: Any) -> list[Run]:
    return list((await store.list_runs(RunFilter(**where), None, 1000)).items)


async def refused(connection: asyncpg.Connection) -> list[tuple[str, str]]:
    return [tuple(row) for row in await connection.fetch("SELECT job, code FROM inbox_refused ORDER BY id")]


# ── exactly if the caller's data exists ──


async def test_what_a_transaction_commits_runs_once(store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox):
    async with caller.transaction():
        receipt = await horae.enqueue(caller, "mail", {"order": 7})
        assert await drain(inbox) == 0

    assert await drain(inbox) == 1
    assert await drain(inbox) == 0
    [run] = await runs(store)
    assert (run.job_id, run.state, run.data, receipt) == (1, State.QUEUED, {"order": 7}, 1)


async def test_what_is_handed_to_a_job_that_debounces_waits_for_more(
    store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox, clock: FakeClock
):
    policy = Policy(overlap=Overlap.ALLOW, debounce=Debounce(10, 60, "data.path"))
    await store.submit([Submission([make_job(3, key="import", policy=policy)])])
    for path, number in (("a", 1), ("b", 2), ("a", 3)):
        await horae.enqueue(caller, "import", {"path": path, "number": number})
    await drain(inbox)
    waiting = {run.data["number"]: run for run in await runs(store) if run.data}
    assert {number: (run.state, run.reason) for number, run in waiting.items()} == {
        2: (State.BLOCKED, "debounce"), 3: (State.BLOCKED, "debounce"),
    }  # fmt: skip
    clock.advance(10)
    assert (await store.sweep()).queued == 2


async def test_what_the_owner_of_a_job_may_not_run_is_skipped_and_its_key_is_used(
    store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox, clock: FakeClock
):
    owner = make_job(1).owner
    assert await store.add_user(User(0, owner, roles={1: Role.VIEWER})) is not None
    later = datetime.fromtimestamp(clock.now() / SECOND + 3600, UTC)
    for given in ({"key": "a"}, {"key": "a"}, {"run_at": later}):
        await horae.enqueue(caller, "mail", **given)
    await drain(inbox)
    assert [(run.state, run.reason) for run in await runs(store)] == [(State.SKIPPED, Reason.OWNER)] * 2
    assert await refused(caller) == []
    for number in range(2):  # of which none differs from the others
        await horae.enqueue(caller, "mail", {"number": number})
    await drain(inbox)
    assert [(run.state, run.reason) for run in await runs(store)] == [(State.SKIPPED, Reason.OWNER)] * 4


async def test_what_is_rolled_back_never_runs(store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox):
    async with caller.transaction():
        await horae.enqueue(caller, "mail", {"kept": True})
        savepoint = caller.transaction()
        await savepoint.start()
        await horae.enqueue(caller, "mail", {"kept": False})
        await savepoint.rollback()
    whole = caller.transaction()
    await whole.start()
    await horae.enqueue(caller, "mail", {"kept": False})
    await whole.rollback()

    await drain(inbox)
    assert [run.data for run in await runs(store)] == [{"kept": True}]


async def test_a_transaction_that_stays_open_delays_nobody(
    store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox, postgres_url: str
):
    other = await asyncpg.connect(postgres_url)
    async with caller.transaction():
        await horae.enqueue(caller, "report", {"open": True})
        await horae.enqueue(other, "report", {"open": False})  # of the same job, which forbids overlap
        assert await drain(inbox) == 1
        assert [run.data for run in await runs(store)] == [{"open": False}]
        assert await store.delete_job(1) is not None
    assert await drain(inbox) == 1
    await other.close()


async def test_rows_that_commit_in_another_order_than_they_are_numbered_are_found_at_once(
    store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox, postgres_url: str
):
    other = await asyncpg.connect(postgres_url)
    async with caller.transaction():
        await horae.enqueue(caller, "mail", {"n": 1})
        await horae.enqueue(other, "mail", {"n": 2})
        assert await drain(inbox) == 1

    assert await drain(inbox) == 1  # the clock stands still
    await other.close()


async def test_a_row_that_commits_long_after_those_behind_it_is_found_within_a_second(
    store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox, clock: FakeClock, postgres_url: str
):
    other = await asyncpg.connect(postgres_url)
    async with caller.transaction():
        await horae.enqueue(caller, "mail", {"n": 1})
        await other.execute(f"SELECT horae_enqueue('mail') FROM generate_series(1, {MOST_MISSING + 1})")
        await drain(inbox)
        clock.advance(PATIENCE)
        await drain(inbox)
    await drain(inbox)
    clock.advance(SWEEP)

    assert await drain(inbox) == 1
    await other.close()


async def test_drains_at_the_same_time_take_each_row_once(
    store: PostgresStore, caller: asyncpg.Connection, postgres_url: str
):
    await caller.execute("SELECT horae_enqueue('mail', jsonb_build_object('n', n)) FROM generate_series(1, 3000) n")
    others = [PostgresStore(postgres_url) for _ in range(3)]

    await asyncio.gather(*(drain(Inbox(other.for_roles(), LocalQueue(), FakeClock(), Metrics())) for other in others))

    assert await caller.fetchval("SELECT count(DISTINCT data) FROM live") == 3000
    assert await caller.fetchval("SELECT count(*) FROM live") == 3000
    for other in others:
        await other.close()


async def test_S67_a_batch_is_bounded_and_the_oldest_go_first(
    store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox
):
    await caller.execute(f"SELECT horae_enqueue('mail') FROM generate_series(1, {BATCH + 1})")

    assert await inbox.drain() == BATCH
    assert await caller.fetchval("SELECT min(id) FROM inbox") == BATCH + 1


# ── what becomes of it ──


async def test_a_job_is_named_by_id_or_key_and_priority_is_that_of_the_caller_or_the_job(
    store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox
):
    await horae.enqueue(caller, 1, priority=9)
    await horae.enqueue(caller, "mail")
    await drain(inbox)

    assert [(run.job_id, run.priority, run.data) for run in await runs(store)] == [(1, 5, None), (1, 9, None)]


async def test_the_same_key_runs_once_and_other_work_under_it_is_refused(
    store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox
):
    for data in ({"a": 1}, {"a": 1}, {"a": 2}):
        await horae.enqueue(caller, "mail", data, key="order-7")
    await drain(inbox)
    await horae.enqueue(caller, "mail", {"a": 1}, key="order-7")
    await drain(inbox)

    assert [run.data for run in await runs(store)] == [{"a": 1}]
    assert await refused(caller) == [("mail", "E_IDEMPOTENCY_MISMATCH")]


async def test_overlap_is_judged_as_for_run_now(store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox):
    await horae.enqueue(caller, "report")
    await horae.enqueue(caller, "report")
    await drain(inbox)

    assert [(run.state, run.reason) for run in await runs(store)] == [(State.SKIPPED, "overlap"), (State.QUEUED, "")]


async def test_work_for_a_job_that_is_not_there_is_kept_as_refused_and_stops_nobody(
    store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox
):
    await store.delete_job(2)
    for job in ("nothing", "report", 99, 2, "9" * 40, "mail"):
        await horae.enqueue(caller, job)

    assert await drain(inbox) == 6
    assert len(await runs(store, job_id=1)) == 1
    assert await refused(caller) == [(job, "E_NOT_FOUND") for job in ("nothing", "report", "99", "2", "9" * 40)]


async def test_work_for_a_paused_job_waits_until_it_is_resumed(
    store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox, clock: FakeClock
):
    [job] = await store.find_keys(1, "local", ["report"])
    await store.save_job(paused := changed(job, paused=True), 1)
    await horae.enqueue(caller, "report", {"a": 1})
    await drain(inbox)
    await inbox.tend()
    assert await drain(inbox) == 0
    assert await refused(caller) == [("report", "E_PAUSED")]

    await store.save_job(changed(paused, paused=False), 2)
    await inbox.tend()
    clock.advance(SWEEP)
    await drain(inbox)

    assert [run.data for run in await runs(store)] == [{"a": 1}]
    assert await refused(caller) == []


async def test_numbers_that_no_handler_could_be_given_are_refused(
    store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox
):
    await caller.execute("""SELECT horae_enqueue('mail', '{"n": 1e5000}'), horae_enqueue('mail', '{"n": 1}')""")
    await drain(inbox)

    assert [run.data for run in await runs(store)] == [{"n": 1}]
    assert len(await refused(caller)) == 1


async def test_a_row_that_breaks_the_drain_is_refused_alone(
    store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
):
    def judge(handed: Handed, target: Target | None, now: int) -> Order | Refusal:
        if handed.data:
            raise ZeroDivisionError("boom")
        return inbox_rules.judge(handed, target, now)

    monkeypatch.setattr("horae.service.jobs.inbox.judge", judge)
    await horae.enqueue(caller, "mail")
    await horae.enqueue(caller, "mail", {"bad": True})
    await horae.enqueue(caller, "mail")

    assert await drain(inbox) == 3
    assert len(await runs(store)) == 2
    assert await refused(caller) == [("mail", "E_INTERNAL")]


async def test_how_full_the_inbox_is_can_be_watched(store: PostgresStore, caller: asyncpg.Connection):
    metrics = Metrics()
    inbox = Inbox(store.for_roles(), LocalQueue(), FakeClock(), metrics)
    await horae.enqueue(caller, "nothing")
    await drain(inbox)
    await horae.enqueue(caller, "mail")
    await inbox.tend()

    text = metrics.text().decode()
    assert "horae_inbox_waiting 1.0" in text
    assert "horae_inbox_refused 1.0" in text
    assert "horae_inbox_oldest_seconds" in text


@pytest.mark.parametrize("used_by", ["a grant", "the role of Horae"])
async def test_an_inbox_is_looked_at_from_its_first_use_on(
    store: PostgresStore, caller: asyncpg.Connection, clock: FakeClock, role: str, used_by: str
):
    probe, queue = Probe(store.for_roles()), LocalQueue()
    cluster = Cluster(
        store, queue, clock, Execution(store, queue, clock, Metrics()), node="n1", lease_seconds=15, dead_after=40,
        is_exclusive=False,
    )  # fmt: skip
    inbox = Inbox(probe, queue, clock, Metrics())
    draining = InboxRole(cluster, inbox, queue, clock)
    queue.announce("inbox")
    await draining.step()
    assert probe.calls == {"level": 1}  # nobody has used it: this hint was for nothing

    await (store.grant_inbox(role, 1, "local") if used_by == "a grant" else horae.enqueue(caller, "mail"))
    queue.announce("inbox")
    await draining.step()
    queue.announce("inbox")
    await draining.step()
    assert probe.calls["has_handed"] == 1


async def test_a_hint_after_the_commit_wakes_whoever_drains(caller: asyncpg.Connection, postgres_url: str):
    queue = SharedQueue(lambda: Notices.open(postgres_url, timeout=10))
    await queue.open()
    await queue.is_listening.wait()
    watch = queue.watch("inbox")

    await horae.wake(caller)
    assert await watch.wait(60)
    await queue.close()


async def test_a_hint_inside_a_transaction_that_has_written_is_refused(caller: asyncpg.Connection):
    transaction = caller.transaction()
    await transaction.start()
    await horae.enqueue(caller, "mail")
    with pytest.raises(asyncpg.PostgresError) as caught:
        await horae.wake(caller)
    await transaction.rollback()
    assert (caught.value.sqlstate, caught.value.detail) == ("25001", "E_CONFLICT")


async def test_what_was_handed_over_is_told_as_queued_and_a_repeat_is_not(
    store: PostgresStore, caller: asyncpg.Connection, clock: FakeClock
):
    inbox = Inbox(store.for_roles(), LocalQueue(), clock, Metrics())
    for key in (None, "k", "k"):
        await horae.enqueue(caller, "mail", {"a": 1}, key=key)
    await drain(inbox)
    told, _ = await store.read_events(BEGINNING, 100, EventFilter(("run.queued",)))
    assert sorted(event.run_id or 0 for event in told) == sorted(run.id for run in await runs(store))
    assert len(told) == 2


# ── what the function refuses ──

BAD = [
    ("NULL", "22023", "E_LEN"),
    ("''", "22023", "E_LEN"),
    ("repeat('x', 201)", "22023", "E_LEN"),
    ("'mail', '[1]'", "22023", "E_TYPE"),
    ("'mail', '7'", "22023", "E_TYPE"),
    ("'mail', jsonb_build_object('x', repeat('x', 262144))", "22023", "E_LEN"),
    ("'mail', key => ''", "22023", "E_CHAR"),
    ("'mail', key => 'a b'", "22023", "E_CHAR"),
    ("'mail', key => repeat('x', 201)", "22023", "E_CHAR"),
    ("'mail', priority => 10", "22023", "E_RANGE"),
    ("'mail', priority => -1", "22023", "E_RANGE"),
    ("'mail', run_at => 'infinity'", "22023", "E_TIME_RANGE"),
    ("'mail', run_at => '2200-01-01 00:00+00'", "22023", "E_TIME_RANGE"),
]


@pytest.mark.parametrize(("arguments", "state", "code"), BAD)
async def test_S66_a_call_that_makes_no_sense_is_refused_with_a_code_and_a_hint(
    caller: asyncpg.Connection, arguments: str, state: str, code: str
):
    with pytest.raises(asyncpg.PostgresError) as caught:
        await caller.execute(f"SELECT horae_enqueue({arguments})")

    assert (caught.value.sqlstate, caught.value.detail) == (state, code)
    assert caught.value.hint


async def test_S68_calls_of_version_1_are_understood(store: PostgresStore, caller: asyncpg.Connection, inbox: Inbox):
    assert await caller.fetchval("SELECT horae_enqueue_version()") == 1
    await caller.execute(
        """SELECT horae_enqueue('mail', '{}', 'k', 3, now()), horae_enqueue(job => 'mail', data => '{}', key => 'l',
           priority => 3, run_at => now())"""
    )
    assert await drain(inbox) == 2
    assert len(await runs(store)) == 2


# ── who may ──


@pytest.fixture
async def role(caller: asyncpg.Connection) -> AsyncIterator[str]:
    name = f"app_{uuid.uuid4().hex[:12]}"
    await caller.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    await caller.execute(f"DROP OWNED BY {name}")
    await caller.execute(f"DROP ROLE {name}")


@pytest.fixture
async def stranger(role: str, postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url, user=role)
    yield connection
    await connection.close()


async def test_S63_a_role_without_a_grant_may_not_call_it(stranger: asyncpg.Connection):
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await horae.enqueue(stranger, "mail")


async def test_a_role_that_may_only_call_it_is_told_what_is_missing(
    stranger: asyncpg.Connection, caller: asyncpg.Connection, role: str
):
    await caller.execute(f"GRANT EXECUTE ON FUNCTION horae_enqueue TO {role}")

    with pytest.raises(asyncpg.InsufficientPrivilegeError) as caught:
        await horae.enqueue(stranger, "mail")
    assert caught.value.hint == f"let an operator say: horae inbox grant {role} --owner NAME"


async def test_S65_a_granted_role_acts_for_its_owner_and_can_do_nothing_else(
    store: PostgresStore, stranger: asyncpg.Connection, caller: asyncpg.Connection, role: str, inbox: Inbox
):
    await store.submit([Submission([replace(make_job(3, key="hers"), owner="ada")])])
    await store.grant_inbox(role, 1, "ada")

    for job in ("hers", "3", "mail", "1"):
        await horae.enqueue(stranger, job)
    await drain(inbox)

    assert [run.job_id for run in await runs(store)] == [3, 3]
    assert await refused(caller) == [("mail", "E_NOT_FOUND"), ("1", "E_NOT_FOUND")]
    tables = [row[0] for row in await caller.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
    assert "inbox" in tables
    for table in set(tables) - {"orders"}:
        for statement in (f"SELECT 1 FROM {table}", f"DELETE FROM {table}", f"TRUNCATE {table}"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await stranger.execute(statement)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await stranger.execute("SELECT nextval('inbox_id_seq')")

    await store.revoke_inbox(role)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await horae.enqueue(stranger, "hers")


async def test_S64_a_role_cannot_become_another_by_its_session(
    store: PostgresStore, stranger: asyncpg.Connection, caller: asyncpg.Connection, role: str, inbox: Inbox
):
    """Neither by a role it is a member of, nor by tables and functions of its own that stand before ours."""
    rich = f"rich_{uuid.uuid4().hex[:12]}"
    await caller.execute(f"CREATE ROLE {rich}; GRANT {rich} TO {role}")
    await store.grant_inbox(rich, 1, "local")
    await store.grant_inbox(role, 1, "ada")
    await stranger.execute("CREATE TEMP TABLE inbox_grants (role text, org int, owner text)")
    await stranger.execute(f"INSERT INTO inbox_grants VALUES ('{role}', 1, 'local')")
    await stranger.execute("CREATE TEMP TABLE inbox (LIKE inbox_grants)")
    await stranger.execute("SET search_path = pg_temp, public, pg_catalog")
    await stranger.execute(f"SET ROLE {rich}")
    await horae.enqueue(stranger, "mail", schema="public")

    await drain(inbox)
    assert await runs(store) == []
    assert await refused(caller) == [("mail", "E_NOT_FOUND")]
    await caller.execute(f"DROP OWNED BY {rich}; DROP ROLE {rich}")


async def test_a_grant_to_a_role_that_is_not_there_is_refused(store: PostgresStore):
    with pytest.raises(NotFound, match="no role"):
        await store.grant_inbox('nobody"; DROP TABLE jobs; --', 1, "local")


# ── every library ──


async def _by_asyncpg(url: str) -> None:
    pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
    async with pool.acquire() as connection, connection.transaction():
        await horae.enqueue(connection, "mail", {"n": 1}, key="k", priority=3)
    await pool.close()


async def _by_psycopg(url: str) -> None:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        for either in (connection, cursor):
            horae.enqueue(either, "mail", {"n": 1}, key="k", priority=3)


async def _by_async_psycopg(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await horae.enqueue(connection, "mail", {"n": 1}, key="k", priority=3)


async def _by_sqlalchemy(url: str) -> None:
    engine = sqlalchemy.create_engine(url.replace("://", "+psycopg://", 1))
    with engine.begin() as connection:
        horae.enqueue(connection, "mail", {"n": 1}, key="k", priority=3)
    engine.dispose()


async def _by_a_session_of_sqlalchemy(url: str) -> None:
    engine = sqlalchemy.create_engine(url.replace("://", "+psycopg://", 1))
    with orm.Session(engine) as session, session.begin():
        horae.enqueue(session, "mail", {"n": 1}, key="k", priority=3)
    engine.dispose()


async def _by_async_sqlalchemy(url: str) -> None:
    engine = aio.create_async_engine(url.replace("://", "+asyncpg://", 1))
    async with engine.begin() as connection:
        await horae.enqueue(connection, "mail", {"n": 1}, key="k", priority=3)
    await engine.dispose()


async def _by_an_async_session_of_sqlalchemy(url: str) -> None:
    engine = aio.create_async_engine(url.replace("://", "+asyncpg://", 1))
    async with aio.AsyncSession(engine) as session, session.begin():
        await horae.enqueue(session, "mail", {"n": 1}, key="k", priority=3)
    await engine.dispose()


LIBRARIES = [
    _by_asyncpg, _by_psycopg, _by_async_psycopg, _by_sqlalchemy, _by_a_session_of_sqlalchemy,
    _by_async_sqlalchemy, _by_an_async_session_of_sqlalchemy,
]  # fmt: skip


@pytest.mark.parametrize("by", LIBRARIES, ids=lambda by: by.__name__.strip("_"))
async def test_every_library_hands_over_in_its_own_transaction(
    by: Callable[[str], Awaitable[None]], store: PostgresStore, inbox: Inbox, postgres_url: str
):
    await by(postgres_url)
    await drain(inbox)

    assert [(run.data, run.priority) for run in await runs(store)] == [({"n": 1}, 3)]


async def test_work_for_a_later_moment_waits_for_it_and_whoever_releases_it_is_told(
    store: PostgresStore, clock: FakeClock, caller: asyncpg.Connection
):
    queue = LocalQueue()
    watch = queue.watch("waiting")
    await watch.wait(0)
    later = datetime(2199, 1, 1, tzinfo=UTC)
    await horae.enqueue(caller, "mail", {"n": 1}, run_at=later)
    await drain(Inbox(store.for_roles(), queue, clock, Metrics()))

    assert await watch.wait(0)

    [run] = await runs(store)
    assert (run.state, run.reason, run.due_at) == (State.BLOCKED, "later", round(later.timestamp()) * SECOND)


async def test_what_is_no_connection_or_no_json_is_refused_before_anything_is_sent(caller: asyncpg.Connection):
    async with caller.transaction():
        for connection, data, run_at in (
            (object(), None, None), (caller, [1], None), (caller, {"x": object()}, None), (caller, {"x": 1e999}, None),
            (caller, None, datetime(2030, 1, 1)),
        ):  # fmt: skip
            with pytest.raises(Invalid):
                await horae.enqueue(connection, "mail", data, run_at=run_at)
        assert await caller.fetchval("SELECT 1") == 1
