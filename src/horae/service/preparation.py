"""What claimed work on data needs before it may begin: its destinations for itself, its source, its cursor.

    claimed ─► lock ─► (blocked: another run writes there) ─► equip ─► (failed: its source is gone) ─► to the agent

What must stay true: the cursor is read under the locks, so it is the one that the last writer left; a source travels
with one assignment to one agent, and is kept nowhere else; the audit log tells to whom its secrets went.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from horae.core.model import SECOND, Cursor, Job, Json, Moment, Policy, Reason, Run, Source, State
from horae.core.runs.orders import Assignment, LockRequest, Result
from horae.core.work.kinds import locks_of
from horae.core.work.policies import policy_from_text
from horae.core.work.syncs import SYNC, first_cursor
from horae.errors import ConfigError
from horae.ports.store.attempts import Writes
from horae.ports.store.definitions import Definitions
from horae.ports.store.sources import Sources
from horae.service.secrets.named import Secrets, reading
from horae.service.secrets.sealing import Sealing, unopened

_json = msgspec.json.Encoder().encode


class PreparationStore(Writes, Definitions, Sources, Protocol):
    """What work on data needs besides its job."""


@lru_cache(maxsize=10_000)
def _locks_in(kind: str, spec: str) -> tuple[str, ...]:
    return locks_of(kind, msgspec.json.decode(spec))


@lru_cache(maxsize=10_000)
def _first_cursor_in(kind: str, spec: str) -> Json | None:
    return first_cursor(msgspec.json.decode(spec)) if kind == SYNC else None


@lru_cache(maxsize=10_000)
def _source_in(spec: str) -> int:
    """Return the id of the source that a spec names; 0: none."""
    found = msgspec.json.decode(spec).get("source_id")
    return found if type(found) is int else 0


class Preparation:
    def __init__(self, store: PreparationStore, sealing: Sealing, secrets: Secrets | None = None) -> None:
        self._store = store
        self._sealing = sealing
        self._secrets = secrets

    async def lock(self, claimed: Sequence[Assignment]) -> list[Assignment]:
        """Return those that may write what they write; the others wait from now on."""
        requests = [
            LockRequest(a.run_id, a.fence, names, _start_by(policy_from_text(a.policy), a.attempt, a.due_at))
            for a in claimed
            if (names := _locks_in(a.kind, a.spec))
        ]
        if not requests:
            return list(claimed)
        granted = await self._store.take_locks(requests)
        waiting = {request.run_id for request in requests} - granted
        return [a for a in claimed if a.run_id not in waiting]

    async def lock_one(self, job: Job, run: Run) -> bool:
        """As lock, of a run that is lent."""
        names = locks_of(job.kind, job.spec)
        request = LockRequest(run.id, run.fence, names, _start_by(job.policy, run.attempt, run.due_at))
        return not names or bool(await self._store.take_locks([request]))

    async def equip(
        self, claimed: Sequence[Assignment], now: Moment, node: str = ""
    ) -> tuple[list[Assignment], list[Result]]:
        """Syncs with their sources and cursors, for the agent of a node; and the ends of those whose source is gone, or
        does not open."""
        syncs = [a for a in claimed if a.kind == SYNC]
        if not syncs:
            return list(claimed), []
        jobs = sorted({a.job_id for a in syncs})
        cursors = await self._store.load_cursors(jobs)
        sources = await self._sources_of(syncs)
        ready, gone = list[Assignment](), list[Result]()
        read: dict[tuple[int, int], list[int]] = {}  # organisation and id of a source with secrets → runs
        for a in claimed:
            source = sources.get(a.job_id)
            if a.kind == SYNC and _source_in(a.spec) and source is None:
                gone.append(_gone(a, now))
                continue
            try:
                opened = None if source is None else self._sealing.open_source(source)
            except ConfigError as error:
                gone.append(unopened(a.run_id, a.fence, error, now))
                continue
            if opened is not None and source is not None and opened.config != source.config:
                read.setdefault((source.org, source.id), []).append(a.run_id)
            ready.append(_equipped(a, opened, _cursor_of(a, cursors.get(a.job_id))))
        await self._note_read(f"agent {node}", read)
        return ready, gone

    async def _note_read(self, reader: str, read: Mapping[tuple[int, int], Sequence[int]]) -> None:
        if self._secrets is not None:
            deeds = [reading(reader, org, "source", str(source), runs) for (org, source), runs in sorted(read.items())]
            await self._secrets.note_read(deeds)

    async def _sources_of(self, syncs: Sequence[Assignment]) -> dict[int, Source]:
        """Job → its source, if it is of the same organisation."""
        wanted = {a.job_id: found for a in syncs if (found := _source_in(a.spec))}
        if not wanted:
            return {}
        sources = {source.id: source for source in await self._store.load_sources(sorted({*wanted.values()}))}
        jobs = await self._store.load_jobs(sorted(wanted))
        pairs = ((job, sources.get(wanted[job.id])) for job in jobs)
        return {job.id: source for job, source in pairs if source is not None and source.org == job.org}


def _equipped(a: Assignment, source: Source | None, cursor: Any) -> Assignment:
    if source is not None:
        whole = {"id": source.id, "name": source.name, "kind": source.kind, "config": source.config}
        a = a._replace(source=_json(whole).decode())
    return a if cursor is None else a._replace(cursor=_json(cursor).decode())


def _start_by(policy: Policy, attempt: int, due_at: Moment) -> Moment | None:
    """Return the start deadline of a run that has not begun by this attempt, if it has one."""
    seconds = policy.start_deadline_seconds
    return None if seconds is None or attempt > 1 else due_at + round(seconds * SECOND)


def _cursor_of(a: Assignment, cursor: Cursor | None) -> Any:
    """Return where it goes on; until something has moved the cursor, where its spec says that it begins."""
    return _first_cursor_in(a.kind, a.spec) if cursor is None else cursor.value


def _gone(a: Assignment, now: Moment) -> Result:
    message = f"the source {_source_in(a.spec)} of this job does not exist any more; give the job another source_id"
    return Result(a.run_id, a.fence, State.FAILED, Reason.ERROR, now, now, message=message, final=True)
