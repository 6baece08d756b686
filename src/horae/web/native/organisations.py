"""Organisations do not see each other: what an address names must belong to that of whoever asks.

Who came with a token, or logged in, is of its organisation. Who needs neither is the user who runs the server, from
whom nothing of it is hidden.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from horae.core.model import Job, Trigger
from horae.core.rights import may
from horae.errors import NotFound
from horae.service import Services
from horae.web import http

REMEMBERED = 100_000  # jobs whose organisation is known
NAMES = ("job_id", "run_id", "trigger_id")  # of what belongs to an organisation, in the path of an operation
EXECUTION = "execution_id"  # a run, in the words of a contract


class Organisations:
    def __init__(self, services: Services) -> None:
        self._jobs = services.jobs
        self._grants = services.grants
        self._orgs: dict[int, int] = {}  # by job
        self._job_of: dict[str, Callable[[int], Awaitable[int]]] = {
            "job_id": self._itself, "run_id": self._job_of_run, "trigger_id": self._job_of_trigger,
            EXECUTION: self._job_of_run,
        }  # fmt: skip

    async def refuse_without(self, request: http.Request, operation: http.Operation) -> None:
        """Denied to whoever has what an operation needs neither by role nor by a grant on the job that its address
        names. What names jobs in its body alone is a matter of the role."""
        who = http.principal(request)
        if not may(who, operation.needed):
            await self._grants.refuse_ungranted(who, operation.needed, await self._named(request, operation))

    async def _named(self, request: http.Request, operation: http.Operation) -> Job | None:
        name = next((name for name in (*NAMES, EXECUTION) if f"{{{name}}}" in operation.path), None)
        if name is None:
            return None
        with suppress(NotFound):  # whoever may do nothing need not know that
            return await self._jobs.get(await self._job_of[name](request.path_id(name)))
        return None

    def guarded(self, operation: http.Operation) -> http.Operation:
        """Return the operation, for which what belongs to others does not exist."""
        name = next((name for name in NAMES if f"{{{name}}}" in operation.path), None)
        if name is None:
            return operation
        endpoint = operation.endpoint

        @functools.wraps(endpoint)
        async def guard(request: http.Request) -> http.Answer:
            org = request.who.bound_to if request.who else None
            if org is not None:
                await self._refuse_others(name, request.path_id(name), org)
            return await endpoint(request)

        return replace(operation, endpoint=guard)

    async def _refuse_others(self, name: str, number: int, org: int) -> None:
        try:
            await self._check(await self._job_of[name](number), org)
        except NotFound:
            raise NotFound(f"there is no {name.removesuffix('_id')} {number}") from None

    async def _check(self, job_id: int, org: int) -> None:
        """A job stays where it is, so its organisation is asked for once."""
        if job_id not in self._orgs:
            if len(self._orgs) >= REMEMBERED:
                self._orgs.clear()
            self._orgs[job_id] = (await self._jobs.get(job_id)).org
        if self._orgs[job_id] != org:
            raise NotFound

    async def _itself(self, job_id: int) -> int:
        return job_id

    async def _job_of_run(self, run_id: int) -> int:
        return (await self._jobs.get_run(run_id)).job_id

    async def _job_of_trigger(self, trigger_id: int) -> int:
        return (await self._jobs.triggers.get(trigger_id)).job_id

    async def own_triggers(self, request: http.Request, triggers: Sequence[Trigger]) -> list[Trigger]:
        """Of a list, those that belong to the organisation of whoever asks."""
        org = http.principal(request).bound_to
        if org is None:
            return list(triggers)
        jobs = await self._jobs.get_many(sorted({each.job_id for each in triggers}))
        ours = {job.id for job in jobs if job.org == org}
        return [each for each in triggers if each.job_id in ours]
