"""What is rarely answered: codes that stand for what a newer node writes, and those that other tests only pass by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from horae.core.insight.why.explain import explain_at, explain_run
from horae.core.insight.why.facts import Facts, Standing
from horae.core.insight.why.schedules import Asked
from horae.core.model import Reason, State
from horae.core.runs.stages import OUTSIDE
from horae.core.time.moments import parse_moment
from horae.core.work.specs import parse_job
from horae.service.workflows.waits import PlainWaits
from tests.facades.explain.asking import act, why_job, why_run
from tests.facades.world import BOTH, World

FLOW = {"name": "flow", "tasks": {"a": {"steps": [{"run": "true"}]}}}


# ── jobs and moments ──
@BOTH
async def test_a_task_names_its_workflow(world: World) -> None:
    flow = (await world.jobs.submit([parse_job(FLOW)])).jobs[0]
    run = await world.queue_run(flow.id)
    await act(world)
    [task] = (await world.http.get("/v1/runs", params={"parent": run.id})).json()["items"]
    answer = await why_job(world, task["job_id"])
    assert (answer.codes[0], answer.first["data"]["workflow"]) == ("job.task", flow.id)
    assert answer.first["unblock"] == f"horae explain job:{flow.id}"


@BOTH
async def test_a_job_that_never_had_a_run_says_so(world: World) -> None:
    assert (await why_job(world, (await world.submit(schedule="@every 1h")).id)).codes[-1] == "job.no_run"


async def test_a_moment_whose_record_is_gone_is_not_explained_away(world: World) -> None:
    job = await world.submit(schedule="@every 1h")
    world.clock.advance(3 * 3600)
    await world.fire()
    fired = await world.jobs.get(job.id)
    asked = [(fired.triggers[0], Asked(parse_moment("2027-01-15T09:00:00Z")))]
    first = explain_at(Facts(world.clock.now(), fired), asked, ()).sentences[0]
    assert (first.code, first.unblock) == (
        "moment.unknown", f"horae runs --job {job.id} --since 2027-01-15T09:00:00Z",
    )  # fmt: skip


# ── waits ──
@BOTH
async def test_a_workflow_that_nobody_has_begun_waits_for_a_server(world: World) -> None:
    run = await world.queue_run((await world.jobs.submit([parse_job(FLOW)])).jobs[0].id)
    answer = await why_run(world, run)
    assert (answer.codes[0], answer.first["data"]["kind"]) == ("wait.server", "workflow")


@BOTH
async def test_a_run_that_is_kept_for_workers_outside_says_so(world: World) -> None:
    run = await world.queue_run()
    answer = explain_run(await _facts(world, run.id, pin=f"{OUTSIDE}lake"))
    assert (answer.sentences[0].code, answer.sentences[0].data) == ("wait.outside", {"pin": f"{OUTSIDE}lake"})


@BOTH
async def test_who_writes_where_a_run_would_write_is_named_in_its_organisation_alone(world: World) -> None:
    writer = await world.start_run()
    run = await world.queue_run()
    facts = await _facts(world, run.id, state=State.BLOCKED, reason=Reason.DESTINATION_BUSY)
    record = await world.jobs.get_run(writer.run_id)
    facts = replace(facts, standing=Standing(waits_for=record.id), others={record.id: record})
    hidden = explain_run(facts).sentences[0]
    assert (hidden.code, hidden.data["run"], str(record.id) in hidden.text) == ("wait.destination", None, False)
    told = explain_run(replace(facts, names={record.job_id: "writer"})).sentences[0]
    assert (told.data["run"], told.unblock) == (record.id, f"wait, or horae cancel {record.id}")


# ── waits that end without a word ──
@pytest.mark.parametrize(
    ("otherwise", "code"), [("skip", "run.skipped.signal"), ("fail", "run.failed.timeout")], ids=["skip", "fail"]
)
async def test_a_signal_that_did_not_come_says_what_was_to_become_of_the_run(
    world: World, otherwise: str, code: str
) -> None:
    document = {"name": "waits", "wait": {"signal": "paid", "within": "1h", "otherwise": otherwise}}
    run = await world.queue_run((await world.jobs.submit([parse_job(document)])).jobs[0].id)
    waits = PlainWaits(world.store)
    await world.execution.finish(await waits.begin(await world.claim("wait")))
    world.clock.advance(3601)
    await world.store.sweep()
    await world.execution.finish(await waits.begin(await world.claim("wait")))
    answer = await why_run(world, run)
    assert (answer.codes[0], answer.first["policy"]) == (code, f"otherwise: {otherwise}")


# ── reasons that this node does not know ──
@pytest.mark.parametrize(
    ("state", "code"),
    [(State.BLOCKED, "wait.other"), (State.SKIPPED, "run.skipped.other"), (State.CANCELLED, "run.cancelled.other")],
    ids=["blocked", "skipped", "cancelled"],
)
async def test_a_reason_that_a_newer_node_wrote_is_told_as_it_is(world: World, state: State, code: str) -> None:
    run = await world.queue_run()
    facts = await _facts(world, run.id, state=state, reason="newer", message="so it was")
    first = explain_run(facts).sentences[0]
    assert (first.code, "so it was" in first.text) == (code, True)


async def _facts(world: World, run_id: int, **changed: Any) -> Facts:
    """What would be known of a run that were so."""
    run = await world.jobs.get_run(run_id)
    job = await world.jobs.get(run.job_id)
    return Facts(world.clock.now(), job, run=replace(run, **changed))
