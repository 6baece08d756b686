"""Runs as people see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from horae.core.definitions import Group, Idempotency, MadeAlike, Receipt, Sort
from horae.core.model import Attempt, Census, Found, Moment, Page, Run, RunFilter, Standing
from horae.core.runs.orders import Cancelled, Order, Swept
from horae.core.workflows.picture import TaskTally


class Runs(Protocol):
    """Runs as people ask for them and look at them."""

    async def enqueue(self, orders: Sequence[Order], group: Group | None = None) -> list[Receipt]:
        """Make runs by request, due now, under the same overlap rules; receipts have the runs as they were made.

        An order for a moment that is still to come waits as blocked(later) without a gate: `sweep` decides about its
        overlap when the moment has come, by what the job says then.
        A job that is not there, or deleted, gets none: its receipt has no ids, and no idempotency key is noted. Nor is
        one where the job has another version than the order: the receipt is `stale`.

        Orders of a `group` have no keys of their own. If its key was used before, nothing is made: each gets what was
        made in its place then. Those of which nothing was made then, and those to be debounced, are `stale`: they are
        tried by themselves.
        """

    async def enqueue_alike(
        self, order: Order, data: Sequence[str | None], promise: Idempotency | None = None
    ) -> MadeAlike | None:
        """As `enqueue`, of ordinary orders that take no gate and differ in their data (JSON text) alone: all are made,
        or none, and then `enqueue` tells why. `promise` is the key of a group of them, with the places 0, 1, 2…"""

    async def cancel(self, run_ids: Sequence[int], reason: str, note: str = "") -> Cancelled:
        """Queued and blocked runs end as cancelled(reason); running ones are marked and reported. `note` says who wants
        it, for people: it begins the message with which a run ends by this."""

    async def get_run(self, run_id: int) -> Run | None: ...

    async def load_runs(self, run_ids: Sequence[int]) -> list[Run]:
        """As get_run, of many, in any order; what does not exist is left out."""

    async def list_runs(self, where: RunFilter, cursor: str | None, limit: int) -> Page:
        """Live runs and history together, newest id first."""

    async def search_runs(self, where: RunFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        """As search_jobs, of runs: items are (Run, name of its job), of RUN_SORTS."""

    async def search_tries(self, where: RunFilter, sorts: Sequence[Sort], offset: int, limit: int) -> Found:
        """As search_runs, but one item for each attempt at a run: a Try."""

    async def tally_tasks(self, run_id: int) -> TaskTally:
        """Count the tasks of a run by name and state, those that go on and those that have ended."""

    async def list_attempts(self, run_id: int) -> list[Attempt]:
        """Attempts that did not end their run, oldest first."""

    async def load_attempts(self, run_ids: Sequence[int]) -> list[Attempt]:
        """As list_attempts, of many runs."""

    async def list_lost(self, limit: int) -> list[tuple[Attempt, Run]]:
        """Attempts lost with their agent, newest first, each with its run as it is now."""

    async def load_standing(self, job_ids: Sequence[int]) -> dict[int, Standing]:
        """Return where these jobs stand; every one of them has an answer."""

    async def load_successes(self, job_ids: Sequence[int]) -> dict[int, Moment]:
        """When the last success of each of these jobs ended, for those that have one."""

    async def census(self) -> Census: ...


class WaitingRuns(Protocol):
    """What nobody has begun, and what may become of it."""

    async def sweep(self) -> Swept:
        """Blocked runs whose time has come and whose destination is free, or whose gate is, become queued; orders whose
        moment has come become runs, as their overlap policy decides; queued and
        blocked ones past their start deadline become history as skipped(start_deadline). Of very many, some: then
        `next_at` says to sweep again at once."""

    async def fail_unrunnable(self, kinds: Sequence[str], message: str, remedies: Mapping[str, str]) -> int:
        """Runs of a kind not in `kinds` that wait for an agent or for limits end as failed(no_agent), with the message
        and the remedy of the kind. Of very many, some: whoever calls repeats it until it answers 0. Of those that wait
        for limits, each call looks at the first of each demand and at the next ones of all: many calls get to all."""

    async def end_barred(self, job_id: int, limit: int) -> int:
        """Up to `limit` queued and blocked runs of a job end, because its owner may not run it any more, as
        skipped(owner); tasks and runs that others called as failed(owner). Runs that wait for their children stay: they
        end with those. Return how many ended; what is being claimed right now is left to that."""

    async def lift_starved(self, before: Moment, limit: int) -> int:
        """Queued runs that wait at their priority since before a moment, of the first `limit` of each line, go one
        priority up, to the head of that line; return how many."""

    async def drop_idle_shares(self, limit: int) -> int:
        """Forget up to `limit` shares that would begin where their line is anyway; return how many."""

    async def mark_unlabelled(self, agents: Sequence[Sequence[str]]) -> int:
        """Queued runs that need labels which none of these agents has get the reason no_label; they wait on. Of very
        many, some, as fail_unrunnable. Those that wait for limits keep that reason (see service.policy.limits)."""
