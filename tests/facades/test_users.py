"""Local users: made with a one-time link, logged in by password, disabled everywhere; organisations and members."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from statistics import median
from time import perf_counter
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from horae.contracts import CONTRACTS
from horae.core.audit import AuditFilter
from horae.core.identity import EVERYWHERE, LOCAL, UserKind
from horae.core.roles import Role
from horae.service.access import SESSION, Access
from horae.service.access.credentials import CACHE_SECONDS
from horae.service.access.sessions import PROVEN_SECONDS, SESSION_IDLE, SESSION_SECONDS
from horae.service.access.throttle import TRIES, TRIES_OF_MANY, WINDOW
from horae.service.access.users import INVITE_SECONDS
from horae.web import app as web
from tests.facades.test_native import JOB, problem_of
from tests.facades.world import BOTH, World

FAR = "https://10.0.0.1:8443"
PAGE = {"accept": "text/html"}
ORIGIN = {"origin": FAR}
PASSWORD = "correct horse battery staple"
COOKIE = "__Host-horae"

Browser = Callable[..., httpx.AsyncClient]


@pytest.fixture
async def browser(world: World) -> AsyncIterator[Browser]:
    """Browsers, each with an address of its own."""
    opened: list[httpx.AsyncClient] = []

    def make(address: str = "10.0.0.9") -> httpx.AsyncClient:
        gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
        transport = httpx.ASGITransport(gate, client=(address, 4711))
        opened.append(httpx.AsyncClient(transport=transport, base_url=FAR, headers=ORIGIN))
        return opened[-1]

    yield make
    for each in opened:
        await each.aclose()


@pytest.fixture
async def far(browser: Browser) -> httpx.AsyncClient:
    return browser()


async def link_for(world: World, name: str, roles: dict[int, Role] | None = None) -> str:
    await world.services.users.create(name, LOCAL, roles=roles if roles is not None else {1: Role.EDITOR})
    return (await world.services.users.invite(name, LOCAL))[1]


async def accept(far: httpx.AsyncClient, invitation: str, password: str = PASSWORD) -> httpx.Response:
    return await far.post("/login/invite", data={"invitation": invitation, "password": password}, headers=PAGE)


async def member(world: World, far: httpx.AsyncClient, name: str = "ann", roles: dict[int, Role] | None = None) -> None:
    """Somebody who is logged in."""
    answer = await accept(far, await link_for(world, name, roles))
    assert answer.status_code == 303, answer.text


async def log_in(far: httpx.AsyncClient, name: str = "ann", password: str = PASSWORD, **sent: str) -> httpx.Response:
    return await far.post("/login", data={"name": name, "password": password, **sent}, headers=PAGE)


# ── coming in ──


@BOTH
async def test_a_link_sets_the_first_password_once_and_then_the_password_logs_in(
    far: httpx.AsyncClient, world: World
) -> None:
    invitation = await link_for(world, "ann")
    assert "Set your password" in (await far.get(f"/login/invite/{invitation}")).text
    with capture_logs() as lines:
        first = await accept(far, invitation)
    assert (first.status_code, first.headers["location"]) == (303, "/")
    assert invitation[-43:] not in str(lines)
    assert PASSWORD not in str(lines)
    me = (await far.get("/v1/me")).json()
    assert me == {"name": "ann", "org": 1, "role": "editor", "via": "session 1", "user_id": 1, "orgs": [1]}
    assert (await accept(far, invitation)).status_code == 401

    far.cookies.clear()
    again = await log_in(far, next="/?x=1")
    assert (again.status_code, again.headers["location"]) == (303, "/?x=1")
    made = await far.post("/v1/jobs", json=JOB)
    assert made.json()["jobs"][0]["owner"] == "ann"
    assert "ann" in (await far.get("/", headers=PAGE)).text
    kept = (await world.store.get_user(1)).password  # type: ignore[union-attr]
    assert kept is not None
    assert kept.startswith("$argon2id$")


async def test_a_link_is_over_after_a_day_and_when_a_newer_one_was_made(far: httpx.AsyncClient, world: World) -> None:
    first = await link_for(world, "ann")
    second = (await world.services.users.invite("ann", LOCAL))[1]
    problem_of(await far.post("/login/invite", data={"invitation": first, "password": PASSWORD}), 401, "E_INVITATION")
    world.clock.advance(INVITE_SECONDS)
    problem_of(await far.post("/login/invite", data={"invitation": second, "password": PASSWORD}), 401, "E_INVITATION")


@pytest.mark.parametrize("password", ["", "short", "a" * 1025, "ann-ann-ann-", "aaaaaaaaaaaa"])
async def test_a_weak_password_is_refused_and_the_link_stays_good(
    far: httpx.AsyncClient, world: World, password: str
) -> None:
    invitation = await link_for(world, "ann")
    answer = await far.post("/login/invite", data={"invitation": invitation, "password": password})
    problem_of(answer, 422, "E_PASSWORD")
    assert (await accept(far, invitation)).status_code == 303


async def test_F31_every_login_makes_a_new_session_and_ends_the_one_before(
    far: httpx.AsyncClient, world: World
) -> None:
    await member(world, far)
    before = far.cookies[COOKIE]
    sent = (await log_in(far)).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Secure", "Path=/"} <= set(sent.split("; "))
    assert far.cookies[COOKIE] != before
    far.cookies.clear()
    problem_of(await far.get("/v1/me", headers={"cookie": f"{COOKIE}={before}"}), 401, "E_TOKEN")


async def test_who_is_a_member_of_nothing_is_told_how_that_can_change(far: httpx.AsyncClient, world: World) -> None:
    invitation = await link_for(world, "ann", {})
    problem = problem_of(
        await far.post("/login/invite", data={"invitation": invitation, "password": PASSWORD}), 403, "E_NO_MEMBER"
    )
    assert "horae orgs add default ann" in problem["hint"]


async def test_the_ci_contract_takes_name_and_password(far: httpx.AsyncClient, world: World) -> None:
    await member(world, far)
    far.cookies.clear()
    answer = await far.post("/api/v1/login", json={"username": "ann", "password": PASSWORD})
    assert (answer.status_code, answer.json()) == (200, {"user": "ann"})
    assert (await far.get("/api/v1/user_jobs")).status_code == 200
    assert (await far.post("/api/v1/logout")).json() == {"user": "ann"}
    refused = await far.post("/api/v1/login", json={"username": "ann", "password": "wrong"})
    assert refused.status_code == 401


# ── F-45: nobody learns who there is ──


async def test_F45_unknown_users_and_wrong_passwords_are_refused_in_the_same_words(
    far: httpx.AsyncClient, world: World
) -> None:
    await member(world, far)
    await world.services.users.create("bot", LOCAL, kind=UserKind.SERVICE, roles={1: Role.ADMIN})
    await world.services.users.create("bob", LOCAL, roles={1: Role.ADMIN})
    await member(world, far, "eve")
    await world.services.users.set_disabled("eve", LOCAL, is_disabled=True)
    answers = []
    for name, password in (
        ("ann", "wrong"), ("nobody", PASSWORD), ("bot", PASSWORD), ("bob", PASSWORD), ("eve", PASSWORD), ("", ""),
        ("ann", "x" * 9000), ("\0é", "\0é"), ("ann'--", PASSWORD), ("ANN", PASSWORD),
    ):  # fmt: skip
        answer = await far.post("/login", data={"name": name, "password": password or " "})
        shown = problem_of(answer, 401, "E_PASSWORD_WRONG")
        answers.append({**shown, "request_id": ""})
    assert answers.count(answers[0]) == len(answers)


async def test_F45_an_unknown_user_takes_as_long_as_a_wrong_password(far: httpx.AsyncClient, world: World) -> None:
    """Counted as work: both hash once. Times are compared loosely, by their medians."""
    await member(world, far)

    async def seconds(name: str) -> float:
        began = perf_counter()
        await far.post("/login", data={"name": name, "password": "wrong"})
        return perf_counter() - began

    known, unknown = [], []
    for number in range(4):
        known.append(await seconds("ann"))
        unknown.append(await seconds(f"nobody{number}"))
    assert 0.2 < median(known) / median(unknown) < 5


async def test_a_wrong_password_is_shown_on_the_page_without_it(far: httpx.AsyncClient, world: World) -> None:
    answer = await log_in(far, "ann<script>", "wrong <b>")
    assert answer.status_code == 401
    assert "The name or the password is wrong." in answer.text
    assert "<b>" not in answer.text
    assert "set-cookie" not in answer.headers
    assert "script" not in answer.headers["content-security-policy"]
    assert "unsafe-inline" not in answer.headers["content-security-policy"]


# ── throttling ──


async def test_who_guesses_at_an_account_waits_and_its_user_goes_on(browser: Browser, world: World) -> None:
    home, stranger = browser("10.0.0.1"), browser("10.0.0.2")
    await member(world, home)
    assert (await log_in(home)).status_code == 303
    for _ in range(TRIES):
        assert (await log_in(stranger, password="wrong")).status_code == 401
    limited = await log_in(stranger, password=PASSWORD)
    assert limited.status_code == 429
    assert "Too many wrong passwords" in limited.text
    assert (await log_in(home)).status_code == 303
    world.clock.advance(WINDOW)
    assert (await log_in(stranger)).status_code == 303


async def test_guesses_from_everywhere_do_not_lock_out_where_one_logged_in_before(
    browser: Browser, world: World
) -> None:
    home = browser("10.0.0.1")
    await member(world, home)
    assert (await log_in(home)).status_code == 303
    for number in range(TRIES_OF_MANY):
        world.logins._throttle.begin("ann", f"10.1.0.{number}")  # as a wrong password would
    assert (await log_in(browser("10.2.0.1"))).status_code == 429
    assert (await log_in(home)).status_code == 303


async def test_guesses_from_an_address_do_not_lock_out_who_logged_in_from_it_before(
    browser: Browser, world: World
) -> None:
    shared = browser("2001:db8::1")
    await member(world, shared)
    assert (await log_in(shared)).status_code == 303
    for number in range(TRIES_OF_MANY):
        world.logins._throttle.begin(f"user{number}", "2001:db8::2")  # of the same customer
    assert (await log_in(shared, "somebody")).status_code == 429
    assert (await log_in(shared)).status_code == 303


# ── sessions ──


async def test_F33_S37_a_session_ends_when_it_is_not_used_and_after_a_day_whatever_happens(
    far: httpx.AsyncClient, world: World
) -> None:
    await member(world, far)
    for _ in range(3):
        world.clock.advance(SESSION_IDLE - 1)
        assert (await far.get("/v1/me")).status_code == 200
    world.clock.advance(SESSION_SECONDS - 3 * (SESSION_IDLE - 1))
    problem_of(await far.get("/v1/me"), 401, "E_TOKEN")

    await log_in(far)
    world.clock.advance(SESSION_IDLE)
    asked = await far.get("/runs/7", headers=PAGE)
    assert asked.status_code == 401
    assert 'value="/runs/7"' in asked.text


@BOTH
async def test_a_user_sees_and_ends_own_sessions_only(browser: Browser, world: World) -> None:
    one, two, other = browser("10.0.0.1"), browser("10.0.0.2"), browser("10.0.0.3")
    await member(world, one)
    await log_in(two)
    await member(world, other, "bob")
    items = (await two.get("/v1/sessions")).json()["items"]
    assert [(it["address"], it["is_current"]) for it in items] == [("10.0.0.2", True), ("10.0.0.1", False)]
    assert all("hash" not in it and "horae_s" not in str(it) for it in items)
    foreign = (await other.get("/v1/sessions")).json()["items"][0]["id"]
    problem_of(await two.delete(f"/v1/sessions/{foreign}"), 404, "E_NOT_FOUND")
    assert (await two.delete(f"/v1/sessions/{items[1]['id']}")).status_code == 204
    problem_of(await one.get("/v1/me"), 401, "E_TOKEN")
    assert (await two.get("/v1/me")).status_code == 200


async def test_who_has_no_account_has_no_sessions_to_list(far: httpx.AsyncClient, world: World) -> None:
    _, text = await world.services.access.create("ci", "user", "ci", None)
    problem_of(await far.get("/v1/sessions", headers={"authorization": f"Bearer {text}"}), 409, "E_NO_ACCOUNT")


@BOTH
async def test_who_is_disabled_is_refused_with_sessions_and_tokens_on_every_node_within_seconds(
    far: httpx.AsyncClient, world: World
) -> None:
    await member(world, far)
    _, token = await world.services.access.create("laptop", "user", "ann", None)
    elsewhere = Access(world.store, world.clock)
    session = far.cookies[COOKIE]
    for text in (session, token):
        assert (await elsewhere.admit(text, SESSION)).who.name == "ann"
    await world.services.users.set_disabled("ann", LOCAL, is_disabled=True)
    problem_of(await far.get("/v1/me"), 401, "E_TOKEN")
    problem_of(await far.get("/v1/me", headers={"authorization": f"Bearer {token}", "cookie": ""}), 401, "E_TOKEN")
    world.clock.advance(CACHE_SECONDS)
    for text in (session, token):
        with pytest.raises(Exception, match="this needs a token"):
            await elsewhere.admit(text, SESSION)
    await world.services.users.set_disabled("ann", LOCAL, is_disabled=False)
    assert (await far.get("/v1/me", headers={"authorization": f"Bearer {token}", "cookie": ""})).status_code == 200


async def test_a_token_of_a_user_may_do_no_more_than_the_user_now(far: httpx.AsyncClient, world: World) -> None:
    await member(world, far)
    _, token = await world.services.access.create("laptop", "user", "ann", None, role=Role.ADMIN)
    bearer = {"authorization": f"Bearer {token}", "cookie": ""}
    assert (await far.get("/v1/me", headers=bearer)).json()["role"] == "editor"
    await world.services.users.add_member(1, "ann", Role.VIEWER, LOCAL)
    assert (await far.get("/v1/me", headers=bearer)).json()["role"] == "viewer"
    await world.services.users.remove_member(1, "ann", LOCAL)
    problem_of(await far.get("/v1/me", headers=bearer), 401, "E_TOKEN")


# ── dangerous acts ──


NOT_PROVEN = {
    "POST /v1/tokens", "POST /v1/users", "POST /v1/users/ann/disable", "PUT /v1/orgs/1/members/ann", "POST /v1/orgs",
    "POST /v1/grants", "POST /v1/secrets/rotate", "POST /v1/nodes/node-1/evict", "POST /v1/triggers/1/hook",
    "POST /v1/jobs/1/ping", "GET /v1/jobs/1/ping", "GET /v1/runs/1/callbacks/paid",
}  # fmt: skip


@pytest.mark.parametrize("asked", sorted(NOT_PROVEN))
async def test_an_old_login_neither_does_what_is_dangerous_nor_is_shown_a_credential(
    far: httpx.AsyncClient, world: World, asked: str
) -> None:
    await member(world, far, roles={EVERYWHERE: Role.ADMIN})
    world.clock.advance(PROVEN_SECONDS)
    problem_of(await far.request(*asked.split(), json={}), 401, "E_REAUTH")
    _, text = await world.services.access.create("t", "user", "ann", None)
    far.cookies.clear()
    answer = await far.request(*asked.split(), json={}, headers={"authorization": f"Bearer {text}"})
    assert answer.status_code != 401, answer.text


async def test_a_dangerous_act_needs_a_login_of_the_last_minutes(far: httpx.AsyncClient, world: World) -> None:
    await member(world, far, roles={EVERYWHERE: Role.ADMIN})
    assert (await far.post("/v1/tokens", json={"name": "x"})).status_code == 201
    world.clock.advance(PROVEN_SECONDS)
    for method, path, body in (
        ("POST", "/v1/tokens", {"name": "x"}), ("POST", "/v1/users", {"name": "bob"}),
        ("POST", "/v1/users/ann/disable", None), ("PUT", "/v1/orgs/1/members/ann", {"role": "admin"}),
    ):  # fmt: skip
        problem_of(await far.request(method, path, json=body), 401, "E_REAUTH")
    assert (await far.get("/v1/users")).status_code == 200
    shown = await far.get("/device", headers=PAGE)
    assert shown.status_code == 401
    assert "Log in again" in shown.text
    await log_in(far)
    assert (await far.post("/v1/tokens", json={"name": "x"})).status_code == 201


async def test_a_token_made_in_a_session_outlives_it_and_is_bound_to_its_user(
    far: httpx.AsyncClient, world: World
) -> None:
    await member(world, far, roles={1: Role.ADMIN})
    made = (await far.post("/v1/tokens", json={"name": "x", "role": "viewer"})).json()
    assert (made["owner"], made["org"], made["role"], made["parent_id"]) == ("ann", 1, "viewer", None)
    await far.post("/logout")
    bearer = {"authorization": f"Bearer {made['token']}"}
    assert (await far.get("/v1/me", headers=bearer)).json()["via"] == f"token {made['id']}"
    await world.services.users.set_disabled("ann", LOCAL, is_disabled=True)
    problem_of(await far.get("/v1/me", headers=bearer), 401, "E_TOKEN")


async def test_F09_a_session_makes_no_token_that_may_do_more_or_is_of_another(
    far: httpx.AsyncClient, world: World
) -> None:
    await member(world, far, roles={1: Role.ADMIN})
    problem_of(await far.post("/v1/tokens", json={"name": "x", "owner": "bob"}), 403, "E_TOKEN_OWNER")
    problem_of(await far.post("/v1/tokens", json={"name": "x", "owner": "local"}), 403, "E_TOKEN_OWNER")
    problem_of(await far.post("/v1/tokens", json={"name": "x", "org": 2}), 403, "E_TOKEN_ORG")
    await world.services.users.create("bot", LOCAL, kind=UserKind.SERVICE, roles={1: Role.OPERATOR})
    made = await far.post("/v1/tokens", json={"name": "x", "owner": "bot"})
    assert made.status_code == 201
    bearer = {"authorization": f"Bearer {made.json()['token']}", "cookie": ""}
    assert (await far.get("/v1/me", headers=bearer)).json()["role"] == "operator"


async def test_a_service_account_cannot_log_in(world: World) -> None:
    await world.services.users.create("bot", LOCAL, kind=UserKind.SERVICE, roles={1: Role.OPERATOR})
    problem_of(await world.http.post("/v1/users/bot/invite"), 409, "E_SERVICE_ACCOUNT")


# ── users and organisations ──


@BOTH
async def test_users_and_organisations_are_made_by_who_runs_the_installation(
    far: httpx.AsyncClient, world: World
) -> None:
    await member(world, far, "root", {EVERYWHERE: Role.ADMIN})
    made = await far.post("/v1/orgs", json={"name": "data"})
    assert (made.status_code, made.json()["id"]) == (201, 2)
    user = await far.post("/v1/users", json={"name": "bob", "org": "data", "role": "admin"})
    assert user.json()["roles"] == {"2": "admin"}
    problem_of(await far.post("/v1/users", json={"name": "bob"}), 409, "E_NAME_TAKEN")
    problem_of(await far.post("/v1/orgs", json={"name": "data"}), 409, "E_NAME_TAKEN")
    link = (await far.post("/v1/users/bob/invite")).json()["link"]
    await accept(far, link.rpartition("/")[2])
    assert (await far.get("/v1/me")).json()["org"] == 2
    problem_of(await far.post("/v1/users", json={"name": "cid"}), 403, "E_ROLE")
    problem_of(await far.post("/v1/orgs", json={"name": "x"}), 403, "E_ROLE")
    problem_of(await far.post("/v1/users/root/disable"), 403, "E_ROLE")
    problem_of(await far.get("/v1/orgs/default/members"), 404, "E_NOT_FOUND")
    assert [it["name"] for it in (await far.get("/v1/orgs")).json()["items"]] == ["data"]
    assert [it["name"] for it in (await far.get("/v1/users")).json()["items"]] == ["bob"]
    await world.services.users.create("eve", LOCAL, roles={2: Role.EDITOR})
    assert (await far.put("/v1/orgs/data/members/eve", json={"role": "viewer"})).status_code == 204
    members = (await far.get("/v1/orgs/data/members")).json()["items"]
    assert [(it["name"], it["role"]) for it in members] == [("bob", "admin"), ("eve", "viewer")]


async def test_F49_the_last_admin_of_an_organisation_stays(far: httpx.AsyncClient, world: World) -> None:
    await member(world, far, roles={1: Role.ADMIN})
    problem_of(await far.delete("/v1/orgs/1/members/ann"), 409, "E_LAST_OWNER")
    await world.services.users.create("bob", LOCAL, roles={1: Role.ADMIN})
    assert (await far.delete("/v1/orgs/1/members/ann")).status_code == 204
    problem_of(await far.get("/v1/me"), 401, "E_TOKEN")


@pytest.mark.parametrize(
    ("sent", "path", "code"),
    [
        ({}, "name", "E_REQUIRED"),
        ({"name": 7}, "name", "E_TYPE"),
        ({"name": "x", "role": "root"}, "role", "E_ENUM"),
        ({"name": "x", "kind": "cat"}, "kind", "E_ENUM"),
        ({"name": "x", "nmae": "y"}, "nmae", "E_UNKNOWN_FIELD"),
        ({"name": "a b"}, "name", "E_PATTERN"),
        ({"name": "local"}, "name", "E_PATTERN"),
        ({"name": "LOCAL"}, "name", "E_PATTERN"),
        ({"name": "é"}, "name", "E_PATTERN"),
        ({"name": "x" * 64}, "name", "E_PATTERN"),
    ],
)
async def test_a_user_that_makes_no_sense_is_refused_at_its_path(
    world: World, sent: dict[str, Any], path: str, code: str
) -> None:
    answer = await world.http.post("/v1/users", json=sent)
    assert answer.status_code == 422, answer.text
    assert (answer.json()["errors"][0]["path"], answer.json()["errors"][0]["code"]) == (path, code)
    assert await world.store.list_users("", 10) == []


@pytest.mark.parametrize("name", ["nobody", "%00", "..%2f..", "a'--"])
async def test_a_user_who_does_not_exist_is_not_found(world: World, name: str) -> None:
    for act in ("invite", "disable", "enable"):
        assert (await world.http.post(f"/v1/users/{name}/{act}")).status_code == 404


async def test_who_comes_in_lets_a_program_in_and_goes_has_rows_and_so_has_a_wrong_password(
    far: httpx.AsyncClient, world: World
) -> None:
    await member(world, far)
    await log_in(far, password="not the password")
    await log_in(far)
    begun = (await far.post("/v1/device")).json()
    await far.post("/device", data={"code": begun["user_code"], "decision": "approve"}, headers=PAGE)
    await far.post("/device", data={"code": "BCDF-GHJK", "decision": "approve"}, headers=PAGE)
    await far.post("/logout")
    found = await world.store.list_audit(AuditFilter(), None, 100)
    assert [(row.operation, row.who, row.outcome, row.code) for row in reversed(found)] == [
        ("POST /login/invite", "ann", "done", ""),
        ("POST /login", "", "refused", "E_PASSWORD_WRONG"),
        ("POST /login", "ann", "done", ""),
        ("POST /v1/device", "", "done", ""),
        ("POST /device", "ann", "done", ""),
        ("POST /logout", "ann", "done", ""),
    ]


# ── devices ──


@BOTH
async def test_a_program_is_let_in_by_the_user_who_confirms_its_code(far: httpx.AsyncClient, world: World) -> None:
    begun = (await far.post("/v1/device")).json()
    assert begun["verification_uri"] == "/device"
    asked = {"device_code": begun["device_code"]}
    problem_of(await far.post("/v1/device/token", json=asked), 400, "E_DEVICE_PENDING")
    problem_of(await far.post("/v1/device/token", json=asked), 429, "E_DEVICE_SLOW_DOWN")
    await member(world, far)
    page = await far.get("/device", params={"code": begun["user_code"].lower().replace("-", " ")}, headers=PAGE)
    assert "10.0.0.9" in page.text
    done = await far.post("/device", data={"code": begun["user_code"], "decision": "approve"}, headers=PAGE)
    assert "approved" in done.text
    far.cookies.clear()
    world.clock.advance(5)
    token = (await far.post("/v1/device/token", json=asked)).json()
    assert (token["owner"], token["role"]) == ("ann", "editor")
    me = await far.get("/v1/me", headers={"authorization": f"Bearer {token['token']}"})
    assert me.json()["name"] == "ann"
    world.clock.advance(5)
    problem_of(await far.post("/v1/device/token", json=asked), 403, "E_DEVICE_EXPIRED")


async def test_a_program_that_is_denied_or_comes_late_gets_nothing(far: httpx.AsyncClient, world: World) -> None:
    await member(world, far)
    begun = (await far.post("/v1/device")).json()
    await far.post("/device", data={"code": begun["user_code"], "decision": "deny"}, headers=PAGE)
    problem_of(await far.post("/v1/device/token", json={"device_code": begun["device_code"]}), 403, "E_DEVICE_DENIED")
    begun = (await far.post("/v1/device")).json()
    world.clock.advance(600)
    problem_of(await far.post("/device", data={"code": begun["user_code"], "decision": "approve"}), 401, "E_REAUTH")
    await log_in(far)
    problem_of(
        await far.post("/device", data={"code": begun["user_code"], "decision": "approve"}), 404, "E_DEVICE_CODE"
    )
    problem_of(await far.post("/v1/device/token", json={"device_code": begun["device_code"]}), 403, "E_DEVICE_EXPIRED")


@pytest.mark.parametrize("code", ["", "x", "horae_d_1_" + "x" * 43, "\0", "x" * 5000])
async def test_a_device_code_that_is_none_is_refused(far: httpx.AsyncClient, code: str) -> None:
    answer = await far.post("/v1/device/token", json={"device_code": code})
    assert answer.status_code in (403, 422), answer.text


async def test_who_tries_codes_is_told_to_wait(far: httpx.AsyncClient, world: World) -> None:
    await member(world, far)
    for _ in range(TRIES):
        assert (await far.get("/device", params={"code": "BBBB-BBBB"}, headers=PAGE)).status_code == 404
    assert (await far.get("/device", params={"code": "BBBB-BBBB"}, headers=PAGE)).status_code == 429
