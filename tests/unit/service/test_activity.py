"""Which node is active, also while the store is silent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from horae.errors import Unavailable
from horae.service.cluster import activity
from horae.service.cluster.activity import Active, Activity
from horae.service.patience import within
from horae.testing import FakeClock


class Segments:
    """A store that says what it is told to, breaks, or says nothing."""

    def __init__(self) -> None:
        self.owners: dict[int, tuple[str, int]] | Exception | None = {}

    async def load_segments(self) -> dict[int, tuple[str, int]]:
        if self.owners is None:
            await asyncio.Event().wait()
        if isinstance(self.owners, Exception):
            raise self.owners
        assert self.owners is not None
        return self.owners


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Segments:
    monkeypatch.setattr(activity, "ANSWER_SECONDS", 0.01)
    return Segments()


def of(store: Any, clock: FakeClock) -> Activity:
    return Activity(store, clock, node="a", lease_seconds=15.0)


async def test_the_active_node_is_who_has_the_segments(store: Segments, clock: FakeClock):
    looking = of(store, clock)
    assert await looking.look() == Active(False, "")
    store.owners = dict.fromkeys(range(100), ("b", 1))
    assert await looking.look() == Active(False, "b")
    store.owners = {**store.owners, 7: ("a", 2)}
    assert await looking.look() == Active(True, "a")


@pytest.mark.parametrize("silence", [None, Unavailable("away")])
async def test_what_a_silent_store_said_last_holds_for_its_lease(
    store: Segments, clock: FakeClock, silence: Exception | None
):
    looking = of(store, clock)
    store.owners = dict.fromkeys(range(100), ("a", 1))
    await looking.look()
    store.owners = silence

    clock.advance(12)
    assert await looking.look() == Active(True, "a")
    clock.advance(2)
    assert await looking.look() == Active(False, None)


async def test_a_store_that_never_answered_leaves_it_open(store: Segments, clock: FakeClock):
    store.owners = None
    assert await of(store, clock).look() == Active(False, None)


async def test_who_does_not_wait_takes_nothing_back():
    begun = asyncio.Event()
    ended = asyncio.Event()
    go_on = asyncio.Event()

    async def question() -> int:
        begun.set()
        await go_on.wait()
        ended.set()
        raise Unavailable("too late to matter")

    with pytest.raises(Unavailable, match="has not answered"):
        await within(0.01, question())
    assert begun.is_set()
    go_on.set()
    await asyncio.wait_for(ended.wait(), 10)
