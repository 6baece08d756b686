"""The timers of a cluster: taken from those who live, brought by who is alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from horae.errors import ConfigError
from horae.service.cluster.timers import SILENT_LEASES, Timers, agree, confirm
from horae.testing import FakeClock

from .parts import BOTH, Probe, node

OURS = Timers(5.0, 15.0, 60.0, "shared")
OTHERS = Timers(1.0, 3.0, 60.0, "active-passive")


@BOTH
async def test_the_first_node_sets_the_timers_and_the_next_takes_them(probe: Probe, clock: FakeClock):
    assert await agree(probe, "n1", OURS) == OURS
    await probe.register_node(replace(node("n1"), heartbeat_at=await probe.now()))
    await probe.beat("n1", 0)

    assert await agree(probe, "n2", OTHERS) == OURS
    assert await agree(probe, "n2", OURS) == OURS


@BOTH
async def test_who_is_alone_brings_its_own(probe: Probe, clock: FakeClock):
    await agree(probe, "n1", OURS)
    await probe.register_node(node("n1"))
    await probe.beat("n1", 0)
    await probe.retire_node("n1", "gone")

    assert await agree(probe, "n1", OTHERS) == OTHERS
    await confirm(probe, OTHERS)


async def test_who_was_silent_for_long_binds_nobody(probe: Probe, clock: FakeClock):
    await agree(probe, "n1", OURS)
    await probe.register_node(node("n1"))
    await probe.beat("n1", 0)
    clock.advance(SILENT_LEASES * OURS.lease + 1)

    assert await agree(probe, "n2", OTHERS) == OTHERS


async def test_of_two_that_start_at_once_one_does_not_go_on(probe: Probe, clock: FakeClock):
    await agree(probe, "n0", OURS)
    clock.advance(3600)
    first = Timers(2.0, 6.0, 60.0, "shared")
    assert await agree(probe, "n1", first) == first
    assert await agree(probe, "n2", OTHERS) == OTHERS

    with pytest.raises(ConfigError, match=r"heartbeat_interval 1\.0 instead of 2\.0") as refused:
        await confirm(probe, first)

    assert refused.value.code == "E_TIMERS"
    await confirm(probe, OTHERS)


async def test_one_that_was_overtaken_looks_again(probe: Probe, clock: FakeClock):
    await agree(probe, "n0", OURS)
    clock.advance(3600)

    async def overtake(*_: object, **__: object) -> None:
        await agree(probe, "n2", OTHERS)
        await probe.register_node(node("n2"))
        await probe.beat("n2", 0)

    probe.before("replace_setting", overtake)

    assert await agree(probe, "n1", Timers(2.0, 6.0, 60.0, "shared")) == OTHERS
