"""Whether work may come in: the queue that it names is there and takes it, and not too much of its owner waits already.

Asked of whatever people ask for. Moments of triggers are not asked about here: a full quota never stops one, and what
a queue that is draining does to one is in its record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from horae.core.model import Json, Policy
from horae.core.policy.queues import Queue, QueueState, made_for
from horae.core.time import moments
from horae.core.work.kinds import WORKFLOW
from horae.core.work.specs import Draft
from horae.errors import MAX_PROBLEMS, Conflict, Error, Invalid, Problem
from horae.service.policy.queues import Queues
from horae.service.policy.quotas import Ask, Quotas
from horae.service.workflows.parts import policy_of


class Wanted(Protocol):
    """What has to be known of the job of a run that somebody wants."""

    @property
    def policy(self) -> Policy: ...
    @property
    def org(self) -> int: ...
    @property
    def owner(self) -> str: ...
    @property
    def annotations(self) -> Json: ...


class Admission:
    def __init__(self, queues: Queues, quotas: Quotas) -> None:
        self.queues = queues
        self._quotas = quotas

    async def check_drafts(self, drafts: Sequence[Draft], org: int) -> None:
        """Refuse jobs whose queue is not there for their organisation, or does not take them."""
        found: list[Problem] = []
        for number, draft in enumerate(drafts):
            where = f"jobs[{number}]." if len(drafts) > 1 else ""
            for path, kind, policy in _works_in(where, draft.kind, draft.spec, draft.policy):
                try:
                    await self.queues.check(policy, kind, org)
                except Invalid as error:
                    found.append(Problem(f"{path}queue", error.code, error.message, error.hint))
            if len(found) > MAX_PROBLEMS:
                break
        if found:
            raise Invalid.of(found)

    async def has_most_jobs(self, org: int) -> bool:
        """Return whether an organisation may have only so many jobs."""
        await self._quotas.refresh()
        return self._quotas.most_jobs(org) is not None

    async def check_jobs(self, org: int, new: int) -> None:
        """Refuse to make that many jobs, where there would be more than may."""
        await self._quotas.check_jobs(org, new)

    async def check_waiting(self, drafts: Sequence[Draft], owner: str, org: int) -> None:
        """Refuse jobs that run at once, where more would wait than may."""
        await self._quotas.refresh()
        limited = [draft for draft in drafts if self._quotas.is_for(self.queues.find(draft.policy.queue), org)]
        if not limited:
            return
        now = await self.queues.now()
        asked = Counter(
            (made_for(owner, draft.annotations), draft.policy.queue)
            for draft in limited
            for trigger in draft.triggers
            if (at := trigger.schedule.get("at")) is not None and moments.parse_moment(at) <= now
        )
        asks = [Ask(org, user, self.queues.find(name), runs) for (user, name), runs in asked.items()]
        for error in filter(None, await self._quotas.take(asks)):
            raise error

    async def admit(self, wanted: Mapping[int, Wanted]) -> dict[int, Error]:
        """Let runs in, each for itself; return why those that may not come in may not."""
        await self.queues.refresh()
        await self._quotas.refresh()
        refused: dict[int, Error] = {}
        asks: dict[int, Ask] = {}
        for number, job in wanted.items():
            queue = self.queues.find(job.policy.queue)
            if queue.state is QueueState.DRAINING:
                refused[number] = _draining(queue)
            elif self._quotas.is_for(queue, job.org):
                asks[number] = Ask(job.org, made_for(job.owner, job.annotations), queue)
        answers = await self._quotas.take(list(asks.values())) if asks else ()
        return refused | {number: error for number, error in zip(asks, answers, strict=False) if error is not None}

    async def is_open(self, job: Wanted) -> bool:
        """Return whether runs of a job may come in, however many they are."""
        await self.queues.refresh()
        await self._quotas.refresh()
        queue = self.queues.find(job.policy.queue)
        return queue.state is not QueueState.DRAINING and not self._quotas.is_for(queue, job.org)


def _works_in(path: str, kind: str, spec: Json, policy: Policy) -> Iterator[tuple[str, str, Policy]]:
    """A job, and the tasks that are written in it: where they stand, their kinds and policies."""
    yield path, kind, policy
    for name, task in spec["tasks"].items() if kind == WORKFLOW else ():
        if "kind" in task:
            yield from _works_in(f"{path}tasks.{name}.", task["kind"], task["spec"], policy_of(task))


def _draining(queue: Queue) -> Conflict:
    message = f"the queue '{queue.name}' is draining and takes nothing new"
    return Conflict(message, code="E_QUEUE_DRAINING", hint=f"`horae queues resume {queue.name}` opens it")
