"""What became of attempts is named: why none came after the last, and why the last came late. And jobs that others run,
of which no attempt is ours."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.model import SECOND, State
from horae.core.time.moments import format_moment
from horae.core.waits import Wait
from horae.core.work.specs import parse_job
from horae.service.external.watching import Watches
from tests.facades.explain.asking import finish, runs_of, why_run
from tests.facades.world import BOTH, World


# ── why it was not tried again ──
@BOTH
async def test_a_job_without_retries_says_that_it_allows_one_attempt(world: World) -> None:
    answer = await why_run(world, await world.end_run(State.FAILED, reason="exit", exit_code=3))
    told = answer.get("run.no_retry")
    assert told["data"] == {"used": 1, "attempts": 1, "lost": 0, "why": "once"}
    assert told["unblock"] == "retry: {attempts: 3} in the job"


@BOTH
async def test_a_budget_that_is_used_up_is_counted_without_lost_attempts(world: World) -> None:
    job = await world.submit(retry={"attempts": 2, "backoff": 5})
    lost = await world.start_run(job.id)
    await world.execution.take_back("n", {lost.run_id: lost.fence})
    world.clock.advance(60)
    again = await (await world.take(lost.run_id)).fail_once()
    await again.end(State.TIMED_OUT, reason="timeout", message="stopped after its timeout")
    told = (await why_run(world, lost.run_id)).get("run.no_retry")
    assert told["data"] == {"used": 2, "attempts": 2, "lost": 1, "why": "used"}
    assert told["text"] == "it was not tried again: 2 of 2 attempts were used"
    assert told["policy"] == "retry: {attempts: 2}"


@pytest.mark.parametrize(
    ("retry", "said", "why", "policy"),
    [
        ({"never": ["ValueError"]}, "retry.never has ValueError", "retry.never has ValueError",
         "retry.never: [ValueError]"),
        ({"on": ["OSError"]}, "retry.on has only OSError", "retry.on has only OSError", "retry.on: [OSError]"),
        ({}, "never_retry of the handler has ValueError", "never_retry of the handler has ValueError", None),
    ],
    ids=["never", "on", "handler"],
)  # fmt: skip
async def test_a_class_that_is_not_worth_another_attempt_is_named(
    world: World, retry: dict[str, Any], said: str, why: str, policy: str | None
) -> None:
    document = {"name": "calls", "handler": "builtins:print", "retry": {"attempts": 3, **retry}}
    run = await world.queue_run((await world.jobs.submit([parse_job(document)])).jobs[0].id)
    [claimed] = await world.claim("python")
    message = f"ValueError: no (not tried again: {said})"
    await finish(world, claimed, State.FAILED, reason="error", message=message, final=True)
    told = (await why_run(world, run)).get("run.no_retry")
    assert (told["data"]["why"], told["policy"]) == (why, policy)
    assert (told["data"]["used"], told["data"]["attempts"]) == (1, 3)


async def test_data_that_does_not_fit_and_what_the_work_found_itself_are_told_apart(world: World) -> None:
    for message, why in (("E_DATA: 2 problems", "E_DATA"), ("404 from example.org", "final")):
        work = await world.start_run((await world.submit(retry={"attempts": 3})).id)
        await work.end(State.FAILED, reason="error", message=message, final=True)
        assert (await why_run(world, work.run_id)).get("run.no_retry")["data"]["why"] == why


async def test_of_a_job_that_was_changed_since_nothing_is_guessed(world: World) -> None:
    run = await world.end_run(State.FAILED, reason="exit", exit_code=3)
    world.clock.advance(5)
    document = {"name": "job", "steps": [{"run": "true"}], "retry": {"attempts": 4}}
    changed = await world.http.put(f"/v1/jobs/{run.job_id}", json=document)
    assert changed.status_code == 200, changed.text
    told = (await why_run(world, run)).get("run.no_retry")
    assert (told["data"]["why"], told["data"]["attempts"]) == ("changed", 4)


async def test_what_ends_otherwise_than_by_its_attempts_has_no_word_on_retries(world: World) -> None:
    run = await world.queue_run()
    await world.store.fail_unrunnable(["python"], "no live agent can run this kind of work", {"shell": "install it"})
    assert "run.no_retry" not in (await why_run(world, run)).codes
    assert "run.no_retry" not in (await why_run(world, await world.end_run(State.SUCCEEDED))).codes


# ── why the last one came late ──
@BOTH
async def test_a_run_that_paused_names_its_pauses_and_no_failure(world: World) -> None:
    run_id = await _paused(world, 600, await world.submit())
    work = await world.take(run_id)
    await work.end(State.SUCCEEDED)
    answer = await why_run(world, run_id)
    paused = answer.get("late.paused")
    assert paused["data"] == {"seconds": 600, "reasons": {"snoozed": 1}, "pauses": 1}
    assert paused["text"].endswith("because it asked to go on later")
    assert not {"late.retried", "attempt.failed"} & {*answer.codes}


@BOTH
async def test_of_pauses_and_failures_each_has_its_own_time(world: World) -> None:
    run_id = await _paused(world, 600, await world.submit(retry={"attempts": 2, "backoff": 10, "jitter": 0}))
    work = await world.take(run_id)
    await work.end(State.FAILED, exit_code=3)
    world.clock.advance(40)
    work = await world.take(run_id)
    await work.end(State.SUCCEEDED)
    answer = await why_run(world, run_id)
    assert answer.get("late.retried")["data"] == {"seconds": 40, "attempts": 1}
    assert answer.get("late.paused")["data"]["seconds"] == 600


async def _paused(world: World, seconds: int, job: Any, output: str | None = "1/1") -> int:
    """Return a run that has paused for so long, and may go on. Without output, nothing else is recorded of it."""
    run = await world.queue_run(job.id)
    [claimed] = await world.claim("shell")
    await finish(world, claimed, State.BLOCKED, wait=Wait("snoozed", seconds=seconds), output=output)
    world.clock.advance(seconds)
    return run.id


@BOTH
async def test_a_pause_without_output_is_no_wait_for_an_agent_either(world: World) -> None:
    run_id = await _paused(world, 600, await world.submit(), output=None)
    work = await world.take(run_id)
    await work.end(State.SUCCEEDED)
    answer = await why_run(world, run_id)
    assert answer.get("late.paused")["data"] == {"seconds": 600, "reasons": {}, "pauses": 1}
    assert not {"late.retried", "late.waited"} & {*answer.codes}


# ── jobs that others run ──
async def _watched(world: World) -> Any:
    """A run of such a job that waits for its ping."""
    document = {"name": "backup", "schedule": "@every 1h", "watched": {"grace": "10m"}}
    job = (await world.jobs.submit([parse_job(document)])).jobs[0]
    world.clock.advance(3600)
    await world.fire()
    await _serve(world)
    [run] = await runs_of(world, job.id)
    return run


async def _serve(world: World) -> None:
    await world.store.sweep()
    await world.execution.finish(await Watches(world.store).begin(await world.claim("watched")))


@BOTH
async def test_a_run_that_others_do_waits_for_a_ping_and_says_where_that_goes(world: World) -> None:
    run = await _watched(world)
    answer = await why_run(world, run["id"])
    assert answer.codes[0] == "wait.ping"
    until = format_moment(world.clock.now() + 600 * SECOND)
    assert answer.first["data"] == {"until": until}
    assert answer.first["policy"] == "watched: {grace: 10m}"
    assert answer.first["unblock"] == f"horae ping-url {run['job_id']}"


@BOTH
async def test_a_run_of_which_nothing_was_heard_is_missed(world: World) -> None:
    run = await _watched(world)
    world.clock.advance(601)
    await _serve(world)
    answer = await why_run(world, run["id"])
    assert answer.codes[0] == "run.failed.missed"
    assert "nothing was heard of it within 600 s of its moment" in answer.first["text"]
    assert answer.first["policy"] == "watched: {grace: 10m}"
    assert f"horae ping-url {run['job_id']}" in answer.first["unblock"]
    assert "run.no_retry" not in answer.codes
