"""Lists for people: sorted by any column, paged by number, with a total; and where jobs stand.

Such lists are part of the contracts of other systems. They do not reach all that is kept
(they look at the newest SORTED): among these they sort, count and cut, and say so when there is more. Jobs by id or by
name have an index of their own, and are counted up to COUNTED.

What must stay true: what is sorted by is one of the names of ports, never text of a user.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from horae.core.definitions import JOB_SORTS, RUN_SORTS, Sort
from horae.core.model import Attempt, Found, JobFilter, LatestRun, Moment, Phase, Run, RunFilter, Standing, State, Try
from horae.core.runs.orders import NEVER
from horae.core.runs.tries import tries_of
from horae.errors import Invalid
from horae.stores.parts.lists import ListPart, Wanted
from horae.stores.queries import JOB_COLUMNS
from horae.stores.rows import Row, attempt_from_row, run_from_row, trigger_ids

SORTED = 1_500  # of the newest that a list sorts by a column without an index
COUNTED = 10_001  # jobs; beyond, there are many
FIRST_LOOKED_AT = 150  # jobs whose latest runs are read together at first, where a page is to be filled,
LOOKED_AT = 500  # and then
BY_MOMENT = ("next_at", "last_at")

_RUN_KEYS = {
    "name": "(SELECT j.name FROM jobs j WHERE j.id = job_id)",
    "started_at": "coalesce(started_at, created_at)",
    "finished_at": f"coalesce(finished_at, {NEVER})",
}

_ENDS = (State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED)  # as newest_ends has them
_RUN_SORTED = "id, job_id, state, due_at, created_at, started_at, {finished_at}"


def _ordered(sorts: Sequence[Sort], known: Sequence[str], keys: dict[str, str]) -> str:
    """ORDER BY; what is equal comes newest first."""
    for sort in sorts:
        if sort.by not in known:
            raise ValueError(f"nothing is sorted by {sort.by!r}")
    parts = [f"{keys.get(sort.by, sort.by)} {'DESC' if sort.descending else 'ASC'}" for sort in sorts]
    return ", ".join([*parts, "id DESC"])


class SearchPart(ListPart):
    """Lists that are paged by number."""

    async def search_jobs(self, where: JobFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        where = await self._placed(where)
        if where.words is not None or where.tag is not None:
            wanted, end = await self._with_words_or_tag(where, NEVER)
            return await self._sorted_jobs(where, wanted, end, sorts, offset, limit)
        wanted = self._searched(where)
        if list(sorts) == [Sort("next_at")] and where == JobFilter(where.org):
            return await self._all_by_next(wanted, offset, limit)
        is_indexed = wanted.is_exact or (
            not wanted.rest.conditions and all(sort.by in ("id", "name") for sort in sorts)
        )
        end = 0 if is_indexed else await self._end_of_scan(wanted, NEVER, SORTED)
        return await self._sorted_jobs(where, wanted, end, sorts, offset, limit)

    async def _sorted_jobs(
        self, where: JobFilter, wanted: Wanted, end: int, sorts: Sequence[Sort], offset: int, limit: int
    ) -> Found:
        order = _ordered(sorts, JOB_SORTS, {})
        condition = f"{wanted.stretches[0].above(end)} AND {wanted.rest.text()}"
        if where.latest is not None:
            found = await self._by_latest(where.latest, condition, wanted, sorts, offset, limit)
            return replace(found, is_part=found.is_part or bool(end))
        if any(sort.by in BY_MOMENT for sort in sorts):
            ids = await self._by_moment(condition, wanted, sorts)
            total, jobs = len(ids), await self.load_jobs(ids[offset : offset + limit])
        elif wanted.is_known:
            ids = await self._ordered_ids(condition, wanted, sorts, 0, COUNTED)
            total, jobs = len(ids), await self.load_jobs(ids[offset : offset + limit])
        else:
            text = f"SELECT {JOB_COLUMNS} FROM jobs WHERE {condition} ORDER BY {order} {_cut(offset, limit)}"  # noqa: S608
            rows, total = await asyncio.gather(
                self.read(self._statement(text), *wanted.rest.args), self._count_jobs(condition, wanted)
            )
            jobs = await self._with_triggers(rows)
        return _found(jobs, total, offset, bool(end) or total == COUNTED, is_part=bool(end))

    async def _count_jobs(self, condition: str, wanted: Wanted) -> int:
        text = f"SELECT count(*) FROM (SELECT 1 FROM jobs WHERE {condition} LIMIT {COUNTED}) AS counted"  # noqa: S608
        return int((await self.read(self._statement(text), *wanted.rest.args))[0][0])

    async def _all_by_next(self, wanted: Wanted, offset: int, limit: int) -> Found:
        """All jobs, the next one due first, by the index of moments; those that are not due at all come last."""
        until = min(offset + limit, COUNTED)
        condition = wanted.stretches[0].above(0)
        total, found = await asyncio.gather(
            self._count_jobs(condition, wanted), self._next_due(condition, wanted.rest.args, until)
        )
        if len(found) < until:
            text = f"SELECT id FROM jobs WHERE {condition} ORDER BY id DESC LIMIT {until}"  # noqa: S608
            rows = await self.read(self._statement(text), *wanted.rest.args)
            dated = set(found)
            found += [row[0] for row in rows if row[0] not in dated]
        return _found(await self.load_jobs(found[offset:until]), total, offset, total == COUNTED)

    async def _next_due(self, condition: str, args: Sequence[Any], most: int) -> list[int]:
        """Ids of jobs like that, in the order of the first moment of each."""
        found: dict[int, None] = {}
        after = "next_at > 0"
        while True:
            text = f"SELECT next_at, trigger_id, job_id FROM due WHERE next_at < {NEVER} AND {after} "  # noqa: S608
            rows = await self.read(f"{text}ORDER BY next_at, trigger_id LIMIT {SORTED}")
            ids = dict.fromkeys(row[2] for row in rows if row[2] not in found)
            listed = ", ".join(map(str, ids)) or "NULL"
            text = f"SELECT id FROM jobs WHERE {condition} AND id IN ({listed})"  # noqa: S608
            meant = {row[0] for row in await self.read(self._statement(text), *args)}
            found |= dict.fromkeys(job_id for job_id in ids if job_id in meant)
            if len(rows) < SORTED or len(found) >= most:
                return list(found)
            after = f"(next_at, trigger_id) > ({rows[-1][0]:d}, {rows[-1][1]:d})"

    def _searched(self, where: JobFilter) -> Wanted:
        """Of a source and of a user nothing is overlooked: whoever deletes, or asks for all of theirs, needs all."""
        wanted = self._wanted_jobs(replace(where, kind="sync") if where.source is not None else where)
        found = wanted.rest
        if where.source is not None:
            found.add(f"{self._json_field('spec', 'source_id')} = ?", str(where.source))
        return wanted._replace(is_exact=where.source is not None or where.made_for is not None)

    async def _by_moment(self, condition: str, wanted: Wanted, sorts: Sequence[Sort]) -> list[int]:
        """Ids of jobs, sorted by columns of their triggers too."""
        columns = [sort.by for sort in sorts if sort.by not in BY_MOMENT]
        text = f"SELECT {', '.join(['id', 'triggers', *columns])} FROM jobs WHERE {condition} ORDER BY id DESC"  # noqa: S608
        rows = await self.read(self._statement(text), *wanted.rest.args)
        triggers = {row[0]: trigger_ids(row[1]) for row in rows}
        due = {row[0]: row for row in await self._due_of([each for ids in triggers.values() for each in ids])}
        keys = {
            row[0]: {
                **dict(zip(columns, row[2:], strict=True)),
                **_moments([due[i] for i in triggers[row[0]] if i in due]),
            }
            for row in rows
        }
        ids = list(keys)
        for sort in reversed(sorts):
            ids.sort(key=lambda job_id, by=sort.by: keys[job_id][by], reverse=sort.descending)  # type: ignore[misc]
        return ids

    async def _by_latest(
        self, latest: LatestRun, condition: str, wanted: Wanted, sorts: Sequence[Sort], offset: int, limit: int
    ) -> Found:
        """The status of a job is that of its latest run, which no index has: all are looked at, but only at that; or
        those that have a live run, if it shall be one; or as many as it takes to fill a page, if nobody counts them."""
        if latest.is_live:
            states = ", ".join(str(int(state)) for state in sorted({state for state, _ in latest.runs}))
            condition += f" AND id IN (SELECT job_id FROM live WHERE state IN ({states}))"  # noqa: S608
        found: list[int] = []
        looked = 0
        first, then = (SORTED, SORTED) if latest.is_counted else (FIRST_LOOKED_AT, LOOKED_AT)
        async for part, is_last in self._parts(condition, wanted, sorts, first, then):
            looked += len(part)
            runs = await self._load_latest(part)
            said = await self._load_said(latest, [job_id for job_id in part if job_id not in runs])
            found += [job_id for job_id in part if latest.has(runs.get(job_id), said.get(job_id))]
            if not latest.is_counted and len(found) > offset + limit and not is_last:
                return Found(await self.load_jobs(found[offset : offset + limit]), len(found), is_cut=True)
        items = await self.load_jobs(found[offset : offset + limit])
        return Found(items, len(found), is_part=looked >= COUNTED)

    async def _parts(
        self, condition: str, wanted: Wanted, sorts: Sequence[Sort], first: int, then: int
    ) -> AsyncIterator[tuple[list[int], bool]]:
        """Yield the ids of jobs in their order, so many at a time, and whether they are the last. Most who ask are
        content with the first."""
        if any(sort.by in BY_MOMENT for sort in sorts):
            ids = await self._by_moment(condition, wanted, sorts)
        else:
            ids = await self._ordered_ids(condition, wanted, sorts, 0, first)
            if len(ids) == first:
                yield ids, False
                ids = await self._ordered_ids(condition, wanted, sorts, first, COUNTED)
        for start in range(0, len(ids), then):
            yield ids[start : start + then], start + then >= len(ids)

    async def _ordered_ids(
        self, condition: str, wanted: Wanted, sorts: Sequence[Sort], offset: int, limit: int
    ) -> list[int]:
        order = _ordered(sorts, JOB_SORTS, {})
        text = f"SELECT id FROM jobs WHERE {condition} ORDER BY {order} {_cut(offset, limit)}"  # noqa: S608
        return [row[0] for row in await self.read(self._statement(text), *wanted.rest.args)]

    async def _load_latest(self, job_ids: Sequence[int]) -> dict[int, tuple[State, Phase]]:
        """State and phase of the latest run of each job, for those that have one."""
        found, newest = dict[int, tuple[State, Phase]](), dict[int, int]()
        half = (len(job_ids) + 1) // 2  # at once: each job is looked for by itself
        *ended, live = await asyncio.gather(
            *(self._get("newest_ends", self._list(part)) for part in (job_ids[:half], job_ids[half:])),
            self._get("live_states", self._list(job_ids)),
        )
        for job_id, *ends in chain(*ended):
            newest[job_id], state = max((end or 0, state) for end, state in zip(ends, _ENDS, strict=True))
            if newest[job_id]:
                found[job_id] = (state, Phase.PREPARING)
        for job_id, run_id, number, phase in live:
            if run_id > newest.get(job_id, 0):
                found[job_id] = (State(number), Phase(phase))
        return found

    async def _load_said(self, latest: LatestRun, job_ids: Sequence[int]) -> dict[int, str | None]:
        if not job_ids or not latest.known:
            return {}
        ids = ", ".join(map(str, job_ids))
        text = f"SELECT id, {self._json_field('annotations', *latest.said_at)} FROM jobs WHERE id IN ({ids})"  # noqa: S608
        return {row[0]: row[1] for row in await self.read(self._statement(text))}

    async def load_standing(self, job_ids: Sequence[int]) -> dict[int, Standing]:
        ids = self._list(job_ids)
        live = {row[1]: run_from_row(row) for row in await self._get("newest_live", ids)}
        ended = {row[1]: run_from_row(row) for row in await self._get("newest_ended", ids)}  # one may have ended since
        return {job_id: _standing(live.get(job_id), ended.get(job_id)) for job_id in job_ids}

    async def load_successes(self, job_ids: Sequence[int]) -> dict[int, Moment]:
        return {row[0]: row[1] for row in await self._get("last_successes", self._list(job_ids))}

    async def search_runs(self, where: RunFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        order = _ordered(sorts, RUN_SORTS, _RUN_KEYS)
        wanted = self._wanted_runs(await self._with_job(where))
        end = await self._end_of_scan(wanted, NEVER, SORTED)
        text = (
            f"SELECT id, count(*) OVER () FROM ({_runs_above(end, wanted)}) AS found "  # noqa: S608
            f"ORDER BY {order} {_cut(offset, limit)}"
        )
        rows = await self.read(self._statement(text), *wanted.rest.args)
        return _found(await self._named_runs([row[0] for row in rows]), rows[0][1] if rows else 0, offset, bool(end))

    async def search_tries(self, where: RunFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        """Attempts that did not end their run stand beside it: few runs have any."""
        order = _ordered(sorts, RUN_SORTS, _RUN_KEYS)
        wanted = self._wanted_runs(await self._with_job(where))
        end = await self._end_of_scan(wanted, NEVER, SORTED)
        text = (
            f"WITH runs AS ({_runs_above(end, wanted)}) SELECT id, past, count(*) OVER () FROM ("  # noqa: S608
            f"SELECT runs.*, {NEVER} AS number, CAST(NULL AS integer) AS past FROM runs UNION ALL "
            "SELECT r.id, r.job_id, a.state, r.due_at, r.created_at, a.started_at, a.finished_at, a.attempt, a.attempt "
            "FROM runs r JOIN attempts a ON a.run_id = r.id AND a.state <> 2) AS found "
            f"ORDER BY {order}, number DESC {_cut(offset, limit)}"
        )
        rows = await self.read(self._statement(text), *wanted.rest.args)
        tries = await self._load_tries([row[0] for row in rows])
        items = [tries[row[0], row[1]] for row in rows if (row[0], row[1]) in tries]
        return _found(items, rows[0][2] if rows else 0, offset, bool(end))

    async def _load_tries(self, run_ids: Sequence[int]) -> dict[tuple[int, int | None], Try]:
        ids = sorted(set(run_ids))
        past: dict[int, list[Attempt]] = {}
        for row in await self._get("past_attempts", self._list(ids)) if ids else ():
            past.setdefault(row[0], []).append(attempt_from_row(row))
        runs = await self._named_runs(ids)
        return {
            (run.id, number): each
            for run, name in runs
            for number, each in tries_of(run, name, past.get(run.id, ())).items()
        }

    async def _named_runs(self, run_ids: Sequence[int]) -> list[tuple[Run, str]]:
        """These runs, each with the name of its job; one that ends meanwhile may be seen twice, and counts once."""
        rows = await self._get("load_runs", self._list(run_ids)) if run_ids else ()
        runs = {row[0]: run_from_row(row) for row in rows}
        names = await self.load_job_names(sorted({run.job_id for run in runs.values()}))
        return [(runs[run_id], names.get(runs[run_id].job_id, "")) for run_id in run_ids if run_id in runs]

    async def load_job_names(self, job_ids: Sequence[int]) -> dict[int, str]:
        rows = await self._get("names_of_jobs", self._list(job_ids)) if job_ids else ()
        return {row[0]: row[1] for row in rows}

    async def list_lost(self, limit: int) -> list[tuple[Attempt, Run]]:
        lost = [attempt_from_row(row) for row in await self._get("list_lost", limit)]
        rows = await self._get("load_runs", self._list(sorted({each.run_id for each in lost}))) if lost else ()
        runs = {row[0]: run_from_row(row) for row in rows}
        return [(each, runs[each.run_id]) for each in lost if each.run_id in runs]


def _runs_above(end: int, wanted: Wanted) -> str:
    """SELECT of what runs are sorted by."""
    return " UNION ALL ".join(
        f"SELECT {_RUN_SORTED.format(finished_at=_FINISHED_AT[stretch.table])} FROM {stretch.table} "  # noqa: S608
        f"WHERE {stretch.above(end)} AND {wanted.rest.text()}"
        for stretch in wanted.stretches
    )


_FINISHED_AT = {"live": "CAST(NULL AS bigint) AS finished_at", "history": "finished_at"}


def _found(items: list[Any], total: int, offset: int, is_cut: bool, *, is_part: bool = False) -> Found:
    if is_cut and not items and offset:
        raise Invalid(
            f"a list by number does not reach {offset}: it looks at the newest",
            code="E_RANGE",
            hint="narrow it, or walk /v1/jobs and /v1/runs by cursor",
        )
    return Found(items, total, is_cut, is_part)


def _moments(due: Sequence[Row]) -> dict[str, int]:
    """When a job is due next and was last, from (trigger_id, next_at, last_at) of its triggers."""
    next_at = min((row[1] for row in due), default=NEVER)
    return {"next_at": next_at, "last_at": max((row[2] for row in due if row[2] is not None), default=0)}


def _cut(offset: int, limit: int) -> str:
    return f"LIMIT {limit:d} OFFSET {offset:d}"


def _standing(live: Run | None, ended: Run | None) -> Standing:
    newest = [run for run in (live, ended) if run is not None]
    return Standing(max(newest, key=lambda run: run.id, default=None), ended)
