"""Grants under /v1: roles that somebody has on some jobs."""

from __future__ import annotations

from horae import schemas
from horae.core.rights import Grant
from horae.core.roles import Permission
from horae.service import Services
from horae.service.access.grants import parse_grant
from horae.web import http, params, render

_EXAMPLE = {"who": "bob", "role": "operator", "tag": "nightly"}
_PAGE = (params.identity("cursor", "Where the page before ended."), params.LIMIT)


class Grants:
    """The endpoints of grants."""

    def __init__(self, services: Services) -> None:
        self._grants = services.grants

    def operations(self) -> list[http.Operation]:
        op, grants = http.Operation, "/v1/grants"
        return [
            op("GET", grants, self.list_grants, "grants", "List grants, oldest first", "GrantPage", params=_PAGE,
               needs=Permission.GRANTS),
            op("POST", grants, self.add_grant, "grants", "Grant somebody a role on some jobs", "Grant", 201,
               body=http.Body("GrantRequest", _EXAMPLE), needs=Permission.GRANTS, is_dangerous=True),
            op("DELETE", f"{grants}/{{grant_id}}", self.remove_grant, "grants", "Take a grant back", status=204,
               needs=Permission.GRANTS),
        ]  # fmt: skip

    async def list_grants(self, request: http.Request) -> http.Answer:
        """Return those of the organisation of who asks."""
        limit = request.args["limit"]
        found = await self._grants.list(http.principal(request).org, request.args["cursor"] or 0, limit)
        cursor = str(found[-1].id) if len(found) == limit else None
        return http.reply(200, schemas.GrantPage([shown_grant(it) for it in found], cursor))

    async def add_grant(self, request: http.Request) -> http.Answer:
        """On one `job`, on the jobs with a `tag`, or on those of a `queue`, now and later. Who has it already, on the
        same jobs, has the new role in its place. It counts at once here, and within 5 seconds on every node."""
        made = await self._grants.add(parse_grant(await request.document()), http.principal(request))
        return http.reply(201, shown_grant(made))

    async def remove_grant(self, request: http.Request) -> http.Answer:
        """This node refuses at once what it allowed, every other one within 5 seconds."""
        await self._grants.remove(http.principal(request).org, request.path_id("grant_id"))
        return http.Reply(204)


def shown_grant(it: Grant) -> schemas.Grant:
    return schemas.Grant(
        it.id, it.who, str(it.role), it.job_id, it.tag, it.queue, render.stamp(it.created_at), it.created_by
    )
