"""Whether work may come in: the queue that it names is there and takes it, and not too much of its owner waits already.

Asked of whatever people ask for. Moments of triggers are not asked about here: a full quota never stops one, and what
a queue that is draining does to one is in its record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from horae.core.model import Policy
from horae.core.policy.queues import QueueState, made_for
from horae.core.time import moments
from horae.core.work.specs import Draft
from horae.errors import MAX_PROBLEMS, Conflict, Error, Invalid, Problem
from horae.service.policy.queues import Queues
from horae.service.policy.quotas import Quotas


class Admission:
    def __init__(self, queues: Queues, quotas: Quotas) -> None:
        self.queues = queues
        self._quotas = quotas

    async def check_drafts(self, drafts: Sequence[Draft]) -> None:
        """Refuse jobs whose queue is not there, or does not take them."""
        found: list[Problem] = []
        for number, draft in enumerate(drafts):
            try:
                await self.queues.check(draft.policy, draft.kind)
            except Invalid as error:
                path = f"jobs[{number}].queue" if len(drafts) > 1 else "queue"
                found.append(Problem(path, error.code, error.message, error.hint))
            if len(found) > MAX_PROBLEMS:
                break
        if found:
            raise Invalid.of(found)

    async def check_waiting(self, drafts: Sequence[Draft], owner: str, org: int) -> None:
        """Refuse jobs that run at once, where more would wait than may."""
        limited = [draft for draft in drafts if self._quotas.is_for(self.queues.find(draft.policy.queue))]
        if not limited:
            return
        now = await self.queues.now()
        asked = Counter(
            (made_for(owner, draft.annotations), draft.policy.queue)
            for draft in limited
            for trigger in draft.triggers
            if (at := trigger.schedule.get("at")) is not None and moments.parse_moment(at) <= now
        )
        for (user, name), runs in asked.items():
            error = await self._quotas.take(org, user, self.queues.find(name), runs)
            if error is not None:
                raise error

    async def admit(self, policy: Policy, org: int, owner: str, annotations: Mapping[str, Any]) -> Error | None:
        """Let one run in, or return why not. What is known of queues must be fresh."""
        queue = self.queues.find(policy.queue)
        if queue.state is QueueState.DRAINING:
            message = f"the queue '{queue.name}' is draining and takes nothing new"
            return Conflict(message, code="E_QUEUE_DRAINING", hint=f"`horae queues resume {queue.name}` opens it")
        return await self._quotas.take(org, made_for(owner, annotations), queue)
