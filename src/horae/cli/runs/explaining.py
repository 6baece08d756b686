"""The command that says why: explain."""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import click

from horae.cli.options import Argument, Option
from horae.cli.screen import Json, clean
from horae.cli.session import Session, command
from horae.cli.several import for_each
from horae.cli.when import read_when
from horae.errors import Invalid

if TYPE_CHECKING:
    from horae.client import SyncClient

_NAMED = re.compile(r"(run|job|trigger):(.+)")
_CLOCK = re.compile(r"(?:([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]?)?(?:([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?))?", re.ASCII)


def explain(
    session: Session,
    which: Annotated[
        list[str],
        Argument(
            metavar="RUN|JOB|TRIGGER...",
            help="Id of a run, or key or name of a job; run:12, job:3 and trigger:5 say which.",
        ),
    ],
    at: Annotated[
        str | None,
        Option(
            "--at",
            metavar="WHEN",
            help="Why a job or trigger did or did not run at a moment: 2027-03-28T02:30:00Z; without an offset, as "
            "clocks in its zone show it: 02:30, 2027-03-28T02:30; or how long ago: 30m.",
        ),
    ] = None,
) -> int:
    """Say why a run, a job or a trigger is as it is.

    What it waits for, which policy decided, what would unblock it, when it goes next; how a run ended, what its
    attempts came to, and by what it was late. With --at, why there was a run at a moment, or none. A number alone is a
    run.
    """
    moment = None if at is None else _read_at(at)
    with session.client() as client:
        return for_each(session, which, partial(_explain, client, at=moment), partial(_show, session), is_long=True)


def _read_at(text: str) -> str:
    """Return a moment as the server reads it. What has no offset is left without: the zone is that of the trigger."""
    found = _CLOCK.fullmatch(text)
    if found is None or not text:
        return read_when("--at", text)
    date, time = found[1] or datetime.now().date().isoformat(), found[2] or "00:00"  # noqa: DTZ005 - today, here
    return f"{date}T{time.zfill(8 if time.count(':') == 2 else 5)}"


def _explain(client: SyncClient, which: str, *, at: str | None) -> Json:
    named = _NAMED.fullmatch(which)
    kind, text = named.groups() if named else ("run" if re.fullmatch("[0-9]{1,19}", which) else "job", which)
    if kind == "run":
        if at is not None:
            hint = f"explain its job, or leave --at out: horae explain run:{text}"
            raise Invalid("a run has its own moment: --at is for jobs and triggers", code="E_USAGE", hint=hint)
        return _plain(client.json.explain_run(_number(kind, text)))
    if kind == "trigger":
        return _plain(client.json.explain_trigger(_number(kind, text), at=at))
    return _plain(client.json.explain_job(client.json.find_job(text)["id"], at=at))


def _number(kind: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,19}", text):
        raise Invalid(f"{kind}: and an id expected, such as {kind}:12; got {kind}:{text}", code="E_USAGE")
    return int(text)


def _plain(answer: Any) -> Json:
    found: Json = answer
    return found


def _show(session: Session, answer: Json) -> None:
    screen = session.screen
    of = "" if answer["about"] == "job" else f" of {clean(answer['job_name'])}"
    name = f" {clean(answer['job_name'])}" if answer["about"] == "job" else ""
    when = f" at {answer['at']}" if answer.get("at") else ""
    screen.line(f"{answer['about']} {answer['id']}{name}{of}{when}")
    for one in answer["sentences"]:
        screen.line(f"- {clean(one['text'])} [{one['code']}]")
        if one["policy"]:
            screen.line(f"    decided by: {clean(one['policy'])}")
        if one["unblock"]:
            screen.line(f"    to change it: {clean(one['unblock'])}")
    if answer["sentences"]:
        screen.note(f"what this means: {session.address_of(answer['sentences'][0]['page'])}")


def register(app: click.Group) -> None:
    command(app, "explain", "horae explain backup --at 2027-03-28T02:30")(explain)
