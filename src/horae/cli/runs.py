"""Commands about runs: runs, run, cancel, logs."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import click

from horae.cli.batches import rerun, run_file
from horae.cli.builds import build_fields, result_text, show_build
from horae.cli.datawork import data_fields, progress_bar, progress_text, show_tables
from horae.cli.options import Argument, JobArgument, Limit, OfJob, Option
from horae.cli.screen import Cell, Json, Screen, between, clean, duration, local_time, note_more, state_cell
from horae.cli.session import Session, command, job_names, listing
from horae.cli.when import read_since
from horae.errors import Invalid, NotFound

if TYPE_CHECKING:
    from horae.client import SyncClient

NEWEST_EVERY = 0.5  # seconds between two looks for a newer run to follow
WORTH_FOLLOWING = "queued,blocked,running,succeeded,failed,timed_out,cancelled"
RunArgument = Annotated[int, Argument(metavar="RUN", min=1, help="Id of a run.")]


def list_runs(
    session: Session,
    job: OfJob = None,
    state: Annotated[str | None, Option("--state", metavar="LIST", help="Such as failed,timed_out.")] = None,
    since: Annotated[
        str | None, Option("--since", metavar="WHEN", help="Due since: 30m, 2h, 1d, or an RFC 3339 moment.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List runs, newest first."""
    due_from = read_since(since) if since is not None else None
    with session.client() as client:
        job_id = client.json.find_job(job)["id"] if job else None
        page = client.json.runs(job_id=job_id, state=state, due_from=due_from, limit=limit)
        if session.as_json:
            return session.screen.json(page)
        names = job_names(client, (run["job_id"] for run in page["items"]))
    _show_runs(session.screen, page["items"], names)
    note_more(session.screen, page)
    return None


def _show_runs(screen: Screen, runs: list[Json], names: dict[int, str]) -> None:
    rows: list[list[str | Cell]] = [
        [
            str(run["id"]),
            names.get(run["job_id"], str(run["job_id"])),
            state_cell(run["state"]),
            local_time(run["due_at"]),
            duration(_seconds_late(run)),
            duration(between(run["started_at"], run["finished_at"])),
            _remark(run),
        ]
        for run in runs
    ]
    screen.table([">id", "job", "state", "due", ">late", ">took", "remark"], rows, "no runs")


def _seconds_late(run: Json) -> float | None:
    return None if run["late_ms"] is None else run["late_ms"] / 1000


def _remark(run: Json) -> str:
    """Why, with what exit code, in which attempt: only what is not plain success."""
    parts = [run["reason"]] if run["reason"] else []
    if run.get("progress"):
        parts.append(progress_text(run["progress"]))
    if run["exit_code"] and not run["message"]:  # the message says it better
        parts.append(f"exit code {run['exit_code']}")
    if run["attempt"] > 1:
        parts.append(f"attempt {run['attempt']}")
    if run["message"]:
        parts.append(run["message"])
    return ", ".join(parts)


def show_run(session: Session, run: RunArgument) -> None:
    """Show one run with its earlier attempts."""
    with session.client() as client:
        found = client.json.run(run)
        if session.as_json:
            return session.screen.json(found)
        names = job_names(client, [found["job_id"]])
    session.screen.record(_run_fields(found, names[found["job_id"]]))
    show_build(session.screen, found)
    show_tables(session.screen, found)
    if found.get("attempts"):
        session.screen.line()
        _show_attempts(session.screen, found["attempts"])
    return None


def _run_fields(run: Json, job_name: str) -> list[tuple[str, str | Cell]]:
    return [
        ("id", str(run["id"])),
        ("job", f"{run['job_id']} {job_name}"),
        ("state", state_cell(run["state"])),
        ("remark", _remark({**run, "progress": None})),
        ("trigger", str(run["trigger_id"] or "by hand")),
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
            _remark(one),
        ]
        for one in attempts
    ]
    screen.table([">attempt", "state", "started", ">took", "node", "remark"], rows)


def run_now(
    session: Session,
    job: JobArgument,
    data: Annotated[str | None, Option("--data", metavar="JSON", help="Data for this run, a JSON object.")] = None,
    wait: Annotated[bool, Option("--wait", help="Wait for its end, and exit as it did.")] = False,
    data_file: Annotated[
        str | None,
        Option(
            "--data-file", metavar="FILE", help="A run for each line, a JSON object, or item of an array; - is stdin."
        ),
    ] = None,
) -> int:
    """Run a job now.

    With --wait the exit code is 0 if it succeeded, its own if that is 1 to 125, else 1. With --data-file it is 1 if a
    line was refused.
    """
    if data_file is not None and (data is not None or wait):
        raise Invalid("--data-file stands alone, without --data and --wait", code="E_USAGE")
    given = _read_data(data) if data is not None else None
    with session.client() as client:
        found = client.json.find_job(job)
        if data_file is not None:
            return run_file(session, client, found, data_file)
        run = client.json.run_now(found["id"], data=given)
        if wait:
            with session.screen.waiting(f"run {run['id']} of {found['name']}"):
                run = client.json.wait(run["id"])
    _say_run(session, run)
    return exit_code_of_run(run) if wait else 0


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
        return
    took = duration(between(run["started_at"], run["finished_at"]))
    parts = [f"run {run['id']} {run['state']}", f"took {took}" if took else "", _remark(run)]
    session.screen.line(clean("; ".join(part for part in parts if part)))


def cancel(session: Session, run: RunArgument) -> None:
    """Cancel a run.

    A run that waits ends at once; one that runs, when all its processes are gone.
    """
    with session.client() as client:
        changed = client.json.cancel(run)
    if changed["state"] == "running" and not session.as_json:
        session.screen.line(f"run {run} is being cancelled")
    else:
        _say_run(session, changed)


def logs(
    session: Session,
    which: Annotated[
        str | None, Argument(metavar="[RUN|JOB]", help="Id of a run, or name of a job; left out: the newest run.")
    ] = None,
    follow: Annotated[bool, Option("-f", "--follow", help="Go on while it is written, run after run.")] = False,
    job: OfJob = None,
) -> None:
    """Show what a run has written, or follow it.

    Without RUN it is the newest run, of a job or of any; with -f, newer runs follow.
    """
    if which is not None and job is not None:
        raise Invalid("give either RUN or --job, not both", code="E_USAGE")
    is_run = which is not None and which.isdecimal()
    with session.client() as client:
        wanted = job if is_run else job or which
        job_id = client.json.find_job(wanted)["id"] if wanted else None
        if follow and not is_run:
            return _follow_newest(session, client, job_id)
        run_id = int(which or 0) if is_run else _newest_run(client, job_id)
        return (_follow if follow else _print_log)(session, client, run_id)


def _newest_run(client: SyncClient, job_id: int | None) -> int:
    newest = client.json.runs(job_id=job_id, state=WORTH_FOLLOWING, limit=1)["items"]
    if not newest:
        raise NotFound("nothing has run yet", hint="`horae run JOB` runs a job now")
    run_id: int = newest[0]["id"]
    return run_id


def _print_log(session: Session, client: SyncClient, run_id: int) -> None:
    text = b"".join(client.log(run_id)).decode(errors="replace")
    if session.as_json:
        session.screen.json({"run_id": run_id, "text": text})
    else:
        session.screen.log(text)


def _follow(session: Session, client: SyncClient, run_id: int) -> None:
    """Print what a run writes until it ends."""
    screen = session.screen
    client.json.run(run_id)  # says at once that there is no server, or no such run
    with contextlib.closing(client.follow(run_id)) as events:
        for event in events:
            if session.as_json:
                shown = event.data if event.name == "log" else {"run": event.data}
                screen.json({"run_id": run_id, "event": event.name, **shown})
                screen.flush()
            elif event.name == "log":
                screen.log(event.data["text"])
            elif event.name == "end":
                remark = _remark(event.data)
                screen.note(f"run {run_id} {event.data['state']}{f' ({remark})' if remark else ''}")


def _follow_newest(session: Session, client: SyncClient, job_id: int | None) -> None:
    """Follow the newest run, then every newer one, until interrupted or until no more can come."""
    for run in _newest_runs(client, job_id):
        session.screen.note(f"run {run['id']} of job {run['job_id']}, due {local_time(run['due_at'])}")
        _follow(session, client, run["id"])


def _newest_runs(client: SyncClient, job_id: int | None) -> Iterator[Json]:
    """The newest run there is, then each that comes after it, in order."""
    seen, is_over = 0, False
    while True:
        page = client.json.runs(job_id=job_id, state=WORTH_FOLLOWING, limit=100 if seen else 1)
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
    group = listing(app, "runs", "horae runs --job backup --state failed --since 1d")(list_runs)
    command(group, "show", "horae runs show 42")(show_run)
    command(group, "rerun", "horae runs rerun --job backup --state failed --since 1d")(rerun)
    command(app, "logs", "horae logs -f --job backup")(logs)
    command(app, "run", "horae run backup --data '{\"full\": true}' --wait")(run_now)
    command(app, "cancel", "horae cancel 42")(cancel)
