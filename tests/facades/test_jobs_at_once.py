"""Many jobs in one request: paused, resumed and tagged, named or found, with one answer for each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from horae.core.audit import AuditFilter
from horae.core.model import Reason
from horae.core.roles import Role
from horae.core.work import specs
from horae.service.jobs import many
from horae.web import app as web

from .test_native import JOB
from .world import BOTH, HERE, OWN, World, from_here


@pytest.fixture
async def api(world: World) -> AsyncIterator[httpx.AsyncClient]:
    gate = web.create_app(world.services, (), version="1.2.3", free_pass=OWN)
    async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE) as client:
        yield client


async def make(api: httpx.AsyncClient, name: str, **fields: Any) -> int:
    made = (await api.post("/v1/jobs", json={**JOB, "name": name, **fields})).json()
    return int(made["jobs"][0]["id"])


async def ask(api: httpx.AsyncClient, verb: str, **body: Any) -> list[tuple[int, str]]:
    """Return what became of each: the outcome, or the code of the error."""
    answer = await api.post(f"/v1/jobs/{verb}", json=body)
    assert answer.status_code == 200, answer.text
    return [(it["job_id"], it.get("outcome") or it["error"]["code"]) for it in answer.json()["items"]]


async def paused(api: httpx.AsyncClient) -> set[str]:
    return {job["name"] for job in (await api.get("/v1/jobs?paused=true")).json()["items"]}


@BOTH
async def test_jobs_that_are_named_are_paused_and_resumed_with_an_answer_for_each(api: httpx.AsyncClient, world: World):
    one, two, gone = await make(api, "one"), await make(api, "two", paused=True), await make(api, "gone")
    await api.delete(f"/v1/jobs/{gone}")

    done = await ask(api, "pause", jobs=[two, one, one, gone, 999])

    assert done == [(two, "unchanged"), (one, "changed"), (gone, "E_NOT_FOUND"), (999, "E_NOT_FOUND")]
    assert await paused(api) == {"one", "two"}
    assert await ask(api, "resume", jobs=[one, two]) == [(one, "changed"), (two, "changed")]
    assert await paused(api) == set()


@BOTH
async def test_jobs_are_found_by_all_that_their_list_knows(api: httpx.AsyncClient, world: World):
    draft = specs.parse_job({**JOB, "name": "nightly report", "tags": ["etl"], "key": "r-1"})
    report = (await world.jobs.submit([draft], owner="ann")).jobs[0].id
    load = await make(api, "load", tags=["etl", "x"], queue="default")
    other = await make(api, "other", paused=True)
    for where, expected in (
        ({"tag": "etl"}, {report, load}), ({"tag": "x"}, {load}), ({"q": "report nightly"}, {report}),
        ({"q": "r-1"}, {report}), ({"name": "o"}, {report, load, other}), ({"named": "load"}, {load}),
        ({"owner": "ann"}, {report}), ({"kind": "http"}, set()), ({"queue": "default"}, {report, load, other}),
        ({"paused": True}, {other}), ({"tag": "etl", "owner": "ann"}, {report}), ({}, {report, load, other}),
    ):  # fmt: skip
        assert {job_id for job_id, _ in await ask(api, "pause", where=where, dry_run=True)} == expected, where
    assert await paused(api) == {"other"}, "a dry run changes nothing"
    assert dict(await ask(api, "pause", where={})) == {report: "changed", load: "changed", other: "unchanged"}


async def test_jobs_are_found_by_how_their_latest_run_stands(api: httpx.AsyncClient, world: World):
    failed, waits, never = [await make(api, name) for name in ("failed", "waits", "never")]
    for job_id in (failed, waits):
        await api.post(f"/v1/jobs/{job_id}/run")
    [run] = (await api.get(f"/v1/runs?job_id={failed}")).json()["items"]
    await world.store.cancel([run["id"]], Reason.REQUESTED)

    assert await ask(api, "pause", where={"state": ["queued", "blocked"]}) == [(waits, "changed")]
    assert await ask(api, "pause", where={"state": ["cancelled"], "name": "fail"}) == [(failed, "changed")]
    assert await ask(api, "pause", where={"state": ["succeeded"]}) == []
    assert never


async def test_tags_are_added_and_taken_away_and_the_others_stay(api: httpx.AsyncClient):
    one, two = await make(api, "one", tags=["a", "b"]), await make(api, "two")
    full = await make(api, "full", tags=[f"t{number}" for number in range(32)])

    done = await ask(api, "tag", jobs=[one, two, full], add=["new"], remove=["b", "none"])

    assert done == [(one, "changed"), (two, "changed"), (full, "E_LIMIT")]
    tags = {it["name"]: it["policy"].get("tags", []) for it in (await api.get("/v1/jobs?tag=new")).json()["items"]}
    assert tags == {"one": ["a", "new"], "two": ["new"]}
    assert await ask(api, "tag", jobs=[one, two], add=["new"]) == [(one, "unchanged"), (two, "unchanged")]


@pytest.mark.parametrize(
    ("verb", "body", "code", "path"),
    [
        ("pause", {}, "E_REQUIRED", "jobs"),
        ("pause", {"jobs": []}, "E_EMPTY", "jobs"),
        ("pause", {"jobs": [1, "x"]}, "E_TYPE", "jobs[1]"),
        ("pause", {"jobs": [1], "where": {}}, "E_FIELD_CONFLICT", "where"),
        ("pause", {"where": {"nmae": "x"}}, "E_UNKNOWN_FIELD", "where.nmae"),
        ("pause", {"where": {"state": ["lost"]}}, "E_ENUM", "where.state"),
        ("pause", {"jobs": [1], "add": ["x"]}, "E_UNKNOWN_FIELD", "add"),
        ("tag", {"jobs": [1]}, "E_REQUIRED", "add"),
        ("tag", {"jobs": [1], "add": ["no spaces"]}, "E_PATTERN", "add[0]"),
        ("resume", {"where": 7}, "E_TYPE", "where"),
    ],
)
async def test_what_is_wrong_is_said_with_its_path(
    api: httpx.AsyncClient, verb: str, body: dict[str, Any], code: str, path: str
):
    answer = await api.post(f"/v1/jobs/{verb}", json=body)

    assert answer.status_code == 422, answer.text
    assert [(one["code"], one["path"]) for one in answer.json()["errors"]] == [(code, path)]


async def test_more_than_may_be_changed_at_once_are_refused_and_none_is_changed(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(many, "MAX_JOBS", 2)
    for number in range(3):
        await make(api, f"{number}")
    for where in ({"name": ""}, {}, {"state": ["none"]}):
        answer = await api.post("/v1/jobs/pause", json={"where": where})
        assert answer.status_code == 422, where
    assert await paused(api) == set()


async def test_each_write_has_a_row_in_the_audit_log_that_names_its_jobs_and_a_dry_run_has_none(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(many, "BATCH", 2)
    ids = [await make(api, f"{number}") for number in range(3)]
    await ask(api, "pause", jobs=ids, dry_run=True)
    await ask(api, "pause", jobs=ids)
    await ask(api, "pause", jobs=ids)  # which changes nothing

    rows = [row for row in await world.store.list_audit(AuditFilter(), None, 100) if row.operation.endswith("/pause")]

    assert [(row.subject, row.amount, row.action) for row in rows] == [
        (f"{ids[2]}", 1, "jobs.pause"), (f"{ids[0]}-{ids[1]}", 2, "jobs.pause"),
    ]  # fmt: skip
    assert f"[{ids[0]},{ids[1]}]" in rows[1].change.replace(" ", "")
    assert '"paused":[false,true]' in rows[1].change.replace(" ", "")


async def test_a_job_that_changes_meanwhile_is_looked_at_again(
    api: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
):
    one, two = await make(api, "one"), await make(api, "two")
    load, raced = world.store.load_jobs, list[int]()

    async def race(ids: Any) -> Any:
        jobs = await load(ids)
        if not raced:
            raced.append(one)
            await world.store.save_job(replace(jobs[0], name="renamed", version=jobs[0].version + 1), jobs[0].version)
        return jobs

    monkeypatch.setattr(world.store, "load_jobs", race)

    assert await ask(api, "pause", jobs=[one, two]) == [(one, "changed"), (two, "changed")]
    assert await paused(api) == {"renamed", "two"}


async def test_jobs_of_another_organisation_do_not_exist_and_who_may_only_look_is_refused(world: World):
    theirs = (await world.jobs.submit([specs.parse_job({**JOB, "tags": ["x"]})], org=7)).jobs[0].id
    gate = web.create_app(world.services, (), version="1", loopback_only=False)
    answers = {}
    for role in (Role.EDITOR, Role.VIEWER):
        _, text = await world.services.access.create(role.name, "user", "ann", None, role=role)
        headers = {"authorization": f"Bearer {text}"}
        async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE, headers=headers) as client:
            answers[role] = [
                await client.post("/v1/jobs/pause", json=body) for body in ({"jobs": [theirs]}, {"where": {"tag": "x"}})
            ]
    named, found = answers[Role.EDITOR]
    assert [it["error"]["code"] for it in named.json()["items"]] == ["E_NOT_FOUND"]
    assert found.json()["items"] == []
    assert [answer.json()["code"] for answer in answers[Role.VIEWER]] == ["E_ROLE", "E_ROLE"]
    assert not (await world.jobs.get(theirs)).paused
