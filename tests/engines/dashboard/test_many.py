"""Many jobs and many runs, chosen and changed together in their lists, in a real browser; and lists turned over."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.acceptance.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard-many")]


def make(server: Server, name: str, count: int, **fields: Any) -> list[int]:
    document = {"steps": [{"run": "true"}], "overlap": "allow", **fields}
    found = server.submit(*({"name": f"{name} {number}", **document} for number in range(count)))
    return [job["id"] for job in found]


def run_all(server: Server, jobs: list[int]) -> list[int]:
    runs = [server.post(f"/v1/jobs/{job}/run", status=201)["id"] for job in jobs]
    for run in runs:
        server.ended(run)
    return runs


def runs_of(server: Server, jobs: list[int]) -> list[int]:
    return [len(server.every("/v1/runs", job_id=job)) for job in jobs]


def choose_all(page: Any) -> Any:
    page.get_by_label("Choose all jobs of this page").check()
    return page.locator("#bulk")


def test_chosen_jobs_are_run_run_again_and_resumed(page: Any, server: Server) -> None:
    jobs = make(server, "together", 3)
    page.goto("/jobs?q=together")
    choose_all(page).get_by_role("button", name="Run now").click()
    page.get_by_role("button", name="Run 3 jobs").click()
    page.get_by_text("3 jobs asked to run", exact=True).wait_for()
    server.wait_until(lambda: runs_of(server, jobs) == [1, 1, 1], "a run of each")
    page.goto("/jobs?q=together")
    choose_all(page).get_by_role("button", name="Run the latest again").click()
    page.get_by_role("button", name="Run again 3 jobs").click()
    page.get_by_text("3 jobs asked to run again").wait_for()
    server.wait_until(lambda: runs_of(server, jobs) == [2, 2, 2], "another run of each")
    assert server.post("/v1/jobs/pause", {"jobs": jobs})["items"]
    page.goto("/jobs?q=together&is=paused")
    choose_all(page).get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Resume 3 jobs").click()
    page.get_by_text("3 jobs resumed").wait_for()
    page.get_by_text("No job is like that").wait_for()
    assert not any(server.get(f"/v1/jobs/{job}")["paused"] for job in jobs)


def test_all_jobs_of_a_filter_are_run_and_resumed(page: Any, server: Server) -> None:
    jobs = make(server, "of a filter", 2, tags=["filtered"])
    page.goto("/jobs?tag=filtered")
    page.get_by_role("button", name="Run now…").click()
    page.get_by_role("button", name="Run 2 jobs").click()
    page.get_by_text("2 jobs asked to run", exact=True).wait_for()
    server.wait_until(lambda: runs_of(server, jobs) == [1, 1], "a run of each")
    assert server.post("/v1/jobs/pause", {"jobs": jobs})["items"]
    page.goto("/jobs?tag=filtered")
    page.get_by_role("button", name="Resume all…").click()
    page.get_by_role("button", name="Resume 2 jobs").click()
    page.get_by_text("2 jobs resumed").wait_for()
    assert not any(server.get(f"/v1/jobs/{job}")["paused"] for job in jobs)


def test_more_jobs_than_a_page_has_are_turned_over_chosen_and_left_again(page: Any, server: Server) -> None:
    make(server, "of a crowd", 60)
    page.goto("/jobs?q=crowd&sort=name")
    page.get_by_role("link", name="More").click()
    page.get_by_text("51 to 60 of 60").wait_for()
    page.get_by_role("link", name="Back").click()
    page.get_by_text("1 to 50 of 60").wait_for()
    bulk = choose_all(page)
    bulk.get_by_text("50 jobs chosen").wait_for()
    bulk.get_by_role("button", name="Choose all 60").click()
    bulk.get_by_text("60 jobs chosen").wait_for()
    bulk.get_by_role("button", name="Choose none").click()
    bulk.wait_for(state="hidden")
    page.get_by_label("Order", exact=True).select_option(label="Next due first")
    page.wait_for_url("**sort=next**")
    page.go_back()
    page.wait_for_url("**sort=name**")


def test_chosen_runs_and_all_of_a_filter_are_run_again(page: Any, server: Server) -> None:
    jobs = make(server, "fails", 3, steps=[{"run": "false"}])
    runs = run_all(server, jobs)
    page.goto("/runs?state=failed&name=fails")
    page.get_by_label(f"Choose run {runs[0]}", exact=True).check()
    bulk = page.locator("#bulk")
    bulk.get_by_text("1 run chosen").wait_for()
    bulk.get_by_role("button", name="Run again…").click()
    page.get_by_role("button", name="Run again 1 run").click()
    page.get_by_text("1 run asked for again").wait_for()
    server.wait_until(lambda: runs_of(server, jobs) == [2, 1, 1], "the chosen one to run again")
    page.goto("/runs?state=failed&name=fails+2")
    page.get_by_label(f"Choose run {runs[2]}", exact=True).check()
    bulk.get_by_role("button", name="All of this filter").click()
    page.locator("#picked", has_text="All of this filter").wait_for()
    bulk.get_by_role("button", name="Run again…").click()
    page.get_by_role("button", name="Run again 1 run").click()
    page.get_by_text("1 run asked for again").wait_for()
    server.wait_until(lambda: runs_of(server, jobs) == [2, 1, 2], "those of the filter to run again")


def test_runs_are_filtered_turned_over_and_told_of_when_there_are_new_ones(page: Any, server: Server) -> None:
    [job] = make(server, "over and over", 1)
    assert server.post("/v1/runs", {"runs": [{"job": job}] * 120})["runs"]
    server.wait_until(lambda: len(server.every("/v1/runs", job_id=job, state="succeeded")) == 120, "all to end")
    page.goto("/runs")
    page.get_by_label("succeeded").check()
    page.get_by_label("Job", exact=True).fill("over and over")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**state=succeeded**")
    first = page.locator("#rows tr").first.get_attribute("data-run")
    page.get_by_role("link", name="Older").click()
    page.wait_for_url("**cursor=**")
    assert int(page.locator("#rows tr").first.get_attribute("data-run")) < int(first)
    page.get_by_role("button", name="Newer").click()
    page.locator(f'#rows tr[data-run="{first}"]').wait_for()
    server.post(f"/v1/jobs/{job}/run", status=201)
    page.get_by_role("button", name=re.compile("^1 new")).click()
    page.locator("#rows tr").first.get_by_text(f"#{int(first) + 1}").wait_for()
