"""The calls about who asks, users and organisations."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from horae.client.making import get, given, send
from horae.client.steps import Call
from horae.client.wire import to_address

if TYPE_CHECKING:
    from horae.schemas import (
        DeviceLogin,
        Invitation,
        Me,
        MemberPage,
        NewToken,
        Organisation,
        OrganisationPage,
        SessionPage,
        User,
        UserPage,
    )


def me() -> Call[Me]:
    """Tell who asks."""
    return get("/v1/me")


def sessions() -> Call[SessionPage]:
    """One's own sessions, newest first."""
    return get("/v1/sessions", has="items")


def end_session(session_id: int) -> Call[None]:
    """End a session of one's own."""
    return send("DELETE", f"/v1/sessions/{session_id}")


def begin_device() -> Call[DeviceLogin]:
    """Ask to be let in as whoever confirms a code in a browser."""
    return send("POST", "/v1/device")


def fetch_device_token(device_code: str) -> Call[NewToken]:
    """Fetch the token that was approved; Error with E_DEVICE_PENDING until somebody has."""
    return send("POST", "/v1/device/token", {"device_code": device_code})


def revoke_own_token() -> Call[None]:
    """Revoke the token that this client sends, for ever."""
    return send("DELETE", "/v1/me/token")


def users(cursor: str | None = None) -> Call[UserPage]:
    """Users by name."""
    return get(to_address("/v1/users", {"cursor": cursor}), has="items")


def create_user(
    name: str, *, kind: str | None = None, email: str | None = None, org: str | None = None, role: str | None = None
) -> Call[User]:
    """Make a user, or with the kind `service` one for a program; `org` is `*` for all organisations."""
    return send("POST", "/v1/users", given({"name": name, "kind": kind, "email": email, "org": org, "role": role}))


def invite_user(name: str) -> Call[Invitation]:
    """Make a link with which a user sets a password, once."""
    return send("POST", f"/v1/users/{_part(name)}/invite")


def disable_user(name: str) -> Call[User]:
    """Refuse a user, with all sessions and tokens."""
    return send("POST", f"/v1/users/{_part(name)}/disable")


def enable_user(name: str) -> Call[User]:
    """Let a user in again."""
    return send("POST", f"/v1/users/{_part(name)}/enable")


def link_user(name: str, issuer: str, subject: str) -> Call[None]:
    """Let a user of a provider be this one."""
    return send("POST", f"/v1/users/{_part(name)}/link", {"issuer": issuer, "subject": subject})


def orgs() -> Call[OrganisationPage]:
    """Organisations."""
    return get("/v1/orgs", has="items")


def create_org(name: str) -> Call[Organisation]:
    """Make an organisation."""
    return send("POST", "/v1/orgs", {"name": name})


def rename_org(org: str, name: str) -> Call[Organisation]:
    """Give an organisation another name."""
    return send("PATCH", f"/v1/orgs/{_part(org)}", {"name": name})


def limit_org(org: str, *, most_waiting: int | None = None, most_jobs: int | None = None) -> Call[Organisation]:
    """Limit how many runs of an organisation may wait, and how many jobs it may have; 0 takes a limit away, and what is
    not given stays."""
    limits = given({"most_waiting": most_waiting, "most_jobs": most_jobs})
    return send("PATCH", f"/v1/orgs/{_part(org)}", {name: limit or None for name, limit in limits.items()})


def delete_org(org: str) -> Call[None]:
    """Delete an organisation that has nothing any more."""
    return send("DELETE", f"/v1/orgs/{_part(org)}")


def members(org: str) -> Call[MemberPage]:
    """The members of an organisation, by its name or number."""
    return get(f"/v1/orgs/{_part(org)}/members", has="items")


def add_member(org: str, name: str, role: str) -> Call[None]:
    """Make a user a member, with this role."""
    return send("PUT", f"/v1/orgs/{_part(org)}/members/{_part(name)}", {"role": role})


def remove_member(org: str, name: str) -> Call[None]:
    """Take a member out."""
    return send("DELETE", f"/v1/orgs/{_part(org)}/members/{_part(name)}")


def _part(name: str) -> str:
    return quote(name, safe="")
