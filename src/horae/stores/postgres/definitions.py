"""Jobs and triggers on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from horae.core.audit import Deed
from horae.core.definitions import Idempotency, Receipt, Save, Submission
from horae.core.model import Job
from horae.core.policy.listening import is_following
from horae.core.rights import BARRED
from horae.core.runs.orders import Cancelled
from horae.stores import limits
from horae.stores.attempts import has_some_for_servers
from horae.stores.audit import audit_text, confirm, deeds_done
from horae.stores.database import Part, ended_in_parts
from horae.stores.events import Before
from horae.stores.idempotency import Known, Taken, has_fired, judge, judge_saves, key_taken, remember
from horae.stores.parts.following import FollowingPart
from horae.stores.postgres.arrays import due_rows, submit_arrays
from horae.stores.postgres.events import PostgresEvents
from horae.stores.postgres.lanes import Connection, Cut
from horae.stores.queries import JOB_COLUMNS
from horae.stores.rows import encode, from_json, job_values

COPY_FROM = 500  # jobs in one submit from which COPY beats INSERT … unnest


class PostgresDefinitions(PostgresEvents, FollowingPart):
    """Jobs and triggers."""

    async def allocate(self, jobs: int, triggers: int) -> tuple[Sequence[int], Sequence[int]]:
        async with self._submit.use() as connection:
            row = await connection.fetchrow(self.queries["allocate"], jobs, triggers)
        assert row is not None
        return row[0], row[1]

    async def submit(self, submissions: Sequence[Submission]) -> list[Receipt]:
        try:
            receipts = await self._submit_once(submissions)
        except Cut:
            receipts = await self._retried(self._submit, lambda connection: self._submit_again(connection, submissions))
        confirm(submissions)
        return receipts

    async def _submit_again(self, connection: Connection, submissions: Sequence[Submission]) -> list[Receipt]:
        """After the connection broke: what has its jobs was done, the rest is done now."""
        rows = await connection.fetch(self.queries["find_jobs"], [job.id for s in submissions for job in s.jobs])
        done = {row[0] for row in rows}
        ids = [[job.id for job in s.jobs] for s in submissions]
        rest = [s for s, made in zip(submissions, ids, strict=True) if not done.issuperset(made[:1] or [0])]
        receipts = iter(await self._submit_checked(connection, rest))
        return [Receipt(made) if done.issuperset(made[:1] or [0]) else next(receipts) for made in ids]

    async def _submit_once(self, submissions: Sequence[Submission]) -> list[Receipt]:
        jobs = [job for s in submissions for job in s.jobs]
        if (
            all(s.idempotency is None for s in submissions)
            and all(job.key is None for job in jobs)
            and not any(map(is_following, jobs))
        ):
            receipts = [Receipt([job.id for job in s.jobs]) for s in submissions]
            await self._insert(jobs, deeds_done(submissions, receipts))
            return receipts
        return await self._retried(self._submit, lambda connection: self._submit_checked(connection, submissions))

    async def _insert(self, jobs: Sequence[Job], done: Sequence[Deed]) -> None:
        async with self._submit.use() as connection:
            if len(jobs) < COPY_FROM:
                await self._write_jobs(connection, jobs, done)
            else:
                async with connection.transaction():
                    await _copy_jobs(connection, jobs)
                    await self._append(connection, done)

    async def _write_jobs(self, connection: Connection, jobs: Sequence[Job], done: Sequence[Deed]) -> None:
        """Jobs, and who asked for them, in one statement."""
        text = audit_text(done, self.dialect) if done else None
        await connection.execute(self.queries["submit"], *submit_arrays(jobs), self._clock(), text)
        for deed in done:
            deed.is_sent = True

    async def _submit_checked(self, connection: Connection, submissions: Sequence[Submission]) -> list[Receipt]:
        """Submit with idempotency keys and job keys; two equal keys in one call meet as two calls would."""
        known = await self._known(connection, [s.idempotency for s in submissions])
        taken = await self._taken(connection, [job for s in submissions for job in s.jobs if job.key])
        receipts, fresh = [], []
        for submission in submissions:
            receipt = judge(submission, known, taken)
            if receipt is None:
                fresh.append(submission)
                receipt = Receipt(submission.ids)
                remember(submission, known, taken)
            receipts.append(receipt)
        await self._note(connection, [(s.idempotency, s.ids) for s in fresh])
        jobs = [job for s in fresh for job in s.jobs]
        done = deeds_done(fresh, [Receipt(s.ids) for s in fresh])
        if jobs:
            await self._write_jobs(connection, jobs, done)
            await self._walk(connection, self._mark_followed(jobs))
        return receipts

    async def _known(self, connection: Connection, keys: Sequence[Idempotency | None]) -> Known:
        wanted = [key for key in keys if key]
        if not wanted:
            return {}
        rows = await connection.fetch(
            self.queries["load_idempotency"], [k.scope for k in wanted], [k.key for k in wanted]
        )
        return {(row[0], row[1]): (row[2], from_json(row[3])) for row in rows}

    async def _taken(self, connection: Connection, jobs: Sequence[Job]) -> Taken:
        if not jobs:
            return set()
        rows = await connection.fetch(
            self.queries["load_keys"], [j.org for j in jobs], [j.owner for j in jobs], [j.key for j in jobs]
        )
        return {(row[0], row[1], row[2]) for row in rows}

    async def _note(self, connection: Connection, pairs: Sequence[tuple[Idempotency | None, list[int]]]) -> None:
        kept = [(key, encode(ids)) for key, ids in pairs if key]
        if kept:
            await connection.execute(
                self.queries["save_idempotency"],
                [key.scope for key, _ in kept],
                [key.key for key, _ in kept],
                [key.digest for key, _ in kept],
                [ids for _, ids in kept],
                await self._moment(connection),
            )

    async def save_jobs(self, saves: Sequence[Save]) -> list[Receipt | None]:
        async def write(connection: Connection) -> list[Receipt | None]:
            rows = await connection.fetch(self.queries["lock_jobs"], [save.job.id for save in saves])
            # Asked under the lock: a twin of this request that was faster has bumped the version, and its key is seen.
            known = await self._known(connection, [save.idempotency for save in saves])
            before = {row[0]: from_json(row[2]) for row in rows}
            due = await connection.fetch(
                self.queries["lock_due"], [doc["id"] for docs in before.values() for doc in docs]
            )
            judged = judge_saves(saves, known, {row[0]: row[1] for row in rows}, dict(due))
            if jobs := [save.job for save in judged.done]:
                await self._save(connection, jobs, before)
            await self._note(connection, [(save.idempotency, [save.job.id]) for save in judged.done])
            return judged.receipts

        return await self._retried(self._submit, write)

    async def _save(self, connection: Connection, jobs: Sequence[Job], before: Before) -> None:
        kept = {t.id for job in jobs for t in job.triggers}
        gone = [doc["id"] for job in jobs for doc in before[job.id] if doc["id"] not in kept]
        await self._walk(connection, self._refuse_cycles(jobs))
        try:
            await connection.execute(self.queries["save_jobs"], *submit_arrays(jobs))
        except asyncpg.UniqueViolationError as error:
            raise key_taken(jobs[0]) from error
        if gone:
            await connection.execute(self.queries["drop_due"], gone)
        await self._walk(connection, self._mark_followed(jobs))
        await self._walk(connection, self._note_changed([job.id for job in jobs]))
        await self._walk(connection, self._tell_triggers(jobs, before))

    async def delete_job(self, job_id: int, seen: Job | None = None) -> Cancelled | None:
        async def bury(connection: Connection) -> Part | None:
            row = await connection.fetchrow(self.queries["lock_job"], job_id)
            if row is None or (seen is not None and row[0] != seen.version):
                return None
            triggers = [doc["id"] for doc in from_json(row[1])]
            if seen is not None and has_fired(seen, dict(await connection.fetch(self.queries["lock_due"], triggers))):
                return None
            waiting = [
                row[0] for row in await connection.fetch(self.queries["waiting_live"], job_id, limits.ROWS_AT_ONCE)
            ]
            if len(waiting) == limits.ROWS_AT_ONCE:
                return await self._end(connection, waiting, "deleted", promote=False), False
            await connection.execute(self.queries["drop_due"], triggers)
            await connection.execute(self.queries["bury_job"], job_id, await self._moment(connection))
            await self._walk(connection, self._note_changed([job_id]))
            runs = [row[0] for row in await connection.fetch(self.queries["live_of_job"], job_id)]
            return await self._end(connection, runs, "deleted"), True

        return await ended_in_parts(lambda: self._retried(self._submit, bury))

    async def cancel(self, run_ids: Sequence[int], reason: str, note: str = "") -> Cancelled:
        return await self._retried(self._submit, lambda connection: self._end(connection, run_ids, reason, note=note))

    async def end_barred(self, job_id: int, limit: int) -> int:
        async def bury(connection: Connection) -> int:
            now = await self._moment(connection)
            return len(await connection.fetch(self.queries["end_barred"], job_id, limit, now, BARRED))

        return await self._retried(self._upkeep, bury)

    async def _end(
        self, connection: Connection, run_ids: Sequence[int], reason: str, *, promote: bool = True, note: str = ""
    ) -> Cancelled:
        now = await self._moment(connection)
        # In a statement of its own: one that is claimed or lost just now would be neither ended nor marked by the next.
        await connection.execute(self.queries["lock_held"], run_ids)
        rows = await connection.fetch(self.queries["cancel"], run_ids, reason, now, note)
        jobs = [row[2] for row in rows if row[2] is not None]
        promoted = await connection.fetch(self.queries["promote"], jobs) if jobs and promote else ()
        marked = frozenset(row[0] for row in rows if row[4])
        ended = {row[0] for row in rows if row[1] is None} - marked
        is_noted = bool(marked) or any(row[3] for row in rows) or has_some_for_servers(promoted)
        asked = {row[0]: row[1] for row in rows if row[1] is not None}
        return Cancelled(ended, asked, len(promoted), marked, is_noted)


async def _copy_jobs(connection: Connection, jobs: Sequence[Job]) -> None:
    """Rows are made while the server works on those before them."""
    await connection.copy_records_to_table("jobs", records=map(job_values, jobs), columns=JOB_COLUMNS.split(", "))
    await connection.copy_records_to_table(
        "due",
        records=due_rows(jobs),
        columns=["trigger_id", "job_id", "next_at", "version", "segment"],
    )
