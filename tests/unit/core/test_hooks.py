"""Calls from outside: which are genuine, and what their runs are given."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from horae.core import hooks
from horae.core.hooks import Call, Ignored
from horae.core.time import schedule
from horae.core.work import webhooks
from horae.core.work.commands import MAX_DATA
from horae.core.work.repositories import pushed_commit
from horae.core.work.specs import parse_trigger
from horae.errors import Error, Invalid, Unauthenticated

NOW = 1_800_000_000
COMMIT = "9b1f3c5d7e9f1a2b3c4d5e6f708192a3b4c5d6e7"
# As GitHub's documentation of signatures has it.
SECRET, BODY = "It's a Secret to Everybody", b"Hello, World!"
DIGEST = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"


def github(**more: Any) -> dict[str, Any]:
    """What GitHub tells of a push, as far as anybody looks at it."""
    return {
        "ref": "refs/heads/main", "before": "0" * 40, "after": COMMIT, "deleted": False,
        "repository": {"full_name": "acme/site", "clone_url": "https://github.com/acme/site.git"},
        "pusher": {"name": "ann", "email": "ann@example.org"},
        "head_commit": {"id": COMMIT, "message": "Mend the door"}, **more,
    }  # fmt: skip


def gitea(**more: Any) -> dict[str, Any]:
    """The same by Gitea, before it had a head_commit."""
    return {
        "ref": "refs/heads/main", "before": "0" * 40, "after": COMMIT,
        "repository": {"full_name": "acme/site", "clone_url": "http://gitea:3000/acme/site.git"},
        "pusher": {"login": "ann", "username": "ann"}, "commits": [{"id": COMMIT, "message": "Mend the door"}], **more,
    }  # fmt: skip


def hook(**fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = parse_trigger({"webhook": fields}).schedule["webhook"]
    return found


@pytest.mark.parametrize(
    ("form", "header", "value"),
    [
        ("github", "x-hub-signature-256", f"sha256={DIGEST}"),
        ("gitea", "x-gitea-signature", DIGEST),
        ("plain", "x-horae-signature", hooks.sign_plain(SECRET, BODY, NOW - 299)),
        ("plain", "x-horae-signature", hooks.sign_plain(SECRET, BODY, NOW + 299)),
    ],
)
def test_what_is_signed_with_the_secret_is_let_in(form: str, header: str, value: str) -> None:
    hooks.check_signature(form, SECRET, Call({header: value}, BODY), NOW)


@pytest.mark.parametrize(
    ("form", "headers"),
    [
        ("github", {}),
        ("github", {"x-hub-signature": "sha1=2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"}),
        ("github", {"x-gitea-signature": DIGEST}),
        ("github", {"x-hub-signature-256": DIGEST}),
        ("github", {"x-hub-signature-256": "sha256="}),
        ("github", {"x-hub-signature-256": f"sha256={DIGEST[:-1]}8"}),
        ("github", {"x-hub-signature-256": "sha256=\u00e9"}),
        ("gitea", {"x-gitea-signature": ""}),
        ("gitea", {"x-gitea-signature": "0" * 64}),
        ("plain", {"x-horae-signature": DIGEST}),
        ("plain", {"x-horae-signature": f"t={NOW},v1={DIGEST}"}),
        ("plain", {"x-horae-signature": hooks.sign_plain(SECRET, b"another", NOW)}),
        ("plain", {"x-horae-signature": hooks.sign_plain(SECRET, BODY, NOW - 301)}),
        ("plain", {"x-horae-signature": hooks.sign_plain(SECRET, BODY, NOW + 301)}),
        ("plain", {"x-horae-signature": f"t={'9' * 400},v1={DIGEST}"}),
        ("plain", {"x-horae-signature": "t=٣,v1=" + DIGEST}),
    ],
)
def test_what_is_not_signed_with_the_secret_is_refused(form: str, headers: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated) as refused:
        hooks.check_signature(form, SECRET, Call(headers, BODY), NOW)
    assert refused.value.code == "E_SIGNATURE"
    assert refused.value.status == 401


def test_a_plain_signature_is_that_of_the_moment_and_the_body() -> None:
    """The line below is what `openssl dgst -sha256 -hmac` says of them."""
    signed = "t=1800000000,v1=1d4a7592ae3975c74820b8984b614a5fd6ac817e81302c69861672dc2066a046"
    assert hooks.sign_plain(SECRET, BODY, NOW) == signed


def test_only_the_token_of_which_the_hash_is_kept_opens_an_address() -> None:
    assert hooks.is_token("known", hooks.hash_of("known"))
    assert not hooks.is_token("other", hooks.hash_of("known"))
    assert not hooks.is_token("", None)
    assert not hooks.is_token("\ud800", None)


@pytest.mark.parametrize(
    ("form", "headers", "is_signed", "key"),
    [
        ("github", {"x-github-delivery": "d-1"}, True, "d-1"),
        ("gitea", {"x-gitea-delivery": "d-2", "idempotency-key": "k"}, True, "d-2"),
        ("plain", {"idempotency-key": "k", "x-horae-signature": "t=1,v1=a"}, True, "k"),
        ("plain", {"x-horae-signature": "t=1,v1=a"}, True, "t=1,v1=a"),
        ("plain", {"x-horae-signature": "t=1,v1=a"}, False, None),
        ("plain", {}, False, None),
        ("github", {}, False, None),
    ],
)
def test_a_delivery_is_known_again(form: str, headers: dict[str, str], is_signed: bool, key: str | None) -> None:
    assert hooks.delivery_key(form, Call(headers, b""), is_signed=is_signed) == key


@pytest.mark.parametrize("key", ["", " ", "a b", "é", "x" * 201])
def test_the_name_of_a_delivery_is_visible_ascii(key: str) -> None:
    with pytest.raises(Invalid):
        hooks.delivery_key("github", Call({"x-github-delivery": key}, b""), is_signed=False)


# ── data ──


@pytest.mark.parametrize(("form", "said"), [("github", github()), ("gitea", gitea())])
def test_both_systems_tell_of_a_push_in_one_form(form: str, said: dict[str, Any]) -> None:
    data = hooks.read_call(hook(format=form), Call({f"x-{form}-event": "push"}, b""), said, None)
    assert isinstance(data, dict)
    assert data.pop("payload") == said
    assert data == {
        "event": "push", "repository": "acme/site", "clone_url": said["repository"]["clone_url"], "branch": "main",
        "commit": COMMIT, "pusher": "ann", "message": "Mend the door",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("event", "said", "why"),
    [
        ("ping", {"zen": "Speak like a human."}, "nothing is done for 'ping' here, only for push"),
        ("push", github(ref="refs/heads/side"), "the push is to 'side', and only main and release/* count here"),
        ("push", github(ref="refs/heads/main/deeper"), "only main"),
        ("push", github(ref="refs/tags/v1"), "a tag was pushed"),
        ("push", github(deleted=True), "the branch 'main' was deleted"),
        ("push", github(after="0" * 40), "the branch 'main' was deleted"),
    ],
)
def test_what_nobody_asked_for_makes_no_run(event: str, said: dict[str, Any], why: str) -> None:
    wanted = hook(format="github", branches=["main", "release/*"])
    ignored = hooks.read_call(wanted, Call({"x-github-event": event}, b""), said, None)
    assert isinstance(ignored, Ignored)
    assert why in ignored.why


def test_a_star_stands_for_any_branch_of_a_name() -> None:
    wanted = hook(format="github", branches=["release/*"])
    data = hooks.read_call(wanted, Call({"x-github-event": "push"}, b""), github(ref="refs/heads/release/7"), None)
    assert isinstance(data, dict)
    assert data["branch"] == "release/7"


def test_a_payload_that_is_too_large_is_left_out() -> None:
    said = github(commits=[{"message": "x" * MAX_DATA}])
    data = hooks.read_call(hook(format="github"), Call({"x-github-event": "push"}, b""), said, {"own": 1})
    assert isinstance(data, dict)
    assert "payload" not in data
    assert (data["own"], data["commit"]) == (1, COMMIT)


def test_the_body_of_a_plain_call_goes_before_the_data_of_the_trigger() -> None:
    plain, call = hook(), Call({}, b"")
    assert hooks.read_call(plain, call, {"a": 1}, {"a": 0, "b": 2}) == {"a": 1, "b": 2}
    assert hooks.read_call(plain, call, None, {"b": 2}) == {"b": 2}
    assert hooks.read_call(plain, call, None, None) is None


@pytest.mark.parametrize("said", [[], "text", 7, {"a": float("nan")}, {"a": "\0"}, {"a": "x" * MAX_DATA}])
def test_a_plain_body_that_cannot_be_data_is_refused(said: Any) -> None:
    with pytest.raises(Error) as refused:
        hooks.read_call(hook(), Call({}, b""), said, None)
    assert refused.value.status == 422


@pytest.mark.parametrize(
    "said",
    [None, [], 7, {}, {"ref": 5}, {"ref": "refs/heads/main", "after": COMMIT, "repository": [], "pusher": "ann"},
     github(commits="x", head_commit=[1]), github(commits=[7], head_commit=None), github(repository={"full_name": {}}),
     json.loads('{"ref":"refs/heads/main","after":"f","pusher":{"name":"\\u0000"}}')],
)  # fmt: skip
@pytest.mark.parametrize("form", ["github", "gitea"])
def test_whatever_a_system_tells_is_data_or_a_refusal(form: str, said: Any) -> None:
    found: Any = None
    with suppress(Invalid):
        found = hooks.read_call(hook(format=form), Call({f"x-{form}-event": "push"}, b""), said, None)
    assert found is None or isinstance(found, dict | Ignored)


# ── documents ──


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"webhook": {}}, "when its address is called"),
        ({"webhook": {"secret": "s"}}, "when its address is called, signed"),
        ({"webhook": {"format": "github", "branches": ["main", "dev"]}}, "when GitHub tells of a push to main or dev"),
        ({"webhook": {"format": "gitea", "events": ["push", "release"]}}, "when Gitea tells of a push or release"),
    ],
)
def test_a_webhook_is_said_in_words(document: dict[str, Any], words: str) -> None:
    read = parse_trigger(document).schedule
    assert schedule.describe(read) == words
    assert parse_trigger(read).schedule == read


def test_a_webhook_has_no_moment() -> None:
    compiled = schedule.compile_schedule(parse_trigger({"webhook": {}}).schedule, seed=1, created_at=NOW)
    assert compiled.first() is None
    assert compiled.next_after(NOW + 1) is None


@pytest.mark.parametrize(
    ("document", "path", "code"),
    [
        ({"webhook": "github"}, "webhook", "E_TYPE"),
        ({"webhook": {"format": "gitlab"}}, "webhook.format", "E_ENUM"),
        ({"webhook": {"branch": ["main"]}}, "webhook.branch", "E_UNKNOWN_FIELD"),
        ({"webhook": {"branches": ["main"]}}, "webhook.branches", "E_FIELD_CONFLICT"),
        ({"webhook": {"format": "github", "branches": []}}, "webhook.branches", "E_EMPTY"),
        ({"webhook": {"format": "github", "events": [1]}}, "webhook.events[0]", "E_TYPE"),
        ({"webhook": {"secret": ""}}, "webhook.secret", "E_EMPTY"),
        ({"webhook": {"secret": {"secret": "-x"}}}, "webhook.secret", "E_PATTERN"),
        ({"webhook": {}, "timezone": "UTC"}, "timezone", "E_UNKNOWN_FIELD"),
        ({"webhook": {}, "cron": "* * * * *"}, "cron", "E_UNKNOWN_FIELD"),
    ],
)
def test_a_wrong_webhook_is_refused_at_its_path(document: dict[str, Any], path: str, code: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_trigger(document)
    assert (path, code) in [(problem.path, problem.code) for problem in refused.value.listed()]


def test_a_secret_that_comes_back_hidden_is_the_one_that_was_there() -> None:
    kept = parse_trigger({"webhook": {"secret": "hunter2"}}).schedule
    shown = webhooks.shown(kept)
    assert shown == {"webhook": {"format": "plain", "secret": "******"}}
    assert webhooks.kept(shown, kept) == kept
    assert webhooks.outline(shown) == webhooks.outline(kept)
    with pytest.raises(Invalid):
        webhooks.kept(shown, {})
    named = parse_trigger({"webhook": {"secret": {"secret": "KEY"}}}).schedule
    assert webhooks.shown(named) == named


# ── what is built ──


@pytest.mark.parametrize(
    "url",
    ["https://github.com/acme/site.git", "https://github.com/Acme/Site", "git@github.com:acme/site.git",
     "ssh://git@host/acme/site/", "file:///srv/acme/site.git"],
)  # fmt: skip
def test_a_push_names_the_commit_that_is_built(url: str) -> None:
    data = {"event": "push", "repository": "acme/site", "commit": COMMIT}
    assert pushed_commit(data, url) == COMMIT


@pytest.mark.parametrize(
    ("data", "url"),
    [
        ({"event": "push", "repository": "acme/other", "commit": COMMIT}, "https://github.com/acme/site"),
        ({"event": "push", "repository": "site", "commit": COMMIT}, "https://github.com/acme/big-site"),
        ({"event": "release", "repository": "acme/site", "commit": COMMIT}, "https://github.com/acme/site"),
        ({"event": "push", "repository": "acme/site", "commit": "main"}, "https://github.com/acme/site"),
        ({"event": "push", "repository": "", "commit": COMMIT}, "https://github.com/acme/site"),
        ({"event": "push", "commit": COMMIT}, "https://github.com/acme/site"),
        ([], "https://github.com/acme/site"),
        (None, "https://github.com/acme/site"),
    ],
)
def test_other_data_changes_nothing_of_what_is_built(data: Any, url: str) -> None:
    assert pushed_commit(data, url) is None
