"""The calls about jobs and their triggers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from horae.client.making import (
    MANY_TIMEOUT,
    Ahead,
    body_of,
    dump,
    get,
    list_all,
    load_many,
    new_key,
    one,
    parts,
    send,
)
from horae.client.steps import Call, Json, Steps, ask
from horae.client.wire import TIMEOUT, Request
from horae.errors import Conflict, NotFound

if TYPE_CHECKING:
    from horae.schemas import DataSchema, Job, JobChanges, JobPage, Preview, SubmitPlan, Submitted, Trigger, TriggerPage

LARGE = 1 << 20  # bytes from which a document is many


def submit(
    document: bytes | str | Mapping[str, Any], content_type: str = "", *, key: str = "", directory: str = ""
) -> Call[Submitted]:
    """Create jobs from a document: text is YAML unless said otherwise. A server of one's own runs their steps in the
    `directory`, if it is on this machine."""
    is_text = isinstance(document, bytes | str)
    body = document.encode() if isinstance(document, str) else document
    headers = {
        "Content-Type": content_type or ("application/yaml" if is_text else "application/json"),
        "Idempotency-Key": key or new_key(),
    }
    near = {"Horae-Directory": quote(directory)} if directory else {}
    sent = body if isinstance(body, bytes) else dump(body)
    timeout = MANY_TIMEOUT if len(sent) > LARGE else TIMEOUT
    return one(Request("POST", "/v1/jobs", sent, headers, near, timeout=timeout), has="jobs")


def plan_submit(document: bytes, content_type: str, *, directory: str = "") -> Call[SubmitPlan]:
    """Return what a submit would create or change; everything is checked, and nothing is done."""
    near = {"Horae-Directory": quote(directory)} if directory else {}
    headers = {"Content-Type": content_type}
    return one(Request("POST", "/v1/jobs?dry_run=true", document, headers, near, timeout=MANY_TIMEOUT), has="items")


def submit_many(documents: Iterable[Mapping[str, Any]]) -> Call[list[Job]]:
    """Create any number of jobs, 10,000 at a time; returns them in order. What was created before an error is there."""

    def steps() -> Steps:
        made: list[Json] = []
        coming = Ahead(parts(documents))
        while (part := coming.take()) is not None:
            headers = {"Content-Type": "application/json", "Idempotency-Key": new_key()}
            request = Request("POST", "/v1/jobs", part, headers, timeout=MANY_TIMEOUT, meanwhile=coming.prepare)
            answer = yield from ask(request)
            made += load_many(answer.body, "jobs", answer.server.url)
        return made

    return Call(steps)


def jobs(
    *,
    name: str | None = None,
    named: str | None = None,
    key: str | None = None,
    kind: str | None = None,
    owner: str | None = None,
    tag: str | None = None,
    queue: str | None = None,
    paused: bool | None = None,
    limit: int | None = 100,
    cursor: str | None = None,
) -> Call[JobPage]:
    """Jobs, newest first; limit None gives all of them."""
    exact = {"named": named, "key": key, "kind": kind, "owner": owner, "tag": tag, "queue": queue}
    where = {"name": name, **exact, "paused": paused}
    return list_all("/v1/jobs", where, limit, cursor)


def job(job_id: int) -> Call[Job]:
    """One job with its triggers."""
    return get(f"/v1/jobs/{job_id}", has="id")


def find_job(text: str) -> Call[Job]:
    """Return the job with this id, this key, or this name if no other has it."""

    def steps() -> Steps:
        if re.fullmatch(r"[0-9]{1,19}", text):
            try:
                return (yield from body_of(Request("GET", f"/v1/jobs/{int(text)}")))
            except NotFound:
                pass  # a key or a name may be a number too
        found: list[Json] = (yield from jobs(key=text, limit=None).steps())["items"]
        if not found:
            found = (yield from jobs(named=text, limit=None).steps())["items"]
        if not found:
            raise NotFound(f"no job has the id, key or name {text!r}", hint="`horae jobs` lists them")
        if len(found) > 1:
            ids = ", ".join(str(job["id"]) for job in found)
            message = f"{len(found)} jobs are called {text!r}: say which by its id ({ids})"
            raise Conflict(message, code="E_DUP_NAME")
        return found[0]

    return Call(steps, has="id")


def data_schema(job_id: int) -> Call[DataSchema]:
    """What data the runs of a job take, and what they return, as far as its handler says so."""
    return get(f"/v1/jobs/{job_id}/data-schema", has="schema")


def replace_job(job_id: int, document: Mapping[str, Any], *, version: int | None = None) -> Call[Job]:
    """Replace a job; with `version`, only if it still is that one."""
    headers = {"If-Match": f'"{version}"'} if version is not None else {}
    return send("PUT", f"/v1/jobs/{job_id}", document, headers)


def delete_job(job_id: int) -> Call[None]:
    """Delete a job. Its live runs are cancelled; its history stays readable by id."""
    return send("DELETE", f"/v1/jobs/{job_id}")


def reset_cursor(job_id: int) -> Call[None]:
    """Let a sync begin anew."""
    return send("DELETE", f"/v1/jobs/{job_id}/cursor")


def pause(job_id: int) -> Call[Job]:
    """Pause a job: it does not fire until it is resumed."""
    return send("POST", f"/v1/jobs/{job_id}/pause")


def resume(job_id: int) -> Call[Job]:
    """Let a paused job go on."""
    return send("POST", f"/v1/jobs/{job_id}/resume")


# ── triggers ──


def triggers(*, job_id: int | None = None, limit: int | None = 100, cursor: str | None = None) -> Call[TriggerPage]:
    """Triggers, of one job or of all; limit None gives all of them."""
    return list_all("/v1/triggers", {"job_id": job_id}, limit, cursor)


def trigger(trigger_id: int) -> Call[Trigger]:
    """One trigger."""
    return get(f"/v1/triggers/{trigger_id}", has="id")


def add_trigger(job_id: int, document: Mapping[str, Any]) -> Call[Trigger]:
    """Give a job one more trigger."""
    return send("POST", f"/v1/jobs/{job_id}/triggers", document)


def replace_trigger(trigger_id: int, document: Mapping[str, Any]) -> Call[Trigger]:
    """Replace a trigger."""
    return send("PUT", f"/v1/triggers/{trigger_id}", document)


def change_trigger(trigger_id: int, **changes: Any) -> Call[Trigger]:
    """Change some of: enabled, next_at (moves the next moment once), data."""
    return send("PATCH", f"/v1/triggers/{trigger_id}", changes)


def delete_trigger(trigger_id: int) -> Call[None]:
    """Delete a trigger."""
    return send("DELETE", f"/v1/triggers/{trigger_id}")


def rotate_hook(trigger_id: int) -> Call[Trigger]:
    """Give a webhook a new address, which is in the answer as `hook`, and only there."""
    return send("POST", f"/v1/triggers/{trigger_id}/hook")


def preview(
    schedule: str | Mapping[str, Any], *, count: int = 10, start_at: str | None = None, **more: Any
) -> Call[Preview]:
    """Return the next moments of a schedule."""
    document = {"schedule": schedule} if isinstance(schedule, str) else dict(schedule)
    start = {"start_at": start_at} if start_at else {}
    return send("POST", "/v1/preview", {**document, **more, **start, "count": count})


# ── many jobs at once ──


def pause_jobs(
    jobs: Iterable[int] | None = None, *, where: Mapping[str, Any] | None = None, dry_run: bool = False
) -> Call[JobChanges]:
    """Pause up to 10,000 jobs: those named, or those found by `where` (q, name, named, owner, kind, tag, queue, paused,
    state of the latest run). `dry_run` only says which would change."""
    return _change_jobs("pause", jobs, where, {}, dry_run=dry_run)


def resume_jobs(
    jobs: Iterable[int] | None = None, *, where: Mapping[str, Any] | None = None, dry_run: bool = False
) -> Call[JobChanges]:
    """Let paused jobs go on; as pause_jobs."""
    return _change_jobs("resume", jobs, where, {}, dry_run=dry_run)


def tag_jobs(
    jobs: Iterable[int] | None = None,
    *,
    where: Mapping[str, Any] | None = None,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    dry_run: bool = False,
) -> Call[JobChanges]:
    """Add tags to jobs, or take them away; as pause_jobs."""
    return _change_jobs("tag", jobs, where, {"add": list(add), "remove": list(remove)}, dry_run=dry_run)


def _change_jobs(
    verb: str, jobs: Iterable[int] | None, where: Mapping[str, Any] | None, more: Mapping[str, Any], *, dry_run: bool
) -> Call[JobChanges]:
    named = {} if jobs is None else {"jobs": list(jobs)}
    found = {} if where is None else {"where": dict(where)}
    body = dump({**named, **found, **more, "dry_run": dry_run})
    headers = {"Content-Type": "application/json"}
    return one(Request("POST", f"/v1/jobs/{verb}", body, headers, timeout=MANY_TIMEOUT), has="items")
