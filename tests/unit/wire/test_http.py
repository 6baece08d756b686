"""Answers of HTTP/1.1, out of bytes."""

from __future__ import annotations

import pytest

from horae.wire.http import Garbled, Incoming

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Interrupted(Incoming):
    """An answer, at the first header of which somebody types Ctrl-C."""

    def on_header(self, name: bytes, value: bytes) -> None:
        raise KeyboardInterrupt


def test_an_answer_is_whole_with_its_last_byte() -> None:
    incoming = Incoming()
    incoming.feed(ANSWER[:-1])
    assert not incoming.is_whole
    incoming.feed(ANSWER[-1:])
    assert (incoming.status, incoming.is_whole, incoming.take()) == (200, True, b"ok")


def test_what_is_no_answer_is_garbled() -> None:
    with pytest.raises(Garbled):
        Incoming().feed(b"SSH-2.0-OpenSSH_9.2\r\n")


def test_whoever_interrupts_the_reading_of_an_answer_is_heard() -> None:
    """Taken for a garbled answer, the interrupt was lost, and the request was sent again."""
    incoming = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        incoming.feed(ANSWER)
