"""How calls are made: requests, pages of lists, and answers as they were sent."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from horae.client.steps import Call, Json, Steps, ask, load
from horae.client.wire import Answer, Request, to_address
from horae.errors import Invalid

PAGE = 1000  # most items the server gives at once
MANY = 10_000  # most orders or jobs that it takes at once
MANY_BYTES = 16 << 20  # of those, in one request


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
    size = 0
    for one in every:
        item = dump(one)
        if part and (len(part) == MANY or size + len(item) > MANY_BYTES):
            yield b"[%b]" % b",".join(part)
            part, size = [], 0
        part.append(item)
        size += len(item) + 1
    if part:
        yield b"[%b]" % b",".join(part)


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
