"""Runs, queues and nodes in a real browser: watched, cancelled, run again, read and searched, paused and cordoned."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.server import Server
from tests.engines.dashboard.conftest import tab

pytestmark = [pytest.mark.xdist_group("dashboard-runs")]

LOG = "\n".join(
    [
        "printf 'first <b>line</b>\\n'",
        "printf '\\033[31mred\\033[0m \\342\\200\\256turned\\n'",
        "seq 5000",
        "echo 'ERROR: it broke'",
        "exit 3",
    ]
)


@pytest.fixture(scope="module", autouse=True)
def jobs(server: Server) -> None:
    server.submit({"name": "broken", "steps": [{"name": "one", "run": LOG}]})
    server.submit({"name": "slow", "steps": [{"name": "wait", "run": "echo begun; sleep 600"}]})


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser: Any, server: Server) -> Iterator[Any]:
    with tab(browser, server, color_scheme=request.param, viewport={"width": 1280, "height": 900}) as found:
        yield found


def start(server: Server, name: str) -> int:
    [job] = [job for job in server.http.get("/v1/jobs").json()["items"] if job["name"] == name]
    run: int = server.http.post(f"/v1/jobs/{job['id']}/run", json={}).json()["id"]
    return run


def test_a_log_opens_at_its_first_error_and_is_searched_and_linked_by_line(server: Server, page: Any) -> None:
    run = start(server, "broken")
    page.goto(f"/runs/{run}")
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
    page.goto(f"/runs/{run}#L2503")
    page.locator(".line.target", has_text=re.compile("^25032500$")).wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert len(Path(download.value.path()).read_bytes().splitlines()) == 5006 - 1


def test_a_run_is_watched_cancelled_and_run_again(server: Server, page: Any) -> None:
    run = start(server, "slow")
    page.goto(f"/runs/{run}")
    page.locator("#state .running").wait_for()
    page.locator(".line", has_text="begun").wait_for()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.locator("dialog.sure").get_by_role("button", name="Cancel", exact=True).click()
    page.locator("#state .cancelled").wait_for()
    page.get_by_role("button", name="Run again").click()
    page.wait_for_url(re.compile(rf"/runs/(?!{run}$)\d+$"))
    again = int(page.url.rpartition("/")[2])
    page.locator("#state .running").wait_for()
    page.goto("/runs?state=running&name=slow")
    page.locator(f'.pick[value="{again}"]').check()
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel 1 run").click()
    server.wait_until(lambda: server.http.get(f"/v1/runs/{again}").json()["state"] == "cancelled", "its end")
    page.locator(f'[data-run="{again}"] .state.cancelled').wait_for()


def test_cancel_all_keeps_to_the_queue_that_the_page_shows(server: Server, page: Any) -> None:
    assert server.http.put("/v1/queues/aside", json={}).is_success
    steps = [{"name": "wait", "run": "sleep 600"}]
    for name, queue in (("there", "aside"), ("elsewhere", "default")):
        server.submit({"name": name, "key": name, "queue": queue, "overlap": "allow", "steps": steps})
    there, elsewhere = start(server, "there"), start(server, "elsewhere")
    page.goto("/runs?state=running&state=queued&queue=aside")
    page.get_by_role("button", name="Cancel all…").click()
    page.get_by_role("button", name="Cancel 1 run").click()
    server.wait_until(lambda: server.http.get(f"/v1/runs/{there}").json()["state"] == "cancelled", "its end")
    assert server.http.get(f"/v1/runs/{elsewhere}").json()["state"] in ("queued", "running")
    server.http.post(f"/v1/runs/{elsewhere}/cancel")


def test_a_queue_is_paused_and_a_node_is_cordoned(server: Server, page: Any) -> None:
    page.goto("/queues")
    page.get_by_role("button", name="Pause").click()
    page.locator(".queue .state.paused").wait_for()
    assert server.http.get("/v1/queues/default").json()["state"] == "paused"
    page.get_by_role("button", name="Resume").click()
    page.locator(".queue .state.live").wait_for()
    page.goto("/cluster")
    page.get_by_role("button", name="Cordon").click()
    page.locator("#nodes .state.cordoned").wait_for()
    page.get_by_role("button", name="Uncordon").click()
    page.locator("#nodes .state.live").wait_for()
    for path in ("/timeline", "/workflows", "/alerts", "/settings"):
        page.goto(path)
        page.locator("main h1").wait_for()
