"""What was asked before: idempotency keys, and keys of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from horae.core.definitions import Group, Idempotency, Receipt, Save, Submission
from horae.core.model import Job, Moment
from horae.core.runs.waits import Signal, Told
from horae.errors import Conflict

Known = dict[tuple[str, str], tuple[str, list[int]]]  # (scope, key) → (digest, ids)
Taken = set[tuple[int, str, str | None]]  # (org, owner, key) of live jobs


def replay(key: Idempotency | None, known: Known) -> Receipt | None:
    """Return the receipt of an earlier request under this key, or None when it is the first."""
    earlier = known.get((key.scope, key.key)) if key else None
    if earlier is None or key is None:
        return None
    return Receipt(earlier[1], replayed=True) if earlier[0] == key.digest else Receipt([], mismatch=True)


def replay_group(group: Group, known: Known) -> list[Receipt]:
    """Return what an earlier request under the key of a group made in the place of each order; `stale` where it made
    nothing, or nothing is known. What is noted of a group are places and ids by turns."""
    earlier = replay(group.promise, known)
    if earlier is not None and earlier.mismatch:
        return [earlier] * len(group.places)
    ids = earlier.ids if earlier else []
    made = dict(zip(ids[::2], ids[1::2], strict=True))
    return [
        Receipt([made[place]], replayed=True) if place in made else Receipt([], stale=True) for place in group.places
    ]


def repeated(signals: Sequence[Signal], told: Sequence[Told], known: Known) -> list[Told]:
    """Return what became of signals; of those that were not written, some were written before."""
    answers = []
    for signal, answer in zip(signals, told, strict=True):
        earlier = None if answer.is_done else replay(signal.idempotency, known)
        answers.append(answer if earlier is None else Told.MISMATCH if earlier.mismatch else Told.REPEATED)
    return answers


def judge(submission: Submission, known: Known, taken: Taken) -> Receipt | None:
    """Return a receipt without any doing, or None when the submission is to be carried out."""
    earlier = replay(submission.idempotency, known)
    if earlier is not None:
        return earlier
    keys = [(job.org, job.owner, job.key) for job in submission.jobs if job.key is not None]
    twins = [key for key, times in Counter(keys).items() if times > 1] if len(keys) > 1 else []
    clash = next((key for key in keys if key in taken), twins[0] if twins else None)
    return Receipt([], key_taken=clash[2]) if clash else None


def key_taken(job: Job) -> Conflict:
    """Another job got the key while this one was being saved."""
    return Conflict(f"another job of {job.owner} has the key '{job.key}' already", code="E_KEY_TAKEN")


def has_fired(job: Job, fired: Mapping[int, Moment | None]) -> bool:
    """Return whether a trigger has fired since the job was read; `fired` are the last moments, by trigger, as they are
    now."""
    return any(t.last_at != fired[t.id] for t in job.triggers if t.id in fired)


class Judged(NamedTuple):
    """What is to become of saves: an answer to each, and those to carry out."""

    receipts: list[Receipt | None]
    done: list[Save]


def judge_saves(
    saves: Sequence[Save], known: Known, versions: Mapping[int, int], fired: Mapping[int, Moment | None]
) -> Judged:
    """Of each: what an earlier request under its key gave; nothing, if its job has moved on or a trigger has fired
    meanwhile, so that the next moment must be worked out anew; else it is carried out. One job is saved once."""
    judged = Judged([], [])
    open_versions = dict(versions)
    for save in saves:
        receipt = replay(save.idempotency, known)
        holds = open_versions.get(save.job.id) == save.expected_version and not has_fired(save.job, fired)
        if receipt is None and holds:
            del open_versions[save.job.id]
            receipt = Receipt([save.job.id])
            judged.done.append(save)
        judged.receipts.append(receipt)
    return judged


def remember(submission: Submission, known: Known, taken: Taken) -> None:
    """Let later submissions of the same call see what this one does."""
    if key := submission.idempotency:
        known[key.scope, key.key] = (key.digest, submission.ids)
    taken.update((job.org, job.owner, job.key) for job in submission.jobs if job.key is not None)
