"""The database: the real store on SQLite in memory, reached over a network that loses and delays what is sent.

Every statement travels to the database, is carried out there at one moment, and its answer travels back. On the way

    lost before   it never arrives; whoever sent it learns that, or waits until it gives up
    lost after    it is carried out, but nobody hears so
    late          whoever sent it has long been told that it failed when it is carried out

A node that dies or is paused meanwhile changes nothing about what it has sent.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from campaign.history import Hold

from horae.core.model import Lease, Moment, Node
from horae.errors import Unavailable
from horae.stores import migrate
from horae.stores.lines import Lines
from horae.stores.queries import load_queries
from horae.stores.rows import Row
from horae.stores.sqlite import SqliteStore
from horae.stores.sqlite.connections import Outcome, Write, Writer, connect
from simulation.loop import CURRENT
from simulation.world import World

T = TypeVar("T")
MEMORY = Path(":memory:")

USUAL, LONGEST = 0.002, 0.2  # seconds that a way takes
REFUSED = 0.01  # seconds until a database that is down has refused
PATIENCE = 10.0  # seconds after which an answer is not waited for any longer
LATEST = 8.0  # seconds after that, a statement may still be carried out


@cache
def _template() -> sqlite3.Connection:
    """Return an empty database with our tables."""
    connection = connect(MEMORY)
    connection.execute("BEGIN EXCLUSIVE")
    migrate._migrate_sqlite(connection, check=False)
    connection.execute("COMMIT")
    return connection


class Weather:
    """How statements fare now: shares of all of them."""

    def __init__(self) -> None:
        self.lost_before = self.lost_after = self.late = self.slow = 0.0

    def clear_up(self) -> None:
        self.lost_before = self.lost_after = self.late = self.slow = 0.0


class Database:
    def __init__(self, world: World) -> None:
        self.world = world
        self.weather = Weather()
        self._writer = Writer(MEMORY, world.loop)  # its thread is never started
        self.connection = self._writer._connection
        _template().backup(self.connection)
        self.ids = dict(self.connection.execute(load_queries("sqlite")["load_ids"]).fetchall())
        self.ends: dict[int, int] = {}  # run → when it ended, by the true time
        self._note_ends()
        self.holds: list[Hold] = []  # every time that a run was running
        self._holding: dict[int, Hold] = {}  # run → that of now
        self._note_holds()
        self.resumed: dict[int, int] = {}  # run → the one of which it takes over what succeeded
        self._note_resumed()
        self.is_away = False
        self.is_silent = False  # while it is away it does not even refuse
        self.apart: set[str] = set()  # nodes that do not reach it
        self.on_burial: dict[str, Callable[[], float]] = {}  # node → called when it is declared gone; how late
        self._held_up: list[Callable[[], None]] = []  # statements that wait until it is back

    def _note_ends(self) -> None:
        """What agents say of the end of a run is by their own clocks; the judge wants to know it better."""
        self.connection.create_function("note_end", 1, lambda run: self.ends.update({run: self.world.now()}))
        self.connection.execute("CREATE TEMP TRIGGER note_end AFTER DELETE ON live BEGIN SELECT note_end(old.id); END")

    def _note_holds(self) -> None:
        connection = self.connection
        connection.create_function("note_start", 1, self._note_start)
        connection.create_function("note_stop", 1, self._note_stop)
        for name, event, body in (
            ("started", "UPDATE OF state ON live WHEN new.state = 1 AND old.state <> 1", "note_start(new.id)"),
            ("stopped", "UPDATE OF state ON live WHEN new.state <> 1 AND old.state = 1", "note_stop(new.id)"),
            ("ended", "DELETE ON live WHEN old.state = 1", "note_stop(old.id)"),
        ):
            connection.execute(f"CREATE TEMP TRIGGER note_{name} AFTER {event} BEGIN SELECT {body}; END")

    def _note_resumed(self) -> None:
        """That is forgotten when it ends."""
        self.connection.create_function("note_resumed", 2, lambda run, other: self.resumed.update({run: other}))
        self.connection.execute(
            "CREATE TEMP TRIGGER note_resumed AFTER INSERT ON live WHEN new.resumes IS NOT NULL "
            "BEGIN SELECT note_resumed(new.id, new.resumes); END"
        )

    def _note_start(self, run: int) -> None:
        hold = self._holding[run] = Hold(run, self.world.now())
        self.holds.append(hold)

    def _note_stop(self, run: int) -> None:
        self._holding.pop(run).until = self.world.now()

    def come_back(self) -> None:
        self.is_away = False
        held_up, self._held_up = self._held_up, []
        for carry_out in held_up:
            self.world.later(self.world.between(0, 0.5), carry_out)

    def close(self) -> None:
        self.connection.close()

    # ── statements ──
    async def ask(self, work: Callable[[], Outcome], what: str) -> Any:
        """Send a statement, and wait for its answer."""
        world, weather, name = self.world, self.weather, CURRENT.get().name.partition("#")[0]
        answer: asyncio.Future[Any] = world.loop.create_future()
        there, back = world.seldom_long(USUAL, LONGEST), world.seldom_long(USUAL, LONGEST)
        if world.rolls(weather.slow):
            there += world.between(0.1, 3.0)

        def carry_out(after: float = back) -> None:
            result, error = work()
            world.later(after, _settle, answer, result, error)

        def arrive() -> None:
            if self.is_away or name in self.apart:
                self._refuse(answer, carry_out, what)
            elif world.rolls(weather.lost_before):
                world.counts["statements lost before"] += 1
                world.later(back, _fail, answer)
            elif world.rolls(weather.lost_after):
                world.counts["statements lost after"] += 1
                world.tell(f"the answer to {what} is lost")
                work()
                world.later(back, _fail, answer)
            elif world.rolls(weather.late):
                world.counts["statements late"] += 1
                world.tell(f"{what} will be late")
                world.later(back, _fail, answer)
                world.later(world.between(0, LATEST), carry_out)
            else:
                carry_out()

        world.later(there, arrive)
        return await answer

    def _refuse(self, answer: asyncio.Future[Any], carry_out: Callable[[], None], what: str) -> None:
        """Nobody is there. One that does not refuse keeps who asks waiting; what it was sent may arrive later."""
        world = self.world
        if not self.is_silent:
            world.later(REFUSED, _fail, answer)
            return
        world.later(PATIENCE, _fail, answer)
        since = world.elapsed

        def carry_out_late() -> None:
            if world.elapsed - since < PATIENCE + LATEST and world.rolls(0.5):
                world.counts["statements late"] += 1
                carry_out()

        self._held_up.append(carry_out_late)

    def write(self, write: Write) -> Outcome:
        return self._writer._carry_out([write])[0]

    def read(self, statement: str, args: Sequence[Any]) -> Outcome:
        return list(self.connection.execute(statement, args)), None


def _settle(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


def _fail(answer: asyncio.Future[Any]) -> None:
    _settle(answer, None, Unavailable("the database cannot be reached"))


class Store(SqliteStore):
    """The store as one node has it: all of it is real, but for the way to the database."""

    def __init__(self, database: Database) -> None:
        super().__init__(MEMORY, clock=database.world.now)
        self._database = database
        self._ids = database.ids
        self._lines = Lines(lambda: database.world.elapsed)

    async def _do(self, write: Callable[[sqlite3.Connection], T]) -> T:
        name = write.__qualname__.rpartition(".<locals>")[0].rpartition(".")[2]
        result: T = await self._database.ask(lambda: self._database.write(write), name)
        return result

    async def read(self, statement: str, *args: Any) -> Sequence[Row]:
        rows: Sequence[Row] = await self._database.ask(lambda: self._database.read(statement, args), "a read")
        return rows

    async def _get(self, name: str, *args: Any) -> Sequence[Row]:
        statement = self.queries[name]
        rows: Sequence[Row] = await self._database.ask(lambda: self._database.read(statement, args), name)
        return rows

    async def _put(self, name: str, *args: Any) -> Sequence[Row]:
        def write(connection: sqlite3.Connection) -> Sequence[Row]:
            return connection.execute(self.queries[name], args).fetchall()

        rows: Sequence[Row] = await self._database.ask(lambda: self._database.write(write), name)
        return rows

    async def bury_nodes(self, seen: Sequence[Node], lease: Lease) -> dict[str, dict[int, int]]:
        awaited = [self._database.on_burial.pop(node.name, None) for node in seen]
        await asyncio.sleep(max((hold_up() for hold_up in awaited if hold_up is not None), default=0.0))
        return await super().bury_nodes(seen, lease)

    async def now(self) -> Moment:
        moment: Moment = await self._database.ask(lambda: (self._database.world.now(), None), "now")
        return moment
