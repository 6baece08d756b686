"""One stream for all tabs of a browser, however many runs are looked at; in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.server import Server
from tests.engines.dashboard.conftest import tab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard-streams")]

TABS = 8  # more than a browser has connections to a host over HTTP/1.1
WAITS = "until [ -e {path} ]; do sleep 0.1; done; echo seen"


def streams(browser: Any) -> int:
    """How many workers there are that hold a stream."""
    targets = browser.new_browser_cdp_session().send("Target.getTargets")["targetInfos"]
    return len([target for target in targets if target["type"] == "shared_worker"])


def test_eight_tabs_of_runs_are_live_by_one_stream(browser: Any, server: Server, tmp_path: Any) -> None:
    paths = [tmp_path / f"go-{number}" for number in range(TABS)]
    jobs = server.submit(
        *({"name": f"waits {path.name}", "steps": [{"run": WAITS.format(path=path)}]} for path in paths)
    )
    runs = [server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"] for job in jobs]
    with tab(browser, server) as first:
        asked: list[str] = []
        first.context.on("request", lambda request: asked.append(request.url))
        pages = [first, *(first.context.new_page() for _ in range(TABS - 1))]
        for page, run in zip(pages, runs, strict=True):
            page.goto(f"/runs/{run}")
            page.locator("#live", has_text="live").wait_for()
        for page in pages:
            page.locator("#state .running").wait_for()
        assert streams(browser) == 1
        for page, path in zip(pages, paths, strict=True):
            path.touch()
            page.locator(".line", has_text="seen").wait_for()
            page.locator("#state .succeeded").wait_for()
            page.locator("#live", has_text="ended").wait_for()
        assert not [url for url in asked if "/follow" in url or "/events/" in url]  # no tab has one of its own
