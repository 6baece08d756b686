"""Who comes after whom, or listens to whom, as jobs are written.

Whoever is followed knows it: the ends of its runs are noted (`endings`), and so is every change of it. It comes to know
it in the transaction in which its follower is written, and its version moves on, so that nothing that was looked up
before makes a run of which nobody hears.

What must stay true: jobs of one owner that come after others are written one at a time (`hold_following`), so that no
two writes make a circle together.
"""

from __future__ import annotations

from collections.abc import Sequence

from horae.core.model import Job
from horae.core.policy import dependencies
from horae.core.policy.listening import all_followed, followed_ids, is_following
from horae.stores.database import Database, Steps
from horae.stores.rows import Row, job_from_row, trigger_ids


class FollowingPart(Database):
    """Jobs that come after others."""

    async def load_following(self, org: int, owner: str) -> list[Job]:
        return _jobs(await self._get("load_following", org, owner))

    async def load_node_listeners(self) -> list[Job]:
        return _jobs(await self._get("load_node_listeners"))

    def _mark_followed(self, jobs: Sequence[Job]) -> Steps[None]:
        """Let those know that these come after them."""
        ids = all_followed(jobs)
        if not ids:
            return
        yield "lock_jobs", self._list(ids)  # whoever would forget meanwhile that they are followed, waits
        rows = yield "mark_followed", self._list(ids)
        if rows:
            triggers = [trigger for row in rows for trigger in trigger_ids(row[1])]
            yield "bump_due", self._list(triggers)
            yield "follow_live", self._list([row[0] for row in rows])

    def _refuse_cycles(self, jobs: Sequence[Job]) -> Steps[None]:
        """Refuse jobs that would come after themselves, by whatever way round."""
        following = [job for job in jobs if is_following(job)]
        for org, owner in sorted({(job.org, job.owner) for job in following}):
            yield "hold_following", f"{org} {owner}"
            rows = yield "load_following", org, owner
            known = {job.id: job for job in _jobs(rows)} | {job.id: job for job in following}
            dependencies.refuse_cycle(
                {job.id: followed_ids(job) for job in known.values()},
                {job.id: job.key or job.name for job in known.values()},
                [job.id for job in following],
            )

    def _note_changed(self, job_ids: Sequence[int]) -> Steps[None]:
        """Whoever comes after these may wait for what does not come any more; their own runs may wait for others."""
        if job_ids:
            yield "note_changed", self._list(job_ids)


def _jobs(rows: Sequence[Row]) -> list[Job]:
    """Without the moments of their triggers."""
    return [job_from_row(row, {}) for row in rows]
