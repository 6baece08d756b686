"""Commands about runs that wait to be told something: signal, callback, approve, reject, approvals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import click

from horae.cli.options import Argument, DryRun, Option
from horae.cli.planning import refuse_ended, say_would
from horae.cli.screen import Cell, Json, clean, local_time, name_of_job
from horae.cli.session import Session, command
from horae.cli.several import for_each
from horae.errors import Conflict, Invalid

if TYPE_CHECKING:
    from horae.client import SyncClient

RunArgument = Annotated[int, Argument(metavar="RUN", min=1, help="Id of a run.")]
RunArguments = Annotated[list[int], Argument(metavar="RUN...", min=1, help="Id of a run.")]


def signal(
    session: Session,
    run: RunArgument,
    name: Annotated[str, Argument(metavar="NAME", help="Of the signal, as the handler asks for it.")],
    data: Annotated[
        str | None, Option("--data", metavar="JSON", help="What it is told, any JSON; null unless given.")
    ] = None,
    dry_run: DryRun = False,
) -> int:
    """Tell a run something.

    A run that waits for it goes on; any other finds it when it asks. A name is answered once.
    """
    value = None if data is None else _read_value(data)
    with session.client() as client:
        if dry_run:
            found = client.json.run(run)
            refuse_ended(found)
            words = f"tell run {run} of {clean(name_of_job(found))}, {found['state']}, {clean(name)}"
            say_would(session, words, {**found, "signal": name, "value": value})
        else:
            _say(session, client.json.signal(run, name, value), f"was told {name}")
    return 0


def callback(
    session: Session,
    run: RunArgument,
    name: Annotated[str, Argument(metavar="NAME", help="Of the signal, as the handler asks for it.")],
) -> None:
    """Show the address at which others can tell a run something, without a login.

    It is always the same. POST any JSON to it, once: it is what the run is told.
    """
    with session.client() as client:
        found = client.json.callback(run, name)
    address = session.address_of(found["path"])
    if session.as_json:
        session.screen.json({"run_id": found["run_id"], "name": found["name"], "address": address})
    else:
        session.screen.line(address)


Comment = Annotated[str, Option("--comment", metavar="TEXT", help="Why; it is kept with the run.")]


def approve(session: Session, runs: RunArguments, comment: Comment = "", dry_run: DryRun = False) -> int:
    """Approve runs that wait for it."""
    with session.client() as client:
        if dry_run:
            return _plan(session, client, runs, "approve")
        return for_each(
            session, runs, lambda run: client.json.approve(run, comment), lambda run: _told(session, run, "is approved")
        )


def reject(session: Session, runs: RunArguments, comment: Comment = "", dry_run: DryRun = False) -> int:
    """Reject runs that wait for an approval: they fail."""
    with session.client() as client:
        if dry_run:
            return _plan(session, client, runs, "reject")
        return for_each(
            session, runs, lambda run: client.json.reject(run, comment), lambda run: _told(session, run, "is rejected")
        )


def _plan(session: Session, client: SyncClient, runs: list[int], verb: str) -> int:
    """Say of which runs something would be decided: of those that wait for this user."""
    waiting = {one["run_id"]: one for one in client.json.approvals()["items"]}

    def look(run: int) -> Json:
        if run not in waiting:
            message = f"run {run} does not wait for your approval"
            raise Conflict(message, code="E_NOT_ASKED", hint="`horae approvals` lists what does")
        return {**waiting[run], "dry_run": True}

    return for_each(
        session,
        runs,
        look,
        lambda one: session.screen.line(clean(f"would {verb} run {one['run_id']} of {one['job_name']}")),
    )


def approvals(session: Session) -> None:
    """List what waits for your approval, oldest first."""
    with session.client() as client:
        page = client.json.approvals()
    if session.as_json:
        session.screen.json(page)
        return
    rows: list[list[str | Cell]] = [
        [str(one["run_id"]), clean(one["job_name"]), clean(one["message"]), clean(", ".join(one["by"])),
         local_time(one["created_at"]), local_time(one["until"])]
        for one in page["items"]
    ]  # fmt: skip
    session.screen.table([">run", "job", "message", "by?", "since?", "until?"], rows, "nothing waits for you")


def _read_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        hint = "a text needs quotes of its own: --data '\"yes\"'"
        raise Invalid(f"--data is not JSON: {error}", code="E_JSON_SYNTAX", path="--data", hint=hint) from None


def _say(session: Session, run: Json, what: str) -> None:
    if session.as_json:
        session.screen.json(run)
    else:
        _told(session, run, what)


def _told(session: Session, run: Json, what: str) -> None:
    session.screen.line(clean(f"run {run['id']} of {name_of_job(run)} {what}; it is {run['state']} now"))


def register(app: click.Group) -> None:
    command(app, "signal", 'horae signal 42 approve --data \'{"by": "ann"}\'')(signal)
    command(app, "callback", "horae callback 42 paid")(callback)
    command(app, "approve", "horae approve 42 --comment 'looks good'")(approve)
    command(app, "reject", "horae reject 42 --comment 'not before Monday'")(reject)
    command(app, "approvals", "horae approvals")(approvals)
