"""Work on data from claim to end: destinations, sources, cursors and progress, as agents and workers meet them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from horae.core.definitions import Submission
from horae.core.model import Policy, Source, State
from horae.core.runs.orders import Result
from horae.errors import Conflict, Unavailable
from horae.files import open_files
from horae.ports.work import Work
from horae.service.agent.agent import Agent
from horae.service.execution import Execution, LocalLink
from horae.service.external.loans import Lending
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.testing import START, FakeClock, make_job

from .parts import Probe, Told, node
from .test_agent import Hands, Leash

CONFIG = {"jdbc_url": "jdbc:mysql://u:hunter22@db/x", "password": "correct horse", "host": "db.example"}


def spark(job_id: int, table: str = "a", **fields: Any):
    spec = {"query": "SELECT 1", "outputs": [{"to": "clickhouse", "database": "lake", "table": table}]}
    return make_job(job_id, kind="spark_sql", spec=spec, **fields)


class Stage:
    """An agent whose executor the test plays."""

    def __init__(self, probe: Probe, jobs: Jobs, queue: Told, clock: FakeClock, directory: Path) -> None:
        self.probe, self.jobs, self.queue = probe, jobs, queue
        self.execution = Execution(probe, queue, clock, Metrics())  # type: ignore[arg-type]
        self.hands = Hands(clock)
        self.hands.kind = "sync"
        self.agent = Agent(
            node("n1"), LocalLink(self.execution, probe, queue), {"sync": self.hands}, open_files(directory), Leash(),  # type: ignore[arg-type]
            clock, lease_seconds=30.0, output_limit=100_000,
        )  # fmt: skip

    async def claimed(self, source_id: int = 0) -> Work:
        """Return a sync that the agent has claimed."""
        if await self.probe.get_job(1) is None:
            await self.probe.submit([Submission([make_job(1, kind="sync", spec={"source_id": source_id})])])
        run = await self.jobs.run_now(1)
        self.agent.workload.wake()
        await self.agent.claim()
        return self.hands.works[run.id]

    async def end(self, work: Work, state: State = State.SUCCEEDED, **fields: Any) -> None:
        await work.output.close()
        del self.hands.works[work.assignment.run_id]
        self.hands._done.pop(work.assignment.run_id)(
            Result(work.assignment.run_id, work.assignment.fence, state, "", 1, 2, **fields)
        )
        await self.agent.delivery.report()


@pytest.fixture
async def stage(probe: Probe, jobs: Jobs, queue: Told, clock: FakeClock, tmp_path: Path) -> Stage:
    made = Stage(probe, jobs, queue, clock, tmp_path)
    await made.agent.join()
    return made


async def test_a_sync_begins_where_the_last_success_ended(stage: Stage):
    first = await stage.claimed()
    assert first.cursor is None
    await stage.end(first, cursor='{"value":5}')

    second = await stage.claimed()
    assert json.loads(second.cursor or "") == {"value": 5}
    await stage.end(second, State.FAILED, cursor='{"value":9}')

    assert json.loads((await stage.claimed()).cursor or "") == {"value": 5}


async def test_the_source_stands_in_the_spec_of_the_work_and_nowhere_else(stage: Stage, probe: Probe):
    source = await probe.add_source(Source(0, 1, "me", "shop", "jdbc_source", CONFIG, 1, 1))

    work = await stage.claimed(source.id)

    assert work.spec["source"] == {"id": source.id, "name": "shop", "kind": "jdbc_source", "config": CONFIG}
    assert work.spec["source_id"] == source.id
    assert (await stage.jobs.get(1)).spec == {"source_id": source.id}


async def test_the_secrets_of_a_source_are_hidden_in_output_result_message_and_progress(stage: Stage, probe: Probe):
    source = await probe.add_source(Source(0, 1, "me", "shop", "jdbc_source", CONFIG, 1, 1))
    work = await stage.claimed(source.id)

    work.note_progress({"step": "as correct horse"})
    await stage.agent.delivery.send_progress()
    noted = (await stage.jobs.get_run(work.assignment.run_id)).progress
    await stage.end(work, message="hunter22 refused", result='{"at":"correct horse@db.example"}')

    run = await stage.jobs.get_run(work.assignment.run_id)
    assert noted == {"step": "as ***"}
    assert (run.message, run.result) == ("*** refused", {"at": "***@db.example"})


async def test_only_the_newest_word_on_progress_is_told_and_once(stage: Stage, probe: Probe):
    work = await stage.claimed()
    for rows in (1, 2, 3):
        work.note_progress({"rows": rows, "odd": True})
    assert stage.agent.delivery.progress_made.is_set()

    await stage.agent.delivery.send_progress()
    await stage.agent.delivery.send_progress()

    assert probe.calls["note_progress"] == 1
    assert (await stage.jobs.get_run(work.assignment.run_id)).progress == {"rows": 3}
    assert not stage.agent.delivery.progress_made.is_set()


async def test_progress_that_cannot_be_told_is_forgotten(stage: Stage, probe: Probe):
    work = await stage.claimed()
    work.note_progress({"rows": 1})
    probe.lose_call("note_progress")
    with pytest.raises(Unavailable):
        await stage.agent.delivery.send_progress()

    await stage.agent.delivery.send_progress()

    assert probe.calls["note_progress"] == 1


async def test_nothing_is_told_of_work_that_has_ended_or_says_nothing(stage: Stage, probe: Probe):
    work = await stage.claimed()
    work.note_progress({"odd": True})
    work.note_progress({"rows": 1})
    await stage.end(work)
    work.note_progress({"rows": 2})

    await stage.agent.delivery.send_progress()

    assert probe.calls["note_progress"] == 0


async def test_other_kinds_pay_nothing_for_destinations_sources_and_cursors(stage: Stage, probe: Probe):
    await probe.submit([Submission([make_job(1)])])
    await stage.jobs.run_now(1)
    probe.calls.clear()

    assert len(await stage.execution.claim(node("n1"), {"python": 10})) == 1

    assert set(probe.calls) - {"look_again", "claim_demanding"} == {"claim_beside"}  # which ask for nothing of the kind


async def test_who_gets_less_than_asked_because_of_a_busy_destination_is_told_to_look_again(stage: Stage, probe: Probe):
    await probe.submit([Submission([spark(job) for job in (1, 2, 3)])])
    for job in (1, 2, 3):
        await stage.jobs.run_now(job)
    stage.queue.take()

    assert len(await stage.execution.claim(node("n1"), {"spark_sql": 2})) == 1

    assert {"waiting", "runs"} <= set(stage.queue.take())


async def test_a_start_deadline_binds_until_the_first_attempt_has_begun(
    stage: Stage, probe: Probe, lending: Lending, clock: FakeClock
):
    policy = Policy(start_deadline_seconds=2)
    await probe.submit([Submission([spark(1), spark(2, policy=policy), spark(3, policy=policy)])])
    first, second, third = [(await stage.jobs.run_now(job)).id for job in (1, 2, 3)]
    await lending.lend_run(first, **W1)
    await stage.execution.claim(node("n1"), {"spark_sql": 1})
    with pytest.raises(Conflict):
        await lending.lend_run(third, **W1)
    clock.advance(2)

    await probe.sweep()

    assert [(await stage.jobs.get_run(run)).reason for run in (second, third)] == ["start_deadline"] * 2


# ── lending ──


@pytest.fixture
def lending(stage: Stage) -> Lending:
    return Lending(stage.probe, stage.jobs, stage.execution)  # type: ignore[arg-type]


W1 = {"worker": "w1", "seconds": 30}


async def test_a_worker_outside_is_not_given_what_another_writes_but_the_next(stage: Stage, lending: Lending):
    await stage.probe.submit([Submission([spark(1), spark(2), spark(3, "b")])])
    first, second, third = [(await stage.jobs.run_now(job)).id for job in (1, 2, 3)]

    lent = [await lending.lend(["spark_sql"], **W1) for _ in range(3)]

    assert [each and each.run.id for each in lent] == [first, third, None]
    assert (await stage.jobs.get_run(second)).reason == "destination_busy"
    assert [loan.run_id for loan in await lending.loans()] == [first, third]


async def test_a_run_that_must_wait_is_not_lent_when_asked_for_by_id(stage: Stage, lending: Lending):
    await stage.probe.submit([Submission([spark(1), spark(2)])])
    first, second = [(await stage.jobs.run_now(job)).id for job in (1, 2)]
    await lending.lend_run(first, **W1)

    with pytest.raises(Conflict, match="blocked"):
        await lending.lend_run(second, **W1)

    assert (await stage.jobs.get_run(second)).attempt == 0


async def test_a_moment_that_is_fired_into_a_busy_destination_makes_a_run_that_waits(stage: Stage, lending: Lending):
    await stage.probe.submit([Submission([spark(1), spark(2, trigger_id=20, next_at=START)])])
    await lending.lend_run((await stage.jobs.run_now(1)).id, **W1)

    with pytest.raises(Conflict, match=r"its run waits: run 1 writes to clickhouse lake\.a"):
        await lending.fire(2, **W1)
