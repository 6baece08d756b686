"""Horae as Python calls within one process: job documents in, runs out, no server between.

What programs are given is plain: moments are datetimes in UTC, states are words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from horae.core import model
from horae.core.model import JobFilter, Json, Moment, Page, RunFilter
from horae.core.work import specs
from horae.errors import ConfigError, Conflict, Invalid, NotFound
from horae.handlers import Handler, handler_of
from horae.service.insight.views import Insight
from horae.service.jobs import Jobs
from horae.web import documents

PAGE = 1000  # rows read at once
LOG_BYTES = 16 * 1024 * 1024  # of a log in one answer: more than any attempt may write

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATES = {state.word: state for state in model.State}

Document = Mapping[str, Any] | str | Path  # a job document, YAML or JSON text, or a file of it


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it stands."""

    id: int
    name: str
    key: str | None
    kind: str
    paused: bool
    next_at: datetime | None  # the soonest moment of its triggers


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it stands, or has ended."""

    id: int
    job_id: int
    due_at: datetime
    state: str
    reason: str
    attempt: int
    data: Json | None
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    message: str
    result: Any
    progress: Json | None

    @property
    def has_ended(self) -> bool:
        return _STATES[self.state].is_terminal


def as_datetime(moment: Moment) -> datetime:
    return _EPOCH + timedelta(microseconds=moment)


def _when(moment: Moment | None) -> datetime | None:
    return None if moment is None else as_datetime(moment)


def job_of(job: model.Job) -> Job:
    soonest = min((trigger.next_at for trigger in job.triggers if trigger.next_at is not None), default=None)
    return Job(job.id, job.name, job.key, job.kind, job.paused, _when(soonest))


def run_of(run: model.Run) -> Run:
    return Run(
        run.id, run.job_id, as_datetime(run.due_at), run.state.word, str(run.reason), run.attempt, run.data,
        _when(run.started_at), _when(run.finished_at), run.exit_code, run.message, run.result, run.progress,
    )  # fmt: skip


class OwnHandlers:
    """Handlers that a program gave as functions, by the names under which jobs find them."""

    def __init__(self) -> None:
        self._by_name: dict[str, Handler] = {}

    def add(self, origin: Any) -> str:
        """Return the name of a handler. One that was defined within a function has none that could be imported."""
        found = handler_of(origin)
        name = found.name.replace(".<locals>", "")
        self._by_name[name] = found
        return name

    def get(self, name: str) -> Handler | None:
        return self._by_name.get(name)


class LocalCalls:
    """What a program does with the jobs of its own process."""

    def __init__(self, jobs: Jobs, insight: Insight, name_handler: Callable[[Any], str]) -> None:
        """`name_handler` returns the name of a handler that stands in a document as the function itself."""
        self._jobs = jobs
        self._insight = insight
        self._name_handler = name_handler

    async def submit(self, document: Document) -> Job:
        """Create a job, or replace the one with its key."""
        drafts = specs.parse_jobs(self._read(document))
        if len(drafts) != 1:
            raise Invalid(f"one job expected, got {len(drafts)}: nothing was submitted", hint="submit_all takes many")
        return job_of((await self._jobs.submit(drafts)).jobs[0])

    async def submit_all(self, document: Document) -> list[Job]:
        """Create the jobs of a document, all of them or none."""
        drafts = specs.parse_jobs(self._read(document))
        return [job_of(job) for job in (await self._jobs.submit(drafts)).jobs]

    def _read(self, document: Document) -> Any:
        if isinstance(document, Path):
            return documents.read_yaml(_content(document))
        if isinstance(document, str):
            return documents.read_yaml(document.encode())
        listed = document.get("jobs")
        if isinstance(listed, list):
            return {**document, "jobs": [self._named(one) for one in listed]}
        return self._named(document)

    def _named(self, job: Any) -> Any:
        if isinstance(job, Mapping) and callable(job.get("handler")):
            return {**job, "handler": self._name_handler(job["handler"])}
        return job

    async def find(self, job: Job | int | str) -> int:
        """Return the id of a job: by itself, its id, its key or its name."""
        if not isinstance(job, str):
            return job.id if isinstance(job, Job) else job
        for where in (JobFilter(key=job), JobFilter(named=job)):
            found = (await self._jobs.list(where, None, 2)).items
            if len(found) > 1:
                raise Conflict(f"several jobs are named {job!r}", hint="give the id, or the key of one of them")
            if found:
                return int(found[0].id)
        raise NotFound(f"no job has the key or the name {job!r}")

    async def run_now(self, job: Job | int | str, data: Json | None = None) -> Run:
        """Make a run that is due now; the job's overlap policy holds, so it may be skipped."""
        return run_of(await self._jobs.run_now(await self.find(job), data=data))

    async def cancel(self, run: Run | int) -> Run:
        return run_of(await self._jobs.cancel(_id_of(run)))

    async def signal(self, run: Run | int, name: str, value: Any = None) -> Run:
        """Tell a run what it waits for, or will."""
        text = msgspec.json.encode(value).decode()
        return run_of(await self._jobs.signals.send(_id_of(run), name, text, "local"))

    async def pause(self, job: Job | int | str) -> Job:
        return job_of(await self._jobs.set_paused(await self.find(job), True))

    async def resume(self, job: Job | int | str) -> Job:
        return job_of(await self._jobs.set_paused(await self.find(job), False))

    async def delete(self, job: Job | int | str) -> None:
        await self._jobs.delete(await self.find(job))

    async def run(self, run: Run | int) -> Run:
        """Return a run as it stands now."""
        return run_of(await self._jobs.get_run(_id_of(run)))

    async def jobs(self) -> list[Job]:
        """Return all jobs, in the order in which they were made."""
        found = await self._all(lambda cursor: self._jobs.list(JobFilter(), cursor, PAGE))
        return sorted((job_of(job) for job in found), key=lambda job: job.id)

    async def runs(self, job: Job | int | str | None = None, state: str | None = None) -> list[Run]:
        """Return the runs of a job, or of all, in the order of their moments."""
        where = RunFilter(None if job is None else await self.find(job), states=_states(state), tasks=True)
        found = await self._all(lambda cursor: self._jobs.list_runs(where, cursor, PAGE))
        return sorted((run_of(run) for run in found), key=lambda run: (run.due_at, run.id))

    async def _all(self, load: Callable[[str | None], Awaitable[Page]]) -> list[Any]:
        page = await load(None)
        found = page.items
        while page.cursor is not None:
            page = await load(page.cursor)
            found += page.items
        return found

    async def log(self, run: Run | int, attempt: int | None = None) -> str:
        """Return what an attempt wrote: the latest, unless another is named."""
        piece = await self._insight.read_log(_id_of(run), attempt=attempt, offset=0, limit=LOG_BYTES)
        return piece.data.decode(errors="replace")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the job file {path} cannot be read: {error.strerror}", code="E_FILE") from None


def _id_of(run: Run | int) -> int:
    return run.id if isinstance(run, Run) else run


def _states(word: str | None) -> tuple[model.State, ...]:
    if word is None:
        return ()
    if word not in _STATES:
        raise Invalid(f"a state is one of {', '.join(_STATES)}; got {word!r}", code="E_ENUM", path="state")
    return (_STATES[word],)
