"""Commands about jobs and their triggers: submit, jobs, triggers, pause, resume, preview."""

from __future__ import annotations

import json
from typing import Annotated

import click

from horae.cli.datawork import cursor_text
from horae.cli.jobfiles import directory_of, media_type, naming, read_file
from horae.cli.options import Argument, JobArgument, Limit, OfJob, Option
from horae.cli.screen import Cell, Json, Screen, clean, local_time, note_more
from horae.cli.session import Session, command, job_names, listing

TriggerArgument = Annotated[int, Argument(metavar="TRIGGER", min=1, help="Id of a trigger.")]


def submit(
    session: Session,
    files: Annotated[list[str], Argument(metavar="FILE...", help="Job files, YAML or JSON; - reads stdin.")],
) -> None:
    """Submit the jobs of one or more files."""
    documents = [(name, _content_of(name)) for name in files]  # all are read before anything is sent
    made: list[Json] = []
    warnings: list[str] = []
    try:
        with session.client() as client:
            for name, content in documents:
                with naming(name):
                    type_, place = media_type(name, content), directory_of(name)
                    answer = client.json.submit(content, type_, directory=place)
                    made += answer["jobs"]
                    warnings += answer.get("warnings", ())
    finally:  # what was submitted before an error is there, and must be told
        if made:
            _say_submitted(session, made, warnings)


def _content_of(name: str) -> bytes:
    with naming(name):
        return read_file(name)


def _say_submitted(session: Session, jobs: list[Json], warnings: list[str]) -> None:
    if session.as_json:
        session.screen.json({"jobs": jobs} | ({"warnings": warnings} if warnings else {}))
    else:
        _show_jobs(session.screen, jobs)
        for warning in warnings:
            session.screen.warn(clean(warning))


def list_jobs(
    session: Session,
    name: Annotated[str | None, Option("--name", metavar="TEXT", help="Only with this in the name.")] = None,
    limit: Limit = 50,
) -> None:
    """List jobs, newest first."""
    with session.client() as client:
        page = client.json.jobs(name=name, limit=limit)
    if session.as_json:
        session.screen.json(page)
    else:
        _show_jobs(session.screen, page["items"])
        note_more(session.screen, page)


def _show_jobs(screen: Screen, jobs: list[Json]) -> None:
    rows = [[str(job["id"]), job["name"], job["kind"], _schedules(job), *_next_and_state(job)] for job in jobs]
    columns = [">id", "name", "kind", "schedule", "next", "state"]
    screen.table(columns, rows, "no jobs yet: `horae submit FILE` makes one")


def _schedules(job: Json) -> str:
    return "; ".join(trigger["description"] for trigger in job["triggers"]) or "by hand"


def _next_and_state(job: Json) -> tuple[str, Cell]:
    moments = [trigger["next_at"] for trigger in job["triggers"] if trigger["next_at"]]
    state = Cell("paused", "yellow") if job["paused"] else Cell("active", "green")
    return local_time(min(moments, default=None)), state


def show_job(session: Session, job: JobArgument) -> None:
    """Show one job with its triggers."""
    with session.client() as client:
        found = client.json.find_job(job)
    if session.as_json:
        return session.screen.json(found)
    session.screen.record(
        [
            ("id", str(found["id"])),
            ("name", found["name"]),
            ("key", found["key"] or ""),
            ("owner", found["owner"]),
            ("kind", found["kind"]),
            ("paused", "yes" if found["paused"] else "no"),
            ("segment", str(found["segment"])),
            ("version", str(found["version"])),
            ("created", local_time(found["created_at"])),
            ("updated", local_time(found["updated_at"])),
            ("deleted", local_time(found.get("deleted_at"))),
            ("cursor", cursor_text(found.get("cursor"))),
            ("spec", json.dumps(found["spec"], ensure_ascii=False)),
            ("policy", json.dumps(found["policy"], ensure_ascii=False)),
        ]
    )
    if found["triggers"]:
        session.screen.line()
        _show_triggers(session.screen, found["triggers"], {found["id"]: found["name"]})
    return None


def delete_job(session: Session, job: JobArgument) -> None:
    """Delete a job. Its live runs are cancelled; its history stays readable by id."""
    with session.client() as client:
        found = client.json.find_job(job)
        client.json.delete_job(found["id"])
    if session.as_json:
        session.screen.json({"deleted": found["id"]})
    else:
        session.screen.line(f"deleted job {found['id']} {clean(found['name'])}")


def reset_cursor(session: Session, job: JobArgument) -> None:
    """Let a sync begin anew: its next run reads everything, as the first one did."""
    with session.client() as client:
        found = client.json.find_job(job)
        client.json.reset_cursor(found["id"])
    if session.as_json:
        session.screen.json({"reset": found["id"]})
    else:
        session.screen.line(f"job {found['id']} {clean(found['name'])} reads everything at its next run")


def _register_jobs(app: click.Group) -> None:
    group = listing(app, "jobs", "horae jobs --name backup")(list_jobs)
    command(group, "show", "horae jobs show backup")(show_job)
    command(group, "delete", "horae jobs delete 7")(delete_job)
    command(group, "reset-cursor", "horae jobs reset-cursor orders-to-lake")(reset_cursor)


def pause(session: Session, job: JobArgument) -> None:
    """Pause a job: it does not fire until it is resumed."""
    with session.client() as client:
        changed = client.json.pause(client.json.find_job(job)["id"])
    _say_job(session, changed, "paused")


def resume(session: Session, job: JobArgument) -> None:
    """Let a paused job go on."""
    with session.client() as client:
        changed = client.json.resume(client.json.find_job(job)["id"])
    _say_job(session, changed, "resumed")


def _say_job(session: Session, job: Json, done: str) -> None:
    if session.as_json:
        session.screen.json(job)
        return
    upcoming = _next_and_state(job)[0]
    session.screen.line(f"{done} job {job['id']} {clean(job['name'])}{f'; next {upcoming}' if upcoming else ''}")


def list_triggers(session: Session, job: OfJob = None, limit: Limit = 50) -> None:
    """List triggers: when jobs run next, and when they ran last."""
    with session.client() as client:
        job_id = client.json.find_job(job)["id"] if job else None
        page = client.json.triggers(job_id=job_id, limit=limit)
        if session.as_json:
            return session.screen.json(page)
        names = job_names(client, (trigger["job_id"] for trigger in page["items"]))
    _show_triggers(session.screen, page["items"], names)
    note_more(session.screen, page)
    return None


def _show_triggers(screen: Screen, triggers: list[Json], names: dict[int, str]) -> None:
    rows: list[list[str | Cell]] = [
        [
            str(trigger["id"]),
            names.get(trigger["job_id"], str(trigger["job_id"])),
            trigger["description"],
            local_time(trigger["next_at"]),
            local_time(trigger["last_at"]),
            Cell("enabled", "green") if trigger["enabled"] else Cell("disabled", "yellow"),
        ]
        for trigger in triggers
    ]
    screen.table([">id", "job", "schedule", "next", "last", "state"], rows, "no triggers")


def show_trigger(session: Session, trigger: TriggerArgument) -> None:
    """Show one trigger."""
    with session.client() as client:
        found = client.json.trigger(trigger)
    _say_trigger(session, found)


def move_trigger(
    session: Session,
    trigger: TriggerArgument,
    to: Annotated[str, Option("--to", metavar="MOMENT", help="RFC 3339, such as 2027-03-28T02:30:00Z.")],
) -> None:
    """Move the next moment of a trigger, once; its schedule goes on from there."""
    with session.client() as client:
        changed = client.json.change_trigger(trigger, next_at=to)
    _say_trigger(session, changed)


def enable_trigger(session: Session, trigger: TriggerArgument) -> None:
    """Let a trigger fire."""
    with session.client() as client:
        changed = client.json.change_trigger(trigger, enabled=True)
    _say_trigger(session, changed)


def disable_trigger(session: Session, trigger: TriggerArgument) -> None:
    """Keep a trigger from firing."""
    with session.client() as client:
        changed = client.json.change_trigger(trigger, enabled=False)
    _say_trigger(session, changed)


def _say_trigger(session: Session, trigger: Json) -> None:
    if session.as_json:
        session.screen.json(trigger)
        return
    session.screen.record(
        [
            ("id", str(trigger["id"])),
            ("job", str(trigger["job_id"])),
            ("schedule", trigger["description"]),
            ("document", json.dumps(trigger["schedule"], ensure_ascii=False)),
            ("data", json.dumps(trigger["data"], ensure_ascii=False) if trigger["data"] else ""),
            ("enabled", "yes" if trigger["enabled"] else "no"),
            ("next", local_time(trigger["next_at"])),
            ("last", local_time(trigger["last_at"])),
        ]
    )


def _register_triggers(app: click.Group) -> None:
    group = listing(app, "triggers", "horae triggers --job backup")(list_triggers)
    command(group, "show", "horae triggers show 3")(show_trigger)
    command(group, "move", "horae triggers move 3 --to 2027-03-28T02:30:00Z")(move_trigger)
    command(group, "enable", "horae triggers enable 3")(enable_trigger)
    command(group, "disable", "horae triggers disable 3")(disable_trigger)


def preview(
    session: Session,
    schedule: Annotated[str, Argument(metavar="EXPR", help="Cron, interval or words, in quotes.")],
    timezone: Annotated[str | None, Option("--timezone", metavar="ZONE", help="Such as Europe/Berlin.")] = None,
    count: Annotated[int, Option("--count", metavar="N", min=1, max=1000, help="How many moments.")] = 10,
) -> None:
    """Show the next moments of a schedule, as the server reads it."""
    zone = {"timezone": timezone} if timezone else {}
    with session.client() as client:
        shown = client.json.preview(schedule, count=count, **zone)
    if session.as_json:
        return session.screen.json(shown)
    read_as = f" (read as {clean(shown['dialect'])})" if shown["dialect"] else ""
    session.screen.line(f"{clean(shown['description'])}{read_as}")
    rows = [[one["local"], one["at"], Cell(one["note"] or "", "yellow")] for one in shown["moments"]]
    session.screen.table(["local", "utc", "note"], rows, "no moment will come")
    return None


def register(app: click.Group) -> None:
    command(app, "submit", "horae submit backup.yaml")(submit)
    _register_jobs(app)
    _register_triggers(app)
    command(app, "pause", "horae pause backup")(pause)
    command(app, "resume", "horae resume backup")(resume)
    command(app, "preview", "horae preview '30 2 * * MON-FRI' --timezone Europe/Berlin --count 5")(preview)
