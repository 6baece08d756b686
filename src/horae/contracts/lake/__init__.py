"""Horae as the lake and sync interface (source document 0).

The contract has two halves that work alike: lake jobs (Java, Python and SQL projects, under /lake) and sync jobs,
which bring data from a source. Both have workers that pull their work. docs/reference/contract-lake.md tells what
is served, and where it differs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from horae.contracts.lake.api import LakeApi
from horae.contracts.lake.failures import SHAPE, credential
from horae.contracts.lake.jobs import LakeJobs
from horae.contracts.lake.sources import SourceTable
from horae.contracts.lake.sync import SyncJobs
from horae.contracts.lake.work import Work
from horae.core.roles import Permission
from horae.service import Services
from horae.web import http
from horae.web.streams import Streams

Row = Callable[..., http.Operation]


class Lake:
    def __init__(self, services: Services, streams: Streams) -> None:
        lake, sync = LakeApi(services, "lake"), LakeApi(services, "sync")
        self._lake, self._lake_jobs, self._lake_work = lake, LakeJobs(services, lake), Work(services, lake)
        self._sync, self._sync_jobs, self._sync_work = sync, SyncJobs(services, sync), Work(services, sync)
        self._sources = SourceTable(services)

    def operations(self) -> list[http.Operation]:
        row = partial(http.Operation, gives="application/json", shape=SHAPE, credential=credential, is_lenient=True)
        ping = row("GET", "/ping", _ping, tag="lake", summary="Whether somebody is there", is_open=True)
        return [ping, *self._lake_rows(row), *self._sync_rows(row), *self._source_rows(row)]

    def areas(self) -> list[http.Area]:
        own = ("/lake", "/job", "/source", "/history", "/schedule")
        return [http.Area(prefix, SHAPE, credential) for prefix in own]

    def _lake_rows(self, row: Row) -> list[http.Operation]:
        op, jobs, work, api = partial(row, tag="lake"), self._lake_jobs, self._lake_work, self._lake
        one, schedule = "/lake/job/{job_id}", "/lake/schedule"
        return [
            op("POST", "/lake/job/create", jobs.create, summary="Make a lake job", needs=Permission.WRITE),
            op("GET", one, jobs.get, summary="Read a lake job", needs=Permission.READ),
            op("PUT", one, jobs.replace, summary="Change a lake job", needs=Permission.WRITE),
            op("DELETE", one, api.delete, summary="Delete a lake job", needs=Permission.WRITE),
            op("POST", "/lake/job/list", api.list_jobs, summary="List lake jobs", needs=Permission.READ),
            op("POST", "/lake/history/list", api.list_history, summary="List runs of lake jobs", needs=Permission.READ),
            op(
                "GET",
                f"{schedule}/job/next",
                work.next,
                summary="Pull the next lake run, as a worker",
                needs=Permission.WORK,
            ),
            op(
                "POST",
                f"{schedule}/job/report",
                work.report,
                summary="Report on a lake run, as its worker",
                needs=Permission.WORK,
            ),
            op(
                "GET",
                f"{schedule}/job/progress",
                work.progress,
                summary="What workers of lake runs said last",
                needs=Permission.READ,
            ),
            op(
                "POST",
                f"{schedule}/start",
                jobs.start,
                summary="Start the scheduler, which is always running",
                needs=Permission.PAUSE,
            ),
            op("POST", f"{schedule}/stop", jobs.stop, summary="Empty the queue of lake runs", needs=Permission.CANCEL),
            op(
                "PUT",
                f"{schedule}/job/{{job_id}}/now",
                work.now,
                summary="Run a lake job now, or at a moment",
                needs=Permission.RUN,
            ),
            op(
                "PUT",
                f"{schedule}/job/{{job_id}}/kill",
                work.kill,
                summary="Cancel what is live of a lake job",
                needs=Permission.CANCEL,
            ),
        ]

    def _sync_rows(self, row: Row) -> list[http.Operation]:
        op, jobs, work, api = partial(row, tag="sync"), self._sync_jobs, self._sync_work, self._sync
        one, schedule = "/job/{job_id}", "/schedule/job"
        return [
            op("POST", "/job/create", jobs.create, summary="Make a sync job", needs=Permission.WRITE),
            op(
                "POST",
                "/job/multi_create",
                jobs.create_for_tables,
                summary="Make a sync job for each table",
                needs=Permission.WRITE,
            ),
            op(
                "POST",
                "/job/multi_create_jobs",
                jobs.create_many,
                summary="Make several sync jobs",
                needs=Permission.WRITE,
            ),
            op("POST", "/job/list", api.list_jobs, summary="List sync jobs", needs=Permission.READ),
            op("PUT", one, jobs.replace, summary="Change a sync job", needs=Permission.WRITE),
            op("DELETE", one, api.delete, summary="Delete a sync job", needs=Permission.WRITE),
            op(
                "DELETE",
                "/job/multi_delete",
                jobs.delete_many,
                summary="Delete several sync jobs",
                needs=Permission.WRITE,
            ),
            op("POST", "/history/list", api.list_history, summary="List runs of sync jobs", needs=Permission.READ),
            op(
                "GET",
                f"{schedule}/next",
                work.next,
                summary="Pull the next sync run, as a worker",
                needs=Permission.WORK,
            ),
            op(
                "POST",
                f"{schedule}/report",
                work.report,
                summary="Report on a sync run, as its worker",
                needs=Permission.WORK,
            ),
            op(
                "GET",
                f"{schedule}/progress",
                work.progress,
                summary="What workers of sync runs said last",
                needs=Permission.READ,
            ),
            op(
                "GET",
                f"{schedule}/status",
                work.queued,
                summary="List sync runs that wait for a worker",
                needs=Permission.READ,
            ),
            op(
                "PUT",
                f"{schedule}/multi_sync/now",
                work.now_many,
                summary="Run several sync jobs now",
                needs=Permission.RUN,
            ),
            op(
                "PUT",
                f"{schedule}/{{job_id}}/now",
                work.now,
                summary="Run a sync job now, or at a moment",
                needs=Permission.RUN,
            ),
            op(
                "PUT",
                f"{schedule}/{{job_id}}/kill",
                work.kill,
                summary="Cancel what is live of a sync job",
                needs=Permission.CANCEL,
            ),
        ]

    def _source_rows(self, row: Row) -> list[http.Operation]:
        op, table = partial(row, tag="sync"), self._sources
        one = "/source/{source_id}"
        return [
            op("POST", "/source/create", table.create, summary="Make a source", needs=Permission.WRITE),
            op("POST", "/source/list", table.list_sources, summary="List sources", needs=Permission.READ),
            op("GET", one, table.get, summary="Read a source", needs=Permission.READ),
            op("GET", f"{one}/organization/{{org_id}}", table.get_for_worker,
               summary="Read a source with its secrets, as a worker", needs=Permission.WORK),
            op("PUT", one, table.replace, summary="Change a source", needs=Permission.WRITE),
            op("DELETE", one, table.delete, summary="Delete a source and its jobs", needs=Permission.WRITE),
            op("DELETE", "/source/multi_delete", table.delete_many, summary="Delete several sources and their jobs",
               needs=Permission.WRITE),
        ]  # fmt: skip


async def _ping(request: http.Request) -> http.Answer:
    return http.reply(200, {"status": "ok", "data": "pong"})
