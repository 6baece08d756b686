"""The time zone of whoever looks, from the first visit on; in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.server import Server
from tests.engines.dashboard.conftest import tab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard-zones")]

ZONE = "Asia/Tokyo"
REFUSE = "Object.defineProperty(Document.prototype, 'cookie', {get: () => '', set: () => {}})"


@pytest.fixture(scope="module")
def job(server: Server) -> int:
    [made] = server.submit({"name": "zoned", "schedule": "30 2 * * *", "steps": [{"run": "true"}]})
    run = server.post(f"/v1/jobs/{made['id']}/run", status=201)["id"]
    server.ended(run)
    return int(made["id"])


def loads(page: Any) -> list[str]:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.is_navigation_request() else None)
    return asked


def test_the_first_page_is_drawn_in_the_zone_of_the_viewer(browser: Any, server: Server, job: int) -> None:
    with tab(browser, server, timezone_id=ZONE) as page:
        asked = loads(page)
        page.goto(f"/jobs/{job}")
        page.get_by_text(f"days of {ZONE}").wait_for()
        assert len(asked) == 2
        page.goto("/timeline")
        page.locator("#zone-name", has_text=ZONE).wait_for()
        assert len(asked) == 3


def test_a_zone_that_is_chosen_is_that_of_charts_too(browser: Any, server: Server, job: int) -> None:
    with tab(browser, server, timezone_id=ZONE) as page:
        page.goto(f"/jobs/{job}")
        page.get_by_text(f"days of {ZONE}").wait_for()
        page.locator("#look summary").click()
        page.locator("#look").get_by_text("UTC", exact=True).last.click()
        page.get_by_text("days of UTC").wait_for()


def test_no_page_is_read_again_and_again_where_cookies_are_refused(browser: Any, server: Server, job: int) -> None:
    with tab(browser, server, timezone_id=ZONE) as page:
        page.context.add_init_script(REFUSE)
        asked = loads(page)
        page.goto(f"/jobs/{job}")
        page.locator("#zone-name", has_text=ZONE).wait_for()
        page.locator("#runs").wait_for()
        assert len(asked) == 1
