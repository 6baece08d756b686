"""Where lines of a log lie, and which hold a text: of logs that are only read by offset."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from horae.service import lines
from horae.service.lines import index_lines, match_lines

STEPS = "── step 1/2 a ──\none\n── step 2/2 b ──\nno error here\nan ERROR there\nlast".encode()


def reader(data: bytes) -> Callable[[int, int], Awaitable[bytes]]:
    async def read(offset: int, limit: int) -> bytes:
        return data[offset : offset + limit]

    return read


async def test_an_index_names_steps_the_first_error_and_where_the_last_line_begins() -> None:
    found = await index_lines(reader(STEPS), 0, 1)

    assert [(head.number, head.text) for head in found.heads] == [(1, "── step 1/2 a ──"), (3, "── step 2/2 b ──")]
    assert found.first_error is not None
    assert (found.first_error.number, found.first_error.text) == (5, "an ERROR there")
    assert (found.next_line, found.next_offset) == (6, STEPS.index(b"last"))
    assert (found.is_end, found.size) == (True, len(STEPS))


async def test_every_block_of_an_index_begins_with_the_line_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "SLICE", 1000)
    monkeypatch.setattr(lines, "BLOCK", 100)
    data = b"".join(b"line %d\n" % number for number in range(1, 2001))
    all_lines = data.split(b"\n")
    blocks, offset, line, calls = [], 0, 1, 0
    while True:
        found = await index_lines(reader(data), offset, line, 3000)
        assert found.next_offset - offset < 4000
        blocks += found.blocks
        offset, line, calls = found.next_offset, found.next_line, calls + 1
        if found.is_end:
            break

    assert calls > 1
    assert (offset, line) == (len(data), 2001)
    for number, at in blocks:
        if at < len(data):
            assert data[at:].startswith(all_lines[number - 1] + b"\n")


async def test_a_line_without_end_is_indexed_and_nothing_is_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "SLICE", 1000)
    found = await index_lines(reader(b"x" * 5500), 0, 1)
    assert (found.is_end, found.next_line, found.size) == (True, 1, 5500)


async def test_no_block_begins_within_a_line_that_is_longer_than_what_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "SLICE", 1000)
    monkeypatch.setattr(lines, "BLOCK", 100)
    data = b"short\n" * 10 + b"x" * 5500 + b"\nlast\n"
    blocks, offset, line = [], 0, 1
    for _ in range(6):
        found = await index_lines(reader(data), offset, line, 1)
        blocks += found.blocks
        offset, line = found.next_offset, found.next_line
    found = await index_lines(reader(data), offset, line)
    assert found.is_end
    assert blocks + found.blocks == [(1, 0), (11, 60), (12, data.index(b"last"))]


async def test_an_empty_log_has_an_end_and_no_line() -> None:
    found = await index_lines(reader(b""), 0, 1)
    assert (found.is_end, found.size, found.blocks, found.next_line) == (True, 0, [], 1)


async def test_lines_that_hold_a_text_are_found_with_their_numbers_in_whatever_case() -> None:
    found = await match_lines(reader(STEPS), 0, 1, 10, "Error")
    assert [(one.number, one.text) for one in found.found] == [(4, "no error here"), (5, "an ERROR there")]
    assert found.is_end


async def test_a_search_goes_on_where_it_had_enough() -> None:
    data, numbers, offset, line = b"hit\nmiss\n" * 50, [], 0, 1
    while True:
        found = await match_lines(reader(data), offset, line, 7, "hit")
        numbers += [one.number for one in found.found]
        offset, line = found.next_offset, found.next_line
        if found.is_end:
            break
    assert numbers == list(range(1, 100, 2))
