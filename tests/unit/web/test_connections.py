"""What goes out together."""

from __future__ import annotations

from typing import Any

import pytest

from horae.web import http
from horae.web.connections import Joining


class Transport:
    """Remembers what a socket would be given, write by write."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def transport() -> Transport:
    return Transport()


@pytest.fixture
def joining(transport: Transport) -> Joining:
    return Joining(transport)  # type: ignore[arg-type]


def request(joining: Joining, *, fails: bool = False) -> http.Request:
    async def send(message: Any) -> None:
        if fails and message["type"] == "http.response.body":
            raise RuntimeError("the server gave up")
        joining.write(message.get("body", b"head "))

    scope = {"headers": [], "method": "GET", http.JOINING: joining, "horae.request_id": "r1"}
    return http.Request(scope, None, send)  # type: ignore[arg-type]


async def test_a_whole_answer_is_one_write(joining: Joining, transport: Transport) -> None:
    for _ in range(2):
        await http.Reply(200, b"body").send(request(joining))
    assert transport.written == [b"head body", b"head body"]


async def test_what_is_not_held_goes_out_at_once(joining: Joining, transport: Transport) -> None:
    joining.write(b"one")
    joining.write(b"two")
    assert transport.written == [b"one", b"two"]


async def test_a_head_whose_body_fails_goes_out_and_holds_up_nothing(joining: Joining, transport: Transport) -> None:
    with pytest.raises(RuntimeError):
        await http.Reply(200, b"body").send(request(joining, fails=True))
    joining.write(b"next")
    assert transport.written == [b"head ", b"next"]


def test_what_is_held_goes_out_before_the_connection_is_closed(joining: Joining, transport: Transport) -> None:
    joining.hold()
    joining.write(b"last words")
    joining.close()
    assert (transport.written, transport.is_closed) == ([b"last words"], True)
