"""Signals on SQLite: what runs are told, and who goes on by it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from horae.core.model import Moment
from horae.core.runs.waits import MAX_ANSWERS, Signal, Told, answer_parts, read_answers
from horae.stores.rows import Row, encode
from horae.stores.sqlite.database import SqliteDatabase


class SqliteSignals(SqliteDatabase):
    """What runs are told."""

    async def signal(self, signals: Sequence[Signal]) -> list[Told]:
        def write(connection: sqlite3.Connection) -> list[Told]:
            now = self._clock()
            return [self._tell(connection, signal, now) for signal in signals]

        return await self._do(write)

    def _tell(self, connection: sqlite3.Connection, signal: Signal, now: Moment) -> Told:
        row = self._run(connection, "load_answers", encode([signal.run_id])).fetchone()
        if row is None:
            return Told.ABSENT
        refused, text = _told(signal, row, now)
        if refused is not None:
            return refused
        is_due = bool(row[2]) and row[3] == signal.name
        self._run(connection, "tell", signal.run_id, text, int(is_due))
        return Told.WOKEN if is_due else Told.KEPT


def _told(signal: Signal, row: Row, now: Moment) -> tuple[Told | None, str]:
    """Return why a run cannot be told this, or all that it was told with it."""
    said = read_answers(row[1]).get(signal.name)
    if said is not None and signal.key is not None and said.get("key") == signal.key:
        return Told.REPEATED, ""
    if said is not None:
        return Told.LATE if "late" in said else Told.ANSWERED, ""
    head, rest = answer_parts(signal)
    before = "{" if row[1] is None else row[1][:-1] + ","
    text = f"{before}{head}{now}{rest}}}"
    return (None, text) if len(text.encode()) <= MAX_ANSWERS else (Told.FULL, "")
