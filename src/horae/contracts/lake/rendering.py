"""Jobs and runs in the words of this contract: the dialect of the source document.

A job made by any other interface is shown too: what this contract knows of it comes from the job itself, and what
clients sent that no other interface has a word for, from its annotations. Those may hold anything: they are only
believed where they fit.
"""

from __future__ import annotations

from typing import Any

from horae.contracts.lake import connectors, schedules, translation, vocabulary
from horae.contracts.lake.vocabulary import Side
from horae.core.model import Cursor, Job, Json, Loan, Moment, Run, Source, Standing, State, Try
from horae.core.runs.tries import last_attempt
from horae.core.work.kinds import shown_spec
from horae.core.work.progress import progress_words
from horae.core.work.syncs import cursor_words

LOGS = "/app-logs/root/logs-tfile"  # where Hadoop keeps the logs of an application, in the contract's default
RESUMED = ("last_synced_value", "incremental_time")  # where a sync goes on


def sent_with(job: Job) -> Json:
    """Return what a client of this contract sent that Horae has no word for."""
    found = job.annotations.get(vocabulary.NAME)
    return found if isinstance(found, dict) else {}


def _sent_status(sent: Json, name: str) -> str:
    found = sent.get(name)
    return found if isinstance(found, str) and found in vocabulary.STATUSES else vocabulary.INITIALIZED


def _sent_number(sent: Json, name: str) -> int:
    found = sent.get(name)
    return found if type(found) is int else 0


def schedule_time(job: Job) -> Json:
    return schedules.shown_for(job, sent_with(job).get("schedule_time"))


def _standing(job: Job, at: Standing, side: Side) -> Json:
    """When it runs and how it went. What was sent is shown until the first run, or the first that ended."""
    sent = sent_with(job)
    last = vocabulary.status(at.ended, side) if at.ended else _sent_status(sent, "last_status")
    now = vocabulary.status(at.latest, side) if at.latest else _sent_status(sent, "current_status")
    waits = at.latest is not None and at.latest.state in vocabulary.WAITING
    return {
        # What waits in the queue is run next; the moment after it counts from then on.
        "next_run_time": schedules.milliseconds(at.latest.due_at)
        if at.latest and waits
        else schedules.next_run_time(job),
        "last_sync_status": last,
        "current_sync_status": now,
        "schedule_time": schedule_time(job),
    }


# ── lake jobs ──────────────────────────────────────────────────────────────────────────────────────


def lake_job(job: Job, at: Standing, *, is_for_worker: bool = False) -> Json:
    """Workers get the secrets, people do not."""
    sent = sent_with(job)
    ended = at.ended.finished_at if at.ended else None
    spec = job.spec if is_for_worker else shown_spec(job.kind, job.spec)
    found = {
        "class_name": vocabulary.CLASSES.get(job.kind, vocabulary.UNSUPPORTED),
        "org_id": job.org,
        "job_id": job.id,
        "creator_id": job.owner,
        "display_name": job.name,
        "job_type": vocabulary.JOB_TYPES.get(job.kind, vocabulary.OTHERS),
        "last_run_time": schedules.milliseconds(ended) if ended else _sent_number(sent, "last_run_time"),
        **_standing(job, at, "lake"),
    }
    if yarn := sent.get("yarn_app_id"):
        found["yarn_app_id"] = yarn
    return {**found, **(_OWN[job.kind](spec) if job.kind in _OWN else {"kind": job.kind})}


def _project(spec: Json) -> Json:
    source = spec["source"]
    found = {"git_url": source["url"]}
    if "private_key" in source:
        own = {"class_name": "ssh_clone_info", "url": source["url"], "private_key": source["private_key"]}
        found["git_clone_info"] = own
    elif "username" in source or "password" in source:
        own = {"username": source.get("username", ""), "password": source.get("password", "")}
        found["git_clone_info"] = {"class_name": "http_clone_info", "url": source["url"], **own}
    return found | ({"branch": source["branch"]} if "branch" in source else {})


def _java(spec: Json) -> Json:
    return {**_project(spec), **{name: value for name, value in spec.items() if name != "source"}}


def _sql(spec: Json) -> Json:
    return {"query_info": {"query": spec["query"], "outputs": [_output(each) for each in spec.get("outputs", ())]}}


def _output(output: Json) -> Json:
    mode = output.get("mode", "append")
    if output["to"] == "clickhouse":
        own = {"database": output["database"], "table_name": output["table"], "write_mode": mode}
        return {"type": "datainsider", "config": {"class_name": "clickhouse_config", **own}}
    own = {"hdfs_uri": output["uri"]} if "uri" in output else {}
    own |= {"result_path": output["path"]} | ({"write_mode": mode} if "mode" in output else {})
    return {"type": "text_file", "config": {"class_name": "hadoop_config", **own}}


_OWN = {"git_java": _java, "git_python": _java, "spark_sql": _sql}


def lake_history(it: Try, loan: Loan | None, heard_at: Moment) -> Json:
    """One row for each attempt. `heard_at`: when whoever works at it was last known to."""
    said = {} if it.past else last_words(it.run, loan)
    found = {
        "run_id": vocabulary.wire_id(it.run.id, it.number),
        "job_id": it.run.job_id,
        "job_name": it.name,
        **_times(it, said, heard_at),
        "job_status": vocabulary.status_of_try(it, "lake"),
        "message": _message(it, said),
    }
    if yarn := said.get("yarn_app_id"):
        found["log_path"] = f"{LOGS}/{yarn}"
    return found


def _message(it: Try, said: Json) -> str:
    if it.past is not None:
        return it.past.message or _PAST.get(it.past.reason, it.past.reason)
    return it.run.message or said.get("message", "")


_PAST = {"lost": "whoever worked at it fell silent; it is given to another", "timeout": "it took too long"}


def last_words(run: Run, loan: Loan | None) -> Json:
    """Return what the worker of a run said last, in the words of this contract."""
    if loan and not run.state.is_terminal:
        return loan.progress or {}
    found = run.result if run.state.is_terminal else run.progress
    return {**_own_words(run, found), **found} if isinstance(found, dict) else {}


def _own_words(run: Run, said: Json) -> Json:
    """Return what our own agents say of work on data."""
    rows, step = said.get("rows"), progress_words(run.progress) if run.progress else ""
    found: Json = {} if type(rows) is not int else {"total_sync_record": rows}
    if run.started_at and run.finished_at:
        found["total_execution_time"] = schedules.milliseconds(run.finished_at - run.started_at)
    return {**found, **cursor_words(said.get("cursor")), **({"message": step} if step else {})}


# What a worker would call its reports; where the class of a job is not known, the last one.
_PROGRESS = {
    "google_sheets_job": "google_sheet_progress", "mongo_db_job": "mongodb_progress",
    "shopify_job": "shopify_job_progress", "java_job": "java_job_progress", "python_job": "python_job_progress",
    "sql_job": "sql_job_progress",
}  # fmt: skip
_OTHER_PROGRESS = "job_progress_impl"


def progress(run: Run, job: Job, side: Side, now: Moment) -> Json:
    """Return how far a run of our own agents is, as a worker would report it."""
    name = vocabulary.CLASSES.get(job.kind) or translation.shown_class(job, sent_with(job))
    began = run.started_at or run.created_at
    own = {
        "class_name": _PROGRESS.get(name) or (name.replace("_job", "_progress") if "_job" in name else _OTHER_PROGRESS),
        "org_id": job.org,
        "run_id" if side == "lake" else "sync_id": vocabulary.wire_id(run.id, last_attempt(run, ())),
        "job_id": job.id,
        "start_time": schedules.milliseconds(began),
        "updated_time": schedules.milliseconds(now),
        "job_status": vocabulary.status(run, side),
    }
    amounts = {"total_sync_record": 0, "total_execution_time": schedules.milliseconds(now - began)}
    said = _own_words(run, run.progress or {})
    return {**own, **({} if side == "lake" else amounts), **said}


def _times(it: Try, said: Json, heard_at: Moment) -> Json:
    """When it began to wait, when something was last known of it, and when it ended."""
    ended = _ended_at(it)
    updated = schedules.milliseconds(ended or (heard_at if it.run.state is State.RUNNING else it.since_at))
    if ended is None and type(said.get("updated_time")) is int:
        updated = max(updated, said["updated_time"])
    return {
        "start_time": schedules.milliseconds(it.since_at),
        "updated_time": updated,
        "end_time": schedules.milliseconds(ended) if ended else 0,
    }


def _ended_at(it: Try) -> Moment | None:
    if it.past is not None:
        return it.past.finished_at
    return it.run.finished_at if it.run.state.is_terminal else None


# ── sync jobs ──────────────────────────────────────────────────────────────────────────────────────


def sync_job(job: Job, at: Standing, result: Any, cursor: Cursor | None, *, is_for_worker: bool = False) -> Json:
    """`result` is what its last success left, `cursor` where the next run goes on."""
    spec, sent = job.spec if is_for_worker else shown_spec(job.kind, job.spec), sent_with(job)
    done = result if isinstance(result, dict) else {}
    synced = done.get("updated_time")
    class_name = translation.shown_class(job, sent)
    found = {
        "class_name": class_name,
        "org_id": job.org,
        "job_id": job.id,
        "display_name": job.name,
        "job_type": connectors.job_type(class_name),
        "creator_id": job.owner,
        "last_modified": schedules.milliseconds(job.updated_at),
        "sync_mode": connectors.MODES_SHOWN[spec["mode"]],
        "source_id": spec.get("source_id", 0),
        "last_successful_sync": synced
        if type(synced) is int
        else _last_success(at) or _sent_number(sent, "last_run_time"),
        "sync_interval_in_mn": _sent_number(sent, "sync_interval_in_mn"),
        **_standing(job, at, "sync"),
        **translation.shown_destinations(spec),
    }
    own = translation.shown_own(class_name, spec)
    return {**resumed(own, cursor), **found}


def _last_success(at: Standing) -> int:
    """Of a job that Horae's own agents run."""
    ended = at.ended
    return schedules.milliseconds(ended.finished_at or 0) if ended and ended.state is State.SUCCEEDED else 0


def resumed(options: Json, cursor: Cursor | None) -> Json:
    """Return what a class of sync has of its own, with where the next run goes on: where the last success or somebody
    left it, and, before either, where the job says."""
    if cursor is None:
        return options
    if cursor.value is None:
        return {name: "" if name == "last_synced_value" else value for name, value in options.items()}
    return {**options, **cursor_words(cursor.value)}


def sync_history(it: Try, loan: Loan | None, heard_at: Moment) -> Json:
    said = {} if it.past else last_words(it.run, loan)
    return {
        "sync_id": vocabulary.wire_id(it.run.id, it.number),
        "job_id": it.run.job_id,
        "job_name": it.name,
        "last_sync_time": schedules.milliseconds(it.since_at),
        "total_synced_time": _sent_number(said, "total_execution_time") or _worked(it, heard_at),
        "sync_status": vocabulary.status_of_try(it, "sync"),
        "total_rows_inserted": _sent_number(said, "total_sync_record"),
        "message": _message(it, said),
    }


def _worked(it: Try, heard_at: Moment) -> int:
    """Milliseconds from the begin of an attempt to its end, or until now."""
    began = it.run.started_at if it.past is None else it.past.started_at
    until = _ended_at(it) or (heard_at if it.run.state is State.RUNNING else None)
    return schedules.milliseconds(max(0, until - began)) if began and until else 0


def source(it: Source, config: Json) -> Json:
    return {
        "class_name": it.kind,
        "org_id": it.org,
        "id": it.id,
        "display_name": it.name,
        **translation.shown_config(it.kind, config),
        "creator_id": it.owner,
        "last_modify": schedules.milliseconds(it.updated_at),
    }
