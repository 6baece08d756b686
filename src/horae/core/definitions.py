"""What is asked of a store about jobs, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from horae.core.audit import Deed
from horae.core.model import Job, Run, record


@record
class Idempotency:
    """A client's promise that a repeat is the same request."""

    scope: str  # who and what: principal, method, path
    key: str
    digest: str  # of the request body


class Group(NamedTuple):
    """A client's promise for many orders at once: one key, however many they are."""

    promise: Idempotency
    places: Sequence[int]  # of each order, among those that were sent


@dataclass(frozen=True, slots=True)
class Submission:
    """One request to create jobs; all of them or none. Ids are set (see Store.allocate)."""

    jobs: Sequence[Job]
    idempotency: Idempotency | None = None
    there: Sequence[int] = ()  # jobs that are there already, to be remembered with the key
    deed: Deed | None = None  # of whoever asks

    @property
    def ids(self) -> list[int]:
        return [*self.there, *(job.id for job in self.jobs)]


class Save(NamedTuple):
    """A job that shall take the place of what it was."""

    job: Job
    expected_version: int
    idempotency: Idempotency | None = None


@record
class Receipt:
    """What became of a Submission, a save or an Order: ids made or saved now, or by an earlier same request."""

    ids: list[int]
    replayed: bool = False
    mismatch: bool = False  # the key was used for a different request; nothing was done
    key_taken: str | None = None  # a job key exists already; nothing was done
    stale: bool = False  # the job is no longer as the Order was made from it; nothing was done
    run: Run | None = None  # of an Order: what was made now, or changed by it
    is_started: bool = False  # of an Order: somebody has that run already


class MadeAlike(NamedTuple):
    """Runs that were made of orders which differ in their data alone, in the order of that."""

    ids: Sequence[int]
    run: Run  # the first of them, without its data; the others are like it


class Sort(NamedTuple):
    by: str
    descending: bool = False


# What lists that are paged by number can be sorted by.
JOB_SORTS = ("id", "name", "owner", "kind", "created_at", "updated_at", "next_at", "last_at")
RUN_SORTS = ("id", "job_id", "name", "state", "due_at", "created_at", "started_at", "finished_at")
SOURCE_SORTS = ("id", "name", "owner", "kind", "created_at", "updated_at")
