"""This process, as others see it: what it does, how busy it is, and the one thing they may ask of it, to look again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from horae.core.model import Moment
from horae.core.work.catalogues import HandlerFact
from horae.ports.transport import Queue
from horae.service.metrics import Metrics


async def _no_handlers() -> list[HandlerFact]:
    return []


@dataclass(frozen=True, slots=True)
class LocalNode:
    node: str
    roles: tuple[str, ...]
    slots: int  # work its agent does at once
    scan_interval: float  # seconds
    is_shared: bool  # schedulers share the segments; else one has them all
    queue: Queue
    metrics: Metrics
    scanned_at: Callable[[], Moment | None]  # when its scheduler last came round
    busy: Callable[[], int]  # work its agent does now
    is_leader: Callable[[], bool]
    installation: str = ""  # its part of trace ids (core.runs.traces)
    handlers: Callable[[], Awaitable[list[HandlerFact]]] = _no_handlers  # Python handlers that its agent has
    led_since: Callable[[], Moment | None] = lambda: None  # when it took the lead, if it leads

    def reload(self) -> None:
        """Make this node's scheduler read its triggers again, from the beginning."""
        self.queue.announce("due")
