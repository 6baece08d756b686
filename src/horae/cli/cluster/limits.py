"""Commands about limits, and about what the whole cluster has."""

from __future__ import annotations

from typing import Annotated, Any

import click

from horae.cli.options import Argument, DryRun
from horae.cli.planning import one_of, say_would
from horae.cli.screen import Cell, Json, clean, local_time
from horae.cli.session import Session, command, listing

ResourceArgument = Annotated[str, Argument(metavar="NAME", help="Name of a resource, such as license-x.")]


def register(app: click.Group) -> None:
    command(app, "limits", "horae limits")(limits)
    group = listing(app, "resources", "horae resources")(resources)
    command(group, "set", "horae resources set license-x 2")(set_resource)
    command(group, "delete", "horae resources delete license-x")(delete)


def limits(session: Session) -> None:
    """List the limits that runs use or wait for: how much each allows, what is in use, who waits, and until when."""
    with session.client() as client:
        page = client.json.limits()
    if session.as_json:
        session.screen.json(page)
        return
    rows: list[list[str | Cell]] = [_row(it) for it in page["items"]]
    columns = ["limit", "per", "allows", ">used", ">waiting", "next?", "runs??"]
    session.screen.table(columns, rows, "no limits are in use")


def _row(it: Json) -> list[str | Cell]:
    return [
        clean(it["name"]),
        it["per"],
        _allowed(it),
        str(it["used"]),
        str(it["waiting"]),
        local_time(it["next_at"]),
        " ".join(map(str, it["runs"])),
    ]


def _allowed(it: Json) -> str:
    found = [f"{it['capacity']} at once"] if it["capacity"] is not None else []
    if it["rate"]:
        found.append(f"{it['rate']}, burst {it['burst']}" if it["burst"] > 1 else it["rate"])
    return " ".join(found) or "anything"


def resources(session: Session) -> None:
    """List what the whole cluster has, counted: how much of it there is, what is in use, and who waits for some."""
    with session.client() as client:
        page = client.json.resources()
    if session.as_json:
        session.screen.json(page)
        return
    rows: list[list[str | Cell]] = [
        [it["name"], str(it["capacity"]), str(it["used"]), str(it["waiting"])] for it in page["items"]
    ]
    session.screen.table(["name", ">capacity", ">used", ">waiting"], rows, "the cluster has nothing that is counted")


def set_resource(
    session: Session,
    name: ResourceArgument,
    capacity: Annotated[int, Argument(metavar="N", help="How much of it there is.")],
    dry_run: DryRun = False,
) -> None:
    """Say how much the whole cluster has of something that jobs ask for."""
    with session.client() as client:
        if dry_run:
            known = {it["name"]: it["capacity"] for it in client.json.resources()["items"]}
            words = f"count {capacity} of {clean(name)} instead of {known.get(name, 'none')}"
            return say_would(session, words, {"name": name, "capacity": capacity})
        found = client.json.set_resource(name, capacity)
    return _say(session, found, f"the cluster has {capacity} of {clean(name)}")


def delete(session: Session, name: ResourceArgument, dry_run: DryRun = False) -> None:
    """Count a resource no longer: what waits for some of it is held by it no more."""
    with session.client() as client:
        if dry_run:
            found = one_of(client.json.resources()["items"], "name", name, "resource")
            words = f"count {clean(name)} no longer, of which {found['used']} is in use and {found['waiting']} wait"
            return say_would(session, words, found)
        client.json.delete_resource(name)
    return _say(session, {"name": name}, f"{clean(name)} is counted no longer")


def _say(session: Session, found: Any, line: str) -> None:
    if session.as_json:
        session.screen.json(found)
    else:
        session.screen.line(line)
