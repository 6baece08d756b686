"""Events on both databases: how they are read, and those few that no trigger of the database writes.

Almost all are written by triggers of the tables that they tell of (migration 0027): whatever statement changes a run,
in this version or a later one, tells of it in its own transaction, and costs no statement more. PostgreSQL writes one
row for all runs of a statement that had the same fate, SQLite one for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from horae.core.events import BEGINNING, EVERYTHING, Batch, Cursor, Event, EventFilter, read_cursor, unpack
from horae.core.model import Job, Moment
from horae.errors import Conflict
from horae.stores.database import Database, Steps
from horae.stores.rows import Row, encode, from_json, trigger_doc

ROWS = 200  # batches read at once, each of up to thousands of events

Before = Mapping[int, Sequence[Mapping[str, Any]]]  # the triggers that each job had


class EventPart(Database):
    """What happened."""

    async def read_events(
        self, after: Cursor, limit: int, where: EventFilter = EVERYTHING
    ) -> tuple[list[Event], Cursor]:
        kinds = self._list(where.kinds) if where.kinds else None
        rows = await self._get(
            "read_events", after.stamp, after.batch, min(limit, ROWS), kinds, where.job_id, where.run_id
        )
        if rows and after != BEGINNING:
            _refuse_gap(after, rows[0][10:])
        found = []
        for event in _events(rows, after):
            if where.takes(event):
                found.append(event)
                if len(found) == limit:
                    break
        return found, found[-1].cursor if found else after

    async def last_event(self) -> Cursor:
        stamp, batch = (await self._get("last_event"))[0]
        return Cursor(stamp, batch, 0)

    async def find_events(self, since: Moment) -> Cursor:
        rows = await self._get("find_events", since)
        return Cursor(rows[0][0], rows[0][1], 0) if rows else await self.last_event()

    async def drop_events(self, before: Moment, limit: int) -> int:
        return len(await self._put("drop_events", before, limit))

    async def load_reader(self, name: str) -> Cursor | None:
        rows = await self._get("load_reader", name)
        return read_cursor(rows[0][0]) if rows else None

    async def save_reader(self, name: str, place: Cursor) -> None:
        await self._put("save_reader", name, str(place))

    def _tell_triggers(self, jobs: Sequence[Job], before: Before) -> Steps[None]:
        """Tell what became of the triggers of jobs that are saved."""
        for job in jobs:
            for kind, trigger_id in trigger_events(before[job.id], [trigger_doc(t) for t in job.triggers]):
                if job.part_of is None:
                    yield "tell_trigger", job.updated_at, kind, job.version, trigger_id, job.id


def trigger_events(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, int]]:
    """Yield (kind, trigger id), in the order of the triggers."""
    was, now = {doc["id"]: doc for doc in before}, {doc["id"]: doc for doc in after}
    for trigger_id in was:
        if trigger_id not in now:
            yield "trigger.removed", trigger_id
    for trigger_id, doc in now.items():
        old = was.get(trigger_id)
        if old is None:
            yield "trigger.added", trigger_id
            continue
        if encode({**old, "enabled": None}) != encode({**doc, "enabled": None}):
            yield "trigger.changed", trigger_id
        if old["enabled"] != doc["enabled"]:
            yield "trigger.enabled" if doc["enabled"] else "trigger.disabled", trigger_id


def _refuse_gap(after: Cursor, dropped: Row) -> None:
    if (after.stamp, after.batch) <= tuple(dropped):
        raise Conflict(
            "events after this cursor were dropped: they are older than events_days",
            code="E_EVENTS_GONE",
            hint="begin anew without a cursor, and read the API for what was missed",
        )


def _events(rows: Sequence[Row], after: Cursor) -> Iterator[Event]:
    for row in rows:
        batch = Batch._make((*row[:8], _numbers(row[8]), _numbers(row[9])))
        begin = after.nth if (batch.stamp, batch.id) == (after.stamp, after.batch) else 0
        yield from unpack(batch)[begin:]


def _numbers(value: Any) -> list[int]:
    """One in SQLite, or several as JSON; an array in PostgreSQL."""
    if value is None:
        return []
    if type(value) is str:
        value = from_json(value)
    return value if type(value) is list else [value]
