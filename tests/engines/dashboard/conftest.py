"""A real server and a real browser, for tests that look at pages. A server belongs to one file of tests."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.server import DEADLINE, Server
from tests.engines.conftest import miss, need_packages

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]
TASK = "ThreadControllerImpl::RunTask"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("pages")).start()
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def browser(need: Callable[..., None]) -> Iterator[Any]:
    need("chromium")
    need_packages("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def axe(need: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, where npm can install it."""
    need("npm")
    where = tmp_path_factory.mktemp("axe")
    done = subprocess.run(["npm", "install", "--no-audit", AXE], cwd=where, capture_output=True, text=True)
    if done.returncode:
        miss(f"axe-core cannot be had: {done.stderr[-300:]}")
    return Path(where, "node_modules/axe-core/axe.min.js").read_text()


AXE = "axe-core@4.14.1"  # a newer one may find more
# Colours that are on their way to others are read by nobody. Of what is not laid out, because nobody sees it, they stay
# on their way.
AT_REST = """() => Promise.all(document.getAnimations()
  .filter((each) => Number.isFinite(each.effect.getComputedTiming().endTime))
  .filter((each) => each.effect.target.checkVisibility({ contentVisibilityAuto: true }))
  .map((each) => each.finished))"""


def judge(page: Any, axe: str) -> list[tuple[str, str]]:
    """What axe-core finds wrong in a page as it stands: the rules, each with an element that breaks it."""
    page.evaluate(AT_REST)
    judged = page.evaluate(f"{axe}; axe.run({{runOnly: {json.dumps(RULES)}}})")
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in judged["violations"]]


@contextmanager
def tab(browser: Any, server: Server, **options: Any) -> Iterator[Any]:
    """A tab of a browser of its own, whose console must stay silent."""
    context = browser.new_context(base_url=server.url, **options)
    context.set_default_timeout(DEADLINE * 1000)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text) if _is_complaint(message) else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        yield page
        assert said == []
    finally:
        context.close()


def blocks(trace: bytes) -> list[float]:
    """Processor time of each task of the main thread, in ms, the longest first."""
    events = json.loads(trace)["traceEvents"]
    names = {(it["pid"], it["tid"]): it["args"]["name"] for it in events if it["name"] == "thread_name"}
    tasks = [it for it in events if it["name"] == TASK and names.get((it["pid"], it["tid"])) == "CrRendererMain"]
    return sorted((it["tdur"] / 1000 for it in tasks if "tdur" in it), reverse=True)


def _is_complaint(message: Any) -> bool:
    """Browsers also tell of a request that was refused, which the page tells better."""
    return message.type in ("error", "warning") and not re.search("status of 4(00|04|22)", message.text)


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    with tab(browser, server, timezone_id="Europe/Berlin") as found:
        yield found
