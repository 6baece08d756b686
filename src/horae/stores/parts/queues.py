"""Queues, and what is counted for policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from horae.core.model import SECOND, Moment
from horae.core.policy.queues import Figures, Queue, QueueState, fields_from_text, queue_text
from horae.ports.store.queues import QueueUse
from horae.stores.database import Database, Steps
from horae.stores.rows import Row, decode

COUNTED = 10_000  # waiting runs of one queue
BLOCKED_COUNTED = 50_000  # blocked runs of all queues
RECENT = 10_000  # runs among which those of the last minute are found
NEEDED = 1000  # jobs or runs, told of a queue that cannot be deleted
MINUTE = 60 * SECOND


class QueuePart(Database):
    """Where runs wait."""

    async def list_queues(self) -> list[Queue]:
        return [self._queue_of(row) for row in await self._get("list_queues")]

    async def add_queue(self, queue: Queue, most: int) -> Queue | None:
        rows = await self._put("add_queue", queue.name, *self._queue_values(queue, await self.now()), most)
        return self._queue_of(rows[0]) if rows else None

    async def save_queue(self, queue: Queue) -> Queue | None:
        values = self._queue_values(queue, await self.now())
        rows = await self._put("save_queue", queue.name, *values, queue.version)
        return self._queue_of(rows[0]) if rows else None

    async def set_queue_state(self, name: str, state: QueueState) -> Queue | None:
        rows = await self._put("set_queue_state", name, state.value, await self.now())
        rows = rows or await self._get("get_queue", name)
        return self._queue_of(rows[0]) if rows else None

    async def delete_queue(self, queue: Queue) -> QueueUse | None:
        def steps() -> Steps[QueueUse | None]:
            rows = yield "queue_use", queue.id, queue.name, NEEDED
            use = QueueUse(*rows[0])
            if any(use):
                return use
            gone = yield "delete_queue", queue.name, queue.version
            if gone:
                yield "delete_shares", queue.id
            return None

        return await self._transact(steps)

    async def count_served(self, org: int | None, most: int) -> list[tuple[int, str, int]]:
        return [(queue, owner, number) for queue, owner, number in await self._get("count_served", org, most)]

    async def load_queue_figures(self) -> Mapping[int, Figures]:
        recent = await self._get("queue_rates", await self.now() - MINUTE, RECENT)
        rates = {row[0]: (int(row[1]), int(row[2])) for row in recent}
        running = {row[0]: row[1] for row in await self._get("queue_running")}
        blocked = await self._get("queue_blocked", BLOCKED_COUNTED + 1)
        is_cut = sum(row[2] for row in blocked) > BLOCKED_COUNTED
        return {
            queue_id: Figures(
                min(waiting, COUNTED), {row[1]: row[2] for row in blocked if row[0] == queue_id},
                running.get(queue_id, 0), oldest_at, *rates.get(queue_id, (0, 0)), waiting > COUNTED, is_cut,
            )
            for queue_id, waiting, oldest_at in await self._get("queue_waiting", COUNTED + 1)
        }  # fmt: skip

    async def count_waiting(self, org: int, user: str, queue: int | None, most: int) -> int:
        return int((await self._get("count_waiting", org, user, queue, most))[0][0])

    async def count_waiting_in(self, org: int, most: int) -> int:
        return int((await self._get("count_waiting_in", org, most))[0][0])

    async def count_jobs_in(self, org: int, most: int) -> int:
        return int((await self._get("count_jobs_in", org, most))[0][0])

    async def list_quotas(self) -> dict[int, tuple[int | None, int | None]]:
        return {row[0]: (row[1], row[2]) for row in await self._get("list_quotas")}

    async def count_failures(self, job_id: int, since: Moment, most: int) -> int:
        return int((await self._get("count_failures", job_id, since, most))[0][0])

    def _queue_values(self, queue: Queue, now: Moment) -> tuple[Any, ...]:
        labels = self._list(queue.labels) if queue.labels else None
        return queue.state.value, queue.priority_offset, labels, queue_text(queue), now

    def _queue_of(self, row: Row) -> Queue:
        queue_id, name, state, offset, labels, document, version, created_at, updated_at = row
        listed = decode(labels) if isinstance(labels, str) else labels
        return Queue(
            queue_id, name, QueueState(state), offset, tuple(listed or ()), **fields_from_text(document),
            version=version, created_at=created_at, updated_at=updated_at,
        )  # fmt: skip
