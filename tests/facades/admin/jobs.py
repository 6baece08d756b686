"""Jobs for these tests, as an administrator would have declared them."""

from __future__ import annotations

from typing import Any

from horae.contracts.admin.guids import Kind, guid, number_of
from horae.core.model import Job
from horae.core.work.specs import parse_job
from tests.facades.world import World


async def make(world: World, name: str = "DownloadRdmCodebooks", *, org: int = 1, **fields: Any) -> Job:
    work = {} if "steps" in fields else {"handler": f"jobs/{name}"}
    made = await world.jobs.submit([parse_job({"name": name, **work, **fields})], org=org)
    return made.jobs[0]


async def statuses(world: World, **fields: Any) -> list[dict[str, Any]]:
    answer = await world.http.post("/api/v1/job-statuses", json={"PageSize": 100, "Page": 1, **fields})
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["Items"]
    return items


def job_guid(job: Job) -> str:
    return guid(Kind.JOB, job.id)


def run_id(status_id: str) -> int:
    return number_of(Kind.RUN, status_id)
