from __future__ import annotations

from dataclasses import replace

import pytest

from horae.core.model import Node
from tests.facades.world import NODE, World


@pytest.fixture
async def cluster(world: World) -> World:
    """A world whose node leads and schedules all segments, as `horae up` does."""
    now = world.clock.now()
    node = Node(
        name=NODE, roles=("api", "coordinator", "scheduler", "agent"), kinds=("python", "shell"), labels=(), slots=8,
        version="1", address="127.0.0.1:8080", started_at=now, heartbeat_at=now, beat=0,
    )  # fmt: skip
    await world.store.register_node(replace(node))
    lease = await world.store.take_lease("leader", NODE, None)
    assert lease is not None
    assert await world.store.assign_segments(dict.fromkeys(range(100), NODE), lease)
    return world
