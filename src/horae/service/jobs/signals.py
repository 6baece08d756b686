"""Telling runs what they wait for.

Those of many callers go to the store together; each has its own answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from horae.core.definitions import Idempotency
from horae.core.model import Run
from horae.core.runs.waits import Signal, Told
from horae.errors import Conflict, Error, NotFound
from horae.ports.store.runs import Runs
from horae.ports.store.signals import Signals as SignalStore
from horae.ports.transport import Queue
from horae.service.batching import Coalescer

TOGETHER = 1000  # signals that one statement writes at most


class SignalsStore(Runs, SignalStore, Protocol):
    """Runs, and what they are told."""


class Signals:
    def __init__(self, store: SignalsStore, queue: Queue) -> None:
        self._store = store
        self._queue = queue
        self._signals = Coalescer(self._send_all, limit=TOGETHER)

    async def send(self, run_id: int, name: str, value: str, by: str, idempotency: Idempotency | None = None) -> Run:
        """Tell a run something (JSON text); return it as it stands then. Who repeats it with the same key is told the
        same."""
        told = await self._signals.add(Signal(run_id, name, value, by, idempotency))
        run = await self._store.get_run(run_id)
        if run is None:  # there was none, or it ended and was removed since
            raise NotFound(f"there is no run {run_id}")
        if (error := _refusal(run, name, told)) is not None:
            raise error
        return run

    async def _send_all(self, signals: list[Signal]) -> Sequence[Told]:
        told = await self._store.signal(signals)
        if any(one in (Told.WOKEN, Told.REPEATED) for one in told):  # who came first may not have lived to say it
            self._queue.announce("runs")
            self._queue.announce("limits")  # one of them may demand more than a slot
        return told


def _refusal(run: Run, name: str, told: Told) -> Error | None:
    match told:
        case Told.ABSENT:
            return Conflict(f"run {run.id} has ended: {run.state.word}; it cannot be told anything", code="E_TERMINAL")
        case Told.ANSWERED:
            return Conflict(f"run {run.id} was told {name} already; a name is answered once", code="E_ANSWERED")
        case Told.LATE:
            return Conflict(f"run {run.id} waited for {name} in vain, and has gone on", code="E_ANSWERED")
        case Told.FULL:
            return Conflict(f"run {run.id} was told so much that this does not fit", code="E_ANSWERS_FULL")
        case Told.MISMATCH:
            message = "this Idempotency-Key was used with a different request"
            return Conflict(message, code="E_IDEMPOTENCY_MISMATCH")
        case _:
            return None
