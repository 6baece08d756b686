"""Sources of syncs (J13, J14, J15). Their secrets are given to a worker that has a run of theirs on loan, and hidden
from everybody else."""

from __future__ import annotations

from horae.contracts.lake import connectors, reading, rendering, vocabulary
from horae.contracts.lake.api import DONE
from horae.contracts.lake.work import worker_name
from horae.core.model import Source
from horae.core.secrets.fields import masked
from horae.errors import NotFound
from horae.service import Services
from horae.web import http


class SourceTable:
    def __init__(self, services: Services) -> None:
        self._sources, self._jobs, self._lending = services.sources, services.jobs, services.lending
        self._lends = services.lends_lake_work

    async def create(self, request: http.Request) -> http.Answer:
        _, fields = await reading.body_of(request)
        kind, name, config = connectors.read_source(reading.inner(fields, "data_source"), is_lent=self._lends)
        who = http.principal(request)
        made = await self._sources.add(org=who.org, owner=who.name, name=name, kind=kind, config=config)
        return http.reply(200, _shown(made))

    async def get(self, request: http.Request) -> http.Answer:
        return http.reply(200, _shown(await self._find(request)))

    async def get_for_worker(self, request: http.Request) -> http.Answer:
        """With its secrets, for a worker that holds a run of it. Sources of organisations other than one's own do not
        exist."""
        source = await self._find(request)
        if request.path_id("org_id") != source.org:
            raise _missing(source.id)
        if not await self._is_at_work(request, source):
            return http.reply(200, _shown(source))
        opened = await self._sources.opened(source, f"worker {worker_name(request)}")
        return http.reply(200, rendering.source(source, opened.config))

    async def _is_at_work(self, request: http.Request, source: Source) -> bool:
        """Return whether the asker has a run on loan that needs this source. Who needs no token is the user of this
        process, whom nothing of it is hidden from."""
        if not self._lends or http.principal(request).is_local:
            return self._lends
        name = worker_name(request)
        held = sorted({loan.job_id for loan in await self._lending.loans() if loan.worker == name})
        jobs = await self._jobs.get_many(held)
        return any(job.org == source.org and job.spec.get("source_id") == source.id for job in jobs)

    async def replace(self, request: http.Request) -> http.Answer:
        """A secret that is sent as it is shown, hidden, stays as it was."""
        _, fields = await reading.body_of(request)
        kind, name, config = connectors.read_source(reading.inner(fields, "data_source"), is_lent=self._lends)
        before = await self._find(request)
        await self._sources.change(before.org, before.id, name=name, kind=kind, config=config)
        return http.reply(200, DONE)

    async def delete(self, request: http.Request) -> http.Answer:
        """Its jobs are deleted with it. Success also when there was nothing to delete."""
        await self._sources.delete(http.principal(request).org, request.path_id("source_id"))
        return http.reply(200, DONE)

    async def delete_many(self, request: http.Request) -> http.Answer:
        _, fields = await reading.body_of(request)
        for source_id in reading.ids(fields):
            await self._sources.delete(http.principal(request).org, source_id)
        return http.reply(200, DONE)

    async def list_sources(self, request: http.Request) -> http.Answer:
        _, fields = await reading.body_of(request)
        page = reading.read_stretch(fields, vocabulary.SOURCE_SORTS)
        org = http.principal(request).org
        found = await self._sources.search(org, page.keyword, page.sorts, page.offset, page.limit)
        data = [{"data_source": _shown(source)} for source in found.items]
        return http.reply(200, {"data": data, "total": found.total})

    async def _find(self, request: http.Request) -> Source:
        source_id = request.path_id("source_id")
        try:
            return await self._sources.get(http.principal(request).org, source_id)
        except NotFound:
            raise _missing(source_id) from None


def _shown(source: Source) -> dict[str, object]:
    return rendering.source(source, masked(source.config))


def _missing(source_id: int) -> NotFound:
    return NotFound(f"not found source with id: {source_id}")
