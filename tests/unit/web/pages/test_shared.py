"""What many look at is made once for all who see the same, and not kept for long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from horae.web.pages.shared import Shared


class Looks:
    """Counts how often it was looked, and lets each look take until it is told."""

    def __init__(self) -> None:
        self.number = 0
        self.go_on = asyncio.Event()

    async def look(self) -> dict[str, Any]:
        self.number += 1
        await self.go_on.wait()
        return {"number": self.number}


async def test_those_who_ask_together_are_served_by_one_look() -> None:
    found, looks = Shared(60), Looks()
    asking = [asyncio.create_task(found.see("all", looks.look)) for _ in range(5)]
    await asyncio.sleep(0)
    looks.go_on.set()
    seen = await asyncio.gather(*asking)
    assert [one.values for one in seen] == [{"number": 1}] * 5
    assert len({id(one.drawn) for one in seen}) == 1


async def test_who_sees_something_else_is_not_held_up() -> None:
    found, slow, fast = Shared(60), Looks(), Looks()
    waiting = asyncio.create_task(found.see("slow", slow.look))
    await asyncio.sleep(0)
    fast.go_on.set()
    assert (await found.see("fast", fast.look)).values == {"number": 1}
    slow.go_on.set()
    assert (await waiting).values == {"number": 1}


async def test_what_is_too_old_is_looked_at_again_and_what_others_saw_is_forgotten() -> None:
    found, looks = Shared(0), Looks()
    looks.go_on.set()
    await found.see("other", looks.look)
    for number in (2, 3):
        assert (await found.see("all", looks.look)).values == {"number": number}
    assert list(found._places) == ["all"]


async def test_a_look_that_fails_is_not_kept() -> None:
    found, looks = Shared(60), Looks()

    async def fail() -> dict[str, Any]:
        raise ValueError("nobody knows")

    with pytest.raises(ValueError, match="nobody knows"):
        await found.see("all", fail)
    looks.go_on.set()
    assert (await found.see("all", looks.look)).values == {"number": 1}
