"""An agent whose results survive it: the real spool on disk, a real store, a wire that can be cut."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from horae.core.model import State
from horae.errors import Unavailable
from horae.files import open_files
from horae.links.spool import AgentSpool
from horae.service.agent.agent import Agent
from horae.service.agent.delivery import LAST_REPORT_SECONDS
from horae.service.execution import Execution, LocalLink
from horae.service.jobs import Jobs
from horae.testing import FakeClock

from ...claiming import claim
from .parts import Probe, Told, node
from .test_agent import LEASE, Hands, Leash, Stage


class Life:
    """One process of an agent after the other, on the same directory."""

    def __init__(self, jobs: Jobs, execution: Execution, probe: Probe, queue: Told, clock: FakeClock, place: Path):
        self._jobs, self._execution, self._probe, self._queue, self._clock = jobs, execution, probe, queue, clock
        self._place = place

    async def begin(self) -> tuple[Stage, AgentSpool]:
        hands, leash = Hands(self._clock), Leash()
        link = Probe(LocalLink(self._execution, self._probe, self._queue))  # type: ignore[arg-type]
        spool = AgentSpool(open_files(self._place / "outputs"), self._place)
        agent = Agent(
            node("n1"), link, {"python": hands}, spool, leash, self._clock, lease_seconds=LEASE, output_limit=1000,
            spool=spool,
        )  # fmt: skip
        await agent.join()
        return Stage(agent, hands, leash, link, self._jobs), spool

    def on_disk(self) -> int:
        return len(list((self._place / "results").iterdir()))


@pytest.fixture
def life(jobs: Jobs, execution: Execution, probe: Probe, queue: Told, clock: FakeClock, tmp_path: Path) -> Life:
    return Life(jobs, execution, probe, queue, clock, tmp_path / "spool")


async def test_a_result_that_could_not_be_reported_is_reported_by_the_next_life(life: Life):
    stage, _ = await life.begin()
    finished, unfinished = await stage.order(2)
    await stage.agent.claim()
    stage.hands.end(finished)
    await stage.agent.delivery.keep()
    stage.link.lose_call("finish")
    with pytest.raises(Unavailable):
        await stage.agent.delivery.report()

    again, _ = await life.begin()

    assert await again.states([finished, unfinished]) == [State.RUNNING, State.QUEUED]
    assert await again.agent.delivery.report() == 1
    assert await again.states([finished]) == [State.SUCCEEDED]
    assert life.on_disk() == 0


async def test_a_kept_result_of_a_superseded_attempt_is_refused_and_forgotten(life: Life, execution: Execution):
    stage, _ = await life.begin()
    (run,) = await stage.order()
    await stage.agent.claim()
    stage.hands.end(run)
    await stage.agent.delivery.keep()
    await execution.reap("n1")

    again, _ = await life.begin()
    assert await again.agent.delivery.report() == 1

    assert await again.states([run]) == [State.QUEUED]
    assert life.on_disk() == 0


async def test_a_result_waits_for_its_output_and_others_do_not_wait_for_it(life: Life):
    stage, spool = await life.begin()
    slow, fast = await stage.order(2)
    await stage.agent.claim()
    output = stage.hands.works[slow].output
    output.write(b"much")
    await output.close()
    stage.hands.end(slow)
    stage.hands.end(fast)

    assert await stage.agent.delivery.report() == 1
    assert await stage.states([slow, fast]) == [State.RUNNING, State.SUCCEEDED]
    assert await stage.agent.delivery.report() == 0
    assert not stage.agent.delivery.results_ready.is_set()

    spool.note_stored(slow, 1, 0)

    assert stage.agent.delivery.results_ready.is_set()
    assert await stage.agent.delivery.report() == 1
    assert await stage.states([slow]) == [State.SUCCEEDED]


async def test_a_result_that_was_reported_while_it_was_being_kept_leaves_nothing_behind(life: Life):
    stage, spool = await life.begin()
    (run,) = await stage.order()
    await stage.agent.claim()
    stage.hands.end(run)
    keep = spool.keep

    async def keep_slowly(results):  # type: ignore[no-untyped-def]
        await stage.agent.delivery.report()
        await keep(results)

    spool.keep = keep_slowly  # type: ignore[method-assign]
    await stage.agent.delivery.keep()

    assert life.on_disk() == 0


async def test_a_damaged_file_of_the_spool_costs_only_itself(life: Life):
    stage, _ = await life.begin()
    first, second = await stage.order(2)
    await stage.agent.claim()
    for run in (first, second):
        stage.hands.end(run)
        await stage.agent.delivery.keep()
    (life._place / "results" / "000000000001.json").write_bytes(b"{")
    (life._place / "results" / "000000000003.part").write_bytes(b"half")

    again, _ = await life.begin()

    assert await again.agent.delivery.report() == 1
    assert await again.states([first, second]) == [State.QUEUED, State.SUCCEEDED]
    assert life.on_disk() == 0


async def test_a_claim_that_broke_off_is_disowned_at_once_and_again_when_the_beats_find_it(life: Life, probe: Probe):
    stage, _ = await life.begin()
    await stage.order()
    stage.link.lose_answer("claim")
    with pytest.raises(Unavailable):
        await stage.agent.claim()

    assert await stage.agent.claim() == 1
    assert stage.link.calls["disown"] == 1
    (late,) = await stage.order()
    await claim(probe, "n1", "python", [], 1)  # another one has its effect only now
    await stage.agent.leash.beat()
    await stage.agent.claim()
    assert stage.link.calls["disown"] == 1
    await stage.agent.leash.beat()
    stage.agent.workload.wake()
    await stage.agent.claim()

    assert stage.link.calls["disown"] == 2
    assert late in stage.hands.works


async def test_a_draining_agent_does_not_wait_for_what_somebody_else_has_reported(life: Life):
    stage, spool = await life.begin()
    (run,) = await stage.order()
    await stage.agent.claim()
    output = stage.hands.works[run].output
    output.write(b"much")
    await output.close()
    stage.hands.end(run)

    draining = asyncio.create_task(stage.agent.drain(0))
    while not stage.agent.draining or stage.agent.delivery.results_ready.is_set():
        await asyncio.sleep(0)
    spool.unsettled.clear()  # without a word to it
    await stage.agent.delivery.report()
    async with asyncio.timeout(LAST_REPORT_SECONDS / 2):
        await draining

    assert await stage.states([run]) == [State.SUCCEEDED]


async def test_a_spool_that_cannot_be_written_delays_no_result_and_ends_no_agent(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stage, _ = await life.begin()
    first, second, third = await stage.order(3)
    await stage.agent.claim()

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full, capture_logs() as told:
        full.setattr("horae.links.spool._write", no_room)
        for run in (first, second):
            stage.hands.end(run)
            await stage.agent.delivery.keep()
        assert await stage.agent.delivery.report() == 2
    assert await stage.states([first, second]) == [State.SUCCEEDED] * 2
    assert [line["event"] for line in told].count("spool.unwritable") == 1
    assert "No space left" in stage.agent.health.ailment
    assert life.on_disk() == 0

    stage.hands.end(third)
    await stage.agent.delivery.keep()
    assert life.on_disk() == 1


async def test_a_result_that_could_not_be_kept_is_kept_when_there_is_room(
    life: Life, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    stage, _ = await life.begin()
    (run,) = await stage.order(1)
    await stage.agent.claim()
    stage.hands.end(run)

    def no_room(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as full:
        full.setattr("horae.links.spool._write", no_room)
        await stage.agent.delivery.keep()
    recovering = asyncio.create_task(stage.agent.health.recover())
    await asyncio.sleep(0)
    clock.advance(60)
    await recovering
    assert stage.agent.delivery.results_made.is_set()
    await stage.agent.delivery.keep()

    again, _ = await life.begin()
    assert await again.agent.delivery.report() == 1
    assert await again.states([run]) == [State.SUCCEEDED]
