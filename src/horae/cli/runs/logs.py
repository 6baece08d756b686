"""The command `logs`: what runs have written, of one, of one after the other, or of several at once."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import click

from horae.cli.options import Argument, OfJob, Option
from horae.cli.runs.following import Wanted, follow, print_log, read_wanted, say_end
from horae.cli.screen import Json, local_time, name_of_job
from horae.cli.session import Session, command
from horae.cli.when import read_when
from horae.errors import Invalid, NotFound

if TYPE_CHECKING:
    from horae.client import SyncClient

NEWEST_EVERY = 0.5  # seconds between two looks for a newer run to follow
MOST_RUNS = 1000  # whose logs are shown, with --since
WORTH_FOLLOWING = "queued,blocked,running,succeeded,failed,timed_out,cancelled"


def logs(
    session: Session,
    which: Annotated[
        list[str],
        Argument(metavar="[RUN|JOB]...", help="Ids of runs, or names of jobs; left out: the newest run."),
    ] = [],  # noqa: B006
    is_followed: Annotated[bool, Option("-f", "--follow", help="Go on while it is written, run after run.")] = False,
    job: OfJob = None,
    tail: Annotated[
        int | None, Option("--tail", metavar="N", max=1_000_000, help="Only so many lines at its end.")
    ] = None,
    grep: Annotated[str | None, Option("--grep", metavar="TEXT", help="Only lines that hold this text.")] = None,
    is_pattern: Annotated[
        bool, Option("-E", "--regex", help="The text of --grep is a regular expression, as Python reads it.")
    ] = False,
    attempt: Annotated[
        int | None, Option("--attempt", metavar="N", min=1, help="Of this attempt; with -f, from it on.")
    ] = None,
    since: Annotated[
        str | None,
        Option("--since", metavar="WHEN", help="All runs due since: 30m, 14:30, 2027-03-28, or an RFC 3339 moment."),
    ] = None,
) -> Coroutine[Any, Any, int] | None:
    """Show what runs have written, or follow it.

    Without RUN it is the newest run, of a job or of any; with -f, newer runs follow. With --since it is every run since
    then, the oldest first. Of several, followed at once with -f, each line begins with its job and run. --grep looks in
    the last lines, if --tail is there too.
    """
    _refuse_contradictions(which, job, since, attempt)
    wanted = read_wanted(attempt, tail, grep, is_pattern=is_pattern)
    due_from = None if since is None else read_when("--since", since)
    if len(which) > 1:
        from horae.cli.runs.together import show_together  # with asyncio

        return show_together(session, which, wanted, WORTH_FOLLOWING, is_followed=is_followed)
    named = which[0] if which else None
    with session.client() as client:
        if named is not None and named.isdecimal():
            _show(session, client, client.json.run(int(named)), wanted, is_followed=is_followed)
        else:
            _show_newest(session, client, job or named, due_from, wanted, is_followed=is_followed)
    return None


def _show_newest(
    session: Session, client: SyncClient, job: str | None, due_from: str | None, wanted: Wanted, *, is_followed: bool
) -> None:
    job_id = client.json.find_job(job)["id"] if job else None
    for run in _runs_to_show(client, job_id, due_from, is_followed=is_followed):
        if is_followed or due_from is not None:
            session.screen.note(f"run {run['id']} of {name_of_job(run)}, due {local_time(run['due_at'])}")
        _show(session, client, run, wanted, is_followed=is_followed)
        if is_followed:  # of those that come later all is new
            wanted = wanted._replace(attempt=None, tail=None)


def _refuse_contradictions(which: Sequence[str], job: str | None, since: str | None, attempt: int | None) -> None:
    if which and job is not None:
        raise Invalid("give either RUN or --job, not both", code="E_USAGE")
    if attempt is not None and (since is not None or len(which) > 1):
        named = "--since names" if since is not None else "these are"
        raise Invalid(f"--attempt is of one run, and {named} several", code="E_USAGE")
    if since is not None and (len(which) > 1 or (which and which[0].isdecimal())):
        what = "one run" if len(which) == 1 else "several"
        raise Invalid(
            f"--since chooses among the runs of a job, and this names {what}",
            code="E_USAGE",
            hint="lines have no times of their own: use --tail or --grep",
        )


def _show(session: Session, client: SyncClient, run: Json, wanted: Wanted, *, is_followed: bool) -> None:
    if not is_followed:
        print_log(session, client, run, wanted)
        return
    say_end(session, run, follow(session, client, run, wanted))


def _runs_to_show(client: SyncClient, job_id: int | None, due_from: str | None, *, is_followed: bool) -> Iterator[Json]:
    if is_followed:
        return _newest_runs(client, job_id, due_from)
    most = 1 if due_from is None else MOST_RUNS
    found: list[Json] = client.json.runs(job_id=job_id, state=WORTH_FOLLOWING, due_from=due_from, limit=most)["items"]
    if not found:
        what = "nothing has run yet" if due_from is None else "nothing has run since then"
        raise NotFound(what, hint="`horae run JOB` runs a job now")
    return reversed(found)


def _newest_runs(client: SyncClient, job_id: int | None, due_from: str | None) -> Iterator[Json]:
    """The newest run there is, or those since a moment, then each that comes after, in order, until interrupted or
    until no more can come."""
    seen, is_over = 0, False
    while True:
        most = MOST_RUNS if due_from is not None else 100 if seen else 1
        page = client.json.runs(job_id=job_id, state=WORTH_FOLLOWING, due_from=due_from, limit=most)
        for run in reversed(page["items"]):
            if run["id"] > seen:
                seen = run["id"]
                yield run
        if is_over:
            return
        is_over = job_id is not None and seen > 0 and _has_fired_its_last(client.json.job(job_id))
        if not is_over:  # else one more look: its last run was made with its last moment
            time.sleep(NEWEST_EVERY)


def _has_fired_its_last(job: Json) -> bool:
    """Return whether its triggers have no more moments; a job without any is run by hand, at any time."""
    return bool(job["triggers"]) and all(trigger["next_at"] is None for trigger in job["triggers"])


def register(app: click.Group) -> None:
    command(app, "logs", "horae logs -f backup report --tail 20 --grep error")(logs)
