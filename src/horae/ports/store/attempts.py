"""Runs as agents see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from horae.core.model import Cursor, Phase
from horae.core.runs.calls import Calls
from horae.core.runs.orders import (
    Assignment,
    Backlog,
    Finished,
    Held,
    LockRequest,
    Order,
    Queued,
    Result,
    Started,
    Waiting,
    Want,
)

NO_CALLS: Mapping[int, Calls] = MappingProxyType({})


class Attempts(Protocol):
    """Runs that agents work on."""

    async def claim(
        self, wants: Sequence[Want], labels: Sequence[str] = (), *, standby: str | None = None
    ) -> list[list[Assignment] | None]:
        """Give queued runs to nodes, which all have these labels: running, attempt + 1, fence + 1. Answers what each
        want got, in their order; one that got less than its room would have got no more by asking alone.

        Of a kind, higher priority first (with the offset of its queue), then the smaller pass (core.policy.order), and
        every node gets one before any gets two. Of queues with equal priority, the one whose head waits longest. Queues
        that are paused, or want labels that the nodes have not, give nothing.
        Pinned runs go to their node only; runs that need labels go to nodes that have them all; runs past their start
        deadline go to nobody. A run is given to one caller, however many ask at once. Nobody gets any while claims that
        a failover of the database lost may still be held. The phase is the first one of the kind
        (lifecycle.first_phase). A want with a session gets nothing unless its node has that session and is not gone:
        None, where there would have been something to claim.
        With `standby`, the node whose wants these are stands by unless it owns the segments: then it gets what is
        pinned to it, and else only kinds of work that the owner, being there, cannot do.
        While the database is made to keep very many runs that have ended, a run that comes before the last that was
        claimed may be overlooked for a second: see `look_again`.
        """

    async def enqueue_started(self, order: Order, want: Want, labels: Sequence[str]) -> Started | None:
        """Carry out an order that may start at once (as Runs.enqueue), and give its run to the node that wants it, as
        `claim` would give it the next moment. None: nothing was done, because something is in the way: a run of this
        kind waits already, the queue gives nothing to nodes with these labels, the node has another session or is gone,
        or what would keep `enqueue` from making a run."""

    async def look_again(self, labels: Sequence[str]) -> float | None:
        """After a claim with these labels: None, or the seconds after which another one may find what this one
        overlooked, or kept from others meanwhile."""

    async def set_phases(self, phases: Sequence[tuple[int, int, Phase]], *, session: int | None = None) -> None:
        """(run id, fence, phase) each: noted where the run is running under the same fence, and, with `session`, on a
        node that has it."""

    async def note_progress(self, notes: Sequence[tuple[int, int, str]], *, session: int | None = None) -> None:
        """(run id, fence, JSON text) each: noted where the run is running under the same fence, until it stops; with
        `session`, on a node that has it."""

    async def finish(
        self, results: Sequence[Result], waiting: Sequence[Waiting] = (), calls: Mapping[int, Calls] = NO_CALLS
    ) -> Finished:
        """End attempts. `results` move from live to history; `waiting` go back to blocked or queued and
        leave an Attempt record, unless somebody wants the run cancelled: then it ends, cancelled if the attempt
        was lost. Each is accepted only if the run is running under the same fence.
        A blocked(overlap) successor of an ended run takes the gate in the same transaction. So does the cursor of the
        job move, where a result that is accepted and succeeded brings one. And so are the runs made that one of
        `waiting` calls (run id → calls), if it is accepted and begins to wait."""

    async def load_held(self, run_ids: Sequence[int]) -> list[Held]:
        """Return what decides about failed attempts of these live runs."""

    async def load_running(self, node: str, *, session: int | None = None) -> list[tuple[int, int]]:
        """(run id, fence) of everything running on a node; Superseded when it has another session than a given one."""

    async def load_backlog(self, kinds: Sequence[str], limit: int) -> list[Backlog]:
        """Return what waits of these kinds. Of each, `limit` runs at most are counted of those that anybody may take,
        of those that are pinned, and of those that need labels."""

    async def load_queued(self, limit: int) -> list[Queued]:
        """Runs that wait for an agent now, kind by kind in the order of claims."""

    async def load_previous(self, job_ids: Sequence[int]) -> dict[int, str]:
        """Job → result of its last success, JSON text, for those that have one."""


class Writes(Protocol):
    """What work on data writes: how far it has come, and who writes where."""

    async def load_cursors(self, job_ids: Sequence[int]) -> dict[int, Cursor]:
        """Job → how far its syncs have come, for those that have a cursor, or had one that was taken away (None)."""

    async def set_cursor(self, job_id: int, value: str | None) -> None:
        """Put the cursor (JSON text) where somebody wants it, or away. Attempts that are under way do not move it."""

    async def take_locks(self, requests: Sequence[LockRequest]) -> set[int]:
        """Lock for each of these running attempts all that it names, first come, first served; answers whose were
        locked. The others become blocked(destination_busy), their attempt not counted, with a sentence that names
        the run that writes; one that somebody wants cancelled ends. A lock is void as soon as its run is no longer
        running under that fence. Older runs that wait are served before younger ones."""
