"""Jobs and triggers on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from horae.core.definitions import Idempotency, Receipt, Save, Submission
from horae.core.model import Job, Moment, Reason, State
from horae.core.rights import BARRED
from horae.core.runs.orders import NEVER, Cancelled
from horae.stores import limits
from horae.stores.attempts import has_some_for_servers
from horae.stores.audit import confirm, deeds_done
from horae.stores.database import Part, ended_in_parts
from horae.stores.events import Before, EventPart
from horae.stores.idempotency import Known, Taken, has_fired, judge, judge_saves, key_taken, remember
from horae.stores.parts.following import FollowingPart
from horae.stores.rows import encode, from_json, job_values
from horae.stores.sqlite.database import SqliteDatabase


class SqliteDefinitions(SqliteDatabase, FollowingPart, EventPart):
    """Jobs and triggers."""

    async def events_delay(self) -> float:
        return 0.0  # there is one writer, and no transaction of his is open while somebody reads

    async def allocate(self, jobs: int, triggers: int) -> tuple[Sequence[int], Sequence[int]]:
        """From memory: the counters are stored with the rows that use them, so a crash loses nothing."""
        return self._next("job", jobs), self._next("trigger", triggers)

    async def submit(self, submissions: Sequence[Submission]) -> list[Receipt]:
        def write(connection: sqlite3.Connection) -> list[Receipt]:
            known = self._known(connection, [s.idempotency for s in submissions])
            taken = self._taken(connection, [job for s in submissions for job in s.jobs if job.key])
            receipts: list[Receipt] = []
            jobs: list[Job] = []
            for submission in submissions:
                receipt = judge(submission, known, taken)
                if receipt is None:
                    receipt = Receipt(submission.ids)
                    remember(submission, known, taken)
                    self._note(connection, [(submission.idempotency, receipt.ids)])
                    jobs += submission.jobs
                receipts.append(receipt)
            self._rows(connection, "insert_jobs", [job_values(job) for job in jobs])
            self._rows(connection, "insert_due", _due_rows(jobs))
            self._walk(connection, self._mark_followed(jobs))
            self._save_ids(connection)
            self._append(connection, deeds_done(submissions, receipts))
            return receipts

        receipts = await self._do(write)
        confirm(submissions)
        return receipts

    def _known(self, connection: sqlite3.Connection, keys: Sequence[Idempotency | None]) -> Known:
        wanted = [(key.scope, key.key) for key in keys if key]
        rows = self._run(connection, "load_idempotency", encode(wanted)).fetchall() if wanted else ()
        return {(scope, key): (digest, from_json(ids)) for scope, key, digest, ids in rows}

    def _taken(self, connection: sqlite3.Connection, jobs: Sequence[Job]) -> Taken:
        keys = encode([(job.org, job.owner, job.key) for job in jobs])
        return set(self._run(connection, "load_keys", keys)) if jobs else set()

    def _note(self, connection: sqlite3.Connection, pairs: Sequence[tuple[Idempotency | None, list[int]]]) -> None:
        now = self._clock()
        rows = [(key.scope, key.key, key.digest, encode(ids), now) for key, ids in pairs if key]
        self._rows(connection, "save_idempotency", rows)

    async def save_jobs(self, saves: Sequence[Save]) -> list[Receipt | None]:
        def write(connection: sqlite3.Connection) -> list[Receipt | None]:
            rows = self._run(connection, "lock_jobs", encode([save.job.id for save in saves])).fetchall()
            before = {row[0]: from_json(row[2]) for row in rows}
            due = self._run(connection, "due_of", encode([doc["id"] for docs in before.values() for doc in docs]))
            fired = {row[0]: row[2] for row in due}
            known = self._known(connection, [save.idempotency for save in saves])
            judged = judge_saves(saves, known, {row[0]: row[1] for row in rows}, fired)
            if jobs := [save.job for save in judged.done]:
                self._save(connection, jobs, before)
            self._note(connection, [(save.idempotency, [save.job.id]) for save in judged.done])
            return judged.receipts

        return await self._do(write)

    def _save(self, connection: sqlite3.Connection, jobs: Sequence[Job], before: Before) -> None:
        self._walk(connection, self._refuse_cycles(jobs))
        try:
            self._rows(connection, "save_jobs", [job_values(job) for job in jobs])
        except sqlite3.IntegrityError as error:
            raise key_taken(jobs[0]) from error
        kept = {t.id for job in jobs for t in job.triggers}
        gone = [doc["id"] for job in jobs for doc in before[job.id] if doc["id"] not in kept]
        self._run(connection, "drop_due", encode(gone))
        self._rows(connection, "save_due", _due_rows(jobs))
        self._walk(connection, self._mark_followed(jobs))
        self._walk(connection, self._note_changed([job.id for job in jobs]))
        self._walk(connection, self._tell_triggers(jobs, before))
        self._save_ids(connection)

    async def delete_job(self, job_id: int, seen: Job | None = None) -> Cancelled | None:
        def write(connection: sqlite3.Connection) -> Part | None:
            row = self._run(connection, "lock_job", job_id).fetchone()
            if row is None or (seen is not None and row[0] != seen.version):
                return None
            triggers = encode([doc["id"] for doc in from_json(row[1])])
            fired = {row[0]: row[2] for row in self._run(connection, "due_of", triggers)}
            if seen is not None and has_fired(seen, fired):
                return None
            waiting = [row[0] for row in self._run(connection, "waiting_live", job_id, limits.ROWS_AT_ONCE)]
            if len(waiting) == limits.ROWS_AT_ONCE:
                return self._end(connection, waiting, "deleted", promote=False), False
            self._run(connection, "drop_due", triggers)
            self._run(connection, "bury_job", job_id, self._clock())
            self._walk(connection, self._note_changed([job_id]))
            runs = [row[0] for row in self._run(connection, "live_of_job", job_id)]
            return self._end(connection, runs, "deleted"), True

        return await ended_in_parts(lambda: self._do(write))

    async def cancel(self, run_ids: Sequence[int], reason: str, note: str = "") -> Cancelled:
        return await self._do(lambda connection: self._end(connection, run_ids, reason, note=note))

    async def end_barred(self, job_id: int, limit: int) -> int:
        def write(connection: sqlite3.Connection) -> int:
            rows = self._run(connection, "barred_live", job_id, limit).fetchall()
            tasks, others = ([row[0] for row in rows if bool(row[1]) is is_task] for is_task in (True, False))
            self._bury(connection, tasks, State.FAILED, Reason.OWNER, BARRED)
            self._bury(connection, others, State.SKIPPED, Reason.OWNER, BARRED)
            return len(rows)

        return await self._do(write)

    def _end(
        self, connection: sqlite3.Connection, run_ids: Sequence[int], reason: str, *, promote: bool = True,
        note: str = "",
    ) -> Cancelled:  # fmt: skip
        rows = self._run(connection, "look_up_live", encode(list(run_ids))).fetchall()
        marked = [row[0] for row in rows if row[5]]
        waiting = [row for row in rows if row[1] != State.RUNNING and not row[5]]
        ended = [row[0] for row in waiting]
        asked = {row[0]: row[2] for row in rows if row[1] == State.RUNNING}
        self._bury(connection, ended, State.CANCELLED, reason, note)
        self._run(connection, "ask_cancel", encode(list(asked)), reason, note or None)
        self._mark(connection, marked, reason, note)
        jobs = [row[3] for row in waiting if row[3] is not None]
        promoted = self._run(connection, "promote", encode(jobs)).fetchall() if jobs and promote else []
        is_noted = bool(marked) or any(row[4] for row in waiting) or has_some_for_servers(promoted)
        return Cancelled(set(ended), asked, len(promoted), frozenset(marked), is_noted)

    def _mark(self, connection: sqlite3.Connection, ids: Sequence[int], reason: str, note: str = "") -> None:
        """Of runs that wait for their children, which end first (ports.store.flows)."""
        if ids:
            self._run(connection, "mark_parents", encode(ids), reason, note or None)
            self._run(connection, "note_cancel", encode(ids))

    def _bury(self, connection: sqlite3.Connection, ids: Sequence[int], state: State, reason: str, why: str) -> None:
        if ids:
            text = encode(list(ids))
            self._run(connection, "bury_live", text, self._clock(), state, reason, why)
            self._run(connection, "drop_live", text)


def _moment(moment: Moment | None) -> Moment:
    return NEVER if moment is None else moment


def _due_rows(jobs: Sequence[Job]) -> list[tuple[Any, ...]]:
    return [(t.id, job.id, _moment(t.next_at), job.version, job.segment) for job in jobs for t in job.triggers]
