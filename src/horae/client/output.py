"""What runs write, as streams: logs, artifacts, and the events of a run that is followed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from horae.client.steps import Give, Json, Pause, Read, Steps, Stream, ask, unreachable
from horae.client.wire import Request, to_address
from horae.errors import Unavailable
from horae.wire.http import Fault

PATIENCE = 10  # broken streams in a row before following gives up
SILENCE = 60.0  # seconds without even a heartbeat after which a stream counts as broken


def log(run_id: int, *, attempt: int | None = None, tail: int | None = None, grep: str | None = None) -> Stream[bytes]:
    """What an attempt (the last, unless named) has written so far, piece by piece: all of it, or its last lines
    (`tail`); of those, the ones that hold a text (`grep`)."""

    def steps() -> Steps:
        offset = 0
        place = {"offset": 0} if tail is None else {"tail": tail}
        while True:
            address = to_address(f"/v1/runs/{run_id}/log", {**place, "attempt": attempt, "grep": grep})
            answer = yield from ask(Request("GET", address))
            following = int(answer.headers.get("horae-log-offset", offset))
            if answer.body:  # else nothing was found so far, or nothing is there
                yield Give(answer.body)
            if following <= offset:
                return
            offset = following
            place = {"offset": offset}

    return Stream(steps)


def artifact(run_id: int, path: str) -> Stream[bytes]:
    """The bytes of an artifact, piece by piece. Unavailable when the connection breaks before its end."""
    request = Request("GET", f"/v1/runs/{run_id}/artifacts/{quote(path)}", streamed=True)

    def steps() -> Steps:
        answer = yield from ask(request)
        try:
            while piece := (yield Read(answer)):
                yield Give(piece)
        except Fault as fault:
            raise unreachable(fault) from None
        finally:
            answer.close()

    return Stream(steps)


class Event(NamedTuple):
    """One message of a stream. Of a followed run: `log` {offset, text}, `state` {run} or, at last, `end` {run}; of all
    that happens: a CloudEvent, named as its type."""

    name: str
    data: Json
    id: str | None  # where to go on from


def follow(run_id: int, *, offset: int = 0, attempt: int | None = None, tail: int | None = None) -> Stream[Event]:
    """What a run writes, as it is written, until it ends; a broken stream goes on where it broke. It begins with an
    attempt (the last, unless named), at an offset or with its last lines (`tail`)."""
    address = to_address(f"/v1/runs/{run_id}/log/follow", {"attempt": attempt, "tail": tail})

    def steps() -> Steps:
        place = _Place(str(offset) if offset else None)
        while not place.is_over:
            try:
                yield from _follow_on(address, place)
            except Unavailable:
                if place.broken >= PATIENCE:
                    raise
            place.broken += 1
            if place.broken > PATIENCE:
                raise Unavailable(f"the log of run {run_id} keeps ending before the run has ended")
            if not place.is_over:
                yield Pause(min(2.0, 0.05 * 2**place.broken))

    return Stream(steps)


class _Place:
    """How far a follower has come."""

    def __init__(self, last: str | None) -> None:
        self.last = last  # the id of the last event
        self.broken = 0  # connections since then that ended
        self.is_over = False


def _follow_on(path: str, place: _Place) -> Steps:
    """The events of one connection, from where the last one ended."""
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": place.last} if place.last else {})}
    answer = yield from ask(Request("GET", path, None, headers, timeout=SILENCE, streamed=True))
    reader = EventReader()
    try:
        while not place.is_over and (piece := (yield Read(answer))):
            for event in reader.feed(piece):
                place.last, place.broken, place.is_over = event.id or place.last, 0, event.name == "end"
                yield Give(event)
    except Fault as fault:
        raise unreachable(fault) from None
    finally:
        answer.close()


class EventReader:
    """Server-sent events out of bytes. Lines end at newlines only: text may hold any other separator."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, str] = {}
        self.last: str | None = None  # where to go on from, also where that came without an event

    def feed(self, piece: bytes) -> Iterator[Event]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            name, _, value = line.rstrip(b"\r").decode(errors="replace").partition(":")
            if name:  # a line that begins with a colon is a comment
                value, known = value.removeprefix(" "), self._fields.get(name)
                self._fields[name] = f"{known}\n{value}" if name == "data" and known is not None else value
            elif line in (b"", b"\r"):
                fields, self._fields = self._fields, {}
                self.last = fields.get("id", self.last)
                if "data" in fields:
                    yield Event(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id"))
