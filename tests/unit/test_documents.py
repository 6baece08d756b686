"""Bytes → plain data: what is read, what is refused, and that refusing never takes long."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import date
from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horae.errors import CODES, Error, Invalid, Malformed, MediaType, TooLarge
from horae.web.documents import MAX_BYTES, MAX_YAML_VALUES, read_document, read_json, read_plain, read_yaml

JSON = "application/json"
YAML = "application/yaml"
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines may be busy

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)

LONG_TEXT_THRICE = b"a: &a " + b"x" * 500_000 + b"\nb: [*a, *a, *a]"
MANY = b"[" + b"a," * MAX_YAML_VALUES + b"]"

# id, media type, body, class, code, words of the message, path
REFUSED: list[tuple[str, str | None, bytes, type[Error], str, str, str]] = [
    ("C01 syntax", JSON, b'{\n "a": 1,\n', Malformed, "E_JSON_SYNTAX", "line 3, column 1", ""),
    ("C01 trailing", JSON, b'{"a": 1} x', Malformed, "E_JSON_SYNTAX", "line 1, column 10", ""),
    ("C01 raw newline", JSON, b'{"a": "x\ny"}', Malformed, "E_JSON_SYNTAX", "control character", ""),
    ("C03 NaN", JSON, b'{"NaN": "NaN",\n "b": NaN}', Malformed, "E_JSON_SYNTAX", "line 2, column 7: NaN", ""),
    ("C03 Infinity", JSON, b"[Infinity]", Malformed, "E_JSON_SYNTAX", "Infinity is not a number", ""),
    ("C03 -Infinity", JSON, b"-Infinity", Malformed, "E_JSON_SYNTAX", "-Infinity is not a number", ""),
    ("C07 arrays", JSON, b"[" * 100_000 + b"]" * 100_000, Malformed, "E_DEPTH", "64 levels", ""),
    ("C07 unclosed", JSON, b"[" * 1_000_000, Malformed, "E_DEPTH", "64 levels", ""),
    ("C07 objects", JSON, b'{"a":' * 100_000, Malformed, "E_DEPTH", "64 levels", ""),
    ("C07 65 levels", JSON, b"[" * 65 + b"]" * 65, Malformed, "E_DEPTH", "64 levels", ""),
    ("C09 surrogate", JSON, rb'{"a": ["\ud800"]}', Invalid, "E_CHAR", "U+D800", "a[0]"),
    ("C09 surrogate key", JSON, rb'{"\udc00": 1}', Invalid, "E_CHAR", "U+DC00", ""),
    ("NUL", JSON, rb'{"a": "x\u0000"}', Invalid, "E_CHAR", "U+0000", "a"),
    ("backspace", JSON, rb'{"a": {"b c": "\b"}}', Invalid, "E_CHAR", "U+0008", "a['b c']"),
    ("C1 control", JSON, '{"a": "\x9b31m"}'.encode(), Invalid, "E_CHAR", "U+009B", "a"),
    ("DEL", JSON, b'{"a": "\x7f"}', Invalid, "E_CHAR", "U+007F", "a"),
    ("C11 1e999", JSON, b'{"a": [1, 1e999]}', Invalid, "E_RANGE", "finite", "a[1]"),
    ("long integer", JSON, b'{"a": ' + b"9" * 5000 + b"}", Invalid, "E_RANGE", "64 bits", "a"),
    ("duplicate", JSON, b'{"jobs": [{"a": 1, "b": 2, "a": 3}]}', Invalid, "E_DUP_KEY", "key 'a'", "jobs[0].a"),
    ("duplicate escaped", JSON, rb'{"a": 1, "\u0061": 3}', Invalid, "E_DUP_KEY", "key 'a'", "a"),
    ("JSON empty", JSON, b"", Malformed, "E_BODY_EMPTY", "expected a JSON document", ""),
    ("JSON spaces", JSON, b" \n ", Malformed, "E_BODY_EMPTY", "empty", ""),
    ("JSON encoding", JSON, b'{"a": "\xff"}', Malformed, "E_ENCODING", "0xff at offset 7", ""),
    ("A01", YAML, b"", Malformed, "E_BODY_EMPTY", "body is empty; expected a YAML document", ""),
    ("A01 comment", YAML, b"# nothing\n", Malformed, "E_BODY_EMPTY", "empty", ""),
    ("A07", YAML, b"name: x\nrun: 'unclosed\n", Malformed, "E_YAML_SYNTAX", "line 2, column 6", ""),
    ("A07 tab", YAML, b"a:\n\tb: 1\n", Malformed, "E_YAML_SYNTAX", "line 2, column 1", ""),
    ("A09", YAML, b"jobs:\n- name: a\n  run: b\n  name: c", Invalid, "E_DUP_KEY", "(lines 2 and 4)", "jobs[0].name"),
    ("A09 one line", YAML, b"{a: 1, a: 2}", Invalid, "E_DUP_KEY", "lines 1 and 1", "a"),
    ("A11", YAML, b"a: 1\n---\nb: 2\n", Invalid, "E_MULTI_DOC", "line 2", ""),
    ("A13 object", YAML, b"a: !!python/object/new:type [x]", Invalid, "E_YAML_TAG", "!!python/object/new:type", "a"),
    ("A13 name", YAML, b"a: !!python/name:os.system ''", Invalid, "E_YAML_TAG", "!!python/name:os.system", "a"),
    ("A15", YAML, b"name: !!binary aGk=", Invalid, "E_YAML_TAG", "!!binary", "name"),
    ("own tag", YAML, b"a: !secret x", Invalid, "E_YAML_TAG", "!secret", "a"),
    ("tagged mapping", YAML, b"a: !!omap [b: 1]", Invalid, "E_YAML_TAG", "!!omap", "a"),
    ("%TAG", YAML, b"%TAG ! tag:x,2000:\n--- a", Invalid, "E_YAML_TAG", "%TAG at line 1", ""),
    ("A17", YAML, b"a: &a [*a]", Invalid, "E_YAML_ALIAS", "part of", "a[0]"),
    ("A17 mapping", YAML, b"&a {b: *a}", Invalid, "E_YAML_ALIAS", "part of", "b"),
    ("unknown alias", YAML, b"a: *b", Invalid, "E_YAML_ALIAS", "no &b", "a"),
    ("bomb", YAML, BOMB.encode(), Invalid, "E_YAML_ALIAS", "too large", "e[1]"),
    ("large text often", YAML, LONG_TEXT_THRICE, Invalid, "E_YAML_ALIAS", "too large", "b[2]"),
    ("A19", YAML, b"a" * (MAX_BYTES + 1), TooLarge, "E_TOO_LARGE", "1048576", ""),
    ("A19 JSON", JSON, b"1" * (MAX_BYTES + 1), TooLarge, "E_TOO_LARGE", "1048576", ""),
    ("A23", YAML, b"a: \xff", Malformed, "E_ENCODING", "0xff at offset 3", ""),
    ("A25", YAML, rb'jobs: [{name: "\e[31m"}]', Invalid, "E_CHAR", "U+001B", "jobs[0].name"),
    ("YAML raw NUL", YAML, b"a: b\nc: x\x00y", Invalid, "E_CHAR", "line 2, column 5", ""),
    ("YAML deep flow", YAML, b"[" * 1_000_000, Malformed, "E_DEPTH", "64 levels", ""),
    ("YAML deep block", YAML, b"- " * 500_000, Malformed, "E_DEPTH", "64 levels", ""),
    ("YAML 65 levels", YAML, b"[" * 65 + b"]" * 65, Malformed, "E_DEPTH", "64 levels", ""),
    ("YAML list as key", YAML, b"? [a]\n: b", Invalid, "E_TYPE", "a key must be text", ""),
    ("YAML many values", YAML, MANY, Invalid, "E_LIMIT", str(MAX_YAML_VALUES), "[19999]"),
    ("YAML long integer", YAML, b"a: " + b"9" * 100, Invalid, "E_RANGE", "64 bits", "a"),
    ("YAML merge of text", YAML, b"a: {<<: b}", Invalid, "E_TYPE", "<< takes mappings, got a string", "a.<<"),
    ("A73", "image/png", b"a: 1", MediaType, "E_MEDIA_TYPE", "got 'image/png'", ""),
    ("C51 none", None, b"{}", MediaType, "E_MEDIA_TYPE", "got none", ""),
    ("C51 text", "text/plain", b"{}", MediaType, "E_MEDIA_TYPE", "application/json", ""),
    ("charset", "application/json; charset=latin-1", b"{}", MediaType, "E_MEDIA_TYPE", "latin-1", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("media", "body", "kind", "code", "words", "path"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_S09_a_body_that_cannot_be_read_says_why_and_where(
    media: str | None, body: bytes, kind: type[Error], code: str, words: str, path: str
) -> None:
    with pytest.raises(Error) as caught:
        read_document(body, media)
    error = caught.value
    assert (type(error), error.code, error.path) == (kind, code, path)
    assert words in error.message
    assert code in CODES
    assert len(error.message) < 400


HOSTILE = {
    "JSON deep": (JSON, b"[" * 100_000 + b"]" * 100_000),
    "JSON broad": (JSON, b"[" + b",".join([b"[" * 70 + b"]" * 70] * 7000) + b"]"),
    "JSON double keys": (JSON, b"{" + b",".join([b'"a":1'] * 170_000) + b"}"),
    "JSON digits": (JSON, b"9" * 1_000_000),
    "JSON quotes": (JSON, b"[[" * 40 + b'"' * 900_000),
    "YAML deep": (YAML, b"- " * 500_000),
    "YAML many": (YAML, b"".join(b"x%05d: 1\n" % number for number in range(100_000))),
    "YAML bomb": (YAML, BOMB.encode()),
    "YAML directives": (YAML, b"".join(b"%%TAG !%d! tag:x,2000:\n" % number for number in range(40_000)) + b"--- a"),
    "YAML unclosed": (YAML, b"a: 'x\n" + b"y\n" * 500_000),
    "YAML digits": (YAML, b"a: " + b"9" * 1_000_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_refusing_takes_no_time(name: str) -> None:
    """The promise is 0.1 s of CPU on an idle machine; busy neighbours make caches cold, not algorithms worse."""
    media, body = HOSTILE[name]
    spent = []
    for _ in range(3):
        before = time.process_time()
        with pytest.raises(Error):
            read_document(body, media)
        spent.append(time.process_time() - before)
    assert min(spent) < 0.4


READ: list[tuple[str, bytes, Any]] = [
    ("byte order mark", b"\xef\xbb\xbfa: b", {"a": "b"}),
    ("words", b"[a b, 'yes', \"no\", 2027-01-01T00:00:00Z, '2027-01-01', 10:30, 08, 1.2.3, =]",
     ["a b", "yes", "no", "2027-01-01T00:00:00Z", "2027-01-01", "10:30", "08", "1.2.3", "="]),
    ("booleans", b"[yes, No, on, OFF, true, False]", [True, False, True, False, True, False]),
    ("nulls", b"[~, null, ]\n", [None, None]),
    ("empty value", b"a:\n", {"a": None}),
    ("whole numbers", b"[0, -7, +7, 1_000, 0x1F, 0o17, 017]", [0, -7, 7, 1000, 31, 15, 15]),
    ("numbers", b"[1.5, -.5, 1., 1e3, 2.5e-1, .inf, -.inf]", [1.5, -0.5, 1.0, 1000.0, 0.25, inf, -inf]),
    ("huge number", b"a: 1e309", {"a": inf}),
    ("date", b"a: 2024-02-24", {"a": date(2024, 2, 24)}),
    ("no such date", b"a: 2024-02-30", {"a": "2024-02-30"}),
    ("keys are text", b"{on: 1, 2: b, null: c, 2024-02-24: d}", {"on": 1, "2": "b", "null": "c", "2024-02-24": "d"}),
    ("block text", b"run: |\n  a\n  \tb\n", {"run": "a\n\tb\n"}),
    ("escapes", rb'a: "\t\n\xe9"', {"a": "\t\n\u00e9"}),
    ("alias", b"a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
    ("alias of a key", b"&x a: b\nc: *x", {"a": "b", "c": "a"}),
    ("alias as key", b"a: &x b\n*x : c", {"a": "b", "b": "c"}),
    ("merge", b"a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
    ("merge first wins", b"a: {<<: [{b: 1}, {b: 2, c: 2}]}", {"a": {"b": 1, "c": 2}}),
    ("64 levels", b"[" * 64 + b"]" * 64, json.loads("[" * 64 + "]" * 64)),
    ("null document", b"null", None),
    ("JSON is YAML", b'{"a": [1, "b"]}', {"a": [1, "b"]}),
    ("letters", "a: čeština, tiếng Việt".encode(), {"a": "čeština, tiếng Việt"}),
]  # fmt: skip


@pytest.mark.parametrize(("body", "value"), [row[1:] for row in READ], ids=[row[0] for row in READ])
def test_yaml_is_read_as_its_writer_meant_it(body: bytes, value: Any) -> None:
    assert read_yaml(body) == value


def test_json_may_have_a_byte_order_mark_surrogate_pairs_and_escaped_line_ends() -> None:
    assert read_json(b'\xef\xbb\xbf{"a": "\\ud83d\\ude00\\n\\t", "b": "\\\\u0000"}') == {"a": "😀\n\t", "b": "\\u0000"}


def test_json_brackets_inside_text_are_not_depth() -> None:
    body = json.dumps({"a": '[{"\\' * 100, "b": ["x"]})
    assert read_json(body.encode()) == json.loads(body)


def test_64_levels_of_json_are_read_many_times_over() -> None:
    body = b"[" + b",".join([b"[" * 63 + b"]" * 63] * 100) + b"]"
    assert read_json(body) == json.loads(body)


@pytest.mark.parametrize("media", ["application/json", "Application/JSON; charset=UTF-8"])
def test_json_is_chosen_by_media_type(media: str) -> None:
    assert read_document(b'{"a": 1}', media) == {"a": 1}


@pytest.mark.parametrize("media", ["application/yaml", "text/yaml", "application/x-yaml"])
def test_yaml_is_chosen_by_media_type(media: str) -> None:
    assert read_document(b"a: yes", media) == {"a": True}


texts = st.text(st.characters(exclude_categories=("Cs", "Cc")))
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@given(plain)
@patient
def test_every_plain_value_survives_json(value: Any) -> None:
    for is_ascii in (True, False):
        assert read_json(json.dumps(value, ensure_ascii=is_ascii).encode()) == value


@given(st.binary(max_size=200))
@patient
def test_no_bytes_break_the_readers(body: bytes) -> None:
    for media in (JSON, YAML):
        with suppress(Error):
            read_document(body, media)


@given(st.text("[]{}:,-?!&*<>|%@#'\" \n\tab01.~\\", max_size=60))
@patient
def test_no_punctuation_breaks_the_yaml_reader(text: str) -> None:
    with suppress(Error):
        read_yaml(text.encode())


# ── many at once ──


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":2}', b'{"a":{"b":1,"b":2}}', b'{"a":1,"\\u0061":":"}', b'{"a":"\\u0001"}', b'{"a":"\\b"}',
        b'{"a":"\x7f"}', b'{"a":"\xc2\x85"}', b'{"a":9223372036854775808}', b'{"a":1e400}', b'{"a":NaN}', b"", b"1,2",
        b'{"a":"\xff"}', b"[" * 65 + b"]" * 65, b'{"a":1', b"\xef\xbb\xbf{}",
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_the_thorough_reader(text: bytes):
    assert read_plain([b"{}", text]) is None


@patient
@given(st.lists(st.one_of(st.binary(max_size=20), st.text('{}[]":,ab1e-. \\\\\x85\x7f', max_size=30).map(str.encode))))
def test_whatever_is_read_as_plain_is_what_the_thorough_reader_reads(texts: list[bytes]):
    for each, text in zip(read_plain(texts) or [], texts, strict=False):
        assert each.value == read_json(text)
        assert json.loads(each.text) == each.value


@patient
@given(st.dictionaries(st.text(), st.integers() | st.text() | st.floats() | st.dictionaries(st.text(), st.none())))
def test_plain_text_does_not_depend_on_how_it_was_written(value: dict[str, Any]):
    with suppress(UnicodeEncodeError):
        texts = [
            json.dumps(value, ensure_ascii=False, sort_keys=bool(order), indent=order or None).encode()
            for order in (0, 1)
        ]
        one, other = (read_plain([text]) for text in texts)
        assert one is None or other is None or one[0].text == other[0].text
