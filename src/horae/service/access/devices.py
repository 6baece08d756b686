"""Programs that come in as whoever confirms their code in a browser: `horae login` (RFC 8628).

    program ─► begin: a secret for itself, a code for people ─► asks, every INTERVAL seconds
    user    ─► logs in as always, types the code, approves ─► the program is given a token of that user, once

What must stay true:
- The code alone gives nothing: a user who is logged in must type it, sees from where it was asked for, and agrees.
- Codes are few, short-lived and guessed at by those who are logged in only, a few times a minute.
- The token is of the user who approved, may do no more than it, and is made when the program fetches it: once.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Protocol

import structlog

from horae.core.identity import EVERYWHERE, Device, Principal
from horae.core.model import SECOND, Token
from horae.core.roles import greatest
from horae.errors import Conflict, Denied, Error, Limited, NotFound, Unavailable
from horae.ports.clock import Clock
from horae.ports.store.moments import StoreClock
from horae.ports.store.users import Devices as DeviceStore
from horae.ports.store.users import Users as UserPort
from horae.service.access import Access
from horae.service.access.credentials import hash_of, is_secret_of, keep, new_secret, parts_of, text_of
from horae.service.access.throttle import Throttle, network_of

LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # that nobody mistakes for each other, and that make no words
CODE_SECONDS = 600.0
INTERVAL = 5.0  # seconds between two questions of a program
TOKEN_SECONDS = 30 * 86_400.0
RACES = 5
ASKED = 4096  # programs whose last question is remembered
BEGUN = 20  # by one address within ten minutes

log = structlog.get_logger(__name__)


class Store(DeviceStore, UserPort, StoreClock, Protocol): ...


@dataclass(frozen=True, slots=True)
class Begun:
    secret: str  # for the program
    code: str  # for people


class Pending(Error):
    """Nobody has decided yet."""

    code, status = "E_DEVICE_PENDING", 400


class TooFast(Limited):
    """The program asks more often than it was told to."""

    code = "E_DEVICE_SLOW_DOWN"


class Devices:
    def __init__(self, store: Store, clock: Clock, access: Access) -> None:
        self._store, self._clock, self._access = store, clock, access
        self._asked: dict[int, float] = {}  # when a program last asked
        self._begun: dict[str, tuple[float, int]] = {}  # address → since when, how many
        self._throttle = Throttle(clock)

    async def begin(self, address: str) -> Begun:
        self._refuse_many(address)
        secret, now = new_secret(), await self._store.now()
        for _ in range(RACES):
            letters = "".join(secrets.choice(LETTERS) for _ in range(8))
            wanted = Device(0, letters, hash_of(secret), now, now + round(CODE_SECONDS * SECOND), address)
            if (device := await self._store.add_device(wanted)) is not None:
                self._asked.pop(device.id, None)
                return Begun(text_of("d", device.id, secret), shown(letters))
        raise Unavailable("too many programs wait to be let in; try again")

    def _refuse_many(self, address: str) -> None:
        key, now = network_of(address), self._clock.elapsed()
        since, count = self._begun.pop(key, (now, 0))
        since, count = (since, count + 1) if now - since < CODE_SECONDS else (now, 1)
        self._begun[key] = (since, count)
        keep(self._begun, ASKED)
        if count > BEGUN:
            raise Limited("too many programs of this address wait to be let in", hint="wait ten minutes")

    async def find(self, code: str, who: Principal) -> Device:
        """Return what a code stands for, to a user who types it."""
        self._throttle.begin(who.name, who.name)
        letters = "".join(letter for letter in code.upper() if letter.isalnum())
        device = await self._store.find_device(letters) if len(letters) == 8 else None
        if device is None or device.state != "pending" or self._clock.now() >= device.expires_at:
            raise NotFound("no program waits with this code", code="E_DEVICE_CODE", hint="run `horae login` again")
        self._throttle.succeed(who.name, who.name)
        return device

    async def decide(self, code: str, who: Principal, *, is_approved: bool) -> Device:
        device = await self.find(code, who)
        if who.user_id is None:
            raise Conflict(
                "only a user with an account can let a program in",
                code="E_NO_ACCOUNT",
                hint="`horae token create NAME` makes a token for programs",
            )
        state = "approved" if is_approved else "denied"
        if not await self._store.decide_device(device.id, who.user_id, who.org, state):
            raise NotFound("somebody decided about this code already", code="E_DEVICE_CODE")
        log.info(f"device.{state}", id=device.id, user=who.name, address=device.address)
        return device

    async def fetch(self, secret: str) -> tuple[Token, str]:
        """Return the token of a program that was approved, once. Pending and TooFast: ask again."""
        parts = parts_of(secret)
        device = await self._store.get_device(parts[1]) if parts is not None and parts[0] == "d" else None
        is_right = is_secret_of(parts[2] if parts else "", device.hash if device else None)
        if device is None or not is_right or self._clock.now() >= device.expires_at or device.state == "used":
            raise Denied("this code is over", code="E_DEVICE_EXPIRED", hint="run `horae login` again")
        if device.state == "denied":
            raise Denied("the login was denied", code="E_DEVICE_DENIED")
        self._refuse_haste(device.id)
        if device.state == "pending":
            raise Pending()
        user = await self._store.get_user(device.user_id or 0)
        role = greatest(user.roles.values()) if user is not None and user.disabled_at is None else None
        if user is None or role is None or not await self._store.use_device(device.id):
            raise Denied("this code is over", code="E_DEVICE_EXPIRED", hint="run `horae login` again")
        name = f"login from {device.address}" if device.address else "login"
        return await self._access.create(name, "user", user.name, TOKEN_SECONDS, org=EVERYWHERE, role=role)

    def _refuse_haste(self, device_id: int) -> None:
        now, before = self._clock.elapsed(), self._asked.pop(device_id, None)
        self._asked[device_id] = now
        keep(self._asked, ASKED)
        if before is not None and now - before < INTERVAL * 0.8:  # networks are no clocks
            raise TooFast(f"ask every {INTERVAL:g} seconds")


def shown(letters: str) -> str:
    return f"{letters[:4]}-{letters[4:]}"
