"""Alerts through the API: what failures, absences and looks become, on both stores."""

from __future__ import annotations

from typing import Any

import httpx

from horae.core.model import State
from horae.service.alerts.telling import AlertTelling
from horae.service.alerts.watching import AlertWatching

from .world import BOTH, World

HOOK = {"kind": "webhook", "url": "https://ops.example.org/hook"}
AT_ONCE = {"wait": 0, "every": 0}


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


class Watch:
    """The leader of a world, moved by hand."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.watching = AlertWatching(world.store, world.queue, world.clock, is_leader=lambda: True)
        self.telling = AlertTelling(
            world.store, world.clock, world.secrets, world.teller, "here", is_needed=lambda: True
        )

    async def go(self) -> list[Any]:
        """Go once round and deliver; return the messages that came of it."""
        before = len(self.world.teller.sent)
        self.watching._looked = float("-inf")
        await self.watching._refresh()
        await self.watching.go_round()
        while await self.telling.deliver():
            pass
        return [message for _, message, _ in self.world.teller.sent[before:]]

    async def after(self, seconds: float) -> list[Any]:
        self.world.clock.advance(seconds)
        return await self.go()


async def make(world: World, name: str = "rule", **rule: Any) -> None:
    answer = await world.http.put("/v1/alerts/channels/ops", json=HOOK)
    assert answer.status_code in (200, 201), answer.text
    answer = await world.http.put(f"/v1/alerts/rules/{name}", json={"channels": ["ops"], **rule})
    assert answer.status_code in (200, 201), answer.text
    world.clock.advance(1)


async def ends(world: World, job_id: int, state: State, **fields: Any) -> int:
    work = await world.start_run(job_id)
    await work.end(state, **fields)
    return work.run_id


async def opened(world: World) -> list[Any]:
    return list((await world.http.get("/v1/alerts")).json()["items"])


@BOTH
async def test_a_failure_is_told_once_and_its_recovery_once(world: World) -> None:
    await make(world, when="failure")
    watch, job = Watch(world), await world.submit(name="nightly")
    run = await ends(world, job.id, State.FAILED, exit_code=3, message="no such table")
    assert await watch.go() == []  # more of it may come
    [told] = await watch.after(11)
    assert told["title"] == f"rule: job nightly ({job.id}) failed"
    assert "no such table" in told["text"]
    assert (told["opened"], told["closed"], told["count"]) == (1, 0, 1)
    assert told["alerts"][0]["run"] == run
    assert [(it["name"], it["count"]) for it in await opened(world)] == [(f"job nightly ({job.id})", 1)]
    await ends(world, job.id, State.FAILED)
    assert await watch.after(3600) == []
    await ends(world, job.id, State.SUCCEEDED)
    await watch.go()
    [over] = await watch.after(11)
    assert over["title"] == f"rule: job nightly ({job.id}) succeeds again"
    assert (over["opened"], over["closed"]) == (0, 1)
    assert await opened(world) == []
    assert await watch.after(10 * 3600) == []


@BOTH
async def test_many_failures_are_one_message_with_a_count(world: World) -> None:
    await make(world, when="failure")
    watch = Watch(world)
    jobs = [await world.submit(name=f"j{number}", overlap="allow") for number in range(5)]
    for _ in range(6):
        for job in jobs:
            await world.queue_run(job.id)
        await world.work("shell", State.FAILED)
        assert await watch.after(9) == []
    [told] = await watch.after(11)
    assert told["title"] == "rule: 5 jobs failed, 30 times in all"
    assert (told["opened"], told["count"], len(told["alerts"])) == (5, 30, 5)


@BOTH
async def test_so_many_in_a_row_are_told_and_fewer_are_not(world: World) -> None:
    await make(world, when="failure", count=3, **AT_ONCE)
    watch, job = Watch(world), await world.submit()
    for state in (State.FAILED, State.FAILED, State.SUCCEEDED, State.FAILED, State.FAILED):
        await ends(world, job.id, state)
        assert await watch.after(1) == []
    await ends(world, job.id, State.TIMED_OUT)
    [told] = await watch.after(1)
    assert told["title"].endswith("failed 3 times")
    await ends(world, job.id, State.SUCCEEDED)
    assert len(await watch.after(1)) == 1
