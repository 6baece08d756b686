"""The commands about work that other programs hand over in their own transactions.

They go to the database itself: who may hand work over is a right of a role there, and only its owner gives it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import click

from horae.cli.local import ConfigFile, load_settings
from horae.cli.options import Argument, DryRun, Limit, Option
from horae.cli.planning import one_of, say_would
from horae.cli.screen import clean, local_time
from horae.cli.session import APART, Session, family, settings_command
from horae.errors import Invalid, NotFound

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from horae.core.runs.inbox import Refusal
    from horae.ports.store.inbox import InboxGrants

SETTINGS = ("data", "database", "startup_timeout")
MOST = 100_000  # refusals that a dry run looks at
ABOUT = """Let other programs hand work over in their own transactions, and see what was refused.

They call the SQL function horae_enqueue, or horae.enqueue in Python, on the PostgreSQL database of Horae."""


def register(app: click.Group) -> None:
    group = family(app, "inbox", ABOUT, "horae inbox grant shop --owner ada")
    for name, example, function in (
        ("grant", "horae inbox grant shop --owner ada --database postgresql://horae@db/shop", grant),
        ("revoke", "horae inbox revoke shop", revoke),
        ("grants", "horae inbox grants", list_grants),
        ("refused", "horae inbox refused", list_refused),
        ("retry", "horae inbox retry 17 18", retry),
    ):
        settings_command(group, name, example, SETTINGS, shared=APART)(function)


Role = Annotated[str, Argument(metavar="ROLE", help="Role of the database that the program logs in as.")]


def _inbox(
    session: Session, flags: dict[str, str], config_file: str | None
) -> AbstractAsyncContextManager[InboxGrants]:
    from horae.app.process import local_inbox  # the whole server is loaded with it

    return local_inbox(load_settings(flags, config_file, session.screen))


async def grant(
    session: Session,
    flags: dict[str, str],
    role: Role,
    owner: Annotated[str, Option("--owner", metavar="NAME", help="Whose jobs it may ask for.")] = "local",
    org: Annotated[int, Option("--org", metavar="N", min=1, max=2**31 - 1, help="Organisation of the owner.")] = 1,
    dry_run: DryRun = False,
    config_file: ConfigFile = None,
) -> None:
    """Let a role of the database hand work over, for the jobs of one owner.

    It may call the function horae_enqueue, and nothing else of Horae. A second grant takes the place of the first.
    """
    async with _inbox(session, flags, config_file) as inbox:
        if dry_run:
            before = next(
                (f" instead of {clean(one.owner)}" for one in await inbox.list_grants() if one.role == role), ""
            )
            words = f"let {role} hand work over for jobs of {clean(owner)}{before}"
            return say_would(session, words, {"role": role, "org": org, "owner": owner})
        await inbox.grant_inbox(role, org, owner)
    if session.as_json:
        session.screen.json({"role": role, "org": org, "owner": owner})
    else:
        session.screen.line(f"{role} may hand work over for jobs of {owner}, organisation {org}")
    return None


async def revoke(
    session: Session, flags: dict[str, str], role: Role, dry_run: DryRun = False, config_file: ConfigFile = None
) -> None:
    """Let a role hand over no more. What it has handed over already is done."""
    async with _inbox(session, flags, config_file) as inbox:
        if dry_run:
            it = one_of([one._asdict() for one in await inbox.list_grants()], "role", role, "grant for")
            return say_would(session, f"let {role} hand no work over any more for jobs of {clean(it['owner'])}", it)
        if not await inbox.revoke_inbox(role):
            raise NotFound(f"{role} has no grant", hint="horae inbox grants lists them")
    if session.as_json:
        session.screen.json({"role": role, "revoked": True})
    else:
        session.screen.line(f"{role} may hand no work over any more")
    return None


async def list_grants(session: Session, flags: dict[str, str], config_file: ConfigFile = None) -> None:
    """List the roles that may hand work over, and for whom."""
    async with _inbox(session, flags, config_file) as inbox:
        grants = await inbox.list_grants()
    if session.as_json:
        session.screen.json({"items": [one._asdict() for one in grants]})
        return
    rows = [[one.role, one.owner, str(one.org)] for one in grants]
    session.screen.table(["role", "owner", ">org"], rows, "no grants yet: `horae inbox grant ROLE` makes one")


async def list_refused(
    session: Session, flags: dict[str, str], limit: Limit = 100, config_file: ConfigFile = None
) -> None:
    """List work that could not become a run, newest first, and why."""
    async with _inbox(session, flags, config_file) as inbox:
        refused = [_shown(one) for one in await inbox.list_refused(limit)]
    if session.as_json:
        session.screen.json({"items": refused})
        return
    rows = [
        [str(it["receipt"]), local_time(it["made_at"]), it["role"], it["owner"], it["job"], it["code"], it["message"]]
        for it in refused
    ]
    columns = [">receipt", "handed over?", "role??", "owner??", "job", "code", "why?"]
    session.screen.table(columns, rows, "nothing was refused")


def _shown(one: Refusal) -> dict[str, Any]:
    from horae.core.time.moments import format_moment

    handed = one.handed
    return {
        "receipt": handed.id, "made_at": format_moment(handed.made_at), "role": handed.role, "org": handed.org,
        "owner": handed.owner, "job": handed.job, "key": handed.key, "priority": handed.priority, "data": handed.data,
        "code": one.code, "message": one.message,
    }  # fmt: skip


async def retry(
    session: Session,
    flags: dict[str, str],
    receipts: Annotated[list[str] | None, Argument(metavar="[RECEIPT]...", help="Which ones.")] = None,
    every: Annotated[bool, Option("--all", help="All that was refused.")] = False,
    dry_run: DryRun = False,
    config_file: ConfigFile = None,
) -> None:
    """Hand refused work in again, once what it was refused for is mended."""
    wrong = [word for word in receipts or () if not re.fullmatch("[0-9]{1,18}", word)]
    if wrong or bool(receipts) == every:
        got = f"; got {wrong[0]!r}" if wrong else ""
        hint = "horae inbox refused lists them"
        raise Invalid(f"give the numbers of receipts, or --all{got}", code="E_USAGE", hint=hint)
    async with _inbox(session, flags, config_file) as inbox:
        if dry_run:
            refused = [one.handed.id for one in await inbox.list_refused(MOST)]
            wanted = sorted(each for each in refused if every or str(each) in set(receipts or ()))
            return say_would(session, f"hand {len(wanted)} in again", {"receipts": wanted})
        again = await inbox.retry_refused(None if every else [int(word) for word in receipts or ()])
    if session.as_json:
        session.screen.json({"receipts": sorted(again)})
    else:
        session.screen.line(f"{len(again)} handed in again")
    return None
