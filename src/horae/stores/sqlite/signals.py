"""Signals on SQLite: what runs are told, and who goes on by it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from horae.core.model import Moment
from horae.core.runs.waits import MAX_ANSWERS, Signal, Told, answer_parts, read_answers
from horae.stores.idempotency import repeated
from horae.stores.rows import Row, encode
from horae.stores.sqlite.definitions import SqliteDefinitions


class SqliteSignals(SqliteDefinitions):
    """What runs are told."""

    async def signal(self, signals: Sequence[Signal]) -> list[Told]:
        def write(connection: sqlite3.Connection) -> list[Told]:
            now = self._clock()
            told = [self._tell(connection, signal, now) for signal in signals]
            undone = [s.idempotency for s, answer in zip(signals, told, strict=True) if not answer.is_done]
            return repeated(signals, told, self._known(connection, undone))  # also by another of them

        return await self._do(write)

    def _tell(self, connection: sqlite3.Connection, signal: Signal, now: Moment) -> Told:
        row = self._run(connection, "load_answers", encode([signal.run_id])).fetchone()
        if row is None:
            return Told.ABSENT
        text = _with(signal, row, now)
        if isinstance(text, Told):
            return text
        is_due = bool(row[2]) and row[3] == signal.name
        self._run(connection, "tell", signal.run_id, text, int(is_due))
        self._note(connection, [(signal.idempotency, [signal.run_id])])
        return Told.WOKEN if is_due else Told.KEPT


def _with(signal: Signal, row: Row, now: Moment) -> str | Told:
    """Return all that a run was told with this, or why it cannot be."""
    said = read_answers(row[1]).get(signal.name)
    if said is not None:
        return Told.LATE if "late" in said else Told.ANSWERED
    head, rest = answer_parts(signal)
    before = "{" if row[1] is None else row[1][:-1] + ","
    text = f"{before}{head}{now}{rest}}}"
    return text if len(text.encode()) <= MAX_ANSWERS else Told.FULL
