"""HTTP requests as documents write them, and texts with places."""

from __future__ import annotations

from typing import Any

import pytest

from horae.core.secrets import references
from horae.core.work import kinds
from horae.core.work.specs import parse_job
from horae.core.work.templates import Values, fault_of, secrets_in
from horae.errors import Invalid

URL = "https://example.org/orders"


def spec_of(http: Any, **more: Any) -> Any:
    return parse_job({"name": "n", "http": http, **more}).spec


def problems(http: Any, **more: Any) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        spec_of(http, **more)
    return [(each.path, each.code) for each in caught.value.listed()]


def test_the_field_http_marks_the_kind():
    job = parse_job({"name": "n", "http": {"url": URL}})
    assert (job.kind, job.spec) == ("http", {"http": {"url": URL}})


def test_what_has_its_default_is_left_out_and_the_rest_is_kept():
    usual = {"url": URL, "method": "GET", "expect": ["2xx"], "follow_redirects": 5, "max_body": "16MiB"}
    assert spec_of(usual)["http"] == {"url": URL}
    assert spec_of({"url": URL, "method": "POST", "json": {"a": 1}})["http"] == {"url": URL, "json": {"a": 1}}
    other = {"url": URL, "method": "PUT", "body": "x", "follow_redirects": 0, "expect": [201, "4xx"], "max_body": 7}
    assert spec_of(other)["http"] == other
    assert spec_of({"url": URL, "expect": ["4xx", 201, 201], "max_body": "1KiB"})["http"] == {
        "url": URL, "expect": [201, "4xx"], "max_body": 1024,
    }  # fmt: skip


def test_secrets_are_named_in_texts_and_listed_as_references():
    http = {
        "url": f"{URL}/${{secret.PATH}}",
        "headers": {"X-Key": {"secret": "KEY"}, "Authorization": "Bearer ${secret.TOKEN}"},
        "json": {"list": [{"secret": "INNER"}], "plain": "$${secret.NONE}"},
    }
    spec = spec_of(http)

    assert spec["http"]["headers"] == {"Authorization": "Bearer ${secret.TOKEN}", "X-Key": "${secret.KEY}"}
    assert spec["http"]["json"] == {"list": ["${secret.INNER}"], "plain": "$${secret.NONE}"}
    assert references.names_in(spec) == {"PATH", "KEY", "TOKEN", "INNER"}
    given = references.filled(spec, {name: f"<{name}>" for name in references.names_in(spec)})
    assert given["http"]["secrets"]["KEY"] == "<KEY>"
    assert kinds.shown_spec("http", spec) == spec


def test_a_spec_that_comes_back_is_the_same_spec():
    spec = spec_of({"url": URL, "headers": {"A": {"secret": "T"}}, "json": {"b": "${data.x}"}}, data={"x": 1})
    assert spec_of(spec["http"], data=spec["data"]) == spec
    assert problems({**spec["http"], "secrets": {"OTHER": {"secret": "OTHER"}}}) == [("http.secrets", "E_READ_ONLY")]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8080", "https://[::1]:443/a?b=c", "HTTPS://example.org/a", "https://example.org?x=${data.x}",
        "https://example.org/ä", "https://example.org/%20",
    ],
)  # fmt: skip
def test_addresses_that_can_be_asked(url: str):
    assert spec_of({"url": url})["http"]["url"] == url


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org", "example.org/x", "file:///etc/passwd", "https://", "https:///x", "https://user@example.org/",
        "https://user:word@example.org/", "https://example.org:0/", "https://example.org:70000/", "https://exa mple/",
        "https://${data.host}/x", "https://example.org:${data.port}/", "https://example.org/a b", "https://example.org/#x",
        "https://bücher.example/", "https://-x/", "https://[::1/", "https://a\\b/", "gopher://x/", "//example.org/",
    ],
)  # fmt: skip
def test_addresses_that_cannot_be_asked_are_refused_at_their_path(url: str):
    assert problems({"url": url}) == [("http.url", "E_URL")]


def test_a_password_in_an_address_is_refused_with_what_to_do_and_not_repeated():
    with pytest.raises(Invalid) as caught:
        spec_of({"url": "https://ann:hunter2@example.org/"})
    assert "header" in caught.value.hint
    assert "hunter2" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    ("http", "path", "code"),
    [
        ({}, "http.url", "E_REQUIRED"),
        ("https://example.org", "http", "E_TYPE"),
        ({"url": 7}, "http.url", "E_TYPE"),
        ({"url": f"{URL}\r\nX: y"}, "http.url", "E_CHAR"),
        ({"url": URL, "uri": "x"}, "http.uri", "E_UNKNOWN_FIELD"),
        ({"url": URL, "method": "get"}, "http.method", "E_ENUM"),
        ({"url": URL, "method": "CONNECT"}, "http.method", "E_ENUM"),
        ({"url": URL, "method": "GET", "body": "x"}, "http.method", "E_FIELD_CONFLICT"),
        ({"url": URL, "json": 1, "body": "x"}, "http.body", "E_FIELD_CONFLICT"),
        ({"url": URL, "body": 1}, "http.body", "E_TYPE"),
        ({"url": URL, "body": "a\0"}, "http.body", "E_CHAR"),
        ({"url": URL, "body": "x" * 262_145}, "http.body", "E_LEN"),
        ({"url": URL, "body": {"secret": "no name"}}, "http.body", "E_PATTERN"),
        ({"url": URL, "json": {"a": float("nan")}}, "http.json.a", "E_RANGE"),
        ({"url": URL, "json": {"a": ["x" * 262_145]}}, "http.json", "E_LEN"),
        ({"url": URL, "json": {"a": [{"secret": "no name"}]}}, "http.json.a[0]", "E_PATTERN"),
        ({"url": URL, "json": {"a b": ["${item}"]}}, "http.json['a b'][0]", "E_PATTERN"),
        ({"url": URL, "headers": []}, "http.headers", "E_TYPE"),
        ({"url": URL, "headers": {"A": 1}}, "http.headers.A", "E_TYPE"),
        ({"url": URL, "headers": {"A": "b\r\nEvil: 1"}}, "http.headers.A", "E_CHAR"),
        ({"url": URL, "headers": {"A": "ü"}}, "http.headers.A", "E_CHAR"),
        ({"url": URL, "headers": {"A": "x" * 8193}}, "http.headers.A", "E_LEN"),
        ({"url": URL, "headers": {"A": "${env.HOME}"}}, "http.headers.A", "E_PATTERN"),
        ({"url": URL, "headers": {"A": "${data.x"}}, "http.headers.A", "E_PATTERN"),
        ({"url": URL, "headers": {"A:": "x"}}, "http.headers['A:']", "E_PATTERN"),
        ({"url": URL, "headers": {"A\r\n": "x"}}, "http.headers['A\\r\\n']", "E_PATTERN"),
        ({"url": URL, "headers": {"host": "x"}}, "http.headers.host", "E_FIELD_CONFLICT"),
        ({"url": URL, "headers": {"Transfer-Encoding": "x"}}, "http.headers.Transfer-Encoding", "E_FIELD_CONFLICT"),
        ({"url": URL, "headers": {"X-A": "1", "x-a": "2"}}, "http.headers.x-a", "E_DUP_NAME"),
        ({"url": URL, "headers": {f"X-{n}": "1" for n in range(51)}}, "http.headers", "E_LIMIT"),
        ({"url": URL, "expect": 200}, "http.expect", "E_TYPE"),
        ({"url": URL, "expect": []}, "http.expect", "E_EMPTY"),
        ({"url": URL, "expect": [True]}, "http.expect[0]", "E_ENUM"),
        ({"url": URL, "expect": [200, 600]}, "http.expect[1]", "E_ENUM"),
        ({"url": URL, "expect": ["1xx"]}, "http.expect[0]", "E_ENUM"),
        ({"url": URL, "follow_redirects": 21}, "http.follow_redirects", "E_RANGE"),
        ({"url": URL, "follow_redirects": True}, "http.follow_redirects", "E_TYPE"),
        ({"url": URL, "max_body": 0}, "http.max_body", "E_RANGE"),
        ({"url": URL, "max_body": "much"}, "http.max_body", "E_TYPE"),
    ],
)
def test_what_is_wrong_is_told_at_its_path(http: Any, path: str, code: str):
    assert problems(http) == [(path, code)]


def test_a_request_is_one_kind_of_work_and_steps_are_another():
    assert problems({"url": URL}, steps=[{"run": "true"}])[0][1] == "E_FIELD_CONFLICT"
    assert problems({"url": URL}, env={"A": "b"}) == [("env", "E_FIELD_CONFLICT")]


def test_classes_of_failures_may_decide_about_another_attempt():
    retry = {"attempts": 3, "on": ["Status5xx", "TimeoutError"], "never": ["Status501"]}
    policy = parse_job({"name": "n", "http": {"url": URL}, "retry": retry}).policy
    assert (policy.retry.on, policy.retry.never) == (("Status5xx", "TimeoutError"), ("Status501",))
    with pytest.raises(Invalid, match="have classes"):
        parse_job({"name": "n", "steps": [{"run": "true"}], "retry": retry})


# ── texts with places ──────────────────────────────────────────────────────────────────────────────

VALUES = Values({"a": {"b": [1, {"c": "x/ä"}]}, "no": None, "yes": True, "${data.a}": "odd"}, {"S": "${data.a} $${"})


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("${data.a.b.1.c}", "x/ä"),
        ("<${data.a.b.0}|${data.no}|${data.yes}>", "<1|null|true>"),
        ("x ${data.a.b}", 'x [1,{"c":"x/ä"}]'),
        ("${secret.S}!", "${data.a} $${!"),
        ("$${data.a} $$", "${data.a} $$"),
        ("$ {x} $x", "$ {x} $x"),
    ],
)
def test_places_are_spelled_out(text: str, filled: str):
    assert fault_of(text) == ""
    assert VALUES.fill(text) == filled


def test_a_text_that_is_one_place_keeps_the_type():
    assert VALUES.fill_all({"n": ["${data.a.b.0}", "${data.no}", "${data.a}"], "t": "n ${data.a.b.0}", "z": 0}) == {
        "n": [1, None, {"b": [1, {"c": "x/ä"}]}], "t": "n 1", "z": 0,
    }  # fmt: skip


def test_what_comes_from_the_data_is_escaped_and_what_is_secret_is_not():
    values = Values({"a": "x/../y"}, {"S": "p/q"})
    assert values.fill("/${data.a}/${secret.S}", lambda text: text.replace("/", "%2F")) == "/x%2F..%2Fy/p/q"


@pytest.mark.parametrize("path", ["x", "a.x", "a.b.7", "a.b.x", "a.b.0.c", "no.x"])
def test_a_place_that_the_data_has_not_is_named(path: str):
    with pytest.raises(Invalid, match=r"has no data\."):
        VALUES.fill(f"${{data.{path}}}")


@pytest.mark.parametrize(
    "text", ["${}", "${data.}", "${data..a}", "${secret}", "${secret.a b}", "${x.y}", "${data", "${"]
)
def test_what_is_no_place_is_a_fault(text: str):
    assert fault_of(text)
    assert secrets_in(text) == []
