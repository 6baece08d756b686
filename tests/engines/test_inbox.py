"""As tests/acceptance/test_inbox.py, for longer: hundreds of producers killed around their commits, on a server that
is killed while it drains."""

from __future__ import annotations

import pytest

from tests.acceptance.server import Server
from tests.acceptance.test_inbox import kill_around_commit, server

pytestmark = pytest.mark.slow
__all__ = ["server"]  # the fixture


def test_work_exists_exactly_if_the_callers_row_does_after_hundreds_of_kills(server: Server, postgres_url: str):
    assert kill_around_commit(server, postgres_url, kills=300, crashes=8, seed=7) >= 300
