"""Commands about alerts: what is going on, of what somebody is told, and by which channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import click

from horae.cli.jobfiles import naming, read_file
from horae.cli.options import Argument, DryRun
from horae.cli.planning import one_of, say_would
from horae.cli.screen import Cell, Json, Screen, clean, local_time
from horae.cli.session import Session, command, listing
from horae.errors import Invalid

if TYPE_CHECKING:
    from horae.client import SyncClient

NameArgument = Annotated[str, Argument(metavar="NAME", help="Name of a rule or a channel.")]
_KINDS = ("rule", "channel")


def register(app: click.Group) -> None:
    group = listing(app, "alerts", "horae alerts")(alerts)
    command(group, "ack", "horae alerts ack 12")(acknowledge)
    command(group, "rules", "horae alerts rules")(rules)
    command(group, "channels", "horae alerts channels")(channels)
    command(group, "apply", "horae alerts apply alerts.yaml")(apply)
    command(group, "delete", "horae alerts delete rule night-jobs")(delete)
    command(group, "test", "horae alerts test ops")(test)
    command(group, "sent", "horae alerts sent")(sent)


def alerts(session: Session) -> None:
    """List what is going on: what failed, is late, slow, silent, gone or full, by the rules that there are."""
    with session.client() as client:
        items: list[Json] = []
        page = client.json.alerts()
        items += page["items"]
        while page["cursor"]:
            page = client.json.alerts(page["cursor"])
            items += page["items"]
    if session.as_json:
        session.screen.json({"items": items})
        return
    rows: list[list[str | Cell]] = [_row(it) for it in items]
    columns = [">id", "rule", "what", ">times?", "since??", "last", "known to??", "seen???"]
    session.screen.table(columns, rows, "nothing is going on")


def _row(it: Json) -> list[str | Cell]:
    return [
        str(it["id"]), it["rule"], clean(it["name"]), str(it["count"]), local_time(it["since_at"]),
        local_time(it["last_at"]), clean(it["acked_by"] or ""), clean(it["text"]),
    ]  # fmt: skip


def acknowledge(
    session: Session,
    ids: Annotated[list[int], Argument(metavar="ID…", help="Of alerts, as `horae alerts` lists them.")],
) -> None:
    """Say that you know of alerts: they are told no more, until they are over."""
    with session.client() as client:
        found = [client.json.acknowledge_alert(each) for each in ids]
    if session.as_json:
        session.screen.json({"items": found})
        return
    for it in found:
        session.screen.line(f"alert {it['id']} is known to {clean(it['acked_by'])}: {clean(it['name'])}")


def rules(session: Session) -> None:
    """List the rules: of what somebody is told, and by which channels."""
    with session.client() as client:
        page = client.json.alert_rules()
    if session.as_json:
        session.screen.json(page)
        return
    rows: list[list[str | Cell]] = [
        [it["name"], _condition(it), _scope(it), " ".join(it["channels"]), it["tell"], "yes" if it["enabled"] else "no"]
        for it in page["items"]
    ]
    columns = ["name", "when", "of?", "channels", "tells??", "enabled?"]
    session.screen.table(columns, rows, "no rules yet: `horae alerts apply FILE` makes some")


def _condition(it: Json) -> str:
    if (it["count"] or 1) > 1:
        return f"{it['when']} {it['count']} in a row"
    if it["after"]:
        return f"{it['when']} after {it['after']:g} s"
    return f"{it['when']} above {it['above']:g} %" if it["above"] else str(it["when"])


def _scope(it: Json) -> str:
    return next((f"{name} {clean(str(it[name]))}" for name in ("job", "owner", "queue") if it[name] is not None), "all")


def channels(session: Session) -> None:
    """List the channels. Secrets are shown by their names."""
    with session.client() as client:
        page = client.json.alert_channels()
    if session.as_json:
        session.screen.json(page)
        return
    rows: list[list[str | Cell]] = [[it["name"], it["kind"], _place(it)] for it in page["items"]]
    session.screen.table(["name", "kind", "to"], rows, "no channels yet: `horae alerts apply FILE` makes some")


def _place(it: Json) -> str:
    if it["to"]:
        return " ".join(it["to"])
    url = it["url"]
    return f"the secret {url['secret']}" if isinstance(url, dict) else clean(url or "")


def apply(
    session: Session,
    file: Annotated[str, Argument(metavar="FILE", help="YAML or JSON; - is standard input.")],
    dry_run: DryRun = False,
) -> None:
    """Make and change channels and rules as a file says; what it does not name stays as it is.

    A file has `channels` and `rules`, each by name.
    """
    document = _read(file)
    made: list[Json] = []
    with session.client() as client:
        if dry_run:
            return _plan(session, client, document)
        for name, one in document.get("channels", {}).items():
            with naming(f"channel {name}"):
                made.append(client.json.set_alert_channel(name, one) | {"is": "channel"})
        for name, one in document.get("rules", {}).items():
            with naming(f"rule {name}"):
                made.append(client.json.set_alert_rule(name, one) | {"is": "rule"})
    if session.as_json:
        return session.screen.json({"items": made})
    for it in made:
        session.screen.line(f"{it['is']} {it['name']}: version {it['version']}")
    return None


def _plan(session: Session, client: SyncClient, document: dict[str, Any]) -> None:
    """Say which would be made, and which changed."""
    there = {"channel": client.json.alert_channels()["items"], "rule": client.json.alert_rules()["items"]}
    known = {(kind, it["name"]) for kind, items in there.items() for it in items}
    planned = [
        {"is": kind, "name": name, "outcome": "changed" if (kind, name) in known else "created"}
        for kind in ("channel", "rule")
        for name in document.get(f"{kind}s", {})
    ]
    if session.as_json:
        return session.screen.json({"items": planned, "dry_run": True})
    for it in planned:
        session.screen.line(f"{it['is']} {it['name']} would be {it['outcome']}")
    return None


def _read(file: str) -> dict[str, Any]:
    from horae.core.alerts.rules import check_name
    from horae.web.documents import read_document  # not needed by the other commands

    with naming("standard input" if file == "-" else file):
        found = read_document(read_file(file), "application/yaml")
        if not isinstance(found, dict) or not found.keys() <= {"channels", "rules"} or not found:
            raise Invalid("a mapping with channels and rules expected", code="E_TYPE", hint="rules: {night: {when: …}}")
        for part, named in found.items():
            if not isinstance(named, dict):
                raise Invalid(f"{part}: a mapping by name expected", code="E_TYPE", path=part)
            for name in named:
                check_name(name, "a rule or channel")
    return found


def delete(
    session: Session,
    what: Annotated[str, Argument(metavar="rule|channel", help="What it is.")],
    name: NameArgument,
    dry_run: DryRun = False,
) -> None:
    """Delete a rule, with all that is open under it, or a channel that no rule names."""
    if what not in _KINDS:
        raise Invalid(f"rule or channel expected, got {what!r}", code="E_USAGE", hint="horae alerts delete rule NAME")
    with session.client() as client:
        if dry_run:
            there = client.json.alert_rules() if what == "rule" else client.json.alert_channels()
            return say_would(session, f"delete {what} {clean(name)}", one_of(there["items"], "name", name, what))
        if what == "rule":
            client.json.delete_alert_rule(name)
        else:
            client.json.delete_alert_channel(name)
    if session.as_json:
        session.screen.json({"name": name})
    else:
        session.screen.line(f"{what} {clean(name)} is deleted")
    return None


def test(session: Session, channel: Annotated[str, Argument(metavar="CHANNEL", help="Name of a channel.")]) -> int:
    """Send one message by a channel, and say what came of it; ends with 1 where it was not taken."""
    with session.client() as client:
        found = client.json.try_alert_channel(channel)
    if session.as_json:
        session.screen.json(found)
    else:
        taken = "was taken" if found["is_sent"] else f"was not taken: {clean(found['detail'])}"
        session.screen.line(f"the message by {clean(channel)} {taken} ({found['seconds']:.1f} s)")
    return 0 if found["is_sent"] else 1


def sent(session: Session) -> None:
    """List the last messages, newest first, and what came of each."""
    with session.client() as client:
        page = client.json.alert_deliveries()
    if session.as_json:
        session.screen.json(page)
        return
    _show_sent(session.screen, page["items"])


def _show_sent(screen: Screen, items: list[Json]) -> None:
    colours = {"sent": "green", "failed": "red"}
    rows: list[list[str | Cell]] = [
        [local_time(it["made_at"]), it["rule"], it["channel"], Cell(it["state"], colours.get(it["state"], "yellow")),
         str(it["tries"]), clean(it["title"]), clean(it["error"])]
        for it in items
    ]  # fmt: skip
    screen.table(["made", "rule?", "channel?", "state", ">tries??", "what", "why not??"], rows, "nothing was told yet")
