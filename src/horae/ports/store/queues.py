"""Queues, and what policies ask of what waits and of the past."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from horae.core.model import Moment
from horae.core.policy.queues import Figures, Queue, QueueState


class QueueUse(NamedTuple):
    """What still needs a queue, counted up to a limit."""

    jobs: int  # that name it
    runs: int  # that wait in it or run


class Queues(Protocol):
    """Where runs wait: few, and seldom changed. There is always the default queue."""

    async def list_queues(self) -> list[Queue]:
        """Return all of them, by name."""

    async def add_queue(self, queue: Queue, most: int) -> Queue | None:
        """Keep a new one, under a fresh id in place of the given one. None where there is one of that name, where
        another was added at the same time, or where there are already `most`."""

    async def save_queue(self, queue: Queue) -> Queue | None:
        """Replace the one of that name, if it still has that version; it gets the next one. None: it has not."""

    async def set_queue_state(self, name: str, state: QueueState) -> Queue | None:
        """Whatever it is like otherwise. What changes nothing makes no version. None: there is none of that name."""

    async def delete_queue(self, queue: Queue) -> QueueUse | None:
        """Delete it, unless a job names it, a run is in it, or it has another version by now. Returns what is in the
        way, if anything; None: it is gone, or has changed."""

    async def count_served(self, org: int | None, most: int) -> list[tuple[int, str, int]]:
        """Return whose runs are running, as (queue, owner, runs): those of an organisation or of all, among `most` of
        them."""

    async def load_queue_figures(self) -> Mapping[int, Figures]:
        """Return how each queue stands, by id; one of which there is nothing to say may be missing.

        What waits is counted up to COUNTED in each queue, along the order in which it is claimed; what is blocked up to
        BLOCKED_COUNTED in all; what came and went in the last minute among the newest RECENT runs that are live, and
        the newest RECENT that have ended, which count to the queue that their job names now."""


class PolicyCounts(Protocol):
    """What quotas and breakers count, never further than they must."""

    async def count_waiting(self, org: int, user: str, queue: int | None, most: int) -> int:
        """Runs, up to `most`, that wait (queued or blocked) for jobs of an owner, or made for a user of the RPC
        contract; of one queue, or of all."""

    async def count_waiting_in(self, org: int, most: int) -> int:
        """As count_waiting, of all jobs of an organisation; tasks of workflows are not counted."""

    async def count_jobs_in(self, org: int, most: int) -> int:
        """Jobs of an organisation, up to `most`."""

    async def list_quotas(self) -> dict[int, tuple[int | None, int | None]]:
        """(runs that may wait, jobs) by organisation, of those that have a limit."""

    async def count_failures(self, job_id: int, since: Moment, most: int) -> int:
        """Runs of a job, up to `most`, that failed or timed out: made since then, and newer than its last success."""
