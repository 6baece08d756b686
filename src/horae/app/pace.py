"""When a batch is worth waiting for."""

from __future__ import annotations

from horae.ports.clock import Clock


class Pace:
    """Says when a batch is worth waiting for.

    Few at a time go at once. From BUSY a second, a pause between batches makes one commit of ten, and costs each
    run half of it; a batch that is full anyway never waits. The rate is that of a while: what piled up while one
    batch was written comes all at once with the next, and is no crowd.
    """

    BUSY, PAUSE = 2000, 0.04  # items a second, seconds
    SHORTEST = 0.1  # seconds over which a rate means something

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.elapsed()
        self._count = 0  # since then
        self._is_busy = False

    def after(self, count: int) -> float:
        """Seconds to wait after a batch of `count`."""
        self._count += count
        now = self._clock.elapsed()
        if now - self._since >= self.SHORTEST:
            self._is_busy = self._count > self.BUSY * (now - self._since)
            self._since, self._count = now, 0
        return self.PAUSE if self._is_busy else 0.0
