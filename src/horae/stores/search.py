"""Lists for people: sorted by any column, paged by number, with a total; where jobs stand; sources and secrets.

Nothing here is hot, and what it costs grows with what is looked through: such lists are part of the contracts of
other systems. Lists that machines walk are paged by cursor (sql.SqlStore).

What must stay true: what is sorted by is one of the names of ports, never text of a user.
"""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.model import Attempt, Found, Job, JobFilter, Moment, Run, RunFilter, Secret, Source, Standing, State
from horae.ports import JOB_SORTS, NEVER, RUN_SORTS, SOURCE_SORTS, Sealed, SealedPlace, Sort
from horae.stores.sql import (
    JOB_COLUMNS,
    Row,
    SqlStore,
    Where,
    decode,
    encode,
    job_conditions,
    like,
    run_conditions,
    run_from_row,
)

_JOB_KEYS = {"next_at": f"coalesce(soonest, {NEVER})", "last_at": "coalesce(latest, 0)"}
_RUN_KEYS = {
    "name": "job_name",
    "started_at": "coalesce(started_at, created_at)",
    "finished_at": f"coalesce(finished_at, {NEVER})",
}
_MOMENTS = """
  LEFT JOIN (SELECT job_id AS of_job, min(next_at) AS soonest, max(last_at) AS latest FROM due GROUP BY job_id) AS m
  ON of_job = id"""


def _ordered(sorts: Sequence[Sort], known: Sequence[str], keys: dict[str, str]) -> str:
    """ORDER BY; what is equal comes newest first."""
    for sort in sorts:
        if sort.by not in known:
            raise ValueError(f"nothing is sorted by {sort.by!r}")
    parts = [f"{keys.get(sort.by, sort.by)} {'DESC' if sort.descending else 'ASC'}" for sort in sorts]
    return ", ".join([*parts, "id DESC"])


class SearchStore(SqlStore):
    # ── jobs ──
    async def load_jobs(self, job_ids: Sequence[int]) -> list[Job]:
        jobs = {job.id: job for job in await self._with_triggers(await self._get("load_jobs", self._list(job_ids)))}
        return [jobs[job_id] for job_id in job_ids if job_id in jobs]

    async def search_jobs(self, where: JobFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        found = job_conditions(where)
        if where.source is not None:
            found.add("kind = 'sync'")
            found.add(f"{self._json_field('spec', 'source_id')} = ?", str(where.source))
        if where.made_for is not None:
            facade, name, value = where.made_for
            found.add(f"coalesce({self._json_field('annotations', facade, name)}, owner) = ?", value)
        order = _ordered(sorts, JOB_SORTS, _JOB_KEYS)
        moments = _MOMENTS if any(sort.by in _JOB_KEYS for sort in sorts) else ""
        text = f"SELECT {JOB_COLUMNS} FROM jobs{moments} WHERE {found.text()} ORDER BY {order} {_cut(offset, limit)}"  # noqa: S608
        jobs = await self._with_triggers(await self.read(self._statement(text), *found.args))
        return Found(jobs, await self._count(f"SELECT count(*) FROM jobs WHERE {found.text()}", found))  # noqa: S608

    def _json_field(self, column: str, *path: str) -> str:
        """A field of a JSON column, as text."""
        if self.dialect == "postgres":
            return f"(CAST({column} AS jsonb) #>> '{{{','.join(path)}}}')"
        return f"CAST(json_extract({column}, '$.{'.'.join(path)}') AS text)"

    async def _count(self, text: str, where: Where) -> int:
        return int((await self.read(self._statement(text), *where.args))[0][0])

    async def load_standing(self, job_ids: Sequence[int]) -> dict[int, Standing]:
        ids = self._list(job_ids)
        live = {row[1]: run_from_row(row) for row in await self._get("newest_live", ids)}
        ended = {row[1]: run_from_row(row) for row in await self._get("newest_ended", ids)}
        return {job_id: _standing(live.get(job_id), ended.get(job_id)) for job_id in job_ids}

    # ── runs ──
    async def search_runs(self, where: RunFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        found = run_conditions(where)
        order = _ordered(sorts, RUN_SORTS, _RUN_KEYS)
        text = self.queries["search_runs"].replace("{where}", found.text()).replace("{order}", order)
        text = text.replace("{reach}", str(offset + limit)).replace("{cut}", _cut(offset, limit))
        rows = await self.read(self._statement(text), *found.args)
        total = await self._count(self.queries["count_runs"].replace("{where}", found.text()), found)
        return Found([(run_from_row(row), row[-1]) for row in rows], total)

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
        total = await self._count(f"SELECT count(*) FROM sources WHERE {found.text()}", found)  # noqa: S608
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


def _cut(offset: int, limit: int) -> str:
    return f"LIMIT {limit:d} OFFSET {offset:d}"


def _standing(live: Run | None, ended: Run | None) -> Standing:
    newest = [run for run in (live, ended) if run is not None]
    return Standing(max(newest, key=lambda run: run.id, default=None), ended)


def _source_of(row: Row) -> Source:
    return Source(row[0], row[1], row[2], row[3], row[4], decode(row[5]), row[6], row[7])
