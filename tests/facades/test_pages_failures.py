"""Who asked for a page and does not get it sees a page all the same: what is wrong, its code, and what to do."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.core.roles import Role
from horae.web import app as web
from tests.facades.world import HERE, World, from_here

HTML = {"accept": "text/html,application/xhtml+xml"}
HOSTILE = "%3Cscript%3Ealert(1)%3C/script%3E"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/nothing", 404, "E_NOT_FOUND"),
        ("/jobs/7", 404, "E_NOT_FOUND"),
        (f"/jobs/{HOSTILE}", 404, "E_NOT_FOUND"),
        (f"/runs?state={HOSTILE}", 422, "E_ENUM"),
        (f"/runs?{HOSTILE}=1", 422, "E_UNKNOWN_PARAM"),
    ],
)
async def test_a_browser_gets_a_page_with_the_code_and_what_to_do(
    world: World, path: str, status: int, code: str
) -> None:
    answer = await world.http.get(path, headers=HTML)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert f'href="/docs#{code}"' in answer.text
    assert answer.headers["x-request-id"] in answer.text
    assert 'aria-label="Pages"' in answer.text  # the rail: one is not lost
    assert "<script>alert" not in answer.text
    assert "'unsafe" not in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/jobs/7", {}),
        ("/jobs/7", {**HTML, "sec-fetch-dest": "empty"}),  # a script that reads the page again
        ("/v1/jobs/7", HTML),
        ("/v1/nothing", HTML),
        ("/v1", HTML),
        ("/static/x/nothing.js", HTML),
        ("/lake/nothing", HTML),
    ],
)
async def test_programs_scripts_the_api_and_contracts_never_get_a_page(
    world: World, path: str, headers: dict[str, str]
) -> None:
    answer = await world.http.get(path, headers=headers)
    assert (answer.status_code, answer.headers["content-type"].endswith("json")) == (404, True)


async def test_a_fault_of_ours_shows_a_page_that_tells_nothing_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise RuntimeError("the inner secret")

    monkeypatch.setattr(world.jobs, "search", broken)
    answer = await world.http.get("/jobs", headers=HTML)
    assert (answer.status_code, "E_INTERNAL" in answer.text, "inner secret" in answer.text) == (500, True, False)


async def test_who_may_not_is_told_which_role_may(world: World) -> None:
    _, text = await world.services.access.create("v", "user", "eve", None, role=Role.VIEWER)
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE) as browser:
        answer = await browser.get("/audit", headers={**HTML, "authorization": f"Bearer {text}"})
    assert (answer.status_code, "E_ROLE" in answer.text, "role admin" in answer.text) == (403, True, True)
