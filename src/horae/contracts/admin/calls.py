"""The six calls of the administration contract, whatever protocol they come by.

Requests and answers are dictionaries with the contract's keys. What is sent beyond them is ignored, as its clients
expect; what is missing has the default that protocol buffers give it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from horae.contracts.admin import guids, vocabulary
from horae.contracts.admin.guids import Kind
from horae.core.definitions import Idempotency, Sort
from horae.core.fields import kind_of
from horae.core.identity import Principal
from horae.core.model import Job, JobFilter, Json, Run, RunFilter
from horae.core.runs import traces
from horae.core.work import specs
from horae.errors import Conflict, Invalid, Limited, NotFound, Unavailable
from horae.service import Services

LONGEST_LIST = 10_000  # jobs or triggers in one answer: lists of this contract have no pages
LARGEST_PAGE = 1000
LARGEST_INT32 = 2**31 - 1
NO_ANSWER = "FAILED_TO_GET_LOCK"  # the original's word for the active instance while its database is away
LONGEST_TEXT = 1000  # characters of an id or trace id; longer ones are nobody's


class Calls:
    def __init__(self, services: Services) -> None:
        self._services = services

    # ── what there is ──

    async def get_jobs(self, who: Principal, request: Any = None) -> Json:
        return {"Jobs": [vocabulary.job(job) for job in await self._all_jobs(who)]}

    async def get_triggers(self, who: Principal, request: Any = None) -> Json:
        jobs = await self._all_jobs(who)
        _refuse_many(sum(len(job.triggers) for job in jobs), "triggers")
        found = [
            vocabulary.trigger(trigger, job, names[trigger.id])
            for job in jobs
            for names in (vocabulary.trigger_names(job),)
            for trigger in job.triggers
        ]
        return {"Triggers": found}

    async def _all_jobs(self, who: Principal) -> Sequence[Job]:
        found = await self._services.jobs.search(JobFilter(org=who.org), [Sort("name")], 0, LONGEST_LIST)
        _refuse_many(found.total, "jobs")
        return sorted(found.items, key=lambda job: (job.name, job.id))

    # ── what has run ──

    async def get_job_statuses(self, who: Principal, request: Any) -> Json:
        fields = _fields(request)
        size, page = _positive(fields, "PageSize", LARGEST_PAGE), _positive(fields, "Page", LARGEST_INT32)
        wanted = _wanted_run(fields, self._services.local_node.installation)
        offset = (page - 1) * size
        if wanted is None:
            where = RunFilter(org=who.org, states=vocabulary.LISTED)
            rows = (
                await self._services.jobs.search_runs(where, [Sort("created_at", descending=True)], offset, size)
            ).items
        else:
            rows = (await self._rows_of(wanted, who))[offset : offset + size]
        return {"Items": await self._statuses(rows)}

    async def _rows_of(self, run_ids: set[int], who: Principal) -> list[tuple[Run, str]]:
        """Return the run that all filters agree upon, if there is one and it is theirs to see."""
        if len(run_ids) != 1:
            return []
        try:
            run = await self._services.jobs.get_run(min(run_ids))
            return [(run, (await self._services.jobs.get(run.job_id, org=who.org)).name)]
        except NotFound:
            return []

    async def _statuses(self, rows: Sequence[tuple[Run, str]]) -> list[Json]:
        jobs = await self._services.jobs.get_many(sorted({run.job_id for run, _ in rows})) if rows else ()
        known, installation = {job.id: job for job in jobs}, self._services.local_node.installation
        return [vocabulary.status(run, job_name, known.get(run.job_id), installation) for run, job_name in rows]

    # ── what can be done ──

    async def execute_job(self, who: Principal, request: Any, idempotency: Idempotency | None = None) -> Json:
        """Run a job on this very node, whether or not it schedules."""
        fields = _fields(request)
        named = _text(fields, "JobId", LONGEST_TEXT) or ""
        guids.keys_of(named)
        text = _text(fields, "JobData")
        data = None if text is None else specs.parse_data(text, "JobData")
        if "agent" not in self._services.local_node.roles:
            raise Unavailable(
                f"the node {self._services.local_node.node} runs no jobs: it has no agent",
                hint="call an instance that has the role agent",
            )
        job = await self._find_job(named, who)
        if job.paused:
            raise Conflict("the job is disabled (IsDisabled), and does not run until it is enabled", code="E_PAUSED")
        run = await self._services.jobs.run_now(
            job.id, data=data, node=self._services.local_node.node, idempotency=idempotency
        )
        return {"ScheduleJobStatusId": guids.guid(Kind.RUN, run.id)}

    async def _find_job(self, named: str, who: Principal) -> Job:
        """Return the job of a GUID: one that a client gave it, else one of ours."""
        for key in guids.keys_of(named):
            found = (await self._services.jobs.list(JobFilter(org=who.org, key=key), limit=1)).items
            if found:
                return cast(Job, found[0])
        return await self._services.jobs.get(guids.number_of(Kind.JOB, named), org=who.org)

    async def update_scheduler(self, who: Principal, request: Any = None) -> Json:
        self._services.local_node.reload()
        return {}

    async def get_instance_status(self, who: Principal, request: Any = None) -> Json:
        """Active is who schedules; where several do, each calls itself the active one."""
        active = await self._services.activity.look()
        name = NO_ANSWER if active.node is None else active.node
        return {"IsActiveInstance": active.is_here, "ActiveInstanceName": name}


# ── reading ────────────────────────────────────────────────────────────────────────────────────────


def _fields(request: Any) -> Json:
    if request is None:
        return {}
    if not isinstance(request, dict):
        raise Invalid(f"a JSON object is expected, got {kind_of(request)}", code="E_TYPE")
    return request


def _positive(fields: Json, name: str, most: int) -> int:
    value = fields.get(name)
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,10}", value):
        value = int(value)  # JSON of protocol buffers may write numbers as text
    if value is not None and type(value) is not int:
        raise Invalid(f"{name}: a whole number expected, got {type(value).__name__}", code="E_TYPE", path=name)
    if not 0 < (value or 0) <= most:
        got = "nothing" if value is None else value if abs(value) < 1 << 63 else "a larger number"
        raise Invalid(f"{name}: a number from 1 to {most} expected, got {got}", code="E_RANGE", path=name)
    return int(value or 0)


def _text(fields: Json, name: str, longest: int | None = None) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise Invalid(f"{name}: text expected, got {type(value).__name__}", code="E_TYPE", path=name)
    if value is not None and longest is not None and len(value) > longest:
        raise Invalid(f"{name}: at most {longest} characters expected, got {len(value)}", code="E_LEN", path=name)
    return value


def _wanted_run(fields: Json, installation: str) -> set[int] | None:
    """Return the runs that the filters name: more than one, or none, means that nothing matches. None: no filter."""
    trace, status_id = _text(fields, "TraceId", LONGEST_TEXT), _text(fields, "ScheduleJobStatusId", LONGEST_TEXT)
    wanted: set[int] = set()
    if trace:
        wanted.add(traces.run_of(trace, installation) or 0)
    if status_id:
        try:
            wanted.add(guids.number_of(Kind.RUN, status_id))
        except NotFound:  # as a filter it is no mistake, it just matches nothing
            wanted.add(0)
    return wanted or None


def _refuse_many(count: int, what: str) -> None:
    if count > LONGEST_LIST:
        raise Limited(
            f"there are {count} {what}, and this list has no pages: it ends at {LONGEST_LIST}",
            hint=f"use GET /v1/{what}, which has pages",
        )
