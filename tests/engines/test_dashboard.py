"""The pages in a real browser, on a real server: what people do there works, is reached by keyboard, and says nothing
on the console. Where npm can install axe-core, every page is judged by it, in light, dark and high contrast."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.server import DEADLINE, Server
from tests.engines.conftest import miss, need_packages

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]
MORE = (
    "/audit", "/forecast", "/timeline?clock=03:00", "/settings", "/settings/sessions", "/settings/tokens",
    "/settings/users", "/settings/roles", "/settings/secrets", "/alerts", "/runs?state=failed",
)  # fmt: skip
WAIT_MS = DEADLINE * 1000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("pages"))
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def browser(need: Callable[..., None]) -> Iterator[Any]:
    need("chromium")
    need_packages("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGS)
        try:
            yield started
        finally:
            started.close()


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    """A tab whose console must stay silent."""
    context = browser.new_context(base_url=server.url, timezone_id="Europe/Berlin")
    context.set_default_timeout(WAIT_MS)
    tab = context.new_page()
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: said.append(str(error)))
    try:
        yield tab
        assert said == []
    finally:
        context.close()


def submit(server: Server, **fields: Any) -> int:
    document = {"name": "job", "steps": [{"run": "true"}], **fields}
    job_id: int = server.http.post("/v1/jobs", json=document).json()["jobs"][0]["id"]
    return job_id


def test_a_job_is_made_in_the_page_previewed_and_watched_until_it_has_run(page: Any, server: Server):
    page.goto("/jobs/new")
    form = page.locator("#make")
    form.get_by_label("Name").fill("last friday")
    form.get_by_label("Command").fill("echo made in the page")
    form.get_by_label("When").fill("0 18 * * FRIL")
    form.locator(".moments").get_by_text("on the last Friday of the month").wait_for()
    form.get_by_label("and run it once now").check()
    form.get_by_role("button", name="Make the job").click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))

    page.locator("#runs .state.succeeded").first.wait_for()  # comes by itself


def test_jobs_are_found_as_one_types_and_the_address_says_so(page: Any, server: Server):
    for name in ("apples", "pears"):
        submit(server, name=name)
    page.goto("/jobs")
    page.get_by_role("searchbox", name="Words of the name or key").fill("appl")
    page.get_by_role("link", name="pears").wait_for(state="detached")
    page.get_by_role("link", name="apples").wait_for()
    page.wait_for_url("**/jobs?q=appl")


def test_many_jobs_are_paused_after_their_number_was_shown(page: Any, server: Server):
    ids = [submit(server, name=f"bulk {number}") for number in range(3)]
    page.goto("/jobs?q=bulk")
    page.get_by_label("Choose all jobs of this page").check()
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Pause 3 jobs").click()
    page.get_by_text("3 jobs paused").wait_for()
    assert all(server.http.get(f"/v1/jobs/{job_id}").json()["paused"] for job_id in ids)


def test_the_palette_finds_a_job_by_keyboard_alone(page: Any, server: Server):
    job_id = submit(server, name="needle in the hay")
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("needle")
    page.get_by_role("option", name="needle in the hay").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{job_id}")
    page.keyboard.press("Control+k")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")


def test_what_is_typed_before_the_palette_is_there_is_not_lost(page: Any, server: Server):
    job_id = submit(server, name="pearl in the oyster")
    held: list[Any] = []
    page.route("**/palette.js", lambda route: held.append(route))
    page.goto("/")
    with page.expect_request("**/palette.js"):
        page.keyboard.press("/")
    page.keyboard.type("pearl")
    page.keyboard.press("Enter")
    for route in held:
        route.continue_()
    page.wait_for_url(f"**/jobs/{job_id}")
    assert held


def test_enter_is_meant_for_what_was_typed_not_for_what_was_found_before(page: Any, server: Server):
    job_id = submit(server, name="ruby in the ring")
    held: list[Any] = []
    page.goto("/")
    page.route("**/v1/jobs?**", lambda route: held.append(route))
    page.keyboard.press("/")
    page.get_by_role("option").first.wait_for()  # what the page itself has
    with page.expect_request("**/v1/jobs?**"):
        page.keyboard.type("ruby")
        page.keyboard.press("Enter")
    assert page.get_by_role("dialog").is_visible()
    for route in held:
        route.continue_()
    page.wait_for_url(f"**/jobs/{job_id}")


def test_a_job_is_paused_resumed_and_run_with_data_from_its_page(page: Any, server: Server):
    job_id = submit(server, name="by hand")
    page.goto(f"/jobs/{job_id}")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_role("button", name="Pause", exact=True).wait_for()
    page.get_by_role("button", name="Run now").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Data").fill("[1]")
    dialog.get_by_role("button", name="Run now").click()
    dialog.get_by_text("an object expected").wait_for()
    dialog.get_by_label("Data").fill('{"full": true}')
    dialog.get_by_role("button", name="Run now").click()
    page.wait_for_url(re.compile(r"/runs/\d+$"))
    run_id = page.url.rpartition("/")[2]
    assert server.http.get(f"/v1/runs/{run_id}").json()["data"] == {"full": True}


def test_a_job_is_changed_as_yaml(page: Any, server: Server):
    job_id = submit(server, name="before", schedule="0 2 * * *")
    page.goto(f"/jobs/{job_id}/edit")
    area = page.get_by_label("The job as YAML")
    page.get_by_text("It can be read, and is complete.").wait_for()
    area.fill(area.input_value().replace("before", "after").replace("0 2 * * *", "0 5 * * *"))
    page.get_by_text("at 05:00 every day").wait_for()
    page.get_by_role("button", name="Save").click()
    page.get_by_role("heading", name="after").wait_for()
    assert server.http.get(f"/v1/jobs/{job_id}").json()["name"] == "after"


def test_theme_density_and_zone_are_kept(page: Any, server: Server):
    page.goto("/")
    page.locator("#look summary").click()
    page.get_by_text("Dark", exact=True).click()
    page.get_by_text("Compact", exact=True).click()
    page.locator("#look").get_by_text("UTC", exact=True).last.click()
    page.goto("/jobs")
    look = page.locator("html")
    assert [look.get_attribute(f"data-{name}") for name in ("theme", "density", "zone")] == ["dark", "compact", "UTC"]


def test_two_tabs_share_one_stream_of_events(page: Any, server: Server):
    job_id = submit(server, name="shared")
    other = page.context.new_page()
    for tab in (page, other):
        tab.goto("/")
        tab.locator("#live", has_text="live").wait_for()
    server.http.post(f"/v1/jobs/{job_id}/run")
    for tab in (page, other):
        tab.bring_to_front()
        tab.locator("[data-fresh=recent]").get_by_role("link", name="shared").first.wait_for()


@pytest.fixture(scope="module")
def axe(need: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> str:
    need("npm")
    where = tmp_path_factory.mktemp("axe")
    done = subprocess.run(["npm", "install", "--no-audit", "axe-core@4"], cwd=where, capture_output=True, text=True)
    if done.returncode:
        miss(f"axe-core cannot be had: {done.stderr[-300:]}")
    return Path(where, "node_modules/axe-core/axe.min.js").read_text()


@pytest.mark.parametrize("theme", ["light", "dark", "contrast"])
def test_axe_finds_nothing(page: Any, server: Server, axe: str, theme: str):
    job_id = submit(server, name="<b>judged</b>", schedule="0 2 * * *", steps=[{"run": "exit 1"}])
    run_id = server.http.post(f"/v1/jobs/{job_id}/run").json()["id"]
    server.wait_until(lambda: server.http.get(f"/v1/runs/{run_id}").json()["state"] == "failed", "the end of the run")
    page.context.add_cookies([{"name": "horae-look", "value": f"{theme}.roomy.UTC", "url": server.url}])
    found = {}
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        for path in (
            "/",
            "/jobs",
            f"/jobs/{job_id}",
            f"/jobs/{job_id}/edit",
            "/jobs/new",
            f"/runs/{run_id}",
            "/style",
            *MORE,
        ):
            page.goto(path)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, (path, width)
            judged = page.evaluate(f"{axe}; axe.run({{runOnly: {json.dumps(RULES)}}})")
            if judged["violations"]:
                found[path, width] = [(one["id"], one["nodes"][0]["html"][:200]) for one in judged["violations"]]
    assert found == {}
