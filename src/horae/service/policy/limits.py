"""Limits as people see them: how they stand, and what a run waits for. And what the whole cluster has, counted.

Worked out when somebody asks, from rows that exist anyway. A rate has a moment at which it lets the next one start;
whatever waits for another run to end has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from horae.core.members import is_external
from horae.core.model import Moment, NodeState, Reason, Run, State
from horae.core.policy import debounce
from horae.core.policy.demands import RESOURCE
from horae.core.policy.limits import LimitState, belongs_to, check_resource, job_of, queue_of, why_waiting
from horae.core.policy.queues import QueueState
from horae.core.spelling import suggest
from horae.core.time.moments import format_moment
from horae.errors import Conflict, NotFound
from horae.ports import deeds
from horae.ports.store.cluster import Nodes
from horae.ports.store.definitions import Definitions
from horae.ports.store.limits import Limits as LimitStore
from horae.ports.store.moments import StoreClock
from horae.ports.transport import Queue as Hints
from horae.service.policy.queues import Queues

MOST_RESOURCES = 1000  # of the cluster


class LimitsStore(LimitStore, Definitions, Nodes, StoreClock, Protocol):
    """Limits, who could be held by them, and who could do the work."""


class Limits:
    def __init__(self, store: LimitsStore, queues: Queues, hints: Hints) -> None:
        self._store = store
        self._queues = queues
        self._hints = hints

    # ── what a run waits for ──
    async def explain(self, run: Run) -> Run:
        """Return a run that is held by limits with what holds it, in words, and when a rate lets it start; one that
        waits for others of its kind with when it runs; any other as it is."""
        if run.state is State.BLOCKED and run.reason == Reason.DEBOUNCE:
            [job] = await self._store.load_jobs([run.job_id])
            return replace(run, message=debounce.why_waiting(job.policy.debounce, run.eligible_at, format_moment))
        if run.state is not State.BLOCKED or run.reason != Reason.LIMIT or run.message:
            return run
        words, at = await self._why(run)
        return replace(run, message=words, eligible_at=at)

    async def _why(self, run: Run) -> tuple[str, Moment | None]:
        [job] = await self._store.load_jobs([run.job_id])
        await self._queues.refresh()
        queue = self._queues.find(job.policy.queue)
        if queue.state is QueueState.PAUSED:
            return f"its queue {queue.name} is paused", None
        if missing := await self._labels_of_nobody(run, {*job.policy.labels, *queue.labels}):
            return f"no live agent has the labels that it needs: {', '.join(missing)}", None
        states = await self._store.load_limits(run.id)
        return why_waiting(states, await self._store.now(), format_moment, await self.queue_names())

    async def _labels_of_nobody(self, run: Run, labels: set[str]) -> list[str]:
        """Return the labels of a run, if no agent that could run it has them all."""
        if not labels:
            return []
        nodes = [node for node in await self._store.list_nodes() if run.pin in (None, node.name)]
        able = [node for node in nodes if run.kind in node.kinds and node.state != NodeState.GONE]
        is_there = any(labels.issubset(node.labels) for node in able if not is_external(node))
        return [] if is_there else sorted(labels)

    async def queue_names(self) -> Mapping[str, str]:
        """Return the names of queues, by their ids as keys of limits have them."""
        await self._queues.refresh()
        return {str(queue.id): queue.name for queue in self._queues.known}

    # ── all of them ──
    async def standing(self, org: int | None = None) -> list[LimitState]:
        """Return how the limits stand that runs use or wait for, by key; of very many, some. With `org`, only those
        that its jobs may use: nobody else's keys are told."""
        states = await self._store.load_limits()
        if org is None:
            return states
        ids = {job_id for state in states if (job_id := job_of(state.limit.key)) is not None}
        own = {job.id for job in await self._store.load_jobs(sorted(ids)) if job.org == org} if ids else set()
        await self._queues.refresh()
        hidden = {queue.id for queue in self._queues.known if not queue.is_for(org)}
        keys = [state.limit.key for state in states]
        known = [belongs_to(key, org, own) and queue_of(key) not in hidden for key in keys]
        return [state for state, is_known in zip(states, known, strict=True) if is_known]

    async def now(self) -> Moment:
        return await self._store.now()

    # ── what the cluster has ──
    async def resources(self) -> list[tuple[str, LimitState | None, int]]:
        """Return the name of each, how it stands if runs use it or wait for it, and how much there is of it."""
        states = {state.limit.key: state for state in await self._store.load_limits()}
        found = await self._store.load_resources()
        return [(name, states.get(f"{RESOURCE}{name}"), found[name]) for name in sorted(found)]

    async def set_resource(self, name: str, capacity: int) -> bool:
        """Say how much the whole cluster has of something; return whether it was not known before. If it is less than
        what is in use, what runs goes on."""
        known = await self._store.load_resources()
        if check_resource(name) not in known and len(known) >= MOST_RESOURCES:
            raise Conflict(f"there are {MOST_RESOURCES} resources, and that is the limit", code="E_LIMIT")
        deeds.note_change({"capacity": known.get(name)}, {"capacity": capacity})
        await self._store.set_resource(name, capacity)
        self._tell()
        return name not in known

    async def drop_resource(self, name: str) -> None:
        """What waits for some of it is held by it no longer."""
        deeds.note_change({"capacity": (await self._store.load_resources()).get(name)}, None)
        if not await self._store.drop_resource(name):
            hint = suggest(name, await self._store.load_resources(), repr) or "`horae resources` lists them"
            raise NotFound(f"the cluster has no resource '{name[:64]}'", hint=hint)
        self._tell()

    def _tell(self) -> None:
        self._hints.announce("units")
        self._hints.announce("runs")
