"""The pytest plugin: fixtures `horae` (a world on a virtual clock) and `horae_server` (a real server).

Loaded by every pytest of an environment that has Horae: nothing else is imported before a test asks for a fixture.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from horae.testing.servers import Server
    from horae.testing.worlds import AsyncWorld, World


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "horae(start, jobs_directory, perform): what the world of a test is like")


@pytest.fixture
def horae(request: pytest.FixtureRequest) -> Iterator[World | AsyncWorld]:
    """A whole Horae on a virtual clock, in this process. In a test that is a coroutine, its calls are awaited.
    `@pytest.mark.horae(start=...)` says what it is like."""
    from horae.testing.worlds import AsyncWorld, world

    mark = request.node.get_closest_marker("horae")
    made = world(**(mark.kwargs if mark is not None else {})).open()
    try:
        yield AsyncWorld(made) if inspect.iscoroutinefunction(request.function) else made
    finally:
        made.close()


@pytest.fixture
def horae_server(tmp_path: Path) -> Iterator[Server]:
    """A real `horae up` on free ports, with its data in tmp_path; stopped when the test ends."""
    from horae.testing.servers import Server

    server = Server(tmp_path / "horae")
    server.start()
    try:
        yield server
    finally:
        server.stop()
