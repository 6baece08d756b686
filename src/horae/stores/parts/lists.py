"""Lists of jobs, triggers and runs, paged by cursor, newest first.

What a list costs does not grow with what is kept. A condition that an index has (a job, a state, an owner) names a
*stretch* of a table, which is walked from its newest row. Whatever else is asked for is looked for among the newest
SCANNED rows of the stretches; the page then ends there, short or even empty, and its cursor goes on below.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from horae.core.model import DEFAULT_ORG, DEFAULT_QUEUE_NAME, SECOND, Job, JobFilter, Page, RunFilter, State
from horae.core.runs.orders import NEVER
from horae.stores.parts.definitions import DefinitionPart
from horae.stores.parts.pages import Where, like, page, read_cursor, write_cursor
from horae.stores.queries import JOB_COLUMNS
from horae.stores.rows import Row, run_from_row, trigger_of

SCANNED = 2_000  # rows that one page looks at,
SCANNED_LIVE = 20_000  # and where it looks at live runs alone: the oldest of a backlog are those that are looked for
MOST_WORDS = 8  # that one looks for
USER_START = 64  # characters of a user that an index has
AHEAD = 86_400 * SECOND  # how long before its run is made an id may have been given out
ENDED = tuple(state for state in State if state.is_terminal)
LIVE = tuple(state for state in State if not state.is_terminal)


class Stretch(NamedTuple):
    """Rows of a table that an index has in the order of their ids: where its columns have these values."""

    table: str
    keys: tuple[tuple[str, str], ...] = ()  # (column, value) of the index before the id
    condition: str = "1 = 1"

    def between(self, start: int, end: int, dialect: str) -> tuple[str, str]:
        """Return the condition for start > id >= end, and the order that the index has.

        For PostgreSQL as a comparison of rows: with `column = value` it may find the primary key in that order too, and
        walk the whole table by it for a value that is rare. SQLite would take the first column of a row alone."""
        if not self.keys or dialect == "sqlite":
            return f"{self._equal()} AND id < {start:d} AND id >= {end:d}", "id DESC"
        names = [*(column for column, _ in self.keys), "id"]
        values = "".join(f"{value}, " for _, value in self.keys)
        columns, order = ", ".join(names), ", ".join(f"{name} DESC" for name in names)
        return f"{self.condition} AND ({columns}) < ({values}{start:d}) AND ({columns}) >= ({values}{end:d})", order

    def above(self, end: int) -> str:
        """Return the condition for id >= end, in no order."""
        return f"{self._equal()} AND id >= {end:d}" if end else self._equal()

    def _equal(self) -> str:
        return " AND ".join([self.condition, *(f"{column} = {value}" for column, value in self.keys)])


class Wanted(NamedTuple):
    """What a list asks for: where it may be, and what else must hold there."""

    stretches: list[Stretch]
    rest: Where  # its arguments are those of the stretches too
    is_exact: bool = False  # nothing may be overlooked, whatever it costs
    is_known: bool = False  # by id: few enough to be looked at one by one

    @property
    def is_scanned(self) -> bool:
        return bool(self.rest.conditions) and not self.is_exact


class ListPart(DefinitionPart):
    """Lists that are paged by cursor."""

    async def list_jobs(self, where: JobFilter, cursor: str | None, limit: int) -> Page:
        start, where = read_cursor(cursor, NEVER), await self._placed(where)
        if where.words is None and where.tag is None:
            wanted = self._wanted_jobs(where)
            end = await self._end_of_scan(wanted, start)
        else:
            wanted, end = await self._with_words_or_tag(where, start)
        rows = await self._walk_down(wanted, start, end, limit + 1, {"jobs": JOB_COLUMNS})
        return _short(page(await self._with_triggers(rows), limit), end)

    async def _placed(self, where: JobFilter) -> JobFilter:
        """Where all organisations are meant and there is one, name it: indexes begin with it."""
        if where.org is not None or where.deleted:
            return where
        first = await self.next_org(0) or DEFAULT_ORG
        return replace(where, org=first) if await self.next_org(first) is None else where

    def _wanted_jobs(self, where: JobFilter) -> Wanted:
        found = Where()
        condition = f"deleted_at IS {'NOT ' if where.deleted else ''}NULL AND part_of IS NULL"
        keys = [] if where.org is None else [("org", found.put(where.org))]
        indexed = next((name for name in ("key", "name", "owner", "kind") if _exactly(where, name) is not None), None)
        for name, column in (("key", "key"), ("named", "name"), ("owner", "owner"), ("kind", "kind")):
            value = getattr(where, name)
            if value is not None and column == indexed:
                keys.append((column, found.put(value)))
            elif value is not None:
                found.add(f"{column} = ?", value)
        if indexed == "key":
            condition += " AND key IS NOT NULL"  # as the index says it
        if where.queue is not None:
            found.add(f"coalesce({self._json_field('policy', 'queue')}, '{DEFAULT_QUEUE_NAME}') = ?", where.queue)
        if where.paused is not None:
            if where.paused and indexed is None:
                condition += " AND paused"
            else:
                found.conditions.append("paused" if where.paused else "NOT paused")
        if where.name is not None:
            found.add(*like("name", where.name, self.dialect))
        if where.made_for is not None:
            self._add_user(where.made_for, keys, found, is_indexed=indexed is None)
            indexed = indexed or "made_for"
        if len(where.kinds) == 1 and indexed is None:
            keys.append(("kind", found.put(where.kinds[0])))
        else:
            _add_kinds(found, where.kinds, "IN")
        _add_kinds(found, where.not_kinds, "NOT IN")
        return Wanted([Stretch("jobs", tuple(keys), condition)], found)

    async def _with_words_or_tag(self, where: JobFilter, start: int) -> tuple[Wanted, int]:
        """Return the newest jobs with these words and this tag, and the lowest id that was looked at. Names, keys and
        tags are read by their indexes alone: a hundred thousand take less time than it takes to type a letter."""
        found, parts = Where(), []
        org = "" if where.org is None else f"org = {found.put(where.org)} AND "
        tagged = "" if where.tag is None else f"FROM job_tags WHERE {org}tag = {found.put(where.tag)}"
        if where.words is None:
            parts.append(f"SELECT job_id {tagged} AND job_id < {start:d}")
        for column, also in (("name", ""), ("key", " AND key IS NOT NULL")) if where.words is not None else ():
            also += f" AND id IN (SELECT job_id {tagged})" if tagged else ""
            said = Where()
            said.args = found.args
            for word in sorted((where.words or "").split()[:MOST_WORDS], key=len, reverse=True):
                said.add(*like(column, word, self.dialect))
            among = f"jobs WHERE {org}deleted_at IS NULL{also} AND id < {start:d}"
            if (
                column == "name" and self.dialect == "postgres"
            ):  # newest first, until there are enough: many share a word
                among = f"(SELECT id, name FROM {among} ORDER BY id DESC OFFSET 0) AS newest WHERE true"  # noqa: S608
                parts.append(f"(SELECT id FROM {among} AND {said.text()} LIMIT {SCANNED})")  # noqa: S608
            else:
                parts.append(f"SELECT id FROM {among} AND {said.text()}")  # noqa: S608
        text = f"{' UNION '.join(parts)} ORDER BY 1 DESC LIMIT {SCANNED}"
        ids = [row[0] for row in await self.read(self._statement(text), *found.args)]
        asked = self._wanted_jobs(where)
        (stretch,) = asked.stretches
        condition = f"{stretch.above(0)} AND {asked.rest.text()}"
        rest = Where()
        rest.args = asked.rest.args
        condition = f"{self._is_one_of(ids, rest)} AND {condition}"
        wanted = Wanted([Stretch("jobs", (), condition)], rest, is_known=True)
        return wanted, ids[-1] if len(ids) == SCANNED else 0

    def _is_one_of(self, ids: Sequence[int], found: Where) -> str:
        """Return the condition for these. A statement of PostgreSQL with thousands of numbers would be read and planned
        anew each time; one with a list of them is known."""
        if self.dialect == "postgres":
            return f"id = ANY(CAST({found.put(list(ids))} AS bigint[]))"
        return f"id IN ({', '.join(map(str, ids)) or 'NULL'})"

    def _add_user(self, user: str, keys: list[tuple[str, str]], found: Where, *, is_indexed: bool) -> None:
        """Whom a job was made for; of jobs without one, the owner."""
        whole = f"coalesce({self._json_field('annotations', 'rpc', 'user_id')}, owner)"
        start = f"substr({whole}, 1, {USER_START})"  # which has an index
        if is_indexed:
            keys.append((start, found.put(user[:USER_START])))
        else:
            found.add(f"{start} = ?", user[:USER_START])
        if len(user) >= USER_START:  # else the start is all of it
            found.add(f"{whole} = ?", user)

    def _json_field(self, column: str, *path: str) -> str:
        """Return a field of a JSON column, as text."""
        if self.dialect == "postgres":
            return f"(CAST({column} AS jsonb) #>> '{{{','.join(path)}}}')"
        return f"CAST(json_extract({column}, '$.{'.'.join(path)}') AS text)"

    async def list_triggers(self, job_id: int | None, cursor: str | None, limit: int) -> Page:
        found = Where()
        found.add("d.trigger_id > ?", read_cursor(cursor, 0))
        if job_id is not None:
            # A job knows its triggers; an index of them by job would be written each time that one fires.
            job: Job | None = await self.get_job(job_id)
            ids = [trigger.id for trigger in job.triggers] if job else []
            found.add(f"d.trigger_id IN ({', '.join(map(str, ids)) or 'NULL'})")
        text = self.queries["list_triggers"].replace("{where}", found.text()) + f" LIMIT {limit + 1}"
        rows = await self.read(self._statement(text), *found.args)
        return page([trigger_of(row) for row in rows], limit)

    async def list_runs(self, where: RunFilter, cursor: str | None, limit: int) -> Page:
        where = await self._with_job(where)
        wanted = self._wanted_runs(where)
        start = read_cursor(cursor, NEVER)
        is_live = all(stretch.table == "live" and not stretch.keys for stretch in wanted.stretches)
        end = await self._end_of_scan(wanted, start, SCANNED_LIVE if is_live and wanted.is_scanned else None)
        rows = await self._walk_down(wanted, start, end, limit + 1, self._run_columns())
        found = _short(page([run_from_row(row) for row in rows], limit), end)
        if end and len(rows) <= limit and where.due_from is not None and await self._is_past(end, where.due_from):
            return Page(found.items)
        return found

    def _run_columns(self) -> dict[str, str]:
        return {"live": self.queries["live_columns"], "history": self.queries["history_run_columns"]}

    async def _with_job(self, where: RunFilter) -> RunFilter:
        """Runs of a trigger lie among those of its job."""
        if where.trigger_id is None or where.job_id is not None:
            return where
        rows = await self._get("job_of_trigger", where.trigger_id)
        return replace(where, job_id=rows[0][0]) if rows else where

    def _wanted_runs(self, where: RunFilter) -> Wanted:
        found = Where()
        stretches = self._live_stretches(where, found) + self._ended_stretches(where, found)
        if where.trigger_id is not None:
            found.add("trigger_id = ?", where.trigger_id)
        if where.due_from is not None:
            found.add("due_at >= ?", where.due_from)
        if where.due_until is not None:
            found.add("due_at < ?", where.due_until)
        if where.org is not None:
            found.add("(SELECT j.org FROM jobs j WHERE j.id = job_id) = ?", where.org)
        if where.name is not None:
            # Asked of each row: as EXISTS it may become a join, for which all jobs are read.
            found.add(*like("(SELECT j.name FROM jobs j WHERE j.id = job_id)", where.name, self.dialect))
        if where.owner is not None:
            found.add("(SELECT j.owner FROM jobs j WHERE j.id = job_id) = ?", where.owner)
        if where.task is not None:
            item = f"substr(task, 1, {len(where.task) + 1:d}) = {found.put(f'{where.task}[')}"
            found.add(f"(task = ? OR {item})", where.task)
        if where.nodes:
            found.add(f"node IN ({', '.join('?' * len(where.nodes))})", *where.nodes)
        if where.attempted_by is not None:
            # Asked of each row, by the primary key: EXISTS may be read as a whole beforehand.
            past = "(SELECT 1 FROM attempts a WHERE a.run_id = id AND a.node = ? LIMIT 1)"
            found.add(f"(node = ? OR {past} = 1)", where.attempted_by, where.attempted_by)
        _add_kinds(found, where.kinds, "IN")
        _add_kinds(found, where.not_kinds, "NOT IN")
        return Wanted(stretches, found)

    def _live_stretches(self, where: RunFilter, found: Where) -> list[Stretch]:
        """A run that has ended is never live, and the other way round: the states say where to look."""
        states = [state for state in where.states if state in LIVE]
        if where.states and not states:
            return []
        said = [] if len(states) in (0, len(LIVE)) else [_one_of(states)]
        if where.queue_id is not None:
            said.append(f"queue = {found.put(where.queue_id)}")
        if where.parent_id is not None:
            said.append(f"parent_id = {found.put(where.parent_id)}")
        elif not where.tasks:
            said.append("parent_id IS NULL")
        if where.job_id is None:
            return [Stretch("live", (), " AND ".join(said) or "1 = 1")]
        job = found.put(where.job_id)
        return [
            Stretch("live", (), " AND ".join([f"gate = {job}", *said])),
            Stretch("live", (("job_id", job),), " AND ".join(["gate IS NULL", *said])),
        ]

    def _ended_stretches(self, where: RunFilter, found: Where) -> list[Stretch]:
        states = [state for state in where.states if state in ENDED]
        if (where.states and not states) or where.queue_id is not None:
            return []
        if where.parent_id is not None:
            of_parent = ("parent_id", found.put(where.parent_id))
            return [Stretch("history", (of_parent,), _one_of(states) if states else "parent_id IS NOT NULL")]
        whole = "1 = 1" if where.tasks else "parent_id IS NULL"
        if where.job_id is not None:
            job = found.put(where.job_id)
            return [Stretch("history", (("job_id", job), ("state", f"{state:d}")), whole) for state in states or ENDED]
        past = Stretch("history", (), whole)
        if State.SUCCEEDED not in states:
            return [Stretch("history", (("state", f"{s:d}"),), f"state > 10 AND {whole}") for s in states] or [past]
        if len(states) < len(ENDED):  # of the usual end there is no index: most are
            found.conditions.append(f"(state < 10 OR {_one_of(states)})")
        return [past]

    async def _end_of_scan(self, wanted: Wanted, start: int, scanned: int | None = None) -> int:
        """Return the lowest id that a page looks at; 0 when it can look at all."""
        if not wanted.stretches or not (wanted.is_scanned or scanned):
            return 0
        each = (scanned or SCANNED) // len(wanted.stretches) - 1
        parts = []
        for number, stretch in enumerate(wanted.stretches):
            condition, order = stretch.between(start, 0, self.dialect)
            parts.append(
                f"SELECT * FROM (SELECT id FROM {stretch.table} WHERE {condition} "  # noqa: S608 - no text of users
                f"ORDER BY {order} LIMIT 1 OFFSET {each}) AS s{number}"
            )
        args = wanted.rest.args[: _count_of_arguments(" ".join(parts))]
        rows = await self.read(self._statement(" UNION ALL ".join(parts)), *args)
        return max((row[0] for row in rows), default=0)

    async def _walk_down(
        self, wanted: Wanted, start: int, end: int, limit: int, columns: dict[str, str]
    ) -> Sequence[Row]:
        """Rows with start > id >= end, newest first; each stretch is cut before they are joined."""
        if not wanted.stretches:
            return ()
        parts = []
        for number, stretch in enumerate(wanted.stretches):
            condition, order = stretch.between(start, end, self.dialect)
            if stretch.keys and wanted.rest.conditions:
                # The rest is asked of the rows that the index names, so that nothing but the index is thought of.
                each = SCANNED // len(wanted.stretches)
                ids = f"SELECT id FROM {stretch.table} WHERE {condition} ORDER BY {order} LIMIT {each}"  # noqa: S608
                condition, order = self._one_of_ids(ids), "id DESC"
            parts.append(
                f"SELECT * FROM (SELECT {columns[stretch.table]} FROM {stretch.table} "  # noqa: S608
                f"WHERE {condition} AND {wanted.rest.text()} ORDER BY {order} LIMIT {limit:d}) AS s{number}"
            )
        text = f"{' UNION ALL '.join(parts)} ORDER BY 1 DESC LIMIT {limit:d}"
        return await self.read(self._statement(text), *wanted.rest.args)

    def _one_of_ids(self, text: str) -> str:
        """As an array in PostgreSQL: a join could begin with the other side."""
        return f"id = ANY(ARRAY({text}))" if self.dialect == "postgres" else f"id IN ({text})"

    async def _is_past(self, run_id: int, due_from: int) -> bool:
        """Return whether all runs below this one were made, and so due, before a moment."""
        rows = await self._get("made_at", run_id)
        return bool(rows) and rows[0][0] < due_from - AHEAD


def _exactly(where: JobFilter, column: str) -> Any:
    return where.named if column == "name" else getattr(where, column)


def _short(found: Page, end: int) -> Page:
    """A page that ended where the scan did goes on there."""
    return Page(found.items, write_cursor(end)) if end and found.cursor is None else found


def _one_of(states: Sequence[State]) -> str:
    """Written out: a partial index serves only a state that is known when the statement is planned."""
    return f"state = {states[0]:d}" if len(states) == 1 else f"state IN ({', '.join(f'{s:d}' for s in states)})"


def _add_kinds(found: Where, kinds: Sequence[str], word: str) -> None:
    if kinds:
        found.add(f"kind {word} ({', '.join('?' * len(kinds))})", *kinds)


def _count_of_arguments(text: str) -> int:
    return max((int(number) for number in re.findall(r"\$(\d+)", text)), default=0)
