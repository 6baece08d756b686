"""Lines of a log that is only read by offset: where the last ones begin, and which of them hold a text.

A log may be of any size and lie on another node, so nothing here holds more of it than a slice. Nobody asks how long it
is either: whoever keeps it need only give bytes. A text is looked for as it stands, never as a pattern: a pattern of a
stranger could keep the process busy for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

Read = Callable[[int, int], Awaitable[bytes]]  # (offset, limit): empty when there is nothing

SLICE = 256 * 1024  # bytes read at once, and the longest line that is taken for one
SCANNED = 16 * 1024 * 1024  # bytes in which one call looks for a text


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
