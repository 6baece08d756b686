"""One server on SQLite or two on PostgreSQL, of which one after the other is killed and begun again."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from .server import Server

TIMERS = ("--heartbeat-interval", "0.5s", "--lease", "6s")
BOTH_DIE = 0.2  # of the deaths on PostgreSQL


class Servers:
    def __init__(self, directory: Path, database: str | None, *flags: str) -> None:
        self.each: list[Server] = []
        for name in ("s0",) if database is None else ("s0", "s1"):
            where = directory / name
            where.mkdir()
            more = () if database is None else ("--database", database)
            self.each.append(Server(where, *TIMERS, *more, "--node", name, *flags))
        self.kills = 0

    @classmethod
    def of(cls, store: str, request: pytest.FixtureRequest, directory: Path, *flags: str) -> Servers:
        """Of the store of this name, started."""
        database = request.getfixturevalue("postgres_url") if store == "postgres" else None
        return cls(directory, database, *flags).start()

    @property
    def first(self) -> Server:
        return self.each[0]

    def start(self) -> Servers:
        for server in self.each:
            server.start()
        return self

    def kill(self, chance: random.Random) -> None:
        """Kill one, or all that there are, and begin them again."""
        victims = self.each if chance.random() < BOTH_DIE else [chance.choice(self.each)]
        for server in victims:
            server.kill()
            self.kills += 1
        for server in victims:
            server.launch()
        for server in victims:
            server.wait_until_up()

    def stop(self) -> None:
        with ExitStack() as stack:
            for server in self.each:
                stack.callback(server.stop)
