"""Limits under a minute of competition: what tests/contract/test_limits.py does for seconds."""

from __future__ import annotations

from ..contract.test_limits import compete


async def test_twelve_claimers_of_one_key_of_five_never_start_six_for_a_minute(postgres_url: str):
    await compete(postgres_url, seconds=60.0)
