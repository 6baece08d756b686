"""What agents offer, against what jobs ask for: a run that no live agent could ever take waits, and says so.

Nothing is noted: who asks is told how it is now. An agent that offers more may join at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from horae.core.model import Job, Node, NodeState, Policy, Reason, Run, State
from horae.core.policy.resources import asks_of, lack, offers_of
from horae.ports.store.cluster import Nodes
from horae.ports.store.definitions import Definitions


class Offers:
    def __init__(self, nodes: Nodes, definitions: Definitions) -> None:
        self._nodes = nodes
        self._definitions = definitions

    async def warn(self, jobs: Iterable[Job]) -> list[str]:
        """Return what their owner should know: each thing once."""
        asking = [job for job in jobs if asks_of(job.policy.resources)]
        nodes = await self._nodes.list_nodes() if asking else []
        lacks = {why: None for job in asking if (why := _lack(job.policy, job.kind, nodes))}
        return [f"{why}: until one does, its runs wait" for why in lacks]

    async def explain(self, run: Run) -> Run:
        """Return a run with the reason why it waits, if that is what agents offer."""
        if run.state is not State.BLOCKED or run.reason != Reason.LIMIT or run.message:
            return run
        job = await self._definitions.get_job(run.job_id)
        why = _lack(job.policy, run.kind, await self._nodes.list_nodes()) if job else ""
        return replace(run, message=why) if why else run


def _lack(policy: Policy, kind: str, nodes: Sequence[Node]) -> str:
    """A missing label is told as such, elsewhere."""
    able = [
        node
        for node in nodes
        if node.state is not NodeState.GONE and kind in node.kinds and set(policy.labels) <= set(node.labels)
    ]
    asks = asks_of(policy.resources)
    return lack(asks, [offers_of(node, kind) for node in able]) if asks and able else ""
