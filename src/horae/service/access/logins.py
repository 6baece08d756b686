"""Ways in for people: a password, an invitation to set one, a provider that vouches.

What must stay true:
- An unknown user, one that is disabled, one without a password and a wrong password are refused in the same words, and
  after the same time.
- A provider's user is known by (issuer, subject). Its roles are what its claims say now, beside what admins said by
  hand; who has none comes in nowhere.
- State, nonce and verifier of a login all come from one secret, which only the browser that began it has (a cookie).
- A provider that is away keeps nobody out who is in; one that says no ends the session. Where it takes back what it
  granted, the tokens of `horae login` end too: nobody would ask it about them for thirty days.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from horae.core.audit import Deed
from horae.core.identity import EVERYWHERE, Session, User, UserKind
from horae.core.model import DEFAULT_ORG, SECOND, Moment
from horae.core.roles import Permission, Role, greatest
from horae.errors import ConfigError, Conflict, Denied, GrantOver, Malformed, Unauthenticated, Unavailable
from horae.ports import deeds
from horae.ports.clock import Clock
from horae.ports.identity import Claims, Granted, IdentityProvider
from horae.ports.keys import Keys
from horae.ports.store.moments import StoreClock
from horae.ports.store.users import Organisations as OrganisationStore
from horae.ports.store.users import Sessions as SessionStore
from horae.ports.store.users import Users as UserPort
from horae.service.access import Access
from horae.service.access.credentials import is_secret_of, new_secret, parts_of
from horae.service.access.passwords import Passwords, refuse_weak
from horae.service.access.sessions import PROVEN_SECONDS, Origin, Vouched
from horae.service.access.throttle import Throttle
from horae.service.access.users import Users
from horae.service.audit import Audit

REFRESH_LEAST, REFRESH_MOST = 10.0, 3600.0  # seconds between two questions to the provider
RACES = 5  # for the name of a new user

log = structlog.get_logger(__name__)


class LoginStore(UserPort, OrganisationStore, SessionStore, StoreClock, Protocol): ...


@dataclass(frozen=True, slots=True)
class RoleRule:
    """Who has this group at the provider has this role there."""

    group: str  # * for everybody
    org: str  # its name or number; * for all of them
    role: Role


@dataclass(frozen=True, slots=True)
class Begun:
    """A login by the provider that has begun: where the browser goes, and what it must bring back."""

    url: str
    state: str
    secret: str


class Logins:
    def __init__(
        self, store: LoginStore, clock: Clock, access: Access, users: Users, audit: Audit, *, keys: Keys | None = None,
        provider: IdentityProvider | None = None, rules: Sequence[RoleRule] = (),
    ) -> None:  # fmt: skip
        self._store, self._clock, self._access, self._users, self._audit = store, clock, access, users, audit
        self._keys, self.provider, self._rules = keys, provider, rules
        self._passwords, self._throttle = Passwords(), Throttle(clock)
        access.sessions.renew = self.renew

    # ── passwords ──

    async def by_password(self, name: str, password: str, origin: Origin) -> str:
        """Return the text of a new session."""
        user = await self.prove(name, password, origin.address)
        return await self.open(user, origin)

    async def prove(self, name: str, password: str, address: str) -> User:
        """Return the user whose password this is."""
        self._throttle.begin(name, address)
        user = await self._store.find_user(name)
        may = user is not None and user.disabled_at is None and user.kind is UserKind.PERSON
        is_right = await self._passwords.is_right(user.password if user and may else None, password)
        if user is None or not is_right:
            log.info("login.refused", address=address)
            raise Unauthenticated(
                "the name or the password is wrong",
                code="E_PASSWORD_WRONG",
                hint="an admin can let you set another one: `horae admin invite NAME`",
            )
        self._throttle.succeed(name, address)
        return user

    async def accept(self, invitation: str, password: str, origin: Origin) -> str:
        """Set the password of who was invited, once; return the text of a new session."""
        user = await self._invited(invitation, origin.address)
        deeds.note(who=user.name)
        refuse_weak(password, user.name)
        written = await self._passwords.hash(password)
        parts = await self._store.get_invite(user.id)
        if parts is None or not await self._store.use_invite(user.id, parts[0], written, await self._store.now()):
            raise _no_invitation()
        await self._access.sessions.end_all(user.id)
        log.info("user.password", id=user.id, name=user.name, address=origin.address)
        return await self.open(user, origin)

    async def _invited(self, invitation: str, address: str) -> User:
        self._throttle.begin(f"invitation at {address}", address)
        parts = parts_of(invitation)
        known = await self._store.get_invite(parts[1]) if parts is not None and parts[0] == "i" else None
        is_right = is_secret_of(parts[2] if parts else "", known[0] if known else None)
        user = await self._store.get_user(parts[1]) if parts and known and is_right else None
        if user is None or known is None or user.disabled_at is not None or self._clock.now() >= known[1]:
            raise _no_invitation()
        self._throttle.succeed(f"invitation at {address}", address)
        return user

    async def open(self, user: User, origin: Origin, vouched: Vouched | None = None) -> str:
        """Return the text of a new session of a user who proved to be there."""
        home = user.home()
        if home is None:
            raise Denied(
                f"{user.name} is a member of no organisation yet",
                code="E_NO_MEMBER",
                hint=f"an admin can change that: `horae orgs add default {user.name} --role viewer`",
            )
        return await self._access.sessions.open((user, home), origin, vouched)

    # ── a provider ──

    async def begin(self, *, is_anew: bool = False) -> Begun:
        secret = new_secret()
        state = _derived("state", secret)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(_derived("verifier", secret).encode()).digest())
        url = await self._required().authorize_url(
            state=state, nonce=_derived("nonce", secret), challenge=challenge.rstrip(b"=").decode(), is_anew=is_anew
        )
        return Begun(url, state, secret)

    async def complete(self, secret: str, asked: Mapping[str, str], origin: Origin, *, is_anew: bool = False) -> str:
        """Return the text of a new session for whom the provider vouches. `asked` came with the browser; with `is_anew`
        the login began in order to prove again to be there."""
        is_ours = hmac.compare_digest(asked.get("state", "").encode(), _derived("state", secret).encode())
        if not is_ours or not _SECRET.fullmatch(secret):  # whoever has no secret could be given a state that fits
            raise _foreign_answer()
        if "error" in asked:
            raise Denied(
                "the identity provider did not let you in", code="E_IDP_DENIED", hint="log in again, and agree there"
            )
        if not asked.get("code"):
            raise Malformed("the identity provider sent no code", code="E_CALLBACK", hint="log in again")
        provider = self._required()
        granted = await provider.exchange(
            asked["code"], verifier=_derived("verifier", secret), nonce=_derived("nonce", secret),
            issuer=asked.get("iss"),
        )  # fmt: skip
        assert granted.claims is not None, "a code is exchanged for an ID token"
        proven_at = self._proven_at(granted.claims, is_anew=is_anew)
        user = await self._known(granted.claims)
        return await self.open(user, origin, replace(self._vouched(granted, provider.issuer), proven_at=proven_at))

    def _proven_at(self, claims: Claims, *, is_anew: bool) -> Moment:
        """Return when a user proved to be there, as the provider says: it lets those whom it knows come back without a
        question. Where it does not say, it is believed if it was told to ask."""
        now = self._clock.now()
        if claims.proven_at is None:
            return now if is_anew else 0
        if is_anew and now - claims.proven_at >= PROVEN_SECONDS * SECOND:
            raise Unauthenticated(
                "the identity provider did not let you prove again that it is you",
                code="E_REAUTH",
                hint="log out there, and log in again",
            )
        return claims.proven_at

    async def renew(self, session: Session) -> bool:
        """Ask the provider whether a session may stay: with new claims, or with those of before while it is away."""
        if self.provider is None or session.refresh is None or session.issuer != self.provider.issuer:
            return True
        try:
            subject, token = self._opened(session.refresh)
            granted = await self.provider.refresh(token, subject)
            if granted.claims is not None:
                await self._known(granted.claims)
        except Unavailable as error:
            log.warning("session.unrenewed", id=session.id, error=error.message)
            return True
        except GrantOver as error:
            log.info("session.refused", id=session.id, error=error.message)
            await self._end_logins(session)
            return False
        except (Denied, ConfigError) as error:  # it may be this server whom it refuses: that is no word on the user
            log.info("session.refused", id=session.id, error=error.message)
            return False
        vouched = self._vouched(granted, self.provider.issuer, subject, token)
        await self._store.renew_session(session.id, vouched.refresh, vouched.refresh_at)
        return True

    async def _end_logins(self, session: Session) -> None:
        """Revoke the tokens with which programs came in as the user of a session (service.access.devices). Each has a
        row in the audit log, by the provider; what was made by them ends with them."""
        user = await self._store.get_user(session.user_id or 0)
        if user is None:
            return
        for token in await self._access.list():
            if token.user_id == user.id and token.org == EVERYWHERE and self._access.state_of(token) == "good":
                deed = Deed(
                    session.issuer, org=user.home() or DEFAULT_ORG, action=Permission.TOKENS,
                    operation="refusal by a provider", kind="token", subject=str(token.id),
                )  # fmt: skip
                with deeds.apart():  # whoever asks now did not ask for it
                    async with self._audit.watch(deed):
                        await self._access.revoke(token.id)

    def _vouched(self, granted: Granted, issuer: str, subject: str = "", token: str | None = None) -> Vouched:
        """What is kept to ask again. A provider that gives nothing new goes on taking what it gave."""
        refresh = granted.refresh or token
        if refresh is None or self._keys is None:
            return Vouched(issuer)
        subject = granted.claims.subject if granted.claims else subject
        seconds = min(max(granted.expires_in or REFRESH_MOST, REFRESH_LEAST), REFRESH_MOST)
        try:
            sealed = self._keys.seal(json.dumps([subject, refresh]), _CONTEXT)
        except ConfigError as error:
            raise Conflict(error.message, code=error.code, hint=error.hint) from error
        return Vouched(issuer, sealed, self._clock.now() + round(seconds * SECOND))

    def _opened(self, sealed: str) -> tuple[str, str]:
        if self._keys is None:
            raise ConfigError("there are no keys to open it with", code="E_SECRET_KEY")
        subject, token = json.loads(self._keys.open(sealed, _CONTEXT))
        return subject, token

    async def _known(self, claims: Claims) -> User:
        """Return the user of a provider, made when it first comes, with the roles that its claims give."""
        deed = Deed(claims.issuer, action=Permission.USERS, operation="login by a provider", kind="user")
        with deeds.apart():  # the login itself has a row of its own
            async with self._audit.watch(deed):
                return await self._synced(claims, deed)

    async def _synced(self, claims: Claims, deed: Deed) -> User:
        """What the provider changes of a user is its deed; nothing is, where it said the same before."""
        roles = await self._roles(claims.groups)
        user = await self._store.find_identity(claims.issuer, claims.subject) or await self._new(claims, roles)
        if user.disabled_at is not None:
            raise Denied(f"{user.name} is disabled here", code="E_DISABLED", hint="ask an admin")
        await self._store.sync_members(user.id, claims.issuer, roles, await self._store.now())
        if claims.email != user.email:
            await self._store.set_email(user.id, claims.email)
        self._access.doubt_user(user.id)
        again = await self._store.get_user(user.id)
        assert again is not None, "users are never deleted"
        if deed.rows == 0:
            deed.is_void = again.roles == user.roles
            deeds.note(subject=user.name, org=_org_of_change(user.roles, again.roles))
            deeds.note_change(_told(user.roles), _told(again.roles))
        return again

    async def _new(self, claims: Claims, roles: Mapping[int, Role]) -> User:
        now: Moment = await self._store.now()
        for _ in range(RACES):
            name = await self._users.free_name(claims.name or claims.email)
            deeds.note(subject=name, org=_org_of_change({}, roles))
            deeds.note_change(None, {"kind": UserKind.PERSON, "email": claims.email or None, **_told(roles)})
            made = await self._store.add_user(
                User(0, name, created_at=now, email=claims.email), (claims.issuer, claims.subject)
            )
            if made is not None:
                log.info("user.created", id=made.id, name=name, kind=made.kind, by=claims.issuer)
                return made
            if (known := await self._store.find_identity(claims.issuer, claims.subject)) is not None:
                return known  # of two logins at once, the other was first
        raise Unavailable("many new users come at once; try again")

    async def _roles(self, groups: Sequence[str]) -> dict[int, Role]:
        """Return what the rules of the settings make of a user's groups."""
        ids = {name: org.id for org in await self._store.list_organisations() for name in (org.name, str(org.id))}
        ids["*"] = EVERYWHERE
        roles: dict[int, Role] = {}
        for rule in self._rules:
            if rule.group in ("*", *groups) and rule.org in ids:
                at = ids[rule.org]
                roles[at] = greatest(filter(None, (roles.get(at), rule.role))) or rule.role
        return roles

    def _required(self) -> IdentityProvider:
        if self.provider is None:
            raise Conflict(
                "this server has no identity provider", code="E_NO_IDP", hint="set oidc_issuer and oidc_client_id"
            )
        return self.provider


def _told(roles: Mapping[int, Role]) -> dict[str, Role]:
    return {f"role in {org or '*'}": role for org, role in roles.items()}


def _org_of_change(before: Mapping[int, Role], after: Mapping[int, Role]) -> int:
    """Return whose admins are told of a change of roles: those of the one organisation that it is about, if any."""
    changed = {org for org in {*before, *after} if before.get(org) is not after.get(org)}
    return changed.pop() if len(changed) == 1 and EVERYWHERE not in changed else DEFAULT_ORG


_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")  # as new_secret makes it
_CONTEXT = "session"  # in which what a provider gave is sealed


def _derived(what: str, secret: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(f"horae {what} {secret}".encode()).digest()).rstrip(b"=").decode()


def _foreign_answer() -> Malformed:
    return Malformed(
        "this answer of the identity provider belongs to no login of this browser",
        code="E_CALLBACK",
        hint="begin again at /login; cookies must be allowed",
    )


def _no_invitation() -> Unauthenticated:
    return Unauthenticated(
        "this link is used up, too old, or none of ours",
        code="E_INVITATION",
        hint="an admin can make another: `horae admin invite NAME`",
    )
