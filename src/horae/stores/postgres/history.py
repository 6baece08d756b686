"""The past on PostgreSQL, in partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import asyncpg

from horae.core.insight.baselines import Baseline
from horae.core.insight.learning import Mark
from horae.core.model import Moment
from horae.core.runs.past import HistoryPart
from horae.errors import Unavailable
from horae.stores.database import T
from horae.stores.insight.durations import MARK, DurationPart, duration_row
from horae.stores.parts.history import PastPart
from horae.stores.postgres import partitions
from horae.stores.postgres.database import PostgresDatabase
from horae.stores.postgres.lanes import Connection, connect, guarded, part_from, reached


class PostgresHistory(PostgresDatabase, PastPart, DurationPart):
    """Runs that have ended."""

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

    async def save_baselines(self, mark: Mark, moved: Mark, learned: Mapping[int, Baseline], now: Moment) -> bool:
        rows = [duration_row(job_id, one) for job_id, one in learned.items()]
        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 5
        return bool(await self._put("save_durations", MARK, mark.text, moved.text, now, *columns))

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
