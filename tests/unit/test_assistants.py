"""The protocol of `horae mcp` with lines that nobody should send, and the size and safety of what it answers."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.cli.assistants import arguments, server
from horae.cli.assistants.answers import MOST_CHARACTERS, Found, error_text, fit, text_of
from horae.cli.assistants.protocol import Protocol
from horae.cli.assistants.tools import READING, read_log
from horae.cli.assistants.writing import WRITING
from horae.errors import Error, NotFound

ABOUT = {"name": "horae", "version": "1"}


def converse(*lines: bytes, methods: Any = None) -> list[Any]:
    """Return what is answered to these lines."""
    out = io.BytesIO()
    server.Conversation(Protocol(ABOUT, "", methods or {}), out).hold(io.BytesIO(b"\n".join(lines)))
    return [json.loads(line) for line in out.getvalue().splitlines()]


def request(number: Any, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


# ── lines ──


@pytest.mark.parametrize(
    ("line", "code", "number"),
    [
        (b"nonsense", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', -32700, None),
        (b'{"jsonrpc": "2.0", "id": 1' + b"0" * 5000 + b', "method": "ping"}', -32700, None),
        (b"[]", -32600, None),
        (b"null", -32600, None),
        (b'{"id": 4, "method": "ping"}', -32600, 4),
        (b'{"jsonrpc": "2.0", "id": 5}', -32600, 5),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": 6, "method": "ping", "params": [1]}', -32602, 6),
        (request("x", "no/such"), -32601, "x"),
        (request(7, "ping", _meta={"io.modelcontextprotocol/protocolVersion": "1999-01-01"}), -32022, 7),
        (request(8, "ping", _meta={"io.modelcontextprotocol/protocolVersion": {}}), -32022, 8),
        (b"x" * (server.MOST_BYTES + 2), -32600, None),
    ],
    ids=range(17),
)
def test_a_line_that_makes_no_sense_is_answered_and_the_next_one_too(line: bytes, code: int, number: Any) -> None:
    answers = converse(line, request("next", "ping"))
    [refused] = [one for one in answers if "error" in one]
    assert (refused["error"]["code"], refused["id"]) == (code, number)
    assert {"jsonrpc": "2.0", "id": "next", "result": {}} in answers


def test_notifications_answers_and_empty_lines_are_not_answered() -> None:
    told = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'
    assert converse(told, b"", b'{"jsonrpc": "2.0", "id": 1, "result": {}}', b'{"jsonrpc": "2.0", "method": "x"}') == []


@pytest.mark.parametrize(
    ("wanted", "got"), [("2024-11-05", "2024-11-05"), ("2199-01-01", "2025-11-25"), ([], "2025-11-25")]
)
def test_a_handshake_agrees_on_a_version_that_both_know(wanted: Any, got: str) -> None:
    [answer] = converse(request(1, "initialize", protocolVersion=wanted))
    assert answer["result"]["protocolVersion"] == got


def test_a_fault_of_ours_is_an_answer_in_one_line() -> None:
    def broken(params: Any) -> Any:
        raise KeyError("a\nb")

    [answer] = converse(request(1, "broken"), methods={"broken": broken})
    assert (answer["id"], answer["error"]["code"], answer["error"]["data"]) == (1, -32603, {"code": "E_INTERNAL"})


def test_a_slow_request_keeps_no_other_waiting_and_one_that_was_called_off_is_not_answered() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Lines(io.RawIOBase):
        """The rest comes when the slow one has begun."""

        def __init__(self) -> None:
            self._given = [self._first, self._then, self._call_off, self._again, self._last]

        def readline(self, size: int | None = -1) -> bytes:  # type: ignore[override]
            return self._given.pop(0)() if self._given else b""

        def _first(self) -> bytes:
            return request(1, "slow") + b"\n"

        def _then(self) -> bytes:
            assert begun.wait(60)
            return request(1, "ping") + b"\n"  # an id that is taken

        def _call_off(self) -> bytes:
            line = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            return json.dumps(line).encode() + b"\n"

        def _again(self) -> bytes:
            return request(2, "quick") + b"\n"

        def _last(self) -> bytes:
            assert go_on.wait(60)
            return b""

    def slow(params: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return {}

    def quick(params: Any) -> Any:
        go_on.set()
        return {}

    out = io.BytesIO()
    server.Conversation(Protocol(ABOUT, "", {"slow": slow, "quick": quick}), out).hold(Lines())  # type: ignore[arg-type]
    answers = {one["id"]: one for one in map(json.loads, out.getvalue().splitlines())}
    assert answers[1]["error"]["code"] == -32600
    assert answers[2] == {"jsonrpc": "2.0", "id": 2, "result": {}}
    assert len(out.getvalue().splitlines()) == 2


# ── answers ──

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(ANYTHING, st.none() | st.text())
def test_whatever_is_found_is_one_line_of_json_that_hides_nothing(data: Any, log: str | None) -> None:
    text = text_of(Found(data, log))
    assert "\n" not in text
    assert text.isprintable() or all(char.isprintable() or char.isspace() or ord(char) > 0xFF for char in text)
    said = json.loads(text)
    assert (said["data"], said.get("log")) == (fit(data)[0], log)


@pytest.mark.parametrize(
    "data",
    [
        "x" * 10**6,
        ["x" * 1000] * 1000,
        {str(n): "x" * 1000 for n in range(1000)},
        {"x" * 100_000: 1},
        "\U000e0041" * 50_000,
    ],
    ids=["text", "list", "object", "name", "unseen"],
)
def test_an_answer_has_a_greatest_size_and_says_what_it_left_out(data: Any) -> None:
    text = text_of(Found(data))
    assert len(text) < MOST_CHARACTERS + 1000
    assert "truncated" in json.loads(text)


def test_what_is_deep_and_wide_has_a_greatest_size_too() -> None:
    data: Any = "x"
    for _ in range(9):
        data = [data] * 3
    assert len(text_of(Found(data))) < MOST_CHARACTERS + 1000


def test_characters_that_nobody_sees_are_escaped() -> None:
    text = text_of(Found("a\u202eb\u200bc\U000e0041d\u2028\x1b[31m\ufe0f"))
    assert r"a\u202eb\u200bc\udb40\udc41d\u2028\u001b[31m\ufe0f" in text
    assert json.loads(text)["data"] == "a\u202eb\u200bc\U000e0041d\u2028\x1b[31m\ufe0f"


def test_an_error_has_its_code_its_hint_and_bounded_words() -> None:
    said = json.loads(error_text(NotFound("x" * 10**6, hint="look elsewhere")))["error"]
    assert (said["code"], said["hint"]) == ("E_NOT_FOUND", "look elsewhere")
    assert len(said["message"]) < 1100


def test_of_a_log_the_end_is_kept_however_it_comes() -> None:
    assert read_log(iter([b"a", b"b"])) == "ab"
    assert (
        read_log(iter([b"x" * 10, "é".encode() * 5]), most=5)
        == f"[truncated: 10 bytes before this are left out]\n{'é' * 5}"
    )
    endless = (b"y" * (1 << 20) for _ in iter(int, 1))
    assert read_log(endless).endswith("\n[truncated: there may be more]")


# ── arguments ──


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ([], "E_TYPE"), ({}, "E_REQUIRED"), ({"run": None}, "E_REQUIRED"), ({"run": "1"}, "E_TYPE"),
        ({"run": True}, "E_TYPE"), ({"run": 1.5}, "E_TYPE"), ({"run": 0}, "E_RANGE"), ({"run": 2**63}, "E_RANGE"),
        ({"run": 1, "rum": 2}, "E_UNKNOWN_FIELD"), ({"run": 1, "grep": "\ud800"}, "E_CHAR"),
        ({"run": 1, "grep": ""}, "E_EMPTY"), ({"run": 1, "grep": "x" * 1001}, "E_LEN"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused_with_a_code(given: Any, code: str) -> None:
    [tool] = [tool for tool in READING if tool.name == "show_log"]
    with pytest.raises(Error) as refused:
        arguments.read(tool.takes, tool.needs, given)
    assert refused.value.code == code


@pytest.mark.parametrize("tool", [*READING, *WRITING], ids=lambda tool: tool.name)
def test_every_tool_has_a_schema_that_says_what_it_takes(tool: Any) -> None:
    shown = tool.as_document()
    assert shown["inputSchema"]["type"] == "object"
    assert set(tool.needs) <= set(tool.takes)
    assert all(one["description"] for one in tool.takes.values())
    assert shown["annotations"]["readOnlyHint"] is not tool.writes
