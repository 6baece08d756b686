"""Limits under /v1, to look at; and what the whole cluster has, counted."""

from __future__ import annotations

from typing import Any

from horae import schemas
from horae.core.fields import open_document
from horae.core.model import Moment
from horae.core.policy.limits import MOST_UNITS, SHOWN_RUNS, LimitState, name_of, per_of
from horae.core.roles import Permission
from horae.service import Services
from horae.web import http, render

MOST_LISTED = 1000
_EXAMPLE = {"capacity": 2}
_FIELDS = frozenset({"capacity", "name", "used", "waiting"})  # what reading it gives may be sent back


class Limits:
    """The endpoints of limits and resources."""

    def __init__(self, services: Services) -> None:
        self._jobs = services.jobs

    def operations(self) -> list[http.Operation]:
        op, resources, one = http.Operation, "/v1/resources", "/v1/resources/{name}"
        return [
            op("GET", "/v1/limits", self.list_limits, "limits", "List limits, and how they stand", "LimitPage",
               needs=Permission.READ),
            op("GET", resources, self.list_resources, "limits", "List what the whole cluster has", "ResourcePage",
               needs=Permission.READ),
            op("PUT", one, self.set_resource, "limits", "Say how much the cluster has of something", "Resource",
               body=http.Body("ResourceDocument", _EXAMPLE), errors=(409,), also={201: "Resource"},
               needs=Permission.CLUSTER),
            op("DELETE", one, self.delete_resource, "limits", "Count it no longer", status=204,
               needs=Permission.CLUSTER),
        ]  # fmt: skip

    async def list_limits(self, request: http.Request) -> http.Answer:
        """Limits that runs use or wait for now, 1,000 at most, those first for which most runs wait. What waits
        is counted up to 1,000 runs of one demand."""
        states = await self._jobs.limits.standing(http.principal(request).bound_to)
        now, names = await self._jobs.limits.now(), await self._jobs.limits.queue_names()
        busiest = sorted(states, key=lambda state: (-state.waiting, state.limit.key))[:MOST_LISTED]
        return http.reply(200, schemas.LimitPage([shown_limit(state, now, names) for state in busiest]))

    async def list_resources(self, request: http.Request) -> http.Answer:
        found = await self._jobs.limits.resources()
        return http.reply(200, schemas.ResourcePage([_resource(*each) for each in found]))

    async def set_resource(self, request: http.Request) -> http.Answer:
        """201 when it is new. What runs goes on, also if there is less of it now than is in use."""
        name, capacity = _name(request), _read_capacity(await request.document())
        is_new = await self._jobs.limits.set_resource(name, capacity)
        [found] = [each for each in await self._jobs.limits.resources() if each[0] == name] or [(name, None, capacity)]
        return http.reply(201 if is_new else 200, _resource(*found))

    async def delete_resource(self, request: http.Request) -> http.Answer:
        """What waits for some of it is held by it no longer."""
        await self._jobs.limits.drop_resource(_name(request))
        return http.Reply(204)


def _name(request: http.Request) -> str:
    return str(request.scope["path_params"]["name"])


def _read_capacity(document: Any) -> int:
    fields = open_document(document, "a mapping such as {capacity: 2} expected", _FIELDS)
    fields.require("capacity", "how much there is of it")
    capacity: int = fields.number("capacity", 0, 0, MOST_UNITS, whole=True)
    fields.problems.raise_any()
    return capacity


def shown_limit(it: LimitState, now: Moment, queues: Any) -> schemas.Limit:
    limit = it.limit
    return schemas.Limit(
        key=limit.key, name=name_of(limit.key, queues), per=per_of(limit.key), capacity=limit.capacity,
        rate=it.rate or None, burst=limit.burst, used=it.used, waiting=it.waiting, next_at=render.when(it.next_at(now)),
        runs=list(it.runs[:SHOWN_RUNS]),
    )  # fmt: skip


def _resource(name: str, state: LimitState | None, capacity: int) -> schemas.Resource:
    return schemas.Resource(name, capacity, state.used if state else 0, state.waiting if state else 0)
