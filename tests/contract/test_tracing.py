"""Ends of runs as spans, on both stores: what is told of a run, from what the books know, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from horae.core.model import Run, State
from horae.core.runs import traces
from horae.core.runs.orders import Assignment, Result
from horae.ports.store import Store
from horae.ports.telemetry import Span, SpanRef
from horae.queues.local import LocalQueue
from horae.service.events.tracing import Asking, Tracing, asking
from horae.service.execution import Execution
from horae.service.jobs import Jobs
from horae.service.metrics import Metrics
from horae.testing import FakeClock

from ..claiming import claim
from ..unit.service.parts import draft
from .test_events import NODE
from .test_flows import begin, child

HERE = "0123456789abcdef"


class Kept:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def put(self, spans: Sequence[Span]) -> None:
        self.spans += spans

    def named(self, run_id: int) -> dict[str, Span]:
        """Return the spans of a run by name."""
        return {span.name: span for span in self.spans if span.attributes["horae.run.id"] == run_id}


class Rig:
    def __init__(self, store: Store, clock: FakeClock, *, ratio: float = 1.0) -> None:
        self.store, self.clock, self.sink = store, clock, Kept()
        queue = LocalQueue()
        self.jobs = Jobs(store, queue)
        self.execution = Execution(store, queue, clock, Metrics())
        self.leads = True
        self.ratio = ratio
        self._queue = queue
        self.tracing = self.another()
        self.jobs.orders.note_made = self.tracing.note_orders

    def another(self) -> Tracing:
        """Return one of another process, or of a later life."""
        return Tracing(
            self.store, self.sink, self._queue, self.clock, installation=HERE, ratio=self.ratio,
            is_leader=lambda: self.leads,
        )  # fmt: skip

    async def order(self, **fields: Any) -> Run:
        (job,) = (await self.jobs.submit([draft(**fields)])).jobs
        return await self.jobs.run_now(job.id)

    async def claim(self) -> Assignment:
        (claimed,) = await self.execution.claim(NODE, {"python": 1})
        return claimed

    async def finish(self, a: Assignment, state: State, **fields: Any) -> None:
        now = self.clock.now()
        await self.execution.finish([Result(a.run_id, a.fence, state, started_at=now, finished_at=now, **fields)])


@pytest.fixture
async def rig(store: Store, clock: FakeClock) -> Rig:
    made = Rig(store, clock)
    await made.tracing.tell()  # who tells for the first time begins now
    return made


async def test_a_run_by_request_is_told_with_its_submit_its_claim_and_its_attempt(rig: Rig):
    run = await rig.order(name="nightly")
    await rig.finish(await rig.claim(), State.SUCCEEDED)
    await rig.tracing.tell()

    told = rig.sink.named(run.id)
    assert set(told) == {"submit", "run nightly", "claim", "attempt 1"}
    own = traces.span_id(run.id)
    assert {span.parent for name, span in told.items() if name != "run nightly"} == {own}
    assert (told["run nightly"].parent, told["run nightly"].at) == (None, SpanRef(traces.trace_id(run.id, HERE), own))
    assert told["run nightly"].failure is None
    assert told["attempt 1"].at.span_id == traces.traceparent(run.id, 1, HERE)[36:52]  # what its work is part of


async def test_a_run_that_was_tried_again_is_told_with_both_attempts_and_why_it_failed(rig: Rig):
    run = await rig.order(name="flaky", retry={"attempts": 2, "backoff": "1s"})
    await rig.finish(await rig.claim(), State.FAILED, message="no such table", exit_code=1)
    rig.clock.advance(3600)
    await rig.store.sweep()
    await rig.finish(await rig.claim(), State.FAILED, message="still no such table")
    await rig.tracing.tell()

    told = rig.sink.named(run.id)
    first, second = told["attempt 1"], told["attempt 2"]
    assert (first.failure, second.failure) == ("no such table", "still no such table")
    assert first.attributes["process.exit.code"] == 1
    assert first.ended_at <= second.begun_at
    assert told["run flaky"].failure == "still no such table"
    assert len([span for span in rig.sink.spans if span.name == "claim"]) == 2


async def test_tasks_are_told_in_the_trace_of_the_run_at_the_top(rig: Rig):
    run_id, _ = await begin(rig.store)
    a = await rig.claim()
    assert a.root == run_id
    await rig.finish(a, State.SUCCEEDED)
    await rig.tracing.tell()

    told = rig.sink.named(a.run_id)["run a"]
    assert told.at.trace_id == traces.trace_id(run_id, HERE)
    assert told.parent == traces.span_id(run_id)


async def test_what_never_began_is_not_told(rig: Rig):
    await rig.order(name="once")
    (job,) = (await rig.jobs.get(1),)
    skipped = await rig.jobs.run_now(job.id)
    assert skipped.state is State.SKIPPED
    await rig.tracing.tell()
    assert set(rig.sink.named(skipped.id)) == {"submit"}


async def test_ends_are_told_once_whoever_leads(rig: Rig):
    await rig.order()
    await rig.finish(await rig.claim(), State.SUCCEEDED)
    rig.leads = False
    assert not await rig.tracing.tell()
    rig.leads = True
    await rig.tracing.tell()
    count = len(rig.sink.spans)
    await rig.another().tell()
    assert len(rig.sink.spans) == count > 1


async def test_what_ended_long_ago_is_passed_by(rig: Rig):
    run = await rig.order()
    await rig.finish(await rig.claim(), State.SUCCEEDED)
    rig.clock.advance(2 * 3600)
    while await rig.tracing.tell():
        pass
    assert set(rig.sink.named(run.id)) == {"submit"}


async def test_of_a_share_of_traces_all_or_nothing_is_told(store: Store, clock: FakeClock):
    rig = Rig(store, clock, ratio=0.5)
    await rig.tracing.tell()
    (job,) = (await rig.jobs.submit([draft(overlap="allow")])).jobs
    runs = [await rig.jobs.run_now(job.id) for _ in range(40)]
    for a in await rig.execution.claim(NODE, {"python": 40}):
        await rig.finish(a, State.SUCCEEDED)
    while await rig.tracing.tell():
        pass
    told = {run.id: set(rig.sink.named(run.id)) for run in runs}
    assert {len(names) for names in told.values()} == {0, 4}
    assert {run_id for run_id, names in told.items() if names} == {
        run.id for run in runs if traces.is_sampled(traces.trace_id(run.id, HERE), 0.5)
    }


async def test_a_request_and_the_runs_that_it_made_are_linked(rig: Rig):
    request = Asking(SpanRef("a" * 32, "b" * 16))
    within = asking.set(request)
    try:
        run = await rig.order()
    finally:
        asking.reset(within)
    (submit,) = rig.sink.spans
    assert submit.links == (request.at,)
    assert request.made == [SpanRef(traces.trace_id(run.id, HERE), traces.span_id(run.id))]


async def test_a_task_of_a_task_knows_the_run_at_the_top_however_it_is_claimed(store: Store):
    """Nested as workflows are: each waits while those below it are live."""
    run_id, _ = await begin(store)
    [task] = await claim(store, "a1", "python", (), 1)
    [receipt] = await store.enqueue([child(task.run_id, "inner")])
    [inner] = await claim(store, "a1", "python", (), 1)
    assert (inner.run_id, inner.root, task.root) == (receipt.ids[0], run_id, run_id)
    [held] = await store.load_held([inner.run_id])
    assert held.root == run_id
