"""The store on PostgreSQL: one statement per batch, arrays in, arrays out.

Connections are lanes, by urgency: signs of life, leases and what the leader looks at; firing; claims; results; what
users write; what users read (a pool, with a time limit); and upkeep, which is whatever can wait. Nothing that may take
long stands before something that may not: a purge never delays a moment, a crowd of users never a heartbeat. Lanes are
opened when they are first needed, and given up when they idle. Statements run at READ COMMITTED; what must not
interleave is a compare-and-set inside one statement.

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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import asyncpg
import structlog

from horae.core.lifecycle import first_phase
from horae.core.model import Job, Lease, Moment, Overlap, Phase, State
from horae.errors import ConfigError, Superseded, Unavailable
from horae.ports import (
    NEVER,
    Assignment,
    Backlog,
    Beat,
    Birth,
    Cancelled,
    Definition,
    Due,
    Finished,
    Fire,
    Fired,
    HistoryPart,
    Idempotency,
    Lend,
    NewLine,
    Order,
    Receipt,
    Result,
    Sign,
    Submission,
    Swept,
    Waiting,
    Want,
)
from horae.stores import marks, partitions, sql
from horae.stores.datawork import PATIENCE, DataWorkStore, has_cursors
from horae.stores.lanes import (
    LOST,
    Connection,
    Cut,
    HeldUp,
    Lane,
    Pool,
    connect,
    guarded,
    part_from,
    reached,
)
from horae.stores.loans import Steps
from horae.stores.nodes import beat_of
from horae.stores.pooled import PooledConnection
from horae.stores.sql import Row, encode

log = structlog.get_logger()
T = TypeVar("T")
COPY_FROM = 500  # jobs in one submit from which COPY beats INSERT … unnest
RETRIES = 4  # of a statement that lost a deadlock or a race on a key
OLDEST, NEWEST = 130000, 190000  # server versions this has been tried on
READERS = 4  # connections for users' reads
EPOCH, LAST_EPOCH = 2**20, 2047  # fences of one timeline of the server, and timelines that have some of their own
SHORTEST_BEAT = 1.0  # seconds a sign of life may take, however short the lease
# The hot statements name the rows they want by id and find them by index, whatever the statistics say just now.
# Those are out of date exactly when it matters, in a herd or after an outage: with a guess of one row, a join of a
# thousand ids became a scan of the table for each. So: rows by `= ANY(ids)`, joins by hash, nothing else.
BY_INDEX = {"enable_seqscan": "off", "enable_nestloop": "off", "enable_mergejoin": "off"}
RACES = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.UniqueViolationError)


# Signs of life: for these, twice is the same as once.
SIGNS = frozenset({"beat", "beat_alone", "register_node", "open_lines", "get_node", "retire_node", "get_lease",
                   "make_lease", "take_lease", "renew_lease", "resign_lease"})  # fmt: skip


@dataclass(slots=True)
class Failovers:
    """What this process knows of the server's past."""

    timeline: int = 0  # the newest one met
    met_at: float = float("-inf")  # when somebody first met it
    count: int = 0
    commits_lost: int = 0  # failovers after which commits were certainly missing
    beats: dict[str, int] = field(default_factory=dict)  # the highest seen of each node that beats here


class PostgresStore(DataWorkStore):
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
        self._claim = Lane(self._connect_claim)
        self._finish = Lane(self._connect_hot)
        self._submit = Lane(self._connect)
        self._upkeep = Lane(self._connect)
        self._beat = Lane(self._connect_beat, self._beat_time)
        self._readers = Pool(self._connect_reader, readers)
        self._lanes = {"beat": self._beat, "fire": self._fire, "claim": self._claim, "finish": self._finish}
        self._is_for_roles = False
        self._lease = lease
        self._past = Failovers()
        self._marks = marks.Marks()

    def for_roles(self) -> PostgresStore:
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
        return await connect(self._url, timeout=sql.READ_TIME)

    async def _connect_hot(self) -> Connection:
        return await connect(self._url, settings=BY_INDEX)

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
            self._note_timeline(timeline, await connection.fetchval(self.queries["note_timeline"], str(timeline)))
        if type(connection) is PooledConnection:
            connection.stay_on(timeline, self.queries["timeline"])
        return connection

    def _note_timeline(self, timeline: int, age: float) -> None:
        past = self._past
        if timeline <= past.timeline:
            return  # another lane met it at the same time
        past.count += past.timeline > 0
        if timeline > 1 and age < self._lease:
            past.met_at = time.monotonic() - age
            pause = round(self._lease - age, 1)
            log.warning("failover", timeline=timeline, before=past.timeline, claims_pause_seconds=pause)
        past.timeline = timeline

    @property
    def _is_in_doubt(self) -> bool:
        """Whether agents may still hold runs by claims that a failover lost."""
        return time.monotonic() - self._past.met_at < self._lease

    def _note_beat(self, name: str, beat: int) -> None:
        past = self._past
        if beat <= past.beats.get(name, -1):
            past.commits_lost += 1
            log.error("failover.commits_lost", node=name, beat=beat, seen=past.beats[name], timeline=past.timeline)
        past.beats[name] = beat

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

    async def close(self) -> None:
        for part in (self._fire, self._claim, self._finish, self._submit, self._upkeep, self._beat, self._readers):
            await part.close()

    # ── plumbing ──
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
        return self._lanes.get(sql.URGENT.get(name, ""), self._upkeep)

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
                raise sql.too_slow() from error
            raise

    async def write(self, statement: str, *args: Any) -> Sequence[Row]:
        return await self._change(self._upkeep, statement, *args)

    async def _change(self, lane: Lane, statement: str, *args: Any) -> Sequence[Row]:
        async with (lane if self._is_for_roles else self._submit).use() as connection:
            return await connection.fetch(statement, *args)

    async def _get(self, name: str, *args: Any) -> Sequence[Row]:
        return await self._fetch(self._lane_of(name), self.queries[name], *args)

    async def _put(self, name: str, *args: Any) -> Sequence[Row]:
        if name in SIGNS:
            return await self._once_more(self._beat, self.queries[name], *args)
        return await self._change(self._lane_of(name), self.queries[name], *args)

    async def _repeated(self, lane: Lane, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run a statement again when it lost a race against another one: it has left no trace."""
        for chance in range(RETRIES, -1, -1):
            try:
                async with lane.use() as connection:
                    return await work(connection)
            except RACES as error:
                if not chance:
                    raise Unavailable(f"the database refused it {RETRIES + 1} times: {error}") from error
        raise AssertionError("the last chance returns or raises")

    async def _retried(self, lane: Lane, work: Callable[[Connection], Awaitable[T]]) -> T:
        """As _repeated, for several statements in one transaction."""

        async def transact(connection: Connection) -> T:
            async with connection.transaction():
                return await work(connection)

        return await self._repeated(lane, transact)

    async def _transact(self, steps: Callable[[], Steps[T]]) -> T:
        """On the lane of claims: lending is one, and its connection knows on which timeline the server is."""
        return await self._retried(self._claim, lambda connection: self._walk(connection, steps()))

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
        return None if self._is_in_doubt else (min(self._past.timeline, LAST_EPOCH) - 1) * EPOCH + 1

    async def _row(self, lane: Lane, name: str, *args: Any) -> Row:
        """The one row that a query answers with."""

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

    async def _moment(self, connection: Connection) -> Moment:
        frozen = self._clock()
        return int(await connection.fetchval(self.queries["now"])) if frozen is None else frozen

    # ── definitions ──
    async def allocate(self, jobs: int, triggers: int) -> tuple[Sequence[int], Sequence[int]]:
        async with self._submit.use() as connection:
            row = await connection.fetchrow(self.queries["allocate"], jobs, triggers)
        assert row is not None
        return row[0], row[1]

    async def submit(self, submissions: Sequence[Submission]) -> list[Receipt]:
        try:
            return await self._submit_once(submissions)
        except Cut:
            return await self._retried(self._submit, lambda connection: self._submit_again(connection, submissions))

    async def _submit_again(self, connection: Connection, submissions: Sequence[Submission]) -> list[Receipt]:
        """After the connection broke: what has its jobs was done, the rest is done now."""
        rows = await connection.fetch(self.queries["find_jobs"], [job.id for s in submissions for job in s.jobs])
        done = {row[0] for row in rows}
        ids = [[job.id for job in s.jobs] for s in submissions]
        rest = [s for s, made in zip(submissions, ids, strict=True) if not done.issuperset(made[:1] or [0])]
        receipts = iter(await self._submit_checked(connection, rest))
        return [Receipt(made) if done.issuperset(made[:1] or [0]) else next(receipts) for made in ids]

    async def _submit_once(self, submissions: Sequence[Submission]) -> list[Receipt]:
        if all(s.idempotency is None and all(job.key is None for job in s.jobs) for s in submissions):
            await self._insert([job for s in submissions for job in s.jobs])
            return [Receipt([job.id for job in s.jobs]) for s in submissions]
        return await self._retried(self._submit, lambda connection: self._submit_checked(connection, submissions))

    async def _insert(self, jobs: Sequence[Job]) -> None:
        async with self._submit.use() as connection:
            if len(jobs) < COPY_FROM:
                await connection.execute(self.queries["submit"], *_submit_arrays(jobs))
            else:
                async with connection.transaction():
                    await _copy_jobs(connection, jobs)

    async def _submit_checked(self, connection: Connection, submissions: Sequence[Submission]) -> list[Receipt]:
        """Submit with idempotency keys and job keys; two equal keys in one call meet as two calls would."""
        known = await self._known(connection, [s.idempotency for s in submissions])
        taken = await self._taken(connection, [job for s in submissions for job in s.jobs if job.key])
        receipts, fresh = [], []
        for submission in submissions:
            receipt = sql.judge(submission, known, taken)
            if receipt is None:
                fresh.append(submission)
                receipt = Receipt([job.id for job in submission.jobs])
                sql.remember(submission, known, taken)
            receipts.append(receipt)
        await self._note(connection, [(s.idempotency, [job.id for job in s.jobs]) for s in fresh])
        jobs = [job for s in fresh for job in s.jobs]
        if jobs:
            await connection.execute(self.queries["submit"], *_submit_arrays(jobs))
        return receipts

    async def _known(self, connection: Connection, keys: Sequence[Idempotency | None]) -> sql.Known:
        wanted = [key for key in keys if key]
        if not wanted:
            return {}
        rows = await connection.fetch(
            self.queries["load_idempotency"], [k.scope for k in wanted], [k.key for k in wanted]
        )
        return {(row[0], row[1]): (row[2], sql.from_json(row[3])) for row in rows}

    async def _taken(self, connection: Connection, jobs: Sequence[Job]) -> sql.Taken:
        if not jobs:
            return set()
        rows = await connection.fetch(
            self.queries["load_keys"], [j.org for j in jobs], [j.owner for j in jobs], [j.key for j in jobs]
        )
        return {(row[0], row[1], row[2]) for row in rows}

    async def _note(self, connection: Connection, pairs: Sequence[tuple[Idempotency | None, list[int]]]) -> None:
        kept = [(key, sql.encode(ids)) for key, ids in pairs if key]
        if kept:
            await connection.execute(
                self.queries["save_idempotency"],
                [key.scope for key, _ in kept],
                [key.key for key, _ in kept],
                [key.digest for key, _ in kept],
                [ids for _, ids in kept],
                await self._moment(connection),
            )

    async def save_job(self, job: Job, expected_version: int, idempotency: Idempotency | None = None) -> Receipt | None:
        async def save(connection: Connection) -> Receipt | None:
            row = await connection.fetchrow(self.queries["lock_job"], job.id)
            # Asked under the lock: a twin of this request that was faster has bumped the version, and its key is seen.
            if earlier := sql.replay(idempotency, await self._known(connection, [idempotency])):
                return earlier
            if row is None or row[0] != expected_version:
                return None
            before = [doc["id"] for doc in sql.from_json(row[1])]
            fired = dict(await connection.fetch(self.queries["lock_due"], before))
            if sql.has_fired(job, fired):
                return None  # it fired meanwhile: the next moment must be worked out anew
            try:
                await connection.execute(self.queries["save_job"], *sql.job_values(job))
            except asyncpg.UniqueViolationError as error:
                raise sql.key_taken(job) from error
            kept = {t.id for t in job.triggers}
            await connection.execute(self.queries["drop_due"], [id for id in before if id not in kept])
            await connection.execute(self.queries["save_due"], *_due_arrays([job]))
            await self._note(connection, [(idempotency, [job.id])])
            return Receipt([job.id])

        return await self._retried(self._submit, save)

    async def delete_job(self, job_id: int, seen: Job | None = None) -> Cancelled | None:
        async def bury(connection: Connection) -> sql.Part | None:
            row = await connection.fetchrow(self.queries["lock_job"], job_id)
            if row is None or (seen is not None and row[0] != seen.version):
                return None
            triggers = [doc["id"] for doc in sql.from_json(row[1])]
            if seen is not None and sql.has_fired(
                seen, dict(await connection.fetch(self.queries["lock_due"], triggers))
            ):
                return None
            waiting = [row[0] for row in await connection.fetch(self.queries["waiting_live"], job_id, sql.BATCH)]
            if len(waiting) == sql.BATCH:
                return await self._end(connection, waiting, "deleted", promote=False), False
            await connection.execute(self.queries["drop_due"], triggers)
            await connection.execute(self.queries["bury_job"], job_id, await self._moment(connection))
            runs = [row[0] for row in await connection.fetch(self.queries["live_of_job"], job_id)]
            return await self._end(connection, runs, "deleted"), True

        return await sql.ended_in_parts(lambda: self._retried(self._submit, bury))

    # ── firing ──
    async def load_due(
        self, segments: Sequence[int], after: tuple[Moment, int], until: Moment, limit: int
    ) -> list[Due]:
        rows = await self._get("load_due", list(segments), *after, until, limit)
        return [Due._make(row) for row in rows]

    async def load_definitions(self, trigger_ids: Sequence[int]) -> list[Definition]:
        rows = await self._get("load_definitions", trigger_ids)
        return [sql.definition_from_row((*row[:3], *row[3])) for row in rows]

    async def fire(
        self, fires: Sequence[Fire], terms: Mapping[int, int] | None = None, lend: Lend | None = None
    ) -> Fired:
        arrays = [*_fire_arrays(fires), list(terms or ()), list((terms or {}).values())]
        if lend is None and not any(f.passed or f.reserve or f.birth.overlap >= Overlap.QUEUE for f in fires):
            row = await self._row(self._fire, "fire", self._clock(), *arrays)
            return Fired(set(row[0] or ()), len(row[2] or ()), row[3], row[4], frozenset(row[5]))

        async def transact(connection: Connection) -> Fired:
            row = await connection.fetchrow(self.queries["fire"], self._clock(), *arrays)
            assert row is not None
            advanced, made, now = row[0] or [], set(row[2] or ()), row[4]
            run_ids = dict(zip(advanced, row[1] or [], strict=True))
            held = [f for f in fires if f.trigger_id in run_ids]
            await self._pass(connection, held, run_ids, now)
            skipped = row[3]
            for f in held:
                run_id = run_ids[f.trigger_id]
                if f.born and run_id not in made and f.birth.overlap >= Overlap.QUEUE:
                    skipped += await self._follow(connection, run_id, f.birth, f.trigger_id, f.due_at, now)
            if lend is not None:
                lent = await self._walk(connection, self._lend_runs(list(run_ids.values()), lend, now))
                made -= {loan.run_id for loan in lent}
            reserved = {f.trigger_id: run_ids[f.trigger_id] for f in held if f.reserve}
            return Fired(set(advanced), len(made), skipped, now, frozenset(row[5]), reserved)

        return await self._retried(self._fire if lend is None else self._claim, transact)

    async def _pass(self, connection: Connection, fires: Sequence[Fire], run_ids: dict[int, int], now: Moment) -> None:
        rows = [
            (f.birth.job_id, f.trigger_id, at, run_ids[f.trigger_id] if state == 15 else None, state,
             f.birth.priority, f.birth.kind, reason)
            for f in fires
            for at, state, reason in f.passed
        ]  # fmt: skip
        if rows:
            await connection.execute(self.queries["passed"], now, *map(list, zip(*rows, strict=True)))

    async def _follow(
        self,
        connection: Connection,
        run_id: int,
        birth: Birth,
        trigger_id: int | None,
        due_at: Moment,
        now: Moment,
    ) -> int:
        """Write a run that found its gate taken, under `queue` or `replace`. Returns 1 if it was skipped."""
        holder = await connection.fetchrow(self.queries["lock_gate"], birth.job_id)
        waiting = [row[0] for row in await connection.fetch(self.queries["waiting_of_job"], birth.job_id)]
        if birth.overlap == Overlap.QUEUE and len(waiting) >= birth.overlap_limit:
            await connection.execute(
                self.queries["add_skipped"], run_id, birth.job_id, trigger_id, due_at, now, birth.priority, birth.kind,
                f"{len(waiting)} runs of this job were waiting already", birth.data,
            )  # fmt: skip
            return 1
        if birth.overlap == Overlap.REPLACE:
            ended = await self._end(connection, [*waiting, *([holder[0]] if holder else [])], "replaced", promote=False)
            holder = holder if holder and holder[0] not in ended.ended else None
        gate, state, reason = (None, 2, "overlap") if holder else (birth.job_id, 0, "")
        await connection.execute(
            self.queries["add_successor"], run_id, birth.job_id, trigger_id, due_at, now, gate, birth.start_by, state,
            reason, birth.priority, birth.overlap, birth.kind, list(birth.needs) or None, birth.data, birth.pin,
        )  # fmt: skip
        return 0

    async def enqueue(self, orders: Sequence[Order]) -> list[Receipt]:
        if any(order.idempotency or order.birth.overlap >= Overlap.QUEUE for order in orders):
            try:
                return await self._retried(self._submit, lambda connection: self._enqueue_checked(connection, orders))
            except Cut:
                if not all(order.idempotency for order in orders):
                    raise
                return await self._retried(self._submit, lambda connection: self._enqueue_checked(connection, orders))
        row = await self._row(self._submit, "enqueue", self._clock(), *_order_arrays(orders))
        return _receipts(row[0])

    async def _enqueue_checked(self, connection: Connection, orders: Sequence[Order]) -> list[Receipt]:
        known = await self._known(connection, [order.idempotency for order in orders])
        fresh = sql.first_of_each([o for o in orders if sql.replay(o.idempotency, known) is None])
        made = await self._make(connection, fresh) if fresh else []
        await self._note(connection, [(o.idempotency, r.ids) for o, r in zip(fresh, made, strict=True) if r.ids])
        return sql.order_receipts(orders, fresh, made, known)

    async def _make(self, connection: Connection, orders: Sequence[Order]) -> list[Receipt]:
        row = await connection.fetchrow(self.queries["enqueue"], self._clock(), *_order_arrays(orders))
        assert row is not None
        made = set(row[1] or ())
        for run_id, order in zip(row[0], orders, strict=True):
            if run_id is not None and run_id not in made and order.birth.overlap >= Overlap.QUEUE:
                await self._follow(connection, run_id, order.birth, None, row[2], row[2])
        return _receipts(row[0])

    # ── runs ──
    async def claim(self, wants: Sequence[Want], labels: Sequence[str] = ()) -> list[list[Assignment] | None]:
        claimed: list[list[Assignment] | None] = [[] for _ in wants]
        async with self._claim.use() as connection:
            floor = self._fence_floor()
            if floor is None:
                return claimed
            begin, began = self._marks.begin(labels, {want.kind for want in wants}), time.monotonic()
            arrays = _claim_arrays(wants, begin)
            *rows, (_, stepped, *_) = await connection.fetch(
                self.queries["claim"], self._clock(), floor, labels, *arrays
            )
        if begin.marks or (stepped or 0) > marks.FEW:
            taken = [(row[10], row[7], row[6], row[1]) for row in rows if row[1] is not None]
            self._marks.note(labels, begin, stepped or 0, taken, time.monotonic() - began)
        for row in rows:
            given = claimed[row[0] - 1]
            if row[1] is None or given is None:
                claimed[row[0] - 1] = None
            else:
                *job, owner = row[8]
                given.append(Assignment._make((*row[1:8], *job, row[9], owner, None, None, None)))
        return claimed

    async def look_again(self, labels: Sequence[str]) -> float | None:
        return self._marks.look_again(labels)

    async def load_backlog(self, kinds: Sequence[str], limit: int) -> list[Backlog]:
        rows = await self._get("load_backlog", kinds, limit)
        return [Backlog(row[0], row[1], row[2] or (), row[3]) for row in rows]

    async def finish(self, results: Sequence[Result], waiting: Sequence[Waiting] = ()) -> Finished:
        if not waiting and not has_cursors(results):
            return await self._repeated(self._finish, lambda connection: self._end_attempts(connection, results))

        async def transact(connection: Connection) -> Finished:
            ids = sorted(w.result.run_id for w in waiting)
            held = await connection.fetch(self.queries["lock_held"], ids) if ids else ()
            final, again = sql.settle(waiting, {row[0] for row in held if row[1]})
            ended = await self._end_attempts(connection, [*results, *final])
            if has_cursors(results):
                now = await self._moment(connection)
                await self._walk(connection, self._move_cursors(results, ended.accepted, now))
            rows = await connection.fetch(self.queries["wait"], *_waiting_arrays(again), self._clock()) if again else []
            return Finished(ended.accepted | {row[0] for row in rows}, ended.promoted)

        return await self._retried(self._finish, transact)

    async def _end_attempts(self, connection: Connection, results: Sequence[Result]) -> Finished:
        row = await connection.fetchrow(self.queries["finish"], *_result_arrays(results), self._clock())
        assert row is not None
        return Finished(set(row[0] or ()), row[1])

    async def cancel(self, run_ids: Sequence[int], reason: str) -> Cancelled:
        return await self._retried(self._submit, lambda connection: self._end(connection, run_ids, reason))

    async def _end(
        self, connection: Connection, run_ids: Sequence[int], reason: str, *, promote: bool = True
    ) -> Cancelled:
        now = await self._moment(connection)
        rows = await connection.fetch(self.queries["cancel"], run_ids, reason, now)
        jobs = [row[2] for row in rows if row[2] is not None]
        promoted = await connection.fetch(self.queries["promote"], jobs) if jobs and promote else ()
        ended = {row[0] for row in rows if row[1] is None}
        return Cancelled(ended, {row[0]: row[1] for row in rows if row[1] is not None}, len(promoted))

    async def sweep(self) -> Swept:
        row = (await self._get("look_over", self._clock()))[0]
        eligible, start_by, orphans, now = row
        due = [moment for moment in (eligible, start_by) if moment is not None]
        if not orphans and not any(moment <= now for moment in due):
            return Swept(0, 0, min(due, default=None))

        async def transact(connection: Connection) -> Swept:
            await connection.execute(self.queries["postpone"], now, now + PATIENCE, sql.BATCH)
            released = await connection.fetch(self.queries["release"], now, sql.BATCH)
            expired = await connection.fetch(self.queries["expire"], now, sql.BATCH)
            jobs = [row[1] for row in expired if row[1] is not None] + list(orphans)
            promoted = await connection.fetch(self.queries["promote"], jobs) if jobs else ()
            return Swept(len(released) + len(promoted), len(expired), now)

        return await self._retried(self._finish, transact)

    async def set_phases(self, phases: Sequence[tuple[int, int, Phase]], *, session: int | None = None) -> None:
        if phases:
            await self._put("set_phases", *map(list, zip(*phases, strict=True)), session)

    async def fail_unrunnable(self, kinds: Sequence[str], message: str, remedies: Mapping[str, str]) -> int:
        async with self._upkeep.use() as connection:
            now = await self._moment(connection)
            given = (list(kinds), message, now, encode(dict(remedies)), sql.BATCH)
            return len(await connection.fetch(self.queries["fail_unrunnable"], *given))

    async def mark_unlabelled(self, agents: Sequence[Sequence[str]]) -> int:
        texts = [_array_text(labels) or "{}" for labels in agents]
        return len(await self._put("mark_unlabelled", texts, sql.BATCH))

    async def purge(self, run_ids: Sequence[int]) -> None:
        async def transact(connection: Connection) -> None:
            jobs = [row[0] for row in await connection.fetch(self.queries["purge"], run_ids)]
            await connection.execute(self.queries["drop_cursors"], jobs)

        await self._retried(self._upkeep, transact)

    async def tend_history(self) -> bool:
        return await self._tend(lambda connection: partitions.tend(connection, self._reach_for_upkeep))

    async def load_outdated_parts(self, before: Moment) -> list[HistoryPart]:
        return await self._tend(lambda connection: partitions.outdated(connection, before))

    async def drop_part(self, part: HistoryPart) -> None:
        await self._tend(lambda connection: partitions.drop(connection, part))

    async def _reach_for_upkeep(self) -> Connection:
        return await connect(self._url, timeout=partitions.LONGEST, settings=partitions.SETTINGS)

    async def _tend(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """On a connection of its own: an index, or a look at a whole partition, takes minutes."""
        connection = await reached(self._reach_for_upkeep)
        try:
            async with guarded(connection):
                return await work(connection)
        except asyncpg.PostgresError as error:  # such as one that its user may not do
            raise Unavailable(f"history could not be tended: {error}") from error
        finally:
            await part_from(connection)

    # ── nodes and leases ──
    async def open_lines(self, lines: Sequence[NewLine]) -> list[int | None]:
        """Of one name, one at a time: a row can be moved only once in a statement."""
        first = {line.name: line for line in reversed(lines)}
        rows = await self._put("open_lines", *_columns(list(first.values()), 4))
        sessions: dict[str, int | None] = {row[0]: row[1] for row in rows}
        rest = [line for line in lines if line is not first[line.name]]
        later = iter(await self.open_lines(rest) if rest else ())
        return [sessions.get(line.name, 0) if line is first[line.name] else next(later) for line in lines]

    async def _beat_all(self, signs: Sequence[Sign]) -> list[Beat | Superseded | None]:
        names, busy, sessions = ([sign[column] for sign in signs] for column in range(3))
        tells = [sign.held is not None for sign in signs]
        try:
            rows = await self._put("beat", names, busy, sessions, tells, self._clock())
        except HeldUp:  # somebody has locked the live runs: what runs goes on, only cancels wait
            rows = await self._put("beat_alone", names, busy, sessions, self._clock())
        by_sign: list[list[Row]] = [[] for _ in signs]
        for row in rows:
            by_sign[row[0] - 1].append(row[1:])
            if row[1] == 0:
                self._note_beat(names[row[0] - 1], row[2])
        return [beat_of(sign, found, self._is_in_doubt) for sign, found in zip(signs, by_sign, strict=True)]

    async def assign_segments(self, moves: dict[int, str], lease: Lease) -> bool:
        rows = await self._put(
            "assign_segments", list(moves), list(moves.values()), lease.name, lease.owner, lease.term
        )
        return len(rows) == len(moves)


def _receipts(run_ids: Sequence[int | None]) -> list[Receipt]:
    return [Receipt([] if run_id is None else [run_id]) for run_id in run_ids]


def _servers_own() -> None:
    """No moment of ours: the server's clock decides."""


# ── values → arrays ────────────────────────────────────────────────────────────────────────────────


Columns = list[Sequence[Any]]


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> Columns:
    """Rows as arrays. A column of nothing but NULLs is left empty, and unnest fills it up: encoding a thousand
    elements would take a tenth of what a whole run may cost."""
    if not rows:
        return [()] * width
    return [
        () if column[0] is None and column.count(None) == len(column) else column for column in zip(*rows, strict=True)
    ]


def _due_rows(jobs: Sequence[Job]) -> list[tuple[int, ...]]:
    return [
        (t.id, job.id, NEVER if t.next_at is None else t.next_at, job.version, job.segment)
        for job in jobs
        for t in job.triggers
    ]


def _due_arrays(jobs: Sequence[Job]) -> Columns:
    return _columns(_due_rows(jobs), 5)


def _submit_arrays(jobs: Sequence[Job]) -> Columns:
    return _columns([sql.job_values(job) for job in jobs], 16) + _due_arrays(jobs)


async def _copy_jobs(connection: Connection, jobs: Sequence[Job]) -> None:
    """Rows are made while the server works on those before them."""
    await connection.copy_records_to_table(
        "jobs", records=map(sql.job_values, jobs), columns=sql.JOB_COLUMNS.split(", ")
    )
    await connection.copy_records_to_table(
        "due",
        records=_due_rows(jobs),
        columns=["trigger_id", "job_id", "next_at", "version", "segment"],
    )


def _array_text(labels: Sequence[str]) -> str | None:
    """Labels as a PostgreSQL array literal, because a list of lists cannot be ragged."""
    return "{" + ",".join(f'"{label}"' for label in labels) + "}" if labels else None


def _fire_arrays(fires: Sequence[Fire]) -> Columns:
    """What has its usual value goes as NULL, and costs nothing when that holds for the whole batch."""
    rows = [
        (f.trigger_id, f.segment, f.version, f.cur_at, f.next_at, f.last_at,
         None if f.due_at == f.cur_at else f.due_at, None if f.born else True, b.kind, b.priority or None,
         b.overlap or None, b.start_by, b.data, _array_text(b.needs), f.reserved, f.reserve or None,
         None if newest == f.cur_at else newest)
        for f in fires
        for b, newest in ((f.birth, f.newest),)
    ]  # fmt: skip
    return _columns(rows, 17)


def _order_arrays(orders: Sequence[Order]) -> Columns:
    rows = [
        (b.job_id, b.kind, b.priority, b.overlap, b.start_by, b.data, _array_text(b.needs), b.pin)
        for b in (order.birth for order in orders)
    ]
    return _columns(rows, 8)


def _want_arrays(wants: Sequence[Want]) -> Columns:
    return _columns([(want.node, want.kind, want.room, first_phase(want.kind), want.session) for want in wants], 5)


def _claim_arrays(wants: Sequence[Want], begin: marks.Begin) -> Columns:
    return _want_arrays(wants) + _columns(begin.gaps, 3) + _columns(begin.marks, 4)


def _result_arrays(results: Sequence[Result]) -> Columns:
    """A plain success goes as four columns: its state and texts are the usual ones."""
    rows = [
        (r.run_id, r.fence, None if r.state is State.SUCCEEDED else r.state, r.reason or None, r.started_at,
         r.finished_at, r.exit_code, r.message or None, r.result, r.output)
        for r in results
    ]  # fmt: skip
    return _columns(rows, 10)


def _waiting_arrays(waiting: Sequence[Waiting]) -> Columns:
    rows = [
        (w.result.run_id, w.result.fence, 0 if w.eligible_at is None else 2,
         "lost" if w.lost else "" if w.eligible_at is None else "retry", w.eligible_at, int(w.lost),
         w.result.state, w.result.reason, w.result.started_at, w.result.finished_at, w.result.exit_code,
         w.result.message, w.result.output)
        for w in waiting
    ]  # fmt: skip
    return _columns(rows, 13)
