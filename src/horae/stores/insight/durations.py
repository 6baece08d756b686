"""How long runs take: learned from history, kept as a row for each job, read for forecasts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from horae.core.insight.baselines import Baseline, baseline_from, baseline_text
from horae.core.insight.learning import EndedRun, Mark, mark_from
from horae.core.insight.planned import Columns, Follower
from horae.core.model import SECOND, Moment
from horae.core.time.outside import ON, is_outside
from horae.core.work.policies import policy_from_text
from horae.stores.database import Database, Steps
from horae.stores.insight.schedules import read_schedules
from horae.stores.rows import Row, encode, from_json

PLANNED = "load_planned_moments", "load_planned_jobs"
MARK = "durations"  # the name of the setting that says how far history was learned from


class DurationPart(Database):
    """Baselines of durations, and what is planned."""

    async def load_mark(self) -> Mark | None:
        rows = await self._get("get_setting", MARK)
        return mark_from(rows[0][0]) if rows else None

    async def begin_learning(self, mark: Mark) -> None:
        await self._put("keep_setting", MARK, mark.text)

    async def newest_run(self) -> int:
        return int((await self._get("newest_run"))[0][0] or 0)

    async def load_live_upto(self, run_id: int, most: int) -> list[int]:
        return [row[0] for row in await self._get("live_upto", run_id, most)]

    async def load_ended_between(self, after: int, upto: int, thinning: int, most: int) -> list[EndedRun]:
        return _ended(await self._get("ended_between", after, upto, thinning, most))

    async def load_ended_of(self, run_ids: Sequence[int]) -> list[EndedRun]:
        return _ended(await self._get("ended_of", self._list(run_ids)))

    async def load_baselines(self, job_ids: Sequence[int]) -> dict[int, Baseline]:
        return {row[0]: baseline_from(row[1]) for row in await self._get("load_baselines", self._list(job_ids))}

    async def save_baselines(self, mark: Mark, moved: Mark, learned: Mapping[int, Baseline], now: Moment) -> bool:
        rows = encode([duration_row(job_id, one) for job_id, one in learned.items()])

        def steps() -> Steps[bool]:
            if not (yield "move_mark", MARK, mark.text, moved.text):
                return False
            yield "save_durations", rows, now
            return True

        return await self._transact(steps)

    async def count_planned(self, before: Moment, most: int) -> int:
        return int((await self._get("count_planned", before, most))[0][0])

    async def load_planned(self, before: Moment, most: int) -> Columns:
        # The most is written out: for any number, PostgreSQL plans for few rows, and looks up the duration of each.
        parts = [self.queries[name].replace("{most}", str(most)) for name in PLANNED]
        [moments], [jobs] = await asyncio.gather(*(self.read(part, before) for part in parts))
        return await asyncio.to_thread(self._planned, moments, jobs)  # of very many, others would have to wait for it

    def _planned(self, moments: Row, jobs: Row) -> Columns:
        """Return triggers; none that nobody here can read, that its job no longer has, or that changed meanwhile so
        that only one of both tells of it."""
        trigger_id, org, owner, kind, policy, texts = jobs
        ids = self._column(trigger_id)
        known, next_at, last_at, job_id, median, spread = _in_order(ids, [self._column(some) for some in moments])
        schedules, created_at = read_schedules(ids, texts or "")
        columns = Columns(
            ids, next_at, last_at, job_id, self._column(org), self._texts(owner), self._texts(kind),
            self._texts(policy), schedules, created_at, median, spread,
        )  # fmt: skip
        if known is ids and "" not in schedules:
            return columns
        return columns.where([id_ == own and bool(text) for id_, own, text in zip(ids, known, schedules, strict=True)])

    async def load_followers(self, most: int) -> list[Follower]:
        found = [_follower(row) for row in await self._get("load_followers", most)]
        tasks = [_task(row) for row in await self._get("load_parts", most)]
        return [one for one in found if one.heard] + tasks

    async def count_queued(self) -> dict[str, int]:
        return {row[0]: row[1] for row in await self._get("count_queued")}


def _in_order(ids: list[int], columns: list[list[Any]]) -> list[list[Any]]:
    """Return columns in the order of these ids, which the first of them has too; nothing where it has not."""
    known = columns[0]
    if known == ids:
        return [ids, *columns[1:]]
    row_of = dict(zip(known, range(len(known)), strict=True))
    rows = [row_of.get(id_, -1) for id_ in ids]
    return [[*map([*column, None].__getitem__, rows)] for column in columns]


def duration_row(job_id: int, baseline: Baseline) -> tuple[int, int | None, float | None, float, str]:
    """Return (job, median, spread, share of successes, all of it)."""
    expected = baseline.predict()
    median = None if expected is None else max(1, round(expected.median * SECOND))
    spread = None if expected is None else round(expected.spread, 4)
    return job_id, median, spread, round(baseline.share, 4), baseline_text(baseline)


def _ended(rows: Sequence[Row]) -> list[EndedRun]:
    return [EndedRun(row[0], row[1], bool(row[2]), row[3], row[4]) for row in rows]


def _follower(row: Row) -> Follower:
    job_id, org, name, owner, kind, policy, triggers, median, spread, share = row
    schedules = [doc["schedule"] for doc in from_json(triggers) if doc["enabled"]]
    heard = [(doc[ON].get("id"), _ending(doc[ON]["states"])) for doc in schedules if ON in doc]
    if all(is_outside(doc) for doc in schedules):  # with moments of its own, these say how many runs there are
        heard += [(one.id, one.on) for one in policy_from_text(policy).after]
    known = tuple((source, ending) for source, ending in heard if source is not None)
    return Follower(job_id, org, name, owner, kind, policy, known, median, spread, share)


def _ending(states: Sequence[str]) -> str:
    """Return the end of a run to which somebody listens, as far as a share of successes tells them apart."""
    is_success, is_failure = "succeeded" in states, bool({"failed", "timed_out"} & {*states})
    return "end" if is_success and is_failure else "success" if is_success else "failure" if is_failure else "never"


def _task(row: Row) -> Follower:
    job_id, org, name, owner, kind, policy, part_of, median, spread, share = row
    return Follower(job_id, org, name, owner, kind, policy, (), median, spread, share, part_of)
