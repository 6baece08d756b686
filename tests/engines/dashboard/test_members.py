"""Users, organisations, grants and sessions in their pages, in a real browser: members are made and taken out, an
invitation becomes a login by password, and sessions are switched, ended and left."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.server import DEADLINE, Server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard-members")]

PASSWORD = "correct horse battery staple"


@pytest.fixture
def admin(page: Any) -> Any:
    """A tab of whoever runs the installation: the user of this machine, without a login."""
    return page


def agree(page: Any, verb: str) -> None:
    page.locator("dialog.sure").get_by_role("button", name=verb, exact=True).click()


def enter(browser: Any, server: Server, name: str) -> Any:
    """A tab of somebody who logs in with a password. The browser knows its zone, so that no page comes once more."""
    context = browser.new_context(base_url=server.url)
    context.add_cookies([{"name": "horae-look", "value": "auto.roomy.UTC", "url": server.url}])
    page = context.new_page()
    page.set_default_timeout(DEADLINE * 1000)
    page.goto("/login")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()
    page.locator("#who summary", has_text=name).wait_for()
    return page


def test_organisations_members_and_grants_are_made_and_taken_back(admin: Any, server: Server) -> None:
    admin.goto("/settings/users")
    admin.locator("#organisations").get_by_label("Name").fill("sales")
    admin.get_by_role("button", name="Make the organisation").click()
    row = admin.locator("#organisations tr", has_text="sales")
    row.wait_for()
    row.get_by_role("button", name="Delete").click()
    agree(admin, "Delete")
    row.wait_for(state="detached")

    server.post("/v1/users", {"name": "max"}, status=201)
    admin.reload()
    members = admin.locator("#members")
    members.get_by_label("Name").fill("max")
    members.get_by_label("Role").select_option("editor")
    members.get_by_role("button", name="Make a member, or change the role").click()
    member = members.locator("tr", has_text="max")
    member.get_by_role("cell", name="editor").wait_for()
    member.get_by_role("button", name="Take out").click()
    agree(admin, "Take out")
    member.wait_for(state="detached")

    user = admin.locator("#users tr", has_text="max")
    user.get_by_role("button", name="Disable").click()
    agree(admin, "Disable")
    user.get_by_role("button", name="Enable").click()
    user.get_by_role("button", name="Disable").wait_for()

    server.post("/v1/grants", {"who": "max", "role": "operator", "tag": "nightly"}, status=201)
    admin.goto("/settings/roles")
    grant = admin.locator("#grants tr", has_text="max")
    grant.get_by_role("button", name="Take back").click()
    grant.wait_for(state="detached")
    assert server.get("/v1/grants")["items"] == []


def test_an_invitation_becomes_a_login_whose_sessions_are_switched_ended_and_left(
    browser: Any, admin: Any, server: Server
) -> None:
    server.post("/v1/orgs", {"name": "second"}, status=201)
    server.post("/v1/users", {"name": "ann", "org": "second", "role": "editor"}, status=201)
    assert server.http.put("/v1/orgs/1/members/ann", json={"role": "viewer"}).is_success
    admin.goto("/settings/users")
    admin.locator("#users tr", has_text="ann").get_by_role("button", name="Invite").click()
    link = admin.locator("dialog.once pre").inner_text().strip()
    page = browser.new_context().new_page()
    page.set_default_timeout(DEADLINE * 1000)
    page.goto(link)
    for field in page.locator("input[type=password]").all():
        field.fill(PASSWORD)
    page.get_by_role("button", name="Set it and log in").click()
    page.locator("#who summary", has_text="ann").wait_for()

    other = enter(browser, server, "ann")
    other.goto("/settings/sessions")
    other.locator("#sessions tbody tr").nth(1).wait_for()  # this one, and that of the invitation
    other.get_by_role("button", name="End", exact=True).click()
    other.get_by_role("button", name="End", exact=True).wait_for(state="detached")
    other.locator("#who summary").click()
    other.get_by_label("Go on in").select_option(index=1)
    with other.expect_navigation():  # what is opened before that is closed by it
        other.get_by_role("button", name="Switch").click()
    other.locator("#who summary").click()
    other.get_by_text("editor in organisation").wait_for()
    other.get_by_role("button", name="Log out").click()
    other.goto("/")
    other.locator("#who summary").wait_for()
    assert other.locator("#who summary").inner_text() != "ann"
