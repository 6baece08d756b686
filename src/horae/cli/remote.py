"""The commands that ask a server: submit, jobs, triggers, runs, logs, run, cancel, pause, resume, preview, nodes.

Each is: one or two calls of the client, then the screen. Nothing about jobs is decided here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from horae.cli.builds import artifacts, build_fields, result_text, show_build
from horae.cli.datawork import cursor_text, data_fields, progress_bar, progress_text, show_tables
from horae.cli.jobfiles import directory_of, media_type, naming, read_file
from horae.cli.screen import Cell, Screen, between, clean, duration, local_time, state_cell
from horae.cli.session import Session, command, listing
from horae.errors import Error, Invalid, NotFound

if TYPE_CHECKING:
    from horae.client import Client

Json = dict[str, Any]

NEWEST_EVERY = 0.5  # seconds between two looks for a newer run to follow
WORTH_FOLLOWING = "queued,blocked,running,succeeded,failed,timed_out,cancelled"

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id, key or unique name of a job.")]
RunArgument = Annotated[int, typer.Argument(metavar="RUN", min=1, help="Id of a run.")]
TriggerArgument = Annotated[int, typer.Argument(metavar="TRIGGER", min=1, help="Id of a trigger.")]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Name of a node.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="Most to show.")]
OfJob = Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only of this job: id, key or unique name.")]


def register(app: typer.Typer) -> None:
    """Hang the commands into the program."""
    command(app, "submit", "horae submit backup.yaml")(submit)
    _register_jobs(app)
    _register_triggers(app)
    _register_runs(app)
    command(app, "logs", "horae logs -f --job backup")(logs)
    command(app, "artifacts", "horae artifacts 42 dist/package.whl --output package.whl")(artifacts)
    command(app, "run", "horae run backup --data '{\"full\": true}' --wait")(run_now)
    command(app, "cancel", "horae cancel 42")(cancel)
    command(app, "pause", "horae pause backup")(pause)
    command(app, "resume", "horae resume backup")(resume)
    command(app, "preview", "horae preview '30 2 * * MON-FRI' --timezone Europe/Berlin --count 5")(preview)
    group = listing(app, "nodes", "horae nodes")(nodes)
    command(group, "cordon", "horae nodes cordon worker-3")(cordon)
    command(group, "uncordon", "horae nodes uncordon worker-3")(uncordon)
    command(group, "drain", "horae nodes drain worker-3")(drain)


# ── jobs ───────────────────────────────────────────────────────────────────────────────────────────


async def submit(
    session: Session,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Job files, YAML or JSON; - reads stdin.")],
) -> None:
    """Submit the jobs of one or more files."""
    documents = [(name, _content_of(name)) for name in files]  # all are read before anything is sent
    made: list[Json] = []
    try:
        async with session.client() as client:
            for name, content in documents:
                with naming(name):
                    type_, place = media_type(name, content), directory_of(name)
                    made += (await client.submit(content, type_, directory=place))["jobs"]
    finally:  # what was submitted before an error is there, and must be told
        if made:
            _say_submitted(session, made)


def _content_of(name: str) -> bytes:
    with naming(name):
        return read_file(name)


def _say_submitted(session: Session, jobs: list[Json]) -> None:
    if session.as_json:
        session.screen.json({"jobs": jobs})
    else:
        _show_jobs(session.screen, jobs)


async def list_jobs(
    session: Session,
    name: Annotated[str | None, typer.Option("--name", metavar="TEXT", help="Only with this in the name.")] = None,
    limit: Limit = 50,
) -> None:
    """List jobs, newest first."""
    async with session.client() as client:
        page = await client.jobs(name=name, limit=limit)
    if session.as_json:
        session.screen.json(page)
    else:
        _show_jobs(session.screen, page["items"])
        _note_more(session.screen, page)


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


def _note_more(screen: Screen, page: Json) -> None:
    if page["cursor"]:
        screen.note(f"these are {len(page['items'])}; there are more: raise --limit")


async def show_job(session: Session, job: JobArgument) -> None:
    """Show one job with its triggers."""
    async with session.client() as client:
        found = await client.find_job(job)
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


async def delete_job(session: Session, job: JobArgument) -> None:
    """Delete a job. Its live runs are cancelled; its history stays readable by id."""
    async with session.client() as client:
        found = await client.find_job(job)
        await client.delete_job(found["id"])
    if session.as_json:
        session.screen.json({"deleted": found["id"]})
    else:
        session.screen.line(f"deleted job {found['id']} {clean(found['name'])}")


async def reset_cursor(session: Session, job: JobArgument) -> None:
    """Let a sync begin anew: its next run reads everything, as the first one did."""
    async with session.client() as client:
        found = await client.find_job(job)
        await client.reset_cursor(found["id"])
    if session.as_json:
        session.screen.json({"reset": found["id"]})
    else:
        session.screen.line(f"job {found['id']} {clean(found['name'])} reads everything at its next run")


def _register_jobs(app: typer.Typer) -> None:
    group = listing(app, "jobs", "horae jobs --name backup")(list_jobs)
    command(group, "show", "horae jobs show backup")(show_job)
    command(group, "delete", "horae jobs delete 7")(delete_job)
    command(group, "reset-cursor", "horae jobs reset-cursor orders-to-lake")(reset_cursor)


async def pause(session: Session, job: JobArgument) -> None:
    """Pause a job: it does not fire until it is resumed."""
    async with session.client() as client:
        changed = await client.pause((await client.find_job(job))["id"])
    _say_job(session, changed, "paused")


async def resume(session: Session, job: JobArgument) -> None:
    """Let a paused job go on."""
    async with session.client() as client:
        changed = await client.resume((await client.find_job(job))["id"])
    _say_job(session, changed, "resumed")


def _say_job(session: Session, job: Json, done: str) -> None:
    if session.as_json:
        session.screen.json(job)
        return
    upcoming = _next_and_state(job)[0]
    session.screen.line(f"{done} job {job['id']} {clean(job['name'])}{f'; next {upcoming}' if upcoming else ''}")


# ── triggers ───────────────────────────────────────────────────────────────────────────────────────


async def list_triggers(session: Session, job: OfJob = None, limit: Limit = 50) -> None:
    """List triggers: when jobs run next, and when they ran last."""
    async with session.client() as client:
        job_id = (await client.find_job(job))["id"] if job else None
        page = await client.triggers(job_id=job_id, limit=limit)
        if session.as_json:
            return session.screen.json(page)
        names = await _job_names(client, (trigger["job_id"] for trigger in page["items"]))
    _show_triggers(session.screen, page["items"], names)
    _note_more(session.screen, page)
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


async def show_trigger(session: Session, trigger: TriggerArgument) -> None:
    """Show one trigger."""
    async with session.client() as client:
        found = await client.trigger(trigger)
    _say_trigger(session, found)


async def move_trigger(
    session: Session,
    trigger: TriggerArgument,
    to: Annotated[str, typer.Option("--to", metavar="MOMENT", help="RFC 3339, such as 2027-03-28T02:30:00Z.")],
) -> None:
    """Move the next moment of a trigger, once; its schedule goes on from there."""
    async with session.client() as client:
        changed = await client.change_trigger(trigger, next_at=to)
    _say_trigger(session, changed)


async def enable_trigger(session: Session, trigger: TriggerArgument) -> None:
    """Let a trigger fire."""
    async with session.client() as client:
        changed = await client.change_trigger(trigger, enabled=True)
    _say_trigger(session, changed)


async def disable_trigger(session: Session, trigger: TriggerArgument) -> None:
    """Keep a trigger from firing."""
    async with session.client() as client:
        changed = await client.change_trigger(trigger, enabled=False)
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


def _register_triggers(app: typer.Typer) -> None:
    group = listing(app, "triggers", "horae triggers --job backup")(list_triggers)
    command(group, "show", "horae triggers show 3")(show_trigger)
    command(group, "move", "horae triggers move 3 --to 2027-03-28T02:30:00Z")(move_trigger)
    command(group, "enable", "horae triggers enable 3")(enable_trigger)
    command(group, "disable", "horae triggers disable 3")(disable_trigger)


async def preview(
    session: Session,
    schedule: Annotated[str, typer.Argument(metavar="EXPR", help="Cron, interval or words, in quotes.")],
    timezone: Annotated[str | None, typer.Option("--timezone", metavar="ZONE", help="Such as Europe/Berlin.")] = None,
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, max=1000, help="How many moments.")] = 10,
) -> None:
    """Show the next moments of a schedule, as the server reads it."""
    zone = {"timezone": timezone} if timezone else {}
    async with session.client() as client:
        shown = await client.preview(schedule, count=count, **zone)
    if session.as_json:
        return session.screen.json(shown)
    read_as = f" (read as {clean(shown['dialect'])})" if shown["dialect"] else ""
    session.screen.line(f"{clean(shown['description'])}{read_as}")
    rows = [[one["local"], one["at"], Cell(one["note"] or "", "yellow")] for one in shown["moments"]]
    session.screen.table(["local", "utc", "note"], rows, "no moment will come")
    return None


# ── runs ───────────────────────────────────────────────────────────────────────────────────────────


async def list_runs(
    session: Session,
    job: OfJob = None,
    state: Annotated[str | None, typer.Option("--state", metavar="LIST", help="Such as failed,timed_out.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Due since: 30m, 2h, 1d, or an RFC 3339 moment.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List runs, newest first."""
    due_from = read_since(since) if since is not None else None
    async with session.client() as client:
        job_id = (await client.find_job(job))["id"] if job else None
        page = await client.runs(job_id=job_id, state=state, due_from=due_from, limit=limit)
        if session.as_json:
            return session.screen.json(page)
        names = await _job_names(client, (run["job_id"] for run in page["items"]))
    _show_runs(session.screen, page["items"], names)
    _note_more(session.screen, page)
    return None


def read_since(text: str) -> str:
    """How long ago, or a moment → RFC 3339 in UTC."""
    from horae.core import moments  # not needed to start, and slow to load

    with contextlib.suppress(Invalid):
        ago = timedelta(microseconds=moments.read_duration(text))
        if timedelta() <= ago < timedelta(days=36_500):
            return (datetime.now(UTC) - ago).isoformat()
    with contextlib.suppress(Invalid):
        return moments.format_moment(moments.parse_moment(text))
    raise Invalid(
        f"--since must be how long ago (30m, 2h, 1d) or a moment (2027-03-28T02:30:00Z); got {text!r}", code="E_USAGE"
    )


async def _job_names(client: Client, job_ids: Iterable[int]) -> dict[int, str]:
    """Names by id, deleted jobs included; a job that is gone altogether keeps its number."""

    async def name_of(job_id: int) -> tuple[int, str]:
        try:
            return job_id, (await client.job(job_id))["name"]
        except NotFound:
            return job_id, str(job_id)

    return dict(await asyncio.gather(*(name_of(job_id) for job_id in set(job_ids))))


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


async def show_run(session: Session, run: RunArgument) -> None:
    """Show one run with its earlier attempts."""
    async with session.client() as client:
        found = await client.run(run)
        if session.as_json:
            return session.screen.json(found)
        names = await _job_names(client, [found["job_id"]])
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


def _register_runs(app: typer.Typer) -> None:
    group = listing(app, "runs", "horae runs --job backup --state failed --since 1d")(list_runs)
    command(group, "show", "horae runs show 42")(show_run)


async def run_now(
    session: Session,
    job: JobArgument,
    data: Annotated[
        str | None, typer.Option("--data", metavar="JSON", help="Data for this run, a JSON object.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end, and exit as it did.")] = False,
) -> int:
    """Run a job now.

    With --wait the exit code is 0 if it succeeded, its own if that is 1 to 125, else 1.
    """
    given = _read_data(data) if data is not None else None
    async with session.client() as client:
        found = await client.find_job(job)
        run = await client.run_now(found["id"], data=given)
        if wait:
            with session.screen.waiting(f"run {run['id']} of {found['name']}"):
                run = await client.wait(run["id"])
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
    """What a shell should see of a run that has ended."""
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


async def cancel(session: Session, run: RunArgument) -> None:
    """Cancel a run.

    A run that waits ends at once; one that runs, when all its processes are gone.
    """
    async with session.client() as client:
        changed = await client.cancel(run)
    if changed["state"] == "running" and not session.as_json:
        session.screen.line(f"run {run} is being cancelled")
    else:
        _say_run(session, changed)


# ── logs ───────────────────────────────────────────────────────────────────────────────────────────


async def logs(
    session: Session,
    which: Annotated[
        str | None, typer.Argument(metavar="[RUN|JOB]", help="Id of a run, or name of a job; left out: the newest run.")
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on while it is written, run after run.")] = False,
    job: OfJob = None,
) -> None:
    """Show what a run has written, or follow it.

    Without RUN it is the newest run, of a job or of any; with -f, newer runs follow.
    """
    if which is not None and job is not None:
        raise Invalid("give either RUN or --job, not both", code="E_USAGE")
    is_run = which is not None and which.isdecimal()
    async with session.client() as client:
        wanted = job if is_run else job or which
        job_id = (await client.find_job(wanted))["id"] if wanted else None
        if follow and not is_run:
            return await _follow_newest(session, client, job_id)
        run_id = int(which or 0) if is_run else await _newest_run(client, job_id)
        return await (_follow(session, client, run_id) if follow else _print_log(session, client, run_id))


async def _newest_run(client: Client, job_id: int | None) -> int:
    newest = (await client.runs(job_id=job_id, state=WORTH_FOLLOWING, limit=1))["items"]
    if not newest:
        raise NotFound("nothing has run yet", hint="`horae run JOB` runs a job now")
    run_id: int = newest[0]["id"]
    return run_id


async def _print_log(session: Session, client: Client, run_id: int) -> None:
    text = (await client.log(run_id)).decode(errors="replace")
    if session.as_json:
        session.screen.json({"run_id": run_id, "text": text})
    else:
        session.screen.log(text)


async def _follow(session: Session, client: Client, run_id: int) -> None:
    """Print what a run writes until it ends."""
    screen = session.screen
    await client.run(run_id)  # says at once that there is no server, or no such run
    async with contextlib.aclosing(client.follow(run_id)) as events:
        async for event in events:
            if session.as_json:
                shown = event.data if event.name == "log" else {"run": event.data}
                screen.json({"run_id": run_id, "event": event.name, **shown})
                screen.flush()
            elif event.name == "log":
                screen.log(event.data["text"])
            elif event.name == "end":
                remark = _remark(event.data)
                screen.note(f"run {run_id} {event.data['state']}{f' ({remark})' if remark else ''}")


async def _follow_newest(session: Session, client: Client, job_id: int | None) -> None:
    """Follow the newest run, then every newer one, until interrupted or until no more can come."""
    async for run in _newest_runs(client, job_id):
        session.screen.note(f"run {run['id']} of job {run['job_id']}, due {local_time(run['due_at'])}")
        await _follow(session, client, run["id"])


async def _newest_runs(client: Client, job_id: int | None) -> AsyncIterator[Json]:
    """The newest run there is, then each that comes after it, in order."""
    seen, is_over = 0, False
    while True:
        page = await client.runs(job_id=job_id, state=WORTH_FOLLOWING, limit=100 if seen else 1)
        for run in reversed(page["items"]):
            if run["id"] > seen:
                seen = run["id"]
                yield run
        if is_over:
            return
        is_over = job_id is not None and seen > 0 and _has_fired_its_last(await client.job(job_id))
        if not is_over:  # else one more look: its last run was made with its last moment
            await asyncio.sleep(NEWEST_EVERY)


def _has_fired_its_last(job: Json) -> bool:
    """Whether its triggers have no more moments; a job without any is run by hand, at any time."""
    return bool(job["triggers"]) and all(trigger["next_at"] is None for trigger in job["triggers"])


# ── the cluster ────────────────────────────────────────────────────────────────────────────────────


async def nodes(session: Session) -> None:
    """List the nodes: state, how busy they are, when they were last seen, through whom agents come in."""
    async with session.client() as client:
        page = await client.nodes()
        seen = {} if session.as_json else await _overview(client)
    if session.as_json:
        session.screen.json(page)
    else:
        _show_nodes(session.screen, page["items"])
        _show_arrears(session.screen, seen)


async def _overview(client: Client) -> Json:
    """What more is known, where the server tells."""
    with contextlib.suppress(Error):
        return await client.overview()
    return {}


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
            Cell(node["state"], "green" if node["state"] == "live" else "yellow"),
            Cell(node["wanted"], "" if node["wanted"] == "live" else "yellow"),
            ",".join(node["roles"]),
            ",".join(node["labels"]),
            f"{node['busy']}/{node['slots']}",
            str(node["segments"] or ""),
            duration(max(0.0, between(node["heartbeat_at"], now) or 0.0)) + " ago",
            node["version"],
            node["address"] or f"via {node['via']}",
        ]
        for node in nodes
    ]
    columns = ["name", "state", "wanted", "roles", "labels", ">busy", ">segments", ">seen", "version", "address"]
    screen.table(columns, rows, "no nodes")
    for node in nodes:
        if node.get("ailment"):
            screen.line(f"{clean(node['name'])} takes nothing new: {clean(node['ailment'])}")


async def cordon(session: Session, name: NodeArgument) -> None:
    """Let a node take no new runs; what runs there goes on."""
    await _want(session, name, "cordon", "takes no new runs")


async def uncordon(session: Session, name: NodeArgument) -> None:
    """Let a cordoned or drained node take runs again."""
    await _want(session, name, "uncordon", "takes runs again")


async def drain(session: Session, name: NodeArgument) -> None:
    """Empty a node: it takes no new runs and gives its segments away; what runs there goes on to its end."""
    await _want(session, name, "drain", "takes no new runs and gives its segments away")


async def _want(session: Session, name: str, verb: str, effect: str) -> None:
    async with session.client() as client:
        node = await client.want_node(name, verb)
    if session.as_json:
        session.screen.json(node)
    else:
        busy = f"; {node['busy']} still running" if node["busy"] and verb != "uncordon" else ""
        session.screen.line(f"{clean(name)} {effect}{busy}")
