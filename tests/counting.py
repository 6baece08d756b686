"""A store on PostgreSQL, and the statements it has sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from horae.stores.postgres import PostgresStore, database
from horae.testing import FakeClock


@asynccontextmanager
async def counted_store(
    url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[PostgresStore, list[str]]]:
    sent: list[str] = []
    connect = database.connect  # type: ignore[attr-defined]

    async def counting(*args: Any, **settings: Any) -> Any:
        connection = await connect(*args, **settings)
        connection.add_query_logger(lambda record: sent.append(record.query))
        return connection

    monkeypatch.setattr(database, "connect", counting)
    store = PostgresStore(url, clock=clock.now)
    await store.open()
    yield store, sent
    await store.close()


async def take(sent: list[str]) -> list[str]:
    """Return those that were sent since the last look; the driver tells of each when the loop comes round."""
    await asyncio.sleep(0)
    taken = list(sent)
    sent.clear()
    return taken
