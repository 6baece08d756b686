"""Connections through a pooler that lends a server for one transaction at a time (PgBouncer in transaction mode).

What a session keeps does not hold there: two statements of ours may meet two servers, and other clients meet them in
between. So here

- every statement is in a transaction, and each transaction begins with its own limits and plan settings, in the same
  message; those that start a session elsewhere are refused or dropped by the pooler;
- statements are prepared without a name, used at once and forgotten: poolers before PgBouncer 1.21 know no others;
- a connection outlives the server behind it. What was learned of that server when the connection was made (its
  timeline) is compared in every transaction that relies on it.

LISTEN has no equal (stores.notices polls instead), and neither have locks of a session (stores.partitions keeps a
transaction open instead).
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

T = TypeVar("T")
ELSEWHERE = "HR001"  # the error of ours by which a transaction ends on a server that is not the one we met
# Of the parameters of an address, those that are for the client library; all others are settings of the session.
OF_CLIENT = frozenset({
    "application_name", "database", "dbname", "direct_tls", "gsslib", "host", "krbsrvname", "passfile", "password",
    "port", "servicefile", "service", "ssl", "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert",
    "sslcrl", "sslkey", "sslmode", "sslnegotiation", "sslpassword", "sslrootcert", "target_session_attrs", "user",
})  # fmt: skip
# Settings of the line between a server and its client, which is the pooler.
OF_LINE = frozenset({"application_name", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count"})
# What a client can put right, and what the server itself said: the connection is sound.
ANSWERED = (asyncpg.PostgresError, asyncpg.exceptions._base.DataError)


class PooledConnection(asyncpg.Connection):
    """A connection to a pooler: as one to a server, as long as nothing is asked of the session."""

    _first = ""  # said right after BEGIN

    def begin_with(self, settings: Mapping[str, str]) -> None:
        """What every transaction sets for itself."""
        set_all = ", ".join(f"set_config({_quoted(name)}, {_quoted(text)}, true)" for name, text in settings.items())
        self._first = f"SELECT {set_all};"

    def stay_on(self, timeline: int, query: str) -> None:
        """From now on, transactions on a server of another timeline are refused, before they do anything."""
        self._first += (
            f"DO $$BEGIN IF ({query.strip().rstrip(';')}) <> {timeline:d} THEN "
            f"RAISE 'the server behind the pooler is another one' USING ERRCODE = '{ELSEWHERE}'; END IF; END$$;"
        )

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        if query.startswith("BEGIN"):  # also that of the library's own transactions
            return await self._begin()
        return await self._transacted(super().execute, query, *args, **options)

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        return await self._transacted(super().fetch, query, *args, **options)

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        return await self._transacted(super().fetchrow, query, *args, **options)

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        return await self._transacted(super().fetchval, query, *args, **options)

    async def _begin(self) -> str:
        try:
            return await super().execute(f"BEGIN; {self._first}")
        except asyncpg.PostgresError as error:
            if error.sqlstate == ELSEWHERE:
                self.terminate()
                raise ConnectionError(str(error)) from error
            await self._give_up()
            raise

    async def _transacted(self, call: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """In a transaction of its own, unless there is one."""
        if self.is_closed():
            raise asyncpg.InterfaceError("connection is closed")  # as the library itself says it
        if self.is_in_transaction():
            return await call(*args, **options)
        await self._begin()
        try:
            answer = await call(*args, **options)
            await super().execute("COMMIT")
            return answer
        except ANSWERED:
            await self._give_up()
            raise
        except BaseException:  # nobody answers, or nobody waits any more: a goodbye could take as long again
            self.terminate()
            raise

    async def _give_up(self) -> None:
        if not self.is_closed() and self.is_in_transaction():
            await super().execute("ROLLBACK")


def separated(address: str, settings: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return an address without settings of the session, and those for its transactions."""
    parts = urlsplit(address)
    given = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: text for name, text in settings.items() if name not in OF_LINE}
    for name, text in given:
        if name == "options":
            ours |= _options(text)
        elif name not in OF_CLIENT:
            ours[name] = text
    query = urlencode([(name, text) for name, text in given if name in OF_CLIENT])
    return urlunsplit(parts._replace(query=query)), ours


def _options(text: str) -> dict[str, str]:
    """`-c name=value` and `--name=value`, as the server reads them."""
    words = [word.removeprefix("-c").removeprefix("--") for word in shlex.split(text)]
    pairs = (word.partition("=") for word in words if "=" in word)
    return {name.strip().replace("-", "_"): value for name, _, value in pairs}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
