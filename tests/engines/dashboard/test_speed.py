"""What the overview costs a browser while very much happens: processor time of its main thread, and memory.

Times are those of the thread, by the processor: a machine that has more to do than it can does not make them longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.server import Server
from tests.engines.dashboard.conftest import blocks, tab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser-speed")]

RATE, PERIOD = 1_000, 10  # runs that are due in a second; seconds in which each trigger fires once
AT_ONCE = 1_000  # jobs of one submit
WARM = 3_000  # runs that have ended before it is measured
LOOKS = 20
BLOCKED_MS = 50.0
LOOKED = 240  # times: as a tab does in ten minutes
WITHIN = 1.1  # what memory may have grown by

# Reads the page again and again; each time all of its parts have changed.
LOOK_ON = """async (times) => {
  const own = document.querySelector('script[src$="/overview.js"]').src;
  const { refresh } = await import(own.replace("overview.js", "fresh.js"));
  const read = window.fetch;
  let number = 0;
  window.fetch = async (...asked) => {
    const answer = await read(...asked);
    const changed = (await answer.text()).replaceAll("</section>", `<i hidden>${times}.${number}</i></section>`);
    return new Response(changed, { headers: answer.headers });
  };
  for (; number < times; number++) await refresh(true);
  window.fetch = read;
  return document.querySelectorAll("main [data-fresh] i[hidden]").length;
}"""


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on which a thousand runs a second are due."""
    server = Server(tmp_path_factory.mktemp("busy")).start()
    schedule = {"every": f"{PERIOD}s", "jitter": f"{PERIOD - 1}s"}
    try:
        for start in range(0, RATE * PERIOD, AT_ONCE):
            jobs = [
                {"name": f"busy {start + number}", "handler": "horae.handlers:noop", "triggers": [schedule]}
                for number in range(AT_ONCE)
            ]
            server.submit(*jobs)
        server.wait_until(lambda: newest(server) >= WARM, f"{WARM} runs to end")
        yield server
    finally:
        server.stop()


@pytest.fixture
def page(browser: Any, busy: Server) -> Iterator[Any]:
    with tab(browser, busy, viewport={"width": 1280, "height": 900}) as made:
        made.goto("/")
        yield made


def newest(server: Server) -> int:
    """The number of the newest run that has ended: they are numbered as they are made."""
    ended = server.get("/v1/runs", state="succeeded", limit=1)["items"]
    return int(ended[0]["id"]) if ended else 0


def test_the_overview_does_not_block_its_main_thread_while_a_thousand_runs_a_second_end(
    page: Any, busy: Server, browser: Any
):
    def look() -> None:  # it does so by itself
        with page.expect_response(lambda answer: answer.url == f"{busy.url}/"):
            pass

    look()
    first = newest(busy)
    browser.start_tracing(page=page, categories=["toplevel"])
    for _ in range(LOOKS):
        look()
    longest = blocks(browser.stop_tracing())[:LOOKS]
    ended = newest(busy) - first
    assert len(longest) == LOOKS
    assert ended > LOOKS, "nothing happens there"
    assert longest[LOOKS // 20] < BLOCKED_MS, (longest, ended)


def test_the_memory_of_a_tab_is_flat_however_often_it_looks(browser: Any, server: Server):
    server.submit(*({"name": f"job {number}", "steps": [{"run": "true"}], "schedule": "1h"} for number in range(20)))
    with tab(browser, server) as page:
        page.goto("/")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")

        def kept() -> dict[str, float]:
            assert page.evaluate(LOOK_ON, LOOKED) > 3  # parts have been replaced
            session.send("HeapProfiler.collectGarbage")
            found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
            return {name: found[name] for name in ("JSHeapUsedSize", "Nodes", "JSEventListeners")}

        kept()  # by then its scripts are compiled as they stay
        before, after = kept(), kept()
    assert {name: value for name, value in after.items() if value > before[name] * WITHIN} == {}, (before, after)
