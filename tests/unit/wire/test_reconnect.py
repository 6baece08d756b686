"""The loop that connects again: how long it pauses, and that its task ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from horae.wire.reconnect import FIRST_PAUSE, Reconnect, end_task

BAD, GOOD = False, True


class _Enough(Exception):
    """There are no more connections to try."""


class _Tries:
    """Connections that were good or not, one after the other."""

    def __init__(self, *outcomes: bool) -> None:
        self._outcomes: Iterator[bool] = iter(outcomes)

    async def __call__(self) -> bool:
        for outcome in self._outcomes:
            return outcome
        raise _Enough


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(round(seconds / FIRST_PAUSE, 3))

    monkeypatch.setattr("horae.wire.reconnect.asyncio.sleep", sleep)
    return made


async def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_good_connection(pauses: list[float]):
    tries = _Tries(BAD, BAD, BAD, BAD, GOOD, BAD)
    with pytest.raises(_Enough):
        await Reconnect(tries, spread=(1.0, 1.0), longest=lambda: 5 * FIRST_PAUSE).run()

    assert pauses == [1, 2, 4, 5, 1, 2]


async def test_who_is_waited_for_tries_again_at_once_after_a_good_connection(pauses: list[float]):
    with pytest.raises(_Enough):
        await Reconnect(_Tries(BAD, BAD, GOOD, GOOD, BAD), spread=(1.0, 1.0), at_once=True).run()

    assert pauses == [1, 2, 1]


async def test_not_all_come_back_at_once(pauses: list[float]):
    with pytest.raises(_Enough):
        await Reconnect(_Tries(*[GOOD] * 100)).run()

    assert len(set(pauses)) > 50
    assert all(0.5 <= pause <= 1.5 for pause in pauses)


async def test_a_task_that_swallows_a_cancel_is_ended_all_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("horae.wire.reconnect.CANCEL_SECONDS", 0.01)
    swallowed = 0
    began = asyncio.Event()

    async def stubborn() -> None:
        nonlocal swallowed
        began.set()
        while swallowed < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1

    task = asyncio.create_task(stubborn())
    await began.wait()
    await end_task(task)

    assert (task.done(), swallowed) == (True, 2)


async def test_a_cancel_that_a_connection_swallowed_ends_the_loop():
    began = asyncio.Event()

    async def swallow() -> bool:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return GOOD
        return BAD

    task = asyncio.create_task(Reconnect(swallow).run())
    await began.wait()
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=60)

    assert done
    assert task.cancelled()
