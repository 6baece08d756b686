"""Pages of who did what, and of who may do what: the audit log, sessions, tokens, users, roles, secrets."""

from __future__ import annotations

import re
from urllib.parse import quote

import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.core.identity import LOCAL
from horae.core.roles import Role
from horae.service.access.sessions import Origin
from horae.web import app as web
from tests.facades.world import BOTH, HERE, World, from_here

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> \U0001f680 " + "é" * 30
PAGES = ("/audit", "/settings", "/settings/sessions", "/settings/tokens", "/settings/users", "/settings/roles",
         "/settings/secrets")  # fmt: skip
HTML = {"accept": "text/html"}


async def page(world: World, path: str, **headers: str) -> str:
    answer = await world.http.get(path, headers={**HTML, **headers})
    assert answer.status_code == 200, answer.text
    return answer.text


async def token_of(world: World, role: Role) -> dict[str, str]:
    _, text = await world.services.access.create(f"a {role}", "user", "eve", None, role=role)
    return {"authorization": f"Bearer {text}"}


async def furnish(world: World) -> int:
    """Something of every kind, with hostile text wherever somebody may write it."""
    job = {"name": HOSTILE, "steps": [{"run": HOSTILE}], "tags": ["t"]}
    made: int = (await world.http.post("/v1/jobs", json=job)).json()["jobs"][0]["id"]
    await world.http.put(f"/v1/jobs/{made}", json={**job, "name": f"{HOSTILE}2"})
    await world.http.delete(f"/v1/secrets/{quote(HOSTILE, safe='')}")
    await world.http.put("/v1/secrets/DB", json={"value": "hunter2"})
    await world.http.post("/v1/tokens", json={"name": "ci", "owner": "ann"})
    await world.services.users.create("ann", LOCAL, roles={1: Role.EDITOR}, email=HOSTILE[:60])
    await world.http.post("/v1/grants", json={"who": "zoe", "role": "operator", "tag": "t"})
    return made


@pytest.mark.parametrize("path", PAGES)
async def test_hostile_text_is_text_and_nothing_is_inline(world: World, path: str) -> None:
    await furnish(world)
    text = await page(world, path)
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert " style=" not in text
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)


@BOTH
async def test_the_audit_log_says_who_changed_what_from_what_to_what(world: World) -> None:
    job_id = await furnish(world)
    text = await page(world, f"/audit?kind=job&id={job_id}")
    assert "Replace a job" in text or "Change a job" in text
    assert f'href="/jobs/{job_id}"' in text
    assert re.search(r"<dt>name</dt><dd><del>&lt;script&gt;.*?</del>.*?<ins>&lt;script&gt;.*?2</ins>", text, re.S)
    assert "secrets" not in re.findall(r"<code>(.*?)</code>", text)[0]


@BOTH
async def test_the_address_of_the_audit_log_says_what_is_shown(world: World) -> None:
    await furnish(world)

    def shown(text: str) -> int:
        return len(re.findall(r'<tr id="row-', text))

    everything = shown(await page(world, "/audit?who=&kind=&id=&outcome=&since=&until=&action="))
    assert everything > 3
    assert shown(await page(world, "/audit?kind=secret&id=DB")) == 1
    assert shown(await page(world, "/audit?who=nobody")) == 0
    assert shown(await page(world, "/audit?outcome=done&since=1h")) > 3
    assert shown(await page(world, "/audit?until=2001-01-01T00:00:00Z")) == 0
    world.clock.advance(3 * 3600)
    assert shown(await page(world, "/audit?since=1h")) == 0
    assert (await world.http.get("/audit?outcome=maybe", headers=HTML)).status_code == 422


async def test_older_rows_are_on_the_next_page(world: World) -> None:
    for number in range(60):
        await world.http.put(f"/v1/secrets/S{number}", json={"value": "x"})
    first = await page(world, "/audit?kind=secret")
    following = re.search(r'href="(/audit\?[^"]*cursor=\d+)"', first)
    assert following is not None
    second = await page(world, following[1].replace("&amp;", "&"))
    ids = [set(re.findall(r'<tr id="row-(\d+)"', text)) for text in (first, second)]
    assert [len(one) for one in ids] == [50, 10]
    assert not ids[0] & ids[1]


async def test_secrets_are_shown_by_name_only(world: World) -> None:
    await furnish(world)
    text = await page(world, "/settings/secrets")
    assert "DB" in text
    assert "hunter2" not in text + await page(world, "/audit")


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (Role.VIEWER, {"/settings", "/settings/sessions", "/settings/roles"}),
        (Role.EDITOR, {"/settings", "/settings/sessions", "/settings/roles", "/settings/secrets"}),
        (Role.ADMIN, set(PAGES)),
    ],
)
async def test_a_page_that_one_may_not_see_is_neither_linked_nor_given(world: World, role: Role, may: set[str]) -> None:
    await furnish(world)
    token = await token_of(world, role)
    text = await page(world, "/settings", **token)
    assert set(re.findall(r'href="(/settings[^"]*|/audit)"', text)) == may
    for path in PAGES:
        answer = await world.http.get(path, headers={**token})
        assert answer.status_code == (200 if path in may else 403), path
    if role is Role.VIEWER:
        roles = await page(world, "/settings/roles", **token)
        assert "data-post" not in roles
        assert "data-send" not in roles
        assert "zoe" not in roles


async def test_who_does_not_run_the_installation_is_not_offered_to_make_users(world: World) -> None:
    await furnish(world)
    text = await page(world, "/settings/users", **await token_of(world, Role.ADMIN))
    assert "POST /v1/users" not in text
    assert "/disable" not in text
    assert "PUT /v1/orgs/1/members/{name}" in text
    assert "POST /v1/users" in await page(world, "/settings/users")


async def test_a_token_is_offered_only_with_roles_that_one_has(world: World) -> None:
    text = await page(world, "/settings/tokens", **await token_of(world, Role.ADMIN))
    assert re.findall(r"<option>(\w+)</option>", text) == [str(role) for role in Role]


async def test_sessions_are_ones_own(world: World) -> None:
    users, sessions = world.services.users, world.services.access.sessions
    ann = await users.create("ann", LOCAL, roles={1: Role.VIEWER})
    zoe = await users.create("zoe", LOCAL, roles={1: Role.VIEWER})
    text = await sessions.open((ann, 1), Origin("10.0.0.1", f"{HOSTILE[:80]} ann"))
    await sessions.open((zoe, 1), Origin("10.0.0.2", "browser of zoe"))
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE, cookies={"horae": text}) as browser:
        found = (await browser.get("/settings/sessions", headers=HTML)).text
    assert "this one" in found
    assert "10.0.0.1" in found
    assert "zoe" not in found
    assert "You have no account here" in await page(world, "/settings/sessions")
