"""What somebody may do: by the role in an organisation, and by what was granted beyond it.

A grant gives a role on some jobs of an organisation: on one, on those with a tag, or on those of a queue. It only adds;
who asks must be let into the organisation first. What is not about a job is a matter of the role alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from horae.core.identity import User
from horae.core.model import DEFAULT_ORG, Moment, Policy
from horae.core.roles import PERMISSIONS, Permission, Role, least_role
from horae.errors import Denied

BARRED = "the owner of its job may not run it any more"  # the message of a run that ends by this


class Member(Protocol):
    """Somebody, in the organisation for which it speaks."""

    @property
    def org(self) -> int: ...

    @property
    def role(self) -> Role: ...


class Grant(NamedTuple):
    """A role that somebody has on some jobs: of job, tag and queue, one says which."""

    id: int
    org: int
    who: str  # by name
    role: Role
    job_id: int | None = None
    tag: str | None = None
    queue: str | None = None
    created_at: Moment = 0
    created_by: str = ""


class Granted:
    """What somebody was granted, so that asking takes as long for a thousand grants as for one."""

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._jobs: dict[int, frozenset[Permission]] = {}
        self._tags: dict[str, frozenset[Permission]] = {}
        self._queues: dict[str, frozenset[Permission]] = {}
        for grant in grants:
            given = PERMISSIONS[grant.role]
            if grant.job_id is not None:
                self._jobs[grant.job_id] = self._jobs.get(grant.job_id, _NOTHING) | given
            elif grant.tag is not None:
                self._tags[grant.tag] = self._tags.get(grant.tag, _NOTHING) | given
            elif grant.queue is not None:
                self._queues[grant.queue] = self._queues.get(grant.queue, _NOTHING) | given

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Granted) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def has(self, needed: Permission, job_id: int, policy: Policy) -> bool:
        """Return whether one of the grants has a permission on a job of the organisation."""
        if needed in self._jobs.get(job_id, _NOTHING) or needed in self._queues.get(policy.queue, _NOTHING):
            return True
        for tag in policy.tags if self._tags else ():  # noqa: SIM110 - a generator costs more than all the rest
            if needed in self._tags.get(tag, _NOTHING):
                return True
        return False


_NOTHING: frozenset[Permission] = frozenset()
_OF_JOBS = PERMISSIONS[Role.EDITOR]


def may(who: Member, needed: Permission) -> bool:
    """Return whether the role of somebody has a permission, whatever it is about."""
    return needed in PERMISSIONS[who.role] and (needed is not Permission.CLUSTER or who.org == DEFAULT_ORG)


def may_run(owner: User, granted: Granted, org: int, job_id: int, policy: Policy) -> bool:
    """Return whether the owner of a job may run it, now."""
    role = owner.role_in(org) if owner.disabled_at is None else None
    if role is None:
        return False  # who is let in nowhere has no use of grants
    return Permission.RUN in PERMISSIONS[role] or granted.has(Permission.RUN, job_id, policy)


def is_of_job(needed: Permission) -> bool:
    """Return whether a grant could give it: admins of a few jobs there are not."""
    return needed in _OF_JOBS


def refuse_without(who: Member, needed: Permission) -> None:
    """Denied to whoever lacks the permission."""
    if needed not in PERMISSIONS[who.role]:
        least = least_role(needed)
        raise Denied(
            f"this needs the permission {needed}, which the role {who.role} does not have",
            code="E_ROLE",
            hint=f"use a token with the role {least}: `horae token create NAME --role {least}`",
        )
    if needed is Permission.CLUSTER and who.org != DEFAULT_ORG:
        raise Denied(
            f"this needs the permission {needed}, which only admins of organisation {DEFAULT_ORG} have: "
            "what it changes belongs to the whole installation",
            code="E_INSTALLATION",
            hint=f"ask an admin of organisation {DEFAULT_ORG}",
        )
