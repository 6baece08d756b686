"""Runs, queues and nodes in a real browser: watched, cancelled, run again, read and searched, paused and cordoned."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.server import Server
from tests.engines.conftest import need_packages

pytestmark = [pytest.mark.xdist_group("dashboard-runs")]

SLOW_MS = 60_000
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
LOG = "\n".join(
    [
        "printf 'first <b>line</b>\\n'",
        "printf '\\033[31mred\\033[0m \\342\\200\\256turned\\n'",
        "seq 5000",
        "echo 'ERROR: it broke'",
        "exit 3",
    ]
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("dashboard")).start()
    try:
        started.submit({"name": "broken", "steps": [{"name": "one", "run": LOG}]})
        started.submit({"name": "slow", "steps": [{"name": "wait", "run": "echo begun; sleep 600"}]})
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def browser(need: Callable[..., None]) -> Iterator[Any]:
    need("chromium")
    need_packages("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as made:
        found = made.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser: Any) -> Iterator[Any]:
    """A page of which nothing is complained."""
    context = browser.new_context(color_scheme=request.param, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(SLOW_MS)
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    context.close()
    assert wrong == []


def start(server: Server, name: str) -> int:
    [job] = [job for job in server.http.get("/v1/jobs").json()["items"] if job["name"] == name]
    run: int = server.http.post(f"/v1/jobs/{job['id']}/run", json={}).json()["id"]
    return run


def test_a_log_opens_at_its_first_error_and_is_searched_and_linked_by_line(server: Server, page: Any) -> None:
    run = start(server, "broken")
    page.goto(f"{server.url}/runs/{run}")
    page.locator("#state .failed").wait_for()
    page.reload()
    page.locator(".line.target", has_text="ERROR: it broke").wait_for()
    assert page.locator(".line").count() < 200  # only what is seen

    page.fill("#seek", "FIRST <b>")
    page.locator(".line.target mark", has_text="first <b>").wait_for()
    assert page.locator(".line .said b").count() == 0
    page.locator(".line .a-1", has_text="red").wait_for()
    page.locator(".line .odd", has_text="U+202E").wait_for()

    page.fill("#seek", "")
    page.goto(f"{server.url}/runs/{run}#L2503")
    page.locator(".line.target", has_text=re.compile("^25032500$")).wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert len(Path(download.value.path()).read_bytes().splitlines()) == 5006 - 1


def test_a_run_is_watched_cancelled_and_run_again(server: Server, page: Any) -> None:
    run = start(server, "slow")
    page.goto(f"{server.url}/runs/{run}")
    page.locator("#state .running").wait_for()
    page.locator(".line", has_text="begun").wait_for()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.locator("dialog.sure").get_by_role("button", name="Cancel", exact=True).click()
    page.locator("#state .cancelled").wait_for()
    page.get_by_role("button", name="Run again").click()
    page.wait_for_url(re.compile(rf"/runs/(?!{run}$)\d+$"))
    again = int(page.url.rpartition("/")[2])
    page.locator("#state .running").wait_for()
    page.goto(f"{server.url}/runs?state=running&name=slow")
    page.locator(f'.pick[value="{again}"]').check()
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel 1 run").click()
    server.wait_until(lambda: server.http.get(f"/v1/runs/{again}").json()["state"] == "cancelled", "its end")
    page.locator(f'[data-run="{again}"] .state.cancelled').wait_for()


def test_a_queue_is_paused_and_a_node_is_cordoned(server: Server, page: Any) -> None:
    page.goto(f"{server.url}/queues")
    page.get_by_role("button", name="Pause").click()
    page.locator(".queue .state.paused").wait_for()
    assert server.http.get("/v1/queues/default").json()["state"] == "paused"
    page.get_by_role("button", name="Resume").click()
    page.locator(".queue .state.live").wait_for()
    page.goto(f"{server.url}/cluster")
    page.get_by_role("button", name="Cordon").click()
    page.locator("#nodes .state.cordoned").wait_for()
    page.get_by_role("button", name="Uncordon").click()
    page.locator("#nodes .state.live").wait_for()
    for path in ("/timeline", "/workflows", "/alerts", "/settings"):
        page.goto(server.url + path)
        page.locator("main h1").wait_for()
