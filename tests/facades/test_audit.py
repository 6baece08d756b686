"""The audit log over HTTP: what was done, refused and read has its row, whichever interface it came by."""

from __future__ import annotations

import json
from typing import Any

import pytest

from horae.core.audit import AuditFilter, Row
from horae.core.identity import EVERYWHERE, LOCAL, UserKind
from horae.core.model import DEFAULT_ORG
from horae.core.roles import Role
from horae.service.audit import KINDS
from horae.service.audit.sealing import Sealer

from .world import BOTH, World

JOB = {"name": "nightly", "steps": [{"run": "true"}]}
CANARY = "correct-horse-battery"


async def rows(world: World, **where: Any) -> list[Row]:
    return list(reversed(await world.store.list_audit(AuditFilter(**where), None, 1000)))


async def made(world: World, role: Role = Role.ADMIN) -> dict[str, str]:
    _, text = await world.services.access.create("t", "user", "ann", None, org=DEFAULT_ORG, role=role)
    return {"Authorization": f"Bearer {text}"}


async def submitted(world: World, **fields: Any) -> int:
    answer = await world.http.post("/v1/jobs", json={**JOB, **fields})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["jobs"][0]["id"])


async def test_a_submit_is_one_row_that_says_who_from_where_and_what(world: World) -> None:
    headers = await made(world)
    answer = await world.http.post("/v1/jobs", json=JOB, headers=headers)
    [row] = await rows(world, kind="job")
    assert (row.who, row.via, row.address, row.org) == ("ann", "token 1", "127.0.0.1", DEFAULT_ORG)
    assert (row.action, row.operation, row.outcome) == ("jobs.write", "POST /v1/jobs", "done")
    assert row.made == row.subject == str(answer.json()["jobs"][0]["id"])
    assert row.request_id == answer.headers["x-request-id"]
    assert json.loads(row.change) == {"name": [None, "nightly"]}


async def test_a_changed_job_tells_what_is_different(world: World) -> None:
    job_id = await submitted(world)
    await world.http.put(f"/v1/jobs/{job_id}", json={**JOB, "name": "weekly"})
    [submit, row] = await rows(world, kind="job", subject=str(job_id))
    assert submit.operation == "POST /v1/jobs"
    assert json.loads(row.change) == {"name": ["nightly", "weekly"]}


async def test_a_run_by_request_names_its_job_and_the_run(world: World) -> None:
    job_id = await submitted(world)
    run = (await world.http.post(f"/v1/jobs/{job_id}/run")).json()
    [row] = await rows(world, action="runs.start")
    assert (row.kind, row.subject, row.made) == ("job", str(job_id), str(run["id"]))


async def test_what_is_done_to_a_node_is_found_by_its_name(world: World) -> None:
    await world.join()
    [node] = await world.store.list_nodes()
    await world.http.post(f"/v1/nodes/{node.name}/cordon")
    [row] = await rows(world, kind="node", subject=node.name)
    assert row.operation == "POST /v1/nodes/{name}/cordon"


async def test_many_runs_are_one_row_with_a_count(world: World) -> None:
    job_id = await submitted(world, overlap="allow")
    answer = await world.http.post("/v1/runs", json={"runs": [{"job": job_id, "data": {"n": n}} for n in range(7)]})
    assert answer.status_code < 300, answer.text
    [row] = await rows(world, action="runs.start")
    assert row.amount == 7


async def test_what_only_reads_has_no_row(world: World) -> None:
    job_id = await submitted(world)
    before = len(await rows(world))
    await world.http.get(f"/v1/jobs/{job_id}")
    await world.http.get("/v1/audit")
    await world.http.post("/v1/jobs?dry_run=true", json=JOB)
    assert len(await rows(world)) == before


async def test_what_was_refused_by_its_role_has_a_row(world: World) -> None:
    headers = await made(world, Role.VIEWER)
    assert (await world.http.post("/v1/jobs", json=JOB, headers=headers)).status_code == 403
    [row] = await rows(world, outcome="refused")
    assert (row.who, row.operation, row.code) == ("ann", "POST /v1/jobs", "E_ROLE")


async def test_strangers_are_told_of_in_few_rows_however_often_they_come(world: World) -> None:
    wrong = {"Authorization": f"Bearer horae_u_9_{'x' * 43}"}
    for number in range(3 * KINDS):
        answer = await world.http.get(f"/v1/jobs/{number + 1}/nothing/{number}", headers=wrong)
        assert answer.status_code in (401, 429)
    assert len(await rows(world, outcome="refused")) <= KINDS + 1
    world.clock.advance(61)
    await world.audit.tell_refused()
    found = await rows(world, outcome="refused")
    assert len(found) <= 2 * KINDS + 2
    assert sum(row.amount for row in found) == 3 * KINDS


async def test_a_request_that_changed_nothing_has_no_row(world: World) -> None:
    assert (await world.http.put("/v1/jobs/99", json=JOB)).status_code == 404
    assert (await world.http.post("/v1/jobs", json={"name": 3})).status_code == 422
    assert await rows(world) == []


async def test_a_new_token_has_a_row_without_its_secret(world: World) -> None:
    text = (await world.http.post("/v1/tokens", json={"name": "ci"})).json()["token"]
    await world.http.delete("/v1/tokens/1")
    found = await rows(world, kind="token", subject="1")
    assert [row.operation for row in found] == ["POST /v1/tokens", "DELETE /v1/tokens/{token_id}"]
    assert text.rpartition("_")[2] not in str(found)


async def test_a_secret_is_told_of_when_it_is_set_and_when_an_agent_gets_it(world: World) -> None:
    await world.http.put("/v1/secrets/DB", json={"value": CANARY})
    job_id = await submitted(world, env={"PASSWORD": {"secret": "DB"}})
    run = (await world.http.post(f"/v1/jobs/{job_id}/run")).json()
    [claimed] = await world.claim("shell")
    assert CANARY in claimed.secrets
    found = await rows(world, kind="secret", subject="DB")
    assert [(row.action, row.outcome) for row in found] == [("secrets.write", "done"), ("secrets.read", "read")]
    assert found[1].via.startswith("agent ")
    assert found[1].made == str(run["id"])
    assert CANARY not in str(await rows(world))


async def test_an_address_that_is_a_credential_is_told_of_when_somebody_is_shown_it(world: World) -> None:
    answer = await world.http.post(
        "/v1/jobs", json={"name": "backup", "schedule": {"cron": "0 3 * * *"}, "watched": {"grace": "5m"}}
    )
    assert answer.status_code == 201, answer.text
    job_id = answer.json()["jobs"][0]["id"]
    run = (await world.http.post(f"/v1/jobs/{await submitted(world)}/run")).json()["id"]
    shown = [
        (await world.http.get(f"/v1/jobs/{job_id}/ping")).json()["path"],
        (await world.http.get(f"/v1/runs/{run}/callbacks/paid")).json()["path"],
    ]
    await world.http.get(f"/v1/jobs/{job_id}/ping")
    found = [(row.operation, row.kind, row.subject, row.who) for row in await rows(world, outcome="read")]
    ping = ("GET /v1/jobs/{job_id}/ping", "job", str(job_id), "local")
    assert found == [ping, ("GET /v1/runs/{run_id}/callbacks/{name}", "run", str(run), "local"), ping]
    everything = str(await rows(world))
    assert [path for path in shown if path.rpartition("/")[2] in everything] == []


async def test_a_password_in_a_job_is_left_out_of_what_changed(world: World) -> None:
    job_id = await submitted(world)
    answer = await world.http.put(
        f"/v1/jobs/{job_id}", json={**JOB, "steps": [{"run": f"curl https://u:{CANARY}@example.com"}]}
    )
    assert answer.status_code == 200, answer.text
    found = await rows(world, kind="job")
    assert CANARY not in str(found)
    assert found[-1].change


async def test_json_rpc_calls_have_rows_of_their_own(world: World) -> None:
    call = {
        "jsonrpc": "2.0",
        "method": "submit_job",
        "params": {"user_id": "7", "code_location": "horae.handlers:noop"},
        "id": 1,
    }
    answer = await world.http.post("/rpc", json=[call, {**call, "method": "retrieve_all_jobs", "params": ["7"]}])
    assert answer.status_code == 200
    [row] = await rows(world)
    assert (row.operation, row.action) == ("rpc submit_job", "jobs.write")


async def test_a_refused_call_of_json_rpc_has_a_row(world: World) -> None:
    call = {"jsonrpc": "2.0", "method": "cancel", "params": {"job_id": 1}, "id": 1}
    await world.http.post("/rpc", json=call, headers=await made(world, Role.VIEWER))
    [row] = await rows(world, outcome="refused")
    assert (row.who, row.operation) == ("ann", "rpc cancel")


# ── reading it ──


async def test_rows_are_paged_and_filtered(world: World) -> None:
    ids = [await submitted(world, name=f"j{number}") for number in range(5)]
    first = (await world.http.get("/v1/audit?limit=2")).json()
    assert [item["made"] for item in first["items"]] == [str(ids[4]), str(ids[3])]
    rest = (await world.http.get(f"/v1/audit?limit=10&cursor={first['cursor']}")).json()
    assert [item["made"] for item in rest["items"]] == [str(each) for each in (ids[2], ids[1], ids[0])]
    assert rest["cursor"] is None
    assert (await world.http.get("/v1/audit?who=nobody")).json()["items"] == []


@pytest.mark.parametrize(
    "query", ["cursor=x", "limit=0", "since=yesterday", "outcome=maybe", "outcome=done,read", "nonsense=1", "who="]
)
async def test_a_wrong_question_is_refused_with_its_reason(world: World, query: str) -> None:
    answer = await world.http.get(f"/v1/audit?{query}")
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"]


@pytest.mark.parametrize("query", ["cursor=x", "head=7", "head=99999999999999999999:00"])
async def test_a_wrong_head_or_cursor_is_refused(world: World, query: str) -> None:
    assert (await world.http.get(f"/v1/audit/verify?{query}")).status_code == 422


async def test_only_admins_read_it_and_each_that_of_their_organisation(world: World) -> None:
    await submitted(world)
    editor = await made(world, Role.EDITOR)
    assert (await world.http.get("/v1/audit", headers=editor)).status_code == 403
    _, text = await world.services.access.create("o", "user", "bob", None, org=2, role=Role.ADMIN)
    other = {"Authorization": f"Bearer {text}"}
    await world.http.post("/v1/jobs", json=JOB, headers=other)
    await Sealer(world.store, world.metrics, days=0).seal()
    for address in ("/v1/audit", "/v1/audit/sealed"):
        found = (await world.http.get(address, headers=other)).json()["items"]
        assert {item["org"] for item in found} == {2}, address


async def test_a_tampered_row_is_named_over_http(world: World) -> None:
    for number in range(4):
        await submitted(world, name=f"j{number}")
    await Sealer(world.store, world.metrics, days=0).seal()
    fine = (await world.http.get("/v1/audit/verify")).json()
    assert (fine["checked"], fine["faults"], fine["cursor"]) == (4, [], None)
    await world.store.write("UPDATE audit SET who = 'x' WHERE id = 2")  # type: ignore[attr-defined]
    broken = (await world.http.get(f"/v1/audit/verify?head={fine['head']}")).json()
    assert [(fault["seq"], fault["what"]) for fault in broken["faults"]] == [(2, "changed")]


# ── of all organisations ──


async def installation(world: World) -> dict[str, dict[str, str]]:
    """Return how a program that runs the installation comes in, and how an admin of organisation 2 does; each of these
    two organisations has a job."""
    users, access = world.services.users, world.services.access
    await users.create_organisation("data", LOCAL)
    await users.create("backup", LOCAL, kind=UserKind.SERVICE, roles={EVERYWHERE: Role.ADMIN})
    _, program = await access.create("nightly", "user", "backup", None)
    _, admin = await access.create("dora", "user", "dora", None, org=2)
    found = {"program": program, "admin": admin}
    headers = {name: {"authorization": f"Bearer {text}"} for name, text in found.items()}
    for each in headers.values():
        assert (await world.http.post("/v1/jobs", json=JOB, headers=each)).status_code == 201
    await Sealer(world.store, world.metrics, days=0).seal()
    return headers


async def orgs_of(world: World, path: str, headers: dict[str, str], **params: str) -> set[int]:
    answer = await world.http.get(path, params={"kind": "job", **params} if "sealed" not in path else params,
                                  headers=headers)  # fmt: skip
    assert answer.status_code == 200, answer.text
    return {row["org"] for row in answer.json()["items"] if row["kind"] == "job"}


@BOTH
@pytest.mark.parametrize("path", ["/v1/audit", "/v1/audit/sealed"])
async def test_who_runs_the_installation_reads_the_audit_log_of_all_organisations(world: World, path: str) -> None:
    headers = await installation(world)
    program, admin = headers["program"], headers["admin"]
    assert await orgs_of(world, path, program) == {1}
    assert await orgs_of(world, path, program, org="*") == {1, 2}
    assert await orgs_of(world, path, program, org="data") == {2}
    assert await orgs_of(world, path, {}, org="*") == {1, 2}  # who runs the server
    assert await orgs_of(world, path, admin) == {2}
    assert await orgs_of(world, path, admin, org="2") == {2}
    refused = await world.http.get(path, params={"org": "*"}, headers=admin)
    assert (refused.status_code, refused.json()["code"]) == (403, "E_ROLE")
    for other in ("1", "default", "nowhere"):
        answer = await world.http.get(path, params={"org": other}, headers=admin)
        assert (answer.status_code, answer.json()["code"]) == (404, "E_NOT_FOUND")


async def test_a_token_that_may_only_look_does_not_read_the_audit_log_of_all(world: World) -> None:
    await installation(world)
    role = Role("read+audit.read")
    _, text = await world.services.access.create("looks", "user", "backup", None, role=role)
    answer = await world.http.get("/v1/audit?org=*", headers={"authorization": f"Bearer {text}"})
    assert (answer.status_code, answer.json()["code"]) == (403, "E_ROLE")


async def test_the_page_offers_all_organisations_to_who_runs_the_installation(world: World) -> None:
    headers = await installation(world)
    page = {"accept": "text/html"}
    shown = (await world.http.get("/audit?org=*", headers={**page, **headers["program"]})).text
    assert '<option value="*" selected>all</option>' in shown
    assert "in data" in shown
    own = (await world.http.get("/audit", headers={**page, **headers["program"]})).text
    assert "in data" not in own
    other = (await world.http.get("/audit", headers={**page, **headers["admin"]})).text
    assert 'name="org"' not in other
