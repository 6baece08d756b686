"""Queues: kept, changed, and known by heart.

Every job names a queue, and every run is born into one, so what queues there are is remembered. It is read anew when
somebody announces a change, and at the latest a few seconds later: whoever decides by it may be that far behind. What
must not go wrong by it is said where it is done: a queue is deleted only when nobody can take it for open any more.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from horae.core.identity import LOCAL, Principal
from horae.core.model import DEFAULT_ORG, SECOND, Moment, Policy
from horae.core.policy.queues import (
    DEFAULT_NAME,
    DEFAULT_QUEUE,
    MAX_QUEUES,
    Figures,
    Queue,
    QueueState,
    check_name,
    parse_queue,
    render_queue,
)
from horae.core.rights import refuse_without
from horae.core.roles import Permission
from horae.core.spelling import suggest
from horae.core.work.kinds import KINDS
from horae.errors import Conflict, Error, Invalid, NotFound, Stale
from horae.ports import deeds
from horae.ports.store.moments import StoreClock
from horae.ports.store.queues import Queues as QueueStore
from horae.ports.store.queues import QueueUse
from horae.ports.transport import Queue as Hints

REFRESH = 2.0  # seconds for which what is known of queues holds, unless a change is announced
KNOWN_BY_ALL = 5 * SECOND  # after which every process knows of a change, announced or not
TRIES = 8  # of a change that races with another
MOST_SERVED = 10_000  # runs of which it is told whose they are


class QueuesStore(QueueStore, StoreClock, Protocol):
    """Queues, and the clock that says how long ago one was changed."""


class Queues:
    def __init__(self, store: QueuesStore, hints: Hints) -> None:
        self._store = store
        self._hints = hints
        self._changed = hints.watch("queues")
        self._known_until = -math.inf
        self.changed_at = -math.inf  # by the watch of the loop: when they were last found to be different
        self._reading: asyncio.Task[list[Queue]] | None = None
        self._by_name: dict[str, Queue] = {}
        self._by_id: dict[int, Queue] = {}

    # ── what is known ──
    async def refresh(self) -> None:
        """Have what is known no older than it may be. To be called before `find` and `by_id`, which do not wait."""
        if self._changed.is_due or asyncio.get_running_loop().time() >= self._known_until:
            if self._reading is None:
                self._reading = asyncio.create_task(self._read())
                self._reading.add_done_callback(self._forget_reading)
            await asyncio.shield(self._reading)  # one look for all who ask meanwhile

    def _forget_reading(self, task: asyncio.Task[list[Queue]]) -> None:
        self._reading = None
        if not task.cancelled():
            task.exception()  # those who wait raise it; that nobody does is no fault

    async def _read(self) -> list[Queue]:
        if self._changed.is_due:  # before the look: what changes after it is announced again
            await self._changed.wait(0)
        began = asyncio.get_running_loop().time()
        queues = await self._store.list_queues()
        by_id = {q.id: q for q in queues}
        if by_id != self._by_id:
            self.changed_at = began
        self._by_name, self._by_id = {q.name: q for q in queues}, by_id
        self._known_until = began + REFRESH
        return queues

    def find(self, name: str) -> Queue:
        """Return the queue of this name; the default queue where it is gone. No due moment is lost for want of one."""
        return self._by_name.get(name) or self.by_id(DEFAULT_QUEUE)

    @property
    def known(self) -> Sequence[Queue]:
        return list(self._by_id.values())

    def by_id(self, queue_id: int) -> Queue:
        return self._by_id.get(queue_id) or Queue(DEFAULT_QUEUE, DEFAULT_NAME)

    async def resolve(self, name: str, org: int | None = None) -> Queue:
        """Return the queue of this name, which must exist for this organisation: perhaps only since a moment ago,
        elsewhere."""
        await self.refresh()
        if name not in self._by_name:
            await self._read()
        found = self._by_name.get(name)
        if found is None or not found.is_for(org):
            hint = suggest(name, self._names_for(org), repr) or f"`horae queues set {name}` makes it"
            raise Invalid(f"there is no queue '{name}'", code="E_QUEUE_UNKNOWN", hint=hint, path="queue")
        return found

    async def check(self, policy: Policy, kind: str, org: int | None = None) -> Queue:
        """Return the queue of a job of this organisation; raises Invalid where there is none, or it does not take such
        work."""
        queue = await self.resolve(policy.queue, org)
        if not queue.takes(kind):
            message = f"the queue '{queue.name}' takes {' and '.join(queue.kinds)}, and this is {kind}"
            raise Invalid(message, code="E_QUEUE_KIND", hint="name another queue", path="queue")
        return queue

    # ── read ──
    async def list(self, org: int | None = None) -> list[Queue]:
        """Return those that are there for an organisation now, by name; None is whoever runs the server."""
        return [queue for queue in await self._read() if queue.is_for(org)]

    async def get(self, name: str, org: int | None = None) -> Queue:
        await self._read()
        return self._named(name, org)

    async def figures(self) -> Mapping[int, Figures]:
        """Return how queues stand, by id."""
        return await self._store.load_queue_figures()

    async def served(self, org: int | None) -> dict[int, Counter[str]]:
        """Return whose runs are running in each queue, by id; of very many, of some."""
        found: dict[int, Counter[str]] = {}
        for queue_id, owner, number in await self._store.count_served(org, MOST_SERVED):
            found.setdefault(queue_id, Counter())[owner] += number
        return found

    async def now(self) -> Moment:
        return await self._store.now()

    def _named(self, name: str, org: int | None) -> Queue:
        found = self._by_name.get(name)
        if found is None or not found.is_for(org):
            hint = suggest(name, self._names_for(org), repr) or "`horae queues` lists them"
            raise NotFound(f"there is no queue '{name[:64]}'", hint=hint)
        return found

    def _names_for(self, org: int | None) -> Sequence[str]:
        return [name for name, queue in self._by_name.items() if queue.is_for(org)]

    # ── change ──
    async def put(
        self, name: str, document: Any, expected_version: int | None = None, who: Principal = LOCAL
    ) -> tuple[Queue, bool]:
        """Make a queue, or replace what it is like; returns it, and whether it is new. With `expected_version`, only if
        it still has that one. What the first organisation makes is the installation's, unless it says otherwise."""
        for _ in range(TRIES):
            await self._read()
            before = self._by_name.get(check_name(name))
            wanted = self._wanted(document, name, before, who)
            if expected_version is not None and expected_version != (0 if before is None else before.version):
                there = "is not there" if before is None else f"is at version {before.version}"
                raise Stale(f"the queue '{name}' {there}, you changed version {expected_version}")
            deeds.note_change(None if before is None else render_queue(before), render_queue(wanted))
            saved = await self._save(wanted, before)
            if saved is not None:
                self._hints.announce("queues")
                return saved, before is None
        raise Conflict(f"the queue '{name}' is being changed by somebody else; try again")

    def _wanted(self, document: Any, name: str, before: Queue | None, who: Principal) -> Queue:
        """Return the queue that somebody wants, and may have."""
        own = None if who.org == DEFAULT_ORG else who.org
        if before is None:
            wanted = parse_queue(document, name, KINDS, org=own)
            if not who.is_local and wanted.org not in (own, who.org):
                raise Invalid(f"you are of organisation {who.org}", code="E_FIELD_CONFLICT", path="org")
            refuse_others(wanted, who)
            return wanted
        if not before.is_for(who.bound_to):
            raise Conflict(f"the name '{name}' is taken", code="E_NAME_TAKEN", hint="choose another")
        refuse_others(before, who)
        wanted = parse_queue(document, name, KINDS, before.state, before.org)
        if wanted.org != before.org:
            message = f"the queue belongs to {_whose(before)}"
            raise Invalid(message, code="E_FIELD_CONFLICT", hint="a queue stays where it is: make another", path="org")
        return wanted

    async def _save(self, wanted: Queue, before: Queue | None) -> Queue | None:
        if before is not None:
            return await self._store.save_queue(replace(wanted, version=before.version))
        if len(self._by_name) >= MAX_QUEUES:
            raise Conflict(f"there are {MAX_QUEUES} queues, and that is the limit", code="E_LIMIT")
        return await self._store.add_queue(wanted, MAX_QUEUES)

    async def set_state(self, name: str, state: QueueState, who: Principal = LOCAL) -> Queue:
        """Pause, drain, or let go on."""
        await self._read()
        before = self._named(name, who.bound_to)
        refuse_others(before, who)
        deeds.note_change({"state": before.state}, {"state": state})
        queue = await self._store.set_queue_state(name, state)
        if queue is None:
            raise NotFound(f"the queue '{name}' was deleted meanwhile", hint="`horae queues` lists them")
        self._hints.announce("queues")
        if state is not QueueState.PAUSED:
            self._hints.announce("runs")  # what waited there may be started
        return queue

    async def delete(self, name: str, who: Principal = LOCAL) -> None:
        """It must have been draining for so long that everybody knows: then no run can be born into it."""
        await self._read()
        queue = self._named(name, who.bound_to)
        refuse_others(queue, who)
        if queue.id == DEFAULT_QUEUE:
            hint = "`horae queues set default` configures it"
            raise Conflict("the default queue stays: it can only be configured", code="E_QUEUE_IN_USE", hint=hint)
        if queue.state is not QueueState.DRAINING:
            message = f"the queue '{name}' is {queue.state}: drain it first, so that nothing new comes"
            raise Conflict(message, code="E_QUEUE_IN_USE", hint=f"`horae queues drain {name}`")
        if await self._store.now() - queue.updated_at < KNOWN_BY_ALL:
            message = f"the queue '{name}' is draining since a moment ago, and not every node knows yet"
            raise Conflict(message, code="E_QUEUE_IN_USE", hint="try again in a few seconds")
        deeds.note_change(render_queue(queue), None)
        use = await self._store.delete_queue(queue)
        if use is not None:
            raise _in_use(name, use)
        self._hints.announce("queues")


def refuse_others(queue: Queue, who: Principal) -> None:
    """Denied to whoever may see a queue and not change it: that of the installation is for those who have that."""
    if queue.org is None:
        refuse_without(who, Permission.CLUSTER)


def _whose(queue: Queue) -> str:
    return "the installation" if queue.org is None else f"organisation {queue.org}"


def _in_use(name: str, use: QueueUse) -> Error:
    jobs = f"by {use.jobs} {'job' if use.jobs == 1 else 'jobs'}" if use.jobs else ""
    runs = f"by {use.runs} {'run' if use.runs == 1 else 'runs'} in it" if use.runs else ""
    return Conflict(
        f"the queue '{name}' is needed {' and '.join(filter(None, (jobs, runs)))}",
        code="E_QUEUE_IN_USE",
        hint="let the jobs name another queue, or delete them" if use.jobs else "wait for them, or cancel them",
    )
