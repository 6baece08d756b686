"""Learning how long runs take, now and then, from those that have ended since.

The leader does it. A round is a handful of statements whatever has happened meanwhile, and two small reads when nothing
has. Why nothing is learned twice, and what may be forgotten, is said in core.insight.learning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from horae.core.insight.baselines import Baseline, ended_run, learn
from horae.core.insight.learning import APART, MOST_OF_JOB, MOST_WAITING, EndedRun, Mark, first_mark
from horae.ports.store.history import Durations
from horae.ports.store.moments import StoreClock


class LearningStore(Durations, StoreClock, Protocol):
    """Ended runs, what was learned of them, and what time it is."""


class Learned(NamedTuple):
    runs: int = 0
    unusual: tuple[int, ...] = ()  # jobs that take unusually long since


NOTHING = Learned()


class Learning:
    def __init__(self, store: LearningStore) -> None:
        self._store = store

    async def learn(self) -> Learned:
        """Learn of the next stretch of runs; nothing, where somebody else does or has just done so."""
        mark, newest = await self._store.load_mark(), await self._store.newest_run()
        if mark is None:
            await self._store.begin_learning(first_mark(newest, await self._store.now()))
            return NOTHING
        if mark.after == newest and not mark.waiting:
            return NOTHING
        now = await self._store.now()
        return await self._round(mark, newest, now) if now - mark.noted_at >= APART else NOTHING

    async def _round(self, mark: Mark, newest: int, now: int) -> Learned:
        # First who lives: whoever ends in between is found among the ended, and is remembered no longer.
        live = await self._store.load_live_upto(mark.upto, MOST_WAITING)
        ended = await self._ended(mark, live)
        moved = mark.next(newest, now, live, [run.id for run in ended])
        if not ended and moved == mark:
            return NOTHING
        known = await self._store.load_baselines(sorted({run.job_id for run in ended})) if ended else {}
        learned = _learned(known, ended)
        if not await self._store.save_baselines(mark, moved, learned, now):
            return NOTHING
        return Learned(len(ended), _newly_unusual(known, learned))

    async def _ended(self, mark: Mark, live: Sequence[int]) -> list[EndedRun]:
        """Return what ended in this stretch, and of those before that had not ended."""
        waited = sorted(set(mark.waiting).difference(live))
        found = await self._store.load_ended_of(waited) if waited else []
        if mark.upto > mark.after:
            found += await self._store.load_ended_between(mark.after, mark.upto, mark.thinning, MOST_OF_JOB)
        return found


def _learned(known: Mapping[int, Baseline], ended: Sequence[EndedRun]) -> dict[int, Baseline]:
    by_job: dict[int, list[EndedRun]] = {}
    for run in ended:
        by_job.setdefault(run.job_id, []).append(run)
    return {
        job_id: learn(
            known.get(job_id, Baseline()), [ended_run(run.started_at, run.finished_at, run.is_success) for run in runs]
        )
        for job_id, runs in by_job.items()
    }


def _newly_unusual(known: Mapping[int, Baseline], learned: Mapping[int, Baseline]) -> tuple[int, ...]:
    return tuple(
        job_id
        for job_id, one in learned.items()
        if one.is_unusual and not known.get(job_id, Baseline()).is_unusual
    )  # fmt: skip
