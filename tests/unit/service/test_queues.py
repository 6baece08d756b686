"""Queues: known by heart, changed by one at a time, deleted only when nobody can want them."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.policy.queues import DEFAULT_QUEUE, QueueState
from horae.errors import Conflict, Invalid, NotFound, Stale
from horae.service.jobs import Jobs
from horae.service.policy import queues as module
from horae.service.policy.queues import KNOWN_BY_ALL, Queues
from horae.testing import FakeClock

from .parts import BOTH, Probe, Told, draft, submitted

DRAINED = KNOWN_BY_ALL / 1_000_000


@pytest.fixture
def queues(jobs: Jobs) -> Queues:
    return jobs.queues


def code_of(caught: pytest.ExceptionInfo[Any]) -> str:
    return str(caught.value.code)


# ── making and changing ──


@BOTH
async def test_a_queue_is_made_and_replaced(queues: Queues, queue: Told):
    made, is_new = await queues.put("reports", {"concurrency": 5, "weights": {"ann": 2}})
    again, is_newer = await queues.put("reports", {"concurrency": 6})

    assert (made.concurrency, made.weights, is_new) == (5, {"ann": 2}, True)
    assert (again.concurrency, again.weights, is_newer, again.version) == (6, {}, False, 2)
    assert queue.take() == ["queues", "queues"]


async def test_what_makes_no_sense_is_refused(queues: Queues):
    with pytest.raises(Invalid) as caught:
        await queues.put("reports", {"burst": "x"})
    assert caught.value.path == "burst"
    with pytest.raises(Invalid):
        await queues.put("no queue", {})


async def test_only_the_version_that_was_read_is_replaced(queues: Queues):
    await queues.put("reports", {})
    await queues.put("reports", {"concurrency": 1}, 1)
    for version in (1, 7):
        with pytest.raises(Stale):
            await queues.put("reports", {"concurrency": 2}, version)
    with pytest.raises(Stale):
        await queues.put("none", {}, 1)


async def test_two_who_make_a_queue_at_once_both_get_it(queues: Queues, probe: Probe):
    async def other(*_: Any) -> None:
        await Queues(probe.store, Told()).put("reports", {"concurrency": 1})

    probe.before("add_queue", other)
    found, is_new = await queues.put("reports", {"concurrency": 2})
    assert (found.concurrency, found.version, is_new) == (2, 2, False)


async def test_a_replaced_queue_stays_paused(queues: Queues):
    await queues.put("reports", {})
    await queues.set_state("reports", QueueState.PAUSED)
    assert (await queues.put("reports", {"concurrency": 1}))[0].state is QueueState.PAUSED


async def test_agents_are_woken_when_a_queue_goes_on(queues: Queues, queue: Told):
    await queues.put("reports", {})
    await queues.set_state("reports", QueueState.PAUSED)
    queue.take()
    await queues.set_state("reports", QueueState.OPEN)
    assert queue.take() == ["queues", "runs"]


async def test_a_queue_that_is_not_there_is_told_with_the_nearest_name(queues: Queues):
    await queues.put("reports", {})
    for ask in (queues.get("reprots"), queues.set_state("reprots", QueueState.PAUSED), queues.delete("reprots")):
        with pytest.raises(NotFound) as caught:
            await ask
        assert caught.value.hint == "did you mean 'reports'?"


async def test_there_are_only_so_many(queues: Queues, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_QUEUES", 2)
    await queues.put("one", {})
    with pytest.raises(Conflict) as caught:
        await queues.put("two", {})
    assert code_of(caught) == "E_LIMIT"
    await queues.put("one", {"concurrency": 1})  # can still be changed


# ── known by heart ──


async def test_what_is_known_is_not_read_again_at_once(queues: Queues, probe: Probe):
    for _ in range(10):
        await queues.refresh()
    assert probe.calls["list_queues"] == 1


async def test_what_is_announced_is_read_at_once(probe: Probe, queue: Told):
    here, there = Queues(probe, queue), Queues(probe, queue)
    await here.refresh()
    await there.put("reports", {"concurrency": 1})
    await here.refresh()
    assert here.find("reports").concurrency == 1


async def test_what_nobody_announced_is_known_soon(probe: Probe, monkeypatch: pytest.MonkeyPatch):
    here, there = Queues(probe, Told()), Queues(probe, Told())
    await here.refresh()
    await there.put("reports", {"concurrency": 1})
    monkeypatch.setattr(here, "_known_until", 0.0)  # as if that time had passed
    await here.refresh()
    assert here.find("reports").concurrency == 1


async def test_a_queue_that_is_gone_is_the_default_queue(queues: Queues):
    await queues.refresh()
    assert (queues.find("gone").id, queues.by_id(7).id) == (DEFAULT_QUEUE, DEFAULT_QUEUE)


# ── jobs that name one ──


@BOTH
async def test_a_job_that_names_no_queue_of_ours_is_refused_with_the_nearest_name(jobs: Jobs):
    await jobs.queues.put("reports", {})
    with pytest.raises(Invalid) as caught:
        await submitted(jobs, queue="reprots")
    assert (code_of(caught), caught.value.path, caught.value.hint) == (
        "E_QUEUE_UNKNOWN", "queue", "did you mean 'reports'?",
    )  # fmt: skip


async def test_of_many_jobs_each_is_told_at_its_place(jobs: Jobs):
    drafts = [draft("a"), draft("b", queue="x"), draft("c", queue="y")]
    with pytest.raises(Invalid) as caught:
        await jobs.submit(drafts)
    assert [problem.path for problem in caught.value.listed()] == ["jobs[1].queue", "jobs[2].queue"]


async def test_a_queue_that_was_just_made_elsewhere_is_found(jobs: Jobs, probe: Probe):
    await jobs.queues.refresh()
    await Queues(probe.store, Told()).put("reports", {})
    assert (await submitted(jobs, queue="reports")).policy.queue == "reports"


async def test_a_job_of_a_kind_that_its_queue_does_not_take_is_refused(jobs: Jobs):
    await jobs.queues.put("builds", {"kinds": ["shell"]})
    with pytest.raises(Invalid) as caught:
        await submitted(jobs, queue="builds")
    assert code_of(caught) == "E_QUEUE_KIND"
    job = await submitted(jobs)
    with pytest.raises(Invalid):
        await jobs.replace(job.id, draft(queue="builds"))


async def test_a_run_is_refused_while_its_queue_is_draining(jobs: Jobs):
    await jobs.queues.put("reports", {})
    job = await submitted(jobs, queue="reports")
    await jobs.queues.set_state("reports", QueueState.DRAINING)
    with pytest.raises(Conflict) as caught:
        await jobs.run_now(job.id)
    assert code_of(caught) == "E_QUEUE_DRAINING"
    await jobs.queues.set_state("reports", QueueState.OPEN)
    await jobs.run_now(job.id)


# ── deleting ──


async def drained(queues: Queues, clock: FakeClock, name: str = "reports") -> None:
    await queues.set_state(name, QueueState.DRAINING)
    clock.advance(DRAINED)


@BOTH
async def test_a_queue_is_deleted_when_it_is_drained_and_everybody_knows(queues: Queues, clock: FakeClock):
    await queues.put("reports", {})
    for _ in range(2):
        with pytest.raises(Conflict) as caught:
            await queues.delete("reports")
        assert code_of(caught) == "E_QUEUE_IN_USE"
        await queues.set_state("reports", QueueState.DRAINING)
    clock.advance(DRAINED)

    await queues.delete("reports")

    assert [each.name for each in await queues.list()] == ["default"]


async def test_a_queue_that_a_job_names_is_not_deleted(jobs: Jobs, clock: FakeClock):
    await jobs.queues.put("reports", {})
    job = await submitted(jobs, queue="reports")
    await drained(jobs.queues, clock)
    with pytest.raises(Conflict) as caught:
        await jobs.queues.delete("reports")
    assert caught.value.message == "the queue 'reports' is needed by 1 job"
    await jobs.delete(job.id)
    await jobs.queues.delete("reports")


async def test_the_default_queue_stays(queues: Queues, clock: FakeClock):
    await drained(queues, clock, "default")
    with pytest.raises(Conflict) as caught:
        await queues.delete("default")
    assert code_of(caught) == "E_QUEUE_IN_USE"
