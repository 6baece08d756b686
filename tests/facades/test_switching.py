"""Users who are in several organisations go on in another: by a header, by a session that remembers, by --org."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from horae.cli.session import Session
from horae.client.address import find_server
from horae.core.audit import AuditFilter
from horae.core.identity import EVERYWHERE, LOCAL
from horae.core.roles import Role
from horae.errors import Invalid
from horae.rpc.callers import Callers
from tests.facades import test_users
from tests.facades.test_native import JOB, problem_of
from tests.facades.test_users import PAGE, log_in, member
from tests.facades.test_walk import token_of
from tests.facades.world import BOTH, World

browser, far = test_users.browser, test_users.far  # fixtures of theirs

IN = "horae-organisation"
BOTH_ROLES = {1: Role.VIEWER, 7: Role.EDITOR}


async def me(client: httpx.AsyncClient, **headers: str) -> tuple[int, str]:
    found = (await client.get("/v1/me", headers=headers)).json()
    return found["org"], found["role"]


@BOTH
async def test_a_header_names_the_organisation_in_which_a_session_acts(world: World, far: httpx.AsyncClient) -> None:
    await world.services.users.create_organisation("data", LOCAL)  # of number 2
    await member(world, far, roles={**BOTH_ROLES, 2: Role.OPERATOR})
    assert await me(far) == (1, "viewer")
    assert await me(far, **{IN: "7"}) == (7, "editor")
    assert await me(far, **{IN: "data"}) == (2, "operator")
    assert (await far.get("/v1/me")).json()["orgs"] == [1, 2, 7]
    made = await far.post("/v1/jobs", json=JOB, headers={IN: "7"})
    assert made.json()["jobs"][0]["org"] == 7
    assert (await far.get("/v1/jobs")).json()["items"] == []
    assert len((await far.get("/v1/jobs", headers={IN: "7"})).json()["items"]) == 1
    said = [(await far.get("/v1/me", headers={IN: org})) for org in ("8", "nowhere", "0", "*", "", "9" * 30)]
    for answer in said:
        problem_of(answer, 403, "E_NO_MEMBER")
    texts = {answer.json()["detail"].partition("organisation")[0] for answer in said}
    assert len(texts) == 1  # whether there is one is told to nobody


@BOTH
async def test_a_session_remembers_where_it_goes_on(world: World, far: httpx.AsyncClient) -> None:
    await member(world, far, roles=BOTH_ROLES)
    shown = (await far.get("/jobs", headers=PAGE)).text
    assert 'action="/organisation"' in shown
    answer = await far.post("/organisation", data={"org": "7", "next": "/jobs"}, headers=PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
    assert await me(far) == (7, "editor")
    assert await me(far, **{IN: "1"}) == (1, "viewer")  # for once
    assert await me(far) == (7, "editor")
    rows = await world.store.list_audit(AuditFilter(), None, 100)
    [row] = [each for each in rows if each.operation == "POST /organisation"]
    assert (row.who, row.outcome, row.change) == ("ann", "done", '{"org":[1,7]}')
    refused = await far.post("/organisation", data={"org": "8"})
    problem_of(refused, 403, "E_NO_MEMBER")
    elsewhere = await far.post("/organisation", data={"org": "7", "next": "https://evil.example"}, headers=PAGE)
    assert elsewhere.headers["location"] == "/"


async def test_whoever_is_in_one_organisation_is_offered_no_switch(world: World, far: httpx.AsyncClient) -> None:
    await member(world, far)
    assert 'action="/organisation"' not in (await far.get("/jobs", headers=PAGE)).text


async def test_an_admin_of_all_organisations_names_any(world: World, far: httpx.AsyncClient) -> None:
    await member(world, far, roles={EVERYWHERE: Role.ADMIN})
    assert await me(far, **{IN: "7"}) == (7, "admin")
    assert 'placeholder="name or number"' in (await far.get("/jobs", headers=PAGE)).text


async def test_a_token_stays_in_its_organisation(world: World, far: httpx.AsyncClient) -> None:
    await member(world, far, roles={1: Role.ADMIN, 7: Role.ADMIN})
    far.cookies.clear()
    headers = {"authorization": f"Bearer {await token_of(world)}"}  # of ann, who is an admin there, too
    assert await me(far, **headers, **{IN: "1"}) == (1, "admin")
    problem_of(await far.get("/v1/me", headers={**headers, IN: "7"}), 403, "E_TOKEN_ORG")


async def logged_in(far: httpx.AsyncClient, world: World) -> dict[str, Any]:
    """Return the token of a program that was let in by a browser."""
    begun = (await far.post("/v1/device")).json()
    await far.post("/device", data={"code": begun["user_code"], "decision": "approve"}, headers=PAGE)
    made: dict[str, Any] = (await far.post("/v1/device/token", json={"device_code": begun["device_code"]})).json()
    far.cookies.clear()
    return made


@BOTH
async def test_the_token_of_a_login_is_good_wherever_its_user_is_a_member(world: World, far: httpx.AsyncClient) -> None:
    await member(world, far, roles=BOTH_ROLES)
    made = await logged_in(far, world)
    headers = {"authorization": f"Bearer {made['token']}"}
    assert await me(far, **headers) == (1, "viewer")
    assert await me(far, **headers, **{IN: "7"}) == (7, "editor")
    problem_of(await far.get("/v1/me", headers={**headers, IN: "8"}), 403, "E_NO_MEMBER")
    boss = (await world.services.access.create("boss", "user", "boss", None))[1]
    admin = {"authorization": f"Bearer {boss}"}
    assert made["id"] not in [each["id"] for each in (await far.get("/v1/tokens", headers=admin)).json()["items"]]
    user = await world.store.find_user("ann")
    assert user is not None
    await world.store.drop_member(7, user.id, unless_last=False)
    world.services.access.doubt_user(user.id)
    problem_of(await far.get("/v1/me", headers={**headers, IN: "7"}), 403, "E_NO_MEMBER")
    assert (await far.delete("/v1/me/token", headers=headers)).status_code == 204
    assert (await far.get("/v1/me", headers=headers)).status_code == 401


# ── who is added elsewhere ──


@BOTH
async def test_being_added_elsewhere_changes_nothing_of_where_one_acts(world: World, far: httpx.AsyncClient) -> None:
    await member(world, far, roles={7: Role.EDITOR})
    headers = {"authorization": f"Bearer {(await logged_in(far, world))['token']}"}
    await log_in(far)
    session = dict(far.cookies)
    far.cookies.clear()
    world.clock.advance(1)
    await world.services.users.add_member(1, "ann", Role.ADMIN, LOCAL)
    assert await me(far, **headers) == (7, "editor")
    assert (await far.post("/v1/jobs", json=JOB, headers=headers)).json()["jobs"][0]["org"] == 7
    far.cookies.update(session)
    assert await me(far) == (7, "editor")
    far.cookies.clear()
    await log_in(far)
    assert await me(far) == (7, "editor")
    assert await me(far, **{IN: "1"}) == (1, "admin")


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_an_admin_learns_nothing_of_users_of_other_organisations(
    world: World, far: httpx.AsyncClient, method: str
) -> None:
    await member(world, far, "boss", roles={1: Role.ADMIN})
    await world.services.users.create("zoe", LOCAL, roles={7: Role.EDITOR})
    body = {"role": "viewer"} if method == "PUT" else None
    said = [await far.request(method, f"/v1/orgs/1/members/{name}", json=body) for name in ("zoe", "yan")]
    for answer in said:
        problem_of(answer, 404, "E_NOT_FOUND")
    texts = [{**each.json(), "request_id": ""} for each in said]
    assert str(texts[0]).replace("zoe", "yan") == str(texts[1])
    zoe = await world.store.find_user("zoe")
    assert zoe is not None
    assert zoe.roles == {7: Role.EDITOR}


async def test_an_admin_says_what_members_may_do_and_who_runs_the_installation_adds_others(
    world: World, far: httpx.AsyncClient
) -> None:
    await member(world, far, "boss", roles={1: Role.ADMIN})
    await world.services.users.create("zoe", LOCAL, roles={7: Role.EDITOR})
    await world.services.users.add_member(1, "zoe", Role.VIEWER, LOCAL)
    assert (await far.put("/v1/orgs/1/members/zoe", json={"role": "editor"})).status_code == 204
    zoe = await world.store.find_user("zoe")
    assert zoe is not None
    assert zoe.roles == {1: Role.EDITOR, 7: Role.EDITOR}
    assert (await far.delete("/v1/orgs/1/members/zoe")).status_code == 204


def test_a_client_names_the_organisation_in_a_header_that_nobody_can_end() -> None:
    def headers(org: int | str | None) -> str:
        return find_server("http://127.0.0.1:8080", None, insecure=False, ca_file=None, org=org).headers

    assert "Horae-Organisation: data\r\n" in headers("data")
    assert "Horae-Organisation: 7\r\n" in headers(7)
    assert "Horae-Organisation" not in headers(None)
    for wrong in ("a\r\nX: 1", "", "a b", "é"):
        with pytest.raises(Invalid):
            headers(wrong)


def test_the_command_line_takes_the_organisation_from_its_option_or_else_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HORAE_ORG", "data")
    session = Session()
    assert session.org == "data"
    session.adopt(organisation="7")
    session.adopt()
    assert session.org == "7"


async def test_over_grpc_metadata_name_the_organisation(world: World) -> None:
    class Context:
        def __init__(self, **metadata: str) -> None:
            self.invocation_metadata = lambda: [(name.replace("_", "-"), value) for name, value in metadata.items()]
            self.peer = lambda: "ipv4:10.0.0.9:4711"

    await world.services.users.create("ann", LOCAL, roles=BOTH_ROLES)
    _, text = await world.services.access.create("login", "user", "ann", None, org=EVERYWHERE)
    callers = Callers(world.services.access, world.audit, lambda _: False)
    for org, role in BOTH_ROLES.items():
        who = await callers.identify(Context(authorization=f"Bearer {text}", horae_organisation=str(org)))
        assert (who.org, who.role) == (org, role)


async def test_whoever_runs_the_server_acts_in_any_organisation_and_sees_all(world: World) -> None:
    made = await world.http.post("/v1/jobs", json=JOB, headers={IN: "7"})
    [job] = made.json()["jobs"]
    assert job["org"] == 7
    assert len((await world.http.get("/v1/jobs", headers={IN: "7"})).json()["items"]) == 1
    assert (await world.http.get(f"/v1/jobs/{job['id']}")).status_code == 200
    problem_of(await world.http.get("/v1/me", headers={IN: "nowhere"}), 403, "E_NO_MEMBER")
    problem_of(await world.http.post("/organisation", data={"org": "7"}), 409, "E_NO_ACCOUNT")
