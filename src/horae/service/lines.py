"""Lines of a log that is only read by offset: where the last ones begin, and which of them hold a text.

A log may be of any size and lie on another node, so nothing here holds more of it than a slice. Nobody asks how long it
is either: whoever keeps it need only give bytes. A text is looked for as it stands, never as a pattern: a pattern of a
stranger could keep the process busy for ever.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

Read = Callable[[int, int], Awaitable[bytes]]  # (offset, limit): empty when there is nothing

SLICE = 256 * 1024  # bytes read at once, and the longest line that is taken for one
SCANNED = 16 * 1024 * 1024  # bytes in which one call looks for a text
BLOCK = 64 * 1024  # bytes after which an index names a line again
MOST_SHOWN = 500  # characters of a line that was found
MOST_HEADS = 1000
MOST_DOUBTED = 50  # lines of a slice that are looked at more closely
HEAD = "── ".encode()  # begins a line of Horae's own in a log: a step begins, or has ended

_ERROR_WORDS = (b"error", b"fatal", b"panic", b"exception", b"traceback")
_SPEAKS_OF_ERROR = re.compile(
    rb"(?<![a-z0-9_-])(?:[a-z]{0,40}error|fatal|panic|[a-z]{0,40}exception|traceback)(?![a-z0-9_-])"
)
_DENIES_ERROR = re.compile(rb"\b(?:no|0|without(?: an)?) (?:errors?|exceptions?)\b")


async def find_tail(read: Read, lines: int) -> int:
    """Return where the last lines begin; without any, the end."""
    end = size = await size_of(read)
    missing = lines
    while end > 0 and missing > 0:
        start = max(0, end - SLICE)
        piece = await read(start, end - start)
        if end == size:
            piece = piece.removesuffix(b"\n")  # which ends the last line, and begins none
        found = piece.count(b"\n")
        if found >= missing:
            return start + _begin_of_last(piece, missing)
        missing, end = missing - found, start
    return end


async def size_of(read: Read) -> int:
    """Return how many bytes there are: most logs end within the first slice."""
    low, high = len(await read(0, SLICE)), SLICE
    if low < high:
        return low
    while await read(high, 1):
        low, high = high, high * 2
    while high - low > 1:  # there is a byte before `low`, and none at `high`
        middle = (low + high) // 2
        low, high = (middle, high) if await read(middle, 1) else (low, middle)
    return high


def _begin_of_last(piece: bytes, lines: int) -> int:
    at = len(piece)
    for _ in range(lines):
        at = piece.rindex(b"\n", 0, at)
    return at + 1


async def find_lines(read: Read, offset: int, limit: int, text: str) -> tuple[bytes, int]:
    """Return the lines from an offset on that hold a text, and where to go on: at the next line, or at the end.

    They are at most `limit` bytes and the line that goes beyond."""
    wanted, found, size, at = text.encode(), list[bytes](), 0, offset
    while at - offset < SCANNED:
        piece = await read(at, SLICE)
        if not piece:
            break
        whole = piece.rfind(b"\n") + 1 or len(piece)  # else a line without end, or the last one
        for begin, end in _places(piece[:whole], wanted):
            found.append(piece[begin:end])
            size += end - begin
            if size >= limit:
                return b"".join(found), at + end
        at += whole
    return b"".join(found), at


def _places(piece: bytes, wanted: bytes) -> list[tuple[int, int]]:
    """Return begin and end of each line that holds it."""
    places, at = [], piece.find(wanted)
    while at >= 0:
        begin, end = piece.rfind(b"\n", 0, at) + 1, piece.find(b"\n", at) + 1 or len(piece)
        places.append((begin, end))
        at = piece.find(wanted, end)
    return places


class Line(NamedTuple):
    number: int  # from 1
    offset: int
    text: str


class Looked(NamedTuple):
    """What was found in a part of a log, and where to go on: in which line."""

    next_offset: int
    next_line: int
    is_end: bool
    found: list[Line]


@dataclass(slots=True)
class Index:
    """Where lines lie in a part of a log."""

    next_offset: int
    next_line: int
    is_end: bool = False
    size: int | None = None  # of the whole, where its end was seen
    blocks: list[tuple[int, int]] = field(default_factory=list)  # line, offset
    heads: list[Line] = field(default_factory=list)
    first_error: Line | None = None


async def index_lines(read: Read, offset: int, line: int, limit: int = SCANNED) -> Index:
    """Return where lines lie from an offset on, at which a line of this number begins, in so many bytes and what it
    takes to end a slice. A last line that has not ended is where to go on: it may grow."""
    index = Index(offset, line)
    is_begin = offset == 0 or await read(offset - 1, 1) == b"\n"  # else a line longer than a slice goes on here
    while index.next_offset - offset < limit:
        piece = await read(index.next_offset, SLICE)
        whole = piece.rfind(b"\n") + 1
        if len(piece) < SLICE:
            index.is_end, index.size = True, index.next_offset + len(piece)
            _note(index, piece, is_begin)
        else:
            _note(index, piece[: whole or len(piece)], is_begin)  # a line longer than a slice goes on in the next
        is_begin = whole > 0
        index.next_offset += whole or (len(piece) if not index.is_end else 0)
        index.next_line += piece.count(b"\n")
        if index.is_end:
            break
    return index


def _note(index: Index, piece: bytes, is_begin: bool) -> None:
    at, number = index.next_offset, index.next_line
    _note_blocks(index, piece, at, number, is_begin)
    for begin, end in _places(piece, HEAD):
        if len(index.heads) < MOST_HEADS and piece.startswith(HEAD, begin):
            index.heads.append(_line(piece, begin, end, at, number))
    if index.first_error is None:
        index.first_error = _find_error(piece, at, number)


def _note_blocks(index: Index, piece: bytes, at: int, number: int, is_begin: bool) -> None:
    """A block begins with a line, and so does a piece, unless a line is longer than one."""
    begin, line = (0, number) if is_begin else (piece.find(b"\n") + 1 or len(piece), number + 1)
    while begin < len(piece):
        index.blocks.append((line, at + begin))
        end = piece.find(b"\n", begin + BLOCK) + 1 or len(piece)
        line += piece.count(b"\n", begin, end)
        begin = end


def _find_error(piece: bytes, at: int, number: int) -> Line | None:
    low = piece.lower()
    places = [place for word in _ERROR_WORDS for place in _places(low, word)[:MOST_DOUBTED]]
    for begin, end in sorted(places):
        if _SPEAKS_OF_ERROR.search(low, begin, end) and not _DENIES_ERROR.search(low, begin, end):
            return _line(piece, begin, end, at, number)
    return None


def _line(piece: bytes, begin: int, end: int, at: int, number: int) -> Line:
    text = piece[begin : min(end, begin + 4 * MOST_SHOWN)].decode("utf-8", "replace").rstrip("\r\n")[:MOST_SHOWN]
    return Line(number + piece.count(b"\n", 0, begin), at + begin, text)


async def match_lines(read: Read, offset: int, line: int, limit: int, text: str) -> Looked:
    """Return up to `limit` lines from an offset on that hold a text, letters from A to Z in either case."""
    wanted, found, at, number = text.encode().lower(), list[Line](), offset, line
    while at - offset < SCANNED:
        piece = await read(at, SLICE)
        if not piece:
            return Looked(at, number, True, found)
        whole = piece.rfind(b"\n") + 1 or len(piece)
        piece = piece[:whole]
        seen, counted = 0, number
        for begin, end in _places(piece.lower(), wanted):
            counted += piece.count(b"\n", seen, begin)
            seen = begin
            found.append(Line(counted, at + begin, _line(piece, begin, end, at, 0).text))
            if len(found) >= limit:
                return Looked(at + end, counted + piece.count(b"\n", begin, end), False, found)
        at, number = at + whole, number + piece.count(b"\n")
    return Looked(at, number, False, found)
