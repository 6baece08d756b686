"""Callers: runs that wait for runs which they called, and are told how those ended; and addresses of watched jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from horae.core.model import Moment, Run, State
from horae.core.runs.calls import Answered, CallEnd, is_complete, with_ends
from horae.core.runs.endings import Ending
from horae.core.runs.waits import read_answers
from horae.stores.attempts import count_demanding, has_some_for_servers
from horae.stores.database import Database, Steps
from horae.stores.rows import Row, run_from_row


class CallPart(Database):
    """What callers are told."""

    async def load_awaiting(self, name: str, limit: int) -> list[Run]:
        return [run_from_row(row) for row in await self._get("load_awaiting", name, limit)]

    async def load_awaiting_of(self, run_id: int, name: str, limit: int) -> list[Run]:
        return [run_from_row(row) for row in await self._get("load_awaiting_of", name, limit, run_id)]

    async def load_edition(self, job_id: int) -> int:
        rows = await self._get("load_edition", job_id)
        return int(rows[0][0]) if rows else 0

    async def next_edition(self, job_id: int) -> int:
        return int((await self._put("next_edition", job_id))[0][0])

    async def answer_calls(self, rows: Sequence[Ending]) -> Answered:
        now = await self.now()

        def steps() -> Steps[Answered]:
            parents = sorted({row.parent_id for row in rows if row.parent_id is not None})
            callers = yield "lock_callers", self._list(parents)
            ended = yield "load_call_ends", self._list([row.run_id for row in rows if row.run_id is not None])
            ends = _by_parent(ended)
            going_on: list[Row] = []
            is_noted = False
            for caller in callers:
                if caller[3]:
                    is_followed, promoted = yield from self._end_caller(caller, now)
                    is_noted |= is_followed
                    going_on += promoted
                elif caller[0] in ends:
                    going_on += yield from self._tell_caller(caller, ends[caller[0]], now)
            yield "drop_endings", self._list([row.id for row in rows])
            is_noted |= has_some_for_servers(going_on)
            return Answered(len(going_on), count_demanding(going_on), is_noted)

        return await self._transact(steps)

    def _tell_caller(self, caller: Row, ends: Sequence[CallEnd], now: Moment) -> Steps[Sequence[Row]]:
        """Return it, if it goes on."""
        run_id, answers, awaits, _, is_blocked, *_ = caller
        known = frozenset(read_answers(answers))
        goes_on = is_blocked and awaits and is_complete(awaits, known | {end.task for end in ends})
        rows = yield "tell", run_id, with_ends(answers, ends, known, now), int(bool(goes_on))
        return rows if goes_on else ()

    def _end_caller(self, caller: Row, now: Moment) -> Steps[tuple[bool, Sequence[Row]]]:
        """One that somebody wants cancelled ends when the last that it called has; return whether somebody waits for
        its end, and its successor."""
        run_id, _, _, _, is_blocked, job_id, is_followed, has_live = caller
        if not is_blocked or has_live:
            return False, ()
        yield "bury_returned", run_id, now
        yield "drop_returned", run_id
        promoted = (yield "promote", self._list([job_id])) if job_id is not None else ()
        return bool(is_followed), promoted


def _by_parent(rows: Sequence[Row]) -> Mapping[int, list[CallEnd]]:
    ends: dict[int, list[CallEnd]] = {}
    for parent_id, run_id, task, state, message, result in rows:
        ends.setdefault(parent_id, []).append(CallEnd(run_id, task, State(state), message, result))
    return ends
