"""Tests that share a server are one group, and a group goes to one worker: else every worker would start the server.

That is lost without a word where pytest and pytest-xdist do not fit each other.
"""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("a group")
def test_a_group_goes_to_one_worker(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("loadgroup", False):
        pytest.skip("there are no groups without `--dist loadgroup`")
    assert request.node.nodeid.endswith("@a group")
