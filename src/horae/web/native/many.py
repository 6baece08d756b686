"""Bodies of very many items: a JSON array, an object that holds one, or a line for each (NDJSON).

What must stay true:
- Other requests are answered meanwhile: the whole is only cut into its items, and those are read, and answered, a slice
  at a time.
- Memory is bounded: by the size of a body, and by how many large ones are read at once.
- A body that cannot be cut is refused as a whole; what is wrong with an item is for the caller to judge.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec

from horae.core.work.specs import MAX_JOBS
from horae.errors import Error, Invalid, Limited, Malformed, TooLarge
from horae.web import documents, http
from horae.web.openapi import LINES

MAX_ITEMS = MAX_JOBS
MANY_BYTES = 32 * 1024 * 1024  # of a whole body
SECONDS = 120.0  # for a large one to arrive
LARGE_AT_ONCE = 4  # bodies beyond the ordinary limit
SLICE = 100  # items that are read or written before others have a turn

_ENVELOPE = re.compile(rb'\s*\{\s*"(\w+)"\s*:\s*(?=\[)')
_cut = msgspec.json.Decoder(list[msgspec.Raw]).decode

T = TypeVar("T")


class Many(NamedTuple):
    """The items of a body, each the text of one JSON value."""

    items: Sequence[bytes | msgspec.Raw]
    is_lines: bool
    name: str  # of the list

    async def slices(self) -> AsyncIterator[list[bytes]]:
        """Yield the texts of some items at a time; others have a turn in between."""
        for start in range(0, len(self.items), SLICE):
            await asyncio.sleep(0)
            yield [bytes(item) for item in self.items[start : start + SLICE]]

    async def read(self) -> AsyncIterator[tuple[str, Any]]:
        """Yield (path, value) of each item; the value is an Error where it cannot be read."""
        number = 0
        async for texts in self.slices():
            for text in texts:
                try:
                    if len(text) > documents.MAX_BYTES:
                        raise TooLarge(f"one of {self.name} has at most {documents.MAX_BYTES} bytes, got {len(text)}")
                    yield f"{self.name}[{number}]", documents.read_json(text)
                except Error as error:
                    yield f"{self.name}[{number}]", error
                number += 1


class Intake:
    """Takes large bodies in, a few at a time."""

    def __init__(self) -> None:
        self._large = 0

    @asynccontextmanager
    async def body(self, request: http.Request) -> AsyncIterator[bytes]:
        """Read a body; a large one keeps its place until the request is answered."""
        length = request.header(b"content-length") or ""
        is_large = not (length.isascii() and length.isdigit() and int(length[:20]) <= http.BODY_LIMIT)
        if is_large and self._large >= LARGE_AT_ONCE:
            raise Limited(f"{self._large} large bodies are being read, and that is the limit", hint="try again")
        self._large += is_large
        try:
            yield await request.read(MANY_BYTES, SECONDS if is_large else None)
        finally:
            self._large -= is_large


def is_lines(request: http.Request) -> bool:
    return (request.header(b"content-type") or "").lower().partition(";")[0].strip() in LINES


def is_list(request: http.Request, body: bytes) -> bool:
    """Return whether a body is a list by its looks: one without a name, or lines."""
    return is_lines(request) or body.lstrip()[:1] == b"["


def cut(request: http.Request, body: bytes, name: str) -> Many | None:
    """Cut a body into its items; None when it is not a list of them, or not JSON at all."""
    if is_lines(request):
        return _counted(Many([line for line in body.split(b"\n") if line.strip()], True, name))
    if not (request.header(b"content-type") or "").lower().startswith("application/json"):
        return None
    inner: bytes | memoryview = body
    match = _ENVELOPE.match(body)
    if match is not None and match[1] == name.encode():
        end = len(body.rstrip()) - 1
        if body[end : end + 1] != b"}":
            raise _unreadable(body, name)
        inner = memoryview(body)[match.end() : end]
    elif body.lstrip()[:1] != b"[":
        return None
    try:
        return _counted(Many(_cut(inner), False, name))
    except (msgspec.DecodeError, RecursionError):
        raise _unreadable(body, name) from None


def _unreadable(body: bytes, name: str) -> Error:
    """Say what is wrong: in an ordinary body exactly, in a large one without reading it again."""
    if len(body) <= http.BODY_LIMIT:
        try:
            found = documents.read_json(body)
        except Error as error:
            return error
        others = ", ".join(repr(key[:60]) for key in found if key != name) if isinstance(found, dict) else ""
        return Invalid(f"{name} stands alone here, got {others or 'something else'}", code="E_UNKNOWN_FIELD")
    hint = f'send a JSON array, {{"{name}": […]}} with nothing beside it, or a line for each ({LINES[0]})'
    return Malformed("the body is not JSON that can be read", code="E_JSON_SYNTAX", hint=hint)


def _counted(many: Many) -> Many:
    if not many.items:
        raise Invalid("must have at least one item", code="E_EMPTY", path=many.name)
    if len(many.items) > MAX_ITEMS:
        message = f"at most {MAX_ITEMS} {many.name} per request, got {len(many.items)}"
        raise Invalid(message, code="E_LIMIT", path=many.name, hint="send them in several requests")
    return many


class Pieces:
    """An answer of many items, in pieces that are ready to be sent: each some items, with what stands between them."""

    def __init__(self, status: int, pieces: Iterable[bytes], *, name: str, is_lines: bool, end: str = "") -> None:
        """`end` is what follows the list, in JSON; lines have nothing around them."""
        self._status = status
        self._pieces = pieces
        self._is_lines = is_lines
        self._around = ("", "\n") if is_lines else (f'{{"{name}":[', f"]{end}}}")

    async def send(self, request: http.Request) -> None:
        media = LINES[0].encode() if self._is_lines else b"application/json"
        before, after = (text.encode() for text in self._around)
        await request.start(self._status, [(b"content-type", media), *http.DATA])
        for piece in self._pieces:
            await request.send({"type": "http.response.body", "body": before + piece, "more_body": True})
            before = between(is_lines=self._is_lines)
            await asyncio.sleep(0)
        await request.send({"type": "http.response.body", "body": after})


def between(*, is_lines: bool) -> bytes:
    """Return what stands between two items."""
    return b"\n" if is_lines else b","


def in_pieces(items: Sequence[T], render: Callable[[T], Any], *, is_lines: bool) -> Iterator[bytes]:
    """Yield a slice of the items at a time, as JSON."""
    for start in range(0, len(items), SLICE):
        some = items[start : start + SLICE]
        yield between(is_lines=is_lines).join([http.encode(render(item)) for item in some])
