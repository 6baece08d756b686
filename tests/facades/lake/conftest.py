from __future__ import annotations

import pytest

from tests.facades.lake.bodies import Client
from tests.facades.world import World


@pytest.fixture
def client(world: World) -> Client:
    return Client(world)
