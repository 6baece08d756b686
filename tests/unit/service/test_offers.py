"""What no live agent could ever run says so: at submit, and for as long as it waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from horae.core.model import Job, NodeState, Policy, Reason, State
from horae.service.jobs import Jobs

from .parts import Probe, draft, node


async def made(jobs: Jobs, **policy: Any) -> Job:
    (job,) = (await jobs.submit([replace(draft(), policy=Policy(**policy))])).jobs
    return job


@pytest.fixture(autouse=True)
async def agents(probe: Probe) -> None:
    await probe.register_node(replace(node("n1"), resources={"gpu": 1, "cpus": 4000}, capacity={"python": 50}))
    await probe.register_node(replace(node("gone"), resources={"gpu": 8}))
    await probe.retire_node("gone", NodeState.GONE)


@pytest.mark.parametrize(
    ("asks", "says"),
    [
        ((("gpu", 2),), ["asks for gpu: 2; no live agent offers more than 1: until one does, its runs wait"]),
        ((("tape", 1),), ["asks for tape: 1; no live agent offers any: until one does, its runs wait"]),
        ((("slots", 51),), ["asks for slots: 51; no live agent offers more than 50: until one does, its runs wait"]),
        ((("gpu", 1), ("slots", 50)), []),
        ((), []),
    ],
)
async def test_who_submits_is_told_what_no_live_agent_offers(jobs: Jobs, asks: Any, says: list[str]) -> None:
    job = await made(jobs, resources=asks)
    assert await jobs.offers.warn([job, job]) == says


async def test_a_job_without_resources_costs_no_look_at_the_nodes(jobs: Jobs, probe: Probe) -> None:
    job = await made(jobs, resources=(("slots", 1),))
    seen = probe.calls["list_nodes"]
    assert await jobs.offers.warn([job]) == []
    assert probe.calls["list_nodes"] == seen


async def test_where_the_label_is_missing_that_is_what_is_told(jobs: Jobs) -> None:
    assert await jobs.offers.warn([await made(jobs, resources=(("gpu", 2),), labels=("moon",))]) == []


async def test_a_run_that_waits_for_what_nobody_offers_says_so_until_somebody_does(jobs: Jobs, probe: Probe) -> None:
    job = await made(jobs, resources=(("gpu", 2),))
    run = replace(await jobs.run_now(job.id), state=State.BLOCKED, reason=Reason.LIMIT)

    assert (await jobs.offers.explain(run)).message == "asks for gpu: 2; no live agent offers more than 1"

    await probe.register_node(replace(node("n2"), resources={"gpu": 2}))
    assert (await jobs.offers.explain(run)).message == ""
