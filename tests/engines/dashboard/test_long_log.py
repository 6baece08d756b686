"""A log of a hundred million bytes in the page of its run: read at its first and at its last line, searched, folded,
linked by line and followed, without the browser holding more than what is seen; and lines that are anything but text.

Times of the main thread are by the processor: a machine that has more to do than it can does not make them longer.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.acceptance.server import Server
from tests.engines.dashboard.conftest import blocks, tab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser-speed")]

LINES = 1_600_000
MIDDLE = 1_234_567
SAID = "line %.0f of a log that is far too long to be read as a whole"
LEAST_SIZE = 100_000_000  # bytes, of at most 100 MiB that are kept
BLOCKED_MS = 100.0
MOST_NODES = 2_000  # elements of the page: what is seen, and a little more
MOST_FIRST_READ = 1_000_000  # bytes that are read before the first lines stand there
LAST = "Number(document.querySelector('.line:last-child .no').textContent)"
MOST_IN_LINE = """Math.max(...[...document.querySelectorAll(".line")].map((it) => it.querySelectorAll("*").length))"""
NODES = "document.querySelectorAll('*').length"
SCROLL = """async () => {
  const box = document.getElementById("lines");
  const frame = () => new Promise(requestAnimationFrame);
  let most = 0;
  for (let step = 0; step <= 60; step++) {
    box.scrollTop = box.scrollHeight * step / 60;
    for (let frames = 0; frames < 3; frames++) await frame();
    most = Math.max(most, document.querySelectorAll("*").length);
  }
  return most;
}"""


@pytest.fixture(scope="module")
def run(server: Server) -> int:
    """A run with a very long log, that failed in its second step."""
    steps = [
        {"name": "count", "run": f"seq -f '{SAID}' {LINES}"},
        {"name": "judge", "run": "echo 'ERROR: it broke'; exit 3"},
    ]
    [job] = server.submit({"name": "says very much", "steps": steps})
    made: int = server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]
    assert server.ended(made)["state"] == "failed"
    return made


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    with tab(browser, server, viewport={"width": 1280, "height": 900}) as made:
        yield made


@contextmanager
def unblocked(browser: Any, page: Any) -> Iterator[None]:
    """What is done meanwhile keeps the main thread busy for moments only, and the page as small as it was."""
    browser.start_tracing(page=page, categories=["toplevel"])
    try:
        yield
    finally:
        longest = blocks(browser.stop_tracing())
    assert longest[0] < BLOCKED_MS, longest[:5]
    assert page.evaluate(NODES) < MOST_NODES


def at(number: int) -> str:
    return SAID.replace("%.0f", str(number))


def test_the_first_lines_of_a_long_log_do_not_wait_for_the_rest(page: Any, server: Server, run: int) -> None:
    """They stand there when little of it was looked at, and nothing is read that is not seen."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.route("**/log/index?offset=0&*", lambda route: route.continue_())
    page.route(re.compile(r"/log/index\?offset=[1-9]"), lambda route: None)  # the rest never comes
    page.goto(f"/runs/{run}")
    page.locator(".line .said", has_text=at(1)).first.wait_for()
    [looked] = [re.search(r"limit=(\d+)", url) for url in asked if "/log/index?offset=0" in url]
    read = [re.search(r"limit=(\d+)", url) for url in asked if re.search(r"/log\?offset", url)]
    assert looked
    assert int(looked[1]) + sum(int(each[1]) for each in read if each) < MOST_FIRST_READ


def test_a_log_of_a_hundred_megabytes_is_read_scrolled_searched_and_folded_without_blocking(
    browser: Any, page: Any, server: Server, run: int
) -> None:
    assert int(server.http.head(f"/v1/runs/{run}/log/file").headers["content-length"]) > LEAST_SIZE
    page.goto("/runs")
    with unblocked(browser, page):
        page.goto(f"/runs/{run}")
        page.locator(".line.target", has_text="ERROR: it broke").wait_for()
    with unblocked(browser, page):
        assert page.evaluate(SCROLL) < MOST_NODES
        page.locator(".line .said", has_text="ERROR: it broke").wait_for()
    with unblocked(browser, page):
        page.fill("#seek", f"LINE {MIDDLE} of")
        page.locator(".line.target mark", has_text=f"line {MIDDLE} of").wait_for()
        page.locator("#hits", has_text="1 of 1").wait_for()
        page.fill("#seek", "too long")  # of which each line has one
        page.locator("#hits", has_text="+").wait_for()
        page.get_by_role("button", name="Next line that holds it").click()
        page.locator("#hits", has_text="2 of").wait_for()
    with unblocked(browser, page):
        page.get_by_role("button", name="Fold steps").click()
        page.locator(".line.head", has_text=re.compile("[0-9]+ lines")).first.wait_for()
        page.locator("#lines .line").nth(1).wait_for()
        assert page.locator("#lines .line").count() == len(server.get(f"/v1/runs/{run}/log/index")["heads"]) or (
            page.locator("#lines .line").count() < 10
        )
        page.get_by_role("button", name="Unfold steps").click()
        page.locator(".line .said", has_text=at(1)).first.wait_for()
    page.get_by_label("Go to a step").select_option(index=2)
    page.locator(".line.target.head", has_text="judge").wait_for()


def test_a_line_in_the_middle_of_a_long_log_has_an_address(browser: Any, page: Any, server: Server, run: int) -> None:
    page.goto("/runs")
    with unblocked(browser, page):
        page.goto(f"/runs/{run}#L{MIDDLE + 1}")  # line 1 says that the step begins
        page.locator(".line.target .said", has_text=at(MIDDLE)).wait_for()


def test_lines_say_when_they_were_written_and_the_browser_remembers_that_somebody_wants_to_know(
    browser: Any, page: Any, server: Server, run: int
) -> None:
    page.goto(f"/runs/{run}#L{MIDDLE + 1}")
    page.locator(".line.target .said", has_text=at(MIDDLE)).wait_for()
    assert page.locator(".line .at").count() == 0
    with unblocked(browser, page):
        page.get_by_label("Times").check()
        page.locator(".line.target .at", has_text=re.compile(r"^\d\d:\d\d:\d\d$")).wait_for()
    seen = server.get(f"/v1/runs/{run}")
    said = page.locator(".line.target .at").get_attribute("datetime")
    assert seen["started_at"] <= said <= seen["finished_at"]
    page.reload()
    page.locator(".line.target .at", has_text=re.compile(r"\d")).wait_for()
    page.get_by_label("Times").uncheck()
    page.locator(".line.target .at").wait_for(state="detached")


def test_a_log_is_shown_where_its_times_cannot_be_had_and_the_browser_keeps_nothing(page: Any, run: int) -> None:
    page.add_init_script("Object.defineProperty(window, 'localStorage', { get() { throw new Error('refused'); } })")
    page.route(
        "**/log/times?*", lambda route: route.fulfill(status=422, json={"code": "E_RANGE", "detail": "no times"})
    )
    page.goto(f"/runs/{run}#L{MIDDLE + 1}")
    page.get_by_label("Times").check()
    page.get_by_text("no times").first.wait_for()
    page.locator(".line.target .said", has_text=at(MIDDLE)).wait_for()


def test_a_long_log_is_followed_while_it_grows(browser: Any, page: Any, server: Server, tmp_path: Any) -> None:
    """Ten thousand lines at a time, as long as somebody looks."""
    more = f"for n in $(seq 200); do seq -f 'piece %.0f' 10000; [ -e '{tmp_path}/enough' ] && break; sleep 0.2; done"
    [job] = server.submit({"name": "goes on", "steps": [{"run": f"{more}; echo the last one"}]})
    following = server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]
    page.goto(f"/runs/{following}")
    page.locator(".line", has_text="piece 10000").wait_for()
    with unblocked(browser, page):
        seen = page.evaluate(LAST)
        for _ in range(5):
            server.wait_until(lambda before=seen: page.evaluate(LAST) > before, "more lines")
            seen = page.evaluate(LAST)
        (tmp_path / "enough").touch()
        page.locator(".line", has_text="the last one").wait_for()
    assert page.locator("#follow").is_checked()


def test_lines_that_are_anything_but_text_are_shown_in_bounds(
    browser: Any, page: Any, server: Server, tmp_path: Any
) -> None:
    """What is not seen, a colour for each letter, and a line without an end."""
    script = tmp_path / "say.py"
    script.write_text(
        "for _ in range(100):\n"
        "    print('\\u200b' * 4000)\n"
        "    print(''.join(f'\\x1b[3{n % 8}mx' for n in range(1500)))\n"
        "print('y' * 300_000)\nprint('the end')\n"
    )
    say = f"PYTHONIOENCODING=utf8 {sys.executable} {script}"
    [job] = server.submit({"name": "says odd things", "steps": [{"run": say}]})
    odd = server.post(f"/v1/jobs/{job['id']}/run", status=201)["id"]
    assert server.ended(odd)["state"] == "succeeded"
    page.goto(f"/runs/{odd}")
    page.locator(".line .odd", has_text="U+200B").first.wait_for()
    assert page.evaluate(MOST_IN_LINE) < 400
    page.fill("#seek", "x")
    page.locator(".line mark").first.wait_for()
    assert page.evaluate(MOST_IN_LINE) < 700
    page.fill("#seek", "the end")
    page.locator(".line.target mark", has_text="the end").wait_for()
    page.locator(".line .odd", has_text=re.compile("and 296000 more characters")).wait_for()
