"""Jobs that come after others, rule by rule, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from horae.core.model import SECOND, Moment, Reason, Run, RunFilter, State
from horae.core.runs.orders import Assignment, Result, Waiting
from horae.core.work.specs import parse_job, parse_jobs
from horae.errors import Conflict, Invalid
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.service.jobs import Jobs
from horae.service.policy.placing import Placing
from horae.service.workflows.dependencies import Dependencies
from horae.stores.postgres import PostgresStore
from horae.testing import FakeClock

from ..claiming import claim

FIRST = 60 * SECOND  # after the start: the first moment of every schedule here
STATES = {"success": State.SUCCEEDED, "failure": State.FAILED}


class World:
    """Jobs by their keys, moved by hand."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store, self.clock = store, clock
        self.jobs = Jobs(store, LocalQueue())
        self.dependencies = Dependencies(store, LocalQueue(), Placing(store, LocalQueue()))
        self.ids: dict[str, int] = {}
        self.held: dict[int, Assignment] = {}

    async def job(self, key: str, after: Any = None, *, every: str | None = "60s", **fields: Any) -> int:
        document = {"name": key, "key": key, "handler": "a:b", **fields}
        document |= {} if after is None else {"after": after}
        document |= {} if every is None else {"schedule": {"every": every}}
        made = await self.jobs.submit([parse_job(document)])
        self.ids[key] = made.jobs[0].id
        return self.ids[key]

    async def fire(self, *keys: str) -> Moment:
        """Fire the moment that is due, of each."""
        for key in keys:
            job = await self.jobs.get(self.ids[key])
            try:
                await self.jobs.fire_due(job.id)
            except Conflict as error:
                assert "nothing of job" not in error.message  # noqa: PT017
        return self.clock.now()

    async def run_now(self, key: str) -> Run:
        return await self.jobs.run_now(self.ids[key])

    async def act(self) -> None:
        """Act on the outbox until it is empty."""
        for _ in range(50):
            rows = await self.store.load_endings(0, 1000)
            if not rows:
                return
            await self.dependencies.act(rows)
        raise AssertionError(f"it goes on for ever: {rows}")

    async def start(self) -> None:
        for given in await claim(self.store, "n1", "python", [], 100):
            self.held[given.job_id] = given

    async def end(self, key: str, state: State = State.SUCCEEDED, result: str | None = None) -> None:
        """End the run of a job that is queued or running; act on it."""
        await self.start()
        given = self.held.pop(self.ids[key])
        await self.store.finish([Result(given.run_id, given.fence, state, finished_at=self.clock.now(), result=result)])
        await self.act()

    async def runs(self, key: str) -> list[Run]:
        found = (await self.store.list_runs(RunFilter(self.ids[key]), None, 100)).items
        return sorted(found, key=lambda run: run.id)

    async def run(self, key: str) -> Run:
        [run] = await self.runs(key)
        return run


@pytest.fixture
async def world(store: Store, clock: FakeClock) -> World:
    return World(store, clock)


def stands(run: Run) -> tuple[State, str]:
    return run.state, run.reason


WAITS = State.BLOCKED, Reason.DEPENDENCY
SKIPPED = State.SKIPPED, Reason.DEPENDENCY
QUEUED = State.QUEUED, ""


async def pair(world: World, on: str = "success", moment: str = "same", **fields: Any) -> None:
    """Two jobs with the same moments, of which one comes after the other."""
    await world.job("extract", **fields)
    await world.job("load", [{"job": "extract", "on": on, "moment": moment}])
    world.clock.advance(60)


# ── same moment ──


async def test_a_run_waits_for_its_predecessor_and_says_for_what(world: World):
    await pair(world)
    await world.fire("load")
    await world.act()
    run = await world.run("load")
    assert stands(run) == WAITS
    assert run.message.startswith("waits for extract, due 20")
    assert "still to come" in run.message

    await world.fire("extract")
    await world.act()
    extract = await world.run("extract")
    await world.start()
    await world.dependencies.act([])
    assert stands(await world.run("load")) == WAITS

    await world.end("extract")
    assert stands(await world.run("load")) == QUEUED
    assert (await world.run("load")).data["after"]["extract"]["run"] == extract.id


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED])
@pytest.mark.parametrize("on", ["success", "failure", "end"])
@pytest.mark.parametrize("moment", ["same", "latest"])
async def test_how_the_predecessor_ended_decides(world: World, on: str, moment: str, state: State):
    await pair(world, on, moment)
    await world.fire("extract", "load")
    await world.act()
    assert stands(await world.run("load")) == WAITS
    await world.end("extract", state)
    goes = {"success": state is State.SUCCEEDED, "failure": state is not State.SUCCEEDED, "end": True}[on]
    run = await world.run("load")
    assert stands(run) == (QUEUED if goes else SKIPPED)
    if not goes:
        assert run.message.startswith(f"comes after the {on} of ")
        assert f"run {(await world.run('extract')).id}" in run.message


async def test_what_waits_names_the_run_and_its_state(world: World):
    await pair(world)
    await world.fire("extract", "load")
    await world.act()
    extract = await world.run("extract")
    assert f"which is queued: run {extract.id}" in (await world.run("load")).message


@pytest.mark.parametrize(("on", "goes"), [("success", False), ("failure", False), ("end", True)])
async def test_a_skipped_predecessor_counts_as_an_end_only(world: World, on: str, goes: bool):
    await world.job("extract")
    await world.job("load", [{"job": "extract", "on": on}])
    await world.run_now("extract")  # holds the gate, so that the moment is skipped(overlap)
    world.clock.advance(60)
    await world.fire("extract", "load")
    await world.act()
    assert stands(await world.run("load")) == (QUEUED if goes else SKIPPED)


async def test_of_a_coalesced_predecessor_the_run_that_stands_for_it_counts(world: World):
    await world.job("extract")
    await world.job("load", ["extract"], misfire={"policy": "run_all", "limit": 10}, overlap="allow")
    world.clock.advance(180)
    await world.fire("load", "load", "load")
    await world.act()
    await world.fire("extract")  # three moments, of which two are coalesced into the last
    await world.act()
    assert [stands(run) for run in await world.runs("load")] == [WAITS] * 3
    await world.end("extract", result='{"rows":7}')
    runs = await world.runs("load")
    assert [stands(run) for run in runs] == [QUEUED] * 3
    assert {run.data["after"]["extract"]["result"]["rows"] for run in runs} == {7}


async def test_a_cancelled_predecessor_counts_as_a_failure(world: World):
    await pair(world, "failure")
    await world.fire("extract", "load")
    await world.act()
    await world.jobs.cancel((await world.run("extract")).id)
    await world.act()
    assert stands(await world.run("load")) == QUEUED


async def test_a_predecessor_that_has_ended_before_counts(world: World):
    await pair(world)
    await world.fire("extract")
    await world.end("extract")
    await world.fire("load")
    await world.act()
    assert stands(await world.run("load")) == QUEUED


async def test_attempts_that_failed_do_not_count_and_the_end_does(world: World):
    await pair(world, retry=3)
    await world.fire("extract", "load")
    await world.start()
    given = world.held.pop(world.ids["extract"])
    failed = Result(given.run_id, given.fence, State.FAILED, finished_at=world.clock.now())
    await world.store.finish([], [Waiting(failed, world.clock.now())])
    await world.act()
    assert stands(await world.run("load")) == WAITS
    await world.store.sweep()
    await world.end("extract")
    assert stands(await world.run("load")) == QUEUED


async def test_who_has_no_such_moment_skips_the_run_that_waits_for_it(world: World):
    await world.job("extract", every="7m")
    await world.job("load", ["extract"])
    world.clock.advance(60)
    await world.fire("load")
    await world.act()
    run = await world.run("load")
    assert stands(run) == SKIPPED
    assert "has no run for" in run.message
    assert "moment: latest" in run.message


async def test_a_moment_that_is_passed_over_without_a_run_is_missed(world: World):
    await world.job("extract")
    await world.job("load", ["extract"])
    await world.jobs.set_paused(world.ids["extract"], True)
    world.clock.advance(60)
    await world.fire("load")
    await world.act()
    run = await world.run("load")
    assert stands(run) == SKIPPED
    assert "is paused" in run.message


async def test_who_waits_for_a_moment_that_is_taken_away_is_skipped(world: World):
    await world.job("extract")
    await world.job("load", ["extract"])
    world.clock.advance(60)
    await world.fire("load")
    await world.act()
    assert stands(await world.run("load")) == WAITS
    extract = world.ids["extract"]
    await world.store.delete_job(extract)  # without firing what is due, as a store that lost it
    await world.act()
    run = await world.run("load")
    assert stands(run) == SKIPPED
    assert "was deleted" in run.message


async def test_a_change_of_the_job_itself_lets_its_runs_go(world: World):
    await pair(world)
    await world.fire("extract", "load")
    await world.act()
    assert stands(await world.run("load")) == WAITS
    await world.job("load", None)
    await world.act()
    assert stands(await world.run("load")) == QUEUED


# ── the latest ──


async def test_the_latest_run_counts_whatever_its_moment_is(world: World):
    await world.job("extract", every="45s")
    await world.job("load", [{"job": "extract", "moment": "latest"}])
    world.clock.advance(45)
    await world.fire("extract")
    await world.end("extract", result='"old"')
    world.clock.advance(15)
    await world.fire("load")
    await world.act()
    run = await world.run("load")
    assert stands(run) == QUEUED
    assert run.data["after"]["extract"]["result"] == "old"


async def test_the_latest_run_is_the_one_that_was_there_when_the_follower_was_made(world: World):
    await world.job("extract", overlap="allow", every=None)
    await world.job("load", [{"job": "extract", "moment": "latest"}])
    first = await world.run_now("extract")
    world.clock.advance(60)
    await world.fire("load")
    await world.act()
    await world.run_now("extract")  # a newer one: nobody waits for that
    await world.act()
    assert f"run {first.id}" in (await world.run("load")).message
    [one, _] = sorted(await claim(world.store, "n1", "python", [], 2), key=lambda given: given.run_id)
    await world.store.finish([Result(one.run_id, one.fence, State.SUCCEEDED, finished_at=world.clock.now())])
    await world.act()
    assert stands(await world.run("load")) == QUEUED


async def test_the_first_run_is_waited_for_where_there_was_none(world: World):
    await world.job("extract", every=None)
    await world.job("load", [{"job": "extract", "moment": "latest"}])
    world.clock.advance(60)
    await world.fire("load")
    await world.act()
    assert stands(await world.run("load")) == WAITS
    await world.run_now("extract")
    await world.end("extract")
    assert stands(await world.run("load")) == QUEUED


async def test_a_run_by_hand_takes_the_latest(world: World):
    await pair(world)
    await world.fire("extract")
    await world.end("extract")
    world.clock.advance(5)
    await world.run_now("load")
    await world.act()
    assert stands(await world.run("load")) == QUEUED


# ── several ──


async def test_all_predecessors_must_agree(world: World):
    for key in "abc":
        await world.job(key)
    await world.job("all", ["a", {"job": "b", "on": "failure"}, {"job": "c", "on": "end"}])
    world.clock.advance(60)
    await world.fire("a", "b", "c", "all")
    await world.act()
    assert "; and for b" in (await world.run("all")).message
    await world.end("a")
    await world.end("c", State.FAILED)
    run = await world.run("all")
    assert stands(run) == WAITS
    assert run.message.startswith("waits for b,")
    await world.end("b", State.TIMED_OUT)
    run = await world.run("all")
    assert stands(run) == QUEUED
    assert {key: told["state"] for key, told in run.data["after"].items()} == {
        "a": "succeeded", "b": "timed_out", "c": "failed",
    }  # fmt: skip


async def test_one_that_cannot_agree_any_more_is_enough(world: World):
    for key in "ab":
        await world.job(key)
    await world.job("all", ["a", "b"])
    world.clock.advance(60)
    await world.fire("a", "b", "all")
    await world.end("a", State.FAILED)
    assert stands(await world.run("all")) == SKIPPED


async def test_a_chain_of_three_goes_or_is_skipped_to_its_end(world: World):
    await world.job("a")
    await world.job("b", ["a"])
    await world.job("c", ["b"])
    world.clock.advance(60)
    await world.fire("c", "b", "a")
    await world.act()
    for key in "abc":
        await world.end(key)
    world.clock.advance(60)
    await world.fire("a", "b", "c")
    await world.end("a", State.FAILED)
    assert [stands(runs[-1]) for runs in [await world.runs("b"), await world.runs("c")]] == [SKIPPED, SKIPPED]
    assert [len(await world.runs(key)) for key in "abc"] == [2, 2, 2]


# ── without triggers of one's own ──


async def test_the_end_of_a_predecessor_makes_a_run_for_its_moment(world: World):
    await world.job("extract")
    await world.job("load", ["extract"], every=None)
    world.clock.advance(60)
    await world.fire("extract")
    await world.act()
    assert await world.runs("load") == []
    await world.end("extract", result='{"rows":3}')
    run, extract = await world.run("load"), await world.run("extract")
    assert stands(run) == QUEUED
    assert (run.due_at, run.trigger_id) == (extract.due_at, None)
    assert run.data == {"after": {"extract": {"run": extract.id, "state": "succeeded", "result": {"rows": 3}}}}


async def test_a_predecessor_that_ended_otherwise_leaves_a_record(world: World):
    await world.job("extract")
    await world.job("load", ["extract"], every=None)
    world.clock.advance(60)
    await world.fire("extract")
    await world.end("extract", State.FAILED)
    run = await world.run("load")
    assert stands(run) == SKIPPED
    assert run.due_at == (await world.run("extract")).due_at


async def test_several_predecessors_make_one_run_for_a_moment(world: World):
    await world.job("a")
    await world.job("b")
    await world.job("both", ["a", "b"], every=None)
    world.clock.advance(60)
    await world.fire("a", "b")
    await world.end("a")
    assert stands(await world.run("both")) == WAITS
    await world.end("b")
    assert stands(await world.run("both")) == QUEUED
    assert len(await world.runs("both")) == 1


async def test_a_diamond_without_triggers_waits_for_its_longer_side(world: World):
    await world.job("a")
    await world.job("left", ["a"], every=None)
    await world.job("right", ["a"], every=None)
    await world.job("further", ["right"], every=None)
    await world.job("join", ["left", "further"], every=None)
    world.clock.advance(60)
    await world.fire("a")
    await world.end("a")
    await world.end("left")
    run = await world.run("join")
    assert stands(run) == WAITS
    assert "further" in run.message
    await world.end("right")
    assert stands(await world.run("join")) == WAITS
    await world.end("further")
    assert stands(await world.run("join")) == QUEUED
    assert (await world.run("join")).due_at == (await world.run("a")).due_at


async def test_a_run_by_hand_of_a_predecessor_makes_one_too(world: World):
    await world.job("extract", every=None)
    await world.job("load", ["extract"], every=None)
    await world.job("report", ["load"], every=None)
    await world.run_now("extract")
    await world.end("extract")
    await world.end("load")
    assert stands(await world.run("report")) == QUEUED


async def test_a_run_by_hand_of_a_job_without_triggers_takes_the_latest(world: World):
    await world.job("extract", every=None)
    await world.job("load", ["extract"], every=None)
    await world.run_now("extract")
    await world.end("extract")
    await world.end("load")
    world.clock.advance(5)
    await world.run_now("load")
    await world.act()
    assert stands((await world.runs("load"))[-1]) == QUEUED


async def test_a_paused_follower_makes_nothing(world: World):
    await world.job("extract", every=None)
    await world.job("load", ["extract"], every=None)
    await world.jobs.set_paused(world.ids["load"], True)
    await world.run_now("extract")
    await world.end("extract")
    assert await world.runs("load") == []


async def test_overlap_holds_for_runs_that_ends_make(world: World):
    await world.job("extract", every=None, overlap="allow")
    await world.job("load", ["extract"], every=None)
    for _ in range(2):
        world.clock.advance(1)
        await world.run_now("extract")
        await world.end("extract")
    assert [stands(run) for run in await world.runs("load")] == [
        (State.RUNNING, ""), (State.SKIPPED, Reason.OVERLAP),
    ]  # fmt: skip


async def test_two_who_act_on_the_same_rows_make_one_run(world: World, postgres_url: str, clock: FakeClock):
    await world.job("a")
    await world.job("b")
    await world.job("both", [{"job": "a", "on": "end"}, {"job": "b", "on": "end"}], every=None)
    other = PostgresStore(postgres_url, clock=clock.now)
    await other.open()
    second = Dependencies(
        world.store if not isinstance(world.store, PostgresStore) else other, LocalQueue(), Placing(other, LocalQueue())
    )
    try:
        for _ in range(10):
            world.clock.advance(60)
            await world.fire("a", "b")
            await world.start()
            ends = [
                Result(given.run_id, given.fence, State.FAILED, finished_at=world.clock.now())
                for given in (world.held.pop(world.ids["a"]), world.held.pop(world.ids["b"]))
            ]
            await world.store.finish(ends)
            rows = await world.store.load_endings(0, 100)
            assert len(rows) == 2
            await asyncio.gather(world.dependencies.act(rows), second.act(list(reversed(rows))))
            rows = await world.store.load_endings(0, 100)
            await asyncio.gather(world.dependencies.act(rows), second.act(rows))
            await world.act()
            await world.end("both")
        runs = await world.runs("both")
        assert len(runs) == len({run.due_at for run in runs}) == 10
        assert {run.state for run in runs} == {State.SUCCEEDED}
    finally:
        await other.close()


# ── what runs know and hold ──


async def test_one_that_waits_holds_the_gate_and_is_nobody_s_to_claim(world: World):
    await pair(world)
    await world.fire("extract", "load")
    await world.act()
    await world.start()
    assert world.held.keys() == {world.ids["extract"]}
    with pytest.raises(KeyError):
        world.held.pop(world.ids["load"])
    assert stands(await world.run_now("load")) == (State.SKIPPED, Reason.OVERLAP)


async def test_the_start_deadline_bounds_the_wait_and_says_so(world: World):
    await world.job("extract")
    await world.job("load", ["extract"], start_deadline="10s")
    world.clock.advance(60)
    await world.fire("extract", "load")
    await world.act()
    world.clock.advance(11)
    await world.store.sweep()
    run = await world.run("load")
    assert stands(run) == (State.SKIPPED, Reason.START_DEADLINE)
    assert "waits for extract" in run.message


async def test_its_own_data_stays_beside_what_predecessors_said(world: World):
    await world.job("extract")
    await world.job("load", ["extract"], data={"mode": "full"})
    world.clock.advance(60)
    await world.fire("extract", "load")
    await world.end("extract", result="[1,2]")
    data = (await world.run("load")).data
    assert data["mode"] == "full"
    assert data["after"]["extract"]["result"] == [1, 2]


# ── submit ──


async def test_a_predecessor_knows_that_it_is_followed_and_its_version_moves_on(world: World):
    extract = await world.job("extract")
    before = await world.jobs.get(extract)
    await world.job("load", ["extract"])
    after = await world.jobs.get(extract)
    assert (before.followed, after.followed) == (False, True)
    assert after.version == before.version + 1
    assert [t.version for t in after.triggers] == [after.version]


async def test_a_run_under_way_when_the_follower_came_is_waited_for(world: World):
    await world.job("extract", every=None)
    await world.run_now("extract")
    await world.start()
    await world.job("load", ["extract"], every=None)
    await world.end("extract")
    assert stands(await world.run("load")) == QUEUED


async def test_nobody_is_followed_once_the_last_follower_is_gone(world: World):
    extract = await world.job("extract", every=None)
    load = await world.job("load", ["extract"], every=None)
    await world.jobs.delete(load)
    await world.act()
    await world.run_now("extract")
    await world.end("extract")
    assert not (await world.jobs.get(extract)).followed


async def test_jobs_that_come_together_may_come_after_each_other(world: World):
    document = {"jobs": [
        {"name": "b", "key": "b", "handler": "a:b", "after": ["a"]}, {"name": "a", "key": "a", "handler": "a:b"},
    ]}  # fmt: skip
    made = (await world.jobs.submit(parse_jobs(document))).jobs
    b, a = [await world.jobs.get(job.id) for job in made]
    assert [one.id for one in b.policy.after] == [a.id]
    assert a.followed
    again = (await world.jobs.submit(parse_jobs(document))).jobs
    assert [job.version for job in again] == [b.version, a.version]


async def test_a_predecessor_that_is_not_there_is_refused(world: World):
    await world.job("extract")
    with pytest.raises(Invalid) as raised:
        await world.job("load", ["extrakt"])
    [problem] = raised.value.listed()
    assert (problem.path, problem.code) == ("after[0]", "E_NOT_FOUND")
    with pytest.raises(Invalid):
        await world.job("load", [99])


async def test_a_cycle_is_refused_with_its_path(world: World):
    await world.job("a")
    await world.job("b", ["a"])
    await world.job("c", ["b"])
    with pytest.raises(Invalid) as raised:
        await world.job("a", ["c"])
    assert raised.value.code == "E_CYCLE"
    assert "a after c after b after a" in raised.value.message
    with pytest.raises(Invalid) as raised:
        await world.job("d", ["d"])
    assert raised.value.code == "E_CYCLE"


async def test_two_halves_of_a_cycle_at_once_are_not_both_taken(world: World):
    keys = "abcdef"
    for key in keys:
        await world.job(key)
    rounds = [
        world.job(key, [keys[(number + 1) % len(keys)]]) for number, key in enumerate(keys)
    ]  # fmt: skip
    answers = await asyncio.gather(*rounds, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, Invalid)]
    assert refused
    assert all(error.code == "E_CYCLE" for error in refused)
    assert all(isinstance(answer, int | Invalid) for answer in answers)
