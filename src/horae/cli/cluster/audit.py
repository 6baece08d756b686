"""Commands about the audit log: who did what, whether it is as it was sealed, and how to take it elsewhere."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TextIO
from urllib.parse import urlsplit

import click

from horae.cli.options import Option
from horae.cli.progress import progress
from horae.cli.screen import Cell, Json, clean, local_time, note_more
from horae.cli.session import Session, command, listing
from horae.cli.when import read_when
from horae.errors import Conflict, Error, Invalid

if TYPE_CHECKING:
    from horae.client import SyncClient
    from horae.ports.outputs import Archive

AUDIT_FACILITY = 13  # "log audit" of RFC 5424
NOTICE, WARNING = 5, 4
DATAGRAM = 60_000  # bytes that one is sure to take
SECONDS = 10.0  # for a receiver to answer
OBJECT = 10_000  # rows of one object in a bucket


Everywhere = Annotated[bool, Option("--all", help="Of all organisations; needs who runs the installation.")]


def register(app: click.Group) -> None:
    group = listing(app, "audit", "horae audit --who ann --since 24h")(audit)
    command(group, "verify", "horae audit verify --head 1234:9f86d081…")(verify)
    command(group, "export", "horae audit export --syslog tcp://logs.example.com:601")(export)


def audit(
    session: Session,
    who: Annotated[str | None, Option("--who", metavar="NAME", help="Only what this user did.")] = None,
    action: Annotated[
        str | None, Option("--action", metavar="PERMISSION", help="Only what needs it, such as jobs.write.")
    ] = None,
    kind: Annotated[str | None, Option("--kind", metavar="KIND", help="Only what was done to a job, token, …")] = None,
    subject: Annotated[str | None, Option("--id", metavar="ID", help="Only what was done to that one.")] = None,
    outcome: Annotated[
        str | None, Option("--outcome", metavar="done|failed|refused|read", help="Only what ended so.")
    ] = None,
    since: Annotated[
        str | None, Option("--since", metavar="WHEN", help="From then on: 30m, 14:30, 2027-03-28, or RFC 3339.")
    ] = None,
    until: Annotated[str | None, Option("--until", metavar="WHEN", help="Before then.")] = None,
    limit: Annotated[int, Option("--limit", metavar="N", min=1, max=1000, help="How many. [default: 100]")] = 100,
    everywhere: Everywhere = False,
) -> None:
    """Show who did what, who was refused, and to whom secrets were given, newest first."""
    with session.client() as client:
        page = client.json.audit(
            who=who, action=action, kind=kind, id=subject, outcome=outcome, limit=limit,
            since=None if since is None else read_when("--since", since),
            until=None if until is None else read_when("--until", until), org=_org(everywhere),
        )  # fmt: skip
    if session.as_json:
        session.screen.json(page)
        return
    rows: list[list[str | Cell]] = [_row(it) for it in page["items"]]
    columns = ["when", "who", "via??", "from???", "what", "of?", "outcome?", "change??"]
    session.screen.table(columns, rows, "nothing of that kind is in the audit log")
    note_more(session.screen, page)


def _org(everywhere: bool) -> str | None:
    return "*" if everywhere else None


def _row(it: Json) -> list[str | Cell]:
    made = f" → {it['made']}" if it["made"] else ""
    times = f" ×{it['count']}" if it["count"] != 1 else ""
    change = json.dumps(it["change"], ensure_ascii=False)[:120] if it["change"] else ""
    return [
        local_time(it["at"]), clean(it["who"]), clean(it["via"]), clean(it["address"]),
        clean(it["operation"] or it["action"]), clean(f"{it['kind']} {it['subject']}".strip() + made + times),
        clean(f"{it['outcome']} {it['code']}".strip()), clean(change),
    ]  # fmt: skip


def verify(
    session: Session,
    head: Annotated[
        str | None,
        Option("--head", metavar="NUMBER:HASH", help="That must be in it, as an earlier `verify` printed it."),
    ] = None,
) -> None:
    """Verify that no sealed row was changed, taken out, put in or moved.

    Write the head that it prints down elsewhere, and give it the next time: else nobody sees that the last rows were
    cut off.
    """
    checked, faults, cursor = 0, list[Json](), None
    with session.client() as client, progress(session.screen, "rows") as advance:
        while True:
            found = client.json.verify_audit(cursor, head=head)
            checked += found["checked"]
            faults += found["faults"]
            advance(found["checked"])
            cursor = found["cursor"]
            if cursor is None:
                break
    if session.as_json:
        told = {"checked": checked, "first": found["first"], "head": found["head"], "faults": faults}
        session.screen.json(told)
    else:
        for fault in faults:
            session.screen.line(clean(fault["message"]))
        session.screen.line(f"{_count(checked, 'row')} from {found['first']} on, head {found['head']}")
    if faults:
        found_at = f"{_count(len(faults), 'fault')}, the first at row {faults[0]['seq']}"
        raise Conflict(
            f"the audit log is not as it was sealed: {found_at}",
            code="E_AUDIT_BROKEN",
            hint="keep a copy of the database as it is now, and compare with an export or a backup",
        )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def export(
    session: Session,
    after: Annotated[
        int | None,
        Option("--after", metavar="NUMBER", min=0, help="Go on after this row. [default: 0, or the last of --bucket]"),
    ] = None,
    file: Annotated[
        str | None, Option("--file", metavar="FILE", help="Write lines to this new file. [default: to standard output]")
    ] = None,
    syslog: Annotated[
        str | None, Option("--syslog", metavar="udp|tcp://HOST:PORT", help="Send them to a syslog server (RFC 5424).")
    ] = None,
    bucket: Annotated[
        str | None,
        Option("--bucket", metavar="s3://BUCKET/PREFIX", help="Keep them there, and go on after those that it has."),
    ] = None,
    everywhere: Everywhere = False,
) -> None:
    """Take sealed rows elsewhere, in their order: a line of JSON for each, or as syslog messages.

    The number of the last one is printed at the end, for the next --after. A bucket is used with the credentials that
    its service reads of the environment (AWS_ACCESS_KEY_ID and so on).
    """
    if len([place for place in (file, syslog, bucket) if place is not None]) > 1:
        raise Invalid("give one of --file, --syslog and --bucket", code="E_USAGE")
    archive = None if bucket is None else _archive(bucket)
    after = after if after is not None else archive.last() if archive is not None else 0
    last, count = after, 0
    with session.client() as client, _sink(file, syslog, archive) as send, progress(session.screen, "rows") as advance:
        for row in _rows(client, after, _org(everywhere)):
            send(row)
            last, count = row["seq"], count + 1
            advance(1)
    session.screen.note(f"{_count(count, 'row')}, the last is {last}: go on with --after {last}")


def _rows(client: SyncClient, after: int, org: str | None) -> Iterator[Json]:
    cursor: str | None = str(after)
    while cursor is not None:
        page = client.json.audit_sealed(int(cursor), org=org)
        yield from page["items"]
        cursor = page["cursor"]


@contextmanager
def _sink(file: str | None, syslog: str | None, archive: Archive | None) -> Iterator[Callable[[Json], None]]:
    """A function that takes one row after the other."""
    if archive is not None:
        with _objects(archive) as send:
            yield send
        return
    if syslog is not None:
        with _syslog(syslog) as send:
            yield send
        return
    if file is None:
        yield lambda row: _write(sys.stdout, row)
        return
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Error(f"{file}: {error.strerror}", code="E_FILE", hint="name a file that is not there yet") from None
    with os.fdopen(opened, "w", encoding="utf-8") as lines:
        yield lambda row: _write(lines, row)
        lines.flush()
        os.fsync(lines.fileno())


def _archive(address: str) -> Archive:
    from horae.app.archive import open_archive  # with the few commands that use it

    return open_archive(address)


@contextmanager
def _objects(archive: Archive) -> Iterator[Callable[[Json], None]]:
    """An object for every OBJECT rows, and one for the rest: what was not taken whole is taken the next time."""
    waiting: list[Json] = []

    def flush() -> None:
        if waiting:
            lines = "".join(f"{_line(row)}\n" for row in waiting)
            archive.put(waiting[0]["seq"], waiting[-1]["seq"], lines.encode())
            waiting.clear()

    def send(row: Json) -> None:
        waiting.append(row)
        if len(waiting) == OBJECT:
            flush()

    yield send
    flush()


def _write(lines: TextIO, row: Json) -> None:
    lines.write(f"{_line(row)}\n")


def _line(row: Json) -> str:
    return json.dumps(row, separators=(",", ":"))


@contextmanager
def _syslog(address: str) -> Iterator[Callable[[Json], None]]:
    """Over TCP each message has its length before it (RFC 6587); over UDP it is a datagram."""
    scheme, host, port = _place(address)
    try:
        if scheme == "tcp":
            with socket.create_connection((host, port), SECONDS) as stream:
                yield lambda row: stream.sendall(_framed(_message(row)))
        else:
            family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as datagrams:

                def send(row: Json) -> None:
                    datagrams.sendto(_message(row)[:DATAGRAM], place)

                yield send
    except OSError as error:
        raise Error(f"{address}: {error.strerror or error}", code="E_FILE", hint="is a syslog server there?") from None


def _place(address: str) -> tuple[str, str, int]:
    parts = urlsplit(address)
    try:
        if parts.scheme in ("udp", "tcp") and parts.hostname and not parts.path:
            return parts.scheme, parts.hostname, parts.port or (514 if parts.scheme == "udp" else 601)
    except ValueError:
        pass
    raise Invalid(f"--syslog: udp://HOST:PORT or tcp://HOST:PORT expected, got {address[:100]!r}", code="E_USAGE")


def _message(row: Json) -> bytes:
    priority = AUDIT_FACILITY * 8 + (WARNING if row["outcome"] == "refused" else NOTICE)
    return f"<{priority}>1 {row['at']} {socket.gethostname()[:255]} horae - audit - {_line(row)}".encode()


def _framed(message: bytes) -> bytes:
    return b"%d %s" % (len(message), message)
