"""A server that stood still wakes with frames of a line that its agent has left: none of them has any effect.

The lines are fake streams, as gRPC and NATS both give them to `Agents`; stores and services are real.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from horae.core.model import State
from horae.ports.store import Store
from horae.testing import FakeClock
from horae.wire.generated import agents_pb2 as pb

from .test_links import DEADLINE, Side, hello


class FakeStream:
    """What gRPC calls a context: frames in as the test says, frames out for it to see."""

    def __init__(self) -> None:
        self._in: asyncio.Queue[bytes] = asyncio.Queue()
        self._out: asyncio.Queue[pb.ServerFrame] = asyncio.Queue()
        self.ended_with: grpc.StatusCode | None = None

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def read(self) -> bytes:
        return await self._in.get()

    async def write(self, frame: bytes) -> None:
        self._out.put_nowait(pb.ServerFrame.FromString(frame))

    async def abort(self, status: grpc.StatusCode, _: str) -> None:
        self.ended_with = status

    def say(self, **body: Any) -> None:
        self._in.put_nowait(pb.AgentFrame(id=1, **body).SerializeToString())

    async def ask(self, **body: Any) -> pb.ServerFrame:
        self.say(**body)
        async with asyncio.timeout(DEADLINE):
            while (frame := await self._out.get()).id == 0:
                pass  # a hint
        return frame


@asynccontextmanager
async def line_to(side: Side, **fields: Any) -> AsyncIterator[tuple[FakeStream, asyncio.Task[None]]]:
    """A line that was welcomed."""
    stream = FakeStream()
    serving = asyncio.create_task(side.agents().connect(None, stream))
    try:
        assert (await stream.ask(hello=hello(**fields))).HasField("welcome")
        yield stream, serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


LATE: dict[str, dict[str, Any]] = {
    "claim": {"claim": pb.Claim(kind="python", limit=5)},
    "goodbye": {"goodbye": pb.Goodbye()},
    "join": {"join": pb.Join()},
    "disown": {"disown": pb.Disown()},
    "beat": {"beat": pb.Beat(busy=0)},
}


@pytest.mark.parametrize("late", LATE)
async def test_a_late_frame_of_an_earlier_line_has_no_effect_and_ends_it(
    store: Store, clock: FakeClock, tmp_path: Path, late: str
):
    side = Side(store, clock, tmp_path)
    held, waiting = await side.order(2)
    async with line_to(side) as (old, serving):
        await old.ask(join=pb.Join())
        async with line_to(side.another("s2")) as (new, _):
            (given,) = (await new.ask(claim=pb.Claim(kind="python", limit=1))).assignments.items
            assert given.run_id == held
            (before,) = await store.list_nodes()

            old.say(**LATE[late])
            async with asyncio.timeout(DEADLINE):
                await serving

            assert old.ended_with is grpc.StatusCode.ABORTED
            assert (await side.state(held), await side.state(waiting)) == (State.RUNNING, State.QUEUED)
            (after,) = await store.list_nodes()
            assert (after, after.via) == (before, "s2")
            assert not (await new.ask(beat=pb.Beat(busy=1))).beat.retired
            assert (await new.ask(claim=pb.Claim(kind="python", limit=1))).assignments.items[0].run_id == waiting


async def test_a_line_of_a_new_process_ends_what_its_earlier_life_asks(store: Store, clock: FakeClock, tmp_path: Path):
    """The same agent, restarted: it joins anew through another server, and only then the old server wakes."""
    side = Side(store, clock, tmp_path)
    (run_id,) = await side.order()
    async with line_to(side) as (old, serving):
        await old.ask(join=pb.Join())
        async with line_to(side.another("s2"), session="t" * 16) as (new, _):
            await new.ask(join=pb.Join())
            await new.ask(claim=pb.Claim(kind="python", limit=1))

            old.say(goodbye=pb.Goodbye())
            async with asyncio.timeout(DEADLINE):
                await serving

            assert await side.state(run_id) is State.RUNNING
            assert [node.state for node in await store.list_nodes()] == ["live"]


async def test_a_result_is_taken_from_any_line(store: Store, clock: FakeClock, tmp_path: Path):
    """What an agent says of an attempt that it held stays true."""
    side = Side(store, clock, tmp_path)
    (run_id,) = await side.order()
    async with line_to(side) as (old, _):
        await old.ask(join=pb.Join())
        async with line_to(side.another("s2")) as (new, _):
            (given,) = (await new.ask(claim=pb.Claim(kind="python", limit=1))).assignments.items
            result = pb.Result(run_id=run_id, fence=given.fence, state=State.SUCCEEDED, finished_at=clock.now())

            answer = await old.ask(finish=pb.Finish(results=[result]))

            assert list(answer.accepted.run_ids) == [run_id]
    assert await side.state(run_id) is State.SUCCEEDED


async def test_an_agent_of_the_protocol_before_the_session_number_is_served(
    store: Store, clock: FakeClock, tmp_path: Path
):
    """It names runs without their fences, and its beats do not say what it holds."""
    side = Side(store, clock, tmp_path)
    known, unknown = await side.order(2)
    async with line_to(side, lowest_protocol=1, highest_protocol=1) as (line, _):
        await line.ask(join=pb.Join())
        await line.ask(claim=pb.Claim(kind="python", limit=2))

        strangers = (await line.ask(disown=pb.Disown(held=[known, 4711]))).strangers

        assert list(strangers.run_ids) == [4711]
        assert (await side.state(known), await side.state(unknown)) == (State.RUNNING, State.QUEUED)
        for _ in range(3):
            assert not (await line.ask(beat=pb.Beat(busy=1))).beat.in_doubt
