"""An agent that lies: what it cannot reach, fill or show, over gRPC and over NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from horae.core.members import org_label, owner_of
from horae.core.model import Bounds, Reason, State, Token
from horae.core.runs.orders import Result
from horae.errors import Denied
from horae.errors import Error as HoraeError
from horae.ports.store import Store
from horae.rpc.agents.admission import PROVE_SECONDS
from horae.rpc.agents.intake import MARGIN, Limits
from horae.service.access import Access
from horae.testing import FakeClock
from horae.wire.generated import agents_pb2 as pb
from horae.wire.nats.proofs import Proof

from ..unit.service.parts import Probe
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


async def come_again(remote: Remote) -> None:
    """By a new line."""
    stream = remote.link._stream
    assert stream is not None
    stream.fail("come again")
    async with asyncio.timeout(DEADLINE):
        while remote.link._stream in (None, stream):
            await asyncio.sleep(0.01)


def stored(side: Side) -> list[Path]:
    return [path for path in (side._directory / side.name).rglob("*") if path.is_file()]


def total(side: Side) -> int:
    return sum(path.stat().st_size for path in stored(side))


async def test_output_goes_nowhere_under_a_number_that_the_attempt_does_not_have(far: Side, tmp_path: Path):
    async with holding(far, tmp_path) as (remote, run_id):
        for number in range(2, 10):  # one after the other: answers name no attempt
            await send(remote, pb.Chunk(run_id=run_id, attempt=number, fence=1, data=b"x"))
        assert stored(far) == []
        await send(remote, pb.Chunk(run_id=run_id, attempt=1, fence=1, data=b"mine"))
        assert total(far) == 4


async def test_S44_output_goes_nowhere_for_a_run_that_somebody_else_holds(far: Side, tmp_path: Path):
    async with (
        holding(far, tmp_path) as (remote, run_id),
        connected(tmp_path / "other", far.broker or f"127.0.0.1:{far.port}", identity="f" * 16) as other,
    ):
        await other.link.hello(a_node("n2"))
        await send(other, pb.Chunk(run_id=run_id, attempt=1, fence=1, data=b"forged"))
        assert stored(far) == []
        await send(remote, pb.Chunk(run_id=run_id, attempt=1, fence=1, data=b"mine"))
        assert await far.files.read(far.files.ref(run_id, 1, 1), 0, 100) == b"mine"


async def test_S44_no_more_of_a_log_is_stored_than_allowed_and_the_log_says_so(far: Side, tmp_path: Path):
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
            await come_again(remote)

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


@pytest.mark.parametrize("what", ["a chunk", "a result", "the last result"])
async def test_a_join_that_comes_meanwhile_takes_nothing_away(
    sqlite_store: Store, clock: FakeClock, tmp_path: Path, what: str
):
    """An agent that takes up its work comes by a new line, on which nothing waits for its join."""
    probe: Any = Probe(sqlite_store)
    side = Side(probe, clock, tmp_path)
    async with holding(side, tmp_path) as (remote, first):
        job_id = (await side.jobs.get_run(first)).job_id
        await remote.link.finish([done(first, result="[1]")])
        run_id = (await side.jobs.run_now(job_id)).id
        await remote.link.claim({"python": 1})
        await come_again(remote)

        async def join(*_: Any) -> None:
            await remote.link._ask(DEADLINE, join=pb.Join(held=[run_id], fences=[1]))

        probe.before("load_held", join)
        ref = side.files.ref(run_id, 1, 1)
        if what == "a chunk":
            await send(remote, pb.Chunk(run_id=run_id, attempt=1, fence=1, data=b"mine"))
            assert total(side) == 4
        elif what == "a result":
            assert await remote.link.finish([done(run_id, output=ref)]) == {run_id}
            run = await side.jobs.get_run(run_id)
            assert (run.state, run.output) == (State.SUCCEEDED, f"{side.name}:{ref}")
        else:
            assert await remote.link.load_previous([job_id]) == {job_id: "[1]"}


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


# ── tokens ──


@asynccontextmanager
async def guarded(side: Side) -> AsyncIterator[tuple[str, Access]]:
    """A server that asks for tokens."""
    access = Access(side.store, side.clock)

    async def admit(token: str | None, peer: str) -> Token:
        return await access.check(token, "agent", peer)

    async def prove(proof: Proof, peer: str) -> Token:
        return await access.check_proof(proof, "agent", peer)

    async with side.served(admit=admit, prove=prove, still_good=access.still_good) as address:
        yield address, access


async def token_for(access: Access, bounds: Bounds | None, expires_in: float | None = None) -> tuple[Token, str]:
    return await access.create("t", "agent", "ann", expires_in, bounds=bounds)


async def refusal(tmp_path: Path, address: str, text: str, **node: Any) -> Denied:
    async with connected(tmp_path / "agent", address, token=text) as remote:
        with pytest.raises(Denied) as refused:
            await remote.link.hello(a_node(**node))
    return refused.value


BOUNDS = Bounds("n1", ("python", "shell"), ("gpu",), ("gpu=2", "memory=1GiB"))


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"name": "n2"}, "for the agent n1, not for n2"),
        ({"kinds": ("python", "spark_sql")}, "for work of the kinds python, shell, not for spark_sql"),
        ({"labels": ("gpu", "vault", "sandbox:plain")}, "for the labels gpu, not for vault"),
        ({"resources": {"gpu": 3}}, "for the resources gpu=2, memory=1GiB, not for gpu=3"),
        ({"resources": {"gpu": 2, "license-x": 1}}, "not for license-x=1"),
        ({"resources": {"memory": 2**31}}, "not for memory=2GiB"),
    ],
)
async def test_S43_an_agent_that_says_to_be_more_than_its_token_allows_is_refused(
    far: Side, tmp_path: Path, node: dict[str, Any], says: str
):
    async with guarded(far) as (address, access):
        _, text = await token_for(access, BOUNDS)
        refused = await refusal(tmp_path, address, text, **node)

    assert refused.code == "E_TOKEN_BOUNDS"
    assert says in refused.message
    assert await far.store.list_nodes() == []


@pytest.mark.parametrize(
    "bounds", [BOUNDS, Bounds("*", ("*",), ("*",), ("*",)), None], ids=["its own", "any", "of before"]
)
async def test_an_agent_that_its_token_is_for_comes_in(far: Side, tmp_path: Path, bounds: Bounds | None):
    async with guarded(far) as (address, access):
        _, text = await token_for(access, bounds)
        async with connected(tmp_path / "agent", address, token=text) as remote:
            offered = {"gpu": 2, "cpus": 64_000, "memory": 2**30}
            await remote.link.hello(a_node(labels=("gpu", "sandbox:bubblewrap"), resources=offered))
            assert await remote.link.beat(0) is not None


async def test_an_agent_is_told_apart_by_the_organisation_of_its_token_and_not_by_its_own_word(
    far: Side, tmp_path: Path
):
    async with guarded(far) as (address, access):
        _, text = await access.create("t", "agent", "ann", None, bounds=BOUNDS, org=7)
        async with connected(tmp_path / "agent", address, token=text) as remote:
            with pytest.raises(HoraeError, match="it is that of the token"):
                await remote.link.hello(a_node(labels=("gpu", org_label(8))))
        async with connected(tmp_path / "other", address, token=text) as remote:
            await remote.link.hello(a_node(labels=("gpu",)))
    [node] = await far.store.list_nodes()
    assert (node.labels, owner_of(node)) == (("gpu", org_label(7)), 7)


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_line_ends_when_its_token_does(far: Side, tmp_path: Path, how: str):
    async with guarded(far) as (address, access):
        token, text = await token_for(access, BOUNDS, 3600.0 if how == "expired" else None)
        _, other = await token_for(access, Bounds("n2"))
        async with (
            connected(tmp_path / "agent", address, token=text) as remote,
            connected(tmp_path / "other", address, token=other, identity="f" * 16) as stays,
        ):
            await remote.link.hello(a_node())
            await stays.link.hello(a_node("n2"))
            far.clock.advance(PROVE_SECONDS)
            assert await remote.link.beat(0) is not None
            if how == "revoked":
                await far.store.revoke_token(token.id, 1)  # by another node
            far.clock.advance(PROVE_SECONDS if how == "revoked" else 3600.0)
            async with asyncio.timeout(DEADLINE):
                while not [text for word, text in remote.events if word == "lost" and "revoked or has expired" in text]:
                    far.clock.advance(PROVE_SECONDS / 100)  # whoever proves may have begun to wait only now
                    await asyncio.sleep(0.01)
            assert await stays.link.beat(0) is not None
            assert [word for word, _ in stays.events] == ["joined"]


async def test_the_tokens_of_all_lines_are_proved_by_one_question(
    sqlite_store: Store, clock: FakeClock, tmp_path: Path
):
    probe: Any = Probe(sqlite_store)
    side = Side(probe, clock, tmp_path)
    async with guarded(side) as (address, access), AsyncExitStack() as stack:
        for number in range(3):
            _, text = await token_for(access, Bounds(f"n{number}"))
            remote = await stack.enter_async_context(
                connected(tmp_path / f"a{number}", address, token=text, identity=f"{number}" * 16)
            )
            await remote.link.hello(a_node(f"n{number}"))
        probe.calls.clear()
        clock.advance(PROVE_SECONDS)
        async with asyncio.timeout(DEADLINE):
            while not probe.calls["load_tokens"]:
                await asyncio.sleep(0.01)
        assert await remote.link.beat(0) is not None

    assert probe.calls["load_tokens"] == 1
    assert probe.calls["get_token"] == 0


async def test_S44_only_of_jobs_that_it_runs_an_agent_learns_the_last_result(far: Side, tmp_path: Path):
    theirs, ours = await far.order(name="theirs"), await far.order(2, name="ours")
    jobs = [(await far.jobs.get_run(run_id)).job_id for run_id in (*theirs, *ours)]
    async with far.served() as address, connected(tmp_path / "agent", address) as remote:
        await remote.link.hello(a_node())
        for _ in range(2):
            (claimed,) = await remote.link.claim({"python": 1})
            await remote.link.finish([done(claimed.run_id, result=f"[{claimed.run_id}]")])
        (claimed,) = await remote.link.claim({"python": 1})

        assert await remote.link.load_previous(jobs) == {claimed.job_id: f"[{ours[0]}]"}
