"""What a run waits for is named, with who holds it and what would let it go on: a test per situation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from horae.core.model import DEFAULT_ORG, NodeState, OperatorWish, State
from horae.core.time.moments import format_moment
from horae.core.waits import Wait
from horae.core.work.specs import parse_job
from horae.service.workflows.waits import PlainWaits
from tests.facades.explain.asking import act, finish, why_job, why_run
from tests.facades.world import BOTH, NODE, World
from tests.unit.service.parts import node

MANY: dict[str, Any] = {"overlap": "allow"}
SHELL: dict[str, Any] = {"kinds": ("shell",), "slots": 2}


# ── for an agent ──
@BOTH
async def test_a_paused_queue_is_named(world: World) -> None:
    await world.http.put("/v1/queues/reports", json={})
    run = await world.queue_run((await world.submit(queue="reports")).id)
    await world.http.post("/v1/queues/reports/pause")
    answer = await why_run(world, run)
    assert answer.codes[0] == "wait.queue_paused"
    assert (answer.first["data"]["queue"], answer.first["unblock"]) == ("reports", "horae queues resume reports")
    assert answer.first["data"]["by"] == "local"
    assert answer.first["text"].startswith(
        f"its queue reports is paused by local since {answer.first['data']['by_at']}"
    )


@BOTH
async def test_who_paused_a_queue_is_told_in_his_organisation_alone(world: World) -> None:
    await world.http.put("/v1/queues/reports", json={})
    await world.http.post("/v1/queues/reports/pause")
    deeds = await world.store.load_done("queue", "reports", DEFAULT_ORG, 10)
    assert [one.made("state") for one in deeds] == ["paused", "open"]
    assert await world.store.load_done("queue", "reports", DEFAULT_ORG + 1, 10) == []


@BOTH
async def test_without_any_agent_that_is_said(world: World) -> None:
    answer = await why_run(world, await world.queue_run())
    assert answer.codes[0] == "wait.no_agents"
    assert "horae agent" in answer.first["unblock"]


@BOTH
async def test_a_kind_that_no_agent_runs_is_named(world: World) -> None:
    await world.store.register_node(node("n1", kinds=("python",)))
    answer = await why_run(world, await world.queue_run())
    assert answer.codes[:2] == ["wait.kind", "agent.cannot"]
    assert answer.first["data"]["kind"] == "shell"
    assert answer.get("agent.cannot")["data"] == {"node": "n1", "barrier": "kind"}


@BOTH
async def test_a_label_that_no_agent_has_is_named(world: World) -> None:
    await world.store.register_node(node("n1", labels=("eu",), **SHELL))
    answer = await why_run(world, await world.queue_run((await world.submit(labels=["eu", "gpu"])).id))
    assert answer.codes[0] == "wait.label"
    assert answer.first["data"]["missing"] == ["gpu"]
    assert (answer.first["policy"], answer.first["unblock"]) == ("labels: [eu, gpu]", "horae agent --label gpu")


@BOTH
async def test_a_label_of_the_queue_that_no_agent_has_is_told_as_that(world: World) -> None:
    await world.http.put("/v1/queues/gpus", json={"labels": ["gpu"]})
    await world.store.register_node(node("n1", **SHELL))
    answer = await why_run(world, await world.queue_run((await world.submit(queue="gpus")).id))
    assert answer.codes[0] == "wait.label"
    assert answer.first["policy"] == "labels of the queue gpus: [gpu]"


@BOTH
async def test_a_pinned_run_whose_node_is_gone_says_when_that_was_last_heard_of(world: World) -> None:
    await world.store.register_node(node("n1", heartbeat_at=world.clock.now(), **SHELL))
    await world.store.register_node(node("n2", **SHELL))
    run = await world.jobs.run_now((await world.submit()).id, node="n1")
    await world.store.retire_node("n1", NodeState.GONE)
    answer = await why_run(world, run)
    assert answer.codes[0] == "wait.pin"
    assert answer.first["data"] == {"node": "n1", "last_heard_at": format_moment(world.clock.now())}


@BOTH
async def test_cordoned_agents_are_named_with_what_lets_them_go_on(world: World) -> None:
    await world.store.register_node(node("n1", **SHELL))
    await world.store.want_node("n1", OperatorWish.CORDONED)
    answer = await why_run(world, await world.queue_run())
    assert answer.codes[0] == "wait.cordoned"
    assert (answer.first["data"]["nodes"], answer.first["unblock"]) == (["n1"], "horae nodes uncordon n1")


@BOTH
async def test_agents_that_go_away_are_named(world: World) -> None:
    await world.store.register_node(node("n1", **SHELL))
    await world.store.retire_node("n1", NodeState.DRAINING)
    answer = await why_run(world, await world.queue_run())
    assert answer.codes[0] == "wait.draining"
    assert answer.first["data"]["nodes"] == ["n1"]


@BOTH
async def test_an_agent_whose_machine_is_short_says_of_what(world: World) -> None:
    await world.store.register_node(node("n1", **SHELL))
    await world.store.note_ailment("n1", "no space left on device")
    answer = await why_run(world, await world.queue_run())
    assert answer.codes[0] == "wait.ailing"
    assert "no space left on device" in answer.first["text"]


@BOTH
async def test_busy_slots_are_named_with_the_runs_that_have_them(world: World) -> None:
    await world.store.register_node(node(NODE, kinds=("shell",), slots=2))
    job = await world.submit(**MANY)
    busy = [(await world.queue_run(job.id)).id for _ in range(2)]
    await world.claim("shell", 2)
    answer = await why_run(world, await world.queue_run(job.id))
    assert answer.codes[0] == "wait.slots"
    assert (answer.first["data"]["nodes"], sorted(answer.first["data"]["runs"])) == ([NODE], busy)
    assert answer.get("agent.cannot")["data"]["barrier"] == "slots"


@BOTH
async def test_the_place_in_line_counts_higher_priorities_and_turns(world: World) -> None:
    await world.store.register_node(node(NODE, kinds=("shell",), slots=1))
    job = await world.submit(**MANY)
    await world.queue_run(job.id)
    await world.claim("shell", 1)
    first = await world.queue_run(job.id)
    waiting = await world.queue_run(job.id)
    urgent = await world.jobs.run_now(job.id, priority=9)
    answer = await why_run(world, waiting)
    line = answer.get("wait.line")
    assert answer.codes[:2] == ["wait.slots", "wait.line"]
    assert {name: line["data"][name] for name in ("place", "higher_priority", "same_priority")} == {
        "place": 3, "higher_priority": 1, "same_priority": 1,
    }  # fmt: skip
    assert line["data"]["runs"] == [urgent.id, first.id]


@BOTH
async def test_queues_that_go_first_count_in_the_line(world: World) -> None:
    await world.store.register_node(node(NODE, kinds=("shell",), slots=1))
    await world.start_run()
    await world.http.put("/v1/queues/fast", json={"priority_offset": 5})
    await world.queue_run((await world.submit(queue="fast")).id)
    answer = await why_run(world, await world.queue_run())
    assert answer.get("wait.line")["data"]["other_queues"] == 1


@BOTH
async def test_what_no_agent_could_ever_give_is_named(world: World) -> None:
    await world.store.register_node(node("n1", resources={"cpus": 2000}, **SHELL))
    run = await world.queue_run((await world.submit(resources={"cpus": 8})).id)
    answer = await why_run(world, run)
    assert answer.codes[0] == "wait.resources.never"
    assert answer.first["text"] == "it asks for cpus: 8; no live agent offers more than 2"
    assert answer.first["policy"] == "resources: {cpus: 8}"


@BOTH
async def test_what_is_not_free_now_is_told_apart_from_what_never_is(world: World) -> None:
    await world.store.register_node(node(NODE, kinds=("shell",), slots=8, resources={"gpu": 1}))
    job = await world.submit(resources={"gpu": 1}, **MANY)
    busy = await world.queue_run(job.id)
    waiting = await world.queue_run(job.id)
    offer = replace(world.agent("shell"), resources={"gpu": 1}, free={"gpu": 1})
    assert [one.run_id for one in await world.execution.claim(offer, {"shell": 8}, free={"gpu": 1})] == [busy.id]
    answer = await why_run(world, waiting)
    assert answer.codes[0] == "wait.resources"
    assert answer.first["data"]["runs"] == [busy.id]


@BOTH
async def test_an_agent_that_has_room_is_named(world: World) -> None:
    await world.store.register_node(node("n1", **SHELL))
    await world.store.register_node(node("n2", kinds=("python",)))
    answer = await why_run(world, await world.queue_run())
    assert answer.codes[:3] == ["wait.soon", "agent.could", "agent.cannot"]
    assert answer.first["data"]["nodes"] == ["n1"]


@BOTH
async def test_a_run_that_waits_again_after_a_loss_says_so(world: World) -> None:
    work = await world.start_run()
    await world.execution.take_back(NODE, {work.run_id: work.fence})
    answer = await why_run(world, work.run_id)
    assert answer.codes[0] == "wait.lost"
    assert answer.first["data"]["lost"] == 1
    assert answer.get("attempt.lost")["data"]["node"] == NODE


@BOTH
async def test_who_cordoned_an_agent_is_named(world: World) -> None:
    await world.join()
    run = await world.queue_run()
    await world.http.post(f"/v1/nodes/{NODE}/cordon")
    answer = await why_run(world, run)
    assert (answer.codes[0], answer.first["data"]["by"]) == ("wait.cordoned", "local")
    assert f"local said so of {NODE}" in answer.first["text"]


@BOTH
async def test_runs_of_other_organisations_are_counted_and_never_named(world: World) -> None:
    """Neither their ids nor the names of their jobs."""
    await world.store.register_node(node(NODE, kinds=("shell",), slots=2))
    ours, theirs = await _job_of(world, "ours"), await _job_of(world, "theirs", DEFAULT_ORG + 1)
    first, second = await world.start_run(ours), await world.start_run(theirs)
    jobs = [await _job_of(world, "mine"), await _job_of(world, "secret", DEFAULT_ORG + 1)]
    before = [await world.queue_run(job_id) for job_id in jobs]
    answer = await why_run(world, await world.queue_run((await world.submit()).id))
    assert (answer.codes[0], answer.first["data"]["runs"]) == ("wait.slots", [first.run_id])
    assert f"by runs {first.run_id} of ours and 1 of other organisations" in answer.first["text"]
    assert answer.get("wait.line")["data"]["before"] == 2
    assert answer.get("wait.line")["data"]["runs"] == [before[0].id]
    assert "theirs" not in str(answer.body)
    assert "secret" not in str(answer.body)
    assert second.run_id not in answer.first["data"]["runs"]


async def _job_of(world: World, name: str, org: int = DEFAULT_ORG) -> int:
    return (await world.jobs.submit([parse_job({"name": name, "steps": [{"run": "true"}]})], org=org)).jobs[0].id


# ── for limits ──
@BOTH
async def test_the_limit_of_a_queue_names_the_runs_in_it(world: World) -> None:
    await world.http.put("/v1/queues/reports", json={"concurrency": 1})
    job = await world.submit(queue="reports", **MANY)
    first, second = await world.queue_run(job.id), await world.queue_run(job.id)
    await world.claim("shell")
    answer = await why_run(world, second)
    assert answer.codes[0] == "wait.limit.queue"
    assert (answer.first["data"]["runs"], answer.first["policy"]) == ([first.id], "concurrency: 1")


@BOTH
async def test_a_concurrency_key_names_who_holds_it(world: World) -> None:
    job = await world.submit(concurrency_limits=[{"limit": 1, "per": "data.tenant"}], **MANY)
    first = await world.jobs.run_now(job.id, data={"tenant": "acme"})
    second = await world.jobs.run_now(job.id, data={"tenant": "acme"})
    await world.claim("shell")
    answer = await why_run(world, second)
    assert answer.codes[0] == "wait.limit.concurrency"
    assert answer.first["text"] == f"1 of 1 run with tenant acme: runs {first.id} of job"
    assert answer.first["policy"] == "concurrency_limits: [{limit: 1, per: data.tenant}]"


@BOTH
async def test_a_rate_says_until_when(world: World) -> None:
    job = await world.submit(rate_limits=[{"rate": "1/min"}], **MANY)
    await world.queue_run(job.id)
    second = await world.queue_run(job.id)
    await world.claim("shell")
    answer = await why_run(world, second)
    assert answer.codes[0] == "wait.limit.rate"
    assert answer.first["data"]["until"] == format_moment(world.clock.now() + 60_000_000)
    assert answer.first["policy"] == "rate: 1/min"


@BOTH
async def test_a_resource_of_the_cluster_that_is_used_up_is_named(world: World) -> None:
    await world.http.put("/v1/resources/license-x", json={"capacity": 1})
    job = await world.submit(resources={"license-x": 1}, **MANY)
    first, second = await world.queue_run(job.id), await world.queue_run(job.id)
    await world.claim("shell")
    answer = await why_run(world, second)
    assert answer.codes[0] == "wait.limit.resource"
    assert (answer.first["data"]["runs"], answer.first["data"]["capacity"]) == ([first.id], 1)


# ── for other runs ──
@BOTH
async def test_a_successor_names_the_run_for_whose_end_it_waits(world: World) -> None:
    job = await world.submit(overlap="queue")
    first = await world.start_run(job.id)
    answer = await why_run(world, await world.queue_run(job.id))
    assert answer.codes[0] == "wait.overlap"
    assert answer.first["data"] == {"holder": first.run_id, "state": "running"}
    assert answer.first["policy"] == "overlap: queue"


@BOTH
async def test_a_dependency_names_its_predecessor_and_how_that_stands(world: World) -> None:
    before = await world.submit(key="extract", schedule="@every 1h")
    after = await world.submit(key="load", schedule="@every 1h", after=["extract"])
    world.clock.advance(3600)
    await world.fire()
    await act(world)
    [first], [second] = await _runs(world, before.id), await _runs(world, after.id)
    answer = await why_run(world, second["id"])
    assert answer.codes[0] == "wait.dependency"
    assert [(one["id"], one["state"]) for one in answer.first["data"]["runs"]] == [(first["id"], "queued")]
    assert "extract" in answer.first["policy"]
    assert answer.first["unblock"] == f"horae explain run:{first['id']}"


async def _runs(world: World, job_id: int) -> Any:
    return (await world.http.get("/v1/runs", params={"job_id": job_id})).json()["items"]


@BOTH
async def test_a_workflow_names_the_tasks_for_which_it_waits(world: World) -> None:
    document = {
        "name": "flow",
        "tasks": {"a": {"steps": [{"run": "true"}]}, "b": {"needs": ["a"], "steps": [{"run": "true"}]}},
    }
    job = (await world.jobs.submit([parse_job(document)])).jobs[0]
    run = await world.queue_run(job.id)
    await act(world)
    answer = await why_run(world, run)
    assert answer.codes[0] == "wait.children"
    assert answer.first["data"]["tasks"] == {"a": {"queued": 1}}


# ── for a moment, or to be told something ──
@BOTH
async def test_a_retry_says_which_attempt_failed_how_and_when_the_next_comes(world: World) -> None:
    job = await world.submit(retry={"attempts": 3, "backoff": 10, "jitter": 0})
    work = await world.start_run(job.id)
    await work.end(State.FAILED, reason="exit", exit_code=3, message="step 1 ended with exit code 3")
    answer = await why_run(world, work.run_id)
    assert answer.codes[:2] == ["wait.retry", "attempt.failed"]
    assert {name: answer.first["data"][name] for name in ("until", "attempt", "next_attempt", "attempts")} == {
        "until": format_moment(world.clock.now() + 10_000_000), "attempt": 1, "next_attempt": 2, "attempts": 3,
    }  # fmt: skip
    assert answer.get("attempt.failed")["data"]["exit_code"] == 3


@BOTH
async def test_an_order_for_later_says_when(world: World) -> None:
    at = world.clock.now() + 3_600_000_000
    answer = await why_run(world, await world.jobs.run_now((await world.submit()).id, run_at=at))
    assert (answer.codes[0], answer.first["data"]["until"]) == ("wait.later", format_moment(at))


@BOTH
async def test_a_debounced_order_says_until_when_and_at_the_latest(world: World) -> None:
    job = await world.submit(debounce={"seconds": 10, "at_most": 60})
    answer = await why_run(world, await world.queue_run(job.id))
    assert answer.codes[0] == "wait.debounce"
    assert answer.first["data"] == {
        "until": format_moment(world.clock.now() + 10_000_000),
        "latest_at": format_moment(world.clock.now() + 60_000_000),
    }


async def _waits(world: World, **wait: Any) -> int:
    job = (await world.jobs.submit([parse_job({"name": "waits", "wait": wait, "overlap": "allow"})])).jobs[0]
    run = await world.queue_run(job.id)
    await world.execution.finish(await PlainWaits(world.store).begin(await world.claim("wait")))
    return run.id


@BOTH
async def test_a_signal_is_named(world: World) -> None:
    run_id = await _waits(world, signal="paid")
    answer = await why_run(world, run_id)
    assert (answer.codes[0], answer.first["data"]["signal"]) == ("wait.signal", "paid")
    assert answer.first["unblock"] == f"horae signal {run_id} paid"


@BOTH
async def test_an_approval_says_who_may_decide(world: World) -> None:
    run_id = await _waits(world, approval={"by": ["ann", "bob"], "message": "publish?"})
    answer = await why_run(world, run_id)
    assert (answer.codes[0], answer.first["data"]["by"]) == ("wait.approval", ["ann", "bob"])
    assert answer.first["unblock"] == f"horae approve {run_id}, or horae reject {run_id}"


@BOTH
async def test_a_snoozed_run_says_until_when(world: World) -> None:
    [claimed] = await _claimed(world)
    await finish(world, claimed, State.BLOCKED, wait=Wait("snoozed", seconds=600))
    answer = await why_run(world, claimed.run_id)
    assert (answer.codes[0], answer.first["data"]["until"]) == (
        "wait.snoozed",
        format_moment(world.clock.now() + 600_000_000),
    )


async def _claimed(world: World, **fields: Any) -> Any:
    await world.queue_run((await world.submit(**fields)).id)
    return await world.claim("shell")


@BOTH
async def test_a_start_deadline_is_told_while_it_can_be_kept(world: World) -> None:
    run = await world.queue_run((await world.submit(start_deadline="5m")).id)
    told = (await why_run(world, run)).get("wait.start_deadline")
    assert told["data"]["until"] == format_moment(world.clock.now() + 300_000_000)
    assert told["policy"] == "start_deadline: 5m"


@BOTH
async def test_a_running_run_says_where_and_since_when(world: World) -> None:
    work = await world.start_run()
    answer = await why_run(world, work.run_id)
    assert answer.codes[0] == "run.running"
    assert answer.first["data"]["node"] == NODE


@BOTH
async def test_a_run_that_is_being_cancelled_says_by_whom(world: World) -> None:
    work = await world.start_run()
    await world.http.post(f"/v1/runs/{work.run_id}/cancel")
    answer = await why_run(world, work.run_id)
    assert answer.get("run.cancelling")["data"]["by"] == "cancelled by local"


@BOTH
async def test_a_job_says_what_its_live_run_waits_for(world: World) -> None:
    run = await world.queue_run()
    answer = await why_job(world, run.job_id)
    assert answer.body["run_id"] == run.id
    assert answer.get("wait.no_agents")["data"]["run_id"] == run.id
