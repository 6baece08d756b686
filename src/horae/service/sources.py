"""Where syncs take their data from: kept, changed, and deleted together with the jobs that need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from horae.core.definitions import Sort
from horae.core.model import Found, JobFilter, Json, Source
from horae.core.secrets.fields import kept, masked, refuse_hidden
from horae.errors import ConfigError, Conflict, NotFound
from horae.ports import deeds
from horae.ports.store.moments import StoreClock
from horae.ports.store.sources import Sources as SourcesPort
from horae.ports.store.vault import Settings
from horae.service.jobs import Jobs
from horae.service.secrets.named import Secrets, reading
from horae.service.secrets.sealing import Sealing

DELETED_TOGETHER = 100  # jobs deleted before looking for more


class SourceStore(SourcesPort, Settings, StoreClock, Protocol):
    """Sources, and what time it is."""


class Sources:
    def __init__(
        self, store: SourceStore, jobs: Jobs, sealing: Sealing | None = None, secrets: Secrets | None = None
    ) -> None:
        """Without `sealing`, sources that hold secrets are refused. `secrets` is told to whom they are given."""
        self._sealing = sealing or Sealing(store)
        self._store = store
        self._jobs = jobs
        self._secrets = secrets

    async def add(self, *, org: int, owner: str, name: str, kind: str, config: Json) -> Source:
        refuse_hidden(config)
        await self._check(config)
        now = await self._store.now()
        source = Source(0, org, owner, name, kind, config, now, now)
        deeds.note_change(None, _told(source))
        with self._sealing.writing():
            return await self._store.add_source(self._sealing.seal_source(source))

    async def change(self, org: int, source_id: int, *, name: str, kind: str, config: Json) -> Source:
        """A secret that comes back hidden stays as it was, unless it would go elsewhere."""
        await self._check(config)
        with self._sealing.writing():
            return await self._change(org, source_id, name, kind, config)

    async def _change(self, org: int, source_id: int, name: str, kind: str, config: Json) -> Source:
        before = await self.get(org, source_id)
        whole = replace(before, name=name, kind=kind, config=kept(config, before.config if kind == before.kind else {}))
        after = replace(self._sealing.seal_source(whole, before), updated_at=await self._store.now())
        deeds.note_change(_told(before), _told(whole))
        if not await self._store.save_source(after):
            raise _missing(source_id)
        return after

    async def get(self, org: int, source_id: int) -> Source:
        found = await self._store.get_source(org, source_id)
        if found is None:
            raise _missing(source_id)
        return found

    async def _check(self, config: Json) -> None:
        if masked(config) != config:
            await self._sealing.check()

    async def opened(self, source: Source, reader: str, runs: Sequence[int] = ()) -> Source:
        """With its secrets, for a worker, the reader, and these runs: the audit log tells of it first."""
        try:
            opened = self._sealing.open_source(source)
        except ConfigError as error:
            raise Conflict(error.message, code=error.code, hint=error.hint) from error
        if self._secrets is not None and opened.config != source.config:
            await self._secrets.note_read([reading(reader, source.org, "source", str(source.id), runs)])
        return opened

    async def search(self, org: int, name: str | None, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        return await self._store.search_sources(org, name, sorts, offset, limit)

    async def delete(self, org: int, source_id: int) -> bool:
        """Its jobs go first: should this break off, the source is still there to be deleted again."""
        where = JobFilter(org=org, source=source_id)
        while jobs := (await self._jobs.search(where, (), 0, DELETED_TOGETHER)).items:
            for job in jobs:
                await self._jobs.delete(job.id)
        return await self._store.delete_source(org, source_id)


def _told(source: Source) -> Json:
    """Return what the audit log tells of a source; of secrets, nothing."""
    return {"name": source.name, "kind": source.kind, "config": masked(source.config)}


def _missing(source_id: int) -> NotFound:
    return NotFound(f"there is no source {source_id}")
