"""Who asks, and who there is: principals, users, sessions, members of organisations.

A user's name is a handle, unique in the installation: owners, members and grants speak of it. Who logs in by a provider
is known by (issuer, subject) alone, never by an address of mail: those are given to others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from horae.core.model import DEFAULT_ORG, Moment, Token
from horae.core.roles import Role, common, greatest

OPERATOR = "local"  # the name of whoever needs no login: the owner of what is made without one
EVERYWHERE = 0  # in place of an organisation: a member of all there are, as who runs the installation is


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks."""

    name: str
    org: int
    role: Role = Role.ADMIN
    user_id: int | None = None  # None: of no user that has an account
    via: str = OPERATOR  # what proves it: "local", "token 7", "session 12", "agent node-1"
    orgs: tuple[int, ...] = ()  # of which it is a member, where it may go on in another; EVERYWHERE for all of them

    @property
    def is_local(self) -> bool:
        """Whether it is the user who runs this server, from whom nothing of it is hidden."""
        return self.via == OPERATOR

    @property
    def bound_to(self) -> int | None:
        """The organisation beyond which nothing exists; None: nothing is hidden."""
        return None if self.is_local else self.org

    @property
    def scope(self) -> str:
        """Of the keys of idempotency that it chooses: another organisation may have somebody of the same name."""
        return self.name if self.org == DEFAULT_ORG else f"{self.org}/{self.name}"


LOCAL = Principal(OPERATOR, DEFAULT_ORG)  # whoever comes without a token, while only loopback is listened on


class UserKind(StrEnum):
    PERSON = "person"
    SERVICE = "service"  # a program: it cannot log in, and only owns tokens


@dataclass(frozen=True, slots=True)
class User:
    id: int
    name: str
    kind: UserKind = UserKind.PERSON
    created_at: Moment = 0
    email: str = ""  # for people to read; nobody is known by it
    password: str | None = None  # as argon2id wrote it; None: logs in otherwise
    disabled_at: Moment | None = None
    roles: Mapping[int, Role] = field(default_factory=dict)  # organisation → role; EVERYWHERE for all of them
    since: Mapping[int, Moment] = field(default_factory=dict)  # organisation → when it became a member

    @property
    def is_installer(self) -> bool:
        """Whether it is an admin of the installation."""
        return self.roles.get(EVERYWHERE) is Role.ADMIN

    def role_in(self, org: int) -> Role | None:
        """Return what it may do there; None: it is no member."""
        return greatest(role for at, role in self.roles.items() if at in (EVERYWHERE, org))

    def home(self) -> int | None:
        """Return the organisation that it comes into unless it says another: the one of which it has been a member for
        longest, so that nobody who adds it elsewhere changes where it acts. None: it is a member of none."""
        oldest = min(self.roles, key=lambda at: (self.since.get(at, 0), at == EVERYWHERE, at), default=None)
        return DEFAULT_ORG if oldest == EVERYWHERE else oldest


@dataclass(frozen=True, slots=True)
class Member:
    org: int
    user_id: int
    name: str
    role: Role
    source: str = "manual"  # or the issuer whose claims said so


@dataclass(frozen=True, slots=True)
class Organisation:
    id: int
    name: str
    created_at: Moment


@dataclass(frozen=True, slots=True)
class Session:
    """A login of a browser, as it is kept: of a user, or of a token that opened it."""

    id: int
    hash: str  # SHA-256 of the secret, hexadecimal
    created_at: Moment
    expires_at: Moment  # whatever happens
    token_id: int | None = None
    user_id: int | None = None
    org: int = DEFAULT_ORG
    seen_at: Moment = 0  # about when it was last used
    proven_at: Moment = 0  # when its user last proved to be there
    address: str = ""  # from where it was opened
    agent: str = ""  # with what
    issuer: str = ""  # of the provider that vouched for its user
    refresh: str | None = None  # what the provider renews it with, sealed
    refresh_at: Moment | None = None  # when that is due


@dataclass(frozen=True, slots=True)
class Device:
    """A program that asks to come in as whoever confirms its code in a browser (RFC 8628)."""

    id: int
    code: str  # that people type
    hash: str  # of the secret that the program has
    created_at: Moment
    expires_at: Moment
    address: str = ""  # from where it asked
    user_id: int | None = None  # who decided
    org: int = DEFAULT_ORG
    state: str = "pending"  # approved, denied, used


def role_of(token: Token, user: User | None, org: int) -> Role | None:
    """Return what may be done with a token in an organisation now: no more than its user still may; None: nothing."""
    if user is None:
        return token.role
    own = user.role_in(org) if user.disabled_at is None else None
    return None if own is None else common(own, token.role)
