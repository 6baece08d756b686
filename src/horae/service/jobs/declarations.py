"""Files of declarations, applied once each for the whole cluster, in the order of their numbers.

Applying is repeatable (keys make submit an upsert) and comes before recording, so a node that dies in between, or two
that start at once, do no harm. What was applied is recorded under the digest of its text: a file that was changed
afterwards, or comes before one that was applied, refuses the start, because nobody could tell what it would mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from horae.core.model import DEFAULT_ORG, JobFilter
from horae.core.work.specs import Draft
from horae.errors import ConfigError, NotFound
from horae.ports.store.vault import Settings
from horae.service.jobs import Jobs

OWNER = "local"  # of declared jobs, as of all that are made without a token
_PREFIX = "declaration:"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a file declares."""

    drafts: tuple[Draft, ...]
    deleted: tuple[str, ...]  # keys


@dataclass(frozen=True, slots=True)
class DeclarationFile:
    name: str  # without its ending
    digest: str
    declaration: Declaration


class Declarations:
    def __init__(self, store: Settings, jobs: Jobs) -> None:
        self._store = store
        self._jobs = jobs

    async def apply(self, files: Sequence[DeclarationFile]) -> list[str]:
        """Apply what was not applied yet; return the names. `files` are in order."""
        fresh = await self._fresh(files)
        for file in fresh:
            await self._apply(file.declaration)
            kept = await self._store.keep_setting(_PREFIX + file.name, file.digest)
            _refuse_changed(file, kept)
            log.info("declaration.applied", name=file.name, jobs=len(file.declaration.drafts))
        return [file.name for file in fresh]

    async def _fresh(self, files: Sequence[DeclarationFile]) -> list[DeclarationFile]:
        fresh: list[DeclarationFile] = []
        for file in files:
            kept = await self._store.get_setting(_PREFIX + file.name)
            if kept is None:
                fresh.append(file)
                continue
            _refuse_changed(file, kept)
            if fresh:
                raise ConfigError(
                    f"the declaration {fresh[0].name} is new, but {file.name} behind it was applied before",
                    hint=f"give {fresh[0].name} a higher number",
                    path="declarations",
                )
        return fresh

    async def _apply(self, declaration: Declaration) -> None:
        if declaration.drafts:
            await self._jobs.submit(declaration.drafts, owner=OWNER)
        for key in declaration.deleted:
            where = JobFilter(org=DEFAULT_ORG, owner=OWNER, key=key)
            for job in (await self._jobs.list(where)).items:
                with suppress(NotFound):  # another node was faster
                    await self._jobs.delete(job.id)


def _refuse_changed(file: DeclarationFile, kept: str) -> None:
    if kept != file.digest:
        raise ConfigError(
            f"the declaration {file.name} was applied to this database with another text",
            hint="restore the file as it was, and write the change into a new one with a higher number",
            path="declarations",
        )
