"""The pages for those who come from other schedulers: whatever they show of Horae runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.server import Server
from tests.test_docs import blocks

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("coming-from")]  # one server for all

PAGES = sorted((Path(__file__).parents[2] / "docs" / "howto").glob("from-*.md"))


def jobs_in(text: str) -> list[Any]:
    documents = [yaml.safe_load(block) for block in blocks(text, "yaml")]
    return [job for document in documents for job in document.get("jobs", [document])]


def write_code(text: str, directory: Path) -> None:
    """Its first line says where a block of code belongs."""
    for block in blocks(text, "python"):
        path = directory / block.splitlines()[0].removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("coming-from")
    for page in PAGES:
        write_code(page.read_text(), directory)
    running = Server(directory, "--jobs-directory", str(directory / "jobs")).start()
    yield running
    running.stop()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_for_newcomers_shows_runs(page: Path, server: Server) -> None:
    jobs = server.submit(*jobs_in(page.read_text()))
    assert jobs
    for job in jobs:
        run = server.post(f"/v1/jobs/{job['id']}/run", status=201)
        assert server.ended(run["id"])["state"] == "succeeded", job["name"]


def test_there_is_a_page_for_each_of_five() -> None:
    assert [page.stem for page in PAGES] == [
        "from-airflow",
        "from-apscheduler",
        "from-celery",
        "from-cron",
        "from-quartz",
    ]
