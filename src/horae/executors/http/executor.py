"""The executor of kind "http"."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from horae.core.model import Reason, State
from horae.core.runs.orders import Result
from horae.executors.http.call import SILENCE_SECONDS, Call
from horae.executors.http.connections import Connections
from horae.executors.reach import Reach
from horae.ports.clock import Clock
from horae.ports.work import Done, Work


class HttpExecutor:
    """`silence` is how long a server may say nothing to a job without a timeout."""

    kind = "http"

    def __init__(self, reach: Reach, clock: Clock, slots: int, *, silence: float = SILENCE_SECONDS) -> None:
        self.slots = slots
        self.connections = Connections(reach)
        self._clock = clock
        self._silence = silence
        self._calls: dict[int, Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_open = False

    async def open(self) -> None:
        self._is_open = True

    def start(self, works: Sequence[Work], done: Done) -> None:
        for work in works:
            if not self._is_open:
                done(Result(work.assignment.run_id, work.assignment.fence, State.QUEUED))
                continue
            call = self._calls[work.assignment.run_id] = Call(work, self.connections, self._clock, self._silence)
            call.task = asyncio.create_task(self._carry_out(call, done))
            self._tasks.add(call.task)
            call.task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, call: Call, done: Done) -> None:
        result = await call.run()
        if self._calls.get(result.run_id) is call:
            del self._calls[result.run_id]
        done(result)

    def stop(self, run_id: int, reason: str) -> None:
        if run_id in self._calls:
            self._calls[run_id].stop(reason)

    async def close(self) -> None:
        """Break off what is left: those attempts fail as lost, for they did nothing wrong."""
        self._is_open = False
        for call in list(self._calls.values()):
            call.stop(Reason.LOST)
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self.connections.close()
