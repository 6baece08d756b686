"""Sync jobs: made one by one, for each table, or many at once; changed; deleted (J1, J2, J4, J5, J15)."""

from __future__ import annotations

from collections.abc import Sequence

from horae.contracts.lake import connectors, reading, rendering
from horae.contracts.lake.api import DONE, LakeApi
from horae.core.fields import Fields, Problems
from horae.core.work.specs import Draft
from horae.core.work.syncs import made_cursor
from horae.errors import Conflict, Invalid, NotFound
from horae.service import Services
from horae.service.jobs.changes import Submitted
from horae.web import http

MAX_MADE = 100  # jobs made by one request


class SyncJobs:
    def __init__(self, services: Services, api: LakeApi) -> None:
        self._jobs = services.jobs
        self._sources = services.sources
        self._lends = services.lends_lake_work
        self._api = api

    async def create(self, request: http.Request) -> http.Answer:
        """As a lake job; source_id must be that of a source of the organisation, or 0 where the job needs none."""
        body, fields = await reading.body_of(request)
        wanted = self._read(reading.inner(fields, "job"))
        done = await self._submit(request, body, [wanted.draft])
        return http.reply(200, (await self._api.show(done.jobs))[0])

    async def create_for_tables(self, request: http.Request) -> http.Answer:
        """One job for each table, named after it: all of them or none."""
        body, fields = await reading.body_of(request)
        one, names = reading.inner(fields, "base_job"), fields.items("table_names", MAX_MADE, "tables", least=1)
        if reading.class_name(one, connectors.CONNECTORS) not in connectors.TABLE_COPIES:
            raise Conflict(f"not support multi create {one.values['class_name']}")
        if not names or not all(isinstance(name, str) and name for name in names):
            raise Invalid("table_names: a list of names expected", code="E_TYPE", path="table_names")
        await self._submit(request, body, [self._for_table(one, name) for name in names])
        return http.reply(200, True)

    async def create_many(self, request: http.Request) -> http.Answer:
        """All of them or none."""
        body, fields = await reading.body_of(request)
        items = fields.items("jobs", MAX_MADE, "jobs", least=1)
        if not items:
            fields.fault("jobs", "E_REQUIRED", "a list of jobs is needed")
        fields.problems.raise_any()
        sent = [reading.as_fields(item, f"jobs[{index}]", Problems()) for index, item in enumerate(items)]
        await self._submit(request, body, [self._read(each).draft for each in sent])
        return http.reply(200, True)

    async def _submit(self, request: http.Request, body: bytes, drafts: Sequence[Draft]) -> Submitted:
        who = http.principal(request)
        self._refuse_unreadable(drafts)
        await self._check_sources(who.org, drafts)
        return await self._jobs.submit(drafts, owner=who.name, org=who.org, idempotency=request.idempotency(body))

    def _refuse_unreadable(self, drafts: Sequence[Draft]) -> None:
        for draft in drafts if not self._lends else ():
            connectors.refuse_unreadable(draft)

    async def _check_sources(self, org: int, drafts: Sequence[Draft]) -> None:
        for source_id in sorted({draft.spec.get("source_id", 0) for draft in drafts} - {0}):
            try:
                await self._sources.get(org, source_id)
            except NotFound:
                raise NotFound(f"not found source with id: {source_id}") from None

    async def replace(self, request: http.Request) -> http.Answer:
        """The address names the job. A last_synced_value other than the one shown is where the next run begins."""
        _, fields = await reading.body_of(request)
        sent = reading.inner(fields, "job")
        job = await self._api.find(request)
        reading.refuse_other_id(sent, job.id)
        wanted = self._read(sent)
        self._refuse_unreadable([wanted.draft])
        await self._check_sources(job.org, [wanted.draft])
        shown = rendering.resumed(job.spec.get("options", {}), await self._jobs.cursors.get(job.id))
        draft = wanted.over(job, rendering.schedule_time(job))
        await self._jobs.replace(job.id, draft)
        wanted_cursor = {**shown, **draft.spec.get("options", {})}
        if any(wanted_cursor.get(name) != shown.get(name) for name in rendering.RESUMED):
            await self._jobs.cursors.set(job.id, made_cursor(wanted_cursor))
        return http.reply(200, DONE)

    async def delete_many(self, request: http.Request) -> http.Answer:
        _, fields = await reading.body_of(request)
        await self._api.delete_jobs(request, reading.ids(fields))
        return http.reply(200, DONE)

    def _read(self, fields: Fields) -> reading.Wanted:
        return connectors.read_sync_job(fields, is_lent=self._lends)

    def _for_table(self, one: Fields, table: str) -> Draft:
        name = reading.first(one.values, "display_name", "name")
        own = {"display_name": f"{name}_{table}" if name else table, "table_name": table, "dest_table_name": table}
        return self._read(Fields({**one.values, **own}, one.path, Problems())).draft
