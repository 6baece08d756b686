"""The page of alerts: rules and channels are made and changed by its forms, by whoever may."""

from __future__ import annotations

import html
import re

from horae.core.roles import Role
from tests.facades.test_pages_access import token_of
from tests.facades.world import World

HTML = {"accept": "text/html"}


async def shown(world: World, path: str, **headers: str) -> str:
    answer = await world.http.get(path, headers={**HTML, **headers})
    assert answer.status_code == 200, answer.text
    return html.unescape(answer.text)


async def furnish(world: World) -> None:
    for path, body in (
        ("channels/ops", {"kind": "email", "to": ["a@example.org", "b@example.org"]}),
        ("channels/hook", {"kind": "webhook", "url": "https://example.org/x", "secret": {"secret": "SIGN"}}),
        ("channels/chat", {"kind": "slack", "url": {"secret": "CHAT"}}),
        ("rules/nights", {"when": "late", "owner": "ann", "after": "10m", "channels": ["ops", "chat"], "every": "7m",
                          "quiet": {"from": "22:00", "until": "07:00", "zone": "UTC"}, "enabled": False}),
    ):  # fmt: skip
        answer = await world.http.put(f"/v1/alerts/{path}", json=body)
        assert answer.status_code < 300, answer.text


async def test_forms_hold_what_they_change(world: World) -> None:
    await furnish(world)
    text = await shown(world, "/alerts?rule=nights")
    assert 'value="nights" readonly' in text
    assert 'value="600s"' in text
    assert 'value="ops, chat"' in text
    assert 'name="every" value="420s"' in text
    assert re.search(r'name="quiet" data-shape="json" value="{.*"22:00"', text)
    assert not re.search(r'name="enabled" checked', text)
    assert 'value="a@example.org, b@example.org"' in await shown(world, "/alerts?channel=ops")
    text = await shown(world, "/alerts?channel=hook")
    assert 'value="https://example.org/x"' in text
    assert 'name="secret" data-shape="secret" value="SIGN"' in text
    assert 'name="url" data-shape="secret" required value="CHAT"' in await shown(world, "/alerts?channel=chat")


async def test_who_may_not_change_them_is_offered_no_form_and_refused(world: World) -> None:
    await furnish(world)
    headers = await token_of(world, Role.OPERATOR)
    text = await shown(world, "/alerts?rule=nights&channel=ops", **headers)
    for what in ("data-send", 'data-method="DELETE"', "Try it", "Change"):
        assert what not in text
    for method, path in (
        ("PUT", "rules/x"),
        ("DELETE", "rules/nights"),
        ("PUT", "channels/x"),
        ("DELETE", "channels/ops"),
    ):
        answer = await world.http.request(method, f"/v1/alerts/{path}", json={}, headers=headers)
        assert answer.json()["code"] == "E_ROLE", path


async def test_what_is_asked_wrongly_is_refused(world: World) -> None:
    assert (await world.http.get("/alerts?kind=command", headers=HTML)).status_code == 422
    assert "Make a rule" in await shown(world, "/alerts?rule=nobody")
