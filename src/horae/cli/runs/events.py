"""The command `events`: what happened, and what happens."""

from __future__ import annotations

import contextlib
from typing import Annotated

import click

from horae.cli.options import OfJob, Option
from horae.cli.screen import Json, clean, local_time
from horae.cli.session import Session, command
from horae.cli.when import read_when
from horae.errors import Invalid

WITHOUT_SINCE = "1h"  # of which is shown, unless somebody says since when or follows


def events(
    session: Session,
    is_followed: Annotated[bool, Option("-f", "--follow", help="Go on as it happens.")] = False,
    job: OfJob = None,
    run: Annotated[int | None, Option("--run", metavar="RUN", min=1, help="Only of this run.")] = None,
    kinds: Annotated[
        list[str] | None,
        Option("--kind", metavar="KIND", help="Only of this kind: run.finished, or all of run; may be repeated."),
    ] = None,
    since: Annotated[
        str | None,
        Option("--since", metavar="WHEN", help="From then on: 30m, 14:30, 2027-03-28, or an RFC 3339 moment."),
    ] = None,
    after: Annotated[
        str | None, Option("--after", metavar="CURSOR", help="Go on after an event: the cursor that --json shows.")
    ] = None,
) -> None:
    """Show what happened to jobs, triggers, runs, nodes, segments, queues and settings, the oldest first.

    It is that of the last hour, unless --since or --after says otherwise; with -f, what happens from now on.
    """
    if since is not None and after is not None:
        raise Invalid("give either --since or --after, not both", code="E_USAGE")
    if since is None and after is None and run is None and not is_followed:
        since = WITHOUT_SINCE
    begin = None if since is None else read_when("--since", since)
    wanted = [kind for word in kinds or () for kind in _kinds_of(word)]
    with session.client() as client:
        job_id = client.json.find_job(job)["id"] if job else None
        told = client.events(after=after, since=begin, kinds=wanted, job=job_id, run=run, follow=is_followed)
        with contextlib.closing(told):
            for one in told:
                _show(session, one.data, one.id)


def _kinds_of(word: str) -> list[str]:
    from horae.core.events import KINDS  # not needed to start
    from horae.core.spelling import suggest

    found = [kind for kind in KINDS if kind == word or kind.startswith(f"{word}.")]
    if not found:
        hint = suggest(word, KINDS) or f"known are {', '.join(KINDS)}"
        raise Invalid(f"--kind {word!r} is no kind of event", code="E_USAGE", hint=hint)
    return found


def _show(session: Session, event: Json, cursor: str | None) -> None:
    if session.as_json:
        session.screen.json({**event, "cursor": cursor})
    else:
        session.screen.line(" ".join(filter(None, _words(event))))
    session.screen.flush()


def _words(event: Json) -> list[str]:
    data = event["data"]
    term = f"term {data['term']}" if "term" in data else ""
    reason = data.get("reason") or data.get("because") or data.get("wanted") or term
    state = data.get("state") or ""
    said = f"{state} ({reason})" if state and reason else state or reason
    return [
        local_time(event["time"]),
        f"{event['type'].removeprefix('horae.'):16}",
        event["subject"],
        clean(data.get("name") or ""),
        clean(said),
    ]


def register(app: click.Group) -> None:
    command(app, "events", "horae events -f --kind run.finished")(events)
