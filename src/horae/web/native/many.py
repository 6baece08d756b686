"""Bodies of very many items: a JSON array, an object that holds one, or a line for each (NDJSON).

What must stay true:
- Other requests are answered meanwhile: the whole is only cut into its items, and those are read, and answered, a slice
  at a time.
- Memory is bounded: by the size of a body, or, of one that is read as it arrives, by what its items come to; and by how
  many large ones are read at once.
- A body that cannot be cut is refused as a whole; what is wrong with an item is for the caller to judge.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec

from horae.core.definitions import Idempotency
from horae.core.work.specs import MAX_JOBS
from horae.errors import Error, Invalid, Limited, TooLarge
from horae.web import documents, http
from horae.web.native.cutting import Array, Cutter, Lines, unreadable
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
            if start:
                await asyncio.sleep(0)
            yield [bytes(item) for item in self.items[start : start + SLICE]]

    async def read(self) -> AsyncIterator[tuple[str, Any]]:
        """Yield (path, value) of each item; the value is an Error where it cannot be read."""
        number = 0
        async for texts in self.slices():
            for text in texts:
                yield _item(self.name, number, text)
                number += 1


def _item(name: str, number: int, text: bytes) -> tuple[str, Any]:
    """Return the path and the value of an item; an Error where it cannot be read."""
    path = f"{name}[{number}]"
    if len(text) > documents.MAX_BYTES:
        return path, TooLarge(f"one of {name} has at most {documents.MAX_BYTES} bytes, got {len(text)}")
    try:
        return path, documents.read_json(text)
    except Error as error:
        return path, error


class Arriving:
    """A body that may be large: an ordinary one is read whole, of another the rest is read while it arrives."""

    def __init__(self, request: http.Request, *, is_large: bool) -> None:
        self.whole: bytes | None = None  # all of it, if that is no more than an ordinary body has
        self._request = request
        self._is_large = is_large
        self._size = 0
        self._is_over = False

    async def first(self) -> bytes:
        """Return what an ordinary body may have, and the little that came with it: mostly, all of it."""
        if not self._is_large:
            self.whole = await self._request.read()
            return self.whole
        self._deadline = asyncio.get_running_loop().time() + SECONDS
        self._digest = hashlib.sha256(_act_of(self._request).encode("utf-8", "surrogatepass") + b"\n")
        _refuse_beyond(self._request.header(b"content-length") or "")
        begun = bytearray()
        while not self._is_over and len(begun) <= http.BODY_LIMIT:
            begun += await self._piece()
        if self._is_over and len(begun) <= http.BODY_LIMIT:
            self.whole = bytes(begun)
        return bytes(begun)

    def items(self, first: bytes, name: str) -> Coming:
        """Return the items of a long list: what came first, and all that is still to come."""
        if is_lines(self._request):
            return Coming(self, first, Lines(name), name, is_lines=True)
        if not (_is_json(self._request) and (is_list(self._request, first) or _ENVELOPE.match(first))):
            self._request.parse(first)  # says what it is too large for
        return Coming(self, first, Array(name), name, is_lines=False)

    async def rest(self) -> AsyncIterator[bytes]:
        while not self._is_over:
            yield await self._piece()

    def idempotency(self) -> Idempotency | None:
        """Return the client's promise, if it made one, once all has arrived."""
        if self.whole is not None:
            return self._request.idempotency(self.whole)
        key = self._request.idempotency_key()
        if key is None:
            return None
        scope = f"{http.principal(self._request).scope} {_act_of(self._request)}"
        return Idempotency(scope, key, self._digest.hexdigest())

    async def _piece(self) -> bytes:
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._request.receive()
        except TimeoutError:
            raise http.Unfinished(f"the body did not arrive within {SECONDS:g} s") from None
        if message["type"] == "http.disconnect":
            raise http.Gone
        piece: bytes = message["body"]
        self._size += len(piece)
        self._is_over = not message.get("more_body")
        _refuse_beyond(str(self._size))
        self._digest.update(piece)
        return piece


class Coming:
    """The items of a long body, cut out of it while it arrives."""

    def __init__(self, arriving: Arriving, first: bytes, cutter: Cutter, name: str, *, is_lines: bool) -> None:
        self.is_lines = is_lines
        self._arriving = arriving
        self._first = first
        self._cutter = cutter
        self._name = name

    async def read(self) -> AsyncIterator[tuple[str, Any]]:
        """As Many.read. Each is read before the next piece is asked for."""
        number = 0
        async for texts in self._texts():
            for text in texts:
                if number == MAX_ITEMS:
                    raise _too_many(self._name, "more")
                if number % SLICE == SLICE - 1:
                    await asyncio.sleep(0)
                yield _item(self._name, number, text)
                number += 1
        if not number:
            raise _none(self._name)

    async def _texts(self) -> AsyncIterator[Iterator[bytes]]:
        first, self._first = self._first, b""
        yield self._cutter.cut(first)
        async for piece in self._arriving.rest():
            yield self._cutter.cut(piece)
        yield self._cutter.rest()


class Intake:
    """Takes large bodies in, a few at a time."""

    def __init__(self) -> None:
        self._large = 0

    @asynccontextmanager
    async def body(self, request: http.Request) -> AsyncIterator[bytes]:
        """Read a body; a large one keeps its place until the request is answered."""
        with self._place(request) as is_large:
            yield await request.read(MANY_BYTES, SECONDS if is_large else None)

    @contextmanager
    def arriving(self, request: http.Request) -> Iterator[Arriving]:
        """As `body`, of one that is read as it arrives."""
        with self._place(request) as is_large:
            yield Arriving(request, is_large=is_large)

    @contextmanager
    def _place(self, request: http.Request) -> Iterator[bool]:
        """Keep a place among the large ones, for a body that is large, or may be."""
        length = request.header(b"content-length") or ""
        is_large = not (length.isascii() and length.isdigit() and int(length[:20]) <= http.BODY_LIMIT)
        if is_large and self._large >= LARGE_AT_ONCE:
            raise Limited(f"{self._large} large bodies are being read, and that is the limit", hint="try again")
        self._large += is_large
        try:
            yield is_large
        finally:
            self._large -= is_large


def _act_of(request: http.Request) -> str:
    return f"{request.scope['method']} {request.scope['path']}"


def _refuse_beyond(size: str) -> None:
    if size.isascii() and size.isdigit() and int(size[:20]) > MANY_BYTES:
        raise TooLarge(f"the body has at most {MANY_BYTES} bytes, got {size[:20]}")


def is_lines(request: http.Request) -> bool:
    return (request.header(b"content-type") or "").lower().partition(";")[0].strip() in LINES


def _is_json(request: http.Request) -> bool:
    return (request.header(b"content-type") or "").lower().startswith("application/json")


def is_list(request: http.Request, body: bytes) -> bool:
    """Return whether a body is a list by its looks: one without a name, or lines."""
    return is_lines(request) or body.lstrip()[:1] == b"["


def cut(request: http.Request, body: bytes, name: str) -> Many | None:
    """Cut a body into its items; None when it is not a list of them, or not JSON at all."""
    if is_lines(request):
        return _counted(Many([line for line in body.split(b"\n") if line.strip()], True, name))
    if not _is_json(request):
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
    return unreadable(name)


def _counted(many: Many) -> Many:
    if not many.items:
        raise _none(many.name)
    if len(many.items) > MAX_ITEMS:
        raise _too_many(many.name, str(len(many.items)))
    return many


def _none(name: str) -> Error:
    return Invalid("must have at least one item", code="E_EMPTY", path=name)


def _too_many(name: str, got: str) -> Error:
    message = f"at most {MAX_ITEMS} {name} per request, got {got}"
    return Invalid(message, code="E_LIMIT", path=name, hint="send them in several requests")


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
        if isinstance(self._pieces, list) and len(self._pieces) == 1:
            await http.Reply(self._status, before + self._pieces[0] + after, media).send(request)
            return
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
