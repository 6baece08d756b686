"""Whose runs they are: jobs, queues or owners with most of them, each with its runs bucket by bucket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

from horae.core.insight.arrivals import Series, Window
from horae.core.insight.baselines import Expected
from horae.core.insight.cells import Cells, Group
from horae.core.model import SECOND, Moment

JOB, QUEUE, OWNER = "job", "queue", "owner"
MOST_BUCKETS = 48
BUCKETS = (60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)  # seconds


class Item(NamedTuple):
    """A job, a queue or an owner."""

    key: str
    name: str
    moments: int  # that are due
    runs: float  # that begin
    busy_seconds: float  # slots times seconds
    expected: Expected | None  # how long one takes, of a job
    buckets: list[float]  # runs
    job_id: int | None = None  # of a job: its name is looked up by it, and is empty until then


def bucket_seconds(window: Window) -> int:
    seconds = (window.end - window.start) // SECOND
    return next((size for size in BUCKETS if seconds <= size * MOST_BUCKETS), BUCKETS[-1])


class Items:
    """Items of one organisation, or of all."""

    def __init__(self, cells: Cells, by: str, org: int | None) -> None:
        self._window, self._planned, self._by = cells.window, cells.planned, by
        self._followers = [it for it, _ in cells.followed]
        self._cells = [*cells.of_rows, *(cell for _, cell in cells.followed)]
        self._keys = self._keyed()
        orgs = [*self._planned.org, *(it.org for it in self._followers)]
        self._rows = range(len(orgs)) if org is None else [row for row, its_org in enumerate(orgs) if its_org == org]
        self._counted: dict[Group, list[int]] = {}

    def _keyed(self) -> Sequence[object]:
        if self._by == JOB:
            return [*self._planned.job_id, *(it.job_id for it in self._followers)]
        if self._by == OWNER:
            return [*self._planned.owner, *(it.owner for it in self._followers)]
        return [cell.use.profile.queue for cell in self._cells]

    def find(self, limit: int) -> tuple[list[Item], int]:
        """Return those with most runs, and how many there are."""
        sums = self._sums()
        shares: dict[object, list[int]] = {key: [] for key in nlargest(limit, sums, key=sums.__getitem__)}
        keys = self._keys
        for row in [row for row in self._rows if keys[row] in shares]:
            shares[keys[row]].append(row)
        return [self._item(str(key), rows) for key, rows in shares.items()], len(sums)

    def _sums(self) -> dict[object, float]:
        """Return the runs of each key."""
        cells = self._cells
        keys, runs = self._keys, [cell.runs * cell.each for cell in cells]
        if len(self._rows) < len(cells):
            keys, runs = [keys[row] for row in self._rows], [runs[row] for row in self._rows]
        sums = dict(zip(keys, runs, strict=True))
        if len(sums) < len(keys):
            sums = dict.fromkeys(sums, 0.0)
            for key, some in zip(keys, runs, strict=True):
                sums[key] += some
        return sums

    def _item(self, key: str, rows: Sequence[int]) -> Item:
        by_group, moments, runs, busy = dict[Group, float](), 0.0, 0.0, 0.0
        for cell, times in Counter(self._cells[row] for row in rows).items():
            group, weight = cell.group, times * cell.each
            moments += group.moments * weight
            runs += cell.runs * weight
            busy += cell.busy * weight
            if cell.runs:
                by_group[group] = by_group.get(group, 0.0) + weight * cell.kept
        buckets = self._buckets(by_group)
        if self._by != JOB:
            return Item(key, key, round(moments), runs, busy, None, buckets)
        return Item(key, "", round(moments), runs, busy, self._expected(rows[0]), buckets, int(key))

    def _expected(self, row: int) -> Expected:
        """Return how long a run takes, as it was learned; what was not, as it was guessed."""
        beyond = row - len(self._planned.job_id)
        it = self._planned.row(row) if beyond < 0 else self._followers[beyond]
        return Expected(it.median / SECOND, it.spread or 0.0) if it.median else self._cells[row].use.expected

    def _buckets(self, by_group: Mapping[Group, float]) -> list[float]:
        """Return runs bucket by bucket, of so many at each moment of these groups."""
        width, start = bucket_seconds(self._window) * SECOND, self._window.start
        found = [0.0] * -(-(self._window.end - start) // width)
        for group, each in by_group.items():
            if group.moments == 1:
                moment = group.series.stretches[0].first
                if moment < self._window.end:
                    found[(moment - start) // width] += each
                continue
            if group not in self._counted:
                self._counted[group] = _counted(group.series.inside(self._window), start, width, len(found))
            found = [before + each * count for before, count in zip(found, self._counted[group], strict=True)]
        return found


def _counted(series: Series, start: Moment, width: int, size: int) -> list[int]:
    """Return how many moments lie in each bucket."""
    found = [0] * size
    for first, step, times in series.stretches:
        if times <= size:
            for moment in range(first, first + times * step, step):
                found[(moment - start) // width] += 1
            continue
        before = 0
        for index in range((first - start) // width, size):
            passed = min(times, -(-(start + (index + 1) * width - first) // step))
            found[index] += passed - before
            before = passed
    return found
