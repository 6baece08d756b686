"""Commands about jobs and their triggers: submit, jobs, triggers, pause, resume, preview."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import click

from horae.cli.datawork import cursor_text
from horae.cli.jobfiles import directory_of, media_type, naming, read_file
from horae.cli.jobs.exporting import edit_job
from horae.cli.jobs.manyjobs import MOST, Item, batches, body_of, is_plain, job_files, placed, read_items
from horae.cli.options import Argument, DryRun, JobArgument, JobArguments, Limit, OfJob, Option
from horae.cli.planning import say_would
from horae.cli.progress import progress
from horae.cli.screen import Cell, Json, Screen, clean, local_time, name_of_job, note_more
from horae.cli.session import Session, command, listing
from horae.cli.several import for_each, live_runs
from horae.errors import Conflict, Error

if TYPE_CHECKING:
    from horae.client import SyncClient

FEW = 20  # files that are sent one by one, as they are
HIDDEN = "******"  # in the place of a token that was shown before
SHOWN = 100  # jobs that are listed after a submit
TriggerArgument = Annotated[int, Argument(metavar="TRIGGER", min=1, help="Id of a trigger.")]
TriggerArguments = Annotated[list[int], Argument(metavar="TRIGGER...", min=1, help="Id of a trigger.")]


def submit(
    session: Session,
    files: Annotated[
        list[str],
        Argument(metavar="FILE...", help="Job files, YAML, JSON or NDJSON, or directories of them; - reads stdin."),
    ],
    dry_run: Annotated[bool, Option("--dry-run", help="Only check, and say what would be created or changed.")] = False,
) -> None:
    """Submit the jobs of one or more files.

    Any number of jobs is sent, a thousand at a time, and each thousand is taken or refused as a whole. A job whose key
    exists already changes that job.
    """
    contents = {name: _content_of(name) for name in job_files(files)}  # all are read before anything is sent
    if dry_run or len(contents) > FEW or not all(is_plain(name, content) for name, content in contents.items()):
        return _submit_many(session, contents, is_dry=dry_run)
    made: list[Json] = []
    warnings: list[str] = []
    try:
        with session.client() as client:
            for name, content in contents.items():
                with naming(name):
                    type_, place = media_type(name, content), directory_of(name)
                    answer = client.json.submit(content, type_, directory=place)
                    made += answer["jobs"]
                    warnings += answer.get("warnings", ())
    finally:  # what was submitted before an error is there, and must be told
        if made:
            _say_submitted(session, made, warnings)
    return None


def _content_of(name: str) -> bytes:
    with naming(name):
        return read_file(name, MOST)


def _submit_many(session: Session, contents: dict[str, bytes], *, is_dry: bool) -> None:
    items = [item for name, content in contents.items() for item in read_items(name, content)]
    done: list[Json] = []
    warnings: dict[str, None] = {}
    try:
        with session.client() as client, progress(session.screen, "submitting jobs", len(items)) as advance:
            for batch in batches(items):
                try:
                    answer = _send(client, batch, is_dry=is_dry)
                except Error as error:
                    raise placed(error, batch) from None
                done += answer["items" if is_dry else "jobs"]
                warnings |= dict.fromkeys(answer.get("warnings", ()))
                advance(len(batch))
    finally:
        if done and is_dry:
            _say_planned(session, items, done)
        elif done:
            _say_submitted(session, done, list(warnings))


def _send(client: SyncClient, batch: list[Item], *, is_dry: bool) -> Json:
    send = client.json.plan_submit if is_dry else client.json.submit
    answer: Json = send(body_of(batch), "application/json", directory=directory_of(batch[0].file))
    return answer


def _say_planned(session: Session, items: list[Item], planned: list[Json]) -> None:
    if session.as_json:
        shown = [{**one, "place": it.place} for it, one in zip(items, planned, strict=False)]
        session.screen.json({"items": shown, "dry_run": True})
        return
    rows = [[one["outcome"], one["name"], one["key"] or "", it.place] for it, one in zip(items, planned, strict=False)]
    session.screen.table(["outcome", "name", "key", "place"], rows)
    counted = Counter(one["outcome"] for one in planned)
    session.screen.note(", ".join(f"{count} {outcome}" for outcome, count in counted.items()) + "; nothing was done")


def _say_submitted(session: Session, jobs: list[Json], warnings: list[str]) -> None:
    if session.as_json:
        session.screen.json({"jobs": jobs} | ({"warnings": warnings} if warnings else {}))
    elif len(jobs) <= SHOWN:
        _show_jobs(session.screen, jobs)
        _show_hooks(session, jobs)
    else:
        session.screen.line(f"{len(jobs)} jobs submitted")
    for warning in () if session.as_json else warnings:
        session.screen.warn(clean(warning))


def _show_hooks(session: Session, jobs: list[Json]) -> None:
    """Addresses of webhooks that were made now: nobody sees them again."""
    for trigger in (trigger for job in jobs for trigger in job["triggers"]):
        if not trigger.get("hook", HIDDEN).endswith(HIDDEN):
            session.screen.line(f"webhook {trigger['id']}, shown once: {session.address_of(trigger['hook'])}")


def list_jobs(
    session: Session,
    name: Annotated[str | None, Option("--name", metavar="TEXT", help="Only with this in the name.")] = None,
    owner: Annotated[str | None, Option("--owner", metavar="NAME", help="Only of this owner.")] = None,
    tag: Annotated[str | None, Option("--tag", metavar="TAG", help="Only with this tag.")] = None,
    queue: Annotated[str | None, Option("--queue", metavar="NAME", help="Only whose runs wait in this queue.")] = None,
    limit: Limit = 50,
) -> None:
    """List jobs, newest first."""
    with session.client() as client:
        page = client.json.jobs(name=name, owner=owner, tag=tag, queue=queue, limit=limit)
    if session.as_json:
        session.screen.json(page)
    else:
        _show_jobs(session.screen, page["items"])
        note_more(session.screen, page)


def _show_jobs(screen: Screen, jobs: list[Json]) -> None:
    rows = [[str(job["id"]), job["name"], job["kind"], _schedules(job), *_next_and_state(job)] for job in jobs]
    columns = [">id", "name", "kind??", "schedule?", "next?", "state"]
    screen.table(columns, rows, "no jobs yet: `horae submit FILE` makes one")


def _schedules(job: Json) -> str:
    when = "; ".join(trigger["description"] for trigger in job["triggers"])
    after = ", ".join(str(one["job"]) for one in job["policy"].get("after", ()))
    return when or (f"after {after}" if after else "by hand")


def _next_and_state(job: Json) -> tuple[str, Cell]:
    moments = [trigger["next_at"] for trigger in job["triggers"] if trigger["next_at"]]
    why = f" ({job['paused_because']})" if job.get("paused_because") else ""
    state = Cell(f"paused{why}", "yellow") if job["paused"] else Cell("active", "green")
    return local_time(min(moments, default=None)), state


def _paused(job: Json) -> str:
    why = job.get("paused_because")
    return (f"yes, because {why}" if why else "yes") if job["paused"] else "no"


def show_jobs(session: Session, jobs: JobArguments) -> int:
    """Show jobs with their triggers."""
    with session.client() as client:

        def find(name: str) -> Json:
            """By its id it says more of itself than lists do."""
            found: Json = client.json.job(client.json.find_job(name)["id"])
            return found

        return for_each(session, jobs, find, partial(_show_job, session.screen), is_long=True)


def _show_job(screen: Screen, found: Json) -> None:
    screen.record(
        [
            ("id", str(found["id"])),
            ("name", found["name"]),
            ("key", found["key"] or ""),
            ("owner", found["owner"]),
            ("kind", found["kind"]),
            ("paused", _paused(found)),
            ("segment", str(found["segment"])),
            ("version", str(found["version"])),
            ("created", local_time(found["created_at"])),
            ("updated", local_time(found["updated_at"])),
            ("deleted", local_time(found.get("deleted_at"))),
            ("after", ", ".join(_after(one) for one in found["policy"].get("after", ()))),
            ("before", ", ".join(each["key"] or str(each["id"]) for each in found.get("followers", ()))),
            ("cursor", cursor_text(found.get("cursor"))),
            ("spec", json.dumps(found["spec"], ensure_ascii=False) if "tasks" not in found["spec"] else ""),
            ("policy", json.dumps(found["policy"], ensure_ascii=False)),
        ]
    )
    if "tasks" in found["spec"]:
        from horae.cli.pictures import show_picture  # few need it

        show_picture(screen, found["spec"])
    if found["triggers"]:
        screen.line()
        _show_triggers(screen, [{**trigger, "job_name": found["name"]} for trigger in found["triggers"]])


def _after(one: Json) -> str:
    how = [] if one["on"] == "success" else [f"on {one['on']}"]
    how += [] if one["moment"] == "same" else [one["moment"]]
    return f"{one['job']} ({', '.join(how)})" if how else str(one["job"])


def delete_jobs(session: Session, jobs: JobArguments, dry_run: DryRun = False) -> int:
    """Delete jobs. Their live runs are cancelled; their history stays readable by id."""

    def delete(job: str) -> Json:
        found = client.json.find_job(job)
        if dry_run:
            live = [run["id"] for run in live_runs(client, found["id"])]
            return {"would_delete": found["id"], "name": found["name"], "live_runs": live, "dry_run": True}
        client.json.delete_job(found["id"])
        return {"deleted": found["id"], "name": found["name"]}

    with session.client() as client:
        return for_each(session, jobs, delete, partial(_say_deleted, session.screen))


def _say_deleted(screen: Screen, answer: Json) -> None:
    name = clean(answer["name"])
    if "deleted" in answer:
        return screen.line(f"deleted job {answer['deleted']} {name}")
    live = ", ".join(map(str, answer["live_runs"]))
    return screen.line(f"would delete job {answer['would_delete']} {name}{f', and cancel run {live}' if live else ''}")


def reset_cursor(session: Session, job: JobArgument, dry_run: DryRun = False) -> None:
    """Let a sync begin anew: its next run reads everything, as the first one did."""
    with session.client() as client:
        found = client.json.find_job(job)
        if dry_run:
            cursor = client.json.job(found["id"]).get("cursor")
            words = (
                f"forget how far job {found['id']} {clean(found['name'])} is: {cursor_text(cursor) or 'nowhere yet'}"
            )
            return say_would(session, words, {"reset": found["id"], "cursor": cursor})
        client.json.reset_cursor(found["id"])
    if session.as_json:
        session.screen.json({"reset": found["id"]})
    else:
        session.screen.line(f"job {found['id']} {clean(found['name'])} reads everything at its next run")
    return None


def _register_jobs(app: click.Group) -> None:
    group = listing(app, "jobs", "horae jobs --name backup")(list_jobs)
    command(group, "show", "horae jobs show backup")(show_jobs)
    command(group, "edit", "horae jobs edit backup")(edit_job)
    command(group, "delete", "horae jobs delete 7 8 --dry-run")(delete_jobs)
    command(group, "reset-cursor", "horae jobs reset-cursor orders-to-lake")(reset_cursor)


def pause(session: Session, jobs: JobArguments, dry_run: DryRun = False) -> int:
    """Pause jobs: they do not fire until they are resumed."""
    return _change(session, jobs, "pause", is_dry=dry_run)


def resume(session: Session, jobs: JobArguments, dry_run: DryRun = False) -> int:
    """Let paused jobs go on."""
    return _change(session, jobs, "resume", is_dry=dry_run)


def _change(session: Session, jobs: list[str], verb: str, *, is_dry: bool) -> int:
    def change(job: str) -> Json:
        found: Json = client.json.find_job(job)
        changed: Json = {**found, "dry_run": True} if is_dry else getattr(client.json, verb)(found["id"])
        return changed

    done = f"would {verb}" if is_dry else f"{verb.removesuffix('e')}ed"
    with session.client() as client:
        return for_each(session, jobs, change, partial(_say_job, session.screen, done))


def _say_job(screen: Screen, done: str, job: Json) -> None:
    upcoming = _next_and_state(job)[0]
    screen.line(f"{done} job {job['id']} {clean(job['name'])}{f'; next {upcoming}' if upcoming else ''}")


def list_triggers(session: Session, job: OfJob = None, limit: Limit = 50) -> None:
    """List triggers: when jobs run next, and when they ran last."""
    with session.client() as client:
        job_id = client.json.find_job(job)["id"] if job else None
        page = client.json.triggers(job_id=job_id, limit=limit)
    if session.as_json:
        session.screen.json(page)
    else:
        _show_triggers(session.screen, page["items"])
        note_more(session.screen, page)


def _show_triggers(screen: Screen, triggers: list[Json]) -> None:
    rows: list[list[str | Cell]] = [
        [
            str(trigger["id"]),
            name_of_job(trigger),
            trigger["description"],
            local_time(trigger["next_at"]),
            local_time(trigger["last_at"]),
            Cell("enabled", "green") if trigger["enabled"] else Cell("disabled", "yellow"),
        ]
        for trigger in triggers
    ]
    screen.table([">id", "job", "schedule?", "next", "last??", "state??"], rows, "no triggers")


def show_triggers(session: Session, triggers: TriggerArguments) -> int:
    """Show triggers."""
    with session.client() as client:
        return _each_trigger(session, triggers, lambda trigger: _named(client, client.json.trigger(trigger)))


def move_trigger(
    session: Session,
    trigger: TriggerArgument,
    to: Annotated[str, Option("--to", metavar="MOMENT", help="RFC 3339, such as 2027-03-28T02:30:00Z.")],
    dry_run: DryRun = False,
) -> None:
    """Move the next moment of a trigger, once; its schedule goes on from there."""
    with session.client() as client:
        if dry_run:
            found = _named(client, client.json.trigger(trigger))
            instead = f", instead of {local_time(found['next_at'])}" if found["next_at"] else ""
            words = f"move trigger {trigger} of {clean(found['job_name'])} to {_moment(to)}{instead}"
            return say_would(session, words, found)
        _each_trigger(session, [trigger], lambda one: _named(client, client.json.change_trigger(one, next_at=to)))
    return None


def _moment(text: str) -> str:
    """Return a moment that was typed as it is shown; what is none is refused."""
    from horae.core.time import moments  # few need it

    return local_time(moments.format_moment(moments.parse_moment(text)))


def enable_triggers(session: Session, triggers: TriggerArguments, dry_run: DryRun = False) -> int:
    """Let triggers fire."""
    return _enable(session, triggers, True, is_dry=dry_run)


def disable_triggers(session: Session, triggers: TriggerArguments, dry_run: DryRun = False) -> int:
    """Keep triggers from firing."""
    return _enable(session, triggers, False, is_dry=dry_run)


def _enable(session: Session, triggers: list[int], wanted: bool, *, is_dry: bool) -> int:
    verb = "enable" if wanted else "disable"
    with session.client() as client:
        if is_dry:
            return for_each(
                session, triggers,
                lambda trigger: {**_named(client, client.json.trigger(trigger)), "dry_run": True},
                lambda found: session.screen.line(f"would {verb} trigger {found['id']} of {clean(found['job_name'])}"),
            )  # fmt: skip
        return _each_trigger(
            session, triggers, lambda trigger: _named(client, client.json.change_trigger(trigger, enabled=wanted))
        )


def _each_trigger(session: Session, triggers: list[int], act: Callable[[int], Json]) -> int:
    return for_each(session, triggers, act, partial(_say_trigger, session), is_long=True)


def show_hook(
    session: Session,
    trigger: TriggerArgument,
    rotate: Annotated[bool, Option("--rotate", help="Make a new address; the one of before is nothing then.")] = False,
) -> None:
    """Show the address of a webhook. Its token is shown once, when it is made."""
    with session.client() as client:
        found = client.json.rotate_hook(trigger) if rotate else client.json.trigger(trigger)
    if "hook" not in found:
        raise Conflict(f"trigger {trigger} is no webhook, so it has no address")
    address = session.address_of(found["hook"])
    if session.as_json:
        session.screen.json({"trigger_id": found["id"], "address": address})
        return
    session.screen.line(address)
    if not rotate:
        session.screen.note(
            f"the token was shown when it was made; `horae triggers hook {trigger} --rotate` makes a new one"
        )


def _named(client: SyncClient, trigger: Json) -> Json:
    return {**trigger, "job_name": client.json.job(trigger["job_id"])["name"]}


def _say_trigger(session: Session, trigger: Json) -> None:
    session.screen.record(
        [
            ("id", str(trigger["id"])),
            ("job", f"{trigger['job_id']} {trigger['job_name']}"),
            ("schedule", trigger["description"]),
            ("document", json.dumps(trigger["schedule"], ensure_ascii=False)),
            ("data", json.dumps(trigger["data"], ensure_ascii=False) if trigger["data"] else ""),
            ("enabled", "yes" if trigger["enabled"] else "no"),
            *([("address", session.address_of(trigger["hook"]))] if "hook" in trigger else []),
            ("next", local_time(trigger["next_at"])),
            ("last", local_time(trigger["last_at"])),
        ]
    )


def _register_triggers(app: click.Group) -> None:
    group = listing(app, "triggers", "horae triggers --job backup")(list_triggers)
    command(group, "show", "horae triggers show 3")(show_triggers)
    command(group, "move", "horae triggers move 3 --to 2027-03-28T02:30:00Z")(move_trigger)
    command(group, "enable", "horae triggers enable 3 4")(enable_triggers)
    command(group, "disable", "horae triggers disable 3 4")(disable_triggers)
    command(group, "hook", "horae triggers hook 3 --rotate")(show_hook)


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
    session.screen.table(["local", "utc?", "note"], rows, "no moment will come")
    return None


def register(app: click.Group) -> None:
    command(app, "submit", "horae submit backup.yaml")(submit)
    _register_jobs(app)
    _register_triggers(app)
    command(app, "pause", "horae pause backup")(pause)
    command(app, "resume", "horae resume backup")(resume)
    command(app, "preview", "horae preview '30 2 * * MON-FRI' --timezone Europe/Berlin --count 5")(preview)
