"""Queues: what waits in them, for what, who is served, and what limits hold."""

from __future__ import annotations

from horae.core.policy.queues import Figures
from horae.core.roles import Permission
from horae.service import Services
from horae.web import http
from horae.web.native.limits import shown_limit
from horae.web.native.queues import shown_queue
from horae.web.pages.shell import HTML, Shell

MOST_LIMITS = 50
MOST_OWNERS = 8


class QueuesPage:
    def __init__(self, services: Services, shell: Shell) -> None:
        self._jobs = services.jobs
        self._shell = shell

    def operations(self) -> list[http.Operation]:
        return [http.Operation("GET", "/queues", self.show, "pages", "The page of queues", HTML, needs=Permission.READ)]

    async def show(self, request: http.Request) -> http.Answer:
        now, org = await self._jobs.queues.now(), http.principal(request).bound_to
        queues, figures = await self._jobs.queues.list(org), await self._jobs.queues.figures()
        standing = sorted(await self._jobs.limits.standing(org), key=lambda it: (-it.waiting, it.limit.key))
        names, served = await self._jobs.limits.queue_names(), await self._jobs.queues.served(org)
        return self._shell.page(
            request, "queues.html", queues=[shown_queue(it, figures.get(it.id, Figures()), now) for it in queues],
            limits=[shown_limit(it, now, names) for it in standing[:MOST_LIMITS]],
            resources=await self._jobs.limits.resources(),
            shares={it.name: served[it.id].most_common(MOST_OWNERS) for it in queues if it.id in served},
        )  # fmt: skip
