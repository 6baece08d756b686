"""Workflows as people see them: what the API says of one, and the pages of its job and runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from horae.contracts import CONTRACTS
from horae.core.model import Overlap, Reason
from horae.core.runs.orders import NewRun, Order
from horae.discovery import resolve
from horae.web import app as web
from tests.facades.world import OWN, World, from_here

EXAMPLES = Path(__file__).parents[2] / "examples"
FLOW = {
    "name": "<b>flow</b>",
    "tasks": {
        "list": {"handler": "files:list"},
        "convert": {
            "needs": ["list"],
            "for_each": "${list.result}",
            "handler": "files:convert",
            "data": {"f": "${item}"},
        },
        "clean": {"needs": [{"task": "convert", "on": "failure"}], "steps": [{"run": "./clean.sh"}]},
    },
    "returns": "${convert.results}",
}


@pytest.fixture
async def api(world: World) -> AsyncIterator[httpx.AsyncClient]:
    gate = web.create_app(world.services, CONTRACTS, version="1.2.3", free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url="http://127.0.0.1:8080") as client:
        yield client


async def test_what_the_api_shows_of_a_workflow_it_takes_back(api: httpx.AsyncClient):
    made = (await api.post("/v1/jobs", json=FLOW)).json()["jobs"][0]
    assert made["kind"] == "workflow"

    read = (await api.get(f"/v1/jobs/{made['id']}")).json()
    again = await api.put(f"/v1/jobs/{made['id']}", json=read)

    assert again.status_code == 200, again.text
    assert again.json()["version"] == read["version"]


async def test_a_bad_workflow_is_refused_with_code_and_path(api: httpx.AsyncClient):
    bad = {"name": "x", "tasks": {"a": {"needs": ["b"], "job": "k"}, "b": {"needs": ["a"], "job": "k"}}}

    problem = (await api.post("/v1/jobs", json=bad)).json()

    assert (problem["code"], problem["errors"][0]["path"]) == ("E_CYCLE", "tasks.a.needs")
    assert "a -> b -> a" in problem["detail"]


async def test_a_run_shows_how_its_tasks_stand_and_the_pages_draw_them(api: httpx.AsyncClient, world: World):
    job = (await api.post("/v1/jobs", json=FLOW)).json()["jobs"][0]
    [receipt] = await world.store.enqueue([Order(NewRun(job["id"], "workflow", 5, Overlap.ALLOW))])
    parent = receipt.ids[0]
    tasks = [
        Order(NewRun(job["id"], "python", 5, Overlap.ALLOW, parent_id=parent, task=f"convert[{number}]"))
        for number in range(3)
    ]
    made = [one.ids[0] for one in await world.store.enqueue(tasks)]
    await world.store.cancel(made[:1], Reason.REQUESTED)

    run = (await api.get(f"/v1/runs/{parent}")).json()
    assert run["tasks"] == [
        {"name": "list", "needs": [], "runs": {}, "kind": "python"},
        {
            "name": "convert",
            "needs": ["list"],
            "runs": {"queued": 2, "cancelled": 1},
            "kind": "python",
            "for_each": True,
        },
        {"name": "clean", "needs": [{"task": "convert", "on": "failure"}], "runs": {}, "kind": "shell"},
    ]
    assert "tasks" not in (await api.get(f"/v1/runs/{made[0]}")).json()
    page = await api.get(f"/runs/{parent}")
    assert "convert ×3" in page.text
    assert "2○ 1■" in page.text
    assert "style=" not in page.text
    of_job = await api.get(f"/jobs/{job['id']}")
    assert of_job.status_code == 200
    assert "convert ×n" in of_job.text
    assert "<b>flow" not in of_job.text
    assert f"/runs/{parent}" in of_job.text


def handlers_in(work: Any) -> list[str]:
    inner = [name for task in work.get("tasks", {}).values() for name in handlers_in(task)]
    return [*inner, *([work["handler"]] if "handler" in work else [])]


@pytest.mark.parametrize("path", sorted((EXAMPLES / "workflows").glob("*.yaml")), ids=lambda path: path.stem)
async def test_an_example_can_be_submitted_twice_and_its_handlers_are_there(path: Path, api: httpx.AsyncClient):
    headers = {"content-type": "application/yaml"}

    first = await api.post("/v1/jobs", content=path.read_bytes(), headers=headers)
    again = await api.post("/v1/jobs", content=path.read_bytes(), headers=headers)

    assert (first.status_code, again.status_code) == (201, 201), first.text
    assert [job["id"] for job in first.json()["jobs"]] == [job["id"] for job in again.json()["jobs"]]
    document = yaml.safe_load(path.read_text())
    for job in document.get("jobs", [document]):
        assert all(resolve(name, EXAMPLES / "jobs") for name in handlers_in(job))
