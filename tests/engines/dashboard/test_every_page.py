"""Every page in a real browser, full of hostile text: shown as text, the layout whole at each width, and without a
finding of axe-core (where npm can install it) in light, dark and high contrast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from demo.pages import MISSING, addresses

from tests.acceptance.server import Server
from tests.engines.dashboard.conftest import judge, tab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard-every")]
WIDTHS = (360, 1280, 2560)
MARKUP = "<script>window.hacked = 1</script><img src=x onerror='window.hacked=1'>"
ODD = (
    "\u202eturned \u200bnothing \u2066 \U0001f468\u200d\U0001f469\u200d\U0001f467 " + "\u0301" * 20
)  # RTL, zero width, emoji
NAME = f"{MARKUP} \u05e9\u05dc\u05d5\u05dd \U0001f9e8"  # names have no signs that cannot be seen
LONG, TASK = "x" * 10_000, "t" * 60
NODE, QUEUE, TAG, RESOURCE = "N" * 128, "Q" * 63, "T" * 63, "r" * 41  # names that have letters and digits alone
HANDLER = f"""
from horae import Context, handler

@handler(name="odd")
def odd(context: Context) -> dict:
    context.log(context.data["odd"])
    context.progress(1, 2, context.data["odd"])
    if context.data.get("fails"):
        raise ValueError(context.data["odd"] + "\\n" + {LONG!r})
    return {{context.data["odd"]: [context.data["odd"], {LONG!r}]}}
"""
PRINTED = f"printf '%s\\n' \"$A\"; printf '\\033[31mred\\033[0m\\033[2J %s\\n' {LONG}; echo ERROR: $A; exit 3"

BEYOND = """[...document.querySelectorAll("body *")]
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest(".scroll, .rail, pre"))
  .map((each) => each.outerHTML.slice(0, 150))"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("every"), "--node", NODE, "--labels", "L" * 63).start()
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def places(server: Server) -> dict[str, str]:
    """A server in which every text that somebody may write is hostile; where its pages are."""
    configure(server)
    token = server.post("/v1/tokens", {"name": NAME, "owner": NAME}, status=201)["token"]
    server.http.headers["authorization"] = f"Bearer {token}"  # what is made from now on belongs to that owner
    job, flow, follower, giving, asking = server.submit(*documents())
    hostile = {"data": {MARKUP: LONG, "odd": MARKUP + ODD}}
    ran, flown, gave, failed, asked = (
        server.post(f"/v1/jobs/{job_id}/run", body, status=201)["id"]
        for job_id, body in (
            (job["id"], hostile), (flow["id"], hostile), (giving["id"], hostile),
            (giving["id"], {"data": {"odd": MARKUP + ODD, "fails": True}}), (asking["id"], {}),
        )
    )  # fmt: skip
    for run, state in ((ran, "failed"), (flown, "failed"), (gave, "succeeded"), (failed, "failed")):
        assert server.ended(run)["state"] == state
    server.wait_until(lambda: server.get(f"/v1/runs/{asked}")["state"] == "blocked", "it to ask")
    server.wait_until(lambda: server.get("/v1/alerts")["items"], "an alert")
    del server.http.headers["authorization"]
    ids = {"job": job["id"], "flow": flow["id"], "follower": follower["id"], "run": ran, "flow_run": flown}
    more = {"run that gave": gave, "run that raised": failed, "run that asks": asked}
    return {**addresses(**ids), "missing": MISSING, **{name: f"/runs/{run}" for name, run in more.items()}}


def documents() -> list[dict[str, Any]]:
    step = {"name": NAME[:60], "run": PRINTED}
    return [
        {"name": NAME, "key": "first", "schedule": "30 2 * * *", "env": {"A": MARKUP + ODD}, "steps": [step],
         "tags": [TAG, *(f"tag-{number}" for number in range(31))], "queue": QUEUE, "resources": {RESOURCE: 1}},
        {"name": "y" * 128, "key": "flow", "tasks": {TASK: {"steps": [step]}, "b": {"needs": [TASK], "steps": [step]}}},
        {"name": NAME, "after": ["first"], "steps": [step], "paused": True},
        {"name": NAME, "key": (MARKUP + "k" * 128)[:128], "handler": "jobs/odd", "overlap": "allow"},
        {"name": NAME, "wait": {"approval": {"by": [MARKUP, "z" * 100], "message": NAME + "m" * (128 - len(NAME))}}},
    ]  # fmt: skip


def configure(server: Server) -> None:
    place = server.directory / "jobs" / "odd"
    place.mkdir(parents=True)
    (place / "job.py").write_text(HANDLER)
    who, org = "u" * 63, "o" * 63
    for method, path, body in (
        ("PUT", f"/v1/resources/{RESOURCE}", {"capacity": 5}),
        ("PUT", f"/v1/queues/{QUEUE}", {"concurrency": 4, "weights": {NAME: 2}}),
        ("POST", "/v1/orgs", {"name": org}),
        ("POST", "/v1/users", {"name": who, "org": org, "email": f"{MARKUP[:40]}@{'e' * 80}.org"}),
        ("POST", "/v1/grants", {"who": who, "role": "editor", "tag": TAG}),
        ("PUT", f"/v1/secrets/{'S' * 63}", {"value": MARKUP}),
        ("PUT", f"/v1/alerts/channels/{'c' * 63}", {"kind": "webhook", "url": f"http://127.0.0.1:9/{'x' * 200}"}),
        ("PUT", f"/v1/alerts/rules/{'r' * 63}", {"when": "failure", "channels": ["c" * 63], "wait": "1s"}),
        ("PUT", f"/v1/alerts/rules/{'R' * 63}", {"when": "failure", "channels": ["c" * 63], "owner": NAME}),
    ):
        answer = server.http.request(method, path, json=body)
        assert answer.status_code < 300, answer.text


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_text_is_shown_as_text_and_the_layout_is_whole(
    browser: Any, server: Server, places: dict[str, str], width: int
) -> None:
    wide, asked = {}, []
    with tab(browser, server, viewport={"width": width, "height": 900}) as page:
        page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
        for name, path in places.items():
            page.goto(path)
            if name in ("run", "run that gave", "run that raised"):
                page.locator(".line .odd, .line.target").first.wait_for()
            page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")
            if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                wide[name] = page.evaluate(BEYOND)
            assert page.evaluate("window.hacked") is None, name
            assert page.locator("main img[src=x], main script").count() == 0, name
    assert (wide, asked) == ({}, [])


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
            if said := judge(page, axe):
                found[name] = said
    assert found == {}
