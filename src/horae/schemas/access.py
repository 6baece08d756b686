"""Who may do what: users, sessions, tokens, grants; secrets, and who did what."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from horae.core import model
from horae.core.identity import UserKind
from horae.core.roles import ROLE_PATTERN
from horae.schemas.basics import Id, When


class Token(Struct):
    """A token, without its secret."""

    id: Id
    name: str
    scope: Annotated[str, Meta(extra_json_schema={"enum": list(model.SCOPES)})]
    owner: Annotated[str, Meta(description="Who owns what is made with it.")]
    state: Annotated[str, Meta(extra_json_schema={"enum": ["good", "expired", "revoked", "used"]})]
    created_at: When
    expires_at: When | None
    revoked_at: When | None
    parent_id: Annotated[Id | None, Meta(description="The token by which it was made, with which it ends.")]
    org: Annotated[int, Meta(description="The organisation of what is made and seen with it.")]
    role: Annotated[
        str | None,
        Meta(description="What may be done with it: a role, or a list of permissions. Null of an agent."),
    ]
    node: Annotated[
        str | None, Meta(description="The agent that it is for, `*` for any; of an agent without one, any.")
    ]
    kinds: Annotated[list[str] | None, Meta(description="What that agent may take; `*` is any.")]
    labels: Annotated[list[str] | None, Meta(description="What that agent may say to have; `*` is any.")]
    resources: Annotated[list[str] | None, Meta(description="What that agent may offer at most: gpu=2; `*` is any.")]
    by_hash: Annotated[
        bool,
        Meta(description="Of an agent, made by an earlier version: over NATS the hash of it in the database will do."),
    ]


class NewToken(Token):
    """A token that was just made. Its text is not shown again."""

    token: Annotated[str, Meta(description="What to send: Authorization: Bearer …")]


class Grant(Struct):
    """A role that somebody has on some jobs: of `job`, `tag` and `queue`, one says which."""

    id: int
    who: Annotated[str, Meta(description="The name of a user, or the owner of tokens.")]
    role: Annotated[str, Meta(extra_json_schema={"enum": ["operator", "editor"]})]
    job: int | None
    tag: str | None
    queue: str | None
    created_at: str
    created_by: str


class GrantPage(Struct):
    items: list[Grant]
    cursor: str | None = None


class TokenPage(Struct):
    items: list[Token]
    cursor: None = None


class Me(Struct):
    """Who asks."""

    name: str
    org: Annotated[int, Meta(description="The organisation of what is made and seen.")]
    role: Annotated[str, Meta(extra_json_schema={"pattern": ROLE_PATTERN})]
    via: Annotated[str, Meta(description="What proves it: local, token 7, session 12.")]
    user_id: Annotated[Id | None, Meta(description="Null of who has no account.")]
    orgs: Annotated[list[int], Meta(description="Organisations in which it may go on; 0: all of them.")]


class Session(Struct):
    """A login, without its secret."""

    id: Id
    org: int
    created_at: When
    seen_at: Annotated[When, Meta(description="About when it was last used.")]
    expires_at: Annotated[When, Meta(description="When it ends if nobody uses it any more.")]
    address: Annotated[str, Meta(description="From where it was opened.")]
    agent: Annotated[str, Meta(description="With what.")]
    issuer: Annotated[str, Meta(description="Who vouched for its user; empty for a password.")]
    is_current: Annotated[bool, Meta(description="Whether it is the one that asks.")]


class SessionPage(Struct):
    items: list[Session]
    cursor: None = None


class User(Struct):
    """Somebody who may log in, or a program."""

    id: Id
    name: str
    kind: Annotated[str, Meta(extra_json_schema={"enum": list(UserKind)})]
    email: str
    state: Annotated[str, Meta(extra_json_schema={"enum": ["good", "disabled"]})]
    created_at: When
    roles: Annotated[dict[str, str], Meta(description="Role by organisation; `*` stands for all of them.")]


class UserPage(Struct):
    items: list[User]
    cursor: str | None = None


class Invitation(Struct):
    """What somebody sets a password with, once. It is not shown again."""

    user: str
    link: Annotated[str, Meta(description="The page to open; only its path where nobody said how it is reached.")]
    expires_in: Annotated[int, Meta(description="Seconds.")]


class Organisation(Struct):
    id: Id
    name: str
    created_at: When
    most_waiting: Annotated[int | None, Meta(description="Runs that may wait; null: any number.")]
    most_jobs: Annotated[int | None, Meta(description="Jobs that there may be; null: any number.")]


class OrganisationPage(Struct):
    items: list[Organisation]
    cursor: None = None


class Member(Struct):
    name: str
    role: Annotated[str, Meta(extra_json_schema={"pattern": ROLE_PATTERN})]
    source: Annotated[str, Meta(description="`manual`, or the issuer whose claims said so.")]


class MemberPage(Struct):
    items: list[Member]
    cursor: None = None


class DeviceLogin(Struct):
    """A program that waits to be let in (RFC 8628)."""

    device_code: Annotated[str, Meta(description="For the program itself.")]
    user_code: Annotated[str, Meta(description="For the user to type.")]
    verification_uri: Annotated[str, Meta(description="Where to type it.")]
    expires_in: Annotated[int, Meta(description="Seconds.")]
    interval: Annotated[int, Meta(description="Seconds between two questions.")]


class AuditRow(Struct):
    """What somebody did, was refused, or was given."""

    id: Id
    at: When
    org: int
    who: Annotated[str, Meta(description="Name of who asked; empty: a stranger, or Horae itself.")]
    via: Annotated[str, Meta(description="What proved it: local, a token, a session, an agent.")]
    address: Annotated[str, Meta(description="From where.")]
    action: Annotated[str, Meta(description="The permission that it needs.")]
    operation: str
    kind: Annotated[str, Meta(description="Of what it was done to.")]
    subject: Annotated[str, Meta(description="Its id or name.")]
    made: Annotated[str, Meta(description="Ids of what was made: one, or the first and the last.")]
    count: int
    change: Annotated[Any, Meta(description="What is different: path → [before, after]. Secrets are left out.")]
    request_id: str
    nth: Annotated[int, Meta(description="Row of the request, from 0.")]
    outcome: Annotated[str, Meta(extra_json_schema={"enum": ["done", "failed", "refused", "read"]})]
    code: Annotated[str, Meta(description="Of the error.")]
    seq: Annotated[int | None, Meta(description="Its number, once it is sealed.")]
    hash: Annotated[str | None, Meta(description="Of the row and the hash of the one before it.")]


class AuditPage(Struct):
    items: list[AuditRow]
    cursor: str | None


class AuditFault(Struct):
    """Where the chain of the audit log is broken."""

    seq: int
    what: Annotated[str, Meta(extra_json_schema={"enum": ["missing", "changed", "inserted"]})]
    id: int | None
    message: str


class AuditCheck(Struct):
    """What was found in the next rows of the audit log."""

    checked: int
    faults: list[AuditFault]
    first: Annotated[int, Meta(description="Number of the first row that is kept.")]
    head: Annotated[str, Meta(description="Number and hash of the last sealed row, to be written down elsewhere.")]
    cursor: Annotated[str | None, Meta(description="Where to go on; null: that was all.")]


class Secret(Struct):
    """A secret, without its value."""

    name: str
    version: Annotated[int, Meta(ge=1, description="How often it was set.")]
    created_at: When
    updated_at: When


class SecretPage(Struct):
    items: list[Secret]
    cursor: None = None


class KeyRotation(Struct):
    key: str
    resealed: int
    unopened: int
    old: list[str]
