"""Commands about the cluster: nodes, and the handlers that they have."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import click

from horae.cli.cluster.tokens import SETTINGS, join_token
from horae.cli.options import Argument, DryRun, Option
from horae.cli.planning import one_of, say_would
from horae.cli.screen import Cell, Json, Screen, between, clean, duration
from horae.cli.session import SHARED, Session, command, listing, settings_command
from horae.errors import Error

if TYPE_CHECKING:
    from horae.client import SyncClient

NodeArgument = Annotated[str, Argument(metavar="NODE", help="Name of a node.")]


def nodes(session: Session) -> None:
    """List the nodes: state, how busy they are, when they were last seen, through whom agents come in."""
    with session.client() as client:
        page = client.json.nodes()
        seen = {} if session.as_json else _overview(client)
    if session.as_json:
        session.screen.json(page)
    else:
        _show_nodes(session.screen, page["items"])
        _show_arrears(session.screen, seen)


def _overview(client: SyncClient) -> Json:
    """Return what more is known, where the server tells."""
    seen: Json = {}
    with contextlib.suppress(Error):
        seen = client.json.overview()
    return seen


def _show_arrears(screen: Screen, seen: Json) -> None:
    """What the node that answered has still to catch up, and what it cannot fire."""
    behind = seen.get("catch_up") or {}
    if behind.get("triggers"):
        screen.warn(f"{seen['node']} catches up: {behind['triggers']} triggers, about {behind['moments']} moments")
    for why in (seen.get("unreadable") or {}).values():
        screen.warn(f"{seen['node']}: {why}")


def _show_nodes(screen: Screen, nodes: list[Json]) -> None:
    now = datetime.now(UTC).isoformat()
    rows: list[list[str | Cell]] = [
        [
            node["name"],
            _state(node),
            Cell(node["wanted"], "" if node["wanted"] == "live" else "yellow"),
            ",".join(node["roles"]),
            ",".join(node["labels"]),
            f"{node['busy']}/{node['slots']}",
            _free(node),
            str(node["segments"] or ""),
            duration(max(0.0, between(node["heartbeat_at"], now) or 0.0)) + " ago",
            node["version"],
            node["address"] or f"via {node['via']}",
        ]
        for node in nodes
    ]
    columns = [
        "name",
        "state",
        "wanted?",
        "roles??",
        "labels??",
        ">busy",
        "free?",
        ">segments??",
        ">seen?",
        "version??",
        "address?",
    ]
    screen.table(columns, rows, "no nodes")
    for node in nodes:
        if node.get("ailment"):
            screen.line(f"{clean(node['name'])} takes nothing new: {clean(node['ailment'])}")


def _state(node: Json) -> Cell:
    if node.get("evicted_at"):
        return Cell("evicted", "red")
    return Cell(node["state"], "green" if node["state"] == "live" else "yellow")


def _free(node: Json) -> str:
    """What it offers; where some is taken, what is free of it: cpus 4, gpu 1/2, memory 15.6GiB."""
    free, offered = node.get("free") or {}, node.get("resources") or {}
    return ", ".join(f"{name} {_share(name, free.get(name, most), most)}" for name, most in offered.items())


def _share(name: str, free: float, most: float) -> str:
    show = _size if name == "memory" else "{:g}".format
    return show(most) if free == most else f"{show(free)}/{show(most)}"


def _size(value: float) -> str:
    unit, scale = ("GiB", 2**30) if value >= 2**30 else ("MiB", 2**20)
    return f"{value / scale:.4g}{unit}"


def handlers(
    session: Session,
    node: Annotated[str | None, Option("--node", metavar="NODE", help="Only those of this node.")] = None,
) -> None:
    """List Python handlers of all agents: version of their code, kind, when it was loaded, what is wrong with it."""
    with session.client() as client:
        page = client.json.handlers(node=node)
    if session.as_json:
        session.screen.json(page)
    else:
        _show_handlers(session.screen, page)


def _show_handlers(screen: Screen, page: Json) -> None:
    now = datetime.now(UTC).isoformat()
    rows: list[list[str | Cell]] = [
        [
            one["name"],
            one["node"],
            one["kind"],
            one["version"],
            duration(max(0.0, between(one["loaded_at"], now) or 0.0)) + " ago" if one["loaded_at"] else "",
            one["file"],
        ]
        for one in page["items"]
    ]
    screen.table(["name", "node?", "kind??", "version?", ">loaded??", "file??"], rows, "no handlers")
    for one in page["items"]:
        if one["error"]:
            screen.warn(f"{clean(one['name'])} on {clean(one['node'])}: {clean(one['error'])}")
    for node in page.get("nodes", ()):
        if node["note"]:
            screen.warn(f"{clean(node['name'])}: {_note(node)}")


def _note(node: Json) -> str:
    said = clean(node["note"])
    return f"unknown: {said}" if node["state"] == "unknown" else said


def cordon(session: Session, name: NodeArgument, dry_run: DryRun = False) -> None:
    """Let a node take no new runs; what runs there goes on."""
    _want(session, name, "cordon", "takes no new runs", is_dry=dry_run)


def uncordon(session: Session, name: NodeArgument, dry_run: DryRun = False) -> None:
    """Let a cordoned or drained node take runs again."""
    _want(session, name, "uncordon", "takes runs again", is_dry=dry_run)


def drain(session: Session, name: NodeArgument, dry_run: DryRun = False) -> None:
    """Empty a node: it takes no new runs and gives its segments away; what runs there goes on to its end."""
    _want(session, name, "drain", "takes no new runs and gives its segments away", is_dry=dry_run)


def evict(session: Session, name: NodeArgument, dry_run: DryRun = False) -> None:
    """Send a node off for good: its tokens are revoked, its runs begin elsewhere, it does not come back by itself."""
    _want(session, name, "evict", "is evicted: what it ran begins elsewhere when its lease is over", is_dry=dry_run)


def _want(session: Session, name: str, verb: str, effect: str, *, is_dry: bool) -> None:
    with session.client() as client:
        if is_dry:
            found = one_of(client.json.nodes()["items"], "name", name, "node")
            busy = f", which runs {found['busy']}" if found["busy"] else ""
            return say_would(session, f"{verb} {clean(name)}, {found['state']}{busy}", found)
        node = client.json.want_node(name, verb)
    if session.as_json:
        session.screen.json(node)
    else:
        busy = f"; {node['busy']} still running" if node["busy"] and verb in ("cordon", "drain") else ""
        session.screen.line(f"{clean(name)} {effect}{busy}")
    return None


def register(app: click.Group) -> None:
    group = listing(app, "nodes", "horae nodes")(nodes)
    command(group, "cordon", "horae nodes cordon worker-3")(cordon)
    command(group, "uncordon", "horae nodes uncordon worker-3")(uncordon)
    command(group, "drain", "horae nodes drain worker-3")(drain)
    command(group, "evict", "horae nodes evict worker-3")(evict)
    settings_command(group, "join-token", "horae nodes join-token gpu-1 --label gpu", SETTINGS, shared=SHARED)(
        join_token
    )
    command(app, "handlers", "horae handlers --node worker-3")(handlers)
