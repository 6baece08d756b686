"""Jobs that others run: each moment has its run, which a ping ends, or the end of its grace."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.model import SECOND, Job, Run, State
from horae.core.watched import KEPT, MOST_KEPT, address_name
from horae.core.work.specs import parse_job
from horae.errors import Invalid
from horae.service.external.watching import Watches
from horae.web.app import shown_path
from tests.facades.world import BOTH, World

GRACE = 600
HOUR = 3600


async def watch(world: World, schedule: str = "0 * * * *") -> tuple[Job, str]:
    """Return a job that others run each hour, and its address."""
    document = {"name": "backup", "schedule": schedule, "watched": {"grace": f"{GRACE}s"}}
    job = (await world.jobs.submit([parse_job(document)])).jobs[0]
    answer = await world.http.get(f"/v1/jobs/{job.id}/ping")
    assert answer.status_code == 200, answer.text
    return job, answer.json()["path"]


async def go_on(world: World) -> None:
    """Let servers do what is theirs."""
    await world.store.sweep()
    await world.execution.finish(await Watches(world.store).begin(await world.claim("watched")))


async def until_next(world: World, job: Job, before: float = 0.0) -> None:
    """Let the time pass until the next moment, or until so many seconds before it, and fire what is due."""
    due = (await world.jobs.get(job.id)).triggers[0].next_at
    assert due is not None
    world.clock.advance((due - world.clock.now()) / 1e6 - before)
    await world.fire()
    await go_on(world)


async def ping(world: World, path: str, data: bytes = b"", **params: Any) -> dict[str, Any]:
    answer = await world.http.post(path, content=data, params=params)
    assert answer.status_code == 202, answer.text
    await go_on(world)
    told: dict[str, Any] = answer.json()
    return told


async def runs(world: World, job: Job) -> list[Run]:
    """Oldest first."""
    answer = await world.http.get("/v1/runs", params={"job_id": job.id})
    return [await world.jobs.get_run(one["id"]) for one in reversed(answer.json()["items"])]


async def log(world: World, run: Run) -> str:
    return (await world.http.get(f"/v1/runs/{run.id}/log")).text


@BOTH
async def test_a_moment_waits_for_its_ping_and_ends_by_it(world: World) -> None:
    job, path = await watch(world)
    await until_next(world, job)
    [run] = await runs(world, job)
    assert (run.state, run.reason) == (State.BLOCKED, "signal")
    assert (await ping(world, path, b"all is well\n", seconds=12.5))["run_id"] == run.id
    [run] = await runs(world, job)
    assert (run.state, run.reason, run.result) == (State.SUCCEEDED, "", {"seconds": 12.5})
    assert await log(world, run) == "all is well\n"


@BOTH
async def test_one_that_was_told_its_start_and_its_end_took_the_time_between(world: World) -> None:
    job, path = await watch(world)
    await until_next(world, job)
    await ping(world, f"{path}/start")
    world.clock.advance(90)
    await ping(world, path)
    [run] = await runs(world, job)
    assert run.started_at is not None
    assert run.finished_at is not None
    assert (run.finished_at - run.started_at, run.result) == (90 * SECOND, {"seconds": 90.0})


@BOTH
async def test_how_long_it_took_is_taken_from_whoever_ran_it(world: World) -> None:
    job, path = await watch(world)
    await until_next(world, job)
    await ping(world, f"{path}/start")
    world.clock.advance(90)
    await ping(world, f"{path}/fail", seconds=42.5)
    [run] = await runs(world, job)
    assert run.started_at is not None
    assert run.finished_at is not None
    assert run.finished_at - run.started_at == 42.5 * SECOND


@BOTH
async def test_of_one_whose_end_alone_was_told_nobody_knows_how_long_it_took(world: World) -> None:
    job, path = await watch(world)
    await until_next(world, job)
    world.clock.advance(30)
    await ping(world, path)
    await until_next(world, job)
    world.clock.advance(GRACE + 1)
    await go_on(world)
    for run, state in zip(await runs(world, job), ("succeeded", "failed"), strict=True):
        shown = (await world.http.get(f"/v1/runs/{run.id}")).json()
        assert (shown["state"], shown["started_at"], shown["late_ms"]) == (state, None, None)
        assert (await world.http.get(f"/v1/explain/runs/{run.id}")).status_code == 200


@BOTH
async def test_an_address_that_is_made_anew_is_the_only_one(world: World) -> None:
    job, old = await watch(world)
    other = (await world.jobs.submit([parse_job({"name": "other", "watched": {"grace": "1h"}})])).jobs[0]
    kept = (await world.http.get(f"/v1/jobs/{other.id}/ping")).json()["path"]
    made = [(await world.http.post(f"/v1/jobs/{job.id}/ping")).json()["path"] for _ in range(2)]
    assert len({old, *made}) == 3
    assert (await world.http.get(f"/v1/jobs/{job.id}/ping")).json()["path"] == made[1]
    assert [(await world.http.post(path)).status_code for path in (old, made[0], made[1], kept)] == [404, 404, 202, 202]


@BOTH
async def test_only_a_job_that_others_run_gets_a_new_address(world: World) -> None:
    job = (await world.jobs.submit([parse_job({"name": "ours", "steps": [{"run": "true"}]})])).jobs[0]
    answer = await world.http.post(f"/v1/jobs/{job.id}/ping")
    assert (answer.status_code, answer.json()["code"]) == (409, "E_NOT_WATCHED")
    assert (await world.http.post("/v1/jobs/987654/ping")).status_code == 404


@BOTH
async def test_a_failure_is_told_with_its_exit_code_and_the_end_of_its_log(world: World) -> None:
    job, path = await watch(world)
    await until_next(world, job)
    told = await ping(world, f"{path}/start")
    await ping(world, f"{path}/log", b"first\n", run=told["run_id"])
    assert await log(world, (await runs(world, job))[0]) == "first\n", "it is shown while it goes on"
    await ping(world, f"{path}/fail", b"last words\n", run=told["run_id"], exit_code=3)
    [run] = await runs(world, job)
    assert (run.state, run.reason, run.exit_code) == (State.FAILED, "exit", 3)
    assert "exit code 3" in run.message
    assert await log(world, run) == "first\nlast words\n"


@BOTH
async def test_a_moment_of_which_nothing_is_heard_is_missed_after_its_grace(world: World) -> None:
    job, _ = await watch(world)
    await until_next(world, job)
    world.clock.advance(GRACE - 1)
    await go_on(world)
    assert (await runs(world, job))[0].state is State.BLOCKED
    world.clock.advance(2)
    await go_on(world)
    [run] = await runs(world, job)
    assert (run.state, run.reason) == (State.FAILED, "missed")
    assert "nothing was heard" in run.message


@BOTH
async def test_one_that_began_and_fell_silent_is_missed_with_what_it_had_written(world: World) -> None:
    job, path = await watch(world)
    await until_next(world, job)
    await ping(world, f"{path}/start")
    await ping(world, f"{path}/log", b"half way\n")
    world.clock.advance(GRACE + 1)
    await go_on(world)
    [run] = await runs(world, job)
    assert (run.state, run.reason) == (State.FAILED, "missed")
    assert run.message.startswith("it began at ")
    assert await log(world, run) == "half way\n"


@BOTH
async def test_a_ping_shortly_before_its_moment_counts_for_it(world: World) -> None:
    job, path = await watch(world)
    await until_next(world, job, before=20)
    await ping(world, path, b"early\n")
    await until_next(world, job)
    early, run = await runs(world, job)
    assert (early.trigger_id, early.state, run.state) == (None, State.SUCCEEDED, State.SUCCEEDED)
    assert f"20 s before its moment, as run {early.id}" in run.message


@BOTH
async def test_one_that_began_before_its_moment_and_ends_after_it_counts_for_it(world: World) -> None:
    job, path = await watch(world)
    await until_next(world, job, before=20)
    told = await ping(world, f"{path}/start")
    await until_next(world, job)
    assert [run.state for run in await runs(world, job)] == [State.BLOCKED, State.BLOCKED]
    await ping(world, f"{path}/fail", run=told["run_id"], exit_code=1)
    await go_on(world)
    assert [(run.state, run.exit_code) for run in await runs(world, job)] == [(State.FAILED, 1), (State.FAILED, 1)]


@BOTH
async def test_a_ping_long_before_a_moment_is_a_run_of_its_own(world: World) -> None:
    job, path = await watch(world)
    await until_next(world, job, before=120)
    await ping(world, path)
    await until_next(world, job)
    by_hand, run = await runs(world, job)
    assert (by_hand.trigger_id, by_hand.state, run.state) == (None, State.SUCCEEDED, State.BLOCKED)


async def test_an_early_ping_counts_for_one_moment_only(world: World) -> None:
    job, path = await watch(world, "*/20 * * * * *")
    await until_next(world, job, before=5)
    await ping(world, path)
    for _ in range(3):
        await until_next(world, job)
    of_moments = [run.state for run in await runs(world, job) if run.trigger_id is not None]
    assert of_moments == [State.SUCCEEDED, State.BLOCKED, State.BLOCKED]


@BOTH
async def test_a_ping_is_about_the_latest_moment_unless_it_says_otherwise(world: World) -> None:
    job, path = await watch(world, "*/5 * * * *")
    for _ in range(2):
        await until_next(world, job)
    first, second = await runs(world, job)
    assert (await ping(world, path))["run_id"] == second.id
    assert (await ping(world, path, run=first.id))["run_id"] == first.id


async def test_a_ping_of_yesterday_does_not_count_for_today(world: World) -> None:
    job, path = await watch(world)
    await until_next(world, job)
    await ping(world, path, at="2020-01-01T00:00:00Z")
    run, by_hand = await runs(world, job)
    assert (run.state, by_hand.trigger_id, by_hand.state) == (State.BLOCKED, None, State.SUCCEEDED)


async def test_an_end_that_comes_after_all_hope_leaves_what_was_said_and_is_a_run_of_its_own(world: World) -> None:
    job, path = await watch(world)
    await until_next(world, job)
    told = await ping(world, f"{path}/start")
    world.clock.advance(GRACE + 1)
    await go_on(world)
    await ping(world, path, run=told["run_id"])
    missed, late = await runs(world, job)
    assert (missed.reason, late.trigger_id, late.state) == ("missed", None, State.SUCCEEDED)


async def test_the_same_ping_again_is_the_same(world: World) -> None:
    job, path = await watch(world)
    for _ in range(2):
        answer = await world.http.post(path, headers={"idempotency-key": "a"})
        assert answer.status_code == 202
    await go_on(world)
    assert len(await runs(world, job)) == 1


@BOTH
async def test_each_moment_has_its_fate_though_another_still_waits(world: World) -> None:
    job, _ = await watch(world, "*/5 * * * *")
    for _ in range(3):
        await until_next(world, job)
    assert [run.state.word for run in await runs(world, job)] == ["failed", "blocked", "blocked"]


async def test_of_what_is_said_the_end_is_kept(world: World) -> None:
    job, path = await watch(world)
    await until_next(world, job)
    for _ in range(15):
        await ping(world, f"{path}/log", b"x" * (KEPT + 100))
    await ping(world, path, b"last")
    [run] = await runs(world, job)
    assert len(await log(world, run)) <= MOST_KEPT + KEPT
    assert run.state is State.SUCCEEDED


async def test_wrong_addresses_are_refused_in_the_same_words(world: World) -> None:
    job, path = await watch(world)
    other = await world.submit()
    token = path.rsplit("/", 1)[1]
    wrong = [f"/v1/pings/{job.id}/{token[:-1]}", f"/v1/pings/{other.id}/{token}", f"/v1/pings/999/{token}"]
    wrong += [f"/v1/pings/x/{token}", f"/v1/pings/{job.id}/{token[:-1]}/start"]
    answers = [await world.http.post(one) for one in wrong]
    assert {one.status_code for one in answers} == {404}
    assert len({one.json()["detail"] for one in answers}) == 1
    of_run = await world.jobs.callbacks.make_token(
        job.id, address_name(0)
    )  # as the handler of a run of that number could make
    assert (await world.http.post(f"/v1/pings/{job.id}/{of_run}")).status_code == 404
    assert token not in shown_path(path) + shown_path(f"{path}/start")
    refused = await world.http.get(f"/v1/jobs/{other.id}/ping")
    assert (refused.status_code, refused.json()["code"]) == (409, "E_NOT_WATCHED")


@pytest.mark.parametrize(
    ("tail", "params", "code"),
    [
        ("/begin", {}, "E_ENUM"), ("", {"state": "x"}, "E_ENUM"), ("", {"exit_code": "many"}, "E_TYPE"),
        ("", {"exit_code": 4000}, "E_RANGE"), ("", {"seconds": "-1"}, "E_RANGE"), ("", {"seconds": "nan"}, "E_RANGE"),
        ("", {"at": "soon"}, ""), ("", {"when": "now"}, "E_UNKNOWN_PARAM"),
    ],
)  # fmt: skip
async def test_a_ping_that_makes_no_sense_is_refused_and_makes_nothing(
    world: World, tail: str, params: dict[str, Any], code: str
) -> None:
    job, path = await watch(world)
    answer = await world.http.post(f"{path}{tail}", params=params)
    assert answer.status_code == 422, answer.text
    assert code in answer.text
    assert await runs(world, job) == []


async def test_a_log_of_nothing_is_refused(world: World) -> None:
    _, path = await watch(world)
    assert (await world.http.post(f"{path}/log", content=b"x")).json()["code"] == "E_TERMINAL"


async def test_a_run_of_another_job_cannot_be_told(world: World) -> None:
    _, path = await watch(world)
    other = await world.queue_run()
    answer = await world.http.post(path, params={"run": other.id})
    assert (answer.status_code, answer.json()["code"]) == (409, "E_NOT_WATCHED")
    assert (await world.http.post(path, params={"run": 999})).status_code == 409


@pytest.mark.parametrize(
    "document", [{"watched": {}}, {"watched": {"grace": 0}}, {"watched": {"grace": "90d"}}, {"watched": 5},
                 {"watched": {"grace": "5m"}, "overlap": "forbid"}, {"watched": {"grace": "5m"}, "every": "agent"}]
)  # fmt: skip
def test_a_watch_that_makes_no_sense_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        parse_job({"name": "w", **document})
