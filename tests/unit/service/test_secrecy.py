"""Secrets are hidden beside the event loop, and all that is written comes out in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as some

from horae.core.secrets import masking
from horae.ports.outputs import Output
from horae.service.agent.secrets import SEARCH_ASIDE_BYTES, MaskedOutput

SECRET = "s3cr3t-w0rd"
FORMS = masking.forms_of([SECRET])


class Kept:
    """An Output in memory, which says when it has taken enough."""

    is_full = False
    has_gaps = False
    ref = "runs/0/1/1-1"

    def __init__(self) -> None:
        self.data = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.data += data

    def when_free(self, resume: Callable[[], None]) -> bool:
        return False

    async def close(self) -> None:
        self.is_closed = True


def covered(kept: Kept, forms: masking.Forms = FORMS) -> MaskedOutput:
    output: Output = kept  # type: ignore[assignment]  # it has no files
    return MaskedOutput(output, lambda: forms, "runs/0/1/1-1")


PIECES = some.lists(
    some.one_of(
        some.sampled_from(
            [SECRET.encode(), SECRET.encode()[:5], SECRET.encode()[5:], b"\n", b"x" * SEARCH_ASIDE_BYTES]
        ),
        some.binary(max_size=20),
    )
)


@given(PIECES)
def test_the_same_comes_out_however_it_was_written(pieces: list[bytes]):
    async def write() -> bytes:
        kept = Kept()
        output = covered(kept)
        for number, piece in enumerate(pieces):
            output.write(piece)
            if number % 3 == 0:
                await asyncio.sleep(0)
        await output.close()
        return kept.data

    whole = masking.Masker(FORMS)
    assert asyncio.run(write()) == whole.feed(b"".join(pieces)) + whole.flush()


async def test_much_is_searched_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch):
    threads, feed = set[int](), masking.Masker.feed

    def noted(self: masking.Masker, data: bytes) -> bytes:
        threads.add(threading.get_ident())
        return feed(self, data)

    monkeypatch.setattr(masking.Masker, "feed", noted)
    kept = Kept()
    output = covered(kept)
    output.write(b"x" * SEARCH_ASIDE_BYTES)
    output.write(b"its end\n")
    await output.close()

    assert threads
    assert threading.get_ident() not in threads
    assert kept.data == b"x" * SEARCH_ASIDE_BYTES + b"its end\n"


async def test_a_writer_pauses_until_what_it_wrote_was_searched():
    kept, is_free = Kept(), asyncio.Event()
    output = covered(kept)
    output.write(b"x" * SEARCH_ASIDE_BYTES)

    assert output.when_free(is_free.set)
    async with asyncio.timeout(30):
        await is_free.wait()
    assert kept.data == b"x" * SEARCH_ASIDE_BYTES
    assert not output.when_free(is_free.set)
    await output.close()


async def test_what_was_said_last_comes_out_before_the_end():
    kept = Kept()
    output = covered(kept)
    output.write(b"x" * SEARCH_ASIDE_BYTES + SECRET.encode())
    output.write(b" was it\n")
    await output.close()

    assert kept.data.endswith(b"x*** was it\n")
