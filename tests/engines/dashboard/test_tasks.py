"""Five things that people come for, from the overview on, with the clicks that each takes: at most four. A choice from
a list is two clicks; what is typed, or reached with the tabulator, is none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.acceptance.server import Server
from tests.engines.dashboard.conftest import tab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard-tasks")]
MOST = 4


class Hand:
    """Somebody at the overview, whose clicks are counted."""

    def __init__(self, page: Any) -> None:
        self.page, self.clicks = page, 0
        page.goto("/")

    def click(self, place: Any) -> None:
        self.clicks += 1
        place.click()

    def choose(self, place: Any, label: str) -> None:
        self.clicks += 2
        place.select_option(label=label)


@pytest.fixture
def hand(browser: Any, server: Server) -> Iterator[Hand]:
    with tab(browser, server, timezone_id="UTC") as page:
        found = Hand(page)
        yield found
        assert 0 < found.clicks <= MOST


@pytest.fixture(scope="module")
def failed(server: Server) -> list[int]:
    """Runs of three jobs, all of which failed."""
    steps = [{"name": "import", "run": "echo begun; echo 'ERROR: the disk is full'; exit 3"}]
    jobs = server.submit(*({"name": f"nightly {number}", "steps": steps} for number in range(3)))
    runs = [server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"] for job in jobs]
    for run in runs:
        server.ended(run)
    return runs


def test_why_last_nights_job_failed_is_found(hand: Hand, failed: list[int]) -> None:
    hand.click(hand.page.get_by_label("What needs attention").get_by_role("link", name="nightly 1"))
    hand.page.locator(".line.target", has_text="ERROR: the disk is full").wait_for()
    assert "exit code 3" in hand.page.locator("#why").inner_text()


def test_all_failures_since_midnight_are_run_again(hand: Hand, server: Server, failed: list[int]) -> None:
    page = hand.page
    hand.click(page.get_by_role("link", name="Failures since midnight"))
    hand.click(page.get_by_role("button", name="Run all again…"))
    hand.click(page.get_by_role("button", name=re.compile(r"Run again [0-9]+ runs")))
    page.get_by_text(re.compile("[0-9]+ runs asked for again")).wait_for()
    for run in failed:
        job = server.get(f"/v1/runs/{run}")["job_id"]
        assert len(server.every("/v1/runs", job_id=job)) == 2


def test_what_runs_at_three_is_seen(hand: Hand, server: Server) -> None:
    server.submit(
        {"name": "rebuild the index", "schedule": "0 3 * * *", "steps": [{"run": "true"}]},
        {"name": "at another time", "schedule": "0 5 * * *", "steps": [{"run": "true"}]},
    )
    page = hand.page
    hand.click(page.get_by_role("navigation", name="Pages").get_by_role("link", name="Timeline"))
    page.get_by_label("At what time, next").fill("03:00")
    hand.click(page.get_by_role("button", name="Show"))
    there = page.locator("#at")
    there.get_by_role("link", name="rebuild the index").wait_for()
    assert there.get_by_role("link", name="at another time").count() == 0
    assert page.url.endswith("clock=03%3A00")


def test_everything_of_one_owner_is_paused(hand: Hand, server: Server) -> None:
    token = server.post("/v1/tokens", {"name": "f", "owner": "finance"}, status=201)["token"]
    jobs = [{"name": f"invoice {number}", "steps": [{"run": "true"}]} for number in range(60)]  # more than a page
    headers = {"authorization": f"Bearer {token}"}
    made = server.http.post("/v1/jobs", json={"jobs": jobs}, headers=headers).json()["jobs"]
    page = hand.page
    hand.click(page.get_by_role("navigation", name="Pages").get_by_role("link", name="Jobs"))
    hand.click(page.get_by_role("link", name="finance").first)
    hand.click(page.get_by_role("button", name="Pause all…"))
    hand.click(page.get_by_role("button", name="Pause 60 jobs"))
    page.get_by_text("60 jobs paused").wait_for()
    assert all(server.get(f"/v1/jobs/{job['id']}")["paused"] for job in made)
    others = [job for job in server.every("/v1/jobs") if job["owner"] != "finance"]
    assert not any(job["paused"] for job in others)


def test_a_job_for_the_last_friday_of_the_month_is_made(hand: Hand, server: Server, failed: list[int]) -> None:
    page = hand.page
    hand.click(page.get_by_role("link", name="New job"))
    page.locator("#make [name=name]:focus").wait_for()
    page.keyboard.type("close the month")
    page.keyboard.press("Tab")
    page.keyboard.type("./close.sh")
    hand.choose(page.get_by_label("Often wanted"), "on the last Friday of the month at 18:00")
    page.locator("#make .moments").get_by_text("on the last Friday of the month").wait_for()
    hand.click(page.locator("#make").get_by_role("button", name="Make the job"))
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    job = server.get(f"/v1/jobs/{page.url.rpartition('/')[2]}")
    due = datetime.fromisoformat(job["triggers"][0]["next_at"]).astimezone(UTC)
    assert (job["name"], due.weekday(), due.hour) == ("close the month", 4, 18)
    assert (due + timedelta(days=7)).month != due.month
