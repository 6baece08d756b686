"""How documents become jobs: made anew, or in place of the jobs that have their keys.

What must stay true: whatever is done has an idempotency key of its own in the transaction that does it, so that the
repeat of a request that broke goes on from where it was; what would change nothing is not written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from horae.core.definitions import Idempotency, Receipt, Submission
from horae.core.fields import Problems, encode
from horae.core.model import LARGEST_ID, Job, Moment
from horae.core.policy.breaker import without_reason
from horae.core.policy.listening import is_following
from horae.core.work import kinds, syncs, webhooks
from horae.core.work.specs import Draft
from horae.errors import Conflict, Invalid
from horae.ports import deeds
from horae.service.batching import Coalescer
from horae.service.jobs.admission import Admission
from horae.service.jobs.changes import TRIES, Change, Changes, ChangeStore, Submitted, refuse_mismatch
from horae.service.jobs.cursors import Cursors
from horae.service.jobs.data import DataCheck
from horae.service.jobs.drafts import Request, check_made, job_from_draft, merge_triggers, refuse_changed
from horae.service.jobs.following import Following, with_followed
from horae.service.secrets.sealing import Sealing

BATCH = 1000  # jobs in one transaction


class Outcome(StrEnum):
    """What a submit would do with a document."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


class Planned(NamedTuple):
    draft: Draft
    outcome: Outcome
    job_id: int | None  # of the job that is there


class _Item(NamedTuple):
    """One of several drafts of a request."""

    draft: Draft
    idempotency: Idempotency | None


class Submits:
    def __init__(
        self,
        store: ChangeStore,
        changes: Changes,
        sealing: Sealing,
        data: DataCheck,
        admission: Admission,
        cursors: Cursors,
        following: Following,
    ) -> None:
        self._store = store
        self._changes = changes
        self._sealing = sealing
        self._data = data
        self._admission = admission
        self._cursors = cursors
        self._following = following
        self._waiting = Coalescer(self._make_batch, limit=BATCH, weigh=lambda request: len(request.drafts))

    async def submit(self, drafts: Sequence[Draft], owner: str, org: int, idempotency: Idempotency | None) -> Submitted:
        """Create jobs, up to BATCH all of them or none, and more a batch at a time; a draft whose key exists already
        replaces that job, and then each of its batch stands for itself."""
        drafts = await self._check(drafts, owner, org)
        await self._admission.check_waiting(drafts, owner, org)
        parts = []
        _tell_of(drafts)
        with self._sealing.writing():
            for start in range(0, len(drafts), BATCH):
                # The first has the key as it came, so that it means the same for a request of any size.
                part = idempotency and replace(idempotency, scope=f"{idempotency.scope} +{start}".removesuffix(" +0"))
                deed = deeds.pending()
                parts.append(await self._submit(Request(drafts[start : start + BATCH], owner, org, part, deed)))
        return Submitted([job for part in parts for job in part.jobs], all(part.replayed for part in parts))

    async def plan(self, drafts: Sequence[Draft], owner: str, org: int) -> list[Planned]:
        """Return what submit would do, and do nothing. What it would refuse is refused."""
        deeds.note(is_void=True)
        drafts = await self._check(drafts, owner, org)
        now = await self._store.now()
        found: list[Planned] = []
        for start in range(0, len(drafts), BATCH):
            part = drafts[start : start + BATCH]
            known = await self._find([draft.key for draft in part], owner, org)
            beside = {draft.key: LARGEST_ID for draft in drafts if draft.key is not None}
            part = await self._following.resolve(part, owner, org, beside)
            found += [self._planned(draft, known.get(draft.key), now) for draft in part]
        return found

    def _planned(self, draft: Draft, job: Job | None, now: Moment) -> Planned:
        if job is None:
            return Planned(draft, Outcome.CREATED, None)
        ids = range(LARGEST_ID - len(draft.triggers), LARGEST_ID)  # of no trigger: nothing is kept of them
        after = self._sealing.seal_job(_replaced(job, draft, ids, now), job)
        return Planned(draft, Outcome.UNCHANGED if after == job else Outcome.CHANGED, job.id)

    async def replace(self, job_id: int, draft: Draft, expected_version: int | None) -> Job:
        """Replace one job. Of a document that was read before, what Horae made must be as it made it, and its version
        the present one."""
        await self._admission.check_drafts([draft], (await self._changes.get_alive(job_id)).org)
        await self._data.check_drafts([draft])
        draft = await self._followed(job_id, draft)
        fresh = (await self._store.allocate(0, len(draft.triggers)))[1]
        cursor = await self._cursors.get(job_id) if draft.made and draft.kind == syncs.SYNC else None

        def change(job: Job, now: Moment) -> Job:
            refuse_changed(draft, job, cursor)
            return _replaced(job, draft, fresh, now)

        return (await self._changes.change_once(job_id, change, expected_version, None)).jobs[0]

    async def _followed(self, job_id: int, draft: Draft) -> Draft:
        """Return the draft of a job that is there, with the ids of those after which it comes."""
        if not is_following(draft):
            return draft
        job = await self._changes.get_alive(job_id)
        return (await self._following.resolve([draft], job.owner, job.org))[0]

    # ── what may be submitted ──
    async def _check(self, drafts: Sequence[Draft], owner: str, org: int) -> Sequence[Draft]:
        """Return the drafts, without the ids that another installation gave to triggers."""
        await self._admission.check_drafts(drafts, org)
        await self._data.check_drafts(drafts)
        await self._following.check(drafts, owner, org)
        hidden = []
        for number, draft in enumerate(drafts):
            if number % BATCH == BATCH - 1:
                await asyncio.sleep(0)
            secretive = [t for t in draft.triggers if webhooks.has_secret(t.schedule)]
            if secretive or kinds.has_secrets(draft.kind, draft.spec):
                await self._sealing.check()
            try:
                kinds.refuse_hidden_spec(draft.kind, draft.spec)
                for trigger in secretive:
                    webhooks.kept(trigger.schedule, {})
            except Invalid as error:
                hidden.append((draft.key, error))
        known = await self._find([key for key, _ in hidden], owner, org)
        for key, refused in hidden:
            if key not in known:  # one that is there knows its secrets
                raise refused
        if await self._admission.has_most_jobs(org):
            there = await self._find([draft.key for draft in drafts], owner, org)
            await self._admission.check_jobs(org, sum(draft.key not in there for draft in drafts))
        return await self._check_made(drafts, org)

    async def _check_made(self, drafts: Sequence[Draft], org: int) -> Sequence[Draft]:
        """What Horae has made of a job that is here must be as it made it; of an earlier version of the job, nothing
        more is asked: a submit says what shall be, whatever was."""
        ids = {draft.made.id for draft in drafts if draft.made is not None and draft.made.is_possible}
        if not ids:
            return drafts
        known = {job.id: job for job in await self._store.load_jobs(sorted(ids)) if job.org == org}
        cursors = await self._cursors.load([job.id for job in known.values() if job.kind == syncs.SYNC])
        problems = Problems()
        checked = [check_made(draft, known, cursors, problems) for draft in drafts]
        problems.raise_any()
        return checked

    async def _find(self, keys: Sequence[str | None], owner: str, org: int) -> Mapping[str | None, Job]:
        wanted = sorted({key for key in keys if key is not None})
        return {job.key: job for job in await self._store.find_keys(org, owner, wanted)} if wanted else {}

    # ── one batch ──
    async def _submit(self, request: Request) -> Submitted:
        """Make all of them; where a key exists, make or replace each. Whoever is first, the other replaces."""
        for _ in range(TRIES):
            receipt, jobs = await self._waiting.add(request)
            refuse_mismatch(receipt)
            if receipt.ids:
                done = list(await self._store.load_jobs(receipt.ids)) if receipt.replayed else jobs
                return Submitted(done, receipt.replayed)
            if len(request.drafts) > 1:
                return await self._put_many(request)
            [draft] = request.drafts
            found = (await self._find([draft.key], request.owner, request.org)).get(draft.key)
            if found is not None:
                [draft] = await self._following.resolve([draft], request.owner, request.org)
                fresh = (await self._store.allocate(0, len(draft.triggers)))[1]
                return await self._changes.change_once(found.id, _replacing(draft, fresh), None, request.idempotency)
        raise _contended(request.drafts[0].key)

    async def _put_many(self, request: Request) -> Submitted:
        key, done = request.idempotency, dict[int, Submitted]()
        left = {
            number: _Item(draft, key and replace(key, scope=f"{key.scope} #{number}"))
            for number, draft in enumerate(request.drafts)
        }
        for _ in range(TRIES):
            done |= await self._try(left, request)
            left = {number: item for number, item in left.items() if number not in done}
            if not left:
                break
        if left:
            raise _contended(next(iter(left.values())).draft.key)
        parts = [done[number] for number in range(len(request.drafts))]
        jobs = [job for part in parts for job in part.jobs]
        if key is not None:
            await self._store.submit([Submission([], key, [job.id for job in jobs])])  # a repeat finds them all at once
        return Submitted(jobs, all(part.replayed for part in parts))

    async def _try(self, items: Mapping[int, _Item], request: Request) -> dict[int, Submitted]:
        """Return what could be done: the key of another may have come or gone meanwhile."""
        known = await self._find([item.draft.key for item in items.values()], request.owner, request.org)
        fresh = {number: item for number, item in items.items() if item.draft.key not in known}
        old = {number: item for number, item in items.items() if item.draft.key in known}
        done = await self._make(fresh, request) if fresh else {}
        drafts = await self._following.resolve([item.draft for item in old.values()], request.owner, request.org)
        ids = iter((await self._store.allocate(0, sum(len(draft.triggers) for draft in drafts)))[1])
        answers = await self._changes.change_many(
            [
                Change(known[draft.key], _replacing(draft, [next(ids) for _ in draft.triggers]), item.idempotency)
                for draft, item in zip(drafts, old.values(), strict=True)
            ]
        )
        return done | {number: answer for number, answer in zip(old, answers, strict=True) if answer is not None}

    async def _make(self, items: Mapping[int, _Item], request: Request) -> dict[int, Submitted]:
        asked = [
            Request([item.draft], request.owner, request.org, item.idempotency, request.deed) for item in items.values()
        ]
        done = {}
        for number, (receipt, jobs) in zip(items, await self._make_batch(asked), strict=True):
            refuse_mismatch(receipt)
            if receipt.ids:
                made = await self._store.load_jobs(receipt.ids) if receipt.replayed else jobs
                done[number] = Submitted(list(made), receipt.replayed)
        return done

    async def _make_batch(self, requests: list[Request]) -> list[tuple[Receipt, list[Job]]]:
        drafts = [draft for request in requests for draft in request.drafts]
        job_ids, trigger_ids = await self._store.allocate(len(drafts), sum(len(draft.triggers) for draft in drafts))
        now = await self._store.now()
        requests = await self._resolve(requests, job_ids)
        ids, triggers = iter(job_ids), iter(trigger_ids)
        made = [
            [
                self._sealing.seal_job(job_from_draft(draft, next(ids), triggers, request, now))
                for draft in request.drafts
            ]
            for request in requests
        ]
        if any(map(is_following, drafts)):
            made = _regrouped(with_followed([job for jobs in made for job in jobs]), made)
        receipts = await self._store.submit(
            [
                Submission(jobs, request.idempotency, deed=request.deed)
                for jobs, request in zip(made, requests, strict=True)
            ]
        )
        self._changes.announce_due([job for jobs in made for job in jobs], now)
        return list(zip(receipts, made, strict=True))

    async def _resolve(self, requests: list[Request], job_ids: Sequence[int]) -> list[Request]:
        """Return the requests with the ids of those after which their jobs come: of what is made here, too."""
        drafts = [(request, draft) for request in requests for draft in request.drafts]
        if not any(is_following(draft) for _, draft in drafts):
            return requests
        beside: dict[tuple[int, str], dict[str, int]] = {}
        for (request, draft), job_id in zip(drafts, job_ids, strict=True):
            if draft.key is not None:
                beside.setdefault((request.org, request.owner), {})[draft.key] = job_id
        found = []
        for request in requests:
            mine = beside.get((request.org, request.owner))
            drafted = await self._following.resolve(request.drafts, request.owner, request.org, mine)
            found.append(replace(request, drafts=drafted))
        return found


def _tell_of(drafts: Sequence[Draft]) -> None:
    """Say in the audit log what is submitted: one by its name, of several how many."""
    told = {name: [None, value] for name, value in (("name", drafts[0].name), ("key", drafts[0].key)) if value}
    change = encode(told) if len(drafts) == 1 else ""
    deeds.note(kind="job", change=change, count=len(drafts), is_bulk=len(drafts) > 1)


def _regrouped(jobs: Sequence[Job], groups: Sequence[Sequence[Job]]) -> list[list[Job]]:
    """Return jobs in groups of the same sizes as these."""
    rest = iter(jobs)
    return [[next(rest) for _ in group] for group in groups]


def _contended(key: str | None) -> Conflict:
    return Conflict(f"the key '{key}' is being changed by somebody else; try again", code="E_KEY_TAKEN")


def _replacing(draft: Draft, fresh: Sequence[int]) -> Callable[[Job, Moment], Job]:
    return lambda job, now: _replaced(job, draft, fresh, now)


def _replaced(job: Job, draft: Draft, fresh: Sequence[int], now: Moment) -> Job:
    """Return the job as a draft wants it; `fresh` are ids for triggers that it has not."""
    triggers = merge_triggers(job, draft.triggers, iter(fresh), now)
    spec = kinds.kept_spec(draft.kind, draft.spec, job.spec if job.kind == draft.kind else {})
    return replace(
        job, name=draft.name, key=draft.key, kind=draft.kind, spec=spec, policy=draft.policy,
        segment=job.segment if draft.segment is None else draft.segment, paused=draft.paused,
        annotations=draft.annotations if draft.paused else without_reason(draft.annotations), triggers=triggers,
    )  # fmt: skip
