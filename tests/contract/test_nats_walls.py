"""Agents that share a broker: none reads or speaks for another, with logins of their own and without."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from horae.core.model import Bounds, Token
from horae.errors import Denied
from horae.links.credential import OwnCredential
from horae.ports.store import Store
from horae.service.access import Access
from horae.service.access.agents import AgentAccess
from horae.service.access.credentials import TRIES
from horae.service.audit import Audit
from horae.service.metrics import Metrics
from horae.testing import FakeClock
from horae.wire.generated import agents_pb2 as pb
from horae.wire.nats.broker import DOWN, HELLO, UP, Connector, close_client, own_subject
from horae.wire.nats.pipe import HEAD, WHOLE, Pipe
from horae.wire.nats.proofs import PROOF, Proof, own_token, proof_header, to_prove
from horae.wire.nats.sealed import KEY, Keys

from ..nats_server import Nats, running
from .test_links import DEADLINE, Remote, Side, a_node, connected, done, hello

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "nats.md"
SECRET = "correct horse battery staple"
LINE = "0123456789abcdef" * 2


def permissions() -> str:
    """Return what the documents tell to write, for three agents."""
    (shown,) = re.findall(r"```conf\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (agent,) = re.findall(r"    \{ user: far-1.*?\} \}\n", shown, re.DOTALL)
    agents = [agent.replace("far-1", name).replace("$FAR_1_PASSWORD", "p") for name in ("n1", "n2", "evil")]
    return shown.replace(agent, "".join(agents)).replace("$HORAE_PASSWORD", "p")


@pytest.fixture
def walled(tmp_path: Path) -> Iterator[Nats]:
    """A broker where each has a login of its own."""
    file = tmp_path / "nats.conf"
    file.write_text(permissions())
    with running(tmp_path / "walled", "-c", str(file)) as server:
        yield server


def login(broker: Nats, user: str) -> str:
    return broker.url.replace("nats://", f"nats://{user}:p@")


class Place:
    def __init__(self, side: Side, access: Access, address: str) -> None:
        self.side, self.access, self.address = side, access, address

    async def token(self, node: str = "*") -> tuple[Token, str]:
        return await self.access.create("t", "agent", "ann", None, bounds=Bounds(node))


@asynccontextmanager
async def serving(store: Store, clock: FakeClock, directory: Path, address: str) -> AsyncIterator[Place]:
    """A server that asks for tokens."""
    side = Side(store, clock, directory, broker=address)
    access = Access(store, clock)

    async def admit(token: str | None, peer: str) -> Token:
        return await access.check(token, "agent", peer)

    async def prove(proof: Proof, peer: str) -> Token:
        return await access.check_proof(proof, "agent", peer)

    async with side.served(admit=admit, prove=prove, still_good=access.still_good):
        yield Place(side, access, address)


@asynccontextmanager
async def listening(address: str, *subjects: str) -> AsyncIterator[tuple[Any, list[bytes]]]:
    """Somebody who listens and may speak; what was heard, with its headers."""
    heard: list[bytes] = []
    client = await Connector(address, "stranger").connect(lambda: None)

    async def hear(message: Any) -> None:
        heard.append(f"{message.subject} {message.headers} ".encode() + message.data)

    for subject in subjects:
        await client.subscribe(subject, cb=hear)
    await client.flush()
    try:
        yield client, heard
    finally:
        await close_client(client)


async def work(place: Place, remote: Remote) -> None:
    """A run with a secret, from claim to end."""
    await place.side.secrets.set(1, "PASSWORD", SECRET)
    (run_id,) = await place.side.order(env={"P": {"secret": "PASSWORD"}})
    await remote.link.hello(a_node("n1"))
    (claimed,) = await remote.link.claim({"python": 1})
    assert SECRET in (claimed.secrets or "")
    assert await remote.link.finish([done(run_id)]) == {run_id}


async def settled(client: Any) -> None:
    """What was published before has been heard by whoever may."""
    for _ in range(3):
        await client.flush()
        await asyncio.sleep(0.05)


ALL = (
    "horae.agents.>",
    "horae.agents.down.>",
    "horae.agents.up.>",
    "horae.agents.hello.*",
    "horae.agents.work.n1.>",
    ">",
)


async def test_S46_with_the_logins_of_the_documents_an_agent_hears_nothing_of_others(
    sqlite_store: Store, clock: FakeClock, walled: Nats, tmp_path: Path
):
    async with (
        serving(sqlite_store, clock, tmp_path, login(walled, "horae")) as place,
        listening(login(walled, "evil"), *ALL) as (evil, heard),
    ):
        _, text = await place.token("n1")
        async with connected(tmp_path / "agent", login(walled, "n1"), token=text) as remote:
            await work(place, remote)
        await settled(evil)

    assert heard == []


async def test_S46_with_the_logins_of_the_documents_nobody_speaks_for_another(
    sqlite_store: Store, clock: FakeClock, walled: Nats, tmp_path: Path
):
    here, theirs = own_subject(DOWN, "evil", LINE), own_subject(DOWN, "n1", LINE)
    frame = pb.AgentFrame(id=1, hello=hello(node="n1", highest_protocol=2)).SerializeToString()
    async with (
        serving(sqlite_store, clock, tmp_path, login(walled, "horae")) as place,
        listening(login(walled, "evil"), here) as (evil, heard),
    ):
        _, text = await place.token()  # a good one, for any agent
        own = own_token(text)
        assert own is not None

        async def say(subject: str, reply: str) -> None:
            keys = Keys()
            proof = proof_header(own, to_prove(reply, keys.text, frame))
            message = HEAD.pack(WHOLE, 1) + frame
            await evil.publish(subject, message, reply=reply, headers={KEY: keys.text, PROOF: proof})

        for subject, reply in (
            (own_subject(HELLO, "n1"), theirs), (own_subject(HELLO, "n1"), here), (HELLO, f"{DOWN}.{LINE}"),
            (own_subject(HELLO, "evil"), theirs),
        ):  # fmt: skip
            await say(subject, reply)
        await settled(evil)
        assert heard == []
        assert await sqlite_store.list_nodes() == []

        await say(own_subject(HELLO, "evil"), here)
        async with asyncio.timeout(DEADLINE):
            while not heard:
                await asyncio.sleep(0.01)
        assert b"PERMISSION_DENIED" in heard[0]
        assert await sqlite_store.list_nodes() == []
        async with connected(tmp_path / "agent", login(walled, "n1"), token=text) as remote:
            await work(place, remote)


async def test_whoever_listens_on_a_broker_with_one_login_reads_neither_secrets_nor_tokens(
    sqlite_store: Store, clock: FakeClock, nats: Nats, tmp_path: Path
):
    async with serving(sqlite_store, clock, tmp_path, nats.url) as place, listening(nats.url, ">") as (stranger, heard):
        _, text = await place.token("n1")
        async with connected(tmp_path / "agent", nats.url, token=text) as remote:
            await work(place, remote)
        await settled(stranger)

    lines = [one for one in heard if b"horae.agents.down" in one or b"horae.agents.up" in one]
    assert len(lines) > 4
    everything = b"".join(heard)
    for told in (SECRET.encode(), text.encode(), text.split("_", 3)[3].encode(), b"PASSWORD"):
        assert told not in everything


async def test_S33_whoever_listens_while_an_agent_joins_cannot_come_in_as_that_agent(
    sqlite_store: Store, clock: FakeClock, nats: Nats, tmp_path: Path
):
    """The first frame is not sealed; and who knows what the server keeps of a credential could answer its agent."""
    side, access = Side(sqlite_store, clock, tmp_path, broker=nats.url), Access(sqlite_store, clock)
    agents = AgentAccess(access, sqlite_store, Audit(sqlite_store, clock, Metrics()), renewed_after=86_400.0)
    join = (await access.create("join", "join", "ann", 60.0, bounds=Bounds("n1")))[1]
    own = OwnCredential(tmp_path / "credential", join)
    told = own.hash
    given: dict[str, Any] = {"still_good": agents.still_good, "credentials": agents}
    async with (
        side.served(admit=agents.admit, prove=agents.prove, **given),
        listening(nats.url, ">") as (stranger, heard),
    ):
        for known in (None, told):
            async with connected(tmp_path / f"agent {known}", nats.url, own=own) as remote:
                await remote.link.hello(a_node("n1"))
                assert (own.hash, own.token[:8]) == ("", "horae_a_")  # it joined, and comes again with its own
        await settled(stranger)
        kept = await sqlite_store.get_token(2)

    assert kept is not None
    assert kept.hash == told
    everything = b"".join(heard)
    assert b"horae.agents.hello" in everything
    assert told.encode() not in everything


@pytest.mark.parametrize("case", ["another token", "another hello", "another line", "no proof"])
async def test_a_proof_is_good_for_one_hello_on_one_line(
    sqlite_store: Store, clock: FakeClock, nats: Nats, tmp_path: Path, case: str
):
    here, keys = own_subject(DOWN, "n1", LINE), Keys()
    frame = pb.AgentFrame(id=1, hello=hello(node="n1")).SerializeToString()
    async with (
        serving(sqlite_store, clock, tmp_path, nats.url) as place,
        listening(nats.url, here) as (stranger, heard),
    ):
        token, text = await place.token("n1")
        _, other = await place.token("n1")
        own = own_token(f"horae_a_{token.id}_{(other if case == 'another token' else text)[-43:]}")
        assert own is not None
        said = to_prove(
            own_subject(DOWN, "n1", LINE[::-1]) if case == "another line" else here,
            keys.text,
            frame + b"x" if case == "another hello" else frame,
        )
        headers = {KEY: keys.text, **({} if case == "no proof" else {PROOF: proof_header(own, said)})}
        await stranger.publish(own_subject(HELLO, "n1"), HEAD.pack(WHOLE, 1) + frame, reply=here, headers=headers)
        async with asyncio.timeout(DEADLINE):
            while not heard:
                await asyncio.sleep(0.01)

    assert b"UNAUTHENTICATED" in heard[0]
    assert b"E_JOIN_TOKEN" in heard[0]


async def test_a_frame_that_is_forged_ends_the_line_and_is_not_done(
    sqlite_store: Store, clock: FakeClock, nats: Nats, tmp_path: Path
):
    async with (
        serving(sqlite_store, clock, tmp_path, nats.url) as place,
        listening(nats.url, f"{UP}.>") as (stranger, heard),
    ):
        _, text = await place.token("n1")
        async with connected(tmp_path / "agent", nats.url, token=text) as remote:
            await remote.link.hello(a_node("n1"))
            async with asyncio.timeout(DEADLINE):
                while not heard:
                    await remote.link.beat(0)
            stream = remote.link._stream
            assert stream is not None
            subject = own_subject(UP, "n1", stream._line.name)  # type: ignore[attr-defined]
            count = stream._line._pipe._sent  # type: ignore[attr-defined]
            forged = pb.AgentFrame(id=99, goodbye=pb.Goodbye()).SerializeToString()
            await stranger.publish(subject, HEAD.pack(WHOLE, count + 1) + forged)
            async with asyncio.timeout(DEADLINE):
                while [word for word, _ in remote.events].count("joined") < 2:
                    await asyncio.sleep(0.01)
            (node,) = await sqlite_store.list_nodes()
            assert node.state == "live"


async def test_an_agent_of_the_release_before_comes_in_as_it_did(
    sqlite_store: Store, clock: FakeClock, nats: Nats, tmp_path: Path
):
    async with serving(sqlite_store, clock, tmp_path, nats.url) as place, listening(nats.url) as (client, _):
        _, text = await place.token("old")
        pipe = Pipe(client, HELLO, f"{DOWN}.{LINE}")

        async def take(message: Any) -> None:
            pipe.take(message)

        await client.subscribe(f"{DOWN}.{LINE}", cb=take)
        frame = pb.AgentFrame(id=1, hello=hello(node="old"))
        await pipe.write(frame.SerializeToString(), {"Authorization": f"Bearer {text}"})
        async with asyncio.timeout(DEADLINE):
            welcome = pb.ServerFrame.FromString(await pipe.read())
            pipe.to = f"{UP}.{LINE}"
            await pipe.write(pb.AgentFrame(id=2, join=pb.Join()).SerializeToString())
            joined = pb.ServerFrame.FromString(await pipe.read())

    assert (welcome.WhichOneof("body"), joined.WhichOneof("body")) == ("welcome", "done")


async def test_wrong_tokens_of_one_agent_do_not_lock_out_another(
    sqlite_store: Store, clock: FakeClock, nats: Nats, tmp_path: Path
):
    async with serving(sqlite_store, clock, tmp_path, nats.url) as place:
        for number in range(TRIES + 2):
            wrong = f"horae_a_{100 + number}_{'A' * 43}"
            async with connected(tmp_path / "evil", nats.url, token=wrong, identity="e" * 16) as remote:
                with pytest.raises(Denied):
                    await remote.link.hello(a_node("evil"))
        with suppress(Denied):
            async with connected(tmp_path / "evil", nats.url, token=f"horae_a_7_{'A' * 43}") as remote:
                await remote.link.hello(a_node("evil"))
        _, text = await place.token("n1")
        async with connected(tmp_path / "agent", nats.url, token=text) as remote:
            await remote.link.hello(a_node("n1"))
