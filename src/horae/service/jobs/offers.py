"""What agents and the cluster have, against what jobs ask for: a run that no live agent could ever take waits, and says
so.

Nothing is noted: who asks is told how it is now. An agent that offers more may join at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from horae.core.model import Job, Node, NodeState, Policy, Reason, Run, State
from horae.core.policy.resources import asks_of, lack, offers_of
from horae.ports.store.cluster import Nodes
from horae.ports.store.definitions import Definitions


class OfferStore(Nodes, Definitions, Protocol):
    """Agents, jobs, and what the cluster has."""

    async def load_resources(self) -> dict[str, int]: ...


class Offers:
    def __init__(self, store: OfferStore) -> None:
        self._store = store

    async def warn(self, jobs: Iterable[Job]) -> list[str]:
        """Return what their owner should know: each thing once."""
        asking = [job for job in jobs if asks_of(job.policy.resources)]
        if not asking:
            return []
        nodes, shared = await self._store.list_nodes(), await self._store.load_resources()
        lacks = {why: None for job in asking if (why := _lack(job.policy, job.kind, nodes, shared))}
        return [f"{why}: until one does, its runs wait" for why in lacks]

    async def explain(self, run: Run) -> Run:
        """Return a run with the reason why it waits, if that is what agents offer."""
        if run.state is not State.BLOCKED or run.reason != Reason.LIMIT or run.message:
            return run
        job = await self._store.get_job(run.job_id)
        if job is None or not asks_of(job.policy.resources):
            return run
        why = _lack(job.policy, run.kind, await self._store.list_nodes(), await self._store.load_resources())
        return replace(run, message=why) if why else run


def _lack(policy: Policy, kind: str, nodes: Sequence[Node], shared: Mapping[str, int]) -> str:
    """What the whole cluster has (`shared`), every agent has. A missing label is told as such, elsewhere."""
    able = [
        node
        for node in nodes
        if node.state is not NodeState.GONE and kind in node.kinds and set(policy.labels) <= set(node.labels)
    ]
    asks = asks_of(policy.resources)
    return lack(asks, [{**offers_of(node, kind), **shared} for node in able]) if asks and able else ""
