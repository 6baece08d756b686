"""Whoever has read the database: what it keeps of tokens opens no door of agents, over gRPC or over NATS.

And what was made before there were verifiers goes on working, until its agent renews it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from horae import verifiers, wire
from horae.core.model import Bounds, Token
from horae.errors import Denied, Invalid
from horae.links.credential import Kept, OwnCredential
from horae.ports.store import Store
from horae.service.access import Access
from horae.service.access.agents import AgentAccess
from horae.service.audit import Audit
from horae.service.metrics import Metrics
from horae.testing import FakeClock
from horae.wire.generated import agents_pb2 as pb
from horae.wire.nats.broker import DOWN, HELLO, own_subject
from horae.wire.nats.pipe import HEAD, WHOLE
from horae.wire.nats.proofs import PROOF, to_prove, veiled
from horae.wire.nats.sealed import KEY, Keys

from ..nats_server import Nats
from .test_links import DEADLINE, Side, a_node, connected, hello
from .test_nats_walls import listening

DAY = 86_400.0
NAME = "n1"


class Doors:
    """One server, into which agents come over gRPC and over NATS."""

    def __init__(self, store: Store, clock: FakeClock, directory: Path, broker: Nats) -> None:
        self.store, self.clock, self.directory, self.broker = store, clock, directory, broker.url
        self.side = Side(store, clock, directory, broker=broker.url)
        self.access = Access(store, clock)
        self.agents = AgentAccess(self.access, store, Audit(store, clock, Metrics()), renewed_after=DAY)
        self.grpc = ""
        self._came = 0

    def at(self, door: str) -> str:
        return self.grpc if door == "grpc" else self.broker

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Doors]:
        given: dict[str, Any] = {"still_good": self.access.still_good, "credentials": self.agents}
        async with self.side.served(admit=self.agents.admit, prove=self.agents.prove, **given):
            self.grpc = f"127.0.0.1:{self.side.port}"
            yield self

    async def make(self, scope: str) -> tuple[Token, str]:
        return await self.access.create("t", scope, "ann", 600.0 if scope == "join" else None, bounds=Bounds(NAME))

    async def keep(self, scope: str, secret: str) -> str:
        """Return a token that a server of before has made."""
        wanted = replace((await self.make(scope))[0], hash=hashlib.sha256(secret.encode()).hexdigest())
        return f"horae_{scope[0]}_{(await self.store.add_token(wanted)).id}_{secret}"

    async def come(self, door: str, **ticket: Any) -> None:
        """An agent comes in, once; Denied."""
        self._came += 1
        async with connected(self.directory / f"agent{self._came}", self.at(door), **ticket) as remote:
            await remote.link.hello(a_node(NAME))

    async def rows(self) -> list[Token]:
        return await self.store.list_tokens()


@pytest.fixture
async def doors(store: Store, clock: FakeClock, tmp_path: Path, nats: Nats) -> AsyncIterator[Doors]:
    async with Doors(store, clock, tmp_path, nats).open() as opened:
        yield opened


# ── what a thief tries ──


def texts_of(kept: str) -> set[str]:
    """Return what somebody might show as the secret of which this is kept."""
    digits = kept.rpartition(":")[2]
    hashed = hashlib.sha256(kept.encode()).hexdigest()
    return {kept, digits, digits[:43], digits[-43:], f"{digits[:42]}2", hashed[:43], hashed}


def codes_of(kept: str, message: bytes) -> Iterator[str]:
    """Return what somebody might send as a proof."""
    digits = kept.rpartition(":")[2]
    keys = [kept.encode(), digits.encode(), bytes.fromhex(digits)]
    keys += [hashlib.sha256(key).digest() for key in keys]
    for key in keys:
        yield hmac.new(key, message, "sha256").hexdigest()
        if len(key) == 32:
            yield Ed25519PrivateKey.from_private_bytes(key).sign(message).hex()
    for text in sorted(texts_of(kept)):
        yield verifiers.sign(text, message)


async def refusal_by_grpc(address: str, text: str) -> tuple[str, str]:
    """Return how a server refuses a token, before it was told anything else."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(wire.CONNECT)(metadata=(("authorization", f"Bearer {text}"),))
        async with asyncio.timeout(DEADLINE):
            return (await call.code()).name, await call.details() or ""


class Thief:
    """Somebody at the broker who knows all rows."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.tried = 0

    async def say(self, frame: bytes, headers: dict[str, str], line: str) -> bytes:
        """Return what is answered to a hello."""
        here, heard = own_subject(DOWN, NAME, line), asyncio.Queue[bytes]()

        async def take(message: Any) -> None:
            heard.put_nowait(message.data)

        subscription = await self._client.subscribe(here, cb=take)
        await self._client.publish(own_subject(HELLO, NAME), HEAD.pack(WHOLE, 1) + frame, reply=here, headers=headers)
        async with asyncio.timeout(DEADLINE):
            answer = await heard.get()
        await subscription.unsubscribe()
        self.tried += 1
        return answer

    async def prove(self, token_id: int, kept: str, frame: pb.AgentFrame) -> list[bytes]:
        """Return the answers to all proofs that can be made of what is kept."""
        answers, raw = [], frame.SerializeToString()
        for number in range(len([*codes_of(kept, b"")])):
            keys, line = Keys(), secrets.token_hex(16)
            message = to_prove(own_subject(DOWN, NAME, line), keys.text, raw)
            code = list(codes_of(kept, message))[number]
            answers.append(await self.say(raw, {KEY: keys.text, PROOF: f"{token_id}.{code}"}, line))
        return answers


async def every_kind_of_row(doors: Doors) -> dict[str, str]:
    """Make tokens of all kinds and of all ages; return those that are good to come in by now."""
    texts = {"given": (await doors.make("agent"))[1]}
    await doors.make("join")  # nobody has used it yet
    await doors.make("agent")
    await doors.access.create("u", "user", "ann", None)
    own = OwnCredential(doors.directory / "own", (await doors.make("join"))[1])
    await doors.come("nats", own=own)
    texts["joined"] = own.token
    token = await doors.agents.admit(own.token, "")
    await doors.agents.renew(token, NAME, own.make_next(), "")
    assert len([row for row in await doors.rows() if row.next_hash is not None]) == 1
    return texts


async def test_S39_what_the_database_keeps_of_a_token_opens_no_door_of_agents(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.service.access.credentials.TRIES", 1_000_000)  # it is the answers that count here
    texts = await every_kind_of_row(doors)
    kept = [(row, one) for row in await doors.rows() for one in (row.hash, row.next_hash) if one is not None]
    assert len(kept) == 7
    assert {verifiers.is_verifier(one) for row, one in kept if row.scope != "user"} == {True}
    frame = pb.AgentFrame(id=1, hello=hello(node=NAME, highest_protocol=2))
    answers: list[tuple[str, bytes]] = []

    async with listening(doors.broker) as (client, _):
        thief = Thief(client)
        for row, one in kept:
            for letter, secret in [(letter, text) for letter in "aj" for text in sorted(texts_of(one))]:
                text = f"horae_{letter}_{row.id}_{secret}"
                refused = await refusal_by_grpc(doors.grpc, text)
                assert (refused[0], refused[1].partition(":")[0]) == ("UNAUTHENTICATED", "E_JOIN_TOKEN"), text
                headers = {"Authorization": f"Bearer {text}", KEY: Keys().text}
                line = secrets.token_hex(16)
                answers.append((text, await thief.say(frame.SerializeToString(), headers, line)))
            answers += [(one, answer) for answer in await thief.prove(row.id, one, frame)]
    assert len(answers) == thief.tried > 200
    assert [text for text, said in answers if b"UNAUTHENTICATED" not in said or b"E_JOIN_TOKEN" not in said] == []

    for door in ("grpc", "nats"):
        for text in texts.values():  # and with the secrets themselves
            await doors.come(door, token=text)


# ── what was made before ──


@pytest.mark.parametrize("door", ["grpc", "nats"])
async def test_S39_a_credential_of_before_goes_on_and_is_one_of_now_when_it_is_renewed(doors: Doors, door: str) -> None:
    join = await doors.keep("join", secrets.token_urlsafe(32))
    own = OwnCredential(doors.directory / "own", join)
    assert not verifiers.is_verifier(own.hash)  # whoever made the join token may know nothing else
    await doors.come(door, own=own)
    before = own.token
    assert not verifiers.is_of_now(before)
    await doors.come(door, own=own)

    doors.clock.advance(DAY)  # it comes in, is told that it is time, makes another, and comes in with that
    async with connected(doors.directory / "renewing", doors.at(door), own=own) as remote:
        await remote.link.hello(a_node(NAME))
        async with asyncio.timeout(DEADLINE):
            while [word for word, _ in remote.events].count("joined") < 2:
                await asyncio.sleep(0.01)

    (row,) = [row for row in await doors.rows() if row.renewed_at is not None]
    assert (verifiers.is_verifier(row.hash), row.next_hash) == (True, None)
    assert verifiers.is_of_now(own.token)
    assert own.token.split("_")[2] == before.split("_")[2] == str(row.id)
    for other in ("grpc", "nats"):
        await doors.come(other, own=own)
        with pytest.raises(Denied) as refused:
            await doors.come(other, token=before)
        assert refused.value.code == "E_JOIN_TOKEN"
        assert "upgrade servers before agents" in refused.value.hint


@pytest.mark.parametrize("door", ["grpc", "nats"])
async def test_a_token_of_before_that_was_given_goes_on_working(doors: Doors, door: str) -> None:
    await doors.come(door, token=await doors.keep("agent", secrets.token_urlsafe(32)))


async def test_S39_by_a_join_token_of_before_nobody_comes_to_a_credential_of_now(doors: Doors) -> None:
    """Rows stay for ever, also of join tokens that were used, and one of before is proved by its hash."""
    join = await doors.keep("join", secrets.token_urlsafe(32))
    own = OwnCredential(doors.directory / "own", join)
    await doors.come("nats", own=own)
    await doors.agents.renew(await doors.agents.admit(own.token, ""), NAME, own.make_next(), "")
    own.take_next()
    await doors.come("nats", own=own)
    (credential,) = [row for row in await doors.rows() if row.renewed_at is not None]
    (used,) = [row for row in await doors.rows() if row.used_at is not None]
    assert verifiers.is_verifier(credential.hash)

    async with listening(doors.broker) as (client, _):
        keys, line = Keys(), secrets.token_hex(16)
        here = own_subject(DOWN, NAME, line)
        said = hello(node=NAME, highest_protocol=2, credential=veiled(credential.hash, used.hash, here, keys.text))
        raw = pb.AgentFrame(id=1, hello=said).SerializeToString()
        code = hmac.new(used.hash.encode(), to_prove(here, keys.text, raw), "sha256").hexdigest()
        answer = await Thief(client).say(raw, {KEY: keys.text, PROOF: f"{used.id}.{code}"}, line)

    assert b"PERMISSION_DENIED" in answer
    assert b"E_JOIN_TOKEN" in answer


async def test_a_credential_of_now_is_not_renewed_by_a_hash(doors: Doors) -> None:
    own = OwnCredential(doors.directory / "own", (await doors.make("join"))[1])
    await doors.come("grpc", own=own)
    token = await doors.agents.admit(own.token, "")
    with pytest.raises(Invalid, match="ed25519"):
        await doors.agents.renew(token, NAME, "a" * 64, "")


def test_an_agent_that_was_renewing_with_the_release_before_begins_anew(tmp_path: Path) -> None:
    secret = secrets.token_urlsafe(32)
    file = tmp_path / "credential"
    file.write_bytes(msgspec.json.encode(Kept(join=1, token=f"horae_a_2_{secret}", next_secret=secret)))

    told = OwnCredential(file, None).make_next()

    assert verifiers.is_verifier(told)
    assert OwnCredential(file, None).make_next() == told


async def test_an_agent_of_before_joins_over_grpc_and_is_told_over_nats_that_it_is_too_old(doors: Doors) -> None:
    """It knows one kind of secret, and takes every token for that."""
    token, text = await doors.make("join")
    told = hashlib.sha256(secrets.token_bytes(32)).hexdigest()
    said = pb.AgentFrame(id=1, hello=hello(node=NAME, highest_protocol=2, credential=told))

    async with listening(doors.broker) as (client, _):
        raw, keys, line = said.SerializeToString(), Keys(), secrets.token_hex(16)
        known = hashlib.sha256(text[-43:].encode()).hexdigest()
        message = to_prove(own_subject(DOWN, NAME, line), keys.text, raw)
        code = hmac.new(known.encode(), message, "sha256").hexdigest()
        answer = await Thief(client).say(raw, {KEY: keys.text, PROOF: f"{token.id}.{code}"}, line)
    assert b"E_JOIN_TOKEN" in answer
    assert b"over NATS a token of this release needs an agent of this release: upgrade it" in answer

    async with grpc.aio.insecure_channel(doors.grpc) as channel, asyncio.timeout(DEADLINE):
        call: Any = channel.stream_stream(wire.CONNECT)(metadata=(("authorization", f"Bearer {text}"),))
        await call.write(raw)
        assert pb.ServerFrame.FromString(await call.read()).welcome.credential_id
    (row,) = [row for row in await doors.rows() if row.renewed_at is not None]
    assert row.hash == told
