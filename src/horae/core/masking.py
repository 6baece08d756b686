"""Hiding secrets in what an attempt writes, however it is cut into pieces.

    Masker   a stream of bytes, piece by piece: what may become a secret is held back until it is decided
    mask     a text as a whole

What is hidden of each secret: itself, its lines if it has several, and the forms it takes on its way into logs:
base64 (also as a part of something longer), URL encoding, JSON. Shorter than `SHORTEST`, it is not hidden, for its
letters would be hidden everywhere.

What must stay true: the same bytes come out wherever the stream was cut; overlapping secrets are hidden as one; at
most the longest form less one byte is held back, and only if it is the beginning of one.

This guards against accidents. A job that wants to show its secrets can.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

SHORTEST = 4  # bytes
MASK = b"***"
RELEASED = 2  # bytes of what may become a secret that are shown when the writer pauses
_CUT = 8  # characters of base64 inside something longer that are worth looking for


def forms_of(values: Iterable[str]) -> frozenset[bytes]:
    """Everything that is to be hidden. The line end of a secret is none: what follows stays on its own line."""
    found: set[bytes] = set()
    for value in values:
        for text in {value.strip(), *(line.strip() for line in value.splitlines())}:
            raw = text.encode(errors="replace")
            if len(raw) >= SHORTEST:
                found |= {raw, *_texts(text), *_base64(raw)}
    return frozenset(form for form in found if len(form) >= SHORTEST)


def _texts(text: str) -> set[bytes]:
    given = (quote(text, safe="", errors="replace"), quote(text, errors="replace"), quote_plus(text, errors="replace"))
    written = (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
    return {each.encode(errors="replace") for each in (*given, *written)}


def _base64(raw: bytes) -> Iterator[bytes]:
    """Alone, and where 1 or 2 bytes of something else come before it in its group of three: only the characters that
    depend on the secret alone."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(raw).rstrip(b"=")
        for before in (0, 1, 2):
            first = (8 * before + 5) // 6
            last = 8 * (before + len(raw)) // 6
            part = encode(bytes(before) + raw)[first:last]
            if len(part) >= _CUT:
                yield part


class Masker:
    def __init__(self, forms: Iterable[bytes]) -> None:
        self._forms = tuple(forms)
        self._tail = b""  # what may be the beginning of a form
        self._written = 0  # bytes of it that have been written already, as they are or hidden
        self._hidden = 0  # bytes of it that belong to a form hidden already

    def feed(self, data: bytes) -> bytes:
        """What can be written now."""
        text = self._tail + data
        return self._write(text, self._undecided(text))

    def release(self) -> bytes:
        """The writer pauses: let its reader see what is held back, as long as it says nothing about a secret."""
        until = min(len(self._tail), RELEASED)
        shown = self._tail[self._written : until]
        self._written = max(self._written, until)
        return shown

    def flush(self) -> bytes:
        """The rest: there will be no more."""
        return self._write(self._tail, len(self._tail))

    @property
    def is_holding(self) -> bool:
        return len(self._tail) > self._written

    def _write(self, text: bytes, until: int) -> bytes:
        """Everything before `until`; what is behind it stays."""
        out, at, hidden = [], self._written, self._hidden
        for start, end in _merged(self._found(text), hidden):
            if start >= until:
                break
            if start >= hidden:
                out += [text[at:start], MASK]
            at, hidden = max(at, end), max(hidden, end)
        out.append(text[at:until])
        self._tail = text[until:]
        self._written, self._hidden = max(at - until, 0), max(hidden - until, 0)
        return b"".join(out)

    def _found(self, text: bytes) -> list[tuple[int, int]]:
        spans = []
        for form in self._forms:
            at = text.find(form)
            while at >= 0:
                spans.append((at, at + len(form)))
                at = text.find(form, at + 1)
        return sorted(spans)

    def _undecided(self, text: bytes) -> int:
        """Where the longest end of the text that is the beginning of a form starts."""
        return min((_beginning(text, form) for form in self._forms), default=len(text))


def _beginning(text: bytes, form: bytes) -> int:
    at = text.find(form[:SHORTEST], max(0, len(text) - len(form) + 1))
    while at >= 0:
        if form.startswith(text[at:]):
            return at
        at = text.find(form[:SHORTEST], at + 1)
    for size in range(SHORTEST - 1, 0, -1):
        if text.endswith(form[:size]):
            return len(text) - size
    return len(text)


def _merged(spans: list[tuple[int, int]], hidden: int) -> Iterator[tuple[int, int]]:
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


def mask(text: str, forms: Iterable[bytes]) -> str:
    masker = Masker(forms)
    return (masker.feed(text.encode(errors="replace")) + masker.flush()).decode(errors="replace")


def mask_json(text: str, forms: Iterable[bytes]) -> str:
    """JSON text, still JSON afterwards: as text where hiding took away its form."""
    hidden = mask(text, forms)
    try:
        json.loads(hidden)
    except ValueError:
        return json.dumps(hidden, ensure_ascii=False)
    return hidden
