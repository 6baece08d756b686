"""The calls about secrets, tokens and grants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from horae.client.making import get, given, list_all, one, request_of, send
from horae.client.steps import Call, Steps, ask
from horae.client.wire import Request

if TYPE_CHECKING:
    from horae.schemas import Grant, GrantPage, KeyRotation, NewToken, SecretPage, TokenPage

ROTATION = 3600.0  # seconds for all secrets to be sealed anew


def set_secret(name: str, value: str) -> Call[bool]:
    """Keep a secret for jobs to use; returns whether it is new. Nobody can read it back."""
    request = request_of("PUT", f"/v1/secrets/{quote(name, safe='')}", {"value": value})

    def steps() -> Steps:
        return (yield from ask(request)).status == 201

    return Call(steps)


def secrets() -> Call[SecretPage]:
    """Secrets by name, without their values."""
    return get("/v1/secrets", has="items")


def delete_secret(name: str) -> Call[None]:
    """Delete a secret: runs that need it and start from now on fail."""
    return send("DELETE", f"/v1/secrets/{quote(name, safe='')}")


def rotate_secrets() -> Call[KeyRotation]:
    """Seal everything with a new key; returns when it is done."""
    return one(Request("POST", "/v1/secrets/rotate", timeout=ROTATION))


# ── tokens ──


def create_token(
    name: str,
    *,
    scope: str = "user",
    owner: str | None = None,
    expires_in: str | float | None = None,
    node: str | None = None,
    kinds: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    resources: Sequence[str] | None = None,
    org: int | None = None,
    role: str | None = None,
) -> Call[NewToken]:
    """Make a token; the answer's `token` is shown this once. `expires_in` is as 30d, or in seconds. `org` is the
    organisation that it is good for, `role` what may be done with it: viewer, operator, editor or admin. One of scope
    agent is good for the agent `node` (`*` for any), which may take `kinds`, have `labels` and offer `resources`, as
    gpu=2."""
    bounds = {"node": node, "kinds": kinds, "labels": labels, "resources": resources}
    wanted = {"name": name, "scope": scope, "owner": owner, "expires_in": expires_in, "org": org, "role": role}
    return send("POST", "/v1/tokens", given({**wanted, **bounds}))


def tokens() -> Call[TokenPage]:
    """Tokens, without their secrets."""
    return get("/v1/tokens", has="items")


def grants(*, limit: int | None = None, cursor: str | None = None) -> Call[GrantPage]:
    """Who may do more on some jobs than the role in the organisation says."""
    return list_all("/v1/grants", {}, limit, cursor)


def add_grant(
    who: str, role: str, *, job: int | None = None, tag: str | None = None, queue: str | None = None
) -> Call[Grant]:
    """Let somebody be operator or editor on one job, on those with a tag, or on those of a queue."""
    on = {"job": job, "tag": tag, "queue": queue}
    given = {name: value for name, value in on.items() if value is not None}
    return send("POST", "/v1/grants", {"who": who, "role": role, **given})


def remove_grant(grant_id: int) -> Call[None]:
    """Take a grant back."""
    return send("DELETE", f"/v1/grants/{grant_id}")


def revoke_token(token_id: int) -> Call[None]:
    """Revoke a token, for ever."""
    return send("DELETE", f"/v1/tokens/{token_id}")
