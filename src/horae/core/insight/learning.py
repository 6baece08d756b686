"""How far history has been learned from, so that each run is learned once however often somebody dies.

Runs are looked at by their ids, in stretches. A stretch ends at the newest run there was a round ago: whatever had an
id by then has been written since. Runs that had not ended when their stretch was looked at are remembered, and learned
when they have. The mark that says all this moves in the transaction that writes what was learned, and only from where
it was: so whoever dies before has learned nothing, and of two who do the same at once one has done nothing.

What is not learned: runs whose transaction took longer than a round; of more than MOST_WAITING that had not ended, the
oldest; of more than MOST_TOGETHER in one round, all but as many; and of one job in one round, all but the last of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import NamedTuple

from horae.core.model import SECOND, Moment

APART = 30 * SECOND  # between two rounds, at least
MOST_WAITING = 1000  # runs that had not ended
MOST_TOGETHER = 50_000  # runs of a stretch
MOST_OF_JOB = 16  # the last of each job in a stretch
FIRST = 50_000  # runs of the past that are learned at the beginning


class EndedRun(NamedTuple):
    id: int
    job_id: int
    is_success: bool
    started_at: Moment
    finished_at: Moment


class Mark(NamedTuple):
    after: int  # runs up to this one have been looked at
    upto: int  # those up to this one are next: the newest when it was noted
    noted_at: Moment
    waiting: tuple[int, ...] = ()  # of those that were looked at, the ones that had not ended

    @property
    def text(self) -> str:
        return json.dumps([self.after, self.upto, self.noted_at, self.waiting], separators=(",", ":"))

    @property
    def thinning(self) -> int:
        """Return of how many runs one is learned."""
        return max(1, -(-(self.upto - self.after) // MOST_TOGETHER))

    def next(self, newest: int, now: Moment, live: Collection[int], ended: Iterable[int]) -> Mark:
        """Return the mark after a round: `live` had not ended, and `ended` were learned."""
        noted_at = self.noted_at if newest == self.upto else now
        return Mark(self.upto, max(newest, self.upto), noted_at, tuple(sorted(set(live).difference(ended))))


def first_mark(newest: int, now: Moment) -> Mark:
    """Return where learning begins: with the latest runs, for an installation may be years old."""
    return Mark(max(0, newest - FIRST), newest, now)


def mark_from(text: str) -> Mark:
    after, upto, noted_at, waiting = json.loads(text)
    return Mark(after, upto, noted_at, tuple(waiting))
