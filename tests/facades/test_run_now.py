"""Running a job with data from its page: a form made from what the handler takes, which works without a script."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.core.model import Job
from horae.core.roles import Role
from horae.core.work.specs import parse_job
from horae.web import app as web
from tests.facades.world import BOTH, HERE, OWN, World, from_here

PAGE = {"accept": "text/html"}
SCHEMA = {
    "type": "object", "required": ["count"], "additionalProperties": False,
    "properties": {
        "count": {"type": "integer", "minimum": 1, "description": "<b>How</b> many"}, "name": {"type": "string"},
        "sizes": {"type": "array", "items": {"type": "integer"}}, "until": {"type": "string", "format": "date-time"},
    },
}  # fmt: skip


@pytest.fixture
async def api(world: World) -> AsyncIterator[httpx.AsyncClient]:
    gate = web.create_app(world.services, CONTRACTS, version="1.2.3", free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE) as client:
        yield client


async def python_job(world: World, **fields: Any) -> Job:
    world.handlers.schemas["jobs/report"] = SCHEMA
    document = {"name": "report", "handler": "jobs/report", **fields}
    return (await world.jobs.submit([parse_job(document)], owner="ann")).jobs[0]


def once_of(page: str) -> str:
    found = re.search(r'name="once" value="([^"]+)"', page)
    assert found is not None
    return found[1]


async def test_what_data_a_job_takes_is_told(api: httpx.AsyncClient, world: World) -> None:
    job = await python_job(world, data={"count": 2})
    path = f"/v1/jobs/{job.id}/data-schema"
    assert (await api.get(path)).json() == {"schema": SCHEMA, "data": {"count": 2}, "result": None}
    world.handlers.results[job.spec["handler"]] = {"type": "object"}
    assert (await api.get(path)).json()["result"] == {"type": "object"}
    shell = await world.submit()
    nothing = {"schema": None, "data": {}, "result": None}
    assert (await api.get(f"/v1/jobs/{shell.id}/data-schema")).json() == nothing
    assert (await api.get("/v1/jobs/99/data-schema")).status_code == 404


@BOTH
async def test_a_form_makes_one_run_with_its_data_however_often_it_is_sent(
    api: httpx.AsyncClient, world: World
) -> None:
    job = await python_job(world, data={"count": 2, "name": "mine"})
    page = (await api.get(f"/jobs/{job.id}/run")).text
    assert re.search(r'name="data.count" required type="number" step="1" min="1" value="2"', page)
    assert "&lt;b&gt;How&lt;/b&gt; many" in page
    form = {"once": once_of(page), "data.count": "3", "data.name": "mine", "data.sizes": "[4]", "data.until": ""}
    answers = [await api.post(f"/jobs/{job.id}/run", data=form) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [303, 303]
    assert len({answer.headers["location"] for answer in answers}) == 1
    run = (await api.get(f"/v1{answers[0].headers['location']}")).json()
    assert run["data"] == {"count": 3, "name": "mine", "sizes": [4]}
    again = {**form, "once": once_of((await api.get(f"/jobs/{job.id}/run")).text)}
    assert (await api.post(f"/jobs/{job.id}/run", data=again)).headers["location"] != answers[0].headers["location"]


async def test_what_is_wrong_stands_beside_its_field_and_what_was_written_stays(
    api: httpx.AsyncClient, world: World
) -> None:
    job = await python_job(world)
    form = {"data.count": "0", "data.sizes": '[1, "<b>"]', "data.name": "kept", "once": "x"}
    refused = await api.post(f"/jobs/{job.id}/run", data=form, headers=PAGE)
    assert refused.status_code == 422
    said = re.findall(r'<ul class="verdict bad" id="wrong-\d"><li><code>([^<]+)</code> (.*?) <code>', refused.text)
    assert [path for path, _ in said] == ["data.count", "data.sizes[1]"]
    assert refused.text.count('aria-invalid="true"') == 2
    assert 'value="kept"' in refused.text
    assert "<b>" not in refused.text.partition('id="run-form"')[2].replace('<b class="must"', "")
    assert (await api.get("/v1/runs")).json()["items"] == []
    problem = await api.post(f"/jobs/{job.id}/run", data=form)
    assert (problem.json()["code"], problem.json()["errors"][0]["path"]) == ("E_DATA", "data.count")
    audited = (await api.get("/v1/audit")).json()["items"]
    assert [row["operation"] for row in audited if row["outcome"] == "done"] == []


async def test_a_moment_is_written_by_the_clock_of_the_viewer(api: httpx.AsyncClient, world: World) -> None:
    job = await python_job(world, data={"count": 1, "until": "2026-07-01T10:00:00Z"})
    look = {"cookie": "horae-look=auto.roomy.Asia/Tokyo"}
    page = (await api.get(f"/jobs/{job.id}/run", headers=look)).text
    assert re.search(r'name="data.until" type="datetime-local" step="1" value="2026-07-01T19:00:00"', page)
    form = {"data.count": "1", "data.until": "2026-07-02T08:00"}
    made = await api.post(f"/jobs/{job.id}/run", data=form, headers=look)
    run = (await api.get(f"/v1{made.headers['location']}")).json()
    assert run["data"]["until"] == "2026-07-02T08:00:00+09:00"


async def test_a_job_that_says_nothing_of_its_data_takes_any_as_json(api: httpx.AsyncClient, world: World) -> None:
    job = await world.submit()
    refused = await api.post(f"/jobs/{job.id}/run", data={"data": "[1]"}, headers=PAGE)
    assert (refused.status_code, "an object expected" in refused.text) == (422, True)
    made = await api.post(f"/jobs/{job.id}/run", data={"data": '{"full": true}'})
    assert (await api.get(f"/v1{made.headers['location']}")).json()["data"] == {"full": True}


@pytest.mark.parametrize("body", [b"\xff", b"&".join(b"a%d=1" % n for n in range(1001)), b"data=%FF"])
async def test_what_is_no_form_is_refused(api: httpx.AsyncClient, world: World, body: bytes) -> None:
    job = await world.submit()
    refused = await api.post(f"/jobs/{job.id}/run", content=body)
    assert (refused.status_code, refused.json()["code"]) == (400, "E_SYNTAX")


async def test_a_viewer_is_neither_shown_the_form_nor_heard(world: World) -> None:
    job = await python_job(world)
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    _, text = await world.services.access.create("viewer", "user", "ann", None, role=Role.VIEWER)
    headers = {"authorization": f"Bearer {text}"}
    async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE, headers=headers) as viewer:
        shown, sent = await viewer.get(f"/jobs/{job.id}/run"), await viewer.post(f"/jobs/{job.id}/run", data={})
        schema = await viewer.get(f"/v1/jobs/{job.id}/data-schema")
    assert [shown.status_code, sent.status_code, schema.status_code] == [403, 403, 200]
