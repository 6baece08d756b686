"""Services in memory, with the behaviour the API depends on: ids, versions, idempotency, logs that grow."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

from horae.core import model, schedule, specs
from horae.core.model import Job, Page, Run, State, Trigger
from horae.errors import Conflict, Invalid, NotFound, Stale
from horae.ports import Idempotency
from horae.service.access import Access
from horae.service.insight import Artifact, LogSlice, Overview, Readiness, artifacts_of
from horae.service.jobs import Submitted
from horae.service.secrets import Secrets
from horae.testing import FakeClock

NOW = 1_800_000_000_000_000


def _paged(items: list[Any], cursor: str | None, limit: int) -> Page:
    if cursor is not None and not cursor.isdigit():
        raise Invalid("this is not a cursor", code="E_PATTERN")
    rest = [item for item in items if cursor is None or item.id < int(cursor)]
    return Page(rest[:limit], str(rest[limit - 1].id) if len(rest) > limit else None)


@dataclass
class Jobs:
    jobs: dict[int, Job] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    attempts: dict[int, list[model.Attempt]] = field(default_factory=dict)
    promises: dict[tuple[str, str], tuple[str, Any]] = field(default_factory=dict)
    ids: Any = field(default_factory=lambda: itertools.count(1))
    calls: list[str] = field(default_factory=list)
    seen_idempotency: list[Idempotency] = field(default_factory=list)

    def _recall(self, idempotency: Idempotency | None) -> Any:
        if idempotency is None:
            return None
        self.seen_idempotency.append(idempotency)
        digest, made = self.promises.get((idempotency.scope, idempotency.key), (idempotency.digest, None))
        if digest != idempotency.digest:
            raise Conflict("this key was used with a different request", code="E_IDEMPOTENCY_MISMATCH")
        return made

    def _keep(self, idempotency: Idempotency | None, made: Any) -> None:
        if idempotency is not None:
            self.promises[idempotency.scope, idempotency.key] = (idempotency.digest, made)

    def _made(self, draft: specs.Draft, job_id: int, version: int, owner: str, org: int) -> Job:
        triggers = tuple(self._trigger(each, job_id) for each in draft.triggers)
        return Job(
            id=job_id,
            org=org,
            owner=owner,
            name=draft.name,
            key=draft.key,
            kind=draft.kind,
            spec=draft.spec,
            policy=draft.policy,
            segment=draft.segment or 0,
            paused=draft.paused,
            annotations=draft.annotations,
            version=version,
            created_at=NOW,
            updated_at=NOW,
            triggers=triggers,
        )

    def _trigger(self, draft: specs.TriggerDraft, job_id: int) -> Trigger:
        return Trigger(
            next(self.ids), job_id, draft.schedule, draft.data, draft.enabled, 1, NOW + 60_000_000, None, NOW
        )

    async def submit(
        self, drafts: list[specs.Draft], *, owner: str, org: int = 1, idempotency: Idempotency | None = None
    ) -> Submitted:
        self.calls.append("submit")
        if made := self._recall(idempotency):
            return Submitted(made, True)
        jobs = [self._made(draft, next(self.ids), 1, owner, org) for draft in drafts]
        self.jobs |= {job.id: job for job in jobs}
        self._keep(idempotency, jobs)
        return Submitted(jobs)

    async def get(self, job_id: int) -> Job:
        if job_id not in self.jobs:
            raise NotFound(f"there is no job {job_id}")
        return self.jobs[job_id]

    async def list(self, where: model.JobFilter, cursor: str | None, limit: int) -> Page:
        found = [
            job
            for job in sorted(self.jobs.values(), key=lambda job: -job.id)
            if job.deleted_at is None
            and (where.name is None or where.name in job.name)
            and (where.key is None or where.key == job.key)
            and (where.kind is None or where.kind == job.kind)
            and (where.owner is None or where.owner == job.owner)
            and (where.paused is None or where.paused == job.paused)
        ]
        return _paged(found, cursor, limit)

    async def replace(self, job_id: int, draft: specs.Draft, *, expected_version: int | None) -> Job:
        old = await self.get(job_id)
        if expected_version not in (None, old.version):
            raise Stale(f"version {old.version} is current, not {expected_version}")
        self.jobs[job_id] = self._made(draft, job_id, old.version + 1, old.owner, old.org)
        return self.jobs[job_id]

    async def set_paused(self, job_id: int, paused: bool) -> Job:
        job = await self.get(job_id)
        self.jobs[job_id] = replace(job, paused=paused, version=job.version + 1)
        return self.jobs[job_id]

    async def delete(self, job_id: int) -> None:
        job = await self.get(job_id)
        if job.deleted_at is not None:
            raise NotFound(f"job {job_id} is deleted")
        self.jobs[job_id] = replace(job, deleted_at=NOW)

    def _triggers(self) -> dict[int, Trigger]:
        return {trigger.id: trigger for job in self.jobs.values() for trigger in job.triggers}

    async def list_triggers(self, job_id: int | None, cursor: str | None, limit: int) -> Page:
        found = [each for each in self._triggers().values() if job_id in (None, each.job_id)]
        return _paged(sorted(found, key=lambda each: -each.id), cursor, limit)

    async def get_trigger(self, trigger_id: int) -> Trigger:
        if trigger_id not in self._triggers():
            raise NotFound(f"there is no trigger {trigger_id}")
        return self._triggers()[trigger_id]

    def _put(self, trigger: Trigger) -> Trigger:
        job = self.jobs[trigger.job_id]
        others = tuple(each for each in job.triggers if each.id != trigger.id)
        self.jobs[job.id] = replace(job, triggers=(*others, trigger), version=job.version + 1)
        return trigger

    async def add_trigger(self, job_id: int, draft: specs.TriggerDraft) -> Trigger:
        await self.get(job_id)
        return self._put(self._trigger(draft, job_id))

    async def replace_trigger(self, trigger_id: int, draft: specs.TriggerDraft) -> Trigger:
        old = await self.get_trigger(trigger_id)
        return self._put(replace(old, schedule=draft.schedule, data=draft.data, enabled=draft.enabled))

    async def patch_trigger(self, trigger_id: int, **changes: Any) -> Trigger:
        return self._put(replace(await self.get_trigger(trigger_id), **changes))

    async def delete_trigger(self, trigger_id: int) -> None:
        trigger = await self.get_trigger(trigger_id)
        job = self.jobs[trigger.job_id]
        self.jobs[job.id] = replace(job, triggers=tuple(each for each in job.triggers if each.id != trigger_id))

    def add_run(self, job_id: int, **fields: Any) -> Run:
        given = {"trigger_id": None, "due_at": NOW, "state": State.QUEUED, "reason": "", "attempt": 0, "fence": 0}
        run = Run(id=next(self.ids), job_id=job_id, priority=5, kind="shell", created_at=NOW, **{**given, **fields})
        self.runs[run.id] = run
        return run

    async def run_now(
        self, job_id: int, *, data: Any = None, node: str | None = None, idempotency: Idempotency | None = None
    ) -> Run:
        if made := self._recall(idempotency):
            return made  # type: ignore[no-any-return]
        job = await self.get(job_id)
        if job.deleted_at is not None:
            raise NotFound(f"job {job_id} is deleted")
        if job.paused:
            raise Conflict(f"job {job_id} is paused", code="E_PAUSED")
        run = self.add_run(job_id, data=data, pin=node)
        self._keep(idempotency, run)
        return run

    async def cancel(self, run_id: int) -> Run:
        run = await self.get_run(run_id)
        if run.state.is_terminal:
            raise Conflict(f"run {run_id} has ended", code="E_TERMINAL")
        self.runs[run_id] = replace(run, state=State.CANCELLED, reason="requested", finished_at=NOW)
        return self.runs[run_id]

    async def get_run(self, run_id: int) -> Run:
        if run_id not in self.runs:
            raise NotFound(f"there is no run {run_id}")
        return self.runs[run_id]

    async def list_runs(self, where: model.RunFilter, cursor: str | None, limit: int) -> Page:
        found = [
            run
            for run in sorted(self.runs.values(), key=lambda run: -run.id)
            if where.job_id in (None, run.job_id)
            and where.trigger_id in (None, run.trigger_id)
            and (not where.states or run.state in where.states)
            and (where.due_from is None or run.due_at >= where.due_from)
            and (where.due_until is None or run.due_at < where.due_until)
        ]
        return _paged(found, cursor, limit)

    async def list_attempts(self, run_id: int) -> list[model.Attempt]:  # type: ignore[valid-type]
        await self.get_run(run_id)
        return self.attempts.get(run_id, [])


@dataclass
class Insight:
    jobs: Jobs
    logs: dict[int, bytearray] = field(default_factory=dict)
    grown: asyncio.Condition = field(default_factory=asyncio.Condition)
    is_ready: bool = True
    followers: int = 0
    followed_from: tuple[int | None, int] | None = None
    broken: Exception | None = None
    node: str = "alpha"

    def now(self) -> int:
        return NOW

    async def write(self, run_id: int, data: bytes, **changes: Any) -> None:
        """Let a log grow, or its run change, and wake the followers."""
        async with self.grown:
            self.logs.setdefault(run_id, bytearray()).extend(data)
            self.jobs.runs[run_id] = replace(self.jobs.runs[run_id], **changes)
            self.grown.notify_all()

    def preview(self, doc: model.Json, *, start: int | None, count: int) -> list[schedule.Previewed]:
        return schedule.preview(doc, seed=1, created_at=NOW, start=NOW if start is None else start, count=count)

    async def read_log(self, run_id: int, *, attempt: int | None, offset: int, limit: int) -> LogSlice:
        run = await self.jobs.get_run(run_id)
        data = bytes(self.logs.get(run_id, b"")[offset : offset + limit])
        return LogSlice(data, offset, offset + len(data), run, attempt or run.attempt)

    async def list_artifacts(self, run_id: int) -> list[Artifact]:
        return artifacts_of(await self.jobs.get_run(run_id))

    async def find_artifact(self, run_id: int, path: str) -> tuple[str, Artifact]:
        for one in await self.list_artifacts(run_id):
            if one.path == path:
                return path, one
        raise NotFound(f"run {run_id} has no artifact of that name")

    async def read_artifact(self, ref: str, offset: int) -> bytes:
        return b""

    async def follow(self, run_id: int, *, attempt: int | None, offset: int) -> AsyncIterator[LogSlice]:
        self.followers += 1
        self.followed_from = (attempt, offset)
        attempt = self.jobs.runs[run_id].attempt
        try:
            while True:
                run = self.jobs.runs[run_id]
                if run.attempt != attempt:
                    attempt, offset = run.attempt, 0
                data = bytes(self.logs.get(run_id, b"")[offset:])
                if data:
                    yield LogSlice(data, offset, offset + len(data), run, attempt)
                    offset += len(data)
                elif run.state.is_terminal:
                    return
                else:
                    await self._change(run, offset)
        finally:
            self.followers -= 1

    async def _change(self, run: Run, offset: int) -> None:
        def has_changed() -> bool:
            return len(self.logs.get(run.id, b"")) > offset or self.jobs.runs[run.id] != run

        async with self.grown:
            await self.grown.wait_for(has_changed)

    async def nodes(self) -> list[model.Node]:
        return (await self.overview()).nodes

    async def segments(self) -> dict[int, tuple[str, int]]:
        return (await self.overview()).segments

    async def overview(self) -> Overview:
        if self.broken is not None:
            raise self.broken
        live: dict[str, int] = {}
        for run in self.jobs.runs.values():
            if not run.state.is_terminal:
                live[run.state.word] = live.get(run.state.word, 0) + 1
        census = model.Census(len(self.jobs.jobs), len(self.jobs._triggers()), live)
        node = model.Node(
            "alpha-8080", ("api", "scheduler"), ("shell",), (), 4, "0.1.0", "127.0.0.1:8080", NOW, NOW, 7, "live", 1
        )
        ended = [run for run in self.jobs.runs.values() if run.state.is_terminal]
        recent = sorted(ended, key=lambda run: -run.id)[:50]
        due = sorted((t for t in self.jobs._triggers().values() if t.next_at), key=lambda t: t.next_at)[:12]
        return Overview(census, [node], {7: ("alpha-8080", 3)}, recent, due, "alpha-8080")

    async def readiness(self) -> Readiness:
        return Readiness(self.is_ready, {"store": "ok" if self.is_ready else "out of reach"})

    def metrics(self) -> bytes:
        return b"# TYPE horae_jobs gauge\nhorae_jobs 3\n"


class Tokens:
    """What Access needs of a store."""

    def __init__(self) -> None:
        self.tokens: dict[int, model.Token] = {}
        self.broken: Exception | None = None

    async def now(self) -> int:
        return NOW

    async def add_token(self, token: model.Token) -> model.Token:
        kept = replace(token, id=len(self.tokens) + 1)
        self.tokens[kept.id] = kept
        return kept

    async def get_token(self, token_id: int) -> model.Token | None:
        if self.broken is not None:
            raise self.broken
        return self.tokens.get(token_id)

    async def list_tokens(self) -> list[model.Token]:
        return list(reversed(self.tokens.values()))

    async def revoke_token(self, token_id: int, at: int) -> model.Token | None:
        if token_id not in self.tokens:
            return None
        self.tokens[token_id] = replace(self.tokens[token_id], revoked_at=at)
        return self.tokens[token_id]


class Nodes:
    def __init__(self) -> None:
        self.node = model.Node("alpha-8080", ("agent",), ("shell",), (), 4, "0.1.0", "", NOW, NOW, 7, via="beta-8080")

    async def want(self, name: str, wanted: str) -> model.Node:
        if name != self.node.name:
            raise NotFound(f"there is no node {name}")
        self.node = replace(self.node, wanted=wanted)
        return self.node


class Seal:
    """Keys that hide nothing."""

    def seal(self, text: str, context: str) -> str:
        return text

    def open(self, sealed: str, context: str) -> str:
        return sealed


class Vault:
    """What Secrets needs of a store."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, int]] = {}

    async def now(self) -> int:
        return NOW

    async def put_secret(self, org: int, name: str, sealed: str, at: int) -> int:
        version = self.kept.get(name, ("", 0))[1] + 1
        self.kept[name] = sealed, version
        return version

    async def list_secrets(self, org: int) -> list[model.Secret]:
        return [model.Secret(name, version, NOW, NOW) for name, (_, version) in sorted(self.kept.items())]

    async def list_sealed(self) -> list[tuple[int, str, str]]:
        return [(1, name, sealed) for name, (sealed, _) in self.kept.items()]

    async def delete_secret(self, org: int, name: str) -> bool:
        return self.kept.pop(name, None) is not None


class Services:
    def __init__(self) -> None:
        self.jobs = Jobs()
        self.insight = Insight(self.jobs)
        self.tokens: Any = Tokens()
        self.clock = FakeClock(NOW)
        self.access = Access(self.tokens, self.clock)
        self.nodes = Nodes()
        self.secrets = Secrets(Vault(), Seal())  # type: ignore[arg-type]
        self.lending = self.outside = self.sources = self.station = self.rotation = (
            None  # facades are tested with the real ones
        )
        self.lake_lease = 600.0
