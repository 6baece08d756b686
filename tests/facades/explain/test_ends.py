"""How a run ended, what its attempts came to and by what it was late is named: a test per situation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from horae.core.model import SECOND, Lease, NodeState, State
from horae.core.time.moments import format_moment
from horae.core.work.specs import parse_job
from horae.service.jobs.signals import Decider
from horae.service.workflows.waits import PlainWaits
from tests.facades.explain.asking import act, finish, runs_of, why_job, why_run
from tests.facades.world import BOTH, NODE, World
from tests.unit.service.parts import node

MANY: dict[str, Any] = {"overlap": "allow"}
EVERY_MINUTE: dict[str, Any] = {"schedule": "@every 1m"}


# ── did not run ──
@BOTH
async def test_a_moment_skipped_by_overlap_names_the_run_that_held_the_job(world: World) -> None:
    job = await world.submit(**EVERY_MINUTE)
    held = await world.start_run(job.id)
    world.clock.advance(60)
    await world.fire()
    skipped = (await runs_of(world, job.id))[0]
    answer = await why_run(world, skipped["id"])
    assert answer.codes[0] == "run.skipped.overlap"
    assert answer.first["data"]["holder"] == held.run_id
    assert answer.first["policy"] == "overlap: forbid"


@BOTH
async def test_an_order_skipped_by_overlap_names_the_run_too(world: World) -> None:
    job = await world.submit()
    held = await world.start_run(job.id)
    skipped = await world.queue_run(job.id)
    assert skipped.message == f"another run of this job was live: run {held.run_id}"
    assert (await world.jobs.get_run(skipped.id)).message == skipped.message
    await held.end(State.SUCCEEDED)
    answer = await why_run(world, skipped)
    assert (answer.first["data"]["holder"], answer.first["data"]["holder_state"]) == (held.run_id, "succeeded")


@BOTH
async def test_two_orders_of_one_request_name_each_other(world: World) -> None:
    job = await world.submit()
    orders = {"runs": [{"job": job.id}, {"job": job.id}]}
    first, second = (await world.http.post("/v1/runs", json=orders)).json()["runs"]
    assert (first["state"], second["state"]) == ("queued", "skipped")
    assert (await why_run(world, second["id"])).first["data"]["holder"] == first["id"]


@BOTH
async def test_under_queue_a_full_line_is_what_skips(world: World) -> None:
    job = await world.submit(overlap="queue")
    for _ in range(2):
        await world.queue_run(job.id)
    answer = await why_run(world, await world.queue_run(job.id))
    assert answer.codes[0] == "run.skipped.overlap"
    assert (answer.first["policy"], answer.first["data"]["holder"]) == ("overlap: queue", None)
    assert "1 runs of this job were waiting already" in answer.first["text"]


@BOTH
async def test_a_misfired_moment_says_how_late_it_was_found(world: World) -> None:
    job = await world.submit(misfire="skip", schedule="@every 1h")
    world.clock.advance(3600 + 300)
    await world.fire()
    [missed] = await runs_of(world, job.id)
    answer = await why_run(world, missed["id"])
    assert answer.codes[0] == "run.skipped.misfire"
    assert (answer.first["data"]["late_seconds"], answer.first["policy"]) == (300, "misfire: skip")


@BOTH
async def test_a_coalesced_moment_names_the_run_that_stands_for_it(world: World) -> None:
    job = await world.submit(**EVERY_MINUTE)
    world.clock.advance(200)
    await world.fire()
    stands, *others = await runs_of(world, job.id)
    coalesced = next(one for one in (stands, *others) if one["state"] == "coalesced")
    runs = next(one for one in (stands, *others) if one["state"] == "queued")
    answer = await why_run(world, coalesced["id"])
    assert answer.codes[0] == "run.coalesced"
    assert (answer.first["data"]["into_run_id"], answer.first["data"]["into_state"]) == (runs["id"], "queued")
    assert answer.first["policy"] == "misfire: run_latest"


@BOTH
async def test_a_passed_start_deadline_is_named(world: World) -> None:
    run = await world.queue_run((await world.submit(start_deadline="5m")).id)
    world.clock.advance(301)
    await world.store.sweep()
    answer = await why_run(world, run)
    assert (answer.codes[0], answer.first["policy"]) == ("run.skipped.start_deadline", "start_deadline: 5m")


@BOTH
async def test_a_draining_queue_is_what_skipped_a_moment(world: World) -> None:
    await world.http.put("/v1/queues/reports", json={})
    job = await world.submit(queue="reports", **EVERY_MINUTE)
    await world.http.post("/v1/queues/reports/drain")
    world.clock.advance(60)
    await world.fire()
    [skipped] = await runs_of(world, job.id)
    answer = await why_run(world, skipped["id"])
    assert (answer.codes[0], answer.first["data"]["queue"]) == ("run.skipped.queue_draining", "reports")
    assert answer.first["unblock"] == "horae queues resume reports"


@BOTH
async def test_a_run_skipped_by_a_failed_predecessor_names_it(world: World) -> None:
    before = await world.submit(key="extract", **EVERY_MINUTE)
    after = await world.submit(key="load", after=["extract"], **EVERY_MINUTE)
    world.clock.advance(60)
    await world.fire()
    await act(world)
    await world.work("shell", State.FAILED, "it broke")
    await act(world)
    [failed], [skipped] = await runs_of(world, before.id), await runs_of(world, after.id)
    answer = await why_run(world, skipped["id"])
    assert answer.codes[0] == "run.skipped.dependency"
    assert [(one["id"], one["state"]) for one in answer.first["data"]["runs"]] == [(failed["id"], "failed")]


# ── failed ──
@BOTH
async def test_an_exit_code_is_named_with_what_the_step_said(world: World) -> None:
    run = await world.end_run(State.FAILED, reason="exit", exit_code=3, message="step 1 ended with exit code 3")
    answer = await why_run(world, run)
    assert (answer.codes[0], answer.first["data"]["exit_code"]) == ("run.failed.exit", 3)
    assert "step 1 ended with exit code 3" in answer.first["text"]
    assert answer.first["unblock"] == f"horae logs {run.id}"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("error", "run.failed.error"),
        ("output_limit", "run.failed.output_limit"),
        ("oom", "run.failed.oom"),
        ("processes", "run.failed.processes"),
        ("bad_result", "run.failed.bad_result"),
        ("invented", "run.failed.other"),
    ],
)
async def test_what_ended_an_attempt_is_named(world: World, reason: str, code: str) -> None:
    run = await world.end_run(State.FAILED, reason=reason, message="so it was")
    answer = await why_run(world, run)
    assert answer.codes[0] == code
    assert answer.first["text"].endswith("so it was")


async def test_a_workflow_names_the_task_that_failed_and_how_to_go_on(world: World) -> None:
    run = await world.end_run(State.FAILED, reason="children", message="a task failed: two")
    answer = await why_run(world, run)
    assert (answer.codes[0], answer.first["text"].count("a task failed")) == ("run.failed.task", 1)
    assert answer.first["unblock"] == f"horae runs show {run.id}, then horae runs retry {run.id}"


async def test_a_step_that_met_a_wall_is_told_which_one_and_the_line_to_add(world: World) -> None:
    said = "it has no network: name the hosts that it may reach"
    cause = {"code": "network_off", "message": said, "line": "network: [example.org]", "certain": True}
    run = await world.end_run(State.FAILED, reason="exit", exit_code=6, result=json.dumps({"cause": cause}))
    answer = await why_run(world, run)
    assert answer.codes[:2] == ["run.failed.exit", "run.wall"]
    wall = answer.get("run.wall")
    assert (wall["text"], wall["unblock"], wall["data"]) == (said, "network: [example.org]", cause)


@BOTH
async def test_a_timeout_names_the_line_that_decided(world: World) -> None:
    work = await world.start_run((await world.submit(timeout="30s")).id)
    await work.end(State.TIMED_OUT, reason="timeout", message="stopped after its timeout of 30.0 s")
    answer = await why_run(world, work.run_id)
    assert (answer.codes[0], answer.first["policy"]) == ("run.timed_out", "timeout: 30s")


@BOTH
async def test_a_kind_that_nobody_had_is_named_with_what_installs_it(world: World) -> None:
    run = await world.queue_run()
    await world.store.fail_unrunnable(["python"], "no live agent can run this kind of work", {"shell": "install it"})
    answer = await why_run(world, run)
    assert (answer.codes[0], answer.first["data"]["kind"]) == ("run.failed.no_agent", "shell")
    assert "install it" in answer.first["text"]


@BOTH
async def test_a_run_given_up_after_lost_attempts_counts_them(world: World) -> None:
    run = await world.queue_run()
    for _ in range(6):
        work = await world.take(run.id)
        world.clock.advance(1)
        await world.execution.take_back(NODE, {work.run_id: work.fence})
    answer = await why_run(world, run)
    assert (answer.codes[0], answer.first["data"]["lost"]) == ("run.failed.lost", 6)
    assert answer.codes.count("attempt.lost") == 5


@BOTH
async def test_a_rejected_approval_says_who_said_no_and_why(world: World) -> None:
    document = {"name": "asks", "wait": {"approval": {"by": ["ann"]}}}
    job = (await world.jobs.submit([parse_job(document)])).jobs[0]
    run = await world.queue_run(job.id)
    waits = PlainWaits(world.store)
    await world.execution.finish(await waits.begin(await world.claim("wait")))
    await world.jobs.signals.decide(run.id, Decider("ann"), approved=False, comment="not today")
    await world.execution.finish(await waits.begin(await world.claim("wait")))
    answer = await why_run(world, run)
    assert answer.codes[0] == "run.failed.rejected"
    assert "rejected by ann: not today" in answer.first["text"]


# ── cancelled ──
@BOTH
async def test_a_waiting_run_that_was_cancelled_says_by_whom(world: World) -> None:
    run = await world.queue_run()
    await world.http.post(f"/v1/runs/{run.id}/cancel")
    answer = await why_run(world, run)
    assert (answer.codes[0], answer.first["data"]["by"]) == ("run.cancelled.requested", "local")


@BOTH
async def test_a_running_run_that_was_cancelled_says_by_whom_and_how_it_went(world: World) -> None:
    work = await world.start_run()
    await world.http.post(f"/v1/runs/{work.run_id}/cancel")
    await work.end(State.CANCELLED, reason="requested", message="cancelled in step 1")
    answer = await why_run(world, work.run_id)
    assert (answer.codes[0], answer.first["data"]["by"]) == ("run.cancelled.requested", "local")
    assert answer.first["text"] == "it was cancelled by local; cancelled in step 1"


async def test_a_run_that_its_own_handler_cancelled_is_not_said_to_be_cancelled_by_somebody(world: World) -> None:
    run = await world.end_run(State.CANCELLED, reason="requested", message="by its handler: nothing to do")
    answer = await why_run(world, run)
    assert (answer.codes[0], answer.first["data"]["why"]) == ("run.cancelled.itself", "nothing to do")
    assert answer.first["text"] == "nobody else cancelled it: its handler put an end to it (nothing to do)"


@BOTH
async def test_a_handler_that_gave_up_when_somebody_cancelled_it_was_cancelled_by_that_person(world: World) -> None:
    work = await world.start_run()
    await world.http.post(f"/v1/runs/{work.run_id}/cancel")
    await work.end(State.CANCELLED, reason="requested", message="by its handler: asked to stop")
    answer = await why_run(world, work.run_id)
    assert (answer.codes[0], answer.first["data"]["by"]) == ("run.cancelled.requested", "local")


@BOTH
async def test_a_cancelled_workflow_says_by_whom(world: World) -> None:
    document = {"name": "flow", "tasks": {"a": {"steps": [{"run": "true"}]}}}
    job = (await world.jobs.submit([parse_job(document)])).jobs[0]
    run = await world.queue_run(job.id)
    await act(world)
    await world.http.post(f"/v1/runs/{run.id}/cancel")
    await act(world)
    await act(world)
    answer = await why_run(world, run)
    assert (answer.codes[0], answer.first["data"]["by"]) == ("run.cancelled.requested", "local")


@BOTH
async def test_a_replaced_run_names_its_successor(world: World) -> None:
    job = await world.submit(overlap="replace")
    first = await world.queue_run(job.id)
    second = await world.queue_run(job.id)
    answer = await why_run(world, first)
    assert (answer.codes[0], answer.first["data"]["run"]) == ("run.cancelled.replaced", second.id)
    assert answer.first["policy"] == "overlap: replace"


@BOTH
async def test_a_running_run_that_is_replaced_names_its_successor(world: World) -> None:
    job = await world.submit(overlap="replace")
    first = await world.start_run(job.id)
    second = await world.queue_run(job.id)
    await first.end(State.CANCELLED, reason="requested", message="cancelled")
    answer = await why_run(world, first.run_id)
    assert (answer.codes[0], answer.first["data"]["run"]) == ("run.cancelled.replaced", second.id)


@BOTH
async def test_a_run_of_a_deleted_job_says_so(world: World) -> None:
    run = await world.queue_run()
    await world.http.delete(f"/v1/jobs/{run.job_id}")
    assert (await why_run(world, run)).codes[0] == "run.cancelled.deleted"
    assert (await why_job(world, run.job_id)).codes[0] == "job.deleted"


# ── attempts ──
@BOTH
async def test_a_lost_attempt_says_where_what_it_was_doing_and_when_its_node_was_last_heard_of(world: World) -> None:
    heard = world.clock.now()
    await world.store.register_node(node(NODE, kinds=("shell",), heartbeat_at=heard))
    work = await world.start_run()
    await world.store.note_progress([(work.run_id, work.fence, '{"step":"loading","items":{"done":3,"total":9}}')])
    world.clock.advance(60)
    await world.store.retire_node(NODE, NodeState.GONE)
    await world.execution.take_back(NODE, {work.run_id: work.fence})
    answer = await why_run(world, work.run_id)
    lost = answer.get("attempt.lost")
    assert lost["data"]["last_heard_at"] == format_moment(heard)
    assert f"its agent {NODE} died; it was at: loading, 3 of 9" in lost["text"]


@BOTH
async def test_a_success_after_failures_tells_of_them(world: World) -> None:
    job = await world.submit(retry={"attempts": 2, "backoff": 5})
    work = await world.start_run(job.id)
    again = await work.fail_once()
    await again.end(State.SUCCEEDED)
    answer = await why_run(world, work.run_id)
    assert answer.codes[:2] == ["run.succeeded", "attempt.failed"]
    assert "late.retried" in answer.codes


# ── lateness ──
async def _fired_late(world: World, seconds: float) -> Any:
    """A run of a moment that nobody fired for a while, and its job."""
    job = await world.submit(**EVERY_MINUTE)
    world.clock.advance(60 + seconds)
    await world.fire()
    [run] = await runs_of(world, job.id)
    return job, run


@BOTH
async def test_a_run_fired_late_while_nobody_was_there_says_when_the_first_came(world: World) -> None:
    await world.store.register_node(node("s1", roles=("scheduler",), started_at=world.clock.now() + 90 * SECOND))
    _, run = await _fired_late(world, 31)
    answer = await why_run(world, run["id"])
    late = answer.get("late.down")
    assert late["data"]["seconds"] == 31
    assert late["data"]["first_started_at"] == format_moment(world.clock.now() - SECOND)


@BOTH
async def test_a_run_fired_late_because_its_segment_changed_hands_says_when_that_was(world: World) -> None:
    await world.store.register_node(node("s1", roles=("scheduler",), started_at=0))
    lease = await world.store.take_lease("leader", "s1", None)
    assert isinstance(lease, Lease)
    job = await world.submit(**EVERY_MINUTE)
    await world.store.assign_segments({job.segment: "dead"}, lease)
    world.clock.advance(90)
    assert await world.store.assign_segments({job.segment: "s1"}, lease)
    await world.fire()
    [run] = await runs_of(world, job.id)
    late = (await why_run(world, run["id"])).get("late.segment")
    assert (late["data"]["owner"], late["data"]["segment"], late["data"]["seconds"]) == ("s1", job.segment, 30)
    assert late["data"]["since_at"] == format_moment(world.clock.now())


@BOTH
async def test_a_run_fired_late_for_a_cause_that_is_not_recorded_says_that(world: World) -> None:
    await world.store.register_node(node("s1", roles=("scheduler",), started_at=0))
    _, run = await _fired_late(world, 20)
    assert "is not recorded" in (await why_run(world, run["id"])).get("late.fired")["text"]


@BOTH
async def test_a_run_begun_late_names_the_runs_that_had_the_slots(world: World) -> None:
    await world.store.register_node(node(NODE, kinds=("shell",), slots=1))
    busy = await world.start_run()
    waiting = await world.queue_run()
    world.clock.advance(40)
    await busy.end(State.SUCCEEDED, started_at=world.clock.now() - 40 * SECOND)
    work = await world.take(waiting.id)
    await work.end(State.SUCCEEDED)
    late = (await why_run(world, waiting)).get("late.slots")
    assert (late["data"]["runs"], late["data"]["slots"], late["data"]["seconds"]) == ([busy.run_id], 1, 40)


@BOTH
async def test_a_run_begun_late_by_its_limit_names_those_that_ran(world: World) -> None:
    job = await world.submit(concurrency_limits=[{"limit": 1}], **MANY)
    await world.queue_run(job.id)
    [busy] = await world.claim("shell")
    waiting = await world.queue_run(job.id)
    began = world.clock.now()
    world.clock.advance(40)
    await finish(world, busy, started_at=began)
    [claimed] = await world.claim("shell")
    await finish(world, claimed)
    late = (await why_run(world, waiting)).get("late.limit")
    assert (late["data"]["runs"], late["data"]["limit"]) == ([busy.run_id], 1)


@BOTH
async def test_a_run_begun_late_without_a_trace_of_why_says_so(world: World) -> None:
    waiting = await world.queue_run()
    world.clock.advance(40)
    work = await world.take(waiting.id)
    await work.end(State.SUCCEEDED)
    assert "is not recorded" in (await why_run(world, waiting)).get("late.waited")["text"]


@BOTH
async def test_a_successor_that_began_late_names_the_run_that_had_to_end_first(world: World) -> None:
    job = await world.submit(overlap="queue")
    first = await world.start_run(job.id)
    second = await world.queue_run(job.id)
    world.clock.advance(40)
    await first.end(State.SUCCEEDED, started_at=world.clock.now() - 40 * SECOND)
    ended = world.clock.now()
    await (await world.take(second.id)).end(State.SUCCEEDED)
    late = (await why_run(world, second)).get("late.overlap")
    assert late["data"] == {"seconds": 40, "runs": [first.run_id], "ended_at": format_moment(ended)}
    assert late["policy"] == "overlap: queue"


@BOTH
async def test_a_run_that_came_late_after_others_names_the_last_of_them(world: World) -> None:
    before = await world.submit(key="extract", name="extract", **EVERY_MINUTE)
    after = await world.submit(key="load", after=["extract"], **EVERY_MINUTE)
    world.clock.advance(60)
    await world.fire()
    await act(world)
    [first], [second] = await runs_of(world, before.id), await runs_of(world, after.id)
    work = await world.take(first["id"])
    world.clock.advance(40)
    await work.end(State.SUCCEEDED, started_at=world.clock.now() - 40 * SECOND)
    await act(world)
    await (await world.take(second["id"])).end(State.SUCCEEDED)
    late = (await why_run(world, second["id"])).get("late.dependency")
    assert (late["data"]["runs"], late["policy"]) == ([first["id"]], "after: [extract]")
    assert f"it comes after {first['id']} of extract" in late["text"]


@BOTH
async def test_the_parts_of_its_way_are_told_apart(world: World) -> None:
    job = await world.submit(**EVERY_MINUTE)
    world.clock.advance(65)
    await world.fire()
    [run] = await runs_of(world, job.id)
    world.clock.advance(3)
    work = await world.take(run["id"])
    await work.end(State.SUCCEEDED)
    times = (await why_run(world, run["id"])).get("run.times")["data"]
    assert (times["due_to_fired_ms"], times["fired_to_started_ms"]) == (5000, 3000)
