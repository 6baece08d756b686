"""Runs that come after others, on PostgreSQL."""

from __future__ import annotations

from horae.core.runs.following import Follow, Followed
from horae.stores.parts.dependencies import Changed, DependencyPart, followed, placed
from horae.stores.postgres.lanes import Connection
from horae.stores.postgres.orders import PostgresOrders


class PostgresDependencies(PostgresOrders, DependencyPart):
    """What is done when something ended after which others come."""

    async def follow(self, follow: Follow) -> Followed:
        async def transact(connection: Connection) -> Followed:
            now = await self._moment(connection)
            taken = await self._walk(connection, self._take(follow))
            births = await self._walk(connection, self._births(taken, follow.births))
            count = sum(birth.once for birth in births)
            ids = iter(await connection.fetch(self.queries["new_run_ids"], count) if count else ())
            orders = [placed(birth, next(ids)[0], now) if birth.once else birth.order for birth in births]
            receipts = await self._carry_out_once(connection, orders) if orders else []
            if any(receipt.stale for receipt in receipts):
                raise Changed
            released = await self._walk(connection, self._judge_waiting(taken.values(), follow.waiting, now))
            await self._walk(connection, self._forget(follow.unfollowed))
            runs = [receipt.run for receipt in receipts if receipt.run is not None]
            return followed(len(taken), runs, released)

        try:
            return await self._retried(self._submit, transact)
        except Changed:
            return Followed(stale=True)
