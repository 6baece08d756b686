"""Sessions: a browser that has logged in, by a token or as a user.

What must stay true:
- A session ends when it was not used for `idle` seconds, after `absolute` seconds whatever happens, with its token, and
  with its user.
- What the store says of one is believed as long as of a token. That it was used is written once a minute at most.
- Only one asks the provider whether a user may stay, however many see that this is due; the others go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import structlog

from horae.core.identity import Session, User
from horae.core.model import SECOND, Moment, Token
from horae.errors import NotFound, Unauthenticated, Unavailable
from horae.ports import deeds
from horae.ports.clock import Clock
from horae.ports.store.moments import StoreClock
from horae.ports.store.users import Sessions as SessionStore
from horae.service.access.credentials import (
    Asked,
    Believed,
    Guessers,
    hash_of,
    is_secret_of,
    new_secret,
    parts_of,
    text_of,
)
from horae.service.patience import within

SESSION_IDLE = 8 * 3600.0
SESSION_SECONDS = 24 * 3600.0
TOUCH_SECONDS = 60  # between two notes that it is used
PROVEN_SECONDS = 600  # for which a login is good for dangerous acts
LOOK_UP_SECONDS = 2.5  # after which whoever asks is told that the database does not answer
_AGENT = 200  # characters of what a browser calls itself

log = structlog.get_logger(__name__)


class Store(SessionStore, StoreClock, Protocol): ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for which a session lasts."""

    idle: float = SESSION_IDLE
    absolute: float = SESSION_SECONDS


@dataclass(frozen=True, slots=True)
class Origin:
    """From where a session is opened, for its user to recognise."""

    address: str = ""
    agent: str = ""


NOWHERE = Origin()


@dataclass(frozen=True, slots=True)
class Vouched:
    """What a provider gave to ask again with, and when it says that its user proved to be there."""

    issuer: str
    refresh: str | None = None  # sealed
    refresh_at: Moment | None = None
    proven_at: Moment = 0


Renew = Callable[[Session], Awaitable[bool]]


async def _never(_: Session) -> bool:
    return True


class Sessions:
    def __init__(self, store: Store, clock: Clock, guessers: Guessers, limits: Limits) -> None:
        self._store, self._clock, self._guessers = store, clock, guessers
        self.limits = limits
        self.renew: Renew = _never  # whether a session that is due may stay
        self._known: Believed[Session] = Believed(clock)

    async def open(self, of: Token | tuple[User, int], origin: Origin = NOWHERE, vouched: Vouched | None = None) -> str:
        """Return the text of a session of a token, or of a user in an organisation."""
        secret, now = new_secret(), await self._store.now()
        ends = now + round(self.limits.absolute * SECOND)
        proven_at = now if vouched is None else min(vouched.proven_at, now)
        session = Session(
            0, hash_of(secret), now, ends, seen_at=now, proven_at=proven_at, address=origin.address,
            agent=origin.agent[:_AGENT],
        )  # fmt: skip
        if isinstance(of, Token):
            session = replace(session, token_id=of.id, org=of.org, expires_at=min(ends, of.expires_at or ends))
        else:
            session = replace(session, user_id=of[0].id, org=of[1])
        deeds.note(who=of.owner if isinstance(of, Token) else of[0].name, org=session.org, kind="session")
        if vouched is not None:
            session = replace(session, issuer=vouched.issuer, refresh=vouched.refresh, refresh_at=vouched.refresh_at)
        session_id = await self._store.add_session(session)
        self._known.forget(session_id)
        log.info("session.opened", id=session_id, user=session.user_id, token=session.token_id, address=session.address)
        return text_of("s", session_id, secret)

    async def find(self, session_id: int, secret: str, peer: str) -> Session | None:
        """Return the session whose secret this is, if it is good now."""
        known, asked = self._known.find(session_id), self._known.ask()
        if known is None or not self._known.is_fresh(known):
            if known is None:
                self._guessers.refuse(peer)
            found = await within(LOOK_UP_SECONDS, self._store.get_session(session_id))
            self._known.drop(session_id)
        else:
            found, asked = known.value, asked._replace(at=known.asked.at)
        if not is_secret_of(secret, found.hash if found else None) or found is None or self.is_over(found):
            return None
        self._known.put(session_id, found, asked)
        return await self._used(found, asked)

    def is_over(self, session: Session) -> bool:
        now = self._clock.now()
        return now >= session.expires_at or now >= self.idle_at(session)

    def idle_at(self, session: Session) -> Moment:
        """Return when it ends, should nobody use it any more."""
        return (session.seen_at or session.created_at) + round(self.limits.idle * SECOND)

    async def _used(self, session: Session, asked: Asked) -> Session | None:
        """Note that it is used, and let its provider be asked when that is due; None when that says no."""
        now = self._clock.now()
        if now - session.seen_at >= min(TOUCH_SECONDS, self.limits.idle / 4) * SECOND:
            session = replace(session, seen_at=now)
            with suppress(Unavailable):  # that it was used can be written next time
                await self._store.touch_session(session.id, now)
        due = session.refresh_at
        if due is not None and now >= due:
            session = replace(session, refresh_at=now + round(TOUCH_SECONDS * SECOND))
            if await self._is_ours_to_renew(session.id, due, session.refresh_at) and not await self.renew(session):
                await self.end(session.id)
                return None
        self._known.put(session.id, session, asked)
        return session

    async def _is_ours_to_renew(self, session_id: int, due: Moment, next_try: Moment | None) -> bool:
        return next_try is not None and await self._store.claim_refresh(session_id, due, next_try)

    def refuse_unproven(self, session: Session) -> None:
        """Before a dangerous act: Unauthenticated(E_REAUTH) unless its user proved to be there a few minutes ago."""
        if self._clock.now() - session.proven_at >= PROVEN_SECONDS * SECOND:
            raise Unauthenticated(
                f"this needs a login of the last {PROVEN_SECONDS // 60} minutes",
                code="E_REAUTH",
                hint="log in again at /login, or use a token",
            )

    async def leave(self, text: str) -> None:
        """End a session before its time: here at once, elsewhere as with a token that is revoked. What is none, or has
        ended, is no error."""
        parts = parts_of(text)
        if parts is None or parts[0] != "s":
            return
        known = await self._store.get_session(parts[1])
        if known is not None and is_secret_of(parts[2], known.hash):
            await self.end(known.id)

    def doubt_organisation(self, org: int) -> None:
        """Sessions that go on there may have ended: here it counts at once."""
        self._known.doubt(lambda session: session.org == org)

    async def end(self, session_id: int) -> None:
        await self._store.end_session(session_id)
        self._known.forget(session_id)
        log.info("session.ended", id=session_id)

    async def move(self, session_id: int, org: int) -> None:
        """Let it go on in another organisation: here at once, elsewhere within the time that a session is believed."""
        await self._store.move_session(session_id, org)
        self._known.forget(session_id)

    async def list_of(self, user_id: int) -> list[Session]:
        """Those of a user that are good now, newest first."""
        return [session for session in await self._store.list_sessions(user_id) if not self.is_over(session)]

    async def end_own(self, user_id: int, session_id: int) -> None:
        """Those of others do not exist."""
        found = await self._store.get_session(session_id)
        if found is None or found.user_id != user_id:
            raise NotFound(f"there is no session {session_id} of yours", hint="`horae sessions` lists them")
        await self.end(session_id)

    async def end_all(self, user_id: int) -> None:
        await self._store.end_sessions(user_id)
        self._known.doubt(lambda session: session.user_id == user_id)
