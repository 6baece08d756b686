"""Drains the inbox: what others handed over in their own transactions becomes runs.

Every process may do this at the same time, and die at any line: a row and its run change places in one transaction.
No row may stop those behind it, whatever a stranger wrote into it: a batch that fails is taken row by row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Protocol

import structlog

from horae.core.model import SECOND, Reason
from horae.core.policy.demands import own_data
from horae.core.policy.queues import user_of
from horae.core.runs.inbox import BEGINNING, Drained, Reading, Refusal, Since, Target, judge
from horae.core.runs.orders import NewRun
from horae.core.work.kinds import BY_SERVERS
from horae.errors import Error, Unavailable
from horae.ports.clock import Clock
from horae.ports.store.inbox import Inbox as HandedOver
from horae.ports.store.inbox import Judge
from horae.ports.transport import Queue
from horae.service.metrics import Metrics
from horae.service.policy.placing import Candidate, Placing, PlacingStore

log = structlog.get_logger()
REFUSED_KEPT = 30 * 86_400 * SECOND
BATCH = 1000  # rows that change places in one transaction


class InboxStore(HandedOver, PlacingStore, Protocol):
    """What was handed over, and where its runs wait."""


class Inbox:
    def __init__(
        self, store: InboxStore, queue: Queue, clock: Clock, metrics: Metrics, *,
        foreign_kinds: Collection[str] = (),
    ) -> None:  # fmt: skip
        """`foreign_kinds`: see Placing."""
        self._store = store
        self._queue = queue
        self._clock = clock
        self._metrics = metrics
        self._placing = Placing(store, queue, foreign_kinds)
        self._reading = Reading()
        self.is_used = False  # by anybody, ever, as far as we know: until then nobody looks

    async def drain(self) -> int:
        """Take a batch, if there is anything; return how many rows it was."""
        began = self._clock.elapsed()
        since = self._reading.since(began)
        receipts: Sequence[int] = ()
        if await self._store.has_handed(since):
            drained = await self._take(since)
            receipts = drained.receipts
            self._tell(drained)
        self._reading.note(since, receipts, began, self._clock.elapsed())
        return len(receipts)

    async def _take(self, since: Since) -> Drained:
        try:
            return await self._store.drain(judge, self._place, BATCH, since)
        except Unavailable:
            raise
        except Exception as error:
            log.error("inbox.batch_failed", error=_words(error))
            return await self._take_one()

    async def _take_one(self) -> Drained:
        """The oldest row, which is refused if that fails too."""
        try:
            return await self._store.drain(judge, self._place, 1, BEGINNING)
        except Unavailable:
            raise
        except Exception as error:
            why = _words(error)
            refuse: Judge = lambda handed, *_: Refusal(handed, "E_INTERNAL", why)  # noqa: E731
            return await self._store.drain(refuse, self._place, 1, BEGINNING)

    async def _place(self, handed: Sequence[tuple[Target, NewRun]]) -> None:
        await self._placing.place([_candidate(target, run) for target, run in handed])

    def _tell(self, drained: Drained) -> None:
        self._metrics.handed += len(drained.runs)
        self._metrics.refused += len(drained.refused)
        if any(run.reason == Reason.LIMIT for run in drained.made):
            self._queue.announce("limits")
        if drained.runs:
            self._queue.announce("runs")
        if drained.replaces:
            self._queue.announce("cancel")
        if any(r.kind in BY_SERVERS or r.reason == Reason.DEPENDENCY or r.state.is_terminal for r in drained.made):
            self._queue.announce("endings")
        if any(run.reason in (Reason.LATER, Reason.DEBOUNCE) for run in drained.made):
            self._queue.announce("waiting")
        for one in drained.refused:
            log.warning(
                "inbox.refused", receipt=one.handed.id, job=one.handed.job, role=one.handed.role, code=one.code,
                message=one.message,
            )  # fmt: skip

    async def tend(self) -> None:
        """Note how full the inbox is, and whether anybody uses it; put back what waited for its job to be resumed, and
        forget what was refused a month ago."""
        level = await self._store.level()
        self.is_used = level.is_used
        if level.refused:
            await self._store.readmit()
            await self._store.drop_refused(level.seen_at - REFUSED_KEPT)
            level = await self._store.level()
        age = 0 if level.oldest_at is None else level.seen_at - level.oldest_at
        self._metrics.inbox = (level.waiting, max(age, 0), level.refused)


def _candidate(target: Target, run: NewRun) -> Candidate:
    user = user_of(target.owner, json.loads(target.annotations))
    data = None if target.spec is None else own_data(target.policy, json.loads(target.spec))
    return Candidate(run, target.policy, target.owner, target.org, user, data)


def _words(error: Exception) -> str:
    return error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}"
