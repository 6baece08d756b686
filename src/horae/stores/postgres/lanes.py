"""Connections to PostgreSQL: lanes and a pool, and what each of the server's failures is to everybody above.

A lane is one connection for one purpose, used by one caller at a time; a pool is a few for many. Both wait for a turn
no longer than they must, open a connection when it is first wanted and anew when it broke, cut one that may not be
sound, and let one go that nobody wanted for a while. Foreign errors become ours here and nowhere else. Whether there is
a pooler on the way is found out here too (stores.pooled).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg
import structlog

from horae.errors import Invalid, Unavailable
from horae.stores import turns
from horae.stores.postgres.pooled import PooledConnection, separated

if TYPE_CHECKING:
    Connection = asyncpg.Connection[Any]
else:
    Connection = asyncpg.Connection  # generic only to the type checker

log = structlog.get_logger()
FAREWELL = 5.0  # seconds for a server to answer a goodbye
ANSWER = 30.0  # seconds a statement may take
LOCKED = 5.0  # seconds it may wait for a lock
REACH = 10.0  # seconds to get a connection, shared among the hosts
IDLE = 60.0  # seconds after which a connection that nobody wanted is given back to the server
HELD_UP = (
    asyncpg.QueryCanceledError,  # by a timeout or by somebody
    asyncpg.LockNotAvailableError,
    asyncpg.InsufficientResourcesError,  # disk, memory or connections are used up
)
# A value that cannot be written, ours or the server's to say: no connection is at fault, and no retry helps.
# The library counts the first as one of its InterfaceErrors, so they are looked for before those of LOST.
UNWRITABLE = (asyncpg.exceptions._base.DataError, asyncpg.DataError)
LOST = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server has said goodbye, and its connection is not closed yet
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shut down or starting up
    asyncpg.ReadOnlySQLTransactionError,  # it has become a standby
    TimeoutError,
    *HELD_UP,
)


class Cut(Unavailable):
    """The connection broke while it was in use: whether it happened is not known."""


class HeldUp(Unavailable):
    """The server gave the statement up; it left no trace."""


def refusal(error: BaseException) -> Unavailable:
    """Return what a failed connect or statement is to everybody above."""
    if isinstance(error, asyncpg.TooManyConnectionsError) or "no more connections allowed" in str(error):
        return Unavailable(
            f"the database takes no more connections: {error}",
            code="E_DB_CONNECTIONS",
            hint="raise max_connections of the server (of PgBouncer: max_client_conn), or run fewer nodes on it",
        )
    if isinstance(error, HELD_UP):
        return HeldUp(f"the database is held up: {error}")
    return Cut(f"the database cannot be reached: {error or 'it did not answer in time'}")


def _unwritable(error: BaseException) -> Invalid:
    """Without the values themselves, which the library would quote."""
    why = error if isinstance(error, asyncpg.PostgresError) else error.__cause__ or type(error).__name__
    return Invalid(f"the database cannot keep a value: {why}", code="E_CHAR")


@asynccontextmanager
async def guarded(connection: Connection) -> AsyncIterator[Connection]:
    """Use a connection; it is cut unless it is certainly sound afterwards."""
    try:
        yield connection
    except UNWRITABLE as error:
        raise _unwritable(error) from error
    except LOST as error:
        if not isinstance(error, HELD_UP) or connection.is_in_transaction():
            connection.terminate()
        raise refusal(error) from error
    except asyncio.CancelledError:
        # The statement may still be running on the server; its connection is of no more use.
        connection.terminate()
        raise


async def reached(connect: Callable[[], Awaitable[Connection]]) -> Connection:
    try:
        return await connect()
    except LOST as error:  # nothing was sent, so nothing is in doubt
        found = refusal(error)
        raise Unavailable(found.message, code=found.code, hint=found.hint) from error


class Rest:
    """Tells when something has not been used for IDLE seconds, with one timer, however often it is used."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._used_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """It was used just now."""
        loop = asyncio.get_running_loop()
        self._used_at = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(IDLE, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._used_at + IDLE - loop.time()
        self._timer = loop.call_later(left, self._look) if left > 0 else None
        if self._timer is None:
            self._tell()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Lane:
    """One connection for one purpose, used by one caller at a time, opened anew when it breaks."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], patience: float = ANSWER) -> None:
        self._connect = connect
        self._patience = patience
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._rest = Rest(self._let_go)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        async with turns.turn(self._lock, self._patience):
            if self._connection is None or self._connection.is_closed():
                self._connection = await reached(self._connect)
            try:
                async with guarded(self._connection) as connection:
                    yield connection
            finally:
                self._rest.begin()

    def _let_go(self) -> None:
        if self._connection is not None and not self._lock.locked():
            self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        self._rest.end()
        async with self._lock:
            if self._connection is not None:
                await part_from(self._connection)
                self._connection = None


class Pool:
    """A few connections for many callers."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int) -> None:
        self._connect = connect
        self._free = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._rest = Rest(self._let_go)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        async with turns.turn(self._free, turns.WAIT_SECONDS):
            connection = self._idle.pop() if self._idle else None
            if connection is None or connection.is_closed():
                connection = await reached(self._connect)
            try:
                async with guarded(connection):
                    yield connection
            except Cut:
                while self._idle:  # whatever cut this one has most likely cut them all
                    self._idle.pop().terminate()
                raise
            finally:
                if not connection.is_closed():
                    self._idle.append(connection)
                self._rest.begin()

    def _let_go(self) -> None:
        while self._idle:
            self._idle.pop().terminate()

    async def close(self) -> None:
        self._rest.end()
        while self._idle:
            await part_from(self._idle.pop())


def addresses(url: str) -> list[str]:
    """One address for each host of `postgresql://user@one:5432,two:5432/name`; of several, one that takes writes."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    every, query = hosts.split(","), parts.query
    if len(every) == 1:
        return [url]
    if "target_session_attrs=" not in query:
        query = "&".join(filter(None, (query, "target_session_attrs=read-write")))
    return [urlunsplit(parts._replace(netloc=login + at + host, query=query)) for host in every]


def place(address: str) -> str:
    """host:port of one address, for people; nothing of its login."""
    parts = urlsplit(address)
    host = parts.hostname or parse_qs(parts.query).get("host", ["the local socket"])[0]
    return f"{host}:{parts.port or 5432}"


async def connect(url: str, *, timeout: float | None = None, settings: Mapping[str, str] | None = None) -> Connection:
    """Return a connection whose statements take no longer than `timeout`, ANSWER unless given.

    Each of several hosts has a share of the time to connect, because one that was switched off does not even refuse.
    """
    timeout = ANSWER if timeout is None else timeout
    every = addresses(url)
    for address in every:
        try:
            return await _connect(address, timeout, min(REACH, timeout) / len(every), settings or {})
        except (OSError, TimeoutError) as error:
            if address == every[-1]:
                raise ConnectionError(f"{', '.join(map(place, every))}: {error or 'no answer in time'}") from error
        except LOST:
            if address == every[-1]:
                raise
    raise AssertionError("there is at least one address")


_poolers: set[str] = set()  # addresses at which one was met: the next connection need not be refused first


async def _connect(address: str, timeout: float, reach: float, others: Mapping[str, str]) -> Connection:
    """To a server, or to a pooler before one, which is found out: it refuses the settings of a session, or gives
    itself away by a number that is not that of the process behind it."""
    settings, longest = _settings(timeout, others), timeout + 1  # the server's own limit is first
    if address not in _poolers:
        try:
            connection: Connection = await asyncpg.connect(
                address, timeout=reach, command_timeout=longest, server_settings=settings
            )
        except asyncpg.ProtocolViolationError as error:
            if "startup parameter" not in str(error):
                raise
        else:
            if await _is_direct(connection):
                return connection
            await part_from(connection)
        _poolers.add(address)
        log.info("database.pooler", address=place(address))
    plain, ours = separated(address, settings)
    name = {"application_name": settings["application_name"]}
    pooled = await asyncpg.connect(
        plain, timeout=reach, command_timeout=longest, server_settings=name, statement_cache_size=0,
        connection_class=PooledConnection,
    )  # fmt: skip
    pooled.begin_with(ours)
    if await _is_direct(pooled):  # no longer before it
        _poolers.discard(address)
    return pooled


async def _is_direct(connection: Connection) -> bool:
    try:
        return bool(await connection.fetchval("SELECT pg_backend_pid()") == connection.get_server_pid())
    except BaseException:
        connection.terminate()
        raise


def is_pooled(connection: Connection) -> bool:
    return type(connection) is PooledConnection  # to the library, each of its connections is an instance of each class


def _settings(timeout: float, others: Mapping[str, str]) -> dict[str, str]:
    return {
        "application_name": "horae",
        "jit": "off",  # plans of a millisecond are not worth compiling
        "statement_timeout": str(round(timeout * 1000)),
        "lock_timeout": str(round(min(LOCKED, timeout / 2) * 1000)),
        "idle_in_transaction_session_timeout": str(round(timeout * 1000)),
        "tcp_keepalives_idle": "10",  # a node that vanished must not keep its locks for hours
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
        **others,
    }


async def part_from(connection: Connection) -> None:
    """Close it properly if the server answers, at once if it does not."""
    try:
        await connection.close(timeout=FAREWELL)
    except LOST:
        connection.terminate()
