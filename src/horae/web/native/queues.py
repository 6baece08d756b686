"""Queues under /v1: read, made, replaced, paused, drained, deleted."""

from __future__ import annotations

from horae import schemas
from horae.core.model import SECOND, Moment
from horae.core.policy.queues import Figures, Queue, QueueState
from horae.core.roles import Permission
from horae.service import Services
from horae.web import http, params, render

_ETAG = {"ETag": "The version of the queue, for If-Match."}
_EXAMPLE = {"concurrency": 5, "weights": {"ann": 2}, "most_waiting": 1000}


class Queues:
    """The endpoints of queues."""

    def __init__(self, services: Services) -> None:
        self._jobs = services.jobs

    def operations(self) -> list[http.Operation]:
        op, queues, one = http.Operation, "/v1/queues", "/v1/queues/{name}"
        return [
            op("GET", queues, self.list_queues, "queues", "List queues by name, and how they stand", "QueuePage",
               needs=Permission.READ),
            op("GET", one, self.get_queue, "queues", "Read a queue, and how it stands", "Queue", headers=_ETAG,
               needs=Permission.READ),
            op("PUT", one, self.put_queue, "queues", "Make or replace a queue", "Queue", params=(params.IF_MATCH,),
               body=http.Body("QueueDocument", _EXAMPLE), errors=(409, 412), headers=_ETAG, also={201: "Queue"},
               needs=Permission.QUEUES),
            op("POST", f"{one}/pause", self.pause, "queues", "Pause a queue: nothing in it starts", "Queue",
               needs=Permission.QUEUES),
            op("POST", f"{one}/resume", self.resume, "queues", "Open a queue that was paused or drained", "Queue",
               needs=Permission.QUEUES),
            op("POST", f"{one}/drain", self.drain, "queues", "Drain a queue: it takes nothing new", "Queue",
               needs=Permission.QUEUES),
            op("DELETE", one, self.delete_queue, "queues", "Delete a queue", status=204, errors=(409,),
               needs=Permission.QUEUES),
        ]  # fmt: skip

    async def list_queues(self, request: http.Request) -> http.Answer:
        """Counts stop at 10,000 waiting runs of a queue, and at 50,000 blocked runs of all queues. Rates are found
        among the newest 10,000 live and the newest 10,000 ended runs, which count to the queue that their job names
        now."""
        queues, figures, now = (
            await self._jobs.queues.list(http.principal(request).bound_to),
            await self._jobs.queues.figures(),
            await self._jobs.queues.now(),
        )
        items = [shown_queue(queue, figures.get(queue.id, Figures()), now) for queue in queues]
        return http.reply(200, schemas.QueuePage(items))

    async def get_queue(self, request: http.Request) -> http.Answer:
        queue = await self._jobs.queues.get(_name(request), http.principal(request).bound_to)
        figures = (await self._jobs.queues.figures()).get(queue.id, Figures())
        return http.reply(200, shown_queue(queue, figures, await self._jobs.queues.now()), [_etag(queue)])

    async def put_queue(self, request: http.Request) -> http.Answer:
        """201 when it is new. Takes what reading it gives; what is left out has its default, but the state stays as it
        is. It belongs to the organisation of who makes it; what the first one makes is for all, unless it has `org`."""
        document, version = await request.document(), request.expected_version()
        queue, is_new = await self._jobs.queues.put(_name(request), document, version, http.principal(request))
        return http.reply(201 if is_new else 200, shown_queue(queue), [_etag(queue)])

    async def pause(self, request: http.Request) -> http.Answer:
        """What waits goes on waiting, and what comes waits too; what runs goes on."""
        return await self._set_state(request, QueueState.PAUSED)

    async def resume(self, request: http.Request) -> http.Answer:
        return await self._set_state(request, QueueState.OPEN)

    async def drain(self, request: http.Request) -> http.Answer:
        """What waits is still started. Whoever asks for a run is refused, and due moments are skipped with the reason
        `queue_draining`."""
        return await self._set_state(request, QueueState.DRAINING)

    async def _set_state(self, request: http.Request, state: QueueState) -> http.Answer:
        changed = await self._jobs.queues.set_state(_name(request), state, http.principal(request))
        return http.reply(200, shown_queue(changed))

    async def delete_queue(self, request: http.Request) -> http.Answer:
        """It must have been draining for some seconds, no job may name it, and nothing may be in it."""
        await self._jobs.queues.delete(_name(request), http.principal(request))
        return http.Reply(204)


def _name(request: http.Request) -> str:
    return str(request.scope["path_params"]["name"])


def _etag(queue: Queue) -> tuple[bytes, bytes]:
    return b"etag", f'"{queue.version}"'.encode()


def shown_queue(it: Queue, figures: Figures | None = None, now: Moment = 0) -> schemas.Queue:
    shown = render.queue(it)
    if figures is not None:
        shown.figures = _figures(figures, now)
    return shown


def _figures(it: Figures, now: Moment) -> schemas.QueueFigures:
    return schemas.QueueFigures(
        waiting=it.waiting,
        waiting_is_cut=it.is_cut,
        blocked=dict(it.blocked),
        blocked_is_cut=it.blocked_is_cut,
        running=it.running,
        oldest_due_at=render.when(it.oldest_at),
        oldest_wait_seconds=None if it.oldest_at is None else max(0.0, (now - it.oldest_at) / SECOND),
        in_last_minute=it.came,
        out_last_minute=it.went,
    )
