"""What an assistant may change, where `--allow-writes` was given: with the rights of its user, and nothing more."""

from __future__ import annotations

import hmac
from functools import partial
from typing import TYPE_CHECKING, Any

from horae.cli.assistants.answers import Found
from horae.cli.assistants.tools import DOCUMENT, JOB, LARGEST_ID, RUN, Tool, read_document, seal, short_run, text
from horae.errors import Conflict

if TYPE_CHECKING:
    from horae.client import SyncClient

Json = dict[str, Any]

MOST_AGAIN = 100  # runs that are run again by one call


def run_job(client: SyncClient, asked: Json) -> Found:
    job = client.json.find_job(asked["job"])
    made = client.json.run_now(
        job["id"], data=asked["data"], run_at=asked["run_at"], key=asked["idempotency_key"] or ""
    )
    return Found(short_run({**made, "job_name": job["name"]}))


def change_job(verb: str, client: SyncClient, asked: Json) -> Found:
    job = getattr(client.json, verb)(client.json.find_job(asked["job"])["id"])
    return Found({name: job[name] for name in ("id", "name", "paused", "version")})


def change_run(verb: str, client: SyncClient, asked: Json) -> Found:
    return Found(short_run(getattr(client.json, verb)(asked["run"])))


def decide(verb: str, client: SyncClient, asked: Json) -> Found:
    return Found(short_run(getattr(client.json, verb)(asked["run"], asked["comment"] or "")))


def rerun(client: SyncClient, asked: Json) -> Found:
    answers = client.json.rerun(asked["runs"], key=asked["idempotency_key"] or "")["items"]
    return Found([{**one, "run": short_run(one["run"])} if "run" in one else one for one in answers])


def submit(client: SyncClient, asked: Json) -> Found:
    """Only what was checked: a document that differs in one character was not."""
    if not hmac.compare_digest(asked["checked"].encode(), seal(asked["document"]).encode()):
        hint = "call check_document with the same document, look at what it would change, and give back its `checked`"
        raise Conflict("this document was not checked", code="E_CONFLICT", hint=hint)
    body, content_type = read_document(asked["document"])
    made = client.json.submit(body, content_type)
    return Found([{name: job[name] for name in ("id", "name", "key", "version")} for job in made["jobs"]])


_KEY = text("Of your choice: the same key again gives the same run, and makes no second one.")
_COMMENT = text("Why, for whoever reads it later.", 1000)

WRITING = (
    Tool("run_job", "Run a job", "Run a job now, or once at a later moment. Its overlap policy may skip the run: look "
         "at the state in the answer.",
         run_job,
         {"job": JOB, "data": {"type": "object", "description": "Data for this run; else that of the job."},
          "run_at": text("An RFC 3339 moment; else now."), "idempotency_key": _KEY}, ("job",), writes=True),
    Tool("cancel_run", "Cancel a run", "Cancel a run: one that waits ends at once, one that runs when all its "
         "processes are gone.",
         partial(change_run, "cancel"), {"run": RUN}, ("run",), writes=True, destroys=True, repeats=True),
    Tool("pause_job", "Pause a job", "Pause a job: it does not fire until it is resumed.",
         partial(change_job, "pause"), {"job": JOB}, ("job",), writes=True, destroys=True, repeats=True),
    Tool("resume_job", "Resume a job", "Let a paused job go on.",
         partial(change_job, "resume"), {"job": JOB}, ("job",), writes=True, repeats=True),
    Tool("rerun_runs", "Run runs again", "Run runs that have ended again, from the beginning, with the data they had.",
         rerun,
         {"runs": {"type": "array", "description": "Ids of runs.", "maxItems": MOST_AGAIN, "minItems": 1,
                   "items": {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}}, "idempotency_key": _KEY},
         ("runs",), writes=True),
    Tool("retry_run", "Go on with a workflow", "Go on with a workflow that failed: a new run takes over the tasks that "
         "succeeded, and does the others again.",
         partial(change_run, "retry"), {"run": RUN}, ("run",), writes=True),
    Tool("approve_run", "Approve a run", "Approve a run that waits for it: it goes on. Ask the user first.",
         partial(decide, "approve"), {"run": RUN, "comment": _COMMENT}, ("run",), writes=True),
    Tool("reject_run", "Reject a run", "Reject a run that waits for an approval: it fails.",
         partial(decide, "reject"), {"run": RUN, "comment": _COMMENT}, ("run",), writes=True, destroys=True),
    Tool("submit_document", "Submit a job document", "Create the jobs of a document, or change those whose key is "
         "there. The document must have been checked by check_document, and be the same to the letter.",
         submit,
         {"document": DOCUMENT, "checked": text("`checked` of the answer of check_document.", 64)},
         ("document", "checked"), writes=True, destroys=True, repeats=True),
)  # fmt: skip
