"""How calls are made: requests, pages of lists, and answers as they were sent."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from horae.client.steps import Call, Json, Steps, ask, foreign, load
from horae.client.wire import Answer, Request, to_address
from horae.errors import Invalid

PAGE = 1000  # most items the server gives at once
MANY = 10_000  # most orders or jobs that it takes at once
MANY_BYTES = 16 << 20  # of those, in one request
MANY_TIMEOUT = 300.0  # seconds for them to be answered
TOGETHER = 100  # that are written at once; MANY is a multiple


def body_of(request: Request) -> Steps:
    """One exchange; returns the body as it was sent."""
    return (yield from ask(request)).body


def one(request: Request, has: str = "") -> Call[Any]:
    return Call(partial(body_of, request), has)


def get(path: str, has: str = "") -> Call[Any]:
    return one(Request("GET", path), has)


def send(method: str, path: str, document: Any = None, headers: Mapping[str, str] | None = None) -> Call[Any]:
    return one(request_of(method, path, document, headers))


def request_of(method: str, path: str, document: Any = None, headers: Mapping[str, str] | None = None) -> Request:
    if document is None:
        return Request(method, path, None, headers or {})
    return Request(method, path, dump(document), {"Content-Type": "application/json", **(headers or {})})


def list_all(path: str, where: Mapping[str, Any], limit: int | None, cursor: str | None) -> Call[Any]:
    """Page through a list until `limit` items are there, or all of them."""

    def steps() -> Steps:
        items: list[Json] = []
        after = cursor
        while True:
            wanted = PAGE if limit is None else min(PAGE, limit - len(items))
            request = Request("GET", to_address(path, {**where, "limit": wanted, "cursor": after}))
            page = load_answer((yield from ask(request)), "items")
            items += page["items"]
            after = page.get("cursor")
            if after is None or (limit is not None and len(items) >= limit):
                return {"items": items, "cursor": after}

    return Call(steps)


def given(fields: Mapping[str, Any]) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def parts(every: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Return JSON arrays of as much as the server takes at once."""
    part: list[bytes] = []
    count = size = 0
    items = iter(every)
    while some := list(islice(items, min(TOGETHER, MANY))):
        for number, piece in _pieces(some):
            if part and (count + number > MANY or size + len(piece) > MANY_BYTES):
                yield b"[%b]" % b",".join(part)
                part, count, size = [], 0, 0
            part.append(piece)
            count += number
            size += len(piece) + 1
    if part:
        yield b"[%b]" % b",".join(part)


class Ahead:
    """What is to be sent, of which the next can be made while the last is on its way. What goes wrong with it is told
    when its turn comes: what was sent before is answered first."""

    def __init__(self, every: Iterator[bytes]) -> None:
        self._every = every
        self._next: bytes | Exception | None = None
        self._is_made = False

    def prepare(self) -> None:
        if self._is_made:
            return
        try:
            self._next = next(self._every, None)
        except Exception as error:  # of whoever gives what is to be sent, too
            self._next = error
        self._is_made = True

    def take(self) -> bytes | None:
        """Return the next, or None at the end."""
        self.prepare()
        self._is_made = False
        if isinstance(self._next, Exception):
            raise self._next
        return self._next


def _pieces(items: list[Mapping[str, Any]]) -> Iterator[tuple[int, bytes]]:
    """Yield how many, and their JSON without the brackets: together, which takes a third of the time, unless they are
    large."""
    text = dump(items)[1:-1]
    if len(items) == 1 or len(text) <= MANY_BYTES // 16:
        yield len(items), text
        return
    middle = len(items) // 2
    yield from _pieces(items[:middle])
    yield from _pieces(items[middle:])


def new_key() -> str:
    return os.urandom(16).hex()


def dump(document: Any) -> bytes:
    try:
        return json.dumps(document).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"this cannot be sent as JSON: {error}", code="E_TYPE") from None


def load_answer(answer: Answer, has: str) -> Json:
    """Return the object that was sent, which has this member: else it is somebody else's answer."""
    return load(answer.body, has, answer.server.url)


def load_many(body: bytes, has: str, url: str) -> list[Json]:
    """Return the list of very many that was sent under this name."""
    from msgspec import DecodeError  # a third of the time; to load it costs more than a short answer
    from msgspec import json as quick

    try:
        return list(quick.decode(body)[has])
    except (DecodeError, KeyError, TypeError):
        raise foreign(url) from None


class OrderAnswers:
    """What became of very many orders, part by part. How that is read depends on who asked: whoever performs the call
    says so (`read`). Of one part it is read while the server is busy with the next."""

    def __init__(self) -> None:
        self.read: Callable[[bytes], list[Any]] = partial(load_ordered, url="")
        self._found: list[Any] = []
        self._unread: list[bytes] = []

    def take(self, answer: Answer) -> None:
        if not re.match(rb'\s*{\s*"runs"\s*:', answer.body):
            raise foreign(answer.server.url)
        self._unread.append(answer.body)

    def read_ahead(self) -> None:
        """Read what is there; what cannot be read is told at the end, when all has been sent."""
        with suppress(Exception):
            self.all()

    def all(self) -> list[Any]:
        while self._unread:
            self._found += self.read(self._unread[0])
            del self._unread[0]
        return self._found


def load_ordered(body: bytes, url: str) -> list[Json]:
    """Return what became of each order."""
    return [{"run" if "job_id" in one else "error": one} for one in load_many(body, "runs", url)]
