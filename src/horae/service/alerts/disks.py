"""How full the disk of this server is, noted while a rule asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from horae.ports.clock import Clock
from horae.ports.store.alerts import AlertRules, Alerts
from horae.ports.store.moments import StoreClock

LOOK = 60.0  # seconds


class DiskStore(AlertRules, Alerts, StoreClock, Protocol):
    """Rules, and what is noted for them."""


class AlertDisks:
    def __init__(self, store: DiskStore, clock: Clock, *, node: str, measure: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._node = node
        self._measure = measure

    async def step(self) -> None:
        await self.note()
        await self._clock.sleep(LOOK)

    async def note(self) -> None:
        """Note how full it is, if a rule asks."""
        if not any(rule.when == "disk_full" and rule.enabled for rule in await self._store.list_alert_rules()):
            return
        try:
            used = await asyncio.to_thread(self._measure)
        except OSError:
            return  # it cannot be measured just now
        await self._store.save_disk(self._node, used, await self._store.now())
