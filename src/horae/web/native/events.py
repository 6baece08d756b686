"""Events under /v1: in pages by cursor, or followed as they come, with ids that say where to go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import lru_cache

import msgspec

from horae import schemas
from horae.core.events import KINDS, Cursor, EventFilter, read_cursor
from horae.core.roles import Permission
from horae.service import Services
from horae.service.events.feed import Follower
from horae.service.events.pulse import Beat
from horae.web import http, params, render
from horae.web.streams import EventStream, Streams, event, place

_WHAT = (
    params.words("kinds", "One or more kinds, with commas, such as run.finished.", {kind: kind for kind in KINDS}),
    params.identity("job", "Events of one job, its triggers and its runs."),
    params.identity("run", "Events of one run."),
)
_PAGE = (
    params.Param(
        "after",
        "Where to go on: the `cursor` of a page, or the id of an event of the stream. Without it: the oldest there is.",
        {"type": "string", "pattern": r"^[0-9]{1,19}\.[0-9]{1,19}\.[0-9]{1,9}$"},
        lambda text: read_cursor(text),
    ),
    params.moment("since", "Those of this moment and later, instead of a cursor."),
    *_WHAT,
    params.LIMIT,
)
_STREAM = (
    *_WHAT,
    params.Param(
        "Last-Event-ID",
        "The id of the last event that was seen: the stream goes on after it. Without it, it begins now.",
        {"type": "string", "pattern": r"^[0-9]{1,19}\.[0-9]{1,19}\.[0-9]{1,9}$"},
        place="header",
    ),
    params.Param(
        "after",
        "As Last-Event-ID, for programs that cannot set it.",
        {"type": "string", "pattern": r"^[0-9]{1,19}\.[0-9]{1,19}\.[0-9]{1,9}$"},
        lambda text: read_cursor(text),
    ),
)
MOST_RUNS = 50  # that one stream of beats watches
_PULSE = (
    params.identities(
        "runs", "Runs that are watched: how each stands is told at once, and when it changes.", MOST_RUNS
    ),
)


class Events:
    """The endpoints."""

    def __init__(self, services: Services, streams: Streams) -> None:
        self._feed = services.events
        self._pulse = services.pulse
        self._run_watch = services.run_watch
        self._insight = services.insight
        self._streams = streams

    def operations(self) -> list[http.Operation]:
        return [
            http.Operation("GET", "/v1/events", self.list_events, "events", "List what happened, oldest first",
                           "EventPage", params=_PAGE, errors=(409,), needs=Permission.READ),
            http.Operation("GET", "/v1/events/stream", self.follow, "events", "Follow what happens",
                           "text/event-stream", params=_STREAM, errors=(409, 429), needs=Permission.READ),
            http.Operation("GET", "/v1/events/pulse", self.beat, "events", "Follow that something happens, in short",
                           "text/event-stream", params=_PULSE, errors=(429,), needs=Permission.READ),
        ]  # fmt: skip

    async def list_events(self, request: http.Request) -> http.Answer:
        """Each is a CloudEvent. `cursor` is where to go on, also when a page is empty: then there is no more as yet."""
        args = request.args
        page = await self._feed.page(_follower(request), args["after"], args["limit"], args["since"])
        items = msgspec.convert(page.items, list[schemas.Event])
        return http.reply(200, schemas.EventPage(items, str(page.cursor)))

    async def follow(self, request: http.Request) -> http.Answer:
        """Every event is one of the stream, named as its type, with a CloudEvent as its data; whoever comes back with
        the id of the last one gets all that came after it, and nothing twice."""
        last, after = request.header(b"last-event-id"), request.args["after"]
        asked = read_cursor(last, "Last-Event-ID") if last is not None else after
        begin = await self._feed.begin(asked)
        self._streams.take()
        return EventStream(self._events(_follower(request), begin), self._streams)

    async def _events(self, follower: Follower, begin: Cursor) -> AsyncGenerator[bytes, None]:
        async for cursor, document in self._feed.follow(follower, begin):
            yield place(str(cursor)) if document is None else event(document["type"], document, str(cursor))

    async def beat(self, request: http.Request) -> http.Answer:
        """For pages that read anew what they show. At most once a second an event `pulse` says which `kinds` of events
        came and of which `jobs`; `many`: there were more than it names. It begins now, and has no place to go on from:
        whoever comes back looks at everything once.

        Of each of `runs` an event `run` {run, attempt, log_size} says how it stands, at once and then at most once a
        second, when that has changed; `log_size` is how many bytes its log has at least. Those that are not there are
        passed over."""
        org, begin = http.principal(request).bound_to, await self._pulse.begin()
        watched = await self._run_watch.visible(request.args["runs"], org)
        self._streams.take()
        return EventStream(_together(self._beats(org, begin), self._standings(watched)), self._streams)

    async def _beats(self, org: int | None, begin: Cursor) -> AsyncGenerator[bytes, None]:
        async for beat in self._pulse.follow(org, begin):
            yield _told(beat)

    async def _standings(self, run_ids: frozenset[int]) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._run_watch.follow(run_ids)) as standings:
            async for run, size in standings:
                name = (await self._insight.job_names([run.job_id])).get(run.job_id)
                yield event("run", {"run": render.run(run, name), "attempt": run.attempt, "log_size": size})


async def _together(*sources: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield what any of them yields, until all have ended."""
    coming = {asyncio.ensure_future(_next(source)): source for source in sources}
    try:
        while coming:
            done, _ = await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                source, piece = coming.pop(one), one.result()
                if piece is not None:
                    coming[asyncio.ensure_future(_next(source))] = source
                    yield piece
    finally:
        for one in coming:
            one.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
        for source in sources:
            await source.aclose()


async def _next(source: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(source, None)


@lru_cache(maxsize=16)
def _told(beat: Beat) -> bytes:
    """The same beat goes to all who watch."""
    return event("pulse", {"kinds": sorted(beat.kinds), "jobs": sorted(beat.jobs), "many": beat.is_many})


def _follower(request: http.Request) -> Follower:
    args = request.args
    where = EventFilter(args["kinds"], args["job"], args["run"])
    return Follower(where, http.principal(request).bound_to)
