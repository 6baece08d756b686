"""Which jobs a document means by `after`: found by key or id among those of the same owner, when it is submitted.

A job that is submitted beside may be meant, too. Circles are refused here, before anything is written; the store
refuses them once more in the transaction that would close one, because somebody else may write the other half of it at
the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from horae.core.fields import Problems, shown
from horae.core.model import After, Job
from horae.core.policy.dependencies import refuse_cycle
from horae.core.work.specs import Draft
from horae.ports.store.definitions import Definitions
from horae.ports.store.dependencies import Dependencies

_BESIDE = -1  # ids below stand for jobs that are being submitted


class FollowingStore(Definitions, Dependencies, Protocol):
    """Jobs, and who comes after whom."""


class Following:
    def __init__(self, store: FollowingStore) -> None:
        self._store = store

    async def check(self, drafts: Sequence[Draft], owner: str, org: int) -> None:
        """Refuse drafts that name jobs which are not there, or that would wait for themselves."""
        if not any(draft.policy.after for draft in drafts):
            return
        there = {job.key: job.id for job in await self._find_keys((draft.key for draft in drafts), owner, org)}
        own = [there.get(draft.key, _BESIDE - number) for number, draft in enumerate(drafts)]
        beside = {draft.key: job_id for draft, job_id in zip(drafts, own, strict=True) if draft.key is not None}
        found = await self.resolve(drafts, owner, org, beside)
        after = {job.id: _ids(job.policy.after) for job in await self._store.load_following(org, owner)}
        after |= {job_id: _ids(draft.policy.after) for job_id, draft in zip(own, found, strict=True)}
        names = {one.id: str(one.job) for draft in found for one in draft.policy.after if one.id is not None}
        names |= {job.id: job.key or job.name for job in await self._store.load_jobs([i for i in after if i > 0])}
        names |= {job_id: draft.key or draft.name for job_id, draft in zip(own, drafts, strict=True)}
        refuse_cycle(after, names, own)

    async def resolve(
        self, drafts: Sequence[Draft], owner: str, org: int, beside: Mapping[str, int] | None = None
    ) -> Sequence[Draft]:
        """Return the drafts with the ids of those after which they come. `beside` are jobs that are made together with
        them, by key."""
        named = [one.job for draft in drafts for one in draft.policy.after]
        if not named:
            return drafts
        keys = await self._find_keys((name for name in named if isinstance(name, str)), owner, org)
        ids = await self._store.load_jobs(sorted({name for name in named if isinstance(name, int)}))
        known: dict[int | str, int] = {}
        known.update(beside or {})
        known.update((job.key or "", job.id) for job in keys)
        known |= {job.id: job.id for job in ids if (job.org, job.owner) == (org, owner) and _is_there(job)}
        problems = Problems()
        found = [
            _resolved(draft, known, f"jobs[{number}].after" if len(drafts) > 1 else "after", problems)
            for number, draft in enumerate(drafts)
        ]
        problems.raise_any()
        return found

    async def _find_keys(self, keys: Iterable[str | None], owner: str, org: int) -> list[Job]:
        wanted = sorted({key for key in keys if key is not None})
        found = await self._store.find_keys(org, owner, wanted) if wanted else []
        return [job for job in found if _is_there(job)]

    async def followers_of(self, job: Job) -> list[Job]:
        """Return the jobs that come after one."""
        if not job.followed:
            return []
        following = await self._store.load_following(job.org, job.owner)
        return [other for other in following if job.id in _ids(other.policy.after)]


def _is_there(job: Job) -> bool:
    return job.deleted_at is None and job.part_of is None


def _ids(after: Iterable[After]) -> list[int]:
    return [one.id for one in after if one.id is not None]


def _resolved(draft: Draft, known: Mapping[int | str, int], path: str, problems: Problems) -> Draft:
    if not draft.policy.after:
        return draft
    for index, one in enumerate(draft.policy.after):
        if one.job not in known:
            what = f"the key {shown(one.job)}" if isinstance(one.job, str) else f"the id {one.job}"
            hint = "submit that job first, or beside this one; `horae jobs` lists them"
            problems.add(f"{path}[{index}]", "E_NOT_FOUND", f"you have no job with {what}", hint)
    after = tuple(replace(one, id=known.get(one.job)) for one in draft.policy.after)
    return replace(draft, policy=replace(draft.policy, after=after))


def with_followed(jobs: Sequence[Job]) -> Sequence[Job]:
    """Return jobs that are made together; those after which others of them come know it."""
    ids = {one for job in jobs for one in _ids(job.policy.after)}
    return [replace(job, followed=True) if job.id in ids else job for job in jobs] if ids else jobs
