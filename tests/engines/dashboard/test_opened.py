"""What pages show only once somebody has opened it (the palette, menus, dialogs, forms with what is wrong in them, a
log that is searched and folded, the tables behind charts): without a finding of axe-core, in each theme."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.acceptance.server import Server
from tests.engines.dashboard.conftest import judge, tab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard-opened")]

HANDLER = """
from dataclasses import dataclass
from datetime import date
from typing import Literal

from horae import Context, handler

@dataclass
class Order:
    count: int
    name: str = ""
    colour: Literal["red", "blue"] = "red"
    day: date | None = None
    sizes: list[int] | None = None

@handler(name="order")
def order(context: Context, data: Order) -> int:
    return data.count
"""
ALL_OPEN = "document.querySelectorAll('main details').forEach((each) => { each.open = true; })"


class Opened(NamedTuple):
    """Something that is opened in a page, and what is there once it is."""

    name: str
    path: str
    act: Callable[[Any], None]


def button(name: str, within: str = "main") -> Callable[[Any], None]:
    def act(page: Any) -> None:
        page.locator(within).get_by_role("button", name=name, exact=True).first.click()
        page.locator("dialog[open]").wait_for()

    return act


def palette(words: str, shown: str) -> Callable[[Any], None]:
    def act(page: Any) -> None:
        page.keyboard.press("Control+k")
        page.locator("#palette[open]").wait_for()
        page.keyboard.type(words)
        page.locator("#found", has_text=shown).wait_for()

    return act


def menu(name: str) -> Callable[[Any], None]:
    def act(page: Any) -> None:
        page.locator(f"#{name} summary").click()
        page.locator(f"#{name}[open]").wait_for()

    return act


def other_zone(page: Any) -> None:
    menu("look")(page)
    page.locator("#look").get_by_text("Other", exact=True).click()
    page.locator("#other-zone input").fill("Mars/Olympus")
    page.keyboard.press("Tab")
    page.get_by_text("there is no such time zone").wait_for()


def everything_open(page: Any) -> None:
    assert page.locator("main details").count()
    page.evaluate(ALL_OPEN)


def choose_jobs(page: Any) -> None:
    page.get_by_label("Choose all jobs of this page").check()
    page.locator("#bulk").wait_for()


def tag_jobs(page: Any) -> None:
    choose_jobs(page)
    page.locator("#bulk").get_by_role("button", name="Tag", exact=True).click()
    page.locator("#sure[open]").wait_for()


def pause_jobs(page: Any) -> None:
    choose_jobs(page)
    page.locator("#bulk").get_by_role("button", name="Pause", exact=True).click()
    page.locator("#sure[open]").wait_for()


def run_wrongly(page: Any) -> None:
    page.get_by_role("link", name="Run now").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("count").fill("2")
    dialog.get_by_label("sizes").fill('[1, "x"]')
    dialog.get_by_role("button", name="Run now").click()
    dialog.get_by_text("expected int").wait_for()


def write_wrongly(page: Any) -> None:
    form = page.locator("#make")
    form.get_by_label("Name").fill("wrong")
    form.get_by_label("When").fill("99 * * * *")
    form.locator(".verdict.bad").wait_for()


def write_well(page: Any) -> None:
    form = page.locator("#make")
    form.get_by_label("Name").fill("right")
    form.get_by_label("When").fill("0 18 * * FRIL")
    form.locator(".moments li").nth(1).wait_for()


def write_yaml_wrongly(page: Any) -> None:
    page.get_by_label("The job as YAML").fill("name: [")
    page.locator("#write .verdict.bad").wait_for()


def write_workflow(page: Any) -> None:
    page.locator("#write").get_by_label("Begin with").select_option(label="a workflow")
    page.locator("#write .task").first.wait_for()


def move_moments(page: Any) -> None:
    page.get_by_text("It can be read, and is complete.").wait_for()
    page.get_by_label("When").fill("0 5 * * MON-FRI")
    page.locator(".moments del").first.wait_for()
    page.locator(".moments ins").first.wait_for()


def choose_runs(page: Any) -> None:
    page.get_by_label("Choose all runs that are shown").check()
    page.locator("#bulk").wait_for()


def rerun_runs(page: Any) -> None:
    choose_runs(page)
    page.locator("#bulk").get_by_role("button", name="Run again…").click()
    page.locator("dialog.sure").wait_for()


def search_log(page: Any) -> None:
    page.locator(".line").first.wait_for()
    page.fill("#seek", "word")
    page.locator(".line.target mark").first.wait_for()
    page.locator("#hits", has_text="of").wait_for()


def search_log_in_vain(page: Any) -> None:
    page.locator(".line").first.wait_for()
    page.fill("#seek", "no line has this")
    page.locator("#hits", has_text="not found").wait_for()


def fold_log(page: Any) -> None:
    page.get_by_role("button", name="Fold steps").click()
    page.locator(".line.head", has_text=re.compile("[0-9]+ lines")).first.wait_for()


def verify_audit(page: Any) -> None:
    page.evaluate(ALL_OPEN)
    page.get_by_role("button", name="Verify").click()
    page.locator("#verdict .good").wait_for()


def verify_audit_badly(page: Any) -> None:
    page.get_by_label("A head that was written down").fill(f"1:{'0' * 64}")
    page.get_by_role("button", name="Verify").click()
    page.locator("#verdict .bad").wait_for()


def make_token(page: Any) -> None:
    page.get_by_label("Name").fill("laptop")
    page.get_by_role("button", name="Make the token").click()
    page.locator("dialog.once").wait_for()


def toasts(page: Any) -> None:
    page.get_by_role("button", name="It worked").click()
    page.get_by_role("button", name="It did not").click()
    page.locator("#toasts").get_by_text("E_CONFLICT").wait_for()


@pytest.fixture(scope="module")
def opened(server: Server) -> list[Opened]:
    """What can be opened, on a server on which there is something of each kind."""
    place = server.directory / "jobs" / "order"
    place.mkdir(parents=True)
    (place / "job.py").write_text(HANDLER)
    steps = [{"name": "one", "run": "seq -f 'a word %.0f' 40"}, {"name": "two", "run": "echo ERROR: a word; exit 3"}]
    order, broken, slow, asking = server.submit(
        {"name": "order", "handler": "jobs/order"},
        {"name": "broken", "schedule": "0 2 * * *", "timezone": "Europe/Berlin", "tags": ["bad"], "steps": steps},
        {"name": "slow", "steps": [{"run": "echo begun; sleep 900"}]},
        {"name": "asks", "wait": {"approval": {"by": ["ann"], "message": "Deploy?"}}},
    )
    failed, live, asked = (server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"] for job in (broken, slow, asking))
    server.ended(failed)
    server.wait_until(lambda: server.get(f"/v1/runs/{live}")["state"] == "running", "it to run")
    server.wait_until(lambda: server.get(f"/v1/runs/{asked}")["state"] == "blocked", "it to wait")
    for method, path, body in (
        ("POST", "/v1/tokens", {"name": "v", "owner": "eve", "role": "viewer"}),
        ("POST", "/v1/users", {"name": "zoe"}),
        ("POST", "/v1/grants", {"who": "zoe", "role": "editor", "tag": "bad"}),
        ("PUT", "/v1/secrets/A", {"value": "b"}),
        ("PUT", "/v1/alerts/channels/ops", {"kind": "webhook", "url": "http://127.0.0.1:9/"}),
        ("PUT", "/v1/alerts/rules/nights", {"when": "failure", "channels": ["ops"]}),
    ):
        assert server.http.request(method, path, json=body).status_code < 300, path
    return [
        Opened("palette", "/", palette("", "Jobs")),
        Opened("palette, found", "/runs", palette("broken", "broken")),
        Opened("palette, nothing", "/", palette("qqqq", "Nothing found")),
        Opened("menu of looks", "/", other_zone),
        Opened("menu of who", "/", menu("who")),
        *(
            Opened(f"tables of {path}", path, everything_open)
            for path in ("/", f"/jobs/{broken['id']}", "/timeline?span=24h", "/forecast", "/cluster", "/style")
        ),
        Opened("chosen jobs", "/jobs", choose_jobs),
        Opened("jobs to pause", "/jobs", pause_jobs),
        Opened("jobs to tag", "/jobs", tag_jobs),
        Opened("job to delete", f"/jobs/{broken['id']}", button("Delete")),
        Opened("job to run, wrong", f"/jobs/{order['id']}", run_wrongly),
        Opened("job that is wrong", "/jobs/new", write_wrongly),
        Opened("job that is right", "/jobs/new", write_well),
        Opened("YAML that is wrong", "/jobs/new", write_yaml_wrongly),
        Opened("workflow that is drawn", "/jobs/new", write_workflow),
        Opened("moments that change", f"/jobs/{broken['id']}/edit", move_moments),
        Opened("chosen runs", "/runs", choose_runs),
        Opened("runs to run again", "/runs?state=failed", rerun_runs),
        Opened("run to cancel", f"/runs/{live}", button("Cancel")),
        Opened("log, searched", f"/runs/{failed}", search_log),
        Opened("log, searched in vain", f"/runs/{failed}", search_log_in_vain),
        Opened("log, folded", f"/runs/{failed}", fold_log),
        Opened("run that asks", f"/runs/{asked}", lambda page: page.get_by_label("Comment").fill("looks good")),
        Opened("queue to drain", "/queues", button("Drain")),
        Opened("node to drain", "/cluster", button("Drain")),
        Opened("rule to delete", "/alerts", button("Delete", "#rules")),
        Opened("audit log, verified", "/audit", verify_audit),
        Opened("audit log, broken", "/audit", verify_audit_badly),
        Opened("token, shown once", "/settings/tokens", make_token),
        Opened("secret to delete", "/settings/secrets", button("Delete")),
        Opened("user to disable", "/settings/users", button("Disable")),
        Opened("messages", "/style", toasts),
    ]


@pytest.mark.parametrize(("theme", "width"), [("light", 360), ("light", 1280), ("dark", 1280), ("contrast", 1280)])
def test_axe_finds_nothing_in_what_is_opened(
    browser: Any, server: Server, opened: list[Opened], axe: str, theme: str, width: int
) -> None:
    found = {}
    with tab(browser, server, viewport={"width": width, "height": 900}) as page:
        page.context.add_cookies([{"name": "horae-look", "value": f"{theme}.roomy.UTC", "url": server.url}])
        for it in opened:
            page.goto(it.path)
            it.act(page)
            said = [str(one) for one in judge(page, axe)]
            if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                said.append("it is wider than the window")
            if said:
                found[it.name] = said
            page.evaluate("document.querySelectorAll('dialog[open]').forEach((each) => each.close())")
    assert found == {}
