"""Commands about grants: who may do more on some jobs than the role in the organisation says."""

from __future__ import annotations

from typing import Annotated

import click

from horae.cli.options import Argument, DryRun, Option
from horae.cli.planning import one_of, say_would
from horae.cli.screen import clean, local_time
from horae.cli.session import Session, command, listing
from horae.errors import Invalid


def register(app: click.Group) -> None:
    group = listing(app, "grants", "horae grants")(grants)
    command(group, "add", "horae grants add bob operator --tag nightly")(add)
    command(group, "remove", "horae grants remove 7")(remove)


def grants(session: Session) -> None:
    """List who may do more on some jobs than the role in the organisation says."""
    with session.client() as client:
        page = client.json.grants()
    if session.as_json:
        session.screen.json(page)
        return
    rows = [
        [str(it["id"]), it["who"], it["role"], _on(it), it["created_by"], local_time(it["created_at"])]
        for it in page["items"]
    ]
    session.screen.table([">id", "who", "role", "on", "by??", "since??"], rows, "no grants: roles alone decide")


def add(
    session: Session,
    who: Annotated[str, Argument(metavar="WHO", help="Name of a user, or owner of tokens.")],
    role: Annotated[str, Argument(metavar="ROLE", help="operator or editor.")],
    job: Annotated[int | None, Option("--job", metavar="ID", help="On this job.")] = None,
    tag: Annotated[str | None, Option("--tag", metavar="TAG", help="On the jobs that have this tag.")] = None,
    queue: Annotated[str | None, Option("--queue", metavar="NAME", help="On the jobs of this queue.")] = None,
    dry_run: DryRun = False,
) -> None:
    """Let somebody do more on some jobs. Whoever has a grant on the same jobs has the new role in its place."""
    if sum(given is not None for given in (job, tag, queue)) != 1:
        raise Invalid("one of --job, --tag and --queue expected", hint="such as --tag nightly")
    if dry_run:
        wanted: dict[str, object] = {"who": who, "role": role, "job": job, "tag": tag, "queue": queue}
        return say_would(session, f"let {clean(who)} be {clean(role)} on {_on(wanted)}", wanted)
    with session.client() as client:
        made = client.json.add_grant(who, role, job=job, tag=tag, queue=queue)
    if session.as_json:
        session.screen.json(made)
    else:
        session.screen.line(f"{clean(who)} is {made['role']} on {_on(made)} (grant {made['id']})")
    return None


def remove(
    session: Session,
    grant: Annotated[int, Argument(metavar="ID", help="Id of a grant.")],
    dry_run: DryRun = False,
) -> None:
    """Take a grant back."""
    with session.client() as client:
        if dry_run:
            it = one_of(client.json.grants()["items"], "id", grant, "grant")
            words = f"take grant {grant} back: {clean(it['who'])} is {it['role']} on {_on(it)}"
            return say_would(session, words, it)
        client.json.remove_grant(grant)
    if session.as_json:
        session.screen.json({"id": grant, "removed": True})
    else:
        session.screen.line(f"grant {grant} is taken back")
    return None


def _on(it: dict[str, object]) -> str:
    return next(f"{name} {clean(str(it[name]))}" for name in ("job", "tag", "queue") if it[name] is not None)
