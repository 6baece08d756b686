"""Workflows from their document to their end, driven by hand, on both stores: a test per rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from horae.core.model import Job, JobFilter, Json, Node, Reason, Run, RunFilter, State
from horae.core.runs.orders import Assignment, Result
from horae.core.work import specs
from horae.core.work.kinds import EVERY, WORKFLOW
from horae.errors import Conflict, Invalid, Unavailable
from horae.service.execution import Execution, LocalLink
from horae.service.jobs import Jobs
from horae.service.jobs.orders import ANYBODY
from horae.service.policy.placing import Placing
from horae.service.secrets.sealing import Sealing
from horae.service.workflows.driver import Driver
from horae.service.workflows.flows import Workflows
from horae.service.workflows.outbox import Outbox
from horae.service.workflows.parts import Parts
from horae.testing import FakeClock

from .parts import BOTH, Probe, Told

pytestmark = BOTH

ROUNDS = 200  # after which it is going in circles

Act = Callable[[Any], Any]  # data of a task → its result; an exception is a failure


class Scene:
    """A server and an agent that are driven by hand."""

    def __init__(self, probe: Probe, queue: Told, execution: Execution, jobs: Jobs) -> None:
        self.probe, self.queue, self.execution, self.jobs = probe, queue, execution, jobs
        self.link = LocalLink(execution, probe, queue)
        self.driver = self.another()
        self.ran: list[str] = []

    def another(self, link: LocalLink | None = None) -> Driver:
        """Another server."""
        parts = Parts(self.probe, Sealing(self.probe))
        flows = Workflows(self.probe, self.queue, Placing(self.probe, self.queue), parts)
        begins = dict.fromkeys((WORKFLOW, EVERY), flows.begin)
        own = link or self.link
        return Driver(own, Outbox(self.probe, flows), begins, own.beside)

    async def submit(self, tasks: Json | None = None, **fields: Any) -> Job:
        document = {"name": "w", "key": "w", **fields, **({"tasks": tasks} if tasks is not None else {})}
        return (await self.jobs.submit([specs.parse_job(document)])).jobs[0]

    async def begin(self, tasks: Json, *, data: Json | None = None, **fields: Any) -> int:
        """Return the run of a workflow whose first tasks are made."""
        job = await self.submit(tasks, **fields)
        run = await self.jobs.run_now(job.id, data=data)
        await self.settle()
        return run.id

    async def settle(self) -> None:
        """Let the server do all there is to do."""
        for _ in range(ROUNDS):
            before = self.probe.calls["move_flows"] + self.probe.calls["drop_endings"]
            more = await self.driver.step()
            if not more and self.probe.calls["move_flows"] + self.probe.calls["drop_endings"] == before:
                return
        raise AssertionError("it never comes to rest")

    async def claim(self, room: int = 10_000, node: str = "a1") -> list[Assignment]:
        agent = Node(node, ("agent",), ("python",), (), room, "1", "", 0, 0, 0)
        return await self.execution.claim(agent, {"python": room})

    async def work(self, acts: Mapping[str, Act] | None = None, room: int = 10_000) -> None:
        """Let an agent do all that is queued, and the server whatever comes of it, until nothing is left."""
        for _ in range(ROUNDS):
            claimed = await self.claim(room)
            if not claimed:
                return
            await self.execution.finish([self._do(a, acts or {}) for a in claimed])
            await self.settle()
        raise AssertionError("it never comes to rest")

    def _do(self, a: Assignment, acts: Mapping[str, Act]) -> Result:
        handler = json.loads(a.spec)["handler"].rpartition(":")[2]
        self.ran.append(handler)
        try:
            act = acts.get(handler)
            given = act(json.loads(a.data or "null")) if act else None
        except Exception as error:
            return Result(a.run_id, a.fence, State.FAILED, Reason.ERROR, message=str(error))
        return Result(a.run_id, a.fence, State.SUCCEEDED, result=None if given is None else json.dumps(given))

    async def run(self, run_id: int) -> Run:
        run = await self.probe.get_run(run_id)
        assert run is not None
        return run

    async def tasks(self, run_id: int) -> dict[str, Run]:
        page = await self.jobs.list_runs(RunFilter(parent_id=run_id), limit=1000)
        return {run.task: run for run in page.items}

    async def states(self, run_id: int) -> dict[str, str]:
        return {name: run.state.word for name, run in sorted((await self.tasks(run_id)).items())}


@pytest.fixture
async def scene(probe: Probe, queue: Told, execution: Execution, jobs: Jobs, clock: FakeClock) -> Scene:
    scene = Scene(probe, queue, execution, jobs)
    server = Node("s1", ("scheduler",), (), (), 0, "1", "", clock.now(), clock.now(), 0)
    await scene.link.hello(server)
    return scene


def task(handler: str, **fields: Any) -> Json:
    return {"handler": f"m:{handler}", **fields}


def broken(_: Any) -> None:
    raise ValueError("broken")


# ── order ──


async def test_a_sequence_runs_one_after_the_other_and_gives_results_on(scene: Scene):
    run_id = await scene.begin(
        {"a": task("a"), "b": task("b", needs=["a"], data={"from": "${a.result.n}"})}, returns="${b.result}"
    )
    assert await scene.states(run_id) == {"a": "queued"}
    run = await scene.run(run_id)
    assert (run.state, run.reason) == (State.BLOCKED, Reason.CHILDREN)
    await scene.work({"a": lambda _: {"n": 7}, "b": lambda data: data})
    run = await scene.run(run_id)
    assert (run.state, run.result) == (State.SUCCEEDED, {"from": 7})
    assert scene.ran == ["a", "b"]


async def test_tasks_without_needs_begin_together(scene: Scene):
    run_id = await scene.begin({"a": task("a"), "b": task("b"), "c": task("c", needs=["a", "b"])})
    assert await scene.states(run_id) == {"a": "queued", "b": "queued"}
    await scene.work()
    assert await scene.states(run_id) == dict.fromkeys("abc", "succeeded")


async def test_a_fan_out_over_what_a_task_returned_and_the_fan_in_after_it(scene: Scene):
    run_id = await scene.begin(
        {
            "list": task("list"),
            "each": task("each", needs=["list"], for_each="${list.result}", data={"x": "${item}", "n": "${index}"}),
            "sum": task("sum", needs=["each"], data={"all": "${each.results}"}),
        },
        returns="${sum.result}",
    )
    await scene.work({
        "list": lambda _: [3, 4, 5], "each": lambda data: data["x"] * 10 + data["n"],
        "sum": lambda data: sum(data["all"]),
    })  # fmt: skip
    assert (await scene.run(run_id)).result == 30 + 41 + 52
    assert [name for name in await scene.states(run_id) if name.startswith("each")] == ["each[0]", "each[1]", "each[2]"]


async def test_a_fan_out_over_nothing_succeeds(scene: Scene):
    run_id = await scene.begin({"each": task("each", for_each=[]), "then": task("then", needs=["each"])})
    await scene.work()
    assert await scene.states(run_id) == {"then": "succeeded"}


async def test_at_once_bounds_a_fan_out(scene: Scene):
    run_id = await scene.begin({"each": task("each", for_each=list(range(5)), at_once=2)})
    assert len(await scene.states(run_id)) == 2
    [first, _] = await scene.claim(2)
    await scene.execution.finish([Result(first.run_id, first.fence, State.SUCCEEDED)])
    await scene.settle()
    states = await scene.states(run_id)
    assert sorted(states.values()) == ["queued", "running", "succeeded"]


# ── conditions and failures ──


async def test_a_condition_that_does_not_hold_skips_the_task_and_what_needs_it(scene: Scene):
    run_id = await scene.begin(
        {"a": task("a"), "b": task("b", needs=["a"], **{"if": "a.result > 5"}), "c": task("c", needs=["b"])}
    )
    await scene.work({"a": lambda _: 3})
    assert await scene.states(run_id) == {"a": "succeeded", "b": "skipped", "c": "skipped"}
    tasks = await scene.tasks(run_id)
    assert (tasks["c"].reason, tasks["c"].message) == (
        Reason.DEPENDENCY, "it needs the success of b, which was skipped",
    )  # fmt: skip
    assert (await scene.run(run_id)).state is State.SUCCEEDED


async def test_a_failure_takes_the_branch_for_failures_and_the_workflow_fails(scene: Scene):
    run_id = await scene.begin({
        "a": task("a"), "b": task("b", needs=["a"]), "clean": task("clean", needs=[{"task": "a", "on": "failure"}]),
        "other": task("other"),
    })  # fmt: skip
    await scene.work({"a": broken})
    states = {"a": "failed", "b": "skipped", "clean": "succeeded", "other": "succeeded"}
    assert await scene.states(run_id) == states
    run = await scene.run(run_id)
    assert (run.state, run.reason, run.message) == (State.FAILED, Reason.CHILDREN, "a task failed: a")


async def test_a_task_that_may_fail_holds_nobody_up(scene: Scene):
    run_id = await scene.begin({"a": task("a", may_fail=True), "b": task("b", needs=["a"])})
    await scene.work({"a": broken})
    assert await scene.states(run_id) == {"a": "failed", "b": "succeeded"}
    assert (await scene.run(run_id)).state is State.SUCCEEDED


async def test_a_task_is_retried_by_its_own_policy(scene: Scene):
    run_id = await scene.begin({"a": task("a", retry={"attempts": 2})})
    await scene.work({"a": broken})
    assert await scene.states(run_id) == {"a": "blocked"}
    assert (await scene.run(run_id)).state is State.BLOCKED


# ── jobs of their own ──


async def test_a_task_may_be_a_job_of_its_own_by_its_key(scene: Scene):
    [own] = (await scene.jobs.submit([specs.parse_job({"name": "own", "key": "own", "handler": "m:own"})])).jobs
    run_id = await scene.begin({"a": {"job": "own", "data": {"x": 1}}})
    assert (await scene.tasks(run_id))["a"].job_id == own.id
    await scene.work({"own": lambda data: data})
    assert (await scene.run(run_id)).state is State.SUCCEEDED
    assert (await scene.jobs.standing([own.id]))[own.id].latest is None, "a task is no run of the job's own"
    assert [run.id for run in (await scene.jobs.list_runs(RunFilter(job_id=own.id))).items] == []


@pytest.mark.parametrize("job", ["nobody", 999])
async def test_a_task_whose_job_is_not_there_fails_with_a_sentence(scene: Scene, job: Any):
    run_id = await scene.begin(
        {"a": {"job": job}, "b": task("b", needs=["a"]), "c": task("c", needs=[{"task": "a", "on": "failure"}])}
    )
    assert await scene.states(run_id) == {"a": "failed", "b": "skipped", "c": "queued"}
    assert "there is no job" in (await scene.tasks(run_id))["a"].message
    await scene.work()
    assert (await scene.run(run_id)).state is State.FAILED


async def test_a_task_whose_job_was_deleted_meanwhile_fails(scene: Scene):
    [own] = (await scene.jobs.submit([specs.parse_job({"name": "own", "key": "own", "handler": "m:own"})])).jobs
    run_id = await scene.begin({"a": task("a"), "b": {"needs": ["a"], "job": "own"}})
    await scene.jobs.delete(own.id)
    await scene.work()
    assert await scene.states(run_id) == {"a": "succeeded", "b": "failed"}


async def test_a_workflow_inside_a_workflow(scene: Scene):
    inner = {"tasks": {"x": task("x"), "y": task("y", needs=["x"])}, "returns": "${y.result}"}
    then = task("then", needs=["first"], data={"v": "${first.result}"})
    run_id = await scene.begin({"first": inner, "then": then}, returns="${then.result}")
    await scene.work({"y": lambda _: 5, "then": lambda data: data["v"]})
    assert (await scene.run(run_id)).result == 5
    assert scene.ran == ["x", "y", "then"]


# ── what people see ──


async def test_tasks_written_in_a_workflow_are_no_jobs_of_their_own_to_anybody(scene: Scene):
    run_id = await scene.begin({"a": task("a")})
    await scene.work()
    assert [job.name for job in (await scene.jobs.list(JobFilter())).items] == ["w"]
    assert (await scene.jobs.search(JobFilter(), (), 0, 10)).total == 1
    assert (await scene.probe.census()).jobs == 1
    assert [run.id for run in (await scene.jobs.list_runs(RunFilter())).items] == [run_id]
    assert len((await scene.jobs.list_runs(RunFilter(tasks=True))).items) == 2
    assert (await scene.jobs.search_tries(RunFilter(), (), 0, 10)).total == 1


async def test_the_jobs_of_tasks_are_made_once_and_go_with_the_workflow(scene: Scene):
    run_id = await scene.begin({"a": task("a")})
    await scene.work()
    part = (await scene.tasks(run_id))["a"].job_id
    again = (await scene.jobs.run_now((await scene.run(run_id)).job_id)).id
    await scene.settle()
    assert (await scene.tasks(again))["a"].job_id == part
    await scene.jobs.delete((await scene.run(run_id)).job_id)
    job = await scene.probe.get_job(part)
    assert job is not None
    assert job.deleted_at is not None


async def test_an_edit_does_not_mix_into_a_run_that_goes_on(scene: Scene):
    run_id = await scene.begin({"a": task("a"), "b": task("old", needs=["a"])})
    await scene.submit({"a": task("a"), "b": task("new", needs=["a"]), "c": task("c")})
    await scene.work()
    assert scene.ran == ["a", "old"]
    assert await scene.states(run_id) == {"a": "succeeded", "b": "succeeded"}
    run = await scene.jobs.run_now((await scene.run(run_id)).job_id)
    await scene.settle()
    await scene.work()
    assert sorted(scene.ran[2:]) == ["a", "c", "new"]
    assert (await scene.run(run.id)).state is State.SUCCEEDED


async def test_tasks_have_the_priority_of_their_workflow_unless_they_say_otherwise(scene: Scene):
    run_id = await scene.begin({"a": task("a"), "b": task("b", priority=2)}, priority=8)
    tasks = await scene.tasks(run_id)
    assert (tasks["a"].priority, tasks["b"].priority) == (8, 2)


# ── cancelling and timeouts ──


async def test_a_cancelled_workflow_ends_when_its_last_task_has(scene: Scene):
    run_id = await scene.begin({"a": task("a"), "b": task("b"), "c": task("c", needs=["a"])})
    [running] = await scene.claim(1)
    await scene.jobs.cancel(run_id)
    await scene.settle()
    run = await scene.run(run_id)
    assert (run.state, run.cancel_requested) == (State.BLOCKED, True)
    assert sorted((await scene.states(run_id)).values()) == ["cancelled", "running"]
    await scene.execution.finish([Result(running.run_id, running.fence, State.CANCELLED)])
    await scene.settle()
    run = await scene.run(run_id)
    assert (run.state, run.reason) == (State.CANCELLED, Reason.REQUESTED)
    assert "c" not in await scene.states(run_id), "nothing new is made"


async def test_a_cancel_reaches_workflows_inside(scene: Scene):
    run_id = await scene.begin({"inner": {"tasks": {"x": task("x")}}})
    await scene.jobs.cancel(run_id)
    await scene.settle()
    assert (await scene.run(run_id)).state is State.CANCELLED
    assert await scene.states(run_id) == {"inner": "cancelled"}
    assert await scene.claim() == []


async def test_a_workflow_that_waits_to_begin_is_cancelled_at_once(scene: Scene):
    job = await scene.submit({"a": task("a")})
    run = await scene.jobs.run_now(job.id)
    assert (await scene.jobs.cancel(run.id)).state is State.CANCELLED


async def test_a_workflow_that_takes_too_long_times_out_with_its_tasks(scene: Scene, clock: FakeClock):
    run_id = await scene.begin({"a": task("a")}, timeout="10s")
    clock.advance(11)
    assert (await scene.probe.sweep()).noted
    await scene.settle()
    run = await scene.run(run_id)
    assert (run.state, run.reason) == (State.TIMED_OUT, Reason.TIMEOUT)
    assert await scene.states(run_id) == {"a": "cancelled"}


async def test_a_deleted_workflow_ends_with_its_tasks(scene: Scene):
    run_id = await scene.begin({"a": task("a")})
    await scene.jobs.delete((await scene.run(run_id)).job_id)
    await scene.settle()
    run = await scene.run(run_id)
    assert (run.state, run.reason) == (State.CANCELLED, Reason.DELETED)


# ── going on from where it failed ──


async def test_a_retry_does_only_what_did_not_succeed(scene: Scene):
    run_id = await scene.begin(
        {
            "a": task("a"), "left": task("left", needs=["a"]), "right": task("right", needs=["a"]),
            "end": task("end", needs=["left", "right"], data={"v": "${left.result}"}),
        },
        returns="${end.result}",
    )  # fmt: skip
    await scene.work({"left": lambda _: 5, "right": broken})
    assert (await scene.run(run_id)).state is State.FAILED
    scene.ran.clear()
    again = await scene.jobs.workflows.retry(run_id, ANYBODY)
    await scene.settle()
    await scene.work({"end": lambda data: data["v"]})
    assert scene.ran == ["right", "end"]
    run = await scene.run(again.id)
    assert (run.state, run.result) == (State.SUCCEEDED, 5)
    assert (await scene.run(run_id)).state is State.FAILED, "what has ended never changes"


async def test_a_retry_of_a_retry_takes_over_what_that_took_over(scene: Scene):
    run_id = await scene.begin({"a": task("a"), "b": task("b", needs=["a"])})
    await scene.work({"b": broken})
    second = await scene.jobs.workflows.retry(run_id, ANYBODY)
    await scene.settle()
    await scene.work({"b": broken})
    scene.ran.clear()
    third = await scene.jobs.workflows.retry(second.id, ANYBODY)
    await scene.settle()
    await scene.work()
    assert scene.ran == ["b"]
    assert (await scene.run(third.id)).state is State.SUCCEEDED


async def test_a_retry_of_a_fan_out_does_the_failed_items(scene: Scene):
    def act(data: Any) -> int:
        if data["x"] == 1:
            raise ValueError
        return int(data["x"])

    run_id = await scene.begin(
        {"each": task("each", for_each=[0, 1, 2], data={"x": "${item}"})}, returns="${each.results}"
    )
    await scene.work({"each": act})
    scene.ran.clear()
    again = await scene.jobs.workflows.retry(run_id, ANYBODY)
    await scene.settle()
    await scene.work({"each": lambda _: 9})
    assert scene.ran == ["each"]
    assert (await scene.run(again.id)).result == [0, 9, 2]


async def test_only_a_workflow_that_ended_without_success_can_be_retried(scene: Scene):
    run_id = await scene.begin({"a": task("a")})
    with pytest.raises(Conflict, match="has not ended"):
        await scene.jobs.workflows.retry(run_id, ANYBODY)
    await scene.work()
    with pytest.raises(Conflict, match="has succeeded"):
        await scene.jobs.workflows.retry(run_id, ANYBODY)
    with pytest.raises(Conflict, match="no workflow"):
        await scene.jobs.workflows.retry((await scene.tasks(run_id))["a"].id, ANYBODY)


# ── two servers, and servers that die ──


async def test_two_servers_that_move_a_workflow_at_once_make_each_task_once(scene: Scene):
    run_id = await scene.begin({"a": task("a"), "b": task("b", needs=["a"])})
    [given] = await scene.claim()
    await scene.execution.finish([Result(given.run_id, given.fence, State.SUCCEEDED)])
    other = scene.another()

    async def meanwhile(*_: Any) -> None:
        await other.step()

    scene.probe.before("move_flows", meanwhile)
    await scene.settle()
    assert await scene.states(run_id) == {"a": "succeeded", "b": "queued"}
    assert await scene.probe.load_endings(0, 10) == []


async def test_a_server_that_dies_between_claim_and_beginning_loses_nothing(scene: Scene):
    job = await scene.submit({"a": task("a")})
    run = await scene.jobs.run_now(job.id)
    claimed = await scene.link.claim({WORKFLOW: 10})
    assert [a.run_id for a in claimed] == [run.id]
    await scene.execution.take_back("s1", {a.run_id: a.fence for a in claimed})
    await scene.settle()
    assert await scene.states(run.id) == {"a": "queued"}
    assert (await scene.run(run.id)).lost == 1


async def test_a_claim_whose_answer_was_lost_is_given_back_by_a_server_without_an_agent(scene: Scene):
    job = await scene.submit({"a": task("a")})
    run = await scene.jobs.run_now(job.id)
    assert len(await scene.link.claim({WORKFLOW: 10})) == 1  # and the driver never hears of it

    for _ in range(2):
        await scene.driver.beat()

    assert (await scene.run(run.id)).state is not State.RUNNING
    await scene.settle()
    assert await scene.states(run.id) == {"a": "queued"}


async def test_a_step_whose_answer_is_lost_is_not_done_twice(scene: Scene):
    run_id = await scene.begin({"a": task("a"), "b": task("b", needs=["a"])})
    [given] = await scene.claim()
    await scene.execution.finish([Result(given.run_id, given.fence, State.SUCCEEDED)])
    scene.probe.lose_answer("move_flows")
    with pytest.raises(Unavailable):
        await scene.settle()
    await scene.settle()
    assert await scene.states(run_id) == {"a": "succeeded", "b": "queued"}


# ── what it costs ──


async def test_a_fan_out_of_a_thousand_is_a_few_calls(scene: Scene):
    scene.probe.calls.clear()
    run_id = await scene.begin({"each": task("each", for_each=list(range(1000)))})
    assert scene.probe.calls["move_flows"] == 1
    claimed = await scene.claim()
    assert len(claimed) == 1000
    await scene.execution.finish([Result(a.run_id, a.fence, State.SUCCEEDED) for a in claimed])
    scene.probe.calls.clear()
    await scene.settle()
    assert (await scene.run(run_id)).state is State.SUCCEEDED
    assert scene.probe.calls["move_flows"] == 1, "a thousand ends are one step"
    assert sum(scene.probe.calls.values()) < 20


async def test_a_thousand_waiting_tasks_are_cancelled_in_one_step(scene: Scene):
    run_id = await scene.begin({"each": task("each", for_each=list(range(1000)))})
    await scene.jobs.cancel(run_id)
    scene.probe.calls.clear()
    await scene.settle()
    assert (await scene.run(run_id)).state is State.CANCELLED
    assert scene.probe.calls["move_flows"] == 2, "one cancels them all, one ends the workflow"
    assert (await scene.probe.tally_tasks(run_id)).counts == {"each": {"cancelled": 1000}}


# ── every agent ──


async def agents(scene: Scene, *names: str, labels: tuple[str, ...] = ()) -> None:
    for name in names:
        await scene.probe.register_node(Node(name, ("agent",), ("python",), labels, 4, "1", "", 0, 0, 0))


async def test_every_agent_is_a_child_on_each_that_matches(scene: Scene):
    await agents(scene, "a1", "a2", labels=("gpu",))
    await agents(scene, "a3")
    job = await scene.submit(handler="m:h", every="agent", labels=["gpu"])
    run = await scene.jobs.run_now(job.id, data={"x": 1})
    assert run.kind == EVERY
    await scene.settle()
    tasks = await scene.tasks(run.id)
    assert {(name, each.pin) for name, each in tasks.items()} == {("agent[0]", "a1"), ("agent[1]", "a2")}
    assert await scene.claim(node="a3") == []
    done = []
    for node in ("a1", "a2"):
        agent = Node(node, ("agent",), ("python",), ("gpu",), 4, "1", "", 0, 0, 0)
        [given] = await scene.execution.claim(agent, {"python": 4})
        assert given.data == '{"x":1}'
        done.append(Result(given.run_id, given.fence, State.SUCCEEDED, result=f'"{node}"'))
    await scene.execution.finish(done)
    await scene.settle()
    ended = await scene.run(run.id)
    assert (ended.state, ended.result) == (State.SUCCEEDED, {"a1": "a1", "a2": "a2"})


async def test_the_children_on_agents_are_shown_as_tasks_by_the_names_of_these(scene: Scene):
    await agents(scene, "a1", "a2")
    job = await scene.submit(handler="m:h", every="agent")
    run = await scene.jobs.run_now(job.id)
    assert await scene.jobs.tasks.of_run(await scene.run(run.id)) is None
    await scene.settle()
    [given] = await scene.claim(node="a2")
    await scene.execution.finish([Result(given.run_id, given.fence, State.SUCCEEDED)])

    shown = await scene.jobs.tasks.of_run(await scene.run(run.id))

    assert shown is not None
    spec, tally = shown
    assert spec == {"tasks": {"a1": {"kind": "python"}, "a2": {"kind": "python"}}}
    assert tally.counts == {"a1": {"queued": 1}, "a2": {"succeeded": 1}}


async def test_every_agent_fails_where_there_is_none(scene: Scene):
    job = await scene.submit(handler="m:h", every="agent")
    run = await scene.jobs.run_now(job.id)
    await scene.settle()
    ended = await scene.run(run.id)
    assert (ended.state, ended.reason) == (State.FAILED, Reason.NO_AGENT)


async def test_every_agent_fails_if_one_does_and_says_which(scene: Scene):
    await agents(scene, "a1", "a2")
    run_id = await scene.begin({"all": task("h", every="agent")})
    [inner] = (await scene.tasks(run_id)).values()
    for node, state in (("a1", State.SUCCEEDED), ("a2", State.FAILED)):
        [given] = await scene.claim(node=node)
        await scene.execution.finish([Result(given.run_id, given.fence, state)])
        await scene.settle()
    ended = await scene.run(inner.id)
    assert (ended.state, ended.message) == (State.FAILED, "it did not succeed on a2")
    assert (await scene.run(run_id)).state is State.FAILED


async def test_the_job_of_a_task_changes_with_its_workflow_alone(scene: Scene):
    run_id = await scene.begin({"a": task("a")})
    part = (await scene.tasks(run_id))["a"].job_id
    with pytest.raises(Conflict, match="written in job"):
        await scene.jobs.set_paused(part, True)
    with pytest.raises(Conflict, match="written in job"):
        await scene.jobs.delete(part)


async def test_an_item_that_ends_while_others_go_on_is_not_looked_at_further(scene: Scene):
    await scene.begin({"each": task("each", for_each=list(range(10)))})
    claimed = await scene.claim()
    scene.probe.calls.clear()
    await scene.execution.finish([Result(claimed[0].run_id, claimed[0].fence, State.SUCCEEDED)])
    await scene.settle()
    assert scene.probe.calls["load_tasks"] == 0
    assert await scene.probe.load_endings(0, 10) == []


async def test_a_task_that_names_a_queue_that_is_not_there_is_refused_at_its_path(scene: Scene):
    with pytest.raises(Invalid) as refused:
        await scene.submit({"a": {"tasks": {"b": task("b", queue="nowhere")}}})
    assert [problem.path for problem in refused.value.listed()] == ["tasks.a.tasks.b.queue"]


async def test_a_workflow_that_cannot_be_written_takes_no_other_with_it(scene: Scene):
    jobs = [await scene.submit({"a": task("a")}, key=key) for key in ("one", "two")]
    runs = [await scene.jobs.run_now(job.id) for job in jobs]
    move_flows = scene.probe.store.move_flows

    async def refuse(moves: Any) -> Any:
        if any(move.run_id == runs[0].id for move in moves):
            raise ValueError("a value that the store does not take")
        return await move_flows(moves)

    scene.probe.store.move_flows = refuse  # type: ignore[method-assign]
    await scene.settle()
    states = [(await scene.run(run.id)).state for run in runs]
    assert states == [State.FAILED, State.BLOCKED]
