"""The wire of hints over NATS: one subject that every node hears. What is published, and when, is the business of
queues.shared; nothing here is kept by the broker, so a broker that was wiped has lost nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horae.errors import Unavailable
from horae.wire.nats import broker

DEBOUNCE = 0.002  # seconds between two messages: here they cost next to nothing
ANSWER_SECONDS = 5.0  # after which a broker that is silent counts as lost


class NatsWire:
    def __init__(self) -> None:
        self._client: Any = None
        self._on_close: Callable[[], None] = lambda: None
        self.is_closed = False

    @classmethod
    async def open(cls, connector: broker.Connector) -> NatsWire:
        wire = cls()
        wire._client = await connector.connect(wire._end)
        return wire

    def _end(self) -> None:
        self.is_closed = True
        self._on_close()

    async def listen(self, on_message: Callable[[str], None], on_close: Callable[[], None]) -> None:
        self._on_close = on_close

        async def read(message: Any) -> None:
            on_message(message.data.decode(errors="replace"))

        await self._client.subscribe(broker.HINTS, cb=read)
        await self._check_answer()

    async def count_others(self) -> int:
        """Nobody counts the listeners of a subject, and a message that nobody hears costs nothing: one, always. But
        whoever asks learns whether the broker is there."""
        await self._check_answer()
        return 1

    async def publish(self, text: str) -> None:
        await self._client.publish(broker.HINTS, text.encode())

    async def _check_answer(self) -> None:
        try:
            await self._client.flush(ANSWER_SECONDS)
        except Exception as error:
            raise Unavailable(f"NATS does not answer: {error or type(error).__name__}") from error

    async def close(self) -> None:
        await broker.close_client(self._client)

    def terminate(self) -> None:
        broker.abort_client(self._client)
