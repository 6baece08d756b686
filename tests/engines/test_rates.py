"""A rate through five minutes of kills: what tests/acceptance/test_rate_under_kills.py does for half a minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..acceptance.test_rate_under_kills import Pace, keep_rate


@pytest.mark.timeout(1200)
def test_a_hundred_a_minute_over_ten_agents_through_five_minutes_of_kills(tmp_path: Path) -> None:
    keep_rate(tmp_path, Pace(rate=100, burst=10, agents=10, step=25, kills=20))
