"""The form in which jobs are made and changed, in a real browser: each kind and field reaches the document, what is
wrong is said beside its field, and what was not touched stays as it is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.acceptance.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard-form")]

RICH = {
    "name": "rich", "key": "rich", "env": {"A": "b=c"}, "timeout": "7m", "retry": {"attempts": 3, "backoff": "30s"},
    "tags": ["x", "y"], "labels": ["gpu"], "priority": 7, "overlap": "queue", "misfire": "skip", "start_deadline": "1h",
    "steps": [{"name": "build", "run": "make\nmake test"}, {"run": "true"}], "network": "on",
    "triggers": [
        {"cron": "0 2 * * *", "timezone": "Europe/Berlin", "start_at": "2027-01-01T00:00:05Z", "name": "nightly"},
        {"every": "5m", "mode": "delay", "data": {"full": True}},
        {"rrule": "FREQ=MONTHLY;BYDAY=-1FR", "enabled": False},
    ],
}  # fmt: skip


def made(page: Any, server: Server) -> dict[str, Any]:
    page.get_by_role("button", name="Make the job").first.click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    job: dict[str, Any] = server.get(f"/v1/jobs/{page.url.rpartition('/')[2]}")
    return job


def more(page: Any, words: str) -> None:
    page.locator("form:has(.when) summary", has_text=words).first.click()


def test_a_job_is_made_with_all_that_the_form_has_and_two_triggers(page: Any, server: Server) -> None:
    page.goto("/jobs/new")
    form = page.locator("#make")
    form.get_by_label("Name").fill("by form")
    form.get_by_label("Command").fill("./report.sh")
    form.get_by_label("Environment").first.fill("TARGET=a=b\nEMPTY=\n")
    form.get_by_label("When").fill("0 2 * * *")
    form.get_by_label("Time zone").fill("Europe/Berlin")
    more(page, "From and until")
    form.get_by_label("Not before").fill("2027-07-01T10:00:00")
    form.get_by_label("Not after").fill("2027-12-31T10:00:00")
    form.get_by_role("button", name="Another trigger").click()
    second = form.locator(".when").nth(1)
    second.get_by_label("When").fill("every 90m")
    more(page, "How it runs")
    for label, text in (
        ("Priority", "8"), ("Timeout", "10m"), ("Starts within", "1h"), ("Attempts", "3"), ("Wait between two", "5s"),
        ("Agents with", "gpu, disk"), ("Tags", "nightly , finance"), ("Key", "by-form"),
    ):  # fmt: skip
        form.get_by_label(label).fill(text)
    form.get_by_label("A run that finds one under way").select_option("queue")
    form.get_by_label("Moments that were missed").select_option("skip")
    form.locator(".moments").get_by_text("every 1 h 30 min").or_(form.locator(".moments b").nth(1)).first.wait_for()
    job = made(page, server)
    policy = job["policy"]
    assert (job["key"], job["spec"]["env"]) == ("by-form", {"TARGET": "a=b", "EMPTY": ""})
    assert [it["schedule"] for it in job["triggers"]] == [
        {"cron": "0 2 * * *", "timezone": "Europe/Berlin", "start_at": "2027-07-01T08:00:00Z",
         "end_at": "2027-12-31T09:00:00Z"},
        {"every": "1h30m"},
    ]  # fmt: skip
    assert (policy["priority"], policy["timeout_seconds"], policy["start_deadline_seconds"]) == (8, 600, 3600)
    assert (policy["retry"]["attempts"], policy["retry"]["backoff_seconds"]) == (3, 5)
    assert (policy["labels"], policy["tags"]) == (["disk", "gpu"], ["finance", "nightly"])
    assert (policy["overlap"], policy["misfire"]) == ("queue", "skip")


@pytest.mark.parametrize(
    ("kind", "fields", "spec"),
    [
        ("Python", {"Handler": "greet:hello", "Data": '{"n": 1}'}, {"handler": "greet:hello", "data": {"n": 1}}),
        (
            "HTTP",
            {"Address": "https://example.org/x", "What is sent": "[1]"},
            {"http": {"url": "https://example.org/x", "json": [1]}},
        ),
        ("SQL", {"Query": "SELECT 1"}, {"query": "SELECT 1"}),
    ],
)
def test_a_job_of_another_kind_is_made(
    page: Any, server: Server, kind: str, fields: dict[str, str], spec: dict[str, Any]
) -> None:
    page.goto("/jobs/new")
    form = page.locator("#make")
    form.get_by_text(kind, exact=True).first.click()
    form.get_by_label("Name").fill(kind)
    for label, text in fields.items():
        form.locator("[data-kind]:not([hidden])").get_by_label(label).fill(text)
    page.get_by_text("It can be read, and is complete.").first.wait_for()
    job = made(page, server)
    shown = {name: job["spec"][name] for name in spec}
    if "http" in shown:
        shown["http"] = {name: shown["http"][name] for name in ("url", "json")}
    assert shown == spec
    assert job["triggers"] == []


def test_what_is_wrong_is_said_beside_its_field_as_one_types(page: Any, server: Server) -> None:
    page.goto("/jobs/new")
    form = page.locator("#make")
    form.get_by_label("When").fill("0 2 * * *")
    more(page, "How it runs")
    for label, text, said in (
        ("Timeout", "soon", "soon"), ("Priority", "12", "0"), ("Environment", "no sign", "VARIABLE=value"),
        ("When", "99 * * * *", "99"), ("Time zone", "Nowhere/City", "Nowhere"),
    ):  # fmt: skip
        field = form.get_by_label(label).first
        before = field.input_value()
        field.fill(text)
        wrong = form.locator(".field:has([aria-invalid])")
        wrong.locator(".bad", has_text=said).wait_for()
        assert label in wrong.inner_text()
        field.fill(before)
        wrong.wait_for(state="detached")


def test_a_form_that_is_sent_as_it_was_shown_changes_nothing(page: Any, server: Server) -> None:
    [job] = server.submit(RICH)
    before = server.get(f"/v1/jobs/{job['id']}")
    page.goto(f"/jobs/{job['id']}/edit")
    page.get_by_text("It can be read, and is complete.").wait_for()
    page.get_by_role("button", name="Save").click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    assert server.get(f"/v1/jobs/{job['id']}") == before


def test_only_what_was_changed_is_changed_and_triggers_keep_their_past(page: Any, server: Server) -> None:
    [job] = server.submit({**RICH, "key": "other"})
    before = server.get(f"/v1/jobs/{job['id']}")
    page.goto(f"/jobs/{job['id']}/edit")
    page.get_by_label("Command of step 2").fill("echo done")
    page.get_by_label("When").first.fill("0 5 * * *")
    more(page, "How it runs")
    page.get_by_label("Timeout").fill("")
    page.get_by_label("Agents with").fill("")
    page.locator(".moments ins").first.wait_for()
    page.get_by_role("button", name="Remove this trigger").nth(2).click()
    page.get_by_role("button", name="Save").click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    after = server.get(f"/v1/jobs/{job['id']}")
    first, second = after["triggers"]
    assert (first["id"], first["name"], first["schedule"]) == (
        before["triggers"][0]["id"], "nightly", {**before["triggers"][0]["schedule"], "cron": "0 5 * * *"}
    )  # fmt: skip
    assert (second["id"], second["schedule"], second["data"]) == tuple(
        before["triggers"][1][name] for name in ("id", "schedule", "data")
    )
    steps = [{**before["spec"]["steps"][0]}, {**before["spec"]["steps"][1], "run": "echo done"}]
    assert after["spec"] == {**before["spec"], "steps": steps}
    assert after["policy"] == {**before["policy"], "timeout_seconds": None, "labels": []}
