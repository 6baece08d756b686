"""Runs that come after others, on SQLite."""

from __future__ import annotations

import sqlite3

from horae.core.runs.following import Follow, Followed
from horae.stores.parts.dependencies import Changed, DependencyPart, followed, placed
from horae.stores.sqlite.orders import SqliteOrders


class SqliteDependencies(SqliteOrders, DependencyPart):
    """What is done when something ended after which others come."""

    async def follow(self, follow: Follow) -> Followed:
        def write(connection: sqlite3.Connection) -> Followed:
            now = self._clock()
            taken = self._walk(connection, self._take(follow))
            births = self._walk(connection, self._births(taken, follow.births))
            ids = iter(self._next("run", sum(birth.once for birth in births)))
            orders = [placed(birth, next(ids), now) if birth.once else birth.order for birth in births]
            receipts = self._carry_out_once(connection, orders, now) if orders else []
            if any(receipt.stale for receipt in receipts):
                raise Changed
            released = self._walk(connection, self._judge_waiting(taken.values(), follow.waiting, now))
            self._walk(connection, self._forget(follow.unfollowed))
            runs = [receipt.run for receipt in receipts if receipt.run is not None]
            return followed(len(taken), runs, released)

        try:
            return await self._do(write)
        except Changed:
            return Followed(stale=True)
