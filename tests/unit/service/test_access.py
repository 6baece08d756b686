"""Tokens: what is kept, who gets in, who does not, and what a stranger can cost."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from horae.core.identity import User
from horae.core.model import SECOND, Bounds
from horae.core.roles import Role
from horae.errors import Denied, Error, Invalid, Limited, NotFound, Unauthenticated, Unavailable
from horae.service.access import SESSION, Access, credentials
from horae.service.access.credentials import CACHE_SECONDS, TRIES, WINDOW
from horae.service.access.sessions import SESSION_IDLE
from horae.service.access.wanted import DEFAULT_SECONDS, Wanted, parse_token
from horae.testing import START, FakeClock

from .parts import BOTH, Probe


@pytest.fixture
def access(probe: Probe, clock: FakeClock) -> Access:
    return Access(probe, clock)


async def made(access: Access, scope: str = "user", expires_in: float | None = None) -> str:
    return (await access.create("ci", scope, "ann", expires_in))[1]


def wrong_secret(text: str) -> str:
    """Of the same kind: the last character tells it."""
    return text[:-2] + ("A" if text[-2] != "A" else "B") + text[-1]


async def refusal(access: Access, text: str | None, scope: str = "user") -> Error:
    with pytest.raises(Error) as caught:
        await access.check(text, scope)
    return caught.value


# ── making ──


@BOTH
async def test_a_token_opens_the_door_and_says_who_comes(access: Access, probe: Probe):
    token, text = await access.create("ci", "user", "ann", 60.0)

    assert re.fullmatch(rf"horae_u_{token.id}_[A-Za-z0-9_-]{{43}}", text)
    assert await access.check(text, "user") == token
    assert (token.name, token.owner, token.created_at, token.expires_at) == ("ci", "ann", START, START + 60 * SECOND)
    assert await access.list() == [token]


async def test_the_secret_is_neither_kept_nor_logged(access: Access, probe: Probe):
    with capture_logs() as lines:
        token, text = await access.create("ci", "agent", "ann", None)
        await access.revoke(token.id)
    secret = text[-43:]

    assert [(line["event"], line["id"], line["scope"]) for line in lines] == [
        ("token.created", token.id, "agent"),
        ("token.revoked", token.id, "agent"),
    ]
    assert secret not in repr(lines)
    assert secret not in repr(await probe.store.list_tokens())


async def test_two_tokens_never_have_the_same_secret(access: Access):
    secrets = {(await made(access))[-43:] for _ in range(20)}

    assert len(secrets) == 20


# ── who gets in ──


async def test_F07_S39_every_way_to_be_wrong_is_refused_in_the_same_words(access: Access, clock: FakeClock):
    good, expired, revoked = await made(access), await made(access, expires_in=5), await made(access)
    await access.revoke(3)
    clock.advance(5)

    wrong = [
        *(wrong_secret(good), good.replace("_1_", "_99_"), good.replace("_1_", "_2_"), good.replace("_u_", "_a_")),
        *(expired, revoked, "", "x", good + "x", f" {good}", "horae_u_1_", good[:-1] + "\0", "é" * 50, "A" * 1_000_000),
        f"horae_u_9223372036854775808_{good[-43:]}",
    ]
    refusals = [await refusal(access, text) for text in wrong] + [await refusal(access, None)]

    assert {(one.status, one.code, one.message, one.hint) for one in refusals} == {
        (401, "E_TOKEN", refusals[0].message, refusals[0].hint)
    }
    assert (await access.check(good, "user")).id == 1


async def test_F05_a_wrong_secret_costs_the_same_work_as_a_token_that_is_not_there(
    access: Access, probe: Probe, monkeypatch: pytest.MonkeyPatch
):
    """Counted rather than timed: as many questions to the store, and as many secrets hashed and compared."""
    good, compared = await made(access), []
    is_secret_of = credentials.is_secret_of
    monkeypatch.setattr(
        "horae.service.access.is_secret_of", lambda *given: compared.append(given) or is_secret_of(*given)
    )

    async def work(text: str) -> tuple[int, int]:
        before, compared[:] = probe.calls["get_token"], []
        await refusal(access, text)
        return probe.calls["get_token"] - before, len(compared)

    assert await work(wrong_secret(good)) == await work(good.replace("_1_", "_99_")) == (1, 1)


async def test_agents_are_refused_with_a_code_of_their_own(access: Access):
    wrong = await refusal(access, wrong_secret(await made(access, "agent")), "agent")

    assert isinstance(wrong, Unauthenticated)
    assert (wrong.status, wrong.code) == (401, "E_JOIN_TOKEN")
    assert (await refusal(access, None, "agent")).code == "E_JOIN_TOKEN"


@pytest.mark.parametrize(("has", "asks"), [("user", "agent"), ("agent", "user")])
async def test_a_token_opens_no_door_but_its_own(access: Access, has: str, asks: str):
    error = await refusal(access, await made(access, has), asks)

    assert isinstance(error, Denied)
    assert (error.status, error.code) == (403, "E_TOKEN_SCOPE")
    assert ("--agent NODE" in error.hint) == (asks == "agent")


async def test_a_token_is_good_until_the_moment_it_expires(access: Access, clock: FakeClock):
    text = await made(access, expires_in=10)
    clock.advance(9.999)
    assert await access.check(text, "user")

    clock.advance(0.001)

    assert (await refusal(access, text)).code == "E_TOKEN"
    assert [access.state_of(token) for token in await access.list()] == ["expired"]


async def test_a_login_exists_only_while_a_user_token_is_good(access: Access, clock: FakeClock):
    assert not await access.has_login()
    await made(access, "agent")
    assert not await access.has_login()
    await made(access, expires_in=10)
    assert await access.has_login()
    clock.advance(10)
    assert not await access.has_login()
    await made(access)
    assert await access.has_login()
    await access.revoke(3)
    assert not await access.has_login()


# ── revoking ──


async def test_a_revoked_token_is_refused_here_at_once_and_elsewhere_within_the_cache(
    access: Access, probe: Probe, clock: FakeClock
):
    elsewhere, text = Access(probe, clock), await made(access)
    await elsewhere.check(text, "user")

    await access.revoke(1)

    assert (await refusal(access, text)).code == "E_TOKEN"
    assert await elsewhere.check(text, "user")  # as documented: it learns of it a little later
    clock.advance(CACHE_SECONDS)
    assert (await refusal(elsewhere, text)).code == "E_TOKEN"


@pytest.mark.parametrize("scope", ["user", SESSION])
async def test_S42_what_the_store_was_asked_before_a_revocation_is_not_believed_after_it(
    access: Access, probe: Probe, scope: str
):
    text = await made(access)

    async def revoke(_: object) -> None:
        await access.revoke(1)

    probe.after("get_token", revoke)
    await access.admit(text, scope)  # the answer was on its way

    with pytest.raises(Unauthenticated):
        await access.admit(text, scope)


async def test_S42_what_the_store_was_asked_before_a_user_changed_is_not_believed_after_that(
    access: Access, probe: Probe, clock: FakeClock
):
    user = await probe.store.add_user(User(0, "ann", roles={1: Role.ADMIN}))
    assert user is not None
    text = await made(access)
    assert (await access.admit(text, "user")).who.role is Role.ADMIN
    clock.advance(CACHE_SECONDS)

    async def disable(_: object) -> None:
        await probe.store.set_disabled(user.id, clock.now())
        access.doubt_user(user.id)

    probe.after("get_user", disable)
    await access.admit(text, "user")

    assert (await refusal(access, text)).code == "E_TOKEN"


async def test_S42_a_session_that_is_ended_while_it_is_used_is_not_remembered(
    access: Access, probe: Probe, clock: FakeClock
):
    token, _ = await access.create("ci", "user", "ann", None)
    text = await access.open_session(token)
    clock.advance(SESSION_IDLE / 2)

    async def end(_: object) -> None:
        await access.sessions.end(1)

    probe.after("touch_session", end)
    await access.admit(text, SESSION)

    with pytest.raises(Unauthenticated):
        await access.admit(text, SESSION)


async def test_revoking_twice_is_no_error_and_an_unknown_token_is(access: Access):
    await made(access)

    assert await access.revoke(1) == await access.revoke(1)
    with pytest.raises(NotFound):
        await access.revoke(2)


# ── what it costs ──


async def test_a_thousand_checks_cost_one_query(access: Access, probe: Probe, clock: FakeClock):
    text = await made(access)
    for _ in range(1000):
        await access.check(text, "user")
    assert probe.calls["get_token"] == 1

    clock.advance(CACHE_SECONDS)
    await access.check(text, "user")

    assert probe.calls["get_token"] == 2


async def test_whoever_was_let_in_a_moment_ago_is_not_judged_anew(access: Access, clock: FakeClock):
    text = await made(access)
    first = await access.admit(text, "user")

    assert await access.admit(text, "user") is first
    clock.advance(CACHE_SECONDS)
    assert await access.admit(text, "user") is not first


async def test_a_token_that_was_good_a_moment_ago_is_refused_once_it_has_expired(access: Access, clock: FakeClock):
    _, text = await access.create("ci", "user", "ann", CACHE_SECONDS / 3)
    await access.admit(text, "user")

    clock.advance(CACHE_SECONDS / 2)

    assert (await refusal(access, text)).code == "E_TOKEN"


async def test_who_was_let_in_for_one_scope_is_not_for_another(access: Access):
    text = await made(access)
    await access.admit(text, "user")

    with pytest.raises(Denied):
        await access.admit(text, "agent")


async def test_nobody_is_let_in_while_the_store_cannot_say(access: Access, probe: Probe, clock: FakeClock):
    text = await made(access)
    await access.check(text, "user")
    clock.advance(CACHE_SECONDS)

    probe.lose_call("get_token")

    with pytest.raises(Unavailable):
        await access.check(text, "user")
    assert await access.check(text, "user")


async def test_a_new_token_works_even_if_its_id_was_tried_before(access: Access, clock: FakeClock):
    await refusal(access, "horae_u_1_" + "A" * 43)

    assert await access.check(await made(access), "user")


async def test_S40_a_peer_that_guesses_is_stopped_and_those_beside_it_go_on(
    access: Access, probe: Probe, clock: FakeClock
):
    text, other = await made(access), await made(access)
    await access.check(text, "user", "10.0.0.1")
    for number in range(TRIES):
        with pytest.raises(Unauthenticated):
            await access.check(f"horae_u_{number + 100}_{text[-43:]}", "user", "10.0.0.1")
    asked = probe.calls["get_token"]

    with pytest.raises(Limited):
        await access.check("horae_u_999_" + "A" * 43, "user", "10.0.0.1")
    with pytest.raises(Unauthenticated):  # a wrong secret of a known token costs no query either
        await access.check(wrong_secret(text), "user", "10.0.0.1")
    assert await access.check(text, "user", "10.0.0.1")
    assert probe.calls["get_token"] == asked

    clock.advance(CACHE_SECONDS)
    assert await access.check(text, "user", "10.0.0.1")  # who worked before is looked up anew
    assert await access.check(other, "user", "10.0.0.2")
    clock.advance(WINDOW)
    with pytest.raises(Unauthenticated):
        await access.check("horae_u_999_" + "A" * 43, "user", "10.0.0.1")


async def test_memory_is_bounded_whatever_strangers_send(access: Access, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(credentials, "CACHED", 10)
    monkeypatch.setattr(credentials, "PEERS", 10)
    for number in range(1, 50):
        await refusal_from(access, f"horae_u_{number}_{'A' * 43}", f"peer {number}")

    assert (len(access._known._known), len(access._guessers._failures)) == (10, 10)


async def refusal_from(access: Access, text: str, peer: str) -> None:
    with pytest.raises(Unauthenticated):
        await access.check(text, "user", peer)


# ── asking for one ──


def test_a_request_is_read_with_its_defaults():
    least = parse_token({"name": "ci"})

    assert (least.name, least.scope, least.owner, least.expires_in) == ("ci", "user", None, DEFAULT_SECONDS)
    agents = {"name": "x", "scope": "agent", "node": "n", "owner": "ann", "expires_in": "30d"}
    assert replace(parse_token(agents), name="y") == Wanted("y", "agent", "ann", 30 * 86400.0, Bounds("n"))
    bounded = parse_token({**agents, "kinds": ["shell"], "labels": ["gpu", "zone=eu"]})
    assert bounded.bounds == Bounds("n", ("shell",), ("gpu", "zone=eu"))
    offering = parse_token({**agents, "resources": ["memory=1024MiB", "gpu=2", "cpus=1.5"]}).bounds
    assert offering is not None
    assert offering.resources == ("cpus=1.5", "gpu=2", "memory=1GiB")


@pytest.mark.parametrize(
    ("asked", "code", "path"),
    [
        ({"scope": "agent"}, "E_REQUIRED", "node"),
        ({"scope": "agent", "node": "a b"}, "E_PATTERN", "node"),
        ({"scope": "agent", "node": "n", "kinds": ["Shell"]}, "E_PATTERN", "kinds"),
        ({"scope": "agent", "node": "n", "labels": [1]}, "E_PATTERN", "labels"),
        ({"scope": "agent", "node": "n", "labels": ["a"] * 65}, "E_LIMIT", "labels"),
        ({"scope": "agent", "node": "n", "resources": ["gpu"]}, "E_PATTERN", "resources"),
        ({"scope": "agent", "node": "n", "resources": ["gpu=many"]}, "E_TYPE", "resources.gpu"),
        ({"scope": "agent", "node": "n", "resources": ["slots=4"]}, "E_PATTERN", "resources"),
        ({"scope": "agent", "node": "n", "resources": "gpu=1"}, "E_TYPE", "resources"),
        ({"node": "n"}, "E_FIELD_CONFLICT", "node"),
        ({"labels": []}, "E_FIELD_CONFLICT", "labels"),
    ],
)
def test_the_token_of_an_agent_and_no_other_says_what_it_is_good_for(asked: dict[str, object], code: str, path: str):
    with pytest.raises(Invalid) as caught:
        parse_token({"name": "x", **asked})
    assert [(problem.code, problem.path) for problem in caught.value.problems] == [(code, path)]


@BOTH
async def test_what_a_token_is_good_for_is_kept(access: Access, probe: Probe):
    for bounds in (None, Bounds("*"), Bounds("gpu-1", ("shell", "python"), ("gpu",), ("gpu=1",))):
        made, text = await access.create("ci", "agent", "ann", None, bounds=bounds)
        assert made.bounds == (await access.check(text, "agent")).bounds == bounds
    assert [token.bounds for token in await access.list()][-1] is None


@BOTH
async def test_of_many_tokens_one_question_tells_which_are_good(access: Access, probe: Probe, clock: FakeClock):
    parent, _ = await access.create("ci", "user", "ann", None)
    made = [await access.create("a", "agent", "ann", seconds, owner) for seconds, owner in (
        (None, None), (None, None), (5.0, None), (None, parent))]  # fmt: skip
    good, revoked, _, _ = (token.id for token, _ in made)
    await access.revoke(revoked)
    await access.revoke(parent.id)
    clock.advance(5)
    probe.calls.clear()

    assert await access.still_good([token.id for token, _ in made] + [999]) == {good}
    assert sum(probe.calls.values()) == 1


@pytest.mark.parametrize(
    ("document", "code", "path"),
    [
        ({}, "E_REQUIRED", "name"),
        ([], "E_TYPE", ""),
        ({"name": 1}, "E_TYPE", "name"),
        ({"name": ""}, "E_EMPTY", "name"),
        ({"name": "-x"}, "E_PATTERN", "name"),
        ({"name": "a\nb"}, "E_CHAR", "name"),
        ({"name": "n" * 129}, "E_LEN", "name"),
        ({"name": "x", "scope": "admin"}, "E_ENUM", "scope"),
        ({"name": "x", "scope": None}, "E_TYPE", "scope"),
        ({"name": "x", "owner": "\x1b[31m"}, "E_CHAR", "owner"),
        ({"name": "x", "expires_in": "soon"}, "E_INTERVAL_SYNTAX", "expires_in"),
        ({"name": "x", "expires_in": -1}, "E_RANGE", "expires_in"),
        ({"name": "x", "expires_in": "400d"}, "E_RANGE", "expires_in"),
        ({"name": "x", "secret": "mine"}, "E_UNKNOWN_FIELD", "secret"),
    ],
)
def test_a_bad_request_is_refused_with_its_place(document: object, code: str, path: str):
    with pytest.raises(Invalid) as caught:
        parse_token(document)

    assert [(one.code, one.path) for one in caught.value.listed()] == [(code, path)]


# ── tokens of tokens, sessions ──


@BOTH
async def test_a_token_made_by_a_token_has_its_owner_and_ends_with_it(access: Access, probe: Probe):
    parent, _ = await access.create("ci", "user", "ann", None)
    child, text = await access.issue(parse_token({"name": "laptop"}), parent)
    grandchild, further = await access.issue(parse_token({"name": "gpu", "scope": "agent", "node": "gpu-1"}), child)
    assert [it.owner for it in (child, grandchild)] == ["ann", "ann"]
    assert await access.check(text, "user") == child
    assert await access.check(further, "agent") == grandchild

    await access.revoke(parent.id)

    assert isinstance(await refusal(access, text), Unauthenticated)
    assert isinstance(await refusal(access, further, "agent"), Unauthenticated)
    assert {access.state_of(token) for token in await access.list()} == {"revoked"}


async def test_a_token_cannot_make_one_of_another_owner(access: Access, probe: Probe):
    parent, _ = await access.create("ci", "user", "ann", None)

    with pytest.raises(Denied) as caught:
        await access.issue(parse_token({"name": "x", "owner": "bob"}), parent)

    assert caught.value.code == "E_TOKEN_OWNER"
    assert len(await access.list()) == 1
    made, _ = await access.issue(parse_token({"name": "x", "owner": "bob"}))
    assert (made.owner, made.parent_id) == ("bob", None)


@pytest.mark.parametrize("asked", [{}, {"expires_in": "never"}, {"expires_in": "300d"}])
async def test_a_users_token_does_not_outlive_the_one_it_was_made_by(access: Access, asked: dict[str, str]):
    parent, _ = await access.create("ci", "user", "ann", 3600.0)

    child, _ = await access.issue(parse_token({"name": "x", **asked}), parent)
    agent, _ = await access.issue(parse_token({"name": "x", "scope": "agent", "node": "*", **asked}), parent)

    assert child.expires_at == parent.expires_at
    assert agent.expires_at == (START + 300 * 86_400 * SECOND if asked.get("expires_in") == "300d" else None)


@pytest.mark.parametrize(
    ("asked", "days"),
    [({}, 90), ({"scope": "agent", "node": "n"}, None), ({"expires_in": "never"}, None), ({"expires_in": "5d"}, 5)],
)
async def test_tokens_last_ninety_days_and_those_of_agents_until_revoked_unless_said(
    access: Access, asked: dict[str, str], days: int | None
):
    token, _ = await access.issue(parse_token({"name": "x", **asked}))

    assert token.expires_at == (None if days is None else START + days * 86_400 * SECOND)


@BOTH
async def test_a_session_is_good_where_one_is_taken_and_ends_with_its_token(access: Access, probe: Probe):
    token, _ = await access.create("ci", "user", "ann", None)
    session = await access.open_session(token)
    assert session.startswith("horae_s_")
    assert await access.check(session, SESSION) == token

    for scope in ("user", "agent"):
        assert isinstance(await refusal(access, session, scope), Unauthenticated)
    assert isinstance(await refusal(access, wrong_secret(session), SESSION), Unauthenticated)
    await access.revoke(token.id)
    assert isinstance(await refusal(access, session, SESSION), Unauthenticated)


async def test_a_session_ends_by_itself_and_not_after_its_token(access: Access, clock: FakeClock):
    lasting, _ = await access.create("ci", "user", "ann", None)
    short, _ = await access.create("ci", "user", "ann", 60.0)
    sessions = [await access.open_session(token) for token in (lasting, short)]

    clock.advance(60)
    assert await access.check(sessions[0], SESSION) == lasting
    assert isinstance(await refusal(access, sessions[1], SESSION), Unauthenticated)
    clock.advance(SESSION_IDLE)
    assert isinstance(await refusal(access, sessions[0], SESSION), Unauthenticated)


async def test_who_guesses_sessions_is_told_to_wait(access: Access):
    for number in range(TRIES):
        with pytest.raises(Unauthenticated):
            await access.check(f"horae_s_{number + 1}_{'A' * 43}", SESSION, "10.0.0.1")
    with pytest.raises(Limited):
        await access.check(f"horae_s_999_{'A' * 43}", SESSION, "10.0.0.1")
