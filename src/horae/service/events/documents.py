"""Events as CloudEvents: what was true then, from the event itself, and what belongs to it for ever, looked up.

Looked up is only what does not change: when a run was due, what its attempt of that fence did and where, how it ended.
What retention has removed meanwhile is left out. Names are those of today.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

from horae.core.events import Event
from horae.core.members import owner_of
from horae.core.model import Attempt, Job, Json, Run
from horae.core.policy import breaker
from horae.core.runs import traces
from horae.core.time import moments
from horae.ports.store.cluster import Nodes
from horae.ports.store.definitions import Definitions
from horae.ports.store.queues import Queues
from horae.ports.store.runs import Runs
from horae.service.roots import Roots

LONGEST_MESSAGE = 10_000  # characters: an event that a broker refuses would hold up all others
PRIVATE = ("setting.", "alert.")  # begin the kinds of which, without a job, only whoever runs the server hears
ALERT = "alert."
NOBODY = 0  # in place of an organisation: that of a queue or a node that is gone, which nobody knows any more


class DetailStore(Runs, Definitions, Queues, Nodes, Protocol):
    """What events are about."""


class Told(NamedTuple):
    """An event as it is told, and to whom."""

    event: Event
    org: int | None  # that of its job, queue or node; None: of none, of the installation, or of a job that is gone
    document: Json

    def is_for(self, org: int | None) -> bool:
        return is_shown(self.event, self.org, org)


def is_shown(event: Event, of_job: int | None, org: int | None) -> bool:
    """Return whether somebody of an organisation may see an event, by the organisation of its job; None is whoever runs
    the server."""
    if org is None or event.job_id is not None:
        return org in (None, of_job)
    return not event.kind.startswith(PRIVATE) and of_job in (None, org)


class Documents:
    def __init__(self, store: DetailStore, installation: str = "") -> None:
        """`installation` is its part of trace ids, and of the source of all its events."""
        self._store = store
        self._roots = Roots(store)
        self._installation = installation
        self._source = f"horae/{installation}" if installation else "horae"

    async def describe(self, events: Sequence[Event]) -> list[Told]:
        run_ids = sorted({event.run_id for event in events if event.run_id is not None})
        runs = {run.id: run for run in await self._store.load_runs(run_ids)} if run_ids else {}
        tried = sorted({e.run_id for e in events if e.run_id in runs and _needs_attempt(e, runs[e.run_id])})
        attempts = {(a.run_id, a.fence): a for a in await self._store.load_attempts(tried)} if tried else {}
        job_ids = sorted({event.job_id for event in events if event.job_id is not None})
        jobs = {job.id: job for job in await self._store.load_jobs(job_ids)} if job_ids else {}
        roots = await self._roots.find(runs.values())
        owners = await self._owners({event.kind.partition(".")[0] for event in events})
        return [self._told(event, runs, attempts, jobs, roots, owners) for event in events]

    async def _owners(self, subjects: Collection[str]) -> dict[tuple[str, str], int | None]:
        """Return to which organisations queues and nodes belong that are there, by kind and name."""
        found: dict[tuple[str, str], int | None] = {}
        if "queue" in subjects:
            found |= {("queue", queue.name): queue.org for queue in await self._store.list_queues()}
        if "node" in subjects:
            found |= {("node", node.name): owner_of(node) for node in await self._store.list_nodes()}
        return found

    async def trace_of(self, run: Run) -> str:
        """Return the id of the trace that a run is part of."""
        return traces.trace_id((await self._roots.find([run]))[run.id], self._installation)

    def _told(
        self, event: Event, runs: dict[int, Run], attempts: dict[tuple[int, int], Attempt], jobs: dict[int, Job],
        roots: dict[int, int], owners: dict[tuple[str, str], int | None],
    ) -> Told:  # fmt: skip
        job = jobs.get(event.job_id or 0)
        org = job.org if job else None
        if event.run_id is not None:
            key = (event.run_id, event.fence or 0)
            data = _run_data(event, runs.get(event.run_id), attempts.get(key), job)
            data = {"trace_id": traces.trace_id(roots.get(event.run_id, event.run_id), self._installation), **data}
        elif event.kind.startswith(ALERT):
            data = _alert_data(event, job)
        elif event.job_id is not None:
            data = _job_data(event, job)
        else:
            data, subject = _cluster_data(event), event.kind.partition(".")[0]
            org = owners.get((subject, event.name or ""), NOBODY) if subject in ("queue", "node") else None
        return Told(event, org, self._document(event, data))

    def _document(self, event: Event, data: dict[str, Any]) -> Json:
        return {
            "specversion": "1.0", "id": event.id, "source": self._source, "type": f"horae.{event.kind}",
            "subject": _subject(event), "time": moments.format_moment(event.at),
            "datacontenttype": "application/json", "data": data,
        }  # fmt: skip


def _needs_attempt(event: Event, run: Run) -> bool:
    """Whether an attempt before the latest one is told of."""
    return event.kind == "run.retrying" or (event.kind == "run.started" and run.fence != event.fence)


def _subject(event: Event) -> str:
    if event.run_id is not None:
        return f"runs/{event.run_id}"
    if event.trigger_id is not None:
        return f"triggers/{event.trigger_id}"
    if event.job_id is not None and not event.kind.startswith(ALERT):
        return f"jobs/{event.job_id}"
    return f"{event.kind.partition('.')[0]}s/{event.name}"


def _run_data(event: Event, run: Run | None, attempt: Attempt | None, job: Job | None) -> dict[str, Any]:
    assert event.state is not None
    data: dict[str, Any] = {
        "run": event.run_id, "job": event.job_id, "fence": event.fence, "state": event.state.word,
        "reason": event.reason,
    }  # fmt: skip
    if job is not None:
        data["name"] = job.name
    if run is None:
        return data
    data |= {"kind": run.kind, "due_at": moments.format_moment(run.due_at), "trigger": run.trigger_id}
    if run.parent_id is not None:
        data |= {"parent": run.parent_id, "task": run.task}
    if attempt is not None:
        return data | _attempt_data(event, attempt)
    if run.fence == event.fence and event.kind == "run.started":
        data |= {"attempt": run.attempt, "node": run.node}
    if event.kind == "run.finished":
        data |= {"attempt": run.attempt, "node": run.node, "exit_code": run.exit_code}
        data["message"] = run.message[:LONGEST_MESSAGE]
    return data


def _attempt_data(event: Event, attempt: Attempt) -> dict[str, Any]:
    data: dict[str, Any] = {"attempt": attempt.attempt, "node": attempt.node}
    if event.kind == "run.retrying":  # how the attempt ended; the run goes on
        data |= {"state": attempt.state.word, "reason": str(attempt.reason), "exit_code": attempt.exit_code}
        data["message"] = attempt.message[:LONGEST_MESSAGE]
    return data


def _job_data(event: Event, job: Job | None) -> dict[str, Any]:
    data: dict[str, Any] = {"job": event.job_id, "version": event.fence}
    if event.trigger_id is not None:
        data["trigger"] = event.trigger_id
    if job is not None:
        data |= {"name": job.name, "kind": job.kind}
        if event.kind == "job.submitted":
            data["triggers"] = [trigger.id for trigger in job.triggers]
        if event.kind == "job.paused" and job.version == event.fence and (why := breaker.paused_because(job)):
            data["because"] = why
    return data


def _alert_data(event: Event, job: Job | None) -> dict[str, Any]:
    rule, _, about = (event.name or "").partition("/")
    data: dict[str, Any] = {"rule": rule, "about": about}
    if event.job_id is not None:
        data["job"] = event.job_id
    return data if job is None else {**data, "name": job.name}


def _cluster_data(event: Event) -> dict[str, Any]:
    subject = event.kind.partition(".")[0]
    if subject == "segment":
        return {"node": event.name, "segments": list(event.segments)}
    data: dict[str, Any] = {subject: event.name}
    if event.fence is not None:
        data["term" if subject == "node" else "version"] = event.fence
    if event.reason:
        data["wanted" if subject == "node" else "state"] = event.reason
    return data
