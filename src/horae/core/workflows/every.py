"""`every: agent`: one run is a parent, with a child on each agent that could do the work when it began."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from horae.core.members import serves
from horae.core.model import Json, Node, NodeState, OperatorWish, Policy, Reason, State
from horae.core.workflows.progress import CHILDREN, End, Make, Step, TaskState

TASK = "agent"  # what the children are called: agent[0], agent[1] …
_NAMED = 3  # agents that a message names


def agents_for(kind: str, policy: Policy, nodes: Iterable[Node], queue_org: int | None = None) -> list[str]:
    """Return the names of live agents that have the kind and the labels, and take from the queue, which belongs to this
    organisation."""
    return sorted(
        node.name
        for node in nodes
        if node.state is NodeState.LIVE
        and node.wanted is OperatorWish.LIVE
        and "agent" in node.roles
        and kind in node.kinds
        and set(policy.labels) <= set(node.labels)
        and serves(node, queue_org)
    )


def advance(agents: Sequence[str], tasks: Sequence[TaskState], *, cancelled: bool = False) -> Step:
    """As progress.advance: its tasks are there or not, all of them."""
    if not agents:
        return Step(end=End(State.FAILED, Reason.NO_AGENT, "no live agent has the kind and the labels of this job"))
    if not tasks and not cancelled:
        return Step(make=tuple(Make(TASK, index, None) for index in range(len(agents))))
    if any(not task.state.is_terminal for task in tasks):
        return Step()
    if cancelled:
        return Step(end=End(State.CANCELLED, Reason.REQUESTED, "somebody cancelled it"))
    return Step(end=_end(agents, tasks))


def _end(agents: Sequence[str], tasks: Sequence[TaskState]) -> End:
    failed = [agents[task.index or 0] for task in tasks if task.state is not State.SUCCEEDED]
    results: Json = {agents[task.index or 0]: task.result for task in tasks}
    if not failed:
        return End(State.SUCCEEDED, Reason.NONE, "", results)
    more = f" and {len(failed) - _NAMED:,} more" if len(failed) > _NAMED else ""
    return End(State.FAILED, CHILDREN, f"it did not succeed on {', '.join(failed[:_NAMED])}{more}", results)
