"""The past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from horae.core.insight.baselines import Baseline
from horae.core.insight.learning import EndedRun, Mark
from horae.core.insight.planned import Columns, Follower
from horae.core.model import Moment
from horae.core.runs.past import HistoryPart, Outdated, Remains


class History(Protocol):
    """The past, and how it is removed."""

    async def load_outdated(self, before: Moment, after: int, limit: int) -> Outdated:
        """Ended runs that finished before a moment, among the `limit` oldest after an id, and the attempts of theirs
        that may have left output: named it, or were lost before they could."""

    async def tend_history(self) -> bool:
        """Make what history needs while it is used, such as indexes and room ahead; whether it lies in parts that are
        dropped as a whole."""

    async def load_outdated_parts(self, before: Moment) -> list[HistoryPart]:
        """Parts of which all runs finished before a moment, and into which none will come any more."""

    async def drop_part(self, part: HistoryPart) -> None:
        """Drop a part with the attempts of its runs."""

    async def without_runs(self, first_ids: Sequence[int], width: int) -> list[int]:
        """Return those of these ids from which on, for `width` ids, there is no run, live or ended."""

    async def purge_remains(self, before: Moment, limit: int) -> Remains:
        """Drop what was of no use since before a moment: up to `limit` tombstones of jobs without any run, triggers
        without another moment, and names of nodes that are gone."""

    async def purge(self, run_ids: Sequence[int]) -> None:
        """Drop ended runs with their attempts from history."""

    async def purge_keys(self, before: Moment, limit: int) -> int:
        """Drop up to `limit` idempotency keys that were noted before a moment. They are kept for a day: a
        repeat within that time is recognised."""


class Durations(Protocol):
    """How long runs take, learned from those that ended."""

    async def load_mark(self) -> Mark | None:
        """Return how far history was learned from; None: not at all."""

    async def begin_learning(self, mark: Mark) -> None:
        """Keep a first mark, unless there is one."""

    async def newest_run(self) -> int:
        """Return the highest id of a run, live or ended; 0 where there is none."""

    async def load_live_upto(self, run_id: int, most: int) -> list[int]:
        """Return live runs up to this id, newest first."""

    async def load_ended_between(self, after: int, upto: int, thinning: int, most: int) -> list[EndedRun]:
        """Return runs with after < id ≤ upto that began and ended by themselves, oldest first: one of `thinning`, and
        of those the last `most` of each job."""

    async def load_ended_of(self, run_ids: Sequence[int]) -> list[EndedRun]:
        """Return those of these that began and ended by themselves, oldest first."""

    async def load_baselines(self, job_ids: Sequence[int]) -> dict[int, Baseline]:
        """Return the baselines of these jobs that have one."""

    async def save_baselines(self, mark: Mark, moved: Mark, learned: Mapping[int, Baseline], now: Moment) -> bool:
        """Write what was learned and move the mark, both or, if the mark is no longer that, neither."""


class Plans(Protocol):
    """What is to come."""

    async def load_planned(self, before: Moment, most: int) -> Columns:
        """Return triggers whose next moment lies before this one, up to `most` of them."""

    async def count_planned(self, before: Moment, most: int) -> int:
        """Return how many triggers have a moment before this one, as far as they are counted."""

    async def load_followers(self, most: int) -> list[Follower]:
        """Return jobs whose runs are made by those of others, and tasks of workflows, in the order of their ids."""

    async def count_queued(self) -> dict[str, int]:
        """Return how many runs wait for a slot, by kind of work."""
