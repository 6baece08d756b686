"""Workflows as people see them: what the API says of one, and the pages of its job and runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from horae.contracts import CONTRACTS
from horae.core.model import Overlap, Reason
from horae.core.runs.flows import Begin, Move
from horae.core.runs.orders import NewRun, Order
from horae.core.work import specs
from horae.discovery import resolve
from horae.service.workflows.waits import PlainWaits
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
    assert f'<a href="/runs?parent={parent}&amp;task=convert" aria-label="convert ×3' in page.text
    assert 'role="group" aria-label="The tasks of the workflow; the table has the same"' in page.text
    assert "convert (failure)" in page.text, "the table says what each task needs"
    listed = (await api.get(f"/runs?parent={parent}&task=convert")).text
    assert [f'data-run="{one}"' in listed for one in [parent, *made]] == [False, True, True, True]
    assert 'data-run="' not in (await api.get(f"/runs?parent={parent}&task=conv")).text
    assert "2○ 1■" in page.text
    assert "style=" not in page.text
    of_job = await api.get(f"/jobs/{job['id']}")
    assert of_job.status_code == 200
    assert "convert ×n" in of_job.text
    assert "<b>flow" not in of_job.text
    assert f"/runs/{parent}" in of_job.text


async def test_a_box_of_the_picture_leads_to_the_run_of_its_task(api: httpx.AsyncClient, world: World):
    job = (await api.post("/v1/jobs", json=FLOW)).json()["jobs"][0]
    [receipt] = await world.store.enqueue([Order(NewRun(job["id"], "workflow", 5, Overlap.ALLOW))])
    task = NewRun(job["id"], "python", 5, Overlap.ALLOW, parent_id=receipt.ids[0], task="list")
    [made] = (await world.store.enqueue([Order(task)]))[0].ids

    page = (await api.get(f"/runs/{receipt.ids[0]}")).text

    assert f'<a href="/runs/{made}" aria-label="list: python, queued">' in page
    assert f'<a href="/runs/{made}">#{made}</a>' in page, "and from the table behind it"
    assert page.count('<g class="task waiting') == 2
    assert 'aria-label="clean' not in page, "what has no run leads nowhere"


async def test_what_a_retry_took_over_leads_to_the_run_that_did_it(api: httpx.AsyncClient, world: World):
    job = (await api.post("/v1/jobs", json=FLOW)).json()["jobs"][0]
    [receipt] = await world.store.enqueue([Order(NewRun(job["id"], "workflow", 5, Overlap.ALLOW))])
    parent = receipt.ids[0]
    [claimed] = await world.claim("workflow")
    begin = Begin(claimed.fence, job["id"], json.dumps(job["spec"]), json.dumps({"list": 4711}))
    await world.store.move_flows([Move(parent, begin=begin)])

    assert '<a href="/runs/4711" aria-label="list: python, succeeded">' in (await api.get(f"/runs/{parent}")).text


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


ASK = {"name": "ask", "wait": {"approval": {"by": ["ann", "bob"], "message": "publish <b>it</b>?"}, "within": "2d"}}


async def ask(world: World, job_id: int, **fields: Any) -> int:
    """A run of a job that waits for an approval."""
    [receipt] = await world.store.enqueue([Order(NewRun(job_id, "wait", 5, Overlap.ALLOW, **fields))])
    claimed = await world.claim("wait")
    await world.execution.finish(await PlainWaits(world.store).begin(claimed))
    return receipt.ids[0]


async def test_a_run_that_waits_for_an_approval_shows_the_question_and_buttons(api: httpx.AsyncClient, world: World):
    job = (await api.post("/v1/jobs", json=ASK)).json()["jobs"][0]
    run_id = await ask(world, job["id"])

    page = await api.get(f"/runs/{run_id}")

    assert f'data-question="{run_id}"' in page.text
    assert "publish &lt;b&gt;it&lt;/b&gt;?" in page.text
    assert "ann, bob may decide, until" in page.text
    assert "then it fails" in page.text
    assert 'data-verb="approve"' in page.text
    assert 'data-verb="reject"' in page.text
    assert "waits for an approval since" in page.text
    assert "approval:decision" not in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "<script>" not in page.text


async def test_the_page_of_the_workflow_shows_which_task_waits_for_an_approval(api: httpx.AsyncClient, world: World):
    asked = (await api.post("/v1/jobs", json=ASK)).json()["jobs"][0]
    flow = {"name": "flow", "tasks": {"sure": {"job": asked["id"]}, "go": {"needs": ["sure"], "handler": "a:b"}}}
    job = (await api.post("/v1/jobs", json=flow)).json()["jobs"][0]
    [receipt] = await world.store.enqueue([Order(NewRun(job["id"], "workflow", 5, Overlap.ALLOW))])
    parent = receipt.ids[0]
    [claimed] = await world.claim("workflow")
    begin = Begin(claimed.fence, job["id"], json.dumps(job["spec"]))
    await world.store.move_flows([Move(parent, begin=begin)])
    task = await ask(world, asked["id"], parent_id=parent, task="sure")

    page = await api.get(f"/runs/{parent}")

    assert f'data-question="{task}"' in page.text
    assert '<span class="name">sure</span>' in page.text
    assert f'<a href="/runs/{task}">' in page.text
    assert page.text.count("waits for an approval") == 2, "in the picture, and above it"

    decided = await api.post(
        f"/v1/runs/{task}/approve", json={"comment": "yes"}, headers={"origin": "http://127.0.0.1:8080"}
    )
    assert decided.status_code == 202, decided.text
    assert "data-question" not in (await api.get(f"/runs/{parent}")).text


async def test_no_other_site_presses_the_buttons(api: httpx.AsyncClient, world: World):
    job = (await api.post("/v1/jobs", json=ASK)).json()["jobs"][0]
    run_id = await ask(world, job["id"])
    for headers in ({"origin": "http://evil.example"}, {"origin": "null", "content-type": "text/plain"}):
        refused = await api.post(f"/v1/runs/{run_id}/approve", content=b"{}", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "E_ORIGIN")
    assert "data-question" in (await api.get(f"/runs/{run_id}")).text


async def test_who_may_not_decide_sees_the_question_and_no_buttons(world: World):
    job = (await world.jobs.submit([specs.parse_job(ASK)])).jobs[0]
    run_id = await ask(world, job.id)
    gate = web.create_app(world.services, CONTRACTS, version="1.2.3", free_pass=())
    shown = {}
    for owner in ("ann", "eve"):
        token = (await world.services.access.create(owner, "user", owner, None))[1]
        async with httpx.AsyncClient(
            transport=from_here(gate), base_url="http://127.0.0.1:8080", headers={"authorization": f"Bearer {token}"}
        ) as client:
            shown[owner] = (await client.get(f"/runs/{run_id}")).text
    assert 'data-verb="approve"' in shown["ann"]
    assert "ann, bob may decide" in shown["eve"]
    assert "data-verb" not in shown["eve"]
