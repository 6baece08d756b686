"""How far each line of waiting runs has come, as this process knows it (core.policy.order).

Whoever claims knows best: the pass of the last run that was started. A new share begins there. Every now and then it is
written down beside a claim, for processes that make runs and claim none, and for the next life of this one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from horae.core.policy.order import Line

SAVE_SECONDS = 2.0  # between two times that a line is written down


class Lines:
    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._at: dict[tuple[str, int, int], int] = {}  # by line
        self._saved_at: dict[tuple[str, int, int], float] = {}
        self._moved: set[tuple[str, int, int]] = set()  # since they were written down

    def at(self, line: Line) -> int:
        return self._at.get(line, 0)

    def note_started(self, started: Iterable[tuple[str, int, int, int]]) -> None:
        """Lines, each with the pass of a run of it that was started."""
        for kind, queue, priority, at in started:
            line = (kind, queue, priority)
            if at > self._at.get(line, -1):
                self._at[line] = at
                self._moved.add(line)

    def unsaved(self) -> list[tuple[str, int, int, int]]:
        """Return what is to be written down now; it counts as written."""
        if not self._moved:
            return []
        now = self._elapsed()
        ready = sorted(line for line in self._moved if now - self._saved_at.get(line, float("-inf")) >= SAVE_SECONDS)
        for line in ready:
            self._saved_at[line] = now
            self._moved.discard(line)
        return [(*line, self._at[line]) for line in ready]
