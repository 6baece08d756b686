"""The map of the cluster while a node is drained, taken back, evicted and let in again; two servers on one PostgreSQL,
in a real browser."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.acceptance.server import Server
from tests.conftest import with_database
from tests.engines.dashboard.conftest import tab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard-cluster")]

TIMERS = ("--heartbeat-interval", "0.5s", "--lease", "4s")


def elsewhere(work: Coroutine[Any, Any, None]) -> None:
    """The browser has the loop of this thread."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


async def execute(server: str, statement: str) -> None:
    connection = await asyncpg.connect(server)
    await connection.execute(statement)
    await connection.close()


@pytest.fixture
def database(postgres_server: str, postgres_template: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    elsewhere(execute(postgres_server, f"CREATE DATABASE {name} TEMPLATE {postgres_template} STRATEGY file_copy"))
    yield with_database(postgres_server, name)
    elsewhere(execute(postgres_server, f"DROP DATABASE {name} WITH (FORCE)"))


def owned(page: Any, name: str) -> int:
    return int(page.locator(f'#segments [data-owner="{name}"]').count())


def press(page: Any, name: str, verb: str) -> None:
    page.locator(f"#node-{name}").get_by_role("button", name=verb, exact=True).click()


def agree(page: Any, verb: str) -> None:
    page.locator("dialog.sure").get_by_role("button", name=verb, exact=True).click()


def test_segments_of_a_node_that_is_drained_move_on_the_open_map(browser: Any, database: str, tmp_path: Path) -> None:
    nodes = [Server(tmp_path / name, "--database", database, "--node", name, *TIMERS) for name in ("n0", "n1")]
    try:
        for node in nodes:
            node.directory.mkdir()
            node.start()
        here = nodes[0]
        here.wait_until(lambda: {it["owner"] for it in here.get("/v1/segments")["items"]} == {"n0", "n1"}, "a share")
        with tab(browser, here) as page:
            page.goto("/cluster")
            colour = page.locator('#segments [data-owner="n0"]').first.get_attribute("class")
            here.wait_until(lambda: owned(page, "n0") + owned(page, "n1") == 100 and owned(page, "n1"), "the map")
            [job] = here.submit({"name": "often", "schedule": "* * * * *", "steps": [{"run": "true"}], "segment": 42})
            page.locator("#segments [data-segment='42'] .full").wait_for()  # it is the only one that has a load
            assert page.locator("#segments .full").count() == 1
            assert here.get(f"/v1/jobs/{job['id']}")["segment"] == 42
            press(page, "n1", "Drain")
            agree(page, "Drain")
            here.wait_until(lambda: owned(page, "n1") == 0, "its segments to move on the map")
            page.locator("#segments .moved").first.wait_for()
            page.locator("#moved", has_text="moved in the last minute").wait_for()
            kept = page.locator('#segments [data-owner="n0"]').first.get_attribute("class")
            assert kept.split()[:2] == colour.split()[:2] == ["cell", colour.split()[1]]
            press(page, "n1", "Uncordon")
            here.wait_until(lambda: owned(page, "n1") > 0, "its segments to come back")
            press(page, "n1", "Evict")
            agree(page, "Evict")
            page.locator("#node-n1 .state.gone").wait_for()
            here.wait_until(lambda: owned(page, "n0") == 100, "all segments to be with the other")
            nodes[1].kill()
            press(page, "n1", "Let it back in")
            page.locator("#node-n1").get_by_role("button", name="Let it back in").wait_for(state="detached")
            nodes[1].start()
            here.wait_until(lambda: owned(page, "n1") > 0, "it to have a share again")
    finally:
        for node in nodes:
            node.kill()
