"""Looking at things: logs across attempts, readiness, metrics, the overview."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from horae.core.model import SECOND, State
from horae.core.runs.orders import Assignment, Result
from horae.errors import NotFound
from horae.files import ObjectFiles, open_files
from horae.files import objects as files_module
from horae.service.execution import Execution
from horae.service.firing import Firing
from horae.service.insight import views as module
from horae.service.insight.views import Insight, LogSlice
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.testing import START, FakeClock

from .parts import Probe, Told, fire_due, node, submitted

DEADLINE = 180


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectFiles:
    monkeypatch.setattr(files_module, "FOLLOW_SECONDS", 0.005)
    return open_files(tmp_path / "output")


@pytest.fixture
def insight(probe: Probe, files: ObjectFiles, clock: FakeClock, metrics: Metrics) -> Insight:
    return Insight(probe, files, clock, metrics, node="here", checks={})


class Story:
    """One run, told attempt by attempt."""

    def __init__(self, jobs: Jobs, execution: Execution, files: ObjectFiles, probe: Probe, clock: FakeClock) -> None:
        self.jobs, self.execution, self.files, self.probe, self.clock = jobs, execution, files, probe, clock
        self.run_id = 0

    async def begin(self) -> None:
        job = await submitted(self.jobs, retry={"attempts": 5, "backoff": "1s", "jitter": 0})
        self.run_id = (await self.jobs.run_now(job.id)).id

    async def claim(self) -> Assignment:
        (assignment,) = await self.execution.claim(node("n1"), {"python": 1})
        return assignment

    async def write(self, a: Assignment, *texts: bytes) -> str | None:
        output = self.files.open(a.run_id, a.attempt, a.fence, 1_000_000)
        for text in texts:
            output.write(text)
        await output.close()
        return output.ref

    async def end(self, a: Assignment, state: State, output: str | None) -> None:
        result = Result(a.run_id, a.fence, state, finished_at=self.clock.now(), output=output)
        assert await self.execution.finish([result])

    async def try_again(self) -> Assignment:
        self.clock.advance(60)
        await self.probe.sweep()
        return await self.claim()


@pytest.fixture
async def story(jobs: Jobs, execution: Execution, files: ObjectFiles, probe: Probe, clock: FakeClock) -> Story:
    story = Story(jobs, execution, files, probe, clock)
    await story.begin()
    return story


# ── slices ──


async def test_a_log_is_read_slice_by_slice(insight: Insight, story: Story):
    a = await story.claim()
    await story.end(a, State.SUCCEEDED, await story.write(a, b"0123456789"))

    first = await insight.read_log(story.run_id, attempt=None, offset=0, limit=4)
    second = await insight.read_log(story.run_id, attempt=1, offset=first.next_offset, limit=100)
    third = await insight.read_log(story.run_id, attempt=None, offset=second.next_offset, limit=100)

    assert (first.data, first.offset, first.next_offset, first.attempt) == (b"0123", 0, 4, 1)
    assert (second.data, second.next_offset) == (b"456789", 10)
    assert (third.data, third.next_offset) == (b"", 10)


async def test_every_attempt_has_its_own_log(insight: Insight, story: Story):
    a = await story.claim()
    await story.end(a, State.FAILED, await story.write(a, b"one"))
    b = await story.try_again()
    await story.write(b, b"two")

    async def text(attempt: int | None) -> bytes:
        return (await insight.read_log(story.run_id, attempt=attempt, offset=0, limit=99)).data

    assert [await text(None), await text(1), await text(2)] == [b"two", b"one", b"two"]
    with pytest.raises(NotFound):
        await text(3)


async def test_a_run_that_has_not_begun_has_an_empty_log(insight: Insight, story: Story):
    part = await insight.read_log(story.run_id, attempt=None, offset=0, limit=99)

    assert (part.data, part.run.state) == (b"", State.QUEUED)
    with pytest.raises(NotFound):
        await insight.read_log(4711, attempt=None, offset=0, limit=1)


async def test_the_log_of_an_attempt_outlives_the_cancelling_of_its_retry(insight: Insight, story: Story):
    a = await story.claim()
    await story.end(a, State.FAILED, await story.write(a, b"why it failed"))
    await story.jobs.cancel(story.run_id)

    for attempt in (None, 1):
        assert (await insight.read_log(story.run_id, attempt=attempt, offset=0, limit=99)).data == b"why it failed"


async def test_the_log_of_an_attempt_that_was_lost_for_good_can_be_read(insight: Insight, story: Story):
    for _ in range(6):
        a = await story.claim()
        await story.write(a, b"last words of %d" % a.attempt)
        await story.execution.reap("n1")
    assert (await story.jobs.get_run(story.run_id)).state is State.FAILED

    assert (await insight.read_log(story.run_id, attempt=None, offset=0, limit=99)).data == b"last words of 6"
    assert (await insight.read_log(story.run_id, attempt=2, offset=0, limit=99)).data == b"last words of 2"


# ── following ──


async def take(parts: AsyncIterator[LogSlice]) -> LogSlice:
    async with asyncio.timeout(DEADLINE):
        return await anext(parts)


async def take_after_a_look(parts: AsyncIterator[LogSlice], probe: Probe) -> asyncio.Task[LogSlice]:
    """Begin to take; returns when the follower has seen the run as it is now."""
    looked = asyncio.Event()

    async def look(_: object) -> None:
        looked.set()

    probe.after("get_run", look)
    taking = asyncio.create_task(take(parts))
    async with asyncio.timeout(DEADLINE):
        await looked.wait()
    return taking


async def rest(parts: AsyncIterator[LogSlice]) -> list[LogSlice]:
    async with asyncio.timeout(DEADLINE):
        return [part async for part in parts]


def told(parts: list[LogSlice]) -> list[tuple[int, bytes]]:
    return [(part.attempt, part.data) for part in parts if part.data]


async def test_a_finished_log_is_given_whole_and_ends(insight: Insight, story: Story, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "FOLLOW_SLICE", 4)
    a = await story.claim()
    await story.end(a, State.SUCCEEDED, await story.write(a, b"0123456789"))

    parts = await rest(insight.follow(story.run_id, attempt=None, offset=2))

    assert told(parts) == [(1, b"2345"), (1, b"6789")]
    assert parts[-1].run.state is State.SUCCEEDED


async def test_a_log_is_followed_from_the_queue_to_the_end(
    insight: Insight, story: Story, files: ObjectFiles, probe: Probe
):
    parts = insight.follow(story.run_id, attempt=None, offset=0)
    taking = await take_after_a_look(parts, probe)
    a = await story.claim()
    started = await taking
    assert (started.data, started.run.state) == (b"", State.RUNNING)
    output = files.open(a.run_id, a.attempt, a.fence, 1000)
    output.write(b"one ")
    assert (await take(parts)).data == b"one "
    output.write(b"two")
    await output.close()
    await story.end(a, State.SUCCEEDED, output.ref)

    assert told(await rest(parts)) == [(1, b"two")]


async def test_what_an_attempt_wrote_last_is_followed_before_the_next_attempt(
    insight: Insight, story: Story, files: ObjectFiles
):
    """The follower sleeps while one attempt ends, a second comes and goes, and a third begins."""
    a = await story.claim()
    output = files.open(a.run_id, a.attempt, a.fence, 1000)
    output.write(b"a1 ")
    parts = insight.follow(story.run_id, attempt=None, offset=0)
    assert (await take(parts)).data == b"a1 "
    output.write(b"a2")
    await output.close()
    await story.end(a, State.FAILED, output.ref)
    b = await story.try_again()
    await story.end(b, State.FAILED, await story.write(b, b"b"))
    c = await story.try_again()
    await story.end(c, State.SUCCEEDED, await story.write(c, b"c"))

    assert told(await rest(parts)) == [(1, b"a2"), (2, b"b"), (3, b"c")]


async def test_a_follower_that_left_in_one_attempt_resumes_there_after_the_next_has_begun(
    insight: Insight, story: Story
):
    a = await story.claim()
    await story.end(a, State.FAILED, await story.write(a, b"first"))
    b = await story.try_again()
    await story.end(b, State.SUCCEEDED, await story.write(b, b"second"))

    assert told(await rest(insight.follow(story.run_id, attempt=1, offset=2))) == [(1, b"rst"), (2, b"second")]
    assert told(await rest(insight.follow(story.run_id, attempt=1, offset=5))) == [(2, b"second")]
    assert told(await rest(insight.follow(story.run_id, attempt=None, offset=2))) == [(2, b"cond")]


async def test_an_attempt_without_output_is_passed_over(insight: Insight, story: Story, probe: Probe):
    a = await story.claim()
    await story.end(a, State.FAILED, None)
    parts = insight.follow(story.run_id, attempt=None, offset=0)
    taking = await take_after_a_look(parts, probe)
    b = await story.try_again()
    await taking
    await story.end(b, State.SUCCEEDED, await story.write(b, b"fine"))

    assert told(await rest(parts)) == [(2, b"fine")]


async def test_a_run_that_is_cancelled_before_it_begins_ends_its_followers(insight: Insight, story: Story):
    await story.jobs.cancel(story.run_id)

    assert told(await rest(insight.follow(story.run_id, attempt=None, offset=0))) == []


# ── readiness ──


async def test_a_node_that_catches_up_is_ready_and_says_how_far_it_is(
    insight: Insight, jobs: Jobs, probe: Probe, metrics: Metrics, clock: FakeClock
):
    await submitted(jobs, schedule="1m")
    clock.advance(3600)
    assert not (await insight.readiness()).ready
    firing = Firing(probe, Told(), clock, metrics)
    firing.own(dict.fromkeys(range(100), 0))
    await firing.refill()

    answer = await insight.readiness()

    assert answer.ready
    assert answer.checks["progress"] == "ok: catching up; 1 triggers have about 60 missed moments left"
    assert (await insight.overview()).behind == (1, 60)
    while firing.is_behind:
        await firing.catch_up()
    assert (await insight.readiness()).checks["progress"] == "ok"


async def test_a_due_moment_that_nobody_fires_makes_it_unready(
    insight: Insight, jobs: Jobs, firing: Firing, clock: FakeClock
):
    await submitted(jobs, schedule="1m")
    assert (await insight.readiness()).ready
    clock.advance(60 + 59)
    assert (await insight.readiness()).ready
    clock.advance(2)

    stuck = await insight.readiness()

    assert not stuck.ready
    assert "61 s" in stuck.checks["progress"]
    await fire_due(firing)
    assert (await insight.readiness()).ready


async def test_a_due_moment_that_is_left_to_a_scheduler_outside_may_wait_that_much_longer(
    insight: Insight, jobs: Jobs, probe: Probe, clock: FakeClock
):
    await submitted(jobs, schedule="1m")
    await probe.register_node(node("w1@scheduler", roles=("outside-scheduler",)))
    await probe.take_segments("w1@scheduler", 1)
    clock.advance(60 + 119)
    assert (await insight.readiness()).ready
    clock.advance(2)

    assert "121 s" in (await insight.readiness()).checks["progress"]


async def test_a_store_out_of_reach_makes_it_unready(insight: Insight, probe: Probe):
    probe.lose_call("census")

    answer = await insight.readiness()

    assert not answer.ready
    assert "wire" in answer.checks["progress"]


async def test_a_part_of_this_process_that_is_not_well_makes_it_unready(
    probe: Probe, files: ObjectFiles, clock: FakeClock
):
    insight = Insight(probe, files, clock, Metrics(), node="n", checks={"agent": lambda: "the keeper is gone"})

    answer = await insight.readiness()

    assert (answer.ready, answer.checks["agent"]) == (False, "the keeper is gone")


# ── metrics and the overview ──


async def test_metrics_can_be_read_and_count_what_happened(
    insight: Insight, story: Story, jobs: Jobs, firing: Firing, clock: FakeClock
):
    a = await story.claim()
    await story.end(a, State.SUCCEEDED, None)
    await insight.readiness()

    families = {family.name: family for family in text_string_to_metric_families((await insight.metrics()).decode())}

    def value(name: str, **labels: str) -> float:
        return next(
            s.value for family in families.values() for s in family.samples if (s.name, s.labels) == (name, labels)
        )

    assert value("horae_runs_claimed_total") == 1
    assert value("horae_runs_finished_total", state="succeeded") == 1
    assert value("horae_batches_total", operation="finish") == 1
    assert value("horae_lateness_seconds_bucket", le="+Inf") == 1
    assert families["horae_agent_busy"].type == "gauge"


def test_lateness_falls_into_its_bucket_and_buckets_add_up():
    metrics = Metrics()
    metrics.observe_lateness([0.001, 0.0011, 0.3, 1000.0])
    (family,) = [f for f in text_string_to_metric_families(metrics.text().decode()) if "lateness" in f.name]
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}

    assert [buckets["0.001"], buckets["0.0025"], buckets["0.5"], buckets["60.0"], buckets["+Inf"]] == [1, 2, 3, 3, 4]
    assert list(buckets.values()) == sorted(buckets.values())


async def test_the_overview_shows_what_runs_and_what_comes(
    insight: Insight, story: Story, jobs: Jobs, probe: Probe, clock: FakeClock
):
    await probe.register_node(node("n1"))
    soon = await submitted(jobs, schedule="1m")
    late = await submitted(jobs, schedule="1h")

    seen = await insight.overview()

    assert (seen.census.jobs, seen.census.live) == (3, {"queued": 1})
    assert [n.name for n in seen.nodes] == ["n1"]
    assert seen.recent == []  # it has not ended: those that wait do not take the places of those that have
    assert [trigger.job_id for trigger in seen.due] == [soon.id, late.id]
    assert seen.node == "here"


def test_a_preview_begins_at_its_start_or_now(insight: Insight):
    def due(start: int | None) -> list[int]:
        return [p.moment for p in insight.preview({"cron": "0 * * * *"}, start=start, count=2)]

    assert due(None) == [START, START + 3600 * SECOND]
    assert due(START + SECOND) == [START + 3600 * SECOND, START + 7200 * SECOND]
    assert due(START - 3600 * SECOND)[0] == START - 3600 * SECOND
