from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from horae.ports.store import Store
from horae.testing import FakeClock
from tests.facades.world import World


@pytest.fixture
def world_store(request: pytest.FixtureRequest) -> Store:
    """SQLite; for tests marked BOTH also PostgreSQL."""
    store: Store = request.getfixturevalue(f"{getattr(request, 'param', 'sqlite')}_store")
    return store


@pytest.fixture
async def world(world_store: Store, clock: FakeClock, tmp_path: Path) -> AsyncIterator[World]:
    made = World(world_store, clock, tmp_path)
    yield made
    await made.close()
