"""Secrets within jobs and sources: in the hands of whoever does the work, and found nowhere else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from horae.contracts import CONTRACTS
from horae.core.audit import AuditFilter
from horae.core.definitions import Submission
from horae.core.model import State
from horae.stores.sqlite import SqliteStore
from horae.testing import make_job
from horae.web import app as web
from tests.facades.lake.bodies import NEVER, Client, java, source, sync
from tests.facades.world import BOTH, HERE, OWN, World, from_here

CANARY = "kaN4rienvogel7391"
HIDDEN = "******"
HTTP = {"class_name": "http_clone_info", "url": "https://g.example/a", "username": "ann", "password": CANARY}
URL = f"jdbc:mysql://root:{CANARY}@db:3306/shop"
CHECKOUT = {"url": f"https://ann:{CANARY}@g.example/a.git"}
KEYED: dict[str, Any] = {
    "name": "copy", "key": "copy", "kind": "sync",
    "spec": {
        "source": {"type": "database", "url": f"postgresql://u:{CANARY}@db/x", "password": CANARY},
        "read": {"table": "t"}, "destinations": [{"type": "files", "path": "a"}], "options": {"api_key": CANARY},
    },
}  # fmt: skip


async def dump(world: World) -> str:
    """Every row of every table and view."""
    store: Any = world.store
    if isinstance(store, SqliteStore):
        names = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    else:
        names = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
    tables = [row[0] for row in await store.read(names)]
    assert {"jobs", "sources", "locks"} <= set(tables)
    return str([[tuple(row) for row in await store.read(f'SELECT * FROM "{name}"')] for name in tables])


async def submitted(world: World, document: Any) -> Any:
    answer = await world.http.post("/v1/jobs", json=document)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()["jobs"][0]


async def filled(client: Client) -> dict[str, int]:
    """Return a world with a canary in every place."""
    kept = await client.ask("POST", "/source/create", source(jdbc_url=URL, password=CANARY))
    shell = await submitted(
        client.world, {"name": "sh", "checkout": CHECKOUT, "steps": [{"run": "true"}], "run_once": True}
    )
    return {
        "source": kept["id"],
        "lake": await client.make(java(git_url=None, git_clone_info=HTTP)),
        "sync": await client.make(sync(source_id=kept["id"]), ""),
        "keyed": (await submitted(client.world, KEYED))["id"],
        "shell": shell["id"],
    }


@BOTH
async def test_S34_a_canary_is_in_no_table_answer_or_log(client: Client, tmp_path: Path):
    world = client.world
    with structlog.testing.capture_logs() as logs:
        ids = await filled(client)
        texts = [str(await client.job(ids["lake"])), str(await client.sync_job(ids["sync"]))]
        paths = ["/v1/jobs", "/v1/overview", f"/source/{ids['source']}", "/"]
        paths += [f"/v1/jobs/{ids[name]}" for name in ("lake", "sync", "keyed", "shell")]
        paths += [f"/v1/jobs/{ids['shell']}/explain", f"/api/jobs/{ids['shell']}", f"/api/jobs/{ids['keyed']}"]
        texts += [(await world.http.get(path)).text for path in paths]
        bad = {**KEYED, "spec": {**KEYED["spec"], "mode": "odd"}}
        texts.append((await world.http.post("/v1/jobs", json=bad)).text)
    texts += [await dump(world), str(logs)]
    texts += [path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]

    assert [text for text in texts if CANARY in text] == []
    assert texts[0].count(HIDDEN) == 1


@BOTH
async def test_workers_and_agents_get_what_was_sent(client: Client):
    world = client.world
    ids = await filled(client)
    world.clock.advance(1)
    await world.fire()

    pulled = await client.pull()
    synced = await client.pull("")
    [shell] = await world.claim("shell")

    assert pulled["job"]["git_clone_info"]["password"] == CANARY
    assert (synced["source"]["jdbc_url"], synced["source"]["password"]) == (URL, CANARY)
    assert json.loads(shell.spec)["checkout"] == CHECKOUT
    assert CANARY in str(await client.ask("GET", f"/source/{ids['source']}/organization/1"))
    assert CANARY not in await dump(world)


async def test_an_agent_gets_the_source_of_a_sync_open(client: Client):
    kept = await client.ask("POST", "/source/create", source(jdbc_url=URL, password=CANARY))
    job_id = await client.make(sync(source_id=kept["id"], schedule_time=NEVER), "")
    await client.ask("PUT", f"/schedule/job/{job_id}/now")
    [one] = await client.world.claim("sync")

    assert json.loads(one.source)["config"]["password"] == CANARY
    assert json.loads(one.source)["config"]["url"] == URL


async def test_what_comes_back_hidden_or_unchanged_changes_nothing(client: Client):
    world = client.world
    made = await submitted(world, KEYED)
    before = await world.jobs.get(made["id"])

    for spec in (KEYED["spec"], made["spec"]):
        await submitted(world, {**KEYED, "spec": spec})
    assert await world.jobs.get(made["id"]) == before

    other = {**made["spec"], "read": {"table": "other"}, "options": {"api_key": "new"}}
    await submitted(world, {**KEYED, "spec": other})
    await world.http.post(f"/v1/jobs/{made['id']}/run")
    [one] = await world.claim("sync")
    spec = json.loads(one.spec)
    assert (spec["source"], spec["options"]) == (KEYED["spec"]["source"], {"api_key": "new"})


async def test_a_hidden_secret_with_a_key_that_nothing_has_is_refused(client: Client):
    spec = {**KEYED["spec"], "options": {"api_key": HIDDEN}}
    answer = await client.world.http.post("/v1/jobs", json={**KEYED, "spec": spec})

    assert (answer.status_code, answer.json()["code"]) == (422, "E_FIELD_CONFLICT")


async def test_jobs_of_earlier_versions_go_on_and_are_sealed_when_they_are_saved(client: Client):
    world = client.world
    await world.store.submit([Submission([make_job(1, kind="sync", spec=KEYED["spec"])])])
    await world.http.post("/v1/jobs/1/run")
    [one] = await world.claim("sync")
    assert json.loads(one.spec) == KEYED["spec"]
    assert CANARY in await dump(world)

    assert (await world.http.post("/v1/jobs/1/pause")).status_code == 200
    assert CANARY not in str((await world.jobs.get(1)).spec)


@pytest.mark.parametrize("side", ["agent", "worker"])
async def test_without_the_key_a_run_fails_and_says_why(client: Client, tmp_path: Path, side: str):
    job_id = await client.make(java(git_url=None, git_clone_info=HTTP, schedule_time=NEVER))
    await client.ask("PUT", f"/lake/schedule/job/{job_id}/now")
    (tmp_path / "secrets.key").unlink()

    if side == "agent":
        assert await client.world.claim("git_java") == []
    else:
        assert await client.pull() is None
    run = (await client.world.jobs.standing([job_id]))[job_id].latest
    assert run is not None
    assert run.state is State.FAILED
    assert "a secret of this job cannot be given" in run.message


async def test_nothing_is_sealed_with_a_key_that_the_others_have_not(client: Client, tmp_path: Path):
    await client.make(java(git_url=None, git_clone_info=HTTP))
    (tmp_path / "secrets.key").unlink()

    answer = await client.world.http.post("/v1/jobs", json={**KEYED, "key": "b"})
    assert (answer.status_code, answer.json()["code"]) == (409, "E_SECRET_KEY")
    assert not (tmp_path / "secrets.key").exists()
    plain = {"name": "plain", "steps": [{"run": "true"}]}
    assert (await client.world.http.post("/v1/jobs", json=plain)).status_code == 201


# ── who gets them ──


@pytest.mark.parametrize(
    "change",
    [{"jdbc_url": "jdbc:mysql://evil.example:3306/shop"}, {"username": "admin"}, {"class_name": "generic_jdbc_source"}],
)
async def test_a_hidden_secret_cannot_be_sent_elsewhere(client: Client, change: dict[str, str]):
    kept = await client.ask("POST", "/source/create", source(jdbc_url="jdbc:mysql://db:3306/shop", password=CANARY))
    path = f"/source/{kept['id']}"

    sent = await client.send("PUT", path, {"data_source": {**kept, **change}})

    assert sent.status_code == 400
    assert CANARY not in sent.text
    assert await client.ask("GET", path) == kept
    if "class_name" not in change:
        assert "data_source" in sent.json()["message"] or "password" in sent.json()["message"]
        await client.ask("PUT", path, {"data_source": {**kept, **change, "password": "another"}})


async def with_token(client: Client, name: str) -> dict[str, str]:
    _, text = await client.world.services.access.create(name, "user", name, None)
    return {"access-token": text}


async def test_a_worker_gets_the_secrets_of_a_source_while_it_holds_a_run_of_it(client: Client):
    http = client.world.http
    kept = await client.ask("POST", "/source/create", source(jdbc_url=URL, password=CANARY))
    await client.make(sync(source_id=kept["id"]), "")
    path = f"/source/{kept['id']}/organization/1"
    worker, other = await with_token(client, "worker"), await with_token(client, "other")
    for who in (worker, other):
        assert CANARY not in (await http.get(path, headers=who)).text

    await client.world.fire()
    taken = (await http.get("/schedule/job/next", headers=worker)).json()["data"]

    assert taken["source"]["password"] == CANARY
    assert (await http.get(path, headers=worker)).json()["password"] == CANARY
    assert CANARY not in (await http.get(path, headers=other)).text
    await client.report(taken, "Synced")
    assert CANARY not in (await http.get(path, headers=worker)).text


async def readings(world: World, kind: str, subject: int) -> list[tuple[str, str, str]]:
    found = await world.store.list_audit(AuditFilter(kind=kind, subject=str(subject)), None, 100)
    return [(row.who, row.made, row.outcome) for row in reversed(found) if row.action == "secrets.read"]


@BOTH
async def test_the_audit_log_tells_which_worker_was_given_a_source(client: Client):
    world = client.world
    kept = await client.ask("POST", "/source/create", source(jdbc_url=URL, password=CANARY))
    await client.make(sync(source_id=kept["id"]), "")
    path = f"/source/{kept['id']}/organization/1"
    worker, other = await with_token(client, "worker"), await with_token(client, "other")
    await world.http.get(path, headers=other)
    assert await readings(world, "source", kept["id"]) == []

    await world.fire()
    [run] = (await world.http.get("/v1/runs")).json()["items"]
    await world.http.get("/schedule/job/next", headers=worker)
    await world.http.get(path, headers=worker)

    name = "worker lake worker 127.0.0.1 with token 1"
    assert await readings(world, "source", kept["id"]) == [(name, str(run["id"]), "read"), (name, "", "read")]
    assert CANARY not in str(await world.store.list_audit(AuditFilter(), None, 100))


async def test_the_audit_log_tells_which_agent_was_given_the_source_of_a_sync(client: Client):
    world = client.world
    kept = await client.ask("POST", "/source/create", source(jdbc_url=URL, password=CANARY))
    bare = await client.ask("POST", "/source/create", source(jdbc_url="jdbc:mysql://db:3306/shop", password=""))
    for each in (kept, bare):
        job_id = await client.make(sync(source_id=each["id"], schedule_time=NEVER), "")
        await client.ask("PUT", f"/schedule/job/{job_id}/now")
    claimed = await world.claim("sync")

    given = [str(a.run_id) for a in claimed if CANARY in (a.source or "")]
    assert len(given) == 1
    assert [(made, how) for _, made, how in await readings(world, "source", kept["id"])] == [(given[0], "read")]
    assert (await readings(world, "source", kept["id"]))[0][0].startswith("agent ")
    assert await readings(world, "source", bare["id"]) == []


async def test_where_agents_do_the_work_nobody_pulls_it_and_nobody_gets_the_secrets(client: Client):
    world = client.world
    ids = await filled(client)
    await world.fire()
    gate = web.create_app(replace(world.services, lends_lake_work=False), CONTRACTS, version="1", free_pass=OWN)
    friend = await with_token(client, "ann")
    async with httpx.AsyncClient(transport=from_here(gate), base_url=HERE) as api:
        for headers in ({}, friend):
            for path in ("/lake/schedule/job/next", "/schedule/job/next"):
                assert (await api.get(path, headers=headers)).json() == {"has_job": False}
            shown = await api.get(f"/source/{ids['source']}/organization/1", headers=headers)
            assert (shown.status_code, shown.json()["password"]) == (200, HIDDEN)
            assert CANARY not in shown.text
    assert len(await world.claim("sync")) == 1
