"""History, outputs and idempotency keys go when their time is over, in an order that a crash cannot spoil."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.core.definitions import Idempotency
from horae.core.model import State
from horae.core.runs.orders import Result
from horae.errors import Unavailable
from horae.files import ObjectFiles, open_files
from horae.files import objects as files_module
from horae.service import retention
from horae.service.execution import Execution
from horae.service.jobs import Jobs
from horae.service.retention import Retention
from horae.testing import FakeClock

from .parts import Probe, node, submitted

KEY = Idempotency("s", "k", "d")
DAY = 86_400


@pytest.fixture
def files(tmp_path: Path) -> ObjectFiles:
    return open_files(tmp_path / "output")


def keeping(probe: Probe, files: ObjectFiles, days: int) -> Retention:
    return Retention(probe, files, history_days=days)


async def ran(jobs: Jobs, execution: Execution, files: ObjectFiles, clock: FakeClock, job_id: int) -> int:
    """Return a run that wrote a log."""
    run = await jobs.run_now(job_id)
    (given,) = await execution.claim(node("n1"), {"python": 1})
    output = files.open(run.id, given.attempt, given.fence, 1000)
    output.write(b"hello")
    await output.close()
    done = Result(run.id, given.fence, State.SUCCEEDED, finished_at=clock.now(), output=output.ref)
    await execution.finish([done])
    return run.id


async def test_keys_go_after_a_day_also_when_history_stays_for_ever(
    probe: Probe, jobs: Jobs, files: ObjectFiles, clock: FakeClock
):
    job = await submitted(jobs)
    run = await jobs.run_now(job.id, idempotency=KEY)

    clock.advance(DAY - 1)
    await keeping(probe, files, 0).purge()
    assert (await jobs.run_now(job.id, idempotency=KEY)).id == run.id
    clock.advance(2)
    await keeping(probe, files, 0).purge()

    assert (await jobs.run_now(job.id, idempotency=KEY)).id != run.id
    assert await probe.get_run(run.id) is not None


async def test_history_past_its_age_goes_with_its_outputs(
    probe: Probe, jobs: Jobs, execution: Execution, files: ObjectFiles, clock: FakeClock
):
    job = await submitted(jobs)
    old = await ran(jobs, execution, files, clock, job.id)
    clock.advance(2 * DAY)
    recent = await ran(jobs, execution, files, clock, job.id)

    assert not await keeping(probe, files, 1).purge()

    assert await probe.get_run(old) is None
    assert await files.size(files.ref(old, 1, 1)) == 0
    assert await probe.get_run(recent) is not None
    assert await files.size(files.ref(recent, 1, 1)) == 5


async def test_a_purge_that_breaks_off_leaves_nothing_that_the_next_one_does_not_find(
    probe: Probe, jobs: Jobs, execution: Execution, files: ObjectFiles, clock: FakeClock
):
    job = await submitted(jobs)
    runs = [await ran(jobs, execution, files, clock, job.id) for _ in range(2)]
    clock.advance(2 * DAY)
    probe.lose_call("purge")
    with pytest.raises(Unavailable):
        await keeping(probe, files, 1).purge()
    assert [await probe.get_run(run) is not None for run in runs] == [True, True]

    await keeping(probe, files, 1).purge()

    assert [await probe.get_run(run) for run in runs] == [None, None]
    assert [await files.size(files.ref(run, 1, 1)) for run in runs] == [0, 0]


async def test_an_output_store_out_of_reach_keeps_the_records(
    probe: Probe,
    jobs: Jobs,
    execution: Execution,
    files: ObjectFiles,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
):
    job = await submitted(jobs)
    runs = [await ran(jobs, execution, files, clock, job.id) for _ in range(2)]
    clock.advance(2 * DAY)

    async def refuse(refs: list[str]) -> None:
        raise Unavailable("no such bucket today")

    with monkeypatch.context() as patch:
        patch.setattr(files, "remove_all", refuse)
        with pytest.raises(Unavailable):
            await keeping(probe, files, 1).purge()

    assert [await probe.get_run(run) is not None for run in runs] == [True, True]


async def test_what_is_old_goes_in_batches(
    probe: Probe, jobs: Jobs, files: ObjectFiles, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(retention, "DROPPED_TOGETHER", 2)
    job = await submitted(jobs)
    for _ in range(3):
        await jobs.cancel((await jobs.run_now(job.id)).id)
    clock.advance(2 * DAY)
    kept = keeping(probe, files, 1)

    assert await kept.purge()
    assert not await kept.purge()
    assert not await kept.purge()
    assert probe.calls["purge"] == 2


async def test_runs_that_are_kept_do_not_keep_those_after_them(
    probe: Probe,
    jobs: Jobs,
    execution: Execution,
    files: ObjectFiles,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
):
    """One live and one recent run with the lowest ids: the rest goes batch after batch, in one walk."""
    monkeypatch.setattr(retention, "DROPPED_TOGETHER", 3)
    live = await jobs.run_now((await submitted(jobs)).id)
    slow_job = await submitted(jobs)
    slow = await jobs.run_now(slow_job.id)
    job = await submitted(jobs)
    old = []
    for _ in range(8):
        old.append((await jobs.run_now(job.id)).id)
        await jobs.cancel(old[-1])
    clock.advance(2 * DAY)
    await jobs.cancel(slow.id)
    kept = keeping(probe, files, 1)

    rounds = 1
    while await kept.purge():
        rounds += 1

    assert rounds == 4  # three full batches, and one that finds no more
    assert [await probe.get_run(run_id) for run_id in old] == [None] * 8
    assert await probe.get_run(slow.id) is not None
    assert await probe.get_run(live.id) is not None


async def test_a_node_drops_its_outputs_of_runs_that_are_no_longer_kept(
    probe: Probe, jobs: Jobs, files: ObjectFiles, execution: Execution, clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.setattr(files_module, "THOUSAND", 1)
    job = await submitted(jobs)
    old, kept = [await ran(jobs, execution, files, clock, job.id) for _ in range(2)]
    await probe.purge([old])  # by a leader that cannot reach our directory

    await keeping(probe, files, 0).tidy(is_leader=True)
    assert await files.size(files.ref(old, 1, 1))
    await keeping(probe, files, 1).tidy(is_leader=True)

    assert await files.size(files.ref(old, 1, 1)) == 0
    assert await files.size(files.ref(kept, 1, 1))
