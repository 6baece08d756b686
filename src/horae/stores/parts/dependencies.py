"""Runs that come after others: judged when they were made, and when something ended for which they may wait.

A run is judged under a lock of its row, and what its predecessors have come to is read after that. So whoever judges
last has seen all: a predecessor that ends meanwhile has left a row in the outbox, which somebody acts on after it.

What must stay true: the rows of the outbox go in the transaction of what is done about them; a row that somebody else
has taken is left to him. That no run of a moment can come any more is said only when, after whatever could have made it
was looked at, there still is none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from horae.core.model import After, Job, Json, Moment, Reason, Run, State
from horae.core.policy.dependencies import (
    SAME,
    Predecessor,
    Seen,
    Verb,
    is_coming,
    judge,
    makers,
    merged,
    shares_moment,
    why_missing,
)
from horae.core.policy.listening import all_followed
from horae.core.runs.endings import ARRIVED
from horae.core.runs.following import Birth, Follow, Followed
from horae.core.runs.orders import Order, Placed
from horae.core.work.kinds import BY_SERVERS
from horae.stores.attempts import count_demanding, has_some_for_servers
from horae.stores.database import Steps
from horae.stores.parts.following import FollowingPart
from horae.stores.rows import Row, decode, decode_result, encode, from_json, job_from_row


class Changed(Exception):
    """A job is no longer as whoever asked has read it: nothing is done."""


class Released(NamedTuple):
    """What became of runs that waited."""

    queued: int = 0
    demanding: int = 0
    noted: bool = False  # some have ended, or servers do some themselves


class _Waiting(NamedTuple):
    run_id: int
    job_id: int
    trigger_id: int | None
    due_at: Moment
    data: str | None
    note: str | None


@dataclass(slots=True)
class _Known:
    """What one transaction has read already."""

    jobs: dict[int, Job] = field(default_factory=dict)
    runs: dict[tuple[int, Moment], Seen | None] = field(default_factory=dict)


class DependencyPart(FollowingPart):
    """Runs that come after others."""

    # ── what is to be acted on ──
    def _take(self, follow: Follow) -> Steps[dict[int, Row]]:
        """Return the rows (id, kind, run) that are ours to act on, by id."""
        rows = yield "take_endings", self._list(sorted(follow.endings))
        return {row[0]: row for row in rows}

    def _births(self, taken: Collection[int], births: Iterable[Birth]) -> Steps[list[Birth]]:
        """Return the runs that are still to be made: of those that are made once, there is none yet. Their jobs are
        locked, so that nobody else makes one meanwhile."""
        wanted = [birth for birth in births if birth.ending_id in taken]
        once = {(birth.order.run.job_id, birth.order.run_at): birth for birth in wanted if birth.once}
        if once:
            yield "lock_making", self._list(sorted({job_id for job_id, _ in once}))
        fresh = [birth for birth in wanted if not birth.once]
        for (job_id, due_at), birth in once.items():
            rows = yield "run_at", job_id, due_at
            if not rows:
                fresh.append(birth)
        return fresh

    def _forget(self, job_ids: Sequence[int]) -> Steps[None]:
        """Those after which nobody comes need not tell of their ends."""
        if not job_ids:
            return
        yield "lock_jobs", self._list(sorted(job_ids))
        rows = yield "load_jobs", self._list(job_ids)
        for job in [job_from_row(row, {}) for row in rows]:
            following = yield "load_following", job.org, job.owner
            if job.id not in all_followed(job_from_row(row, {}) for row in following):
                yield "forget_followed", job.id

    # ── judging ──
    def _judge_waiting(self, taken: Iterable[Row], jobs: Sequence[int], now: Moment) -> Steps[Released]:
        """Let runs go that may, skip those that never will, and write down for what the others wait."""
        arrived = [row[2] for row in taken if row[1] == ARRIVED]
        rows = yield "lock_waiting", self._list(arrived), self._list(jobs)
        known = _Known()
        yield from self._read_jobs({row[1] for row in rows}, known)
        released: list[Row] = []
        ended: list[Row] = []
        for waiting in (_Waiting(*row) for row in rows):
            verb, found = yield from self._judge_one(waiting, known, now)
            (released if verb is Verb.GO else ended).extend(found)
        promoted = (yield "promote", self._list([row[0] for row in ended if row[0] is not None])) if ended else ()
        gone = [*released, *promoted]
        return Released(len(gone), count_demanding(gone), bool(ended) or has_some_for_servers(gone))

    def _judge_one(self, waiting: _Waiting, known: _Known, now: Moment) -> Steps[tuple[Verb, Sequence[Row]]]:
        job = known.jobs[waiting.job_id]
        due_at, predecessors = yield from self._look_back(waiting, job, known)
        verb, sentence = judge(predecessors, due_at)
        if verb is Verb.GO:
            data = merged(_own_data(waiting, job), predecessors) if predecessors else None
            rows = yield "release_waiting", waiting.run_id, waiting.data if data is None else encode(data)
        elif verb is Verb.NEVER:
            yield "skip_waiting", waiting.run_id, now, sentence
            rows = yield "drop_waiting", waiting.run_id
        else:
            rows = ()
            if sentence != waiting.note:
                yield "note_waiting", waiting.run_id, sentence
        return verb, rows

    def _look_back(
        self, waiting: _Waiting, job: Job, known: _Known
    ) -> Steps[tuple[Moment | None, Sequence[Predecessor]]]:
        """Return the moment that a run shares with its predecessors, if it has one, and how these stand."""
        after, due_at = job.policy.after, waiting.due_at
        same = [one for one in after if one.moment == SAME]
        found = {}
        for one in same:
            found[one] = yield from self._run_at(one.id or 0, due_at, known)
        is_shared = shares_moment(job, waiting.trigger_id) or any(found.values())
        predecessors = []
        for one in after:
            if one in found and is_shared:
                predecessors.append((yield from self._standing(one, found[one], due_at, known)))
            else:
                predecessors.append((yield from self._latest(one, waiting.run_id, known)))
        return due_at if is_shared else None, predecessors

    def _standing(self, one: After, seen: Seen | None, due_at: Moment, known: _Known) -> Steps[Predecessor]:
        """How the run of a moment stands; without one, whether it can still come."""
        if seen is not None:
            return Predecessor(one, seen)
        job_id = one.id or 0
        if (yield from self._is_coming(job_id, due_at, known, set())):
            return Predecessor(one, None)
        known.runs.pop((job_id, due_at), None)
        seen = yield from self._run_at(job_id, due_at, known)  # it may have come while we looked
        return Predecessor(one, seen, "" if seen else why_missing(known.jobs.get(job_id), due_at))

    def _latest(self, one: After, run_id: int, known: _Known) -> Steps[Predecessor]:
        """The run that was there when the follower's was made, or the first one after."""
        rows = yield "run_before", one.id, run_id
        rows = rows or (yield "run_since", one.id, run_id)
        if rows:
            return Predecessor(one, _seen(rows[0]))
        yield from self._read_jobs([one.id or 0], known)
        return Predecessor(one, None, why_missing(known.jobs.get(one.id or 0), None))

    def _run_at(self, job_id: int, due_at: Moment, known: _Known) -> Steps[Seen | None]:
        """Return the run of a job for a moment; of a coalesced one, that which stands for it."""
        if (job_id, due_at) not in known.runs:
            rows = yield "run_at", job_id, due_at
            if rows and rows[0][1] == State.COALESCED:
                into = rows[0][3]
                rows = yield "run_of_id", into
                yield from self._read_jobs([job_id], known)
                is_gone = known.jobs[job_id].deleted_at is not None
                unborn = None if is_gone else Seen(into, State.BLOCKED)  # its id is kept for it
                known.runs[job_id, due_at] = _seen(rows[0]) if rows else unborn
            else:
                known.runs[job_id, due_at] = _seen(rows[0]) if rows else None
        return known.runs[job_id, due_at]

    def _is_coming(self, job_id: int, due_at: Moment, known: _Known, visited: set[int]) -> Steps[bool]:
        """Return whether a job may still get a run for a moment: by a trigger, or by those after which it comes."""
        if job_id in visited:
            return False
        visited.add(job_id)
        yield from self._read_jobs([job_id], known)
        job = known.jobs.get(job_id)
        if job is None or is_coming(job, due_at):
            return job is not None
        for one in makers(job):
            rows = yield "is_pending", one.id, due_at
            if rows or (yield from self._is_coming(one.id or 0, due_at, known, visited)):
                return True
        return False

    def _read_jobs(self, ids: Iterable[int], known: _Known) -> Steps[None]:
        wanted = [job_id for job_id in ids if job_id not in known.jobs]
        if not wanted:
            return
        rows = yield "load_jobs", self._list(wanted)
        triggers = [doc["id"] for row in rows for doc in from_json(row[15])]
        due = (yield "due_of", self._list(triggers)) if triggers else ()
        by_trigger = {row[0]: row for row in due}
        known.jobs.update((row[0], job_from_row(row, by_trigger)) for row in rows)


def placed(birth: Birth, run_id: int, now: Moment) -> Order:
    """Return the order of a run that is made for a moment which has passed."""
    return replace(birth.order, placed=Placed(run_id, now))


def followed(taken: int, made: Sequence[Run], released: Released) -> Followed:
    limited = sum(run.reason == Reason.LIMIT for run in made)
    queued = sum(run.state is State.QUEUED for run in made) + limited
    is_noted = released.noted or any(
        run.reason == Reason.DEPENDENCY or run.state.is_terminal or run.kind in BY_SERVERS for run in made
    )
    is_held = any(run.reason == Reason.DEBOUNCE for run in made)
    return Followed(taken, released.queued + queued, released.demanding + limited, noted=is_noted, held=is_held)


def _seen(row: Row) -> Seen:
    return Seen(row[0], State(row[1]), decode_result(row[2]))


def _own_data(waiting: _Waiting, job: Job) -> Json:
    """Return what a run is given without its predecessors."""
    given: Json | None = decode(waiting.data)
    own: Json = job.spec.get("data") or {}
    return own if given is None else given
