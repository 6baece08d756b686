"""Rules and channels as documents: what is read, shown, stored and refused."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.alerts.channels import channel_from, channel_text, parse_channel, render_channel
from horae.core.alerts.rules import CONDITIONS, parse_rule, render_rule, rule_from, rule_text
from horae.errors import Error

OK = {"when": "failure", "channels": ["ops"]}
HOOK = {"kind": "webhook", "url": "https://example.org/x"}


def refusal(read: Any, document: Any, name: str = "x") -> tuple[str, str]:
    with pytest.raises(Error) as caught:
        read(document, name)
    [first, *_] = caught.value.listed()
    return first.path, first.code


@pytest.mark.parametrize("when", CONDITIONS)
def test_what_is_shown_can_be_sent_back_and_stored(when: str) -> None:
    rule = parse_rule({**OK, "when": when, "quiet": {"from": "22:00", "until": "07:00"}}, "x")
    assert parse_rule(render_rule(rule), "x") == rule
    assert rule_from(rule_text(rule), "x") == rule
    assert rule_from(rule_text(rule)[:-1] + ',"newer":1}', "x") == rule


@pytest.mark.parametrize(
    ("document", "path", "code"),
    [
        (None, "", "E_TYPE"),
        ([], "", "E_TYPE"),
        ({}, "when", "E_REQUIRED"),
        ({"when": "failure"}, "channels", "E_REQUIRED"),
        ({**OK, "when": "failed"}, "when", "E_ENUM"),
        ({**OK, "when": 1}, "when", "E_TYPE"),
        ({**OK, "channels": []}, "channels", "E_EMPTY"),
        ({**OK, "channels": [1]}, "channels[0]", "E_TYPE"),
        ({**OK, "channels": ["a b"]}, "channels[0]", "E_PATTERN"),
        ({**OK, "count": 0}, "count", "E_RANGE"),
        ({**OK, "count": True}, "count", "E_TYPE"),
        ({**OK, "after": "1m"}, "after", "E_FIELD_CONFLICT"),
        ({**OK, "above": 5}, "above", "E_FIELD_CONFLICT"),
        ({**OK, "job": 1, "owner": "ann"}, "owner", "E_FIELD_CONFLICT"),
        ({**OK, "job": 0}, "job", "E_RANGE"),
        ({**OK, "job": [1]}, "job", "E_TYPE"),
        ({**OK, "when": "node_gone", "owner": "ann"}, "owner", "E_FIELD_CONFLICT"),
        ({**OK, "when": "late", "count": 2}, "count", "E_FIELD_CONFLICT"),
        ({**OK, "when": "late", "after": "soon"}, "after", "E_INTERVAL_SYNTAX"),
        ({**OK, "when": "disk_full", "above": 100}, "above", "E_RANGE"),
        ({**OK, "tell": "all"}, "tell", "E_ENUM"),
        ({**OK, "repeat": "1s"}, "repeat", "E_RANGE"),
        ({**OK, "wait": -1}, "wait", "E_RANGE"),
        ({**OK, "quiet": "night"}, "quiet", "E_TYPE"),
        ({**OK, "quiet": {"from": "22:00"}}, "quiet.until", "E_REQUIRED"),
        ({**OK, "quiet": {"from": 1320, "until": "07:00"}}, "quiet.from", "E_PATTERN"),
        ({**OK, "quiet": {"from": "24:00", "until": "07:00"}}, "quiet.from", "E_PATTERN"),
        ({**OK, "quiet": {"from": "07:00", "until": "07:00"}}, "quiet.until", "E_FIELD_CONFLICT"),
        ({**OK, "quiet": {"from": "22:00", "until": "07:00", "zone": "Berlin"}}, "quiet.zone", "E_TZ_UNKNOWN"),
        ({**OK, "enabled": "yes"}, "enabled", "E_TYPE"),
        ({**OK, "chanels": []}, "chanels", "E_UNKNOWN_FIELD"),
        ({**OK, "name": "y"}, "name", "E_FIELD_CONFLICT"),
    ],
)
def test_bad_rules_are_refused_at_their_path(document: Any, path: str, code: str) -> None:
    assert refusal(parse_rule, document) == (path, code)


@pytest.mark.parametrize(
    "document",
    [
        HOOK,
        {"kind": "webhook", "url": {"secret": "A"}, "secret": {"secret": "B"}},
        {"kind": "slack", "url": {"secret": "A"}},
        {"kind": "teams", "url": {"secret": "A"}},
        {"kind": "email", "to": ["ann@example.org", "o'neil+x@mail.example.org"]},
    ],
)
def test_what_is_shown_of_a_channel_can_be_sent_back_and_stored(document: Any) -> None:
    channel = parse_channel(document, "x")
    assert parse_channel(render_channel(channel), "x") == channel
    assert channel_from(channel_text(channel), "x") == channel


@pytest.mark.parametrize(
    ("document", "path", "code"),
    [
        (7, "", "E_TYPE"),
        ({}, "kind", "E_REQUIRED"),
        ({"kind": "pager"}, "kind", "E_ENUM"),
        ({"kind": "command", "run": "/bin/sh"}, "kind", "E_POLICY"),
        ({"kind": "webhook"}, "url", "E_REQUIRED"),
        ({**HOOK, "url": "ftp://x"}, "url", "E_URL"),
        ({**HOOK, "url": "http://a@b/"}, "url", "E_URL"),
        ({**HOOK, "url": "http://a/\r\nX: y"}, "url", "E_CHAR"),
        ({**HOOK, "url": 1}, "url", "E_TYPE"),
        ({**HOOK, "secret": "plain"}, "secret", "E_TYPE"),
        ({**HOOK, "secret": {"secret": "1"}}, "secret", "E_PATTERN"),
        ({**HOOK, "to": ["a@b"]}, "to", "E_FIELD_CONFLICT"),
        ({"kind": "slack", "url": "https://hooks.slack.com/services/T/B/X"}, "url", "E_TYPE"),
        ({"kind": "email", "to": []}, "to", "E_EMPTY"),
        ({"kind": "email", "to": "a@b"}, "to", "E_TYPE"),
        ({"kind": "email", "to": ["a@b\nBcc: c@d"]}, "to[0]", "E_PATTERN"),
        ({"kind": "email", "to": ["-x"]}, "to[0]", "E_PATTERN"),
    ],
)
def test_bad_channels_are_refused_at_their_path(document: Any, path: str, code: str) -> None:
    assert refusal(parse_channel, document) == (path, code)


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 64, "a/b", "\0"])
def test_names_are_plain(name: str) -> None:
    assert refusal(parse_rule, OK, name) == ("name", "E_PATTERN")
    assert refusal(parse_channel, HOOK, name) == ("name", "E_PATTERN")
