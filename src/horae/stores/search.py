"""Lists for people: sorted by any column, paged by number, with a total; where jobs stand; sources and secrets.

Such lists are part of the contracts of other systems. They do not reach all that is kept
(they look at the newest SORTED): among these they sort, count and cut, and say so when there is more. Jobs by id or by
name have an index of their own, and are counted up to COUNTED.

What must stay true: what is sorted by is one of the names of ports, never text of a user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from horae.core.model import Attempt, Found, Job, JobFilter, Moment, Run, RunFilter, Secret, Source, Standing, State
from horae.errors import Invalid
from horae.ports import JOB_SORTS, NEVER, RUN_SORTS, SOURCE_SORTS, Sealed, SealedPlace, Sort
from horae.stores.lists import ListStore, Wanted, like
from horae.stores.sql import JOB_COLUMNS, Row, Where, decode, encode, run_from_row, trigger_ids

SORTED = 1_500  # of the newest that a list sorts by a column without an index
COUNTED = 10_001  # jobs; beyond, there are many
USER_START = 64  # characters of a user that an index has
BY_MOMENT = ("next_at", "last_at")
_RUN_KEYS = {
    "name": "(SELECT j.name FROM jobs j WHERE j.id = job_id)",
    "started_at": "coalesce(started_at, created_at)",
    "finished_at": f"coalesce(finished_at, {NEVER})",
}
_RUN_SORTED = "id, job_id, state, due_at, created_at, started_at, {finished_at}"


def _ordered(sorts: Sequence[Sort], known: Sequence[str], keys: dict[str, str]) -> str:
    """ORDER BY; what is equal comes newest first."""
    for sort in sorts:
        if sort.by not in known:
            raise ValueError(f"nothing is sorted by {sort.by!r}")
    parts = [f"{keys.get(sort.by, sort.by)} {'DESC' if sort.descending else 'ASC'}" for sort in sorts]
    return ", ".join([*parts, "id DESC"])


class SearchStore(ListStore):
    # ── jobs ──
    async def load_jobs(self, job_ids: Sequence[int]) -> list[Job]:
        jobs = {job.id: job for job in await self._with_triggers(await self._get("load_jobs", self._list(job_ids)))}
        return [jobs[job_id] for job_id in job_ids if job_id in jobs]

    async def search_jobs(self, where: JobFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        order = _ordered(sorts, JOB_SORTS, {})
        wanted = self._searched(where)
        is_indexed = wanted.is_exact or (
            not wanted.rest.conditions and all(sort.by in ("id", "name") for sort in sorts)
        )
        end = 0 if is_indexed else await self._end_of_scan(wanted, NEVER, SORTED)
        condition = f"{wanted.stretches[0].above(end)} AND {wanted.rest.text()}"
        if any(sort.by in BY_MOMENT for sort in sorts):
            ids = await self._by_moment(condition, wanted, sorts)
            total, jobs = len(ids), await self.load_jobs(ids[offset : offset + limit])
        else:
            text = f"SELECT {JOB_COLUMNS} FROM jobs WHERE {condition} ORDER BY {order} {_cut(offset, limit)}"  # noqa: S608
            jobs = await self._with_triggers(await self.read(self._statement(text), *wanted.rest.args))
            text = f"SELECT count(*) FROM (SELECT 1 FROM jobs WHERE {condition} LIMIT {COUNTED}) AS counted"  # noqa: S608
            total = int((await self.read(self._statement(text), *wanted.rest.args))[0][0])
        return _found(jobs, total, offset, bool(end) or total == COUNTED)

    def _searched(self, where: JobFilter) -> Wanted:
        """Of a source and of a user nothing is overlooked: whoever deletes, or asks for all of theirs, needs all."""
        wanted = self._wanted_jobs(replace(where, kind="sync") if where.source is not None else where)
        found = wanted.rest
        if where.source is not None:
            found.add(f"{self._json_field('spec', 'source_id')} = ?", str(where.source))
        if where.made_for is not None:
            user = f"coalesce({self._json_field('annotations', 'rpc', 'user_id')}, owner)"
            found.add(f"substr({user}, 1, {USER_START}) = ?", where.made_for[:USER_START])  # which has an index
            if len(where.made_for) >= USER_START:  # else the start is all of it
                found.add(f"{user} = ?", where.made_for)
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

    def _json_field(self, column: str, *path: str) -> str:
        """A field of a JSON column, as text."""
        if self.dialect == "postgres":
            return f"(CAST({column} AS jsonb) #>> '{{{','.join(path)}}}')"
        return f"CAST(json_extract({column}, '$.{'.'.join(path)}') AS text)"

    async def load_standing(self, job_ids: Sequence[int]) -> dict[int, Standing]:
        ids = self._list(job_ids)
        live = {row[1]: run_from_row(row) for row in await self._get("newest_live", ids)}
        ended = {row[1]: run_from_row(row) for row in await self._get("newest_ended", ids)}
        return {job_id: _standing(live.get(job_id), ended.get(job_id)) for job_id in job_ids}

    # ── runs ──
    async def search_runs(self, where: RunFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        order = _ordered(sorts, RUN_SORTS, _RUN_KEYS)
        wanted = self._wanted_runs(await self._with_job(where))
        end = await self._end_of_scan(wanted, NEVER, SORTED)
        parts = [
            f"SELECT {_RUN_SORTED.format(finished_at=_FINISHED_AT[stretch.table])} FROM {stretch.table} "  # noqa: S608
            f"WHERE {stretch.above(end)} AND {wanted.rest.text()}"
            for stretch in wanted.stretches
        ]
        text = (
            f"SELECT id, count(*) OVER () FROM ({' UNION ALL '.join(parts)}) AS found "  # noqa: S608
            f"ORDER BY {order} {_cut(offset, limit)}"
        )
        rows = await self.read(self._statement(text), *wanted.rest.args)
        return _found(await self._named_runs([row[0] for row in rows]), rows[0][1] if rows else 0, offset, bool(end))

    async def _named_runs(self, run_ids: Sequence[int]) -> list[tuple[Run, str]]:
        """These runs, each with the name of its job; one that ends meanwhile may be seen twice, and counts once."""
        rows = await self._get("load_runs", self._list(run_ids)) if run_ids else ()
        runs = {row[0]: run_from_row(row) for row in rows}
        jobs = sorted({run.job_id for run in runs.values()})
        names = {row[0]: row[1] for row in await self._get("names_of_jobs", self._list(jobs))} if jobs else {}
        return [(runs[run_id], names.get(runs[run_id].job_id, "")) for run_id in run_ids if run_id in runs]

    async def list_lost(self, limit: int) -> list[tuple[Attempt, Run]]:
        lost = [
            Attempt(row[0], row[1], row[2], row[3], State(row[4]), row[5], row[6], row[7], row[8], row[9], row[10])
            for row in await self._get("list_lost", limit)
        ]
        rows = await self._get("load_runs", self._list(sorted({each.run_id for each in lost}))) if lost else ()
        runs = {row[0]: run_from_row(row) for row in rows}
        return [(each, runs[each.run_id]) for each in lost if each.run_id in runs]

    # ── sources ──
    async def add_source(self, source: Source) -> Source:
        values = (source.org, source.owner, source.name, source.kind, encode(source.config))
        rows = await self._put("add_source", *values, source.created_at, source.updated_at)
        return _source_of(rows[0])

    async def save_source(self, source: Source) -> bool:
        values = (source.name, source.kind, encode(source.config), source.updated_at)
        return bool(await self._put("save_source", source.org, source.id, *values))

    async def get_source(self, org: int, source_id: int) -> Source | None:
        rows = await self._get("get_source", org, source_id)
        return _source_of(rows[0]) if rows else None

    async def load_sources(self, source_ids: Sequence[int]) -> list[Source]:
        return [_source_of(row) for row in await self._get("load_sources", self._list(source_ids))]

    async def search_sources(self, org: int, name: str | None, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        found = Where()
        found.add("org = ?", org)
        if name is not None:
            found.add(*like("name", name))
        text = self.queries["search_sources"].replace("{where}", found.text())
        text = f"{text} ORDER BY {_ordered(sorts, SOURCE_SORTS, {})} {_cut(offset, limit)}"
        rows = await self.read(self._statement(text), *found.args)
        text = self._statement(f"SELECT count(*) FROM sources WHERE {found.text()}")  # noqa: S608
        total = (await self.read(text, *found.args))[0][0]
        return Found([_source_of(row) for row in rows], total)

    async def delete_source(self, org: int, source_id: int) -> bool:
        return bool(await self._put("delete_source", org, source_id))

    # ── secrets ──
    async def put_secret(self, org: int, name: str, sealed: str, at: Moment) -> int:
        return int((await self._put("put_secret", org, name, sealed, at))[0][0])

    async def list_secrets(self, org: int) -> list[Secret]:
        return [Secret(*row) for row in await self._get("list_secrets", org)]

    async def get_sealed(self, org: int, names: Sequence[str]) -> dict[str, str]:
        return {row[0]: row[1] for row in await self._get("get_sealed", org, self._list(names))}

    async def list_sealed(self) -> list[tuple[int, str, str]]:
        return [(row[0], row[1], row[2]) for row in await self._get("list_sealed")]

    async def delete_secret(self, org: int, name: str) -> bool:
        return bool(await self._put("delete_secret", org, name))

    # ── what is sealed ──
    async def load_sealable(self, place: SealedPlace, after: int, limit: int) -> list[Sealed]:
        if place in ("job", "source"):
            rows = await self._get(f"sealable_{place}", after, limit)
        else:
            rows = await self._get("list_sealed" if place == "secret" else "sealable_setting") if not after else ()
        return [Sealed(place, row[0], str(row[1]), row[2]) for row in rows]

    async def reseal(self, row: Sealed, text: str) -> bool:
        return bool(await self._put(f"reseal_{row.place}", row.id, row.name, row.text, text))


_FINISHED_AT = {"live": "CAST(NULL AS bigint) AS finished_at", "history": "finished_at"}


def _found(items: list[Any], total: int, offset: int, is_cut: bool) -> Found:
    if is_cut and not items and offset:
        raise Invalid(
            f"a list by number does not reach {offset}: it looks at the newest",
            code="E_RANGE",
            hint="narrow it, or walk /v1/jobs and /v1/runs by cursor",
        )
    return Found(items, total, is_cut)


def _moments(due: Sequence[Row]) -> dict[str, int]:
    """When a job is due next and was last, from (trigger_id, next_at, last_at) of its triggers."""
    next_at = min((row[1] for row in due), default=NEVER)
    return {"next_at": next_at, "last_at": max((row[2] for row in due if row[2] is not None), default=0)}


def _cut(offset: int, limit: int) -> str:
    return f"LIMIT {limit:d} OFFSET {offset:d}"


def _standing(live: Run | None, ended: Run | None) -> Standing:
    newest = [run for run in (live, ended) if run is not None]
    return Standing(max(newest, key=lambda run: run.id, default=None), ended)


def _source_of(row: Row) -> Source:
    return Source(row[0], row[1], row[2], row[3], row[4], decode(row[5]), row[6], row[7])
