"""How word leaves this process: hints to other nodes, and over NATS, where there is one, queued runs and events.

A node without a broker has its silent form, so that nobody else asks whether there is one.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from horae.config import Config
from horae.ports.clock import Clock
from horae.ports.store import Store
from horae.queues.local import LocalQueue
from horae.queues.nats import DEBOUNCE as NATS_DEBOUNCE
from horae.queues.nats import NatsWire
from horae.queues.publisher import NatsPublisher
from horae.queues.shared import SharedQueue
from horae.service.announcer import WorkAnnouncer
from horae.service.events.documents import Documents
from horae.service.events.publishing import Publishing
from horae.stores.postgres.notices import Notices
from horae.wire.nats.broker import Connector

HINT_SECONDS = 5.0  # after which the connection for hints counts as lost

Steps = dict[str, Callable[[], Awaitable[None]]]


def open_queue(config: Config) -> LocalQueue:
    """Hints between the parts of this process; on PostgreSQL or over NATS, also to and from other nodes."""
    if config.broker is not None:
        hints = connector_for(config, "hints")
        return SharedQueue(lambda: NatsWire.open(hints), debounce=NATS_DEBOUNCE)
    if config.sqlite_path is not None:
        return LocalQueue()
    return SharedQueue(lambda: Notices.open(config.database, timeout=HINT_SECONDS))


class Broker:
    """Publishes over NATS."""

    def __init__(
        self, config: Config, store: Store, queue: SharedQueue, clock: Clock, is_leader: Callable[[], bool],
        installation: str,
    ) -> None:  # fmt: skip
        self._store = store
        self._queue = queue
        self._clock = clock
        self._publisher = NatsPublisher(connector_for(config, "courier"))
        documents = Documents(store, installation)
        self._publishing = Publishing(store, self._publisher, queue, clock, documents, is_leader=is_leader)

    async def open(self) -> None:
        await self._publisher.open()

    def steps(self) -> Steps:
        """Return what is to be repeated while the process lives, by name."""
        announcer = WorkAnnouncer(self._store, self._queue, self._queue.own, self._publisher, self._clock)
        return {
            "handover": announcer.step, "attendance": announcer.watch_agents, "publishing": self._publishing.step,
        }  # fmt: skip

    async def drain_events(self) -> None:
        await self._publishing.drain()

    async def close(self) -> None:
        await self._publisher.close()


class NoBroker:
    """Its silent form."""

    async def open(self) -> None:
        return

    def steps(self) -> Steps:
        return {}

    async def drain_events(self) -> None:
        return

    async def close(self) -> None:
        return


def make_broker(
    config: Config, store: Store, queue: LocalQueue, clock: Clock, is_leader: Callable[[], bool], installation: str
) -> Broker | NoBroker:
    if config.broker is None or not isinstance(queue, SharedQueue):
        return NoBroker()
    return Broker(config, store, queue, clock, is_leader, installation)


def connector_for(config: Config, purpose: str) -> Connector:
    assert config.broker is not None
    return Connector(config.broker, f"horae {config.node} {purpose}", authority_of(config))


def authority_of(config: Config) -> bytes | None:
    """Whom this node trusts to be a server of its cluster: the certificate they all have, or whom the system trusts."""
    if config.tls_cert is None:
        return None
    system = ssl.get_default_verify_paths().cafile
    return config.tls_cert.read_bytes() + b"\n" + (Path(system).read_bytes() if system else b"")
