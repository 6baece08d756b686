"""The commands about tokens. They go to whoever holds the database of the settings.

The first token is made before any server listens, so these commands open the database themselves, as `up`
does. With SQLite a running server holds it: then they ask that server, whose address the lock names. A server
that was named is asked, and nothing else. So a token never ends up in another database than the one meant.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Protocol
from urllib.parse import urlsplit

import click

from horae.cli.local import ConfigFile, load_settings
from horae.cli.options import Argument, DryRun, Option
from horae.cli.planning import one_of, say_would
from horae.cli.screen import Cell, clean, local_time
from horae.cli.session import APART, SHARED, Session, family, settings_command
from horae.errors import ConfigError, Error, Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from horae.client import Client
    from horae.core.audit import Deed
    from horae.service.access import Access
    from horae.service.audit import Audit

Json = dict[str, Any]

SETTINGS = ("data", "database", "startup_timeout")
ABOUT = """Make, list and revoke the tokens that people and agents log in with.

They are needed as soon as a server listens beyond loopback."""


def register(app: click.Group) -> None:
    group = family(app, "token", ABOUT, "horae token create laptop")
    for name, example, function in (
        ("create", "horae token create gpu --agent gpu-1 --kind shell --label gpu --file gpu-1.token", create),
        ("list", "horae token list", list_tokens),
        ("revoke", "horae token revoke 3", revoke),
    ):
        shared = APART if function is create else SHARED
        settings_command(group, name, example, SETTINGS, shared=shared)(function)


class Tokens(Protocol):
    """What the client can do, and the database without a server."""

    async def create_token(
        self, name: str, *, scope: str, owner: str | None, expires_in: str | None, node: str | None,
        kinds: Sequence[str] | None, labels: Sequence[str] | None, resources: Sequence[str] | None, org: int | None,
        role: str | None,
    ) -> Json: ...  # fmt: skip

    async def tokens(self) -> Json: ...

    async def revoke_token(self, token_id: int) -> None: ...


async def create(
    session: Session,
    flags: dict[str, str],
    name: Annotated[str, Argument(metavar="NAME", help="What it is for, for people.")],
    scope: Annotated[
        str | None,
        Option("--scope", metavar="user|agent|join", help="Good for the API, for an agent, or for one to join by."),
    ] = None,
    node: Annotated[
        str | None, Option("--agent", metavar="NODE", help="Good for the agent of this name; '*' is any.")
    ] = None,
    kind: Annotated[
        list[str] | None, Option("--kind", metavar="KIND", help="What that agent may take. [default: any kind]")
    ] = None,
    label: Annotated[
        list[str] | None,
        Option("--label", metavar="LABEL", help="What it may say to have; '*' is any. [default: none]"),
    ] = None,
    resource: Annotated[
        list[str] | None,
        Option("--resource", metavar="NAME=N", help="What it may offer at most; '*' is any. [default: none]"),
    ] = None,
    owner: Annotated[
        str | None,
        Option(
            "--owner",
            metavar="NAME",
            help="Owner of what is made with it. [default: NAME, or that of the token it is made with]",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        Option(
            "--expires",
            metavar="DURATION",
            help="Ends after this, such as 30d, or never. [default: 90d; for an agent never]",
        ),
    ] = None,
    org: Annotated[
        int | None,
        Option(
            "--org",
            metavar="N",
            min=1,
            help="Organisation of what is made and seen with it. [default: 1, or that of the token it is made with]",
        ),
    ] = None,
    role: Annotated[
        str | None,
        Option(
            "--role",
            metavar="viewer|operator|editor|admin|PERMISSION+…",
            help="What may be done with it. [default: admin, or that of the token it is made with]",
        ),
    ] = None,
    file: Annotated[
        str | None, Option("--file", metavar="FILE", help="Write it to this new file, for its owner only.")
    ] = None,
    config_file: ConfigFile = None,
) -> None:
    """Make a token and print it, this once.

    Horae keeps only what it is known by. Give it back with --token-file, HORAE_TOKEN or HORAE_TOKEN_FILE.
    """
    with _place_for(file) as keep:  # before the token: one that cannot be kept is of no use
        async with _tokens(session, flags, config_file) as tokens:
            made = await tokens.create_token(
                name, scope=scope or ("user" if node is None else "agent"), owner=owner, expires_in=expires,
                node=node, kinds=kind or None, labels=label or None, resources=resource or None, org=org, role=role,
            )  # fmt: skip
        text = made["token"] if file is None else keep(made.pop("token"))
    if session.as_json:
        session.screen.json(made if file is None else {**made, "file": file})
        return
    until = f", until {local_time(made['expires_at'])}" if made["expires_at"] else ""
    whom = f"the agent {made['node']}" if made["node"] else f"{clean(made['owner'])} ({made['role']})"
    session.screen.note(f"token {made['id']} for {whom}{until}; it is not shown again")
    session.screen.line(text)


async def join_token(
    session: Session,
    flags: dict[str, str],
    node: Annotated[str, Argument(metavar="[NODE]", help="Name of the agent that joins; '*' is any.")] = "*",
    kind: Annotated[
        list[str] | None, Option("--kind", metavar="KIND", help="What it may take. [default: any kind]")
    ] = None,
    label: Annotated[
        list[str] | None,
        Option("--label", metavar="LABEL", help="What it may say to have; '*' is any. [default: none]"),
    ] = None,
    resource: Annotated[
        list[str] | None,
        Option("--resource", metavar="NAME=N", help="What it may offer at most; '*' is any. [default: none]"),
    ] = None,
    expires: Annotated[
        str | None, Option("--expires", metavar="DURATION", help="Ends after this, 1d at most. [default: 15m]")
    ] = None,
    file: Annotated[
        str | None, Option("--file", metavar="FILE", help="Write it to this new file, for its owner only.")
    ] = None,
    config_file: ConfigFile = None,
) -> None:
    """Make a token by which one agent joins, once, and gets a credential of its own.

    Give it to the agent with --join, HORAE_JOIN_TOKEN or HORAE_JOIN_TOKEN_FILE.
    """
    with _place_for(file) as keep:
        async with _tokens(session, flags, config_file) as tokens:
            made = await tokens.create_token(
                f"join {node}" if node != "*" else "join", scope="join", owner=None, expires_in=expires, node=node,
                kinds=kind or None, labels=label or None, resources=resource or None, org=None, role=None,
            )  # fmt: skip
        text = made["token"] if file is None else keep(made.pop("token"))
    if session.as_json:
        session.screen.json(made if file is None else {**made, "file": file})
        return
    whom = "one agent" if node == "*" else f"the agent {clean(node)}"
    session.screen.note(f"good once, for {whom}, until {local_time(made['expires_at'])}; it is not shown again")
    session.screen.line(text)


@contextmanager
def _place_for(file: str | None) -> Iterator[Callable[[str], str]]:
    """A way to write the token to a new file that only its owner reads; gone again if there is no token."""
    if file is None:
        yield lambda text: text
        return
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        hint = "name a file that does not exist yet" if isinstance(error, FileExistsError) else ""
        raise Error(f"{file} cannot be made: {error.strerror}", code="E_FILE", hint=hint) from None

    def keep(text: str) -> str:
        os.write(opened, f"{text}\n".encode())
        return f"written to {clean(file)}"

    try:
        yield keep
    except BaseException:
        os.unlink(file)
        raise
    finally:
        os.close(opened)


async def list_tokens(session: Session, flags: dict[str, str], config_file: ConfigFile = None) -> None:
    """List tokens, newest first, without their secrets."""
    async with _tokens(session, flags, config_file) as tokens:
        page = await tokens.tokens()
    if session.as_json:
        session.screen.json(page)
        return
    rows = [
        [str(it["id"]), it["name"], it["scope"], it["owner"], str(it["org"]), it["role"] or "", _bounds(it),
         Cell(it["state"], _STYLES[it["state"]]), local_time(it["created_at"]), local_time(it["expires_at"])]
        for it in page["items"]
    ]  # fmt: skip
    columns = [
        ">id",
        "name",
        "scope??",
        "owner?",
        ">org???",
        "role?",
        "good for??",
        "state",
        "created???",
        "expires??",
    ]
    session.screen.table(columns, rows, "no tokens yet: `horae token create NAME` makes one")


def _bounds(it: Json) -> Cell | str:
    """Return what an agent's token is good for, and whether it is one to replace."""
    if it["scope"] == "user":
        return ""
    is_by_hash = it.get("by_hash", False) and it["state"] == "good"
    known = f"{_bound_to(it)}; by hash" if is_by_hash else _bound_to(it)
    return Cell(known, "yellow") if is_by_hash or it["node"] is None else known


def _bound_to(it: Json) -> str:
    if it["node"] is None:
        return "unbound"
    kinds, labels, resources = (" ".join(it[name]) for name in ("kinds", "labels", "resources"))
    return "; ".join([it["node"], *([kinds] if kinds != "*" else ()), *filter(None, (labels, resources))])


_STYLES = {"good": "green", "expired": "yellow", "revoked": "red", "used": "dim"}


async def revoke(
    session: Session,
    flags: dict[str, str],
    token: Annotated[int, Argument(metavar="TOKEN", min=1, help="Id of a token.")],
    dry_run: DryRun = False,
    config_file: ConfigFile = None,
) -> None:
    """Revoke a token: every node refuses it within 5 seconds, for ever."""
    async with _tokens(session, flags, config_file) as tokens:
        if dry_run:
            it = one_of((await tokens.tokens())["items"], "id", token, "token")
            words = f"revoke token {token} {clean(it['name'])} of {clean(it['owner'])}, {it['state']}"
            return say_would(session, words, it)
        await tokens.revoke_token(token)
    if session.as_json:
        session.screen.json({"id": token, "state": "revoked"})
    else:
        session.screen.line(f"token {token} is revoked")
    return None


# ── who holds the database ─────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def _tokens(session: Session, flags: dict[str, str], config_file: str | None) -> AsyncIterator[Tokens]:
    async with AsyncExitStack() as stack:
        if session.named_server:
            refuse_both(session.named_server, flags)
            yield (await stack.enter_async_context(client_of(session, session.server))).json
            return
        from horae.app.process import local_access  # the whole server is loaded with it

        config = load_settings(flags, config_file, session.screen)
        tokens: Tokens
        try:
            tokens = LocalTokens(*await stack.enter_async_context(local_access(config)))
        except ConfigError as error:
            tokens = (await stack.enter_async_context(client_of(session, holder_of(error)))).json
        yield tokens


def client_of(session: Session, server: str) -> Client:
    from horae.client import Client

    return Client(
        server, session.token(), insecure=session.insecure, ca_file=session.ca_file, cert_file=session.cert_file
    )


def refuse_both(server: str, flags: dict[str, str]) -> None:
    if flags:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in flags)
        raise Invalid(
            f"{named} names a database, and {server} is a server: which one is meant?",
            code="E_USAGE",
            hint="leave one out; HORAE_SERVER names a server too",
        )


def holder_of(error: ConfigError) -> str:
    """Return the address of the server that holds the database, if that is why it cannot be opened."""
    found = re.search(r" at (https?://[^\s;]+)", error.message) if error.code == "E_SINGLE_NODE_LOCK" else None
    if found is None:
        raise error
    from horae.core.hosts import is_loopback

    if not is_loopback(urlsplit(found[1]).hostname or ""):
        error.hint = "ask that server: --server https://NAME:PORT --token-file FILE"
        raise error
    return found[1]


def own_deed(command: str, action: str, kind: str, subject: str = "") -> Deed:
    """Return what the audit log tells of a command that writes to the database itself."""
    from horae.core.audit import Deed
    from horae.core.identity import OPERATOR

    return Deed(OPERATOR, via=OPERATOR, action=action, operation=command, kind=kind, subject=subject)


class LocalTokens:
    """The client's calls, on a database that no server holds."""

    def __init__(self, access: Access, audit: Audit) -> None:
        self._access, self._audit = access, audit

    async def create_token(self, name: str, **wanted: Any) -> Json:
        from horae.service.access.wanted import parse_token
        from horae.web import render

        asked = parse_token({"name": name, **{field: value for field, value in wanted.items() if value is not None}})
        async with self._audit.watch(own_deed("horae token create", "tokens.write", "token")):
            token, text = await self._access.issue(asked)
        return render.plain(render.new_token(token, self._access.state_of(token), text))

    async def tokens(self) -> Json:
        from horae import schemas
        from horae.web import render

        items = [render.token(token, self._access.state_of(token)) for token in await self._access.list()]
        return render.plain(schemas.TokenPage(items))

    async def revoke_token(self, token_id: int) -> None:
        async with self._audit.watch(own_deed("horae token revoke", "tokens.write", "token", str(token_id))):
            await self._access.revoke(token_id)
