"""The commands about users and organisations.

The first user is made before any server listens, so `horae admin` opens the database itself, as `horae token` does:
with SQLite a running server holds it, and is asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import click

from horae.cli.cluster.tokens import client_of, holder_of, own_deed, refuse_both
from horae.cli.local import ConfigFile, load_settings
from horae.cli.options import Argument, DryRun, Option
from horae.cli.planning import one_of, say_would
from horae.cli.screen import Cell, clean, local_time
from horae.cli.session import APART, SHARED, Session, command, family, listing, settings_command
from horae.errors import ConfigError

if TYPE_CHECKING:
    from horae.client import SyncClient
    from horae.service.access.users import Users
    from horae.service.audit import Audit

Json = dict[str, Any]

SETTINGS = ("data", "database", "startup_timeout", "public_url", "host", "port")
ABOUT = """Make the first user, and let users set a password.

A user sets the password with a link that is good once, and for a day. There is no default password."""

# What a server does otherwise once there is somebody beside the user who runs it.
WALLS = (
    "from its next start on, the server runs steps behind walls, in a workspace of their own: submit jobs again that "
    "were to run in a directory of yours, or set sandbox to plain"
)

User = Annotated[str, Argument(metavar="NAME", help="Name of a user.")]
Org = Annotated[str, Argument(metavar="ORG", help="Name or number of an organisation; '*' is all of them.")]
Role = Annotated[
    str | None, Option("--role", metavar="viewer|operator|editor|admin|PERMISSION+…", help="What may be done there.")
]


def register(app: click.Group) -> None:
    _register_admin(app)
    _register_users(app)
    _register_orgs(app)


def _register_admin(app: click.Group) -> None:
    group = family(app, "admin", ABOUT, "horae admin create ann")
    for name, example, function in (
        ("create", "horae admin create ann", create_admin),
        ("invite", "horae admin invite ann", invite),
    ):
        settings_command(group, name, example, SETTINGS, shared=SHARED)(function)


def _register_users(app: click.Group) -> None:
    group = listing(app, "users", "horae users")(list_users)
    command(group, "create", "horae users create bob --org data --role editor", shared=APART)(create)
    command(group, "disable", "horae users disable bob")(disable)
    command(group, "enable", "horae users enable bob")(enable)
    command(group, "link", "horae users link bob --issuer https://id.example.org --subject 248289761001")(link)


def _register_orgs(app: click.Group) -> None:
    group = listing(app, "orgs", "horae orgs")(list_orgs)
    command(group, "create", "horae orgs create data")(create_org)
    command(group, "rename", "horae orgs rename data science")(rename_org)
    command(group, "limit", "horae orgs limit data --most-waiting 1000 --most-jobs 500")(limit_org)
    command(group, "delete", "horae orgs delete data")(delete_org)
    command(group, "members", "horae orgs members data")(members)
    command(group, "add", "horae orgs add data bob --role editor")(add)
    command(group, "remove", "horae orgs remove data bob")(remove)


# ── admin ──────────────────────────────────────────────────────────────────────────────────────────


class Accounts(Protocol):
    """What the client can do, and the database without a server."""

    async def create_user(self, name: str, *, org: str | None, role: str | None) -> Json: ...

    async def invite_user(self, name: str) -> Json: ...


async def create_admin(session: Session, flags: dict[str, str], name: User, config_file: ConfigFile = None) -> None:
    """Make an admin of the installation, and print the link with which it sets its password.

    The link is good once, and for a day. `horae admin invite NAME` makes another.
    """
    async with _accounts(session, flags, config_file) as accounts:
        await accounts.create_user(name, org="*", role="admin")
        _show_link(session, await accounts.invite_user(name))
    session.screen.note(WALLS)


async def invite(session: Session, flags: dict[str, str], name: User, config_file: ConfigFile = None) -> None:
    """Print a link with which a user sets a password, once. Earlier ones are void."""
    async with _accounts(session, flags, config_file) as accounts:
        _show_link(session, await accounts.invite_user(name))


def _show_link(session: Session, made: Json) -> None:
    link = made["link"] if "://" in made["link"] else session.address_of(made["link"])
    if session.as_json:
        session.screen.json({**made, "link": link})
        return
    session.screen.note(f"{clean(made['user'])} sets a password here, once and within a day:")
    session.screen.line(link)


@asynccontextmanager
async def _accounts(session: Session, flags: dict[str, str], config_file: str | None) -> AsyncIterator[Accounts]:
    async with AsyncExitStack() as stack:
        if session.named_server:
            refuse_both(session.named_server, flags)
            yield (await stack.enter_async_context(client_of(session, session.server))).json
            return
        from horae.app.process import local_users  # the whole server is loaded with it

        config = load_settings(flags, config_file, session.screen)
        accounts: Accounts
        try:
            users, audit = await stack.enter_async_context(local_users(config))
            accounts = LocalAccounts(users, audit, config.public_url or config.address)
        except ConfigError as error:
            accounts = (await stack.enter_async_context(client_of(session, holder_of(error)))).json
        yield accounts


class LocalAccounts:
    """The client's calls, on a database that no server holds."""

    def __init__(self, users: Users, audit: Audit, place: str) -> None:
        self._users, self._audit, self._place = users, audit, place

    async def create_user(self, name: str, *, org: str | None, role: str | None) -> Json:
        from horae.core import identity, roles
        from horae.web import render

        found = await self._users.find_organisation(org or "default", identity.LOCAL)
        given = {found: roles.Role(role)} if role else {}
        async with self._audit.watch(own_deed("horae admin create", "users.write", "user", name)):
            return render.plain(render.user(await self._users.create(name, identity.LOCAL, roles=given)))

    async def invite_user(self, name: str) -> Json:
        from horae.core.identity import LOCAL
        from horae.service.access.users import INVITE_SECONDS

        async with self._audit.watch(own_deed("horae admin invite", "users.write", "user", name)):
            user, text = await self._users.invite(name, LOCAL)
        return {"user": user.name, "link": f"{self._place}/login/invite/{text}", "expires_in": round(INVITE_SECONDS)}


# ── users ──────────────────────────────────────────────────────────────────────────────────────────


def list_users(session: Session) -> None:
    """List users by name: all of them to who runs the installation, to others those of their organisation."""
    with session.client() as client:
        items = _all_users(client)
    if session.as_json:
        session.screen.json({"items": items, "cursor": None})
        return
    rows = [
        [it["name"], it["kind"], it["email"], " ".join(f"{org}:{role}" for org, role in it["roles"].items()),
         Cell(it["state"], "green" if it["state"] == "good" else "red"), local_time(it["created_at"])]
        for it in items
    ]  # fmt: skip
    columns = ["name", "kind??", "mail??", "roles", "state", "created??"]
    session.screen.table(columns, rows, "no users yet: `horae admin create NAME` makes the first")


def _all_users(client: SyncClient) -> list[Json]:
    items: list[Json] = []
    cursor = None
    while True:
        page = client.json.users(cursor)
        items += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            return items


def create(
    session: Session,
    name: User,
    org: Annotated[
        str | None, Option("--org", metavar="ORG", help="Its organisation; '*' is all. [default: default]")
    ] = None,
    role: Role = None,
    email: Annotated[str | None, Option("--email", metavar="ADDRESS", help="For people to read.")] = None,
    service: Annotated[bool, Option("--service", help="A program: it cannot log in, tokens are made for it.")] = False,
) -> None:
    """Make a user, or with --service an account for a program.

    A user sets a password with the link of `horae admin invite NAME`. A program gets a token by
    `horae token create NAME --owner ACCOUNT`.
    """
    kind = "service" if service else None
    with session.client() as client:
        made = client.json.create_user(name, kind=kind, email=email, org=org, role=role)
    if session.as_json:
        session.screen.json(made)
    else:
        session.screen.line(f"user {clean(name)} is made")


def disable(session: Session, name: User, dry_run: DryRun = False) -> None:
    """Refuse a user: every node refuses its sessions and tokens within 5 seconds."""
    with session.client() as client:
        if dry_run:
            return say_would(session, f"disable {clean(name)}", one_of(_all_users(client), "name", name, "user"))
        return _show(session, client.json.disable_user(name), f"{clean(name)} is disabled")


def enable(session: Session, name: User, dry_run: DryRun = False) -> None:
    """Let a user in again."""
    with session.client() as client:
        if dry_run:
            return say_would(session, f"enable {clean(name)}", one_of(_all_users(client), "name", name, "user"))
        return _show(session, client.json.enable_user(name), f"{clean(name)} is enabled")


def link(
    session: Session,
    name: User,
    issuer: Annotated[str, Option("--issuer", metavar="URL", help="The identity provider, as it names itself.")] = "",
    subject: Annotated[str, Option("--subject", metavar="TEXT", help="What it calls the user: `sub`.")] = "",
) -> None:
    """Let a user of an identity provider be this one. Nobody is linked by an address of mail."""
    with session.client() as client:
        client.json.link_user(name, issuer, subject)
    _show(session, {"name": name, "issuer": issuer, "subject": subject}, f"{clean(name)} is linked")


# ── organisations ──────────────────────────────────────────────────────────────────────────────────


def list_orgs(session: Session) -> None:
    """List organisations."""
    with session.client() as client:
        page = client.json.orgs()
    if session.as_json:
        session.screen.json(page)
        return
    rows = [
        [str(it["id"]), it["name"], *(str(it[limit] or "–") for limit in ("most_waiting", "most_jobs")),
         local_time(it["created_at"])]
        for it in page["items"]
    ]  # fmt: skip
    session.screen.table([">id", "name", ">waiting at most?", ">jobs at most?", "created??"], rows, "there is none")


def create_org(session: Session, name: Annotated[str, Argument(metavar="NAME", help="Its name.")]) -> None:
    """Make an organisation."""
    with session.client() as client:
        made = client.json.create_org(name)
    _show(session, made, f"organisation {clean(name)} has the number {made['id']}")


def rename_org(
    session: Session,
    org: Org,
    name: Annotated[str, Argument(metavar="NEW", help="Its name from now on.")],
    dry_run: DryRun = False,
) -> None:
    """Give an organisation another name."""
    with session.client() as client:
        if dry_run:
            return _would(session, client, org, f"call {clean(org)} {clean(name)} from now on")
        return _show(session, client.json.rename_org(org, name), f"{clean(org)} is {clean(name)} from now on")


def limit_org(
    session: Session,
    org: Org,
    most_waiting: Annotated[
        int | None, Option("--most-waiting", metavar="N", help="Runs that may wait; 0: any number.")
    ] = None,
    most_jobs: Annotated[
        int | None, Option("--most-jobs", metavar="N", help="Jobs that there may be; 0: any number.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Limit an organisation. What is not given stays."""
    with session.client() as client:
        if dry_run:
            given = (("jobs", most_jobs), ("runs that wait", most_waiting))
            told = ", ".join(f"{count or 'any number of'} {what}" for what, count in given if count is not None)
            return _would(session, client, org, f"let {clean(org)} have {told or 'what it may have now'}")
        made = client.json.limit_org(org, most_waiting=most_waiting, most_jobs=most_jobs)
    waiting, jobs = (made[limit] or "any number of" for limit in ("most_waiting", "most_jobs"))
    return _show(session, made, f"{clean(made['name'])} may have {jobs} jobs, and {waiting} runs that wait")


def delete_org(session: Session, org: Org, dry_run: DryRun = False) -> None:
    """Delete an organisation that has no jobs, runs, queues, agents and sources any more.

    Its tokens are revoked; its members, grants, secrets and alert rules are gone.
    """
    with session.client() as client:
        if dry_run:
            count = len(client.json.members(org)["items"])
            words = f"delete the organisation {clean(org)}, which has {count} members, if nothing is in it"
            return _would(session, client, org, words)
        client.json.delete_org(org)
    return _show(session, {"org": org}, f"the organisation {clean(org)} is deleted")


def members(session: Session, org: Org) -> None:
    """List the members of an organisation."""
    with session.client() as client:
        page = client.json.members(org)
    if session.as_json:
        session.screen.json(page)
        return
    rows = [[it["name"], it["role"], it["source"]] for it in page["items"]]
    session.screen.table(["name", "role", "said by"], rows, "it has no members")


def add(session: Session, org: Org, name: User, role: Role = None, dry_run: DryRun = False) -> None:
    """Make a user a member, or change the role of one. [default: viewer]"""
    wanted = role or "viewer"
    with session.client() as client:
        if dry_run:
            before = {it["name"]: it["role"] for it in client.json.members(org)["items"]}.get(name, "no member")
            words = f"make {clean(name)} {clean(wanted)} in {clean(org)}, who is {before} now"
            return say_would(session, words, {"org": org, "name": name, "role": wanted})
        client.json.add_member(org, name, wanted)
    return _show(session, {"org": org, "name": name, "role": wanted}, f"{clean(name)} is {wanted} in {clean(org)}")


def remove(session: Session, org: Org, name: User, dry_run: DryRun = False) -> None:
    """Take a member out of an organisation."""
    with session.client() as client:
        if dry_run:
            it = one_of(client.json.members(org)["items"], "name", name, "member")
            return say_would(session, f"take {clean(name)}, {it['role']}, out of {clean(org)}", {"org": org, **it})
        client.json.remove_member(org, name)
    return _show(session, {"org": org, "name": name}, f"{clean(name)} is no member of {clean(org)} any more")


def _would(session: Session, client: SyncClient, org: str, words: str) -> None:
    """Say what would be done with an organisation that is there."""
    known = client.json.orgs()["items"]
    found = next((it for it in known if org in (it["name"], str(it["id"]))), None)
    say_would(session, words, found or one_of(known, "name", org, "organisation"))


def _show(session: Session, made: Json, words: str) -> None:
    if session.as_json:
        session.screen.json(made)
    else:
        session.screen.line(words)
