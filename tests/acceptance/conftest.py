from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .server import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Horae on its embedded default, with quick heartbeats."""
    running = Server(tmp_path, "--heartbeat-interval", "1")
    running.start()
    yield running
    running.stop()
