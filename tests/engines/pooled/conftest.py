"""The store of all tests in this directory reaches its PostgreSQL through PgBouncer in transaction mode.

Tests that look at the database themselves do so directly: `postgres_url` is the server's own address.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import pytest

from horae.stores.postgres import PostgresStore
from horae.testing import FakeClock
from tests.conftest import make_template
from tests.contract.postgres_server import Postgres
from tests.engines.pgbouncer_server import PgBouncer, running_pgbouncer


@pytest.fixture(scope="session")
def postgres_behind() -> Iterator[Postgres]:
    server = Postgres.make()
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres_server(postgres_behind: Postgres) -> str:
    return postgres_behind.url


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    return make_template(postgres_server)


@pytest.fixture(scope="session")
def pooler(postgres_behind: Postgres) -> Iterator[PgBouncer]:
    """Few servers for many connections, so that each connection meets many of them."""
    with running_pgbouncer(postgres_behind.port, default_pool_size="5") as server:
        yield server


@pytest.fixture
def pooled_url(pooler: PgBouncer, postgres_url: str) -> str:
    return pooler.url(urlsplit(postgres_url).path[1:])


@pytest.fixture
async def postgres_store(pooled_url: str, clock: FakeClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(pooled_url, clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def store(postgres_store: PostgresStore) -> PostgresStore:
    return postgres_store
