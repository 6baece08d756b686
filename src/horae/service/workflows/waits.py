"""Does runs of kind `wait`: claims them as a server does, lets them wait, and ends them by what they were told."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from horae.core.model import Moment, State
from horae.core.runs.orders import Assignment, Result
from horae.core.runs.waits import read_answers
from horae.core.waits import Ended
from horae.core.work import waiting
from horae.ports.store.moments import StoreClock


class PlainWaits:
    def __init__(self, store: StoreClock) -> None:
        self._store = store

    async def begin(self, claimed: Sequence[Assignment]) -> list[Result]:
        """Return what becomes of runs that were claimed: most wait."""
        now = await self._store.now()
        return [_outcome(a, now) for a in claimed]


def _outcome(a: Assignment, now: Moment) -> Result:
    spec = msgspec.json.decode(a.spec)
    ended = waiting.end(spec, read_answers(a.answers))
    if ended is None and waiting.is_past(spec, now):
        ended = Ended(State.SUCCEEDED)
    if ended is None:
        wait = waiting.begin(spec)
        return Result(a.run_id, a.fence, State.BLOCKED, wait.reason, now, now, wait=wait)
    result = None if ended.result is None else msgspec.json.encode(ended.result).decode()
    return Result(
        a.run_id, a.fence, ended.state, ended.reason, now, now, message=ended.message, result=result, final=True
    )
