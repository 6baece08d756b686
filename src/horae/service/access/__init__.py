"""Who may come in: bearer tokens, made here, shown once, kept as hashes, those of agents as verifiers; and sessions, of
a token or of a user.

What must stay true:
- A wrong secret, an unknown id, a revoked and an expired token are refused in the same words.
- What the store says of a token, a session or a user is believed for `CACHE_SECONDS`: so a check costs no query per
  request, and what is revoked or disabled on one node is refused by every other after that time at the latest (by this
  one at once).
- Without the store nobody new is let in: the check raises Unavailable.
- Strangers cost little: after `TRIES` wrong tokens within `WINDOW` seconds, a peer's tokens are looked up only
  if they were known before. So those who share its address and work already go on working. Memory is bounded.
- The secret of an agent that joined by itself is replaced now and then: the one before is good until the new one was
  used once (agents.py).
- A token that was made by another has its owner, may do no more, and ends with it; so does a session. The token of a
  user may do no more than that user, now.
- No secret is logged, and what the store keeps of one of now is good for nothing but to know it again.

Expiry is judged by this node's clock, revocation needs none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from horae.core.identity import EVERYWHERE, LOCAL, Principal, Session, User, UserKind, role_of
from horae.core.model import DEFAULT_ORG, JOIN, LARGEST_ORG, SECOND, Bounds, Moment, Token
from horae.core.roles import Role, is_within
from horae.errors import Conflict, Denied, NotFound, Unauthenticated, evicted
from horae.ports import deeds
from horae.ports.clock import Clock
from horae.ports.store.cluster import Nodes
from horae.ports.store.moments import StoreClock
from horae.ports.store.tokens import Tokens
from horae.ports.store.users import Organisations, Users
from horae.ports.store.users import Sessions as SessionStore
from horae.service.access.credentials import (
    CACHED,
    NO_HASH,
    Believed,
    Guessers,
    Known,
    digest_of,
    is_secret_of,
    keep,
    kept_of,
    new_secret,
    parts_of,
    text_of,
)
from horae.service.access.rates import Rates
from horae.service.access.sessions import LOOK_UP_SECONDS, NOWHERE, Limits, Origin, Sessions
from horae.service.access.wanted import Wanted
from horae.service.patience import within
from horae.wire.nats.proofs import Proof

SESSION = "session"  # the scope of what is open to those who logged in, too
HOW_TO_LOG_IN = (
    "log in with `horae login`, or give a token with --token-file or HORAE_TOKEN (over HTTP: Authorization: "
    "Bearer …); `horae token create NAME` makes one"
)

log = structlog.get_logger(__name__)


class AccessStore(Tokens, Nodes, Users, Organisations, SessionStore, StoreClock, Protocol):
    """Who may come in, and until when."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who was let in, and by what."""

    who: Principal
    token: Token | None = None
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class _Proof:
    """Who was let in by a token, for as long as what that was judged by is believed."""

    admitted: Admitted
    token_id: int
    token: Known[Token]
    user_id: int
    user: Known[User] | None  # None: it is of no user
    until: float  # by what has elapsed here
    expires_at: Moment | None


class Access:
    def __init__(
        self, store: AccessStore, clock: Clock, limits: Limits | None = None, *, request_rate: float = 0
    ) -> None:
        """`request_rate` is what one user may ask for in a second; 0: any number."""
        self._store = store
        self._clock = clock
        self._guessers = Guessers(clock)
        self._known: Believed[Token] = Believed(clock)
        self._users: Believed[User] = Believed(clock)
        self._orgs: Believed[dict[str, int]] = Believed(clock)  # 0 → name → number
        self._proofs: dict[bytes, _Proof] = {}  # by the hash of the text of a user's token
        self.rates = Rates(clock, request_rate)
        self.sessions = Sessions(store, clock, self._guessers, limits or Limits())

    # ── making and ending ──

    async def issue(
        self, wanted: Wanted, parent: Token | None = None, who: Principal | None = None
    ) -> tuple[Token, str]:
        """As create, for somebody who came with a token, as a user, or, where neither is needed, with nothing."""
        if who is None:
            who = LOCAL if parent is None else _principal(parent, parent.role)
        org, role = await self._refuse_more(wanted, who)
        owner = wanted.owner or (wanted.name if who.is_local else who.name)
        return await self.create(wanted.name, wanted.scope, owner, wanted.expires_in, parent, wanted.bounds, org, role)

    async def _refuse_more(self, wanted: Wanted, who: Principal) -> tuple[int, Role]:
        """Return the organisation and the role of what may be made; Denied when somebody wants more than is theirs."""
        org, role = wanted.org or who.org, wanted.role or who.role
        if who.is_local:
            return org, role
        if wanted.owner not in (None, who.name) and not await self._is_service_in(wanted.owner, who):
            raise Denied(
                f"a token that is made by a token has its owner: {who.name} expected, got {wanted.owner}",
                code="E_TOKEN_OWNER",
                hint="leave the owner out, name a service account of your organisation, or make the token on the "
                "server's own machine: `horae token create`",
            )
        if org != who.org:
            raise Denied(
                f"a token that is made by a token has its organisation: {who.org} expected, got {org}",
                code="E_TOKEN_ORG",
                hint="leave org out, or make the token on the server's own machine: `horae token create NAME --org N`",
            )
        if not is_within(role, who.role):
            raise Denied(
                f"a token that is made by a token may do no more than it: {who.role} or less expected, got {role}",
                code="E_TOKEN_ROLE",
                hint=f"leave the role out, or ask for {who.role}",
            )
        return org, role

    async def _is_service_in(self, name: str | None, who: Principal) -> bool:
        """Return whether it is a program that whoever asks is an admin of."""
        user = await self._store.find_user(name or "")
        return (
            user is not None
            and user.kind is UserKind.SERVICE
            and who.role is Role.ADMIN
            and user.role_in(who.org) is not None
        )

    async def create(
        self, name: str, scope: str, owner: str, expires_in: float | None, parent: Token | None = None,
        bounds: Bounds | None = None, org: int = DEFAULT_ORG, role: Role = Role.ADMIN,
    ) -> tuple[Token, str]:  # fmt: skip
        """Return a new token and its text, which nobody can ask for again. `expires_in` is in seconds; None: never. A
        user's does not outlive the token by which it is made. Where its owner has an account, it is bound to that."""
        kind = scope[0]
        secret = new_secret(kind)
        now = await self._store.now()
        ends = [now + round(expires_in * SECOND)] if expires_in is not None else []
        if parent is not None and parent.expires_at is not None and scope == "user":
            ends.append(parent.expires_at)
        parent_id = parent.id if parent else None
        user = await self._store.find_user(owner) if scope == "user" else None
        told = {"name": name, "scope": scope, "owner": owner, "org": org, "role": role, "expires_in": expires_in}
        deeds.note_change(None, told)
        token = await self._store.add_token(
            Token(
                id=0,
                name=name,
                scope=scope,
                owner=owner,
                hash=kept_of(kind, secret),
                created_at=now,
                expires_at=min(ends, default=None),
                parent_id=parent_id,
                bounds=bounds,
                org=org,
                role=role,
                user_id=user.id if user else None,
            )
        )
        self._known.forget(token.id)  # somebody may have asked for this id before it was given
        log.info("token.created", id=token.id, name=name, scope=scope, owner=owner, org=org, role=role, by=parent_id)
        return token, text_of(kind, token.id, secret)

    async def open_session(self, token: Token, origin: Origin = NOWHERE) -> str:
        """Return the text of a session that ends with its token."""
        return await self.sessions.open(token, origin)

    async def list(self, who: Principal = LOCAL) -> list[Token]:
        """Every token there ever was, newest first; of those of an organisation, to whoever is bound to it."""
        return [token for token in await self._store.list_tokens() if _is_seen(token, who)]

    async def revoke(self, token_id: int, who: Principal = LOCAL) -> Token:
        """Those of other organisations do not exist for who is bound to one."""
        found = await self._store.get_token(token_id)
        is_other = found is None or not _is_seen(found, who)
        deeds.note_change({"state": "good"}, {"state": "revoked"})
        token = None if is_other else await self._store.revoke_token(token_id, await self._store.now())
        if token is None:
            raise NotFound(f"there is no token {token_id}", hint="`horae token list` lists them")
        self._known.doubt(lambda known: known.parent_id is not None)  # whatever it made has ended with it, here at once
        self._known.put(token_id, token, self._known.ask())
        log.info("token.revoked", id=token.id, name=token.name, scope=token.scope, owner=token.owner)
        return token

    def doubt_agents(self) -> None:
        """Tokens of agents have changed: here it counts at once."""
        self._known.doubt(lambda token: token.scope != "user")

    def doubt_user(self, user_id: int) -> None:
        """What is known of a user has changed: here it counts at once."""
        self._users.doubt(lambda user: user.id == user_id)

    def doubt_organisation(self, org: int) -> None:
        """Its name, or everything of it, has changed: here it counts at once."""
        self._orgs.forget(EVERYWHERE)
        self._known.doubt(lambda token: token.org in (org, EVERYWHERE) or token.parent_id is not None)
        self._users.doubt(lambda user: org in user.roles)
        self.sessions.doubt_organisation(org)

    async def has_login(self) -> bool:
        """Return whether anybody could come in: there is a user token that is good now, or a user."""
        if await self._store.has_person():
            return True
        return any(
            token.scope == "user" and self.state_of(token) == "good" for token in await self._store.list_tokens()
        )

    def state_of(self, token: Token) -> str:
        """good, expired, revoked, or, of one to join by, used."""
        if token.revoked_at is not None:
            return "revoked"
        if token.used_at is not None:
            return "used"
        return "good" if token.expires_at is None or self._clock.now() < token.expires_at else "expired"

    # ── checking ──

    async def check(self, text: str | None, scope: str, peer: str = "") -> Token:
        """As admit, of what came with a token, or with the session of one."""
        admitted = await self.admit(text, scope, peer)
        if admitted.token is None:
            raise _refused(scope)
        return admitted.token

    async def admit(self, text: str | None, scope: str, peer: str = "", org: str | None = None) -> Admitted:
        """Return whose a request is by what it came with, if that is good for this scope; for the scope `session` that
        is also a session. `org` names the organisation in which to act, by name or number.

        Unauthenticated when there is none or it is not good, Denied when it is good for another scope or another
        organisation, Limited when this peer (its address) was wrong too often.
        """
        if text is None:  # nothing was tried, so nothing is counted
            raise _refused(scope)
        is_plain = scope == "user" and org is None
        by = digest_of(text) if is_plain else b""
        if is_plain and (before := self._proofs.get(by)) is not None and self._holds(before):
            return before.admitted
        admitted = await self._prove(text, scope, peer, org)
        if admitted is None:
            self._guessers.count(peer)
            raise _refused(scope)
        if is_plain:
            self._keep_proof(by, admitted)
        return admitted

    def _holds(self, proof: _Proof) -> bool:
        """Return whether all that somebody was let in by is still believed: programs ask a thousand times a second."""
        return (
            self._clock.elapsed() < proof.until
            and self._known.find(proof.token_id) is proof.token
            and (proof.user is None or self._users.find(proof.user_id) is proof.user)
            and (proof.expires_at is None or self._clock.now() < proof.expires_at)
        )

    def _keep_proof(self, by: bytes, admitted: Admitted) -> None:
        token = admitted.token
        if token is None or self.state_of(token) != "good":
            return
        known, user_id = self._known.find(token.id), token.user_id
        user = None if user_id is None else self._users.find(user_id)
        if known is None or known.value is not token or (user_id is not None and user is None):
            return  # something has changed meanwhile
        until = min(self._known.until(known), math.inf if user is None else self._users.until(user))
        self._proofs.pop(by, None)  # the newest stands last
        self._proofs[by] = _Proof(admitted, token.id, known, user_id or 0, user, until, token.expires_at)
        keep(self._proofs, CACHED)

    async def _prove(self, text: str, scope: str, peer: str, org: str | None) -> Admitted | None:
        """An unknown id takes as long as a wrong secret."""
        parts = parts_of(text)
        if parts is None:
            return None
        kind, number, secret = parts
        if kind == "s":
            return await self._prove_session(number, secret, peer, org) if scope == SESSION else None
        token = await self._find(number, peer, lambda kept: is_secret_of(secret, kept, kind))
        if token is None or token.scope[0] != kind:
            return None
        if scope in (token.scope, JOIN):
            await self._refuse_evicted(token)
        if self.state_of(token) == "good" and token.scope != ("user" if scope == SESSION else scope):
            raise Denied(
                f"this token is for {_USE[token.scope]}, not for {_USE[scope]}",
                code="E_TOKEN_SCOPE",
                hint=f"make one with `horae token create NAME{' --agent NODE' if scope == 'agent' else ''}`",
            )
        return await self._of_token(token, org)

    async def _find(self, token_id: int, peer: str, is_right: Callable[[str], bool]) -> Token | None:
        """Return the token, with what is kept of it and is right: of an agent, that may be the next, which takes the
        place of the other by being used; and what is remembered of that may be too old to know it."""
        token = _with_right(await self._look_up(token_id, peer), is_right)
        known = self._known.find(token_id)
        if token is None and known is not None and known.value is not None and known.value.renewed_at is not None:
            self._guessers.refuse(peer)
            self._known.forget(token_id)
            token = _with_right(await self._look_up(token_id, peer), is_right)
        if token is not None and token.hash == token.next_hash:
            token = replace(token, next_hash=None, renewed_at=await self._store.now())
            await self._store.confirm_token(token.id, token.hash, token.renewed_at or 0)
            self._known.forget(token.id)
            log.info("credential.renewed", id=token.id, name=token.name)
        return token

    async def _refuse_evicted(self, token: Token) -> None:
        """Whoever has the right secret may know why it is good no more."""
        if token.revoked_at is None or token.bounds is None:
            return
        node = await within(LOOK_UP_SECONDS, self._store.get_node(token.bounds.node))
        if node is not None and node.evicted_at is not None:
            raise evicted(node.name)

    async def _of_token(self, token: Token, wanted: str | None, chosen: int = EVERYWHERE) -> Admitted | None:
        """`chosen` is the organisation that a session of the token remembers."""
        if self.state_of(token) not in ("good", "used"):
            return None
        user = None
        if token.user_id is not None:
            user = await self._user(token.user_id)
            if user is None:
                return None
        org = await self._org_of(token.org, user, wanted, chosen)
        role = None if org is None else role_of(token, user, org)
        if org is None or role is None:
            return None
        orgs = tuple(sorted(user.roles)) if user is not None and token.org == EVERYWHERE else ()
        return Admitted(replace(_principal(token, role), org=org, orgs=orgs), token)

    async def _prove_session(
        self, session_id: int, secret: str, peer: str, wanted: str | None
    ) -> Admitted | None:  # fmt: skip
        session = await self.sessions.find(session_id, secret, peer)
        if session is None:
            return None
        via = f"session {session.id}"
        if session.user_id is None:
            token = await self._look_up(session.token_id or 0, peer)
            of_token = await self._of_token(token, wanted, session.org) if token else None
            return of_token and Admitted(replace(of_token.who, via=via), token, session)
        user = await self._user(session.user_id)
        if user is None or user.disabled_at is not None:
            return None
        org = await self._org_of(EVERYWHERE, user, wanted, session.org)
        role = None if org is None else user.role_in(org)
        if org is None or role is None:
            return None
        return Admitted(Principal(user.name, org, role, user.id, via, tuple(sorted(user.roles))), None, session)

    # ── in which organisation ──

    async def _org_of(self, own: int, user: User | None, wanted: str | None, chosen: int) -> int | None:
        """Return the organisation in which to act: what is wanted, if it may be. Who may act in several, and says
        nothing, is where the session was last, or at home."""
        if wanted is None:
            if own != EVERYWHERE:
                return own
            return chosen if chosen != EVERYWHERE else user.home() if user is not None else None
        org = await self.find_org(wanted)
        if own not in (EVERYWHERE, org):
            raise Denied(
                f"this token is of organisation {own}",
                code="E_TOKEN_ORG",
                hint="use a token of the other organisation, or that of `horae login`, which is good for all of yours",
            )
        if org is None or user is None or user.role_in(org) is None:
            raise _no_member(wanted)
        return org

    async def find_org(self, text: str) -> int | None:
        """Return the organisation of this name or number; None: there is none."""
        if text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_ORG)):
            return int(text) if 1 <= int(text) <= LARGEST_ORG else None
        known, asked = self._orgs.find(EVERYWHERE), self._orgs.ask()
        if known is not None and self._orgs.is_fresh(known) and known.value and text in known.value:
            return known.value[text]
        names = {one.name: one.id for one in await within(LOOK_UP_SECONDS, self._store.list_organisations())}
        self._orgs.put(EVERYWHERE, names, asked)
        return names.get(text)

    async def locally(self, wanted: str | None) -> Principal:
        """Return the user who runs this server, in an organisation."""
        if wanted is None:
            return LOCAL
        org = await self.find_org(wanted)
        if org is None:
            raise _no_member(wanted)
        return replace(LOCAL, org=org)

    async def switch(self, admitted: Admitted, wanted: str) -> int:
        """Let a session go on in another organisation: it remembers that."""
        session = admitted.session
        if session is None:
            raise Conflict("only a browser that has logged in remembers an organisation", code="E_NO_ACCOUNT")
        user = None if admitted.who.user_id is None else await self._user(admitted.who.user_id)
        org = await self._org_of(admitted.token.org if admitted.token else EVERYWHERE, user, wanted, session.org)
        assert org is not None, "it was wanted, and may be"
        deeds.note_change({"org": admitted.who.org}, {"org": org})
        await self.sessions.move(session.id, org)
        return org

    async def check_proof(self, proof: Proof, scope: str, peer: str) -> Token:
        """As check, where the token itself was not sent, but a proof that it is there; one to join by will do."""
        token = await self._find(proof.token_id, peer, proof.is_of)
        if token is not None and token.scope in (scope, JOIN):
            await self._refuse_evicted(token)
            if self.state_of(token) in ("good", "used"):
                if not proof.is_signature:
                    log.warning("token.proved_by_hash", id=token.id, name=token.name)
                return token
        self._guessers.count(peer)
        raise _refused(scope) if proof.is_signature else _refused_of_before(scope)

    async def still_good(self, token_ids: Collection[int]) -> set[int]:
        """Return those of them that are good now, by one question for all: what is remembered may be old."""
        found = await self._store.load_tokens(sorted(token_ids))
        return {token.id for token in found if self.state_of(token) == "good"}

    async def _look_up(self, token_id: int, peer: str) -> Token | None:
        known, asked = self._known.find(token_id), self._known.ask()
        if known is not None and self._known.is_fresh(known):
            return known.value
        if known is None or known.value is None:
            self._guessers.refuse(peer)
        token = await within(LOOK_UP_SECONDS, self._store.get_token(token_id))
        self._known.put(token_id, token, asked)
        return token

    async def _user(self, user_id: int) -> User | None:
        known, asked = self._users.find(user_id), self._users.ask()
        if known is not None and self._users.is_fresh(known):
            return known.value
        user = await within(LOOK_UP_SECONDS, self._store.get_user(user_id))
        self._users.put(user_id, user, asked)
        return user


def _with_right(token: Token | None, is_right: Callable[[str], bool]) -> Token | None:
    """An unknown one takes as long."""
    if is_right(token.hash if token else NO_HASH):
        return token
    if token is not None and token.next_hash is not None and is_right(token.next_hash):
        return replace(token, hash=token.next_hash)
    return None


def _is_seen(token: Token, who: Principal) -> bool:
    """Return whether a token is there for somebody: of those that are good in several organisations, one's own."""
    is_own = token.org == EVERYWHERE and token.user_id is not None and token.user_id == who.user_id
    return is_own or who.bound_to in (None, token.org)


def _no_member(org: str) -> Denied:
    return Denied(
        f"you are no member of an organisation {org[:64]!r}",
        code="E_NO_MEMBER",
        hint="`horae whoami` says of which you are",
    )


def _principal(token: Token, role: Role) -> Principal:
    via = f"agent {token.bounds.node}" if token.bounds else f"token {token.id}"
    return Principal(token.owner, token.org, role, token.user_id, via)


_USE = {"user": "the HTTP API", "agent": "agents", JOIN: "joining as an agent, once"}
_USE[SESSION] = _USE["user"]


def _refused_of_before(scope: str) -> Unauthenticated:
    """Whoever proves as agents did before hears so, whatever is wrong: it says nothing of the token."""
    error = _refused(scope)
    return Unauthenticated(
        f"{error.message}; over NATS a token of this release needs an agent of this release: upgrade it",
        code=error.code,
        hint=error.hint,
    )


def _refused(scope: str) -> Unauthenticated:
    if scope in ("agent", JOIN):
        return Unauthenticated(
            "an agent needs a token that is known, not revoked and not expired",
            code="E_JOIN_TOKEN",
            hint="make one with `horae nodes join-token NODE`, and start the agent with --join",
        )
    return Unauthenticated(
        "this needs a token that is known, not revoked and not expired",
        hint=HOW_TO_LOG_IN,
    )
