"""Organisations do not see each other: what an address names must belong to that of whoever asks.

Who came with a token is of its organisation. Who needs none is the user who runs the server, from whom nothing of it is
hidden.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from horae.core.model import Trigger
from horae.errors import NotFound
from horae.service import Services
from horae.web import http

REMEMBERED = 100_000  # jobs whose organisation is known
NAMES = ("job_id", "run_id", "trigger_id")  # of what belongs to an organisation, in the path of an operation


class Organisations:
    def __init__(self, services: Services) -> None:
        self._jobs = services.jobs
        self._orgs: dict[int, int] = {}  # by job
        self._job_of: dict[str, Callable[[int], Awaitable[int]]] = {
            "job_id": self._itself, "run_id": self._job_of_run, "trigger_id": self._job_of_trigger
        }  # fmt: skip

    def guarded(self, operation: http.Operation) -> http.Operation:
        """Return the operation, for which what belongs to others does not exist."""
        name = next((name for name in NAMES if f"{{{name}}}" in operation.path), None)
        if name is None:
            return operation
        endpoint = operation.endpoint

        @functools.wraps(endpoint)
        async def guard(request: http.Request) -> http.Answer:
            if request.token is not None:
                await self._refuse_others(name, request.path_id(name), request.token.org)
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
        token = request.token
        if token is None:
            return list(triggers)
        jobs = await self._jobs.get_many(sorted({each.job_id for each in triggers}))
        ours = {job.id for job in jobs if job.org == token.org}
        return [each for each in triggers if each.job_id in ours]
