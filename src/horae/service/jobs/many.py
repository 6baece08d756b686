"""Jobs that are paused, resumed or tagged by the many: a batch in each write, and told what became of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from horae.core.audit import changes_of, span
from horae.core.definitions import Sort
from horae.core.fields import MAX_LABELS
from horae.core.model import Job, JobFilter, Json, Moment
from horae.core.policy.breaker import paused_job, without_reason
from horae.errors import Conflict, Error, Invalid, NotFound
from horae.ports import deeds
from horae.service.jobs.changes import Change, Changes, ChangeStore, judged
from horae.service.jobs.orders import Asker
from horae.service.secrets.sealing import Sealing

MAX_JOBS = 10_000  # changed by one request
BATCH = 500  # of one write
PAGE = 1000
TRIES = 8  # of a change that races with others

Changing = Callable[[Job, Moment], Job]


class Deed(NamedTuple):
    """What is to be done with each, and what the audit log says of it."""

    change: Changing
    told: tuple[Json, Json]  # before, after


class Changed(NamedTuple):
    """A job with which something was to be done: as it is then, or why nothing was done."""

    job_id: int
    answer: Job | Error
    is_changed: bool = False


def pausing(by: str) -> Deed:
    return Deed(lambda job, now: paused_job(job, by, now), ({"paused": False}, {"paused": True}))


def resuming() -> Deed:
    def change(job: Job, _: Moment) -> Job:
        return replace(job, paused=False, annotations=without_reason(job.annotations))

    return Deed(change, ({"paused": True}, {"paused": False}))


def tagging(add: Sequence[str], remove: Sequence[str]) -> Deed:
    """Of tags that are added and removed, all that a job has besides stay."""

    def change(job: Job, _: Moment) -> Job:
        tags = tuple(sorted({*job.policy.tags, *add}.difference(remove)))
        if len(tags) > MAX_LABELS:
            raise Invalid(f"a job has at most {MAX_LABELS} tags, this one would have {len(tags)}", code="E_LIMIT")
        return replace(job, policy=replace(job.policy, tags=tags))

    return Deed(change, ({"tags": sorted(remove)}, {"tags": sorted(add)}))


class ManyJobs:
    def __init__(self, store: ChangeStore, changes: Changes, sealing: Sealing) -> None:
        self._store = store
        self._changes = changes
        self._sealing = sealing

    async def find(self, where: JobFilter) -> list[int]:
        """Return the ids of jobs, newest first; more than can be changed at once are refused."""
        if where.latest is not None:
            page = await self._store.search_jobs(where, [Sort("id", descending=True)], 0, MAX_JOBS + 1)
            if page.is_part:
                raise _too_many("how their latest run stands is looked up of the newest that the rest finds")
            found = [job.id for job in page.items]
        else:
            found, cursor = [], None
            while len(found) <= MAX_JOBS:
                some = await self._store.list_jobs(where, cursor, PAGE)
                found += [job.id for job in some.items]
                cursor = some.cursor
                if cursor is None:
                    break
        if len(found) > MAX_JOBS:
            raise _too_many(f"at most {MAX_JOBS} jobs are changed at once")
        return found

    async def plan(self, job_ids: Sequence[int], deed: Deed, asker: Asker) -> list[Changed]:
        """Return what would become of each."""
        deeds.note(is_void=True)
        now = await self._store.now()
        return [_tried(it, deed, now) for it in await self._read(job_ids, asker)]

    async def change(self, job_ids: Sequence[int], deed: Deed, asker: Asker) -> list[Changed]:
        """Change these jobs. What is done stays done, should a later part fail."""
        answers: dict[int, Changed] = {}
        with self._sealing.writing():
            for start in range(0, len(job_ids), BATCH):
                left = list(job_ids[start : start + BATCH])
                for _ in range(TRIES):
                    some = await self._change(left, deed, asker)
                    answers |= some
                    left = [job_id for job_id in left if job_id not in some]
                    if not left:
                        break
        if not any(it.is_changed for it in answers.values()):
            deeds.note(is_void=True)
        return [answers.get(job_id) or _contended(job_id) for job_id in job_ids]

    async def _change(self, job_ids: Sequence[int], deed: Deed, asker: Asker) -> dict[int, Changed]:
        """Return what became of each; of those that somebody else has changed meanwhile, nothing."""
        now = await self._store.now()
        read = await self._read(job_ids, asker)
        tried = {it.job_id: _tried(it, deed, now) for it in read}
        changing = [it.answer for it in read if isinstance(it.answer, Job) and tried[it.job_id].is_changed]
        answers = {job_id: it for job_id, it in tried.items() if not it.is_changed}
        if changing:
            ids = [job.id for job in changing]
            before, after = deed.told
            change = changes_of(before, {**after, "jobs": ids})
            deeds.note(kind="job", subject=span(ids), count=len(ids), change=change, is_bulk=True)
            try:
                done = await self._changes.change_many([Change(job, deed.change, None) for job in changing])
            except (Conflict, NotFound):  # one of them is changed or deleted meanwhile: the next look tells which
                return answers
            answers |= {
                job.id: Changed(job.id, it.jobs[0], is_changed=True)
                for job, it in zip(changing, done, strict=True)
                if it is not None
            }
        return answers

    async def _read(self, job_ids: Sequence[int], asker: Asker) -> list[Changed]:
        """Return jobs as they are; what was deleted, or is not to be seen, is an error."""
        jobs = {job.id: job for job in await self._store.load_jobs(job_ids)}
        org = asker.org if asker.is_bound else None
        return [Changed(job_id, judged(job_id, jobs.get(job_id), org)) for job_id in job_ids]


def _tried(it: Changed, deed: Deed, now: Moment) -> Changed:
    """Return what becomes of a job, without writing it."""
    if isinstance(it.answer, Error):
        return it
    try:
        after = deed.change(it.answer, now)
    except Error as error:
        return Changed(it.job_id, error)
    return Changed(it.job_id, it.answer, is_changed=after != it.answer)


def _contended(job_id: int) -> Changed:
    return Changed(job_id, Conflict(f"job {job_id} is being changed by somebody else; try again"))


def _too_many(message: str) -> Invalid:
    return Invalid(f"{message}; there are more", code="E_LIMIT", path="where", hint="narrow it down, by owner or tag")
