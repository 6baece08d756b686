"""The audit log under /v1: to read, to verify, and to take elsewhere. Who is bound to an organisation sees its
rows; who runs the installation sees those of all, if wanted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from horae import schemas
from horae.core.audit import AuditFilter, Outcome, Row
from horae.core.model import LARGEST_ID
from horae.core.roles import Permission
from horae.errors import Invalid
from horae.service import Services
from horae.web import http, params, render

_TEXT = 200
OF = params.text(
    "org", "Of which organisation: name or number, or `*` for all of them, to who runs the installation.", _TEXT
)
_FILTER = (
    OF,
    params.text("who", "The name of who asked, exactly.", _TEXT),
    params.text("action", "The permission that was needed, such as jobs.write.", _TEXT),
    params.text("kind", "Of what it was done to, such as job or token.", _TEXT),
    params.text("id", "Id or name of what it was done to.", _TEXT),
    params.words("outcome", "Only what ended so.", {str(each): str(each) for each in Outcome}),
    params.moment("since", "From this moment on."),
    params.moment("until", "Before this moment."),
    params.CURSOR,
    params.LIMIT,
)
_AFTER = params.number("after", "The number after which to go on.", 0, LARGEST_ID, 0)
_HEAD = params.text("head", "Number and hash of a row, as they were written down: 1234:9f86d0…", 100)


class AuditLog:
    """The endpoints of the audit log."""

    def __init__(self, services: Services) -> None:
        self._audit, self._users = services.audit, services.users

    def operations(self) -> list[http.Operation]:
        op, audit, needs = http.Operation, "/v1/audit", Permission.AUDIT
        return [
            op("GET", audit, self.list_rows, "audit", "Who did what, newest first", "AuditPage", params=_FILTER,
               needs=needs),
            op("GET", f"{audit}/sealed", self.list_sealed, "audit", "Sealed rows, in the order of their numbers",
               "AuditPage", params=(_AFTER, params.LIMIT, OF), needs=needs),
            op("GET", f"{audit}/verify", self.verify, "audit", "Verify the chain of hashes, some rows at a time",
               "AuditCheck", params=(_HEAD, params.CURSOR), needs=needs),
        ]  # fmt: skip

    async def list_rows(self, request: http.Request) -> http.Answer:
        """Rows that were just written have no number yet: they are sealed within seconds."""
        args: Mapping[str, Any] = request.args
        outcomes = args["outcome"]
        if len(outcomes) > 1:
            raise Invalid("one outcome expected", code="E_ENUM", path="outcome")
        org = await self._users.audited(args["org"], http.principal(request))
        where = AuditFilter(
            org, args["who"], args["action"], args["kind"], args["id"],
            outcomes[0] if outcomes else None, args["since"], args["until"],
        )  # fmt: skip
        page = await self._audit.page(where, _before(args["cursor"]), args["limit"])
        return http.reply(200, schemas.AuditPage([shown(row) for row in page.items], page.cursor))

    async def list_sealed(self, request: http.Request) -> http.Answer:
        """To take them elsewhere. Of a page, those of other organisations are left out, so that it may be short."""
        org = await self._users.audited(request.args["org"], http.principal(request))
        page = await self._audit.sealed(request.args["after"], request.args["limit"])
        items = [shown(row) for row in page.items if org in (None, row.org)]
        return http.reply(200, schemas.AuditPage(items, page.cursor))

    async def verify(self, request: http.Request) -> http.Answer:
        """A call looks at up to 20,000 rows; `cursor` goes on. Rows that were cut off at the end together with the head
        are only found by a `head` that was kept elsewhere."""
        check, head, is_last = await self._audit.verify(request.args["cursor"], request.args["head"])
        faults = [schemas.AuditFault(*fault) for fault in check.faults]
        cursor = None if is_last else str(check.place)
        found = schemas.AuditCheck(check.checked, faults, head.first_seq + 1, f"{head.seq}:{head.hash}", cursor)
        return http.reply(200, found)


def _before(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit()) or int(cursor) > LARGEST_ID:
        raise Invalid("this is not a cursor of the audit log", code="E_PATTERN", path="cursor")
    return int(cursor)


def shown(row: Row) -> schemas.AuditRow:
    return schemas.AuditRow(
        row.id, render.stamp(row.at), *row[2:12], _change(row.change), *row[13:]
    )  # fmt: skip


def _change(text: str) -> Any:
    """Return what changed; where its end was cut off, as it stands."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
