"""An agent that lies: what it cannot reach, fill or show, over gRPC and over NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from horae.core.model import Reason, State
from horae.ports import Result, Store
from horae.rpc.intake import MARGIN, Limits
from horae.testing import FakeClock
from horae.wire.generated import agents_pb2 as pb

from .test_links import DEADLINE, Remote, Side, a_node, connected, done, settled, write

SMALL = Limits(log=100_000, files=100_000)


@pytest.fixture(params=["grpc", "nats"])
def far(request: pytest.FixtureRequest, sqlite_store: Store, clock: FakeClock, tmp_path: Path) -> Side:
    broker = request.getfixturevalue("nats").url if request.param == "nats" else None
    return Side(sqlite_store, clock, tmp_path, broker=broker)


@asynccontextmanager
async def holding(side: Side, tmp_path: Path, **fields: Any) -> AsyncIterator[tuple[Remote, int]]:
    """An agent that holds a run."""
    (run_id,) = await side.order()
    async with side.served(**fields) as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node())
        (claimed,) = await remote.link.claim({"python": 1})
        assert claimed.run_id == run_id
        yield remote, run_id


async def send(remote: Remote, *chunks: pb.Chunk) -> None:
    """Say this, and wait until all of it was answered."""
    stream = remote.link._stream
    assert stream is not None
    async with asyncio.timeout(DEADLINE):
        for chunk in chunks:
            await stream.has_room.wait()
            stream.send_chunks([chunk])
        while stream._under_way:
            await asyncio.sleep(0.01)


def stored(side: Side) -> list[Path]:
    return [path for path in (side._directory / side.name).rglob("*") if path.is_file()]


def total(side: Side) -> int:
    return sum(path.stat().st_size for path in stored(side))


async def test_output_goes_nowhere_under_a_number_that_the_attempt_does_not_have(far: Side, tmp_path: Path):
    async with holding(far, tmp_path) as (remote, run_id):
        await send(remote, *(pb.Chunk(run_id=run_id, attempt=n, fence=1, data=b"x") for n in range(2, 10)))
        assert stored(far) == []
        await send(remote, pb.Chunk(run_id=run_id, attempt=1, fence=1, data=b"mine"))
        assert total(far) == 4


async def test_output_goes_nowhere_for_a_run_that_somebody_else_holds(far: Side, tmp_path: Path):
    async with (
        holding(far, tmp_path) as (remote, run_id),
        connected(tmp_path / "other", far.broker or f"127.0.0.1:{far.port}", identity="f" * 16) as other,
    ):
        await other.link.hello(a_node("n2"))
        await send(other, pb.Chunk(run_id=run_id, attempt=1, fence=1, data=b"forged"))
        assert stored(far) == []
        await send(remote, pb.Chunk(run_id=run_id, attempt=1, fence=1, data=b"mine"))
        assert await far.files.read(far.files.ref(run_id, 1, 1), 0, 100) == b"mine"


async def test_no_more_of_a_log_is_stored_than_allowed_and_the_log_says_so(far: Side, tmp_path: Path):
    async with holding(far, tmp_path, limits=SMALL) as (remote, run_id):
        ref = await write(remote, run_id, b"x" * 1_000_000)
        await settled(remote)
        assert await remote.link.finish([done(run_id, output=ref)]) == {run_id}

    assert total(far) <= SMALL.log + MARGIN + 100
    assert (await far.files.read(ref, 0, 10**9)).endswith(
        b"\n[output truncated: this server's limit is 100000 bytes]\n"
    )


async def test_coming_again_gives_no_more_room(far: Side, tmp_path: Path):
    chunk = pb.Chunk(attempt=1, fence=1, data=b"x" * 60_000)
    async with holding(far, tmp_path, limits=SMALL) as (remote, run_id):
        for number in range(6):
            await send(remote, pb.Chunk(run_id=run_id, attempt=1, fence=1, number=number, data=chunk.data))
            stream = remote.link._stream
            assert stream is not None
            stream.fail("come again")
            async with asyncio.timeout(DEADLINE):
                while remote.link._stream in (None, stream):
                    await asyncio.sleep(0.01)

    assert total(far) <= SMALL.log + MARGIN + 100


async def test_chunks_of_one_byte_do_not_fill_the_disk_with_files(far: Side, tmp_path: Path):
    async with holding(far, tmp_path, limits=Limits(log=10_000, files=0)) as (remote, run_id):
        chunks = [pb.Chunk(run_id=run_id, attempt=1, fence=1, number=n, data=b"x") for n in range(1_000)]
        await send(remote, *chunks)

    assert len(stored(far)) < 300


async def test_chunks_that_leave_out_others_go_nowhere(far: Side, tmp_path: Path):
    async with holding(far, tmp_path) as (remote, run_id):
        await send(remote, *(pb.Chunk(run_id=run_id, attempt=1, fence=1, number=n, data=b"x") for n in range(1, 90, 3)))

    assert stored(far) == []


async def test_no_more_of_the_files_beside_a_log_is_stored_than_allowed(far: Side, tmp_path: Path):
    async with holding(far, tmp_path, limits=SMALL) as (remote, run_id):
        chunks = [pb.Chunk(run_id=run_id, attempt=1, fence=1, file=n, data=b"x" * 30_000) for n in range(1, 20)]
        await send(remote, *chunks)

    assert total(far) <= SMALL.files + MARGIN


async def test_a_result_names_the_log_of_its_own_attempt(far: Side, tmp_path: Path):
    async with holding(far, tmp_path) as (remote, run_id):
        assert await remote.link.finish([done(run_id, output=far.files.ref(run_id, 2, 1))]) == {run_id}

    run = await far.jobs.get_run(run_id)
    assert (run.state, run.reason, run.output) == (State.FAILED, Reason.BAD_RESULT, None)


async def test_what_an_agent_says_holds_nothing_that_a_terminal_would_obey(far: Side, tmp_path: Path):
    evil = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\x7f\r"
    async with holding(far, tmp_path) as (remote, run_id):
        await remote.link.note_ailment(f"full{evil}")
        await remote.link.finish(
            [Result(run_id, 1, State.FAILED, Reason.ERROR, message=f"a\n\tb{evil}", finished_at=2)]
        )
        (node,) = await far.store.list_nodes()

    run = await far.jobs.get_run(run_id)
    assert run.message.startswith("a\n\tb")
    for text in (run.message, node.ailment, node.version):
        assert not {*text} & {*evil} - {*"]52;c;ZXZpbA==[2J31m"}
