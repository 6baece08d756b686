"""The walk over NATS: every subject, as everybody that a broker with the logins of the documents knows.

The servers, the agent whose subjects they are, another agent, and whoever has no login. What is declared in one list
(horae.wire.nats.broker.SUBJECTS) is what the documents say and what a real broker does. And who may speak there is
heard by a server only with a token that is good now.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats as library
import pytest

from horae.core.model import Bounds, Token
from horae.ports.store import Store
from horae.testing import FakeClock
from horae.wire.generated import agents_pb2 as pb
from horae.wire.nats import broker
from horae.wire.nats.broker import NODE, SUBJECTS, own_subject
from horae.wire.nats.pipe import HEAD, WHOLE
from horae.wire.nats.proofs import PROOF, own_token, proof_header, to_prove
from horae.wire.nats.sealed import KEY, Keys

from ..nats_server import Nats
from . import test_nats_walls
from .test_links import hello
from .test_nats_walls import Place, listening, login, permissions, serving

walled = test_nats_walls.walled  # a fixture of theirs

SOURCE = Path(broker.__file__).parents[2]
AGENT, OTHER = "n1", "n2"
DEADLINE = 20.0
PLAIN = [subject for subject in SUBJECTS if not subject.startswith("$JS.")]  # those are for the broker itself


def sample(subject: str, node: str = AGENT) -> str:
    """Return a subject of the kind that is declared, of one agent where it is one's own."""
    return subject.replace(NODE, node).replace("*", "x").replace(">", "x.y")


def declared(node: str, way: str) -> set[str]:
    return {subject.replace(NODE, node) for subject, reach in SUBJECTS.items() if getattr(reach, way)}


def test_every_subject_in_the_source_is_declared() -> None:
    begins = {value for name, value in vars(broker).items() if name.isupper() and str(value).startswith("horae.")}
    written = {
        found
        for file in SOURCE.rglob("*.py")
        for found in re.findall(r"""["'](horae\.(?:hints|work|wanting|agents|events)[a-z.]*)""", file.read_text())
    }
    assert written <= begins, "a subject is named in broker.py, and nowhere else"
    undeclared = [each for each in begins if not any(f"{subject}.".startswith(f"{each}.") for subject in SUBJECTS)]
    assert undeclared == []


@pytest.mark.parametrize(("way", "word"), [("says", "publish"), ("hears", "subscribe")])
def test_the_documents_give_an_agent_what_is_declared_and_no_more(way: str, word: str) -> None:
    (agent,) = re.findall(rf"user: {AGENT}, .*?\}} \}}", permissions(), re.DOTALL)
    (listed,) = re.findall(rf"{word}: \[(.*?)\]", agent, re.DOTALL)
    assert set(re.findall(r'"(.*?)"', listed)) == declared(AGENT, way)


def may(who: str, subject: str, way: str) -> bool:
    """Return what is declared."""
    if who == "horae":
        return True
    return getattr(SUBJECTS[subject], way) and (NODE not in subject or who == AGENT)


class Login:
    """Somebody at the broker, and what that refuses."""

    def __init__(self, client: Any, refusals: asyncio.Queue[str]) -> None:
        self.client, self._refusals = client, refusals

    async def settle(self) -> None:
        """Wait until the broker has all that was said. The library sends the ping of a flush before what is pending,
        so the first only sends that on."""
        await self.client.flush()
        await self.client.flush()

    async def is_refused(self, subject: str) -> bool:
        """Wait for the word of the broker about a subject."""
        async with asyncio.timeout(DEADLINE):
            return subject in await self._refusals.get()


@asynccontextmanager
async def logged_in(server: Nats, who: str) -> AsyncIterator[Login]:
    refusals: asyncio.Queue[str] = asyncio.Queue()

    async def note(error: Exception) -> None:
        refusals.put_nowait(str(error))

    client = await library.connect(login(server, who), error_cb=note, allow_reconnect=False)
    yield Login(client, refusals)
    await client.close()


async def says(speaker: Login, listener: Login, subject: str, *, may: bool) -> bool:
    """Return whether what one publishes comes to the other, or is refused, as it should."""
    subscription = await listener.client.subscribe(subject)
    await listener.settle()
    await speaker.client.publish(subject, b"x")
    await speaker.settle()
    done = bool(await subscription.next_msg(DEADLINE)) if may else await speaker.is_refused(subject)
    await subscription.unsubscribe()
    return done


async def hears(listener: Login, subject: str, *, may: bool) -> bool:
    """Return whether one may listen, or is refused, as it should; who may is shown by `says`."""
    subscription = await listener.client.subscribe(subject)
    await listener.settle()
    done = True if may else await listener.is_refused(subject)
    await subscription.unsubscribe()
    return done


async def test_each_login_says_and_hears_what_is_declared_and_nothing_else(walled: Nats) -> None:
    walked = 0
    for who in ("horae", AGENT, OTHER):
        async with logged_in(walled, who) as own, logged_in(walled, "horae") as servers:
            for subject in PLAIN:
                asked, heard = sample(subject), may(who, subject, "hears")
                assert await says(own, servers, asked, may=may(who, subject, "says")), (who, "says", asked)
                assert await hears(own, asked, may=heard), (who, "hears", asked)
                assert not heard or await says(servers, own, asked, may=True), (who, "hears", asked)
                walked += 2
    assert walked == 3 * 2 * len(PLAIN) == 66


async def test_an_agent_whose_name_begins_alike_is_another(walled: Nats) -> None:
    async with logged_in(walled, AGENT) as own, logged_in(walled, "horae") as servers:
        for begin in (broker.HELLO, broker.UP):
            assert await says(own, servers, own_subject(begin, f"{AGENT}.eu", "x"), may=False)


async def tokens_of(place: Place) -> dict[str, tuple[Token, str] | None]:
    """Return what may be shown with a hello, by what is wrong with it."""
    access = place.access
    good, text = await place.token(AGENT)
    revoked = await place.token(AGENT)
    await access.revoke(revoked[0].id)
    expired = await access.create("t", "agent", "ann", 1.0, bounds=Bounds(AGENT))
    user = await access.create("t", "user", "ann", None)
    place.side.clock.advance(2)
    return {
        "nobody": None, "wrong": (good, f"{text[:-5]}AAAA{text[-1]}"), "revoked": revoked,
        "expired": expired, "user": user, "another agent": await place.token(OTHER), "its own": (good, text),
    }  # fmt: skip


def shown(known: tuple[Token, str] | None, way: str, reply: str, frame: bytes) -> dict[str, str]:
    """Return the headers of a hello: with the token itself, as agents of before send it, or with a proof."""
    if known is None:
        return {} if way == "token" else {KEY: Keys().text}
    text = known[1]
    if way == "token":
        return {"Authorization": f"Bearer {text}"}
    keys, own = Keys(), own_token(text.replace("_u_", "_a_"))
    assert own is not None
    return {KEY: keys.text, PROOF: proof_header(own, to_prove(reply, keys.text, frame))}


REFUSED = {"another agent": (b"PERMISSION_DENIED", b"E_TOKEN_BOUNDS"), "user": (b"UNAUTHENTICATED", b"E_")}


async def test_S02_on_its_own_subject_an_agent_is_heard_with_a_token_that_is_good_for_it_and_no_other(
    sqlite_store: Store, clock: FakeClock, walled: Nats, tmp_path: Path
) -> None:
    frame = pb.AgentFrame(id=1, hello=hello(node=AGENT, highest_protocol=2)).SerializeToString()
    walked = 0
    async with (
        serving(sqlite_store, clock, tmp_path, login(walled, "horae")) as place,
        listening(login(walled, AGENT)) as (client, _),
    ):
        for who, known in (await tokens_of(place)).items():
            for way in ("token", "proof"):
                walked += 1
                here, heard = own_subject(broker.DOWN, AGENT, f"{walked:032x}"), asyncio.Queue[bytes]()

                async def take(message: Any, heard: asyncio.Queue[bytes] = heard) -> None:
                    heard.put_nowait(message.data)

                await client.subscribe(here, cb=take)
                headers = shown(known, way, here, frame)
                subject = own_subject(broker.HELLO, AGENT)
                await client.publish(subject, HEAD.pack(WHOLE, 1) + frame, reply=here, headers=headers)
                async with asyncio.timeout(DEADLINE):
                    answer = await heard.get()
                status, code = REFUSED.get(who, (b"UNAUTHENTICATED", b"E_JOIN_TOKEN"))
                if who == "its own":
                    assert not re.search(rb"E_[A-Z]+|[A-Z]+_[A-Z]+|UNAUTHENTICATED", answer), (way, answer)
                else:
                    assert status in answer, (who, way, answer)
                    assert code in answer, (who, way, answer)
        assert await sqlite_store.list_nodes() == []  # it comes in with its next word
    assert walked == 14


@pytest.mark.parametrize("said", [{}, {"user": AGENT, "pass": "wrong"}, {"user": "nobody", "pass": "p"}])
async def test_nobody_comes_in_without_a_login_or_with_a_wrong_one(walled: Nats, said: dict[str, str]) -> None:
    """In the words of the protocol: a client library would try again."""
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection("127.0.0.1", walled.port)
        try:
            assert (await reader.readline()).startswith(b"INFO ")
            writer.write(b"CONNECT " + json.dumps({"verbose": False, **said}).encode() + b"\r\nSUB > 1\r\nPING\r\n")
            assert (await reader.readline()).strip() == b"-ERR 'Authorization Violation'"
            assert await reader.read() == b""  # and that was all
        finally:
            writer.close()
            await writer.wait_closed()
