"""The store on PostgreSQL: one statement per batch, arrays in, arrays out.

Connections are lanes, by urgency: signs of life, leases and what the leader looks at; firing; what schedulers look
ahead at; claims; results; what users write; what users read (a pool, with a time limit); and upkeep, which is whatever
can wait. Nothing that may take long stands before something that may not: a purge never delays a moment, a crowd of
users never a heartbeat. Lanes are opened when they are first needed, and given up when they idle. Statements run at
READ COMMITTED; what must not interleave is a compare-and-set inside one statement.

When a connection breaks under a statement, whether that happened is not known. Then

- reads are repeated once on a fresh connection, so that a restart of the server costs nobody an error once it is up;
- so are the writes for which twice is the same as once: signs of life and leases (a beat moves once more; a lease that
  was taken is found to be ours), submits (their ids are allocated before, so the outcome is looked up) and orders with
  an Idempotency-Key (looked up by it);
- all others are refused as Unavailable, and whoever asked decides: the scheduler and the agents look again, and fire
  and finish by compare-and-set; users repeat with an Idempotency-Key.

A statement that was given up (a lock, a timeout, a full disk) left no trace; it is refused, and the connection stays.

**Failover.** A standby that was promoted may lack the last commits, and among them claims: so the fences of claims
begin anew, far above all earlier ones, on every timeline of the server; nothing is claimed for the time of a lease
after any process has met a new timeline, which is written down, so that one that starts just then waits with the
others; and every agent is told to compare what it holds with the books. By then,
whoever holds a run by a claim that was lost has stopped it. What else was lost (a submit, a finish) shows: a beat that
goes backwards is logged and counted.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import asyncpg
import structlog

from horae.core.audit import Deed
from horae.core.model import Moment
from horae.core.policy.grants import Grants
from horae.errors import ConfigError, Unavailable
from horae.ports import deeds
from horae.stores import limits
from horae.stores.audit import audit_text, has_effect
from horae.stores.database import Database, Steps, T, too_slow
from horae.stores.lines import Lines
from horae.stores.postgres import marks
from horae.stores.postgres.lanes import LOST, Connection, Cut, HeldUp, Lane, Pool, connect
from horae.stores.postgres.pooled import PooledConnection
from horae.stores.queries import load_lanes
from horae.stores.rows import Row

log = structlog.get_logger()
OLDEST, NEWEST = 130000, 190000  # server versions this has been tried on
READERS = 4  # connections for users' reads
EPOCH, LAST_EPOCH = 2**20, 2047  # fences of one timeline of the server, and timelines that have some of their own
SHORTEST_BEAT = 1.0  # seconds a sign of life may take, however short the lease

# The hot statements name the rows they want by id and find them by index, whatever the statistics say just now.
# Those are out of date exactly when it matters, in a herd or after an outage: with a guess of one row, a join of a
# thousand ids became a scan of the table for each. So: rows by `= ANY(ids)`, joins by hash, nothing else. There is one
# way then, whatever the arguments: it is planned once for a connection, and not for each batch, which took the server
# several times as long as a claim itself.
BY_INDEX = {
    "enable_seqscan": "off",
    "enable_nestloop": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}
# What people write is found by index too, however few rows the tables had when it was planned. Its statements are of
# all kinds and of one order or of thousands: they may loop, and are planned for as many as there are.
BY_KEY = {"enable_seqscan": "off"}
RACES = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.UniqueViolationError)
RETRIES = 4  # of a statement that lost a deadlock or a race on a key

# Signs of life: for these, twice is the same as once.
SIGNS = frozenset({"beat", "beat_alone", "register_node", "open_lines", "get_node", "retire_node", "get_lease",
                   "make_lease", "take_lease", "renew_lease", "resign_lease"})  # fmt: skip


@dataclass(slots=True)
class Failovers:
    """What this process knows of the server's past."""

    lease: float  # seconds
    timeline: int = 0  # the newest one met
    met_at: float = float("-inf")  # when somebody first met it
    count: int = 0
    commits_lost: int = 0  # failovers after which commits were certainly missing
    beats: dict[str, int] = field(default_factory=dict)  # the highest seen of each node that beats here

    def note_timeline(self, timeline: int, age: float) -> None:
        """`age`: seconds since any process first met it."""
        if timeline <= self.timeline:
            return  # another lane met it at the same time
        self.count += self.timeline > 0
        if timeline > 1 and age < self.lease:
            self.met_at = time.monotonic() - age
            pause = round(self.lease - age, 1)
            log.warning("failover", timeline=timeline, before=self.timeline, claims_pause_seconds=pause)
        self.timeline = timeline

    @property
    def is_in_doubt(self) -> bool:
        """Whether agents may still hold runs by claims that a failover lost."""
        return time.monotonic() - self.met_at < self.lease

    def note_beat(self, name: str, beat: int) -> None:
        if beat <= self.beats.get(name, -1):
            self.commits_lost += 1
            log.error("failover.commits_lost", node=name, beat=beat, seen=self.beats[name], timeline=self.timeline)
        self.beats[name] = beat


class PostgresDatabase(Database):
    dialect = "postgres"

    def __init__(
        self, url: str, *, clock: Callable[[], Moment] | None = None, readers: int = READERS, lease: float = 15.0
    ) -> None:
        """`clock` replaces the server's clock: for tests that move time. A sign of life that is stuck is given up
        early enough to repeat it within the lease."""
        super().__init__()
        self._url = url
        self._clock: Callable[[], Moment | None] = clock or _servers_own
        self._beat_time = max(SHORTEST_BEAT, lease / 3)
        self._fire = Lane(self._connect_hot)
        self._looking = Lane(self._connect_hot)
        self._claim = Lane(self._connect_claim)
        self._finish = Lane(self._connect_hot)
        self._submit = Lane(self._connect_submit)
        self._upkeep = Lane(self._connect)
        self._beat = Lane(self._connect_beat, self._beat_time)
        self._readers = Pool(self._connect_reader, readers)
        self._lanes = {
            "beat": self._beat, "fire": self._fire, "look": self._looking, "claim": self._claim, "finish": self._finish,
        }  # fmt: skip
        self._lane_names = load_lanes(self.dialect)
        self._is_for_roles = False
        self._past = Failovers(lease)
        self._marks = marks.Marks()
        self._lines = Lines()
        self._grants = Grants()

    def for_roles(self) -> Self:
        store = copy.copy(self)
        store._is_for_roles = True
        return store

    @property
    def failovers(self) -> int:
        return self._past.count

    @property
    def commits_lost(self) -> int:
        return self._past.commits_lost

    async def _connect(self) -> Connection:
        return await connect(self._url)

    async def _connect_reader(self) -> Connection:
        return await connect(self._url, timeout=limits.READ_TIME)

    async def _connect_hot(self) -> Connection:
        return await connect(self._url, settings=BY_INDEX)

    async def _connect_submit(self) -> Connection:
        return await connect(self._url, settings=BY_KEY)

    async def _connect_claim(self) -> Connection:
        return await self._meet(await self._connect_hot())

    async def _connect_beat(self) -> Connection:
        return await self._meet(await connect(self._url, timeout=self._beat_time))

    async def _meet(self, connection: Connection) -> Connection:
        """Learn on which timeline the server is; it stays there for as long as the connection lives, or else (behind a
        pooler) the connection is of no more use."""
        try:
            timeline = int(await connection.fetchval(self.queries["timeline"]))
        except asyncpg.PostgresError as error:
            if isinstance(error, LOST):
                raise
            return connection  # a service that hides its log: it has its own ways to lose nothing
        if timeline > self._past.timeline:
            self._past.note_timeline(timeline, await connection.fetchval(self.queries["note_timeline"], str(timeline)))
        if type(connection) is PooledConnection:
            connection.stay_on(timeline, self.queries["timeline"])
        return connection

    async def open(self) -> None:
        """Check that the server is one this code can work with. Heartbeats get their connection first: later there
        may be none left."""
        async with self._beat.use() as connection:
            version = connection.get_server_version()
            number = version.major * 10000
            if not OLDEST <= number < NEWEST:
                raise ConfigError(
                    f"PostgreSQL 13 to 18 is supported, got {version.major}.{version.minor}",
                    code="E_DB_VERSION",
                )
            if await connection.fetchval("SELECT pg_is_in_recovery()"):
                raise ConfigError("the database is a standby; give the address of the primary", code="E_DB_READ_ONLY")
            await connection.execute(self.queries["rebase_events"])

    async def close(self) -> None:
        for lane in (*self._lanes.values(), self._submit, self._upkeep):
            await lane.close()
        await self._readers.close()

    async def _once_more(self, lane: Lane | Pool, statement: str, *args: Any) -> Sequence[Row]:
        """A statement for which twice is the same as once: repeated on a fresh connection if its own broke."""
        try:
            async with lane.use() as connection:
                return await connection.fetch(statement, *args)
        except Cut:
            async with lane.use() as connection:
                return await connection.fetch(statement, *args)

    def _lane_of(self, name: str) -> Lane:
        """Where the roles ask or write something."""
        return self._lanes[self._lane_names[name]] if name in self._lane_names else self._upkeep

    async def read(self, statement: str, *args: Any) -> Sequence[Row]:
        return await self._fetch(self._upkeep, statement, *args)

    async def _fetch(self, lane: Lane, statement: str, *args: Any) -> Sequence[Row]:
        """Read on a lane of the roles, or as a user, who must not wait for ever nor keep others waiting."""
        if self._is_for_roles:
            return await self._once_more(lane, statement, *args)
        try:
            return await self._once_more(self._readers, statement, *args)
        except HeldUp as error:
            if isinstance(error.__cause__, asyncpg.QueryCanceledError):
                raise too_slow() from error
            raise

    async def write(self, statement: str, *args: Any) -> Sequence[Row]:
        return await self._change(self._upkeep, statement, *args)

    async def _change(self, lane: Lane, statement: str, *args: Any) -> Sequence[Row]:
        lane = lane if self._is_for_roles else self._submit
        if deeds.pending() is not None:
            return await self._retried(lane, lambda connection: connection.fetch(statement, *args))
        async with lane.use() as connection:
            return await connection.fetch(statement, *args)

    async def _get(self, name: str, *args: Any) -> Sequence[Row]:
        return await self._fetch(self._lane_of(name), self.queries[name], *args)

    async def _put(self, name: str, *args: Any) -> Sequence[Row]:
        if name in SIGNS:
            return await self._once_more(self._beat, self.queries[name], *args)
        return await self._change(self._lane_of(name), self.queries[name], *args)

    async def _repeated(self, lane: Lane, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run a statement again when it lost a race against another one: it has left no trace."""
        deed = deeds.pending()
        for chance in range(RETRIES, -1, -1):
            try:
                async with lane.use() as connection:
                    result = await work(connection)
                if deed is not None:
                    deed.confirm()
                return result
            except RACES as error:
                if not chance:
                    raise Unavailable(f"the database refused it {RETRIES + 1} times: {error}") from error
        raise AssertionError("the last chance returns or raises")

    async def _retried(self, lane: Lane, work: Callable[[Connection], Awaitable[T]]) -> T:
        """As _repeated, for several statements in one transaction."""

        async def transact(connection: Connection) -> T:
            deed = deeds.pending()
            async with connection.transaction():
                if deed is None:
                    return await work(connection)
                deed.is_sent = False
                result = await work(connection)
                if not deed.is_sent and has_effect(result):
                    await self._append(connection, [deed])
                return result

        return await self._repeated(lane, transact)

    async def _append(self, connection: Connection, done: Sequence[Deed]) -> None:
        """Write who asked for what the transaction does."""
        if done:
            await connection.execute(self.queries["append_audit"], self._clock(), audit_text(done, self.dialect))
            for deed in done:
                deed.is_sent = True

    async def _transact(self, steps: Callable[[], Steps[T]]) -> T:
        """On the lane of claims: lending is one, and its connection knows on which timeline the server is."""
        return await self._retried(self._claim, lambda connection: self._walk(connection, steps()))

    async def _transact_apart(self, steps: Callable[[], Steps[T]]) -> T:
        return await self._retried(self._upkeep, lambda connection: self._walk(connection, steps()))

    async def _walk(self, connection: Connection, steps: Steps[T]) -> T:
        """Carry out steps, handing each its rows."""
        rows = None
        while True:
            try:
                name, *args = steps.send(rows)  # type: ignore[arg-type]  # None starts it
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            rows = await connection.fetch(self.queries[name], *args)

    def _fence_floor(self) -> int | None:
        return None if self._past.is_in_doubt else (min(self._past.timeline, LAST_EPOCH) - 1) * EPOCH + 1

    async def _row(self, lane: Lane, name: str, *args: Any) -> Row:
        """Return the one row that a query answers with."""

        async def fetch(connection: Connection) -> Row:
            row: Row | None = await connection.fetchrow(self.queries[name], *args)
            assert row is not None
            return row

        return await self._repeated(lane, fetch)

    async def now(self) -> Moment:
        frozen = self._clock()
        if frozen is not None:
            return frozen
        lane = self._beat if self._is_for_roles else self._submit  # a crowd of readers must not keep it waiting
        return int((await self._once_more(lane, self.queries["now"]))[0][0])

    def _frozen_now(self) -> Moment | None:
        return self._clock()

    async def _moment(self, connection: Connection) -> Moment:
        frozen = self._clock()
        return int(await connection.fetchval(self.queries["now"])) if frozen is None else frozen


def _servers_own() -> None:
    """No moment of ours: the server's clock decides."""
