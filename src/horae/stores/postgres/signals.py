"""Signals on PostgreSQL: what runs are told, and who goes on by it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from horae.core.runs.waits import MAX_ANSWERS, Signal, Told, rounds
from horae.stores.idempotency import repeated
from horae.stores.postgres.arrays import signal_arrays
from horae.stores.postgres.definitions import PostgresDefinitions
from horae.stores.postgres.lanes import Connection
from horae.stores.rows import Row


class PostgresSignals(PostgresDefinitions):
    """What runs are told."""

    async def signal(self, signals: Sequence[Signal]) -> list[Told]:
        answers = [Told.ABSENT] * len(signals)
        for places in rounds(signals):
            told = await self._repeated(self._submit, partial(self._tell, [signals[place] for place in places]))
            for place, answer in zip(places, told, strict=True):
                answers[place] = answer
        return answers

    async def _tell(self, signals: Sequence[Signal], connection: Connection) -> list[Told]:
        """One thing to each run, in one statement; what was not done may have been done before."""
        rows = await connection.fetch(self.queries["signal"], *signal_arrays(signals), MAX_ANSWERS, self._clock())
        found = {row[0]: _told(row) for row in rows}
        told = [found.get(signal.run_id, Told.ABSENT) for signal in signals]
        undone = [s.idempotency for s, answer in zip(signals, told, strict=True) if not answer.is_done]
        return repeated(signals, told, await self._known(connection, undone))


def _told(row: Row) -> Told:
    _, is_late, is_answered, is_written, is_due = row
    if is_written:
        return Told.WOKEN if is_due else Told.KEPT
    return Told.LATE if is_late else Told.ANSWERED if is_answered else Told.FULL
