"""Lines of a log that can only be read by offset."""

from __future__ import annotations

import random

import pytest

from horae.service import lines


class Log:
    """Bytes that are given by offset; counts how often it is asked."""

    def __init__(self, content: bytes) -> None:
        self.content, self.reads = content, 0

    async def read(self, offset: int, limit: int) -> bytes:
        self.reads += 1
        return self.content[offset : offset + limit]

    async def tail(self, count: int) -> bytes:
        return self.content[await lines.find_tail(self.read, count) :]

    async def grep(self, text: str, *, offset: int = 0, limit: int = 1 << 20) -> tuple[list[bytes], int]:
        """All that is found, as whoever goes on from where it ended gets it, and in how many calls."""
        pieces, calls = [], 0
        while True:
            piece, end = await lines.find_lines(self.read, offset, limit, text)
            calls += 1
            pieces += [piece] if piece else []
            if end <= offset:
                return pieces, calls
            offset = end


@pytest.mark.parametrize(
    ("content", "count", "expected"),
    [(b"", 3, b""), (b"a", 0, b""), (b"a", 1, b"a"), (b"a\n", 1, b"a\n"), (b"a\nb\nc\n", 2, b"b\nc\n"),
     (b"a\nb\nc", 2, b"b\nc"), (b"a\nb\n", 9, b"a\nb\n"), (b"a\n\n\n", 2, b"\n\n"), (b"\n", 1, b"\n")],
)  # fmt: skip
async def test_the_last_lines_of_a_log_are_those_that_tail_would_show(
    content: bytes, count: int, expected: bytes
) -> None:
    assert await Log(content).tail(count) == expected


async def test_the_last_lines_of_a_log_larger_than_a_slice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "SLICE", 16)
    chance = random.Random(7)
    for size in (15, 16, 17, 31, 32, 33, 500):
        content = bytes(chance.choice(b"abc\n") for _ in range(size))
        whole = content.splitlines(keepends=True)
        for count in (1, 2, 7, 1000):
            assert await Log(content).tail(count) == b"".join(whole[-count:]), (content, count)


async def test_the_end_of_a_large_log_is_found_without_reading_it_all() -> None:
    log = Log(b"0123456789abcde\n" * (2 << 20))
    assert await log.tail(2) == b"0123456789abcde\n" * 2
    assert log.reads < 60


async def test_lines_that_hold_a_text_are_given_whole_wherever_slices_end(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"".join(b"line %d %s\n" % (n, b"bad" if n % 3 == 0 else b"good") for n in range(50)) + b"last bad"
    expected = b"".join(line for line in content.splitlines(keepends=True) if b"bad" in line)
    for size in (16, 17, 40, 1 << 10):
        monkeypatch.setattr(lines, "SLICE", size)
        monkeypatch.setattr(lines, "SCANNED", size)
        for limit in (1, 30, 1 << 20):
            pieces, _ = await Log(content).grep("bad", limit=limit)
            assert b"".join(pieces) == expected, (size, limit)


async def test_a_search_without_a_find_goes_on_where_it_ended_until_the_log_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "SLICE", 8)
    monkeypatch.setattr(lines, "SCANNED", 16)
    pieces, calls = await Log(b"nothing\n" * 10).grep("found")
    assert (pieces, calls) == ([], 6)


async def test_a_text_is_no_pattern_and_may_be_of_any_language() -> None:
    log = Log("a.c\nabc\nГера\n".encode())
    assert (await log.grep("a.c"))[0] == [b"a.c\n"]
    assert (await log.grep("ер"))[0] == ["Гера\n".encode()]
