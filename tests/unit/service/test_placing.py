"""Where new runs wait, when the store is away while that is decided."""

from __future__ import annotations

import pytest

from horae.errors import Unavailable
from horae.service.firing import Firing
from horae.service.jobs import Jobs
from horae.testing import FakeClock

from .parts import Probe, fire_due, ledger, set_clock, submitted, words


async def test_a_run_keeps_its_limit_although_the_store_was_away_when_it_was_looked_up(
    jobs: Jobs, firing: Firing, probe: Probe, clock: FakeClock
):
    job = await submitted(jobs, schedule="1m", overlap="allow", concurrency_limits=[{"limit": 1}])
    set_clock(clock, job.triggers[0].next_at or 0)
    probe.lose_call("demand_ids")
    with pytest.raises(Unavailable):
        await fire_due(firing)

    await fire_due(firing)

    assert [word[1:] for word in words(await ledger(probe, job.id))] == [("blocked", "limit")]
