"""The calls about the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.client.making import get
from horae.client.steps import Call
from horae.client.wire import to_address

if TYPE_CHECKING:
    from horae.schemas import AuditCheck, AuditPage


def audit(
    *, who: str | None = None, action: str | None = None, kind: str | None = None, id: str | None = None,
    outcome: str | None = None, since: str | None = None, until: str | None = None, cursor: str | None = None,
    limit: int | None = None, org: str | None = None,
) -> Call[AuditPage]:  # fmt: skip
    """Who did what, newest first. `org` is an organisation, or `*` for all of them."""
    where = {
        "who": who, "action": action, "kind": kind, "id": id, "outcome": outcome, "since": since, "until": until,
        "cursor": cursor, "limit": limit, "org": org,
    }  # fmt: skip
    return get(to_address("/v1/audit", where), has="items")


def audit_sealed(after: int = 0, *, limit: int = 1000, org: str | None = None) -> Call[AuditPage]:
    """Sealed rows of the audit log after a number, in their order. `org` as in audit."""
    return get(to_address("/v1/audit/sealed", {"after": after, "limit": limit, "org": org}), has="items")


def verify_audit(cursor: str | None = None, *, head: str | None = None) -> Call[AuditCheck]:
    """Verify the next rows of the audit log; go on with the cursor of the answer until that is None."""
    return get(to_address("/v1/audit/verify", {"cursor": cursor, "head": head}), has="faults")
