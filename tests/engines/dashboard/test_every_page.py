"""Every page in a real browser, full of hostile text: shown as text, the layout whole at each width, and without a
finding of axe-core (where npm can install it) in light, dark and high contrast."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from demo.pages import MISSING, addresses

from tests.acceptance.server import Server
from tests.engines.conftest import miss
from tests.engines.dashboard.conftest import tab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard-every")]
RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]
WIDTHS = (360, 1280, 2560)
MARKUP = "<script>window.hacked = 1</script><img src=x onerror='window.hacked=1'>"
ODD = (
    "\u202eturned \u200bnothing \u2066 \U0001f468\u200d\U0001f469\u200d\U0001f467 " + "\u0301" * 20
)  # RTL, zero width, emoji
NAME = f"{MARKUP} \u05e9\u05dc\u05d5\u05dd \U0001f9e8"  # names have no signs that cannot be seen
LONG, TASK = "x" * 10_000, "t" * 60
PRINTED = f"printf '%s\\n' \"$A\"; printf '\\033[31mred\\033[0m\\033[2J %s\\n' {LONG}; echo ERROR: $A; exit 3"

BEYOND = """[...document.querySelectorAll("body *")]
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest(".scroll, .rail, pre"))
  .map((each) => each.outerHTML.slice(0, 150))"""


@pytest.fixture(scope="module")
def places(server: Server) -> dict[str, str]:
    """A server in which every text that somebody may write is hostile; where its pages are."""
    step = {"name": NAME[:60], "run": PRINTED}
    job, flow, follower = server.submit(
        {"name": NAME, "key": "first", "schedule": "30 2 * * *", "env": {"A": MARKUP + ODD}, "steps": [step]},
        {"name": "y" * 128, "key": "flow", "tasks": {TASK: {"steps": [step]}, "b": {"needs": [TASK], "steps": [step]}}},
        {"name": NAME, "after": ["first"], "steps": [step], "paused": True},
    )  # fmt: skip
    runs = [
        server.post(f"/v1/jobs/{each['id']}/run", {"data": {MARKUP: LONG, "odd": ODD}}, status=201)["id"]
        for each in (job, flow)
    ]
    for method, path, body in (
        ("PUT", "/v1/queues/reports", {"concurrency": 4}),
        ("POST", "/v1/tokens", {"name": NAME, "owner": NAME}),
        ("POST", "/v1/users", {"name": "zoe"}),
        ("POST", "/v1/grants", {"who": "zoe", "role": "editor", "tag": "t" * 63}),
        ("PUT", "/v1/secrets/A", {"value": MARKUP}),
        ("PUT", "/v1/alerts/channels/ops", {"kind": "webhook", "url": f"http://127.0.0.1:9/{'x' * 200}"}),
        ("PUT", "/v1/alerts/rules/nights", {"when": "failure", "channels": ["ops"]}),
    ):
        assert server.http.request(method, path, json=body).status_code < 300, path
    for run in runs:
        assert server.ended(run)["state"] == "failed"
    ids = {"job": job["id"], "flow": flow["id"], "follower": follower["id"], "run": runs[0], "flow_run": runs[1]}
    return {**addresses(**ids), "missing": MISSING}


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_text_is_shown_as_text_and_the_layout_is_whole(
    browser: Any, server: Server, places: dict[str, str], width: int
) -> None:
    wide = {}
    with tab(browser, server, viewport={"width": width, "height": 900}) as page:
        for name, path in places.items():
            page.goto(path)
            if name == "run":
                page.locator(".line", has_text="ERROR").first.wait_for()
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wide[name] = page.evaluate(BEYOND)
            assert page.evaluate("window.hacked") is None, name
            assert page.locator("main img[src=x], main script").count() == 0, name
    assert wide == {}


@pytest.fixture(scope="module")
def axe(need: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> str:
    need("npm")
    where = tmp_path_factory.mktemp("axe")
    done = subprocess.run(["npm", "install", "--no-audit", "axe-core@4"], cwd=where, capture_output=True, text=True)
    if done.returncode:
        miss(f"axe-core cannot be had: {done.stderr[-300:]}")
    return Path(where, "node_modules/axe-core/axe.min.js").read_text()


@pytest.mark.parametrize(("theme", "width"), [("light", 360), ("light", 1280), ("dark", 1280), ("contrast", 1280)])
def test_axe_finds_nothing(
    browser: Any, server: Server, places: dict[str, str], axe: str, theme: str, width: int
) -> None:
    found = {}
    with tab(browser, server, viewport={"width": width, "height": 900}) as page:
        page.context.add_cookies([{"name": "horae-look", "value": f"{theme}.roomy.UTC", "url": server.url}])
        for name, path in places.items():
            if name == "docs" and (theme, width) != ("light", 1280):  # which is long, and made of the same parts
                continue
            page.goto(path)
            judged = page.evaluate(f"{axe}; axe.run({{runOnly: {json.dumps(RULES)}}})")
            if judged["violations"]:
                found[name] = [(one["id"], one["nodes"][0]["html"][:200]) for one in judged["violations"]]
    assert found == {}
