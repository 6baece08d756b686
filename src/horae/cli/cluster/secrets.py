"""The commands about secrets. A value comes from standard input, a prompt or a file: never from an argument, where
everybody on the machine could read it."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import click

from horae.cli.jobfiles import naming, read_file
from horae.cli.options import Argument, DryRun, Option
from horae.cli.planning import one_of, say_would
from horae.cli.screen import local_time
from horae.cli.session import Session, command, family
from horae.errors import Error

ABOUT = """Keep the secrets that jobs use.

They are encrypted where they are kept, and nobody can read them back."""

SecretArgument = Annotated[str, Argument(metavar="NAME", help="Name of a secret.")]


def register(app: click.Group) -> None:
    group = family(app, "secret", ABOUT, "horae secret set DB_PASSWORD")
    command(group, "set", "horae secret set DEPLOY_KEY --from-file id_ed25519")(set_secret)
    command(group, "list", "horae secret list")(list_secrets)
    command(group, "delete", "horae secret delete DB_PASSWORD")(delete)
    command(group, "rotate", "horae secret rotate")(rotate)


def set_secret(
    session: Session,
    name: SecretArgument,
    from_file: Annotated[
        str | None, Option("--from-file", metavar="FILE", help="Take the value from this file, as it is.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Set a secret, in the place of any earlier value.

    The value is asked for without showing it; from a pipe it is read up to its end, less one line end.
    """
    value = _value(from_file)
    with session.client() as client:
        if dry_run:
            is_new = all(it["name"] != name for it in client.json.secrets()["items"])
            words = f"{'set' if is_new else 'replace'} the secret {name}"
            return say_would(session, words, {"name": name, "is_new": is_new})
        is_new = client.json.set_secret(name, value)
    if session.as_json:
        session.screen.json({"name": name, "is_new": is_new})
    else:
        session.screen.line(f"the secret {name} is {'set' if is_new else 'replaced'}")
    return None


def _value(from_file: str | None) -> str:
    if from_file is None and sys.stdin.isatty():
        import getpass

        return getpass.getpass("value: ")
    with naming("standard input" if from_file is None else from_file):
        content = read_file(from_file or "-")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise Error("is not UTF-8: encode it first, as base64", code="E_FILE") from None
    return text if from_file is not None else text.removesuffix("\n").removesuffix("\r")


def list_secrets(session: Session) -> None:
    """List secrets by name, without their values."""
    with session.client() as client:
        page = client.json.secrets()
    if session.as_json:
        session.screen.json(page)
        return
    rows: list[list[Any]] = [
        [it["name"], str(it["version"]), local_time(it["created_at"]), local_time(it["updated_at"])]
        for it in page["items"]
    ]
    columns = ["name", ">version", "created??", "updated?"]
    session.screen.table(columns, rows, "no secrets yet: `horae secret set NAME` makes one")


def delete(session: Session, name: SecretArgument, dry_run: DryRun = False) -> None:
    """Delete a secret: runs that need it and start from now on fail."""
    with session.client() as client:
        if dry_run:
            found = one_of(client.json.secrets()["items"], "name", name, "secret")
            return say_would(session, f"delete the secret {name}, version {found['version']}", found)
        client.json.delete_secret(name)
    if session.as_json:
        session.screen.json({"name": name})
    else:
        session.screen.line(f"the secret {name} is deleted")
    return None


def rotate(session: Session, dry_run: DryRun = False) -> None:
    """Encrypt all secrets with a new key, and remove the old one.

    One that was broken off is continued. Where there are several servers, put the new key into the file of each first.
    """
    with session.client() as client:
        if dry_run:
            count = len(client.json.secrets()["items"])
            return say_would(
                session, f"seal everything anew with a new key, {count} secrets with it", {"secrets": count}
            )
        done = client.json.rotate_secrets()
    if session.as_json:
        return session.screen.json(done)
    session.screen.line(f"key {done['key']} holds now; sealed anew: {done['resealed']}")
    if done["unopened"]:
        session.screen.line(f"not opened by any key: {done['unopened']}; the log of the server names them")
    if done["old"]:
        why = "is needed by those" if done["unopened"] else "may go from the key file of every server"
        session.screen.line(f"old key {', '.join(done['old'])} {why}")
    return None
