"""Bugs that can be planted: each is one small change of the real code, for as long as a run lasts.

They show what the simulation can find. Four of them (`unseen`, `late-frame`, `wall-clock`, `delete-in-two`) were real
once.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from horae.core.definitions import Idempotency
from horae.core.model import Node, State
from horae.core.policy import dependencies
from horae.core.runs import ledger
from horae.core.runs.endings import Ending
from horae.core.runs.orders import Assignment, Cancelled, Finished, Fire, Fired, MadeRun, Result, Waiting, Want
from horae.core.runs.waits import Signal, Told
from horae.links.spool import AgentSpool
from horae.service.agent import leash as leash_module
from horae.service.agent.agent import Agent, read_assignment
from horae.service.agent.delivery import Delivery
from horae.service.agent.leash import Leash
from horae.service.execution import LocalLink
from horae.service.firing import Firing
from horae.service.jobs import changes as changes_module
from horae.service.jobs.changes import Changes
from horae.service.workflows.outbox import Outbox
from horae.stores.attempts import QUEUE, RUN, room_by_kind
from horae.stores.idempotency import repeated
from horae.stores.queries import load_queries
from horae.stores.rows import encode
from horae.stores.sqlite import SqliteStore
from horae.stores.sqlite import signals as signals_module
from simulation.database import Store

Plant = Callable[[ExitStack], None]


@contextmanager
def plant(name: str | None) -> Iterator[None]:
    """With a bug, or with None without."""
    with ExitStack() as stack:
        if name is not None:
            PLANTED[name](stack)
        yield


def _put(stack: ExitStack, place: Any, name: str, value: Any) -> None:
    stack.enter_context(mock.patch.object(place, name, value))


def _say(stack: ExitStack, name: str, change: Callable[[str], str]) -> None:
    """Another text of a named query."""
    queries = load_queries("sqlite")
    changed = change(queries[name])
    assert changed != queries[name], f"{name} does not say that any more"
    stack.enter_context(mock.patch.dict(queries, {name: changed}))


# ── nodes and lines ────────────────────────────────────────────────────────────────────────────────


def unseen(stack: ExitStack) -> None:
    """A leader declares a node gone by its name alone: it may have been heard since."""
    _say(
        stack, "bury_nodes",
        lambda text: text.replace(" AND x.value ->> 1 = nodes.beat", "").replace(
            "\n    AND x.value ->> 2 = nodes.session AND x.value ->> 3 = nodes.state", ""
        ),
    )  # fmt: skip


def late_frame(stack: ExitStack) -> None:
    """What a line asks is done whatever line the agent has by now."""

    def resume(self: LocalLink, node: Node, session: int) -> None:
        self._node, self.session = node, None

    _put(stack, LocalLink, "resume", resume)


def long_trust(stack: ExitStack) -> None:
    """An agent believes in its lease for three times as long as it was given."""
    _put(stack, leash_module, "TRUSTED_SHARE", 3.0)


def forgotten_claim(stack: ExitStack) -> None:
    """An agent never asks what became of a claim whose answer was lost."""

    async def clear(self: Leash) -> None:
        self.in_doubt = False

    _put(stack, Leash, "clear_doubt", clear)


def second_copy(stack: ExitStack) -> None:
    """An agent starts a run that it was given again beside its own earlier attempt."""

    def start(self: Agent, executor: Any, a: Assignment, previous: str | None) -> None:
        self._start(executor, [(a, read_assignment(a))], {})

    _put(stack, Agent, "_wait_for_copy", start)


def early_result(stack: ExitStack) -> None:
    """A result is sent although its output is still on its way."""
    _put(stack, Delivery, "_deliverable", lambda self: list(self._results.values()))
    _put(stack, AgentSpool, "_judge", lambda self, shipment: self.unsettled.clear())
    _put(stack, AgentSpool, "_note_written", _note_settled)


def _note_settled(self: Any, ref: str, number: int) -> None:
    shipment = self._shipments.get(ref)
    if shipment is not None:
        shipment.written = number + 1
        self.work.set()


# ── moments ────────────────────────────────────────────────────────────────────────────────────────


def wall_clock(stack: ExitStack) -> None:
    """A scheduler goes by the wall clock of its machine."""
    _put(stack, Firing, "now", lambda self: self._clock.now())


def uncompared(stack: ExitStack) -> None:
    """A moment fires whether or not somebody else has fired it."""
    _put(stack, SqliteStore, "_holding", lambda self, connection, fires: fires)


def fire_in_two(stack: ExitStack) -> None:
    """Triggers are moved on in one transaction, and their runs are made in another."""
    original = Store.fire

    async def fire(self: Store, fires: Sequence[Fire], terms: Any = None, lend: Any = None) -> Fired:
        def advance(connection: sqlite3.Connection) -> list[Fire]:
            now = self._clock()
            held = list(
                self._holding(connection, [one for one in fires if one.newest <= now and one.newest < one.next_at])
            )
            rows = [(one.trigger_id, one.cur_at, one.next_at, one.last_at, None) for one in held]
            self._rows(connection, "advance_due", rows)
            return held

        if any(one.reserve or one.reserved for one in fires):
            return await original(self, fires, terms, lend)
        held = await self._do(advance)

        def make(connection: sqlite3.Connection) -> Fired:
            now = self._clock()
            ids = list(self._next("run", len(held)))
            born = [
                MadeRun(i, one.run, one.trigger_id, one.due_at, now)
                for i, one in zip(ids, held, strict=True)
                if one.born
            ]
            states = [outcome.state for outcome in self._bear(connection, born, now)]
            self._pass(connection, held, ids, now)
            self._save_ids(connection)
            queued, skipped = states.count(State.QUEUED), states.count(State.SKIPPED)
            return Fired({one.trigger_id for one in held}, queued, skipped, now)

        return await self._do(make)

    _put(stack, Store, "fire", fire)


def unwritten(stack: ExitStack) -> None:
    """Moments that were missed leave no record."""
    _put(stack, ledger, "_passed", lambda moments, state: [])


# ── requests ───────────────────────────────────────────────────────────────────────────────────────


def delete_in_two(stack: ExitStack) -> None:
    """A job that is deleted is parked first, in a transaction of its own."""

    async def delete(self: Changes, job_id: int) -> Cancelled:
        before = await self.get_alive(job_id)
        triggers = tuple(replace(one, next_at=None, version=before.version + 1) for one in before.triggers)
        await self._store.save_job(replace(before, version=before.version + 1, triggers=triggers), before.version)
        cancelled = await self._store.delete_job(job_id)
        return cancelled or Cancelled(set(), {})

    _put(stack, Changes, "delete", delete)


def robbed(stack: ExitStack) -> None:
    """Whoever pauses or changes a job takes the moments that are due away."""
    _put(stack, changes_module, "robbed_triggers", lambda before, after, now: [])


def forgotten_key(stack: ExitStack) -> None:
    """The key of a request is not kept with what it did."""

    def note(
        self: SqliteStore, connection: sqlite3.Connection, pairs: Sequence[tuple[Idempotency | None, list[int]]]
    ) -> None:
        return

    _put(stack, SqliteStore, "_note", note)


# ── runs ───────────────────────────────────────────────────────────────────────────────────────────


def no_fence(stack: ExitStack) -> None:
    """A result counts whatever attempt it is of."""
    original = SqliteStore.finish

    async def finish(self: SqliteStore, results: Sequence[Result], waiting: Sequence[Waiting] = ()) -> Finished:
        rows = await self.read("SELECT id, fence FROM live WHERE state = 1")
        fences = {row[0]: row[1] for row in rows}
        for result in (*results, *(one.result for one in waiting)):
            result.fence = fences.get(result.run_id, result.fence)
        return await original(self, results, waiting)

    _put(stack, SqliteStore, "finish", finish)


def claim_in_two(stack: ExitStack) -> None:
    """Runs are chosen in one transaction, and given in another."""

    async def claim(
        self: Store, wants: Sequence[Want], labels: Sequence[str], standby: str | None, passed: Sequence[int] | None
    ) -> tuple[list[list[Assignment] | None], bool]:
        given: list[list[Assignment] | None] = []
        for want in wants:

            def choose(connection: sqlite3.Connection, want: Want = want) -> list[Any]:
                if not self._may_claim(connection, want):
                    return []
                text, now = encode(list(labels)), self._clock()
                return [
                    row
                    for kind, room in room_by_kind([want]).items()
                    for queue, offset in self._open_queues(connection, labels).items()
                    for row in self._json(connection, "pick", kind, text, room, now, queue, offset)
                ]

            rows = await self._do(choose)

            def give(connection: sqlite3.Connection, want: Want = want, rows: list[Any] = rows) -> None:
                self._run(connection, "claim", want.node, self._clock(), encode([row[RUN] for row in rows]), 1)

            await self._do(give) if rows else None
            given.append([Assignment(*row[RUN:QUEUE]) for row in rows])
        return given, passed is not None

    _put(stack, Store, "_claim_runs", claim)


# ── queues and limits ──────────────────────────────────────────────────────────────────────────────


def leaked_slot(stack: ExitStack) -> None:
    """A run whose attempt was lost still counts as one that runs, while it waits for the next."""
    _say(
        stack, "look_over_demands",
        lambda text: text.replace(
            "FROM live WHERE state = 1 AND demand IS NOT NULL",
            "FROM live WHERE (state = 1 OR state = 2 AND lost > 0) AND demand IS NOT NULL",
        ),
    )  # fmt: skip


def uncounted(stack: ExitStack) -> None:
    """What is in use of a limit is not counted."""
    _say(stack, "look_over_demands", lambda text: text.replace("count(*) AS runs", "0 AS runs"))


def forgotten_rate(stack: ExitStack) -> None:
    """How far a rate has come is not written down."""
    _say(stack, "move_limits", lambda text: text.replace("ready_at = x.ready_at", "ready_at = limits.ready_at"))


def unfair(stack: ExitStack) -> None:
    """Whoever asked first goes first, whoever else waits."""
    _say(stack, "pick", lambda text: text.replace("r.priority DESC, r.pass, r.id", "r.priority DESC, r.id"))


# ── workflows and signals ──────────────────────────────────────────────────────────────────────────


def lost_ending(stack: ExitStack) -> None:
    """What is to be acted on is dropped before the act, in a transaction of its own."""
    original = Outbox._act_on

    async def act(self: Outbox, rows: Sequence[Ending]) -> None:
        await self._store.drop_endings([row.id for row in rows])
        await original(self, rows)

    _put(stack, Outbox, "_act_on", act)


def task_twice(stack: ExitStack) -> None:
    """A workflow moves on whether or not somebody else has moved it."""
    _say(stack, "step_flows", lambda text: text.replace(" AND flows.version = x.version", ""))


def deaf(stack: ExitStack) -> None:
    """Who begins to wait does not look at what it was told before."""
    _put(stack, SqliteStore, "_is_told", lambda self, connection, run_id, name: False)


def signal_in_two(stack: ExitStack) -> None:
    """Whether a run waits for a signal is looked at in one transaction, and it is told in another, a little later."""

    async def signal(self: Store, signals: Sequence[Signal]) -> list[Told]:
        def look(connection: sqlite3.Connection) -> list[Any]:
            return [self._run(connection, "load_answers", encode([one.run_id])).fetchone() for one in signals]

        rows = await self._do(look)
        await asyncio.sleep(0.2)

        def write(connection: sqlite3.Connection) -> list[Told]:
            known = self._known(connection, [one.idempotency for one in signals])
            told = [tell(connection, one, row) for one, row in zip(signals, rows, strict=True)]
            return repeated(signals, told, known)

        def tell(connection: sqlite3.Connection, one: Signal, row: Any) -> Told:
            text = Told.ABSENT if row is None else signals_module._with(one, row, self._clock())
            if isinstance(text, Told):
                return text
            is_due = bool(row[2]) and row[3] == one.name
            self._run(connection, "tell", one.run_id, text, int(is_due))
            self._note(connection, [(one.idempotency, [one.run_id])])
            return Told.WOKEN if is_due else Told.KEPT

        return await self._do(write)

    _put(stack, Store, "signal", signal)


def any_end(stack: ExitStack) -> None:
    """A run that comes after another goes whatever became of that."""
    _put(stack, dependencies, "_is_met", lambda on, state: True)


def calm_twice(stack: ExitStack) -> None:
    """An order that waits for others like it is not found by them."""
    _say(stack, "note_calm", lambda text: text.replace("debounce = ", "debounce = NULL || "))


PLANTED: dict[str, Plant] = {
    plant.__name__.replace("_", "-"): plant
    for plant in (
        unseen, late_frame, wall_clock, delete_in_two, long_trust, forgotten_claim, second_copy, early_result,
        uncompared, fire_in_two, unwritten, robbed, forgotten_key, no_fence, claim_in_two, leaked_slot, uncounted,
        forgotten_rate, unfair, lost_ending, task_twice, deaf, signal_in_two,
        any_end, calm_twice,
    )
}  # fmt: skip
