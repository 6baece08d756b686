from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from horae.stores.sqlite import SqliteStore
from horae.testing import FakeClock
from tests.facades.world import World


@pytest.fixture
async def world(sqlite_store: SqliteStore, clock: FakeClock, tmp_path: Path) -> AsyncIterator[World]:
    made = World(sqlite_store, clock, tmp_path)  # type: ignore[arg-type]
    yield made
    await made.close()
