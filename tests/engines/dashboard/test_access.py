"""Who may do what, and who did it, in a real browser: tokens, secrets, grants, users, the audit log and its
verification; a viewer who logs in is offered nothing and refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.acceptance.server import DEADLINE, Server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dashboard-access")]


def test_a_token_is_made_shown_once_good_and_revoked(page: Any, server: Server) -> None:
    page.goto("/settings/tokens")
    page.get_by_label("Name").fill("laptop")
    page.get_by_label("Role").select_option("viewer")
    page.get_by_role("button", name="Make the token").click()
    token = page.locator("dialog.once pre").inner_text()
    asked = {"headers": {"authorization": f"Bearer {token}"}}
    assert server.http.get("/v1/me", **asked).json()["role"] == "viewer"
    page.get_by_role("button", name="I have it").click()
    row = page.locator("#tokens tr", has_text="laptop")
    row.wait_for()
    assert token not in page.content()
    row.get_by_role("button", name="Revoke").click()
    page.locator("dialog.sure").get_by_role("button", name="Revoke").click()
    row.get_by_text("revoked").wait_for()
    assert server.http.get("/v1/me", **asked).status_code == 401


def test_a_secret_is_set_and_deleted_and_its_value_is_never_shown(page: Any, server: Server) -> None:
    page.goto("/settings/secrets")
    page.get_by_label("Name").fill("DB")
    page.get_by_label("Value").fill("correct horse")
    page.get_by_role("button", name="Set", exact=True).click()
    row = page.locator("#secrets tr", has_text="DB")
    row.wait_for()
    assert "correct horse" not in page.content()
    row.get_by_role("button", name="Delete").click()
    page.locator("dialog.sure").get_by_role("button", name="Delete").click()
    row.wait_for(state="detached")
    assert server.get("/v1/secrets")["items"] == []


def test_a_user_is_made_invited_granted_more_and_disabled(page: Any, server: Server) -> None:
    page.goto("/settings/users")
    form = page.locator('form[data-send="POST /v1/users"]')
    form.get_by_label("Name").fill("zoe")
    form.get_by_role("button", name="Make the user").click()
    row = page.locator("#users tr", has_text="zoe")
    row.get_by_role("button", name="Invite").click()
    assert "/login/invite/" in page.locator("dialog.once pre").inner_text()
    page.get_by_role("button", name="I have it").click()
    page.goto("/settings/roles")
    page.get_by_label("Who").fill("zoe")
    page.get_by_label("Which").fill("nightly")
    page.get_by_role("button", name="Grant", exact=True).click()
    page.locator("#grants tr", has_text="jobs with the tag nightly").wait_for()
    [grant] = server.get("/v1/grants")["items"]
    assert (grant["who"], grant["role"], grant["tag"]) == ("zoe", "operator", "nightly")
    page.goto("/settings/users")
    row.get_by_role("button", name="Disable").click()
    page.locator("dialog.sure").get_by_role("button", name="Disable").click()
    row.get_by_role("button", name="Enable").wait_for()


def test_many_jobs_are_tagged_and_the_audit_log_has_it_and_verifies(page: Any, server: Server) -> None:
    jobs = server.submit(*({"name": f"to tag {n}", "tags": ["old"], "steps": [{"run": "true"}]} for n in range(2)))
    page.goto("/jobs?q=to+tag")
    page.get_by_label("Choose all jobs of this page").check()
    page.get_by_role("button", name="Tag", exact=True).click()
    page.get_by_role("dialog").get_by_label("Tag", exact=True).fill("nightly")
    page.get_by_role("button", name="Tag 2 jobs").click()
    page.get_by_text("2 jobs tagged").wait_for()
    for job in jobs:
        assert server.get(f"/v1/jobs/{job['id']}")["policy"]["tags"] == ["nightly", "old"]
    page.goto("/audit?kind=job")  # one row for both
    page.get_by_text(re.compile("[0-9]+ changes?")).first.click()
    page.locator(".diff ins", has_text="nightly").first.wait_for()
    page.get_by_role("button", name="Verify").click()
    page.get_by_text(re.compile("rows? from 1 on: each is as it was sealed")).wait_for()
    page.get_by_label("A head that was written down").fill(f"1:{'0' * 64}")  # not what row 1 was sealed with
    page.get_by_role("button", name="Verify").click()
    page.locator("#verdict .bad", has_text="not as sealed").wait_for()


def test_a_viewer_who_logs_in_is_offered_nothing_and_refused(
    browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("viewer")
    server = Server(directory)
    server.start()
    token = server.post("/v1/tokens", {"name": "v", "owner": "eve", "role": "viewer"}, status=201)["token"]
    server.submit({"name": "not yours", "steps": [{"run": "true"}]})
    server.stop()
    server = Server(directory, "--require-token").start()
    try:
        page = browser.new_context(base_url=server.url).new_page()
        page.set_default_timeout(DEADLINE * 1000)
        page.goto("/jobs/1")
        page.get_by_text("With a token").click()
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in with the token").click()
        page.get_by_role("heading", name="not yours").wait_for()
        assert page.get_by_role("button", name=re.compile("Run now|Pause")).count() == 0
        assert page.get_by_role("link", name="Audit").count() == 0
        page.goto("/audit")
        page.get_by_role("heading", name="You may not see this").wait_for()
        page.get_by_text("E_ROLE").wait_for()
        page.locator("#who summary").click()
        page.get_by_role("button", name="Log out").click()
        page.get_by_role("heading", name="Log in to Horae").wait_for()
    finally:
        server.stop()
