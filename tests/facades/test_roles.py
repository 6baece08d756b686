"""Who may do what: every operation of every interface, as each role."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from horae.contracts import CONTRACTS
from horae.contracts.admin.grpc import NEEDED, SERVICE, Administration
from horae.contracts.rpc.caller import Caller
from horae.contracts.rpc.calls import Calls
from horae.core.identity import LOCAL, Principal
from horae.core.model import State
from horae.core.roles import PERMISSIONS, Permission, Role, common, greatest
from horae.errors import Denied, Error
from horae.rpc.callers import Callers
from horae.service.access.grants import parse_grant
from horae.web import app as web
from tests.facades.test_native import JOB, problem_of
from tests.facades.test_routes import operations  # noqa: F401  (a fixture)
from tests.facades.world import BOTH, World

FAR = "https://10.0.0.1:8443"
ELSEWHERE = {"x": "1"}  # a parameter that none of our own operations has: those who may, get no further than this

# Said once more by hand: what is declared for these may not change by accident.
LEAST = {
    "GET /v1/jobs": "viewer", "GET /v1/runs/{run_id}/log": "viewer", "GET /v1/events/stream": "viewer",
    "POST /v1/jobs/{job_id}/run": "operator", "POST /v1/runs": "operator", "POST /v1/runs/{run_id}/cancel": "operator",
    "POST /v1/runs/{run_id}/approve": "operator", "POST /v1/jobs/{job_id}/pause": "operator",
    "GET /lake/schedule/job/next": "operator", "GET /source/{source_id}/organization/{org_id}": "operator",
    "POST /v1/jobs": "editor", "PUT /v1/jobs/{job_id}": "editor", "DELETE /v1/jobs/{job_id}": "editor",
    "PUT /v1/secrets/{name}": "editor", "GET /v1/secrets": "editor", "POST /v1/triggers/{trigger_id}/hook": "editor",
    "GET /v1/jobs/{job_id}/ping": "editor", "POST /lake/job/create": "editor", "POST /api/v1/submit_job": "editor",
    "POST /api/jobs": "editor", "PUT /v1/queues/{name}": "admin", "POST /v1/nodes/{name}/drain": "admin",
    "POST /v1/tokens": "admin", "GET /v1/tokens": "admin", "POST /v1/secrets/rotate": "admin",
    "POST /api/segments/assign": "admin",
}  # fmt: skip


@pytest.fixture
async def far(world: World) -> AsyncIterator[httpx.AsyncClient]:
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url=FAR) as client:
        yield client


async def token_of(world: World, role: Role) -> str:
    _, text = await world.services.access.create(role, "user", "ann", None, role=role)
    return text


async def bearer(world: World, role: Role) -> dict[str, str]:
    return {"authorization": f"Bearer {await token_of(world, role)}"}


def address(path: str) -> str:
    return re.sub(r"{\w+}", "7", path)


def declared(world: World) -> dict[tuple[str, str], Permission]:
    gate = web.create_app(world.services, CONTRACTS, version="1", loopback_only=False)
    return {
        (method.upper(), path): Permission(operation["x-permission"])
        for path, methods in gate.api.document["paths"].items()
        for method, operation in methods.items()
        if "x-permission" in operation
    }


@pytest.mark.parametrize("role", Role)
async def test_S04_each_operation_is_refused_to_whoever_lacks_its_permission_and_to_nobody_else(
    far: httpx.AsyncClient, world: World, role: Role
) -> None:
    text, asked = await token_of(world, role), declared(world)
    headers = {"authorization": f"Bearer {text}", "access-token": text, "cookie": f"session={text}"}
    for (method, path), needed in asked.items():
        if path == "/api/worker-agent/dispatch":
            continue  # for agents, which have tokens of their own
        answer = await far.request(method, address(path), headers=headers, params=ELSEWHERE)
        refused = answer.status_code == 403 and str(needed) in answer.text
        assert refused == (needed not in PERMISSIONS[role]), (method, path, answer.status_code, answer.text)
    assert len(asked) > 150


async def test_what_is_dangerous_needs_what_it_did(world: World) -> None:
    least = {f"{method} {path}": needed for (method, path), needed in declared(world).items()}
    order = list(Role)
    assert {name: next(role for role in order if least[name] in PERMISSIONS[role]) for name in LEAST} == LEAST


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_an_operation_that_declares_nothing_is_not_served(operations: list[Any], method: str) -> None:  # noqa: F811
    undeclared = replace(next(each for each in operations if each.method == method and each.needs), needs=None)
    with pytest.raises(ValueError, match="does not declare which permission it needs"):
        web.Routes([undeclared])


async def test_S04_reading_logs_is_a_permission_of_its_own(far: httpx.AsyncClient, world: World) -> None:
    run = await world.end_run(State.SUCCEEDED)
    paths = [path for _, path in declared(world) if re.search(r"/log\b|artifacts|execution_logs", path)]
    assert len(paths) == 11
    blind, viewer = await token_of(world, Role("read+runs.start")), await token_of(world, Role.VIEWER)
    for path in paths:
        asked = re.sub(r"{(run|execution|job)_id}", lambda it: str(run.job_id if it[1] == "job" else run.id), path)
        refused, seen = [
            await far.get(
                asked.replace("{path}", "x"), headers={"authorization": f"Bearer {text}", "access-token": text}
            )
            for text in (blind, viewer)
        ]
        assert (refused.status_code, "logs.read" in refused.text) == (403, True), path
        assert (seen.status_code < 500, "logs.read" in seen.text) == (True, False), (path, seen.text)
    page = await far.get(f"/runs/{run.id}", headers={"authorization": f"Bearer {blind}"})
    assert (page.status_code, f"/v1/runs/{run.id}/log" in page.text) == (200, False)


@pytest.mark.parametrize("role", Role)
async def test_each_call_of_the_rpc_contract_is_refused_to_whoever_lacks_its_permission(
    world: World, role: Role
) -> None:
    calls = Calls(world.services)
    for name, method in calls.methods.items():
        refused = False
        try:
            await calls.call(name, {}, Caller(Principal("ann", 1, role, via="token 1")))
        except Denied as error:
            refused = error.code == "E_ROLE"
        except Error:
            pass  # nothing that it needs was given
        assert refused == (method.needs not in PERMISSIONS[role]), name
    assert calls.methods["get_log"].needs is Permission.LOGS
    looking = (Permission.READ, Permission.LOGS)
    changing = {name for name, method in calls.methods.items() if method.needs not in looking}
    assert changing == {
        "submit_job", "delete_job", "dispatch", "cancel", "heartbeat", "take_due_jobs", "status_update", "write_log",
    }  # fmt: skip


def test_what_the_administration_contract_changes_over_grpc_needs_more_than_looking() -> None:
    assert set(SERVICE.methods_by_name) == set(NEEDED)
    changing = {name for name, needed in NEEDED.items() if needed is not Permission.READ}
    assert {name for name in NEEDED if not name.startswith("Get")} == changing


def test_a_call_of_the_administration_contract_that_declares_nothing_is_not_served(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(NEEDED, "GetJobs")
    with pytest.raises(ValueError, match="GetJobs: not declared"):
        Administration(world.services, Callers(world.services.access, world.audit, lambda _: False)).handlers()


async def test_who_lacks_a_permission_is_told_which_and_how_to_get_it(far: httpx.AsyncClient, world: World) -> None:
    viewer = await bearer(world, Role.VIEWER)
    problem = problem_of(await far.post("/v1/jobs", json=JOB, headers=viewer), 403, "E_ROLE")
    assert problem["detail"] == "this needs the permission jobs.write, which the role viewer does not have"
    assert problem["hint"] == "use a token with the role editor: `horae token create NAME --role editor`"
    assert await world.rows() == (0, 0, 0)


@BOTH
async def test_a_token_makes_others_that_may_do_as_much_or_less(far: httpx.AsyncClient, world: World) -> None:
    admin = await bearer(world, Role.ADMIN)
    made = (await far.post("/v1/tokens", json={"name": "look", "role": "viewer"}, headers=admin)).json()
    assert made["role"] == "viewer"
    assert (await far.post("/v1/tokens", json={"name": "same"}, headers=admin)).json()["role"] == "admin"
    viewer = {"authorization": f"Bearer {made['token']}"}
    assert (await far.get("/v1/jobs", headers=viewer)).status_code == 200
    problem_of(await far.post("/v1/tokens", json={"name": "x"}, headers=viewer), 403, "E_ROLE")
    agent = await far.post("/v1/tokens", json={"name": "a", "scope": "agent", "node": "n"}, headers=admin)
    assert agent.json()["role"] is None
    listed = (await far.get("/v1/tokens", headers=admin)).json()["items"]
    assert [it["role"] for it in listed] == [None, "admin", "viewer", "admin"]
    every = "+".join(Permission)
    assert (await far.post("/v1/tokens", json={"name": "all", "role": every}, headers=admin)).json()["role"] == "admin"


@BOTH
async def test_a_token_may_be_for_a_list_of_permissions(far: httpx.AsyncClient, world: World) -> None:
    admin = await bearer(world, Role.ADMIN)
    made = (await far.post("/v1/tokens", json={"name": "ci", "role": "runs.start+read"}, headers=admin)).json()
    assert made["role"] == "read+runs.start"
    job = (await far.post("/v1/jobs", json=JOB, headers=admin)).json()["jobs"][0]
    ci = {"authorization": f"Bearer {made['token']}"}
    assert (await far.get("/v1/me", headers=ci)).json()["role"] == "read+runs.start"
    assert (await far.post(f"/v1/jobs/{job['id']}/run", headers=ci)).status_code == 201
    refused = problem_of(await far.post(f"/v1/jobs/{job['id']}/pause", headers=ci), 403, "E_ROLE")
    assert "the role read+runs.start does not have" in refused["detail"]
    listed = (await far.get("/v1/tokens", headers=admin)).json()["items"]
    assert listed[0]["role"] == "read+runs.start"


@BOTH
async def test_a_member_with_a_list_of_permissions_gives_and_takes_no_more_than_it_has(world: World) -> None:
    users = world.services.users
    for name, role in (("ann", "admin"), ("bob", "read+logs.read+users.write+grants.write"), ("eve", "viewer")):
        await users.create(name, LOCAL, roles={1: Role(role)})
    bob = await world.store.find_user("bob")
    assert bob is not None
    who = Principal("bob", 1, bob.roles[1], bob.id, "session 1")
    await users.add_member(1, "eve", Role("users.write"), who)
    for act in (
        users.add_member(1, "bob", Role.ADMIN, who), users.add_member(1, "eve", Role.OPERATOR, who),
        users.add_member(1, "ann", Role.VIEWER, who), users.remove_member(1, "ann", who),
        world.services.grants.add(parse_grant({"who": "bob", "role": "editor", "tag": "t"}), who),
    ):  # fmt: skip
        with pytest.raises(Denied) as refused:
            await act
        assert refused.value.code == "E_ROLE"
    eve = await world.store.find_user("eve")
    assert eve is not None
    assert eve.roles == {1: "users.write"}


def test_lists_of_permissions_are_the_roles_that_they_are_equal_to() -> None:
    assert Role("runs.start+read+read") is Role("read+runs.start")
    assert Role("logs.read+read") is Role.VIEWER
    assert Role("+".join(PERMISSIONS[Role.ADMIN])) is Role.ADMIN
    assert greatest([Role.VIEWER, Role("runs.start"), Role("jobs.pause")]) is Role(
        "read+logs.read+runs.start+jobs.pause"
    )
    assert common(Role.OPERATOR, Role("read+jobs.write")) is Role("read")
    assert common(Role("runs.start"), Role("jobs.write")) is None
    assert list(Role) == ["viewer", "operator", "editor", "admin"]


async def test_F09_a_token_cannot_make_one_that_may_do_more(world: World) -> None:
    editor, _ = await world.services.access.create("e", "user", "ann", None, role=Role.EDITOR)
    from horae.service.access.wanted import parse_token

    with pytest.raises(Denied) as refused:
        await world.services.access.issue(parse_token({"name": "more", "role": "admin"}), editor)
    assert refused.value.code == "E_TOKEN_ROLE"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"name": "x", "role": "root"}, "E_ENUM"),
        ({"name": "x", "role": "read+root"}, "E_ENUM"),
        ({"name": "x", "role": "read+"}, "E_ENUM"),
        ({"name": "x", "role": "read+" * 400 + "read"}, "E_LEN"),
        ({"name": "x", "role": 7}, "E_TYPE"),
        ({"name": "x", "scope": "agent", "node": "n", "role": "viewer"}, "E_FIELD_CONFLICT"),
    ],
)
async def test_a_role_that_is_none_is_refused_at_its_path(
    far: httpx.AsyncClient, world: World, sent: dict[str, Any], code: str
) -> None:
    answer = await far.post("/v1/tokens", json=sent, headers=await bearer(world, Role.ADMIN))
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "role"), answer.text
    assert answer.json()["errors"][0]["code"] == code


async def test_a_session_may_do_what_its_token_may(far: httpx.AsyncClient, world: World) -> None:
    text = await token_of(world, Role.VIEWER)
    answer = await far.post("/api/v1/login", json={"token": text})
    assert answer.status_code == 200, answer.text
    refused = await far.post("/api/v1/submit_job", content="jobs: {}", headers={"content-type": "application/yaml"})
    assert refused.status_code == 403
    assert "jobs.write" in refused.text
