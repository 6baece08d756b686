"""What jobs of kind http do, against real servers on this machine."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from horae.core.model import Json, Reason, State
from horae.core.runs.orders import Result
from horae.core.runs.traces import span_id
from horae.core.work.specs import parse_job
from horae.executors.http import connections
from horae.executors.http.executor import HttpExecutor
from horae.executors.reach import Reach
from horae.testing import FakeClock
from tests.certificates import make_certificate

from .test_executors import PATIENCE, MemoryOutput, Rig

LOOPBACK = (("127.0.0.0/8", None), ("::1/128", None))
Handle = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]


class Asked:
    """A request as a server got it."""

    def __init__(self, head: str, body: bytes, connection: int, address: str, reader: asyncio.StreamReader) -> None:
        first, *lines = head.splitlines()
        self.method, self.target, _ = first.split(" ")
        self.headers = dict(line.split(": ", 1) for line in lines if line)
        self.body = body
        self.connection = connection
        self.reader = reader
        self.address = address  # of ours that was connected to


def answer(status: int = 200, body: bytes | str = b"", kind: str = "text/plain", **headers: str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", f"Content-Type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


class Place:
    """A server; each path has a function that answers."""

    def __init__(self) -> None:
        self.handles: dict[str, Handle] = {}
        self.asked: list[Asked] = []
        self.port = 0
        self.scheme = "http"
        self.connections = 0
        self.ended = asyncio.Event()  # a client has closed its connection
        self.arrived = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        """Once more: on another address, with the same port."""
        server = await asyncio.start_server(self._serve, host, self.port, ssl=tls)
        self._servers.append(server)
        self.port = server.sockets[0].getsockname()[1]
        self.scheme = "https" if tls else "http"

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    def on(self, path: str, data: bytes) -> str:
        async def handle(_: Asked, writer: asyncio.StreamWriter) -> None:
            writer.write(data)

        return self.does(path, handle)

    def does(self, path: str, handle: Handle) -> str:
        self.handles[path] = handle
        return self.url(path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        number, address = self.connections, writer.get_extra_info("sockname")[0]
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int((re.search(r"content-length: (\d+)", head, re.IGNORECASE) or ["", "0"])[1])
                asked = Asked(head, await reader.readexactly(length), number, address, reader)
                self.asked.append(asked)
                self.arrived.set()
                await self.handles[asked.target.partition("?")[0]](asked, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended.set()
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)


async def for_ever(asked: Asked, _: asyncio.StreamWriter) -> None:
    """Say nothing until the client goes."""
    await asked.reader.read()
    raise ConnectionResetError


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    made = Place()
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def open_rig(clock: FakeClock) -> AsyncIterator[Callable[..., Awaitable[Rig]]]:
    opened: list[HttpExecutor] = []

    async def open_rig(reach: Reach | None = None, **more: Any) -> Rig:
        executor = HttpExecutor(reach or Reach([], LOOPBACK, is_public_only=True), clock, 1000, **more)
        await executor.open()
        opened.append(executor)
        return Rig(executor, clock)

    yield open_rig
    for executor in opened:
        await executor.close()


@pytest.fixture
async def rig(open_rig: Callable[..., Awaitable[Rig]]) -> Rig:
    return await open_rig()


def spec_of(http: Json, secrets: dict[str, str] | None = None, **more: Any) -> Json:
    """As an executor gets it: with the values of secrets in the places of references."""
    spec = parse_job({"name": "n", "http": http, **more}).spec
    if secrets:
        spec["http"]["secrets"] = secrets
    return spec


async def run(rig: Rig, http: Json, secrets: dict[str, str] | None = None, **more: Any) -> tuple[Result, Json, str]:
    result, log = await rig.run(spec_of(http, secrets), **more)
    return result, json.loads(result.result or "null"), log


def policy(**retry: Any) -> str:
    return json.dumps({"retry": {"attempts": 3, **retry}})


# ── what is sent ───────────────────────────────────────────────────────────────────────────────────


async def test_a_request_that_is_answered_succeeds_with_its_answer(rig: Rig, place: Place) -> None:
    url = place.on("/x", answer(200, '{"a": [1, "ü"]}', "application/json; charset=utf-8", ETag="7", X_Other="8"))

    result, facts, log = await run(rig, {"url": url})

    assert (result.state, result.reason, result.message) == (State.SUCCEEDED, "", "")
    assert facts["status"] == 200
    assert facts["json"] == {"a": [1, "ü"]}
    assert facts["bytes"] == 16
    assert facts["headers"]["etag"] == "7"
    assert "x-other" not in facts["headers"]
    assert f"── GET {url} ──" in log
    assert '{"a": [1, "ü"]}' in log
    assert rig.closed_before_done == [True]


async def test_the_server_is_told_of_the_run_unless_the_job_says_otherwise(rig: Rig, place: Place) -> None:
    url = place.on("/x", answer())
    await run(rig, {"url": url}, run_id=77)
    await run(rig, {"url": url, "headers": {"idempotency-key": "mine", "User-Agent": "me"}}, run_id=78)

    first, second = place.asked
    assert first.headers["X-Horae-Run-Id"] == "77"
    assert first.headers["X-Horae-Attempt"] == "2"
    assert first.headers["X-Horae-Scheduled-For"].endswith("Z")
    assert first.headers["Idempotency-Key"] == "686f726165000000000000000000004d"
    assert first.headers["traceparent"] == f"00-686f726165000000000000000000004d-{span_id(77, 3)}-01"
    assert first.headers["Host"] == f"127.0.0.1:{place.port}"
    assert second.headers["idempotency-key"] == "mine"
    assert second.headers["User-Agent"] == "me"
    assert "Idempotency-Key" not in second.headers


async def test_data_and_secrets_are_put_into_address_headers_and_body(rig: Rig, place: Place) -> None:
    place.on("/o/a%2F..%20b", answer())
    http = {
        "url": place.url("/o/${data.name}") + "?n=${data.n}&k=${secret.K}",
        "headers": {"Authorization": "Bearer ${secret.K}", "X-N": "${data.n}"},
        "json": {"whole": "${data.n}", "text": "n=${data.n}", "key": "${secret.K}"},
    }
    data = json.dumps({"name": "a/.. b", "n": 7})

    result, _, _ = await run(rig, http, {"K": "k/${data.n} 1"}, data=data)

    assert result.state is State.SUCCEEDED, result.message
    [asked] = place.asked
    assert asked.target == "/o/a%2F..%20b?n=7&k=k/${data.n}%201"
    assert asked.headers["Authorization"] == "Bearer k/${data.n} 1"
    assert asked.headers["X-N"] == "7"
    assert json.loads(asked.body) == {"whole": 7, "text": "n=7", "key": "k/${data.n} 1"}


@pytest.mark.parametrize(
    ("http", "data", "sent"),
    [
        ({"method": "POST"}, '{"a":1}', b'{"a":1}'),
        ({"method": "POST"}, None, b""),
        ({"method": "GET"}, '{"a":1}', b""),
        ({"method": "DELETE"}, '{"a":1}', b""),
        ({"method": "PUT", "json": []}, '{"a":1}', b"[]"),
        ({"body": "x=${data.a}"}, '{"a":1}', b"x=1"),
        ({"body": ""}, '{"a":1}', b""),
    ],
)
async def test_the_data_is_sent_where_nothing_else_is_and_the_method_allows_it(
    rig: Rig, place: Place, http: Json, data: str | None, sent: bytes
) -> None:
    await run(rig, {"url": place.on("/x", answer()), **http}, data=data)
    assert place.asked[0].body == sent


async def test_a_run_without_data_has_that_of_its_job(rig: Rig, place: Place) -> None:
    spec = spec_of({"url": place.on("/x", answer()), "method": "POST"}, data={"of": "job"})
    await rig.run(spec)
    assert place.asked[0].body == b'{"of":"job"}'


@pytest.mark.parametrize(
    ("http", "words"),
    [
        ({"headers": {"A": "${data.line}"}}, "the header A cannot be sent"),
        ({"headers": {"A": "${secret.LINE}"}}, "the header A cannot be sent"),
        ({"json": {"a": "${data.gone}"}}, "the data of the run has no data.gone"),
    ],
)
async def test_what_cannot_be_sent_is_not_and_no_retry_helps(rig: Rig, place: Place, http: Json, words: str) -> None:
    url = place.on("/x", answer())
    data = json.dumps({"line": "a\r\nEvil: 1"})
    result, _, _ = await run(rig, {"url": url, **http}, {"LINE": "b\nEvil: 1"}, data=data, policy=policy())

    assert (result.state, result.final) == (State.FAILED, True)
    assert words in result.message
    assert place.asked == []


# ── what comes back ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "final"),
    [
        (400, True),
        (401, True),
        (404, True),
        (408, False),
        (425, False),
        (429, False),
        (500, False),
        (503, False),
        (304, True),
    ],
)
async def test_S19_a_status_that_was_not_expected_fails_with_the_beginning_of_the_body(
    rig: Rig, place: Place, status: int, final: bool
) -> None:
    url = place.on("/x", answer(status, "" if status == 304 else "no such\norder " + 300 * "x"))

    result, facts, _ = await run(rig, {"url": url}, policy=policy())

    assert (result.state, result.reason, result.final) == (State.FAILED, Reason.ERROR, final)
    assert f"the answer is {status}" in result.message
    assert "2xx was expected" in result.message
    assert status == 304 or "no such order xxx" in result.message
    assert len(result.message) < 400
    assert facts["status"] == status


async def test_what_is_expected_succeeds_and_retry_on_and_never_decide(rig: Rig, place: Place) -> None:
    url = place.on("/x", answer(404))
    assert (await run(rig, {"url": url, "expect": [404]}))[0].state is State.SUCCEEDED
    assert (await run(rig, {"url": url, "expect": ["4xx"]}))[0].state is State.SUCCEEDED
    result, _, _ = await run(rig, {"url": place.on("/y", answer(200)), "expect": [404]}, policy=policy())
    assert (result.state, result.final) == (State.FAILED, True)

    result, _, _ = await run(rig, {"url": url}, policy=policy(on=["Status404"]))
    assert (result.final, "(retry.on has Status404)" in result.message) == (False, True)
    result, _, _ = await run(rig, {"url": place.on("/z", answer(503))}, policy=policy(never=["Status5xx"]))
    assert (result.final, "not tried again: retry.never has Status5xx" in result.message) == (True, True)


@pytest.mark.parametrize(
    ("status", "asked", "wait"),
    [
        (429, "7", 7.0), (503, "0", 0.0), (429, "99999", 3600.0), (500, "7", None), (429, "soon", None),
        (429, "Thu, 01 Jan 1970 00:00:00 GMT", 0.0), (429, "-1", None), (429, "9" * 400, 3600.0),
    ],
)  # fmt: skip
async def test_a_server_that_asks_to_wait_is_obeyed_as_far_as_the_job_lets_it(
    rig: Rig, place: Place, status: int, asked: str, wait: float | None
) -> None:
    url = place.on("/x", answer(status, Retry_After=asked))
    result, _, _ = await run(rig, {"url": url}, policy=policy())
    assert (result.state, result.final, result.retry_after) == (State.FAILED, False, wait)


async def test_a_date_is_a_wait_too(rig: Rig, place: Place, clock: FakeClock) -> None:
    from email.utils import formatdate

    url = place.on("/x", answer(503, Retry_After=formatdate(clock.now() / 1_000_000 + 90, usegmt=True)))
    result, _, _ = await run(rig, {"url": url}, policy=policy())
    assert result.retry_after == pytest.approx(90, abs=1)


async def test_a_chunked_answer_arrives_in_the_log_while_it_is_written(rig: Rig, place: Place) -> None:
    may_end = asyncio.Event()

    async def slowly(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/plain\r\n\r\n4\r\none\n\r\n")
        await writer.drain()
        await may_end.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    output = rig.start(spec_of({"url": place.does("/x", slowly)}))
    await output.until("one")
    assert "two" not in output.text
    may_end.set()

    facts = json.loads((await rig.ended()).result or "")
    assert facts["text"] == "one\ntwo"


async def test_an_answer_without_a_length_ends_with_its_connection(rig: Rig, place: Place) -> None:
    async def ends(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        writer.close()

    _, facts, _ = await run(rig, {"url": place.does("/x", ends)})
    assert facts["text"] == "all of it"


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("HEAD", 404)])
async def test_answers_without_a_body_are_not_waited_for(rig: Rig, place: Place, method: str, status: int) -> None:
    head = f"HTTP/1.1 {status} X\r\n" + ("Content-Length: 500\r\n\r\n" if method == "HEAD" else "\r\n")
    result, facts, _ = await run(rig, {"url": place.on("/x", head.encode()), "method": method})
    assert facts["status"] == status
    assert result.state is (State.FAILED if status == 404 else State.SUCCEEDED)


async def test_bytes_that_nobody_can_read_are_counted_and_not_logged(rig: Rig, place: Place) -> None:
    _, facts, log = await run(rig, {"url": place.on("/x", answer(200, bytes(range(256)), "image/png"))})
    assert facts["bytes"] == 256
    assert "text" not in facts
    assert "── 256 bytes of image/png ──" in log


@pytest.mark.parametrize("body", ["[1, NaN]", "[" * 5000, '"\\ud800"', '{"a":', '"\\u0000"'])
async def test_json_that_cannot_be_kept_is_kept_as_text(rig: Rig, place: Place, body: str) -> None:
    result, facts, _ = await run(rig, {"url": place.on("/x", answer(200, body, "application/json"))})
    assert result.state is State.SUCCEEDED
    assert facts["text"] == body


async def _pour(writer: asyncio.StreamWriter, megabytes: int) -> None:
    for _ in range(megabytes):
        writer.write(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
        await writer.drain()
    writer.write(b"0\r\n\r\n")


async def huge(_: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    await _pour(writer, 100)


async def test_an_answer_larger_than_allowed_fails_soon(rig: Rig, place: Place) -> None:
    result, _, _ = await run(rig, {"url": place.does("/x", huge), "max_body": "2MiB"}, policy=policy())
    assert (result.state, result.final) == (State.FAILED, True)
    assert result.message == "the body of the answer goes on, and max_body is 2,097,152 bytes"
    async with asyncio.timeout(PATIENCE):
        await place.ended.wait()

    url = place.on("/y", b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n")
    result, _, _ = await run(rig, {"url": url})
    assert "is 104,857,600 bytes, and max_body is 16,777,216 bytes" in result.message


async def test_a_hundred_megabytes_go_through_and_are_kept_in_part(rig: Rig, place: Place) -> None:
    gc.collect()
    output = MemoryOutput(limit=1 << 16)
    result, facts, _ = await run(rig, {"url": place.does("/x", huge), "max_body": "200MiB"}, output=output)
    assert (result.state, facts["bytes"]) == (State.SUCCEEDED, 100 << 20)
    assert facts["is_cut"] is True
    assert len(facts["text"]) == 64 * 1024
    assert len(output.data) == 1 << 16


# ── redirects ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "method", "sent"), [(302, "GET", b""), (303, "GET", b""), (307, "POST", b"x"), (308, "POST", b"x")]
)
async def test_redirects_are_followed(rig: Rig, place: Place, status: int, method: str, sent: bytes) -> None:
    url = place.on("/a", answer(status, "moved", Location="../b?c=d"))
    place.on("/b", answer(200, "here"))

    result, facts, log = await run(rig, {"url": url, "body": "x"})

    assert (result.state, facts["text"], facts["url"]) == (State.SUCCEEDED, "here", place.url("/b?c=d"))
    assert (place.asked[1].method, place.asked[1].body) == (method, sent)
    assert ("Content-Type" in place.asked[1].headers) is bool(sent)
    assert place.asked[1].connection == place.asked[0].connection
    assert "moved" not in log


async def test_a_loop_of_redirects_ends(rig: Rig, place: Place) -> None:
    url = place.on("/a", answer(302, Location="/a"))
    result, _, _ = await run(rig, {"url": url}, policy=policy())
    assert (result.state, result.final, len(place.asked)) == (State.FAILED, True, 6)
    assert result.message == "the answer is 302 Found, and leads on to /a: follow_redirects is 5"

    result, _, _ = await run(rig, {"url": url, "follow_redirects": 0})
    assert len(place.asked) == 7
    result, _, _ = await run(rig, {"url": url, "expect": [302]})
    assert (result.state, len(place.asked)) == (State.SUCCEEDED, 8)


async def test_secrets_stay_with_their_origin(rig: Rig, place: Place) -> None:
    other = Place()
    await other.open()
    try:
        url = place.on("/a", answer(302, Location=other.on("/b", answer())))
        headers = {"Authorization": "plain", "Cookie": "c", "X-Key": "${secret.K}", "X-Other": "stays"}
        result, _, _ = await run(rig, {"url": url, "headers": headers}, {"K": "sesame"})
        assert result.state is State.SUCCEEDED
        assert {"Authorization", "Cookie", "X-Key"} <= place.asked[0].headers.keys()
        assert not {"Authorization", "Cookie", "X-Key"} & other.asked[0].headers.keys()
        assert other.asked[0].headers["X-Other"] == "stays"

        url = place.on("/c", answer(307, Location=other.url("/b")))
        result, _, _ = await run(rig, {"url": url, "body": "${secret.K}"}, {"K": "sesame"}, policy=policy())
        assert (result.state, result.final, len(other.asked)) == (State.FAILED, True, 1)
        assert "holds a secret" in result.message
    finally:
        await other.close()


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("http://169.254.169.254/latest", "metadata"),
        ("http://10.1.2.3/", "private network"),
        ("file:///etc/passwd", "cannot be used"),
        ("http://user:word@127.0.0.1/", "cannot be used"),
        ("http://[", "cannot be"),
    ],
)
async def test_a_redirect_is_judged_like_any_address(rig: Rig, place: Place, location: str, words: str) -> None:
    result, _, _ = await run(rig, {"url": place.on("/a", answer(302, Location=location))}, policy=policy())
    assert (result.state, result.final) == (State.FAILED, True)
    assert words in result.message


# ── where it may go ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:{port}/", "loopback"), ("http://localhost:{port}/", "loopback"),
        ("http://[::1]:{port}/", "loopback"), ("http://[::ffff:127.0.0.1]:{port}/", "loopback"),
        ("http://2130706433:{port}/", "loopback"), ("http://0x7f.1:{port}/", "loopback"),
        ("http://0.0.0.0:{port}/", "loopback"), ("http://169.254.169.254/", "metadata"),
        ("http://[fd00:ec2::254]/", "metadata"), ("http://10.0.0.7/", "private"), ("http://192.168.1.1/", "private"),
        ("http://172.16.0.1/", "private"), ("http://100.64.0.1/", "private"), ("http://[fc00::1]/", "private"),
        ("http://224.0.0.1/", "private"),
    ],
)  # fmt: skip
async def test_closed_networks_are_refused_however_they_are_written(
    open_rig: Callable[..., Awaitable[Rig]], place: Place, url: str, words: str
) -> None:
    rig = await open_rig(Reach([], [], is_public_only=True))
    result, _, _ = await run(rig, {"url": url.format(port=place.port)}, policy=policy())
    assert (result.state, result.final) == (State.FAILED, True)
    assert words in result.message
    assert "E_NETWORK" in result.message
    assert "allowed_networks" in result.message
    assert json.loads(result.result or "")["cause"]["code"] == "address_refused"
    assert place.connections == 0


async def test_horae_itself_is_refused_where_loopback_is_allowed(
    open_rig: Callable[..., Awaitable[Rig]], place: Place
) -> None:
    rig = await open_rig(Reach([place.port], LOOPBACK))
    result, _, _ = await run(rig, {"url": place.url("/")})
    assert "it is Horae itself" in result.message
    assert place.connections == 0


async def test_a_name_that_changes_its_address_cannot_lead_elsewhere(
    open_rig: Callable[..., Awaitable[Rig]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """127.0.0.2 stands for the world here, 127.0.0.1 for what is closed."""
    place = Place()
    await place.open(host="127.0.0.2")
    await place.open(host="127.0.0.1")
    answers = iter([["127.0.0.2"], ["127.0.0.1"], ["127.0.0.2", "127.0.0.1"]])
    looks: list[str] = []

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        looks.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (one, port)) for one in next(answers)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    place.on("/x", answer(200, Connection="close"))
    rig = await open_rig(Reach([], [("127.0.0.2/32", None)]))
    try:
        first, _, _ = await run(rig, {"url": place.url("/x", "rebind.example")})
        assert first.state is State.SUCCEEDED, first.message
        assert looks == ["rebind.example"]
        for _ in range(2):
            result, _, _ = await run(rig, {"url": place.url("/x", "rebind.example")})
            assert "loopback" in result.message
        assert [asked.address for asked in place.asked] == ["127.0.0.2"]
        assert place.asked[0].headers["Host"] == f"rebind.example:{place.port}"
    finally:
        await place.close()


async def test_proxies_of_the_environment_are_not_asked(
    rig: Rig, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await run(rig, {"url": place.on("/x", answer())}))[0].state is State.SUCCEEDED


# ── what goes wrong ────────────────────────────────────────────────────────────────────────────────


async def test_a_name_that_nobody_knows(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    result, _, _ = await run(rig, {"url": "http://no-such-host.example/"}, policy=policy())
    assert (result.state, result.final) == (State.FAILED, False)
    assert result.message == "the name no-such-host.example has no address: is it spelled right?"


async def test_a_port_on_which_nobody_listens(rig: Rig) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        result, _, _ = await run(rig, {"url": f"http://127.0.0.1:{port}/"}, policy=policy(on=["ConnectionError"]))
    assert result.message == (
        f"127.0.0.1:{port} refuses connections: nobody listens there (retry.on has ConnectionError)"
    )
    assert result.final is False


async def test_a_machine_that_takes_no_connection(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.05)
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for one in (first, second):  # the backlog is full, and further ones are not answered
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        result, _, _ = await run(rig, {"url": f"http://127.0.0.1:{full.getsockname()[1]}/"})
    assert "does not answer: no connection came about" in result.message


async def test_a_certificate_that_nobody_vouches_for(rig: Rig, tmp_path: Path) -> None:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*make_certificate(tmp_path))
    secure = Place()
    await secure.open(served)
    try:
        result, _, _ = await run(rig, {"url": secure.on("/x", answer())}, policy=policy())
        assert (result.state, result.final, secure.asked) == (State.FAILED, False, [])
        assert "its certificate is not trusted (self-signed certificate)" in result.message
    finally:
        await secure.close()


@pytest.mark.parametrize(
    ("said", "words"), [(b"220 mail.example\r\n", "TLS failed ("), (b"", "TLS was not agreed on in 0.2 s")]
)
async def test_a_server_that_does_not_speak_tls(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, said: bytes, words: str
) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.2)
    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        result, _, _ = await run(rig, {"url": f"https://127.0.0.1:{port}/"}, policy=policy())
    assert f"no connection to 127.0.0.1:{port}: {words}" in result.message
    assert result.final is False


async def test_a_certificate_of_another_name_and_the_right_one(
    open_rig: Callable[..., Awaitable[Rig]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)
    secure = Place()
    await secure.open(served, host="127.0.0.2")
    try:
        secure.on("/x", answer(200, "safe"))
        rig = await open_rig()
        result, _, _ = await run(rig, {"url": secure.url("/x", "127.0.0.2")})
        assert "its certificate is not trusted (IP address mismatch" in result.message
        monkeypatch.setattr(socket, "getaddrinfo", lambda _, port, **__: [(0, 0, 0, "", ("127.0.0.2", port))])
        _, facts, _ = await run(rig, {"url": secure.url("/x", "horae.example")})
        assert facts["text"] == "safe"
    finally:
        await secure.close()


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"", "broke before any answer came"),
        (b"HTTP/1.1 200 OK\r\nContent-", "broke in the middle of its answer, after 0 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "broke in the middle of its answer, after 4 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nha", "broke in the middle of its answer, after 2"),
        (b"SSH-2.0-OpenSSH_9\r\n", "is not HTTP"),
    ],
)
async def test_a_connection_that_breaks(rig: Rig, place: Place, sent: bytes, words: str) -> None:
    async def breaks(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        writer.close()

    result, _, _ = await run(rig, {"url": place.does("/x", breaks)}, policy=policy())
    assert (result.state, result.reason, result.final) == (State.FAILED, Reason.ERROR, False)
    assert words in result.message


async def test_a_server_that_never_answers_is_left_at_the_timeout(rig: Rig, place: Place, clock: FakeClock) -> None:
    rig.start(spec_of({"url": place.does("/x", for_ever)}), timeout=30.0)
    await place.arrived.wait()
    clock.advance(31)
    result = await rig.ended()
    assert (result.state, result.reason) == (State.TIMED_OUT, Reason.TIMEOUT)
    waits = f"stopped after its timeout of 30.0 s, waiting for the answer of 127.0.0.1:{place.port}; "
    assert result.message.startswith(waits)
    assert json.loads(result.result or "")["cause"]["code"] == "timeout"
    async with asyncio.timeout(PATIENCE):
        await place.ended.wait()


async def test_without_a_timeout_silence_has_an_end(open_rig: Callable[..., Awaitable[Rig]], place: Place) -> None:
    rig = await open_rig(silence=0.05)
    result, _, _ = await run(rig, {"url": place.does("/x", for_ever)}, policy=policy())
    assert (result.state, result.final) == (State.FAILED, False)
    assert f"127.0.0.1:{place.port} was silent for 0.05 s waiting for the answer" in result.message


@pytest.mark.parametrize(("reason", "state"), [(Reason.REQUESTED, State.CANCELLED), (Reason.LOST, State.FAILED)])
async def test_a_request_that_is_stopped_ends_at_once_and_leaves_nothing(
    rig: Rig, place: Place, reason: str, state: State
) -> None:
    output = rig.start(spec_of({"url": place.does("/x", for_ever)}))
    await place.arrived.wait()
    rig.executor.stop(1, reason)
    rig.executor.stop(1, Reason.TIMEOUT)
    rig.executor.stop(2, reason)
    result = await rig.ended()
    assert (result.state, result.reason) == (state, reason)
    assert "waiting for the answer" in output.text
    async with asyncio.timeout(PATIENCE):
        await place.ended.wait()


async def test_one_that_is_stopped_before_it_begins_asks_nobody(rig: Rig, place: Place) -> None:
    rig.start(spec_of({"url": place.on("/x", answer())}))
    rig.executor.stop(1, Reason.REQUESTED)
    assert (await rig.ended()).state is State.CANCELLED
    assert place.connections == 0


async def test_closing_breaks_off_what_runs_and_hands_back_what_comes(rig: Rig, place: Place) -> None:
    rig.start(spec_of({"url": place.does("/x", for_ever)}))
    await place.arrived.wait()
    await rig.executor.close()
    assert (rig.results[0].state, rig.results[0].reason) == (State.FAILED, Reason.LOST)
    rig.start(spec_of({"url": place.url("/x")}), run_id=2)
    assert rig.results[1].state is State.QUEUED


# ── connections ────────────────────────────────────────────────────────────────────────────────────


def made_by(rig: Rig) -> int:
    assert isinstance(rig.executor, HttpExecutor)
    return rig.executor.connections.made


async def test_a_thousand_runs_share_connections_and_leave_none(
    rig: Rig, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "KEEP_SECONDS", 0.05)
    spec = spec_of({"url": place.on("/x", answer(200, "ok"))})
    before = len(os.listdir("/proc/self/fd"))
    for run_id in range(1, 1001):
        rig.start(spec, run_id=run_id)
    await rig.ended(1000)

    assert {result.state for result in rig.results} == {State.SUCCEEDED}
    assert made_by(rig) <= connections.MOST_TO_ONE
    async with asyncio.timeout(PATIENCE):
        while place._tasks or len(os.listdir("/proc/self/fd")) > before + 5:
            await asyncio.sleep(0.01)


async def test_a_connection_that_its_server_closed_is_not_the_fault_of_the_next_run(rig: Rig, place: Place) -> None:
    async def once(asked: Asked, writer: asyncio.StreamWriter) -> None:
        """Answer the first request of each connection; break off at the second."""
        if sum(one.connection == asked.connection for one in place.asked) > 1:
            writer.transport.abort()
        else:
            writer.write(answer(200, "ok"))

    url = place.does("/x", once)
    for _ in range(3):
        result, _, _ = await run(rig, {"url": url})
        assert result.state is State.SUCCEEDED, result.message
    result, _, _ = await run(rig, {"url": url, "method": "POST"})
    assert (
        "broke before any answer came" in result.message
    )  # it may have acted: whether to repeat is for the job to say


async def test_what_is_left_of_an_answer_is_never_read_as_the_next(rig: Rig, place: Place) -> None:
    url = place.on("/x", answer(500, "x" * 200_000))
    place.on("/y", answer(200, "clean"))
    await run(rig, {"url": url})
    _, facts, _ = await run(rig, {"url": place.url("/y")})
    assert facts["text"] == "clean"
    assert place.connections == 2
