"""Organisations are renamed, limited and deleted by who runs the installation."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.audit import AuditFilter
from horae.core.identity import EVERYWHERE, User
from horae.core.model import State
from horae.core.roles import Role
from horae.errors import Unauthenticated
from tests.facades.lake.bodies import source
from tests.facades.test_organisations import Member, member
from tests.facades.world import BOTH, World

JOB = {"name": "j", "steps": [{"run": "true"}], "overlap": "allow"}
LATER = 6.0  # seconds after which every node knows


async def installer(world: World) -> Member:
    root = await world.store.add_user(User(0, "root", roles={EVERYWHERE: Role.ADMIN}))
    assert root is not None
    return Member(world, (await world.services.access.create("r", "user", "root", None))[1])


async def data_team(world: World, root: Member) -> tuple[int, Member]:
    made = await root.ask("POST", "/v1/orgs", {"name": "data"}, 201)
    return made["id"], await member(world, made["id"])


@BOTH
async def test_an_organisation_with_something_in_it_stays_and_without_is_gone_with_all_that_let_one_in(
    world: World,
) -> None:
    root = await installer(world)
    org, ours = await data_team(world, root)
    admin, elsewhere = await member(world, org), await member(world, 1)
    assert await world.store.add_user(User(0, "bob", roles={org: Role.ADMIN}))
    [job] = (await ours.ask("POST", "/v1/jobs", JOB, 201))["jobs"]
    kept = await ours.ask("POST", "/source/create", source())
    await ours.ask("PUT", "/v1/queues/reports", {}, 201)
    await ours.ask("PUT", "/v1/secrets/A", {"value": "x"}, 201)
    await ours.ask("POST", "/v1/grants", {"who": "eve", "role": "editor", "tag": "t"}, 201)
    await world.services.alerts.put_channel(org, "ops", {"kind": "email", "to": ["a@example.org"]})

    async def refused() -> str:
        answer = await root.ask("DELETE", "/v1/orgs/data", status=409)
        assert answer["code"] == "E_ORG_NOT_EMPTY"
        return str(answer["detail"])

    assert "1 queues" in await refused()
    await ours.ask("POST", "/v1/queues/reports/drain")
    world.clock.advance(LATER)
    await ours.ask("DELETE", "/v1/queues/reports", status=204)
    assert "1 jobs, 1 sources" in await refused()
    await ours.ask("DELETE", f"/v1/jobs/{job['id']}", status=204)
    await ours.ask("DELETE", f"/source/{kept['id']}")
    await root.ask("DELETE", "/v1/orgs/data", status=204)
    for gone in (ours, admin):
        await gone.ask("GET", "/v1/me", status=401)
    await elsewhere.ask("GET", "/v1/me")
    bob = await world.store.find_user("bob")
    assert bob is not None
    assert bob.roles == {}
    assert [await world.store.list_secrets(org), await world.store.load_grants(org, "eve")] == [[], []]
    assert await world.store.list_alert_channels(org) == []
    await root.ask("DELETE", "/v1/orgs/data", status=404)
    again = await root.ask("POST", "/v1/orgs", {"name": "data"}, 201)
    assert again["id"] > org


@BOTH
async def test_a_run_that_has_not_ended_keeps_its_organisation(world: World) -> None:
    root = await installer(world)
    _, ours = await data_team(world, root)
    [job] = (await ours.ask("POST", "/v1/jobs", JOB, 201))["jobs"]
    work = await world.start_run(job["id"])
    await ours.ask("DELETE", f"/v1/jobs/{job['id']}", status=204)
    assert "1 runs" in (await root.ask("DELETE", "/v1/orgs/data", status=409))["detail"]
    await work.end(State.CANCELLED)
    await root.ask("DELETE", "/v1/orgs/data", status=204)


async def test_the_first_organisation_and_that_of_all_stay(world: World) -> None:
    root = await installer(world)
    for method, path, body in (
        ("DELETE", "1", None),
        ("DELETE", "*", None),
        ("PATCH", "*", {"name": "all"}),
        ("PATCH", "1", {"name": "first"}),
    ):
        assert (await root.ask(method, f"/v1/orgs/{path}", body, 409))["code"] == "E_ORG_KEPT"


async def test_a_name_is_given_to_another_organisation_and_leads_there_everywhere(world: World) -> None:
    root = await installer(world)
    org, _ = await data_team(world, root)
    renamed = await root.ask("PATCH", "/v1/orgs/data", {"name": "science"})
    assert (renamed["id"], renamed["name"]) == (org, "science")
    other = await root.ask("POST", "/v1/orgs", {"name": "data"}, 201)
    access = world.services.access
    assert [await access.find_org(name) for name in ("science", "data", "none")] == [org, other["id"], None]
    assert (await root.ask("PATCH", "/v1/orgs/data", {"name": "science"}, 409))["code"] == "E_NAME_TAKEN"
    await root.ask("PATCH", "/v1/orgs/data", {"name": "7"}, 422)
    await root.ask("PATCH", "/v1/orgs/data", {"most_jobs": "many"}, 422)


async def test_only_who_runs_the_installation_changes_organisations_and_it_is_told(world: World) -> None:
    root = await installer(world)
    _, ours = await data_team(world, root)
    for method, body in (("DELETE", None), ("PATCH", {"most_jobs": 5})):
        assert (await ours.ask(method, "/v1/orgs/data", body, 403))["code"] == "E_ROLE"
    await root.ask("PATCH", "/v1/orgs/data", {"most_jobs": 5, "name": "d2"})
    await root.ask("DELETE", "/v1/orgs/d2", status=204)
    rows = await world.store.list_audit(AuditFilter(), None, 100)
    told = {row.operation: row for row in rows if row.outcome == "done" and "/v1/orgs/" in row.operation}
    changed, deleted = told["PATCH /v1/orgs/{org}"], told["DELETE /v1/orgs/{org}"]
    assert ("most_jobs" in changed.change, changed.subject, changed.who) == (True, "data", "root")
    assert (deleted.subject, deleted.who) == ("d2", "root")


async def test_deleting_an_organisation_with_a_browser_needs_a_login_of_the_last_minutes(world: World) -> None:
    root = await installer(world)
    await data_team(world, root)
    user = await world.store.find_user("root")
    assert user is not None
    session = await world.services.access.sessions.open((user, 1))
    headers = {"cookie": f"horae={session}", "origin": "http://127.0.0.1:8080"}
    world.clock.advance(601)
    late = await world.http.delete("/v1/orgs/data", headers=headers)
    assert (late.status_code, late.json()["code"]) == (401, "E_REAUTH")
    again = await world.services.access.sessions.open((user, 1))
    done = await world.http.delete("/v1/orgs/data", headers={**headers, "cookie": f"horae={again}"})
    assert done.status_code == 204


@BOTH
async def test_an_organisation_has_as_many_jobs_as_it_may_and_goes_on_changing_them(world: World) -> None:
    root = await installer(world)
    _, ours = await data_team(world, root)
    assert (await root.ask("PATCH", "/v1/orgs/data", {"most_jobs": 2}))["most_jobs"] == 2
    await ours.ask("POST", "/v1/jobs", {**JOB, "key": "a"}, 201)
    refused = await ours.ask("POST", "/v1/jobs", {"jobs": [JOB, JOB]}, 409)
    assert refused["code"] == "E_ORG_JOBS"
    await ours.ask("POST", "/v1/jobs", {"jobs": [{**JOB, "key": "a", "name": "b"}, {**JOB, "key": "c"}]}, 201)
    await ours.ask("POST", "/v1/jobs", JOB, 409)
    await (await member(world, 1)).ask("POST", "/v1/jobs", JOB, 201)
    await root.ask("PATCH", "/v1/orgs/data", {"most_jobs": None})
    assert await world.store.list_quotas() == {}


@BOTH
async def test_of_an_organisation_as_much_waits_as_may_whoever_asks(world: World) -> None:
    root = await installer(world)
    org, ours = await data_team(world, root)
    await root.ask("PATCH", f"/v1/orgs/{org}", {"most_waiting": 2})
    colleague = await member(world, org, "bob")
    path = f"/v1/jobs/{(await ours.ask('POST', '/v1/jobs', JOB, 201))['jobs'][0]['id']}/run"
    await ours.ask("POST", path, status=201)
    await colleague.ask("POST", path, status=201)
    assert (await colleague.ask("POST", path, status=429))["code"] == "E_ORG_WAITING"
    assert await world.store.count_waiting_in(org, 100) == 2
    assert await world.store.count_waiting_in(1, 100) == 0


async def test_who_was_known_a_moment_ago_is_refused_once_the_organisation_is_gone(world: World) -> None:
    root = await installer(world)
    org, _ = await data_team(world, root)
    _, text = await world.services.access.create("t", "user", "ann", None, org=org)
    await world.services.access.admit(text, "user")
    await root.ask("DELETE", f"/v1/orgs/{org}", status=204)
    with pytest.raises(Unauthenticated):
        await world.services.access.admit(text, "user")


async def test_where_no_organisation_is_limited_nothing_is_counted(world: World, monkeypatch: Any) -> None:
    async def counted(*_: Any) -> int:
        raise AssertionError("nobody asked for it")

    monkeypatch.setattr(world.store, "count_waiting_in", counted)
    monkeypatch.setattr(world.store, "count_jobs_in", counted)
    ours = await member(world, 1)
    [job] = (await ours.ask("POST", "/v1/jobs", JOB, 201))["jobs"]
    await ours.ask("POST", f"/v1/jobs/{job['id']}/run", status=201)
