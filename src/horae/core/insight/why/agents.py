"""Which agent could take a run, and what is in the way of the others.

By the rules of whoever starts runs: the kind of work, the labels of run and queue, the pin, and what the run asks of
one agent (core.policy.resources). What is free is worked out from what runs, as it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from horae.core.insight.why.facts import Facts, Sentence, by_whom, listed, stamp
from horae.core.members import is_external, serves
from horae.core.model import Json, Moment, Node, NodeState, OperatorWish
from horae.core.policy import resources
from horae.core.work.kinds import REMEDIES


@dataclass(frozen=True, slots=True)
class Judged:
    """An agent, and what keeps it from taking the run; `barrier` is one of BARRIERS, or empty: it could."""

    node: Node
    barrier: str = ""
    why: str = ""


# What may be in the way, from what no waiting mends to what the next moment may.
BARRIERS = ("kind", "pin", "label", "never", "cordoned", "draining", "ailing", "resources", "slots")


def judge_all(facts: Facts) -> list[Judged]:
    """Return what each live agent could do about the run; that of the pin, be it gone."""
    pin = facts.the_run.pin
    agents = [node for node in facts.nodes if "agent" in node.roles and not is_external(node)]
    return [judge(facts, node) for node in agents if node.state is not NodeState.GONE or node.name == pin]


def judge(facts: Facts, node: Node) -> Judged:
    run, labels = facts.the_run, {*facts.standing.needs, *facts.queue.labels}
    asks = facts.standing.demand.asks
    if run.kind not in node.kinds:
        return Judged(node, "kind", f"it does not run {run.kind} work")
    if run.pin not in (None, node.name):
        return Judged(node, "pin", f"only {run.pin} may take it")
    if node.state is NodeState.GONE:
        return Judged(node, "pin", f"it is gone since {stamp(node.heartbeat_at)}")
    if not serves(node, facts.queue.org):
        return Judged(node, "label", f"it takes from queues of its organisation alone, and not from {facts.queue.name}")
    if missing := sorted(labels - set(node.labels)):
        return Judged(node, "label", f"it has not the {_labels(missing)}")
    if not resources.fits(asks, {**resources.offers_of(node, run.kind), **facts.shared}):
        lack = resources.lack(asks, [resources.offers_of(node, run.kind)])
        return Judged(
            node, "never", lack.replace("no live agent offers", "it does not offer").replace("asks", "the run asks")
        )
    return _judge_now(facts, node, asks)


def _judge_now(facts: Facts, node: Node, asks: resources.Asks) -> Judged:
    """Of one that could run it at some time."""
    if node.wanted is not OperatorWish.LIVE:
        return Judged(node, "cordoned", f"it is {node.wanted} by its operator")
    if node.state is NodeState.DRAINING:
        return Judged(node, "draining", "it is going away")
    if node.ailment:
        return Judged(node, "ailing", f"its machine is short: {node.ailment}")
    supply = facts.supplies.get(node.name)
    kind = facts.the_run.kind
    if supply is None:
        return Judged(node)
    free = supply.free_slots.get(kind, 0)
    if free < resources.slots_of(asks):
        return Judged(node, "slots", f"{_of(free, supply.slots.get(kind, 0))} of its slots are free")
    if not resources.fits(asks, resources.of_kind(free, supply.free)):
        return Judged(node, "resources", f"free are {resources.show(sorted(supply.free.items()))}")
    return Judged(node)


def _of(free: int, slots: int) -> str:
    return f"{max(free, 0)} of {slots}"


def _labels(labels: Sequence[str]) -> str:
    return f"{'label' if len(labels) == 1 else 'labels'} {', '.join(labels)}"


# ── in sentences ──
def why_no_agent(facts: Facts) -> list[Sentence]:
    """Why nobody has taken a run that waits for an agent alone: the barrier that is least in the way decides, and then
    each agent for itself."""
    judged = judge_all(facts)
    could = [one for one in judged if not one.barrier]
    if could:
        names = [one.node.name for one in could]
        return [Sentence("wait.soon", f"{listed(names)} has room for it", {"nodes": names}), *_each(facts, judged)]
    return [_decisive(facts, judged), *_each(facts, judged)]


def _decisive(facts: Facts, judged: Sequence[Judged]) -> Sentence:
    run = facts.the_run
    if not judged and run.pin is not None:
        return _pinned(run.pin, None)
    if not judged:
        return Sentence("wait.no_agents", "no agent is there", unblock="horae up, or horae agent --server HOST:PORT")
    nearest = max((one.barrier for one in judged), key=BARRIERS.index)
    theirs = [one for one in judged if one.barrier == nearest]
    names = [one.node.name for one in theirs]
    return _BY_BARRIER[nearest](facts, names, theirs)


def _kind(facts: Facts, names: list[str], judged: Sequence[Judged]) -> Sentence:
    kind = facts.the_run.kind
    remedy = REMEDIES.get(kind, f"start an agent that runs {kind} work")
    return Sentence("wait.kind", f"no live agent runs {kind} work", {"kind": kind, "nodes": names}, unblock=remedy)


def _pin(facts: Facts, names: list[str], judged: Sequence[Judged]) -> Sentence:
    gone = next((one.node for one in judged if one.node.name == facts.the_run.pin), None)
    return _pinned(facts.the_run.pin or "", None if gone is None else gone.heartbeat_at)


def _pinned(pin: str, seen_at: Moment | None) -> Sentence:
    seen = "which is not known" if seen_at is None else f"which was last heard of at {stamp(seen_at)}"
    data: Json = {"node": pin, "last_heard_at": None if seen_at is None else stamp(seen_at)}
    text = f"only the node {pin} may take it, {seen} and is not there"
    return Sentence("wait.pin", text, data, f"node: {pin}", f"start {pin} again, or cancel the run")


def _label(facts: Facts, names: list[str], judged: Sequence[Judged]) -> Sentence:
    run_labels, queue_labels = set(facts.standing.needs), set(facts.queue.labels)
    labels = sorted(run_labels | queue_labels)
    missing = sorted({*labels}.difference(*(one.node.labels for one in judged))) or labels
    of_queue = sorted(set(missing) & queue_labels - run_labels)
    policy = f"labels of the queue {facts.queue.name}: [{', '.join(of_queue)}]" if of_queue else _line("labels", labels)
    text = f"no agent that runs {facts.the_run.kind} work has the {_labels(missing)}"
    data = {"labels": labels, "missing": missing, "nodes": names}
    return Sentence("wait.label", text, data, policy, f"horae agent --label {missing[0]}")


def _never(facts: Facts, names: list[str], judged: Sequence[Judged]) -> Sentence:
    asks = facts.standing.demand.asks
    lack = resources.lack(
        asks, [{**resources.offers_of(one.node, facts.the_run.kind), **facts.shared} for one in judged]
    )
    data = {"asks": resources.render_resources(asks), "nodes": names}
    return Sentence(
        "wait.resources.never",
        f"it {lack}",
        data,
        _resources(asks),
        "ask for less in resources, or start a larger agent",
    )


def _resources_now(facts: Facts, names: list[str], judged: Sequence[Judged]) -> Sentence:
    asks = facts.standing.demand.asks
    free = "; ".join(f"{one.node.name}: {one.why}" for one in judged[:3])
    data = {"asks": resources.render_resources(asks), "nodes": names, "runs": facts.told(_runs_on(facts, names))[0]}
    text = f"it asks for {resources.show(asks)}, which nobody has free now ({free})"
    return Sentence("wait.resources", text, data, _resources(asks), "wait for a run to end, or start another agent")


def _slots(facts: Facts, names: list[str], judged: Sequence[Judged]) -> Sentence:
    runs, words = facts.told(_runs_on(facts, names))
    by = f", by runs {words}" if words else ""
    wanted = facts.standing.demand.slots
    what = "all slots of" if wanted == 1 else f"it takes {wanted} slots, and not so many are free on"
    text = (
        f"{what} {listed(names)} are busy{by}"
        if wanted == 1
        else f"{what} {listed(names)}{by and f': they are taken{by}'}"
    )
    return Sentence(
        "wait.slots", text, {"nodes": names, "runs": runs}, "slots", "wait, raise --slots, or start another agent"
    )


def _cordoned(facts: Facts, names: list[str], judged: Sequence[Judged]) -> Sentence:
    node = judged[0].node
    done = facts.who_made("node", node.name, "wanted", node.wanted)
    who = "an operator said so" if done is None else f"{done.who} said so of {node.name} at {stamp(done.at)}"
    text = f"{listed(names)} could run it, and {'takes' if len(names) == 1 else 'take'} nothing new: {who}"
    data = {"nodes": names, **by_whom(done)}
    return Sentence("wait.cordoned", text, data, f"wanted: {node.wanted}", f"horae nodes uncordon {names[0]}")


def _draining(facts: Facts, names: list[str], judged: Sequence[Judged]) -> Sentence:
    text = f"{listed(names)} could run it, and {'is' if len(names) == 1 else 'are'} going away"
    return Sentence("wait.draining", text, {"nodes": names}, unblock=f"start {names[0]} again, or another agent")


def _ailing(facts: Facts, names: list[str], judged: Sequence[Judged]) -> Sentence:
    text = f"{listed(names)} could run it, but its machine is short: {judged[0].node.ailment}"
    return Sentence(
        "wait.ailing", text, {"nodes": names, "ailment": judged[0].node.ailment}, unblock=f"make room on {names[0]}"
    )


_BY_BARRIER = {
    "kind": _kind, "pin": _pin, "label": _label, "never": _never, "resources": _resources_now, "slots": _slots,
    "cordoned": _cordoned, "draining": _draining, "ailing": _ailing,
}  # fmt: skip


def _each(facts: Facts, judged: Sequence[Judged]) -> list[Sentence]:
    """Each agent for itself; of very many, some."""
    return [
        Sentence(
            "agent.cannot",
            f"{one.node.name} cannot take it: {one.why}",
            {"node": one.node.name, "barrier": one.barrier},
        )
        if one.barrier
        else Sentence("agent.could", f"{one.node.name} could take it", {"node": one.node.name})
        for one in sorted(judged, key=lambda one: (bool(one.barrier), one.node.name))[:MOST_AGENTS]
    ]


MOST_AGENTS = 10  # that are named each for itself


def _runs_on(facts: Facts, names: Sequence[str]) -> list[tuple[int, int]]:
    return [(one.run_id, one.job_id) for one in facts.busy if one.node in names]


def _line(name: str, values: Sequence[str]) -> str:
    return f"{name}: [{', '.join(values)}]"


def _resources(asks: resources.Asks) -> str:
    return f"resources: {{{', '.join(f'{name}: {resources.show_amount(name, amount)}' for name, amount in asks)}}}"
