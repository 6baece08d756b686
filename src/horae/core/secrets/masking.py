"""Hiding secrets in what an attempt writes, however it is cut into pieces.

    Masker   a stream of bytes, piece by piece: what may become a secret is held back until it is decided
    mask     a text as a whole

What is hidden of each secret: itself, its lines if it has several, and the forms it takes on its way into logs:
base64 (also as a part of something longer), URL encoding, JSON. Shorter than `SHORTEST`, it is not hidden, for its
letters would be hidden everywhere.

What must stay true: the same bytes come out wherever the stream was cut; overlapping secrets are hidden as one; at
most the longest form less one byte is held back, and only if it is the beginning of one; the work grows with the text
and not with the number of forms, for a secret of a thousand lines has ten thousand.

This guards against accidents. A job that wants to show its secrets can.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator

SHORTEST = 4  # bytes
MASK = b"***"
RELEASED = 2  # bytes of what may become a secret that are shown when the writer pauses
_CUT = 8  # characters of base64 inside something longer that are worth looking for
_LONGEST = 256  # bytes of a form: what is longer is hidden piece by piece, so no comparison is longer than this
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")
_RESERVED = re.compile(rb"[^A-Za-z0-9_.~-]")
_URLSAFE = bytes.maketrans(b"+/", b"-_")
_FEW = 48  # beginnings of forms that are sought one by one; of more, all at once
_PROBE = 32  # bytes of the text that are compared first
_REMEMBERED = 500  # places of a text whose forms are known


class Forms:
    """Everything that is to be hidden, in order, so that one search among them finds what a text begins with."""

    def __init__(self, forms: Iterable[bytes]) -> None:
        """Each has `SHORTEST` bytes at least."""
        self._forms = sorted(set(forms))
        self._sizes = _sizes(self._forms)
        self._longest_size: int = max(map(len, self._forms), default=0)
        self._heads = {form[:SHORTEST] for form in self._forms}
        self._numbers = frozenset(memoryview(b"".join(self._heads)).cast("I"))

    def __len__(self) -> int:
        return len(self._forms)

    def found(self, text: bytes) -> Iterator[tuple[int, int]]:
        """From where to where a form stands, in order; of those that begin at one place, the longest."""
        sizes: dict[bytes, int] = {}  # what repeats itself is looked up once
        for at in self._begun(text):
            key = text[at : at + self._longest_size]
            size = sizes.get(key)
            if size is None:
                if len(sizes) >= _REMEMBERED:
                    sizes.clear()
                size = sizes[key] = self._longest(text, at)[0]
            if size:
                yield at, at + size

    def undecided(self, text: bytes) -> int:
        """Return where the longest end of the text that is the beginning of a form starts."""
        if not self._forms:
            return len(text)
        near = max(0, len(text) - self._longest_size)
        places = [near + at for at in self._begun(text[near:])]
        places += range(max(0, len(text) - SHORTEST + 1), len(text))
        for at in places:
            _, goes_on = self._longest(text, at)
            if goes_on:
                return at
        return len(text)

    def _begun(self, text: bytes) -> list[int]:
        """Return where the first bytes of a form stand, in order."""
        heads = self._heads if len(self._heads) <= _FEW else self._among(text)
        if len(heads) > _FEW:
            return [at for at in range(len(text) - SHORTEST + 1) if text[at : at + SHORTEST] in heads]
        places = []
        for head in heads:
            at = text.find(head)
            while at >= 0:
                places.append(at)
                at = text.find(head, at + 1)
        return sorted(places)

    def _among(self, text: bytes) -> set[bytes]:
        """Return the heads that the text has. Every four bytes are a number, and numbers are looked up without a loop
        of ours."""
        found: set[int] = set()
        for first in range(SHORTEST):
            numbers = array("I", text[first : first + max(0, len(text) - first) // SHORTEST * SHORTEST])
            found |= self._numbers.intersection(numbers)
        return {number.to_bytes(SHORTEST, sys.byteorder) for number in found}

    def _longest(self, text: bytes, at: int) -> tuple[int, bool]:
        """Return the size of the longest form that stands here, and whether the text ends within a longer one."""
        size = _PROBE
        while True:
            key = text[at : at + size]
            after = bisect_right(self._forms, key)
            goes_on = after < len(self._forms) and self._forms[after].startswith(key)
            if not goes_on or at + size >= len(text):
                break
            size *= 2
        return (self._standing(key, after - 1) if after else 0), goes_on

    def _standing(self, key: bytes, before: int) -> int:
        """Return the size of the longest form that the key begins with: it is one that the form before the key begins
        with."""
        shared, sizes = _shared(key, self._forms[before]), self._sizes[before]
        at = bisect_right(sizes, shared)
        return sizes[at - 1] if at else 0


def _shared(one: bytes, other: bytes) -> int:
    """With how many bytes of the other one begins."""
    if one.startswith(other):
        return len(other)
    low, high = 0, len(other) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one.startswith(other[:middle]) else (low, middle - 1)
    return low


def _sizes(forms: list[bytes]) -> list[tuple[int, ...]]:
    """For each form in order the sizes of those that it begins with, itself the last."""
    sizes, open_ = list[tuple[int, ...]](), list[int]()
    for place, form in enumerate(forms):
        while open_ and not form.startswith(forms[open_[-1]]):
            open_.pop()
        sizes.append((*(sizes[open_[-1]] if open_ else ()), len(form)))
        open_.append(place)
    return sizes


def forms_of(values: Iterable[str]) -> Forms:
    """Everything that is to be hidden. The line end of a secret is none: what follows stays on its own line."""
    found: set[bytes] = set()
    for value in values:
        for text in {value.strip(), *(line.strip() for line in value.splitlines())}:
            raw = text.encode(errors="replace")
            if len(raw) >= SHORTEST:
                found |= {raw, *_texts(text, raw), *_base64(raw)}
    return Forms(piece for form in found if len(form) >= SHORTEST for piece in _pieces(form))


def _pieces(form: bytes) -> Iterator[bytes]:
    """They overlap, so that together they are hidden as one."""
    if len(form) <= _LONGEST:
        yield form
        return
    for start in range(0, len(form) - _LONGEST, _LONGEST - 1):
        yield form[start : start + _LONGEST]
    yield form[-_LONGEST:]


def _texts(text: str, raw: bytes) -> set[bytes]:
    if _PLAIN.fullmatch(text):  # it looks the same everywhere
        return set()
    strict = _RESERVED.sub(_escaped, raw)  # as urllib.parse.quote does it, which looks at each byte
    given = (strict, strict.replace(b"%2F", b"/"), strict.replace(b"%20", b"+"))
    written = (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
    return {*given, *(each.encode(errors="replace") for each in written)}


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"%%%02X" % found[0][0]


def _base64(raw: bytes) -> Iterator[bytes]:
    """Alone, and where 1 or 2 bytes of something else come before it in its group of three: only the characters that
    depend on the secret alone."""
    for part in _parts(raw):
        yield part
        if b"+" in part or b"/" in part:
            yield part.translate(_URLSAFE)


def _parts(raw: bytes) -> Iterator[bytes]:
    yield base64.b64encode(raw).rstrip(b"=")
    for before in (0, 1, 2):
        first = (8 * before + 5) // 6
        last = 8 * (before + len(raw)) // 6
        part = base64.b64encode(bytes(before) + raw)[first:last]
        if len(part) >= _CUT:
            yield part


class Masker:
    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self._tail = b""  # what may be the beginning of a form
        self._written = 0  # bytes of it that have been written already, as they are or hidden
        self._hidden = 0  # bytes of it that belong to a form hidden already

    def feed(self, data: bytes) -> bytes:
        """Return what can be written now."""
        text = self._tail + data
        return self._write(text, self._forms.undecided(text))

    def release(self) -> bytes:
        """The writer pauses: let its reader see what is held back, as long as it says nothing about a secret."""
        until = min(len(self._tail), RELEASED)
        shown = self._tail[self._written : until]
        self._written = max(self._written, until)
        return shown

    def flush(self) -> bytes:
        """Return the rest: there will be no more."""
        return self._write(self._tail, len(self._tail))

    @property
    def is_holding(self) -> bool:
        return len(self._tail) > self._written

    def _write(self, text: bytes, until: int) -> bytes:
        """Everything before `until`; what is behind it stays."""
        out, at, hidden = [], self._written, self._hidden
        for start, end in _merged(self._forms.found(text), hidden):
            if start >= until:
                break
            if start >= hidden:
                out += [text[at:start], MASK]
            at, hidden = max(at, end), max(hidden, end)
        out.append(text[at:until])
        self._tail = text[until:]
        self._written, self._hidden = max(at - until, 0), max(hidden - until, 0)
        return b"".join(out)


def _merged(spans: Iterable[tuple[int, int]], hidden: int) -> Iterator[tuple[int, int]]:
    """Spans that overlap are one. The first `hidden` bytes are one already."""
    start, end = 0, hidden
    for first, last in spans:
        if first < end:
            end = max(end, last)
            continue
        if end:
            yield start, end
        start, end = first, last
    if end:
        yield start, end


def mask(text: str, forms: Forms) -> str:
    masker = Masker(forms)
    return (masker.feed(text.encode(errors="replace")) + masker.flush()).decode(errors="replace")


def mask_json(text: str, forms: Forms) -> str:
    """JSON text, still JSON afterwards: as text where hiding took away its form."""
    hidden = mask(text, forms)
    try:
        json.loads(hidden)
    except ValueError:
        return json.dumps(hidden, ensure_ascii=False)
    return hidden
