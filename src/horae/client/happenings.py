"""What happens in Horae, as a stream of CloudEvents that goes on by itself where it broke."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from horae.client.making import get, load_answer
from horae.client.output import PATIENCE, SILENCE, Event, EventReader
from horae.client.steps import Call, Give, Pause, Read, Steps, Stream, ask, unreachable
from horae.client.wire import Request, to_address
from horae.errors import Unavailable
from horae.wire.http import Fault

if TYPE_CHECKING:
    from horae.schemas import EventPage

PAGE = 1000


def events(
    *,
    after: str | None = None,
    since: str | None = None,
    kinds: Sequence[str] = (),
    job: int | None = None,
    run: int | None = None,
    follow: bool = True,
) -> Stream[Event]:
    """What happens, as it happens: the `data` of each is a CloudEvent, and its `id` the place to go on from, which a
    program keeps and gives as `after` when it comes back. It begins there, or at a moment (`since`, RFC 3339), or now;
    of some `kinds`, such as run.finished, of one job or of one run. Without `follow` it ends with what has happened so
    far, and begins with the oldest that is kept. A broken stream goes on where it broke."""
    where = {"kinds": ",".join(kinds) or None, "job": job, "run": run}

    def steps() -> Steps:
        place = _Place(after)
        if since is not None or not follow:
            yield from _pages({**where, "since": since if after is None else None}, place)
        while follow:
            try:
                yield from _stream(to_address("/v1/events/stream", where), place)
            except Unavailable:
                if place.broken >= PATIENCE:
                    raise
            place.broken += 1
            yield Pause(min(2.0, 0.05 * 2**place.broken))

    return Stream(steps)


def event_page(
    *,
    after: str | None = None,
    since: str | None = None,
    kinds: Sequence[str] = (),
    job: int | None = None,
    run: int | None = None,
    limit: int | None = None,
) -> Call[EventPage]:
    """One page of what happened, the oldest first, as `events` chooses it. Its `cursor` is `after` of the next."""
    where = {"after": after, "since": since, "kinds": ",".join(kinds) or None, "job": job, "run": run, "limit": limit}
    return get(to_address("/v1/events", where), has="items")


class _Place:
    """How far a reader has come."""

    def __init__(self, last: str | None) -> None:
        self.last = last
        self.broken = 0  # connections since the last event that ended


def _pages(where: dict[str, object], place: _Place) -> Steps:
    """All that has happened so far. The place is known at the end of each page."""
    while True:
        address = to_address("/v1/events", {**where, "after": place.last, "limit": PAGE})
        page = load_answer((yield from ask(Request("GET", address))), "items")
        place.last, where, left = page["cursor"], {**where, "since": None}, len(page["items"])
        if not left:
            return
        for document in page["items"]:
            left -= 1
            yield Give(Event(document["type"], document, None if left else place.last))


def _stream(address: str, place: _Place) -> Steps:
    """The events of one connection, from where the last one ended."""
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": place.last} if place.last else {})}
    answer = yield from ask(Request("GET", address, None, headers, timeout=SILENCE, streamed=True))
    reader = EventReader()
    try:
        while piece := (yield Read(answer)):
            for event in reader.feed(piece):
                place.last, place.broken = event.id, 0
                yield Give(event)
            place.last = reader.last or place.last  # also of what was passed over
    except Fault as fault:
        raise unreachable(fault) from None
    finally:
        answer.close()
