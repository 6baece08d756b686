"""Members of the cluster, for who looks at them: Horae's own processes, and those that registered by HTTP.

An agent belongs to the organisation of its token, which a label says that its server gives it, and takes from queues of
that one alone; those of the first organisation are the installation's, and take from all.

Both are nodes. One that registered has a role and a name that say so (`worker-1@scheduler`); nodes of Horae have no @
in their names. Whoever asks sees members, by the name under which they are known: a process and a registration of one
name are one member.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Literal, NamedTuple

from horae.core.model import DEFAULT_ORG, SECOND, Moment, Node, NodeState, OperatorWish

Role = Literal["scheduler", "agent", "coordinator"]
PREFIX = "outside-"  # of the role of a node that is not Horae's
_AT = "@"
_ORG = re.compile(r"org=([0-9]+)")  # the label that names the organisation of a member


class Life(IntEnum):
    """How a member is, best first."""

    ONLINE = 0
    RESERVED = 1  # it lives, and takes nothing new
    SILENT = 2  # nothing was heard of it for too long, or somebody found it ill
    LEFT = 3  # it said that it goes


class Member(NamedTuple):
    node: Node
    life: Life
    load: int = 0  # runs that it has now

    @property
    def name(self) -> str:
        return plain_name(self.node.name)


def node_name(role: Role, name: str) -> str:
    return f"{name}{_AT}{role}"


def plain_name(node: str) -> str:
    """Return the name under which a member is known."""
    return node.rpartition(_AT)[0] or node


def is_external(node: Node) -> bool:
    return any(role.startswith(PREFIX) for role in node.roles)


def org_in(labels: Iterable[str]) -> int | None:
    """Return the organisation that labels name; None: they name none."""
    return next((int(found[1]) for label in labels if (found := _ORG.fullmatch(label))), None)


def org_of(node: Node) -> int:
    """Return for which organisation a member works that registered."""
    return org_in(node.labels) or DEFAULT_ORG


def owner_of(node: Node) -> int | None:
    """Return to which organisation a node belongs; None: to the installation, as servers do, and agents that work for
    all."""
    return org_of(node) if is_external(node) else org_in(node.labels)


def is_for(node: Node, org: int | None) -> bool:
    """Return whether an organisation sees a node: its own, and those of the installation. None sees every one."""
    return org is None or owner_of(node) in (None, org)


def serves(node: Node, queue_org: int | None) -> bool:
    """Return whether an agent takes from queues of this organisation; None: from those of the installation. One that
    belongs to an organisation takes from its own queues alone."""
    return org_in(node.labels) in (None, queue_org)


def is_org_label(label: str) -> bool:
    """Return whether it is for servers to give, by the token that a node has shown."""
    return _ORG.fullmatch(label) is not None


def org_label(org: int) -> str:
    return f"org={org}"


def is_external_name(node: str) -> bool:
    return _AT in node


def has_role(node: Node, role: Role) -> bool:
    return role in node.roles or PREFIX + role in node.roles


def life_of(node: Node, now: Moment, patience: float) -> Life:
    """`patience`: seconds for which it may be silent, by the store's clock. One of Horae's own that said goodbye has
    no process that holds its name; one that registered is not wanted any more."""
    if node.state == NodeState.GONE:
        said_so = not is_external(node) and not node.holder
        return Life.LEFT if said_so or node.wanted == OperatorWish.DRAINED else Life.SILENT
    if now - node.heartbeat_at > round(patience * SECOND):
        return Life.SILENT
    is_free = node.state == NodeState.LIVE and node.wanted == OperatorWish.LIVE
    return Life.ONLINE if is_free else Life.RESERVED


def merge(seen: Iterable[Member]) -> list[Member]:
    """One of each name: the livelier, of equals Horae's own; by name."""
    best: dict[str, Member] = {}
    for member in sorted(seen, key=lambda one: (one.life, is_external(one.node))):
        best.setdefault(member.name, member)
    return [best[name] for name in sorted(best)]


def holders(
    owners: Mapping[int, str], taken: Mapping[int, str], told: Collection[str], alive: Collection[str]
) -> dict[int, str]:
    """Segment → name of the member that holds it.

    `taken` are segments that were given to a member by name, `told` the members that were ever told which are theirs,
    `alive` those that may hold any. What nobody alive was given is with the node of Horae that fires it (`owners`);
    but who was told holds nothing else, though it goes on firing what nobody holds.
    """
    held = {segment: name for segment, name in taken.items() if name in alive}
    rest = {
        segment: owner
        for segment, owner in owners.items()
        if segment not in held and owner in alive and owner not in told
    }
    return dict(sorted({**rest, **held}.items()))
