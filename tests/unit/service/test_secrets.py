"""Secrets from the store to an attempt, and out of everything it says."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from horae.core.model import Reason, State
from horae.core.runs.orders import Result
from horae.errors import ConfigError, Conflict, Unavailable
from horae.files import ObjectFiles, open_files
from horae.keys import FileKeys
from horae.ports.work import Work
from horae.service.agent.agent import Agent
from horae.service.execution import Execution, LocalLink
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.service.secrets.named import Secrets
from horae.testing import FakeClock

from .parts import Probe, Told, draft, node
from .test_agent import Hands, Leash

VALUE = "correct horse"


class Stage:
    """An agent whose executor the test plays."""

    def __init__(self, probe: Probe, jobs: Jobs, queue: Told, clock: FakeClock, directory: Path) -> None:
        self.probe, self.jobs = probe, jobs
        self.key_file = directory / "secrets.key"
        self.secrets = Secrets(probe, FileKeys(self.key_file))  # type: ignore[arg-type]
        execution = Execution(probe, queue, clock, Metrics(), secrets=self.secrets)  # type: ignore[arg-type]
        self.files: ObjectFiles = open_files(directory / "output")
        self.hands = Hands(clock)
        self.agent = Agent(
            node("n1"), LocalLink(execution, probe, queue), {"python": self.hands}, self.files, Leash(), clock,  # type: ignore[arg-type]
            lease_seconds=30.0, output_limit=100_000,
        )  # fmt: skip

    async def claimed(self, **fields: Any) -> int:
        """Return a run of a job like this that the agent has claimed."""
        (job,) = (await self.jobs.submit([draft(**fields)])).jobs
        run = await self.jobs.run_now(job.id)
        self.agent.workload.wake()
        await self.agent.claim()
        return run.id

    def work(self, run_id: int) -> Work:
        return self.hands.works[run_id]

    async def finish(self, run_id: int, **fields: Any) -> Any:
        work = self.work(run_id)
        await work.output.close()
        self.hands.works.pop(run_id)
        result = Result(run_id, work.assignment.fence, State.FAILED, Reason.ERROR, 1, 2, **fields)
        self.hands._done.pop(run_id)(result)
        await self.agent.delivery.report()
        return await self.jobs.get_run(run_id)


@pytest.fixture
async def stage(probe: Probe, jobs: Jobs, queue: Told, clock: FakeClock, tmp_path: Path) -> Stage:
    stage = Stage(probe, jobs, queue, clock, tmp_path)
    await stage.agent.join()
    return stage


async def test_an_attempt_has_the_value_and_says_it_nowhere(stage: Stage):
    await stage.secrets.set(1, "A", VALUE)
    run_id = await stage.claimed(env={"X": {"secret": "A"}, "Y": "plain"})
    work = stage.work(run_id)

    assert work.spec["env"] == {"X": VALUE, "Y": "plain"}
    assert VALUE not in repr(work)
    assert work.assignment.secrets is None
    for piece in (b"it is corr", b"ect hor", b"se!\n"):
        work.output.write(piece)
    run = await stage.finish(run_id, message=f"no {VALUE} here", result=json.dumps({"k": f"a {VALUE}"}))

    assert (run.message, run.result) == ("no *** here", {"k": "a ***"})
    assert work.output.ref is not None
    assert await stage.files.read(work.output.ref, 0, 1000) == b"it is ***!\n"


async def test_the_next_attempt_has_the_value_that_was_set_last(stage: Stage):
    await stage.secrets.set(1, "A", "first value")
    first = await stage.claimed(env={"X": {"secret": "A"}})
    await stage.secrets.set(1, "A", "second value")
    second = await stage.claimed(env={"X": {"secret": "A"}})

    assert stage.work(first).spec["env"]["X"] == "first value"
    assert stage.work(second).spec["env"]["X"] == "second value"


async def test_a_secret_that_does_not_exist_fails_the_run_and_is_named(stage: Stage):
    run_id = await stage.claimed(env={"X": {"secret": "NOWHERE"}})
    await stage.agent.delivery.report()

    run = await stage.jobs.get_run(run_id)
    assert (run.state, run.reason) == (State.FAILED, Reason.ERROR)
    assert "there is no secret NOWHERE" in run.message
    assert stage.agent.busy == 0
    assert not stage.hands.works


async def test_a_secret_that_our_keys_cannot_open_fails_the_run_in_other_words(stage: Stage):
    await stage.secrets.set(1, "A", VALUE)
    stage.key_file.unlink()
    run_id = await stage.claimed(env={"X": {"secret": "A"}})
    await stage.agent.delivery.report()

    assert "the secret A cannot be given" in (await stage.jobs.get_run(run_id)).message


async def test_secrets_that_are_too_much_for_one_attempt_fail_it(stage: Stage):
    names = [f"A{number}" for number in range(20)]
    for name in names:
        await stage.secrets.set(1, name, "x" * 60_000)
    run_id = await stage.claimed(env={name: {"secret": name} for name in names})
    await stage.agent.delivery.report()

    assert "more than 1024 KiB" in (await stage.jobs.get_run(run_id)).message


async def test_jobs_without_secrets_ask_for_none(stage: Stage):
    await stage.claimed(env={"X": "plain"}, data={"x": {"secret": "A"}})

    assert stage.probe.calls["get_sealed"] == 0
    assert stage.probe.calls["load_jobs"] == 1  # by whoever asked for the run


async def test_a_claim_whose_secrets_cannot_be_loaded_is_given_back(stage: Stage):
    await stage.secrets.set(1, "A", VALUE)
    (job,) = (await stage.jobs.submit([draft(env={"X": {"secret": "A"}})])).jobs
    run = await stage.jobs.run_now(job.id)
    stage.probe.lose_call("get_sealed")
    with pytest.raises(Unavailable):
        await stage.agent.claim()

    stage.agent.workload.wake()
    await stage.agent.claim()  # settles its doubts first
    stage.agent.workload.wake()
    await stage.agent.claim()

    assert stage.work(run.id).spec["env"] == {"X": VALUE}


async def test_what_is_held_back_is_stored_when_the_writer_pauses(stage: Stage):
    await stage.secrets.set(1, "A", VALUE)
    run_id = await stage.claimed(env={"X": {"secret": "A"}})
    output = stage.work(run_id).output
    output.write(b"name: co")
    assert output.ref is not None
    async with asyncio.timeout(30):
        while await stage.files.read(output.ref, 0, 100) != b"name: co":
            await stage.files.changed(output.ref)
    output.write(b"rrect horse")
    await stage.finish(run_id)

    assert await stage.files.read(output.ref, 0, 100) == b"name: co***"


async def test_secrets_of_another_key_refuse_the_start_and_every_set(stage: Stage):
    await stage.secrets.set(1, "A", VALUE)
    await stage.secrets.check()
    stage.key_file.unlink()

    with pytest.raises(ConfigError, match=r"key [0-9a-f]{8} is needed"):
        await stage.secrets.check()
    with pytest.raises(Conflict, match=r"key [0-9a-f]{8} is needed"):
        await stage.secrets.set(1, "B", VALUE)
    assert not stage.key_file.exists()


async def test_a_value_under_another_name_does_not_open(stage: Stage):
    await stage.secrets.set(1, "A", VALUE)
    ((_, _, sealed),) = await stage.probe.list_sealed()
    await stage.probe.put_secret(1, "B", sealed, 1)

    assert await stage.secrets.resolve(1, ["A", "B"]) == {"A": VALUE, "B": None}
