"""What an assistant may read: each tool is a row with its schema, and one or two calls of the API."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from horae.cli.assistants.answers import LOG_CHARACTERS, Found, cut, without_nothing
from horae.cli.when import read_when
from horae.errors import Invalid

if TYPE_CHECKING:
    from horae.client import SyncClient

Json = dict[str, Any]
Act = Callable[["SyncClient", Json], Found]

LARGEST_ID = 2**63 - 1
PAGE, MOST_OF_PAGE = 20, 50
LOG_LINES, MOST_LOG_LINES = 50, 1000
MOST_READ = 8 << 20  # bytes of a log that are looked through: one that is being written has no end
MOST_DOCUMENT = 500_000  # characters of a document
STATES = "queued, blocked, running, succeeded, failed, timed_out, cancelled, skipped, coalesced"


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    title: str
    description: str
    act: Act
    takes: Mapping[str, Json] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    writes: bool = False
    destroys: bool = False  # of one that writes: whether something ends by it
    repeats: bool = False  # of one that writes: whether a second time changes nothing more

    def as_document(self) -> Json:
        schema = {"type": "object", "properties": dict(self.takes), "additionalProperties": False}
        hints = {"title": self.title, "readOnlyHint": not self.writes, "openWorldHint": False}
        if self.writes:
            hints |= {"destructiveHint": self.destroys, "idempotentHint": self.repeats}
        return {
            "name": self.name, "title": self.title, "description": self.description,
            "inputSchema": {**schema, **({"required": list(self.needs)} if self.needs else {})}, "annotations": hints,
        }  # fmt: skip


# ── what tools take ──


def text(description: str, most: int = 200, **more: Any) -> Json:
    return {"type": "string", "description": description, "maxLength": most, "minLength": 1, **more}


def number(description: str, least: int, most: int, **more: Any) -> Json:
    return {"type": "integer", "description": description, "minimum": least, "maximum": most, **more}


def flag(description: str, **more: Any) -> Json:
    return {"type": "boolean", "description": description, **more}


JOB = text("Id, key or unique name of a job.")
RUN = number("Id of a run.", 1, LARGEST_ID)
LIMIT = number("How many to list.", 1, MOST_OF_PAGE, default=PAGE)
CURSOR = text("`next.cursor` of the page before, with the same other arguments.", 500)
_WHEN = "how long ago (30m, 2h, 1d), a date (2027-03-28) or an RFC 3339 moment"


# ── jobs and runs ──

_OF_JOB = ("id", "name", "key", "owner", "kind", "paused", "triggers")
_OF_TRIGGER = ("id", "description", "enabled", "next_at", "last_at")
_OF_RUN = (
    "id", "job_id", "job_name", "trigger_id", "parent_id", "task", "state", "reason", "phase", "due_at", "late_ms",
    "started_at", "finished_at", "eligible_at", "attempt", "node", "exit_code", "message", "into_run_id",
)  # fmt: skip


def list_jobs(client: SyncClient, asked: Json) -> Found:
    page = client.json.jobs(**asked)
    return Found([_job(one) for one in page["items"]], following=page["cursor"])


def _job(job: Json) -> Json:
    triggers = [without_nothing(one, _OF_TRIGGER) for one in job.get("triggers") or []]
    return without_nothing({**job, "triggers": triggers}, _OF_JOB)


def show_job(client: SyncClient, asked: Json) -> Found:
    return Found(client.json.find_job(asked["job"]))


def list_runs(client: SyncClient, asked: Json) -> Found:
    job, since, until = (asked.pop(name) for name in ("job", "since", "until"))
    if job:
        asked["job_id"] = client.json.find_job(job)["id"]
    page = client.json.runs(**asked, due_from=_moment("since", since), due_until=_moment("until", until))
    return Found([short_run(one) for one in page["items"]], following=page["cursor"])


def short_run(run: Json) -> Json:
    return without_nothing(run, _OF_RUN)


def _moment(name: str, words: str | None) -> str | None:
    return None if words is None else read_when(name, words)


def show_run(client: SyncClient, asked: Json) -> Found:
    run = client.json.run(asked["run"])
    lines = asked["log_lines"]
    return Found(run, log=read_log(client.log(run["id"], tail=lines)) if lines else None)


def show_log(client: SyncClient, asked: Json) -> Found:
    which = {name: asked[name] for name in ("attempt", "tail", "grep")}
    return Found({"run": asked["run"]}, log=read_log(client.log(asked["run"], **which)))


def read_log(pieces: Iterator[bytes], most: int = LOG_CHARACTERS) -> str:
    """Return the end of a log, and say so where something of it is left out."""
    kept: deque[bytes] = deque()
    held = seen = 0
    for piece in pieces:
        kept.append(piece)
        held, seen = held + len(piece), seen + len(piece)
        while held - len(kept[0]) >= 4 * most:  # bytes of a character
            held -= len(kept.popleft())
        if seen >= MOST_READ:
            break
    words = b"".join(kept).decode(errors="replace")
    before = seen - held + len(words[:-most].encode())
    shown = f"[truncated: {before} bytes before this are left out]\n{words[-most:]}" if before else words
    return f"{shown}\n[truncated: there may be more]" if seen >= MOST_READ else shown


# ── why, and what is to come ──


def explain(client: SyncClient, asked: Json) -> Found:
    named = {name: asked[name] for name in ("run", "job", "trigger") if asked[name] is not None}
    if len(named) != 1:
        raise Invalid("exactly one of run, job and trigger expected", code="E_FIELD_CONFLICT", path="arguments")
    at = asked["at"]
    if "run" in named:
        if at is not None:
            hint = "explain its job, or leave `at` out"
            raise Invalid("a run has its own moment: `at` is for jobs and triggers", code="E_FIELD_CONFLICT", hint=hint)
        return Found(client.json.explain_run(named["run"]))
    if "trigger" in named:
        return Found(client.json.explain_trigger(named["trigger"], at=at))
    return Found(client.json.explain_job(client.json.find_job(named["job"])["id"], at=at))


def forecast(client: SyncClient, asked: Json) -> Found:
    return Found(client.json.forecast(asked["hours"], start_at=asked["from"], by=asked["by"], limit=asked["limit"]))


# ── the cluster ──


def list_all(call: str, client: SyncClient, _: Json) -> Found:
    return Found(getattr(client.json, call)()["items"])


def list_events(client: SyncClient, asked: Json) -> Found:
    job, since, kinds, cursor = (asked.pop(name) for name in ("job", "since", "kinds", "cursor"))
    asked["job"] = client.json.find_job(job)["id"] if job else None
    begin = None if cursor else read_when("since", since)
    page = client.json.event_page(**asked, after=cursor, since=begin, kinds=[kinds] if kinds else ())
    items = [{**_told(one), **{name: one[name] for name in ("time", "type", "subject")}} for one in page["items"]]
    return Found(items, following=page["cursor"] if len(items) == asked["limit"] else None)


def _told(event: Json) -> Json:
    data = {name: value for name, value in event["data"].items() if name != "trace_id" and value not in (None, "")}
    return {name: cut(value, 300) if isinstance(value, str) else value for name, value in data.items()}


def check_document(client: SyncClient, asked: Json) -> Found:
    """What a submit would do. With its answer comes what shows that it was asked for."""
    body, content_type = read_document(asked["document"])
    return Found({**client.json.plan_submit(body, content_type), "checked": seal(asked["document"])})


def read_document(document: str) -> tuple[bytes, str]:
    is_json = document.lstrip()[:1] in ("{", "[")
    return document.encode(), "application/json" if is_json else "application/yaml"


def seal(document: str) -> str:
    """Return what belongs to this very document, and is known only to whoever had it checked."""
    import hashlib

    return hashlib.sha256(document.encode()).hexdigest()[:16]


DOCUMENT = text("One job document, or several, in YAML or JSON, as `horae submit` takes it.", MOST_DOCUMENT)

READING = (
    Tool("list_jobs", "List jobs", "List jobs, the newest first: id, name, key, kind, triggers and their next moments.",
         list_jobs,
         {"name": text("Only those whose name holds this text."), "kind": text("Only of this kind, such as shell."),
          "owner": text("Only of this owner."), "paused": flag("Only those that are paused, or are not."),
          "limit": LIMIT, "cursor": CURSOR}),
    Tool("show_job", "Show a job", "Show the whole document of one job: what it does, its policies and its triggers.",
         show_job, {"job": JOB}, ("job",)),
    Tool("list_runs", "List runs", "List runs, the newest first: state, reason, times, exit code, message.",
         list_runs,
         {"job": JOB, "state": text(f"One state or several with commas, of: {STATES}."),
          "since": text(f"Due since: {_WHEN}."), "until": text("Due before; written as since is."),
          "node": text("Only what this node runs or ran last."),
          "parent": number("Only the tasks of this run of a workflow.", 1, LARGEST_ID),
          "tasks": flag("Tasks of workflows too."), "limit": LIMIT, "cursor": CURSOR}),
    Tool("show_run", "Show a run", "Show one run with its earlier attempts, its result and the end of its log.",
         show_run,
         {"run": RUN, "log_lines": number("Lines of the end of its log.", 0, MOST_LOG_LINES, default=LOG_LINES)},
         ("run",)),
    Tool("show_log", "Read the log of a run", "Read the last lines of what a run wrote, or those that hold a text.",
         show_log,
         {"run": RUN, "attempt": number("Of this attempt; else of the latest.", 1, 2**31 - 1),
          "tail": number("So many lines at its end.", 1, MOST_LOG_LINES, default=200),
          "grep": text("Of these lines, those that hold this text.", 1000)}, ("run",)),
    Tool("explain", "Say why", "Say why a run, a job or a trigger is as it is: what it waits for, which policy "
         "decided, what would change it, how a run ended; with `at`, why there was a run at a moment, or none. Name "
         "exactly one of the three.",
         explain,
         {"run": RUN, "job": JOB, "trigger": number("Id of a trigger.", 1, LARGEST_ID),
          "at": text("An RFC 3339 moment; without an offset, as clocks in the zone of the trigger show it.")}),
    Tool("forecast", "Foretell runs", "Foretell the runs of the next hours: how many, how many at once, how late, "
         "where slots or limits run out, which schedules clash.",
         forecast,
         {"hours": number("Hours to look ahead.", 1, 744, default=24),
          "from": text("Where to begin, an RFC 3339 moment; else now."),
          "by": text("What to list.", enum=["job", "queue", "owner"], default="job"),
          "limit": number("How many of them.", 1, 100, default=10)}),
    Tool("list_queues", "List queues", "List queues, their limits, and what waits and runs in each.",
         partial(list_all, "queues")),
    Tool("list_nodes", "List nodes", "List nodes, dead ones too: roles, slots, what they can run, what ails them.",
         partial(list_all, "nodes")),
    Tool("list_events", "List events", "List what happened, the oldest first: transitions of jobs, triggers, runs, "
         "nodes, segments, queues and settings.",
         list_events,
         {"since": text(f"From then on: {_WHEN}.", default="1h"),
          "kinds": text("One kind or several with commas, such as run.finished,node.gone.", 1000),
          "job": JOB, "run": RUN, "limit": LIMIT, "cursor": CURSOR}),
    Tool("list_approvals", "List approvals", "List the runs that wait for an approval of yours.",
         partial(list_all, "approvals")),
    Tool("check_document", "Check a job document", "Check a job document, and say what submitting it would create or "
         "change. Nothing is changed. `checked` of the answer is what submit_document asks for.",
         check_document, {"document": DOCUMENT}, ("document",)),
)  # fmt: skip
