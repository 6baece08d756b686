"""Lake jobs: made, read and changed (L1 to L3), and the switch of their scheduler (L10, L11)."""

from __future__ import annotations

from horae.contracts.lake import reading, rendering, vocabulary
from horae.contracts.lake.api import DONE, LakeApi
from horae.errors import Conflict
from horae.service import Services
from horae.web import http

CANCELLED_TOGETHER = 100  # runs cancelled before looking for more


class LakeJobs:
    def __init__(self, services: Services, api: LakeApi) -> None:
        self._jobs = services.jobs
        self._api = api

    async def create(self, request: http.Request) -> http.Answer:
        """Organisation, creator and id come from Horae, whatever the body says; statuses and last_run_time are
        kept as sent, and shown until the first run."""
        body, fields = await reading.body_of(request)
        wanted = reading.read_lake_job(reading.inner(fields, "job"))
        who = http.principal(request)
        done = await self._jobs.submit(
            [wanted.draft], owner=who.name, org=who.org, idempotency=request.idempotency(body)
        )
        return http.reply(200, (await self._api.show(done.jobs))[0])

    async def get(self, request: http.Request) -> http.Answer:
        return http.reply(200, (await self._api.show([await self._api.find(request)]))[0])

    async def replace(self, request: http.Request) -> http.Answer:
        """The address names the job; a job_id in the body is 0, absent or the same."""
        _, fields = await reading.body_of(request)
        sent = reading.inner(fields, "job")
        job = await self._api.find(request)
        reading.refuse_other_id(sent, job.id)
        if job.kind not in vocabulary.CLASSES:
            raise Conflict("job type not supported")
        wanted = reading.read_lake_job(sent)
        await self._jobs.replace(job.id, wanted.over(job, rendering.schedule_time(job)))
        return http.reply(200, DONE)

    async def start(self, request: http.Request) -> http.Answer:
        """False: the scheduler is running already. It serves every interface, so that it cannot be stopped here."""
        await request.read()
        return http.reply(200, False)

    async def stop(self, request: http.Request) -> http.Answer:
        """Empties the queue: lake runs of the organisation that nobody has taken yet are cancelled."""
        await request.read()
        while runs := await self._api.waiting(request, vocabulary.LAKE_KINDS, CANCELLED_TOGETHER):
            for run in runs:
                await self._api.cancel(run.id)
        return http.reply(200, True)
