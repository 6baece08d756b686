"""Faults of a campaign let go of what they held, however they end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

from campaign.cluster import Member
from campaign.scene import Scene


class Held:
    def __init__(self) -> None:
        self.busy = asyncio.Lock()


async def test_a_member_that_was_to_begin_again_when_all_was_over_is_let_go_of():
    member = Held()
    scene = Scene.__new__(Scene)

    async def harm() -> None:
        async with asyncio.TaskGroup() as group:
            scene.begun = group
            await member.busy.acquire()
            scene.begin_soon(cast(Member, member))
            raise asyncio.CancelledError  # before what was begun has had its first turn

    with suppress(asyncio.CancelledError):
        await asyncio.create_task(harm())
    await asyncio.wait_for(member.busy.acquire(), 60)
