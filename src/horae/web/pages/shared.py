"""What many look at: made for the first who asks, and kept for a moment for others who see the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple

from horae.web.pages.shell import Drawn


class Seen(NamedTuple):
    """What a page shows, as it was a moment ago."""

    drawn: Drawn
    values: dict[str, Any]


class _Place:
    def __init__(self) -> None:
        self.alone = asyncio.Lock()
        self.until = 0.0  # when it is too old
        self.seen = Seen(Drawn(), {})


class Shared:
    def __init__(self, seconds: float) -> None:
        """`seconds`: for how long one look serves all who watch."""
        self._seconds = seconds
        self._places: dict[Hashable, _Place] = {}

    async def see(self, key: Hashable, look: Callable[[], Awaitable[dict[str, Any]]]) -> Seen:
        """Return what there is to see; whoever has the same key sees the same, and waits for the one who looks."""
        place = self._places.setdefault(key, _Place())
        async with place.alone:
            if time.monotonic() >= place.until:
                values = await look()
                place.seen = Seen(Drawn(), values)
                place.until = time.monotonic() + self._seconds
                self._forget()
            return place.seen

    def _forget(self) -> None:
        now = time.monotonic()
        self._places = {key: it for key, it in self._places.items() if it.until > now or it.alone.locked()}
