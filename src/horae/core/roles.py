"""What each role may do.

    viewer     look
    operator   and run, cancel, pause, signal, approve and acknowledge, and work on runs from outside
    editor     and make, change and delete jobs, triggers, sources, secrets, and rules and channels of alerts
    admin      and what belongs to all: queues, resources, nodes, tokens, keys

A role has all that the one before it has. Every operation and every call of a contract declares the one permission that
it needs; whoever may not is told which role would.
"""

from __future__ import annotations

from enum import StrEnum

from horae.errors import Denied


class Permission(StrEnum):
    """What somebody may do."""

    READ = "read"
    RUN = "runs.start"  # run-now, rerun, retry, signals, approvals
    CANCEL = "runs.cancel"
    PAUSE = "jobs.pause"
    WORK = "runs.work"  # pull runs and report on them, as a worker of another system
    ACKNOWLEDGE = "alerts.ack"
    WRITE = "jobs.write"
    ALERTS = "alerts.write"  # rules and channels
    SECRETS = "secrets.write"
    CLUSTER = "cluster.write"  # queues, resources, nodes, segments
    TOKENS = "tokens.write"


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"


_MORE: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.READ}),
    Role.OPERATOR: frozenset(
        {Permission.RUN, Permission.CANCEL, Permission.PAUSE, Permission.WORK, Permission.ACKNOWLEDGE}
    ),
    Role.EDITOR: frozenset({Permission.WRITE, Permission.SECRETS, Permission.ALERTS}),
    Role.ADMIN: frozenset({Permission.CLUSTER, Permission.TOKENS}),
}
_ORDER = tuple(_MORE)
PERMISSIONS: dict[Role, frozenset[Permission]] = {
    role: frozenset().union(*(_MORE[lesser] for lesser in _ORDER[: place + 1])) for place, role in enumerate(_ORDER)
}


def least_role(permission: Permission) -> Role:
    """Return the first role that has it."""
    return next(role for role in _ORDER if permission in PERMISSIONS[role])


def is_within(role: Role, other: Role) -> bool:
    """Return whether a role has nothing that the other lacks."""
    return PERMISSIONS[role] <= PERMISSIONS[other]


def refuse_without(role: Role, needed: Permission) -> None:
    """Denied to a role that lacks the permission."""
    if needed not in PERMISSIONS[role]:
        least = least_role(needed)
        raise Denied(
            f"this needs the permission {needed}, which the role {role} does not have",
            code="E_ROLE",
            hint=f"use a token with the role {least}: `horae token create NAME --role {least}`",
        )
