"""What a process without an API still answers: /healthz and /metrics, for those who watch over it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Message = dict[str, Any]
TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class Probe:
    """An ASGI application of two addresses."""

    def __init__(self, health: Callable[[], str], metrics: Callable[[], bytes]) -> None:
        """`health` says "ok" or what is wrong."""
        self._health = health
        self._metrics = metrics

    async def __call__(self, scope: Message, receive: object, send: Callable[[Message], Awaitable[None]]) -> None:
        status, kind, body = self._answer(scope["path"])
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _answer(self, path: str) -> tuple[int, bytes, bytes]:
        if path == "/metrics":
            return 200, TEXT, self._metrics()
        if path == "/healthz":
            health = self._health()
            return 200 if health == "ok" else 503, TEXT, f"{health}\n".encode()
        return 404, TEXT, b"here are /healthz and /metrics\n"
