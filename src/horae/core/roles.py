"""What each role may do.

    viewer     look, and read logs and files of runs
    operator   and run, cancel, pause, signal, approve and acknowledge, and work on runs from outside
    editor     and make, change and delete jobs, triggers, sources, secrets, and rules and channels of alerts
    admin      and queues, agents, tokens, users, members and grants of the organisation, and its audit log

    runs.start+runs.cancel+read     or a list of permissions, where none of these fits

A role of the four has all that the one before it has, and counts in one organisation. What belongs to all of them
(queues and agents for all, resources, servers, segments, keys) is the installation's: whoever is admin of the first
organisation may change it.
Every operation and every call of a contract declares the one permission that it needs; whoever may not is told which
role would (core.rights).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

SEPARATOR = "+"  # of the permissions in a list


class Permission(StrEnum):
    """What somebody may do."""

    __hash__ = str.__hash__  # that of enumerations is ten times as slow, and every request asks

    READ = "read"
    LOGS = "logs.read"  # and the files that runs leave
    RUN = "runs.start"  # run-now, rerun, retry, signals, approvals
    CANCEL = "runs.cancel"
    PAUSE = "jobs.pause"
    WORK = "runs.work"  # pull runs and report on them, as a worker of another system
    ACKNOWLEDGE = "alerts.ack"
    WRITE = "jobs.write"
    ALERTS = "alerts.write"  # rules and channels
    SECRETS = "secrets.write"
    QUEUES = "queues.write"  # queues of the organisation
    NODES = "nodes.write"  # agents of the organisation
    CLUSTER = "cluster.write"  # queues, resources, nodes, segments: of the installation
    TOKENS = "tokens.write"
    USERS = "users.write"  # users, organisations and their members
    AUDIT = "audit.read"
    GRANTS = "grants.write"


class Role(StrEnum):
    """One of four, or a list of permissions: equal lists are the same role, however they were written."""

    __hash__ = str.__hash__

    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"

    @classmethod
    def _missing_(cls, value: object) -> Role | None:
        words = value.split(SEPARATOR) if isinstance(value, str) and len(value) <= LONGEST else [""]
        try:
            given = frozenset(map(Permission, words))
        except ValueError:
            return None
        return _role_with(given)


LONGEST = len(SEPARATOR.join(Permission))  # letters of all of them, once


_MORE: dict[Role, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.READ, Permission.LOGS}),
    Role.OPERATOR: frozenset(
        {Permission.RUN, Permission.CANCEL, Permission.PAUSE, Permission.WORK, Permission.ACKNOWLEDGE}
    ),
    Role.EDITOR: frozenset({Permission.WRITE, Permission.SECRETS, Permission.ALERTS}),
    Role.ADMIN: frozenset(
        {
            Permission.QUEUES,
            Permission.NODES,
            Permission.CLUSTER,
            Permission.TOKENS,
            Permission.USERS,
            Permission.AUDIT,
            Permission.GRANTS,
        }
    ),
}
_ORDER = tuple(_MORE)
PERMISSIONS: dict[Role, frozenset[Permission]] = {
    role: frozenset().union(*(_MORE[lesser] for lesser in _ORDER[: place + 1])) for place, role in enumerate(_ORDER)
}
_LISTS: dict[frozenset[Permission], Role] = {given: role for role, given in PERMISSIONS.items()}
ROLE_WORDS = f"one of {', '.join(_ORDER)}, or permissions such as {Permission.READ}{SEPARATOR}{Permission.RUN}"


_PERMISSION = "(?:" + "|".join(permission.replace(".", r"\.") for permission in Permission) + ")"
ROLE_PATTERN = rf"^(?:{'|'.join(_ORDER)}|{_PERMISSION}(?:\{SEPARATOR}{_PERMISSION})*)$"


def _role_with(given: frozenset[Permission]) -> Role:
    """Return the role that has these permissions; there are as many as there are sets of permissions."""
    if given not in _LISTS:
        text = SEPARATOR.join(permission for permission in Permission if permission in given)
        made = str.__new__(Role, text)
        made._name_ = made._value_ = text
        PERMISSIONS[made] = given
        _LISTS[given] = made
    return _LISTS[given]


def read_role(text: str) -> Role | None:
    """Return the role of a text; None: it is none."""
    try:
        return Role(text)
    except ValueError:
        return None


def least_role(permission: Permission) -> Role:
    """Return the first role that has it."""
    return next(role for role in _ORDER if permission in PERMISSIONS[role])


def greatest(roles: Iterable[Role]) -> Role | None:
    """Return the role that may do what any of them may; None where there is none."""
    given = [PERMISSIONS[role] for role in roles]
    return _role_with(frozenset().union(*given)) if given else None


def common(role: Role, other: Role) -> Role | None:
    """Return the role that may do what both may; None: that is nothing."""
    both = PERMISSIONS[role] & PERMISSIONS[other]
    return _role_with(both) if both else None


def is_within(role: Role, other: Role) -> bool:
    """Return whether a role has nothing that the other lacks."""
    return PERMISSIONS[role] <= PERMISSIONS[other]
