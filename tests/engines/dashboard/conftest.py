"""A real server and a real browser, for tests that look at pages. A server belongs to one file of tests."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.acceptance.server import DEADLINE, Server
from tests.engines.conftest import need_packages

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


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


def _is_complaint(message: Any) -> bool:
    """Browsers also tell of a request that was refused, which the page tells better."""
    return message.type in ("error", "warning") and not re.search("status of 4(04|22)", message.text)


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    with tab(browser, server, timezone_id="Europe/Berlin") as found:
        yield found
