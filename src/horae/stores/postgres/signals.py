"""Signals on PostgreSQL: what runs are told, and who goes on by it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from horae.core.runs.waits import MAX_ANSWERS, Signal, Told, rounds
from horae.stores.postgres.arrays import signal_arrays
from horae.stores.postgres.database import PostgresDatabase
from horae.stores.postgres.lanes import Connection
from horae.stores.rows import Row


class PostgresSignals(PostgresDatabase):
    """What runs are told."""

    async def signal(self, signals: Sequence[Signal]) -> list[Told]:
        answers = [Told.ABSENT] * len(signals)
        for places in rounds(signals):
            some = {signals[place].run_id: place for place in places}
            rows = await self._repeated(self._submit, partial(self._tell, [signals[place] for place in places]))
            for row in rows:
                answers[some[row[0]]] = _told(row, signals[some[row[0]]])
        return answers

    async def _tell(self, signals: Sequence[Signal], connection: Connection) -> Sequence[Row]:
        rows: Sequence[Row] = await connection.fetch(
            self.queries["signal"], *signal_arrays(signals), MAX_ANSWERS, self._clock()
        )
        return rows


def _told(row: Row, signal: Signal) -> Told:
    _, key, is_late, is_answered, is_written, is_due = row
    if is_written:
        return Told.WOKEN if is_due else Told.KEPT
    if not is_answered:
        return Told.FULL
    if signal.key is not None and signal.key == key:
        return Told.REPEATED
    return Told.LATE if is_late else Told.ANSWERED
