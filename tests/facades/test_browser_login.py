"""Logging in with a browser: a token for a session, and what that is good for."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
import pytest
from structlog.testing import capture_logs

from horae.contracts import CONTRACTS
from horae.core.roles import Role
from horae.service.access.credentials import CACHE_SECONDS, TRIES
from horae.service.access.sessions import SESSION_IDLE
from horae.web import app as web
from tests.facades.test_native import JOB, problem_of
from tests.facades.world import BOTH, OWN, World, from_here

FAR = "https://10.0.0.1:8443"
PAGE = {"accept": "text/html"}
COOKIE = "__Host-horae"


@pytest.fixture
async def far(world: World) -> AsyncIterator[httpx.AsyncClient]:
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url=FAR) as browser:
        yield browser


async def token_for(world: World, owner: str = "ann", role: Role = Role.ADMIN, expires_in: float | None = None) -> str:
    return (await world.services.access.create("laptop", "user", owner, expires_in, role=role))[1]


async def log_in(browser: httpx.AsyncClient, token: str, following: str = "/") -> httpx.Response:
    return await browser.post("/login", data={"token": token, "next": following}, headers=PAGE)


@BOTH
async def test_a_token_opens_a_session_that_opens_pages_and_the_api(far: httpx.AsyncClient, world: World) -> None:
    asked = await far.get("/runs/7?tab=log", headers=PAGE)
    assert asked.status_code == 401
    assert 'name="next" value="/runs/7?tab=log"' in asked.text

    answer = await log_in(far, await token_for(world), "/?x=1")

    assert (answer.status_code, answer.headers["location"], answer.content) == (303, "/?x=1", b"")
    page = await far.get("/", headers=PAGE)
    assert page.status_code == 200
    assert "ann" in page.text
    assert "Log out" in page.text
    made = await far.post("/v1/jobs", json=JOB, headers={"origin": FAR})
    assert made.json()["jobs"][0]["owner"] == "ann"


async def test_whoever_is_not_known_yet_sees_pages_as_their_browser_was_told(far: httpx.AsyncClient) -> None:
    look = {"cookie": "horae-look=dark.compact.UTC", **PAGE}
    for address in ("/login", "/jobs", "/login/invite/x", "/nowhere"):
        assert 'data-theme="dark" data-density="compact"' in (await far.get(address, headers=look)).text, address


async def test_F31_the_cookie_is_out_of_reach_of_scripts_other_sites_and_plain_http(
    far: httpx.AsyncClient, world: World
) -> None:
    token = await token_for(world)
    with capture_logs() as lines:
        sent = (await log_in(far, token)).headers["set-cookie"]
    name, *flags = sent.replace("=", "; ", 1).split("; ")
    assert name == COOKIE
    assert set(flags[1:]) == {"Max-Age=86400", "HttpOnly", "SameSite=Lax", "Path=/", "Secure"}
    assert token[-43:] not in f"{sent} {lines}"


async def test_a_session_ends_with_logout_at_once(far: httpx.AsyncClient, world: World) -> None:
    await log_in(far, await token_for(world))
    kept = far.cookies[COOKIE]

    out = await far.post("/logout", headers={"origin": FAR})

    assert (out.status_code, out.headers["location"]) == (303, "/login")
    assert "Max-Age=0" in out.headers["set-cookie"]
    far.cookies.set(COOKIE, kept)
    problem_of(await far.get("/v1/jobs"), 401, "E_TOKEN")


async def test_a_session_ends_when_it_is_not_used_and_with_its_token(far: httpx.AsyncClient, world: World) -> None:
    await log_in(far, await token_for(world))
    world.clock.advance(SESSION_IDLE)
    problem_of(await far.get("/v1/jobs"), 401, "E_TOKEN")

    far.cookies.clear()
    token, text = await world.services.access.create("other", "user", "ann", None)
    await log_in(far, text)
    assert (await far.get("/v1/jobs")).status_code == 200
    await world.services.access.revoke(token.id)
    world.clock.advance(CACHE_SECONDS)
    problem_of(await far.get("/v1/jobs"), 401, "E_TOKEN")


async def test_a_session_may_do_what_its_token_may(far: httpx.AsyncClient, world: World) -> None:
    await log_in(far, await token_for(world, role=Role.VIEWER))
    assert (await far.get("/v1/jobs")).status_code == 200
    problem_of(await far.post("/v1/jobs", json=JOB, headers={"origin": FAR}), 403, "E_ROLE")
    problem_of(await far.post("/v1/jobs", json=JOB), 403, "E_ORIGIN")  # a browser says from which page it comes


@pytest.mark.parametrize("token", ["", "wrong", "horae_u_1_" + "x" * 43, "horae_s_1_" + "x" * 43, "x" * 9000, "\0é"])
async def test_F45_a_wrong_token_is_refused_in_the_same_words(far: httpx.AsyncClient, world: World, token: str) -> None:
    await token_for(world)
    answer = await log_in(far, token)
    assert answer.status_code == 401
    assert "This needs a token that is known, not revoked and not expired." in answer.text
    assert "set-cookie" not in answer.headers
    assert "form" in answer.text


async def test_a_program_is_told_of_a_wrong_token_as_a_problem(far: httpx.AsyncClient) -> None:
    problem_of(await far.post("/login", data={"token": "wrong"}), 401, "E_TOKEN")


async def test_guessing_is_slowed_down_and_told(far: httpx.AsyncClient, world: World) -> None:
    for number in range(1, TRIES + 2):
        answer = await log_in(far, f"horae_u_{number}_" + "x" * 43)
    assert answer.status_code == 429
    assert "wrong tokens came from this address" in answer.text


ELSEWHERE = ["//evil.example", "https://evil.example", "/\\evil.example", "evil"]


@pytest.mark.parametrize("place", [*ELSEWHERE, "", "/a\r\nset-cookie: x=1", pytest.param("/" * 3000, id="long")])
async def test_nobody_is_sent_to_another_site_after_a_login(far: httpx.AsyncClient, world: World, place: str) -> None:
    answer = await log_in(far, await token_for(world), place)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


@pytest.mark.parametrize("place", ELSEWHERE)
async def test_the_form_names_no_other_site(far: httpx.AsyncClient, place: str) -> None:
    assert 'name="next" value="/"' in (await far.get(f"/login?next={quote(place)}")).text
    assert 'name="next" value="/jobs/7"' in (await far.get("/login?next=/jobs/7")).text


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://10.0.0.1:8443:1"])
@pytest.mark.parametrize("path", ["/login", "/logout", "/v1/jobs"])
async def test_F37_S38_a_page_of_another_site_can_neither_log_in_nor_act_with_the_cookie(
    far: httpx.AsyncClient, world: World, origin: str, path: str
) -> None:
    token = await token_for(world)
    await log_in(far, token)
    kept = dict(far.cookies)
    answer = await far.post(
        path, content=f"token={token}", headers={"origin": origin, "content-type": "text/plain", **PAGE}
    )
    problem_of(answer, 403, "E_ORIGIN")
    assert dict(far.cookies) == kept
    assert (await far.get("/v1/jobs")).json()["items"] == []


@pytest.mark.parametrize("cookie", ["", "x", "horae_s_1_" + "x" * 43, "horae_u_1_" + "x" * 43, "x" * 8000, '"', "é"])
async def test_F35_a_cookie_that_is_no_session_of_ours_is_refused(
    far: httpx.AsyncClient, world: World, cookie: str
) -> None:
    await token_for(world)
    headers = {"cookie": f"{COOKIE}={cookie}".encode()}
    problem_of(await far.get("/v1/jobs", headers=headers), 401, "E_TOKEN")
    page = await far.get("/", headers={**headers, **{k: v.encode() for k, v in PAGE.items()}})
    assert (page.status_code, 'action="/login"' in page.text) == (401, True)
    assert (await far.get("/static/page.css", headers=headers)).status_code == 200


async def test_a_token_is_no_cookie(far: httpx.AsyncClient, world: World) -> None:
    far.cookies.set("horae", await token_for(world))  # the name that counts without TLS only
    problem_of(await far.get("/v1/jobs"), 401, "E_TOKEN")


async def test_F53_a_token_and_a_session_of_different_users_are_refused_together(
    far: httpx.AsyncClient, world: World
) -> None:
    await log_in(far, await token_for(world, "ann"))
    bob, ann = await token_for(world, "bob"), await token_for(world, "ann")
    problem_of(await far.get("/v1/jobs", headers={"authorization": f"Bearer {bob}"}), 400, "E_AMBIGUOUS_AUTH")
    assert (await far.get("/v1/jobs", headers={"authorization": f"Bearer {ann}"})).status_code == 200


async def test_who_runs_a_server_on_loopback_is_that_user_whatever_cookie_comes_along(world: World) -> None:
    gate = web.create_app(world.services, CONTRACTS, version="1", free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url="http://127.0.0.1:8080") as near:
        near.cookies.set("horae", "horae_s_7_" + "x" * 43)  # of an earlier life of the server, say
        page = await near.get("/", headers=PAGE)
        assert page.status_code == 200
        assert "local" in page.text
        assert "Log out" not in page.text


async def test_who_logs_in_on_loopback_is_that_user_until_logged_out(world: World) -> None:
    gate = web.create_app(world.services, CONTRACTS, version="1", free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url="http://127.0.0.1:8080") as near:
        await log_in(near, await token_for(world, "ann", Role.VIEWER))
        assert (await near.get("/v1/me")).json()["name"] == "ann"
        problem_of(await near.post("/v1/jobs", json=JOB, headers={"origin": "http://127.0.0.1:8080"}), 403, "E_ROLE")
        await near.post("/logout", headers={"origin": "http://127.0.0.1:8080"})
        assert (await near.get("/v1/me")).json()["name"] == "local"


async def test_other_accounts_of_the_machine_log_in_over_loopback(world: World) -> None:
    gate = web.create_app(world.services, CONTRACTS, version="1", free_pass=OWN)
    transport = from_here(gate, os.geteuid() + 1)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as other:
        assert (await other.get("/", headers=PAGE)).status_code == 401
        answer = await log_in(other, await token_for(world))
        assert "Secure" not in answer.headers["set-cookie"]
        assert (await other.get("/", headers=PAGE)).status_code == 200
