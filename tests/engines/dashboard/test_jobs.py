"""Jobs in a real browser, on a real server: what people do there works, is reached by keyboard, and says nothing on the
console."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.acceptance.server import Server
from tests.engines.dashboard.conftest import tab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


def submit(server: Server, **fields: Any) -> int:
    document = {"name": "job", "steps": [{"run": "true"}], **fields}
    document = {name: value for name, value in document.items() if value is not None}
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
    page.get_by_role("dialog").wait_for()  # what is typed before goes nowhere
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
    page.get_by_role("link", name="Run now").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Data").fill("[1]")
    dialog.get_by_role("button", name="Run now").click()
    dialog.get_by_text("an object expected").wait_for()
    dialog.get_by_label("Data").fill('{"full": true}')
    dialog.get_by_role("button", name="Run now").click()
    page.wait_for_url(re.compile(r"/runs/\d+$"))
    run_id = page.url.rpartition("/")[2]
    assert server.http.get(f"/v1/runs/{run_id}").json()["data"] == {"full": True}


HANDLER = """
from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal

from horae import Context, handler

@dataclass
class Order:
    count: int
    name: str = ""
    is_full: bool = False
    colour: Literal["red", "blue"] = "red"
    day: date | None = None
    at: datetime | None = None
    sizes: list[int] | None = None

@handler(name="order")
def order(context: Context, data: Order) -> int:
    return data.count
"""


@pytest.fixture(scope="module")
def ordering(server: Server) -> int:
    """A job whose handler says what data it takes."""
    place = server.directory / "jobs" / "order"
    place.mkdir(parents=True)
    (place / "job.py").write_text(HANDLER)
    return submit(server, name="order", handler="jobs/order", data={"count": 2, "colour": "blue"}, steps=None)


def test_a_job_is_run_with_a_form_made_from_the_types_of_its_handler(page: Any, server: Server, ordering: int):
    page.goto(f"/jobs/{ordering}")
    page.get_by_role("link", name="Run now").click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_label("count").input_value() == "2"
    dialog.get_by_label("name").fill("<b>Zoë</b>")
    dialog.get_by_label("is_full").select_option(label="yes")
    dialog.get_by_label("day").fill("2026-11-18")
    dialog.get_by_label("at by the clock of Europe/Berlin").fill("2026-11-18T10:30:00")
    dialog.get_by_label("sizes").fill('[1, "x"]')
    dialog.get_by_role("button", name="Run now").click()
    dialog.get_by_text("data.sizes[1] expected int").wait_for()
    assert dialog.locator("[aria-invalid]").get_attribute("name") == "data.sizes"
    dialog.get_by_label("sizes").fill("[1, 2]")
    dialog.get_by_role("button", name="Run now").click()
    page.wait_for_url(re.compile(r"/runs/\d+$"))
    run = server.ended(int(page.url.rpartition("/")[2]))
    assert (run["state"], run["result"]) == ("succeeded", 2)
    assert run["data"] == {
        "count": 2, "colour": "blue", "name": "<b>Zoë</b>", "is_full": True, "day": "2026-11-18",
        "at": "2026-11-18T10:30:00+01:00", "sizes": [1, 2],
    }  # fmt: skip


def test_a_job_is_run_with_its_form_without_a_script(browser: Any, server: Server, ordering: int):
    with tab(browser, server, java_script_enabled=False) as page:
        page.goto(f"/jobs/{ordering}")
        page.get_by_role("link", name="Run now").click()
        page.get_by_label("sizes").fill("[")
        page.get_by_role("button", name="Run now").click()
        page.get_by_text("E_JSON_SYNTAX").wait_for()
        page.get_by_label("count").fill("7")
        page.get_by_label("sizes").fill("")
        page.get_by_role("button", name="Run now").click()
        page.wait_for_url(re.compile(r"/runs/\d+$"))
        assert server.ended(int(page.url.rpartition("/")[2]))["data"] == {"count": 7, "colour": "blue"}


def test_a_job_is_changed_as_yaml(page: Any, server: Server):
    job_id = submit(server, name="before", schedule="0 2 * * *")
    page.goto(f"/jobs/{job_id}/edit?as=yaml")
    area = page.get_by_label("The job as YAML")
    page.get_by_text("It can be read, and is complete.").wait_for()
    area.fill(area.input_value().replace("before", "after").replace("0 2 * * *", "0 5 * * *"))
    page.get_by_text("at 05:00 every day").wait_for()
    page.get_by_role("button", name="Save").click()
    page.get_by_role("heading", name="after").wait_for()
    assert server.http.get(f"/v1/jobs/{job_id}").json()["name"] == "after"


def test_a_job_is_changed_by_a_form_that_shows_which_moments_change_and_keeps_the_rest(page: Any, server: Server):
    step = {"name": "one", "run": "echo 1\necho 2"}
    job_id = submit(server, name="before", schedule="0 2 * * *", steps=[step], env={"A": "b"}, timeout="7m", tags=["x"])
    before = server.get(f"/v1/jobs/{job_id}")
    page.goto(f"/jobs/{job_id}/edit")
    page.get_by_text("It can be read, and is complete.").wait_for()
    assert page.get_by_label("Command").input_value() == "echo 1\necho 2"
    page.get_by_label("When").fill("99 * * * *")
    page.locator(".verdict.bad").wait_for()
    page.get_by_label("When").fill("0 2 * * MON-FRI")
    page.locator(".moments del").first.wait_for()
    gone = page.locator(".moments del").all_inner_texts()
    assert gone
    assert all(re.match("Sat|Sun", text) for text in gone)
    assert page.locator(".moments ins").count() == 0
    page.get_by_label("Name").fill("after")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("heading", name="after").wait_for()
    after = server.get(f"/v1/jobs/{job_id}")
    assert (after["name"], after["spec"], after["policy"]) == ("after", before["spec"], before["policy"])
    assert after["triggers"][0]["id"] == before["triggers"][0]["id"]
    assert after["triggers"][0]["schedule"]["cron"] == "0 2 * * MON-FRI"


def test_a_workflow_is_built_in_the_page_drawn_as_it_is_typed_and_run(page: Any, server: Server):
    page.goto("/jobs/new")
    form = page.locator("#write")
    form.get_by_label("Begin with").select_option(label="a workflow")
    form.locator(".task", has_text="publish").wait_for()
    area = form.get_by_label("The job as YAML")
    area.fill(area.input_value() + "  archive:\n    needs: [publish]\n    steps: [{run: echo archived}]\n")
    form.locator(".task", has_text="archive").wait_for()
    assert form.locator(".task").count() == 5
    form.get_by_role("button", name="Make the job").click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    page.get_by_role("link", name="Run now").click()
    page.get_by_role("dialog").get_by_role("button", name="Run now").click()
    page.wait_for_url(re.compile(r"/runs/\d+$"))
    page.locator(".task.succeeded", has_text="archive").wait_for()
    assert page.locator(".task.skipped", has_text="tell").count() == 1


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
    for each in (page, other):
        each.goto("/")
        each.locator("#live", has_text="live").wait_for()
    server.http.post(f"/v1/jobs/{job_id}/run")
    for each in (page, other):
        each.bring_to_front()
        each.locator("[data-fresh=recent]").get_by_role("link", name="shared").first.wait_for()


def test_a_trigger_is_turned_off_and_on_and_the_job_deleted_from_its_page(page: Any, server: Server):
    job_id = submit(server, name="to be deleted", schedule="0 2 * * *")
    page.goto(f"/jobs/{job_id}")
    page.get_by_role("button", name="Turn off").click()
    page.get_by_role("button", name="Turn on").wait_for()
    assert server.get(f"/v1/jobs/{job_id}")["triggers"][0]["enabled"] is False
    page.get_by_role("button", name="Turn on").click()
    page.get_by_role("button", name="Turn off").wait_for()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.locator("#job").get_by_text("deleted", exact=True).wait_for()
    assert server.get(f"/v1/jobs/{job_id}")["deleted_at"]


def test_all_jobs_of_a_filter_by_state_and_tag_are_paused_in_one_request(page: Any, server: Server):
    ids = [submit(server, name=f"fails {number}", steps=[{"run": "false"}], tags=["bad"]) for number in range(2)]
    other = submit(server, name="fine", tags=["bad"])
    for job_id in (*ids, other):
        server.ended(server.http.post(f"/v1/jobs/{job_id}/run").json()["id"])
    page.goto("/jobs")
    page.get_by_role("link", name="#bad").first.click()
    page.get_by_label("How the latest run stands").select_option("failing")
    page.wait_for_url("**state=failing**")
    page.get_by_role("button", name="Pause all…").click()
    page.get_by_role("button", name="Pause 2 jobs").click()
    page.get_by_text("2 jobs paused").wait_for()
    assert [server.get(f"/v1/jobs/{job_id}")["paused"] for job_id in (*ids, other)] == [True, True, False]
