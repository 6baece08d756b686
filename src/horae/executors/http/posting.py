"""One POST for Horae itself, by the connections that requests of jobs have: every address is judged as theirs are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from horae.executors.http.connections import Connection, Connections
from horae.executors.http.faults import Fault, broken
from horae.executors.http.outgoing import KEPT, Outgoing, origin_of
from horae.wire.http import Cut, Garbled, Incoming

MAX_ANSWER = 64 << 10  # bytes that are read


class Answer(NamedTuple):
    status: int
    text: str  # the beginning of it


async def post(connections: Connections, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> Answer:
    """Return the answer; it is followed nowhere. Fault where there is none, TimeoutError where it takes too long."""
    origin, target = origin_of(url)
    own = {"accept": ("Accept", "*/*"), "user-agent": ("User-Agent", "horae")}
    given = {name.lower(): (name, value) for name, value in headers.items()}
    request = Outgoing("POST", origin, quote(target, safe=KEPT), {**own, **given}, body, frozenset(), False)
    async with asyncio.timeout(seconds):
        connection = await connections.take(origin, lambda _: None)
        try:
            await connection.send(request.encode())
            return await _answer(connection)
        finally:
            connections.give_back(connection, may_stay=False)


async def _answer(connection: Connection) -> Answer:
    incoming, body = Incoming(), b""
    try:
        while not incoming.is_whole and len(body) < MAX_ANSWER:
            incoming.feed(await connection.read())
            body += incoming.take() if incoming.has_head else b""
    except Cut:
        raise broken(connection.origin.address, "before its answer came") from None
    except Garbled as error:
        raise Fault(f"what {connection.origin.address} answers is not HTTP: {error}") from None
    return Answer(incoming.status, body.decode(errors="replace"))
