"""Calls to workers outside Horae: where they go, and where they do not."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from horae.errors import Denied, Invalid, Unavailable
from horae.links.outside import MAX_ANSWER, HttpWorkers
from tests.listening import listening

DEADLINE = 60.0  # seconds: a busy machine takes its time with what is at hand
Answer = Callable[[bytes], bytes | None]


@asynccontextmanager
async def listener(answer: Answer, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A worker that answers each request, or says nothing for ever."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        said = answer(head + await reader.readexactly(length))
        if said is None:
            await reader.read()
        else:
            writer.write(said)

    async with listening(talk, host) as port:
        yield port


def said(status: str, body: bytes, *more: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *more, "", ""]
    return "\r\n".join(head).encode() + body


@pytest.fixture
async def workers() -> AsyncIterator[HttpWorkers]:
    made = HttpWorkers([8080])
    yield made
    await made.close()


async def test_a_document_is_posted_and_the_answer_read(workers: HttpWorkers):
    heard: list[bytes] = []
    async with listener(lambda request: heard.append(request) or said("202 Accepted", b'{"ok":true}')) as port:
        reply = await workers.post(f"127.0.0.1:{port}", "/work", {"jobId": 1}, trusted=False, seconds=DEADLINE)
    assert (reply.status, reply.document, reply.is_good) == (202, {"ok": True}, True)
    assert heard[0].startswith(b"POST /work HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{port}\r\n".encode() in heard[0]
    assert heard[0].endswith(b'{"jobId":1}')


@pytest.mark.parametrize("address", ["", "nowhere", "a:b:c", "me@127.0.0.1:80", "127.0.0.1:80/x", "127.0.0.1:99999"])
async def test_what_is_no_address_is_said_to_be_none(workers: HttpWorkers, address: str):
    with pytest.raises(Invalid):
        await workers.post(address, "/work", {}, trusted=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost", "[::ffff:127.0.0.1]"])
async def test_a_port_of_ours_is_never_called(workers: HttpWorkers, host: str):
    with pytest.raises(Denied, match=r"one of Horae.s own"):
        await workers.post(f"{host}:8080", "/work", {}, trusted=True)


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "0.0.0.0", "224.0.0.1"])
async def test_addresses_that_are_no_workers_are_never_called(workers: HttpWorkers, host: str):
    with pytest.raises(Denied):
        await workers.post(f"{host}:80", "/work", {}, trusted=True)


async def test_beyond_loopback_only_who_registered_with_a_token_is_called(workers: HttpWorkers):
    with pytest.raises(Denied, match="token"):
        await workers.post("192.0.2.1:80", "/work", {}, trusted=False)


async def test_a_redirect_is_not_followed(workers: HttpWorkers):
    async with listener(lambda _: said("307 Temporary Redirect", b"", "Location: http://127.0.0.1:8080/")) as port:
        assert (await workers.post(f"127.0.0.1:{port}", "/", {}, trusted=False, seconds=DEADLINE)).status == 307


async def test_a_call_does_not_wait_for_certificates_that_nobody_needs(
    workers: HttpWorkers, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ssl, "create_default_context", None)
    async with listener(lambda _: said("200 OK", b"{}")) as port:
        assert (await workers.post(f"127.0.0.1:{port}", "/", {}, trusted=False, seconds=DEADLINE)).status == 200


async def test_a_worker_that_says_nothing_is_not_waited_for(workers: HttpWorkers):
    async with listener(lambda _: None) as port:
        with pytest.raises(Unavailable, match="no answer"):
            await workers.post(f"127.0.0.1:{port}", "/", {}, trusted=False, seconds=0.2)


async def test_a_worker_that_is_gone_is_unavailable(workers: HttpWorkers):
    async with listener(lambda _: None) as port:
        pass
    with pytest.raises(Unavailable, match="cannot be reached"):
        await workers.post(f"127.0.0.1:{port}", "/", {}, trusted=False, seconds=DEADLINE)


async def test_an_answer_without_end_is_cut(workers: HttpWorkers):
    async with listener(lambda _: said("200 OK", b"x" * (MAX_ANSWER + 1))) as port:
        with pytest.raises(Unavailable, match="more than"):
            await workers.post(f"127.0.0.1:{port}", "/", {}, trusted=False, seconds=DEADLINE)


async def test_an_answer_that_is_no_json_is_none(workers: HttpWorkers):
    async with listener(lambda _: said("200 OK", b"\xff hello")) as port:
        assert (await workers.post(f"127.0.0.1:{port}", "/", {}, trusted=False, seconds=DEADLINE)).document is None
