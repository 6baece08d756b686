"""Faults of what Horae stands on: the database, the broker, the object store."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from campaign.cluster import DEAD_AFTER, Postgres
from campaign.history import now
from campaign.patroni import UNREACHED, Patroni, Server
from campaign.scene import TROUBLE, Deed, Lane, Scene, whole
from campaign.services import Service

FAILED_OVER = 90.0  # seconds in which a standby should have taken over
ENOSPC = "No space left on device"
Harm = Callable[[Server], None]  # what is done to a server


class Database:
    """One server of PostgreSQL: it ends, stays away, ends its connections, has no room."""

    def __init__(self, scene: Scene, postgres: Postgres) -> None:
        self._scene, self._postgres = scene, postgres
        self._turn = postgres.turn

    def lanes(self) -> list[Lane]:
        deeds = [
            Deed("restart database", self._restart),
            Deed("database outage", self._stay_away),
            Deed("cut connections", partial(cut_connections, self._scene, self._postgres)),
        ]
        return [Lane("database", deeds, 22.0)]

    async def _restart(self) -> None:
        await whole(self._end_and_begin("restart database", self._scene.chance.uniform(0.0, 2.0), 0.0))

    async def _stay_away(self) -> None:
        seconds = DEAD_AFTER * self._scene.chance.uniform(1.5, 3.0)
        await whole(self._end_and_begin("database outage", seconds, DEAD_AFTER))

    async def _end_and_begin(self, kind: str, seconds: float, least: float) -> None:
        async with self._turn:
            await self._end_then_begin(kind, seconds, least)

    async def _end_then_begin(self, kind: str, seconds: float, least: float) -> None:
        began = now()
        await self._postgres.end()
        since, is_down = time.monotonic(), not await self._postgres.is_up()
        await asyncio.sleep(seconds)
        is_down, away = is_down and not await self._postgres.is_up(), time.monotonic() - since
        await self._postgres.heal()
        evidence = f"refused connections for {away:.1f} s" if is_down else "it was up all the time"
        self._scene.record(kind, "postgres", began, evidence, happened=is_down and away > least)

    def disk_lanes(self) -> list[Lane]:
        return [Lane("database disk", [Deed("full disk of the database", self._fill)], 80.0)]

    async def _fill(self) -> None:
        """No room for what is committed: it gives up, and must be begun again when there is room."""
        await whole(self._fill_and_clear())

    async def _fill_and_clear(self) -> None:
        async with self._turn:
            await self._fill_then_clear()

    async def _fill_then_clear(self) -> None:
        disk = self._postgres.disk
        assert disk is not None
        began, before = now(), self._postgres.mentions(ENOSPC)
        is_full = await asyncio.to_thread(disk.fill)
        has_room = await self._postgres.room()
        await asyncio.sleep(self._scene.chance.uniform(2.0, 6.0))
        said = self._postgres.mentions(ENOSPC) - before
        disk.clear()
        with suppress(*TROUBLE):
            await self._postgres.heal()
        self._scene.record(
            "full disk of the database", "postgres", began, f"its log says {said} times: {ENOSPC}",
            happened=is_full and not has_room and said > 0,
        )  # fmt: skip


async def cut_connections(scene: Scene, database: Postgres | Patroni) -> None:
    began = now()
    with suppress(*UNREACHED):
        if ended := await database.cut():
            scene.record("cut connections", "postgres", began, f"{ended} ended")


class Failovers:
    """PostgreSQL under Patroni: the machine of its primary dies, or freezes, and the standby takes over."""

    def __init__(self, scene: Scene, patroni: Patroni) -> None:
        self._scene, self._patroni = scene, patroni

    def lanes(self) -> list[Lane]:
        deeds = [
            Deed("kill primary", partial(self._fail, "kill primary", self._patroni.kill)),
            Deed("freeze primary", partial(self._fail, "freeze primary", _freeze)),
            Deed("kill postmaster", partial(self._fail, "kill postmaster", _kill_postmaster)),
            Deed("cut connections", partial(cut_connections, self._scene, self._patroni)),
        ]
        return [Lane("failovers", deeds, 15.0)]

    async def _fail(self, kind: str, harm: Harm) -> None:
        await whole(self._fail_over(kind, harm))

    async def _fail_over(self, kind: str, harm: Harm) -> None:
        patroni = self._patroni
        server, before = await patroni.ready()
        began, since = now(), time.monotonic()
        harm(server)
        after = 0
        while (after := await patroni.timeline()) <= before and time.monotonic() - since < FAILED_OVER:
            await asyncio.sleep(0.3)
        took = time.monotonic() - since
        if kind == "freeze primary":
            await asyncio.sleep(self._scene.chance.uniform(0.0, 10.0))  # it wakes while others work on the new one
        patroni.begin(server)
        with suppress(*TROUBLE):
            await patroni.heal()
        evidence = f"timeline {before} → {after} after {took:.1f} s"
        self._scene.record(kind, server.name, began, evidence, happened=after > before)


def _freeze(server: Server) -> None:
    server.signal(signal.SIGSTOP)


def _kill_postmaster(server: Server) -> None:
    os.kill(server.postmaster, signal.SIGKILL)


class Services:
    """Broker and object store: killed, wiped, mute, without room."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def lanes(self) -> list[Lane]:
        lanes = []
        if (broker := self._scene.cluster.broker) is not None:
            deeds = [
                Deed("kill nats", partial(self._restart, broker, "kill")),
                Deed("wipe nats", partial(self._restart, broker, "wipe")),
                Deed("hold nats", partial(self._hold, broker)),
            ]
            lanes.append(Lane("broker", deeds, 6.0))
        if (bucket := self._scene.cluster.bucket) is not None:
            deeds = [
                Deed("kill s3", partial(self._restart, bucket, "kill")),
                Deed("hold s3", partial(self._hold, bucket)),
            ]
            if bucket.disk is not None:
                deeds.insert(0, Deed("full bucket", partial(self._fill, bucket)))
            lanes.append(Lane("bucket", deeds, 12.0))
        return lanes

    async def _restart(self, service: Service, how: str) -> None:
        await whole(self._end_and_begin(service, how))

    async def _end_and_begin(self, service: Service, how: str) -> None:
        began = now()
        await service.end()
        is_down = not service.answers()
        if how == "wipe":
            service.wipe()
        await asyncio.sleep(self._scene.chance.uniform(0.0, 3.0))
        await service.begin()
        self._scene.record(f"{how} {service.name}", service.name, began, "SIGKILL", happened=is_down)

    async def _hold(self, service: Service) -> None:
        """As behind a cut in the network: connections stay open, and nobody answers."""
        began, since = now(), time.monotonic()
        service.stop()
        is_mute = True
        try:
            await asyncio.sleep(self._scene.chance.choice((5.0, 5.0, 25.0)))
        finally:
            is_mute = service.stands_still
            service.go_on()
            evidence = f"stood still for {time.monotonic() - since:.1f} s"
            self._scene.record(f"hold {service.name}", service.name, began, evidence, happened=is_mute)

    async def _fill(self, service: Service) -> None:
        """Writes of a client fail while there is no room, and succeed when there is some again."""
        await whole(self._fill_and_clear(service))

    async def _fill_and_clear(self, service: Service) -> None:
        assert service.disk is not None
        began = now()
        is_full = await asyncio.to_thread(service.disk.fill)
        refused = not await service.takes_a_file()
        await asyncio.sleep(self._scene.chance.uniform(4.0, 10.0))
        refused = refused and not await service.takes_a_file()
        service.disk.clear()
        await service.restart()
        evidence = f"uploads {'were refused' if refused else 'went on'}; restarted when there was room again"
        self._scene.record("full bucket", service.name, began, evidence, happened=is_full and refused)
