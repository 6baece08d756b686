"""Agents that join by a token that is good once, and the secrets that they then have; on SQLite and PostgreSQL.

D05 and S43 of the catalogue: of the token a verifier is kept, good for minutes, bound to what the agent may be.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from horae import verifiers
from horae.core.audit import AuditFilter
from horae.core.model import ANY, Bounds, Token
from horae.errors import ConfigError, Denied, Error, Evicted, Invalid, Unauthenticated
from horae.links.credential import OwnCredential
from horae.ports.store import Store
from horae.service.access import Access
from horae.service.access.agents import AgentAccess
from horae.service.access.wanted import JOIN_SECONDS, parse_token
from horae.service.audit import Audit
from horae.service.metrics import Metrics
from horae.testing import FakeClock

from .test_sessions import IDENTITY, node

DAY = 86_400.0
PEER = "192.0.2.7"


class Server:
    """One node of a cluster, as agents meet it."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store, self.clock = store, clock
        self.access = Access(store, clock)
        self.audit = Audit(store, clock, Metrics())
        self.agents = AgentAccess(self.access, store, self.audit, renewed_after=DAY)

    async def make_join(self, name: str = ANY, **fields: object) -> str:
        wanted = parse_token({"name": "join", "scope": "join", "node": name, **fields})
        return (await self.access.issue(wanted))[1]

    async def hello(self, own: OwnCredential, name: str = "n1") -> Token:
        """What a server does with the first frame of a line, and the agent with its answer."""
        token = await self.agents.admit(own.token, PEER)
        if token.scope == "join":
            token = await self.agents.redeem(token, name, IDENTITY, own.hash, PEER)
            own.take(token.id)
        return token

    async def renew(self, own: OwnCredential, token: Token) -> None:
        await self.agents.renew(token, "n1", own.make_next(), PEER)


@pytest.fixture
def server(store: Store, clock: FakeClock) -> Server:
    return Server(store, clock)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent" / "credential"


async def refusal(server: Server, text: str | None) -> Error:
    with pytest.raises(Error) as caught:
        await server.agents.admit(text, PEER)
    return caught.value


# ── joining ──


async def test_an_agent_that_joins_has_a_credential_of_its_own_within_the_bounds_of_the_join_token(
    server: Server, file: Path
):
    join = await server.make_join(kinds=["shell"], labels=["gpu"], resources=["gpu=2"])
    own = OwnCredential(file, join)

    token = await server.hello(own)

    assert (token.scope, token.bounds) == ("agent", Bounds("n1", ("shell",), ("gpu",), ("gpu=2",)))
    assert token.expires_at is None
    assert file.stat().st_mode & 0o777 == 0o600
    again = OwnCredential(file, join)  # as started again, with the same command
    assert (again.token, again.hash) == (own.token, "")
    assert (await server.hello(again)).id == token.id
    kept = {one.scope: one for one in await server.access.list()}
    assert server.access.state_of(kept["join"]) == "used"
    secret = own.token.rpartition(f"horae_a_{token.id}_")[2]
    assert kept["agent"].hash == verifiers.kept_of(secret)  # which is all that the store has of it


async def test_d05_a_join_token_that_was_used_is_refused_to_everybody_else(server: Server, tmp_path: Path):
    join = await server.make_join("n1")
    await server.hello(OwnCredential(tmp_path / "one", join))

    with pytest.raises(Denied) as caught:
        await server.hello(OwnCredential(tmp_path / "other", join))

    assert caught.value.code == "E_JOIN_USED"


async def test_d05_of_two_who_join_by_one_token_at_once_one_is_let_in(server: Server, tmp_path: Path):
    join = await server.make_join()
    agents = [OwnCredential(tmp_path / str(number), join) for number in range(4)]

    came = await asyncio.gather(*(server.hello(one, f"n{i}") for i, one in enumerate(agents)), return_exceptions=True)

    assert sorted(type(one).__name__ for one in came) == ["Denied", "Denied", "Denied", "Token"]
    assert len([one for one in await server.access.list() if one.scope == "agent"]) == 1


async def test_d05_join_tokens_that_are_empty_wrong_expired_or_revoked_are_refused_in_the_same_words(server: Server):
    join = await server.make_join()
    wrong = join[:-1] + ("A" if join[-1] != "A" else "B")
    said = [await refusal(server, text) for text in ("", "horae_j_", wrong, join.replace("_1_", "_99_"), None)]
    server.clock.advance(JOIN_SECONDS + 1)
    said.append(await refusal(server, join))
    revoked = await server.make_join()
    await server.access.revoke(2)
    said.append(await refusal(server, revoked))

    assert {one.code for one in said} == {"E_JOIN_TOKEN"}
    assert len({one.message for one in said}) == 1


async def test_a_join_token_opens_nothing_else_and_a_credential_does_not_join(server: Server, file: Path):
    join = await server.make_join()
    for scope in ("user", "agent"):
        with pytest.raises(Denied):
            await server.access.check(join, scope)
    own = OwnCredential(file, join)
    await server.hello(own)
    with pytest.raises(Unauthenticated):
        await server.agents.admit(own.token.replace("horae_a_", "horae_j_"), PEER)


async def test_an_agent_that_dies_while_it_joins_is_not_locked_out(server: Server, file: Path):
    """Killed before the exchange, after it, and after the token has expired meanwhile."""
    join = await server.make_join()
    OwnCredential(file, join)  # killed before anybody heard of it
    own = OwnCredential(file, join)
    token = await server.agents.admit(own.token, PEER)
    made = await server.agents.redeem(token, "n1", IDENTITY, own.hash, PEER)  # killed before it heard the answer
    server.clock.advance(JOIN_SECONDS + 1)

    again = OwnCredential(file, join)

    assert again.hash == own.hash
    assert (await server.hello(again)).id == made.id
    assert (await server.hello(OwnCredential(file, None))).id == made.id


async def test_a_new_join_token_takes_the_place_of_a_credential_only_when_it_has_worked(server: Server, file: Path):
    old = await server.hello(OwnCredential(file, await server.make_join()))
    later = await server.make_join(expires_in="1m")
    server.clock.advance(61)
    with pytest.raises(Unauthenticated):
        await server.hello(OwnCredential(file, later))
    assert (await server.hello(OwnCredential(file, None))).id == old.id

    new = await server.hello(OwnCredential(file, await server.make_join()))

    assert new.id != old.id
    assert (await server.hello(OwnCredential(file, None))).id == new.id


async def test_what_is_no_hash_is_refused_before_the_join_token_is_used(server: Server, file: Path):
    join = await server.make_join()
    token = await server.agents.admit(join, PEER)
    for hash in ("", "x" * 64, "a" * 63, "A" * 64, "ed25519:", f"ed25519:{'a' * 63}", f"ED25519:{'a' * 64}"):
        with pytest.raises(Invalid):
            await server.agents.redeem(token, "n1", IDENTITY, hash, PEER)
    await server.hello(OwnCredential(file, join))


def test_a_credential_file_that_is_damaged_or_a_token_of_another_kind_is_said(file: Path):
    with pytest.raises(ConfigError, match="horae_j_"):
        OwnCredential(file, "horae_a_1_" + "x" * 43)
    file.parent.mkdir()
    file.write_text("{")
    with pytest.raises(ConfigError, match="not a credential"):
        OwnCredential(file, None)


# ── renewal ──


async def test_S43_the_old_secret_is_good_until_the_new_one_was_used_once(server: Server, file: Path):
    own = OwnCredential(file, await server.make_join())
    token = await server.hello(own)
    old = own.token
    assert await server.agents.renewal_in(token) == DAY
    server.clock.advance(DAY)
    assert await server.agents.renewal_in(await server.hello(own)) == 0

    await server.renew(own, token)
    own.take_next()

    assert own.token != old
    assert (await server.agents.admit(old, PEER)).id == token.id
    renewed = await server.hello(own)
    assert renewed.id == token.id
    assert await server.agents.renewal_in(renewed) == DAY
    assert (await refusal(server, old)).code == "E_JOIN_TOKEN"
    assert (await server.hello(OwnCredential(file, None))).id == token.id


async def test_an_agent_that_dies_at_any_point_of_a_renewal_comes_in_again(server: Server, file: Path):
    token = await server.hello(OwnCredential(file, await server.make_join()))
    own = OwnCredential(file, None)
    own.make_next()  # killed before it was sent
    assert (await server.hello(OwnCredential(file, None))).id == token.id
    own = OwnCredential(file, None)
    await server.renew(own, token)  # killed before it was answered
    own = OwnCredential(file, None)
    assert (await server.hello(own)).id == token.id
    await server.renew(own, token)  # the same again
    own.take_next()  # killed before it came in with it
    assert (await server.hello(OwnCredential(file, None))).id == token.id
    assert (await server.hello(OwnCredential(file, None))).id == token.id


async def test_a_node_that_read_a_credential_just_before_its_renewal_lets_the_agent_in(server: Server, file: Path):
    """Another node of the cluster believes what it read for five seconds."""
    own = OwnCredential(file, await server.make_join())
    token = await server.hello(own)
    other = Server(server.store, server.clock)
    await other.hello(own)
    await server.renew(own, token)
    own.take_next()

    assert (await other.hello(own)).id == token.id


async def test_a_token_that_was_given_is_never_renewed(server: Server):
    token, _ = await server.access.create("gpu", "agent", "ann", None, bounds=Bounds("n1"))
    assert await server.agents.renewal_in(token) is None
    with pytest.raises(Denied):
        await server.agents.renew(token, "n1", verifiers.kept_of(verifiers.new_secret()), PEER)


# ── eviction ──


async def test_an_evicted_agent_comes_back_with_a_new_join_token_and_nothing_else(server: Server, file: Path):
    join = await server.make_join()
    own = OwnCredential(file, join)
    token = await server.hello(own)
    await server.renew(own, token)
    other = Server(server.store, server.clock)
    await other.hello(own)  # which believes it for five seconds
    await server.store.register_node(node())
    await server.store.evict_node("n1", server.clock.now())
    server.access.doubt_agents()

    with pytest.raises(Evicted):
        await server.hello(own)
    server.clock.advance(5)
    with pytest.raises(Evicted):
        await other.hello(own)
    own.take_next()
    with pytest.raises(Evicted):
        await server.hello(own)
    with pytest.raises(Denied):  # what made it is used up
        await server.hello(OwnCredential(file.with_name("again"), join))

    again = await server.hello(OwnCredential(file, await server.make_join("n1")))

    assert again.id != token.id
    assert await server.store.register_node(node()) > 0


async def test_joining_renewing_and_being_refused_are_in_the_audit_log(server: Server, file: Path):
    own = OwnCredential(file, await server.make_join())
    await server.renew(own, await server.hello(own))
    await server.agents.refuse("n1", PEER, "E_JOIN_USED")

    rows = await server.store.list_audit(AuditFilter(), None, 10)

    told = [(one.operation, one.kind, one.subject, str(one.outcome), one.address, one.code) for one in rows]
    assert told == [
        ("agent join", "node", "n1", "refused", PEER, "E_JOIN_USED"),
        ("agent renew", "node", "n1", "done", PEER, ""),
        ("agent join", "node", "n1", "done", PEER, ""),
    ]


def test_a_join_token_is_for_a_day_at_most_and_for_an_agent():
    assert parse_token({"name": "j", "scope": "join", "node": "*"}).expires_in == JOIN_SECONDS
    for wrong in ({"expires_in": "25h"}, {"expires_in": "never"}, {"node": None}, {"role": "admin"}):
        with pytest.raises(Invalid):
            parse_token({"name": "j", "scope": "join", "node": "*", **wrong})
