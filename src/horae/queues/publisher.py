"""What is published through JetStream: work for agents, and events for everybody.

    HORAE_WORK     horae.work.<kind>.<priority>   a work queue in memory: each message goes to one agent, and is gone
                                                  when that agent has asked the database, or after a minute
    consumers      kind-<kind>                    from which agents pull as many as they have free slots

    HORAE_EVENTS   horae.events.<what>            what happened, kept for a week on disk, for whoever wants to know

The streams are made and kept up to date here, on three servers where the address names three; nobody else may change
them. Nothing in them is needed to be right: the database knows what waits, so a stream that is lost is made again,
empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import structlog

from horae.core.runs.orders import Queued
from horae.errors import Unavailable
from horae.ports.transport import Message
from horae.wire.nats import broker
from horae.wire.reconnect import Reconnect, end_task

log = structlog.get_logger()
encode = msgspec.json.Encoder().encode

ACK_SECONDS = 5.0  # for the broker to have stored a batch
MEGABYTE = 1 << 20

WORK_LIMITS = {
    "retention": "workqueue", "storage": "memory", "discard": "old", "max_age": 60.0, "max_msgs": 200_000,
    "max_bytes": 64 * MEGABYTE, "max_msg_size": 1024, "duplicate_window": 10.0,
}  # fmt: skip
EVENT_LIMITS = {
    "retention": "limits", "storage": "file", "discard": "old", "max_age": 7 * 86_400.0, "max_bytes": 256 * MEGABYTE,
    "max_msg_size": MEGABYTE, "duplicate_window": 120.0,
}  # fmt: skip
CONSUMER = {"ack_policy": "explicit", "ack_wait": 5.0, "max_deliver": 5, "max_ack_pending": -1}


class NatsPublisher:
    """The WorkPublisher and the EventPublisher."""

    def __init__(self, connector: broker.Connector) -> None:
        self._connector = connector
        self._client: Any = None
        self._stream: Any = None
        self._receipts: _Receipts | None = None
        self._ready = asyncio.Event()
        self._has_streams = False
        self._refused: set[str] = set()  # streams that were complained of over this connection
        self._made: set[str] = set()  # consumers, by kind
        self._reconnect = Reconnect(self._try_connection)
        self._task: asyncio.Task[None] | None = None
        self.connections = 0

    async def open(self) -> None:
        self._task = asyncio.create_task(self._reconnect.run())

    async def close(self) -> None:
        task, self._task = self._task, None
        await end_task(task)

    # ── the connection ──
    async def _try_connection(self) -> bool:
        try:
            await self._hold_connection()
        except Exception as error:  # whatever it is: what the broker does is never worth a process
            error_text, seconds = str(error) or type(error).__name__, self._reconnect.pause
            log.warning("courier.lost", error=error_text, retry_seconds=seconds)
            return False
        return True

    async def _hold_connection(self) -> None:
        lost = asyncio.Event()
        client = await self._connector.connect(lost.set)
        try:
            self._client, self._stream, self._made = client, client.jetstream(timeout=ACK_SECONDS), set()
            self._refused = set()
            await self._make_streams()
            self._receipts = await _Receipts.open(client)
            self.connections += 1
            self._ready.set()
            await lost.wait()
        finally:
            self._ready.clear()
            self._client = self._stream = self._receipts = None
            await broker.close_client(client)

    async def _make_streams(self) -> None:
        """A cluster that has just begun takes a while until it makes any; then they are made when they are needed."""
        work = await self._make_stream(broker.WORK_STREAM, [f"{broker.WORK}.>"], WORK_LIMITS)
        events = await self._make_stream(broker.EVENT_STREAM, [f"{broker.EVENTS}.>"], EVENT_LIMITS)
        self._has_streams = work and events

    async def _make_stream(self, name: str, subjects: Sequence[str], limits: dict[str, Any]) -> bool:
        """Make it, or bring it up to date; what was made by somebody else stays as it is, and is complained of."""
        wanted = {"name": name, "subjects": list(subjects), "num_replicas": self._connector.replicas, **limits}
        try:
            await self._stream.add_stream(**wanted)
        except Exception:  # perhaps there is one, with other limits
            try:
                await self._stream.update_stream(**wanted)
            except Exception as error:
                if name not in self._refused:
                    log.error("courier.stream_refused", stream=name, error=str(error) or type(error).__name__)
                self._refused.add(name)
                return False
        return True

    # ── what is published ──
    async def prepare(self, kinds: Sequence[str]) -> None:
        for kind in kinds:
            if kind not in self._made:
                await self._do(self._make_consumer(kind))

    async def _make_consumer(self, kind: str) -> None:
        if not self._has_streams:
            await self._make_streams()
        subject = f"{broker.WORK}.{kind}.>"
        name = broker.consumer_of(kind)
        await self._stream.add_consumer(broker.WORK_STREAM, durable_name=name, filter_subject=subject, **CONSUMER)
        self._made.add(kind)

    async def publish_runs(self, runs: Sequence[Queued]) -> None:
        await self._do(self._publish([_work_message(run) for run in runs]))

    async def publish_events(self, events: Sequence[Message]) -> None:
        await self._do(self._publish([_event_message(event) for event in events]))

    async def call_agents(self) -> None:
        await self._do(self._client.publish(broker.WANTING, b"") if self._client is not None else _nothing())

    async def _publish(self, messages: Sequence[tuple[str, str, bytes]]) -> None:
        """All at once, and wait until the broker has them."""
        client, receipts = self._client, self._receipts
        if receipts is None:
            raise Unavailable("NATS cannot be reached")
        if not self._has_streams:
            await self._make_streams()
        with receipts.expected(len(messages)) as (reply, received):
            for subject, name, payload in messages:
                await client.publish(subject, payload, reply=reply, headers={"Nats-Msg-Id": name})
            await received

    async def _do(self, step: Any) -> None:
        if not self._ready.is_set():
            step.close()
            raise Unavailable("NATS cannot be reached")
        task = asyncio.create_task(step)  # of its own: the library swallows a cancel that is meant for us
        try:
            await asyncio.wait([task], timeout=ACK_SECONDS)
            if not task.done():
                raise TimeoutError(f"no answer within {ACK_SECONDS:g} s")
            task.result()
        except Exception as error:
            self._made.clear()
            self._has_streams = False  # it may be that they are gone
            raise Unavailable(f"NATS did not take it: {error or type(error).__name__}") from error
        finally:
            task.cancel()


class _Receipts:
    """What the broker says to messages that it is to keep, counted by batch: the library's own way, a future for each
    message, costs more than all the rest."""

    def __init__(self, inbox: str) -> None:
        self._inbox = inbox
        self._batches: dict[str, tuple[asyncio.Future[None], list[int]]] = {}  # reply → all received, how many are not
        self._number = 0

    @classmethod
    async def open(cls, client: Any) -> _Receipts:
        receipts = cls(client.new_inbox())
        await client.subscribe(f"{receipts._inbox}.*", cb=receipts._count)
        return receipts

    @contextmanager
    def expected(self, count: int) -> Iterator[tuple[str, asyncio.Future[None]]]:
        """Where the answers of a batch go, and what is done when all have come."""
        self._number += 1
        reply, received = f"{self._inbox}.{self._number}", asyncio.get_running_loop().create_future()
        self._batches[reply] = (received, [count])
        try:
            yield reply, received
        finally:
            del self._batches[reply]
            received.cancel()

    async def _count(self, message: Any) -> None:
        received, missing = self._batches.get(message.subject, (None, []))
        if received is None or received.done():
            return  # of a batch that was given up
        missing[0] -= 1
        if b'"seq"' not in message.data or b'"error"' in message.data:
            said = message.data.decode(errors="replace") or "there is no such stream"
            received.set_exception(Unavailable(said))
        elif not missing[0]:
            received.set_result(None)


async def _nothing() -> None:
    """For whom nobody waits."""


def _work_message(run: Queued) -> tuple[str, str, bytes]:
    name = f"{run.run_id}-{run.attempt}"
    return f"{broker.WORK}.{run.kind}.{run.priority}", name, name.encode()


def _event_message(event: Message) -> tuple[str, str, bytes]:
    return f"{broker.EVENTS}.{event.kind}", event.name, encode(event.document)
