"""What comes over a line never wedges it: a result that cannot be kept fails its own run, and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from horae import wire
from horae.core.model import SECOND, Policy, Reason, Retry, Run, State
from horae.core.runs.orders import Result
from horae.core.runs.results import MAX_CURSOR, MAX_MESSAGE, MAX_RESULT
from horae.ports.store import Store
from horae.service.agent.agent import Agent
from horae.service.execution import LocalLink
from horae.testing import START, FakeClock
from horae.wire.generated import agents_pb2 as pb

from ..nats_server import Nats
from ..unit.service.parts import draft
from ..unit.service.test_agent import Hands, Leash
from .test_links import DEADLINE, TERMS, Side, a_node, connected, hello

DEEP = "[" * 20_000 + "]" * 20_000
WORST: dict[str, tuple[dict[str, Any], str]] = {
    "a NUL in the result": ({"result": '"a\\u0000b"'}, "NUL"),
    "half a surrogate pair": ({"result": '"\\ud800"'}, "surrogate"),
    "a result that is no JSON": ({"result": "{"}, "not JSON"),
    "not a number": ({"result": "[NaN]"}, "not JSON"),
    "a result nested too deep": ({"result": DEEP}, "nested deeper"),
    "a result too large": ({"result": f'"{"x" * MAX_RESULT}"'}, "bytes of JSON"),
    "a cursor too large": ({"cursor": f'"{"x" * MAX_CURSOR}"'}, "cursor"),
    "a cursor with a NUL": ({"cursor": '{"value":"\\u0000"}'}, "cursor"),
    "an exit code of no process": ({"exit_code": 2**31 - 1}, "exit code"),
    "a success that failed": ({"exit_code": 1}, "exit code 1"),
}  # fmt: skip
ONLY_OF_STRANGERS: dict[str, tuple[dict[str, Any], str]] = {
    "a state that is no end": ({"state": 1}, "state"),
    "an unknown state": ({"state": 99}, "state"),
    "a reason of many words": ({"reason": "no reason \x07"}, "reason"),
    "a wait that is no number": ({"retry_after": float("nan")}, "retry_after"),
    "a wait for ever": ({"retry_after": float("inf")}, "retry_after"),
    "the output of another run": ({"output": "runs/0/9/1-1"}, "output"),
    "output out of the way": ({"output": "../../etc/passwd"}, "output"),
}  # fmt: skip


@pytest.fixture
def side(store: Store, clock: FakeClock, tmp_path: Path) -> Side:
    return Side(store, clock, tmp_path)


@pytest.fixture
def near(sqlite_store: Store, clock: FakeClock, tmp_path: Path) -> Side:
    return Side(sqlite_store, clock, tmp_path)


class Raw:
    """An agent that says what it likes."""

    def __init__(self, call: Any) -> None:
        self._call, self._number = call, 0
        self._hints: list[str] = []

    async def ask(self, **body: Any) -> pb.ServerFrame:
        self._number += 1
        await self._call.write(pb.AgentFrame(id=self._number, **body).SerializeToString())
        while True:
            answer = pb.ServerFrame.FromString(await self._call.read())
            if answer.id == self._number:
                return answer
            if answer.WhichOneof("body") == "hint":
                self._hints.append(answer.hint.topic)

    def hints(self, topic: str) -> int:
        """Return how often it was told of this, up to the last answer."""
        return self._hints.count(topic)

    async def finish(self, *results: pb.Result) -> list[int]:
        return list((await self.ask(finish=pb.Finish(results=results))).accepted.run_ids)


@asynccontextmanager
async def joined(address: str, **fields: Any) -> AsyncIterator[Raw]:
    async with grpc.aio.insecure_channel(address) as channel, asyncio.timeout(DEADLINE):
        raw = Raw(channel.stream_stream(wire.CONNECT)())
        await raw.ask(hello=hello(**{"slots": 20, **fields}))
        await raw.ask(join=pb.Join())
        yield raw


def said(run_id: int, **fields: Any) -> pb.Result:
    return pb.Result(**{"run_id": run_id, "fence": 1, "state": 10, "finished_at": START, **fields})


async def found(side: Side, run_id: int) -> Run:
    return await side.jobs.get_run(run_id)


@pytest.mark.parametrize("case", WORST | ONLY_OF_STRANGERS)
async def test_S44_a_bad_result_of_a_remote_agent_fails_its_run_and_the_rest_goes_through(side: Side, case: str):
    fields, words = (WORST | ONLY_OF_STRANGERS)[case]
    before, bad, after = await side.order(3)
    async with side.served() as address, joined(address) as raw:
        await raw.ask(claim=pb.Claim(kind="python", limit=3))
        assert await raw.finish(said(before), said(bad, **fields), said(after)) == [before, bad, after]
        assert (await raw.ask(beat=pb.Beat(busy=0))).WhichOneof("body") == "beat"  # the line lives

    assert [await side.state(run) for run in (before, after)] == [State.SUCCEEDED] * 2
    run = await found(side, bad)
    reason = Reason.EXIT if fields.get("exit_code") == 1 else Reason.BAD_RESULT
    assert (run.state, run.reason) == (State.FAILED, reason)
    assert words in run.message
    assert run.result is None


async def test_results_of_nobody_and_results_said_twice_are_passed_over(side: Side):
    (run_id,) = await side.order()
    async with side.served() as address, joined(address) as raw:
        await raw.ask(claim=pb.Claim(kind="python", limit=1))
        nobody = [said(0), said(-5), said(run_id, fence=0), said(run_id, fence=2**62), said(2**62)]
        assert await raw.finish(*nobody, said(run_id), said(run_id, state=11)) == [run_id]

    assert await side.state(run_id) is State.SUCCEEDED


FAR = {"far ahead": 2**62, "far behind": -(2**62), "none": None}


@pytest.mark.parametrize("case", FAR)
async def test_moments_that_cannot_be_are_those_of_the_server(side: Side, case: str):
    (run_id,) = await side.order()
    async with side.served() as address, joined(address) as raw:
        await raw.ask(claim=pb.Claim(kind="python", limit=1))
        assert await raw.finish(said(run_id, started_at=FAR[case], finished_at=FAR[case])) == [run_id]

    run = await found(side, run_id)
    assert (run.state, run.started_at, run.finished_at) == (State.SUCCEEDED, START, START)


async def test_an_attempt_by_a_clock_that_is_ahead_ended_when_it_was_told_and_took_as_long(side: Side):
    (run_id,) = await side.order()
    hour = 3600 * SECOND
    async with side.served() as address, joined(address) as raw:
        await raw.ask(claim=pb.Claim(kind="python", limit=1))
        side.clock.advance(30)
        await raw.finish(said(run_id, started_at=START + hour, finished_at=START + hour + 7 * SECOND))

    run = await found(side, run_id)
    assert (run.started_at, run.finished_at) == (START + 23 * SECOND, START + 30 * SECOND)


@pytest.mark.parametrize("days", [-400, 400])
async def test_the_wall_clock_of_a_server_says_nothing_about_an_attempt(
    store: Store, clock: FakeClock, tmp_path: Path, days: int
):
    side = Side(store, FakeClock(START + days * 86_400 * SECOND), tmp_path)
    (run_id,) = await side.order()
    async with side.served() as address, joined(address) as raw:
        await raw.ask(claim=pb.Claim(kind="python", limit=1))
        clock.advance(30)
        await raw.finish(said(run_id, started_at=START + 2 * SECOND, finished_at=START + 9 * SECOND))

    run = await found(side, run_id)
    assert (run.started_at, run.finished_at) == (START + 2 * SECOND, START + 9 * SECOND)


async def test_the_text_of_an_escape_is_only_a_text(side: Side):
    (run_id,) = await side.order()
    async with side.served() as address, joined(address) as raw:
        await raw.ask(claim=pb.Claim(kind="python", limit=1))
        await raw.finish(said(run_id, result='"\\\\u0000 \\\\ud800"'))

    run = await found(side, run_id)
    assert (run.state, run.result) == (State.SUCCEEDED, "\\u0000 \\ud800")


async def test_a_message_is_cut_and_cleaned_not_refused(side: Side):
    (run_id,) = await side.order()
    async with side.served() as address, joined(address) as raw:
        await raw.ask(claim=pb.Claim(kind="python", limit=1))
        await raw.finish(said(run_id, message="a\0b" + "x" * 100_000))

    run = await found(side, run_id)
    assert run.state is State.SUCCEEDED
    assert run.message.startswith("a\N{REPLACEMENT CHARACTER}bxxx")
    assert len(run.message) == MAX_MESSAGE


async def test_deep_progress_does_not_end_the_line(near: Side):
    (run_id,) = await near.order()
    async with near.served() as address, joined(address) as raw:
        await raw.ask(claim=pb.Claim(kind="python", limit=1))
        note = pb.ProgressOf(run_id=run_id, fence=1, progress="[" * 2000)
        assert (await raw.ask(note_progress=pb.NoteProgress(items=[note]))).WhichOneof("body") == "done"


async def given(raw: Raw, limit: int) -> list[int]:
    answer = await raw.ask(claim=pb.Claim(kind="python", limit=limit))
    return [one.run_id for one in answer.assignments.items]


async def test_an_agent_is_given_no_more_than_it_has_room_for(side: Side):
    """It may have as many again: their results are on the way, as far as the server knows."""
    await side.order(16)
    async with side.served() as address:
        async with joined(address, slots=4) as raw:
            first = await given(raw, 12)
            assert len(first) == 4
            assert len(await given(raw, 12)) == 4
            assert await given(raw, 12) == []
            await raw.finish(said(first[0]), said(first[1]))
            assert len(await given(raw, 12)) == 2
            await side.execution.take_back("raw", {first[2]: 1})  # it is told nothing of this
            assert await given(raw, 1) == []
            side.clock.advance(TERMS.heartbeat_seconds + 1)
            assert await given(raw, 1) == [first[2]]
        async with joined(address, node="large", slots=1, capacity={"python": 5}) as raw:
            assert len(await given(raw, 12)) == 5


async def test_an_agent_that_got_nothing_for_want_of_its_results_is_told_when_they_have_come(side: Side):
    """It does not ask again by itself: it believes that nothing waits."""
    await side.order(6)
    async with side.served() as address, joined(address, slots=2) as raw:
        first = await given(raw, 2)
        assert len(await given(raw, 2)) == 2  # those that ended are not reported yet
        assert await given(raw, 2) == []
        assert raw.hints("runs") == 0
        await raw.finish(*map(said, first))
        await raw.ask(beat=pb.Beat(busy=2))  # what was told before its answer has come
        assert raw.hints("runs") == 1
        assert len(await given(raw, 2)) == 2


# ── an agent, in the same process and elsewhere ──


class Telling(Hands):
    """An executor whose works end with what the test wants them to say."""

    def tell(self, run_id: int, **fields: Any) -> None:
        work = self.works.pop(run_id)
        given = {"started_at": work.started_at, "finished_at": self._clock.now(), **fields}
        self._done.pop(run_id)(Result(run_id, work.assignment.fence, State.SUCCEEDED, **given))


@asynccontextmanager
async def agent_at(side: Side, how: str, directory: Path) -> AsyncIterator[tuple[Agent, Telling]]:
    hands = Telling(side.clock, slots=20)
    rest = {"lease_seconds": 30.0, "output_limit": 1000}
    if how == "local":
        link = LocalLink(side.execution, side.store, side.queue)
        agent = Agent(a_node(), link, {"python": hands}, side.files, Leash(), side.clock, **rest)
        await agent.join()
        yield agent, hands
        return
    async with side.served() as address, connected(directory, address) as remote:
        agent = Agent(
            a_node(slots=20), remote.link, {"python": hands}, remote.spool, Leash(), side.clock, spool=remote.spool,
            **rest,
        )  # fmt: skip
        await agent.join()
        yield agent, hands


LOCAL: dict[str, tuple[dict[str, Any], str]] = {
    **WORST,
    "a real half of a pair": ({"result": '"\ud800"'}, "surrogate"),
    "a real NUL": ({"result": '"\0"'}, "not JSON"),
    "a number beyond all": ({"exit_code": 2**70}, "exit code"),
}  # fmt: skip


@pytest.mark.parametrize("how", ["local", "grpc", "nats"])
async def test_a_bad_result_is_a_failed_run_before_it_leaves_its_agent(
    side: Side, how: str, tmp_path: Path, request: pytest.FixtureRequest
):
    if how == "nats":
        broker: Nats = request.getfixturevalue("nats")
        side.broker = broker.url
    runs = await side.order(len(LOCAL) + 2)
    cases = dict(zip(LOCAL, runs[1:], strict=False))
    async with agent_at(side, how, tmp_path / "agent") as (agent, hands), asyncio.timeout(DEADLINE):
        assert await agent.claim() == len(runs)
        hands.tell(runs[0])
        for case, run_id in cases.items():
            hands.tell(run_id, **LOCAL[case][0])
        hands.tell(runs[-1], message="\ud800 and \0", retry_after=float("nan"))
        await agent.delivery.keep()
        while await agent.delivery.report():
            pass
        assert agent.busy == 0

    assert [await side.state(run) for run in (runs[0], runs[-1])] == [State.SUCCEEDED] * 2
    for case, run_id in cases.items():
        run = await found(side, run_id)
        assert run.state is State.FAILED, case
        assert LOCAL[case][1] in run.message, case


async def test_what_the_store_cannot_write_fails_alone(side: Side):
    """Whatever slips through: here the name of an output that no text can be, and a number beyond all."""
    runs = await side.order(8)
    await side.execution.claim(a_node(), {"python": 8})
    results = [Result(run, 1, State.SUCCEEDED, finished_at=START) for run in runs]
    results[2].output, results[5].exit_code = "\ud800", 2**70

    assert await side.execution.finish(results) == set(runs)

    for index, run_id in enumerate(runs):
        run = await found(side, run_id)
        if index in (2, 5):
            assert (run.state, run.reason) == (State.FAILED, Reason.BAD_RESULT)
            assert "could not be written" in run.message
        else:
            assert run.state is State.SUCCEEDED


async def test_an_attempt_that_is_tried_again_is_so_though_its_words_cannot_be_written(side: Side):
    (job,) = (await side.jobs.submit([replace(draft(), policy=Policy(retry=Retry(attempts=2)))])).jobs
    run_id = (await side.jobs.run_now(job.id)).id
    await side.execution.claim(a_node(), {"python": 1})
    bad = Result(run_id, 1, State.FAILED, Reason.ERROR, finished_at=START, message="\ud800")

    assert await side.execution.finish([bad]) == {run_id}

    assert await side.state(run_id) is State.BLOCKED
