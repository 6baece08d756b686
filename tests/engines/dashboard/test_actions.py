"""What can be done in the pages and no other test does, in a real browser that must say nothing on its console."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.acceptance.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard-actions")]


def agree(page: Any, verb: str) -> None:
    page.locator("dialog.sure").get_by_role("button", name=verb, exact=True).click()


def test_rules_and_channels_of_alerts_are_made_changed_and_deleted(page: Any, server: Server) -> None:
    page.goto("/alerts?kind=email")
    form = page.locator("#channel-form")
    form.get_by_label("Name").fill("ops")
    form.get_by_label("To").fill("ann@example.org, bob@example.org")
    form.get_by_role("button", name="Keep the channel").click()
    page.locator("#channels", has_text="ann@example.org, bob@example.org").wait_for()
    form = page.locator("#rule-form")
    form.get_by_label("Name").fill("nights")
    form.get_by_label("When").select_option("failure")
    form.get_by_label("In a row").fill("3")
    form.get_by_label("Channels").fill("ops")
    form.get_by_role("button", name="Keep the rule").click()
    page.locator("#rules tr", has_text="nights").wait_for()
    made = server.get("/v1/alerts/rules/nights")
    assert (made["when"], made["count"], made["channels"], made["enabled"]) == ("failure", 3, ["ops"], True)
    page.locator("#rules tr", has_text="nights").get_by_role("link", name="Change").click()
    page.locator("#rule-form").get_by_role("checkbox", name="On").uncheck()
    page.locator("#rule-form").get_by_role("button", name="Keep the rule").click()
    page.locator("#rules .tag", has_text="off").wait_for()
    assert server.get("/v1/alerts/rules/nights")["count"] == 3
    page.locator("#rules tr", has_text="nights").get_by_role("button", name="Delete").click()
    agree(page, "Delete")
    page.get_by_text("No rule yet").wait_for()
    page.locator("#channels").get_by_role("button", name="Delete").click()
    agree(page, "Delete")
    page.get_by_text("No channel yet").wait_for()


def test_a_channel_is_tried_and_an_open_alert_acknowledged(page: Any, server: Server) -> None:
    for path, body in (
        ("channels/nowhere", {"kind": "webhook", "url": "http://127.0.0.1:9/"}),
        ("rules/broken", {"when": "failure", "channels": ["nowhere"], "wait": "1s"}),
    ):
        assert server.http.put(f"/v1/alerts/{path}", json=body).is_success
    [job] = server.submit({"name": "tells of itself", "steps": [{"run": "false"}]})
    server.ended(server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])
    page.goto("/alerts")
    page.locator("#channels").get_by_role("button", name="Try it").click()
    page.locator("#toasts", has_text="nothing was sent").wait_for()
    alert = page.locator("#open li", has_text="tells of itself")
    alert.get_by_role("button", name="Acknowledge").click()
    alert.get_by_text("knows").wait_for()
    assert server.get("/v1/alerts")["items"][0]["acked_at"]
    for path in ("rules/broken", "channels/nowhere"):
        assert server.http.delete(f"/v1/alerts/{path}").is_success


def test_what_failed_is_run_again_from_the_overview(page: Any, server: Server) -> None:
    [job] = server.submit({"name": "needs a hand", "steps": [{"run": "false"}]})
    server.ended(server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])
    page.goto("/")
    attention = page.get_by_label("What needs attention").locator("li", has_text="needs a hand")
    attention.get_by_role("button", name="Run again").click()
    server.wait_until(lambda: len(server.every("/v1/runs", job_id=job["id"])) == 2, "another run")
    page.locator("#toasts", has_text="Run ").wait_for()


def test_steps_of_a_log_are_folded_gone_to_and_its_errors_and_words_found(page: Any, server: Server) -> None:
    steps = [{"name": "count", "run": "seq -f 'number %.0f' 300"}, {"name": "fail", "run": "echo ERROR: no; exit 3"}]
    [job] = server.submit({"name": "talks", "steps": steps})
    run = server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]
    server.ended(run)
    page.goto(f"/runs/{run}")
    page.locator(".line.target", has_text="ERROR: no").wait_for()
    page.get_by_label("Go to a step").select_option(index=1)
    page.locator(".line.target.head", has_text="count").wait_for()
    page.get_by_role("button", name="Fold steps").click()
    page.locator(".line .said", has_text="number 1").first.wait_for(state="detached")
    page.get_by_role("button", name=re.compile("Unfold .*count")).click()
    page.locator(".line .said", has_text="number 1").first.wait_for()
    page.get_by_role("button", name="First error").click()
    page.locator(".line.target", has_text="ERROR: no").wait_for()
    page.fill("#seek", "number 29")
    page.locator("#hits", has_text="1 of 11").wait_for()
    page.get_by_role("button", name="Next line that holds it").click()
    page.locator(".line.target", has_text="number 290").wait_for()
    page.get_by_role("button", name="Line before that holds it").click()
    page.locator(".line.target .said", has_text=re.compile("^number 29$")).wait_for()
    page.locator("#seek").press("Shift+Enter")
    page.locator(".line.target", has_text="number 299").wait_for()


def test_the_timeline_is_moved_zoomed_and_narrowed_and_the_forecast_shows_a_week(page: Any, server: Server) -> None:
    server.submit(
        {"name": "each hour", "schedule": "0 * * * *", "steps": [{"run": "true"}]},
        {"name": "at night", "schedule": "0 3 * * *", "steps": [{"run": "true"}]},
    )
    page.goto("/timeline")
    page.get_by_role("link", name="7d").click()
    page.get_by_role("link", name="at night", exact=True).wait_for()
    page.get_by_label("Zoom in").click()
    page.wait_for_url("**span=3d**")
    page.get_by_label("Zoom out").click()
    page.wait_for_url("**span=7d**")
    page.get_by_label("Later").click()
    page.wait_for_url("**at=20**")
    page.get_by_role("link", name="Now").click()
    page.wait_for_url(re.compile("span=7d$"))
    page.get_by_label("Jobs whose name holds").fill("each")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="each hour", exact=True).wait_for()
    assert page.get_by_role("link", name="at night").count() == 0
    page.goto("/forecast")
    page.get_by_role("link", name=re.compile("week", re.IGNORECASE)).click()
    page.wait_for_url("**span=7d**")


def test_an_audit_row_is_found_by_who_and_what(page: Any, server: Server) -> None:
    token = server.post("/v1/tokens", {"name": "a", "owner": "auditee"}, status=201)["token"]
    asked = {"headers": {"authorization": f"Bearer {token}"}}
    server.http.post("/v1/jobs", json={"name": "seen by audit", "steps": [{"run": "true"}]}, **asked)
    page.goto("/audit")
    page.get_by_label("Who", exact=True).fill("auditee")
    page.get_by_label("Of what").select_option("job")
    page.get_by_label("Outcome").select_option("done")
    page.get_by_label("Since").select_option("midnight")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**who=auditee**")
    [row] = page.locator("#rows tbody tr").all()
    row.get_by_role("link", name=re.compile("All of job")).click()
    page.wait_for_url("**kind=job**id=**")


def test_a_queue_is_drained_and_opened_again(page: Any, server: Server) -> None:
    page.goto("/queues")
    page.get_by_role("button", name="Drain").click()
    agree(page, "Drain")
    page.locator(".queue .state.draining").wait_for()
    assert server.get("/v1/queues/default")["state"] == "draining"
    page.get_by_role("button", name="Resume").click()
    page.locator(".queue .state.live").wait_for()


def test_a_workflow_goes_on_from_where_it_failed(page: Any, server: Server, tmp_path: Any) -> None:
    path = tmp_path / "there"
    tasks = {"a": {"steps": [{"run": "true"}]}, "b": {"needs": ["a"], "steps": [{"run": f"test -e {path}"}]}}
    [job] = server.submit({"name": "goes on", "tasks": tasks})
    run = server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]
    assert server.ended(run)["state"] == "failed"
    path.touch()
    page.goto(f"/runs/{run}")
    page.get_by_role("button", name="Go on from where it failed").click()
    page.wait_for_url(lambda url: not url.endswith(f"/runs/{run}"))
    page.locator("#state .succeeded").wait_for()


@pytest.mark.parametrize(("verb", "state"), [("Approve", "succeeded"), ("Reject", "failed")])
def test_what_waits_for_a_decision_is_decided(page: Any, server: Server, verb: str, state: str) -> None:
    [job] = server.submit({"name": f"to {verb}", "wait": {"approval": {"by": ["ann"], "message": "Deploy?"}}})
    run = server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]
    server.wait_until(lambda: server.get(f"/v1/runs/{run}")["state"] == "blocked", "it to wait")
    page.goto(f"/runs/{run}")
    page.get_by_label("Comment").fill("looks good")
    page.get_by_role("button", name=verb).click()
    page.locator(f"#state .{state}").wait_for()


def test_the_palette_does_what_is_on_no_page(page: Any, server: Server) -> None:
    [job] = server.submit({"name": "pears and plums", "steps": [{"run": "true"}]})
    run = server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]
    server.ended(run)

    def choose(words: str, option: str) -> None:
        page.keyboard.press("Control+k")
        page.get_by_role("dialog").wait_for()
        page.keyboard.type(words)
        page.get_by_role("option", name=option).click()

    page.goto("/queues")
    choose("density compact", "Density: compact")
    assert page.locator("html").get_attribute("data-density") == "compact"
    choose("theme dark", "Theme: dark")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    choose("theme system", "Theme: system")
    assert page.locator("html").get_attribute("data-theme") == "auto"
    choose("zone utc", "Time zone: UTC")
    page.locator("#zone-name", has_text="UTC").wait_for()
    choose("latest pears", "Latest run of pears and plums")
    page.wait_for_url(f"**/runs/{run}")
    choose("run plums", "Run pears and plums")
    page.wait_for_url(f"**/jobs/{job['id']}/run")
    choose("new job", "New job")
    page.wait_for_url("**/jobs/new")


def test_a_bar_of_the_timeline_leads_to_its_run_by_pointer_and_by_keys_and_without_script_to_all_of_them(
    page: Any, server: Server
) -> None:
    [job] = server.submit({"name": "has bars", "steps": [{"run": "true"}]})
    run = server.ended(server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"])["id"]
    # The browser knows its zone, so that no page comes once more; and in four weeks a bar stands still.
    page.context.add_cookies([{"name": "horae-look", "value": "auto.roomy.Europe/Berlin", "url": server.url}])
    page.goto("/timeline?span=28d&name=has+bars")
    row = page.get_by_role("link", name="1 run of has bars", exact=True)
    whole = row.get_attribute("href")
    assert re.match(rf"/runs\?job={job['id']}&since=20.+&until=20", whole), whole
    assert page.request.get(whole, headers={"accept": "text/html"}).text().count(f'href="/runs/{run}"') == 1
    [bar] = row.get_attribute("data-spots").split(";")
    box = row.bounding_box()
    page.mouse.move(box["x"] + int(bar.split()[0]) * box["width"] / 1000, box["y"] + 10)
    assert row.get_attribute("href") == f"/runs/{run}"
    assert row.get_attribute("title").startswith("succeeded, ")
    assert row.locator(".here").count() == 1
    page.mouse.move(box["x"] + 20, box["y"] + 10)
    assert row.get_attribute("href").startswith(f"/runs?job={job['id']}&since=20")
    assert row.locator(".here").count() == 0
    page.get_by_role("link", name="has bars", exact=True).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    page.get_by_role("status").filter(has_text="succeeded, ").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{run}")


def test_a_moment_is_copied_and_the_timeline_is_moved_by_keys(page: Any, server: Server) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    [job] = server.submit({"name": "copied", "schedule": "30 2 * * *", "steps": [{"run": "true"}]})
    page.goto(f"/jobs/{job['id']}")
    moment = page.locator("main time[datetime]").first
    moment.click()
    page.get_by_text("Copied 20").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == moment.get_attribute("datetime")
    page.goto("/timeline")
    before = page.url
    page.keyboard.press("+")
    page.wait_for_url(lambda url: url != before)
    zoomed = page.url
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(lambda url: url not in (before, zoomed))
