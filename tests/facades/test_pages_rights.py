"""What pages offer is what may be done: whatever one permission somebody has, no button is answered with 403."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from horae.core.model import State
from horae.core.roles import Permission, Role
from tests.facades.test_pages_operate import make
from tests.facades.world import World

HTML = {"accept": "text/html"}
PAGES = ("/", "/jobs", "/jobs?q=job", "/jobs/1", "/runs", "/runs?state=failed", "/runs?state=queued", "/runs/1",
         "/runs/2", "/timeline", "/workflows", "/queues", "/forecast", "/cluster", "/alerts", "/audit", "/settings",
         "/settings/sessions", "/settings/tokens", "/settings/users", "/settings/roles",
         "/settings/secrets")  # fmt: skip
# What scripts ask for buttons that do not name it themselves.
ASKED = {
    "rerun": ("POST", "/v1/runs/rerun", {"runs": [1]}), "cancel": ("POST", "/v1/runs/cancel", {"runs": [2]}),
    "run": ("POST", "/v1/runs", {"runs": [{"job": 1}]}), "pause": ("POST", "/v1/jobs/1/pause", None),
    "resume": ("POST", "/v1/jobs/1/resume", None), "approve": ("POST", "/v1/runs/3/approve", {}),
    "reject": ("POST", "/v1/runs/3/reject", {}), "tag": ("PUT", "/v1/jobs/1", None),
}  # fmt: skip


@pytest.fixture
async def furnished(world: World) -> World:
    """A job with a run that failed and one that waits, a queue, an alert channel, a user."""
    job_id = await make(world, "job one", tags=["nightly"])
    run = await world.jobs.run_now(job_id)
    await (await world.take(run.id)).end(State.FAILED, exit_code=3)
    await world.jobs.run_now(job_id)
    for method, path, body in (
        ("PUT", "/v1/queues/reports", {"concurrency": 4}),
        ("PUT", "/v1/alerts/channels/ops", {"kind": "webhook", "url": "http://127.0.0.1:9/"}),
        ("PUT", "/v1/alerts/rules/nights", {"when": "failure", "channels": ["ops"]}),
        ("PUT", "/v1/secrets/DB", {"value": "hunter2"}),
    ):
        assert (await world.http.request(method, path, json=body)).status_code < 300, path
    await world.join()
    return world


def offered(text: str) -> set[tuple[str, str, str]]:
    """What may be asked from a page: method, address, and what for."""
    text = html.unescape(text)
    found = set()
    for tag in re.findall(r"<(?:button|form|a)\b[^>]*>", text):
        facts = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
        if "data-post" in facts:
            found.add((facts.get("data-method", "POST"), facts["data-post"], "{}"))
        if "data-send" in facts:
            method, _, path = facts["data-send"].partition(" ")
            found.add((method, re.sub(r"{\w+}", "x", path), "{}"))
        if tag.startswith("<a") and re.match(
            r"/(jobs|runs|settings|audit|alerts|cluster|queues)\b", facts.get("href", "")
        ):
            found.add(("GET", facts["href"], ""))
        for name in ("data-bulk", "data-whole", "data-verb", "data-act"):
            if facts.get(name) in ASKED and "href" not in facts:
                found.add(("ASK", facts[name], ""))
        if "data-rerun" in facts:
            found.add(("ASK", "run" if "hidden" in tag else "rerun", ""))
    return found


async def refused(world: World, headers: dict[str, str]) -> tuple[set[Any], set[Any]]:
    """What is offered on any page, and what of it is answered with 403."""
    wanted = set()
    for path in PAGES:
        answer = await world.http.get(path, headers={**HTML, **headers})
        if answer.status_code == 200:
            wanted |= offered(answer.text)
        else:
            assert answer.status_code == 403, (path, answer.status_code)
    bad = set()
    for one in sorted(wanted):
        method, path, body = ("POST", "", "") if one[0] == "ASK" else one
        if one[0] == "ASK":
            method, path, given = ASKED[one[1]]
        else:
            given = {} if body else None
        accept = HTML if method == "GET" else {}
        answer = await world.http.request(method, path, json=given, headers={**headers, **accept})
        if answer.status_code == 403:
            bad.add((*one, answer.text[:200]))
        assert answer.status_code < 500, (one, answer.text)
    return wanted, bad


def role_of(*permissions: Permission) -> Role:
    return Role("+".join(permissions))


async def login(world: World, role: Role, org: int = 1, owner: str = "eve") -> dict[str, str]:
    _, text = await world.services.access.create(f"a {role}"[:60], "user", owner, None, role=role, org=org)
    return {"authorization": f"Bearer {text}"}


@pytest.mark.parametrize("permission", [each for each in Permission if each is not Permission.READ])
async def test_who_has_one_permission_is_offered_only_what_is_not_refused(
    furnished: World, permission: Permission
) -> None:
    role = role_of(Permission.READ, permission)
    wanted, bad = await refused(furnished, await login(furnished, role))
    assert bad == set()
    if permission in (Permission.RUN, Permission.CANCEL, Permission.PAUSE, Permission.WRITE, Permission.ALERTS):
        assert len([one for one in wanted if one[0] != "GET"]) > 0


async def test_a_viewer_is_offered_nothing_that_changes_something(furnished: World) -> None:
    wanted, bad = await refused(furnished, await login(furnished, Role.VIEWER))
    assert bad == set()
    assert [one for one in wanted if one[0] != "GET"] == []


async def test_an_admin_of_another_organisation_is_not_offered_what_belongs_to_the_installation(
    furnished: World,
) -> None:
    org = (await furnished.http.post("/v1/orgs", json={"name": "data"})).json()["id"]
    headers = await login(furnished, Role.ADMIN, org)
    for path, what in (("/queues", "/v1/queues/default/pause"), ("/cluster", "/cordon")):
        text = (await furnished.http.get(path, headers={**HTML, **headers})).text
        assert what not in text, path
    assert "/v1/queues/default/pause" in (await furnished.http.get("/queues", headers=HTML)).text
    assert "/cordon" in (await furnished.http.get("/cluster", headers=HTML)).text


async def test_who_was_granted_something_on_a_job_is_offered_it_there(furnished: World) -> None:
    await furnished.http.post("/v1/grants", json={"who": "eve", "role": "editor", "tag": "nightly"})
    headers = await login(furnished, Role.VIEWER)
    for path, expected in (("/jobs/1", ("Run now", ">Pause<", ">Edit<")), ("/runs/2", (">Cancel<",))):
        text = (await furnished.http.get(path, headers={**HTML, **headers})).text
        for what in expected:
            assert what in text, (path, what)
    _, bad = await refused(furnished, headers)
    assert bad == set()
