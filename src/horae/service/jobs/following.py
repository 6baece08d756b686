"""Which jobs a document means by `after`, and by triggers `on` the ends of others: found by key or id among those of
the same owner, when it is submitted.

A job that is submitted beside may be meant, too. Circles are refused here, before anything is written; the store
refuses them once more in the transaction that would close one, because somebody else may write the other half of it at
the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from horae.core.fields import Problems, shown
from horae.core.model import Job, Json
from horae.core.policy.dependencies import refuse_cycle
from horae.core.policy.listening import all_followed, followed_ids, heard_id, is_following
from horae.core.time.outside import ON, is_job_event
from horae.core.work.specs import Draft, TriggerDraft
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
        if not any(map(is_following, drafts)):
            return
        there = {job.key: job.id for job in await self._find_keys((draft.key for draft in drafts), owner, org)}
        own = [there.get(draft.key, _BESIDE - number) for number, draft in enumerate(drafts)]
        beside = {draft.key: job_id for draft, job_id in zip(drafts, own, strict=True) if draft.key is not None}
        found = await self.resolve(drafts, owner, org, beside)
        after = {job.id: followed_ids(job) for job in await self._store.load_following(org, owner)}
        after |= {job_id: followed_ids(draft) for job_id, draft in zip(own, found, strict=True)}
        names = {one.id: str(one.job) for draft in found for one in draft.policy.after if one.id is not None}
        heard = [(heard_id(t), t.schedule) for draft in found for t in draft.triggers]
        names |= {job_id: str(schedule[ON]["job"]) for job_id, schedule in heard if job_id is not None}
        names |= {job.id: job.key or job.name for job in await self._store.load_jobs([i for i in after if i > 0])}
        names |= {job_id: draft.key or draft.name for job_id, draft in zip(own, drafts, strict=True)}
        refuse_cycle(after, names, own)

    async def resolve(
        self, drafts: Sequence[Draft], owner: str, org: int, beside: Mapping[str, int] | None = None
    ) -> Sequence[Draft]:
        """Return the drafts with the ids of those after which they come. `beside` are jobs that are made together with
        them, by key."""
        named = [one.job for draft in drafts for one in draft.policy.after]
        named += [t.schedule[ON]["job"] for draft in drafts for t in draft.triggers if is_job_event(t.schedule)]
        if not named:
            return drafts
        known: dict[int | str, int] = {}
        known.update(beside or {})
        known |= await self._known(named, owner, org)
        problems = Problems()
        found = [
            _resolved(draft, known, f"jobs[{number}]." if len(drafts) > 1 else "", problems)
            for number, draft in enumerate(drafts)
        ]
        problems.raise_any()
        return found

    async def resolve_trigger(self, draft: TriggerDraft, owner: str, org: int) -> TriggerDraft:
        """As resolve, of one trigger on an event."""
        problems = Problems()
        known = await self._known([draft.schedule[ON]["job"]], owner, org)
        found = _heard(draft, known, "", problems)
        problems.raise_any()
        return found

    async def _known(self, named: Sequence[int | str], owner: str, org: int) -> dict[int | str, int]:
        """Name → id, of jobs that are there."""
        keys = await self._find_keys((name for name in named if isinstance(name, str)), owner, org)
        ids = await self._store.load_jobs(sorted({name for name in named if isinstance(name, int)}))
        known: dict[int | str, int] = {job.key or "": job.id for job in keys}
        return known | {job.id: job.id for job in ids if (job.org, job.owner) == (org, owner) and _is_there(job)}

    async def _find_keys(self, keys: Iterable[str | None], owner: str, org: int) -> list[Job]:
        wanted = sorted({key for key in keys if key is not None})
        found = await self._store.find_keys(org, owner, wanted) if wanted else []
        return [job for job in found if _is_there(job)]

    async def followers_of(self, job: Job) -> list[Job]:
        """Return the jobs that come after one, or listen to it."""
        if not job.followed:
            return []
        following = await self._store.load_following(job.org, job.owner)
        return [other for other in following if job.id in followed_ids(other)]


def _is_there(job: Job) -> bool:
    return job.deleted_at is None and job.part_of is None


def _resolved(draft: Draft, known: Mapping[int | str, int], path: str, problems: Problems) -> Draft:
    if not is_following(draft):
        return draft
    for index, one in enumerate(draft.policy.after):
        _refuse_unknown(one.job, known, f"{path}after[{index}]", problems)
    after = tuple(replace(one, id=known.get(one.job)) for one in draft.policy.after)
    triggers = tuple(
        _heard(trigger, known, f"{path}triggers[{index}].", problems) if is_job_event(trigger.schedule) else trigger
        for index, trigger in enumerate(draft.triggers)
    )
    return replace(draft, policy=replace(draft.policy, after=after), triggers=triggers)


def _heard(draft: TriggerDraft, known: Mapping[int | str, int], path: str, problems: Problems) -> TriggerDraft:
    """Return the trigger with the id of the job to which it listens."""
    event: Json = draft.schedule[ON]
    _refuse_unknown(event["job"], known, f"{path}on.job", problems)
    return replace(draft, schedule={ON: {**event, "id": known.get(event["job"])}})


def _refuse_unknown(name: int | str, known: Mapping[int | str, int], path: str, problems: Problems) -> None:
    if name not in known:
        what = f"the key {shown(name)}" if isinstance(name, str) else f"the id {name}"
        hint = "submit that job first, or beside this one; `horae jobs` lists them"
        problems.add(path, "E_NOT_FOUND", f"you have no job with {what}", hint)


def with_followed(jobs: Sequence[Job]) -> Sequence[Job]:
    """Return jobs that are made together; those after which others of them come know it."""
    ids = set(all_followed(jobs))
    return [replace(job, followed=True) if job.id in ids else job for job in jobs] if ids else jobs
