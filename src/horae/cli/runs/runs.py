"""Commands about runs: runs, run, cancel."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Annotated

import click

from horae.cli.datawork import data_fields, progress_bar, show_tables
from horae.cli.options import Argument, DryRun, JobArgument, Limit, OfJob, Option
from horae.cli.planning import refuse_ended
from horae.cli.runs.batches import rerun
from horae.cli.runs.builds import build_fields, result_text, show_build
from horae.cli.runs.following import Wanted, follow, remark
from horae.cli.screen import (
    Cell,
    Json,
    Screen,
    between,
    clean,
    duration,
    local_time,
    name_of_job,
    note_more,
    state_cell,
)
from horae.cli.session import Session, command, listing
from horae.cli.several import for_each, live_runs
from horae.cli.when import read_when
from horae.errors import Conflict, Invalid, Limited, Unavailable

if TYPE_CHECKING:
    from horae.client import SyncClient

RunArguments = Annotated[list[int], Argument(metavar="RUN...", min=1, help="Id of a run.")]


def list_runs(
    session: Session,
    job: OfJob = None,
    state: Annotated[str | None, Option("--state", metavar="LIST", help="Such as failed,timed_out.")] = None,
    node: Annotated[str | None, Option("--node", metavar="NODE", help="Only what this node runs or ran last.")] = None,
    attempted_by: Annotated[
        str | None,
        Option("--attempted-by", metavar="NODE", help="Of which any attempt was given to this node; tasks too."),
    ] = None,
    since: Annotated[
        str | None,
        Option("--since", metavar="WHEN", help="Due since: 30m, 14:30, 2027-03-28, or an RFC 3339 moment."),
    ] = None,
    until: Annotated[str | None, Option("--until", metavar="WHEN", help="Due before; written as --since is.")] = None,
    parent: Annotated[int | None, Option("--parent", metavar="RUN", help="Tasks of this run of a workflow.")] = None,
    task: Annotated[
        str | None, Option("--task", metavar="NAME", help="With --parent: of this task, with all items of a fan-out.")
    ] = None,
    tasks: Annotated[bool, Option("--tasks", help="Tasks of workflows too.")] = False,
    limit: Limit = 50,
) -> None:
    """List runs, newest first; those that are tasks of workflows only where they are asked for."""
    due_from = None if since is None else read_when("--since", since)
    due_until = None if until is None else read_when("--until", until)
    with session.client() as client:
        job_id = client.json.find_job(job)["id"] if job else None
        page = client.json.runs(
            job_id=job_id, state=state, node=node, due_from=due_from, due_until=due_until, limit=limit, parent=parent,
            task=task, tasks=tasks or None, attempted_by=attempted_by,
        )  # fmt: skip
    if session.as_json:
        session.screen.json(page)
    else:
        _show_runs(session.screen, page["items"])
        note_more(session.screen, page)


def _show_runs(screen: Screen, runs: list[Json]) -> None:
    rows: list[list[str | Cell]] = [
        [
            str(run["id"]),
            name_of_job(run),
            state_cell(run["state"]),
            local_time(run["due_at"]),
            duration(_seconds_late(run)),
            duration(between(run["started_at"], run["finished_at"])),
            remark(run),
        ]
        for run in runs
    ]
    screen.table([">id", "job", "state", "due?", ">late???", ">took??", "remark?"], rows, "no runs")


def _seconds_late(run: Json) -> float | None:
    return None if run["late_ms"] is None else run["late_ms"] / 1000


def show_runs(session: Session, runs: RunArguments) -> int:
    """Show runs with their earlier attempts."""
    with session.client() as client:
        return for_each(session, runs, client.json.run, partial(_show_run, session.screen), is_long=True)


def _show_run(screen: Screen, run: Json) -> None:
    screen.record(_run_fields(run))
    show_build(screen, run)
    show_tables(screen, run)
    if run.get("tasks"):
        from horae.cli.pictures import show_tasks  # few need it

        show_tasks(screen, run["tasks"])
    if run.get("attempts"):
        screen.line()
        _show_attempts(screen, run["attempts"])


def _run_fields(run: Json) -> list[tuple[str, str | Cell]]:
    return [
        ("id", str(run["id"])),
        ("job", f"{run['job_id']} {run.get('job_name', '')}".rstrip()),
        ("state", state_cell(run["state"])),
        ("remark", remark({**run, "progress": None})),
        ("task", f"{run['task']} of run {run['parent_id']}" if "parent_id" in run else ""),
        ("trigger", "" if "parent_id" in run else str(run["trigger_id"] or "by hand")),
        ("due", local_time(run["due_at"])),
        ("started", local_time(run["started_at"])),
        ("late", duration(_seconds_late(run))),
        ("finished", local_time(run["finished_at"])),
        ("took", duration(between(run["started_at"], run["finished_at"]))),
        ("eligible", local_time(run["eligible_at"])),
        ("attempt", str(run["attempt"])),
        ("node", run["node"] or ""),
        ("stands in for it", str(run["into_run_id"] or "")),
        ("data", json.dumps(run["data"], ensure_ascii=False) if run["data"] is not None else ""),
        ("progress", progress_bar(run.get("progress"))),
        *build_fields(run),
        *data_fields(run),
        ("result", result_text(run)),
    ]


def _show_attempts(screen: Screen, attempts: list[Json]) -> None:
    rows: list[list[str | Cell]] = [
        [
            str(one["attempt"]),
            state_cell(one["state"]),
            local_time(one["started_at"]),
            duration(between(one["started_at"], one["finished_at"])),
            one["node"] or "",
            remark(one),
        ]
        for one in attempts
    ]
    screen.table([">attempt", "state", "started?", ">took??", "node??", "remark"], rows)


def run_now(
    session: Session,
    job: JobArgument,
    data: Annotated[str | None, Option("--data", metavar="JSON", help="Data for this run, a JSON object.")] = None,
    wait: Annotated[bool, Option("--wait", help="Show what it writes, wait for its end, and exit as it did.")] = False,
    quiet: Annotated[bool, Option("--quiet", help="With --wait: without what it writes.")] = False,
    data_file: Annotated[
        str | None,
        Option(
            "--data-file", metavar="FILE", help="A run for each line, a JSON object, or item of an array; - is stdin."
        ),
    ] = None,
    dry_run: DryRun = False,
) -> int:
    """Run a job now.

    With --wait the run is named at once and at its end on standard error, and what it writes goes to standard output.
    The exit code is 0 if it succeeded, its own if that is 1 to 125, else 1. With --data-file it is 1 if a line was
    refused.
    """
    if data_file is not None and (data is not None or wait):
        raise Invalid("--data-file stands alone, without --data and --wait", code="E_USAGE")
    given = _read_data(data) if data is not None else None
    with session.client() as client:
        found = client.json.find_job(job)
        if dry_run:
            from horae.cli.runs import plans  # few need it

            if data_file is None:
                return plans.plan_run(session, client, found, given)
            return plans.plan_file(session, client, found, data_file)
        if data_file is not None:
            from horae.cli.runs.batches import run_file  # few need it

            return run_file(session, client, found, data_file)
        run = {**client.json.run_now(found["id"], data=given), "job_name": found["name"]}
        if wait:
            return _wait(session, client, run, is_quiet=quiet)
    _say_run(session, run)
    return 0


def _wait(session: Session, client: SyncClient, run: Json, *, is_quiet: bool) -> int:
    """Name a run, show what it writes, and say how it ended; returns the exit code of that."""
    screen, run_id = session.screen, run["id"]
    named = {"run_id": run_id, "job_id": run["job_id"], "job_name": run["job_name"], "state": run["state"]}
    screen.tell(f"run {run_id} of {run['job_name']}", named)
    is_silent = is_quiet or session.as_json
    try:
        ended = None if is_silent else _follow_if_possible(session, client, run)
        if ended is None:
            with screen.waiting(f"run {run_id} of {run['job_name']}"):
                ended = client.json.wait(run_id)
    except KeyboardInterrupt:
        screen.note(f"run {run_id} goes on: `horae logs -f {run_id}` follows it, `horae cancel {run_id}` ends it")
        raise
    if is_silent:
        _say_run(session, ended)
    else:
        screen.note(_describe(ended))  # the log alone is the result
    return exit_code_of_run(ended)


def _follow_if_possible(session: Session, client: SyncClient, run: Json) -> Json | None:
    """Return the run as it ended; None where its log cannot be had: its end is worth waiting for all the same."""
    try:
        return follow(session, client, run, Wanted())
    except (Limited, Unavailable) as error:
        session.screen.warn(f"the log of run {run['id']} cannot be followed: {error.message}")
        return None


def _read_data(text: str) -> Json:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise Invalid(f"--data must be a JSON object: {error}", code="E_USAGE") from None
    if not isinstance(data, dict):
        raise Invalid(f'--data must be a JSON object, such as {{"full": true}}; got {text!r}', code="E_USAGE")
    return data


def exit_code_of_run(run: Json) -> int:
    """Return what a shell should see of a run that has ended."""
    if run["state"] == "succeeded":
        return 0
    code = run["exit_code"]
    return code if code is not None and 1 <= code <= 125 else 1


def _say_run(session: Session, run: Json) -> None:
    if session.as_json:
        session.screen.json(run)
    else:
        session.screen.line(clean(_describe(run)))


def _describe(run: Json) -> str:
    took = duration(between(run["started_at"], run["finished_at"]))
    parts = [f"run {run['id']} {run['state']}", f"took {took}" if took else "", remark(run)]
    return "; ".join(part for part in parts if part)


def retry_run(
    session: Session,
    run: Annotated[int, Argument(metavar="RUN", help="Id of a run of a workflow that has not succeeded.")],
    wait: Annotated[bool, Option("--wait", help="Wait for its end, and exit as it did.")] = False,
    dry_run: DryRun = False,
) -> int:
    """Go on with a workflow from where it failed.

    A new run with the same graph and data is made. Tasks that succeeded are taken over; the others are done again.
    """
    with session.client() as client:
        if dry_run:
            from horae.cli.runs.plans import plan_retry  # few need it

            return plan_retry(session, client.json.run(run))
        made = client.json.retry(run)
        if wait:
            return _wait(session, client, {**made, "job_name": name_of_job(made)}, is_quiet=True)
    _say_run(session, made)
    return 0


# ── cancel ──


def cancel(
    session: Session,
    which: Annotated[list[str], Argument(metavar="RUN|JOB...", help="Id of a run, or key or name of a job.")],
    dry_run: DryRun = False,
) -> int:
    """Cancel runs; of a job, all that wait or run.

    A run that waits ends at once; one that runs, when all its processes are gone. The job goes on: `horae pause` keeps
    it from firing.
    """
    with session.client() as client:
        return for_each(
            session, which, partial(_cancel, client, dry_run=dry_run), partial(_say_cancelled, session.screen)
        )


def _cancel(client: SyncClient, which: str, *, dry_run: bool) -> Json:
    """Return a run as it is now, or a job with those of its runs that are concerned."""
    if re.fullmatch("[0-9]{1,19}", which):
        return _would_cancel(client.json.run(int(which))) if dry_run else client.json.cancel(int(which))
    job = client.json.find_job(which)
    live = live_runs(client, job["id"])
    runs = [_would_cancel(run) if dry_run else _cancel_live(client, run) for run in live]
    answer = {"job_id": job["id"], "job_name": job["name"], "runs": runs}
    return {**answer, "dry_run": True} if dry_run else answer


def _would_cancel(run: Json) -> Json:
    refuse_ended(run)
    return {**run, "dry_run": True}


def _cancel_live(client: SyncClient, run: Json) -> Json:
    """One that ended meanwhile is told as it ended: nobody named it."""
    try:
        changed: Json = client.json.cancel(run["id"])
    except Conflict:
        changed = client.json.run(run["id"])
    return changed


def _say_cancelled(screen: Screen, answer: Json) -> None:
    if "runs" not in answer:
        screen.line(clean(_describe_cancelled(answer)))
        return
    if not answer["runs"]:
        screen.line(f"job {answer['job_id']} {clean(answer['job_name'])} has no run that waits or runs")
    for run in answer["runs"]:
        screen.line(clean(_describe_cancelled(run)))


def _describe_cancelled(run: Json) -> str:
    if run.get("dry_run"):
        return f"would cancel run {run['id']} of {name_of_job(run)}, {run['state']}"
    return f"run {run['id']} is being cancelled" if run["state"] == "running" else _describe(run)


def register(app: click.Group) -> None:
    group = listing(app, "runs", "horae runs --job backup --state failed --since 1d")(list_runs)
    command(group, "show", "horae runs show 42 43")(show_runs)
    command(group, "retry", "horae runs retry 42 --wait")(retry_run)
    command(group, "rerun", "horae runs rerun --job backup --state failed --since 1d")(rerun)
    command(app, "run", "horae run backup --data '{\"full\": true}' --wait")(run_now)
    command(app, "cancel", "horae cancel 42 43 backup --dry-run")(cancel)
