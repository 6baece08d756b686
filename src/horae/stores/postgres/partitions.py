"""History on PostgreSQL in partitions by ranges of the run id, so that the past is dropped, not deleted.

A table that was there before becomes the lowest partition while it is used: a CHECK that is not validated at once, its
validation, and one short transaction that renames, makes the parent and attaches; nothing is copied. The highest
partition, the head, has no upper bound: whatever its id, a run that ends has a place, also when nobody made room for
it. Before the ids reach the head it is closed at a bound far ahead, in the same way, and a new one is made; so ranges
are made by whoever leads, never by those who finish runs.

A closed partition goes when all of its runs are outdated, and no live run and no id that was given out ahead lies in
its range: nothing is ever written there again, so that the gap does no harm. Of partitions that stay for a few of their
runs the others are dropped row by row.

The tables may belong to another role than the one that works with them: what only an owner may do is done by the
function `horae_tend_history`, which has the owner's rights. Indexes are made by the owner itself, who migrates.

What must stay true: every exclusive lock is asked for with a short timeout and in a transaction that does not wait for
anything else, for all runs that end queue up behind it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import asyncpg
import structlog

from horae.core.model import Moment, State
from horae.core.runs.past import HistoryPart
from horae.stores.postgres.lanes import Connection, is_pooled, part_from

log = structlog.get_logger()

FROM_RUNS = 100_000  # from so many on it is worth it
FEWEST_IDS, MOST_IDS = 1_000_000, 1_000_000_000  # ids of a partition; between, as many as a day has
DAY = 86_400
TRIES = 20  # for an exclusive lock
LOCK_TIME = "200ms"  # that everybody may have to wait for it
LONGEST = 3600.0  # seconds that an index or a validation may take
SETTINGS = {"lock_timeout": "0"}
PAUSE = 0.5  # seconds between tries
KEY = 0x686F726166  # "horaf": whoever tends history does it alone

INDEXES = {
    "history_job_state": "(job_id, state, id)",
    "history_state": "(state, id) WHERE state > 10",
    "history_parent": "(parent_id) WHERE parent_id IS NOT NULL",
}
PARTS = """SELECT c.oid::regclass::text, pg_get_expr(c.relpartbound, c.oid)
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'history'::regclass"""
IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"
IS_OWNED = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'history'::regclass"
INDEXED = """SELECT x.indrelid::regclass::text FROM pg_inherits i JOIN pg_index x ON x.indexrelid = i.inhrelid
WHERE i.inhparent = to_regclass($1)"""
_BOUNDS = re.compile(r"FROM \((?:MINVALUE|'?(\d+)'?)\) TO \((?:MAXVALUE|'?(\d+)'?)\)")


class Part(NamedTuple):
    name: str
    first: int | None  # None: from the beginning
    end: int | None  # None: the head


async def tend(connection: Connection, connect: Callable[[], Awaitable[Connection]]) -> bool:
    """Give history the indexes and the room that it needs; whether it lies in partitions. `connect` makes another
    connection like this one."""
    async with _alone(connection, connect) as is_alone:
        if not is_alone:
            return False  # somebody does
        is_owned = await connection.fetchval(IS_OWNED)
        if not is_owned and not await _has_indexes(connection):
            log.warning("history.unindexed", hint="let the role that owns the tables run `horae migrate`")
            return await _is_partitioned(connection)
        if not await _is_partitioned(connection):
            if is_owned:
                await _make_indexes(connection)
            if await _last_id(connection) < FROM_RUNS:
                return False
            await _move(connection)
        elif is_owned:
            await _make_indexes_of_parts(connection)
        await _make_room(connection)
    return True


@asynccontextmanager
async def _alone(connection: Connection, connect: Callable[[], Awaitable[Connection]]) -> AsyncIterator[bool]:
    """Hold the lock of whoever tends history; not all of that can be one transaction. Behind a pooler, sessions hold no
    locks: there a transaction beside it does, which has looked at nothing and so keeps nobody's rows from vacuum."""
    if not is_pooled(connection):
        got = bool(await connection.fetchval("SELECT pg_try_advisory_lock($1)", KEY))
        try:
            yield got
        finally:
            if got:
                await connection.execute("SELECT pg_advisory_unlock($1)", KEY)
        return
    guard = await connect()
    try:
        async with guard.transaction():
            got = await guard.fetchval("SELECT pg_try_advisory_xact_lock($1)", KEY)
            # Another statement closes that one, whose snapshot would be kept: an index would wait for it for ever.
            await guard.execute("SET LOCAL lock_timeout = 0")
            yield bool(got)
    finally:
        await part_from(guard)


async def outdated(connection: Connection, before: Moment) -> list[HistoryPart]:
    """Partitions of which nothing is to be kept, and into which nothing will come."""
    if not await _is_partitioned(connection):
        return []
    last, found = await _last_id(connection), []
    for name, first, end in await _parts(connection):
        if end is None or end > last:
            continue
        newest = await connection.fetchval(f"SELECT finished_at FROM {name} ORDER BY id DESC LIMIT 1")  # noqa: S608
        if (newest is not None and newest >= before) or await _is_awaited(connection, first or 0, end):
            continue
        # Asked last: from here on nothing can come in any more.
        if not await connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {name} WHERE finished_at >= {before:d})"):  # noqa: S608
            found.append(HistoryPart(name, first or 0, end))
    return found


async def drop(connection: Connection, part: HistoryPart) -> None:
    """Drop a partition that `outdated` named, with the attempts of its runs."""
    span = f"run_id >= {part.first:d} AND run_id < {part.end:d}"
    await connection.execute(f"DELETE FROM attempts WHERE {span}")  # noqa: S608
    await connection.execute(f"DELETE FROM flows WHERE {span}")  # noqa: S608
    await _exclusively(connection, [_step("drop", part.name)])
    log.info("history.dropped", first=part.first, end=part.end)


# ── how ────────────────────────────────────────────────────────────────────────────────────────────


async def _is_partitioned(connection: Connection) -> bool:
    kind = await connection.fetchval("SELECT relkind::text FROM pg_class WHERE oid = 'history'::regclass")
    return bool(kind == "p")


async def _last_id(connection: Connection) -> int:
    return int(await connection.fetchval("SELECT last_value FROM run_id"))


async def _parts(connection: Connection) -> list[Part]:
    """Lowest first, the head last."""
    found = []
    for name, bound in await connection.fetch(PARTS):
        match = _BOUNDS.search(bound)
        assert match is not None, bound
        first, end = match.groups()
        found.append(Part(name, int(first) if first else None, int(end) if end else None))
    return sorted(found, key=lambda part: part.first or 0)


async def _is_awaited(connection: Connection, first: int, end: int) -> bool:
    """Return whether a run with an id in this range is live, or may come to be, or may be a task of one that is."""
    span = f">= {first:d} AND {{0}} < {end:d}"
    live, kept = f"id {span.format('id')}", f"reserved {span.format('reserved')}"
    return bool(
        await connection.fetchval(
            f"SELECT EXISTS (SELECT 1 FROM live WHERE {live}) OR EXISTS (SELECT 1 FROM due WHERE {kept}) "  # noqa: S608
            f"OR EXISTS (SELECT 1 FROM live JOIN flows ON run_id = id WHERE state = {State.BLOCKED:d} AND id < {end:d})"
        )
    )


async def _has_indexes(connection: Connection) -> bool:
    return all([await connection.fetchval(IS_VALID, name) for name in INDEXES])


async def _make_indexes(connection: Connection) -> None:
    """While it is used. One that was broken off is made anew."""
    for name, columns in INDEXES.items():
        await _make_index(connection, name, "history", columns)
    await _concurrently(connection, "DROP INDEX CONCURRENTLY IF EXISTS history_job")


async def _make_index(connection: Connection, name: str, table: str, columns: str) -> None:
    valid = await connection.fetchval(IS_VALID, name)
    if valid:
        return
    if valid is False:
        await _concurrently(connection, f"DROP INDEX CONCURRENTLY {name}")
    log.info("history.indexing", index=name)
    await _concurrently(connection, f"CREATE INDEX CONCURRENTLY {name} ON {table} {columns}")


async def _make_indexes_of_parts(connection: Connection) -> None:
    """The same of a history that lies in partitions, one after the other: that of the whole is there at once, and is
    used when all of them have theirs."""
    for name, columns in INDEXES.items():
        if await connection.fetchval(IS_VALID, name):
            continue
        await _exclusively(connection, [f"CREATE INDEX IF NOT EXISTS {name} ON ONLY history {columns}"])
        ready = {row[0] for row in await connection.fetch(INDEXED, name)}
        for part in await _parts(connection):
            if part.name not in ready:
                own = f"{part.name}_{name}"
                await _make_index(connection, own, part.name, columns)
                await _exclusively(connection, [f"ALTER INDEX {name} ATTACH PARTITION {own}"])


async def _concurrently(connection: Connection, statement: str) -> None:
    """What must not be in a transaction, also where all else is (stores.pooled)."""
    await asyncpg.Connection.execute(connection, statement)


async def _move(connection: Connection) -> None:
    """From one table to partitions."""
    end = _whole(await _last_id(connection) + await _width(connection))
    await _bind(connection, "history", None, end)
    try:
        await _exclusively(connection, [_step("move", "history", None, end)])
    except BaseException:
        await _unbind(connection, "history")
        raise
    log.info("history.partitioned", end=end)


async def _make_room(connection: Connection) -> None:
    """Close the head before the ids reach it."""
    head = (await _parts(connection))[-1]
    last, width = await _last_id(connection), await _width(connection)
    if head.first is None or last + width // 2 < head.first:
        return
    end = _whole(max(head.first, last) + width)
    await _bind(connection, head.name, head.first, end)
    try:
        await _exclusively(connection, [_step("close", head.name, head.first, end)])
    except BaseException:
        await _unbind(connection, head.name)
        raise
    log.info("history.extended", first=head.first, end=end)


def _whole(bound: int) -> int:
    """Outputs lie by the thousand, and go with the partition of their runs."""
    return -(-bound // 1000) * 1000


def _step(name: str, part: str, low: int | None = None, high: int | None = None) -> str:
    """Return what has the owner of the tables do a step: whoever works with them may not."""
    bounds = ", ".join("NULL" if bound is None else f"{bound:d}" for bound in (low, high))
    return f"SELECT horae_tend_history('{name}', '{part}', {bounds})"


async def _width(connection: Connection) -> int:
    """Ids of about a day, by the pace of the latest ones."""
    last = await _last_id(connection)
    newest, earlier = await connection.fetchrow(
        "SELECT (SELECT created_at FROM history ORDER BY id DESC LIMIT 1), "
        "(SELECT created_at FROM history WHERE id <= $1 ORDER BY id DESC LIMIT 1)",
        last - FEWEST_IDS,
    )  # type: ignore[misc]  # there always is a row
    if newest is None or earlier is None or newest <= earlier:
        return FEWEST_IDS
    a_day = FEWEST_IDS * DAY // max(1, (newest - earlier) // 1_000_000)
    return int(min(MOST_IDS, max(1, a_day // FEWEST_IDS) * FEWEST_IDS))


async def _bind(connection: Connection, table: str, low: int | None, high: int) -> None:
    """Make it known that all rows lie there: attaching need not look. One left by an earlier try is replaced."""
    await _unbind(connection, table)
    await _exclusively(connection, [_step("bind", table, low, high)])
    try:
        await connection.execute(_step("validate", table))
    except BaseException:
        await _unbind(connection, table)
        raise


async def _unbind(connection: Connection, table: str) -> None:
    await _exclusively(connection, [_step("unbind", table)])


async def _exclusively(connection: Connection, steps: list[str]) -> None:
    """Steps in one transaction that needs history for itself; tried again when others have it."""
    for chance in range(TRIES - 1, -1, -1):
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIME}'")
                await connection.execute("LOCK TABLE history IN ACCESS EXCLUSIVE MODE")
                for step in steps:
                    await connection.execute(step)
            return
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            if not chance:
                raise
            await asyncio.sleep(PAUSE)
