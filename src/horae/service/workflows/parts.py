"""Tasks that are written inside a workflow, as jobs of their own that nobody sees (`Job.part_of`).

They are made when the workflow first runs, and found again by a digest of what they say: a task that was changed is
another job, so an edit never mixes into a run that goes on. They never change, and go with the workflow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from horae.core.definitions import Submission
from horae.core.fields import Fields, Problems
from horae.core.model import Job, Json, Policy
from horae.core.runs.segments import segment_of
from horae.core.work.policies import read_policy
from horae.errors import Conflict
from horae.ports.store.definitions import Definitions
from horae.ports.store.moments import StoreClock
from horae.service.secrets.sealing import Sealing

MAX_NAME = 250  # characters
TRIES = 5
KEY_START = "-task "  # with which no key of a user begins
REMEMBERED = 1000  # versions of workflows

_encode = msgspec.json.Encoder(order="deterministic").encode


class PartStore(Definitions, StoreClock, Protocol):
    """Jobs, and when they are made."""


class Parts:
    def __init__(self, store: PartStore, sealing: Sealing) -> None:
        self._store = store
        self._sealing = sealing
        self._known: dict[tuple[int, int], Mapping[str, int]] = {}

    async def find(self, job: Job) -> Mapping[str, int]:
        """Return the jobs of the tasks that are written in a workflow, by task; those that are not there are made."""
        known = self._known.get((job.id, job.version))
        if known is None:
            known = await self._make_all(job)
            if len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[job.id, job.version] = known
        return known

    async def _make_all(self, job: Job) -> Mapping[str, int]:
        keys = {name: _key(job, name, task) for name, task in job.spec["tasks"].items() if "kind" in task}
        for _ in range(TRIES):  # another server may make them at the same time
            rows = await self._store.find_keys(job.org, job.owner, sorted(set(keys.values()))) if keys else []
            found = {row.key: row.id for row in rows}
            missing = {key: name for name, key in keys.items() if key not in found}
            if not missing:
                return {name: found[key] for name, key in keys.items()}
            await self._make(job, missing)
        raise Conflict(f"the tasks of job {job.id} are being made by somebody else; try again")

    async def _make(self, job: Job, names: Mapping[str, str]) -> None:
        """`names`: key → task."""
        ids, now = (await self._store.allocate(len(names), 0))[0], await self._store.now()
        with self._sealing.writing():
            tasks = self._sealing.open_job(job).spec["tasks"]
            made = [
                self._sealing.seal_job(_part(job, job_id, key, name, tasks[name], now))
                for job_id, (key, name) in zip(ids, names.items(), strict=True)
            ]
            await self._store.submit([Submission([part]) for part in made])


def _key(job: Job, name: str, task: Json) -> str:
    """By what it says, and as it is stored: what is sealed stays sealed."""
    said = _encode([job.part_of or job.id, name, task["kind"], task["spec"], task.get("policy", {})])
    return KEY_START + hashlib.sha256(said).hexdigest()


def _part(job: Job, job_id: int, key: str, name: str, task: Json, now: int) -> Job:
    return Job(
        id=job_id, org=job.org, owner=job.owner, name=f"{job.name}/{name}"[:MAX_NAME], key=key, kind=task["kind"],
        spec=task["spec"], policy=policy_of(task), segment=segment_of(job_id), paused=False,
        annotations=job.annotations, version=1, created_at=now, updated_at=now, part_of=job.part_of or job.id,
    )  # fmt: skip


def policy_of(task: Json) -> Policy:
    """Return the policy of a task that is written in a workflow."""
    return read_policy(Fields({"policy": task.get("policy", {})}, "", Problems()))


def graph_of(job: Job, parts: Mapping[str, int]) -> Json:
    """Return what a run of a workflow needs to know of it to the end: its graph, without what its tasks do."""
    tasks = {
        name: {field: value for field, value in task.items() if field not in ("spec", "policy")}
        for name, task in job.spec["tasks"].items()
    }
    for name, job_id in parts.items():
        tasks[name]["job"] = job_id
    return {**job.spec, "tasks": tasks}


def jobs_named(names: Collection[tuple[int, str, int | str]]) -> tuple[list[int], dict[tuple[int, str], list[str]]]:
    """Return the ids, and the keys by whose they are, of (organisation, owner, id or key) each."""
    ids = sorted(name for _, _, name in names if isinstance(name, int))
    keys: dict[tuple[int, str], list[str]] = {}
    for org, owner, name in names:
        if isinstance(name, str):
            keys.setdefault((org, owner), []).append(name)
    return ids, keys
