"""The list of jobs as things happen, in a real browser: rows change where they are, only those are asked for that were
touched, and what is new waits until somebody asks for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.server import Server
from tests.engines.dashboard.conftest import tab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard-jobs-live")]

PLACES = "[...document.querySelectorAll('[data-job]')].map((row) => [row.dataset.job, row.getBoundingClientRect().top])"


@pytest.fixture
def jobs(server: Server, request: pytest.FixtureRequest) -> list[int]:
    """Ten jobs, found by the name of the test."""
    word = request.node.name.replace("_", " ")[:60]
    documents = [{"name": f"{word} {number}", "steps": [{"run": "exit 3"}]} for number in range(10)]
    return [job["id"] for job in server.submit(*documents)]


def watch(page: Any, jobs: list[int], server: Server) -> list[str]:
    """Open the list of these jobs; return the addresses that are asked for from now on, once it is live."""
    name = server.get(f"/v1/jobs/{jobs[0]}")["name"].rpartition(" ")[0]
    with page.expect_response("**/jobs?**only=**"):  # which looks once at what happened meanwhile
        page.goto(f"/jobs?q={name}")
        page.locator("#live", has_text="live").wait_for()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    return asked


def test_a_row_says_how_its_run_ended_and_no_row_moves_under_the_pointer(
    page: Any, server: Server, jobs: list[int]
) -> None:
    asked = watch(page, jobs, server)
    row = page.locator(f'[data-job="{jobs[4]}"]')
    row.get_by_role("link").first.hover()
    before = page.evaluate(PLACES)
    run = server.post(f"/v1/jobs/{jobs[4]}/run", status=201)["id"]
    row.locator(".state.failed").wait_for()
    assert row.locator(f'a[href="/runs/{run}"]').count() == 1
    assert row.locator(".fates path.failed").count() == 1
    assert page.evaluate(PLACES) == before
    assert page.locator(".state.failed").count() == 1
    rows = [url for url in asked if "only=" in url]
    assert rows
    assert all(f"only={jobs[4]}" == url.rpartition("&")[2] for url in rows), rows
    assert not [url for url in asked if "/jobs?" in url and "only=" not in url]  # runs do not decide what is in it


def test_a_new_job_waits_until_somebody_asks_for_it_and_a_deleted_one_is_marked(
    page: Any, server: Server, jobs: list[int]
) -> None:
    watch(page, jobs, server)
    before = page.evaluate(PLACES)
    name = server.get(f"/v1/jobs/{jobs[0]}")["name"].rpartition(" ")[0]
    [made] = server.submit({"name": f"{name} new", "steps": [{"run": "true"}]})
    page.get_by_role("button", name="1 new").wait_for()
    server.http.delete(f"/v1/jobs/{jobs[3]}")
    gone = page.locator(f'[data-job="{jobs[3]}"]')
    gone.get_by_text("deleted").wait_for()
    assert gone.locator("[name=chosen]").is_disabled()
    assert page.evaluate(PLACES) == before
    page.get_by_role("button", name="1 new").click()
    page.locator(f'[data-job="{made["id"]}"]').wait_for()
    assert gone.count() == 0
    assert page.locator("#news").is_hidden()


def test_a_row_that_is_paused_elsewhere_says_so_and_what_was_chosen_stays_chosen(
    page: Any, server: Server, jobs: list[int]
) -> None:
    watch(page, jobs, server)
    page.get_by_label("Choose", exact=False).nth(3).check()
    chosen = page.locator("[name=chosen]:checked").get_attribute("value")
    server.post(f"/v1/jobs/{chosen}/pause", status=200)
    page.locator(f'[data-job="{chosen}"] .state.paused').wait_for()
    assert page.locator("[name=chosen]:checked").count() == 1
    assert page.locator("#bulk").is_visible()


def test_the_list_is_read_without_a_script(browser: Any, server: Server, jobs: list[int]) -> None:
    with tab(browser, server, java_script_enabled=False) as page:
        page.goto(f"/jobs?only={jobs[0]},{jobs[1]},999999999")
        assert page.locator("[data-job]").count() == 2
