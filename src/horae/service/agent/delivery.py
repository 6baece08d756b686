"""Delivery: what an agent has to tell the service of its attempts, until the service has taken it.

    result ──► waits in memory ──► reported, in batches
                     └──► on disk meanwhile (the spool), so that it survives us

A result is known by its run and fence, of which there is one. Phases and progress are news of work that goes on: only
the newest counts, and none is told of an attempt that has ended.

What must stay true: a result is ours until the service has answered that it took it; one whose output is still on its
way waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from itertools import islice

from horae.core.model import Phase
from horae.core.runs.holdings import Fenced
from horae.core.runs.orders import Result
from horae.errors import MachineFault, Unavailable
from horae.ports.outputs import Spool
from horae.ports.transport import Link
from horae.service.agent.health import Health
from horae.service.agent.workload import Workload

RESULTS_PER_REPORT = 1000
LAST_REPORT_SECONDS = 10.0  # for the last results, and the output they wait for, when the agent stops


class Delivery:
    def __init__(self, link: Link, workload: Workload, health: Health, spool: Spool | None = None) -> None:
        """`spool` keeps results over a crash."""
        self._link = link
        self._workload = workload
        self._health = health
        self._spool = spool
        self._results: dict[Fenced, Result] = {}  # in the order in which they came
        self._spooled: set[Fenced] = set()  # results that are in the spool
        self._phases: dict[int, tuple[int, Phase]] = {}  # run → fence and phase, of those to be sent
        self._progress: dict[int, tuple[int, str]] = {}  # run → fence and progress, of those to be sent
        self._reporting = asyncio.Lock()
        self.is_last = False  # the agent stops: whoever drains waits for the last report
        self.results_ready = asyncio.Event()
        self.results_made = asyncio.Event()  # for the spool
        self.phases_changed = asyncio.Event()
        self.progress_made = asyncio.Event()
        if spool is not None:
            spool.on_settled = self.results_ready.set

    @property
    def waiting(self) -> int:
        """How many results were not reported yet."""
        return len(self._results)

    @property
    def is_reporting(self) -> bool:
        return self._reporting.locked()

    def attempts(self) -> Collection[Fenced]:
        """Return those whose results were not reported yet."""
        return self._results.keys()

    # ── results ──
    async def load(self, kept: Collection[Fenced]) -> None:
        """Take what an earlier life finished and could not report; `kept` are attempts that go on."""
        if self._spool is None:
            return
        self._results = {_fenced(result): result for result in await self._spool.load(kept)}
        self._spooled = set(self._results)
        self.results_ready.set()

    def add(self, result: Result) -> None:
        """It is sent once that is announced."""
        self._results.setdefault((result.run_id, result.fence), result)

    def announce(self) -> None:
        """There are results to be sent, and to be kept."""
        self.results_ready.set()
        self.results_made.set()

    async def report(self) -> int:
        """Send what is finished, once; kept and repeated when the service cannot be reached."""
        async with self._reporting:
            self.results_ready.clear()
            self._workload.check_keeper()
            batch = self._deliverable()
            if not batch:
                return 0
            try:
                await self._link.finish(batch)
                self._forget(batch)  # only now: until it is answered, we hold them
            finally:
                if self._results or self.is_last:
                    self.results_ready.set()
            return len(batch)

    def _deliverable(self) -> list[Result]:
        unsettled = self._spool.unsettled if self._spool is not None else ()
        ready = (result for attempt, result in self._results.items() if attempt not in unsettled)
        return list(islice(ready if unsettled else self._results.values(), RESULTS_PER_REPORT))

    def _forget(self, batch: Sequence[Result]) -> None:
        sent = [(result.run_id, result.fence) for result in batch]
        self._workload.release(sent)
        for attempt in sent:
            del self._results[attempt]
        if self._spool is not None:
            self._spooled.difference_update(sent)
            self._spool.forget(batch)

    async def keep(self) -> None:
        """Put results that wait to be reported on disk, so that they survive us."""
        self.results_made.clear()
        if self._spool is None:
            return
        fresh = {attempt: result for attempt, result in self._results.items() if attempt not in self._spooled}
        if not fresh:
            return
        self._spooled |= fresh.keys()
        try:
            await self._spool.keep(list(fresh.values()))
        except MachineFault as error:  # they wait in memory, and are tried again with the next, or when there is room
            self._spooled -= fresh.keys()
            self._health.note(error.message)
            return
        self._workload.release(fresh)
        self._spool.forget([result for attempt, result in fresh.items() if attempt not in self._results])

    async def report_last(self) -> None:
        """Send all that is left. What the service does not take in time, start-up recovery takes back."""
        try:
            async with asyncio.timeout(LAST_REPORT_SECONDS):
                while self._results:
                    if not await self.report() and self._results:
                        await self.results_ready.wait()
        except (Unavailable, TimeoutError):
            return

    # ── news of what goes on ──
    def note_phase(self, attempt: Fenced, phase: Phase) -> None:
        self._phases[attempt[0]] = (attempt[1], phase)
        self.phases_changed.set()

    def note_progress(self, attempt: Fenced, progress: str) -> None:
        """`progress` is JSON text."""
        self._progress[attempt[0]] = (attempt[1], progress)
        self.progress_made.set()

    def drop_news(self, run_id: int) -> None:
        if self._phases or self._progress:  # most runs have none
            self._phases.pop(run_id, None)
            self._progress.pop(run_id, None)

    async def send_phases(self) -> None:
        """Send the phases that have changed, once; kept and repeated when the service cannot be reached."""
        self.phases_changed.clear()
        sent = dict(self._phases)
        if not sent:
            return
        try:
            await self._link.note_phases([(run_id, fence, phase) for run_id, (fence, phase) in sent.items()])
        except BaseException:
            self.phases_changed.set()
            raise
        self._phases = {run_id: news for run_id, news in self._phases.items() if sent.get(run_id) != news}

    async def send_progress(self) -> None:
        """Send how far the work is, once. What cannot be sent is dropped: there is newer soon."""
        self.progress_made.clear()
        sent, self._progress = self._progress, {}
        if sent:
            await self._link.note_progress([(run_id, fence, text) for run_id, (fence, text) in sent.items()])

    async def send_ailment(self) -> None:
        """Send what this machine is short of, once it is; kept and repeated when the service cannot be reached."""
        self._health.changed.clear()
        try:
            await self._link.note_ailment(self._health.ailment)
        except BaseException:
            self._health.changed.set()
            raise


def _fenced(result: Result) -> Fenced:
    return result.run_id, result.fence
