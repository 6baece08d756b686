"""What each role may do.

    viewer     look
    operator   and run, cancel, pause, signal, approve and acknowledge, and work on runs from outside
    editor     and make, change and delete jobs, triggers, sources, secrets, and rules and channels of alerts
    admin      and tokens, users, members and grants of the organisation, and its audit log

A role has all that the one before it has, and counts in one organisation. What belongs to all of them (queues,
resources, nodes, segments, keys) is the installation's: whoever is admin of the first organisation may change it.
Every operation and every call of a contract declares the one permission that it needs; whoever may not is told which
role would (core.rights).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Permission(StrEnum):
    """What somebody may do."""

    __hash__ = str.__hash__  # that of enumerations is ten times as slow, and every request asks

    READ = "read"
    RUN = "runs.start"  # run-now, rerun, retry, signals, approvals
    CANCEL = "runs.cancel"
    PAUSE = "jobs.pause"
    WORK = "runs.work"  # pull runs and report on them, as a worker of another system
    ACKNOWLEDGE = "alerts.ack"
    WRITE = "jobs.write"
    ALERTS = "alerts.write"  # rules and channels
    SECRETS = "secrets.write"
    CLUSTER = "cluster.write"  # queues, resources, nodes, segments: of the installation
    TOKENS = "tokens.write"
    USERS = "users.write"  # users, organisations and their members
    AUDIT = "audit.read"
    GRANTS = "grants.write"


class Role(StrEnum):
    __hash__ = str.__hash__

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
    Role.ADMIN: frozenset(
        {Permission.CLUSTER, Permission.TOKENS, Permission.USERS, Permission.AUDIT, Permission.GRANTS}
    ),
}
_ORDER = tuple(_MORE)
PERMISSIONS: dict[Role, frozenset[Permission]] = {
    role: frozenset().union(*(_MORE[lesser] for lesser in _ORDER[: place + 1])) for place, role in enumerate(_ORDER)
}


def least_role(permission: Permission) -> Role:
    """Return the first role that has it."""
    return next(role for role in _ORDER if permission in PERMISSIONS[role])


def greatest(roles: Iterable[Role]) -> Role | None:
    """Return the one of them that may do most; None where there is none."""
    return max(roles, key=_ORDER.index, default=None)


def is_within(role: Role, other: Role) -> bool:
    """Return whether a role has nothing that the other lacks."""
    return PERMISSIONS[role] <= PERMISSIONS[other]
