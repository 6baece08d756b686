"""Commands about queues: where runs wait, and what holds for all that wait there."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import click

from horae.cli.options import Argument, DryRun, Option
from horae.cli.planning import say_would
from horae.cli.screen import Cell, Json, Screen, clean, duration
from horae.cli.session import Session, command, listing
from horae.errors import Invalid, NotFound

QueueArgument = Annotated[str, Argument(metavar="QUEUE", help="Name of a queue.")]
_NONE = "none"  # takes a limit away
_SETTABLE = ("state", "priority_offset", "labels", "kinds", "concurrency", "rate", "burst", "weights", "most_waiting")


def register(app: click.Group) -> None:
    group = listing(app, "queues", "horae queues")(queues)
    command(group, "set", "horae queues set reports --concurrency 5 --weight ann=2")(set_queue)
    command(group, "pause", "horae queues pause reports")(pause)
    command(group, "resume", "horae queues resume reports")(resume)
    command(group, "drain", "horae queues drain reports")(drain)
    command(group, "delete", "horae queues delete reports")(delete)


def queues(session: Session) -> None:
    """List the queues: what waits in them, what is blocked and why, what runs, how long, how fast."""
    with session.client() as client:
        page = client.json.queues()
    if session.as_json:
        session.screen.json(page)
    else:
        _show(session.screen, page["items"])


def _show(screen: Screen, items: list[Json]) -> None:
    rows: list[list[str | Cell]] = [_row(it, it["figures"]) for it in items]
    columns = [
        "name",
        "state",
        ">waiting",
        "blocked?",
        ">running",
        "limit??",
        ">oldest wait?",
        ">in/min???",
        ">out/min???",
    ]
    screen.table(columns, rows, "no queues")


def _row(it: Json, figures: Json) -> list[str | Cell]:
    more = "+" if figures["blocked_is_cut"] else ""
    blocked = " ".join(f"{reason} {count}{more}" for reason, count in sorted(figures["blocked"].items()))
    return [
        it["name"],
        Cell(it["state"], "green" if it["state"] == "open" else "yellow"),
        f"{figures['waiting']}{'+' if figures['waiting_is_cut'] else ''}",
        blocked,
        str(figures["running"]),
        " ".join(_limits(it)),
        duration(figures["oldest_wait_seconds"]),
        str(figures["in_last_minute"]),
        str(figures["out_last_minute"]),
    ]


def _limits(it: Json) -> list[str]:
    """What holds starts back."""
    found = [f"{it['concurrency']} at once"] if it["concurrency"] else []
    if it["rate"]:
        found.append(f"{it['rate']}, burst {it['burst']}" if it["burst"] > 1 else it["rate"])
    return found


def set_queue(
    session: Session,
    name: QueueArgument,
    concurrency: Annotated[
        str | None, Option("--concurrency", metavar="N", help="Runs of it at once; none: no limit.")
    ] = None,
    rate: Annotated[
        str | None, Option("--rate", metavar="RATE", help="Starts, such as 100/min; none: no limit.")
    ] = None,
    burst: Annotated[str | None, Option("--burst", metavar="N", help="Starts at once, under a rate.")] = None,
    weight: Annotated[
        list[str] | None, Option("--weight", metavar="SHARE=N", help="Weight of a share; may be repeated.")
    ] = None,
    most_waiting: Annotated[
        str | None, Option("--most-waiting", metavar="N", help="Runs of one owner that may wait; none: no limit.")
    ] = None,
    priority_offset: Annotated[
        str | None, Option("--priority-offset", metavar="N", help="-9 to 9, added to the priority of its runs.")
    ] = None,
    label: Annotated[
        list[str] | None, Option("--label", metavar="LABEL", help="That agents must have; may be repeated, or none.")
    ] = None,
    kind: Annotated[
        list[str] | None, Option("--kind", metavar="KIND", help="Of work that it takes; may be repeated, or none.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Make a queue, or change what is said of it; the rest stays as it is."""
    asked = {
        "concurrency": _number("--concurrency", concurrency),
        "rate": rate,
        "burst": _number("--burst", burst),
        "most_waiting": _number("--most-waiting", most_waiting),
        "priority_offset": _number("--priority-offset", priority_offset),
        "labels": _listed(label),
        "kinds": _listed(kind),
    }
    weights = _weights(weight or [])
    with session.client() as client:
        try:
            before = client.json.queue(name)
        except NotFound:
            before = {}
        document = {field: before[field] for field in _SETTABLE if field in before}
        document |= {field: None if value == _NONE else value for field, value in asked.items() if value is not None}
        if document.get("rate") is None:
            document.pop("burst", None)
        if weights:
            document["weights"] = {**document.get("weights", {}), **weights}
        if dry_run:
            verb = "change" if before else "make"
            return say_would(session, f"{verb} queue {clean(name)}: {_changes(before, document)}", document)
        found = client.json.set_queue(name, document, version=before.get("version"))
    return _say(session, found, f"queue {clean(name)} is {'changed' if before else 'made'}")


def _changes(before: Json, document: Json) -> str:
    """Return what is said of a queue that was not said before."""
    told = [
        f"{field} {json.dumps(value, ensure_ascii=False)}"
        for field, value in document.items()
        if value != before.get(field)
    ]
    return clean(", ".join(told)) or "nothing"


def _number(option: str, text: str | None) -> int | str | None:
    if text is None or text == _NONE:
        return text
    if re.fullmatch(r"-?[0-9]{1,12}", text):
        return int(text)
    raise Invalid(f"{option} must be a whole number; got {text!r}", code="E_USAGE")


def _listed(words: list[str] | None) -> list[str] | None:
    return None if not words else [] if list(words) == [_NONE] else list(words)


def _weights(words: list[str]) -> dict[str, int]:
    found = {}
    for word in words:
        share, _, text = word.rpartition("=")
        if not share or not re.fullmatch(r"[0-9]{1,9}", text):
            raise Invalid(f"--weight must be SHARE=N, such as ann=2; got {word!r}", code="E_USAGE")
        found[share] = int(text)
    return found


def pause(session: Session, name: QueueArgument, dry_run: DryRun = False) -> None:
    """Let nothing in a queue start; what runs goes on, and what comes waits."""
    _change(session, name, "pause", "is paused: nothing in it starts", is_dry=dry_run)


def resume(session: Session, name: QueueArgument, dry_run: DryRun = False) -> None:
    """Open a queue that was paused or drained."""
    _change(session, name, "resume", "is open", is_dry=dry_run)


def drain(session: Session, name: QueueArgument, dry_run: DryRun = False) -> None:
    """Let a queue take nothing new; what waits in it is still started."""
    _change(session, name, "drain", "takes nothing new", is_dry=dry_run)


def _change(session: Session, name: str, verb: str, effect: str, *, is_dry: bool) -> None:
    with session.client() as client:
        if is_dry:
            return _would(session, verb, client.json.queue(name))
        found = client.json.change_queue(name, verb)
    return _say(session, found, f"queue {clean(name)} {effect}")


def delete(session: Session, name: QueueArgument, dry_run: DryRun = False) -> None:
    """Delete a queue that has been drained, that no job names and in which nothing waits."""
    with session.client() as client:
        if dry_run:
            return _would(session, "delete", client.json.queue(name))
        client.json.delete_queue(name)
    return _say(session, {"name": name}, f"queue {clean(name)} is deleted")


def _would(session: Session, verb: str, found: Json) -> None:
    waiting = found["figures"]["waiting"]
    say_would(session, f"{verb} queue {clean(found['name'])}, {found['state']}, in which {waiting} wait", found)


def _say(session: Session, found: Any, line: str) -> None:
    if session.as_json:
        session.screen.json(found)
    else:
        session.screen.line(line)
