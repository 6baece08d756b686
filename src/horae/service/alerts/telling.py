"""What is told: the leader takes deliveries whose time has come, hands each to its channel, and notes what came of it.

A delivery is taken for a while before it is sent. Whoever dies meanwhile has left it to be sent again when that is
over: at least once, under the same key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from horae.core.alerts.channels import COMMAND, Channel
from horae.core.alerts.messages import next_try
from horae.core.fields import CONTROL
from horae.core.model import DEFAULT_ORG, SECOND, Moment
from horae.errors import Error
from horae.ports.alerts import Teller, Undelivered
from horae.ports.clock import Clock
from horae.ports.store.alerts import AlertMessages, AlertRules, Delivery
from horae.ports.store.moments import StoreClock
from horae.service.alerts.definitions import send
from horae.service.secrets.named import Secrets

log = structlog.get_logger()

TOGETHER = 16  # deliveries at once
HELD = 120 * SECOND  # for which a delivery is ours: longer than any channel takes
KEPT = 7 * 86_400 * SECOND  # for which one can be looked at
LOOK = 5.0  # seconds between two looks for what is to be tried again
TIDY = 3600.0  # seconds between two looks for what is past its time
MAX_ERROR = 500  # characters


class TellingStore(AlertMessages, AlertRules, StoreClock, Protocol):
    """Deliveries, and the channels that they go by."""


class AlertTelling:
    def __init__(
        self, store: TellingStore, clock: Clock, secrets: Secrets, teller: Teller, installation: str, *,
        is_needed: Callable[[], bool],
    ) -> None:  # fmt: skip
        """`is_needed`: we lead, and there are rules."""
        self._store = store
        self._clock = clock
        self._secrets = secrets
        self._teller = teller
        self._installation = installation or "horae"
        self._is_needed = is_needed
        self._made = asyncio.Event()
        self._tidied = float("-inf")

    def wake(self) -> None:
        """There is something to deliver."""
        self._made.set()

    async def step(self) -> None:
        self._made.clear()
        if self._is_needed():
            while await self.deliver():
                pass
            if self._clock.elapsed() - self._tidied >= TIDY:
                await self._store.drop_deliveries(await self._store.now() - KEPT)
                self._tidied = self._clock.elapsed()
        try:
            async with asyncio.timeout(LOOK):
                await self._made.wait()
        except TimeoutError:
            return

    async def deliver(self) -> int:
        """Send what is due; return how many it were."""
        now, next_at = await self._store.now(), await self._store.next_delivery()
        if next_at is None or next_at > now:
            return 0
        taken = await self._store.take_deliveries(now, now + HELD, TOGETHER)
        if taken:
            await asyncio.gather(*(self._settle(one) for one in taken))
        return len(taken)

    async def _settle(self, one: Delivery) -> None:
        """Each is noted as soon as it is sent: one that is slow does not let others be sent twice."""
        await self._store.settle_delivery(await self._deliver(one))

    async def _deliver(self, one: Delivery) -> Delivery:
        try:
            channel = await self._channel(one)
            await send(self._teller, self._secrets, channel, one.message, f"{self._installation}.{one.id}")
        except Error as error:
            return self._failed(one, error.message, await self._store.now())
        except Exception as error:  # one channel that breaks must not hold up the others
            log.exception("alerts.broken", channel=one.channel)
            return self._failed(one, f"it could not be sent: {type(error).__name__}", await self._store.now())
        return one._replace(state="sent", sent_at=await self._store.now(), error="")

    async def _channel(self, one: Delivery) -> Channel:
        for channel in await self._store.list_alert_channels(one.org):
            if channel.name == one.channel:
                return channel
        if one.org == DEFAULT_ORG and one.channel in self._teller.commands:
            return Channel(one.channel, COMMAND, org=one.org)
        raise Undelivered(f"there is no channel {one.channel}")

    def _failed(self, one: Delivery, why: str, now: Moment) -> Delivery:
        why = CONTROL.sub(" ", why)[:MAX_ERROR]  # what somebody answered may hold anything
        again = next_try(one.tries, now, one.made_at)
        log.warning("alerts.undelivered", rule=one.rule, channel=one.channel, why=why, is_given_up=again is None)
        state = "failed" if again is None else "waiting"
        return one._replace(state=state, next_at=now if again is None else again, error=why)
